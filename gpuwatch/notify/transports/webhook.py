"""JSON by HTTP POST, to Slack or any webhook; no redirect is followed, and no error holds a secret."""

import json
import ssl
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from gpuwatch.notify.transports.errors import DeliveryError, in_words, secret
from gpuwatch.notify.transports.settings import LOOPBACK, SlackSettings, WebhookSettings
from gpuwatch.runtime.http.client import opener

_TIMEOUT_SECONDS = 30.0


def slacked(message: Mapping[str, Any], settings: SlackSettings, key: str) -> str:
    """Where it went: docs.slack.dev/messaging/sending-messages-using-incoming-webhooks.

    Raises:
        DeliveryError: it did not arrive.

    """
    url = secret(settings.url_file)
    if not _is_safe(url):
        raise DeliveryError(f"{settings.url_file} holds no https:// URL")
    _post(url, message, key, {})
    return "Slack"


def posted(document: Mapping[str, Any], settings: WebhookSettings, key: str) -> str:
    """The host that it went to; raises as `slacked`."""
    token = {} if settings.bearer_file is None else {"Authorization": f"Bearer {secret(settings.bearer_file)}"}
    with in_words():
        context = ssl.create_default_context(cafile=settings.tls_ca) if settings.tls_ca is not None else None
    _post(settings.url or "", document, key, token, context)
    return urlsplit(settings.url or "").hostname or ""


def _is_safe(url: str) -> bool:
    """Whether what is sent there cannot be read on the way."""
    try:
        told = urlsplit(url)
    except ValueError:
        return False
    return told.scheme == "https" or (told.scheme == "http" and told.hostname in LOOPBACK)


def _post(
    url: str,
    document: Mapping[str, Any],
    key: str,
    headers: Mapping[str, str],
    context: ssl.SSLContext | None = None,
) -> None:
    """Success is a status from 200 to 299."""
    sent = {"Content-Type": "application/json", "Idempotency-Key": key, "User-Agent": "gpuwatch", **headers}
    try:
        request = urllib.request.Request(url, json.dumps(document).encode(), sent)  # noqa: S310  checked by the settings
    except ValueError:
        raise DeliveryError("what should be a URL is none") from None
    with in_words(), opener(context).open(request, timeout=_TIMEOUT_SECONDS) as answer:
        answer.read(1)
