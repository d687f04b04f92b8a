"""The simulated world: hosts with their agents, the users who start what they need, and the truth for the accounts.

A machine is billed from the moment it is started until a stop is accepted, its boot included. It is useful while a GPU
of it computes. A user who needs a stopped node starts it at once and waits for its boot; load that falls into that time
is missed, not delayed: lives and recordings are not shifted.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.devices.load_profile import Intervals, LoadProfile
from gpuwatch.agent.devices.simulated import SimulatedGpu, SimulatedSource, gpu_info
from gpuwatch.agent.probe.main import sample
from gpuwatch.agent.state import AgentCore
from gpuwatch.clouds import Cloud, CloudError
from gpuwatch.clouds.permit import Permit
from gpuwatch.controller.observe.pool_metrics import of_verdicts
from gpuwatch.model.fleet import Fleet, Node, NodeReport, NodeState
from gpuwatch.model.measurement import MetricQuery, MetricValue
from gpuwatch.model.stops import StopAnswer
from gpuwatch.policies.idle_timeout.answers import WEEK_SECONDS
from gpuwatch.runtime.clock import Clock
from gpuwatch.simulate.cloud_proxy import PassedOn
from gpuwatch.simulate.fleet.workloads import Workload

_TRY_AGAIN_SECONDS = 15.0  # a machine that still stops cannot be started yet


@dataclass(slots=True, kw_only=True)
class Run:
    """One stretch of a machine running: its agent answers and its load is served from `ready` on."""

    begin: float
    ready: float
    end: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How a simulated fleet keeps time, in seconds of the simulation."""

    sampling: float = 60.0
    boot: float = 180.0

    @property
    def rules(self) -> ActivityRules:
        """The agent's own rules at this sampling interval: two and a half make a gap, as 10 s do at their default."""
        defaults = ActivityRules()
        return replace(
            defaults,
            max_gap=max(defaults.max_gap, 2.5 * self.sampling),
            forget_after=max(defaults.forget_after, self.sampling),
        )

    @property
    def stale_after(self) -> float:
        """The age at which an agent no longer believes its last sample."""
        return 3 * self.sampling + 5.0


