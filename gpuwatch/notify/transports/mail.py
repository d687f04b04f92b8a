"""Mail by SMTP (RFC 5321), text and HTML beside each other; its id tells a second try from a second mail."""

import smtplib
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime

from gpuwatch.notify.transports.errors import in_words, secret
from gpuwatch.notify.transports.settings import MailSettings

_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Email:
    """A mail; `key` is the same at each try."""

    key: str
    at: datetime
    subject: str
    text: str
    html: str


def mailed(letter: Email, settings: MailSettings, to: Sequence[str], copies: Sequence[str] = ()) -> str:
    """Where it went, for people.

    Raises:
        RecipientsRefusedError: the server takes it for none of them.
        DeliveryError: it did not arrive.

    """
    host = settings.host or ""
    message = EmailMessage()
    message["Subject"] = letter.subject
    message["From"] = settings.sender
    message["To"] = ", ".join(to)
    if copies:
        message["Cc"] = ", ".join(copies)
    message["Date"] = format_datetime(letter.at)
    message["Message-ID"] = f"<{letter.key}@{settings.sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(letter.text)
    message.add_alternative(letter.html, subtype="html")  # after the text, as RFC 2046 has alternatives
    with in_words(), _server(settings, host) as server:
        if settings.username is not None:
            server.login(settings.username, secret(settings.password_file))
        refused = server.send_message(message)
    # Who was refused is told; a second try would reach those who have it already.
    sent = len(to) + len(copies) - len(refused)
    return f"{sent} by {host}" + (f"; refused: {', '.join(refused)}" if refused else "")


def _server(settings: MailSettings, host: str) -> smtplib.SMTP:
    """A connection, encrypted as the settings say."""
    name = socket.gethostname()  # smtplib would ask the resolver for more
    if settings.security == "tls":
        context = ssl.create_default_context(cafile=settings.tls_ca)
        return smtplib.SMTP_SSL(host, settings.port, name, timeout=_TIMEOUT_SECONDS, context=context)
    server = smtplib.SMTP(host, settings.port, name, timeout=_TIMEOUT_SECONDS)
    if settings.security == "starttls":
        try:
            server.starttls(context=ssl.create_default_context(cafile=settings.tls_ca))
        except BaseException:
            server.close()
            raise
    return server
