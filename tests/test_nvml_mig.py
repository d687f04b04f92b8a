"""MIG through devices/nvml and into the verdict: what a GPU's parts do, and that nothing is idle by mistake."""

import ctypes

import pytest

from gpuwatch.agent.activity import ActivityRules, Memory, Sample, fold
from gpuwatch.clock import ManualClock
from gpuwatch.devices.nvml import NvmlSource
from gpuwatch.model.fleet import State
from gpuwatch.model.gpu import GpuReading
from gpuwatch.model.metric import SLOW_SECONDS
from tests.nvml import NOT_SUPPORTED, TIMEOUT, StubDriver
from tests.nvml_reading import reading

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


def test_instances_without_gpm(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> None:
    """Where the instances' activity cannot be told (before Hopper) nobody knows, and never is the GPU idle."""
    driver.gpu(0).mig((1, "1g.10gb", GIB, 0, 0)).set(gpm=0)
    reading(source)
    seen = later(source, hand)

    assert [part.memory_total_bytes for part in seen.mig_instances or ()] == [GIB]
    assert verdict(seen) is State.UNKNOWN


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
