"""What people and shells read out of a ledger, and how it fails."""

import logging
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache

import msgspec

from gpuwatch.guard.settings import Rulebook
from gpuwatch.model.decision import Decision, Intent, Observation, Outcome, Proposal, Reason, Review

_FORMER_CODES = {"ladder": "terminate_after", "floor": "min_nodes"}  # records hold them for ever
_FORMER_DESTINATIONS = {"terminals": "wall"}
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)  # of what a damaged or strange record holds
_LOG = logging.getLogger(__name__)


class LedgerError(Exception):
    """The ledger cannot be used; the sentence says why and what to do."""


class LedgerValueError(LedgerError):
    """A value cannot be written: nothing of this write was, and the next one with other values will be."""


class LeadLostError(LedgerError):
    """Another controller leads: nothing was written."""


class OtherLedgerError(LedgerError):
    """This is not the ledger that the process has written so far: it must not decide by it, nor write to it."""


class _Words(msgspec.Struct):
    """A reason without what was looked at."""

    code: str
    sentence: str


_NO_WORDS = _Words(code="unreadable", sentence="The ledger's record of the reason cannot be read.")
# Made once: a round reads the records of thousands of notices.
_WORDS, _ARGUMENTS = msgspec.json.Decoder(_Words), msgspec.json.Decoder(dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An intent with all that came of it, for people."""

    intent: Intent
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRound:
    """A round as it was recorded: `explain` judges it again."""

    id: int
    at: datetime
    observation: Observation
    rulebook: Rulebook | None  # None for rounds of schema 1
    proposals: tuple[Proposal, ...]
    decisions: tuple[Decision, ...]
    reviews: tuple[Review, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLine:
    """A round in a list. `nodes` and `steps` (that would change something) are None for rounds of schema 1.

    `whole` is whether it can still be explained: compaction has not dropped what it saw.
    """

    id: int
    at: datetime
    controller: str
    nodes: int | None
    steps: int | None
    intents: int
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The first place where the records are not what was written: `wrong` is a sentence."""

    kind: str
    id: int
    at: str
    wrong: str

    def __str__(self) -> str:
        """Return what is broken, for people."""
        return f"{self.kind} {self.id} of {self.at or 'an unknown time'}: {self.wrong}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What walking the chain found. `head` is the hash of the newest record: kept elsewhere, it proves all before."""

    links: int
    head: str
    bodies: int
    broken: Broken | None


def read_reason(written: str) -> Reason:
    """The reason of an intent on record.

    Where its evidence cannot be read, its sentence stands alone, and where that cannot, it says so: one record must not
    hide all others.
    """
    try:
        return with_present_code(msgspec.json.decode(written, type=Reason))
    except (*_UNREADABLE, msgspec.ValidationError):
        pass
    words = _read_words(written)
    return with_present_code(Reason(code=words.code, sentence=words.sentence))


def read_sentence(written: str) -> str:
    """The sentence of a reason on record: a round asks for it of each notice, and not for what was looked at."""
    return _read_words(written).sentence


def _read_words(written: str) -> _Words:
    try:
        return _WORDS.decode(written)
    except _UNREADABLE:
        return _NO_WORDS


def read_arguments(written: str, key: str) -> dict[str, str]:
    """What went to the cloud with an intent; nothing where the record cannot be read, and a line in the log.

    A notice without them promised nothing that can be held to: a new one comes first. What is open stays open, and its
    cloud shows the outcome.
    """
    try:
        return _ARGUMENTS.decode(written)
    except _UNREADABLE as error:
        _note_unreadable(key, "arguments", str(error))
        return {}


def read_price(written: str | None, key: str) -> Decimal | None:
    """The price of an intent on record; None: it was not known, or the record of it is no number."""
    if written is None:
        return None
    try:
        found = Decimal(written)
    except InvalidOperation:
        found = Decimal("NaN")
    if found.is_finite():
        return found
    _note_unreadable(key, "price", repr(written))
    return None


@lru_cache(maxsize=1000)  # each round reads the records of hours: once is enough
def _note_unreadable(key: str, what: str, why: str) -> None:
    _LOG.warning(
        "The ledger's record of %s cannot be read (its %s: %s); `gpuwatch audit verify` says where", key, what, why
    )


def with_present_code(reason: Reason) -> Reason:
    """A reason on record, by the name that its code has today."""
    now = _FORMER_CODES.get(reason.code)
    return reason if now is None else replace(reason, code=now)


def present_destination(name: str) -> str:
    """The destination of a message on record, by the name that it has today."""
    return _FORMER_DESTINATIONS.get(name, name)
