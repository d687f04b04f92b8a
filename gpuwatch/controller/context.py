"""What a controller is made of and what a round leaves: the nouns that `controller`, `settling` and `acting` share."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpuwatch.clouds import Cloud
from gpuwatch.controller.circuits import Circuits
from gpuwatch.controller.clock_steps import ClockSteps
from gpuwatch.controller.observe import NodeReportSource
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.slurm import SlurmCluster
from gpuwatch.controller.timings import Timings
from gpuwatch.guard import Rulebook
from gpuwatch.kubernetes import Cluster
from gpuwatch.kubernetes.several import names_in
from gpuwatch.ledger import Ledger, PastRound
from gpuwatch.ledger.protocol import RoundLedger
from gpuwatch.model.budget import BudgetState
from gpuwatch.model.decision import (
    Decision,
    Done,
    Intent,
    LedgerView,
    Observation,
    Outcome,
    Proposal,
    Review,
    Step,
    Unreached,
)
from gpuwatch.model.fleet import Node
from gpuwatch.model.measurement import BatchPast
from gpuwatch.model.money import Price
from gpuwatch.model.offers import PriceKey
from gpuwatch.model.sensors import SensorRecord
from gpuwatch.model.undone import Removal
from gpuwatch.model.verbs import Verb
from gpuwatch.model.workload_snoozes import with_former_names
from gpuwatch.money.accounting.totals import Row
from gpuwatch.policies.idle import StepsOf, each_step, steps_for
from gpuwatch.policies.kubernetes.idle_pods import WorkloadStep
from gpuwatch.policies.kubernetes.workload_use import WorkloadUse
from gpuwatch.policies.lives import Use
from gpuwatch.policies.members import Member
from gpuwatch.runtime.clock import Clock


@dataclass(slots=True, kw_only=True)
class Missing:
    """A machine that the cloud does not list: since when, and when it was asked for by its id. Monotonic seconds."""

    since: float
    asked: float = -math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """A machine that is wanted and not started: since when, when that was seen last, and why, as a clause."""

    since: datetime
    last: datetime
    why: str


@dataclass(slots=True, kw_only=True)
class Ended:
    """Ended intents of the last three days that say something of pools' offers, by key, as they were known at `at`.

    Their times are those of a clock that was set back by `back_seconds` in all.
    """

    by_key: dict[str, Done] = field(default_factory=dict)
    at: datetime | None = None
    back_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What is seen of a machine, or of a group's new members, `since` a removal of ours was seen undone.

    It was `busy` for so long, at most. Once it counts as `used` it stays so.
    """

    since: datetime
    last: datetime
    busy: timedelta
    used: bool


@dataclass(slots=True, kw_only=True)
class PastRemovals:
    """The newest removal of each target that may be undone, or was, as they were known at `at`.

    `noted` are the actions of the newest view. `told` is when those removals were undone of which it was said, and
    `watched` what is undone now, both by the keys of the removals. Times are those of a clock set back by
    `back_seconds`.
    """

    newest: dict[str, Removal] = field(default_factory=dict)
    noted: frozenset[str] = frozenset()
    told: dict[str, datetime] = field(default_factory=dict)
    watched: dict[str, Watched] = field(default_factory=dict)
    at: datetime | None = None
    back_seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class LastLook:
    """When the newest round that acted saw the fleet, by both clocks, and what it is to keep of what worked."""

    at: datetime | None = None
    uptime: float = 0.0
    kept: SensorRecord | None = None  # as the ledger has it
    seen: SensorRecord | None = None
    seen_uptime: float = 0.0


