"""What days have shown of programs decides at a look: hum is the machine's own, and what stays at rest is no work."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gpuwatch.agent.activity.days import DAY_SECONDS, EMPTY, Run, Week
from gpuwatch.agent.evidence.base import Moment
from gpuwatch.agent.evidence.habits_file import HabitsFile
from gpuwatch.agent.evidence.scheduled.signal import Scheduled
from gpuwatch.agent.evidence.settings import ScheduledSettings, WorkSettings
from gpuwatch.agent.evidence.work import Processes
from gpuwatch.agent.processes import packages
from gpuwatch.agent.processes.package_owners import find_owners
from gpuwatch.agent.processes.packages import PackageOwners
from gpuwatch.agent.processes.process import Kind
from gpuwatch.model.activity import Activity, Evidence, State
from gpuwatch.model.evidence_text import later_text
from tests.support.fakes.host import FolderHost
from tests.support.fakes.package_databases import COMPANY, DEBIAN, APackage, base_files, put_dpkg
from tests.support.fakes.proc_files import CONTAINER, put_process
from tests.support.fakes.shells import MadeShells

CRON = "/system.slice/cron.service"
LOOK = 10.0


class Host:
    """A host that is up for five days, with root's cron; its agent looks each ten seconds."""

    def __init__(self, root: Path) -> None:
        self.host = FolderHost(root)
        self.up = 5 * DAY_SECONDS
        self.put(1, "systemd", cgroup="/init.scope", uid=0, parent=0)
        self.put(100, "cron", cgroup=CRON, uid=0, parent=1, executable="/usr/sbin/cron")
        self.signal = Processes(WorkSettings(), self.host.roots, shells=MadeShells())

    def put(self, pid: int, name: str, *, age: float = 5 * DAY_SECONDS, **about: object) -> None:
        """A program, with what it has used so far."""
        told = {"started_seconds": self.up - age, "moved_bytes": 0, "arguments": (f"/srv/{name}",), **about}
        put_process(self.host.roots.proc, pid, name, **told)  # type: ignore[arg-type]

    def report(self, age: float = 40.0, uid: int = 0, **about: object) -> None:
        """Root's report by cron: its line, and what does the work."""
        told = {"age": age, "cgroup": CRON, "uid": uid, **about}
        self.put(300, "sh", parent=100, **{**told, "cpu_seconds": 0.0})  # type: ignore[arg-type]
        self.put(301, "report.sh", parent=300, **told)  # type: ignore[arg-type]

    def look(self, gpu_pids: frozenset[int] | None = frozenset()) -> tuple[Evidence, ...]:
        """What the signal finds ten seconds later."""
        self.host.pass_time(LOOK)
        self.up += LOOK
        self.host.write("proc/uptime", f"{self.up:.2f} 9000.00\n")
        clock = self.host.clock
        return self.signal.find_evidence(Moment(at=clock.now(), monotonic_seconds=clock.monotonic(), gpu_pids=gpu_pids))

    def remember(self, run: Run, *, days: int = 4, gpu: bool = False) -> None:
        """Days on which all that is noted now did this."""
        now = self.host.clock.now().timestamp()
        keys, week = tuple(self.signal.habits.week.habits), EMPTY
        for day in range(days, 0, -1):
            for look in range(60):
                at = now - day * DAY_SECONDS + look * 300.0
                week = week.after_look(at, 300.0, dict.fromkeys(keys, run) if look == 0 else {}, keys if gpu else ())
        self.signal.habits.week = week


USUAL = Run(seconds=90.0, cores=0.1, bytes_per_second=1e3, begun=96)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host without a program of anybody's."""
    made = Host(tmp_path)
    made.look()
    return made


def test_roots_job_of_a_few_days_is_the_machines_own_and_says_why(host: Host) -> None:
    """Before, it is doubt; then the machine is idle while it runs, and the note names it."""
    host.report()
    assert [each.says for each in host.look()] == [State.UNKNOWN]
    host.remember(USUAL)
    (found,) = host.look()
    assert found.says is State.IDLE
    assert "report.sh (with 1 more) of cron.service has run about each" in (found.note or "")
    assert "for 4 days without a GPU" in (found.note or "")


@pytest.mark.parametrize(
    "about",
    [
        {"arguments": ("/bin/sh", "-c", "/srv/train.sh")},  # another line
        {"uid": 1001},  # carol's own
        {"cgroup": CONTAINER},
        {"age": 700.0},  # it runs much longer than ever
    ],
    ids=str,
)
def test_another_program_or_somebodys_is_work_as_before(host: Host, about: dict[str, object]) -> None:
    """What the days have shown of one job says nothing of another."""
    host.report()
    host.look()
    host.remember(USUAL)
    host.report(**about)  # type: ignore[arg-type]
    host.look()
    view = host.signal.table.view
    assert view is not None
    assert not view.processes[301].rule.startswith("hum")


