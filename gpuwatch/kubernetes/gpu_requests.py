"""PURE: how many GPUs a pod asks for, and a node has.

A request for GPUs is counted as the scheduler does: containers and sidecars together, or one init container that asks
for more. A pod that requests nothing but a vendor's parts of GPUs (memory, cores, a board by its name) counts as one:
it holds some. Claims of Dynamic Resource Allocation are counted by their devices (`gpuwatch.kubernetes.devices`).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from gpuwatch.kubernetes.objects import Container, PodSpec
from gpuwatch.model.bounds import MOST_AMOUNT

_SLICES, _FEW_SLICES = 7, 4  # of a GPU that can be divided; the few are of A30 and RTX PRO 6000
# NVIDIA's MIG User Guide. No GPU of seven slices has these names; a 1g.24gb may be of either, and counts as a seventh.
_FOURTHS = frozenset({"1g.6gb", "2g.12gb", "4g.24gb", "2g.48gb", "4g.96gb"})
_MIG = "nvidia.com/mig-"
# Resources that are GPUs or parts of them under names which no setting gives, such as aliyun.com/gpu-mem,
# tencent.com/vcuda-core, gpu.intel.com/i915, and KubeVirt's nvidia.com/GA102GL_A10.
_PARTS = ("*gpu*", "*vcuda*", "nvidia.com/[A-Z]*")
_SHARED = ("*.shared", "*/mig-*")  # several of these may be one GPU
_QUALIFIERS = ("*/gpumem*", "*/gpucores*")  # HAMi: how much of each device that is asked for next to them
_SUFFIXES = {"m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_QUANTITY = re.compile(r"((?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][+-]?[0-9]{1,3})?)(m|k|M|G|)", re.ASCII)
_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
# Labels of nodes whose resources are parts of GPUs, with the values that say that they are not.
_SHARING_LABELS: Mapping[str, frozenset[str]] = {
    "nvidia.com/gpu.replicas": frozenset({"0", "1"}),
    "nvidia.com/gpu.sharing-strategy": frozenset({"none", ""}),
    "cloud.google.com/gke-gpu-sharing-strategy": frozenset(),
    "cloud.google.com/gke-gpu-partition-size": frozenset(),
}
_PRODUCT, _PRODUCTS_OF_PARTS = "nvidia.com/gpu.product", ("*-SHARED", "*-MIG-*")


def requested_gpus(spec: PodSpec, gpu_resources: Sequence[str]) -> float:
    """How many GPUs a pod's containers hold, or want."""
    found = _together(spec, lambda each: _gpus_of_container(each, gpu_resources))
    return found if found or not any(map(_holds_part, _containers(spec))) else 1.0


def requested_devices(spec: PodSpec, gpu_resources: Sequence[str]) -> int | None:
    """How many devices a pod's containers were given, each of one GPU; None: nobody can tell."""
    found = _together(spec, lambda each: _devices_of_container(each, gpu_resources))
    known = (*gpu_resources, *(_QUALIFIERS if found else ()))
    if any(_holds_part(each, known) for each in _containers(spec)):
        return None
    return int(found) if found.is_integer() else None


def uses_any_gpu(spec: PodSpec) -> bool:
    """Whether a pod may use GPUs of its node that it was not given."""
    containers = [*_containers(spec), *(spec.ephemeral_containers or ())]
    return any(
        bool(each.security_context is not None and each.security_context.privileged)
        or any(env.name == _VISIBLE for env in each.env or ())
        for each in containers
    )


def offered_gpus(offered: Mapping[str, str], gpu_resources: Sequence[str]) -> float | None:
    """How many GPUs a node offers; None: none of its resources are GPUs."""
    found = [gpus for key, each in offered.items() if (gpus := _gpus(key, each, gpu_resources)) is not None]
    return sum(found) if found else None


