"""What each node's agent would have said at any moment of a recording, from its spans instead of from samples.

A life is cut into stretches of one state. Time counts as with an agent that samples without pause: from the stretch's
begin, from zero after a boot, and from zero after any doubt (silence, a lost GPU). Of what is not idle the verdict is
made once for a stretch: no decision rests on how long it has held, and an old one stops nothing.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from heapq import heappop, heappush
from itertools import groupby
from math import inf
from operator import itemgetter

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.devices.load_profile import Intervals, LoadProfile, Phase
from gpuwatch.controller.observe.pool_metrics import of_verdicts
from gpuwatch.model.activity import Activity, Evidence, State
from gpuwatch.model.fleet import VERDICT_SCHEMA, Fleet, GpuVerdict, Node, NodeReport, NodeState, NodeVerdict
from gpuwatch.model.measurement import MetricQuery, MetricValue
from gpuwatch.policies.idle_timeout.answers import WEEK_SECONDS
from gpuwatch.runtime.clock import Clock
from gpuwatch.simulate.caches import changed_places
from gpuwatch.simulate.fleet.workloads import Workload
from gpuwatch.simulate.fleet.world import Host, World

_LIMITS = ActivityRules()
_SAMPLING_SECONDS = 1.0
_SILENT = NodeReport(failure="its agent is silent")
_LOST = "a GPU is lost"
_COUNTING = frozenset({State.IDLE, State.PARKED})
# The first of this order that any GPU has is the node's, as with the agent.
_ORDER = (State.BUSY, State.UNKNOWN, State.PARKED, State.IDLE)
_EVIDENCE = {
    state: Evidence(
        name="gpu0.utilization_max",
        says=state,
        observed=None,
        limit=_LIMITS.busy_utilization_ratio,
        unit="ratio",
        source="the recording",
    )
    for state in (State.BUSY, State.PARKED, State.IDLE)
}
# Recordings show no people: nobody is at their nodes, as in `compare.Terms`.
_NOBODY = Evidence(
    name="people",
    says=State.IDLE,
    observed=None,
    limit=None,
    unit="seconds since input",
    source="the recording",
    note="it shows no people",
)


@dataclass(frozen=True, slots=True)
class Timeline:
    """A life in stretches, the first from second 0 on: when each begins, and what its agent says; None is silence."""

    begins: Sequence[float]
    states: Sequence[State | None]

    def stretch_at(self, seconds: float) -> int:
        """The number of the stretch that holds this moment."""
        return bisect_right(self.begins, seconds) - 1

    def end(self, number: int) -> float:
        """When a stretch ends; the last never does."""
        return self.begins[number + 1] if number + 1 < len(self.begins) else float("inf")

    def first_held(self, seconds: float, waits: dict[State, float], ready: float) -> float | None:
        """The first moment from this one on at which a state has held for its wait since `ready`, if there is one."""
        for number in range(self.stretch_at(max(seconds, ready)), len(self.begins)):
            wait = waits.get(self.states[number] or State.UNKNOWN)
            if wait is not None and (due := max(self.begins[number], ready) + wait) < self.end(number):
                return max(due, seconds)
        return None


def timeline_of(life: Workload, horizon: float) -> Timeline:
    """A life up to the horizon."""
    lost = {entry.gpu: entry.spans for entry in life.lost}
    first = {id(programme): index for index, programme in reversed([*enumerate(life.gpus)]) if index not in lost}
    # GPUs that do the same and are never lost count once.
    gpus = [index for index, programme in enumerate(life.gpus) if index in lost or first[id(programme)] == index]
    doing, gone, silent = dict.fromkeys(gpus, State.IDLE), dict.fromkeys(gpus, False), False
    changes: list[tuple[float, int, bool | State]] = [(at, -1, on) for at, on in _edges(life.silent)]
    for gpu in gpus:
        changes += ((at, gpu, state) for at, state in _states(life.gpus[gpu], horizon))
        changes += ((at, gpu, on) for at, on in _edges(lost.get(gpu, Intervals())))
    begins, states = [0.0], list[State | None]([State.IDLE])
    for at, together in groupby(sorted(changes, key=itemgetter(0)), itemgetter(0)):
        for _, gpu, change in together:
            if isinstance(change, State):
                doing[gpu] = change
            elif gpu < 0:
                silent = change
            else:
                gone[gpu] = change
        states_now = {State.UNKNOWN if gone[gpu] else doing[gpu] for gpu in gpus}
        shown = None if silent else next(state for state in _ORDER if state in states_now)
        if at <= 0:
            states[0] = shown
        elif shown is not states[-1]:
            begins.append(at)
            states.append(shown)
    return Timeline(begins, states)


def _edges(spans: Intervals) -> Iterator[tuple[float, bool]]:
    """When something begins to hold, and when it ends; of what touches, the end comes first."""
    for begin, end in spans:
        yield begin, True
        yield end, False


def _states(programme: LoadProfile, horizon: float) -> Iterable[tuple[float, State]]:
    """What the agent calls each phase."""
    return ((at, _state(phase)) for at, phase in programme.phases(horizon))


def _state(phase: Phase) -> State:
    """By the agent's own limits; the faintest work shows in the driver's samples, however little it is on the mean."""
    if phase.utilization_ratio > 0:
        return State.BUSY
    held = phase.process_count > 0 or phase.memory_bytes >= _LIMITS.held_memory_bytes
    return State.PARKED if held else State.IDLE


@dataclass(slots=True)
class _NodeHistory:
    """What was said of a node as the cloud listed it, and until when the same may be said again."""

    listed: Node
    node: Node
    until: float


@dataclass(slots=True)
class HistorySource:
    """A NodeReportSource over a world's lives."""

    world: World
    clock: Clock
    timelines: dict[str, Timeline]
    _histories: dict[str, _NodeHistory] = field(default_factory=dict)
    _asked: Sequence[Node] = ()  # those asked about last
    _said: list[Node] = field(default_factory=list)  # what was said of each
    _counting: set[int] = field(default_factory=set)  # the places of those of which each round says something new
    _ends: list[tuple[float, int]] = field(default_factory=list)  # when others' words end, the first in front

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """All nodes; those of which nothing new is to be said are the very same values as before."""
        now = self.clock.monotonic()
        places = set(range(len(nodes)))
        if len(self._asked) == len(nodes):  # most nodes are those of the round before, in the same place
            places = {*changed_places(self._asked, nodes), *self._counting}
            while self._ends and self._ends[0][0] <= now:
                places.add(heappop(self._ends)[1])
        else:
            self._said, self._counting, self._ends = list(nodes), set(), []
        for place in places:
            history = self._history(nodes[place], now)
            self._said[place] = history.node
            self._counting.discard(place)
            if history.until <= now:
                self._counting.add(place)
            elif history.until < inf:
                heappush(self._ends, (history.until, place))
        self._asked = nodes
        return Fleet(observed_at=self.clock.now(), nodes=tuple(self._said))

    def _history(self, node: Node, now: float) -> _NodeHistory:
        """What is said of a node now, the very same value as before where that still holds."""
        history = self._histories.get(node.id)
        if history is None or history.listed is not node or history.until <= now:
            signal, until = self._ask(node, now)
            history = self._histories[node.id] = _NodeHistory(node, replace(node, signal=signal), until)
        return history

    def confirm(self, node: Node) -> NodeReport:
        """Return one node as it is now."""
        return self._ask(node, self.clock.monotonic())[0]

    def measure(self, fleet: Fleet, queries: Sequence[MetricQuery]) -> tuple[MetricValue, ...]:
        """Means of what the agents reported in this round; a recording has no metrics of its own."""
        return of_verdicts(fleet, queries, self.clock.now())

    def _ask(self, node: Node, now: float) -> tuple[NodeReport, float]:
        """A node's signal, and until when it may be repeated."""
        if node.state is not NodeState.RUNNING:
            return NodeReport(failure=f"it is {node.state.value}"), float("inf")
        host = self.world.hosts[node.id]
        ready = host.runs[-1].ready
        if not host.running or now < ready:
            return _SILENT, max(now, ready)
        timeline = self.timelines[node.id]
        number = timeline.stretch_at(now)
        state, until = timeline.states[number], timeline.end(number)
        if state is None:
            return _SILENT, until
        held = now - max(timeline.begins[number], ready)
        verdict = self._verdict(host, state, held)
        return NodeReport(verdict=verdict), now if state in _COUNTING else until

    def _verdict(self, host: Host, state: State, held: float) -> NodeVerdict:
        at = self.clock.now()
        if state is State.UNKNOWN:
            activity = Activity(state=state, since=at - timedelta(seconds=held), held_seconds=0.0, doubt=_LOST)
        else:
            since = at - timedelta(seconds=held)
            evidence = (_EVIDENCE[state], _NOBODY) if state is State.IDLE else (_EVIDENCE[state],)
            activity = Activity(state=state, since=since, held_seconds=held, evidence=evidence)
        return NodeVerdict(
            schema=VERDICT_SCHEMA,
            node_id=host.node_id,
            agent_version="recorded",
            at=at,
            age_seconds=0.0,
            interval_seconds=_SAMPLING_SECONDS,
            activity=activity,
            gpus=tuple(
                GpuVerdict(uuid=f"{host.node_id}-{index}", index=index, activity=activity)
                for index in range(len(host.life.gpus))
            ),
            login_free_seconds=WEEK_SECONDS,  # nobody is at a recorded node
        )