@dataclass(slots=True, kw_only=True)
class Memory:
    """What a process knows between its rounds besides the ledger; without it waits are longer, and nothing else."""

    missing: dict[str, Missing] = field(default_factory=dict)
    absent: dict[str, float] = field(default_factory=dict)  # since when lists lack an intent's machine; monotonic
    short: dict[str, float] = field(default_factory=dict)  # since when groups lack members; monotonic
    clock_steps: ClockSteps = field(default_factory=ClockSteps)
    ended: Ended = field(default_factory=Ended)
    removals: PastRemovals = field(default_factory=PastRemovals)
    sensors: LastLook = field(default_factory=LastLook)
    # Machines without a launch time: since when they were seen to run, and the last look; a clock that runs in sleep.
    undated: dict[str, tuple[float, float]] = field(default_factory=dict)
    ledger_is_slow: bool = False  # as of the last removal; it is told once
    circuits: Circuits = field(default_factory=Circuits)
    uses: dict[str, Use] = field(default_factory=dict)  # of lives, by their keys
    withheld: dict[str, Withheld] = field(default_factory=dict)  # machines that are wanted and not started, by ids
    members: dict[str, Member] = field(default_factory=dict)  # that groups have made, by the keys of their lives
    workloads: dict[str, WorkloadUse] = field(default_factory=dict)  # those of the newest round, by their ids
    # The parts that could not be judged in the last round, and why, by what was done with them.
    sick: defaultdict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    before_stops: dict[str, str] = field(default_factory=dict)  # what ran on a machine that is about to be stopped
    own_gpus: dict[str, int] = field(default_factory=dict)  # how many GPUs each host of one's own had last
    unbelieved: dict[str, str] = field(default_factory=dict)  # why clouds are not believed, by id, as the log has it


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerContext:
    """What a controller is made of; simulations differ in these alone. `prices` gives the price of a machine's hour."""

    clock: Clock
    cloud: Cloud
    signals: NodeReportSource
    ledger: RoundLedger
    rules: Rulebook
    cluster: Cluster | None = None  # None: no Kubernetes cluster is in the settings
    slurm: SlurmCluster | None = None  # None: no Slurm cluster is in the settings
    prices: Callable[[PriceKey, datetime], Price | None] = lambda _hire, _now: None
    # The ids and names of all machines that may have a price of their own; None: any may.
    priced_singly: Callable[[datetime], frozenset[str] | None] = lambda _now: None
    meter: Callable[[Observation], Iterable[Row]] | None = None  # None: what is billed is not written down
    budgets: Callable[[Observation], tuple[BudgetState, ...]] = lambda _: ()
    # Budgets of this round with what it has billed itself, for who is shown the round.
    with_billed: Callable[[tuple[BudgetState, ...], Iterable[Row]], tuple[BudgetState, ...]] = lambda found, _: found
    batches: Callable[[Observation], Mapping[str, BatchPast]] = lambda _: {}  # how far work with a deadline is
    # A simulation may know most steps from the round before (simulate/caches.py).
    idle_steps: StepsOf = each_step
    steps_for: Callable[[str], StepsOf] = steps_for  # where one node alone is asked about again
    starts_are_needs: bool = False  # who starts a machine again works on it, in a simulation without other neighbours
    memory: Memory = field(default_factory=Memory)
    # Has the agent of a machine begin what is to run there before it is stopped; says how far it is, or what failed.
    begin_before_stop: Callable[[Node, Verb], str] = lambda _node, _verb: "Its agent cannot be asked to begin."
    timings: Timings = field(default_factory=Timings)
    interval_seconds: float = 60.0  # from the start of one round to the next, as set

    def past(
        self, now: datetime, *, recent: timedelta = timedelta(hours=1), interval_seconds: float | None = None
    ) -> LedgerView:
        """What the ledger holds of the past, each record as old as it is, whatever was done to the wall clock since."""
        steps = self.memory.clock_steps
        steps.note_steps(self.clock)
        then = now - timedelta(seconds=steps.back_seconds)
        view = self.ledger.view(then, recent=recent, interval_seconds=interval_seconds)
        return self._by_present_names(steps.by_present_clock(view, now))

    def removals(self, now: datetime) -> LedgerView:
        """What was removed in the last weeks and may be undone, each as old as it is."""
        steps = self.memory.clock_steps
        steps.note_steps(self.clock)
        return steps.by_present_clock(self.ledger.removals(now - timedelta(seconds=steps.back_seconds)), now)

    def open_actions(self, now: datetime) -> LedgerView:
        """What is open, and who resumed lately, each record as old as it is."""
        steps = self.memory.clock_steps
        steps.note_steps(self.clock)
        return steps.by_present_clock(self.ledger.open_actions(now - timedelta(seconds=steps.back_seconds)), now)

    def orders(self, now: datetime) -> LedgerView:
        """The pauses and snoozes in force, each for as long as was said, whatever was done to the wall clock since."""
        steps = self.memory.clock_steps
        steps.note_steps(self.clock)
        orders = steps.by_present_clock(self.ledger.orders(now - timedelta(seconds=steps.back_seconds)), now)
        return self._by_present_names(orders)

    def _by_present_names(self, view: LedgerView) -> LedgerView:
        """The view, with orders about workloads under the names that clusters have in the settings of today."""
        if self.cluster is None or not view.snoozes:
            return view
        return replace(view, snoozes=with_former_names(view.snoozes, names_in(self.cluster)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveParts(ControllerContext):
    """The parts of a controller; its page and commands ask its ledger about the past.

    `observing` is how the settings would have agents asked.
    """

    ledger: Ledger
    observing: ObserveSettings = field(default_factory=ObserveSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One step that was carried out, or tried, with its outcome; `outcome` has no key where none is on record."""

    review: Review
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """All that one round saw, decided and did. `records` are of what clouds did; `trouble` is why it saw nothing.

    `workloads` has a step for each workload of the cluster that holds GPUs; `reviews` and `acts` are about those, too.
    `unreached` is what the guard allowed and the round did not come to; None: it did not act.
    """

    observation: Observation
    proposals: tuple[Proposal, ...] = ()
    decisions: tuple[Decision, ...] = ()
    workloads: tuple[WorkloadStep, ...] = ()
    reviews: tuple[Review, ...] = ()
    settled: tuple[Outcome, ...] = ()
    acts: tuple[Act, ...] = ()
    records: tuple[Intent, ...] = ()
    trouble: str | None = None
    unreached: tuple[Unreached, ...] | None = None


def unreached_in(done: Round | PastRound) -> tuple[LedgerView, str]:
    """Return the view that knows what the guard allowed and had no turn, and in which round that was, for people.

    A round that acted knows it of itself; one that only looked, or is past, of the round before it.
    """
    if isinstance(done, Round) and done.unreached is not None:
        return LedgerView(unreached=done.unreached), "in this round"
    return done.observation.ledger, "in the last round"


def unreached_words(step: Step, late: LedgerView, when: str) -> str | None:
    """Say why a step that the guard has allowed had no turn; None: it had one, or nobody knows."""
    why = late.why_unreached(step) if late.unreached else None
    return None if why is None else f"Allowed, not reached {when}: {why}."
