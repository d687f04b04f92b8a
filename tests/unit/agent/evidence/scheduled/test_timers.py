"""agent/evidence/scheduled: systemd's timers, by the manager's word and by their files."""

import os
import shutil
from pathlib import Path

import pytest

from gpuwatch.agent.evidence.scheduled.signal import Scheduled
from gpuwatch.agent.evidence.settings import ScheduledSettings
from gpuwatch.model.activity import Evidence, State
from tests.support.fakes.queued_work import QueueHost

SHIPPED = """Unit=apt-daily.service
TimersCalendar={ OnCalendar=*-*-* 06,18:00:00 ; next_elapse=(null) }
NextElapseUSecRealtime=Mon 2026-01-05 18:40:00 UTC
NextElapseUSecMonotonic=0
LastTriggerUSec=Mon 2026-01-05 06:00:00 UTC
Id=apt-daily.timer
SubState=waiting
FragmentPath=/lib/systemd/system/apt-daily.timer
Transient=no
"""


@pytest.fixture
def host(tmp_path: Path) -> QueueHost:
    """It booted 5000 s ago."""
    return QueueHost(tmp_path)


def a_timer(
    *,
    realtime: str = "",
    monotonic: str = "0",
    rules: str = "",
    last: str = "",
    sub: str = "waiting",
    transient: bool = False,
) -> str:
    """A block of `systemctl show`, as systemd 252 writes it."""
    folder = "/run/systemd/transient" if transient else "/etc/systemd/system"
    return (
        f"Unit=train.service\n{rules}NextElapseUSecRealtime={realtime}\nNextElapseUSecMonotonic={monotonic}\n"
        f"LastTriggerUSec={last}\nId=train.timer\nSubState={sub}\nFragmentPath={folder}/train.timer\n"
        f"Transient={'yes' if transient else 'no'}\n"
    )


def systemctl(host: QueueHost, *blocks: str, status: int = 0) -> Path:
    """A systemctl that answers so, and counts how often it was asked."""
    answer = host.write("answer", "\n".join((SHIPPED, *blocks)))
    program = host.write("systemctl", f"#!/bin/sh\necho x >> {host.root}/asked\ncat {answer}\nexit {status}\n")
    program.chmod(0o755)
    return program


def told(host: QueueHost, *blocks: str, status: int = 0) -> Evidence:
    """What the signal makes of that answer."""
    program = systemctl(host, *blocks, status=status)
    return host.tells(Scheduled(ScheduledSettings(horizon=43200.0), host.roots, 5.0, str(program)))


CALENDAR = "TimersCalendar={{ OnCalendar={} ; next_elapse=Tue 2026-01-06 02:00:00 UTC }}\n"
ACTIVE = "TimersMonotonic={ OnActiveUSec=8h ; next_elapse=9h 23min }\n"
REPEAT = "TimersMonotonic={{ OnUnitActiveUSec={} ; next_elapse=0 }}\n"
NIGHT = "Tue 2026-01-06 02:00:00 UTC"


