"""PURE: the keys of gpuwatch's own tags, and keys that somebody probably meant to be one of them.

A key that only looks like one of ours is a slip of the hand. What its author wanted is not known, so the machine is
protected until the key is corrected: that costs money, and the other reading could cost somebody's work.
"""

from functools import lru_cache

from gpuwatch.clouds import FLEET_TAG, OWNER_TAG, POOL_TAG, PROTECT_TAG, SNOOZE_TAG, STOP_AT
from gpuwatch.model.decision import DECISION_TAG, INTERRUPTIBLE_TAG, NOTIFIED_TAG
from gpuwatch.model.slips import edits, folded

# What people set: each changes what may be done with a machine, so a slip in any of them is a doubt.
READ = (PROTECT_TAG, SNOOZE_TAG, POOL_TAG, OWNER_TAG, FLEET_TAG, INTERRUPTIBLE_TAG)
KNOWN = frozenset({*READ, NOTIFIED_TAG, STOP_AT, DECISION_TAG})

_PREFIX = folded("gpuwatch")
_PREFIX_SLIPS = 2  # characters in which a prefix may differ from ours and still be taken for it
_LETTERS_A_SLIP = 3  # and a word after it: one in so many

# Other words for what the keys mean, so that the message names the right one.
_SYNONYMS = {
    PROTECT_TAG: ("protected", "protection", "keep", "donotstop", "dontstop", "nostop", "exclude", "ignore", "skip"),
    SNOOZE_TAG: ("snooze", "snoozed", "until", "keepuntil", "postpone", "delay"),
}
_WORDS = {folded(key).removeprefix(_PREFIX): key for key in READ} | {
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
    written = folded(key)
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
