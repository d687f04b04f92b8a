"""The machine under test: this host with its NVIDIA driver, or a stand-in driver that shows what a load would do."""

import os
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
        """`context`, `allocate`, `work` or `rest`; returns when it is done."""
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
    environment = dict(os.environ)
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
    shown = {"context": 500 * MIB, "allocate": 500 * MIB + ALLOCATION_BYTES}

    def told(pid: int, word: str) -> None:
        gpu = driver.gpu(0)
        if word in shown:
            gpu.set(memory_used=shown[word]).processes({pid: shown[word]})
        elif word == "end":
            gpu.set(memory_used=0).processes({})
        works = word == "work"
        gpu.utilization(0.97 if works else 0.0).set(power=560_000 if works else 70_000)

    return Machine(environment=environment, gpu=readings(environment)[0], told=told)


def build_cuda(folder: Path) -> Path:
    """Compile the stand-in libcuda.so.1 into a folder."""
    folder.mkdir(parents=True)
    source = Path(__file__).parent / "cuda_stub.c"
    options = ["-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["cc", *options, "-o", str(folder / "libcuda.so.1"), str(source)], check=True)
    return folder