@pytest.mark.parametrize(
    ("block", "says"),
    [
        (a_timer(realtime=NIGHT, rules=CALENDAR.format("*-*-* 02:00:00")), State.BUSY),
        (a_timer(realtime=NIGHT, rules=CALENDAR.format("*-*-* *:0/15")), State.OCCUPIED),
        (a_timer(realtime=NIGHT, rules=CALENDAR.format("*-*~3 02:00:00")), State.BUSY),
        (a_timer(realtime="Sat 2026-01-10 02:00:00 UTC", rules=CALENDAR.format("Sat *-*-* 02:00:00")), State.IDLE),
        (a_timer(realtime="Sat 2026-01-10 02:00:00 UTC", rules=CALENDAR.format("2026-01-10 02:00:00")), State.BUSY),
        (a_timer(monotonic="9h 23min 1.5s", rules=ACTIVE, transient=True), State.BUSY),
        (a_timer(monotonic="4d", rules=ACTIVE, transient=True), State.BUSY),
        (a_timer(monotonic="9d", rules=ACTIVE, transient=True), State.IDLE),
        (a_timer(monotonic="9h", rules=ACTIVE + REPEAT.format("10min"), transient=True), State.BUSY),
        (a_timer(monotonic="2h", rules=ACTIVE + REPEAT.format("10min"), last=NIGHT, transient=True), State.OCCUPIED),
        (a_timer(monotonic="2h", rules=REPEAT.format("10min")), State.OCCUPIED),
        (a_timer(monotonic="2h", rules=REPEAT.format("1d")), State.BUSY),
        (a_timer(monotonic="1d", rules=REPEAT.format("1d")), State.IDLE),
        (a_timer(monotonic="infinity", rules=REPEAT.format("1d")), State.IDLE),
        (a_timer(realtime=NIGHT, rules=CALENDAR.format("*-*-* 02:00:00"), sub="elapsed"), State.IDLE),
        ("", State.IDLE),
    ],
)
def test_the_managers_word(host: QueueHost, block: str, says: State) -> None:
    """When it is due by systemd itself, how often by its rules; what packages ship says nothing.

    What recurs often occupies the node at first: no run was seen yet.
    """
    found = told(host, block) if block else told(host)

    assert found.says is says, found.note


def test_a_timer_of_the_manager_that_only_tidies_says_nothing(host: QueueHost) -> None:
    """Its service's file lies next to its own in /etc."""
    host.write("etc/systemd/system/train.timer", "[Timer]\nUnit=train.service\n")
    host.write("etc/systemd/system/train.service", "[Service]\nExecStart=/usr/bin/docker system prune --force\n")
    block = a_timer(realtime=NIGHT, rules=CALENDAR.format("*-*-* 02:00:00"))
    tidy = told(host, block).says
    host.write("etc/systemd/system/train.service", "[Service]\nExecStart=/srv/train.sh\n")

    assert (tidy, told(host, block).says) == (State.IDLE, State.BUSY)


def test_whose_it_is(host: QueueHost) -> None:
    """The unit's user, where the unit lies beside its timer."""
    host.write("run/systemd/transient/train.service", "[Service]\nUser=alice\nExecStart=secret\n")
    found = told(host, a_timer(monotonic="9h", rules=ACTIVE, transient=True))

    assert found.note == "systemd-run train.timer is due at 2026-01-06 01:46 UTC"
    assert found.owner is not None
    assert (found.owner.user, found.owner.unit) == ("alice", "train.timer")


@pytest.mark.parametrize("answer", ["Id=x.timer\n", a_timer(realtime="tomorrow"), a_timer(monotonic="soon")])
def test_an_answer_of_another_form(host: QueueHost, answer: str) -> None:
    """Then the files are read, as where systemctl fails."""
    host.timer("OnCalendar=02:00")

    assert told(host, answer).says is State.BUSY
    assert told(host, status=1).says is State.BUSY


def test_the_manager_is_asked_each_five_minutes_and_after_a_change(host: QueueHost) -> None:
    """A timer that is made meanwhile is seen at the next look."""
    signal = Scheduled(ScheduledSettings(), host.roots, 5.0, str(systemctl(host)))

    def asked_after(seconds: float) -> int:
        host.clock.advance(seconds)
        signal.find_evidence(host.moment())
        return len((host.root / "asked").read_text(encoding="ascii").split())

    counts = [asked_after(0), asked_after(60), asked_after(60), asked_after(181), asked_after(60)]
    host.timer("OnActiveSec=8h", "r1.timer", "run/systemd/transient")

    assert counts == [1, 1, 1, 2, 2]
    assert asked_after(60) == 3


def test_a_manager_is_not_asked_about_another_host(host: QueueHost) -> None:
    """Where /run lies elsewhere the systemctl of the PATH would speak of this machine."""
    host.timer("OnCalendar=02:00")

    assert host.scheduled().says is State.BUSY