def test_without_a_list_of_what_holds_the_gpus_nothing_is_hum(host: Host) -> None:
    """Nobody can say that it runs without a GPU."""
    host.report()
    host.look()
    host.remember(USUAL)
    assert [each.says for each in host.look(None)] == [State.UNKNOWN]


def test_what_began_a_program_on_a_gpu_is_work_for_a_week(host: Host) -> None:
    """The job's child holds a GPU once: then all that led to it has held one."""
    host.report()
    host.put(302, "python3", age=20.0, cgroup=CRON, uid=0, parent=301)
    host.look()
    host.remember(USUAL)
    host.look(frozenset({302}))
    assert [each.says for each in host.look()] == [State.UNKNOWN]
    assert all(each.gpu_at is not None for each in host.signal.habits.week.habits.values())


def test_a_heavy_run_of_hum_is_doubt_that_has_a_name_of_its_own(host: Host) -> None:
    """A backup at 1.5 cores each night is not cut off; the rest says idle."""
    host.report(cpu_seconds=0.0)
    host.look()
    host.remember(Run(seconds=2400.0, cores=1.6, bytes_per_second=1e3, begun=1))
    for turn in range(1, 8):
        host.report(age=40.0 + 10 * turn, cpu_seconds=15.0 * turn)
        found = host.look()
    assert [(each.name, each.says) for each in found] == [("processes", State.IDLE), ("hum", State.UNKNOWN)]
    assert "a job that recurs is at work" in (found[1].note or "")


@pytest.mark.parametrize(
    ("by", "says"),
    [
        (DEBIAN, [("processes", State.IDLE), ("hum", State.UNKNOWN)]),
        (COMPANY, [("processes", State.BUSY)]),
    ],
)
def test_a_heavy_run_by_a_timer_of_the_distributions_is_doubt_from_the_first_day(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str, says: list[tuple[str, State]]
) -> None:
    """An index at 1.5 cores each night is not cut off and stops no clock; a company's own job is work."""
    monkeypatch.setattr(packages, "ask_databases", find_owners)
    files = [f"/usr/lib/systemd/system/index.{suffix}" for suffix in ("service", "timer")]
    for file in files:
        host.host.write(file[1:], "[Service]\n")
    put_dpkg(tmp_path, base_files(), APackage(name="index", files=(*files, "/usr/bin/index"), by=by))
    roots = host.host.roots
    host.signal = Processes(WorkSettings(), roots, shells=MadeShells(), packages=PackageOwners(tmp_path))
    told = {"cgroup": "/system.slice/index.service", "uid": 0, "executable": "/usr/bin/index"}
    for turn in range(1, 8):
        host.put(300, "index", age=30.0 + 10 * turn, cpu_seconds=15.0 * turn, **told)
        found = host.look()
    assert [(each.name, each.says) for each in found] == says


def test_a_persons_program_that_has_used_as_little_for_days_is_no_work(host: Host) -> None:
    """A Ray head of alice's at 0.04 cores: occupied, and why is said; it was busy for ever."""
    for turn in range(1, 20):
        host.put(400, "raylet", uid=1001, cgroup="/user.slice/user-1001.slice/session-4.scope", cpu_seconds=0.4 * turn)
        (found,) = host.look()
    assert found.says is State.BUSY
    host.remember(Run(seconds=4 * DAY_SECONDS, cores=0.04, bytes_per_second=10.0))
    host.put(400, "raylet", uid=1001, cgroup="/user.slice/user-1001.slice/session-4.scope", cpu_seconds=8.0)
    (found,) = host.look()
    assert found.says is State.OCCUPIED
    assert "raylet has used as little for 4 days, without a GPU" in (found.note or "")
    host.remember(Run(seconds=4 * DAY_SECONDS, cores=0.04, bytes_per_second=10.0), gpu=True)
    host.put(400, "raylet", uid=1001, cgroup="/user.slice/user-1001.slice/session-4.scope", cpu_seconds=8.4)
    assert [each.says for each in host.look()] == [State.BUSY]


