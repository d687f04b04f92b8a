"""agent/evidence/scheduled: what queued work means for a host, life by life."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.agent.evidence.scheduled.signal import Scheduled
from gpuwatch.agent.evidence.settings import ScheduledSettings
from gpuwatch.model.activity import State
from tests.support.fakes.queued_work import QueueHost

USER_UNITS = "home/alice/.config/systemd/user"
BUSY, IDLE, OCCUPIED, UNKNOWN = State.BUSY, State.IDLE, State.OCCUPIED, State.UNKNOWN


def user_timer(host: QueueHost, lines: str) -> None:
    """An enabled timer of alice, whose manager runs."""
    host.logged_in()
    host.timer(lines, folder=USER_UNITS)


def user_run(host: QueueHost, lines: str) -> None:
    """What alice's `systemd-run --user` leaves."""
    host.logged_in()
    host.timer(lines, "r1.timer", "run/user/1000/systemd/transient")


def shipped(host: QueueHost) -> None:
    """apt-daily as Debian ships and enables it, with an administrator's drop-in."""
    host.write("usr/lib/systemd/system/apt-daily.timer", "[Timer]\nOnCalendar=*-*-* 6,18:00\nRandomizedDelaySec=12h\n")
    host.write("etc/systemd/system/apt-daily.timer.d/at-night.conf", "[Timer]\nOnCalendar=\nOnCalendar=03:00\n")
    wants = host.root / "etc/systemd/system/timers.target.wants"
    wants.mkdir(parents=True)
    (wants / "apt-daily.timer").symlink_to("/lib/systemd/system/apt-daily.timer")


Life = tuple[str, Callable[[QueueHost], object], State]
# It is Monday 2026-01-05 18:10 UTC.
LIVES: list[Life] = [
    ("B09 at for 02:00", lambda host: host.at_job("2026-01-06 02:00"), BUSY),
    ("B09 at for 02:00, Red Hat", lambda host: host.at_job("2026-01-06 02:00", spool="at"), BUSY),
    ("B09 cron for 02:00", lambda host: host.crontab("0 2 * * * python train.py\n"), BUSY),
    ("B09 a user's timer for 02:00", lambda host: user_timer(host, "OnCalendar=*-*-* 02:00:00"), BUSY),
    ("B09 an administrator's timer for 02:00", lambda host: host.timer("OnCalendar=Tue 02:00"), BUSY),
    (
        "systemd-run --on-active=8h",
        lambda host: host.timer("OnActiveSec=8h", "r1.timer", "run/systemd/transient"),
        BUSY,
    ),
    (
        "systemd-run --user --on-active=3d",
        lambda host: user_run(host, "OnActiveSec=3d"),
        BUSY,
    ),
    (
        "systemd-run --on-calendar for Saturday",
        lambda host: host.timer("OnCalendar=2026-01-10 02:00", "r1.timer", "run/systemd/transient"),
        BUSY,
    ),
    ("a batch job that waits for a lower load", lambda host: host.at_job("2026-01-05 17:00", queue="b"), BUSY),
    ("at in six days", lambda host: host.at_job("2026-01-11 18:00"), BUSY),
    ("at in eight days", lambda host: host.at_job("2026-01-13 19:00"), IDLE),
    ("at, two days overdue", lambda host: host.at_job("2026-01-03 18:00"), BUSY),
    ("at, forgotten for nine days", lambda host: host.at_job("2025-12-27 18:00"), IDLE),
    ("a weekly crontab, due in five days", lambda host: host.crontab("0 2 * * sat train\n"), OCCUPIED),
    ("a daily crontab, due in 13 hours", lambda host: host.crontab("30 7 * * * train\n"), IDLE),
    ("two jobs a night", lambda host: host.crontab("0 2 * * * a\n0 3 * * * b\n"), BUSY),
    ("one line, two runs a night", lambda host: host.crontab("0 2,3 * * * a\n"), BUSY),
    ("F19 cron each 15 min", lambda host: host.crontab("*/15 * * * * du -s /data\n"), OCCUPIED),
    ("F20 cron each 30 min", lambda host: host.crontab("*/30 * * * * curl -s example.org\n", "root"), OCCUPIED),
    ("cron each hour of the working day", lambda host: host.crontab("0 9-17 * * 1-5 report\n"), OCCUPIED),
    ("a machine's crontab each 4 hours", lambda host: host.crontab("0 */4 * * * x\n", "root"), OCCUPIED),
    ("root's daily crontab", lambda host: host.crontab("@daily backup\n", "root"), BUSY),
    ("only at boot", lambda host: host.crontab("@reboot serve\n"), IDLE),
    ("a job that is switched off", lambda host: host.crontab("# 0 2 * * * train\n0 0 31 2 * train\n"), IDLE),
    (
        "the distribution's cron.daily",
        lambda host: host.write("etc/crontab", "SHELL=/bin/sh\n25 6 * * * root run-parts /etc/cron.daily\n"),
        IDLE,
    ),
    ("a daily backup of cron.d", lambda host: host.write("etc/cron.d/backup", "5 3 * * * root backup\n"), IDLE),
    ("alice's job in cron.d", lambda host: host.write("etc/cron.d/train", "5 3 * * * alice train\n"), BUSY),
    ("a job of LDAP's bob in cron.d", lambda host: host.write("etc/cron.d/train", "5 3 * * * bob train\n"), BUSY),
    ("apt-daily", shipped, IDLE),
    ("snap's timer", lambda host: host.timer("OnCalendar=02:00", "snap.certbot.renew.timer"), IDLE),
    ("an administrator's timer each hour", lambda host: host.timer("OnCalendar=hourly"), OCCUPIED),
    ("an administrator's timer each 10 min", lambda host: host.timer("OnBootSec=5m\nOnUnitActiveSec=10m"), OCCUPIED),
    ("a rare timer that only the manager knows", lambda host: host.timer("OnUnitActiveSec=1d"), UNKNOWN),
    ("a calendar that is not read", lambda host: host.timer("OnCalendar=*-*~01 02:00"), UNKNOWN),
    (
        "a disabled timer",
        lambda host: host.write("etc/systemd/system/off.timer", "[Timer]\nOnCalendar=02:00\n"),
        IDLE,
    ),
    ("a timer of somebody who is not there", lambda host: host.timer("OnCalendar=02:00", folder=USER_UNITS), IDLE),
    ("nothing of all this", lambda _: None, IDLE),
]


