"""Every signal of the host, and the one object that the agent keeps for all of them."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gpuwatch.agent.activity.pods import PodLook
from gpuwatch.agent.attribution.process import user_name
from gpuwatch.agent.blind import BlindWatch
from gpuwatch.agent.evidence import logins
from gpuwatch.agent.evidence.base import HostSignal, Moment, Roots, UnseenError, make_finding, run
from gpuwatch.agent.evidence.connections import Connections
from gpuwatch.agent.evidence.gpu_process_cpu import GpuProcessCpu
from gpuwatch.agent.evidence.habits import Habits
from gpuwatch.agent.evidence.host_load import Cpu, Disk, Network
from gpuwatch.agent.evidence.inhibitors import Inhibitors
from gpuwatch.agent.evidence.jupyter import Jupyter
from gpuwatch.agent.evidence.model_servers import ModelServers
from gpuwatch.agent.evidence.past import Past
from gpuwatch.agent.evidence.pods import Pods
from gpuwatch.agent.evidence.rdma import Rdma
from gpuwatch.agent.evidence.rdma_ports import RdmaPort
from gpuwatch.agent.evidence.scheduled.found import is_container
from gpuwatch.agent.evidence.scheduled.signal import Scheduled
from gpuwatch.agent.evidence.sessions import People
from gpuwatch.agent.evidence.settings import CommandSettings, EvidenceSettings
from gpuwatch.agent.evidence.slurm import Slurm
from gpuwatch.agent.evidence.snoozes import Snooze, Snoozes, make_directory
from gpuwatch.agent.evidence.watcher import HostWatcher, Watched
from gpuwatch.agent.evidence.work import Processes
from gpuwatch.agent.local_disks import LocalDiskSignal, in_verdict
from gpuwatch.agent.processes.packages import PackageOwners
from gpuwatch.agent.processes.pool import PoolMemory, Question
from gpuwatch.agent.processes.process import ProcessView, owner_of
from gpuwatch.agent.processes.strangers import cores_of_strangers
from gpuwatch.model.activity import Evidence, LocalDisks, State, WorkOwner
from gpuwatch.model.gpu import GpuProcess, GpuReading
from gpuwatch.model.verdict import NodeVerdict
from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)

Signal = TypeVar("Signal", bound=HostSignal)


@dataclass(slots=True, kw_only=True)
class Around:
    """What signals are made of: the settings, the host's folders, what the agent knows, and each other.

    Without `own_processes`, those that use the GPUs are not this machine's: a simulation's or a recording's.
    `workloads` and `services` are the administrator's patterns of processes; `gpu_pods` returns the names of the pods
    with GPUs by their uids, None while they are not known; `packages` knows the owners of files. `pool` is what the
    controller says of the machine's pool.
    """

    settings: EvidenceSettings
    roots: Roots
    own_processes: bool = True
    workloads: Sequence[str] = ()
    services: Sequence[str] = ()
    gpu_pods: Callable[[], Mapping[str, str | None] | None] = dict
    packages: PackageOwners | None = None
    pool: PoolMemory = field(default_factory=PoolMemory)
    habits: Habits | None = None
    past: Past | None = None
    _made: dict[str, HostSignal] = field(default_factory=dict)

    def is_on(self, name: str) -> bool:
        """Whether the settings have this section's signal, and it applies to these GPUs."""
        section: Any = getattr(self.settings, name)
        return self.settings.enabled and section.enabled and (self.own_processes or name not in _OF_REAL_GPUS)

    def signal_named(self, name: str) -> HostSignal | None:
        """The signal of that section, made when it is first asked for; None: it is off."""
        if name not in self._made and self.is_on(name):
            self._made[name] = SIGNALS[name](self)
        return self._made.get(name)

    def signal(self, kind: type[Signal]) -> Signal | None:
        """The signal of that class; None: it is off."""
        found = self.signal_named(kind.name)
        return found if isinstance(found, kind) else None


def _processes(here: Around) -> Processes:
    scheduled = here.signal(Scheduled)
    return Processes(
        here.settings.processes,
        here.roots,
        workloads=here.workloads,
        services=here.services,
        pool=here.pool,
        pods=lambda: tuple(here.gpu_pods() or ()),
        packages=here.packages,
        habits=here.habits,
        on_look=(lambda *_: None) if scheduled is None else scheduled.runs.note,
    )


