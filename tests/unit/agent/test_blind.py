"""agent/blind.py: what an agent cannot see is reported, and never makes a machine idle."""

import logging
import os
import shutil
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.agent import blind
from gpuwatch.agent.activity import ActivityRules, Memory, Sample, fold
from gpuwatch.agent.blind import LOOKS, BlindWatch, find_blind_spots
from gpuwatch.agent.evidence.base import HostSignal
from gpuwatch.agent.evidence.registry import SIGNALS, Around
from gpuwatch.agent.evidence.settings import EvidenceSettings, SnoozeSettings
from gpuwatch.model.activity import State
from tests.lives.rights import Sight, least_rights, nobody, unit_rights
from tests.support.builders.gpu import a_reading
from tests.support.fakes.host import FolderHost
from tests.support.fakes.proc_files import USER_SESSION, put_process

OWN_PIDS = "pid:[4026532741]"
_RUNTIME = "home/alice/.local/share/jupyter/runtime"


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host that shows everything to its agent; nothing happens on it, and one daemon holds its GPU at rest."""
    host = FolderHost(tmp_path)
    host.write("sys/fs/cgroup/cgroup.controllers", "cpu io memory\n")
    host.write("sys/class/net/eth0/device/vendor", "0x1d0f\n")
    host.write("sys/block/nvme0n1/device/model", "EBS\n")
    host.write("proc/1/io", "rchar: 0\n")
    (host.root / "proc/1/exe").symlink_to("/usr/lib/systemd/systemd")
    (host.root / _RUNTIME).mkdir(parents=True)
    daemon = "nvidia-persistenced"
    put_process(host.root / "proc", 7, daemon, cgroup=f"/system.slice/{daemon}.service", uid=0)
    moved(host)
    return host


def moved(host: FolderHost, *, disk_sectors: int = 0, network_bytes: int = 0, cpu_ticks: int = 0) -> None:
    """What the kernel has counted since the boot."""
    host.write("proc/stat", f"cpu  {cpu_ticks} 0 0 0 0 0 0 0 0 0\n")
    host.write("proc/diskstats", f" 259 0 nvme0n1 1 0 {disk_sectors} 0 1 0 0 0 0 0 0\n")
    host.write("proc/net/dev", f"head\nhead\n  eth0: {network_bytes} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")


def shut(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A folder may not be listed, nor what is in it; root, as whom tests may run, may list all."""
    listing = os.scandir

    def scandir(path: Any = ".") -> Any:  # noqa: ANN401  as os.scandir has it
        if Path(path).is_relative_to(folder):
            raise PermissionError(13, "Permission denied", str(path))
        return listing(path)

    monkeypatch.setattr(os, "scandir", scandir)


def signals(host: FolderHost) -> list[HostSignal]:
    """Every signal of the host but the administrator's command."""
    settings = EvidenceSettings(snooze=SnoozeSettings(directory=str(host.root / "run/gpuwatch/snoozes")))
    return [make(Around(settings=settings, roots=host.roots)) for name, make in SIGNALS.items() if name != "command"]


def state(
    host: FolderHost, gpu_pids: Collection[int] | None, between: Callable[[], None] = lambda: None
) -> tuple[State, str | None]:
    """The verdict of an agent on this host after some looks, with work in between."""
    watched, memory = signals(host), Memory()
    for each in range(10):
        evidence = tuple(entry for signal in watched for entry in host.told(signal, gpu_pids))
        sample = Sample(
            at=host.clock.now(),
            monotonic_seconds=host.clock.monotonic(),
            readings=(a_reading(),),
            host=evidence,
        )
        memory = fold(memory, sample, ActivityRules())
        host.pass_time(9.0)
        if each == 8:  # before the last look
            between()
    return memory.activity.state, memory.activity.doubt


def codes(host: FolderHost) -> list[str]:
    """What cannot be seen."""
    return [each.what for each in find_blind_spots(host.roots)]


def test_an_agent_with_all_rights_is_not_blind_and_its_host_may_be_idle(host: FolderHost) -> None:
    """The other tests of this page take one thing away each."""
    assert codes(host) == []
    assert state(host, {7}) == (State.IDLE, None)


