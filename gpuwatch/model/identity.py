"""Which GPUs there are: who each is, what holds it, and why one gives no reading."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class ProcessKind(StrEnum):
    """What a process does with the GPU, as the driver lists it."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds a GPU. Memory in bytes, None where the driver does not say. Source: the v3 process lists."""

    pid: int
    kind: ProcessKind
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInfo:
    """Who a GPU is: static facts, exported once on an info metric. Key by uuid; the index may change over reboots."""

    uuid: str
    index: int
    name: str | None = None
    pci_bus_id: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    vbios_version: str | None = None
    serial: str | None = None


class DownCause(StrEnum):
    """Why a GPU that should be there gives no reading."""

    LOST = "lost"
    HANG = "hang"
    DRIVER = "driver"
    ERROR = "error"
    MISSING = "missing"
    RELEASED = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDown:
    """A GPU that is expected and could not be read, with the cause and the driver's own words."""

    info: GpuInfo
    at: datetime
    cause: DownCause
    detail: str
