"""agent/devices/amd: who holds a GPU. An empty list of the library is no proof that nobody does."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.devices.amd import AmdSource, kfd
from gpuwatch.agent.devices.amd.processes import UNSEEN_BYTES, held_by
from gpuwatch.model.gpu import GpuReading
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.amd import MIB, OUT_OF_RESOURCES, AmdHost, amd_source
from tests.support.fakes.nvml import reading

GIB = 1024 * MIB
LIST = "amdsmi_get_gpu_process_list"


@pytest.fixture
def host(tmp_path: Path) -> AmdHost:
    """One MI300X at rest."""
    return AmdHost(tmp_path)


@pytest.fixture
def amd(host: AmdHost, hand: ManualClock, monkeypatch: pytest.MonkeyPatch) -> AmdSource:
    """The real source on that host."""
    return amd_source(host, hand, monkeypatch)


def seen(found: GpuReading) -> tuple[dict[int, int | None] | None, bool | None]:
    """The memory of each holder, and whether there may be more."""
    held = found.processes
    return (None if held is None else {process.pid: process.memory_bytes for process in held}), found.processes_partial


def test_nobody(amd: AmdSource) -> None:
    """Both lists are empty, and the memory in use is the driver's own."""
    assert seen(reading(amd)) == ({}, False)


@pytest.mark.parametrize(("listed", "kernel"), [(True, True), (True, False), (False, True)])
def test_either_list_is_enough(host: AmdHost, amd: AmdSource, *, listed: bool, kernel: bool) -> None:
    """The library's list is empty where reading fails; the kernel's lacks what has just begun."""
    host.gpu().process(4711, 8 * GIB, listed=listed, kernel=kernel).in_use(8 * GIB + 283 * MIB)

    assert seen(reading(amd)) == ({4711: 8 * GIB}, False)


def test_a_list_that_fails(host: AmdHost, amd: AmdSource) -> None:
    """More than 1,024 processes are an error of the binding; the kernel's list has them all."""
    host.gpu().error(OUT_OF_RESOURCES, LIST).process(4711, GIB, listed=False).in_use(GIB)

    assert seen(reading(amd)) == ({4711: GIB}, False)


def test_memory_of_nobody_is_somebodys(host: AmdHost, amd: AmdSource) -> None:
    """A program that draws or plays video is in neither list: what it holds shows that it is there."""
    host.gpu().in_use(283 * MIB + UNSEEN_BYTES)

    assert seen(reading(amd)) == ({}, True)


def test_without_kfd_no_list_is_complete(host: AmdHost, amd: AmdSource) -> None:
    """A container without /sys, or a kernel without KFD."""
    (host.root / "sys/class/kfd/kfd/proc").rmdir()
    host.gpu().process(4711, GIB, kernel=False)

    assert seen(reading(amd)) == ({4711: GIB}, True)


def test_neither_list(host: AmdHost, amd: AmdSource) -> None:
    """Then nobody knows."""
    (host.root / "sys/class/kfd/kfd/proc").rmdir()
    host.gpu().lacks(LIST)

    assert seen(reading(amd)) == (None, None)


def test_another_pid_namespace(host: AmdHost, amd: AmdSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the pids are others', or missing."""
    monkeypatch.setattr("gpuwatch.agent.devices.amd.processes.in_host_pids", lambda: False)

    assert seen(reading(amd)) == ({}, True)
    assert host.state["gpus"]


def test_a_process_of_another_gpu(tmp_path: Path, hand: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """KFD lists a process once, with its memory on each GPU: it holds those where that is not 0, or it has a queue."""
    host = AmdHost(tmp_path, gpus=2)
    host.gpu(1).process(4711, GIB, listed=False)
    host.in_kfd(4711, "1000", 0, queue=False)
    source = amd_source(host, hand, monkeypatch)

    assert [
        result.processes and [process.pid for process in result.processes]
        for gpu in source.gpus()
        if isinstance(result := source.read(gpu), GpuReading)
    ] == [(), [4711]]


def test_a_queue_without_memory(host: AmdHost, amd: AmdSource) -> None:
    """Whoever may send work holds the GPU."""
    host.in_kfd(4711, "1000", 0)

    assert seen(reading(amd)) == ({4711: 0}, False)


def test_pids_that_cannot_be(host: AmdHost, amd: AmdSource) -> None:
    """A list with a pid of 0 has somebody in it, and it is unknown who."""
    host.gpu().process(0, GIB, kernel=False)

    assert seen(reading(amd)) == ({}, True)


# The kernel's files.


def test_gpu_ids_by_place(host: AmdHost) -> None:
    """The partitions of a chip have a number each; a processor has none, and broken entries are passed over."""
    host.kfd_node(7, "2000", location=(5 << 8) | (1 << 28))
    host.kfd_node(8, "0", location=5 << 8)
    host.kfd_node(9, "3000", location=5 << 8, domain=1)
    (host.root / "sys/class/kfd/kfd/topology/nodes/10").mkdir()

    assert kfd.gpu_ids(host.root, "00000000:05:00.0") == {"1000", "2000"}
    assert kfd.gpu_ids(host.root, "00000001:05:00.0") == {"3000"}
    assert kfd.gpu_ids(host.root, "00000000:99:00.0") == frozenset()


def test_files_that_say_nothing(host: AmdHost) -> None:
    """A process whose memory cannot be read holds the GPU: its size is not known."""
    host.in_kfd(4711, "1000", 0, queue=False)
    (host.root / "sys/class/kfd/kfd/proc/4711/vram_1000").write_text("", encoding="ascii")

    assert kfd.holders(host.root, frozenset({"1000"})) == {4711: None}


_SIZES = st.dictionaries(st.integers(1, 50), st.integers(0, 10 * GIB), max_size=6)


@given(_SIZES, st.none() | _SIZES, st.none() | st.integers(0, 40 * GIB))
def test_nobody_is_left_out(library: dict[int, int], kernel: dict[int, int] | None, used: int | None) -> None:
    """Whoever one list has is in the result; and it is complete only if the kernel was asked and the memory adds up."""
    rows = [{"pid": pid, "memory_usage": {"vram_mem": size}} for pid, size in library.items()]
    found = held_by(rows, kernel, used)
    sizes = {process.pid: process.memory_bytes or 0 for process in found.processes or ()}

    assert sizes.keys() == library.keys() | (kernel or {}).keys()
    if found.partial is False:
        assert kernel is not None
        assert used is not None
        assert used - sum(sizes.values()) < UNSEEN_BYTES
