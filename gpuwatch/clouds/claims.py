"""What people's tags claim for a machine; the same words on every cloud. Any doubt about a tag protects."""

from collections.abc import Mapping
from datetime import datetime
from typing import TypedDict

from gpuwatch.clouds import FLEET_TAG, OWNER_TAG, POOL_TAG, PROTECT_TAG, SNOOZE_TAG

DEFAULT_POOL = "default"
_FOR_GOOD = "true"
_EXAMPLE = "write for example 2026-01-31T18:00Z"


class Claims(TypedDict):
    """The fields of Node that come from tags alone."""

    enrolled: bool
    pool: str
    owner: str | None
    protected: str | None
    snoozed: str | None


def claims(tags: Mapping[str, str], *, fleet: str, now: datetime) -> Claims:
    """Whose machine it is, where it belongs, and why or until when it must not be touched at this moment."""
    unreadable, snoozed = _snoozed(tags, now)
    return Claims(
        enrolled=tags.get(FLEET_TAG) == fleet,
        pool=tags.get(POOL_TAG) or DEFAULT_POOL,
        owner=tags.get(OWNER_TAG) or None,
        protected=_protected(tags, now) or unreadable,
        snoozed=snoozed,
    )


def _protected(tags: Mapping[str, str], now: datetime) -> str | None:
    """`true` or any text protects for good, a time protects until then."""
    value = tags.get(PROTECT_TAG)
    if value is None:
        return None
    if value.strip().lower() == _FOR_GOOD:
        return f"tag {PROTECT_TAG} protects it"
    try:
        until = _time(value)
    except ValueError as error:
        return f"tag {PROTECT_TAG} is {value!r}, which {error}: it protects until the tag is removed"
    return f"tag {PROTECT_TAG} protects it until {value}" if until > now else None


def _snoozed(tags: Mapping[str, str], now: datetime) -> tuple[str | None, str | None]:
    """Why it protects, and until when it postpones: what is no time protects until somebody mends it."""
    value = tags.get(SNOOZE_TAG)
    if value is None:
        return None, None
    try:
        until = _time(value)
    except ValueError as error:
        return f"tag {SNOOZE_TAG} is {value!r}, which {error} ({_EXAMPLE}): it postpones until the tag is mended", None
    return None, (value if until > now else None)


def _time(value: str) -> datetime:
    """An aware time.

    Raises:
        ValueError: the text is none; the message goes on from "which".

    """
    try:
        time = datetime.fromisoformat(value.strip())
    except ValueError:
        raise ValueError("is no ISO 8601 time") from None
    if time.tzinfo is None:
        raise ValueError("has no time zone")
    return time
