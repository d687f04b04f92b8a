"""What programs on this host do day by day, noted at each look at the processes; `activity.days` has the rules.

Rules of what is noted, all of them:

1. The machine's own jobs come and go: what root or a service's user runs below cron or in a unit, with all that it
   began. People's logins, containers, pods, Slurm's jobs and servers of models are left out.
2. Of everybody's other programs only those that stay are noted, once they are an hour old.
3. A look without a list of what holds the GPUs notes nothing, and finds no hum. Nor is a program hum of which it cannot
   be seen what it reads and writes. Where that cannot be seen of any program (an agent in a container), what stays is
   judged by its cores: its bytes are no evidence there, and the host's disks and network are.
4. A run of hum is the machine's own while it is light, and doubt that stops no clock while it is not: a backup is not
   cut off, and the machine is at rest again afterwards. A program at rest that stays is somebody's, and no work.
5. A port that others ask at the same hour each day is due at that hour (`activity.asked`).
"""

import os
from binascii import crc32
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from re import compile as expression

from gpuwatch.agent.activity.asked import HOUR_SECONDS, MOST_PORTS, after_asks, due_hours
from gpuwatch.agent.activity.days import DAY_SECONDS, EMPTY, HUM, MOST_STARTERS, Run
from gpuwatch.agent.attribution.process import user_name
from gpuwatch.agent.evidence.base import Moment, Roots
from gpuwatch.agent.evidence.files import ENDED
from gpuwatch.agent.evidence.habits_file import HabitsFile
from gpuwatch.agent.evidence.past import Past
from gpuwatch.agent.evidence.scheduled.planned import Planned
from gpuwatch.agent.evidence.tunnels import is_onward
from gpuwatch.agent.processes import kinds
from gpuwatch.agent.processes.process import Kind, Process, ProcessView, from_cron
from gpuwatch.agent.processes.programs import read_beginning

_SAVE_SECONDS, _SAVE_NEWS_SECONDS = 600.0, 60.0
_SPAN_SECONDS = 10.0  # over which what a program uses is measured
_STAYS_SECONDS = 3600.0
_YOUNG_SECONDS = 3600.0  # what has held a GPU for longer began before the agent looked
_MOST_CANDIDATES = 1024  # a machine with more programs of people is not at rest
_FIRST_PERSON, _NOBODY = 1000, 65534
_PLAN_SECONDS, _PLAN_SLACK_SECONDS = 18000.0, 120.0  # what began so soon after its time is of a planned job
_NOTHING = Run(seconds=0.0, cores=0.0, bytes_per_second=0.0)
_NUMBERS = expression(rb"[0-9]+")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_WORK_RULES = frozenset({"model server or tool", "batch job", "batch system", "Slurm job", "container"})
_MOST_PARENTS = 32

_Key = tuple[int, int]  # pid and start


class _HeavyHum:
    """The origin of doubt that stops no clock."""

    name = HUM
    source = "/proc: what days have shown to recur"


HEAVY_HUM = _HeavyHum()


@dataclass(frozen=True, slots=True)
class Used:
    """What a process had used at a look: CPU seconds with those of its ended children, bytes read and written."""

    cpu_seconds: float
    moved_bytes: int | None


@dataclass(frozen=True, slots=True)
class _Measured:
    """What a program and all that it began had used at a moment, and what they used per second until then."""

    at: float
    cpu_seconds: float
    moved_bytes: int
    cores: float
    bytes_per_second: float


