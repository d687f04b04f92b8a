"""What a body need not hold because an earlier round of the same hour does: node objects, and machines at work.

Of a large fleet most machines are busy from one round to the next. The line holds what is new about such a machine: the
age of its verdict, how long it has been busy, and how much its GPUs did. All else is in the round that the body rests
on. A machine that does anything else than work, or about which anything is decided but that it holds, is kept whole in
every round.

Of a Kubernetes cluster each node object is kept once, with its machine, and no pod that nothing rests on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from math import isnan
from operator import attrgetter
from struct import Struct, error, iter_unpack

import msgspec

from gpuwatch.model.activity import Activity, GpuUse, State
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.kubernetes import ClusterView, KubernetesNode
from gpuwatch.model.proposal import Step
from gpuwatch.model.verbs import Verb

_BUSY, _HOLD, _RUNNING = State.BUSY, Verb.HOLD, NodeState.RUNNING
_TIME = "\0"  # stands in a sentence where the time stood for which the machine has been busy
_THOUSANDTHS = 1000  # to which a GPU's use is kept: it is for advice alone
_NOT_KNOWN = float("nan")
# What the cloud says of a machine. `kubernetes` is compared by itself (`shared_objects`), `tags` are a mapping.
_APART = frozenset({"kubernetes", "tags", "signal"})
_FACTS = attrgetter(*(name for name in Node.__slots__ if name not in _APART))
_SAID = attrgetter(
    *("schema", "node_id", "agent_version", "driver_version", "interval_seconds", "confirm", "blind"),
    *("cloud_notices", "local_disks", "before_stop", "programs", "other_pods"),
)
_ODD = (TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, error)  # a mapping, or no agent's word
_HEALTH = attrgetter("state", "since", "findings", "doubt")

_LEAST_SHARED = 0.75  # of the node objects: with fewer, a body of its own costs little more


class Line(msgspec.Struct, array_like=True, frozen=True):
    """What is new about a machine that works as it did: times are Unix times, `place` is in the round before.

    `uses` has for each GPU its utilization, memory and multiprocessors in use, as half-precision floats; NaN is not
    known. An older gpuwatch wrote a list of thousandths, which took three times as long.
    """

    place: int
    at: float
    age_seconds: float
    held_seconds: float
    received_at: float | None
    uses: bytes | list[int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What of each machine of a round must be the same later for a line to be enough; without a mark it is whole."""

    by_machine: Mapping[str, tuple[int, int]]  # its place, and its mark

    @classmethod
    def of_round(
        cls, nodes: Sequence[Node], decided: Mapping[str, Step], before: "Marks | None" = None
    ) -> tuple["Marks", dict[str, Line]]:
        """The marks of a round's machines, given what was decided about each; lines for those that are as before."""
        known = {} if before is None else before.by_machine
        marks: dict[str, tuple[int, int]] = {}
        lines: dict[str, Line] = {}
        for place, node in enumerate(nodes):
            try:
                found = _mark_of(node, decided.get(node.id))
                if found is not None:
                    marks[node.id] = place, found[0]
                    then = known.get(node.id)
                    if then is not None and then[1] == found[0]:
                        lines[node.id] = _line(then[0], node, found[1])
            except _ODD:  # what cannot be compared or rounded is kept whole
                continue
        return cls(by_machine=marks), lines


def _mark_of(node: Node, step: Step | None) -> tuple[int, list[float]] | None:
    """The hash of what must stay the same, of this process alone; and what may differ: how much its GPUs did.

    Both in one pass, for it goes over each GPU of a fleet in each round.
    """
    signal = node.signal
    verdict = signal.verdict
    if verdict is None or verdict.activity.state is not _BUSY or node.state is not _RUNNING:
        return None
    activity = verdict.activity
    if step is None or step.verb is not _HOLD or step.arguments or step.reason.evidence != activity.evidence:
        return None
    odd = verdict.pods or verdict.other_pods or verdict.without_lost is not None or activity.doubt is not None
    if odd or _TIME in step.reason.sentence:
        return None
    uses: list[float] = []
    gpus: list[object] = []
    for gpu in verdict.gpus:
        doing, health, use = gpu.activity, gpu.health, gpu.use
        if use is None:
            gpus += (gpu.uuid, gpu.index, doing.since)
        else:
            # By name: an attrgetter and a loop over what it gives take a third longer.
            gpus += (gpu.uuid, gpu.index, doing.since, use.over_seconds, use.power_limit_watts)
            computed, held, active = use.utilization_ratio, use.memory_used_ratio, use.sm_active_ratio
            uses += (
                _NOT_KNOWN if computed is None else computed,
                _NOT_KNOWN if held is None else held,
                _NOT_KNOWN if active is None else active,
            )
        if doing.state is not _BUSY or health is not None or doing.doubt is not None or gpu.pods:
            # Of a GPU that rests, its time must have grown with the clock.
            begun = None if doing.state is _BUSY else round(verdict.at.timestamp() - doing.held_seconds)
            judged = None if health is None else _HEALTH(health)
            gpus.append((doing.state, doing.doubt, begun, judged, gpu.pods))
    said = step.reason.sentence.replace(format_duration(activity.held_seconds), _TIME)
    same = (
        _FACTS(node),
        tuple(node.tags.items()),
        _SAID(verdict),
        activity.since,
        tuple(gpus),
        signal.failure,
        signal.windowed,
        step.reason.code,
        said,
        step.change,
    )
    return hash(same), uses


