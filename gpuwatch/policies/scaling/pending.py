"""PURE: how many nodes a pool should have for the pods that wait for GPUs: the signal `kubernetes_pending`.

Rules, all of them:

1. A pod waits once the scheduler has found no node for it (`Pod.unschedulable`), and it fits a kind of node that the
   pool has (`policies.kubernetes.pending_pods`). One with scheduling gates does not.
2. The largest first, each is put where it could go: on free GPUs of nodes that hold pods, then of nodes that hold
   none, then of nodes on their way. For the others come new nodes, each with as many GPUs as the pool's largest node.
3. Where new ones are needed, the pool should have all that it has and these. Otherwise it should have every node that
   holds GPU pods, of which nobody knows that it holds none, or that pods were put on. The others are not wanted;
   whether they go is the idle policy's to say.
4. A stopped node that its cluster shows, and that the pool may start, comes before new ones, if the pod fits it; it is
   one of the first to be started (`policies.starts`). A pod that names its host is put there or nowhere.
5. Where the view of the cluster is not to be relied on, or no node of the pool is a node object, it is unknown.

So pods that wait for another reason than GPUs bring the nodes of rule 2 once, and no more nodes: what came has free
GPUs, and the pod is put there. That is advice to people.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gpuwatch.model.decision import Advice, Observation, Reason
from gpuwatch.model.fleet import Node
from gpuwatch.model.kubernetes import KubernetesNode, Pod
from gpuwatch.policies import machines
from gpuwatch.policies.kubernetes import pending_pods
from gpuwatch.policies.scaling.votes import Recommendation
from gpuwatch.policies.starts import Startable, starts

_NAMED = 2
_PARTS = 1e-6  # of a GPU, by which sums of MIG parts may differ


@dataclass(slots=True, eq=False)
class _Room:
    """A node with free GPUs. `known` None: it is on its way, or new."""

    free: float
    known: KubernetesNode | None = None
    held: bool = True  # by pods, or it is on its way
    mature: bool = False
    pods: list[Pod] = field(default_factory=list)
    asleep: Node | None = None

    def takes(self, pod: Pod) -> bool:
        """Whether the pod could go there."""
        fits = self.known is None or pending_pods.fits(pod, self.known)
        return fits and pod.gpus <= self.free + _PARTS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Where the pods would go.

    `woken` are the stopped nodes, each with its pods; `kept_off` those that the scheduler keeps off nodes with room for
    them.
    """

    waiting: tuple[Pod, ...]
    wants: int
    new: int
    size: float
    woken: tuple[tuple[Node, Sequence[Pod]], ...] = ()
    kept_off: tuple[tuple[Pod, str], ...] = ()


def judge(
    observation: Observation, pool: str, count: int, *, warm_up: float, name: str, start: Startable = "own"
) -> Recommendation:
    """The pool's size by rules 1 to 5; `count` is how many nodes it has or is getting."""
    doubt = _doubt(observation, pool)
    if doubt is not None:
        return Recommendation(wants=None, sentence=f"{name} is unknown: {doubt}")
    plan = _plan(observation, pool, count, warm_up, start)
    if not plan.waiting:
        sentence = f"{name}: no pod waits for GPUs, {plan.wants} of {count} nodes hold pods or are on their way"
        return Recommendation(wants=plan.wants, sentence=sentence)
    gpus = sum(pod.gpus for pod in plan.waiting)
    comes = [f"{plan.new} new nodes of {plan.size:g} GPUs"] if plan.new else []
    names = [node.name if node.kubernetes is None else node.kubernetes.name for node, _ in plan.woken[:_NAMED]]
    comes += [f"the stopped node{'s' * (len(plan.woken) > 1)} {', '.join(names)}"] if names else []
    comes = comes or ["nodes that are there or on their way"]
    waiting = _first_names(plan.waiting)
    said = f"{name}: {waiting} wait for {gpus:g} GPUs, which takes {' and '.join(comes)}: {count} → {plan.wants} nodes"
    return Recommendation(wants=plan.wants, sentence=said)


def advice(observation: Observation, pool: str, warm_up: float) -> Iterator[Advice]:
    """Pods that wait for another reason than GPUs, and keep a node while they do."""
    if _doubt(observation, pool) is not None:
        return
    plan = _plan(observation, pool, machines.now(observation, pool), warm_up)
    for pod, node in plan.kept_off[:_NAMED]:
        sentence = (
            f"The pod {pod} waits although {node} has GPUs free for it: {(pod.unschedulable or '').rstrip('.')}. No "
            "node is added for it; while it waits, the pool keeps one."
        )
        yield Advice(target=pool, reason=Reason(code="pending_for_another_reason", sentence=sentence))


def woken(
    observation: Observation, pool: str, warm_up: float, start: Startable, rests: "Resting"
) -> Sequence[tuple[Node, Sequence[Pod]]]:
    """The hosts of one's own that are off and that pods need, with these pods; what rests is left out."""
    if _doubt(observation, pool) is not None:
        return ()
    return _plan(observation, pool, machines.now(observation, pool), warm_up, start, rests).woken


class Resting(Protocol):
    """What is not started, and for what nothing is started (policies/wakes.py)."""

    @property
    def hosts(self) -> Collection[str]:
        """The ids of nodes."""
        ...

    @property
    def work(self) -> Collection[str]:
        """The names of pods."""
        ...