def whole_gpus(capacity: Mapping[str, str], labels: Mapping[str, str], gpu_resources: Sequence[str]) -> int | None:
    """How many GPUs a node has of which each is given to one pod alone; None: they are shared, or nobody can tell."""
    if any(key in labels and labels[key] not in plain for key, plain in _SHARING_LABELS.items()):
        return None
    if any(fnmatchcase(labels.get(_PRODUCT, ""), each) for each in _PRODUCTS_OF_PARTS):
        return None
    offered = {key: _amount(value) for key, value in capacity.items() if _is_gpu(key, gpu_resources) or _is_part(key)}
    kinds = [key for key, amount in offered.items() if amount > 0]
    if len(kinds) != 1 or not _is_gpu(kinds[0], gpu_resources) or any(fnmatchcase(kinds[0], each) for each in _SHARED):
        return None
    return int(offered[kinds[0]]) if offered[kinds[0]].is_integer() else None


def mig_share(profile: str) -> float | None:
    """The part of a GPU that a MIG profile such as 1g.10gb is; None: it is no profile."""
    found = re.match(r"(\d)g(\.\d+gb)?", profile)
    if found is None:
        return None
    return int(found[1]) / (_FEW_SLICES if found[0] in _FOURTHS or "gfx" in profile else _SLICES)


def _containers(spec: PodSpec) -> list[Container]:
    return [*(spec.containers or ()), *(spec.init_containers or ())]


def _together(spec: PodSpec, amount: Callable[[Container], float]) -> float:
    """Containers and sidecars together, or one init container that asks for more."""
    begins = spec.init_containers or ()
    sidecars = [each for each in begins if each.restart_policy == "Always"]
    together = _sum(map(amount, [*(spec.containers or ()), *sidecars]))
    return max([together, *(amount(each) for each in begins if each.restart_policy != "Always")])


def _sum(amounts: Iterable[float]) -> float:
    return sum(amounts, start=0.0)


def _container_requests(container: Container) -> Mapping[str, str]:
    """What a container asks for. The API server writes limits of GPUs into the requests, and refuses other ones."""
    resources = container.resources
    return {} if resources is None else {**(resources.limits or {}), **(resources.requests or {})}


def _gpus_of_container(container: Container, gpu_resources: Sequence[str]) -> float:
    """Return how many GPUs one container holds."""
    return _sum(_gpus(key, value, gpu_resources) or 0.0 for key, value in _container_requests(container).items())


def _devices_of_container(container: Container, gpu_resources: Sequence[str]) -> float:
    """Return how many devices one container holds."""
    requests = _container_requests(container).items()
    return _sum(_amount(value) for key, value in requests if _is_gpu(key, gpu_resources))


def _holds_part(container: Container, gpu_resources: Sequence[str] = ()) -> bool:
    """Whether a container asks for what is a GPU, or a part of one, under a name that the settings lack."""
    return any(
        _is_part(key) and _amount(value) > 0 and not _is_gpu(key, gpu_resources)
        for key, value in _container_requests(container).items()
    )


def _is_part(key: str) -> bool:
    return "/" in key and any(fnmatchcase(key, each) for each in _PARTS)


def _is_gpu(key: str, gpu_resources: Sequence[str]) -> bool:
    return "/" in key and any(fnmatchcase(key, each) for each in gpu_resources)


def _amount(value: str) -> float:
    """An amount that cannot be read holds something."""
    found = _QUANTITY.fullmatch(value)
    return min(float(found[1]) * _SUFFIXES[found[2]], MOST_AMOUNT) if found else 1.0


def _gpus(key: str, value: str, gpu_resources: Sequence[str]) -> float | None:
    """How many GPUs an amount of a resource is; None: it is none of GPUs."""
    if not _is_gpu(key, gpu_resources):
        return None
    share = mig_share(key.removeprefix(_MIG)) if key.startswith(_MIG) else None
    return _amount(value) * (1.0 if share is None else share)
