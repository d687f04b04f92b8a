"""What went wrong between this program and another one, in words: who was asked, and what to check.

The libraries' own texts are left out: they hold class names, numbers, and at times the request with its secrets.
"""

import errno
import http.client
import re
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

_NO_ROUTE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.EADDRNOTAVAIL})
_RESET = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED})
_NO_NAME = {"NameResolutionError", "ClientConnectorDNSError", "gaierror"}
_HUNG_UP = {
    "ServerDisconnectedError",
    "ClientPayloadError",
    "RemoteDisconnected",
    "IncompleteRead",
    "ProtocolError",
    "ConnectionClosedError",
}
_LATE = {"ConnectTimeoutError", "ReadTimeoutError", "ConnectTimeout", "ReadTimeout"}
_OTHER_THAN_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
_NO_URL = {
    "HTTPClientError",
    "InvalidProxyConfigurationError",
    "InvalidProxyURL",
    "InvalidURL",
    "LocationParseError",
    "ProxyConnectionError",
}
_INNER = ("reason", "os_error", "original_error", "__cause__", "__context__")
_MOST_CAUSES = 12


def network_text(error: BaseException, url: str = "") -> str | None:
    """The sentence, without a full stop; None: the error is none of the network. `url` is what was asked, if known."""
    causes = list(_causes(error))
    place = _place(causes, url)
    if any(type(each).__name__ in _NO_URL for each in causes) and (name := _wrong_proxy()) is not None:
        return f"{name} is not a valid URL; write one, such as http://proxy.example.com:3128, or unset it"
    proxy = _proxy_of(causes, url)
    words = next((found for each in causes if (found := _words(each, place)) is not None), None)
    if proxy and (words is not None or any("Proxy" in type(each).__name__ for each in causes)):
        return f"{words or f'{place} is not reached'}; requests go through the proxy {proxy} (HTTPS_PROXY, NO_PROXY)"
    return words


def not_listening(error: OSError, section: str) -> str:
    """Why this program cannot listen at the address of its settings, with what helps; the section has the port."""
    why = error.strerror or str(error)
    helps = {
        errno.EADDRINUSE: f"; end what listens there, or choose another {section}.port",
        errno.EACCES: f"; choose a {section}.port from 1024 on",
        errno.EADDRNOTAVAIL: f"; this machine has no such address ({section}.host)",
    }
    return why + helps.get(error.errno or 0, "")


def _words(error: BaseException, place: str) -> str | None:
    number, name = getattr(error, "errno", None), type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {place} is not believed ({error.verify_message}); SSL_CERT_FILE names its CA"
    if isinstance(error, ssl.SSLError):
        if any(each in str(error) for each in _OTHER_THAN_TLS):
            return f"{place} does not speak TLS; check the port, or write http:// if it is meant to be without"
        return f"{place} and this machine agree on no TLS connection; check its certificate and its TLS version"
    if isinstance(error, socket.gaierror) or name in _NO_NAME:
        name = re.sub(r":\d+$", "", place)
        return f"the name {name!r} cannot be resolved; check its spelling and this machine's DNS"
    if number == errno.ECONNREFUSED:
        return f"{place} refuses connections; check the port, and that the service runs"
    if number in _NO_ROUTE:
        return f"there is no route to {place}; check this machine's network, VPN and firewall"
    if isinstance(error, TimeoutError) or name in _LATE:
        return f"{place} did not answer in time; check firewalls on the way, and that the service runs"
    if number in _RESET or name in _HUNG_UP or isinstance(error, http.client.IncompleteRead):
        return f"{place} closed the connection before its answer was whole"
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and those behind it, the innermost first: it is the one that says what happened."""
    found: list[BaseException] = []
    waiting: list[BaseException] = [error]
    while waiting and len(found) < _MOST_CAUSES:
        each = waiting.pop(0)
        if each in found:
            continue
        found.append(each)
        given = getattr(each, "kwargs", None)  # botocore's
        inner = [getattr(each, name, None) for name in _INNER]
        inner += [*each.args, *(given.values() if isinstance(given, dict) else ())]
        waiting += [one for one in inner if isinstance(one, BaseException)]
    return reversed(found)


def _place(causes: list[BaseException], url: str) -> str:
    """Host and port that were asked, without user, path and query."""
    for text in (url, *(_value_of(each, "endpoint_url") for each in causes)):
        scheme, host, port = _parts(text)
        if host:
            return _host_and_port(host, port or {"http": 80, "https": 443}.get(scheme))
    for each in causes:
        asked = getattr(each, "conn", None) or getattr(each, "pool", None) or each
        known = getattr(asked, "host", None)
        if isinstance(known, str) and known:
            return _host_and_port(known, getattr(asked, "port", None))
    return "its address"


def _host_and_port(host: str, port: object) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port}" if port else shown


def _value_of(error: BaseException, name: str) -> str:
    """A value that botocore's errors carry."""
    given = getattr(error, "kwargs", None)
    return str(given.get(name) or "") if isinstance(given, dict) else ""


def _proxy_of(causes: list[BaseException], url: str) -> str | None:
    """Host and port of the proxy that was to carry the request, without its user and password; None: none was."""
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415  loaded for an error alone

    text = next(filter(None, (_value_of(each, "proxy_url") for each in causes)), "")
    if not text:
        endpoint = next(filter(None, (_value_of(each, "endpoint_url") for each in causes)), "")
        scheme, asked, _ = _parts(url or endpoint)
        if any("Proxy" in type(each).__name__ for each in causes):
            text = getproxies().get(scheme or "https", "")
        elif asked and not proxy_bypass(asked):
            text = getproxies().get(scheme, "")
    _, host, port = _parts(text if "//" in text else f"//{text}")
    return _host_and_port(host, port) if host else None


def _wrong_proxy() -> str | None:
    """The variable of the environment that should name a proxy and does not; its value may hold a password."""
    from urllib.request import getproxies  # noqa: PLC0415  as above

    given = {scheme: text for scheme, text in getproxies().items() if scheme in {"http", "https", "all"}}
    wrong = (scheme for scheme, text in given.items() if not _parts(text if "//" in text else f"//{text}")[1])
    return next((f"{scheme.upper()}_PROXY" for scheme in wrong), None)


def _parts(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port; empty if this is not a valid URL, which may be why nobody was reached."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "", "", None
    return parts.scheme, parts.hostname or "", port
