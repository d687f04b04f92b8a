"""PURE: what tags claim for a machine, people's and those of other systems; the same words on every cloud.

Any doubt about a tag protects. A key that only looks like one of ours is a slip of the hand. What its author wanted is
not known, so the machine is protected until the key is corrected: that costs money, and the other reading could cost
somebody's work.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, TypedDict

from gpuwatch.clouds import FLEET_TAG, OWNER_TAG, POOL_TAG, PROTECT_TAG, SNOOZE_TAG, STOP_AT
from gpuwatch.model.decision import DECISION_TAG, INTERRUPTIBLE_TAG, NOTIFIED_TAG
from gpuwatch.model.fleet import DEFAULT_POOL
from gpuwatch.model.slips import edits, fold_text
from gpuwatch.model.slurm import NODE_TAG

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


def tags_among(
    entries: Iterable[Mapping[str, Any]] | None, *, key: str = "Key", value: str = "Value"
) -> dict[str, str]:
    """The tags of an answer. One that has lost its value is there all the same: its key alone may protect.

    Raises:
        KeyError: an entry has no key. It is cut off, and could be anything.

    """
    return {each[key]: str(each.get(value) or "") for each in entries or ()}


def tags_in(described: Mapping[str, Any] | None) -> dict[str, str]:
    """The same of an answer that has them as members of an object."""
    return {key: str(value or "") for key, value in (described or {}).items()}


def tags_in_any_case(described: Mapping[str, Any] | None) -> dict[str, str]:
    """The same where the keys have no case, and come as somebody typed them once: ours in our own spelling."""
    return {_IN_ANY_CASE.get(key.lower(), key): text for key, text in tags_in(described).items()}


def claims(tags: Mapping[str, str], *, fleet: str, now: datetime) -> Claims:
    """Who owns the machine, where it belongs, and why or until when it must not be touched at this moment."""
    unreadable, snoozed = _snoozed_until(tags, now)
    return Claims(
        enrolled=tags.get(FLEET_TAG) == fleet,
        pool=tags.get(POOL_TAG, DEFAULT_POOL),
        owner=tags.get(OWNER_TAG) or None,
        protected=_why_protected(tags, now) or unreadable or _misspelt(tags),
        snoozed=snoozed,
    )


def has_expired(tags: Mapping[str, str], now: datetime) -> bool:
    """Whether a tag that protected the machine is still there after its time: a cloud's policies may go by the key."""
    return PROTECT_TAG in tags and _why_protected(tags, now) is None


def similar_fleet(tags: Mapping[str, str], fleet: str) -> str | None:
    """The fleet that a machine names where it is ours but for case, blanks or punctuation; it is not enrolled by it."""
    named = tags.get(FLEET_TAG)
    return named if named not in {None, fleet} and fold_text(named or "") == fold_text(fleet) else None


def _why_protected(tags: Mapping[str, str], now: datetime) -> str | None:
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


def _snoozed_until(tags: Mapping[str, str], now: datetime) -> tuple[str | None, str | None]:
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


# Keys that are ours, and those that somebody probably meant to be.

# What people set: each changes what may be done with a machine, so a slip in any of them is a doubt.
READ = (PROTECT_TAG, SNOOZE_TAG, POOL_TAG, OWNER_TAG, FLEET_TAG, INTERRUPTIBLE_TAG, NODE_TAG)
KNOWN = frozenset({*READ, NOTIFIED_TAG, STOP_AT, DECISION_TAG})
_IN_ANY_CASE = {key.lower(): key for key in KNOWN}

_PREFIX = fold_text("gpuwatch")
_PREFIX_SLIPS = 2  # characters in which a prefix may differ from ours and still be taken for it
_LETTERS_A_SLIP = 3  # and a word after it: one in so many

# Other words for what the keys mean, so that the message names the right one.
_SYNONYMS = {
    PROTECT_TAG: ("protected", "protection", "keep", "donotstop", "dontstop", "nostop", "exclude", "ignore", "skip"),
    SNOOZE_TAG: ("snooze", "snoozed", "until", "keepuntil", "postpone", "delay"),
}
_WORDS = {fold_text(key).removeprefix(_PREFIX): key for key in READ} | {
    word: key for key, words in _SYNONYMS.items() for word in words
}


@lru_cache(maxsize=4096)
def slip(key: str) -> str | None:
    """The key of ours that a machine's key was probably meant to be; None: it is one of ours, or somebody else's.

    Every other key that begins with gpuwatch is a slip, however it is spaced and written; so is a key with a prefix
    like ours, or with ours further on, before a word like one of ours.
    """
    if key in KNOWN:
        return None
    written = fold_text(key)
    if written.startswith(_PREFIX):
        return _word(written.removeprefix(_PREFIX)) or PROTECT_TAG  # by hand, people mostly want to keep a machine
    places = [len(_PREFIX) + more for more in range(-_PREFIX_SLIPS, _PREFIX_SLIPS + 1)]
    parts = [(written[:place], written[place:]) for place in places]
    _, ours, rest = written.rpartition(_PREFIX)
    found = [_word(word) for head, word in (*parts, (ours, rest)) if edits(head, _PREFIX) <= _PREFIX_SLIPS]
    # As it is written, too: one typographic character can fold into many letters.
    found += [ours for ours in READ if edits(key.casefold(), ours) <= _PREFIX_SLIPS]
    return next(filter(None, found), None)


def doubt(key: str) -> str | None:
    """Why a key protects its machine, as a sentence without its full stop; None: it does not."""
    right = slip(key)
    return (
        None if right is None else f"tag {key!r} is no tag of gpuwatch, {right} is: it protects until it is corrected"
    )


def _word(text: str) -> str | None:
    """The key with the nearest word; None if no word is near."""
    distance, nearest = min((edits(text, known), known) for known in _WORDS)
    return _WORDS[nearest] if distance <= len(nearest) // _LETTERS_A_SLIP else None


# Which other system owns a machine.

# Patterns of a tag's key, or of KEY=VALUE, and what owns a machine with such a tag; the first match wins.
Owners = tuple[tuple[str, str], ...]
_CLUSTER = "kubernetes.io/cluster/"


def owner_by(owners: Owners, tags: Mapping[str, str], ignored: Callable[[str], bool] = lambda _: False) -> str | None:
    """Find the system that owns a machine with these tags; None if none does. `ignored` keys say nothing."""
    for pattern, owner in owners:
        of_key, _, of_value = pattern.partition("=")
        for key in sorted(tags):
            if fnmatchcase(key, of_key) and fnmatchcase(tags[key], of_value or "*") and not ignored(key):
                if of_value:
                    return owner
                name = key.removeprefix(_CLUSTER) if pattern == f"{_CLUSTER}*" else tags[key]
                return f"{owner} {name}".strip()
    return None


def without_own_group(
    tags: Mapping[str, str], group: Mapping[str, str], *, left: frozenset[str], stack: str
) -> dict[str, str]:
    """Combine a member's tags with its group's, where the group's owner consents to gpuwatch.

    Then the group is no foreign owner, nor is the stack that made the group: what the group leaves on its members
    (`left`) does not count, nor do a stack's tags (the pattern `stack`) that came with the group's. A stack that made
    the machine itself is a foreign owner, and so is a system that drives the group: the consent of the group's owner
    does not overrule them.
    """
    own = {
        key: tags[key]
        for key in tags
        if key not in left and not (fnmatchcase(key, stack) and group.get(key) == tags[key])
    }
    return own | {key: group[key] for key in group if not fnmatchcase(key, stack)}
