"""agent/evidence/snoozes.py and `gpuwatch snooze`: a person says that the machine is needed."""

import json
import os
import pwd
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.evidence.base import Moment, Roots
from gpuwatch.agent.evidence.settings import EvidenceSettings, SnoozeSettings
from gpuwatch.agent.evidence.snoozes import SnoozeError, Snoozes, make_directory, snooze
from gpuwatch.model.activity import State
from gpuwatch.runtime.clock import SystemClock
from tests.support.fakes.host import BOOT, FolderHost

HOUR = 3600.0
MINE = f"{os.geteuid()}.json"
ME = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host with a directory of snoozes, and none in it."""
    made = FolderHost(tmp_path)
    make_directory(made.root / "run/gpuwatch/snoozes")
    return made


def snoozes(host: FolderHost) -> Snoozes:
    """The signal; no snooze is longer than a day."""
    return Snoozes(SnoozeSettings(directory=str(host.root / "run/gpuwatch/snoozes")), host.roots)


def a_snooze(host: FolderHost, seconds: float, name: str = MINE, **other: object) -> Path:
    """A snooze taken now."""
    now = host.clock.monotonic()
    known = {"boot_id": BOOT, "from_monotonic_seconds": now, "until_monotonic_seconds": now + seconds, "reason": "eval"}
    return host.write(f"run/gpuwatch/snoozes/{name}", json.dumps({**known, **other}))


def test_no_snooze_is_idle(host: FolderHost) -> None:
    """A directory in which nothing lies."""
    assert host.tells(snoozes(host)).says is State.IDLE


def test_where_no_snooze_can_be_taken_it_is_idle_and_said(host: FolderHost) -> None:
    """A directory that never was holds no snoozes; made later, it is looked at like any other."""
    directory = host.root / "run/gpuwatch/snoozes"
    directory.rmdir()
    signal = snoozes(host)
    without = host.tells(signal)
    make_directory(directory)
    a_snooze(host, HOUR)

    assert without.says is State.IDLE
    assert without.note == (
        f"`gpuwatch snooze` does not work yet: {directory} is missing (mkdir -p {directory} && chmod 1777 {directory})"
    )
    assert host.tells(signal).says is State.BUSY


def test_a_directory_that_is_gone_is_unknown_until_it_is_back(host: FolderHost) -> None:
    """Snoozes may have gone with it, so nobody knows that none holds."""
    directory = host.root / "run/gpuwatch/snoozes"
    snooze = a_snooze(host, HOUR)
    signal = snoozes(host)
    host.tells(signal)
    snooze.unlink()
    directory.rmdir()
    gone = [host.tells(signal).says for _ in range(3)]
    shown = signal.current
    make_directory(directory)

    assert gone == [State.UNKNOWN] * 3
    assert shown == (), "a snooze that cannot be seen is not shown as one that holds"
    assert host.tells(signal).says is State.IDLE


def test_a_directory_that_cannot_be_listed_is_unknown(host: FolderHost) -> None:
    """Also at the first look: what is there and cannot be read is not nothing."""
    directory = host.root / "run/gpuwatch/snoozes"
    directory.rmdir()
    directory.write_text("no directory")

    assert host.tells(snoozes(host)).says is State.UNKNOWN


def test_a_snooze_is_busy_until_it_ends(host: FolderHost) -> None:
    """The note says who, until when, and why."""
    a_snooze(host, 4 * HOUR)
    signal = snoozes(host)
    taken = host.tells(signal)
    host.pass_time(4 * HOUR - 1)
    almost = host.tells(signal)
    host.pass_time(1)

    assert (taken.says, taken.observed) == (State.BUSY, 4 * HOUR)
    assert taken.note == f"{ME} until 2026-01-05 04:16 UTC: eval"
    assert (almost.says, host.tells(signal).says) == (State.BUSY, State.IDLE)
    assert signal.current == ()


@pytest.mark.parametrize("jump", [-400 * 24 * HOUR, 400 * 24 * HOUR])
def test_the_wall_clock_neither_ends_nor_prolongs_it(host: FolderHost, jump: float) -> None:
    """A snooze is timed on the clock that never jumps."""
    a_snooze(host, 4 * HOUR)
    host.clock.jump(jump)
    leapt = host.tells(snoozes(host))
    host.pass_time(4 * HOUR)

    assert (leapt.says, leapt.observed) == (State.BUSY, 4 * HOUR)
    assert host.tells(snoozes(host)).says is State.IDLE


def test_a_reboot_ends_it(host: FolderHost) -> None:
    """Whoever needed the machine has lost what ran there."""
    os.utime(a_snooze(host, 4 * HOUR), (0.0, 0.0))  # before this boot, then
    host.write("proc/sys/kernel/random/boot_id", "00000000-0000-4000-8000-000000000000\n")

    assert host.tells(snoozes(host)).says is State.IDLE


def test_a_boot_by_another_name_ends_nothing(host: FolderHost) -> None:
    """In a container a person and the agent's sandbox may see different boot ids: what is newer than the boot holds."""
    now = host.clock.now().timestamp()
    os.utime(a_snooze(host, 4 * HOUR), (now, now))
    host.write("proc/sys/kernel/random/boot_id", "00000000-0000-4000-8000-000000000000\n")

    assert host.tells(snoozes(host)).says is State.BUSY


