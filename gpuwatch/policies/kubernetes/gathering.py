"""PURE: which idle nodes the pods that wait for GPUs can use and need. No more of a pool is kept for them.

Rules, all of them:

1. Each pod that waits is put on one node: one that it fits, that takes new pods, and that has as many GPUs free. Nodes
   that have one of its workload's pods already come first, then those that are idle the shortest.
2. A pod by itself needs its node for as long as a restart costs: the scheduler takes seconds, and what waits for longer
   waits for another reason.
3. The pods of one workload (`Pod.group`) begin together, if some of them wait. So what is there of its nodes is kept
   until the others come, for a day after the first of its pods began to wait.
4. What fits no node of the pool keeps none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuwatch.model.decision import Observation
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Node
from gpuwatch.model.kubernetes import Pod
from gpuwatch.policies.kubernetes import pending_pods

GATHER_SECONDS = 86_400.0  # the rarest GPUs come in hours; what has not come after a day is not on its way
_PARTS = 1e-6  # of a GPU, by which sums of MIG parts may differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """What a node is kept for. `gathered`: for a workload of several pods, for so long as `left_seconds`."""

    pod: Pod
    waited_seconds: float
    gathered: int = 0
    left_seconds: float = 0.0

    @property
    def sentence(self) -> str:
        """Why it is kept, as a clause."""
        waited = format_duration(self.waited_seconds)
        if not self.gathered:
            return f"the pod {self.pod} has waited for {waited}, and may run here"
        left = format_duration(self.left_seconds)
        who = f"{self.gathered} pods of {self.pod.workload}"
        return f"{who} have waited for {waited}, and it is kept for them ({left} at most)"


def needed_nodes(observation: Observation, pool: str, nodes: Sequence[Node]) -> dict[str, Needed]:
    """What each of these idle nodes is needed for, by its id; those that nothing needs are left out."""
    free = {node.id: room for node in nodes if (room := _free_gpus(node)) > 0}
    found: dict[str, Needed] = {}
    view = observation.fleet.cluster
    if not free:
        return found
    by_id = {node.id: node for node in nodes}
    # Those that have been idle the shortest are the likeliest to be needed again.
    order = sorted(free, key=lambda each: (by_id[each].activity.held_seconds, each))
    for need in _needs(observation, pool):
        own = [each for each in order if each in found and found[each].pod.group == need.pod.group is not None]
        for each in (*own, *(each for each in order if each not in own)):
            known = by_id[each].kubernetes
            if known is None or view is None or not pending_pods.is_of(need.pod, known, view):
                continue
            if need.pod.gpus <= free[each] + _PARTS and pending_pods.fits(need.pod, known):
                free[each] -= need.pod.gpus
                found.setdefault(each, need)
                break
    return found


def _free_gpus(node: Node) -> float:
    """How many GPUs of a node no pod requests; 0 where it takes no new pods."""
    known = node.kubernetes
    if known is None or known.gpus is None or not known.ready or pending_pods.is_closed(known):
        return 0.0
    return known.gpus - sum(pod.gpus for pod in known.pods)


def _needs(observation: Observation, pool: str) -> Iterator[Needed]:
    """The pods that wait, workloads first, and those that wait the longest first."""
    waiting = pending_pods.waiting(observation.fleet, pool)
    view = observation.fleet.cluster
    together = {} if view is None else view.together
    by_group: dict[str, list[Pod]] = {}
    alone: list[Needed] = []
    for pod in waiting:
        if pod.group is not None and len(together.get(pod.group, ())) > 1:
            by_group.setdefault(pod.group, []).append(pod)
        else:
            alone.append(Needed(pod=pod, waited_seconds=_waited_seconds(observation, pool, pod)))
    groups = []
    for pods in by_group.values():
        waited = max(_waited_seconds(observation, pool, pod) for pod in pods)
        if waited < GATHER_SECONDS:
            groups.append((waited, sorted(pods, key=lambda pod: (-pod.gpus, str(pod)))))
    for waited, pods in sorted(groups, key=lambda each: (-each[0], str(each[1][0]))):
        for pod in pods:
            yield Needed(pod=pod, waited_seconds=waited, gathered=len(pods), left_seconds=GATHER_SECONDS - waited)
    yield from sorted(alone, key=lambda each: (-each.waited_seconds, str(each.pod)))


def _waited_seconds(observation: Observation, pool: str, pod: Pod) -> float:
    """How long a pod has waited; where its age is not known, how long something has waited for the pool."""
    if pod.created_at is None:
        return observation.queued.get(pool, 0.0)
    return max(0.0, (observation.now - pod.created_at).total_seconds())