class Host:
    """One node: its life, its runs, and while it runs, its agent's core over its simulated GPUs."""

    def __init__(
        self, life: Workload, node_id: str, clock: Clock, timing: Timing, busy: Mapping[LoadProfile, Intervals]
    ) -> None:
        """The machine runs and its agent answers; `busy` is when each programme computes."""
        self.life = life
        self.node_id = node_id
        self.busy = tuple(busy[programme] for programme in life.gpus)
        self.demand = Intervals(
            [*itertools.chain.from_iterable({id(each): each for each in self.busy}.values()), *life.people]
        )
        self.wake: float | None = None  # when its user wants it back, while it is stopped
        self._clock = clock
        self._timing = timing
        self._infos = [gpu_info("Simulated GPU", index, life.name) for index in range(len(life.gpus))]
        self._cycles = itertools.count()
        self.runs = [Run(begin=clock.monotonic(), ready=clock.monotonic())]
        self._agent: tuple[AgentCore, SimulatedSource] | None = None

    @property
    def core(self) -> AgentCore:
        """Its agent's core since its last boot; a world that asks for no agent's word never makes one."""
        return self._its_agent[0]

    @property
    def running(self) -> bool:
        """Whether its machine is started."""
        return self.runs[-1].end is None

    def answers(self, now: float) -> bool:
        """Whether its agent can be asked."""
        return self.running and now >= self.runs[-1].ready and self.life.silent.end_of_interval(now) is None

    def at_work(self, now: float) -> str | None:
        """The truth about this moment: who or what would be hurt by a stop; None if nobody."""
        for index, busy in enumerate(self.busy):
            if busy.end_of_interval(now) is not None:
                return f"GPU {index} computes"
        return None if self.life.people.end_of_interval(now) is None else "a person is at work on it"

    def sample(self) -> None:
        """One cycle of its agent, unless it is silent."""
        if self.answers(self._clock.monotonic()):
            core, source = self._its_agent
            core.ingest_messages(sample(source, next(self._cycles), self._clock))

    def start(self, now: float) -> None:
        """The machine boots: a new agent knows nothing yet."""
        self.wake = None
        self.runs.append(Run(begin=now, ready=now + self._timing.boot))
        self._agent = None

    def stop(self, now: float) -> None:
        """The machine is gone; its user comes back when the life says so."""
        self.runs[-1].end = now
        self.wake = self.demand.next(now)

    @property
    def _its_agent(self) -> tuple[AgentCore, SimulatedSource]:
        if self._agent is None:
            self._agent = self._new_core(), self._new_source()
        return self._agent

    def _new_core(self) -> AgentCore:
        return AgentCore(
            node_id=self.node_id,
            clock=self._clock,
            rules=self._timing.rules,
            interval_seconds=self._timing.sampling,
            stale_after_seconds=self._timing.stale_after,
            login_free=lambda _: WEEK_SECONDS,  # nobody is at a machine that is played
        )

    def _new_source(self) -> SimulatedSource:
        lost = {entry.gpu: entry.spans for entry in self.life.lost}
        gpus = [
            SimulatedGpu(
                info=info,
                load_profile=programme,
                lost=lost.get(index, Intervals()),
                memory_total_bytes=80 * 1024**3,
                power_limit_watts=400.0,
            )
            for index, (info, programme) in enumerate(zip(self._infos, self.life.gpus, strict=True))
        ]
        return SimulatedSource(gpus, self._clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A stop that was accepted; `wrong` is what it hurt."""

    node: str
    at: float
    wrong: str | None


class World:
    """All hosts by the id of their machine, from the clock's second 0 to the horizon."""

    def __init__(
        self,
        lives: Mapping[str, Workload],
        clock: Clock,
        timing: Timing,
        horizon_seconds: float,
    ) -> None:
        """Begin with every machine running."""
        programmes = dict.fromkeys(programme for life in lives.values() for programme in life.gpus)
        busy = {programme: programme.busy(horizon_seconds) for programme in programmes}
        self.hosts = {node_id: Host(life, node_id, clock, timing, busy) for node_id, life in lives.items()}
        self.stops: list[Stop] = []
        self.restarts = 0
        self._clock = clock
        self._order = {node_id: number for number, node_id in enumerate(self.hosts)}
        self._wakes: list[tuple[float, int, str]] = []

    def sample(self) -> None:
        """Every agent reads its GPUs."""
        for host in self.hosts.values():
            host.sample()

    @property
    def next_wake(self) -> float | None:
        """When the next user wants a stopped node back."""
        while self._wakes and self.hosts[self._wakes[0][2]].wake != self._wakes[0][0]:
            heappop(self._wakes)
        return self._wakes[0][0] if self._wakes else None

    def users_start(self, cloud: Cloud) -> list[Host]:
        """Users start the stopped nodes that they need by now; gives those that now boot."""
        now, started = self._clock.monotonic(), []
        due = set[str]()
        while (wake := self.next_wake) is not None and wake <= now:
            due.add(heappop(self._wakes)[2])
        for node_id in sorted(due, key=self._order.__getitem__):
            host = self.hosts[node_id]
            try:
                cloud.start(node_id, f"user-{self.restarts + 1}")
            except CloudError:
                self._wants_back(host, now + _TRY_AGAIN_SECONDS)
                continue
            self.restarts += 1
            self.witness_start(node_id)
            started.append(host)
        return started

    def witness_start(self, node_id: str) -> None:
        """A start was accepted at this moment, no matter who asked for it."""
        host = self.hosts[node_id]
        if not host.running:
            host.start(self._clock.monotonic())

    def witness_stop(self, node_id: str) -> None:
        """A stop was accepted at this moment: note what it hurt."""
        host, now = self.hosts[node_id], self._clock.monotonic()
        if host.running:
            self.stops.append(Stop(node=host.life.name, at=now, wrong=host.at_work(now)))
            host.stop(now)
            self._wants_back(host, host.wake)

    def _wants_back(self, host: Host, at: float | None) -> None:
        host.wake = at
        if at is not None:
            heappush(self._wakes, (at, self._order[host.node_id], host.node_id))


@dataclass(frozen=True, slots=True)
class WitnessedCloud(PassedOn):
    """A Cloud that reports every start and stop that was accepted to the world."""

    world: World

    def start(self, node_id: str, key: str) -> None:
        """Start it, and tell."""
        self.cloud.start(node_id, key)
        self.world.witness_start(node_id)

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """Stop it, and tell."""
        answer = self.cloud.stop(node_id, key, permit=permit)
        self.world.witness_stop(node_id)
        return answer

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Terminate it, and tell."""
        self.cloud.terminate(node_id, key, permit=permit, group=group)
        self.world.witness_stop(node_id)


@dataclass(frozen=True, slots=True)
class InProcess:
    """A SignalSource that asks the agents' cores without a network. Asked to confirm, an agent reads its GPUs again."""

    world: World
    clock: Clock
    _not_running: dict[str, tuple[Node, Node]] = field(default_factory=dict)  # as listed, and with its signal

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """All nodes, each with its agent's verdict."""
        asked = tuple(map(self._with_signal, nodes))
        return Fleet(observed_at=self.clock.now(), nodes=asked)

    def confirm(self, node: Node) -> NodeReport:
        """One node itself, now."""
        self.world.hosts[node.id].sample()
        return self._ask(node)

    def measure(self, fleet: Fleet, queries: Sequence[MetricQuery]) -> tuple[MetricValue, ...]:
        """Means of what the agents reported in this round."""
        return of_verdicts(fleet, queries, self.clock.now())

    def _with_signal(self, node: Node) -> Node:
        """The node with its signal; one that does not run is made once, since it stays the same for hours."""
        if node.state is NodeState.RUNNING:
            return replace(node, signal=self._ask(node))
        listed, asked = self._not_running.get(node.id, (None, node))
        if listed is not node:
            asked = replace(node, signal=self._ask(node))
            self._not_running[node.id] = (node, asked)
        return asked

    def _ask(self, node: Node) -> NodeReport:
        if node.state is not NodeState.RUNNING:
            return NodeReport(failure=f"it is {node.state.value}")
        host, now = self.world.hosts[node.id], self.clock.monotonic()
        return (
            NodeReport(verdict=host.core.verdict(now))
            if host.answers(now)
            else NodeReport(failure="its agent is silent")
        )
