"""The simulated source: readings follow from the script, faults come when it says so, bad scripts are refused."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.devices import SourceUnavailableError
from gpuwatch.agent.devices.load_profile import Intervals, LoadProfile, Phase
from gpuwatch.agent.devices.scenario import ScriptError, read_script
from gpuwatch.agent.devices.simulated import SimulatedGpu, SimulatedSource, gpu_info, open_simulated
from gpuwatch.model.gpu import DownCause, GpuDown, GpuReading
from gpuwatch.runtime.clock import ManualClock
from tests.support.paths import ROOT

EXAMPLE = ROOT / "docs" / "examples" / "simulated.yaml"

BURST = (Phase(at=0.0), Phase(at=10.0, utilization_ratio=1.0, memory_bytes=1000), Phase(at=12.0))


def a_source(clock: ManualClock, *phases: Phase, lost: Intervals | None = None) -> SimulatedSource:
    """One GPU with this life."""
    gpu = SimulatedGpu(info=gpu_info("Test", 0, "host"), load_profile=LoadProfile(phases), lost=lost or Intervals())
    return SimulatedSource([gpu], clock)


def a_reading(source: SimulatedSource) -> GpuReading:
    """What the only GPU shows now."""
    reading = source.read(source.gpus()[0])

    assert isinstance(reading, GpuReading)
    return reading


def test_no_burst_between_two_readings_is_lost() -> None:
    """Mean and maximum cover all of the time since the last reading."""
    clock = ManualClock()
    source = a_source(clock, *BURST)
    a_reading(source)
    clock.advance(20)
    reading = a_reading(source)

    assert reading.utilization_ratio == pytest.approx(0.1)
    assert reading.utilization_max_ratio == 1.0
    assert reading.processes == ()


def test_energy_is_the_integral_of_power() -> None:
    """Twenty seconds with two at full power cost what the powers read during them say."""
    clock = ManualClock()
    source = a_source(clock, *BURST)
    idle = a_reading(source)
    clock.advance(11)
    busy = a_reading(source)
    clock.advance(9)
    after = a_reading(source)

    assert idle.power_watts is not None
    assert busy.power_watts is not None
    assert after.energy_joules_total == pytest.approx(18 * idle.power_watts + 2 * busy.power_watts)


@given(
    steps=st.lists(st.tuples(st.integers(1, 50), st.sampled_from([0.0, 0.25, 1.0])), min_size=1, max_size=8),
    cycles=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    period=st.booleans(),
)
def test_the_table_agrees_with_a_walk_second_by_second(
    steps: list[tuple[int, float]], cycles: list[int], period: bool
) -> None:
    """For any life, repeating or not, and any reading times, mean, maximum and busy time are those of each second."""
    phases, at = [], 0
    for length, ratio in steps:
        phases.append(Phase(at=float(at), utilization_ratio=ratio))
        at += length
    programme = LoadProfile(phases, float(at) if period else None)
    horizon = sum(cycles)

    def walk(second: int) -> float:
        moment = second % at if period else second
        return next(phase.utilization_ratio for phase in reversed(phases) if phase.at <= moment)

    truth = [walk(second) for second in range(horizon + 1)]
    begin = 0
    for cycle in cycles:
        end = begin + cycle

        assert programme.load_seconds(begin, end) == pytest.approx(sum(truth[begin:end]))
        assert programme.peak(begin, end) == max(truth[begin : end + 1])
        begin = end
    assert programme.busy(horizon).overlap(0, horizon) == sum(ratio > 0 for ratio in truth[:horizon])


def test_a_stalled_gpu_shows_full_utilization_at_idle_power_without_traffic() -> None:
    """A deadlock as a driver shows it."""
    clock = ManualClock()
    source = a_source(clock, Phase(at=0, utilization_ratio=1.0, stalled=True))
    clock.advance(60)
    reading = a_reading(source)

    assert reading.utilization_ratio == 1.0
    assert reading.memory_bandwidth_utilization_ratio == 0.0
    assert reading.power_watts == pytest.approx(45.0)


def test_a_lost_gpu_is_down_for_as_long_as_the_script_says() -> None:
    """It is lost in the driver's words, and comes back."""
    clock = ManualClock()
    source = a_source(clock, Phase(at=0), lost=Intervals([(10, 20)]))
    clock.advance(10)
    down = source.read(source.gpus()[0])
    clock.advance(10)

    assert isinstance(down, GpuDown)
    assert (down.cause, down.detail) == (DownCause.LOST, "GPU is lost")
    assert a_reading(source).utilization_ratio == 0.0


