"""The made host is what a kernel would show: what the benchmark rests on."""

from pathlib import Path

import pytest

from tests.lives.folder import BEGIN_UNIX
from tests.lives.host import MadeHost
from tests.lives.rates import LifeError, duration, moments, rate
from tests.lives.story import LIVES, all_paths, load
from tests.lives.world import World
from tests.support.each import for_each

_TICKS = 100


@pytest.fixture
def host(tmp_path: Path) -> MadeHost:
    """The host of a life with people, a container, and somebody who comes and goes."""
    return MadeHost(load(LIVES / "F19-cron-backup.yaml"), tmp_path)


def _cpu(root: Path) -> int:
    return sum(map(int, (root / "proc/stat").read_text().split("\n")[0].split()[1:4]))


def _own_and_reaped(root: Path) -> tuple[int, int]:
    own = reaped = 0
    for folder in (root / "proc").iterdir():
        if folder.name.isdecimal():
            words = (folder / "stat").read_text().rpartition(")")[2].split()
            own, reaped = own + int(words[11]) + int(words[12]), reaped + int(words[13]) + int(words[14])
    return own, reaped


def test_the_total_is_the_sum_of_all_processes(host: MadeHost) -> None:
    """CPU time in /proc/stat is that of the living and of those whom their parents have waited for."""
    for moment in (0.0, 5.0, 10.0, 900.0, 905.0, 1000.0):
        host.pass_to(moment)
    own, reaped = _own_and_reaped(host.at.root)
    assert reaped > 0
    assert own + reaped == pytest.approx(_cpu(host.at.root), abs=len(host.world.members))


def test_a_group_has_what_its_processes_used(host: MadeHost) -> None:
    """The root group's CPU time is the host's, and a group that all have left keeps its part in its parent's."""
    host.pass_to(0.0)
    host.pass_to(1000.0)
    stat = (host.at.root / "sys/fs/cgroup/cpu.stat").read_text().split()
    assert int(stat[1]) / 1e6 == pytest.approx(_cpu(host.at.root) / _TICKS, abs=0.1)


def test_a_process_comes_and_goes(host: MadeHost) -> None:
    """While cron's job runs it has a folder with its parent and group; afterwards there is none."""
    host.pass_to(1.0)
    found = [path for path in (host.at.root / "proc").glob("*/comm") if path.read_text() == "restic\n"]
    assert len(found) == 1
    assert "cron.service" in (found[0].parent / "cgroup").read_text()
    host.pass_to(20.0)
    assert not found[0].parent.exists()


def test_a_terminal_tells_the_last_input(tmp_path: Path) -> None:
    """The access time of a terminal is that of the last input, and later than its change time."""
    host = MadeHost(load(LIVES / "F03-tmux-and-ssh-open.yaml"), tmp_path)
    host.pass_to(600.0)
    status = (tmp_path / "dev/pts/0").stat()
    assert status.st_atime == BEGIN_UNIX
    assert status.st_atime > status.st_ctime


def test_a_container_has_its_own_network_and_pids(tmp_path: Path) -> None:
    """A process in Docker has other namespaces, a second number, and its own table of connections."""
    host = MadeHost(load(LIVES / "B20-jupyter-in-docker.yaml"), tmp_path)
    host.pass_to(0.0)
    lab = next(path.parent for path in (tmp_path / "proc").glob("*/comm") if path.read_text() == "jupyter-lab\n")
    one = tmp_path / "proc/1"
    assert (lab / "ns/net").readlink() != (one / "ns/net").readlink()
    assert (
        len(next(each for each in (lab / "status").read_text().splitlines() if each.startswith("NSpid")).split()) == 3
    )
    assert " 01 " in (lab / "net/tcp").read_text()
    assert "docker-" in (lab / "cgroup").read_text()


@for_each(all_paths(), lambda path: path.stem)
def test_each_life_is_well_formed(path: Path) -> None:
    """Every file can be read, and its cast knows each other."""
    world = World(load(path))
    assert {process.pid for process in world.alive(0.0)} >= {1, 2}


@pytest.mark.parametrize(
    ("text", "begin", "end", "total"),
    [
        ("0.5", 0.0, 10.0, 5.0),
        ("2M from 1h to 3h", 0.0, 7200.0, 7.2e9),
        ("6M every 15m for 10s", 0.0, 1800.0, 120e6),
        (["1", "1 every 10s for 5s"], 0.0, 20.0, 30.0),
    ],
)
def test_amounts_over_time(text: object, begin: float, end: float, total: float) -> None:
    """The notation means what the README says."""
    assert rate(text).total(begin, end) == pytest.approx(total)


def test_moments_and_durations() -> None:
    """A moment, and a series of them."""
    assert duration("1h30m") == 5400.0
    assert moments(["-2m", "every 1h from 1h"], 3 * 3600.0) == (-120.0, 3600.0, 7200.0, 10800.0)


@pytest.mark.parametrize("text", ["truth: idle\ntitle: x\nwho: y\n", "truth: busy\ntitle: x\nwho: y\nprocesses: []\n"])
def test_a_mistake_is_named(tmp_path: Path, text: str) -> None:
    """A life that is not written as expected is refused, with its file's name."""
    file = tmp_path / "B99-wrong.yaml"
    file.write_text(text)
    with pytest.raises(LifeError, match=r"B99-wrong\.yaml"):
        load(file)
