"""Looks over the controller's shoulder: every change that it asks for, and every settlement, against the truth.

What each property of the controller says of one stop, as far as a simulation can tell:

- P1 its agent answers and all of its GPUs are there; P2 nothing computes and nobody is at work;
- P3 it is enrolled and not protected; P4 no hour sees more stops than the limits allow; P6 it runs;
- P7 its pool keeps its minimum; P9 it has truly been idle for the policy's wait; P10 it is past its warm-up;
- P11 it was needed since it was stopped before;
- P12 (of every change) an open intent has that key; P13 a stop settles only when the cloud shows it stopped or gone;
- P14 its notice promised this or worse, in this pool, and the promised time has come;
- P15 its permit holds: what allows the removal was asked a moment ago.

And of rounds that are planned first: P5 the round decides what its plan decided, unless it settled something before;
P8 a node that the plan would remove is left alone when it is busy, silent, protected or not enrolled instead.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import takewhile
from typing import Protocol

from gpuwatch.clouds import Cloud
from gpuwatch.clouds.permit import Permit
from gpuwatch.controller.context import ControllerContext, Round
from gpuwatch.controller.observe import NodeReportSource
from gpuwatch.guard import Rulebook
from gpuwatch.model.activity import State
from gpuwatch.model.decision import REMOVALS, Intent, Outcome, Status, Verb
from gpuwatch.model.fleet import Fleet, Node, NodeReport, NodeState
from gpuwatch.model.measurement import MetricQuery, MetricValue
from gpuwatch.model.stops import StopAnswer
from gpuwatch.simulate.cloud_proxy import PassedOn
from gpuwatch.simulate.fleet.world import Host, World
from gpuwatch.simulate.memory_ledger import InMemoryLedger

_HOUR = 3600.0
_GONE = frozenset({NodeState.STOPPED, NodeState.TERMINATED})


class Controller(Protocol):
    """One round, as `gpuwatch.controller.round.step` plays it."""

    def __call__(self, parts: ControllerContext, *, act: bool = True) -> Round:
        """Play it; with `act=False` it ends before anything is written down."""
        ...


class WatchedLedger(InMemoryLedger):
    """A ledger that lets somebody look at an outcome before it is written down."""

    look: Callable[[Intent, Status], None] = staticmethod(lambda _intent, _status: None)

    def settle(self, intent: Intent, status: Status, detail: str, at: datetime) -> Outcome:
        """Check the outcome, then settle the intent."""
        self.look(intent, status)
        return super().settle(intent, status, detail, at)


@dataclass(kw_only=True)
class SafetyChecker:
    """What was seen. `least_seconds` is the shortest wait of the policy; `violations` are sentences."""

    world: World
    cloud: Cloud
    ledger: InMemoryLedger
    rules: Rulebook
    least_seconds: float
    violations: list[str] = field(default_factory=list)
    plans: int = 0

    def changes(self, parts: ControllerContext, node_id: str, key: str) -> None:
        """Somebody asks the cloud to change a node."""
        node = self.cloud.node(node_id)
        self._note(node_id, parts, {"P12: no open intent has its key": not self.ledger.is_open(key)})
        if node is not None:
            self._note(
                node_id,
                parts,
                {"P3: it is not enrolled": not node.enrolled, "P3: it is protected": node.protected is not None},
            )

    def removes(self, parts: ControllerContext, node_id: str, key: str, permit: Permit, verb: Verb) -> None:
        """Somebody asks the cloud to stop or terminate a node."""
        self.changes(parts, node_id, key)
        bound, of_it = self.rules.limits.max_confirmation_age, permit.max_age_seconds
        stale = not 0 <= permit.age_seconds <= min(bound, of_it) or of_it > bound or not permit.leads()
        self._note(node_id, parts, {"P15: its permit does not hold": stale})
        self._note(node_id, parts, dict(self._check_promises(parts.clock.now(), node_id, verb)))
        self._note(node_id, parts, dict(self._removal(parts.clock.monotonic(), node_id)))

    def settles(self, intent: Intent, status: Status) -> None:
        """An outcome is about to be written down."""
        if intent.verb is Verb.STOP and status is Status.SETTLED:
            node = self.cloud.node(intent.node_id)
            if node is not None and node.state not in _GONE:
                self.violations.append(f"{intent.node_id}: P13: settled as stopped while the cloud says {node.state}")

    def plan(self, controller: Controller, parts: ControllerContext) -> Round:
        """What the next round would do; and, of what it would remove, one node that is something else than idle."""
        plan = controller(parts, act=False)
        self.plans += 1
        node_id = min(_removed_nodes(plan), default=None)
        for word, other in () if node_id is None else _worlds(parts, node_id):
            left_alone = node_id not in _removed_nodes(controller(other, act=False))
            self._note(str(node_id), parts, {f"P8: it would be removed although it is {word}": not left_alone})
        return plan

    def check_round(self, plan: Round | None, done: Round) -> None:
        """A round is over; it may have been planned."""
        if plan is None or done.settled:
            return
        if (plan.decisions, plan.reviews, plan.trouble) != (done.decisions, done.reviews, done.trouble):
            self.violations.append(f"the round at {done.observation.now}: P5: it decides something else than its plan")

    def _removal(self, now: float, node_id: str) -> Iterator[tuple[str, bool]]:
        host, node = self.world.hosts[node_id], self.cloud.node(node_id)
        wrong = host.at_work(now)
        lost = any(each.spans.end_of_interval(now) is not None for each in host.life.lost)
        yield "P1: its agent is silent, or a GPU of it is lost", lost or not host.answers(now)
        yield f"P2: {wrong}", wrong is not None
        yield (
            f"P9: it was idle for less than {self.least_seconds:g} s",
            now - _idle_since(host, now) < self.least_seconds,
        )
        lately = sum(1 for _ in takewhile(lambda stop: stop.at > now - _HOUR, reversed(self.world.stops)))
        yield "P4: too many stops within an hour", lately >= self.rules.limits.max_stops_per_hour
        if node is None:
            return
        rules, run = self.rules.pool(node.pool), host.runs[-1]
        yield "P6: it does not run", node.state is not NodeState.RUNNING
        young = len(host.runs) > 1 and now - run.begin < rules.warm_up  # the first run began before the recording
        yield "P10: it is in its warm-up", young
        before = host.runs[-2].end if len(host.runs) > 1 else None
        needed = now if before is None else host.demand.next(before)
        yield "P11: nobody needed it since it was stopped before", needed is None or needed > now
        if rules.least:
            there = [each for each in self.cloud.nodes() if each.pool == node.pool and each.id != node_id]
            left = [each for each in there if each.state is NodeState.RUNNING]
            count = sum(each.known_gpus for each in left) if rules.unit == "gpus" else len(left)
            yield "P7: its pool falls below its minimum", count < rules.least

    def _check_promises(self, now: datetime, node_id: str, verb: Verb) -> Iterator[tuple[str, bool]]:
        notice, node = self.ledger.view(now).notice(node_id), self.cloud.node(node_id)
        promise = None if notice is None else notice.promise
        if notice is None or promise is None or node is None:
            yield "P14: nobody was promised anything", True
            return
        yield "P14: the promised time has not come", now < promise.due(notice.at)
        yield f"P14: a {promise.action} was promised", promise.action != "terminate" and verb is not Verb.STOP
        yield f"P14: its notice was for pool {promise.pool}", promise.pool != node.pool

    def _note(self, node_id: str, parts: ControllerContext, found: Mapping[str, bool]) -> None:
        now = parts.clock.monotonic()
        self.violations += [f"{node_id} after {now:g} s: {sentence}" for sentence, holds in found.items() if holds]


def _idle_since(host: Host, now: float) -> float:
    """When it last computed by the truth, or was started if that is later."""
    number = bisect_left(host.demand.begins, now)
    worked = min(host.demand.ends[number - 1], now) if number else 0.0
    return max(host.runs[-1].begin, worked)


def _removed_nodes(done: Round) -> set[str]:
    """The nodes that a round removes, or would."""
    return {each.step.node_id for each in done.reviews if each.allowed and each.step.verb in REMOVALS}


def _worlds(parts: ControllerContext, node_id: str) -> Iterator[tuple[str, ControllerContext]]:
    """The same moment, but for one node that must not be removed."""
    yield "busy", replace(parts, signals=_Other(parts.signals, node_id, _busy))
    yield "silent", replace(parts, signals=_Other(parts.signals, node_id, lambda _: NodeReport(failure="it is silent")))
    yield "protected", replace(parts, cloud=_Shown(parts.cloud, node_id, lambda node: replace(node, protected="a tag")))
    yield "not enrolled", replace(parts, cloud=_Shown(parts.cloud, node_id, lambda node: replace(node, enrolled=False)))


def _busy(signal: NodeReport) -> NodeReport:
    """The same verdict of a node that works."""
    verdict = signal.verdict
    if verdict is None:
        return signal
    activity = replace(verdict.activity, state=State.BUSY)
    gpus = tuple(replace(gpu, activity=activity) for gpu in verdict.gpus)
    return NodeReport(verdict=replace(verdict, activity=activity, gpus=gpus))


@dataclass(frozen=True, slots=True)
class _Other:
    """A NodeReportSource that says something else of one node."""

    signals: NodeReportSource
    node_id: str
    change: Callable[[NodeReport], NodeReport]

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """All nodes, one of them changed."""
        fleet = self.signals.observe(nodes)
        changed = (
            replace(node, signal=self.change(node.signal)) if node.id == self.node_id else node for node in fleet.nodes
        )
        return replace(fleet, nodes=tuple(changed))

    def confirm(self, node: Node) -> NodeReport:
        """One node, perhaps changed."""
        signal = self.signals.confirm(node)
        return self.change(signal) if node.id == self.node_id else signal

    def measure(self, fleet: Fleet, queries: Sequence[MetricQuery]) -> tuple[MetricValue, ...]:
        """Pass the measurements on as they are."""
        return self.signals.measure(fleet, queries)


@dataclass(frozen=True, slots=True)
class _Shown(PassedOn):
    """A cloud that shows one node otherwise."""

    node_id: str
    change: Callable[[Node], Node]

    def nodes(self) -> Sequence[Node]:
        """All machines, one of them changed."""
        return tuple(self.change(node) if node.id == self.node_id else node for node in self.cloud.nodes())


@dataclass(frozen=True, slots=True)
class WatchedCloud(PassedOn):
    """The controller's cloud, with a witness of every change of a node that it asks for."""

    parts: ControllerContext
    witness: SafetyChecker

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """Stop it under a witness's eyes."""
        self.witness.removes(self.parts, node_id, key, permit, Verb.STOP)
        return self.cloud.stop(node_id, key, permit=permit)

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Check the order, then terminate the machine."""
        self.witness.removes(self.parts, node_id, key, permit, Verb.TERMINATE)
        self.cloud.terminate(node_id, key, permit=permit, group=group)

    def start(self, node_id: str, key: str) -> None:
        """Check the order, then start the machine."""
        self.witness.changes(self.parts, node_id, key)
        self.cloud.start(node_id, key)

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Set its tags in the same way."""
        self.witness.changes(self.parts, node_id, key)
        self.cloud.tag(node_id, tags, key)
