"""Which GPUs there are: who each is, what holds it, and why one gives no reading."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Literal

Vendor = Literal["nvidia", "amd"]
STAND_IN = "unidentified-"  # begins the uuid of a GPU that never gave its own


class ProcessKind(StrEnum):
    """What a process does with the GPU, as the driver lists it."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds a GPU. Memory in bytes, None where the driver does not say. Source: the v3 process lists.

    The instances are the ids of the MIG instances it runs in; None outside of MIG, and where it runs in several.
    """

    pid: int
    kind: ProcessKind
    memory_bytes: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInfo:
    """Who a GPU is: static facts, exported once on an info metric. Key by uuid; the index may change over reboots.

    `index` is None once the driver no longer lists the GPU and another one has its number.
    """

    uuid: str
    index: int | None
    name: str | None = None
    pci_bus_id: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    vbios_version: str | None = None
    serial: str | None = None
    vendor: Vendor = "nvidia"

    @property
    def key(self) -> tuple[str, str | None]:
        """The labels `uuid` and `gpu`."""
        return gpu_key(self.uuid, self.index)


def fuller(info: GpuInfo, before: GpuInfo | None) -> GpuInfo:
    """What is known of a GPU now, and what was known before where it is not; its index is as it is now."""
    if before is None or info == before:
        return info
    facts = {each.name: getattr(info, each.name) for each in fields(info)}
    missing = {name: getattr(before, name) for name, fact in facts.items() if fact is None and name != "index"}
    return replace(info, **missing)


def replaced_by(info: GpuInfo, listed: Iterable[GpuInfo]) -> bool:
    """Whether this is a stand-in, and one of these GPUs with a name of its own is in its place."""
    named = [each for each in listed if not each.uuid.startswith(STAND_IN)] if info.uuid.startswith(STAND_IN) else []
    return any(
        (info.index is not None and info.index == each.index)
        or (info.pci_bus_id is not None and info.pci_bus_id == each.pci_bus_id)
        for each in named
    )


def gpu_key(uuid: str, index: int | None) -> tuple[str, str | None]:
    """The labels `uuid` and `gpu` of a GPU's series; None is left out."""
    return uuid, None if index is None else str(index)


def gpu_name(uuid: str, index: int | None) -> str:
    """A GPU in a sentence."""
    return uuid if index is None else f"GPU {index}"


def order(uuid: str, index: int | None) -> tuple[bool, int, str]:
    """What GPUs are sorted by: their index, and those without one last."""
    return index is None, index or 0, uuid


class DownCause(StrEnum):
    """Why a GPU that should be there gives no reading."""

    LOST = "lost"
    HANG = "hang"
    DRIVER = "driver"
    ERROR = "error"
    RESET = "reset"  # it answers nothing until it is reset
    MISSING = "missing"
    RELEASED = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDown:
    """A GPU that is expected and could not be read, with the cause and the driver's own words."""

    info: GpuInfo
    at: datetime
    cause: DownCause
    detail: str
