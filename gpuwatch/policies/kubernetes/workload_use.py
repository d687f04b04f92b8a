"""PURE: what the GPU pods of a workload do together. A workload goes whole, or not at all.

Rules, all of them:

1. A workload is what stands topmost above its pods, by its uid. All of its pods in the cluster count. A static pod is
   one of its own.
2. One busy pod makes it busy. Else one of unknown use makes it unknown: one that waits for a node, or is on a
   machine that gpuwatch does not watch. A pod without GPUs does, too: what it does is not known.
3. Else it is stalled or parked if one of its pods is, and idle if each of them is, for as long as the one that began
   last.
4. A GPU shows nothing of work on the processor. A pod counts as unused for no longer than it has been quiet by itself,
   as its agent says (processors, disks, network, people at its terminals). If that is busy, the workload is; if it is
   unknown, so is what the workload does.
5. Where the agent cannot tell the pods of a machine apart, a pod counts as unused for no longer than the machine's own
   signals have been quiet, for whatever pod.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import Node
from gpuwatch.model.kubernetes import ClusterView, Pod, Target, Workload, workload_id
from gpuwatch.policies.kubernetes.pod_use import WITHOUT_USE, PodUse, uses

_Which = tuple[str, str]  # a cluster's name, and the uid of one of its workloads
_OF_A_GPU = re.compile(r"gpu[^.]*\..+|stalled")
_AT_WORK = frozenset({State.BUSY, State.UNKNOWN})
_BUSY = frozenset({State.BUSY, State.OCCUPIED})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadUse:
    """One workload that holds GPUs. `others` are its pods of unknown use; `id` names it in the ledger.

    `held_seconds` is how long it has been in its state, 0 where that is not known. `pool` is its machines', the first
    by name where there are several.
    """

    id: str
    workload: Workload
    pods: tuple[PodUse, ...]
    others: tuple[Pod, ...]
    state: State
    held_seconds: float
    pool: str
    pools: tuple[str, ...]
    usd_per_hour: Decimal | None = None

    @property
    def target(self) -> Target:
        """The object that its end is about."""
        its = self.workload
        return Target(namespace=its.namespace, kind=its.kind, name=its.name, uid=its.uid)

    @property
    def gpus(self) -> float:
        """How many GPUs its pods request."""
        return sum(each.pod.gpus for each in self.pods)

    @property
    def all_pods(self) -> tuple[Pod, ...]:
        """Each of its pods."""
        return (*(each.pod for each in self.pods), *self.others)


def workloads(observation: Observation) -> tuple[WorkloadUse, ...]:
    """Each workload with a pod that holds GPUs on a machine of the fleet, in the order of their ids."""
    view = observation.fleet.cluster
    if view is None:
        return ()
    watched: dict[_Which, list[PodUse]] = {}
    for each in uses(observation):
        if each.pod.static or not each.pod.daemon:
            home = view.home("" if each.node.kubernetes is None else each.node.kubernetes.cluster)
            watched.setdefault((home, each.pod.workload.uid), []).append(each)
    seen = {(home, each.pod.uid) for (home, _), pods in watched.items() for each in pods}
    rest: dict[_Which, list[Pod]] = {}
    for home, pod in _pods_by_home(view):
        if (home, pod.workload.uid) in watched and (home, pod.uid) not in seen:
            rest.setdefault((home, pod.workload.uid), []).append(pod)
    found = (_together(key[0], pods, rest.get(key, []), observation.now) for key, pods in watched.items())
    return tuple(sorted(found, key=lambda each: each.id))


def _pods_by_home(view: ClusterView) -> Iterator[tuple[str, Pod]]:
    """Each pod, and the name of its cluster: a copy of a cluster has the uids of the other."""
    yield from ((view.home(node.cluster), pod) for node in view.nodes for pod in node.pods)
    yield from ((part.name, pod) for part in view.each for pod in part.pending)


def quiet_for(use: PodUse, now: datetime) -> float:
    """Rules 4 and 5: for how long a pod is known to do nothing besides its GPUs."""
    work = use.work
    if work is None:
        return quiet_seconds(use.node, now)
    return work.held_seconds if work.state is State.IDLE else 0.0


def at_work(use: PodUse) -> bool:
    """Whether a pod works: on a GPU, or besides it."""
    return use.state in _BUSY or (use.work is not None and use.work.state is State.BUSY)


def in_doubt(use: PodUse) -> bool:
    """Whether it is not known what a pod does, on its GPUs or besides them."""
    return use.state is State.UNKNOWN or (use.work is not None and use.work.state is State.UNKNOWN)


def quiet_seconds(node: Node, now: datetime) -> float:
    """Rule 5: for how long each signal of the machine, other than its GPUs, is known to be quiet."""
    verdict = node.verdict
    if verdict is None:
        return 0.0
    activity = verdict.activity
    whole = 0.0 if activity.state in _AT_WORK else activity.held_seconds
    if any(each.says is State.BUSY and not _OF_A_GPU.fullmatch(each.name) for each in activity.evidence):
        return whole
    if not verdict.last_busy or verdict.tally is None:
        return whole  # an earlier version, or one that has just begun
    since = (now - verdict.tally.since).total_seconds()
    return max(whole, min([since, *_work_of_host(node)]))


def _work_of_host(node: Node) -> Iterator[float]:
    """How long ago each signal that is of no GPU kept the machine from being idle."""
    for last in () if node.verdict is None else node.verdict.last_busy:
        if last.evidence.says in _AT_WORK and not _OF_A_GPU.fullmatch(last.evidence.name):
            yield last.ago_seconds


def _together(cluster: str, pods: list[PodUse], others: list[Pod], now: datetime) -> WorkloadUse:
    """Rules 2 to 4."""
    pods.sort(key=lambda each: (str(each.pod), each.pod.uid))
    first = pods[0].pod.workload
    pools = tuple(sorted({each.node.pool for each in pods}))
    costs = [each.usd_per_hour for each in pods]
    state = _state(pods, others)
    held = 0.0
    if state in WITHOUT_USE:
        held = min(min(each.held_seconds, quiet_for(each, now)) for each in pods)
    return WorkloadUse(
        id=workload_id(cluster, first),
        workload=first,
        pods=tuple(pods),
        others=tuple(sorted(others, key=str)),
        state=state,
        held_seconds=max(0.0, held),
        pool=pools[0],
        pools=pools,
        usd_per_hour=None if None in costs else sum((usd for usd in costs if usd is not None), Decimal(0)),
    )


def _state(pods: list[PodUse], others: list[Pod]) -> State:
    """Of all pods together."""
    if any(map(at_work, pods)):
        return State.BUSY
    if others or any(map(in_doubt, pods)):
        return State.UNKNOWN
    states = {each.state for each in pods}
    return next(each for each in WITHOUT_USE if each in states)
