"""What people's tags claim for a machine; the same words on every cloud. Any doubt about a tag protects."""

from collections.abc import Mapping
from datetime import datetime
from typing import TypedDict

from gpuwatch.clouds import FLEET_TAG, OWNER_TAG, POOL_TAG, PROTECT_TAG, SNOOZE_TAG
from gpuwatch.clouds.tag_keys import doubt
from gpuwatch.model.fleet import DEFAULT_POOL
from gpuwatch.model.slips import folded

_FOR_GOOD = "true"
EXPIRED_REMEDY = "Remove the tag: policies in the cloud, such as those in iam/, refuse every change while it is there."
_EXAMPLE = "write for example 2026-01-31T18:00Z"


class Claims(TypedDict):
    """The fields of Node that come from tags alone."""

    enrolled: bool
    pool: str
    owner: str | None
    protected: str | None
    snoozed: str | None


def claims(tags: Mapping[str, str], *, fleet: str, now: datetime) -> Claims:
    """Who owns the machine, where it belongs, and why or until when it must not be touched at this moment."""
    unreadable, snoozed = _snoozed(tags, now)
    return Claims(
        enrolled=tags.get(FLEET_TAG) == fleet,
        pool=tags.get(POOL_TAG, DEFAULT_POOL),
        owner=tags.get(OWNER_TAG) or None,
        protected=_protected(tags, now) or unreadable or _misspelt(tags),
        snoozed=snoozed,
    )


def expired(tags: Mapping[str, str], now: datetime) -> bool:
    """Whether a tag that protected the machine is still there after its time: a cloud's policies may go by the key."""
    return PROTECT_TAG in tags and _protected(tags, now) is None


def similar_fleet(tags: Mapping[str, str], fleet: str) -> str | None:
    """The fleet that a machine names where it is ours but for case, blanks or punctuation; it is not enrolled by it."""
    named = tags.get(FLEET_TAG)
    return named if named not in {None, fleet} and folded(named or "") == folded(fleet) else None


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


def _misspelt(tags: Mapping[str, str]) -> str | None:
    """A key that only looks like one of ours protects, whatever its value is."""
    return next((why for key in sorted(tags) if (why := doubt(key)) is not None), None)


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
        ValueError: the text is not such a time; the message goes on from "which".

    """
    try:
        time = datetime.fromisoformat(value.strip())
    except ValueError:
        raise ValueError("is no ISO 8601 time") from None
    if time.tzinfo is None:
        raise ValueError("has no time zone")
    return time
