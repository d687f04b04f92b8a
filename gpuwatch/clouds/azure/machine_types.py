"""What machine sizes bring. Source: the resource SKUs of a region, `capabilities` of those of virtual machines."""

import logging
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from gpuwatch.clouds.azure.places import Subscription
from gpuwatch.clouds.errors import CloudError
from gpuwatch.runtime.clock import Clock

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 3600.0  # after which a region is asked again for a size that it did not describe
_KIND = "virtualmachines"
# Sizes with slices of AMD's graphics cards, which ROCm does not support, or with FPGAs, of the page "GPU optimized
# virtual machine sizes"; the SKUs do not say whose GPUs they are.
_UNREADABLE = ("standard_nv*as_v4", "standard_ng*", "standard_np*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One machine size: its GPUs, local disks that a deallocation empties, and the family that quotas name."""

    gpu_count: int
    readable: bool  # by the agent
    local_disks: bool
    family: str


class Sizes:
    """Looked up once for each region in a process, and again at most each hour for a size that is missing."""

    def __init__(self, clock: Clock) -> None:
        """Begin without any."""
        self._clock = clock
        self._known: dict[str, dict[str, Size]] = {}  # by region
        self._asked_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def size(self, place: Subscription, region: str, name: str) -> Size | None:
        """What a size brings; None: Azure does not describe it there.

        Raises:
            CloudError: the region's sizes could not be had, and never were.

        """
        with self._lock:
            found = self._known.get(region.lower(), {}).get(name.lower())
            if found is None and self._due(region):
                self._learn(place, region)
                found = self._known[region.lower()].get(name.lower())
                if found is None:
                    log.warning("Azure does not describe the size %s in %s; it is asked again in an hour", name, region)
            return found

    def families(self, place: Subscription, region: str) -> frozenset[str]:
        """The families with GPUs, in small letters."""
        with self._lock:
            if region.lower() not in self._known:
                self._learn(place, region)
            sizes = self._known[region.lower()].values()
            return frozenset(size.family.lower() for size in sizes if size.gpu_count > 0)

    def _due(self, region: str) -> bool:
        asked_at = self._asked_at.get(region.lower())
        return asked_at is None or self._clock.monotonic() - asked_at >= _AGAIN_SECONDS

    def _learn(self, place: Subscription, region: str) -> None:
        key = region.lower()
        try:
            listed = place.everything("skus", version="skus", filter_=f"location eq '{key}'")
        except CloudError:
            if key not in self._known:
                raise
            self._asked_at[key] = self._clock.monotonic()
            return
        self._asked_at[key] = self._clock.monotonic()
        found = {str(each.get("name", "")).lower(): _size(each) for each in listed if _of_machines(each)}
        self._known[key] = {**self._known.get(key, {}), **found}


def _of_machines(sku: Mapping[str, Any]) -> bool:
    return str(sku.get("resourceType", "")).lower() == _KIND


def _size(sku: Mapping[str, Any]) -> Size:
    """A part of a GPU counts as one."""
    has = {each.get("name"): str(each.get("value", "")) for each in sku.get("capabilities") or ()}
    name = str(sku.get("name", "")).lower()
    return Size(
        gpu_count=math.ceil(_number(has.get("GPUs"))),
        readable=not any(fnmatchcase(name, pattern) for pattern in _UNREADABLE),
        local_disks=_number(has.get("MaxResourceVolumeMB")) > 0 or _number(has.get("NvmeDiskSizeInMiB")) > 0,
        family=str(sku.get("family", "")),
    )


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