def test_no_snooze_outlasts_the_cap(host: FolderHost) -> None:
    """However long the file says, it ends a day after its beginning."""
    a_snooze(host, 3000 * HOUR)
    host.pass_time(23 * HOUR)
    last = host.tells(snoozes(host))
    host.pass_time(HOUR)

    assert (last.says, last.observed) == (State.BUSY, HOUR)
    assert host.tells(snoozes(host)).says is State.IDLE


BROKEN: dict[str, tuple[str, dict[str, object]]] = {
    "another's name": ("4294967.json", {}),
    "a file that is none": ("7.json", {"boot_id": 7}),
    "no boot": (MINE, {"boot_id": "today"}),
    "from the future": (MINE, {"from_monotonic_seconds": 1e9, "until_monotonic_seconds": 2e9}),
    "a number that is none": (MINE, {"until_monotonic_seconds": "soon"}),
    "no reason": (MINE, {"reason": None}),
}


@pytest.mark.parametrize(("name", "other"), BROKEN.values(), ids=BROKEN.keys())
def test_a_snooze_that_cannot_be_believed_is_unknown(host: FolderHost, name: str, other: dict[str, object]) -> None:
    """Somebody wanted something: that is no idleness, and no permission either."""
    path = a_snooze(host, HOUR, name, **other)
    found = host.tells(snoozes(host))

    assert found.says is State.UNKNOWN
    assert (found.note or "").startswith(f"{path.name}: ")


def test_links_and_pipes_are_not_followed(host: FolderHost) -> None:
    """The agent may read what its users may not, and must not wait for them."""
    folder = host.root / "run/gpuwatch/snoozes"
    (folder / "1.json").symlink_to(a_snooze(host, HOUR, "../elsewhere.json"))
    os.mkfifo(folder / "2.json")
    found = host.tells(snoozes(host))

    assert found.says is State.UNKNOWN
    assert "1.json: Too many levels of symbolic links" in (found.note or "")
    assert "2.json is not a regular file" in (found.note or "")


def test_a_good_snooze_wins_over_a_broken_one(host: FolderHost) -> None:
    """Both are told."""
    a_snooze(host, HOUR)
    a_snooze(host, HOUR, "4294967.json")

    assert [each.says for each in host.told(snoozes(host))] == [State.BUSY, State.UNKNOWN]


def test_a_boot_that_cannot_be_told_ends_nothing(host: FolderHost) -> None:
    """Without the boot's id no snooze can be said to be of another one."""
    a_snooze(host, HOUR)
    host.write("proc/sys/kernel/random/boot_id", "")
    empty = host.tells(snoozes(host))
    (host.root / "proc/sys/kernel/random/boot_id").unlink()

    assert (empty.says, host.tells(snoozes(host)).says) == (State.UNKNOWN, State.UNKNOWN)


