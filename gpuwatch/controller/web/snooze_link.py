"""Signed links in messages about a removal: the reader can postpone it without a login.

1. A link is for one notice of one node, made out to somebody, and ends; only the owner of the secret can make one.
2. The signature is compared in constant time. Nothing else than the very token passes.
"""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime

from itsdangerous import BadData, URLSafeSerializer

from gpuwatch.model.duration import format_time

SNOOZE = "/snooze/"
LEAST_SECRET_BYTES = 32
_VERSION = "2"
_PURPOSE = f"gpuwatch snooze link {_VERSION}"  # a key of its own is derived from the secret for each purpose


class LinkError(Exception):
    """The link gives no right; the sentence says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a link is for: the node, the notice (its key), the person it was made out to, and until when it holds."""

    node_id: str
    key: str
    whom: str
    until: datetime


def secret_of(content: bytes, where: str) -> bytes:
    """The secret in a file's content, without white space around it; `where` names the file.

    Raises:
        ValueError: it is too short to be one.

    """
    secret = content.strip()
    if len(secret) < LEAST_SECRET_BYTES:
        raise ValueError(
            f"{where}: {len(secret)} bytes are no secret, {LEAST_SECRET_BYTES} are the least; "
            "make one with `openssl rand -base64 32`"
        )
    return secret


def sign_claim(secret: bytes, claim: Claim) -> str:
    """The token of a claim: letters, digits, `-`, `_` and a few dots."""
    parts = [claim.node_id, claim.key, claim.whom, claim.until.astimezone(UTC).isoformat()]
    return f"{_VERSION}.{_serializer(secret).dumps(parts)}"


def read_claim(secret: bytes, token: str, now: datetime) -> Claim:
    """What a token claims.

    Raises:
        LinkError: it was not signed with this secret, was changed or cut, has ended, or is of another version.

    """
    version, _, text = token.partition(".")
    if version != _VERSION and version.isdecimal() and "." in text:
        raise LinkError("This link was made by another version of gpuwatch. Take the link of a newer message.")
    try:
        claim = _read_signed(_serializer(secret), text if version == _VERSION else "")
    except (BadData, UnicodeEncodeError):
        raise LinkError(
            "This link is not whole, was changed, or the controller's secret has been renewed since. "
            "Open it from the message itself, and mind that no part of it is cut off."
        ) from None
    if now >= claim.until:
        raise LinkError(f"This link for {claim.node_id} ended at {format_time(claim.until)}.")
    return claim


def snooze_url(base: str, secret: bytes, claim: Claim) -> str:
    """The link; `base` is where people reach the controller's page."""
    return f"{base.rstrip('/')}{SNOOZE}{sign_claim(secret, claim)}"


def _read_signed(serializer: URLSafeSerializer, text: str) -> Claim:
    """What was signed.

    Raises:
        BadData: it was not signed so.
        UnicodeEncodeError: the same.

    """
    node_id, key, whom, until = serializer.loads(text)
    # Base64 can be written in several ways, of which only ours passes.
    payload, _, _ = text.rpartition(".")
    if serializer.make_signer(serializer.salt).sign(payload) != text.encode():
        raise BadData("not the token itself")
    return Claim(node_id=node_id, key=key, whom=whom, until=datetime.fromisoformat(until))


def _serializer(secret: bytes) -> URLSafeSerializer:
    derived = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
    return URLSafeSerializer(secret, salt=_PURPOSE, signer_kwargs=derived)
