"""What is intended and done, and what decisions may depend on.

An Intent is in the ledger before the cloud is called, Outcomes after. What comes before it is in `model/proposal.py`.
"""

from collections.abc import KeysView, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import cached_property

from gpuwatch.model.budget import BudgetState
from gpuwatch.model.cloud_notice import Interruption
from gpuwatch.model.duration import format_time
from gpuwatch.model.fleet import Fleet, Node
from gpuwatch.model.life import Counts, Life
from gpuwatch.model.measurement import Answers, BatchPast, MetricValue, OffersPast, Pauses, Restarts
from gpuwatch.model.money import Price
from gpuwatch.model.offers import key_of_node, price_name
from gpuwatch.model.orders import Approval, BacktestRecord, Pause, Snooze
from gpuwatch.model.promise import Interruption as Inaction
from gpuwatch.model.promise import Notice
from gpuwatch.model.proposal import Advice, Answer, Decision, Proposal, Reason, Review, Step, reason_with_refusals
from gpuwatch.model.sensors import Unproven, unproven_by_pool
from gpuwatch.model.stops import StopAnswer, why_not_ours
from gpuwatch.model.undone import Undone
from gpuwatch.model.verbs import ADDITIONS, REMOVAL_STEPS, REMOVALS, Verb
from gpuwatch.model.workload_snoozes import with_snoozes

__all__ = ["ADDITIONS", "DECISION_TAG", "FINAL", "LAUNCHED_AT", "NOTIFIED_TAG", "NOT_DONE", "REMOVALS"]
__all__ += ["REMOVAL_STEPS", "SETTLE_TIMEOUT", "Advice", "Answer", "Decision", "DesiredNodes", "Done", "Intent"]
__all__ += ["LedgerView", "Observation", "OpenIntent", "Outcome", "Proposal", "Reason", "Review", "Status", "Step"]
__all__ += ["Stopped", "Unreached", "Verb", "Wait", "reason_with_refusals"]

