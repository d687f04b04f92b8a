"""The services that apprise knows (github.com/caronc/apprise), loaded when the first message goes there.

Its URLs hold passwords and tokens, and it logs them: its log is shut, and lines of the file are told by their number.
It is told that our words are text: without that they are whatever the service has, HTML for one, and tags are in them.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpuwatch.notify.settings import AppriseSettings
from gpuwatch.notify.transports.errors import DeliveryError, secret
from gpuwatch.notify.transports.settings import LOOPBACK

_TALKERS = ("apprise", "urllib3", "requests")


def told(title: str, body: str, without_links: str, settings: AppriseSettings) -> str:
    """To how many of the file's URLs it went; those that failed are told and have no second try if any succeeded.

    Where the way is not encrypted, others could use a keep link: those get the body without any.

    Raises:
        DeliveryError: it got to none of them, or one of them is no URL that apprise knows.

    """
    try:
        import apprise  # noqa: PLC0415  25 MB that only these messages need
    except ImportError as error:
        raise DeliveryError(f"apprise is not installed ({error}): pip install 'gpuwatch[notify]'") from None
    lines = [(number, line.strip()) for number, line in enumerate(secret(settings.urls_file).splitlines(), 1)]
    urls = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if not urls:
        raise DeliveryError(f"{settings.urls_file} holds no URL")
    with _quiet():
        services = [(number, apprise.Apprise()) for number, _ in urls]
        for (number, service), (_, url) in zip(services, urls, strict=True):
            if not service.add(url):
                raise DeliveryError(f"line {number} of {settings.urls_file} is no URL that apprise knows")
        failed = [
            number
            for number, service in services
            if not service.notify(
                body=body if all(map(_is_encrypted, service)) else without_links,
                title=title,
                body_format=apprise.NotifyFormat.TEXT,
            )
        ]
    missed = f"line {', '.join(map(str, failed))} of {settings.urls_file}"
    if len(failed) == len(urls):
        raise DeliveryError(f"apprise could not deliver it to any of its URLs ({missed})")
    return f"{len(urls) - len(failed)} by apprise" + (f"; failed: {missed}" if failed else "")


def _is_encrypted(server: Any) -> bool:  # noqa: ANN401  apprise has no types
    """Whether nobody on the way can read it; what has one way only is a service of the internet, by https."""
    if server.protocol is None or server.secure_protocol is None or server.secure:
        return True
    return server.host in LOOPBACK


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing that holds a URL gets into a log meanwhile."""
    loggers = [logging.getLogger(name) for name in _TALKERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
