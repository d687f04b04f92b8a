"""People's programs: whether one is alive on the host, and whether one of them gets on with its work.

Rules, all of them:

1. `agent.processes.kinds` attributes each process. A program of the machine's own never counts here.
2. Busy: people's programs together use more CPU than `busy_cores`, or read and write more than
   `busy_bytes_per_second`, both over a minute; or a program began that lives for a minute; or one sleeps for an hour
   or more (`sleep 6h; python train.py`), until its time is over. So is one at rest while a serial line moves.
3. What a login leaves alive (a shell, sshd, tmux) is no work, but its own CPU time and traffic above a higher limit
   are: a tunnel, a transfer. What viewers (top, watch, tail) use never counts. A container runtime that pulls or
   builds an image works for somebody; so does a package's program that no list names (a database builds an index, above
   what it usually uses: `own_past`), and what is the machine's own only because its pool has it.
4. Occupied: somebody's program is alive and does none of this. Idle: nobody's program is alive.
5. The machine's own programs that install software are doubt for their first hour: a stop leaves half of it.
6. A job of root's cron counts as doubt for its first ten minutes, and as people's work from then on.
7. CPU time of processes that hold a GPU is judged by `gpu_process_cpu`, a pod without a container by `sandboxes`.
8. What days have shown to recur without a GPU is the machine's own (`habits`). A heavy run of it is doubt named `hum`.
"""

import os
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from gpuwatch.agent.attribution.process import user_name
from gpuwatch.agent.evidence.base import Moment, Roots, UnseenError, make_finding, several
from gpuwatch.agent.evidence.files import moved_bytes, read_small, sleep_seconds
from gpuwatch.agent.evidence.habits import HEAVY_HUM, Habits, Used, words_of
from gpuwatch.agent.evidence.own_past import OwnPast
from gpuwatch.agent.evidence.sandboxes import Sandboxes
from gpuwatch.agent.evidence.serial_lines import SerialLines
from gpuwatch.agent.evidence.settings import WorkSettings
from gpuwatch.agent.processes.kinds import CRON_JOB, HUM, VIEWER, installs
from gpuwatch.agent.processes.packages import PackageOwners
from gpuwatch.agent.processes.pool import PoolMemory, may_work_for_people, said_of
from gpuwatch.agent.processes.process import Kind, Process, ProcessView, owner_of
from gpuwatch.agent.processes.shells import HostsShells, ShellLooks
from gpuwatch.agent.processes.table import ProcessTable, TableError
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.duration import format_duration

_SPAN_SECONDS = 60.0
_SHORTEST_SPAN_SECONDS = 1.0  # over less, one tick of the clock that CPU time is counted in would look like work
_SETTLED_SECONDS = 60.0  # a process that lives this long is a program that somebody began, and no health check
_LONG_SLEEP_SECONDS = 3600.0
_LONGEST_SLEEP_SECONDS = 7 * 86400.0
_REMEMBERED_SECONDS = 86400.0
_INSTALL_SECONDS = 3600.0
_SESSION_CORES = 0.05
_SESSION_BYTES_PER_SECOND = 200e3
_RUNTIME_CORES = 0.8
_RUNTIME_BYTES_PER_SECOND = 5e6
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_UPTIME = re.compile(r"\d+\.\d+", re.ASCII)
_PREFIX = "agent.evidence.processes"

_Key = tuple[int, int]  # pid and start


@dataclass(frozen=True, slots=True)
class _Rates:
    """Cores and bytes per second of some processes together, and the one that used most."""

    cores: float = 0.0
    bytes_per_second: float = 0.0
    largest: Process | None = None


_Before = tuple[float, Mapping[_Key, Used]] | None  # the look to compare with