@pytest.mark.parametrize(("other", "says"), [(None, State.OCCUPIED), (0, State.BUSY)])
def test_where_nobodys_bytes_are_seen_what_stays_is_judged_by_its_cores(
    host: Host, other: int | None, says: State
) -> None:
    """An agent in a container may read nobody's io; where only this program's is closed, it may move anything."""
    place = "/user.slice/user-1001.slice/session-4.scope"
    for turn in range(1, 25):
        if turn == 20:
            host.remember(Run(seconds=4 * DAY_SECONDS, cores=0.04, bytes_per_second=0.0))
        for pid in (400, 401):
            (host.host.roots.proc / f"{pid}/io").unlink(missing_ok=True)
        host.put(400, "raylet", uid=1001, cgroup=place, cpu_seconds=0.4 * turn, moved_bytes=None)
        host.put(401, "sleeper", uid=1001, cgroup=place, moved_bytes=other)
        found = host.look()
    assert found[0].says is says


def test_where_nobodys_bytes_are_seen_a_job_of_roots_is_no_hum(host: Host) -> None:
    """It would be the machine's own, and may copy what somebody waits for."""
    host.report(moved_bytes=None)
    for pid in (300, 301):
        (host.host.roots.proc / f"{pid}/io").unlink(missing_ok=True)
    host.look()
    host.remember(USUAL)
    assert [each.says for each in host.look()] == [State.UNKNOWN]


def test_a_fresh_program_of_a_person_is_work_whatever_else_is_at_rest(host: Host) -> None:
    """The same words of arguments, begun two hours ago: somebody has begun it again."""
    place = "/user.slice/user-1001.slice/session-4.scope"
    for turn in range(1, 20):
        host.put(400, "raylet", age=7200.0, uid=1001, cgroup=place, cpu_seconds=0.4 * turn)
        host.look()
    host.remember(Run(seconds=4 * DAY_SECONDS, cores=0.04, bytes_per_second=10.0))
    host.put(400, "raylet", age=7200.0, uid=1001, cgroup=place, cpu_seconds=8.0)
    assert [each.says for each in host.look()] == [State.BUSY]


def test_the_memory_outlives_the_agent(host: Host, tmp_path: Path) -> None:
    """The next agent finds the same job to be hum at its first look."""
    file = tmp_path / "state/days.json"
    host.report()
    host.signal.habits.keep_in(file)
    host.look()
    host.remember(USUAL)
    host.signal.habits.save(0.0)
    host.signal = Processes(WorkSettings(), host.host.roots, shells=MadeShells())
    host.signal.habits.keep_in(file)
    assert [each.says for each in host.look()] == [State.IDLE]
    view = host.signal.table.view
    assert view is not None
    assert view.processes[301].kind is Kind.SERVICE


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\1\2",
        b"[]",
        b'{"watched": {"20000": 1e9}, "habits": {}}',
        b'{"watched": {}, "habits": {"0 cron x 1": {"days": [[20000, 1, 60, 1e300, 1]]}}}',
        b'{"watched": {}, "habits": {"0 cron x 1": {"days": [[20000, 1, -60, 1, 1]]}}}',
        b'{"watched": {}, "habits": {}, "begins": {"1001 python3 1": [1e300]}}',
        b'{"watched": {}, "habits": {}, "begins": {"python3": [1]}}',
        b'{"watched": {}, "habits": {}, "asked": {"tcp 445": [-1]}}',
        b'{"watched": {}, "habits": {}, "asked": {"tcp 445": []}}',
        b'{"watched": {}, "habits": {}, "asked": {"alice 445": [1]}}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_begun_anew_with_a_warning(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """No figure of it may make work look like hum; a file that is not there is no damage."""
    file = tmp_path / "days.json"
    assert HabitsFile(file).load().week == EMPTY
    assert not caplog.records
    file.write_bytes(content)
    assert HabitsFile(file).load().week == EMPTY
    assert "is forgotten" in caplog.text


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The agent goes on without a memory over restarts."""
    (tmp_path / "state").write_text("no folder")
    file = HabitsFile(tmp_path / "state/days.json")
    for _ in range(2):
        file.save(Week(watched={}, habits={}))
    assert caplog.text.count("will not outlive this agent") == 1


NIGHT = "/user.slice/user-1001.slice/session-7.scope"


def test_what_begins_on_a_gpu_without_a_terminal_is_noted_once(host: Host) -> None:
    """A training that another machine's scheduler begins by SSH, with its workers; not what somebody types."""
    host.put(500, "python3", age=30.0, uid=1001, cgroup=NIGHT)
    host.put(501, "python3", age=20.0, uid=1001, cgroup=NIGHT, parent=500)
    host.put(502, "python3", age=20.0, uid=1002, cgroup=NIGHT, tty=34816)
    host.put(503, "python3", age=3 * DAY_SECONDS, uid=1003, cgroup=NIGHT)
    for _ in range(3):
        host.look(frozenset({500, 501, 502, 503}))
    ((key, begins),) = host.signal.habits.week.begins.items()
    assert key.startswith("1001 python3 ")
    assert len(begins) == 1
    assert begins[0] == pytest.approx(host.host.clock.now().timestamp() - 60.0, abs=1.0)


