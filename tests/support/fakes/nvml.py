"""A stand-in NVIDIA driver for tests and benchmarks: compiles `nvml_stub/` and writes the state that it shows.

    driver = StubDriver(folder, build(folder), gpus=8)
    driver.gpu(0).utilization(0.37)
    subprocess.run([sys.executable, "-m", "gpuwatch", "probe", "--once"], env=driver.environment)

Every change takes effect at the next driver call of every process that uses it.
"""

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from gpuwatch.agent.devices import DeviceSource, PacedSource
from gpuwatch.model.gpu import GpuDown, GpuReading

# How long a real driver's calls take, for a benchmark.
REAL_LATENCIES = Path(__file__).parent / "nvml_stub" / "latencies.txt"

_SOURCES = sorted((Path(__file__).parent / "nvml_stub").glob("*.c"))

INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
GPU_IS_LOST = 15
RESET_REQUIRED = 16
OPERATING_SYSTEM = 17
VERSION_MISMATCH = 18
UNKNOWN = 999


def build(folder: Path, *, old: bool = False) -> Path:
    """Compile the library into `folder` and return that; `old` leaves out what came after the R470 drivers."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-Wl,-soname,libnvidia-ml.so.1"]
    variant = ["-DNVML_STUB_OLD"] if old else []
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", *options, *variant, "-o", str(library), *map(str, _SOURCES)], check=True)
    return folder


# What a sick GPU answers for one figure, in the units of the stub's table.
GARBAGE: dict[str, dict[str, int]] = {
    "temperature": {"temperature": 2**32 - 1},
    "memory temperature": {"memory_temperature": 2**32 - 1},
    "utilization": {"utilization": 250},
    "power": {"power": 2**32 - 1},
    "clock": {"sm_clock": 2**32 - 1},
    "memory": {"memory_used": 2**40, "memory_total": 2**36},
    "fan": {"fan": 2**32 - 1},
    "energy": {"energy": 2**63 - 1},
}


class StubGpu:
    """One slot of the driver; its methods return it, so that they chain."""

    def __init__(self, driver: "StubDriver", slot: int | str) -> None:
        """`slot` is a number, or `*` for each GPU."""
        self._driver = driver
        self._prefix = f"gpu.{slot}"

    def set(self, **numbers: int) -> Self:
        """Set numbers of the stub's table in NVML's own units: mW, mJ, MHz, percent."""
        return self._write({key: str(value) for key, value in numbers.items()})

    def utilization(self, ratio: float) -> Self:
        """What samples and rates show."""
        return self.set(utilization=round(ratio * 100))

    def samples(self, percents: Mapping[int, int]) -> Self:
        """The whole sample buffer by time stamp in microseconds; an empty one has nothing to give."""
        return self._write({"samples": " ".join(f"{at}:{percent}" for at, percent in percents.items())})

    def processes(self, memory_bytes: Mapping[int, int | None], kind: str = "compute") -> Self:
        """The pids that hold the GPU; kind is compute, compute_v2, graphics or mps."""
        entries = (f"{pid}:{'-' if size is None else size}" for pid, size in memory_bytes.items())
        return self._write({kind: " ".join(entries)})

    def processes_in_mig(self, *rows: tuple[int, int, int, int], kind: str = "compute") -> Self:
        """The same within MIG: pid, bytes, GPU instance, compute instance."""
        return self._write({kind: " ".join(":".join(map(str, row)) for row in rows)})

    def field(self, number: int, value: int, scope: int = 0) -> Self:
        """That field value, in NVML's own units."""
        return self._write({f"field.{number}.{scope}": str(value)})

    def gpm(self, metrics: Mapping[int, int]) -> Self:
        """GPM metrics by id: percent, MiB/s."""
        return self._write({f"gpm.{metric}": str(value) for metric, value in metrics.items()})

    def mig(self, *instances: tuple[int, str, int, int, int]) -> Self:
        """Split by MIG into compute instances: GPU instance, profile, bytes in all and in use, SM percent."""
        return self.set(mig=1)._write({"instances": " ".join(":".join(map(str, entry)) for entry in instances)})

    def whole(self) -> Self:
        """MIG is off."""
        return self.set(mig=0)._write({"instances": ""})

    def xid(self, number: int, *, count: int = 1) -> Self:
        """That error was reported for the `count`th time in the life of this driver."""
        return self.set(xid=number, xid_count=count)

    def error(self, function: str, code: int) -> Self:
        """That function answers this code from now on, 0 for none.

        `field.185` and `gpm.2` are entries of a field value and a GPM metric, `*` is every call that measures.
        """
        return self._write({f"error.{function}": str(code)})

    def delay(self, function: str, seconds: float | None) -> Self:
        """That function takes so long, None is for ever; latency_us is for every call that measures."""
        return self._write({f"delay.{function}": "-1" if seconds is None else str(round(seconds * 1e6))})

    def unsupported(self, *functions: str) -> Self:
        """These functions are not supported."""
        return self._write({f"error.{function}": str(NOT_SUPPORTED) for function in functions})

    def block(self) -> Self:
        """No call about it ever returns, in no process: not even who it is, as after a time-out of its GSP."""
        return self.set(block=1)

    def slow(self, seconds: float) -> Self:
        """Each call about it takes so long."""
        return self.set(call_us=round(seconds * 1e6))

    def garbage(self, what: str) -> Self:
        """One figure of it is a number that cannot be true, of the table GARBAGE; or its `uuid` is none."""
        return self._write({"uuid": "%%"}) if what == "uuid" else self.set(**GARBAGE[what])

    def sound(self, what: str) -> Self:
        """That figure is as it was at first."""
        keys = ("uuid",) if what == "uuid" else GARBAGE[what]
        self._driver.forget(f"{self._prefix}.{key}" for key in keys)
        return self

    def _write(self, values: Mapping[str, str]) -> Self:
        self._driver.write({f"{self._prefix}.{key}": value for key, value in values.items()})
        return self