def test_without_systemd_there_are_no_timers(host: QueueHost) -> None:
    """Units that nobody starts."""
    host.timer("OnCalendar=02:00")
    for folder in ("run/systemd/sessions", "run/systemd/inhibit", "run/systemd"):
        shutil.rmtree(host.root / folder, ignore_errors=True)

    assert host.scheduled().says is State.IDLE


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("OnCalendar=*:0/5\nOnCalendar=\nOnCalendar=02:00", State.BUSY),
        ("OnCalendar=18:00\nRandomizedDelaySec=1h", State.BUSY),
        ("OnCalendar=18:00\nRandomizedDelaySec=1m", State.IDLE),
        ("OnBootSec=2h", State.BUSY),
        ("OnBootSec=1h", State.IDLE),
        ("OnBootSec=soon", State.UNKNOWN),
        ("# OnCalendar=02:00", State.IDLE),
        ("[Install]\nOnCalendar=02:00", State.IDLE),
        ("OnCalendar=\\\n  02:00", State.BUSY),
    ],
)
def test_files_of_timers(host: QueueHost, lines: str, says: State) -> None:
    """Lists that are emptied, delays that may not have passed, spans since the boot (5000 s ago)."""
    host.timer(lines)
    path = host.root / "etc/systemd/system/nightly.timer"
    os.utime(path, (0, 0))

    assert host.scheduled().says is says


def test_a_drop_in_counts(host: QueueHost) -> None:
    """It may change the time."""
    host.timer("OnCalendar=02:00")
    host.write("etc/systemd/system/nightly.timer.d/1.conf", "[Timer]\nOnCalendar=\nOnCalendar=Sat 02:00\n")

    assert host.scheduled().says is State.IDLE


def test_a_users_timer_runs_while_that_users_manager_does(host: QueueHost) -> None:
    """After the last session, without lingering, it starts nothing."""
    host.timer("OnCalendar=02:00", folder="home/alice/.config/systemd/user")
    away = host.scheduled().says
    host.logged_in()
    there = host.scheduled()

    assert (away, there.says) == (State.IDLE, State.BUSY)
    assert there.note == "alice's timer nightly.timer is due at 2026-01-06 02:00 UTC and again after 1d"


def test_a_users_folder_that_may_not_be_read(host: QueueHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown while that user's manager runs; others' closed homes say nothing."""
    units = host.root / "home/alice/.config/systemd/user"
    units.mkdir(parents=True)
    real = os.scandir

    def scandir(path: object) -> object:
        if str(path) == str(units):
            raise PermissionError(13, "Permission denied", str(path))
        return real(str(path))

    monkeypatch.setattr(os, "scandir", scandir)
    away = host.scheduled().says
    host.logged_in()

    assert (away, host.scheduled().says) == (State.IDLE, State.UNKNOWN)


def test_a_users_link_to_a_file_elsewhere_is_a_doubt(host: QueueHost) -> None:
    """The agent may read what that user may not; a link to what a package ships is no work of the user's."""
    host.logged_in()
    units = host.root / "home/alice/.config/systemd/user"
    wants = units / "timers.target.wants"
    wants.mkdir(parents=True)
    (wants / "x.timer").symlink_to("/usr/lib/systemd/user/x.timer")
    shipped = host.scheduled().says
    (units / "y.timer").symlink_to("/home/alice/dotfiles/y.timer")
    (wants / "y.timer").symlink_to("../y.timer")

    assert (shipped, host.scheduled().says) == (State.IDLE, State.UNKNOWN)


def test_a_closed_manager_of_a_service_says_nothing(host: QueueHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A greeter's, for example: nobody queues work there. A person's is a doubt; what can be read counts."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    host.logged_in(120, "home/greeter")
    host.timer("OnActiveSec=8h", "r1.timer", "run/user/120/systemd/transient")

    assert host.scheduled().says is State.IDLE


def test_a_moment_without_proc_is_no_idleness(host: QueueHost) -> None:
    """When a timer since the boot is due cannot be said without the time of the boot."""
    signal = Scheduled(ScheduledSettings(), host.roots, 5.0)
    (host.root / "proc/uptime").unlink()

    assert host.tells(signal).says is State.UNKNOWN
