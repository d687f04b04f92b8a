"""PURE: what the pods that hold GPUs do with them, as their nodes' own agents report it. Nothing is removed for it.

Rules, all of them:

1. A pod's GPUs are those that its node's agent and its requests show (`gpus_of_pods`). Where it may have one GPU or
   another, its use is known only if it is the same with either.
2. One of them unknown makes the pod unknown; else one busy makes it busy, unless somebody else may work there: another
   pod has the same GPU, or the processes there are not this pod's. Then it is not known which of both it is.
3. Else one stalled makes it stalled, else one parked makes it parked; a pod is idle if each of its GPUs is. Of GPUs
   without use that it may have, the one that waits longest counts, in this order.
4. It has been so for as long as the GPU that began last, and never for longer than the pod exists.
5. What it does besides its GPUs is what the agent says of it by itself (`NodeVerdict.pods`), where it says anything.
6. It costs the part of its node's price that its GPUs are of the node's (`KubernetesNode.shared_gpus`).
7. A static pod of people's own holds the GPUs that it is seen on as well as those that it requests.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gpuwatch.model.activity import Activity, State
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import GpuVerdict, Node
from gpuwatch.model.kubernetes import Pod, PodPhase
from gpuwatch.policies.kubernetes.gpus_of_pods import Holding, holding, works_alone

# What is worth a word: shorter rests are part of work.
TOLD_AFTER_SECONDS = 3600.0
WITHOUT_USE = (State.STALLED, State.PARKED, State.IDLE)
_BUSY = frozenset({State.BUSY, State.OCCUPIED})
_RANKS = {state: rank for rank, state in enumerate((*reversed(WITHOUT_USE), State.BUSY, State.UNKNOWN))}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUse:
    """One pod that holds GPUs. `held_seconds` is how long it has been in its state, 0 where that is not known."""

    pod: Pod
    node: Node
    state: State
    held_seconds: float = 0.0
    usd_per_hour: Decimal | None = None

    @property
    def work(self) -> Activity | None:
        """Rule 5: busy, idle or unknown; None: its agent cannot tell it from the machine's other work."""
        verdict = self.node.verdict
        pods = () if verdict is None else (*verdict.pods, *(verdict.other_pods or ()))
        return next((each.activity for each in pods if each.uid == self.pod.uid), None)

    @property
    def unused(self) -> bool:
        """Whether it has held its GPUs without use for so long that it is reported."""
        return self.state in WITHOUT_USE and self.held_seconds >= TOLD_AFTER_SECONDS


def pods_by_agent(node: Node) -> dict[str, str]:
    """The pods that its agent sees with GPUs of it, requested or not: their names by uid, or by name without one."""
    verdict = node.verdict
    if verdict is None:
        return {}
    found = {each.uid: each.name or f"of uid {each.uid}" for each in verdict.pods}
    return found | {name: name for gpu in verdict.gpus for name in gpu.pods if name not in found.values()}


def holds_gpus(pod: Pod, node: Node) -> bool:
    """Whether a pod has GPUs: it requests some, or the node's agent sees it on them (privileged, or by a hostPath).

    Of pods that stay to the end, such as those that watch the GPUs, requests alone count; but a static pod of people's
    own is no such pod: it is there for its own sake, on that node alone.
    """
    if pod.gpus > 0:
        return not (pod.system and pod.daemon)
    watches = pod.daemon and (pod.system or not pod.static)
    named = () if watches else pods_by_agent(node)
    return pod.uid in named or str(pod) in named


def uses(observation: Observation) -> Iterator[PodUse]:
    """Each pod that holds GPUs on a machine of the fleet, in the order of nodes."""
    for node in observation.fleet.nodes:
        known = node.kubernetes
        for pod in () if known is None else known.pods:
            if pod.system or not (pod.gpus > 0 or (pod.static and holds_gpus(pod, node))):
                continue
            state, held = use_of(node, pod, observation.now)
            yield PodUse(pod=pod, node=node, state=state, held_seconds=held, usd_per_hour=_cost(observation, node, pod))


def unused_pods(observation: Observation) -> tuple[PodUse, ...]:
    """The pods that are reported, the most expensive first."""
    found = [each for each in uses(observation) if each.unused]
    return tuple(sorted(found, key=lambda each: (-(each.usd_per_hour or Decimal(0)), str(each.pod))))


def use_of(node: Node, pod: Pod, now: datetime) -> tuple[State, float]:
    """What one pod does with its GPUs, and for how long."""
    verdict = node.verdict
    if verdict is None or node.activity.state is State.UNKNOWN or pod.phase is not PodPhase.RUNNING:
        return State.UNKNOWN, 0.0
    its = holding(node, pod)
    state = State.UNKNOWN if its is None else _of_all(its, node, pod)
    if its is None or state not in WITHOUT_USE:
        return state, 0.0
    age = 0.0 if pod.created_at is None else max(0.0, (now - pod.created_at).total_seconds())
    return state, min(age, *(gpu.activity.held_seconds for gpu in (*its.sure, *its.others)))


def _of_all(its: Holding, node: Node, pod: Pod) -> State:
    """Rule 1: the state with the GPUs that are busiest, where it is the same with those that are least so."""
    others = sorted(its.others, key=_rank)
    least = _together([*its.sure, *others[: its.least]], node, pod)
    most = _together([*its.sure, *others[len(others) - its.most :]], node, pod)
    return most if least is most or (least in WITHOUT_USE and most in WITHOUT_USE) else State.UNKNOWN


def _rank(gpu: GpuVerdict) -> int:
    """Its place among states: those that decide about a pod come last."""
    state = gpu.activity.state
    return _RANKS[State.BUSY if state in _BUSY else state]


def _together(gpus: list[GpuVerdict], node: Node, pod: Pod) -> State:
    """Rules 2 and 3."""
    states = {gpu.activity.state for gpu in gpus}
    if State.UNKNOWN in states or not states:
        return State.UNKNOWN
    if states & _BUSY:
        alone = any(gpu.activity.state in _BUSY and works_alone(node, pod, gpu) for gpu in gpus)
        return State.BUSY if alone else State.UNKNOWN
    return next(each for each in WITHOUT_USE if each in states)


def _cost(observation: Observation, node: Node, pod: Pod) -> Decimal | None:
    """Rule 6; None without a price, or where it is not known how many GPUs the node has."""
    price = observation.price(node)
    shared = 0.0 if node.kubernetes is None else node.kubernetes.shared_gpus(node.gpu_count)
    if price is None or not shared:
        return None
    its = pod.gpus or float(sum(str(pod) in gpu.pods for gpu in (() if node.verdict is None else node.verdict.gpus)))
    return price.usd_per_hour * (Decimal(str(its)) / Decimal(str(shared)))
