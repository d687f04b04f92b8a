"""NVML when a GPU is lost or the driver is missing, through pynvml and a stand-in driver."""

import pytest

from gpuwatch.agent.devices import SourceUnavailableError
from gpuwatch.agent.devices.nvml.source import NvmlSource
from gpuwatch.model.gpu import RECOVERY_ACTIONS, DownCause, GpuReading
from tests.support.fakes.nvml import (
    DRIVER_NOT_LOADED,
    NO_PERMISSION,
    NOT_SUPPORTED,
    OPERATING_SYSTEM,
    RESET_REQUIRED,
    UNKNOWN,
    VERSION_MISMATCH,
    StubDriver,
    cycle,
    down,
    reading,
)

# A GPU that is lost.


def test_lost_gpu(driver: StubDriver, source: NvmlSource) -> None:
    """A lost GPU is down with the driver's words, stays expected under its uuid, and comes back when it is found."""
    driver.gpus(3)
    before = cycle(source)
    driver.lose(1)
    lost = [cycle(source), cycle(source)]
    driver.find(1)
    after = cycle(source)

    for results in lost:
        assert [isinstance(result, GpuReading) for result in results] == [True, False, True]
        assert [result.info for result in results] == [result.info for result in before]
        assert down(results[1]).cause is DownCause.LOST
        assert "GPU is lost" in down(results[1]).detail
    assert all(isinstance(result, GpuReading) for result in after)


def test_lost_in_the_midst(driver: StubDriver, source: NvmlSource) -> None:
    """A GPU that falls off the bus while it is read gives no half reading."""
    gpus = source.gpus()
    driver.lose(0)

    assert down(source.read(gpus[0])).cause is DownCause.LOST


def test_lost_before_it_was_seen(driver: StubDriver, source: NvmlSource) -> None:
    """A GPU that is lost from the start is down under a stand-in, which its true uuid replaces."""
    driver.gpus(2)
    driver.lose(0)
    lost = down(cycle(source)[0])
    driver.find(0)
    found = cycle(source)

    assert (lost.info.uuid, lost.info.index, lost.cause) == ("unidentified-0", 0, DownCause.LOST)
    assert [result.info.uuid[-1] for result in found if isinstance(result, GpuReading)] == ["0", "1"]


@pytest.mark.parametrize(
    ("code", "words"),
    [(NO_PERMISSION, "Insufficient Permissions"), (OPERATING_SYSTEM, "operating system has blocked")],
)
def test_barred_gpu(driver: StubDriver, source: NvmlSource, code: int, words: str) -> None:
    """A GPU that this user, or a control group, may not open is down with that reason, and is not called lost."""
    driver.gpus(2)
    driver.gpu(0).error("nvmlDeviceGetHandleByIndex_v2", code)
    barred, other = cycle(source)

    assert (down(barred).cause, words in down(barred).detail) == (DownCause.ERROR, True)
    assert isinstance(other, GpuReading)


@pytest.mark.parametrize("function", ["*", "nvmlDeviceGetHandleByIndex_v2"])
def test_a_gpu_that_must_be_reset_first(driver: StubDriver, source: NvmlSource, function: str) -> None:
    """One that answers nothing else is down with this cause, whether it was known before or not, until it is reset."""
    driver.gpus(2)
    driver.gpu(0).error(function, RESET_REQUIRED)
    sick, other = cycle(source)
    driver.gpu(0).error(function, 0)
    after = cycle(source)[0]

    assert (down(sick).cause, isinstance(other, GpuReading)) == (DownCause.RESET, True)
    assert isinstance(after, GpuReading)


@pytest.mark.parametrize("said", [0, None], ids=["and asks for nothing", "and does not say what it asks for"])
def test_one_call_that_needs_a_reset_asks_for_it(driver: StubDriver, source: NvmlSource, said: int | None) -> None:
    """Whatever the field of the recovery action says: the other figures go on, and the driver asks for a reset."""
    gpu = driver.gpu(0).error("nvmlDeviceGetBAR1MemoryInfo", RESET_REQUIRED)
    gpu.error("field.230", 0 if said == 0 else NOT_SUPPORTED)
    seen = reading(source)

    assert (seen.recovery_action, seen.temperature_celsius) == (RECOVERY_ACTIONS.index("reset"), 35.0)


