"""MIG through devices/nvml and into the verdict: what a GPU's parts do, and that nothing is idle by mistake."""

import ctypes
from collections.abc import Callable
from dataclasses import replace

import pytest

from gpuwatch.agent.activity import ActivityRules, Memory, Sample, fold
from gpuwatch.agent.devices.nvml.source import NvmlSource
from gpuwatch.model.activity import State
from gpuwatch.model.gpu import GpuReading
from gpuwatch.model.metric import SLOW_SECONDS
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.nvml import NO_PERMISSION, NOT_SUPPORTED, TIMEOUT, StubDriver, StubGpu, reading

GIB = 1 << 30


def later(source: NvmlSource, hand: ManualClock, seconds: float = 1.0) -> GpuReading:
    """The reading of the only GPU, so much later."""
    hand.advance(seconds)
    return reading(source)


def verdict(seen: GpuReading) -> State:
    """What the agent makes of that reading alone."""
    return fold(Memory(), Sample(at=seen.at, monotonic_seconds=1.0, readings=(seen,)), ActivityRules()).activity.state


def test_whole(source: NvmlSource) -> None:
    """A GPU that MIG does not split has no instances."""
    seen = reading(source)

    assert (seen.mig_mode, seen.mig_instances) == (0, None)


def test_instances(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> None:
    """Each GPU instance has its compute instances, and memory and activity once however many those are."""
    driver.gpu(0).mig(
        (2, "3g.40gb", 40 * GIB, 5 * GIB, 60), (2, "1c.3g.40gb", 40 * GIB, 5 * GIB, 60), (9, "1g.10gb", 10 * GIB, 0, 0)
    )
    reading(source)
    large, small = later(source, hand).mig_instances or ()

    assert [(device.compute_instance, device.profile) for device in large.devices] == [
        (0, "3g.40gb"),
        (1, "1c.3g.40gb"),
    ]
    assert len({device.uuid for part in (large, small) for device in part.devices}) == 3
    assert (large.id, large.memory_total_bytes, large.memory_used_bytes) == (2, 40 * GIB, 5 * GIB)
    assert (large.sm_activity_ratio, large.graphics_activity_ratio) == (0.6, 0.6)
    assert (small.id, small.memory_used_bytes, small.memory_free_bytes, small.sm_activity_ratio) == (
        9,
        0,
        10 * GIB,
        0.0,
    )


def test_the_gpu_itself(driver: StubDriver, source: NvmlSource) -> None:
    """A GPU that is split has no utilization of its own, and its memory, power and temperature as ever."""
    driver.gpu(0).mig((1, "7g.80gb", GIB, 0, 0)).set(memory_used=GIB)
    seen = reading(source)

    assert (seen.utilization_ratio, seen.utilization_max_ratio, seen.encoder_utilization_ratio) == (None, None, None)
    assert (seen.memory_used_bytes, seen.power_watts, seen.temperature_celsius) == (GIB, 70.0, 35.0)


def test_instances_come_and_go(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> None:
    """A new instance is there in the next cycle with its activity in the one after; one that is gone leaves nothing."""
    driver.gpu(0).mig((1, "1g.10gb", GIB, 0, 10))
    reading(source)
    driver.gpu(0).mig((1, "1g.10gb", GIB, 0, 10), (3, "1g.10gb", GIB, 0, 30))
    seen = [later(source, hand), later(source, hand)]
    driver.gpu(0).mig((3, "1g.10gb", GIB, 0, 30))
    seen.append(later(source, hand))

    assert [[(part.id, part.sm_activity_ratio) for part in each.mig_instances or ()] for each in seen] == [
        [(1, 0.1), (3, None)],
        [(1, 0.1), (3, 0.3)],
        [(3, 0.3)],
    ]


def test_mig_appears_and_vanishes(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> None:
    """Within SLOW_SECONDS of a change the instances show; the GPU's own utilization is back once they are gone."""
    before = reading(source)
    driver.gpu(0).mig((1, "7g.80gb", GIB, 0, 0))
    meanwhile = later(source, hand)
    split = later(source, hand, SLOW_SECONDS)
    driver.gpu(0).whole()
    after = later(source, hand)

    assert [each.utilization_ratio for each in (before, meanwhile, split, after)] == [0.0, None, None, 0.0]
    assert [len(each.mig_instances or ()) for each in (before, meanwhile, split, after)] == [0, 0, 1, 0]
    assert verdict(meanwhile) is State.UNKNOWN


@pytest.mark.parametrize(
    "function",
    ["nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId"],
)
def test_a_list_that_fails(driver: StubDriver, source: NvmlSource, function: str) -> None:
    """If one instance cannot be told, none is: the rest would pass for the whole."""
    driver.gpu(0).mig((1, "1g.10gb", GIB, 0, 0)).error(function, TIMEOUT)
    seen = reading(source)

    assert (seen.mig_mode, seen.mig_instances) == (1, None)
    assert verdict(seen) is State.UNKNOWN


@pytest.mark.parametrize(
    ("percents", "state"),
    [((0, 0), State.IDLE), ((0, 1), State.BUSY)],
    ids=["all at rest", "one at work"],
)
def test_the_verdict(
    driver: StubDriver, source: NvmlSource, hand: ManualClock, percents: tuple[int, int], state: State
) -> None:
    """A split GPU is what its instances are; before their activity is known it is unknown."""
    driver.gpu(0).mig(*((number, "1g.10gb", GIB, 0, percent) for number, percent in enumerate(percents, start=1)))
    first = reading(source)

    assert verdict(first) is State.UNKNOWN
    assert verdict(later(source, hand)) is state


def test_an_instance_without_activity(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> None:
    """One instance whose activity fails leaves the GPU in doubt, unless another is busy."""
    driver.gpu(0).mig((1, "1g.10gb", GIB, 0, 0), (2, "1g.10gb", GIB, 0, 0))
    reading(source)
    driver.gpu(0).error("nvmlGpmMigSampleGet", TIMEOUT)

    assert verdict(later(source, hand)) is State.UNKNOWN


def test_processes_tell_their_instances(driver: StubDriver, source: NvmlSource) -> None:
    """GPU instance and compute instance of each, in which the number 0 is one like others; outside of MIG neither."""
    driver.gpu(0).processes_in_mig((7, 5, 1, 0), (8, 6, 0, 1)).processes({9: 4}, kind="graphics")

    assert [(each.pid, each.gpu_instance, each.compute_instance) for each in reading(source).processes or ()] == [
        (7, 1, 0),
        (8, 0, 1),
        (9, None, None),
    ]


def test_a_process_in_several_instances_is_in_none_for_certain(driver: StubDriver, source: NvmlSource) -> None:
    """In whatever order and however often the lists tell them; two compute instances leave their GPU instance."""
    driver.gpu(0).processes_in_mig((7, 5, 1, 0), (7, 6, 2, 0), (7, 5, 1, 0), (8, 1, 3, 0), (8, 2, 3, 1))
    driver.gpu(0).processes_in_mig((7, 4, 2, 0), kind="graphics")

    assert [(each.pid, each.gpu_instance, each.compute_instance) for each in reading(source).processes or ()] == [
        (7, None, None),
        (8, 3, None),
    ]


# Before Hopper (A100, A30) the driver does not report the activity of instances.

SEVEN = tuple((number, "1g.10gb", 10 * GIB, 3 << 20, 0) for number in range(7, 14))
LISTS = "nvmlDeviceGetComputeRunningProcesses_v3"


def a100(driver: StubDriver) -> StubGpu:
    """Seven instances in which nobody is, each with the little memory that the driver takes."""
    return driver.gpu(0).mig(*SEVEN).set(gpm=0, power=60_000, power_limit=400_000)


@pytest.mark.parametrize("milliwatts", [50_000, 60_000])
def test_instances_without_gpm_at_rest(
    driver: StubDriver, source: NvmlSource, hand: ManualClock, milliwatts: int
) -> None:
    """No process and no memory in any instance, and the power of rest: idle, from the first cycle on."""
    a100(driver).set(power=milliwatts)
    first, second = reading(source), later(source, hand)

    assert [part.process_count for part in second.mig_instances or ()] == [0] * 7
    assert all(part.activity_unsupported for part in second.mig_instances or ())
    assert (verdict(first), verdict(second)) == (State.IDLE, State.IDLE)


@pytest.mark.parametrize("milliwatts", [50_000, 60_000, 100_000])
def test_mig_without_instances(driver: StubDriver, source: NvmlSource, milliwatts: int) -> None:
    """Nothing can compute on it: idle at rest, with and without GPM; not where its power tells otherwise."""
    driver.gpu(0).mig().set(gpm=0, power=milliwatts, power_limit=400_000)
    at_rest = verdict(reading(source))
    driver.gpu(0).set(power=110_000)

    assert (at_rest, verdict(reading(source))) == (State.IDLE, State.UNKNOWN)


SPOILED: dict[str, Callable[[StubGpu], object]] = {
    "a process in the last instance": lambda gpu: gpu.processes_in_mig((41, 5, 13, 0)),
    "an MPS client": lambda gpu: gpu.processes_in_mig((41, 5, 9, 0), kind="mps"),
    "a process outside of the instances": lambda gpu: gpu.processes({41: 5}),
    "a process that draws": lambda gpu: gpu.processes({41: 5}, kind="graphics"),
    "a process without an id": lambda gpu: gpu.processes_in_mig((0, 5, 9, 0)),
    "memory that nobody holds": lambda gpu: gpu.mig(*SEVEN[1:], (7, "1g.10gb", 10 * GIB, 65 << 20, 0)),
    "power above that of rest": lambda gpu: gpu.set(power=101_000),
    "no power reading": lambda gpu: gpu.error("field.185", NOT_SUPPORTED).unsupported("nvmlDeviceGetPowerUsage"),
    "no power limit": lambda gpu: gpu.unsupported("nvmlDeviceGetEnforcedPowerLimit"),
    "an instance that may not list its processes": lambda gpu: gpu.error(f"mig.{LISTS}", NO_PERMISSION),
    "an instance that cannot list its processes": lambda gpu: gpu.unsupported(
        f"mig.{LISTS}", "mig.nvmlDeviceGetComputeRunningProcesses_v2"
    ),
    "an instance whose MPS list fails": lambda gpu: gpu.error(
        "mig.nvmlDeviceGetMPSComputeRunningProcesses_v3", TIMEOUT
    ),
    "a GPU that may not list all processes": lambda gpu: gpu.error(LISTS, NO_PERMISSION),
    "an instance whose memory cannot be read": lambda gpu: gpu.unsupported("nvmlDeviceGetMemoryInfo_v2"),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED.keys())
def test_without_gpm_any_doubt_is_unknown(
    driver: StubDriver, source: NvmlSource, hand: ManualClock, spoil: Callable[[StubGpu], object]
) -> None:
    """With a process it cannot be told whether it works; with a list that is not whole there may be one."""
    spoil(a100(driver))
    reading(source)

    assert verdict(later(source, hand)) is State.UNKNOWN


def test_each_compute_instance_is_asked(driver: StubDriver, source: NvmlSource) -> None:
    """Two of one GPU instance have lists of their own."""
    parts = ((2, "3g.40gb", 40 * GIB, 0, 0), (2, "1c.3g.40gb", 40 * GIB, 0, 0))
    driver.gpu(0).mig(*parts).set(gpm=0, power=60_000).processes_in_mig((7, 5, 2, 1))
    (only,) = reading(source).mig_instances or ()

    assert only.process_count == 1


def test_gpm_that_fails_is_doubt(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> None:
    """Where activity can be told, and is not, an empty list of processes is no proof."""
    driver.gpu(0).mig(*SEVEN)
    reading(source)
    driver.gpu(0).error("nvmlGpmMigSampleGet", TIMEOUT)

    assert verdict(later(source, hand)) is State.UNKNOWN


def test_a_process_that_only_its_instance_lists_is_parked(
    driver: StubDriver, source: NvmlSource, hand: ManualClock
) -> None:
    """With GPM: the list of the whole GPU may leave out what this user may not see there."""
    driver.gpu(0).mig((1, "1g.10gb", GIB, 0, 0)).processes_in_mig((7, 5, 1, 0))
    reading(source)
    seen = later(source, hand)

    assert verdict(seen) is State.PARKED
    assert verdict(replace(seen, processes=())) is State.PARKED


def test_samples_are_given_back(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> None:
    """The GPM samples of an instance that is gone, and of all when the source is closed, are given back."""
    library = ctypes.CDLL(str(driver.library / "libnvidia-ml.so.1"))
    driver.gpu(0).mig((1, "1g.10gb", GIB, 0, 0), (2, "1g.10gb", GIB, 0, 0))
    reading(source)
    both = library.stub_live_samples()
    driver.gpu(0).mig((2, "1g.10gb", GIB, 0, 0))
    later(source, hand)
    one = library.stub_live_samples()
    source.close()

    assert [both, one, library.stub_live_samples()] == [6, 4, 0]


def test_mode_not_supported(driver: StubDriver, source: NvmlSource) -> None:
    """A GPU that knows no MIG is whole, and idle if it is."""
    driver.gpu(0).error("nvmlDeviceGetMigMode", NOT_SUPPORTED)
    seen = reading(source)

    assert (seen.mig_mode, seen.mig_instances) == (None, None)
    assert verdict(seen) is State.IDLE