def _line(place: int, node: Node, uses: list[float]) -> Line:
    verdict, received = node.signal.verdict, node.signal.received_at
    assert verdict is not None  # noqa: S101  it has a mark
    return Line(
        place=place,
        at=verdict.at.timestamp(),
        age_seconds=verdict.age_seconds,
        held_seconds=verdict.activity.held_seconds,
        received_at=None if received is None else received.timestamp(),
        uses=_packer(len(uses))(*uses),
    )


@lru_cache(maxsize=64)  # by a machine's number of GPUs
def _packer(numbers: int) -> Callable[..., bytes]:
    return Struct(f"<{numbers}e").pack


def node_of(line: Line, before: Node) -> Node:
    """The machine that a line stands for, made of what it was before."""
    report = before.signal
    verdict = report.verdict
    assert verdict is not None  # noqa: S101  a line is of a machine with a verdict
    at, uses = datetime.fromtimestamp(line.at, UTC), _uses_of(line)
    later = (at - verdict.at).total_seconds()
    new = replace(
        verdict,
        at=at,
        age_seconds=line.age_seconds,
        activity=replace(verdict.activity, held_seconds=line.held_seconds),
        gpus=tuple(
            replace(
                gpu,
                activity=replace(gpu.activity, held_seconds=gpu.activity.held_seconds + later),
                use=None if gpu.use is None else _use(gpu.use, next(uses), next(uses), next(uses)),
            )
            for gpu in verdict.gpus
        ),
    )
    received = None if line.received_at is None else datetime.fromtimestamp(line.received_at, UTC)
    return replace(before, signal=replace(report, verdict=new, received_at=received))


def _uses_of(line: Line) -> Iterator[float | None]:
    if isinstance(line.uses, bytes):
        return (None if isnan(ratio) else round(ratio, 3) for (ratio,) in iter_unpack("<e", line.uses))
    return (None if thousandths is None else thousandths / _THOUSANDTHS for thousandths in line.uses)


def _use(before: GpuUse, utilization: float | None, memory: float | None, multiprocessors: float | None) -> GpuUse:
    return replace(before, utilization_ratio=utilization, memory_used_ratio=memory, sm_active_ratio=multiprocessors)


def step_of(before: Step, then: Activity, now: Activity) -> Step:
    """What was said of a machine that has a line: what was said before, with the time of now."""
    reason = before.reason
    sentence = reason.sentence.replace(format_duration(then.held_seconds), format_duration(now.held_seconds))
    return replace(before, reason=replace(reason, sentence=sentence, evidence=now.evidence))


def node_objects(nodes: Sequence[Node]) -> dict[str, KubernetesNode]:
    """The node objects of a round as they are kept, by machine."""
    return {node.id: _slim(node.kubernetes) for node in nodes if node.kubernetes is not None}


def shared_objects(before: Mapping[str, KubernetesNode], now: Mapping[str, KubernetesNode]) -> frozenset[str] | None:
    """The machines with the same node objects as then; None: so few that a body does not rest on that round."""
    same = frozenset(name for name, known in now.items() if before.get(name) == known)
    return same if len(same) >= _LEAST_SHARED * len(now) else None


def stored_node(node: Node) -> Node:
    """A machine as it is kept: a DaemonSet's pods that hold no GPU are two thirds of all, and nothing looks at them."""
    known = node.kubernetes
    return node if known is None else replace(node, kubernetes=_slim(known))


def stored_view(view: ClusterView | None, nodes: Sequence[Node]) -> ClusterView | None:
    """The view without the node objects that stand with their machines."""
    if view is None:
        return None
    joined = {node.kubernetes.name for node in nodes if node.kubernetes is not None}
    return replace(view, nodes=tuple(_slim(each) for each in view.nodes if each.name not in joined))


def whole_view(view: ClusterView | None, nodes: Sequence[Node]) -> ClusterView | None:
    """The view with the node objects of these machines."""
    if view is None:
        return None
    joined = [node.kubernetes for node in nodes if node.kubernetes is not None]
    return replace(view, nodes=tuple(sorted([*view.nodes, *joined], key=lambda node: node.name)))


def _slim(node: KubernetesNode) -> KubernetesNode:
    kept = tuple(pod for pod in node.pods if pod.gpus > 0 or pod.static or not pod.daemon)
    return node if len(kept) == len(node.pods) else replace(node, pods=kept)