# The argument of a removal by which its machine's launch time at that moment is kept: another one proves a start.
LAUNCHED_AT = "launched_at"
# The tag that names the intent that launched a machine or gave it notice; its value is the intent's key.
DECISION_TAG = "gpuwatch:decision-id"
# A machine with this tag, and the value true, may be given back while it works, where its pool says so, too.
INTERRUPTIBLE_TAG = "gpuwatch:interruptible"
# The tag that says when a machine got its notice, or when the notice was withdrawn.
NOTIFIED_TAG = "gpuwatch:notified-at"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What the ledger holds before the cloud is called; `key` is the idempotency key, allocated with it.

    `owner` and `usd_per_hour` are the node's at that time (a launch: the template's), for limits per owner and money.
    """

    key: str
    verb: Verb
    node_id: str
    pool: str
    at: datetime
    reason: Reason
    arguments: Mapping[str, str] = field(default_factory=dict)
    owner: str | None = None
    usd_per_hour: Decimal | None = None


class Status(StrEnum):
    """How an attempt ended. Final are SETTLED, CANCELLED and FAILED; all others leave the intent open."""

    ASKED = "asked"  # another attempt begins; its answer is not on record yet
    ACCEPTED = "accepted"  # the cloud said yes; not yet verified
    THROTTLED = "throttled"
    BUSY = "busy"  # another operation is under way on it: it was not carried out
    REFUSED = "refused"
    DENIED = "denied"  # our credentials do not allow it, or are gone
    SKEWED = "skewed"  # the cloud refused our clock: it was not carried out
    UNSENT = "unsent"  # no connection to the cloud could be opened: it was not carried out
    INTERRUPTED = "interrupted"  # nobody knew; the cloud has since shown that it was not carried out
    UNAVAILABLE = "unavailable"  # no answer: it may have happened
    UNSEEN = "unseen"  # a launched machine does not appear as a node of its pool
    SETTLED = "settled"  # the cloud shows it done
    CANCELLED = "cancelled"  # nothing was done, and it is no longer wanted
    FAILED = "failed"  # given up after its attempts


FINAL = frozenset({Status.SETTLED, Status.CANCELLED, Status.FAILED})
# After these the cloud has certainly not (yet) carried it out, so that the same intent may be tried again.
NOT_DONE = frozenset(
    {Status.THROTTLED, Status.BUSY, Status.REFUSED, Status.DENIED, Status.SKEWED, Status.UNSENT, Status.INTERRUPTED}
)
# How the detail of a failure begins that is no answer of the cloud to the last attempt: this one's is repeated.
GIVEN_UP = "given up: "
# How the detail of a step begins that was not taken after all: somebody objected at the last question, or the permit
# for the call did not hold any more.
VETOED, NOT_SENT = "vetoed at the last moment: ", "not sent: "
# How long a change has to show in the cloud. For so long an unsettled one may hold up others, and only after so long is
# a change that nobody answered known not to have been carried out.
SETTLE_TIMEOUT = timedelta(minutes=10)


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

    `reached` is whether any attempt may have had its effect: then it counts against the limits, however it ends;
    `reached_at` is when the newest such attempt was over (None: not known). `refusals` is how often the cloud refused.
    `answer` is what it said when it accepted a stop last.
    """

    intent: Intent
    attempts: int
    last: Outcome | None
    reached: bool = False
    reached_at: datetime | None = None
    refusals: int = 0
    answer: StopAnswer | None = None

    @property
    def resumable(self) -> bool:
        """Whether the cloud has certainly not (yet) carried it out, so that the same intent may be tried again."""
        return self.last is not None and self.last.status in NOT_DONE

    @property
    def unanswered(self) -> bool:
        """Whether a call may have been made without a record of its answer."""
        return self.last is None or self.last.status is Status.ASKED

    @property
    def counts(self) -> bool:
        """Whether it is, or may have been, carried out."""
        return self.reached or not self.resumable


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A finished intent of the recent past, for limits and cooldowns; `detail` is its last outcome's.

    `reached` is whether it was, or may have been, carried out, and `reached_at` when the newest attempt that may have
    done so was over. `refused` is whether it was given up because the cloud kept refusing it. `why` is its reason's
    sentence. `fault` is what of a failure is ours or the network's: the status of the last attempt (denied, throttled,
    a template that does not work, no answer); None: the cloud itself had nothing to give, or it did not fail.
    """

    key: str
    verb: Verb
    node_id: str
    pool: str
    status: Status
    at: datetime
    owner: str | None = None
    usd_per_hour: Decimal | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    detail: str = ""
    reached: bool = True
    reached_at: datetime | None = None
    refused: bool = False
    why: str = ""
    code: str = ""
    fault: Status | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A node that gpuwatch asked its cloud to stop, seen stopped at `at` and not seen running since.

    It counts against the limits. Whether it was gpuwatch's own stop is another question: `why_not_ours`. `launched_at`
    is its launch time at that stop, by the cloud's clock; None: not known. `why` is the reason in few words,
    `approved_by` who approved the stop, where somebody had to. `asked_at` is when it was intended, `away` the newest
    time since then in which no controller made rounds. `answer` is what the cloud said when it accepted the stop.
    """

    node_id: str
    key: str
    at: datetime
    launched_at: datetime | None = None
    why: str = ""
    approved_by: str | None = None
    asked_at: datetime | None = None
    away: Inaction | None = None
    answer: StopAnswer | None = None

    def why_not_ours(self, node: Node) -> str | None:
        """Why it is not proved that gpuwatch's call stopped the node, as a clause; None: its cloud says so."""
        return why_not_ours(self.answer, node.last_stop)

    def why_unwatched(self, node: Node, interval_seconds: float) -> str | None:
        """Why nobody can say that it was not started and stopped again since, as a clause; None: it was not."""
        if node.sight is None:
            return None
        if self.away is not None:
            since, until = self.away.since, self.away.until
            end = "" if until is None else f" until {format_time(until)}"
            return f"no controller looked from {format_time(since)}{end}"
        if node.sight.lost_since(self.asked_at or self.at, interval_seconds):
            until = node.sight.blind_until
            return f"its cloud showed nothing of it for a time until {'' if until is None else format_time(until)}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredNodes:
    """How many nodes a policy wanted for a pool in an earlier round, before smoothing."""

    pool: str
    policy: str
    at: datetime
    want: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreached:
    """Steps that the guard allowed and the newest round did not come to: why, and of which targets; a clause."""

    verb: Verb
    why: str
    targets: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)  # no slots: the indexes are made once, at the first question
