"""Large files in memory occupy their machine; what a crashed job left there does not."""

import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from gpuwatch.agent.evidence.host_load import Disk
from gpuwatch.agent.evidence.settings import DiskSettings
from gpuwatch.model.activity import State
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.host import FolderHost


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host on which nothing happens."""
    return FolderHost(tmp_path)


@pytest.mark.parametrize(("gib", "says"), [(None, State.IDLE), (31, State.IDLE), (33, State.OCCUPIED)])
def test_large_files_in_memory_occupy_the_machine(host: FolderHost, gib: int | None, says: State) -> None:
    """Hours of copying into /dev/shm leave no process, and a stop loses them."""
    host.write("proc/diskstats", "")
    host.write("proc/meminfo", "MemTotal: 9 kB\n" if gib is None else f"MemTotal: 9 kB\nShmem:   {gib << 20} kB\n")
    found = host.tells(Disk(DiskSettings(), host.roots))

    assert found.says is says
    assert says is State.IDLE or found.note == "35 GB of files are in memory, which a stop loses"


@pytest.mark.parametrize(("days", "says"), [(0.5, State.OCCUPIED), (2.9, State.OCCUPIED), (3.1, State.IDLE)])
def test_what_a_crashed_job_left_in_memory_is_nobodys(host: FolderHost, days: float, says: State) -> None:
    """It has not changed for longer than a weekend. What was copied there on Friday is used on Monday."""
    host.write("proc/diskstats", "")
    host.write("proc/meminfo", f"MemTotal: 9 kB\nShmem:   {(32 << 20) + 1024} kB\n")
    path = host.write("dev/shm/jobs/psm_1a2b", bytes(2 << 20))
    host.clock = ManualClock(datetime.fromtimestamp(path.stat().st_ctime, UTC))
    host.clock.advance(days * 86400.0)

    assert host.tells(Disk(DiskSettings(), host.roots)).says is says


def statvfs(path: Path, flags: int = 0) -> os.statvfs_result:
    """As the kernel says it, but for whether reads are noted: that is up to the test, not to the mount it runs on."""
    known = os.statvfs(path)
    return os.statvfs_result([*known[:8], known.f_flag & ~os.ST_NOATIME | flags, *known[9:]])


@pytest.fixture(autouse=True)
def reads_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless a test says otherwise."""
    monkeypatch.setattr("gpuwatch.agent.evidence.host_load.statvfs", statvfs)


@pytest.fixture
def left(host: FolderHost) -> Path:
    """Two files of 1 MiB below /dev/shm, four days ago, on a host whose files in memory are 1 MiB over the limit."""
    host.write("proc/diskstats", "")
    host.write("proc/meminfo", f"MemTotal: 9 kB\nShmem:   {(32 << 20) + 1024} kB\n")
    paths = [host.write(f"dev/shm/jobs/{name}", bytes(1 << 20)) for name in ("one", "two")]
    host.clock = ManualClock(datetime.fromtimestamp(max(path.stat().st_ctime for path in paths), UTC))
    host.clock.advance(4 * 86400.0)
    return paths[0]


@pytest.mark.parametrize(("days", "says"), [(1.0, State.OCCUPIED), (3.9, State.IDLE)])
def test_what_was_read_lately_in_memory_is_somebodys(host: FolderHost, left: Path, days: float, says: State) -> None:
    """A data set that each day's job reads is not left over, though nobody writes to it."""
    for path in left.parent.iterdir():
        os.utime(path, (host.clock.now().timestamp() - days * 86400.0, path.stat().st_mtime))

    assert host.tells(Disk(DiskSettings(), host.roots)).says is says


@pytest.mark.parametrize(("days", "says"), [(0.0, State.OCCUPIED), (2.9, State.OCCUPIED), (3.1, State.IDLE)])
def test_after_a_clock_was_set_nothing_in_memory_is_left_for_three_days(
    host: FolderHost, left: Path, days: float, says: State
) -> None:
    """A clock that jumps ahead makes the data set of this morning look as old as last week's."""
    assert left.exists()
    disk, days_ahead = Disk(DiskSettings(), host.roots), 3.9 * 86400.0
    host.clock.jump(-days_ahead)
    before = host.tells(disk).says
    host.clock.jump(days_ahead)
    first = host.tells(disk).says
    host.clock.advance(days * 86400.0)

    assert (before, first, host.tells(disk).says) == (State.OCCUPIED, State.OCCUPIED, says)


def test_where_reads_are_not_noted_nothing_in_memory_is_left(
    host: FolderHost, left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `noatime` what each day's job reads would look as old as what nobody reads."""
    assert left.exists()
    assert host.tells(Disk(DiskSettings(), host.roots)).says is State.IDLE
    monkeypatch.setattr("gpuwatch.agent.evidence.host_load.statvfs", partial(statvfs, flags=os.ST_NOATIME))

    assert host.tells(Disk(DiskSettings(), host.roots)).says is State.OCCUPIED


def test_a_file_with_two_names_is_in_memory_once(host: FolderHost, left: Path) -> None:
    """What lies elsewhere in memory is not taken for left over."""
    text = f"MemTotal: 9 kB\nShmem:   {(32 << 20) + 3072} kB\n"
    host.write("proc/meminfo", text)
    for number in range(3):
        left.with_name(f"again{number}").hardlink_to(left)
    host.clock.advance(60.0)

    assert host.tells(Disk(DiskSettings(), host.roots)).says is State.OCCUPIED


def test_what_was_swapped_out_is_not_taken_from_what_is_in_memory(host: FolderHost, left: Path) -> None:
    """A file in memory keeps its size when it is swapped out, and `Shmem` does not count it any more."""
    assert left.exists()
    seen = set[State]()
    for swapped in (0, 4096):
        swap = f"SwapTotal:   {8 << 20} kB\nSwapFree:   {(8 << 20) - swapped} kB\n"
        host.write("proc/meminfo", f"MemTotal: 9 kB\nShmem:   {(32 << 20) + 1024} kB\n{swap}")
        seen.add(host.tells(Disk(DiskSettings(), host.roots)).says)

    assert seen == {State.IDLE, State.OCCUPIED}


def test_a_folder_in_memory_with_too_many_files_is_not_listed_whole(
    host: FolderHost, left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may make millions, in one folder or in as many: so many entries are looked at, and the rest counts."""
    monkeypatch.setattr("gpuwatch.agent.evidence.host_load._MOST_FILES", 20)
    for number in range(40):
        (left.parent / f"empty{number}").mkdir()
        (left.parent / f"empty{number}" / "none").mkdir()
    listed = mock.Mock(wraps=os.scandir)
    monkeypatch.setattr(os, "scandir", listed)

    host.tells(Disk(DiskSettings(), host.roots))

    assert 1 < len([call for call in listed.call_args_list if "/shm" in str(call)]) <= 20
