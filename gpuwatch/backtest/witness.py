"""Looks over the controller's shoulder: every change that it asks for, and every settlement, against the truth.

What each property of the controller says of one stop, as far as a simulation can tell:

- P1 its agent answers and all of its GPUs are there; P2 nothing computes and nobody is at work;
- P3 it is enrolled and not protected; P4 no hour sees more stops than the limits allow; P6 it runs;
- P7 its pool keeps its minimum; P9 it has truly been idle for the policy's wait; P10 it is past its warm-up;
- P12 (of every change) an open intent has that key; P13 a stop settles only when the cloud shows it stopped or gone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpuwatch.clouds import Cloud
from gpuwatch.clouds.passed_on import PassedOn
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import Intent, Outcome, Status, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.parts import Parts
from gpuwatch.simulation.world import Host, World

_HOUR = 3600.0
_GONE = frozenset({NodeState.STOPPED, NodeState.TERMINATED})


class WatchedLedger(Ledger):
    """A ledger that lets somebody look at an outcome before it is written down."""

    look: Callable[[Intent, Status], None] = staticmethod(lambda _intent, _status: None)

    def settle(self, intent: Intent, status: Status, detail: str, at: datetime) -> Outcome:
        """Look, then settle."""
        self.look(intent, status)
        return super().settle(intent, status, detail, at)


@dataclass(kw_only=True)
class Witness:
    """What was seen. `least_seconds` is the shortest wait of the policy; `violations` are sentences."""

    world: World
    cloud: Cloud
    ledger: Ledger
    rules: Rulebook
    least_seconds: float
    stopped_at: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def changes(self, parts: Parts, node_id: str, key: str) -> None:
        """Somebody asks the cloud to change a node."""
        node = self.cloud.node(node_id)
        keys = {entry.intent.key for entry in self.ledger.view(parts.clock.now()).open_intents}
        self._note(node_id, parts, {"P12: no open intent has its key": key not in keys})
        if node is not None:
            self._note(
                node_id,
                parts,
                {"P3: it is not enrolled": not node.enrolled, "P3: it is protected": node.protected is not None},
            )

    def removes(self, parts: Parts, node_id: str, key: str) -> None:
        """Somebody asks the cloud to stop or terminate a node."""
        self.changes(parts, node_id, key)
        self._note(node_id, parts, dict(self._removal(parts, node_id)))
        self.stopped_at.append(parts.clock.monotonic())

    def settles(self, intent: Intent, status: Status) -> None:
        """An outcome is about to be written down."""
        if intent.verb is Verb.STOP and status is Status.SETTLED:
            node = self.cloud.node(intent.node_id)
            if node is not None and node.state not in _GONE:
                self.violations.append(f"{intent.node_id}: P13: settled as stopped while the cloud says {node.state}")

    def _removal(self, parts: Parts, node_id: str) -> Iterator[tuple[str, bool]]:
        host, now, node = self.world.hosts[node_id], parts.clock.monotonic(), self.cloud.node(node_id)
        wrong = host.at_work(now)
        lost = any(each.spans.until(now) is not None for each in host.life.lost)
        yield "P1: its agent is silent, or a GPU of it is lost", lost or not host.answers(now)
        yield f"P2: {wrong}", wrong is not None
        yield (
            f"P9: it was idle for less than {self.least_seconds:g} s",
            now - _idle_since(host, now) < self.least_seconds,
        )
        recent = sum(at > now - _HOUR for at in self.stopped_at)
        yield "P4: too many stops within an hour", recent >= self.rules.limits.max_stops_per_hour
        if node is None:
            return
        rules, run = self.rules.pool(node.pool), host.runs[-1]
        yield "P6: it does not run", node.state is not NodeState.RUNNING
        young = len(host.runs) > 1 and now - run.begin < rules.warm_up  # the first run began before the recording
        yield "P10: it is in its warm-up", young
        left = sum(
            each.pool == node.pool and each.id != node_id and each.state is NodeState.RUNNING
            for each in self.cloud.nodes()
        )
        yield "P7: its pool falls below its minimum", left < rules.min_nodes

    def _note(self, node_id: str, parts: Parts, found: Mapping[str, bool]) -> None:
        now = parts.clock.monotonic()
        self.violations += [f"{node_id} after {now:g} s: {sentence}" for sentence, holds in found.items() if holds]


def _idle_since(host: Host, now: float) -> float:
    """When it last computed by the truth, or was started if that is later."""
    return max([host.runs[-1].begin, *(min(end, now) for begin, end in host.demand if begin < now)])


@dataclass(frozen=True, slots=True)
class WatchedCloud(PassedOn):
    """The controller's cloud, with a witness of every change of a node that it asks for."""

    parts: Parts
    witness: Witness

    def stop(self, node_id: str, key: str) -> None:
        """Stop it under a witness's eyes."""
        self.witness.removes(self.parts, node_id, key)
        self.cloud.stop(node_id, key)

    def terminate(self, node_id: str, key: str, *, group: str | None = None) -> None:
        """End it, likewise."""
        self.witness.removes(self.parts, node_id, key)
        self.cloud.terminate(node_id, key, group=group)

    def start(self, node_id: str, key: str) -> None:
        """Start it, likewise."""
        self.witness.changes(self.parts, node_id, key)
        self.cloud.start(node_id, key)

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Set its tags, likewise."""
        self.witness.changes(self.parts, node_id, key)
        self.cloud.tag(node_id, tags, key)