@given(data=st.binary(max_size=300))
def test_garbage_is_never_idle(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Whatever bytes a snooze holds."""
    host = FolderHost(tmp_path_factory.mktemp("host"))
    host.write(f"run/gpuwatch/snoozes/{MINE}", data)

    assert host.tells(snoozes(host)).says is State.UNKNOWN


def test_all_may_write_snoozes_and_nobody_may_end_anothers(host: FolderHost) -> None:
    """The directory is like /tmp; made twice it stays as it is."""
    directory = host.root / "run/gpuwatch/snoozes"
    make_directory(directory)

    assert stat.S_IMODE(directory.stat().st_mode) == 0o1777
    assert stat.S_IMODE(directory.parent.stat().st_mode) & 0o022 == 0


# The command, on this machine's own clock and boot.


def gpuwatch_keep(directory: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """`gpuwatch snooze` as a person types it."""
    prefix = "GPUWATCH_AGENT__EVIDENCE__SNOOZE__"
    return subprocess.run(
        [sys.executable, "-m", "gpuwatch", "snooze", *arguments],
        env={**os.environ, f"{prefix}DIRECTORY": str(directory), **{prefix + key: each for key, each in more.items()}},
        capture_output=True,
        text=True,
        check=False,
    )


def seen(directory: Path) -> list[State]:
    """What an agent here would say."""
    clock = SystemClock()
    signal = Snoozes(SnoozeSettings(directory=str(directory)), Roots())
    return [each.says for each in signal.find_evidence(Moment(at=clock.now(), monotonic_seconds=clock.monotonic()))]


def test_take_list_and_end(tmp_path: Path) -> None:
    """From `keep 4h` to `--end`, the agent sees what the person was told."""
    taken = gpuwatch_keep(tmp_path, "4h", "--reason", "evaluation\nruns")
    during, listed = seen(tmp_path), gpuwatch_keep(tmp_path, "--list")
    (result,) = json.loads(gpuwatch_keep(tmp_path, "--list", "--json").stdout)["snoozes"]
    ended, again = gpuwatch_keep(tmp_path, "--end"), gpuwatch_keep(tmp_path, "--end")

    assert taken.stdout.startswith("Kept until ")
    assert listed.stdout.startswith(f"{ME} until ")
    assert listed.stdout.endswith("(3h59m): evaluation runs\n")
    assert (result["user"], result["reason"]) == (ME, "evaluation runs")
    assert (during, seen(tmp_path)) == ([State.BUSY], [State.IDLE])
    assert (ended.stdout, again.stdout) == ("Your snooze has ended.\n", "You hold no snooze.\n")
    assert list(tmp_path.iterdir()) == []


def test_hours_are_not_taken_for_seconds(tmp_path: Path) -> None:
    """Who writes 4 may mean hours: a number wants its unit, and nothing is kept without."""
    refused = gpuwatch_keep(tmp_path, "4", "--reason", "a")

    assert refused.returncode == 2
    assert "'4' has no unit; write for example 4h or 4m" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_new_snooze_replaces_the_last(tmp_path: Path) -> None:
    """One a person; others may read it whatever the umask."""
    gpuwatch_keep(tmp_path, "4h", "--reason", "a")
    gpuwatch_keep(tmp_path, "1h", "--reason", "b")

    assert [path.name for path in tmp_path.iterdir()] == [MINE]
    assert stat.S_IMODE((tmp_path / MINE).stat().st_mode) == 0o644
    assert re.fullmatch(r".* \(59m\d*s?\): b\n", gpuwatch_keep(tmp_path, "--list").stdout)


def test_too_long_is_cut_and_said(tmp_path: Path) -> None:
    """The administrator's cap, in the answer."""
    taken = gpuwatch_keep(tmp_path, "4d", "--reason", "a", MAX="8h")

    assert "8h is the longest that is allowed here." in taken.stdout
    assert "(7h59m)" in gpuwatch_keep(tmp_path, "--list", MAX="8h").stdout


@pytest.mark.parametrize(
    ("arguments", "more", "status", "said"),
    [
        (("4h",), {}, 2, "a snooze needs a reason"),
        (("4h", "--reason", " "), {}, 2, "a snooze needs a reason"),
        (("4h", "--reason", "a"), {"ENABLED": "false"}, 1, "ignores snoozes (agent.evidence.snooze.enabled)"),
        (("4h", "--reason", "a"), {"DIRECTORY": "/proc/none"}, 1, "mkdir -p /proc/none && chmod 1777 /proc/none"),
        (("soon", "--reason", "a"), {}, 2, "'soon' is not a duration"),
        (("0s", "--reason", "a"), {}, 2, "is not above 0"),
        ((), {}, 2, "give one of DURATION, --list, --end"),
        (("4h", "--end"), {}, 2, "give one of DURATION, --list, --end"),
        (("4h", "--reason", "a"), {"MAX": "-1"}, 2, "agent.evidence.snooze.max"),
    ],
)
def test_what_it_refuses(
    tmp_path: Path, arguments: tuple[str, ...], more: dict[str, str], status: int, said: str
) -> None:
    """With the reason and what would be right, and nothing written."""
    refused = gpuwatch_keep(tmp_path, *arguments, **more)

    assert (refused.returncode, refused.stdout) == (status, "")
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_snooze_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    """Neither a snooze nor half of one."""
    (tmp_path / MINE).mkdir()
    settings = EvidenceSettings(snooze=SnoozeSettings(directory=str(tmp_path)))
    with pytest.raises(SnoozeError, match="Is a directory"):
        snooze(settings, HOUR, "eval", SystemClock())

    assert [path.name for path in tmp_path.iterdir()] == [MINE]
