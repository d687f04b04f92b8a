"""Mail by SMTP (RFC 5321), as text and HTML; the Message-ID is the same at each try."""

import re
import smtplib
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Le, MinLen

from gpuwatch.model.setting import Contradiction, Setting
from gpuwatch.notify.transports.base import (
    LOOPBACK,
    Delivery,
    DeliveryError,
    Transport,
    in_words,
    one_without_other,
    secret,
)
from gpuwatch.notify.transports.harmless import harmless_html, harmless_text
from gpuwatch.runtime.printable import legible

ADDRESS = re.compile(r"[^@\s,;<>]+@[^@\s,;<>]+")
_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MailSettings(Transport):
    """A mail by SMTP, as HTML and text."""

    target: ClassVar[str] = "host"

    host: Annotated[str | None, Setting("The mail server that accepts our mail, such as smtp.example.com.")] = None
    port: Annotated[int, Ge(1), Le(65535), Setting("Its port: 587 for STARTTLS, 465 for TLS, 25 for none.")] = 587
    security: Annotated[
        Literal["starttls", "tls", "none"],
        Setting("starttls and tls check the server's certificate; none encrypts nothing."),
    ] = "starttls"
    tls_ca: Annotated[
        str | None, Setting("CA certificates in PEM that the server's must come from. None: the system's.")
    ] = None
    username: Annotated[str | None, Setting("The user at the mail server; needs TLS.")] = None
    password_file: Annotated[
        str | None, Setting("The file that holds the user's password and nothing else; read at each mail.")
    ] = None
    sender: Annotated[str, MinLen(3), Setting("The address that the mail comes from.")] = "gpuwatch@localhost"
    to: Annotated[tuple[Annotated[str, MinLen(3)], ...], Setting("The addresses that it goes to.")] = ()

    def contradictions(self, path: tuple[str, ...], *, owners: bool) -> Iterator[Contradiction]:
        """Missing or wrong addresses, half a login, a password without encryption."""
        where = ".".join(path)
        if self.host is not None and not self.to and not owners:
            keys = ((*path, "to"), (*path, "host"))
            yield Contradiction(keys=keys, wrong=f"{where}.to is empty", right="[ops@example.com]")
        for key, address in (("sender", self.sender), *(("to", each) for each in self.to)):
            if not ADDRESS.fullmatch(address):
                wrong = f"{where}.{key}: {address!r} is not a mail address"
                yield Contradiction(keys=((*path, key),), wrong=wrong, right="an address such as ops@example.com")
        if self.tls_ca is not None and self.host is None:
            yield one_without_other(path, "tls_ca", "host")
        if self.username is not None and self.password_file is None:
            yield one_without_other(path, "username", "password_file")
        if self.password_file is not None and self.username is None:
            yield one_without_other(path, "password_file", "username")
        if self.username is not None and self.security == "none":
            yield Contradiction(
                keys=((*path, "security"), (*path, "username")),
                wrong=f"{where}.security is `none`: others could read the password of {self.username!r}",
                right="starttls or tls",
            )

    def unencrypted_setting(self) -> str | None:
        """`security`, where nothing is encrypted."""
        return "security" if self.security == "none" and self.host not in LOOPBACK else None

    def send(self, delivery: Delivery) -> str:
        """One mail to all addresses; a refused one is reported, because a second try would reach the others twice."""
        message = EmailMessage()
        message["Subject"] = delivery.content.title
        message["From"] = self.sender
        message["To"] = ", ".join(delivery.to)
        if delivery.copies:
            message["Cc"] = ", ".join(delivery.copies)
        message["Date"] = format_datetime(delivery.at)
        message["Message-ID"] = f"<{delivery.key}@{self.sender.rpartition('@')[2]}>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(harmless_text(delivery.content.text()))
        page = harmless_html(delivery.content.html(mail=True))
        message.add_alternative(page, subtype="html")  # after the text, as RFC 2046 says
        host = self.host or ""
        place = f"smtp://[{host}]:{self.port}" if ":" in host else f"smtp://{host}:{self.port}"
        with in_words(place), self._server(host) as server:
            if self.username is not None:
                server.login(self.username, secret(self.password_file))
            refused = server.send_message(message)
        count = len(delivery.to) + len(delivery.copies) - len(refused)
        return f"{count} by {self.host}" + (f"; refused: {legible(', '.join(refused))}" if refused else "")

    def _server(self, host: str) -> smtplib.SMTP:
        """A connection, encrypted as the settings say."""
        name = socket.gethostname()  # smtplib would ask the resolver for more
        if self.security == "tls":
            context = ssl.create_default_context(cafile=self.tls_ca)
            return smtplib.SMTP_SSL(host, self.port, name, timeout=_TIMEOUT_SECONDS, context=context)
        server = smtplib.SMTP(host, self.port, name, timeout=_TIMEOUT_SECONDS)
        if self.security == "starttls":
            try:
                server.starttls(context=ssl.create_default_context(cafile=self.tls_ca))
            except smtplib.SMTPNotSupportedError:
                server.close()
                what = "the mail server has no STARTTLS: set its `security` to tls, or to none in a closed network"
                raise DeliveryError(what) from None
            except BaseException:
                server.close()
                raise
        return server