class Habits:
    """Judges each look; one thread calls it."""

    def __init__(self, roots: Roots) -> None:
        """Nothing is remembered yet."""
        self._proc = roots.proc
        self.week = EMPTY
        self._keys: dict[tuple[int, int, str], str | None] = {}
        self._measured: dict[_Key, _Measured] = {}
        self._passed: deque[str] = deque(maxlen=MOST_STARTERS)
        self._came: deque[tuple[str, int]] = deque(maxlen=MOST_PORTS)
        self._plans: dict[str, float] = {}
        self._looked_at: float | None = None
        self._file: HabitsFile | None = None
        self._past: Past | None = None
        self._saved: tuple[float, object] | None = None  # when, and what there was of news
        self.steady: Mapping[int, str] = {}  # pids of people's programs at rest, and why

    def keep_in(self, path: Path, past: Past | None = None, at: float = 0.0) -> None:
        """Go on at `at` with what an earlier agent kept in a file, and keep it there, and the host's past with it."""
        self._file, self._past = HabitsFile(path), past
        kept = self._file.load()
        self.week = kept.week
        if past is not None and kept.is_there:
            past.take_up(kept.seen, at)

    def save(self, at: float) -> None:
        """Write what is remembered at that moment."""
        if self._file is not None:
            self._file.save(self.week, None if self._past is None else self._past.keep(at))

    def _save_now_and_then(self, at: float) -> None:
        """Write it each ten minutes; what is new within one, for an agent may be killed."""
        news = (self.week.begins, self.week.asked, None if self._past is None else self._past.news)
        if self._saved is None:
            self._saved = at, news
        saved_at, known = self._saved
        if at - saved_at >= (_SAVE_SECONDS if news == known else _SAVE_NEWS_SECONDS):
            self._saved = at, news
            self.save(at)

    def judge(
        self, view: ProcessView, now: Moment, used: Mapping[_Key, Used], uptime: float | None
    ) -> dict[int, Process]:
        """The processes that are hum at this look, as the machine's own; `steady` are those at rest that stay."""
        self.steady = {}
        self._save_now_and_then(now.monotonic_seconds)
        came = [self._came.popleft() for _ in range(len(self._came))]
        self.week = replace(self.week, asked=after_asks(self.week.asked, now.at.timestamp(), came))
        if now.gpu_pids is None or view.doubt is not None or uptime is None:
            self._looked_at = None
            return {}
        trees = _trees(view.processes)
        staying = self._staying(view, trees, uptime)
        groups = {**trees, **{process.pid: [process] for process in staying}}
        if len(groups) > _MOST_CANDIDATES:
            groups = trees
        unseen = all(each.moved_bytes is None for each in used.values())
        runs = {
            pid: run
            for pid, group in groups.items()
            if (run := self._run(view.processes[pid], group, now, used, uptime, unseen=unseen and pid not in trees))
        }
        keys = {pid: key for pid in runs if (key := self._key(view.processes[pid], view.processes)) is not None}
        noted = {keys[pid]: runs[pid] for pid in keys}
        planned, on_gpu = self._runs_since_due([runs[pid] for pid in trees if pid in runs], view, now, uptime)
        self._note(view, now, noted | planned, on_gpu, uptime)
        at, hum, steady = now.at.timestamp(), dict[int, Process](), dict[int, str]()
        for pid, key in keys.items():
            if pid in trees and (words := self.week.hum_of(key, runs[pid], at)) is not None:
                rule = f"{kinds.HUM}{words}"
                hum |= {each.pid: replace(each, kind=Kind.SERVICE, rule=rule) for each in trees[pid]}
            elif (words := self.week.steady_words(key, runs[pid], at)) is not None:
                steady |= {each.pid: words for each in groups[pid]}
        self.steady = steady
        self._forget(view)
        return hum

    def note_due(self, mark: str) -> None:
        """Take that planned work was due just now; any thread may call it."""
        self._passed.append(mark)

    def note_asked(self, ports: Collection[str], at: datetime) -> None:
        """Take the ports that a machine has just begun to ask, as `activity.asked` has them; any thread may call it."""
        self._came.extend((port, int(at.timestamp() // HOUR_SECONDS)) for port in ports)

    def planned_words(self, work: Planned, at: float) -> str | None:
        """That planned work has come for days without a GPU, in words; None: it has not, or nobody knows."""
        return None if work.mark is None else self.week.hum_of(f"plan {work.mark}", _NOTHING, at)

    def _runs_since_due(
        self, jobs: Collection[Run], view: ProcessView, now: Moment, uptime: float
    ) -> tuple[dict[str, Run], set[str]]:
        """What ran since each planned work was due, and of which of them something began on a GPU since.

        Whatever began then counts for all of them: what a job has others begin, in a container, is not its child.
        """
        at, gpu = now.monotonic_seconds, now.gpu_pids or ()
        new = {self._passed.popleft() for _ in range(len(self._passed))}
        self._plans = {mark: since for mark, since in self._plans.items() if at - since <= _PLAN_SECONDS}
        self._plans |= dict.fromkeys(sorted(new)[:MOST_STARTERS], at)
        ages = [uptime - view.processes[pid].started_ticks / _TICKS_PER_SECOND for pid in gpu if pid in view.processes]
        runs, on_gpu = dict[str, Run](), set[str]()
        for mark, since in self._plans.items():
            latest = at - since + _PLAN_SLACK_SECONDS
            its = [each for each in jobs if each.seconds <= latest]
            runs[f"plan {mark}"] = Run(
                seconds=max((each.seconds for each in its), default=0.0),
                cores=max((each.cores for each in its), default=0.0),
                bytes_per_second=0.0,
                begun=int(mark in new),
            )
            on_gpu |= {f"plan {mark}"} if any(age <= latest for age in ages) else set()
        return runs, on_gpu

    def _note(
        self, view: ProcessView, now: Moment, runs: Mapping[str, Run], planned_on_gpu: Collection[str], uptime: float
    ) -> None:
        """Remember what was seen, and write it now and then."""
        last, at = self._looked_at, now.monotonic_seconds
        self._looked_at = at
        on_gpu = set(planned_on_gpu) | {
            key
            for pid in now.gpu_pids or ()
            for process in _line_of(pid, view.processes)
            if (key := self._key(process, view.processes)) is not None
        }
        wall = now.at.timestamp()
        self.week = self.week.after_look(wall, 0.0 if last is None else max(0.0, at - last), runs, on_gpu)
        self.week = self.week.after_begins(wall, self._begins_on_gpus(view, now, uptime))

    def _begins_on_gpus(self, view: ProcessView, now: Moment, uptime: float) -> dict[str, float]:
        """What holds a GPU and has no terminal, and when it began: with the first of those that it began."""
        gpu, found = now.gpu_pids or frozenset(), dict[str, float]()
        for process in (view.processes[pid] for pid in sorted(gpu) if pid in view.processes):
            age = uptime - process.started_ticks / _TICKS_PER_SECOND
            if process.tty or process.parent in gpu or age > _YOUNG_SECONDS:
                continue
            key = self._key(process, view.processes)
            if key is not None:
                uid, _, words = key.split(" ", 2)  # its container and its session are others each time
                found.setdefault(f"{uid} {words}", now.at.timestamp() - age)
        return found

    def due(self, now: Moment) -> list[Planned]:
        """What used a GPU or was asked at this time before, as work that is planned."""
        return [
            Planned(
                what=f"{user_name(int(uid)) or uid}'s {words.rpartition(' ')[0]}, which began on a GPU at that time "
                f"{each.starts} {'days' if each.period_seconds == DAY_SECONDS else 'weeks'} in a row,",
                user=user_name(int(uid)),
                due=datetime.fromtimestamp(each.at, UTC),
                period_seconds=each.period_seconds,
            )
            for each in self.week.due(now.at.timestamp())
            for uid, _, words in (each.key.partition(" "),)
        ] + [
            Planned(
                what=f"what {_asked_words(port)} here, as at that hour of the last two days,",
                user=None,
                due=datetime.fromtimestamp(at, UTC),
                period_seconds=DAY_SECONDS,
            )
            for port, at in due_hours(self.week.asked, now.at.timestamp()).items()
        ]

    def _staying(self, view: ProcessView, trees: Mapping[int, list[Process]], uptime: float) -> list[Process]:
        """Rule 2: people's programs that are an hour old and in no job of the machine's own."""
        within = {each.pid for group in trees.values() for each in group}
        latest = (uptime - _STAYS_SECONDS) * _TICKS_PER_SECOND
        return [each for each in view.people() if each.pid not in within and each.started_ticks < latest]

    def _run(
        self,
        root: Process,
        group: Collection[Process],
        now: Moment,
        used: Mapping[_Key, Used],
        uptime: float,
        *,
        unseen: bool,
    ) -> Run | None:
        """What a program does now; None: it cannot be seen. `unseen`: nobody's bytes are, and its own count as none."""
        gpu = now.gpu_pids or ()
        found = [used.get((each.pid, each.started_ticks)) for each in group]
        if any(each is None or (each.moved_bytes is None and not unseen) for each in found):
            return None
        if any(each.pid in gpu for each in group):
            return None
        cpu = sum(each.cpu_seconds for each in found if each is not None)
        moved = sum(each.moved_bytes or 0 for each in found if each is not None)
        key, at = (root.pid, root.started_ticks), now.monotonic_seconds
        age = max(0.0, uptime - root.started_ticks / _TICKS_PER_SECOND)
        before = self._measured.get(key)
        if before is None:
            span = max(age, 1.0)
            after = _Measured(at, cpu, moved, cpu / span, moved / span)
        elif at - before.at >= _SPAN_SECONDS:
            span = at - before.at
            cores, rate = (cpu - before.cpu_seconds) / span, (moved - before.moved_bytes) / span
            after = _Measured(at, cpu, moved, max(0.0, cores), max(0.0, rate))
        else:
            after = before
        self._measured[key] = after
        begun = int(before is None and self._looked_at is not None and age <= at - self._looked_at + 1.0)
        return Run(seconds=age, cores=after.cores, bytes_per_second=after.bytes_per_second, begun=begun)

    def _key(self, process: Process, processes: Mapping[int, Process]) -> str | None:
        """What a program is; None: its arguments cannot be read."""
        known = (process.pid, process.started_ticks, process.name)
        if known not in self._keys:
            self._keys[known] = None if process.state == "D" else self._read_key(process, processes)
        return self._keys[known]

    def _read_key(self, process: Process, processes: Mapping[int, Process]) -> str | None:
        try:
            words = read_beginning(f"{self._proc}/{process.pid}/cmdline")
        except (*ENDED, PermissionError):
            return None
        placement = process.placement
        place = placement.container_id or placement.systemd_unit or "-"
        place = "cron" if from_cron(process, processes) else place
        return f"{process.uid} {place[:64]} {process.name[:15]} {crc32(_NUMBERS.sub(b'0', words)):08x}"

    def _forget(self, view: ProcessView) -> None:
        """Drop what is known of ended processes."""
        alive = {(each.pid, each.started_ticks) for each in view.processes.values()}
        self._measured = {key: each for key, each in self._measured.items() if key in alive}
        self._keys = {known: key for known, key in self._keys.items() if known[:2] in alive and key is not None}


def _asked_words(port: str) -> str:
    return "somebody reaches through SSH" if is_onward(port) else f"other machines ask of {port}"


def words_of(processes: Collection[Process]) -> str | None:
    """Which of them are hum, and why; None: none is."""
    theirs = sorted((each for each in processes if each.rule.startswith(kinds.HUM)), key=lambda each: each.pid)
    if not theirs:
        return None
    first = theirs[-1]  # of a line of cron's its program, not its shell
    more = f" (with {len(theirs) - 1} more)" if len(theirs) > 1 else ""
    return f"{first.name}{more} of {first.placement.systemd_unit or 'no unit'} {first.rule.removeprefix(kinds.HUM)}"


def _trees(processes: Mapping[int, Process]) -> dict[int, list[Process]]:
    """The machine's own jobs with all that they began, by the pid of the first."""
    own = {pid: process for pid, process in processes.items() if _is_own_job(process, processes)}
    trees: dict[int, list[Process]] = {}
    for pid, process in own.items():
        root, seen = process, {pid}
        while root.parent in own and root.parent not in seen:
            root = own[root.parent]
            seen.add(root.pid)
        trees.setdefault(root.pid, []).append(process)
    return trees


def _is_own_job(process: Process, processes: Mapping[int, Process]) -> bool:
    """Whether a process is a job of the machine's own (rule 1)."""
    placement = process.placement
    if process.kind is not Kind.PEOPLE and process.rule != kinds.CRON_JOB:
        return False
    if _FIRST_PERSON <= process.uid != _NOBODY or process.tty or process.state in {"Z", "X", "D"}:
        return False
    if placement.container_id is not None or placement.pod_uid is not None or placement.slurm_job is not None:
        return False
    if process.rule in _WORK_RULES or process.rule.startswith(kinds.PATTERN):
        return False
    return from_cron(process, processes) or (placement.systemd_unit is not None and not placement.own_names)


def _line_of(pid: int, processes: Mapping[int, Process]) -> list[Process]:
    """A process and those that began it, but for what is the machine's own or the kernel's."""
    found: list[Process] = []
    process = processes.get(pid)
    while process is not None and len(found) < _MOST_PARENTS:
        if process.kind is Kind.PEOPLE or process.rule == kinds.CRON_JOB:
            found.append(process)
        process = processes.get(process.parent) if process.parent > 1 else None
    return found
