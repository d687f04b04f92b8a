"""agent/devices/amd/source.py: finding AMD's GPUs, losing them, and what happens without driver or binding."""

import os
import sys
from pathlib import Path

import pytest

from gpuwatch.agent.devices import SourceUnavailableError
from gpuwatch.agent.devices.amd import AmdSource
from gpuwatch.agent.devices.amd.source import REOPEN_SECONDS
from gpuwatch.agent.devices.messages import Step
from gpuwatch.model.gpu import DownCause, GpuDown, GpuInfo, GpuReading
from gpuwatch.model.metric import SLOW_SECONDS
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.amd import (
    BUSY,
    DRIVER_NOT_LOADED,
    FILE_ERROR,
    NA,
    NO_PERM,
    NOT_INIT,
    UNEXPECTED_DATA,
    AmdHost,
    amd_source,
)
from tests.support.fakes.nvml import cycle, down

UUID = "amdsmi_get_gpu_device_uuid"
BDF = "amdsmi_get_gpu_device_bdf"
ACTIVITY = "amdsmi_get_gpu_activity"


@pytest.fixture
def host(tmp_path: Path) -> AmdHost:
    """Three MI300X at rest."""
    return AmdHost(tmp_path, gpus=3)


@pytest.fixture
def amd(host: AmdHost, hand: ManualClock, monkeypatch: pytest.MonkeyPatch) -> AmdSource:
    """The real source on that host."""
    return amd_source(host, hand, monkeypatch)


def states(results: list[GpuReading | GpuDown]) -> list[str]:
    """`read`, or why not."""
    return ["read" if isinstance(result, GpuReading) else result.cause.value for result in results]


# Finding.


def test_all_gpus_by_index(amd: AmdSource) -> None:
    """In the library's order, each under its own uuid and place."""
    infos = amd.gpus()

    assert [info.index for info in infos] == [0, 1, 2]
    assert len({info.uuid for info in infos}) == len({info.pci_bus_id for info in infos}) == 3
    assert {info.vendor for info in infos} == {"amd"}


def test_no_gpu(host: AmdHost, amd: AmdSource) -> None:
    """A library that lists none is an answer."""
    host.set(gpus=[])

    assert amd.gpus() == ()


def test_partitions_share_a_uuid_and_get_one_each(host: AmdHost, amd: AmdSource) -> None:
    """In CPX mode the library gives each partition the uuid of the chip; the first keeps it."""
    for slot in (1, 2):
        host.gpu(slot).answer(UUID, "a5ff74a1-0000-1000-8000-000000000000").answer(BDF, f"0000:05:00.{slot}")

    assert [info.uuid for info in amd.gpus()] == [
        "a5ff74a1-0000-1000-8000-000000000000",
        "a5ff74a1-0000-1000-8000-000000000000-p1",
        "a5ff74a1-0000-1000-8000-000000000000-p2",
    ]
    assert states(cycle(amd)) == ["read"] * 3


def test_a_partition_that_tells_no_activity(host: AmdHost, amd: AmdSource) -> None:
    """Its activity is not known; it is not that of the chip, and not 0."""
    host.gpu(1).answer(ACTIVITY, gfx_activity=NA, umc_activity=NA).lacks("amdsmi_get_gpu_metrics_info")
    seen = cycle(amd)[1]

    assert isinstance(seen, GpuReading)
    assert (seen.utilization_ratio, seen.utilization_max_ratio) == (None, None)


def test_a_gpu_that_does_not_say_who_it_is(host: AmdHost, amd: AmdSource, hand: ManualClock) -> None:
    """It is down under a stand-in until it does."""
    host.gpu(1).error(UNEXPECTED_DATA, UUID)
    nameless = down(cycle(amd)[1])
    host.gpu(1).heal()
    hand.advance(REOPEN_SECONDS)
    named = cycle(amd)

    assert (nameless.info.uuid, nameless.cause) == ("unidentified-00000000:06:00.0", DownCause.ERROR)
    assert UUID in nameless.detail
    assert states(named) == ["read"] * 3


# Losing.


def test_a_gpu_that_answers_nothing(host: AmdHost, amd: AmdSource, hand: ManualClock) -> None:
    """It is down with the library's words, stays expected, and is found again when the library is opened anew."""
    before = cycle(amd)
    host.gpu(1).error(FILE_ERROR)
    lost = [cycle(amd), cycle(amd)]
    host.gpu(1).heal()
    hand.advance(REOPEN_SECONDS)
    after = cycle(amd)

    for results in lost:
        assert states(results) == ["read", "error", "read"]
        assert [result.info for result in results] == [result.info for result in before]
        assert "Error opening file" in down(results[1]).detail
    assert states(after) == ["read"] * 3


def test_a_gpu_off_the_bus(host: AmdHost, amd: AmdSource) -> None:
    """Is lost."""
    cycle(amd)
    host.off_the_bus("0000:06:00.0")
    host.gpu(1).error(FILE_ERROR)

    assert down(cycle(amd)[1]).cause is DownCause.LOST


def test_a_gpu_that_is_no_longer_listed(host: AmdHost, amd: AmdSource, hand: ManualClock) -> None:
    """Is missing, and gives its index up to the others."""
    uuid = amd.gpus()[0].uuid
    host.gpu(0).error(FILE_ERROR)
    cycle(amd)
    host.unplug(0)
    hand.advance(REOPEN_SECONDS)
    results = cycle(amd)

    assert [(result.info.uuid == uuid, result.info.index) for result in results] == [
        (False, 0),
        (False, 1),
        (True, None),
    ]
    assert down(results[2]).cause is DownCause.MISSING


