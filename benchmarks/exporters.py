"""The exporters that are measured, and the host that they watch: H100s at work behind the stand-in driver."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from benchmarks.processes import Started, cpu_seconds, free_port
from gpuwatch.runtime.clock import SystemClock
from tests.support.fakes.nvml import NOT_SUPPORTED, REAL_LATENCIES, StubDriver

_LINKS = 18
_LINK_TX, _LINK_RX = 138, 139
_CYCLES = 5
_CYCLE_SECONDS = 1.0  # five of them have one of the reads of every 5 s
_PEER_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Asked:
    """Of a driver: its calls, the processor's time that they took by the table of latencies, and the cycles."""

    calls: float
    busy_seconds: float
    cycles: float

    @classmethod
    def of(cls, driver: StubDriver, cycles: float) -> Self:
        """By the process that exited last."""
        return cls(sum(driver.calls().values()), driver.busy_seconds(), cycles)

    def since(self, before: Self) -> Self:
        """One cycle of those that a longer run made more."""
        more = self.cycles - before.cycles
        calls, busy = self.calls - before.calls, self.busy_seconds - before.busy_seconds
        return type(self)(calls / more, busy / more, 1)


class Driver(Protocol):
    """A driver: what a process needs in its environment to use it."""

    @property
    def environment(self) -> dict[str, str]:
        """Of that process."""
        ...


class Exporter(Protocol):
    """An exporter to measure."""

    @property
    def name(self) -> str:
        """What the table calls it."""
        ...

    @property
    def good(self) -> str:
        """The line of /metrics that shows one GPU read, as a pattern."""
        ...

    def on(self, driver: Driver) -> Started:
        """Its process, with its defaults, once a second on that driver."""
        ...

    def asks(self, driver: StubDriver, gpus: int) -> Asked:
        """What one cycle asks the driver, without what is asked once."""
        ...


@dataclass(frozen=True, slots=True)
class GpuwatchAgent:
    """Ours."""

    name: str = "gpuwatch agent"
    good: str = r"^gpuwatch_gpu_up\{.*\} 1(\.0)?$"
    interval: str = "1s"

    def on(self, driver: Driver) -> Started:
        """With its defaults."""
        port = free_port()
        listen = ["--listen", f"127.0.0.1:{port}", "--interval", self.interval]
        command = [sys.executable, "-m", "gpuwatch", "agent", *listen]
        return Started(command=command, environment={**driver.environment, "GPUWATCH_AGENT__NODE_ID": "n"}, port=port)

    def asks(self, driver: StubDriver, gpus: int) -> Asked:
        """The difference of two runs of the probe."""
        del gpus
        short = self._asked(driver, _CYCLES)
        return self._asked(driver, 2 * _CYCLES).since(short)

    @staticmethod
    def _asked(driver: StubDriver, cycles: int) -> Asked:
        """By a probe whose reader leaves after so many cycles: it ends, and the stub writes its counts."""
        command = [sys.executable, "-m", "gpuwatch", "probe", "--interval", str(_CYCLE_SECONDS)]
        left = cycles
        with subprocess.Popen(command, env=driver.environment, stdout=subprocess.PIPE) as probe:
            for line in probe.stdout or ():
                left -= b'"kind":"end"' in line
                if left == 0:
                    break
        return Asked.of(driver, cycles)


@dataclass(frozen=True, slots=True)
class NvitopExporter:
    """The peer on PyPI, in a throwaway environment; without a folder, the one that this Python can import."""

    folder: Path | None
    name: str = "nvitop-exporter"
    good: str = r"^gpu_memory_total_MiB\{.*\} \d"

    def install(self) -> bool:
        """Get it; pip says on stderr why it could not."""
        if self.folder is None:
            return True
        subprocess.run([sys.executable, "-m", "venv", self.folder], check=True)
        pip = [str(self.folder / "bin" / "pip"), "install", "--quiet", "nvitop-exporter"]
        return subprocess.run(pip, check=False).returncode == 0

    def on(self, driver: Driver) -> Started:
        """With its defaults, which are one cycle a second too."""
        port = free_port()
        return Started(command=self._command(port), environment=driver.environment, port=port)

    def asks(self, driver: StubDriver, gpus: int) -> Asked:
        """The difference of two runs."""
        short = self._asked(driver, gpus, _PEER_SECONDS)
        return self._asked(driver, gpus, 2 * _PEER_SECONDS).since(short)

    def _asked(self, driver: StubDriver, gpus: int, seconds: float) -> Asked:
        """By a run that long. It asks for the fan of each GPU once a cycle: so the cycles are counted."""
        with subprocess.Popen(
            [*self._command(free_port()), "--interval", "0.25"],
            env=driver.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            SystemClock().sleep(seconds)
            process.send_signal(signal.SIGINT)  # SIGTERM would end it before the stub has written its counts
        return Asked.of(driver, driver.calls()["nvmlDeviceGetFanSpeed"] / gpus)

    def _command(self, port: int) -> list[str]:
        program = (
            [sys.executable, "-m", "nvitop_exporter"]
            if self.folder is None
            else [str(self.folder / "bin" / "nvitop-exporter")]
        )
        return [*program, "--port", str(port)]


@contextmanager
def working_host(folder: Path, library: Path, gpus: int) -> Iterator[StubDriver]:
    """A host at work: each GPU is held by a process of its own and talks over 18 NVLinks; calls take their time."""
    driver = StubDriver(folder, library, gpus, latencies=REAL_LATENCIES)
    every = driver.every_gpu()
    every.set(utilization=87, memory_utilization=41, memory_used=75 << 30, temperature=61, memory_temperature=70)
    every.set(
        power=563_412, energy=71_234_567_890, energy_grows=1, clock_events=0, sm_clock=1_980, graphics_clock=1_980
    )
    every.set(video_clock=1_545, nvlink_grows=1_234_567, pcie_throughput=2_345_678, bar1_used=1_234 << 20)
    every.gpm({1: 88, 2: 83, 3: 41, 5: 37, 10: 52, 11: 0, 12: 12, 13: 3, 20: 2_291, 21: 1_871, 60: 44_123, 61: 44_987})
    for link in range(_LINKS):
        every.field(_LINK_TX, 1_234_567_890 + link, link).field(_LINK_RX, 987_654_321 + link, link)
    for field, value in ((197, 81_234_567_890), (198, 71_234_567_890), (74, 71_234_567_890)):
        every.field(field, value)
    for pcie_errors in (175, 176, 177, 178, 181, 182, 183):
        every.field(pcie_errors, 0)
    every.error("gpm.100", NOT_SUPPORTED).error("gpm.101", NOT_SUPPORTED)  # C2C, which a host of x86 has not
    every.error("nvmlDeviceGetFanSpeed", NOT_SUPPORTED)  # these boards have none of their own
    with ExitStack() as running:
        for slot in range(gpus):
            work = running.enter_context(_working())
            driver.gpu(slot).processes({work.pid: 74 << 30})
        yield driver


@contextmanager
def _working() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for a training run."""
    with subprocess.Popen(["sleep", "86400"]) as process:
        try:
            yield process
        finally:
            process.kill()


def start(exporter: Exporter, driver: StubDriver, gpus: int) -> tuple[float, float, float]:
    """Seconds from its start to the first page with a GPU, and to one with all; what CPU time it took until then."""
    with exporter.on(driver) as started:
        first = started.seconds_until(exporter.good)
        whole = started.seconds_until(exporter.good, gpus)
        return first, whole, cpu_seconds(started.pids)
