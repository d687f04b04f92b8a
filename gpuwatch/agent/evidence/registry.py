"""Every signal of the host, and the one object that the agent keeps for all of them."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuwatch.agent.activity.pods import PodLook
from gpuwatch.agent.attribution.process import user_name
from gpuwatch.agent.blind import BlindWatch
from gpuwatch.agent.evidence.base import HostSignal, Moment, Roots, UnseenError, make_finding, run
from gpuwatch.agent.evidence.connections import Connections
from gpuwatch.agent.evidence.gpu_process_cpu import GpuProcessCpu
from gpuwatch.agent.evidence.host_load import Cpu, Disk, Network
from gpuwatch.agent.evidence.inhibitors import Inhibitors
from gpuwatch.agent.evidence.jupyter import Jupyter
from gpuwatch.agent.evidence.model_servers import ModelServers
from gpuwatch.agent.evidence.pods import Pods
from gpuwatch.agent.evidence.rdma import Rdma
from gpuwatch.agent.evidence.rdma_ports import RdmaPort
from gpuwatch.agent.evidence.scheduled.signal import Scheduled
from gpuwatch.agent.evidence.sessions import People
from gpuwatch.agent.evidence.settings import CommandSettings, EvidenceSettings
from gpuwatch.agent.evidence.slurm import Slurm
from gpuwatch.agent.evidence.snoozes import Snooze, Snoozes, make_directory
from gpuwatch.agent.evidence.watcher import HostWatcher, Watched
from gpuwatch.agent.evidence.work import Processes
from gpuwatch.agent.local_disks import LocalDiskSignal, in_verdict
from gpuwatch.agent.processes.process import ProcessView, owner_of
from gpuwatch.model.activity import Evidence, LocalDisks, State, WorkOwner
from gpuwatch.model.gpu import GpuProcess, GpuReading
from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)

# By the name of its section of EvidenceSettings.
SIGNALS: dict[str, Callable[[EvidenceSettings, Roots], HostSignal]] = {
    "people": lambda settings, roots: People(settings.people, roots),
    "processes": lambda settings, roots: Processes(settings.processes, roots),
    "gpu_process_cpu": lambda settings, roots: GpuProcessCpu(settings.gpu_process_cpu, roots),
    "cpu": lambda settings, roots: Cpu(settings.cpu, roots),
    "disk": lambda settings, roots: Disk(settings.disk, roots),
    "network": lambda settings, roots: Network(settings.network, roots),
    "rdma": lambda settings, roots: Rdma(settings.rdma, roots),
    "connections": lambda settings, roots: Connections(settings.connections, roots),
    "model_servers": lambda settings, roots: ModelServers(settings.model_servers, roots, settings.deadline),
    "inhibitors": lambda settings, roots: Inhibitors(settings.inhibitors, roots),
    "jupyter": lambda settings, roots: Jupyter(settings.jupyter, roots, settings.deadline),
    "slurm": lambda settings, roots: Slurm(settings.slurm, roots, settings.deadline),
    "scheduled": lambda settings, roots: Scheduled(settings.scheduled, roots, settings.deadline),
    "snooze": lambda settings, roots: Snoozes(settings.snooze, roots),
    "command": lambda settings, _: Command(settings.command, settings.deadline),
}

# These do not apply to simulated or recorded GPUs: their work is not done on this host.
_OF_REAL_GPUS = frozenset({"processes", "gpu_process_cpu", "cpu", "connections", "scheduled"})
# As pgrep and grep have it. A script that dies of a flaw often ends with 1, too, but not without a word: so idle is 1
# with nothing on standard error.
_SAYS = {0: State.BUSY, 1: State.IDLE}


class HostSignals:
    """The signals that are switched on, looked at in the background."""

    def __init__(
        self,
        settings: EvidenceSettings,
        clock: Clock,
        roots: Roots | None = None,
        *,
        own_processes: bool = True,
        workloads: Sequence[str] = (),
        services: Sequence[str] = (),
        gpu_pods: Callable[[], Mapping[str, str | None] | None] = dict,
    ) -> None:
        """Nothing is looked at before `start`.

        Without `own_processes`, those that use the GPUs are not this machine's: a simulation's or a recording's.
        `workloads` and `services` are the administrator's patterns of processes; `gpu_pods` returns the names of the
        pods with GPUs by their uids, None while they are not known.
        """
        self._settings = settings
        self._clock = clock
        self._signals: dict[str, HostSignal] = {}
        watched = []
        for name, make in SIGNALS.items():
            section: Any = getattr(settings, name)
            if settings.enabled and section.enabled and (own_processes or name not in _OF_REAL_GPUS):
                self._signals[name] = make(settings, roots or Roots())
                after_gpus = name == GpuProcessCpu.name
                watched.append(
                    Watched(signal=self._signals[name], interval_seconds=section.interval, after_gpus=after_gpus)
                )
        self._cpu = next((each for each in watched if isinstance(each.signal, Cpu)), None)
        self._rdma = next((each for each in watched if isinstance(each.signal, Rdma)), None)
        self.blind = BlindWatch(roots, enabled=settings.enabled and own_processes)
        self._disks: Watched | None = None
        if settings.enabled and settings.local_disks.enabled and own_processes:
            disks, interval = LocalDiskSignal(roots or Roots()), settings.local_disks.interval
            self._disks = Watched(signal=disks, interval_seconds=interval, evidence=False)
            watched.append(self._disks)
        self._readings: Callable[[], Iterable[GpuReading]] = tuple
        self._named_for: ProcessView | None = None
        self._names: dict[int, str] = {}
        if isinstance(of_processes := self._signals.get("processes"), Processes):
            of_processes.table.use(workloads, services)
            of_processes.pods = lambda: tuple(gpu_pods() or ())
            if isinstance(scheduled := self._signals.get("scheduled"), Scheduled):
                of_processes.on_look = scheduled.runs.note
        asked, connected = self._signals.get("model_servers"), self._signals.get("connections")
        if isinstance(asked, ModelServers) and isinstance(connected, Connections):
            connected.quiet_ports, connected.quiet_spaces = asked.quiet_ports, asked.quiet_spaces
        self._pods: Watched | None = None
        if settings.enabled and settings.pods.enabled and own_processes and isinstance(of_processes, Processes):
            pods, interval = Pods(settings, roots or Roots(), gpu_pods), settings.pods.interval
            self._pods = Watched(signal=pods, interval_seconds=interval, after_gpus=True, evidence=False)
            watched.append(self._pods)
        self._of_processes = next((each for each in watched if each.signal is of_processes), None)
        self.watcher = HostWatcher(watched, clock, settings.deadline, self._people_on_gpus, self.processes)

    def start(self, readings: Callable[[], Iterable[GpuReading]], *, prepare: bool = True) -> None:
        """Begin; `readings` returns those of the last cycle, which list the GPU processes.

        Without `prepare` nothing is made on the host, not even the directory of the snoozes.
        """
        if prepare and "snooze" in self._signals:
            directory = Path(self._settings.snooze.directory)
            try:
                make_directory(directory)
            except OSError as error:
                _LOG.warning("`gpuwatch snooze` cannot be used: %s: %s", error.strerror, directory)
        self._readings = readings
        self.watcher.start()
        self.blind.start()

    def stop(self) -> None:
        """Stop looking."""
        self.watcher.stop()
        self.blind.stop()

    def evidence(self, now_monotonic: float) -> tuple[Evidence, ...]:
        """What every signal says at that moment; never waits."""
        return self.watcher.evidence(now_monotonic)

    def service_pids(self, holders: Iterable[GpuProcess]) -> frozenset[int]:
        """Those of the processes on the GPUs that are the machine's own; none if processes are not looked at."""
        signal = self._signals.get("processes")
        return signal.table.service_pids(holders) if isinstance(signal, Processes) else frozenset()

    def owner(self, pid: int) -> WorkOwner | None:
        """The owner of a process, as of the newest look; None: it is not known."""
        view = self.processes()
        process = None if view is None else view.processes.get(pid)
        if process is None:
            return None
        if view is not self._named_for:  # names may change, and are asked for once in each look
            self._named_for, self._names = view, {}
        name = self._names.get(process.uid) or self._names.setdefault(process.uid, user_name(process.uid))
        return owner_of(process, name)

    def _people_on_gpus(self) -> frozenset[int] | None:
        """The processes that hold a GPU, without the machine's own; None where a GPU could not list them."""
        holders = on_gpus(self._readings())
        return None if holders is None else frozenset(each.pid for each in holders) - self.service_pids(holders)

    def processes(self) -> ProcessView | None:
        """The newest look at the processes; None: they are not looked at, or not yet."""
        signal = self._signals.get("processes")
        return signal.table.view if isinstance(signal, Processes) else None

    def local_disks(self, now_monotonic: float) -> LocalDisks | None:
        """Whether a stop would lose data on local disks; None: it is not known. Never waits."""
        return None if self._disks is None else in_verdict(self.watcher.current(self._disks, now_monotonic))

    def cpu_utilization(self, now_monotonic: float) -> float | None:
        """Share, 0 to 1, of the host's processor time used in the last minute; None: it is not known. Never waits."""
        if self._cpu is None or not isinstance(self._cpu.signal, Cpu):
            return None
        return self._cpu.signal.utilization(self.watcher.current(self._cpu, now_monotonic))

    def pods(self, now_monotonic: float) -> Mapping[str, PodLook]:
        """What was seen of each pod with GPUs, by uid; a look that is late makes all of them unknown. Never waits."""
        looks, processes = self._pods, self._of_processes
        if looks is None or processes is None or not isinstance(looks.signal, Pods):
            return {}
        now = (entry for each in (looks, processes) for entry in self.watcher.current(each, now_monotonic))
        doubt = next((entry for entry in now if entry.says is State.UNKNOWN), None)
        of_pods = processes.signal.of_pods if isinstance(processes.signal, Processes) else {}
        return looks.signal.with_processes(of_pods, doubt)

    def rdma_ports(self) -> tuple[RdmaPort, ...]:
        """The RDMA ports at the last look; none while a look at them is late."""
        rdma = self._rdma
        if rdma is None or not isinstance(rdma.signal, Rdma) or self.watcher.late(rdma, self._clock.monotonic()):
            return ()
        return rdma.signal.ports

    def snoozes(self) -> tuple[Snooze, ...]:
        """The snoozes of `gpuwatch snooze` that held at the last look."""
        snooze = self._signals.get("snooze")
        return snooze.current if isinstance(snooze, Snoozes) else ()


def on_gpus(readings: Iterable[GpuReading]) -> frozenset[GpuProcess] | None:
    """The processes that hold a GPU; None where a GPU could not list them, or none was read."""
    lists = [reading.processes for reading in readings]
    if not lists or any(processes is None for processes in lists):
        return None
    return frozenset(process for processes in lists for process in processes or ())


class Command:
    """Status 0 is busy; 1, with nothing on standard error, is idle; anything else is unknown. Its output is dropped."""

    name = "command"
    source = "the administrator's command"

    def __init__(self, settings: CommandSettings, deadline_seconds: float) -> None:
        self._argv = settings.argv
        self._deadline_seconds = deadline_seconds

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding."""
        del now
        ran = run(self._argv, self._deadline_seconds)
        status = ran.status
        if _SAYS.get(status) is State.IDLE and ran.complained:
            raise UnseenError(f"{self._argv[0]} ended with status {status}, which is idle, and wrote to standard error")
        if status not in _SAYS:
            ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            raise UnseenError(f"{self._argv[0]} {ended}; 0 would be busy, 1 idle")
        return (make_finding(self, _SAYS[status], None, observed=status, limit=None, unit="exit status"),)
