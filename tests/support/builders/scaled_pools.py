"""Pools under the scaling policy: builders, and a closed loop of load, metric, policy and cloud."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache

from gpuwatch.model.activity import State
from gpuwatch.model.decision import DesiredNodes, Done, LedgerView, Observation, Proposal, Status, Verb
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.model.measurement import MetricValue
from gpuwatch.policies import scaling
from gpuwatch.policies.scaling import Metric, ScalingRules
from tests.support.builders.fleet import NOW, a_node

POOL = "default"
TARGET = Metric(signal="gpu_utilization", target=0.6)
QUEUE = Metric(signal="promql", expression="sum(jobs_waiting)", target=10.0, per_node=True)
FREE = {"max_out": None, "max_out_ratio": None, "cooldown_out": 0.0, "cooldown_in": 0.0, "stabilisation": 0.0}


_BUSY = a_node(state=State.BUSY)


def free_rules(**metrics: Metric) -> ScalingRules:
    """These metrics, and nothing that slows them down."""
    return ScalingRules(metrics=metrics, **FREE)  # type: ignore[arg-type]


def nodes(count: int, *, first: int = 0, age: float = 86400.0, state: NodeState = NodeState.RUNNING) -> list[Node]:
    """Enrolled nodes that have run for a day."""
    born = NOW - timedelta(seconds=age)
    return [replace(_BUSY, id=f"i-{n}", launched_at=born, state=state) for n in range(first, first + count)]


def a_measure(name: str, value: float | None, *, at: datetime = NOW, **other: object) -> MetricValue:
    """A number of the pool; without one, a doubt."""
    doubt = "Prometheus did not answer" if value is None else None
    return MetricValue(pool=POOL, name=name, at=at, value=value, **{"doubt": doubt, **other})  # type: ignore[arg-type]


def seen(members: list[Node] | int, *measures: MetricValue, **ledger: object) -> Observation:
    """A pool and its numbers."""
    fleet = Fleet(observed_at=NOW, nodes=tuple(nodes(members) if isinstance(members, int) else members))
    return Observation(now=NOW, fleet=fleet, measures=measures, ledger=LedgerView(**ledger))  # type: ignore[arg-type]


def proposed(observation: Observation, rules: ScalingRules, *, warm_up: float = 900.0) -> Proposal:
    """What the policy says of the pool."""
    return scaling.propose(observation, POOL, rules, warm_up=warm_up)


def utilization(value: float | None, count: int = 6, **rules: object) -> Proposal:
    """What a target of 0.6 makes of a mean utilization of so many nodes."""
    unhindered = {**FREE, **rules}
    result = ScalingRules(metrics={"load": TARGET}, **unhindered)  # type: ignore[arg-type]
    return proposed(seen(count, a_measure("gpu_utilization", value)), result)


def done(verb: Verb, age: float, *, node_id: str = "i-0", status: Status = Status.SETTLED) -> Done:
    """A finished action of so many seconds ago."""
    return Done(key="k", verb=verb, node_id=node_id, pool=POOL, status=status, at=NOW - timedelta(seconds=age))


def wished(want: int, age: float) -> DesiredNodes:
    """An earlier wish of the policy."""
    return DesiredNodes(pool=POOL, policy="scaling", at=NOW - timedelta(seconds=age), want=want)


@cache
def _node(number: int, born: datetime | None) -> Node:
    """A node of the loop; one that is not born yet is pending."""
    state = NodeState.PENDING if born is None else NodeState.RUNNING
    return replace(_BUSY, id=f"{state}-{number}", launched_at=born, state=state)


@dataclass(slots=True)
class Loop:
    """Rounds of a minute: the load is spread over the running nodes, and what the policy wants comes true.

    A wanted node runs after `boot` rounds; one too many goes at once (as if it were idle). The number that the policy
    sees is `lag` rounds old; `honest` says whether it tells so.
    """

    rules: ScalingRules
    number: Callable[[int], float]  # what the metric is at so many running nodes
    start: int
    warm_up: float = 300.0
    boot: int = 2
    lag: int = 0
    honest: bool = True
    now: datetime = NOW
    sizes: list[int] = field(default_factory=list)
    _born: list[datetime] = field(default_factory=list)
    _due: list[int] = field(default_factory=list)
    _recent: list[Done] = field(default_factory=list)
    _wishes: list[DesiredNodes] = field(default_factory=list)
    _numbers: deque[tuple[datetime, float]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        """Everything has long been running."""
        self._born = [self.now - timedelta(days=1)] * self.start
        self._numbers = deque([(self.now, self.number(self.start))], maxlen=self.lag + 1)

    def round(self, most: int = 24) -> None:
        """One minute."""
        self._due = [left - 1 for left in self._due]
        for _ in range(self._due.count(0)):
            self._born.append(self.now)
            self._note(Verb.LAUNCH)
        self._due = [left for left in self._due if left > 0]
        self._numbers.append((self.now, self.number(len(self._born))))
        proposal = scaling.propose(self._observation(), POOL, self.rules, warm_up=self.warm_up)
        if proposal.raw_desired_nodes is not None:
            self._wishes = [
                *self._wishes[-90:],
                DesiredNodes(pool=POOL, policy="scaling", at=self.now, want=proposal.raw_desired_nodes),
            ]
        if proposal.desired_nodes is not None:
            self._obey(min(most, proposal.desired_nodes), proposal.kept_nodes or 0)
        self.sizes.append(len(self._born) + len(self._due))
        self.now += timedelta(minutes=1)

    def _obey(self, want: int, kept: int) -> None:
        """Launch what is missing, drop what is too much and not kept."""
        have = len(self._born) + len(self._due)
        self._due += [self.boot] * (want - have)
        if max(want, kept) < have and not self._due:
            del self._born[max(want, kept) :]
            self._note(Verb.STOP)

    def _note(self, verb: Verb) -> None:
        """The ledger's memory of the last hours."""
        entry = Done(key="k", verb=verb, node_id="i", pool=POOL, status=Status.SETTLED, at=self.now)
        self._recent = [*self._recent[-200:], entry]

    def _observation(self) -> Observation:
        """What the policy may know."""
        running = [_node(n, born) for n, born in enumerate(self._born)]
        coming = [_node(n, None) for n in range(len(self._due))]
        at, value = self._numbers[0]
        measures = tuple(
            MetricValue(pool=POOL, name=query.name, at=at if self.honest else self.now, value=value)
            for query in scaling.queries(POOL, self.rules)
        )
        view = LedgerView(recent=tuple(self._recent), wishes=tuple(self._wishes))
        fleet = Fleet(observed_at=self.now, nodes=(*running, *coming))
        return Observation(now=self.now, fleet=fleet, measures=measures, ledger=view)
