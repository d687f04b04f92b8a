"""The process table: one look at /proc, with the kind of each process.

A look reads one small file of each process. Who a process is (user, control group, program) is read once, again when
its name changes (a program was executed), and whenever its age has doubled. A login moves sshd into the session's
group, a server gives up root, and a look between fork and exec sees the parent's copy.
"""

import os
import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.agent.attribution.cgroup import Placement, parse_cgroup, slice_of
from gpuwatch.agent.attribution.process import sees_host_pids, user_name
from gpuwatch.agent.processes import kinds, parents, programs
from gpuwatch.agent.processes.packages import OwnerOf, PackageOwners, owner_not_known
from gpuwatch.agent.processes.patterns import Pattern
from gpuwatch.agent.processes.pod_namespaces import PodNamespaces
from gpuwatch.agent.processes.pool import PoolMemory
from gpuwatch.agent.processes.process import Kind, Process, ProcessView
from gpuwatch.agent.processes.programs import read_beginning
from gpuwatch.agent.processes.shells import HostsShells, ShellLooks, shells_at_work
from gpuwatch.agent.processes.units import UnitFiles
from gpuwatch.model.gpu import GpuProcess, ProcessKind
from gpuwatch.runtime.printable import legible

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_MOST_PROCESSES = 1 << 18
_KERNEL_FLAG, _FORKED_FLAG = 0x00200000, 0x40  # PF_KTHREAD, PF_FORKNOEXEC
_KTHREADD = 2
_SPAN_SECONDS = 60.0
_ASK_AFTER = 128  # processes of unknown owners; then after four times as many
_GONE = (FileNotFoundError, ProcessLookupError)
_UPTIME = re.compile(rb"(\d+\.\d+) ", re.ASCII)
_STATUS_UID = re.compile(rb"^Uid:\t[0-9]+\t([0-9]{1,10})\t", re.MULTILINE)
# Fields of /proc/<pid>/stat, counted from the one after the name (proc(5): state is field 3).
_PPID, _MINFLT = 1, 7  # parent, group, session, terminal, its group, flags, minor faults
_UTIME, _STIME, _CUTIME, _CSTIME, _START = 11, 12, 13, 14, 19
_Alike = tuple[Kind, str, str | None]  # kind, rule, and name in the fleet


class TableError(Exception):
    """The processes cannot be listed; the message says why."""


@dataclass(slots=True)  # a frozen one takes three times as long to make
class _Known:
    """Who a process is, as long as its name stays; `age_seconds` when that was read, None: not known."""

    age_seconds: float | None
    name: str
    executable: str | None
    uid: int
    placement: Placement
    kind: Kind
    rule: str
    shared: str | None
    strange: str | None = None