def test_the_example_script_does_what_its_comments_say() -> None:
    """Load, held memory, a hang that lasts a minute, a driver that is away."""
    clock = ManualClock()
    source = open_simulated(EXAMPLE, 0, clock)
    first, second = source.gpus()
    busy = source.read(first)
    clock.advance(90 * 60)
    hung = source.read(second)

    assert isinstance(busy, GpuReading)
    assert busy.utilization_ratio == 0.9
    assert isinstance(hung, GpuReading)
    assert clock.monotonic() == 91 * 60
    clock.advance(29 * 60)
    with pytest.raises(SourceUnavailableError, match="driver away"):
        source.gpus()


def test_the_same_seed_gives_the_same_gpus_and_another_seed_others() -> None:
    """Without a script, the seed alone decides."""

    def played(seed: int) -> list[bytes]:
        clock = ManualClock()
        source = open_simulated(None, seed, clock)
        rows = []
        for _ in range(60):
            clock.advance(30)
            rows += [msgspec.json.encode(source.read(gpu)) for gpu in source.gpus()]
        return rows

    assert played(1) == played(1)
    assert played(1) != played(2)


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("gpus:\n- life: [{at: 5, utilisation_ratio: 1}]", "gpus.0.life.0.utilisation_ratio = 1: there is no such key"),
        ("gpus:\n- life: [{at: 5, utilization_ratio: 90}]", "utilization_ratio = 90: write a number from 0 to 1"),
        ("gpus:\n- life: [{at: .nan}]", "gpus.0.life.0.at = nan: write a duration"),
        ("gpus:\n- life: [{at: 5x}]", "gpus.0.life.0.at = '5x': write a duration such as 90s"),
        ("gpus:\n- life: [{utilization_ratio: 1}]", "say when it begins, such as {at: 5m}"),
        ("gpus:\n- life: [{at: 5}, {at: 5}]", "put them in order of time"),
        ("gpus:\n- {repeat: 5s, life: [{at: 10s}]}", "it begins again after 5 s, before its last phase"),
        ("gpus:\n- {memory_total_bytes: 10, life: [{at: 0, memory_bytes: 11}]}", "at most its memory_total_bytes, 10"),
        ("gpus:\n- {lost: [{begin: 5m, end: 2m}]}", "gpus.0.lost.0 = {'begin': '5m', 'end': '2m'}: give begin and a"),
        ("gpus: []", "gpus = []: write one entry for each GPU"),
        ("{}", "gpus = None: write one entry"),
        ("", "the script = None: write a mapping with the keys gpus, driver_missing, silence"),
        ("gpus: 3", "gpus = 3: write a list"),
        ("gpus: [", "is no YAML"),
    ],
)
def test_a_bad_script_is_refused_with_file_key_value_and_remedy(tmp_path: Path, script: str, complaint: str) -> None:
    """A person can mend it from the sentence alone."""
    path = tmp_path / "script.yaml"
    path.write_text(script)
    with pytest.raises(ScriptError) as caught:
        read_script(path)

    assert str(caught.value).startswith(f"{path}: ")
    assert complaint in str(caught.value)


def test_the_probe_plays_a_script_and_refuses_a_bad_one(tmp_path: Path) -> None:
    """`gpuwatch probe --source simulated` prints each GPU once, or one sentence and exit status 2."""
    command = [sys.executable, "-m", "gpuwatch", "probe", "--source", "simulated", "--once", "--script"]
    good = subprocess.run([*command, str(EXAMPLE)], capture_output=True, text=True, check=False, timeout=60)
    bad = subprocess.run(
        [*command, str(tmp_path / "none.yaml")], capture_output=True, text=True, check=False, timeout=60
    )

    assert good.returncode == 0, good.stderr
    assert good.stdout.count('"name":"NVIDIA L4"') == 2
    assert bad.returncode == 2
    assert "none.yaml: cannot be read: No such file or directory" in bad.stderr
