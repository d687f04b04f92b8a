"""What the agent can know in a PID namespace of its own, where the driver hides other processes: never idleness."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.agent.activity import ActivityRules, Memory, Sample, fold
from gpuwatch.agent.devices import pid_namespace as pids
from gpuwatch.agent.devices.nvml import processes
from gpuwatch.agent.devices.nvml.source import NvmlSource
from gpuwatch.agent.devices.pid_namespace import in_host_pids
from gpuwatch.agent.evidence.gpu_process_cpu import GpuProcessCpu
from gpuwatch.agent.evidence.settings import GpuProcessSettings
from gpuwatch.model.activity import State
from gpuwatch.model.gpu import GpuReading
from tests.support.fakes.host import FolderHost
from tests.support.fakes.nvml import StubDriver, reading

GIB = 1 << 30
OWN = "pid:[4026532741]"


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """Nothing happens on it."""
    return FolderHost(tmp_path)


@pytest.fixture
def first_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the tests themselves run in a container, whose namespace counts as the host's elsewhere."""
    monkeypatch.setattr(pids, "_HOST_PIDS", "pid:[4026531836]")


@pytest.fixture
def contained(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe runs in a container without the host's process ids."""
    monkeypatch.setattr(processes, "in_host_pids", lambda: False)


def verdict(seen: GpuReading) -> State:
    """What the agent makes of that reading alone."""
    return fold(Memory(), Sample(at=seen.at, monotonic_seconds=1.0, readings=(seen,)), ActivityRules()).activity.state


# The driver's list.


@pytest.mark.usefixtures("contained")
@pytest.mark.parametrize("listed", [{}, {41: GIB}], ids=["an empty list", "processes of the same container"])
@pytest.mark.parametrize("held", [0, 310 << 20, 20 * GIB])
def test_a_list_that_may_leave_some_out_is_doubt(
    driver: StubDriver, source: NvmlSource, listed: dict[int, int | None], held: int
) -> None:
    """Whatever it shows and whatever memory is held: who is not listed may be about to compute."""
    driver.gpu(0).processes(listed).set(memory_used=held)
    seen = reading(source)

    assert [process.pid for process in seen.processes or ()] == list(listed)
    assert verdict(seen) is State.UNKNOWN


@pytest.mark.usefixtures("contained")
def test_work_is_seen_all_the_same(driver: StubDriver, source: NvmlSource) -> None:
    """Busy wins over doubt."""
    driver.gpu(0).utilization(0.1)

    assert verdict(reading(source)) is State.BUSY


@pytest.mark.usefixtures("contained")
def test_a_split_gpu_is_in_doubt_too(driver: StubDriver, source: NvmlSource) -> None:
    """The lists of MIG instances leave the same processes out."""
    driver.gpu(0).mig((1, "1g.10gb", GIB, 0, 0)).set(gpm=0)

    assert verdict(reading(source)) is State.UNKNOWN


@pytest.mark.parametrize(
    ("listed", "held", "state"),
    [
        ({}, 0, State.IDLE),
        ({}, 20 * GIB, State.IDLE),  # of a process that is gone, or a page cache
        ({41: GIB}, GIB, State.PARKED),
        ({41: GIB, 0: GIB}, GIB, State.UNKNOWN),
        ({41: GIB, 4294967295: GIB}, GIB, State.UNKNOWN),
    ],
    ids=["nobody", "memory without a process", "a process", "one without an id", "one with an impossible id"],
)
def test_with_the_hosts_ids(
    driver: StubDriver, source: NvmlSource, listed: dict[int, int | None], held: int, state: State
) -> None:
    """Where all are listed by name their word counts; one that is listed without a name is somebody unknown."""
    driver.gpu(0).processes(listed).set(memory_used=held)

    assert verdict(reading(source)) is state


def test_a_gpu_that_hides_its_processes_is_in_doubt_beside_one_that_does_not(source: NvmlSource) -> None:
    """One incomplete list of several is enough."""
    whole = reading(source)
    other = replace(whole, info=replace(whole.info, uuid="GPU-other", index=1), processes_partial=True)
    sample = Sample(at=whole.at, monotonic_seconds=1.0, readings=(whole, other))

    assert fold(Memory(), sample, ActivityRules()).activity.state is State.UNKNOWN


# Their CPU time.


@pytest.mark.parametrize("pids", [(), (41,), (41, 42)], ids=["none listed", "one listed", "one listed, one not here"])
def test_cpu_time_of_processes_that_are_not_listed_is_not_known(host: FolderHost, pids: tuple[int, ...]) -> None:
    """'No process holds a GPU' is no finding of an agent that could not see one."""
    host.namespace(OWN)
    host.process(41)
    signal = GpuProcessCpu(GpuProcessSettings(), host.roots)
    host.told(signal, pids)
    host.pass_time(10.0)
    found = host.tells(signal, pids)

    assert found.says is State.UNKNOWN
    assert "--pid=host" in (found.note or "")


def test_processes_that_are_listed_and_work_are_busy(host: FolderHost) -> None:
    """In whatever namespace."""
    host.namespace(OWN)
    host.process(41)
    signal = GpuProcessCpu(GpuProcessSettings(), host.roots)
    host.told(signal, (41,))
    host.pass_time(10.0)
    host.process(41, cpu_seconds=5.0)

    assert host.tells(signal, (41,)).says is State.BUSY


@pytest.mark.usefixtures("first_namespace")
def test_hidepid_hides_nobody_from_the_driver(host: FolderHost) -> None:
    """An empty list of the driver is whole there; only who is in it cannot be looked at."""
    host.hide_processes()
    signal = GpuProcessCpu(GpuProcessSettings(), host.roots)

    assert host.tells(signal, ()).says is State.IDLE
    assert host.tells(signal, (41,)).says is State.UNKNOWN


@pytest.mark.usefixtures("first_namespace")
@pytest.mark.parametrize(("name", "sees"), [("pid:[4026531836]", True), (OWN, False), ("pid", False), (None, False)])
def test_whose_ids_they_are(host: FolderHost, name: str | None, sees: bool) -> None:
    """The host's namespace has a number of its own; where it cannot be told, it is not the host's."""
    host.namespace(name or "x")
    if name is None:
        (host.root / "proc/self/ns/pid").unlink()

    assert in_host_pids(host.root / "proc") is sees
