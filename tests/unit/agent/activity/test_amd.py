"""What an AMD GPU does, by the same rules: from what AMD SMI answers to the verdict. What it cannot tell is doubt."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.agent.activity import ActivityRules, Memory, fold
from gpuwatch.agent.activity.memory import Sample
from gpuwatch.agent.devices.amd import AmdSource
from gpuwatch.model.activity import Activity, State
from gpuwatch.model.gpu import GpuDown, GpuReading
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.amd import BUSY, FILE_ERROR, MIB, NA, AmdGpu, AmdHost, amd_source
from tests.support.fakes.nvml import cycle

GIB = 1024 * MIB
ACTIVITY, METRICS = "amdsmi_get_gpu_activity", "amdsmi_get_gpu_metrics_info"
POWER, LIST = "amdsmi_get_power_info", "amdsmi_get_gpu_process_list"


@pytest.fixture
def host(tmp_path: Path) -> AmdHost:
    """Two MI300X at rest."""
    return AmdHost(tmp_path, gpus=2)


@pytest.fixture
def amd(host: AmdHost, hand: ManualClock, monkeypatch: pytest.MonkeyPatch) -> AmdSource:
    """The real source on that host."""
    return amd_source(host, hand, monkeypatch)


def lasting(amd: AmdSource, clock: ManualClock, seconds: int = 20) -> Activity:
    """What the machine does after so long."""
    memory = Memory()
    for _ in range(0, seconds, 5):
        results = cycle(amd)
        sample = Sample(
            at=clock.now(),
            monotonic_seconds=clock.monotonic(),
            readings=tuple(result for result in results if isinstance(result, GpuReading)),
            downs=tuple(result for result in results if isinstance(result, GpuDown)),
        )
        memory = fold(memory, sample, ActivityRules())
        clock.advance(5)
    return memory.activity


STATES: dict[str, tuple[Callable[[AmdGpu], object], State]] = {
    "at rest": (lambda _: None, State.IDLE),
    "a kernel at one percent": (lambda gpu: gpu.answer(ACTIVITY, gfx_activity=1), State.BUSY),
    "one compute die at two percent": (
        lambda gpu: gpu.answer(METRICS, **{"xcp_stats.gfx_busy_inst": [[0, 2]]}),
        State.BUSY,
    ),
    "the kernel alone says busy": (lambda gpu: gpu.kernel_busy("3\n"), State.BUSY),
    "the kernel alone says at rest": (
        lambda gpu: gpu.kernel_busy("0\n").answer(ACTIVITY, gfx_activity=NA).lacks(METRICS),
        State.UNKNOWN,
    ),
    "the kernel does not know": (lambda gpu: gpu.kernel_busy("garbage"), State.IDLE),
    "a video engine": (lambda gpu: gpu.answer(METRICS, vcn_activity=[0, 30]), State.BUSY),
    "power alone": (lambda gpu: gpu.answer(POWER, current_socket_power=400), State.BUSY),
    "memory held": (lambda gpu: gpu.process(4711, 40 * GIB).in_use(40 * GIB), State.PARKED),
    "a process without memory": (lambda gpu: gpu.process(4711, 0), State.PARKED),
    "memory that no list explains": (lambda gpu: gpu.in_use(8 * GIB), State.UNKNOWN),
    "an empty list, and the kernel has one": (lambda gpu: gpu.process(4711, GIB, listed=False), State.PARKED),
    "no activity": (lambda gpu: gpu.answer(ACTIVITY, gfx_activity=NA).lacks(METRICS), State.UNKNOWN),
    "activity that fails": (lambda gpu: gpu.error(BUSY, ACTIVITY, METRICS), State.UNKNOWN),
    "activity that cannot be true": (lambda gpu: gpu.answer(ACTIVITY, gfx_activity=250), State.UNKNOWN),
    "memory that fails": (lambda gpu: gpu.error(BUSY, "amdsmi_get_gpu_vram_usage"), State.UNKNOWN),
    "nothing at all": (lambda gpu: gpu.error(FILE_ERROR), State.UNKNOWN),
    "no power and no temperature": (lambda gpu: gpu.lacks(POWER, "amdsmi_get_temp_metric"), State.IDLE),
    "a library's list that fails, and an empty kernel": (lambda gpu: gpu.error(BUSY, LIST), State.IDLE),
}


@pytest.mark.parametrize(("change", "state"), STATES.values(), ids=STATES.keys())
def test_states(
    host: AmdHost, amd: AmdSource, hand: ManualClock, change: Callable[[AmdGpu], object], state: State
) -> None:
    """The state of the machine whose second GPU is at rest."""
    change(host.gpu(0))

    assert lasting(amd, hand).state is state


def test_a_gpu_at_rest_becomes_idle_over_time(amd: AmdSource, hand: ManualClock) -> None:
    """Time counts as for every GPU."""
    activity = lasting(amd, hand, 120)

    assert activity.state is State.IDLE
    assert activity.since is not None
    assert (hand.now() - activity.since).total_seconds() >= 100


def test_where_a_signal_comes_from_is_said_in_amds_words(host: AmdHost, amd: AmdSource, hand: ManualClock) -> None:
    """No evidence of such a GPU names NVML."""
    host.gpu(0).answer(METRICS, vcn_activity=[30]).process(4711, GIB).in_use(GIB)
    sources = {entry.source for entry in lasting(amd, hand).evidence}

    assert any("AMD SMI" in source for source in sources)
    assert [source for source in sources if "NVML" in source] == []


def test_unseen_holders_are_told_with_amds_remedy(host: AmdHost, amd: AmdSource, hand: ManualClock) -> None:
    """The doubt says where to look."""
    (host.root / "sys/class/kfd/kfd/proc").rmdir()

    assert "/sys/class/kfd" in (lasting(amd, hand).doubt or "")
