"""The machine under test: this host with its NVIDIA driver, or a stand-in driver that shows what a load would do."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.agent.devices.messages import Reading, decode
from gpuwatch.model.gpu import GpuReading
from tests.support.fakes.nvml import StubDriver
from tests.support.paths import ROOT

MIB = 1 << 20
ALLOCATION_BYTES = 1024 * MIB
REAL = os.environ.get("GPUWATCH_GPU") == "real"
INTERVAL_SECONDS = 0.5 if REAL else 0.2
RECORDED_CYCLES, RECORDED_SECONDS = (12, 1.0) if REAL else (4, 0.2)  # and between two of them

# What the stand-in driver shows of a pattern: utilization and memory traffic in percent, watts, MiB/s over PCIe.
SHOWN = {
    "work": (97, 560, 20, 0),
    "trickle": (3, 120, 0, 0),
    "blip": (1, 120, 0, 0),
    "upload": (0, 110, 2, 20_000),
    "move": (100, 300, 90, 0),
    "hang": (100, 125, 0, 0),
    "hang_on_host": (100, 125, 0, 40),
}


class Load:
    """A process that uses one GPU, word by word."""

    def __init__(self, environment: Mapping[str, str], result: Callable[[int, str], None]) -> None:
        """Start it; `told` hears of each word that it has obeyed."""
        self._told = result
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.burn", str(ALLOCATION_BYTES)],
            env=dict(environment),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """Of the process that the driver must list."""
        return self._process.pid

    def do(self, word: str) -> None:
        """A word that `burn` obeys; returns when it has begun."""
        if self._process.stdin is None or self._process.stdout is None or self._process.stderr is None:
            raise AssertionError("its pipes were asked for")
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()

        assert answer == word, f"the load did not {word}: {answer or self._process.stderr.read()}"
        self._told(self.pid, word)

    def end(self) -> None:
        """Give all back."""
        self._process.communicate(timeout=30)
        self._told(self.pid, "end")

        assert self._process.returncode == 0, "the load did not end well"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """How to reach the driver, and the GPU that nobody else uses."""

    environment: Mapping[str, str]
    gpu: GpuReading
    told: Callable[[int, str], None] = lambda *_: None  # of what the load has done

    @contextmanager
    def load(self) -> Iterator[Load]:
        """A load on that GPU; ended whatever happens."""
        visible = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": self.gpu.info.uuid}
        load = Load({**self.environment, **visible}, self.told)
        try:
            yield load
        finally:
            load.end()

    def read(self) -> GpuReading:
        """The GPU as `gpuwatch probe --once` shows it."""
        return next(each for each in readings(self.environment) if each.info.uuid == self.gpu.info.uuid)


def readings(environment: Mapping[str, str]) -> list[GpuReading]:
    """What `gpuwatch probe --once` prints."""
    command = [sys.executable, "-m", "gpuwatch", "probe", "--once"]
    done = subprocess.run(command, env=dict(environment), cwd=ROOT, capture_output=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr.decode()
    return [message.reading for line in done.stdout.splitlines() if isinstance(message := decode(line), Reading)]


def real() -> Machine:
    """This host."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPUWATCH_GPU")}
    free = [each for each in readings(environment) if each.processes == () and each.mig_mode != 1]

    assert free, "every GPU here is in use or split by MIG: these tests want one for themselves"
    return Machine(environment=environment, gpu=free[0])


def stub(folder: Path, nvml_library: Path) -> Machine:
    """Two GPUs of the stand-in driver; the second belongs to somebody else."""
    libraries = [str(nvml_library), str(build_cuda(folder / "cuda"))]
    driver = StubDriver(folder / "driver", nvml_library, gpus=2)
    driver.gpu(0).set(energy_grows=1)
    driver.gpu(1).processes({4711: MIB})
    environment = {**driver.environment, "LD_LIBRARY_PATH": os.pathsep.join(libraries)}
    memory = {"context": 500 * MIB, "allocate": 500 * MIB + ALLOCATION_BYTES}

    def told(pid: int, word: str) -> None:
        gpu = driver.gpu(0)
        if word in memory:
            gpu.set(memory_used=memory[word]).processes({pid: memory[word]})
        elif word == "end":
            gpu.set(memory_used=0).processes({})
        percent, watts, dram_percent, pcie_mib = SHOWN.get(word, (0, 70, 0, 0))
        gpu.set(utilization=percent, power=watts * 1000, memory_utilization=dram_percent)
        gpu.gpm({1: percent, 2: percent if word == "work" else percent // 8, 10: dram_percent, 20: pcie_mib})

    return Machine(environment=environment, gpu=readings(environment)[0], told=told)


def record(host: Machine, folder: Path, state: str) -> Path:
    """A capture of some cycles."""
    name = re.sub(r"\W+", "_", (host.gpu.info.name or "gpu").lower())
    path = folder / f"{name}_{state}.jsonl"
    options = ["--record", str(path), "--cycles", str(RECORDED_CYCLES), "--interval", str(RECORDED_SECONDS)]
    command = [sys.executable, "-m", "gpuwatch", "probe", *options]
    subprocess.run(command, env=dict(host.environment), cwd=ROOT, capture_output=True, timeout=60, check=True)
    return path


def build_cuda(folder: Path) -> Path:
    """Compile the stand-in libcuda.so.1 into a folder."""
    folder.mkdir(parents=True)
    source = Path(__file__).parent / "cuda_stub.c"
    options = ["-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["cc", *options, "-o", str(folder / "libcuda.so.1"), str(source)], check=True)
    return folder
