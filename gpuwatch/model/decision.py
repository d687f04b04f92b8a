"""What is proposed, decided, refused, intended and done, each with its reason.

A Step is one thing for one node. A Proposal is a policy's view of a pool and never a command; it is returned also when
it holds. A Decision is what `resolve` makes of all proposals; the guard answers each of its steps; an Intent is written
to the ledger before the cloud is called, and Outcomes after.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from gpuwatch.model.fleet import Evidence, Fleet


class Verb(StrEnum):
    """What a step does to its node; HOLD does nothing and says why."""

    HOLD = "hold"
    NOTICE = "notice"  # tell: tag the instance, write to the log; the grace period begins
    WITHDRAW = "withdraw"  # the notice no longer holds
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why: a stable code for counting, a sentence for people, the evidence for both."""

    code: str
    sentence: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One node's part in a proposal. `change` says what would make it come out otherwise."""

    node_id: str
    verb: Verb
    reason: Reason
    change: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What one policy wants of one pool: bounds on its running nodes, and a step for each node."""

    policy: str
    pool: str
    reason: Reason
    want: int | None = None
    at_least: int | None = None
    at_most: int | None = None
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One pool's resolved steps; `clamps` says in sentences what the bounds changed."""

    pool: str
    steps: tuple[Step, ...]
    clamps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One guard rule's word on one step; `refused` is an objection, otherwise the sentence says why it has none."""

    rule: str
    refused: bool
    sentence: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """All rules' answers on one step: every rule runs, every objection is listed."""

    pool: str
    step: Step
    answers: tuple[Answer, ...]

    @property
    def refusals(self) -> tuple[Answer, ...]:
        """The objections; the step may go on only if there is none."""
        return tuple(answer for answer in self.answers if answer.refused)

    @property
    def allowed(self) -> bool:
        """Whether no rule objects."""
        return not self.refusals


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What the ledger holds before the cloud is called; `key` is the idempotency key, allocated with it."""

    key: str
    verb: Verb
    node_id: str
    pool: str
    at: datetime
    reason: Reason


class Status(StrEnum):
    """How an attempt ended. Final are SETTLED, CANCELLED and FAILED; all others leave the intent open."""

    ACCEPTED = "accepted"  # the cloud said yes; not yet verified
    THROTTLED = "throttled"
    REFUSED = "refused"
    DENIED = "denied"  # our credentials do not allow it, or are gone
    INTERRUPTED = "interrupted"  # nobody knew; the cloud has since shown that it was not carried out
    UNAVAILABLE = "unavailable"  # no answer: it may have happened
    SETTLED = "settled"  # the cloud shows it done
    CANCELLED = "cancelled"  # nothing was done, and it is no longer wanted
    FAILED = "failed"  # given up after its attempts


FINAL = frozenset({Status.SETTLED, Status.CANCELLED, Status.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of an attempt."""

    key: str
    at: datetime
    status: Status
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIntent:
    """An intent without a final outcome: what was tried so far.

    `reached` is whether any attempt may have had its effect: then it counts against the limits, however it ends.
    """

    intent: Intent
    attempts: int
    last: Outcome | None
    reached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A notice in force: given at, and by which intent."""

    node_id: str
    key: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A finished intent of the recent past, for limits and cooldowns."""

    key: str
    verb: Verb
    node_id: str
    pool: str
    status: Status
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """What decisions may know of the past."""

    notices: tuple[Notice, ...] = ()
    open_intents: tuple[OpenIntent, ...] = ()
    recent: tuple[Done, ...] = ()

    def notice(self, node_id: str) -> Notice | None:
        """The notice in force for a node."""
        return next((notice for notice in self.notices if notice.node_id == node_id), None)

    def open_for(self, node_id: str) -> OpenIntent | None:
        """The open intent of a node."""
        return next((entry for entry in self.open_intents if entry.intent.node_id == node_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything a decision may depend on; it can be written down and judged again."""

    now: datetime
    fleet: Fleet
    ledger: LedgerView = field(default_factory=LedgerView)
