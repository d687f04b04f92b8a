"""Builders of fleets and rounds: a test names what matters to its sentence, the rest is an idle, enrolled machine."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from gpuwatch.clouds import CloudError, CloudUnavailableError, Leftover, NotFoundError, NotSentError
from gpuwatch.clouds.permit import Permit, check_in_force
from gpuwatch.controller.context import LiveParts, Memory
from gpuwatch.controller.round import Round, step
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import Activity, Evidence, State
from gpuwatch.model.decision import DECISION_TAG, LedgerView, Observation, Stopped
from gpuwatch.model.fleet import (
    DEFAULT_POOL,
    VERDICT_SCHEMA,
    Fleet,
    GpuVerdict,
    Node,
    NodeGroup,
    NodeReport,
    NodeState,
    NodeVerdict,
)
from gpuwatch.model.measurement import MetricQuery, MetricValue
from gpuwatch.model.money import Price
from gpuwatch.model.promise import Notice
from gpuwatch.model.stops import LastStop, StopAnswer
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle_settings import IdleRules, resolve_rules
from gpuwatch.policies.idle_timeout.answers import WEEK_SECONDS
from gpuwatch.runtime.clock import Clock, ManualClock
from tests.support.builders.fake_groups import FakeGroups
from tests.support.builders.promise import a_promise

_ADDS = frozenset({"launch", "grow", "start"})
NOW, HOUR = datetime(2026, 3, 2, 12, 0, tzinfo=UTC), 3600.0
IDLE = resolve_rules(IdleRules(timeout=1800.0, grace_period=600.0), "cautious", {"timeout", "grace_period"})
IDLE = replace(IDLE, owner_grace_period=600.0, terminate_grace_period=600.0)
RULES = PoolRules(profile="cautious", warm_up=900.0, idle=IDLE)  # a test about other than idle nodes says what for


def a_permit(clock: Clock | None = None, *, max_age: float = 5.0, leads: Callable[[], bool] = lambda: True) -> Permit:
    """A permit whose questions are asked at this moment; its holder leads."""
    return Permit.asked_now(clock or ManualClock(wall=NOW), max_age, leads)


def an_activity(state: State = State.IDLE, held: float = 2 * HOUR, *, now: datetime = NOW) -> Activity:
    """A verdict's activity; idle for two hours unless told otherwise."""
    source = "NVML utilization samples"
    says = Evidence(name="gpu0.utilization_max", says=state, observed=0.0, limit=0.01, unit="ratio", source=source)
    if state is State.UNKNOWN:
        return Activity(state=state, since=now, held_seconds=0.0, doubt="GPU 0: its utilization could not be read")
    return Activity(state=state, since=now - timedelta(seconds=held), held_seconds=held, evidence=(says,))


def a_verdict(
    node_id: str = "i-1",
    state: State = State.IDLE,
    held: float = 2 * HOUR,
    *,
    gpus: int = 1,
    age: float = 1.0,
    at: datetime = NOW,
) -> NodeVerdict:
    """What an agent answers."""
    activity = an_activity(state, held, now=at)
    return NodeVerdict(
        schema=VERDICT_SCHEMA,
        node_id=node_id,
        agent_version="0.1.0",
        at=at - timedelta(seconds=age),
        age_seconds=age,
        interval_seconds=1.0,
        activity=activity,
        gpus=tuple(GpuVerdict(uuid=f"GPU-{node_id}-{n}", index=n, activity=activity) for n in range(gpus)),
        login_free_seconds=WEEK_SECONDS,
    )


def a_node(node_id: str = "i-1", state: State = State.IDLE, held: float = 2 * HOUR, **other: object) -> Node:
    """A running, enrolled machine with one GPU, idle for two hours unless told otherwise."""
    base = Node(
        id=node_id,
        name=node_id,
        pool="default",
        state=NodeState.RUNNING,
        instance_type="g6.xlarge",
        gpu_count=1,
        region="us-east-1",
        zone="us-east-1a",
        launched_at=NOW - timedelta(days=2),
        address="127.0.0.2",  # loopback: whatever a test gets wrong stays on this machine
        enrolled=True,
        signal=NodeReport(verdict=a_verdict(node_id, state, held)),
    )
    return replace(base, **other)  # type: ignore[arg-type]


def an_observation(*nodes: Node, now: datetime = NOW, **ledger: object) -> Observation:
    """The fleet of these nodes now."""
    view = LedgerView(**ledger)  # type: ignore[arg-type]
    return Observation(now=now, fleet=Fleet(observed_at=now, nodes=nodes), ledger=view)


