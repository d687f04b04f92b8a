"""PURE: which pod a process belongs to. The kubelet knows pods and devices, /proc knows pods' uids and processes.

They meet in the GPUs: the pod of an uid is the one that was given all GPUs that this uid's processes hold. Where that
fits several pods (time slicing), or one pod fits several uids (a privileged pod holds what it was not given), nobody
is named: a missing name is better than a wrong one.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from gpuwatch.agent.attribution.pod_resources import Allocation
from gpuwatch.model.gpu import GpuInfo, GpuReading

_T = TypeVar("_T")

_OLD_MIG = re.compile(r"MIG-(GPU-[0-9a-f-]+)/[0-9]+/[0-9]+")  # drivers before 470
_GKE = re.compile(r"nvidia([0-9]+)(?:/(?:gi|vgpu)[0-9]+)*")  # GKE's own device plugin, with or without MIG, sharing


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A container as Kubernetes names it; no container where the pod has several on the GPUs in question."""

    namespace: str
    pod: str
    container: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The GPUs of this node by all their names."""

    by_device: Mapping[str, str]

    @classmethod
    def of(cls, gpus: Iterable[GpuInfo], readings: Iterable[GpuReading]) -> "Node":
        """From the last cycle."""
        names = {name: info.uuid for info in gpus for name in (info.uuid, f"nvidia{info.index}")}
        for reading in readings:
            for instance in reading.mig_instances or ():
                names |= {device.uuid: reading.info.uuid for device in instance.devices}
        return cls(by_device=names)

    def gpu(self, device: str) -> str | None:
        """The uuid of the GPU that a device is or is part of; `::n` marks one of several shares of one device."""
        name = device.partition("::")[0]
        parent = _OLD_MIG.fullmatch(name) or _GKE.fullmatch(name)
        if parent is not None:
            name = parent[1] if name.startswith("MIG") else f"nvidia{parent[1]}"
        return self.by_device.get(name)


def holders(allocations: Iterable[Allocation], node: Node) -> dict[str, tuple[Workload, ...]]:
    """The containers that each GPU, or a part of it, was given to, by the GPU's uuid."""
    found: dict[str, set[Workload]] = {}
    for allocation in allocations:
        gpu = node.gpu(allocation.device)
        if gpu is not None:
            workload = Workload(namespace=allocation.namespace, pod=allocation.pod, container=allocation.container)
            found.setdefault(gpu, set()).add(workload)
    return {gpu: tuple(sorted(workloads, key=_order)) for gpu, workloads in found.items()}


def name_pods(
    uses: Mapping[int, frozenset[str]], pod_uids: Mapping[int, str], held: Mapping[str, tuple[Workload, ...]]
) -> dict[int, Workload]:
    """The workload of each pid, where it is certain. `uses`: the GPUs of a pid; `pod_uids`: the uid of a pid's pod."""
    gpus: dict[str, frozenset[str]] = {}
    for pid, uid in pod_uids.items():
        gpus[uid] = gpus.get(uid, frozenset()) | uses[pid]
    fitting = {
        uid: _common({(w.namespace, w.pod) for w in held.get(gpu, ())} for gpu in of) for uid, of in gpus.items()
    }
    certain = {uid: next(iter(pods)) for uid, pods in fitting.items() if len(pods) == 1}
    claims = Counter(certain.values())
    return {
        pid: Workload(
            namespace=certain[uid][0], pod=certain[uid][1], container=_container(certain[uid], uses[pid], held)
        )
        for pid, uid in pod_uids.items()
        if uid in certain and claims[certain[uid]] == 1
    }


def _container(pod: tuple[str, str], gpus: frozenset[str], held: Mapping[str, tuple[Workload, ...]]) -> str | None:
    """The one container of the pod that was given all these GPUs."""
    names = _common({w.container for w in held[gpu] if (w.namespace, w.pod) == pod} for gpu in gpus)
    return next(iter(names)) if len(names) == 1 else None


def _common(sets: Iterable[set[_T]]) -> set[_T]:
    """What is in all of them."""
    first, *others = sets
    return first.intersection(*others)


def _order(workload: Workload) -> tuple[str, str, str]:
    return workload.namespace, workload.pod, workload.container or ""