def test_no_longer_listed(driver: StubDriver, source: NvmlSource) -> None:
    """A GPU that the driver stops listing is missing and gives its index up to the others, whose uuids stay."""
    driver.gpus(3)
    cycle(source)
    driver.unplug(0)
    results = {result.info.uuid[-1]: result for result in cycle(source)}

    assert down(results["0"]).cause is DownCause.MISSING
    assert [results[uuid].info.index for uuid in ("1", "2", "0")] == [0, 1, None]
    assert all(isinstance(results[uuid], GpuReading) for uuid in ("1", "2"))


def test_the_last_is_no_longer_listed(driver: StubDriver, source: NvmlSource) -> None:
    """An index that nobody takes stays with its GPU; once found, it has the one that the driver gives it."""
    driver.gpus(3)
    cycle(source)
    driver.unplug(2)
    missing = cycle(source)[2]
    driver.unplug(0)
    displaced = [gpu.index for gpu in source.gpus()]
    driver.find(0)
    driver.find(2)

    assert (down(missing).cause, missing.info.index) == (DownCause.MISSING, 2)
    assert displaced == [0, 2, None]
    assert [gpu.index for gpu in source.gpus()] == [0, 1, 2]


def test_nothing_but_errors(driver: StubDriver, source: NvmlSource) -> None:
    """A GPU that answers every question with an error is down, not a reading without values."""
    cycle(source)
    driver.gpu(0).error("*", UNKNOWN)
    (result,) = cycle(source)

    assert down(result).cause is DownCause.ERROR
    assert "Unknown Error" in down(result).detail


# A driver that is missing.


@pytest.mark.parametrize(
    ("code", "cause", "remedy"),
    [
        (DRIVER_NOT_LOADED, "driver_not_loaded", "modprobe nvidia"),
        (NO_PERMISSION, "no_permission", "/dev/nvidiactl"),
        (VERSION_MISMATCH, "version_mismatch", "reload the module or reboot"),
        (UNKNOWN, "nvml_error", "nvidia-smi"),
    ],
)
def test_no_driver(driver: StubDriver, source: NvmlSource, code: int, cause: str, remedy: str) -> None:
    """A driver that cannot be opened has a stable cause and a remedy, and is tried again in each cycle."""
    driver.remove(code)
    with pytest.raises(SourceUnavailableError) as caught:
        source.gpus()
    driver.load()

    assert caught.value.cause == cause
    assert remedy in caught.value.remedy
    assert f"error {code}" in caught.value.detail
    assert reading(source).power_watts == 70.0


def test_driver_leaves(driver: StubDriver, source: NvmlSource) -> None:
    """A driver that goes while a GPU is read makes the source unavailable, and its return is noticed."""
    gpus = source.gpus()
    driver.remove()
    with pytest.raises(SourceUnavailableError, match="Driver Not Loaded"):
        source.read(gpus[0])
    driver.load()

    assert reading(source).info == gpus[0]


def test_driver_reload(driver: StubDriver, source: NvmlSource) -> None:
    """After a reload one cycle is lost; then the driver is open again and old sample time stamps are forgotten."""
    driver.gpu(0).samples({9000: 100})
    cycle(source)
    driver.load()
    with pytest.raises(SourceUnavailableError) as caught:
        source.gpus()
    driver.gpu(0).samples({}).utilization(0.0)
    cycle(source)
    driver.gpu(0).samples({1000: 50})

    assert caught.value.cause == "driver_reloaded"
    assert reading(source).utilization_ratio == 0.5


def test_no_gpus(driver: StubDriver, source: NvmlSource) -> None:
    """A driver without GPUs is no error."""
    driver.gpus(0)

    assert source.gpus() == ()
