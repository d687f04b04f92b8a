"""The GPUs of a life as their driver shows them. Figures of models at rest are those of the field."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuwatch.agent.devices.messages import Cycle, Down, End, Message, Reading
from gpuwatch.model.gpu import DownCause, GpuDown, GpuInfo, GpuProcess, GpuReading, ProcessKind
from gpuwatch.model.mig import MigInstance
from tests.lives.rates import LifeError, amount, duration, rate
from tests.lives.story import Life
from tests.lives.world import World

_GIB = 1 << 30
_CYCLE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Model:
    """`rest` is power without a context, `held` with one that computes nothing (P0 for most), `limit` the cap."""

    name: str
    memory_gib: float
    limit: float
    rest: float
    held: float
    gpm: bool = False
    instance: str = "g5.xlarge"
    own_bytes: float = 300e6  # the driver's and firmware's own, in "used" of most tools, not in NVML's v2


MODELS = {
    "V100": Model("Tesla V100-SXM2-16GB", 16, 300, 24, 42, instance="p3.2xlarge"),
    "T4": Model("Tesla T4", 15, 70, 9, 27, instance="g4dn.xlarge"),
    "L4": Model("NVIDIA L4", 22.5, 72, 12, 29, instance="g6.xlarge"),
    "A10G": Model("NVIDIA A10G", 22.5, 300, 16, 57, instance="g5.xlarge"),
    "L40S": Model("NVIDIA L40S", 45, 350, 33, 84, instance="g6e.xlarge"),
    "A100": Model("NVIDIA A100-SXM4-40GB", 40, 400, 51, 58, instance="p4d.24xlarge"),
    "H100": Model("NVIDIA H100 80GB HBM3", 80, 700, 70, 115, gpm=True, instance="p5.48xlarge"),
    "GH200": Model("NVIDIA GH200 480GB", 96, 900, 88, 120, gpm=True, instance="gh200.metal"),
}


class Gpus:
    """Makes the messages of each probe cycle from who holds and uses the GPUs."""

    def __init__(self, life: Life, world: World) -> None:
        """Nothing was read yet."""
        if life.model not in MODELS:
            raise LifeError(f"there is no GPU model {life.model}; known are {', '.join(MODELS)}")
        self.model = MODELS[life.model]
        self._life = life
        self._world = world
        self._seq = 0
        self._last: float | None = None
        self._joules = [1e6] * life.gpu_count
        limit = life.gpus.get("power_limit")
        self._limit = self.model.limit if limit is None else float(limit)

    def cycle(self, moment: float, monotonic: float, at: datetime) -> list[Message]:
        """What the probe says at a moment of the life, since the cycle before."""
        before = moment - 1.0 if self._last is None else self._last
        self._last, self._seq = moment, self._seq + 1
        entries = [self._entry(index, before, moment, at) for index in range(self._life.gpu_count)]
        parts: list[Message] = [
            Reading(seq=self._seq, reading=entry) if isinstance(entry, GpuReading) else Down(seq=self._seq, down=entry)
            for entry in entries
        ]
        infos = tuple(entry.info for entry in entries)
        return [
            Cycle(seq=self._seq, monotonic_seconds=monotonic - _CYCLE_SECONDS, gpus=infos),
            *parts,
            End(seq=self._seq, monotonic_seconds=monotonic, duration_seconds=_CYCLE_SECONDS),
        ]

    def _entry(self, index: int, before: float, moment: float, at: datetime) -> GpuReading | GpuDown:
        info = GpuInfo(
            uuid=f"GPU-{index:08x}-1f2e-4d3c-8b7a-000000000000",
            index=index,
            name=self.model.name,
            pci_bus_id=f"00000000:{0x1E + index:02X}:00.0",
            driver_version="570.133.20",
        )
        about = {**self._life.gpus, **(self._life.gpus.get(index) or {})}
        if "lost" in about and moment >= duration(about["lost"]):
            return GpuDown(info=info, at=at, cause=DownCause.LOST, detail="GPU is lost")
        return GpuReading(info=info, at=at, **self._measured(index, about, before, moment))

    def _measured(self, index: int, about: Mapping[Any, Any], before: float, moment: float) -> dict[str, Any]:
        holders = list(self._holders(index, moment))
        workers = [each.actor for each in self._world.members if index in each.actor.gpus and each.actor.util]
        works = [(actor.util, max(before, actor.begin), min(moment, actor.end)) for actor in workers]
        works.append((rate(about.get("util")), before, moment))
        mean = min(1.0, sum(work.total(first, last) for work, first, last in works) / (moment - before))
        peak = min(1.0, max(work.peak(first, last) for work, first, last in works))
        computing = any(process.kind is ProcessKind.COMPUTE for process in holders)
        floor = self.model.held if holders or about.get("clocks_up") else self.model.rest
        power = floor + mean * 0.8 * (self._limit - floor)
        if "power" in about:
            power = float(about["power"])
        self._joules[index] += power * (moment - before)
        used = sum(process.memory_bytes or 0 for process in holders) + amount(about.get("memory", 0))
        hidden = self._life.agent.get("pids") == "container"
        measured: dict[str, Any] = {
            "utilization_ratio": mean,
            "utilization_max_ratio": peak,
            "memory_bandwidth_utilization_ratio": float(about.get("bandwidth", mean * 0.6)),
            "memory_total_bytes": int(self.model.memory_gib * _GIB),
            "memory_used_bytes": int(used + amount(about.get("page_cache", 0))),
            "memory_reserved_bytes": int(self.model.own_bytes),
            "power_watts": power,
            "power_limit_watts": self._limit,
            "energy_joules_total": self._joules[index],
            "performance_state": 0 if computing or mean > 0 or about.get("clocks_up") else 8,
            "clock_events": ("gpu_idle",) if mean <= 0.0 and not computing else (),
            "encoder_utilization_ratio": 0.0,
            "decoder_utilization_ratio": 0.0,
            "processes": () if hidden else tuple(holders),
            "processes_partial": hidden,
        }
        if self.model.gpm:
            sm = float(about.get("sm", mean * 0.7))
            graphics = float(about.get("graphics", mean))
            arithmetic = float(about.get("arithmetic", sm))  # blocks that poll are at work and compute nothing
            measured |= {"sm_activity_ratio": sm, "graphics_activity_ratio": graphics}
            measured |= {"dram_activity_ratio": arithmetic / 2, "tensor_activity_ratio": arithmetic / 2}
            measured |= {"pcie_tx_bytes_per_second": 2e5 + arithmetic * 4e8, "nvlink_tx_bytes_per_second": 0.0}
            measured |= {"pcie_rx_bytes_per_second": 2e5 + arithmetic * 4e8}
        if "mig" in about:
            measured |= self._mig(about, holders)
        return measured

    def _holders(self, index: int, moment: float) -> Iterator[GpuProcess]:
        for process in self._world.alive(moment):
            actor = process.member.actor
            if index in actor.gpus and actor.listed:
                yield GpuProcess(
                    pid=process.pid, kind=ProcessKind(actor.gpu_kind), memory_bytes=int(actor.gpu_memory) or None
                )

    def _mig(self, about: Mapping[str, Any], holders: list[GpuProcess]) -> dict[str, Any]:
        """MIG instances without work; before Hopper without figures of their activity."""
        dark = not self.model.gpm
        own = self.model.memory_gib * _GIB / max(1, int(about["mig"]))
        parts = tuple(
            MigInstance(
                id=number + 1,
                process_count=len(holders) if number == 0 else 0,
                activity_unsupported=dark,
                memory_total_bytes=int(own),
                memory_used_bytes=15 << 20,
                sm_activity_ratio=None if dark else 0.0,
                graphics_activity_ratio=None if dark else 0.0,
                dram_activity_ratio=None if dark else 0.0,
            )
            for number in range(int(about["mig"]))
        )
        return {
            "mig_mode": 1,
            "mig_instances": parts,
            "utilization_ratio": None,
            "utilization_max_ratio": None,
            "memory_bandwidth_utilization_ratio": None,
        }
