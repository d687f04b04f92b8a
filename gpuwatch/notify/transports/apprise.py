"""The services that apprise knows (github.com/caronc/apprise), loaded when the first message goes there.

Its URLs hold passwords and tokens, and apprise logs them: its log is off, and errors name lines of the file by number.
Apprise gets the body as plain text; otherwise some services would read it as HTML, and names could hold tags.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from gpuwatch.model.setting import Setting
from gpuwatch.notify.transports.base import LOOPBACK, Delivery, DeliveryError, Transport, secret
from gpuwatch.notify.transports.harmless import harmless_text
from gpuwatch.runtime.installed import install_command

_LOGGERS = ("apprise", "urllib3", "requests")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppriseSettings(Transport):
    """Any of the services that apprise knows, as text; needs the extra `notify`."""

    target: ClassVar[str] = "urls_file"

    urls_file: Annotated[
        str | None,
        Setting("The file that holds apprise's URLs, one a line, which are secrets; read at each message."),
    ] = None

    def send(self, delivery: Delivery) -> str:
        """How many of the file's URLs it went to; those that failed have no second try if any succeeded.

        A snooze link is left out where the connection is not encrypted.

        Raises:
            DeliveryError: it reached none of them, or apprise does not know one of the URLs.

        """
        try:
            import apprise  # noqa: PLC0415  25 MB that only these messages need
        except ImportError as error:
            raise DeliveryError(f"apprise is not installed ({error}): {install_command('notify')}") from None
        lines = [(number, line.strip()) for number, line in enumerate(secret(self.urls_file).splitlines(), 1)]
        urls = [(number, line) for number, line in lines if line and not line.startswith("#")]
        if not urls:
            raise DeliveryError(f"{self.urls_file} holds no URL")
        with _quiet():
            services = [(number, apprise.Apprise()) for number, _ in urls]
            for (number, service), (_, url) in zip(services, urls, strict=True):
                if not service.add(url):
                    raise DeliveryError(f"line {number} of {self.urls_file} is not a URL that apprise knows")
            for server in (server for _, service in services for server in service):
                server.overflow_mode = apprise.OverflowMode.SPLIT  # services refuse what is too long for them
            failed = [
                number
                for number, service in services
                if not service.notify(
                    body=harmless_text(delivery.content.chat(links=all(map(_is_encrypted, service)))),
                    title=delivery.content.title,
                    body_format=apprise.NotifyFormat.TEXT,
                )
            ]
        missed = f"line {', '.join(map(str, failed))} of {self.urls_file}"
        if len(failed) == len(urls):
            raise DeliveryError(f"apprise could not deliver it to any of its URLs ({missed})")
        return f"{len(urls) - len(failed)} by apprise" + (f"; failed: {missed}" if failed else "")


def _is_encrypted(server: Any) -> bool:  # noqa: ANN401  apprise has no types
    """Whether others cannot read it on the way; a service with one protocol only is on the internet, by https."""
    if server.protocol is None or server.secure_protocol is None or server.secure:
        return True
    return server.host in LOOPBACK


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep everything that holds a URL out of the logs."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
