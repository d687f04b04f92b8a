"""How many GPUs a machine type has. It is looked up once in a process; that it is not described, again and again."""

import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass

from gpuwatch.clouds import CloudError
from gpuwatch.clouds.tencent.errors import asking
from gpuwatch.clouds.tencent.places import Place
from gpuwatch.runtime.clock import Clock

log = logging.getLogger(__name__)

_CALL = "DescribeInstanceTypeConfigs"
# A type that is not described is asked for again after this long, twice as long each time.
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 60.0, 3600.0
_OTHER_MAKERS = ("AMD", "ASCEND", "ENFLAME", "ZIXIAO", "INTEL", "XPU")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineType:
    """What a machine type brings. Source: DescribeInstanceTypeConfigs, GpuCount and GpuType."""

    gpu_count: int
    nvidia: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Missing:
    again_at: float  # of the monotonic clock
    wait_seconds: float


class MachineTypes:
    """The types that were looked up so far."""

    def __init__(self, clock: Clock) -> None:
        """None yet."""
        self._clock = clock
        self._types: dict[str, MachineType] = {}
        self._missing: dict[str, _Missing] = {}

    def gpus(self, name: str) -> int | None:
        """How many GPUs it has; None: not known."""
        return self._types[name].gpu_count if name in self._types else None

    def type(self, place: Place, name: str) -> MachineType | None:
        """What a type brings; None: it is not described."""
        self.learn(place, [name])
        return self._types.get(name)

    def has_gpus(self, place: Place, names: Iterable[str]) -> bool:
        """Whether any of these types is known to have GPUs."""
        names = list(names)
        self.learn(place, names)
        return any((self.gpus(name) or 0) > 0 for name in names)

    def learn(self, place: Place, names: Iterable[str]) -> None:
        """Look up types that are new, or that are due to be asked for again.

        Raises:
            CloudError: no answer about a type that was never asked for.

        """
        now = self._clock.monotonic()
        wanted = {name for name in names if name and name not in self._types}
        unknown = sorted(name for name in wanted if name not in self._missing or self._missing[name].again_at <= now)
        for name in unknown:
            try:
                found = _described(place, name)
            except CloudError:
                if name not in self._missing:
                    raise
                found = None  # it was not known before, either
            if found is not None:
                self._types[name] = found
            self._note(name, known=found is not None, now=now)

    def _note(self, name: str, *, known: bool, now: float) -> None:
        """Say once that a type is missing, and once that it no longer is."""
        before = self._missing.pop(name, None)
        if known:
            if before is not None:
                log.warning("Tencent Cloud describes the machine type %s now", name)
            return
        wait = _FIRST_RETRY_SECONDS if before is None else before.wait_seconds
        self._missing[name] = _Missing(again_at=now + wait, wait_seconds=min(2 * wait, _LAST_RETRY_SECONDS))
        if before is None:
            log.warning(
                "Tencent Cloud does not describe the machine type %s: its machines are left out, or left alone where "
                "they carry the fleet's tag; it is asked again",
                name,
            )


def _described(place: Place, name: str) -> MachineType | None:
    """One type, in whatever zone. Source: DescribeInstanceTypeConfigs; its filter takes one value."""
    answer = place.reading.ask("cvm", _CALL, Filters=[{"Name": "instance-type", "Values": [name]}])
    with asking(place.reading.asked(_CALL)):
        for each in answer["InstanceTypeConfigSet"]:
            if each["InstanceType"] == name:
                count = max(float(each.get("GpuCount") or 0), float(each.get("GPU") or 0))
                maker = (each.get("GpuType") or "").upper()
                return MachineType(gpu_count=math.ceil(count), nvidia=not any(word in maker for word in _OTHER_MAKERS))
    return None
