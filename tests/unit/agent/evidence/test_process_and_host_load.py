"""agent/evidence/gpu_process_cpu.py and rates.py: CPU of GPU processes, traffic of disks and network cards."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.evidence.base import Moment, Roots
from gpuwatch.agent.evidence.gpu_process_cpu import GpuProcessCpu
from gpuwatch.agent.evidence.host_load import Disk, Network
from gpuwatch.agent.evidence.settings import DiskSettings, GpuProcessSettings, NetworkSettings
from gpuwatch.model.activity import Evidence, State
from gpuwatch.runtime.clock import SystemClock
from tests.support.fakes.host import FolderHost
from tests.support.real.agents import eventually

MIB = 1 << 20


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host on which nothing happens."""
    return FolderHost(tmp_path)


# CPU of GPU processes.


def cpu(host: FolderHost) -> GpuProcessCpu:
    """The signal at its defaults: 5 % of a core."""
    return GpuProcessCpu(GpuProcessSettings(), host.roots)


@pytest.mark.parametrize(("cpu_seconds", "says"), [(0.0, State.IDLE), (0.4, State.IDLE), (0.6, State.BUSY)])
def test_cpu_between_two_looks(host: FolderHost, cpu_seconds: float, says: State) -> None:
    """More than 5 % of a core over ten seconds is busy, whoever of them uses it; what was before does not count."""
    signal = cpu(host)
    host.process(7, cpu_seconds=1000)
    host.process(8, cpu_seconds=50, name="a) R (b")
    first = host.tells(signal, {7, 8})
    host.pass_time(10)
    host.process(7, cpu_seconds=1000 + cpu_seconds / 2)
    host.process(8, cpu_seconds=50 + cpu_seconds / 2, name="a) R (b")
    found = host.tells(signal, {7, 8})

    assert first.says is State.UNKNOWN
    assert found.says is says
    assert found.observed == pytest.approx(cpu_seconds / 10, abs=0.005)


def test_no_gpu_process_uses_no_cpu(host: FolderHost) -> None:
    """Known to be none is idle; not known is unknown."""
    assert host.tells(cpu(host), set()).says is State.IDLE
    assert host.tells(cpu(host), None).says is State.UNKNOWN


def test_a_process_that_proc_hides_may_compute(host: FolderHost) -> None:
    """With hidepid=2 the agent's own user's processes are to be seen, and nobody else's."""
    signal = cpu(host)
    host.hide_processes()
    host.process(7)
    host.tells(signal, {7, 8})
    host.pass_time(10)
    at_rest = host.tells(signal, {7, 8})
    host.process(7, cpu_seconds=5)
    host.pass_time(10)

    assert at_rest.says is State.UNKNOWN
    assert host.tells(signal, {7, 8}).says is State.BUSY


def test_processes_that_cannot_be_seen(host: FolderHost) -> None:
    """Where none of them is in /proc it is another's /proc: unknown. One that has just ended is only noted."""
    host.process(7)
    signal = cpu(host)
    host.tells(signal, {7, 8})
    host.pass_time(10)
    one = host.tells(signal, {7, 8})
    host.pass_time(10)
    none = host.tells(signal, {8, 9})

    assert (one.says, one.note) == (State.IDLE, "1 of 2 GPU processes are not in /proc")
    assert (none.says, none.note) == (
        State.UNKNOWN,
        "2 GPU processes are missing in /proc; let the agent see the host's processes",
    )


def test_a_process_that_came_in_between(host: FolderHost) -> None:
    """Started since the last look, all its CPU time counts; older and new to the GPU, it is unknown for one look."""
    host.process(7)
    signal = cpu(host)
    host.tells(signal, {7})
    host.pass_time(10)
    host.process(8, cpu_seconds=0.1, started_seconds=5005)
    fresh = host.tells(signal, {7, 8})
    host.process(9, cpu_seconds=500, started_seconds=10)
    host.pass_time(10)
    older = host.tells(signal, {7, 8, 9})
    host.pass_time(10)

    assert (fresh.says, older.says) == (State.IDLE, State.UNKNOWN)
    assert host.tells(signal, {7, 8, 9}).says is State.IDLE


