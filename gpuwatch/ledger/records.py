"""What people and shells read out of a ledger, and how it fails."""

from dataclasses import dataclass
from datetime import datetime

from gpuwatch.guard.rulebook import Rulebook
from gpuwatch.model.decision import Decision, Intent, Observation, Outcome, Proposal, Review


class LedgerError(Exception):
    """The ledger cannot be used; the sentence says why and what to do."""


class LeadLostError(LedgerError):
    """Another controller leads: nothing was written."""


class OtherLedgerError(LedgerError):
    """This is not the ledger that the process has written so far: it must not decide by it, nor write to it."""


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
        """For people."""
        return f"{self.kind} {self.id} of {self.at or 'an unknown time'}: {self.wrong}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What walking the chain found. `head` is the hash of the newest record: kept elsewhere, it proves all before."""

    links: int
    head: str
    bodies: int
    broken: Broken | None