class StubDriver:
    """The driver of one pretended host."""

    def __init__(self, folder: Path, library: Path, gpus: int = 1, *, latencies: Path | None = None) -> None:
        """State and counts go to `folder`; `library` is what `build` returned; `latencies` is a table of them."""
        folder.mkdir(parents=True, exist_ok=True)
        self.library = library
        self.latencies = latencies
        self.state_file = folder / "state"
        self.counts_file = folder / "counts"
        self._lines: dict[str, str] = {}
        self._writes = 0
        self.gpus(gpus)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that shall see this driver."""
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.library),
            "NVML_STUB_STATE": str(self.state_file),
            "NVML_STUB_COUNTS": str(self.counts_file),
            **({} if self.latencies is None else {"NVML_STUB_LATENCIES": str(self.latencies)}),
        }

    def gpu(self, slot: int) -> StubGpu:
        """One GPU."""
        return StubGpu(self, slot)

    def every_gpu(self) -> StubGpu:
        """All GPUs at once; what is set for a single one later wins."""
        return StubGpu(self, "*")

    def gpus(self, count: int) -> None:
        """How many slots there are, 16 at most."""
        self.write({"gpus": str(count)})

    def lose(self, slot: int) -> None:
        """The GPU falls off the bus."""
        self.gpu(slot).set(lost=1)

    def find(self, slot: int) -> None:
        """The GPU is back, and well."""
        self.gpu(slot).set(lost=0, absent=0, hang=0, block=0, attach_blocks=0, call_us=0)

    def unplug(self, slot: int) -> None:
        """The driver no longer lists the GPU."""
        self.gpu(slot).set(absent=1)

    def hang(self, slot: int) -> None:
        """Measurements of the GPU never return; a call that hangs already stays so when the GPU is found."""
        self.gpu(slot).set(hang=1)

    def init_takes(self, seconds: float | None) -> None:
        """How long nvmlInit takes; None is for ever."""
        self.write({"init": "-1" if seconds is None else str(round(seconds * 1e6))})

    def deafen(self) -> Self:
        """A call that never returns ignores SIGTERM from now on."""
        self.write({"deaf": "1"})
        return self

    def remove(self, code: int = DRIVER_NOT_LOADED) -> None:
        """Every call answers that code."""
        self.write({"driver": str(code)})

    def load(self) -> None:
        """The driver is there, and whoever used it before must open it anew."""
        self.write({"driver": "0", "generation": str(self._writes)})

    def latency(self, microseconds: int) -> None:
        """Each measuring call takes that long."""
        self.every_gpu().set(latency_us=microseconds)

    def calls(self) -> dict[str, int]:
        """How often each function was called by the process that exited last; not after a kill."""
        lines = self.counts_file.read_text(encoding="ascii").splitlines()
        return {function: int(count) for function, count in (line.split() for line in lines)}

    def busy_seconds(self) -> float:
        """How long the calls of the process that exited last used the processor, by the table of latencies."""
        return int(self.counts_file.with_name(f"{self.counts_file.name}.busy").read_text(encoding="ascii")) / 1e6

    def forget(self, keys: Iterable[str]) -> None:
        """Take lines out of the state file."""
        for key in keys:
            self._lines.pop(key, None)
        self.write({})

    def write(self, lines: Mapping[str, str]) -> None:
        """Put lines of the state file in place, all at once."""
        for key in lines:
            self._lines.pop(key, None)
        self._lines.update(lines)
        self._writes += 1
        fresh = self.state_file.with_suffix(".new")
        fresh.write_text("".join(f"{key} = {value}\n" for key, value in self._lines.items()), encoding="ascii")
        os.utime(fresh, ns=(self._writes, self._writes))  # two writes in one tick of the file system's clock differ too
        fresh.replace(self.state_file)


def cycle(source: DeviceSource, *, whole: bool = True) -> list[GpuReading | GpuDown]:
    """What one cycle of the probe gets; a `whole` one also has what is read every few seconds only."""
    if whole and isinstance(source, PacedSource):
        source.hurry()
    return [source.read(gpu) for gpu in source.gpus()]


def reading(source: DeviceSource) -> GpuReading:
    """The reading of the only GPU."""
    (only,) = cycle(source)

    assert isinstance(only, GpuReading), f"expected a reading, got {only}"
    return only


def down(result: GpuReading | GpuDown) -> GpuDown:
    """A GPU that is down."""
    assert isinstance(result, GpuDown), f"expected a GPU that is down, got {result}"
    return result
