"""Takes a report to one destination: mail, Slack, any webhook, a file. A second try is told from a second report.

Mails have an id made of the ledger's, the day and the destination, posts the same as their Idempotency-Key: should a
crash make a report go out twice, who receives it can tell. No error holds a secret, and no redirect is followed.
"""

import json
import os
import smtplib
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import format_datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpuwatch.cost.report import Report
from gpuwatch.cost.report_knobs import Destination, MailKnobs
from gpuwatch.reporting.document import as_object
from gpuwatch.reporting.html import as_html
from gpuwatch.reporting.markdown import as_markdown
from gpuwatch.reporting.sections import figures, headline, title
from gpuwatch.reporting.text import as_text

_TIMEOUT_SECONDS = 30.0
_WORST = 3  # owners in a message
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
FORMS: Mapping[str, Callable[[Report], str]] = {
    "html": as_html,
    "md": as_markdown,
    "json": lambda report: json.dumps(as_object(report), indent=2) + "\n",
    "txt": lambda report: as_text(report) + "\n",
}


class DeliveryError(Exception):
    """It did not arrive, as far as is known; the sentence says why and holds no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A report on its way; `key` is the same at each try."""

    report: Report
    key: str


def delivered(parcel: Parcel, destination: Destination) -> str:
    """Where it went, for people.

    Raises:
        DeliveryError: it did not arrive.

    """
    (way,) = destination.ways
    try:
        return _WAYS[way](parcel, destination)
    except smtplib.SMTPResponseException as error:
        said = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        raise DeliveryError(f"the mail server answered {error.smtp_code} {said}") from None
    except smtplib.SMTPRecipientsRefused as error:
        raise DeliveryError(f"the mail server takes no mail for {', '.join(error.recipients)}") from None
    except urllib.error.HTTPError as error:
        error.close()
        raise DeliveryError(f"the server answered HTTP {error.code}") from None
    except urllib.error.URLError as error:
        raise DeliveryError(f"the server was not reached: {error.reason}") from None
    except HTTPException as error:  # its words may hold the URL
        raise DeliveryError(f"no HTTP came to pass ({type(error).__name__})") from None
    except (OSError, smtplib.SMTPException) as error:
        raise DeliveryError(f"{type(error).__name__}: {error}") from None


def _mail(parcel: Parcel, destination: Destination) -> str:
    """RFC 5321 by smtplib; the text first, as RFC 2046 has alternatives."""
    knobs, report = destination.mail, parcel.report
    host = knobs.host or ""
    message = EmailMessage()
    message["Subject"] = title(report)
    message["From"] = knobs.sender
    message["To"] = ", ".join(knobs.to)
    message["Date"] = format_datetime(report.facts.now)
    message["Message-ID"] = f"<{parcel.key}@{knobs.sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(as_text(report))
    message.add_alternative(as_html(report, mail=True), subtype="html")
    with _server(knobs, host) as server:
        if knobs.username is not None:
            server.login(knobs.username, _secret(knobs.password_file))
        refused = server.send_message(message)
    # Who was refused is told; a second try would reach those who have it already.
    return f"{len(knobs.to) - len(refused)} by {host}" + (f"; refused: {', '.join(refused)}" if refused else "")


def _server(knobs: MailKnobs, host: str) -> smtplib.SMTP:
    """A connection, encrypted as the settings say."""
    name = socket.gethostname()  # smtplib would ask the resolver for more
    if knobs.security == "tls":
        context = ssl.create_default_context(cafile=knobs.tls_ca)
        return smtplib.SMTP_SSL(host, knobs.port, name, timeout=_TIMEOUT_SECONDS, context=context)
    server = smtplib.SMTP(host, knobs.port, name, timeout=_TIMEOUT_SECONDS)
    if knobs.security == "starttls":
        try:
            server.starttls(context=ssl.create_default_context(cafile=knobs.tls_ca))
        except BaseException:
            server.close()
            raise
    return server


def _slack(parcel: Parcel, destination: Destination) -> str:
    """An incoming webhook: docs.slack.dev/messaging/sending-messages-using-incoming-webhooks."""
    url = _secret(destination.slack.url_file)
    if not _is_safe(url):
        raise DeliveryError(f"{destination.slack.url_file} holds no https:// URL")
    _post(url, slack_message(parcel.report), parcel.key, {})
    return "Slack"


def _is_safe(url: str) -> bool:
    """Whether what is sent there cannot be read on the way."""
    try:
        told = urlsplit(url)
    except ValueError:
        return False
    return told.scheme == "https" or (told.scheme == "http" and told.hostname in _LOOPBACK)


def slack_message(report: Report) -> dict[str, Any]:
    """The first figures, and who wasted the most."""
    fields = [
        {"type": "mrkdwn", "text": f"*{_said(each.name)}*\n{_said(each.value)}\n{_said(each.beside)}"}
        for each in figures(report).figures
    ]
    told = [f"*{_said(title(report))}*\n{_said(headline(report))}"]
    worst = [line for line in report.slices["owner"][:_WORST] if line.wasted_cents > 0]
    if worst:
        owners = ", ".join(f"{_said(line.name[:80])} ${line.wasted_cents / 100:,.2f}" for line in worst)
        told.append(f"Most waste: {owners}")
    return {
        "text": f"{title(report)}: {_said(headline(report))}",
        "blocks": [
            {"type": "section", "text": {"type": "mrkdwn", "text": "\n".join(told)}},
            {"type": "section", "fields": fields[:10]},
        ],
    }


def _said(words: str) -> str:
    """Names come from others: `<!channel>` in one calls nobody."""
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _webhook(parcel: Parcel, destination: Destination) -> str:
    """The document of `gpuwatch report --json`."""
    knobs = destination.webhook
    token = {} if knobs.bearer_file is None else {"Authorization": f"Bearer {_secret(knobs.bearer_file)}"}
    context = ssl.create_default_context(cafile=knobs.tls_ca) if knobs.tls_ca is not None else None
    _post(knobs.url or "", as_object(parcel.report), parcel.key, token, context)
    return urlsplit(knobs.url or "").hostname or ""


def _post(
    url: str, document: dict[str, Any], key: str, headers: Mapping[str, str], context: ssl.SSLContext | None = None
) -> None:
    """Success is a status from 200 to 299."""
    sent = {"Content-Type": "application/json", "Idempotency-Key": key, "User-Agent": "gpuwatch", **headers}
    try:
        request = urllib.request.Request(url, json.dumps(document).encode(), sent)  # noqa: S310  checked by the settings
    except ValueError:
        raise DeliveryError("what should be a URL is none") from None
    opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=context))
    with opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
        answer.read(1)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A token is for the one who was named, and nobody else."""

    def redirect_request(self, *_: object) -> None:
        """No."""


def _file(parcel: Parcel, destination: Destination) -> str:
    """Whole, or as it was before."""
    named = Path(parcel.report.facts.stretch.first.strftime(destination.file.path or ""))
    named.parent.mkdir(parents=True, exist_ok=True)
    fresh = named.with_name(f".{named.name}.new")
    fresh.write_text(FORMS[named.suffix[1:]](parcel.report), encoding="utf-8")
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    fresh.replace(named)
    return str(named)


def _secret(path: str | None) -> str:
    """What a file of its own holds, read anew each time."""
    try:
        return Path(path or "").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise DeliveryError(f"{path} cannot be read: {why}") from None


_WAYS: Mapping[str, Callable[[Parcel, Destination], str]] = {
    "mail": _mail,
    "slack": _slack,
    "webhook": _webhook,
    "file": _file,
}