def test_one_busy_answer_is_no_loss(host: AmdHost, amd: AmdSource) -> None:
    """A call that fails leaves its own values out."""
    host.gpu(1).error(BUSY, ACTIVITY, "amdsmi_get_gpu_metrics_info")
    seen = cycle(amd)[1]

    assert isinstance(seen, GpuReading)
    assert (seen.utilization_ratio, seen.power_watts) == (None, 141.0)


def test_barred_gpus_are_not_asked(host: AmdHost, hand: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but its place is asked of a GPU that hung an earlier probe; it may have been named, or not."""
    host.gpu(1).hang(UUID, ACTIVITY)
    amd_source(host, hand, monkeypatch)
    info = GpuInfo(uuid="unidentified-1", index=1, pci_bus_id="00000000:06:00.0")
    source = AmdSource(hand, root=host.root, barred=[info])

    assert states(cycle(source)) == ["read", "hang", "read"]


# The driver.


@pytest.mark.parametrize(
    ("code", "cause", "remedy"),
    [
        (DRIVER_NOT_LOADED, "driver_not_loaded", "modprobe amdgpu"),
        (NO_PERM, "no_permission", "/dev/kfd"),
        (UNEXPECTED_DATA, "amdsmi_error", "amd-smi list"),
    ],
)
def test_a_library_that_cannot_be_opened(host: AmdHost, amd: AmdSource, code: int, cause: str, remedy: str) -> None:
    """Nothing can be read; the error says what to do, and the next cycle tries again."""
    host.set(init_error=code)
    with pytest.raises(SourceUnavailableError) as failed:
        amd.gpus()
    host.set(init_error=None)

    assert (failed.value.cause, remedy in failed.value.remedy) == (cause, True)
    assert f"AMD SMI error {code}" in failed.value.detail
    assert states(cycle(amd)) == ["read"] * 3


def test_a_driver_that_goes_away(host: AmdHost, amd: AmdSource) -> None:
    """Is noticed at the first call, and opened again by the next cycle."""
    gpus = amd.gpus()
    host.gpu(0).error(NOT_INIT, ACTIVITY)
    with pytest.raises(SourceUnavailableError) as failed:
        amd.read(gpus[0])
    host.gpu(0).heal()

    assert failed.value.cause == "driver_reloaded"
    assert states(cycle(amd)) == ["read"] * 3


def test_no_library(host: AmdHost, amd: AmdSource, capsys: pytest.CaptureFixture[str]) -> None:
    """The binding fails with a KeyError when its library is missing; once that is there, it is loaded."""
    host.set(library="absent")
    with pytest.raises(SourceUnavailableError) as failed:
        amd.gpus()
    host.set(library="there")

    assert (failed.value.cause, "libamd_smi.so" in failed.value.detail) == ("library_not_found", True)
    assert "amd-smi-lib" in failed.value.remedy
    assert "libamd_smi.so" in capsys.readouterr().err  # and not on the probe's channel
    assert states(cycle(amd)) == ["read"] * 3


def test_no_binding(tmp_path: Path, hand: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ROCm the error says what is missing."""
    source = amd_source(AmdHost(tmp_path, binding=False), hand, monkeypatch)
    with pytest.raises(SourceUnavailableError) as failed:
        source.gpus()

    assert (failed.value.cause, "amdsmi" in failed.value.detail) == ("library_not_found", True)


def test_the_librarys_locks_are_our_own(amd: AmdSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe that hangs would else hold up the start of every job on the host."""
    monkeypatch.delenv("RSMI_MUTEX_THREAD_ONLY", raising=False)
    amd.gpus()

    assert os.environ["RSMI_MUTEX_THREAD_ONLY"] == "1"


def test_the_search_path_stays_as_it_was(amd: AmdSource) -> None:
    """ROCm's folder holds more than the binding, which nobody else shall import."""
    before = list(sys.path)
    amd.gpus()

    assert sys.path == before


def test_released(host: AmdHost, amd: AmdSource) -> None:
    """A closed source holds nothing open, and opens again when it is asked."""
    cycle(amd)
    amd.close()
    amd.close()

    assert states(cycle(amd)) == ["read"] * 3
    assert host.state["gpus"]


# Pace and steps.


def test_slow_values_are_kept_in_between(host: AmdHost, amd: AmdSource, hand: ManualClock) -> None:
    """Limits are asked for every half minute; a call that then fails ends them at once."""

    def limit() -> float | None:
        seen = cycle(amd)[0]
        assert isinstance(seen, GpuReading)
        return seen.power_limit_watts

    first = limit()
    host.gpu(0).error(FILE_ERROR, "amdsmi_get_power_cap_info").answer("amdsmi_get_power_info", power_limit=NA)
    kept = limit()
    hand.advance(SLOW_SECONDS)

    assert (first, kept, limit()) == (750.0, 750.0, None)


def test_a_cycle_says_whether_it_was_whole(amd: AmdSource) -> None:
    """It is after hurry; and not where processes and memory traffic are those of a moment ago."""
    cycle(amd)
    whole = amd.whole
    cycle(amd, whole=False)

    assert (whole, amd.whole) == (True, False)


def test_each_step_that_may_hang_is_told(host: AmdHost, hand: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the library is opened, and before each GPU is asked who it is."""
    amd_source(host, hand, monkeypatch)
    steps: list[Step] = []
    AmdSource(hand, root=host.root, tell=steps.append).gpus()

    assert [step.what for step in steps] == ["init", "gpu", "gpu", "gpu"]
    assert steps[2].pci_bus_id == "00000000:06:00.0"