def _connections(here: Around) -> Connections:
    quiet = here.signal(ModelServers)
    told: dict[str, Any] = {"on_listeners": here.pool.note_ports}
    if quiet is not None:
        told |= {"quiet_ports": quiet.quiet_ports, "quiet_spaces": quiet.quiet_spaces}
    if here.habits is not None:
        told["on_asked"] = here.habits.note_asked
    return Connections(here.settings.connections, here.roots, **told)


# By the name of its section of EvidenceSettings.
SIGNALS: dict[str, Callable[[Around], HostSignal]] = {
    "people": lambda here: People(here.settings.people, here.roots, here.past),
    "processes": _processes,
    "gpu_process_cpu": lambda here: GpuProcessCpu(here.settings.gpu_process_cpu, here.roots),
    "cpu": lambda here: Cpu(here.settings.cpu, here.roots),
    "disk": lambda here: Disk(here.settings.disk, here.roots),
    "network": lambda here: Network(here.settings.network, here.roots),
    "rdma": lambda here: Rdma(here.settings.rdma, here.roots),
    "connections": _connections,
    "model_servers": lambda here: ModelServers(here.settings.model_servers, here.roots, here.settings.deadline),
    "inhibitors": lambda here: Inhibitors(here.settings.inhibitors, here.roots),
    "jupyter": lambda here: Jupyter(here.settings.jupyter, here.roots, here.settings.deadline),
    "slurm": lambda here: Slurm(here.settings.slurm, here.roots, here.settings.deadline),
    "scheduled": lambda here: Scheduled(
        here.settings.scheduled,
        here.roots,
        here.settings.deadline,
        packages=here.packages,
        habits=here.habits,
    ),
    "snooze": lambda here: Snoozes(here.settings.snooze, here.roots),
    "command": lambda here: Command(here.settings.command, here.settings.deadline),
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
        """Nothing is looked at before `start`; `Around` says what the arguments are."""
        self._settings = settings
        self._clock = clock
        its = roots or Roots()
        here = Around(
            settings=settings,
            roots=its,
            packages=PackageOwners(its.usr.parent, lambda: is_container(its)),
            own_processes=own_processes,
            workloads=workloads,
            services=services,
            gpu_pods=gpu_pods,
            pool=PoolMemory(its.proc),
            habits=Habits(its),
            past=Past(its),
        )
        self.pool, self._habits, self._past = here.pool, here.habits, here.past
        self._watched: dict[str, Watched] = {}
        for name in SIGNALS:
            self._watch(name, here.signal_named(name), after_gpus=name == GpuProcessCpu.name)
        self._processes = here.signal(Processes)
        self._cpu = here.signal(Cpu)
        self._rdma = here.signal(Rdma)
        self._snoozes = here.signal(Snoozes)
        self._pods: Pods | None = None
        if own_processes and here.is_on("local_disks"):
            self._watch("local_disks", LocalDiskSignal(here.roots), evidence=False)
        people = here.signal(People)
        if own_processes and people is not None:
            signal, interval = logins.Logins(people, here.roots), settings.people.interval
            self._watched["logins"] = Watched(signal=signal, interval_seconds=interval, evidence=False)
        if self._processes is not None and here.is_on("pods"):
            self._pods = Pods(settings, here.roots, gpu_pods)
            self._watch("pods", self._pods, after_gpus=True, evidence=False)
        self.blind = BlindWatch(roots, enabled=settings.enabled and own_processes)
        self._readings: Callable[[], Iterable[GpuReading]] = tuple
        # Leaves out what gpuwatch itself has begun on this host, given all evidence and the time.
        self.without_own: Callable[[tuple[Evidence, ...], float], tuple[Evidence, ...]] = lambda found, _: found
        self._named_for: ProcessView | None = None
        self._names: dict[int, str] = {}
        watched = tuple(self._watched.values())
        self.watcher = HostWatcher(watched, clock, settings.deadline, self._people_on_gpus, self.processes)

    def _watch(self, name: str, signal: HostSignal | None, *, after_gpus: bool = False, evidence: bool = True) -> None:
        """Have that signal of a section looked at, if it is on."""
        if signal is not None:
            interval = getattr(self._settings, name).interval
            self._watched[name] = Watched(
                signal=signal, interval_seconds=interval, after_gpus=after_gpus, evidence=evidence
            )

    def start(self, readings: Callable[[], Iterable[GpuReading]], *, prepare: bool = True) -> None:
        """Begin; `readings` returns those of the last cycle, which list the GPU processes.

        Without `prepare` nothing is made on the host, not even the directory of the snoozes.
        """
        if prepare and self._snoozes is not None:
            directory = Path(self._settings.snooze.directory)
            try:
                make_directory(directory)
            except OSError as error:
                _LOG.warning("`gpuwatch snooze` cannot be used: %s: %s", error.strerror, directory)
        self._readings = readings
        self.watcher.start()
        self.blind.start()

    def keep_days(self, path: Path) -> None:
        """Remember over a restart who came and what programs do, in that file; to be called before `start`."""
        if self._processes is not None and self._habits is not None:
            self._habits.keep_in(path, self._past, self._clock.monotonic())

    def stop(self) -> None:
        """Stop looking for host evidence."""
        self.watcher.stop()
        self.blind.stop()
        if self._habits is not None:
            self._habits.save(self._clock.monotonic())

    def evidence(self, now_monotonic: float) -> tuple[Evidence, ...]:
        """What every signal says at that moment; never waits."""
        found = self.without_own(self.watcher.evidence(now_monotonic), now_monotonic)
        return found if self._past is None else self._past.judge(found, now_monotonic)

    def service_pids(self, holders: Iterable[GpuProcess]) -> frozenset[int]:
        """Those of the processes on the GPUs that are the machine's own; none if processes are not looked at."""
        return frozenset() if self._processes is None else self._processes.table.service_pids(holders)

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
        return None if self._processes is None else self._processes.table.view

    def local_disks(self, now_monotonic: float) -> LocalDisks | None:
        """Whether a stop would lose data on local disks; None: it is not known. Never waits."""
        disks = self._watched.get("local_disks")
        return None if disks is None else in_verdict(self.watcher.current(disks, now_monotonic))

    def login_free(self, now_monotonic: float) -> float | None:
        """For how long nobody has been logged in for certain; None: it is not known. Never waits."""
        seen = self._watched.get("logins")
        return None if seen is None else logins.in_verdict(self.watcher.current(seen, now_monotonic))

    def cpu_utilization(self, now_monotonic: float) -> float | None:
        """Share, 0 to 1, of the host's processor time used in the last minute; None: it is not known. Never waits."""
        cpu = self._cpu
        return None if cpu is None else cpu.utilization(self.watcher.current(self._watched["cpu"], now_monotonic))

    def pods(self, now_monotonic: float) -> Mapping[str, PodLook]:
        """What was seen of each pod with GPUs, by uid; a look that is late makes all of them unknown. Never waits."""
        if self._pods is None or self._processes is None:
            return {}
        looks = (self._watched["pods"], self._watched["processes"])
        now = (entry for each in looks for entry in self.watcher.current(each, now_monotonic))
        doubt = next((entry for entry in now if entry.says is State.UNKNOWN), None)
        return self._pods.with_processes(self._processes.of_pods, doubt)

    def answer(self, verdict: NodeVerdict, question: Question | None) -> NodeVerdict:
        """The verdict with what a controller's question about the pool asks for."""
        view = self.processes()
        used = None if view is None else view.census
        return self.pool.answer(verdict, question, used, self._clock.monotonic())

    def rdma_ports(self) -> tuple[RdmaPort, ...]:
        """The RDMA ports at the last look; none while a look at them is late."""
        rdma = self._rdma
        late = rdma is None or self.watcher.late(self._watched["rdma"], self._clock.monotonic())
        return () if rdma is None or late else rdma.ports

    def strangers(self) -> Mapping[str, float]:
        """CPU cores of programs that look as if a stranger runs them, by what is strange (strangers.py)."""
        view = self.processes()
        late = view is None or self.watcher.late(self._watched["processes"], self._clock.monotonic())
        return {} if view is None or late else {mark.value: used for mark, used in cores_of_strangers(view).items()}

    def snoozes(self) -> tuple[Snooze, ...]:
        """The snoozes of `gpuwatch snooze` that held at the last look."""
        return () if self._snoozes is None else self._snoozes.current


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
        """Return the one finding of the command."""
        del now
        ran = run(self._argv, self._deadline_seconds)
        status = ran.status
        if _SAYS.get(status) is State.IDLE and ran.complained:
            raise UnseenError(f"{self._argv[0]} ended with status {status}, which is idle, and wrote to standard error")
        if status not in _SAYS:
            ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            raise UnseenError(f"{self._argv[0]} {ended}; 0 would be busy, 1 idle")
        return (make_finding(self, _SAYS[status], None, observed=status, limit=None, unit="exit status"),)