def test_a_pid_that_was_given_out_again(host: FolderHost) -> None:
    """Another process of the same pid is another process."""
    host.process(7, cpu_seconds=1000)
    signal = cpu(host)
    host.tells(signal, {7})
    host.pass_time(10)
    host.process(7, cpu_seconds=3, started_seconds=5004)

    assert host.tells(signal, {7}).says is State.BUSY


def test_a_real_process_that_computes() -> None:
    """A process of this machine in a loop is busy; one that sleeps is idle."""
    clock = SystemClock()
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    sleeping = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    def looks(signal: GpuProcessCpu, pid: int) -> Evidence:
        (found,) = signal.find_evidence(
            Moment(at=clock.now(), monotonic_seconds=clock.monotonic(), gpu_pids=frozenset({pid}))
        )
        return found

    try:
        busy, idle = (GpuProcessCpu(GpuProcessSettings(), Roots()) for _ in range(2))
        eventually(lambda: looks(busy, spinning.pid).says is State.BUSY)
        eventually(lambda: looks(idle, sleeping.pid).says is State.IDLE)
    finally:
        for process in (spinning, sleeping):
            process.kill()
            process.communicate()


# Disks and network cards.


class Moving:
    """A host with two disks and a card, and things that look like more."""

    def __init__(self, host: FolderHost) -> None:
        """Nothing has moved yet."""
        self.host = host
        for real in ("block/vda", "block/nvme0n1", "class/net/eth0"):
            (host.root / "sys" / real).mkdir(parents=True)
            (host.root / "sys" / real / "device").symlink_to("../../devices/somewhere")
        for other in ("block/loop0", "block/dm-0", "class/net/lo", "class/net/docker0", "class/net/veth1"):
            (host.root / "sys" / other).mkdir(parents=True)
        self.disks = Disk(DiskSettings(), host.roots)
        self.network = Network(NetworkSettings(), host.roots)
        self.counters()

    def counters(self, **moved: int) -> None:
        """Bytes since the boot, by device."""
        disks = {"vda": 0, "vda1": 0, "nvme0n1": 0, "loop0": 0, "dm-0": 0}
        lines = [
            f"   8 0 {name} 1 0 {moved.get(name, start) // 1024} 0 1 0 {moved.get(name, start) // 1024} 0 0 0 0"
            for name, start in disks.items()
        ]
        self.host.write("proc/diskstats", "\n".join(lines) + "\n")
        cards = "".join(
            f"{name:>6}: {moved.get(name, 0)} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
            for name in ("lo", "eth0", "docker0", "veth1")
        )
        self.host.write("proc/net/dev", f"Inter-| Receive\n face |bytes\n{cards}")

    def after(self, seconds: float, **moved: int) -> tuple[Evidence, Evidence]:
        """What disk and network say so much later, having moved so much."""
        self.host.pass_time(seconds)
        self.counters(**moved)
        return self.host.tells(self.disks), self.host.tells(self.network)


@pytest.fixture
def moving(host: FolderHost) -> Moving:
    """Looked at once."""
    made = Moving(host)
    first = made.after(0)

    assert [each.says for each in first] == [State.UNKNOWN, State.UNKNOWN]
    return made