def _doubt(observation: Observation, pool: str) -> str | None:
    if observation.fleet.cluster is None:
        return "there is no cluster"
    trouble = pending_pods.trouble(observation.fleet, pool)
    if trouble is not None:
        return trouble.rstrip(".")
    if not pending_pods.is_demand_known(observation.fleet, pool):
        return "no node of the pool is in the cluster"
    return None


def _plan(
    observation: Observation,
    pool: str,
    count: int,
    warm_up: float,
    start: Startable = "own",
    rests: Resting | None = None,
) -> _Plan:
    """Rules 2 to 4."""
    waiting = [pod for pod in pending_pods.waiting(observation.fleet, pool) if pod.unschedulable is not None]
    waiting.sort(key=lambda pod: (not pending_pods.is_bound(pod), -pod.gpus, str(pod)))
    stopped = _stopped_nodes(observation, pool, start, rests) if waiting else ()
    rooms, size, closed = _rooms(observation, pool, warm_up)
    empty = sum(not room.held for room in rooms) + closed
    had, kept_off = len(rooms), []
    for pod in waiting:
        bound = pending_pods.is_bound(pod)
        there = [each for each in rooms if each.known is not None] if bound else rooms
        where = there if rests is not None and str(pod) in rests.work else [*there, *stopped]
        room = next((each for each in where if each.takes(pod) and _is_home(each, pod, observation)), None)
        if room is None and bound:
            continue
        if room is None:
            room = _Room(free=size)
            rooms.append(room)
        elif room.mature and room.known is not None:
            kept_off.append((pod, room.known.name))
        room.free -= pod.gpus
        room.pods.append(pod)
    wanted = sum(not room.held and bool(room.pods) for room in rooms)
    new, woken_ = len(rooms) - had, tuple((each.asleep, each.pods) for each in stopped if each.pods and each.asleep)
    return _Plan(
        waiting=tuple(waiting),
        wants=count + new + len(woken_) if new or woken_ else max(0, count - empty) + wanted,
        new=new,
        size=size,
        woken=woken_,
        kept_off=tuple(kept_off),
    )


def _is_home(room: _Room, pod: Pod, observation: Observation) -> bool:
    """Whether a node is of the cluster in which the pod waits; one that is on its way may be of any."""
    view = observation.fleet.cluster
    return room.known is None or view is None or pending_pods.is_of(pod, room.known, view)


def _rooms(observation: Observation, pool: str, warm_up: float) -> tuple[list[_Room], float, int]:
    """Nodes with free GPUs in the order of rule 2; how many GPUs a new one has; and how many take no pod, nor hold one.

    The latter are cordoned, or have a taint that says that something is wrong with them.
    """
    roster = observation.fleet.roster(pool)
    found: list[_Room] = []
    closed = 0
    young = len(machines.pool_machines(observation, pool).coming)
    size = max((node.kubernetes.gpus or 0.0 for node in roster.nodes if node.kubernetes is not None), default=0.0)
    out = machines.leaving(observation) | _replaced_nodes(observation, pool)
    for node in roster.nodes:
        if node.id not in roster.members or node.id in out:
            continue
        known, mature = node.kubernetes, not _is_young(node, observation, warm_up)
        if known is None or not known.ready or not known.gpus:
            young += not mature
        elif known.unschedulable or pending_pods.is_closed(known):
            closed += not known.gpu_pods
        else:
            free = known.gpus - sum(pod.gpus for pod in known.pods)
            found.append(_Room(free=free, known=known, held=bool(known.gpu_pods), mature=mature))
    found.sort(key=lambda room: not room.held)
    return [*found, *(_Room(free=size) for _ in range(young))], size, closed


def _stopped_nodes(observation: Observation, pool: str, start: Startable, rests: Resting | None) -> tuple[_Room, ...]:
    """Those that the pool may start, and that their cluster still shows; with `rests` hosts of one's own alone."""
    reason = Reason(code="", sentence="")
    found = (observation.fleet.find(step.node_id) for step in starts(observation, pool, start, reason))
    nodes = [node for node in found if node is not None and node.kubernetes is not None]
    if rests is not None:
        nodes = [node for node in nodes if node.owned and node.id not in rests.hosts]
    known = [(node, node.kubernetes) for node in nodes if node.kubernetes is not None]
    return tuple(_Room(free=each.gpus or 0.0, known=each, asleep=node) for node, each in known)


def _replaced_nodes(observation: Observation, pool: str) -> set[str]:
    """The nodes that their cloud is about to take and that the pool's size counts no more: others have come."""
    taken = machines.pool_machines(observation, pool).taken
    return {node.id for node in taken[machines.unreplaced_count(observation, pool) :]} if taken else set()


def _is_young(node: Node, observation: Observation, warm_up: float) -> bool:
    """Whether it may still be on its way into the cluster; nobody says when a host of one's own was started."""
    if node.launched_at is None:
        return not node.owned or observation.watched.get(node.id, 0.0) < warm_up
    return (observation.now - node.launched_at).total_seconds() < warm_up


def _first_names(pods: tuple[Pod, ...]) -> str:
    """The first of them by name."""
    more = len(pods) - _NAMED
    names = ", ".join(str(pod) for pod in pods[:_NAMED])
    return f"{len(pods)} pods ({names}{f' and {more} more' if more > 0 else ''})"