def scheduled(host: Host) -> Evidence:
    """What the signal of queued work says now."""
    settings = ScheduledSettings(sources=())
    signal = Scheduled(settings, host.host.roots, 5.0, habits=host.signal.habits)
    (found,) = signal.find_evidence(Moment(at=host.host.clock.now(), monotonic_seconds=host.host.clock.monotonic()))
    return found


def test_what_is_due_keeps_the_machine_and_is_named(host: Host) -> None:
    """Three nights in a row: as a job of the machine's own crontab would, from its horizon on."""
    now, habits = host.host.clock.now().timestamp(), host.signal.habits
    for day in (3, 2, 1):
        habits.week = habits.week.after_begins(now, {"0 train.py 1a2b3c4d": now - day * DAY_SECONDS + 7200.0})
    found = scheduled(host)
    assert found.says is State.BUSY
    assert "root's train.py, which began on a GPU at that time 3 days in a row, is due at" in (found.note or "")
    assert found.observed == pytest.approx(7200.0)


def test_what_is_due_in_days_is_named_and_keeps_nothing(host: Host) -> None:
    """A weekly job: the notice says that it comes."""
    now, habits = host.host.clock.now().timestamp(), host.signal.habits
    for day in (11, 4):
        habits.week = habits.week.after_begins(now, {"0 train.py 1a2b3c4d": now - day * DAY_SECONDS})
    found = scheduled(host)
    assert found.says is State.IDLE
    activity = Activity(state=State.IDLE, since=None, held_seconds=0.0, evidence=(found,))
    assert "2 weeks in a row, is due at" in (later_text(activity) or "")
    assert later_text(replace(activity, evidence=())) is None


def nightly(host: Host, *, command: str = "/srv/backup.sh", user: str = "root") -> Scheduled:
    """The signal on a host whose crontab is due in two minutes, each day."""
    due = host.host.clock.now() + timedelta(minutes=2)
    host.host.write("etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1001:1001::/home/alice:/bin/sh\n")
    host.host.write(f"var/spool/cron/crontabs/{user}", f"{due.minute} {due.hour} * * * {command}\n")
    return Scheduled(ScheduledSettings(), host.host.roots, 5.0, habits=host.signal.habits)


def queued(host: Host, signal: Scheduled) -> Evidence:
    """What the signal of queued work says now."""
    (found,) = signal.find_evidence(host.host.moment())
    return found


ONE_A_NIGHT = Run(seconds=2400.0, cores=1.5, bytes_per_second=0.0, begun=1)


@pytest.mark.parametrize(
    ("who", "run", "gpu", "now", "says"),
    [
        ("nobody: root's backup of forty minutes", ONE_A_NIGHT, False, {}, State.IDLE),
        ("whose training it begins in a container", ONE_A_NIGHT, True, {}, State.BUSY),
        ("whose import takes six hours", replace(ONE_A_NIGHT, seconds=21600.0), False, {}, State.BUSY),
        ("who has changed the line today", ONE_A_NIGHT, False, {"command": "/srv/train.sh"}, State.BUSY),
        ("alice, whose own crontab it is", ONE_A_NIGHT, False, {"user": "alice"}, State.BUSY),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_job_of_each_night_keeps_nothing_after_some_nights_without_a_gpu(
    host: Host, who: str, run: Run, gpu: bool, now: dict[str, str], says: State
) -> None:
    """Before, it keeps its machine by its plan; what the agent saw since its time speaks for it."""
    user = now.get("user", "root")
    signal = nightly(host, user=user)
    assert queued(host, signal).says is State.BUSY
    host.host.pass_time(180.0)
    assert queued(host, signal).says is State.BUSY  # it has come once
    host.look()
    assert any(key.startswith("plan ") for key in host.signal.habits.week.habits)
    host.remember(run, gpu=gpu)
    if "command" in now:
        signal = nightly(host, **now)
    found = queued(host, signal)
    assert found.says is says, who
    if says is State.IDLE:
        assert "root's cron job (line 1) has run each day for 4 days without a GPU" in (found.note or "")


def test_what_begins_on_a_gpu_after_its_time_counts_for_a_planned_job(host: Host) -> None:
    """It has a container begun: nothing of that is its child."""
    signal = nightly(host)
    queued(host, signal)
    host.host.pass_time(180.0)
    queued(host, signal)
    host.look()
    host.put(700, "python3", age=5.0, uid=1001, cgroup=CONTAINER)
    host.look(frozenset({700}))
    (habit,) = (each for key, each in host.signal.habits.week.habits.items() if key.startswith("plan "))
    assert habit.gpu_at is not None