class LedgerView:
    """What decisions may know of the past.

    `resumed` are the times from which on nodes of a pool (None: all) had notices and removals again. `resume_orders`
    and `acknowledged` are when people gave these. `shields` are nodes with gpuwatch's own scale-in protection.
    `foreign` are decisions that machines bear (DECISION_TAG) and this ledger lacks. `launched` are stopped machines
    that it launched, with a notice in their tags.
    """

    notices: tuple[Notice, ...] = ()
    open_intents: tuple[OpenIntent, ...] = ()
    recent: tuple[Done, ...] = ()
    stopped: tuple[Stopped, ...] = ()
    wishes: tuple[DesiredNodes, ...] = ()
    pauses: tuple[Pause, ...] = ()
    resumed: tuple[tuple[str | None, datetime], ...] = ()
    resume_orders: tuple[tuple[str | None, datetime], ...] = ()
    acknowledged: tuple[tuple[str | None, datetime], ...] = ()
    backtests: tuple[BacktestRecord, ...] = ()  # the newest of each pool's rules
    snoozes: tuple[Snooze, ...] = ()
    approvals: tuple[Approval, ...] = ()
    foreign: tuple[str, ...] = ()
    launched: tuple[str, ...] = ()
    shields: tuple[str, ...] = ()
    interruptions: tuple[Interruption, ...] = ()  # notices of clouds that are on record and not over
    unreached: tuple[Unreached, ...] = ()  # by the newest round that acted

    def with_orders(self, node: Node) -> Node:
        """The node, and its pods' workloads, as decisions see them: snoozed where somebody keeps them by an order."""
        if self.snoozes and node.kubernetes is not None:
            node = replace(node, kubernetes=with_snoozes(node.kubernetes, self.snoozes))
        keep = next((each for each in self.snoozes if each.node_id == node.id), None)
        if keep is None or node.snoozed is not None:
            return node
        return replace(node, snoozed=f"{keep.until:%Y-%m-%d %H:%M} UTC by {keep.who}")

    def notice(self, node_id: str) -> Notice | None:
        """The notice in force for a node."""
        return self._noticed.get(node_id)

    def approval(self, node_id: str) -> Approval | None:
        """The approval of the notice in force for a node."""
        notice = self.notice(node_id)
        return None if notice is None else next((each for each in self.approvals if each.key == notice.key), None)

    def open_for(self, node_id: str) -> OpenIntent | None:
        """The oldest open intent of a node."""
        return self._open.get(node_id)

    def open_step(self, node_id: str, verb: Verb) -> OpenIntent | None:
        """The open intent of a node to do this."""
        found = self._open.get(node_id)
        if found is None or found.intent.verb is verb:
            return found
        asked = (node_id, verb)
        return next((each for each in self.open_intents if (each.intent.node_id, each.intent.verb) == asked), None)

    def is_shielded_by_us(self, node_id: str) -> bool:
        """Whether the scale-in protection of a node is gpuwatch's own."""
        return node_id in self._shields

    def stop_of(self, node_id: str) -> Stopped | None:
        """The stop of a node that we asked for, where nobody has started it since; it may have been another's."""
        return self._stopped.get(node_id)

    def own_stop(self, node: Node) -> Stopped | None:
        """The same where the cloud itself says that our call stopped the node."""
        found = self._stopped.get(node.id)
        return None if found is None or found.why_not_ours(node) is not None else found

    def why_unreached(self, step: Step) -> str | None:
        """Why the newest round allowed this step and did not come to it, as a clause; None: it did, or nobody knows."""
        return self._unreached.get((step.node_id, step.verb))

    @property
    def stopped_ids(self) -> KeysView[str]:
        """The nodes with such a stop."""
        return self._stopped.keys()

    def ended_actions(self, verbs: frozenset[Verb]) -> tuple[Done, ...]:
        """Those of `recent` with these verbs: rules ask at each step."""
        found = self._ended.get(verbs)
        if found is None:
            found = self._ended[verbs] = tuple([done for done in self.recent if done.verb in verbs])
        return found

    @cached_property
    def given_up(self) -> tuple[Done, ...]:
        """Those of `recent` that failed."""
        return tuple([done for done in self.recent if done.status is Status.FAILED])

    @cached_property
    def _ended(self) -> dict[frozenset[Verb], tuple[Done, ...]]:
        return {}

    @cached_property
    def _noticed(self) -> dict[str, Notice]:
        return {notice.node_id: notice for notice in self.notices}

    @cached_property
    def _open(self) -> dict[str, OpenIntent]:
        return {entry.intent.node_id: entry for entry in reversed(self.open_intents)}

    @cached_property
    def _shields(self) -> frozenset[str]:
        return frozenset(self.shields)

    @cached_property
    def _unreached(self) -> dict[tuple[str, Verb], str]:
        return {(target, each.verb): each.why for each in self.unreached for target in each.targets}

    @cached_property
    def _stopped(self) -> dict[str, Stopped]:
        return {each.node_id: each for each in self.stopped}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """How long a node is to be idle in all before it is reclaimed, and why so long, as a clause."""

    seconds: float
    why: str


