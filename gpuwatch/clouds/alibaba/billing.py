"""PURE: how an instance of Alibaba Cloud is paid for, and whether a stop ends that.

The economical mode (StopCharging) is for pay-as-you-go and spot instances in a VPC without local disks. Where it does
not apply, ECS refuses nothing: it stops the machine and goes on billing it.
"""

from collections.abc import Mapping
from typing import Any

from gpuwatch.model.fleet import CapacityType

STOP_CHARGING = "StopCharging"
_SPOT = ("SpotWithPriceLimit", "SpotAsPriceGo")


def capacity_type(described: Mapping[str, Any]) -> CapacityType:
    """How it was bought. What is on a dedicated host or in a reservation is paid for whether it runs or not."""
    if _member(described, "DedicatedHostAttribute", "DedicatedHostId"):
        return CapacityType.DEDICATED_HOST
    if described.get("InstanceChargeType") == "PrePaid":
        return CapacityType.PREPAID
    if described.get("SpotStrategy") in _SPOT:
        return CapacityType.SPOT
    if _member(described, "EcsCapacityReservationAttr", "CapacityReservationId"):
        return CapacityType.RESERVED
    return CapacityType.ON_DEMAND


def still_billed(described: Mapping[str, Any]) -> str | None:
    """Why a stop would not end what it costs per hour, or, of a stopped machine, did not; None: it does."""
    kind = capacity_type(described)
    if kind is CapacityType.PREPAID:
        return f"it is prepaid until {described.get('ExpiredTime') or 'the end of its term'}"
    if kind is CapacityType.DEDICATED_HOST:
        return f"it is on the dedicated host {_member(described, 'DedicatedHostAttribute', 'DedicatedHostId')}"
    if kind is CapacityType.RESERVED:
        name = _member(described, "EcsCapacityReservationAttr", "CapacityReservationId")
        return f"it is in the capacity reservation {name}"
    mode = described.get("StoppedMode")
    if described.get("Status") == "Stopped":
        return None if mode == STOP_CHARGING else f"it is stopped in the mode {mode or 'unknown'}, not {STOP_CHARGING}"
    if described.get("LocalStorageAmount"):
        return "it has local disks, and Alibaba Cloud goes on billing such a machine when it is stopped"
    if described.get("InstanceNetworkType") == "classic":
        return "it is in a classic network, where Alibaba Cloud goes on billing a stopped machine"
    return None


def _member(described: Mapping[str, Any], attribute: str, name: str) -> str:
    found = described.get(attribute)
    return str(found.get(name) or "") if isinstance(found, Mapping) else ""