@pytest.mark.parametrize(
    ("moved", "disk", "network"),
    [
        ({}, State.IDLE, State.IDLE),
        ({"vda": 40 * MIB}, State.IDLE, State.IDLE),
        ({"vda": 30 * MIB, "nvme0n1": 30 * MIB}, State.BUSY, State.IDLE),
        ({"vda1": 900 * MIB, "loop0": 900 * MIB, "dm-0": 900 * MIB}, State.IDLE, State.IDLE),
        ({"eth0": 9 * MIB}, State.IDLE, State.IDLE),
        ({"eth0": 11 * MIB}, State.IDLE, State.BUSY),
        ({"lo": 900 * MIB, "docker0": 900 * MIB, "veth1": 900 * MIB}, State.IDLE, State.IDLE),
    ],
)
def test_what_moves_in_ten_seconds(moving: Moving, moved: dict[str, int], disk: State, network: State) -> None:
    """5 MB/s over all real disks, 1 MB/s over all real cards; partitions, loops and bridges do not count."""
    found = moving.after(10, **moved)

    assert (found[0].says, found[1].says) == (disk, network)


def test_a_rate_is_over_the_time_between_looks(moving: Moving) -> None:
    """However long that was, and whatever the wall clock does meanwhile."""
    moving.host.clock.jump(-86_400)
    disk, network = moving.after(100, vda=200 * MIB, eth0=50 * MIB)

    assert (disk.says, network.says) == (State.IDLE, State.IDLE)
    assert disk.observed == pytest.approx(2 * MIB, rel=0.01)
    assert network.observed == pytest.approx(0.5 * MIB)


def test_counters_that_begin_again_are_unknown_for_one_look(moving: Moving) -> None:
    """A card that was reset, or a disk that came, has no rate yet."""
    moving.after(10, eth0=2 * MIB, vda=MIB)
    reset = moving.after(10)
    after = moving.after(10)

    assert [each.says for each in reset] == [State.UNKNOWN, State.UNKNOWN]
    assert [each.says for each in after] == [State.IDLE, State.IDLE]


def test_a_diskless_machine_and_a_container(host: FolderHost) -> None:
    """Without a disk there is no traffic to one; without a card one is looking at the wrong network."""
    disk, network = host.tells(Disk(DiskSettings(), host.roots)), host.tells(Network(NetworkSettings(), host.roots))

    assert (disk.says, disk.note) == (State.IDLE, "there is no local disk")
    assert (network.says, network.note) == (
        State.UNKNOWN,
        "no real network card is visible; give the agent the host's network",
    )


def test_counters_that_vanish_and_return(moving: Moving) -> None:
    """What could not be read is unknown, and leaves nothing to compare the next look with."""
    moving.host.pass_time(10)
    for name in ("diskstats", "net/dev"):
        (moving.host.root / "proc" / name).unlink()
    gone = moving.host.tells(moving.disks), moving.host.tells(moving.network)
    back = moving.after(10)

    assert {each.says for each in (*gone, *back)} == {State.UNKNOWN}
    assert gone[0].note == f"No such file or directory: {moving.host.root / 'proc/diskstats'}"


@given(
    data=st.binary(max_size=500),
    place=st.sampled_from(["proc/diskstats", "proc/net/dev", "proc/7/stat", "proc/uptime"]),
)
def test_garbage_is_never_idle(tmp_path_factory: pytest.TempPathFactory, data: bytes, place: str) -> None:
    """Counters that cannot be read say nothing, though the look before was good."""
    host = FolderHost(tmp_path_factory.mktemp("host"))
    moving, signal = Moving(host), cpu(host)
    host.process(7)
    moving.after(0)
    host.tells(signal, {7})
    host.pass_time(10)
    host.write(place, data)
    says = {
        "proc/diskstats": lambda: host.tells(moving.disks),
        "proc/net/dev": lambda: host.tells(moving.network),
    }.get(place, lambda: host.tells(signal, {7}))().says

    assert says is not State.IDLE


def test_this_machine(tmp_path: Path) -> None:
    """On whatever machine this runs, the real files are understood, or said to be missing."""
    host = FolderHost(tmp_path)
    for signal in (Disk(DiskSettings(), Roots()), Network(NetworkSettings(), Roots())):
        host.tells(signal)
        host.pass_time(1)
        found = host.tells(signal)

        assert "it failed" not in (found.note or "")
    if os.path.lexists("/sys/class/net/eth0/device"):
        assert found.observed is not None
