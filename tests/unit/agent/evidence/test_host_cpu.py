"""agent/evidence/host_load.py: CPU time of the whole host, whose programs may work for a GPU that they do not hold."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.agent.evidence.base import Moment, Roots
from gpuwatch.agent.evidence.host_load import Cpu
from gpuwatch.agent.evidence.settings import CpuSettings
from gpuwatch.model.activity import State
from gpuwatch.runtime.clock import SystemClock
from tests.support.fakes.host import FolderHost
from tests.support.real.agents import eventually

TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host on which nothing happens."""
    return FolderHost(tmp_path)


def cpu(host: FolderHost) -> Cpu:
    """The signal at its defaults: four fifths of a core."""
    return Cpu(CpuSettings(), host.roots)


def spent(host: FolderHost, **seconds: float) -> None:
    """What /proc/stat counts since the boot; its columns are those of proc(5)."""
    columns = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
    line = " ".join(str(round(seconds.get(column, 0.0) * TICKS)) for column in columns)
    host.write("proc/stat", f"cpu  {line}\ncpu0 {line}\nintr 1\n")


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        ({"user": 8.0}, State.IDLE),
        ({"user": 8.1}, State.BUSY),
        ({"nice": 8.1}, State.BUSY),
        ({"user": 3.0, "system": 3.0, "irq": 1.5, "softirq": 1.5}, State.BUSY),
        ({"idle": 900.0, "iowait": 90.0, "steal": 90.0}, State.IDLE),
        ({"user": 8.0, "guest": 8.0}, State.IDLE),
    ],
    ids=["at the limit", "over it", "a nice program", "the kernel too", "waiting", "a virtual machine once"],
)
def test_what_the_host_computes(host: FolderHost, seconds: dict[str, float], says: State) -> None:
    """More than four fifths of a core is busy: a data set is prepared, or a program built."""
    signal = cpu(host)
    spent(host)
    first = host.tells(signal)
    host.pass_time(10)
    spent(host, **seconds)
    found = host.tells(signal)

    assert (first.says, first.unit) == (State.UNKNOWN, "cores")
    assert found.says is says


@pytest.mark.parametrize(
    ("burst_seconds", "looks", "says"),
    [(20.0, 1, State.IDLE), (10.0, 4, State.IDLE), (10.0, 5, State.BUSY), (160.0, 1, State.BUSY)],
    ids=["a cron job", "a core for 40 s", "a core for 50 s", "sixteen cores at once"],
)
def test_a_cron_job_is_no_work_and_a_minute_of_a_core_is(
    host: FolderHost, burst_seconds: float, looks: int, says: State
) -> None:
    """The mean of a minute counts: else every machine with an agent that wakes now and then is busy for ever."""
    signal, used = cpu(host), 0.0
    for _ in range(10):
        spent(host, user=used)
        host.tells(signal)
        host.pass_time(10)
    for _ in range(looks):
        used += burst_seconds
        spent(host, user=used)
        found = host.tells(signal)
        host.pass_time(10)

    assert found.says is says, found


@pytest.mark.parametrize(
    "text", ["", "cpu\n", "cpu  1 2 3\n", "cpu0 1 2 3 4 5 6 7 8 9 10\n", "cpu  -1 2 3 4 5 6 7 8\n"]
)
def test_what_is_no_answer_is_unknown(host: FolderHost, text: str) -> None:
    """And so is the next look, which has nothing to compare with."""
    signal = cpu(host)
    host.tells(signal)
    host.pass_time(10)
    host.write("proc/stat", text)
    broken = host.tells(signal)
    host.pass_time(10)
    spent(host, user=1.0)

    assert broken.says is State.UNKNOWN
    assert host.tells(signal).says is State.UNKNOWN


def test_counters_that_begin_again_are_unknown(host: FolderHost) -> None:
    """A processor that was taken away takes its count along."""
    signal = cpu(host)
    spent(host, user=1000.0)
    host.tells(signal)
    host.pass_time(10)
    spent(host, user=500.0)

    assert host.tells(signal).says is State.UNKNOWN


def test_a_real_program_is_seen() -> None:
    """One that computes on this machine, and holds no GPU."""
    signal, clock = Cpu(CpuSettings(busy_cores=0.1), Roots()), SystemClock()

    def busy() -> bool:
        return signal.find_evidence(Moment(at=clock.now(), monotonic_seconds=clock.monotonic()))[0].says is State.BUSY

    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as program:
        try:
            eventually(busy)
        finally:
            program.kill()


def test_the_share_of_all_processors_that_was_used(host: FolderHost) -> None:
    """Eight seconds of ten on one processor are 0.8; the first look knows nothing."""
    signal = cpu(host)
    spent(host)
    first = signal.utilization((host.tells(signal),))
    host.pass_time(10)
    spent(host, user=6.0, system=2.0, idle=2.0)

    assert first is None
    assert signal.utilization((host.tells(signal),)) == pytest.approx(0.8)


def test_no_share_is_above_one(host: FolderHost) -> None:
    """Ticks are counted at other moments than the time is taken."""
    signal = cpu(host)
    spent(host)
    host.tells(signal)
    host.pass_time(10)
    spent(host, user=10.1)

    assert signal.utilization((host.tells(signal),)) == 1.0