def a_notice(node_id: str = "i-1", *, age: float = 900.0, now: datetime = NOW, **value: object) -> Notice:
    """A notice in force, older than the grace period unless told otherwise; `told` is what it promised otherwise."""
    promise = a_promise(age, now, value)
    return Notice(node_id=node_id, key="gpuwatch-test-1", at=now - timedelta(seconds=age), promise=promise)


def a_stop(node_id: str = "i-1", *, at: datetime = NOW, **other: object) -> Stopped:
    """Our own stop: its cloud accepted it of a running machine."""
    return replace(Stopped(node_id=node_id, key="k", at=at, answer=StopAnswer(ran=True)), **other)  # type: ignore[arg-type]


@dataclass(slots=True)
class FakeFleet(FakeGroups):
    """Cloud and signal source of a controller under test, with every fault at hand; its truth is plain fields.

    It is no stand-in for EC2 (moto is, in test_clouds and test_crash): it lets thousands of generated days run.
    `fault(call, node_id)` may raise a CloudError before a call has its effect; `lose(call, node_id)` after it.
    """

    clock: ManualClock
    nodes_: dict[str, Node] = field(default_factory=dict)
    answer: Callable[[Node], NodeReport] | None = None
    fault: Callable[[str, str], CloudError | None] = lambda _call, _node: None
    lose: Callable[[str, str], CloudError | None] = lambda _call, _node: None
    lag: Callable[[], float] = lambda: 0.0
    watch_stop: Callable[[str, str], None] = lambda _node, _key: None
    stale: Callable[[float], float] = lambda _now: 0.0  # how old an answer about machines is
    groups_: dict[str, NodeGroup] = field(default_factory=dict)
    room_: dict[str, int] = field(default_factory=dict)  # for how many members of a group there is stock
    mute_groups: bool = False  # groups do not say that there is no stock
    born: Callable[[Node], Node] = lambda node: node  # what a launch makes of its template
    listed: Callable[[Node], bool] = lambda _node: True  # whether the list shows a machine
    found: Callable[[Node], bool] = lambda _node: True  # whether a search by key shows it
    numbers: dict[tuple[str, str], float | None] = field(default_factory=dict)
    made_: int = 0  # members that groups made by themselves
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    stopped_while: list[State] = field(default_factory=list)
    _until: dict[str, tuple[float, NodeState]] = field(default_factory=dict)
    _past: dict[str, list[tuple[float, Node]]] = field(default_factory=dict)

    def put(self, node: Node) -> None:
        """Add or replace a machine."""
        self.nodes_[node.id] = node
        self._past.setdefault(node.id, []).append((self.clock.monotonic(), node))

    def show(self, node_id: str, state: State, held: float = 0.0) -> None:
        """Change what a machine is doing; its local disks stay as they are."""
        node = self.nodes_[node_id]
        verdict = a_verdict(node_id, state, held, gpus=node.known_gpus, at=self.clock.now())
        verdict = replace(verdict, local_disks=getattr(node.verdict, "local_disks", None))
        self.put(replace(node, signal=NodeReport(verdict=verdict)))

    def nodes(self) -> tuple[Node, ...]:
        """The cloud's list; signals are not the cloud's to tell."""
        self._ask("nodes", "")
        shown = [self._shown(node_id) for node_id, node in list(self.nodes_.items()) if self.listed(node)]
        listed = [node for node in shown if node is not None]
        return tuple(replace(node, signal=NodeReport()) for node in listed if node.state is not NodeState.TERMINATED)

    def node(self, node_id: str) -> Node | None:
        """One machine."""
        self._ask("node", node_id)
        if node_id not in self.nodes_:
            return None
        if (node := self._shown(node_id)) is None:
            raise NotFoundError(f"{node_id} is too new")
        return replace(node, signal=NodeReport())

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """Stop: accepted at once, seen after the lag."""
        self._ask("stop", node_id)
        permit.check()
        node = self._now(self.nodes_[node_id])
        self.watch_stop(node_id, key)
        self.calls.append(("stop", node_id, key))
        ran, at = node.state is NodeState.RUNNING, self.clock.now().replace(microsecond=0)
        if ran:
            self.stopped_while.append(node.activity.state)
            self._until[node_id] = (self.clock.monotonic() + self.lag(), NodeState.STOPPED)
            self.put(replace(node, state=NodeState.STOPPING, last_stop=LastStop(at=at)))
        self._answer("stop", node_id)
        return StopAnswer(ran=ran, earliest=at, latest=at)

    def start(self, node_id: str, key: str) -> None:
        """Start at once."""
        self._ask("start", node_id)
        check_in_force()
        self.calls.append(("start", node_id, key))
        node = self.nodes_[node_id]
        self.put(replace(node, state=NodeState.RUNNING, launched_at=self.clock.now(), last_stop=None))

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Terminate: accepted at once, seen after the lag; a member takes its place with it."""
        self._ask("terminate", node_id)
        permit.check()
        node = self._now(self.nodes_[node_id])
        self.watch_stop(node_id, key)
        self.calls.append(("terminate", node_id, key))
        if node.state in {NodeState.RUNNING, NodeState.STOPPED}:
            if node.state is NodeState.RUNNING:
                self.stopped_while.append(node.activity.state)
            self._until[node_id] = (self.clock.monotonic() + self.lag(), NodeState.TERMINATED)
            self.put(replace(node, state=NodeState.TERMINATING))
            if group is not None:
                held = self.groups_[group]
                left = tuple(each for each in held.node_ids if each != node_id)
                self.groups_[group] = replace(held, desired=held.desired - 1, node_ids=left)
        self._answer("terminate", node_id)

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """One machine for each key, however often it is asked."""
        self._ask("launch", key)
        check_in_force()
        self.calls.append(("launch", key, key))
        node_id = f"i-{key}"
        if node_id not in self.nodes_:
            node = a_node(node_id, State.BUSY, 0.0, pool=arguments["pool"], tags={DECISION_TAG: key})
            self.put(self.born(replace(node, launched_at=self.clock.now())))
        self._answer("launch", key)
        return node_id

    def find(self, key: str, arguments: Mapping[str, str] | None = None) -> Node | None:
        """The machine of that key."""
        del arguments
        self._ask("find", key)
        bearing = [node for node in list(self.nodes_.values()) if node.id == f"i-{key}" and self.found(node)]
        return next((shown for node in bearing if (shown := self._shown(node.id)) is not None), None)

    def _member(self, group: NodeGroup, node_id: str) -> NodeGroup:
        """The group with one member more, which is there at once."""
        node = a_node(node_id, State.BUSY, 0.0, pool=group.pool, group=group.id)
        self.put(replace(node, launched_at=self.clock.now()))
        return replace(group, node_ids=(*group.node_ids, node_id))

    def protect(self, node_id: str, group_id: str, key: str, *, on: bool) -> None:
        """Scale-in protection, at once."""
        assert self.nodes_[node_id].group == group_id, f"{node_id} is no member of {group_id}"
        self._ask("protect", node_id)
        check_in_force()
        self.calls.append(("protect" if on else "unprotect", node_id, key))
        self.put(replace(self.nodes_[node_id], scale_in_protected=on))
        self._answer("protect", node_id)

    def leftovers(self) -> tuple[Leftover, ...]:
        """Nothing."""
        return ()

    def measure(self, fleet: Fleet, queries: Sequence[MetricQuery]) -> tuple[MetricValue, ...]:
        """The numbers that a test has set; unknown where it has not."""
        return tuple(
            MetricValue(
                pool=query.pool,
                name=query.name,
                at=fleet.observed_at,
                value=(value := self.numbers.get((query.pool, query.name))),
                doubt=None if value is not None else "no test has set it",
            )
            for query in queries
        )

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Set tags."""
        self._ask("tag", node_id)
        check_in_force()
        self.calls.append(("tag", node_id, key))
        node = self.nodes_[node_id]
        self.put(replace(node, tags={**node.tags, **tags}))
        self._answer("tag", node_id)

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """The signal source's side."""
        return Fleet(observed_at=self.clock.now(), nodes=tuple(replace(n, signal=self.confirm(n)) for n in nodes))

    def confirm(self, node: Node) -> NodeReport:
        """One agent's answer: fresh at this clock, unless `answer` says otherwise."""
        if node.state is not NodeState.RUNNING:
            return NodeReport(failure=f"it is {node.state.value}")
        if self._now(self.nodes_[node.id]).state is not NodeState.RUNNING:  # which an old list does not show
            return NodeReport(failure="its agent did not answer within 5s")
        if self.answer is not None:
            return self.answer(self.nodes_[node.id])
        signal = self.nodes_[node.id].signal
        if signal.verdict is None:
            return signal
        return NodeReport(verdict=replace(signal.verdict, at=self.clock.now(), age_seconds=0.5))

    def go_on(self, seconds: float) -> None:
        """Whoever runs has done what they do for so much longer."""
        for node in list(self.nodes_.values()):
            if node.state is NodeState.RUNNING and node.verdict is not None:
                self.show(node.id, node.activity.state, node.activity.held_seconds + seconds)

    def stops(self) -> list[str]:
        """Which machines were told to stop."""
        return [node_id for call, node_id, _ in self.calls if call == "stop"]

    def _shown(self, node_id: str) -> Node | None:
        """A machine as it was when an answer was made that arrives now; None: it did not exist then."""
        now = self.clock.monotonic()
        shown, at = self._now(self.nodes_[node_id]), now - self.stale(now)
        if at >= now:
            return shown
        past = self._past[node_id]
        before = [node for since, node in past if since <= at]
        return before[-1] if before else past[0][1] if past[0][0] <= 0.0 else None

    def _now(self, node: Node) -> Node:
        """Let the lag run out."""
        due, state = self._until.get(node.id, (0.0, node.state))
        if node.state in (NodeState.STOPPING, NodeState.TERMINATING) and self.clock.monotonic() >= due:
            node = replace(node, state=state)
            self.put(node)
        return node

    def _ask(self, call: str, node_id: str) -> None:
        error = self.fault(call, node_id)
        if isinstance(error, CloudUnavailableError) and call in _ADDS and not isinstance(error, NotSentError):
            check_in_force()  # it leaves, and has no effect
        if error is not None:
            raise error

    def _answer(self, call: str, node_id: str) -> None:
        if (error := self.lose(call, node_id)) is not None:
            raise error