class Blinding:
    """Takes each sense away; some need a work that only this sense shows."""

    def __init__(self, host: FolderHost, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing is taken yet."""
        self._host = host
        self._monkeypatch = monkeypatch
        self.gpu_pids: set[int] | None = {7}
        self.sight = ExitStack()

    def work(self) -> None:
        """What happens on the host before the last look."""

    def host_pids(self) -> None:
        """A container of its own: the driver lists no process of the host."""
        self._host.namespace(OWN_PIDS)
        self.gpu_pids = set()

    def processes(self) -> None:
        """With hidepid: a process on the GPU is somebody else's."""
        self._host.hide_processes()

    def cgroups(self) -> None:
        """No file system; a program of unknown unit uses the CPU."""
        (self._host.root / "sys/fs/cgroup/cgroup.controllers").unlink()
        self.work = lambda: moved(self._host, cpu_ticks=100 * 100)  # type: ignore[method-assign]

    def run(self) -> None:
        """A /run of the container."""
        shutil.rmtree(self._host.root / "run/systemd")

    def process_io(self) -> None:
        """Not root: whose program it is and what it reads is not known, but that it is there, and the host's disk."""
        put_process(self._host.root / "proc", 8, "top", cgroup=USER_SESSION, executable="/home/alice/bin/top")
        self.sight.enter_context(Sight(nobody(), self._host.root, own=99).applied())
        self.work = lambda: moved(self._host, disk_sectors=1 << 20)  # type: ignore[method-assign]

    def homes(self) -> None:
        """Not root: somebody's server runs with its files in a closed home."""
        shut(self._monkeypatch, self._host.root / "home/alice")
        self._host.write("proc/42/comm", "jupyter-lab\n")
        self._host.write("proc/42/status", "Name:\tjupyter-lab\nNSpid:\t42\n")

    def network(self) -> None:
        """A container's own interfaces have no device."""
        (self._host.root / "sys/class/net/eth0/device/vendor").unlink()
        (self._host.root / "sys/class/net/eth0/device").rmdir()


@pytest.mark.parametrize("what", sorted(LOOKS))
def test_no_blindness_gives_idle(host: FolderHost, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Each is reported with its remedy, and work that this sense alone would name is unknown or busy."""
    blinding = Blinding(host, monkeypatch)
    with blinding.sight:
        getattr(blinding, what)()
        [spot] = [each for each in find_blind_spots(host.roots) if each.what == what]
        found, doubt = state(host, blinding.gpu_pids, blinding.work)

    assert spot.sentence.endswith(".")
    assert found in {State.UNKNOWN, State.BUSY}, doubt


@pytest.mark.parametrize("closed", ["exe", "cwd", "io", "fd", "ns", "root"])
def test_whatever_is_closed_a_persons_program_is_not_idle(host: FolderHost, closed: str) -> None:
    """At rest it occupies the machine, also under the name of a viewer; to the reader all of this is open again."""
    put_process(host.root / "proc", 8, "top", cgroup=USER_SESSION, executable="/home/alice/bin/top", arguments=("top",))
    with Sight(least_rights(), host.root, own=99, closed=(closed,)).applied():
        found, doubt = state(host, {7})

    assert found is State.OCCUPIED, doubt
    with Sight(unit_rights(), host.root, own=99).applied():
        assert "process_io" not in codes(host)


@pytest.mark.skipif("processes" not in SIGNALS, reason="no signal looks at all processes yet")
def test_hidden_processes_are_unknown_also_where_none_holds_a_gpu(host: FolderHost) -> None:
    """Somebody's program may run, and nobody sees it."""
    host.hide_processes()

    assert state(host, set())[0] is State.UNKNOWN


def test_a_network_namespace_of_its_own_is_known_by_its_number(host: FolderHost) -> None:
    """Where both may be read: a card that was moved into the container does not make it the host's network."""
    for pid, name in (("self", "net:[4026532999]"), ("1", "net:[4026531840]")):
        link = host.root / "proc" / pid / "ns/net"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(name)

    assert codes(host) == ["network"]


def test_what_hangs_or_breaks_is_no_sight(host: FolderHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the kernel in one look takes no other with it."""

    def broken(_: object) -> str | None:
        raise OSError(5, "Input/output error")

    monkeypatch.setitem(blind.LOOKS, "run", broken)

    assert [(each.what, each.sentence) for each in find_blind_spots(host.roots)] == [
        ("run", "It cannot look at run: Input/output error.")
    ]


def test_each_is_logged_once_as_a_warning(host: FolderHost, caplog: pytest.LogCaptureFixture) -> None:
    """What comes later is logged then; what stays is not logged again."""
    host.namespace(OWN_PIDS)
    watch = BlindWatch(host.roots)
    with caplog.at_level(logging.WARNING):
        watch.step()
        watch.step()
        (host.root / "sys/fs/cgroup/cgroup.controllers").unlink()
        watch.step()

    assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple)] == ["host_pids", "cgroups"]
    assert watch.codes() == ("host_pids", "cgroups")
    assert all(sentence.endswith(".") for sentence in watch.sentences())


def test_a_homes_name_cannot_move_the_cursor(host: FolderHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users name their files; a log and a terminal show them on one line."""
    home = host.root / "home/a\x1b[2J\nb"
    home.mkdir()
    shut(monkeypatch, home)
    [spot] = find_blind_spots(host.roots)

    assert "\x1b" not in spot.sentence
    assert "\n" not in spot.sentence
