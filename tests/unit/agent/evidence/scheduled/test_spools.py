"""agent/evidence/scheduled: the spools of at and cron, as they are and as they should not be."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.evidence.scheduled.found import blind
from gpuwatch.agent.evidence.scheduled.signal import Scheduled
from gpuwatch.agent.evidence.settings import ScheduledSettings
from gpuwatch.model.activity import State
from tests.support.fakes.queued_work import QueueHost


@pytest.fixture
def host(tmp_path: Path) -> QueueHost:
    """A host with atd and cron, on which nothing is queued."""
    made = QueueHost(tmp_path)
    for daemon in ("atd", "cron"):
        made.write(f"usr/sbin/{daemon}", "")
    for spool in ("atjobs", "crontabs"):
        (tmp_path / "var/spool/cron" / spool).mkdir(parents=True)
    return made


def closed(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """These may not be listed, as without CAP_DAC_READ_SEARCH (the tester may be root)."""
    real = os.scandir

    def scandir(path: str | Path) -> object:
        if Path(path) in folders:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)


@pytest.mark.parametrize(("spool", "daemon"), [("atjobs", "atd"), ("crontabs", "cron")])
def test_a_spool_that_may_not_be_listed(
    host: QueueHost, monkeypatch: pytest.MonkeyPatch, spool: str, daemon: str
) -> None:
    """Unknown, with the remedy; nothing where no daemon would run what it holds. A container does not see which do."""
    closed(monkeypatch, host.root / "var/spool/cron" / spool)
    found = host.scheduled()
    (host.root / "usr/sbin" / daemon).unlink()
    on_host = host.scheduled().says
    host.write("proc/self/mountinfo", "1 2 0:5 / / rw - overlay overlay rw\n")

    assert found.says is State.UNKNOWN
    assert "CAP_DAC_READ_SEARCH" in (found.note or "")
    assert (on_host, host.scheduled().says) == (State.IDLE, State.UNKNOWN)


def test_what_is_due_wins_over_what_cannot_be_seen(host: QueueHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Busy is busy, whatever else is there."""
    host.at_job("2026-01-06 02:00")
    closed(monkeypatch, host.root / "var/spool/cron/crontabs")

    assert host.scheduled().says is State.BUSY


def test_a_running_job_is_not_queued_any_more(host: QueueHost) -> None:
    """Then atd gives its file a second name; its processes are seen by other signals."""
    path = host.at_job("2026-01-05 18:00")
    running = path.with_name("=" + path.name[1:])
    running.hardlink_to(path)

    assert host.scheduled().says is State.IDLE


def test_files_that_are_no_jobs(host: QueueHost) -> None:
    """What atd passes over: other names, one that at(1) still writes, folders, links."""
    host.at_job("2026-01-06 02:00").chmod(0o600)
    spool = host.root / "var/spool/cron/atjobs"
    (spool / ".SEQ").write_text("00001", encoding="ascii")
    (spool / "a0000101aabbccdd").write_text("too long", encoding="ascii")
    (spool / "a00002ffffffff").mkdir()
    (spool / "a00003ffffffff").symlink_to("/etc/passwd")

    assert host.scheduled().says is State.IDLE


def test_a_time_beyond_all_dates(host: QueueHost) -> None:
    """So many minutes are in the year 10136."""
    path = host.at_job("2026-01-06 02:00")
    path.rename(path.with_name("a00001ffffffff"))

    assert host.scheduled().says is State.IDLE


@pytest.mark.parametrize(
    ("text", "user"), [("0 2 * * *\n", "alice"), ("every night train secret\n", "alice"), ("0~9 2 * * * x\n", "root")]
)
def test_a_line_that_cannot_be_read_is_unknown(host: QueueHost, text: str, user: str) -> None:
    """With user and line; the command is not told."""
    host.crontab(f"# \n{text}", user)
    found = host.scheduled()

    assert (found.says, found.note) == (State.UNKNOWN, f"{user}'s crontab: no time and command on line 2")


def test_a_bad_line_hides_no_good_one(host: QueueHost) -> None:
    """The rest of the crontab is read."""
    host.crontab("bad\n0 2 * * * train\n")

    assert host.scheduled().says is State.BUSY


def test_bad_lines_of_the_machine_say_nothing(host: QueueHost) -> None:
    """As long as they are surely the machine's."""
    host.write("etc/cron.d/x", "61 2 * * * root x\n")
    own = host.scheduled().says
    host.write("etc/cron.d/x", "61 2 * * * alice x\n")

    assert (own, host.scheduled().says) == (State.IDLE, State.UNKNOWN)


