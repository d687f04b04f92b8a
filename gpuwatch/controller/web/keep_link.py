"""Signed links by which whoever was told of a coming removal may put it off, without a login.

1. A link is for one notice of one node, made out to somebody, and ends; only whoever has the secret can make one.
2. The signature is compared as text and in constant time: nothing else than the very token passes.
"""

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import UTC, datetime

KEEP = "/keep/"
LEAST_SECRET_BYTES = 32
_VERSION = "1"
_PARTS = 3  # version, payload, signature
_PURPOSE = b"gpuwatch keep link\0"  # the same secret signs nothing else with it


class LinkError(Exception):
    """The link gives no right; the sentence tells whoever opened it why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a link is for: the node, the notice (its key), to whom it was made out, and until when it holds."""

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


def signed(secret: bytes, claim: Claim) -> str:
    """The token of a claim: letters, digits, `-`, `_` and two dots."""
    told = [claim.node_id, claim.key, claim.whom, claim.until.astimezone(UTC).isoformat()]
    text = f"{_VERSION}.{_encoded(json.dumps(told, separators=(',', ':')).encode())}"
    return f"{text}.{_signature(secret, text)}"


def claimed(secret: bytes, token: str, now: datetime) -> Claim:
    """What a token claims.

    Raises:
        LinkError: it was not signed with this secret, was changed or cut, has ended, or is of another version.

    """
    version, *rest = token.split(".")
    if version != _VERSION and version.isdecimal() and len(rest) == _PARTS - 1:
        raise LinkError("This link was made by another version of gpuwatch. Take the link of a newer message.")
    text, _, signature = token.rpartition(".")
    right = _signature(secret, text)
    if not hmac.compare_digest(right.encode(), signature.encode("utf-8", "surrogatepass")):
        raise LinkError(
            "This link is not whole, was changed, or the controller's secret has been renewed since. "
            "Open it from the message itself, and mind that no part of it is cut off."
        )
    claim = _read(text.partition(".")[2])
    if now >= claim.until:
        raise LinkError(f"This link for {claim.node_id} ended at {claim.until:%Y-%m-%d %H:%M} UTC.")
    return claim


def keep_url(base: str, secret: bytes, claim: Claim) -> str:
    """The link; `base` is where people reach the controller's page."""
    return f"{base.rstrip('/')}{KEEP}{signed(secret, claim)}"


def _read(payload: str) -> Claim:
    """What was signed."""
    node_id, key, whom, until = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return Claim(node_id=node_id, key=key, whom=whom, until=datetime.fromisoformat(until))


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _signature(secret: bytes, text: str) -> str:
    signed_text = _PURPOSE + text.encode("utf-8", "surrogatepass")
    return _encoded(hmac.digest(secret, signed_text, hashlib.sha256))
