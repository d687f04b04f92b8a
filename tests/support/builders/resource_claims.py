"""Claims, classes and slices of devices (resource.k8s.io) as drivers and the scheduler leave them."""

from collections.abc import Iterable, Sequence
from typing import Any

Object = dict[str, Any]


def claim_object(
    name: str,
    *requests: Object,
    given: Sequence[Object] | None = None,
    users: Iterable[str] = (),
    namespace: str = "team",
    version: str = "v1",
) -> Object:
    """A claim with these requests; `given` are its devices, `users` the uids of its pods."""
    made = [{**each, "name": each.get("name", f"r{number}")} for number, each in enumerate(requests)]
    claim: Object = {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": made}},
    }
    if given is not None:
        results = [{"request": made[0]["name"], **each} for each in given]
        consumers = [{"resource": "pods", "name": uid, "uid": uid} for uid in users]
        claim["status"] = {"allocation": {"devices": {"results": results}}, "reservedFor": consumers}
    return claim


def exactly(kind: str, count: int | None = None, *, mode: str | None = None, admin: bool = False) -> Object:
    """A request of so many devices of a class."""
    asked: Object = {"deviceClassName": kind, "allocationMode": mode or "ExactCount"}
    if count is not None:
        asked["count"] = count
    return {"exactly": {**asked, **({"adminAccess": True} if admin else {})}}


def first_available(*alternatives: tuple[str, int]) -> Object:
    """A request of the first of these that there is."""
    found = [
        {"name": f"a{number}", "deviceClassName": kind, "allocationMode": "ExactCount", "count": count}
        for number, (kind, count) in enumerate(alternatives)
    ]
    return {"firstAvailable": found}


def allocated(driver: str, *numbers: int, pool: str = "gpu-1", admin: bool = False) -> list[Object]:
    """Devices that were allocated."""
    more: Object = {"adminAccess": True} if admin else {}
    return [{"driver": driver, "pool": pool, "device": f"gpu-{number}", **more} for number in numbers]


def class_object(name: str, expression: str, *, extended: str | None = None) -> Object:
    """A class of devices."""
    spec: Object = {"selectors": [{"cel": {"expression": expression}}]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {**spec, **({"extendedResourceName": extended} if extended else {})},
    }


def gpu_devices(count: int, node: str = "gpu-1") -> list[Object]:
    """Whole GPUs as NVIDIA's driver publishes them."""
    return [
        {
            "name": f"gpu-{number}",
            "attributes": {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{node}-{number}"}},
        }
        for number in range(count)
    ]


def mig_devices(count: int) -> list[Object]:
    """Parts of one GPU."""
    return [
        {
            "name": f"mig-{number}",
            "attributes": {
                "type": {"string": "mig"},
                "profile": {"string": "1g.10gb"},
                "uuid": {"string": f"MIG-{number}"},
                "parentUUID": {"string": "GPU-parent"},
            },
        }
        for number in range(count)
    ]


def slice_object(node: str, driver: str, devices: Sequence[Object], *, generation: int = 1) -> Object:
    """All devices of a driver on a node."""
    name = f"{node}-{driver}-{generation}"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": list(devices),
        },
    }
