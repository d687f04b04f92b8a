"""PURE: what the siblings of a pod do. A workload is judged whole before one of its pods is asked to go.

Rules, all of them:

1. Where a pod of a whole (`Pod.group`) has GPUs, each of its pods stays while a sibling elsewhere is not idle for as
   long as the pool wants. The head of a Ray cluster has no GPU, and its end is the end of all its workers.
2. What is not known is no idleness: a sibling that waits for a node, runs on a machine that gpuwatch does not watch, or
   is in doubt by its agent's word. A sibling without GPUs is idle where its agent says so of
   it, or of its whole machine.
3. Of what was only installed together (`Pod.release`) pods without GPUs stay while a pod with GPUs works.
4. Consent changes nothing of this: it is for a workload that is idle. Where the people of a pod let it be interrupted
   at work, and its node is sick, nobody asks for its siblings.
"""

from datetime import datetime

from gpuwatch.model.activity import State
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Fleet, Node
from gpuwatch.model.kubernetes import Pod
from gpuwatch.policies.kubernetes.pod_use import PodUse, holds_gpus, use_of

_BUSY = frozenset({State.BUSY, State.OCCUPIED})
# How a pod is called by what stands in its name; the API has one word for all of them.
_PARTS = ("worker", "executor", "head", "driver", "launcher", "leader", "master", "scheduler")


def why_stays(pod: Pod, fleet: Fleet, wait_seconds: float | None, now: datetime) -> str | None:
    """What a sibling elsewhere does that keeps a pod, as a clause; None: none keeps it."""
    found = working(pod, fleet, now) or in_doubt(pod, fleet, now)
    return found or _too_soon(pod, fleet, wait_seconds, now)


def working(pod: Pod, fleet: Fleet, now: datetime) -> str | None:
    """Which sibling elsewhere works."""
    named = _members(pod, fleet)
    if pod.gpus <= 0 and pod.release is not None and fleet.cluster is not None:
        installed = _elsewhere(pod, fleet.cluster.together.get(pod.release, ()))
        named = (*named, *(each for each in installed if _has_gpus(each, fleet)))
    for other in named:
        use = _use(other, fleet, now)
        if use is not None and (use.state in _BUSY or (use.work is not None and use.work.state is State.BUSY)):
            return f"{_name(other)} is busy"
    return None


def in_doubt(pod: Pod, fleet: Fleet, now: datetime) -> str | None:
    """Of which sibling elsewhere nobody knows what it does."""
    for other in _members(pod, fleet):
        if other.node is None:
            return f"{_name(other)} waits for a node"
        use = _use(other, fleet, now)
        if use is None or use.state is State.UNKNOWN or (use.work is not None and use.work.state is State.UNKNOWN):
            return f"what {_name(other)} does is not known"
    return None


def _too_soon(pod: Pod, fleet: Fleet, wait_seconds: float | None, now: datetime) -> str | None:
    """Which sibling elsewhere has not been idle for long enough."""
    for other in _members(pod, fleet):
        use = _use(other, fleet, now)
        if use is None or use.state is not State.IDLE:
            return f"{_name(other)} is {'unknown' if use is None else use.state.value}"
        if wait_seconds is None or use.held_seconds < wait_seconds:
            needed = "" if wait_seconds is None else f", and {format_duration(wait_seconds)} are needed"
            return f"{_name(other)} has been idle for {format_duration(use.held_seconds)}{needed}"
    return None


def _members(pod: Pod, fleet: Fleet) -> tuple[Pod, ...]:
    """Its siblings elsewhere, where one of them has GPUs."""
    if pod.group is None or fleet.cluster is None:
        return ()
    whole = fleet.cluster.together.get(pod.group, ())
    return _elsewhere(pod, whole) if any(_has_gpus(each, fleet) for each in whole) else ()


def _elsewhere(pod: Pod, others: tuple[Pod, ...]) -> tuple[Pod, ...]:
    """Those on other nodes, and those without one; what its own node does is asked of the node."""
    return tuple(each for each in others if each.uid != pod.uid and (each.node is None or each.node != pod.node))


def _has_gpus(other: Pod, fleet: Fleet) -> bool:
    """Whether it requests GPUs, or its machine's agent sees it on some."""
    machine = None if other.node is None else fleet.machine_of.get(other.node)
    return other.gpus > 0 if machine is None else holds_gpus(other, machine)


def _use(other: Pod, fleet: Fleet, now: datetime) -> PodUse | None:
    """What a sibling does; None: it has no node, or one that gpuwatch does not watch."""
    machine = None if other.node is None else fleet.machine_of.get(other.node)
    if machine is None:
        return None
    if holds_gpus(other, machine):
        state, held = use_of(machine, other, now)
    else:
        state, held = _quiet(machine, other)
    return PodUse(pod=other, node=machine, state=state, held_seconds=held)


def _quiet(machine: Node, other: Pod) -> tuple[State, float]:
    """What a sibling without GPUs does: what its agent says of it, or that nothing on its machine works."""
    pods = () if machine.verdict is None else machine.verdict.pods
    own = next((each.activity for each in pods if each.uid == other.uid), None)
    told = machine.activity if own is None else own
    if told.state is State.IDLE or (own is not None and own.state is State.BUSY):
        return told.state, told.held_seconds
    return State.UNKNOWN, 0.0  # another pod of its machine may be what works there


def _name(other: Pod) -> str:
    """`its worker team/big-worker-1 on node n-7`."""
    part = next((each for each in _PARTS if each in other.name.lower()), "sibling")
    return f"its {part} {other}{'' if other.node is None else f' on node {other.node}'}"