class Processes:
    """Busy while people's programs work, occupied while one is alive, idle without any."""

    name = "processes"
    source = "/proc: programs of users, containers and jobs"

    def __init__(  # noqa: PLR0913  what it looks with
        self,
        settings: WorkSettings,
        roots: Roots,
        *,
        workloads: Iterable[str] = (),
        services: Iterable[str] = (),
        pool: PoolMemory | None = None,
        pods: Callable[[], Collection[str]] = tuple,
        packages: PackageOwners | None = None,
        on_look: Callable[[ProcessView, Collection[int], float], None] = lambda *_: None,
        shells: ShellLooks | None = None,
        habits: Habits | None = None,
    ) -> None:
        """`workloads` and `services` are the administrator's patterns of processes.

        `pods` returns the uids of those that are looked at one by one, `packages` knows the owners of files. `on_look`
        gets each view, and must not wait. `shells` looks at what shells wait for: at the host's own, if None.
        """
        self._settings = settings
        self._roots = roots
        self.table = ProcessTable(
            roots.proc,
            roots.etc,
            roots.usr,
            roots.run,
            roots.var / "log/pods",
            packages=packages,
            shells=shells or HostsShells(roots.proc, roots.dev),
            pool=pool,
        )
        self.table.use(workloads, services)
        self._looks: deque[tuple[float, Mapping[_Key, Used]]] = deque()
        self._begun: dict[tuple[_Key, str], tuple[float, int]] = {}  # by parent and name: last seen, pid
        self._first, self._past = True, OwnPast()
        self.habits = habits or Habits(roots)
        self._before: _Before = None
        self._pods, self._on_look = pods, on_look
        self._sandboxes, self._lines = Sandboxes(), SerialLines(roots.dev)
        self.of_pods: Mapping[str | None, Evidence] = {}  # by uid; None: what is in no pod

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding over all processes."""
        try:
            view = self.table.read_processes(now.monotonic_seconds, lambda seen: self._judge_habits(seen, now))
        except TableError as error:
            raise UnseenError(str(error)) from None
        self._on_look(view, now.gpu_pids or (), now.monotonic_seconds)
        people = list(view.people())
        counted = {process.pid: process for process in people if process.pid not in self.habits.steady}
        session = {
            process.pid: process
            for process in view.processes.values()
            if process.kind is Kind.SESSION and process.rule != VIEWER
        }
        runtime = {
            process.pid: process
            for process in view.processes.values()
            if process.kind is Kind.SERVICE and may_work_for_people(process)
        }
        hum = {pid: runtime.pop(pid) for pid in tuple(runtime) if runtime[pid].rule.startswith(HUM)}
        before = self._before
        begun = self._new_programs(people, view)
        self.of_pods = self._by_pod(people, view, begun, before, now) if view.doubt is None else {}
        unusual = self._past.find_unusual(self, view, self._uptime())
        if (busy := self._at_work(counted, session, runtime, view, begun, before, now) or unusual) is not None:
            return (busy,)
        if view.doubt is not None:
            raise UnseenError(view.doubt)
        rest = self._sandboxes.judge(self, self._at_rest(people, view, now), view)
        return (rest, *self._heavy_hum(hum, before, now))

    def _judge_habits(self, view: ProcessView, now: Moment) -> ProcessView:
        """The look with what days have shown of its processes."""
        looked = {
            process.pid: process
            for process in view.processes.values()
            if process.kind is Kind.PEOPLE
            or (process.kind is Kind.SESSION and process.rule != VIEWER)
            or process.rule == CRON_JOB
            or (process.kind is Kind.SERVICE and may_work_for_people(process))
        }
        self._before = self._remember(now, looked)
        hum = self.habits.judge(view, now, self._looks[-1][1], self._uptime())
        return replace(view, processes={**view.processes, **hum}) if hum else view

    def _heavy_hum(self, hum: Mapping[int, Process], before: _Before, now: Moment) -> tuple[Evidence, ...]:
        """Doubt while a run of hum uses much: it is not cut off, and stops no clock."""
        if before is None or not hum:
            return ()
        rates = self._rates(hum, before, now.monotonic_seconds, now.gpu_pids or frozenset())
        if rates.cores <= _RUNTIME_CORES and rates.bytes_per_second <= _RUNTIME_BYTES_PER_SECOND:
            return ()
        return (make_finding(HEAVY_HUM, State.UNKNOWN, f"a job that recurs is at work: {words_of(hum.values())}"),)

    def _at_work(
        self,
        counted: Mapping[int, Process],
        session: Mapping[int, Process],
        runtime: Mapping[int, Process],
        view: ProcessView,
        begun: Collection[Process],
        before: _Before,
        now: Moment,
    ) -> Evidence | None:
        """Rule 2 for these processes: busy, or nothing."""
        working = self._working(counted, session, runtime, before, now)
        if working is not None:
            return working
        new = [each for each in begun if each.pid in counted]
        if new:
            return self._say(State.BUSY, f"a program began: {_name_process(new[-1])}", new[-1], None, None, "")
        sleeper = self._sleeper(counted.values(), view)
        if sleeper is None:
            return None
        process, left = sleeper
        note = f"{_name_process(process)} waits for another {format_duration(left)}"
        return self._say(State.BUSY, note, process, None, None, "")

    def _by_pod(
        self, people: list[Process], view: ProcessView, begun: Collection[Process], before: _Before, now: Moment
    ) -> dict[str | None, Evidence]:
        """The same for each pod that is looked at by itself, and for people's programs that are in no pod."""
        groups: dict[str | None, dict[int, Process]] = {None: {}, **{uid: {} for uid in self._pods()}}
        for process in people:
            if (group := groups.get(process.placement.pod_uid)) is not None:
                group[process.pid] = process
        found: dict[str | None, Evidence] = {}
        for uid, group in groups.items():
            says = self._at_work(group, {}, {}, view, begun, before, now)
            hung = next((each for each in group.values() if each.state == "D"), None)
            if says is None and hung is not None and uid is not None:
                says = make_finding(self, State.UNKNOWN, f"{_name_process(hung)} waits for a device")
            found[uid] = says or make_finding(self, State.IDLE, None)
        return found

    def _at_rest(self, people: list[Process], view: ProcessView, now: Moment) -> Evidence:
        """Nobody's program works: occupied, in doubt, or idle."""
        jobs = [each for each in view.processes.values() if each.rule == CRON_JOB and each.kind is not Kind.PEOPLE]
        if jobs and not people:
            note = f"a job of root's cron runs: {_name_process(jobs[0])}"
            return make_finding(self, State.UNKNOWN, note, owner=owner_of(jobs[0], user_name(jobs[0].uid)))
        if not people and (installer := self._installer(view)) is not None:
            note = f"{_name_process(installer)} changes the software of the machine"
            return make_finding(self, State.UNKNOWN, note, owner=owner_of(installer, user_name(installer.uid)))
        if not people:
            usual = (said_of(view.processes.values()), words_of(view.processes.values()))
            note = "; ".join(("no program of a user, a container or a job is alive", *filter(None, usual)))
            return self._say(State.IDLE, note, None, 0, 1, "programs")
        newest = sorted(people, key=lambda each: (-each.started_ticks, -each.pid))[:3]
        note = several([*map(_name_process, newest)], 3, of=len(people))
        if (line := self._lines.find_moving(now, view.processes.values())) is not None:
            return self._say(State.BUSY, f"{note}; a serial line ({line}) moves", newest[0], None, None, "")
        steady = next((f"; {each.name} {words}" for each in people if (words := self.habits.steady.get(each.pid))), "")
        return self._say(State.OCCUPIED, f"alive and at rest: {note}{steady}", newest[0], len(people), 1, "programs")

    def _installer(self, view: ProcessView) -> Process | None:
        """A program of the machine's own that installs software; one that has hung for an hour is left."""
        uptime = self._uptime()
        for process in view.processes.values():
            if process.kind is Kind.SERVICE and installs((process.name, process.executable or "")):
                age = 0.0 if uptime is None else uptime - process.started_ticks / _TICKS_PER_SECOND
                if age < _INSTALL_SECONDS:
                    return process
        return None

    def _remember(self, now: Moment, counted: Mapping[int, Process]) -> _Before:
        """Keep what these have used; the look to compare with, which is a minute ago or the oldest."""
        looks, at = self._looks, now.monotonic_seconds
        used = {}
        for process in counted.values():
            seconds = process.cpu_seconds + process.reaped_seconds
            used[process.pid, process.started_ticks] = Used(seconds, moved_bytes(f"{self._roots.proc}/{process.pid}"))
        if looks and at <= looks[-1][0]:
            looks.clear()
        looks.append((at, used))
        while len(looks) > 2 and at - looks[1][0] >= _SPAN_SECONDS:  # noqa: PLR2004  this look, and one before it
            looks.popleft()
        first = looks[0]
        return first if at - first[0] >= _SHORTEST_SPAN_SECONDS else None

    def _working(
        self,
        counted: Mapping[int, Process],
        session: Mapping[int, Process],
        runtime: Mapping[int, Process],
        before: _Before,
        now: Moment,
    ) -> Evidence | None:
        """Busy evidence by CPU time or traffic since the look before."""
        if before is None:
            return None
        gpu = now.gpu_pids or frozenset()
        limits = (self._settings.busy_cores, self._settings.busy_bytes_per_second)
        for processes, (cores, most) in (
            (counted, limits),
            (session, (max(_SESSION_CORES, limits[0]), max(_SESSION_BYTES_PER_SECOND, limits[1]))),
            (runtime, (_RUNTIME_CORES, _RUNTIME_BYTES_PER_SECOND)),
        ):
            rates = self._rates(processes, before, now.monotonic_seconds, gpu)
            largest, moved = rates.largest, rates.bytes_per_second
            note = "nobody" if largest is None else _name_process(largest)
            if rates.cores > cores:
                return self._say(State.BUSY, note, largest, rates.cores, cores, "cores", f"{_PREFIX}.busy_cores")
            if moved > most:
                setting = f"{_PREFIX}.busy_bytes_per_second"
                return self._say(State.BUSY, note, largest, moved, most, "bytes per second", setting)
        return None

    def _rates(
        self,
        processes: Mapping[int, Process],
        before: tuple[float, Mapping[_Key, Used]],
        at: float,
        gpu_pids: frozenset[int],
    ) -> _Rates:
        """What these used per second since the look before; one that began since is counted whole."""
        then, known = before
        newest = self._looks[-1][1]
        span = at - then
        cores = moved = 0.0
        shares: dict[int, float] = {}
        for process in processes.values():
            key = (process.pid, process.started_ticks)
            used, old = newest[key], known.get(key, Used(0.0, 0))
            if key not in known and not self._began_since(process, span):
                old = used  # seen for the first time, and older than the look before
            seconds = 0.0 if process.pid in gpu_pids else max(0.0, used.cpu_seconds - old.cpu_seconds)
            grown = 0.0
            if used.moved_bytes is not None and old.moved_bytes is not None:
                grown = max(0.0, used.moved_bytes - old.moved_bytes)
            cores += seconds / span
            moved += grown / span
            shares[process.pid] = seconds / self._settings.busy_cores + grown / self._settings.busy_bytes_per_second
        largest = max(processes.values(), key=lambda each: shares[each.pid], default=None)
        return _Rates(cores, moved, largest)

    def _began_since(self, process: Process, seconds: float) -> bool:
        """Whether it began within so many seconds; True where that is unknown."""
        uptime = self._uptime()
        return uptime is None or uptime - process.started_ticks / _TICKS_PER_SECOND <= seconds + 1.0

    def _new_programs(self, people: list[Process], view: ProcessView) -> list[Process]:
        """The programs that began and have lived for a minute, seen for the first time.

        The next child of the same parent with the same name does not count: a loop that sleeps, a server's worker.
        """
        at, uptime = view.monotonic_seconds, self._uptime()
        found = []
        for process in people:
            age = _SETTLED_SECONDS if uptime is None else uptime - process.started_ticks / _TICKS_PER_SECOND
            if age < _SETTLED_SECONDS:
                continue
            key = _origin(process, view)
            if key not in self._begun and not self._first:
                found.append(process)
            self._begun[key] = (at, self._begun.get(key, (at, process.pid))[1])
        self._first = False
        self._begun = {key: seen for key, seen in self._begun.items() if at - seen[0] < _REMEMBERED_SECONDS}
        return found

    def _is_first(self, process: Process, view: ProcessView) -> bool:
        """Whether it is the first of its name that its parent began."""
        known = self._begun.get(_origin(process, view))
        return known is None or known[1] == process.pid

    def _sleeper(self, people: Iterable[Process], view: ProcessView) -> tuple[Process, float] | None:
        """A `sleep` of an hour or more that is not over, with the seconds left; not the next round of a loop."""
        uptime = self._uptime()
        for process in people:
            if process.name != "sleep" or uptime is None:
                continue
            asked = sleep_seconds(self._roots.proc / str(process.pid))
            left = process.started_ticks / _TICKS_PER_SECOND + asked - uptime
            if _LONG_SLEEP_SECONDS <= asked <= _LONGEST_SLEEP_SECONDS and left > 0 and self._is_first(process, view):
                return process, left
        return None

    def _uptime(self) -> float | None:
        try:
            found = _UPTIME.match(read_small(self._roots.proc / "uptime").text)
        except (OSError, UnseenError):
            return None
        return None if found is None else float(found.group())

    def _say(
        self,
        says: State,
        note: str,
        process: Process | None,
        observed: float | None,
        limit: float | None,
        unit: str,
        setting: str = "agent.services",
    ) -> Evidence:
        owner = None if process is None else owner_of(process, user_name(process.uid))
        return make_finding(
            self,
            says,
            note,
            observed=observed,
            limit=limit,
            unit=unit,
            owner=owner,
            setting=None if process is None else setting,
        )


def _origin(process: Process, view: ProcessView) -> tuple[_Key, str]:
    """The parent that began it, and its name; orphans of all programs share a parent, so they stand for themselves."""
    parent = view.processes.get(process.parent)
    if parent is None or process.parent == 1:
        return (process.pid, process.started_ticks), process.name
    return (parent.pid, parent.started_ticks), process.name


def _name_process(process: Process) -> str:
    """A process in a message: `alice's python3 (pid 4711, session-3.scope)`."""
    owner = owner_of(process, user_name(process.uid))
    where = f", {owner.unit}" if owner.unit else ""
    state = ", stopped" if process.state in {"T", "t"} else ""
    return f"{owner.user}'s {process.name} (pid {process.pid}{where}{state})"