@dataclass(slots=True)
class Desk:
    """A controller on a manual clock over a FakeFleet: `round()` runs one and lets a minute pass."""

    clock: ManualClock = field(default_factory=lambda: ManualClock(wall=NOW))
    rules: PoolRules = RULES
    pools: Mapping[str, PoolRules] | None = None  # None: every pool that there is, each with the same rules
    limits: Limits = field(default_factory=lambda: Limits(max_stops_per_hour_ratio=1.0))
    enforce: bool = True
    delivery_seconds: Mapping[str, float] = field(default_factory=dict)  # by the pools with a receiver of notices
    ledger: Ledger = field(default_factory=Ledger.in_memory)
    prices: dict[str, Price] = field(default_factory=dict)
    interval: float = 60.0
    fleet: FakeFleet = field(init=False)
    memory: Memory = field(default_factory=Memory)

    def __post_init__(self) -> None:
        """An empty fleet on the same clock."""
        self.fleet = FakeFleet(clock=self.clock)

    @property
    def rulebook(self) -> Rulebook:
        """The rules of each pool."""
        pools = self.pools
        if pools is None:
            nodes, groups = (self.fleet.nodes_ or {}).values(), self.fleet.groups_.values()
            names = (DEFAULT_POOL, *sorted({node.pool for node in nodes} | {group.pool for group in groups}))
            pools = dict.fromkeys(names, self.rules)
        return Rulebook(pools=pools, limits=self.limits, enforce=self.enforce, delivery_seconds=self.delivery_seconds)

    @property
    def parts(self) -> LiveParts:
        """What step() takes."""
        return LiveParts(
            clock=self.clock,
            cloud=self.fleet,
            signals=self.fleet,
            ledger=self.ledger,
            rules=self.rulebook,
            memory=self.memory,
            prices=lambda hire, _: self.prices.get(hire.instance_type),
            interval_seconds=self.interval,
        )

    def plan(self) -> Round:
        """What a round would do."""
        return step(self.parts, act=False)

    def round(self, seconds: float = 60.0) -> Round:
        """One round; then time passes, and whoever is not busy goes on being so."""
        done = step(self.parts)
        self.rest(seconds)
        return done

    def rest(self, seconds: float) -> None:
        """Time passes without a controller."""
        self.clock.advance(seconds)
        self.fleet.go_on(seconds)


# How many lives the state machines generate: `make nightly` asks for thousands.
LIVES, DAYS_LIVED = int(os.environ.get("NIGHTLY_LIVES", "6")), [0.0]


def lived(desk: Desk) -> None:
    """A fleet's life is over."""
    DAYS_LIVED[0] += desk.clock.monotonic() / 86400
