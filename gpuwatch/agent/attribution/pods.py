"""PURE: which pod a process belongs to. The kubelet knows pods and devices, /proc knows pods' uids and processes.

The kubelet's own folders show the name of an uid for certain. Where they cannot be read, the two meet in the GPUs: the
pod of an uid is the one that was given all GPUs, or parts of GPUs, that this uid's processes hold. Where that fits
several pods (time slicing), or one pod fits several uids (a privileged pod holds what it was not given), nobody is
named: a missing name is better than a wrong one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from gpuwatch.agent.attribution.devices import Node, Part
from gpuwatch.agent.attribution.pod_resources import Allocation

_T = TypeVar("_T")


class PodName(NamedTuple):
    """A pod by namespace and name; unique on a node at one time, not over time."""

    namespace: str
    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A container as Kubernetes names it; without a container if the pod has several on these GPUs."""

    namespace: str
    pod: str
    container: str | None

    @property
    def of(self) -> PodName:
        """Return the pod of the container."""
        return PodName(self.namespace, self.pod)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One device that a container was given: one of these parts."""

    workload: Workload
    parts: frozenset[Part]


_Given = Mapping[
    str, frozenset[tuple[Workload, Part]]
]  # by the GPU's uuid: workloads with the parts that they may have


def granted_gpus(allocations: Iterable[Allocation], node: Node) -> tuple[Grant, ...]:
    """The GPUs, and parts of them, among the kubelet's devices."""
    return tuple(
        Grant(
            workload=Workload(namespace=allocation.namespace, pod=allocation.pod, container=allocation.container),
            parts=parts,
        )
        for allocation in allocations
        if (parts := node.parts(allocation.device))
    )


def holders(grants: Iterable[Grant]) -> dict[str, tuple[Workload, ...]]:
    """The containers that each GPU, or a part of it, was given to for certain, by the GPU's uuid."""
    found: dict[str, set[Workload]] = {}
    for grant in grants:
        gpu, *others = {part.gpu for part in grant.parts}
        if not others:
            found.setdefault(gpu, set()).add(grant.workload)
    return {gpu: tuple(sorted(workloads, key=_order)) for gpu, workloads in found.items()}


def users_of_gpus(
    uses: Mapping[int, frozenset[Part]], workloads: Mapping[int, Workload]
) -> dict[str, tuple[Workload, ...]]:
    """The workloads with a process on each GPU, by the GPU's uuid; `workloads` are those of the pids."""
    found: dict[str, set[Workload]] = {}
    for pid, workload in workloads.items():
        for part in uses[pid]:
            found.setdefault(part.gpu, set()).add(workload)
    return {gpu: tuple(sorted(each, key=_order)) for gpu, each in found.items()}


def name_pods(
    uses: Mapping[int, frozenset[Part]],
    pod_uids: Mapping[int, str],
    grants: Iterable[Grant],
    known: Mapping[str, PodName],
) -> dict[int, Workload]:
    """The workload of each pid, where it is certain.

    `uses`: the parts of GPUs that a pid holds; `pod_uids`: the uid of a pid's pod; `known`: names by uid.
    """
    given = _by_gpu(grants)
    held: dict[str, frozenset[Part]] = {}
    for pid, uid in pod_uids.items():
        if uid not in known:
            held[uid] = held.get(uid, frozenset()) | uses[pid]
    fitting = {
        uid: _common({each.of for each in _workloads_with(part, given)} for part in parts)
        for uid, parts in held.items()
    }
    fitted = {uid: next(iter(pods)) for uid, pods in fitting.items() if len(pods) == 1}
    claims = Counter((*fitted.values(), *known.values()))
    names = {**known, **{uid: pod for uid, pod in fitted.items() if claims[pod] == 1}}
    return {
        pid: Workload(
            namespace=names[uid].namespace, pod=names[uid].pod, container=_container(names[uid], uses[pid], given)
        )
        for pid, uid in pod_uids.items()
        if uid in names
    }


def _by_gpu(grants: Iterable[Grant]) -> _Given:
    found: dict[str, set[tuple[Workload, Part]]] = {}
    for grant in grants:
        for part in grant.parts:
            found.setdefault(part.gpu, set()).add((grant.workload, part))
    return {gpu: frozenset(pairs) for gpu, pairs in found.items()}


def _container(pod: PodName, parts: frozenset[Part], given: _Given) -> str | None:
    """The one container of the pod that was given all these parts."""
    names = _common({each.container for each in _workloads_with(part, given) if each.of == pod} for part in parts)
    return next(iter(names)) if len(names) == 1 else None


def _workloads_with(part: Part, given: _Given) -> list[Workload]:
    """The workloads that have this part, or may have it."""
    return [workload for workload, other in given.get(part.gpu, ()) if part.may_be(other)]


def _common(sets: Iterable[set[_T]]) -> set[_T]:
    """The intersection of the sets."""
    first, *others = sets
    return first.intersection(*others)


def _order(workload: Workload) -> tuple[str, str, str]:
    return workload.namespace, workload.pod, workload.container or ""
