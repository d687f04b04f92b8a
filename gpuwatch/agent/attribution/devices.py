"""PURE: which GPU, or part of one, a device of the kubelet is, by all the names that such devices have.

Some names leave several to choose from: the index that NVML counts and the minor number of /dev/nvidiaN are not always
the same, and a claim's name does not show which of several MIG instances of one size it is.
"""

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.agent.attribution.pod_resources import CLAIMED
from gpuwatch.model.gpu import GpuInfo, GpuReading

_OLD_MIG = re.compile(r"MIG-(GPU-[0-9a-f-]+)/([0-9]+)/([0-9]+)")  # drivers before 470
_GKE = re.compile(r"nvidia([0-9]+)(?:/gi([0-9]+))?(?:/vgpu[0-9]+)?")  # GKE's own device plugin, by minor number
# NVIDIA's DRA driver, by index or by minor number as its version has it; of a MIG device the profile, its id and where
# it is placed, in older versions without the profile.
_CLAIM = re.compile(
    re.escape(CLAIMED) + r"gpu-([0-9]+)(?:-mig-(?:([0-9a-z-]*[a-z][0-9a-z-]*)-[0-9]+-[0-9]+|[0-9]+(?:-[0-9]+)*))?"
)
_MINOR = re.compile(rb"^Device Minor:\s*([0-9]{1,6})\s*$", re.MULTILINE)
_MOST_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A GPU by its uuid, or what MIG has split off it; an instance that is None may be any."""

    gpu: str
    gpu_instance: int | None = None
    compute_instance: int | None = None

    def may_be(self, other: "Part") -> bool:
        """Whether the two may be the same, or one a part of the other."""
        return (
            self.gpu == other.gpu
            and _agree(self.gpu_instance, other.gpu_instance)
            and _agree(self.compute_instance, other.compute_instance)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The GPUs of this node by all their names."""

    by_uuid: Mapping[str, Part]
    by_index: Mapping[int, str]
    by_minor: Mapping[int, str]
    unnumbered: frozenset[str]  # GPUs without a known minor number
    by_profile: Mapping[tuple[str, str], frozenset[Part]]  # MIG devices by GPU and size, as a claim's name has it

    @classmethod
    def from_cycle(cls, gpus: Iterable[GpuInfo], readings: Iterable[GpuReading], minors: Mapping[str, int]) -> "Node":
        """From the last cycle; the first GPU has its number and place, should a later one that is lost still claim it.

        `minors`: the numbers of /dev/nvidiaN by PCI address, as `address` has it.
        """
        infos = tuple(gpus)[::-1]
        by_uuid = {info.uuid: Part(gpu=info.uuid) for info in infos}
        sizes: dict[tuple[str, str], frozenset[Part]] = {}
        for reading in readings:
            for instance in reading.mig_instances or ():
                for device in instance.devices:
                    part = Part(
                        gpu=reading.info.uuid, gpu_instance=instance.id, compute_instance=device.compute_instance
                    )
                    by_uuid[device.uuid] = part
                    size = (reading.info.uuid, _as_claimed(device.profile or ""))
                    sizes[size] = sizes.get(size, frozenset()) | {part}
        places = {info.uuid: address(info.pci_bus_id or "") for info in infos}
        return cls(
            by_uuid=by_uuid,
            by_index={info.index: info.uuid for info in infos if info.index is not None},
            by_minor={minors[place]: uuid for uuid, place in places.items() if place in minors},
            unnumbered=frozenset(uuid for uuid, place in places.items() if place not in minors),
            by_profile=sizes,
        )

    def parts(self, device: str) -> frozenset[Part]:
        """All parts that the device may be, empty if it is not a GPU of this node; `::n` is one of several shares."""
        name = device.partition("::")[0]
        if claim := _CLAIM.fullmatch(name):
            number = int(claim[1])
            gpus = self._by_minor(number) | ({self.by_index[number]} if number in self.by_index else set())
            return frozenset().union(*(self._parts_of_claim(gpu, claim[2]) for gpu in gpus))
        if gke := _GKE.fullmatch(name):
            instance = int(gke[2]) if gke[2] else None
            return frozenset(Part(gpu=gpu, gpu_instance=instance) for gpu in self._by_minor(int(gke[1])))
        if old := _OLD_MIG.fullmatch(name):
            part = Part(gpu=old[1], gpu_instance=int(old[2]), compute_instance=int(old[3]))
            return frozenset({part} if part.gpu in self.by_uuid else ())
        known = self.by_uuid.get(name.removeprefix(CLAIMED))
        return frozenset() if known is None else frozenset({known})

    def _by_minor(self, number: int) -> frozenset[str]:
        """The GPU with that number; without one, any GPU with an unknown number."""
        return frozenset({self.by_minor[number]} if number in self.by_minor else self.unnumbered)

    def _parts_of_claim(self, gpu: str, profile: str | None) -> frozenset[Part]:
        """The GPU; of its MIG devices those of the size claimed."""
        return self.by_profile.get((gpu, profile or ""), frozenset({Part(gpu=gpu)}))


def is_numbered(device: str) -> bool:
    """Whether the minor numbers are needed to find out which GPU that is."""
    return bool(_GKE.match(device) or _CLAIM.match(device))


def address(bus_id: str) -> str:
    """One form for a PCI address, which NVML writes with a domain of eight digits and the kernel with four."""
    domain, _, place = bus_id.partition(":")
    return f"{domain.lstrip('0')}:{place}".lower()


def _agree(one: int | None, other: int | None) -> bool:
    return one is None or other is None or one == other


def _as_claimed(profile: str) -> str:
    """A MIG profile such as 1g.10gb+me as the DRA driver writes it: 1g10gb-me."""
    return re.sub(r"[^0-9a-z]", "-", profile.lower().replace(".", ""))


def device_minors(proc: Path) -> dict[str, int]:
    """The minor numbers by PCI address, from driver/nvidia/gpus/ADDRESS/information; without unreadable ones."""
    found: dict[str, int] = {}
    for file in (proc / "driver/nvidia/gpus").glob("*/information"):
        with contextlib.suppress(OSError), file.open("rb", buffering=0) as information:
            if minor := _MINOR.search(information.read(_MOST_BYTES)):
                found[address(file.parent.name)] = int(minor[1])
    return found