class ProcessTable:
    """Keeps the newest look. One thread looks; any may read `view` and ask for `service_pids`."""

    def __init__(  # noqa: PLR0913  what it looks with
        self,
        proc: Path,
        etc: Path,
        usr: Path,
        run: Path,
        pod_logs: Path = Path("/var/log/pods"),
        *,
        packages: PackageOwners | None = None,
        shells: ShellLooks | None = None,
        pool: PoolMemory | None = None,
    ) -> None:
        """Nothing is read yet. Without `packages` no file's owner is known."""
        self._packages = packages
        self._unsure: set[tuple[int, int]] = set()  # of what these run nothing was known yet
        self._turn = 0
        self._names: dict[int, str] = {}  # of users, as asked for in this look
        self._alike: dict[tuple[object, ...], _Alike] = {}  # of this look: most of 5,000 processes are like others
        self.pool = pool or PoolMemory(proc)
        self._pods = PodNamespaces(pod_logs)
        self._shells = shells or HostsShells(proc, Path("/dev"))
        self._proc = proc
        self._units = UnitFiles(etc=etc, usr=usr, run=run)
        self._workloads: tuple[Pattern, ...] = ()
        self._services: tuple[Pattern, ...] = ()
        self._known: dict[tuple[int, int], _Known] = {}
        self._used: deque[tuple[float, dict[tuple[int, int], float]]] = deque()  # CPU seconds
        self._on_gpu: dict[tuple[int, int, str, bool], bool] = {}  # whether a process on a GPU is the machine's own
        self.view: ProcessView | None = None

    def use(self, workloads: Iterable[str], services: Iterable[str]) -> None:
        """Take the administrator's patterns, which come before all other rules."""
        self._workloads, self._services = (tuple(map(Pattern.from_text, each)) for each in (workloads, services))

    def read_processes(
        self, monotonic_seconds: float, judge: Callable[[ProcessView], ProcessView] = lambda view: view
    ) -> ProcessView:
        """Read all processes; `judge` has the last word about them before others see them.

        Raises:
            OSError: they cannot be listed.
            TableError: there are more than can rightly be.

        """
        uptime = self._uptime()
        self._names, self._alike = {}, {}
        found: dict[int, Process] = {}
        known: dict[tuple[int, int], _Known] = {}
        self._forget_unsure()
        soon = _ASK_AFTER
        for number, pid in enumerate(self._pids()):
            if number >= _MOST_PROCESSES:
                raise TableError(f"more than {_MOST_PROCESSES} processes run")
            process = self._read(pid, uptime, known)
            if process is not None:
                found[pid] = process
            if len(self._unsure) >= soon:  # most run the same few programs
                found |= self._with_owners(uptime, monotonic_seconds, known)
                soon *= 4
        self._known = known
        found |= self._with_owners(uptime, monotonic_seconds, known)
        found |= parents.looking_on(found, uptime)
        found |= parents.of_roots_cron(found, uptime)
        found |= parents.of_agents(found)
        found |= shells_at_work(found, self._shells)
        of_pool, census = self.pool.judge(found, monotonic_seconds, uptime)
        found |= of_pool
        doubt = None if sees_host_pids(self._proc) else "the agent does not see all processes of the host"
        view = ProcessView(
            monotonic_seconds=monotonic_seconds,
            processes=found,
            doubt=doubt,
            cores=self._cores(monotonic_seconds, found),
            census=census,
        )
        self._alike = {}
        self.view = view = judge(view)
        return view

    def _forget_unsure(self) -> None:
        """Have those read again that run files with owners that may be known by now."""
        if self._packages is None:
            return
        self._packages.look_again()
        turn = self._packages.turn
        if turn != self._turn:
            self._turn, self._known = turn, {}
        for key in self._unsure:
            self._known.pop(key, None)
        self._unsure = set()

    def _with_owners(self, uptime: float | None, at: float, known: dict[tuple[int, int], _Known]) -> dict[int, Process]:
        """Those that run what nothing was known of, read again once the databases of packages have answered."""
        again: dict[int, Process] = {}
        if self._packages is None or not self._packages.ask(at):
            if self._packages is None or self._packages.is_closed():
                self._unsure = set()
            return again
        unsure, self._unsure = self._unsure, set()
        for key in unsure:
            known.pop(key, None)
            self._known.pop(key, None)
            process = self._read(key[0], uptime, known)
            if process is not None:
                again[key[0]] = process
        return again

    def service_pids(self, holders: Iterable[GpuProcess]) -> frozenset[int]:
        """Those of the processes on the GPUs that are the machine's own: health checks, the screen.

        Never waits: the arguments of a process that hangs in the driver cannot be read, so they are not asked for.
        """
        known: dict[tuple[int, int, str, bool], bool] = {}
        computing = {each.pid: False for each in holders}
        computing |= {each.pid: True for each in holders if each.kind is ProcessKind.COMPUTE}
        own: set[int] = set()
        for pid, computes in computing.items():
            try:
                name, started = self._name_and_start(pid)
                key = (pid, started, name, computes)
                is_own = self._on_gpu.get(key)
                if is_own is None:
                    is_own = self._is_own_on_gpu(pid, name, computes=computes)
            except (OSError, ValueError, IndexError):
                continue
            known[key] = is_own
            if is_own:
                own.add(pid)
        self._on_gpu = known
        return frozenset(own)

    def _name_and_start(self, pid: int) -> tuple[str, int]:
        head, _, tail = read_beginning(f"{self._proc}/{pid}/stat").rpartition(b")")
        return _short_name(head), int(tail.split()[_START])

    def _is_own_on_gpu(self, pid: int, name: str, *, computes: bool) -> bool:
        """By its names, user and group alone."""
        folder = f"{self._proc}/{pid}"
        uid, text = _uid(folder), read_beginning(f"{folder}/cgroup").decode("utf-8", "replace")
        placement, names = parse_cgroup(text), programs.names_of(name, programs.executable(folder))
        self.pool.note_gpu(placement.systemd_unit)
        facts = kinds.Facts(names=names, uid=uid, user=user_name(uid), placement=placement, slice=slice_of(text))
        chosen = kinds.by_patterns(facts, self._workloads, self._services)
        if chosen is not None:
            return chosen[0] is Kind.SERVICE
        return kinds.may_use_gpu_unseen(facts, computes=computes)

    def _pids(self) -> Iterable[int]:
        with os.scandir(self._proc) as entries:
            for entry in entries:
                if entry.name.isdecimal():
                    yield int(entry.name)

    def _uptime(self) -> float | None:
        """Seconds since boot, by the clock of start times; None if it cannot be read."""
        try:
            found = _UPTIME.match(read_beginning(self._proc / "uptime"))
        except OSError:
            return None
        return None if found is None else float(found[1])

    def _read(self, pid: int, uptime: float | None, known: dict[tuple[int, int], _Known]) -> Process | None:
        """One process; None if it has ended.

        Raises:
            OSError: it is there and cannot be read.

        """
        folder = f"{self._proc}/{pid}"
        try:
            data = read_beginning(f"{folder}/stat")
        except _GONE:
            return None
        head, _, tail = data.rpartition(b")")
        fields = tail.split()
        try:
            parent, group, session, tty, foreground, flags, faults = map(int, fields[_PPID : _MINFLT + 1])
            used, reaped = int(fields[_UTIME]) + int(fields[_STIME]), int(fields[_CUTIME]) + int(fields[_CSTIME])
            started = int(fields[_START])
            state = fields[0].decode("ascii")
        except (IndexError, ValueError, UnicodeDecodeError):
            raise OSError(5, "is not what proc(5) says", f"{folder}/stat") from None
        name = _short_name(head)
        key = (pid, started)
        age = None if uptime is None else uptime - started / _TICKS_PER_SECOND
        who = known.get(key) or self._known.get(key)
        # One that waits for a device is left: the arguments of a process that hangs in the driver cannot be read.
        if who is None or who.name != name or (state != "D" and _has_doubled(who.age_seconds, age)):
            kernel = bool(flags & _KERNEL_FLAG) or _KTHREADD in {pid, parent}
            misses = self._misses()
            who = self._identify(folder, name, age, kernel=kernel, tty=tty != 0)
            if who is None:
                return None
            if self._misses() != misses:
                self._unsure.add(key)
        known[key] = who
        kind, rule = who.kind, who.rule
        if rule == kinds.CRON_JOB:
            kind = parents.of_cron_job(age)
        return Process(
            pid=pid,
            started_ticks=started,
            parent=parent,
            group=group,
            session=session,
            tty=tty,
            state=state,
            name=name,
            executable=who.executable,
            uid=who.uid,
            placement=who.placement,
            cpu_seconds=used / _TICKS_PER_SECOND,
            reaped_seconds=reaped / _TICKS_PER_SECOND,
            minor_faults=faults,
            kind=kind,
            rule=rule,
            foreground=foreground,
            forked=bool(flags & _FORKED_FLAG),
            shared=who.shared,
            strange=who.strange,
        )

    def _identify(self, folder: str, name: str, age: float | None, *, kernel: bool, tty: bool) -> _Known | None:
        """Who a process is; what may not be read is left open."""
        misses = self._misses()
        try:
            uid = 0 if kernel else _uid(folder)
        except _GONE:
            return None
        try:
            text = read_beginning(f"{folder}/cgroup").decode("utf-8", "replace")
        except OSError:
            text = ""
        placement, slice_name, program = parse_cgroup(text), slice_of(text), programs.Program(name)
        owner_of = self._owner_of(placement, slice_name)
        if not kernel:
            starts = self._units.starts(placement.systemd_unit)
            program = programs.program_of(folder, name, starts, owner_of, tty=tty)
        key = (program, text, uid, kernel, tty)
        if (alike := self._alike.get(key)) is None:
            alike = self._classify(program, placement, slice_name, uid, owner_of, kernel=kernel, tty=tty)
            if self._misses() == misses:
                self._alike[key] = alike
        kind, rule, shared = alike
        return _Known(age, name, program.executable, uid, placement, kind, rule, shared, program.strange)

    def _classify(
        self,
        program: programs.Program,
        placement: Placement,
        slice_name: str,
        uid: int,
        owner_of: OwnerOf,
        *,
        kernel: bool,
        tty: bool,
    ) -> _Alike:
        """The kind of a process, the rule that says so, and its name in the fleet."""
        unit = placement.systemd_unit
        facts = kinds.Facts(
            names=program.names,
            own_script=program.own_script,
            own_file=program.own_file,
            own_work=program.own_work,
            by_hand=program.by_hand,
            of_agent=program.of_agent,
            of_nobody=program.of_nobody,
            unproven=program.unproven,
            of_cluster=kinds.is_clusters(self._pods.namespace_of(placement.pod_uid)),
            timed=self._units.is_timed(unit, owner_of),
            uid=uid,
            user=self._names.get(uid) or self._names.setdefault(uid, user_name(uid)),
            placement=placement,
            slice=slice_name,
            kernel=kernel,
            script=program.runs_script,
            tty=tty,
            origin=self._units.origin(unit, owner_of),
        )
        kind, rule = kinds.classify(facts, self._workloads, self._services)
        return kind, rule, kinds.name_in_fleet(facts, program.path)

    def _misses(self) -> int:
        """How many files were looked up of which no owner is known yet."""
        return 0 if self._packages is None else self._packages.misses

    def _owner_of(self, placement: Placement, slice_name: str) -> OwnerOf:
        """What finds the owner of a file; of what runs in a container no database of this host speaks."""
        contained = placement.container_id is not None or placement.pod_uid is not None
        if self._packages is None or contained or kinds.is_system_container(slice_name):
            return owner_not_known
        return self._packages.owner

    def _cores(self, at: float, found: dict[int, Process]) -> dict[int, float]:
        """CPU cores over the last minute by pid; of the machine's own programs with their ended children."""
        used = {
            (process.pid, process.started_ticks): process.cpu_seconds
            + (process.reaped_seconds if process.kind is Kind.SERVICE else 0.0)
            for process in found.values()
        }
        looks = self._used
        if looks and at <= looks[-1][0]:
            looks.clear()
        looks.append((at, used))
        while len(looks) > 2 and at - looks[1][0] >= _SPAN_SECONDS:  # noqa: PLR2004  this look, and one before it
            looks.popleft()
        first, before = looks[0]
        if at <= first:
            return {}
        grown = {key[0]: (seconds - before[key]) / (at - first) for key, seconds in used.items() if key in before}
        return {pid: cores for pid, cores in grown.items() if cores > 0.0}


def _has_doubled(then: float | None, now: float | None) -> bool:
    """Whether a process was at most half as old when it was read."""
    return then is not None and now is not None and now >= 2 * then


def _short_name(head: bytes) -> str:
    """The name in the part of /proc/<pid>/stat before its last bracket."""
    return legible(head.partition(b"(")[2].decode("utf-8", "replace"), 64)


def _uid(folder: str) -> int:
    """Its effective user. The owner of its folder is root where a program must not be looked into."""
    owner = os.stat(folder).st_uid  # noqa: PTH116  thousands of times
    if owner != 0:
        return owner
    try:
        found = _STATUS_UID.search(read_beginning(f"{folder}/status"))
    except OSError:  # if it has ended, its folder is gone, too
        found = None
    return owner if found is None else int(found[1])