@pytest.mark.parametrize(("life", "says"), [life[1:] for life in LIVES], ids=[life[0] for life in LIVES])
def test_what_a_life_is(tmp_path: Path, life: Callable[[QueueHost], object], says: State) -> None:
    """The table: queued work keeps the node, housekeeping and the machine's own say nothing."""
    host = QueueHost(tmp_path)
    life(host)
    found = host.scheduled()

    assert found.says is says, found.note


@pytest.mark.parametrize("clock", ["2026-01-05 02:01", "2026-01-05 08:00", "2026-01-05 20:00"])
def test_daily_work_of_people_keeps_its_node_all_day(tmp_path: Path, clock: str) -> None:
    """By default: a stop in the morning would take the next night's run away. The setting gives the days back."""
    host = QueueHost(tmp_path)
    host.crontab("0 2 * * * train\n")
    host.set_clock(clock)
    default = ScheduledSettings().horizon

    assert host.scheduled(horizon=default).says is State.BUSY


def test_it_says_whose_work_is_due_when(tmp_path: Path) -> None:
    """And which setting would change that; the command is never told."""
    host = QueueHost(tmp_path)
    host.crontab("# secret-comment\nTOKEN=secret\n30 2 * * * python train.py --key=secret%in\n")
    found = host.scheduled()

    assert found.note == "alice's cron job (line 3) is due at 2026-01-06 02:30 UTC and again after 1d"
    assert found.owner is not None
    assert found.owner.user == "alice"
    assert found.setting == "agent.evidence.scheduled.horizon"
    assert found.observed == (8 * 60 + 20) * 60
    assert "secret" not in str(found)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_at_job_is_its_files_owners(tmp_path: Path) -> None:
    """The sentence of the note."""
    host = QueueHost(tmp_path)
    host.at_job("2026-01-06 02:00")
    found = host.scheduled()

    assert found.note == "alice's at job is due at 2026-01-06 02:00 UTC"
    assert found.setting == "agent.evidence.scheduled.once_horizon"


def test_idle_says_what_was_looked_at(tmp_path: Path) -> None:
    """And what of it does not count, once a run was seen."""
    host = QueueHost(tmp_path)
    host.crontab("*/15 * * * * a\n0 2 * * sat b\n", "root")
    signal = Scheduled(ScheduledSettings(horizon=43200.0), host.roots, 5.0)
    host.tells(signal)
    host.clock.advance(3600.0)

    assert host.tells(signal).note == (
        "nothing is due soon: at jobs, crontabs, systemd timers, users' timers, event units "
        "(1 due later, 1 repeats often)"
    )


@pytest.mark.parametrize(
    ("line", "user", "says"),
    [
        ("0 2 * * sat b", "alice", State.OCCUPIED),
        ("0 2 * * sat b", "root", State.IDLE),
        ("0 2 9 * * b", "alice", State.OCCUPIED),
        ("0 2 20 * * b", "alice", State.IDLE),
        ("0 15 * * * b", "alice", State.IDLE),
    ],
    ids=["weekly", "root", "monthly, this week", "monthly", "daily"],
)
def test_a_persons_job_of_each_week_occupies_for_a_week(tmp_path: Path, line: str, user: str, says: State) -> None:
    """No run of tomorrow makes up for it; one of each day is lost for a day."""
    host = QueueHost(tmp_path)
    host.crontab(f"{line}\n", user)
    found = host.scheduled(horizon=12 * 3600.0)

    assert found.says is says
    assert (says is State.OCCUPIED) == (found.setting == "agent.evidence.scheduled.once_horizon")


def test_a_step_of_the_wall_clock_hides_nothing(tmp_path: Path) -> None:
    """Each look computes anew: after a step ahead or back the job that is then due soon counts."""
    host = QueueHost(tmp_path)
    host.crontab("0 2 * * * train\n")
    host.timer("OnActiveSec=8h", "r1.timer", "run/systemd/transient")
    host.set_clock("2026-01-06 05:00")
    stepped = host.scheduled()
    (host.root / "run/systemd/transient/r1.timer").unlink()
    ahead = host.scheduled().says
    host.set_clock("2026-01-05 20:00")

    assert "r1.timer is queued for an unknown time" in (stepped.note or "")
    assert (ahead, host.scheduled().says) == (State.IDLE, State.BUSY)


def test_a_source_can_be_left_out(tmp_path: Path) -> None:
    """Where an agent may not see one of them, the others still count."""
    host = QueueHost(tmp_path)
    host.crontab("0 2 * * * train\n")

    assert host.scheduled(sources=("at", "timers")).says is State.IDLE
    assert host.scheduled(horizon=3600.0).says is State.IDLE
    assert host.scheduled(min_period=2 * 86400.0).says is State.OCCUPIED
