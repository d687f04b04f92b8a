"""How others are asked over HTTP: without redirects, for a key or a token is for the named server alone."""

import ssl
import urllib.request


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Leaves a redirect as the error that it is then."""

    def redirect_request(self, *_: object) -> None:
        """Follow no redirect at all."""


def opener(context: ssl.SSLContext | None = None) -> urllib.request.OpenerDirector:
    """Opens URLs and follows no redirect; `context` replaces the usual checks of TLS."""
    return urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=context))