def test_links_pipes_and_giants(host: QueueHost) -> None:
    """A crontab that is a link or a pipe is a doubt, which holds up nobody; so is one of megabytes."""
    spool = host.root / "var/spool/cron/crontabs"
    (spool / "bob").symlink_to("/dev/zero")
    linked = host.scheduled().says
    (spool / "bob").unlink()
    os.mkfifo(spool / "bob")
    piped = host.scheduled().says
    (spool / "bob").unlink()
    host.crontab("* * * * * x\n" * 3000)
    many = host.scheduled().says
    host.crontab("#" * (2 << 20))

    assert [linked, piped, many, host.scheduled().says] == [State.UNKNOWN] * 4


def test_a_linked_file_of_cron_d_is_followed(host: QueueHost) -> None:
    """Only root writes there; a link that leads nowhere runs nothing."""
    target = host.write("opt/jobs/train", "0 2 * * * alice train\n")
    folder = host.root / "etc/cron.d"
    folder.mkdir()
    (folder / "train").symlink_to(target)
    followed = host.scheduled().says
    target.unlink()

    assert (followed, host.scheduled().says) == (State.BUSY, State.IDLE)


def test_a_changed_crontab_is_read_again(host: QueueHost) -> None:
    """One that did not change is not."""
    signal = Scheduled(ScheduledSettings(), host.roots, 5.0)
    path = host.crontab("0 2 * * * train\n")
    before = host.tells(signal).says
    path.write_text("0 3 1 7 * train\n", encoding="utf-8")
    after = host.tells(signal).says
    path.unlink()

    assert (before, after, host.tells(signal).says) == (State.BUSY, State.IDLE, State.IDLE)


@pytest.mark.parametrize(
    ("zone", "lines", "says"),
    [
        (None, "0 6 * * *", State.BUSY),  # in UTC in 12 hours
        ("America/New_York", "0 6 * * *", State.IDLE),  # in 17 hours
        ("America/New_York", "CRON_TZ=UTC\n0 6 * * *", State.BUSY),
        ("America/New_York", "CRON_TZ=No/Where\n0 6 * * *", State.BUSY),
        ("America/New_York", "0 0 * * *", State.BUSY),  # in 11 hours
    ],
)
def test_times_are_those_of_the_host(host: QueueHost, zone: str | None, lines: str, says: State) -> None:
    """By /etc/localtime; CRON_TZ counts as well, for cronie goes by it and Debian's cron does not."""
    host.set_clock("2026-01-05 18:01")
    if zone is not None:
        (host.root / "etc/localtime").symlink_to(f"/usr/share/zoneinfo/{zone}")
        (host.root / "usr/share").mkdir(parents=True)
        (host.root / "usr/share/zoneinfo").symlink_to("/usr/share/zoneinfo")
    host.crontab(f"{lines} train\n")

    assert host.scheduled().says is says


@pytest.mark.parametrize("target", ["../usr/share/elsewhere", "/usr/share/zoneinfo/No/Where"])
def test_an_unknown_zone_of_the_host_is_a_doubt(host: QueueHost, target: str) -> None:
    """Where a crontab needs it, and else not."""
    (host.root / "etc/localtime").symlink_to(target)
    nothing = host.scheduled().says
    host.crontab("0 2 * * * train\n")

    assert (nothing, host.scheduled().says) == (State.IDLE, State.UNKNOWN)


@given(data=st.binary(max_size=300))
def test_garbage_ends_no_look(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Whatever bytes stand in a crontab, a timer or the time zone: the look says something of it."""
    host = QueueHost(tmp_path_factory.mktemp("host"))
    for name in ("var/spool/cron/crontabs/alice", "etc/cron.d/x", "etc/localtime", "etc/passwd"):
        host.write(name, data)
    host.write("run/systemd/transient/x.timer", b"[Timer]\n" + data)
    found = host.scheduled()

    assert not (found.note or "").startswith("it failed")


def shown(told: tuple[str, ...]) -> Iterator[str]:
    """What each sentence is about."""
    return (sentence.partition(":")[0] for sentence in told)


def test_an_agent_in_a_container_says_what_it_does_not_see(host: QueueHost, tmp_path: Path) -> None:
    """On the host itself it is not blind, whatever is missing."""
    bare = Roots(proc=host.roots.proc, run=tmp_path / "none", var=tmp_path / "none", etc=tmp_path, usr=tmp_path)
    host.write("proc/1/comm", "init\n")
    host.write("proc/self/mountinfo", "1 2 8:1 / / rw - ext4 /dev/sda1 rw\n")
    on_host = blind(bare)
    host.write("proc/1/comm", "systemd\n")
    with_host_pids = blind(bare)
    host.namespace("pid:[4026532000]")
    (tmp_path / "run/systemd/system").mkdir()
    of_its_own = blind(host.roots)
    host.write("proc/self/mountinfo", "1 2 0:5 / / rw - overlay overlay rw\n")

    assert on_host == ()
    assert list(shown(with_host_pids)) == ["at jobs and crontabs", "systemd timers", "users' own timers"]
    assert of_its_own == ()
    assert list(shown(blind(host.roots))) == ["users' own timers"]
