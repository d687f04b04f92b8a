"""What machine types bring. Each is looked up once; one that is missing is asked for again, later and later."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from gpuwatch.clouds import CloudError, NotFoundError
from gpuwatch.clouds.gcp.calls import GET_TYPE, LIST_TYPES
from gpuwatch.clouds.gcp.client import Client, Json
from gpuwatch.runtime.clock import Clock

log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 60.0, 3600.0
_GPU = "nvidia"  # how the names of accelerators that are GPUs begin; the others are TPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineType:
    """What a type brings by itself (a2, a3, g2, …). Source: machineTypes, accelerators and bundledLocalSsds."""

    gpu_count: int
    local_disks: bool


class MachineTypes:
    """Those that machines have, by name: a name means the same in every zone."""

    def __init__(self, clock: Clock) -> None:
        """Begin without any."""
        self._clock = clock
        self._known: dict[str, MachineType] = {}
        self._missing: dict[str, tuple[float, float]] = {}  # when to ask again, and the wait after that

    def get(self, client: Client, zone: str, name: str) -> MachineType | None:
        """One type as a zone has it; None: Compute Engine does not describe it.

        Raises:
            CloudError: no answer, and it was never known.

        """
        now = self._clock.monotonic()
        if name in self._known:
            return self._known[name]
        if name in self._missing and self._missing[name][0] > now:
            return None
        try:
            self._known[name] = _type_of(client.read(GET_TYPE, zone=zone, type=name))
        except NotFoundError:
            self._note_missing(name, now)
            return None
        if self._missing.pop(name, None) is not None:
            log.warning("Compute Engine describes the machine type %s now", name)
        return self._known[name]

    def _note_missing(self, name: str, now: float) -> None:
        wait = self._missing[name][1] if name in self._missing else _FIRST_RETRY_SECONDS
        if name not in self._missing:
            log.warning(
                "Compute Engine does not describe the machine type %s: its machines are left out, or left alone where "
                "they carry the fleet's label; it is asked again",
                name,
            )
        self._missing[name] = (now + wait, min(2 * wait, _LAST_RETRY_SECONDS))


def zones_with(client: Client, region: str, name: str) -> list[str]:
    """The region's zones that offer a type, in order. Source: machineTypes.aggregatedList.

    Raises:
        CloudError: no answer.

    """
    found = client.scopes(LIST_TYPES, query={"filter": f'name = "{name}"'})
    zones = [
        scope.removeprefix("zones/") for scope, types in found.items() if not isinstance(types, CloudError) and types
    ]
    return sorted(zone for zone in zones if region_of(zone) == region)


def gpus_among(accelerators: Iterable[Json]) -> int:
    """How many GPUs an instance's guestAccelerators, or a type's accelerators, are."""
    return sum(
        int(each.get("acceleratorCount", each.get("guestAcceleratorCount", 0)))
        for each in accelerators
        if str(each.get("acceleratorType") or each.get("guestAcceleratorType")).rpartition("/")[2].startswith(_GPU)
    )


def region_of(zone: str) -> str:
    """us-central1 of us-central1-a."""
    return zone.rpartition("-")[0]


def _type_of(described: Json) -> MachineType:
    ssds = described.get("bundledLocalSsds") or {}
    return MachineType(
        gpu_count=gpus_among(described.get("accelerators", ())), local_disks=bool(ssds.get("partitionCount"))
    )