@dataclass(frozen=True, kw_only=True)  # no slots: machines are counted once, at the first question
class Observation:
    """Everything a decision may depend on; it can be written down and judged again."""

    now: datetime
    fleet: Fleet
    ledger: LedgerView = field(default_factory=LedgerView)
    measures: tuple[MetricValue, ...] = ()
    prices: Mapping[str, Price] = field(default_factory=dict)  # valid now, by the keys of money/prices/price_book.py
    waits: Mapping[str, Wait] = field(default_factory=dict)  # of idle nodes whose pool learns or draws them
    restarts: Mapping[str, Restarts] = field(default_factory=dict)  # by pool
    fresh: Mapping[str, Pauses] = field(default_factory=dict)  # by pool, of those too fresh for a learned wait
    answers: Mapping[str, Answers] = field(default_factory=dict)  # by pool; of one that is not here nobody keeps count
    queued: Mapping[str, float] = field(default_factory=dict)  # by pool: for how many seconds work has waited for it
    budgets: tuple[BudgetState, ...] = ()
    offers: Mapping[str, OffersPast] = field(default_factory=dict)  # by pool, of those with offers
    batches: Mapping[str, BatchPast] = field(default_factory=dict)  # by pool, of those whose work has a deadline
    lives: tuple[Life, ...] = ()  # of the machines that were launched or started in the last three days
    members: Mapping[str, tuple[Life, ...]] = field(default_factory=dict)  # of groups, by their ids (members.py)
    undone: tuple[Undone, ...] = ()  # removals of ours that somebody has undone, without use since
    unproven: tuple[Unproven, ...] = ()  # drivers, agents and images with which nobody is seen at work
    watched: Mapping[str, float] = field(default_factory=dict)  # seconds that nodes without a launch time were seen run
    interval_seconds: float = 60.0  # from the start of one round to the next, as set

    @cached_property
    def counts(self) -> Counts:
        """What policies have counted of it, each thing once."""
        return Counts()

    @cached_property
    def _unproven(self) -> Mapping[str, Sequence[Unproven]]:
        return unproven_by_pool(self.unproven)

    def unproven_in(self, pool: str) -> Sequence[Unproven]:
        """What machines of a pool have that may have broken their readings."""
        return self._unproven.get(pool, ()) if self.unproven else ()

    def unproven_of(self, node: Node) -> Unproven | None:
        """What the node has that may have broken its readings; the one that is suspected the longest."""
        found = [each for each in self.unproven_in(node.pool) if each.is_about(node)]
        return max(found, key=lambda each: each.until, default=None)

    def price(self, node: Node) -> Price | None:
        """What an hour of the node costs; None is not known, never free."""
        prices = self.prices
        return prices.get(key_of_node(node.id)) or prices.get(price_name(node)) or prices.get(node.kind)

    def measure(self, pool: str, name: str) -> MetricValue | None:
        """What was measured of a pool under that name; None: nobody asked."""
        return next((each for each in self.measures if (each.pool, each.name) == (pool, name)), None)
