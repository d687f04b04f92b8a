"""Every signal of the host, and the one object that the agent keeps for all of them."""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gpuwatch.agent.host.command import Command
from gpuwatch.agent.host.inhibitors import Inhibitors
from gpuwatch.agent.host.jupyter import Jupyter
from gpuwatch.agent.host.knobs import HostKnobs
from gpuwatch.agent.host.leases import Lease, Leases, make_directory
from gpuwatch.agent.host.people import People
from gpuwatch.agent.host.processes import GpuProcessCpu
from gpuwatch.agent.host.protocol import HostSignal, Roots
from gpuwatch.agent.host.rates import Cpu, Disk, Network
from gpuwatch.agent.host.slurm import Slurm
from gpuwatch.agent.host.watcher import HostWatcher, Watched
from gpuwatch.clock import Clock
from gpuwatch.model.fleet import Evidence
from gpuwatch.model.gpu import GpuReading

_LOG = logging.getLogger(__name__)

# By the name of its section of HostKnobs.
SIGNALS: dict[str, Callable[[HostKnobs, Roots], HostSignal]] = {
    "people": lambda knobs, roots: People(knobs.people, roots),
    "gpu_process_cpu": lambda knobs, roots: GpuProcessCpu(knobs.gpu_process_cpu, roots),
    "cpu": lambda knobs, roots: Cpu(knobs.cpu, roots),
    "disk": lambda knobs, roots: Disk(knobs.disk, roots),
    "network": lambda knobs, roots: Network(knobs.network, roots),
    "inhibitors": lambda knobs, roots: Inhibitors(knobs.inhibitors, roots),
    "jupyter": lambda knobs, roots: Jupyter(knobs.jupyter, roots, knobs.deadline),
    "slurm": lambda knobs, roots: Slurm(knobs.slurm, roots, knobs.deadline),
    "keep": lambda knobs, roots: Leases(knobs.keep, roots),
    "command": lambda knobs, _: Command(knobs.command, knobs.deadline),
}

# What says nothing of the GPUs of a simulation or a recording, whose work is not done here.
_OF_REAL_GPUS = frozenset({"gpu_process_cpu", "cpu"})


class HostSignals:
    """The signals that are switched on, looked at in the background."""

    def __init__(
        self, knobs: HostKnobs, clock: Clock, roots: Roots | None = None, *, own_processes: bool = True
    ) -> None:
        """Nothing is looked at before `start`.

        Without `own_processes`, those that use the GPUs are not this machine's: a simulation's or a recording's.
        """
        self._knobs = knobs
        self._signals: dict[str, HostSignal] = {}
        watched = []
        for name, make in SIGNALS.items():
            section: Any = getattr(knobs, name)
            if knobs.enabled and section.enabled and (own_processes or name not in _OF_REAL_GPUS):
                self._signals[name] = make(knobs, roots or Roots())
                after_gpus = name == GpuProcessCpu.name
                watched.append(
                    Watched(signal=self._signals[name], interval_seconds=section.interval, after_gpus=after_gpus)
                )
        self._readings: Callable[[], Iterable[GpuReading]] = tuple
        self.watcher = HostWatcher(watched, clock, knobs.deadline, lambda: gpu_pids(self._readings()))

    def start(self, readings: Callable[[], Iterable[GpuReading]]) -> None:
        """Begin; `readings` gives those of the last cycle, whose processes are looked at too."""
        if "keep" in self._signals:
            directory = Path(self._knobs.keep.directory)
            try:
                make_directory(directory)
            except OSError as error:
                _LOG.warning("`gpuwatch keep` cannot be used: %s: %s", error.strerror, directory)
        self._readings = readings
        self.watcher.start()

    def stop(self) -> None:
        """Look no more."""
        self.watcher.stop()

    def evidence(self, now_monotonic: float) -> tuple[Evidence, ...]:
        """What every signal says at that moment; never waits."""
        return self.watcher.evidence(now_monotonic)

    def leases(self) -> tuple[Lease, ...]:
        """The leases of `gpuwatch keep` that held at the last look."""
        keep = self._signals.get("keep")
        return keep.current if isinstance(keep, Leases) else ()


def gpu_pids(readings: Iterable[GpuReading]) -> frozenset[int] | None:
    """The processes that hold a GPU; None where a GPU could not list them, or none was read."""
    lists = [reading.processes for reading in readings]
    if not lists or any(processes is None for processes in lists):
        return None
    return frozenset(process.pid for processes in lists for process in processes or ())
