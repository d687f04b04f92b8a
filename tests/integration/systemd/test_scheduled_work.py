"""Queued work as systemd, at and cron themselves keep it, seen by the agent's signal on a really booted machine."""

import shutil
from collections.abc import Iterator

import pytest

from tests.support.components import require
from tests.support.real.systemd_container import PYTHON, Booted

pytestmark = pytest.mark.component("systemd-nspawn")

LOOK = """
from datetime import UTC, datetime
from gpuwatch.agent.evidence.base import Moment, Roots
from gpuwatch.agent.evidence.scheduled.found import blind
from gpuwatch.agent.evidence.scheduled.signal import Scheduled
from gpuwatch.agent.evidence.settings import ScheduledSettings
from gpuwatch.agent.evidence.watcher import HostWatcher, Watched
from gpuwatch.runtime.clock import SystemClock
watched = Watched(signal=Scheduled(ScheduledSettings(), Roots(), 10.0), interval_seconds=60.0)
watcher = HostWatcher([watched], SystemClock(), 10.0)
watcher.look_once(watched)
(found,) = watched.seen[1]
print(found.says, found.note, blind(Roots()), sep="|")
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    """It, booted."""
    with Booted(tmp_path_factory.mktemp("booted"), {}) as made:
        yield made


def look(host: Booted, user: str = "root") -> tuple[str, str]:
    """What the signal says and notes there; on the machine itself it is blind for nothing."""
    says, note, blind_for = host.run(PYTHON, "-c", LOOK, user=user).strip().split("|")
    assert blind_for == "()"
    return says, note


def test_systemd_run(host: Booted) -> None:
    """What it queues keeps the node until it is taken back; the timers that systemd ships do not. All may see it."""
    before = look(host)
    host.run("systemd-run", "--on-active=8h", "--unit=later", "--uid=alice", "true")
    root, alice = look(host), look(host, "alice")
    host.run("systemctl", "stop", "later.timer")

    assert before[0] == look(host)[0] == "idle", before
    assert (root[0], alice[0]) == ("busy", "busy")
    assert "systemd-run later.timer is due at" in root[1]


@pytest.mark.parametrize(
    ("calendar", "says"), [("*-*-* 00/6:00:00", "busy"), ("*:0/15", "occupied"), ("2030-01-01 02:00", "idle")]
)
def test_a_timer_of_the_administrator(host: Booted, calendar: str, says: str) -> None:
    """Rare ones count when they are due soon, by systemd's own words; frequent ones until a run was seen."""
    units = host.root / "etc/systemd/system"
    (units / "own.timer").write_text(f"[Timer]\nOnCalendar={calendar}\n", encoding="utf-8")
    (units / "own.service").write_text("[Service]\nExecStart=true\n", encoding="utf-8")
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "start", "own.timer")
    found = look(host)
    host.run("systemctl", "stop", "own.timer")

    assert found[0] == says, found[1]


def test_a_users_systemd_run(host: Booted) -> None:
    """What a user's own manager keeps lies in files of its own; it is read as long as that manager runs."""
    uid = host.run("id", "-u", "alice").strip()
    folder = f"/run/user/{uid}/systemd/transient"
    host.run("install", "-d", "-o", "alice", "-m", "700", f"/run/user/{uid}")
    host.run("install", "-d", "-o", "alice", folder)
    host.run("systemd-run", "--on-active=8h", "--unit=mine", "true")  # the same files, by the same code
    host.run("mv", "/run/systemd/transient/mine.timer", folder)
    host.run("systemctl", "stop", "mine.timer")
    found = look(host)
    host.run("rm", "-r", f"/run/user/{uid}")

    assert found[0] == "busy", found[1]
    assert "alice's systemd-run mine.timer is due at" in found[1]


def test_at_and_crontab(host: Booted) -> None:
    """The files that these programs write, in their own form and with their own rights."""
    require("at")
    require("crontab")
    for name in ("atjobs", "atspool", "crontabs"):
        folder = host.root / "var/spool/cron" / name
        folder.mkdir(parents=True)
        folder.chmod(0o1770)
        shutil.chown(folder, "daemon" if name != "crontabs" else 0, "daemon" if name != "crontabs" else 0)
    (host.root / "var/spool/cron/atjobs/.SEQ").write_text("0", encoding="ascii")
    shutil.chown(host.root / "var/spool/cron/atjobs/.SEQ", "daemon", "daemon")
    host.run("sh", "-c", "echo true | at now + 8 hours")
    queued = look(host)
    host.run("sh", "-c", "atrm $(atq | cut -f1)")
    host.run("sh", "-c", "(echo '*/15 * * * * true'; echo '0 */6 * * * true') | crontab -")
    recurring = look(host)
    host.run("crontab", "-r")

    assert queued[0] == "busy", queued[1]
    assert queued[1].startswith("root's at job is due at")
    assert recurring[1].startswith("root's cron job (line 2) is due at"), recurring
    assert look(host)[0] == "idle"
