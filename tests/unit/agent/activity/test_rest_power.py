"""agent/activity/rest_power.py: how much power is no sign of work."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.activity import ActivityRules, Memory, fold
from gpuwatch.agent.activity.rest_power import MARGIN, REST_WATTS, RestPower, busy_watts, learn_rest_power, rest_watts
from gpuwatch.model.activity import State
from gpuwatch.model.gpu import GpuReading
from tests.support.builders.gpu import GIB, a_process, a_reading, a_sample

RULES = ActivityRules()
UNNAMED = "NVIDIA Test 80GB"


def a_card(name: str, watts: float | None, limit: float, **measured: Any) -> GpuReading:  # noqa: ANN401  any field
    """A GPU of that product name, drawing that much of that limit."""
    reading = a_reading(power_watts=watts, power_limit_watts=limit, **{"performance_state": 0, **measured})
    return replace(reading, info=replace(reading.info, name=name))


def state_of(*readings: GpuReading, rules: ActivityRules = RULES) -> State:
    """What a machine with this GPU alone does after these readings, a second apart."""
    memory = Memory()
    for second, reading in enumerate(readings):
        memory = fold(memory, a_sample(second, reading), rules)
    return memory.activity.state


KERNEL = {"memory_used_bytes": 3 * GIB, "processes": (a_process(41, 3 * GIB),)}
BLIND = {"utilization_ratio": None, "utilization_max_ratio": None}
# Each case with the state that is true, and who is hurt where the agent says another one.
CASES: dict[str, tuple[GpuReading, State, str]] = {
    "an empty T4 in P0": (a_card("Tesla T4", 28.0, 70.0), State.IDLE, "who pays for it for ever"),
    "a hot T4 in P0": (a_card("Tesla T4", 33.0, 70.0), State.IDLE, "who pays for it for ever"),
    "a T4 with a leftover kernel": (a_card("Tesla T4", 27.0, 70.0, **KERNEL), State.PARKED, "who pays for it"),
    "an L4 with a leftover kernel": (a_card("NVIDIA L4", 36.0, 72.0, **KERNEL), State.PARKED, "who pays for it"),
    "an empty A10 in P0": (a_card("NVIDIA A10", 57.0, 150.0), State.IDLE, "who pays for it"),
    "an A40 with an idle server": (a_card("NVIDIA A40", 110.0, 300.0, **KERNEL), State.PARKED, "who pays for it"),
    "a 3090 capped to 250 W": (a_card("NVIDIA GeForce RTX 3090", 105.0, 250.0), State.IDLE, "who pays for it"),
    "an L4 at work for a moment": (a_card("NVIDIA L4", 36.0, 72.0, utilization_max_ratio=0.9), State.BUSY, "its user"),
    "an L4 that only copies": (
        a_card("NVIDIA L4", 36.0, 72.0, memory_bandwidth_utilization_ratio=0.02),
        State.BUSY,
        "whose data is being copied: no kernel runs",
    ),
    "a T4 above all rest": (a_card("Tesla T4", 40.0, 70.0), State.BUSY, "whose work no other signal shows"),
    "a T4 whose utilization is not readable": (a_card("Tesla T4", 27.0, 70.0, **BLIND), State.BUSY, "its user"),
    "a T4 at rest whose utilization is not readable": (a_card("Tesla T4", 20.0, 70.0, **BLIND), State.UNKNOWN, "user"),
    "a T4 in P8 that draws what P0 draws": (
        a_card("Tesla T4", 28.0, 70.0, performance_state=8),
        State.BUSY,
        "a process that has just begun: performance states are read every half minute",
    ),
    "an unnamed card at the same share": (a_card(UNNAMED, 28.0, 70.0), State.BUSY, "its user, until it has learned"),
    "another model whose name begins alike": (a_card("NVIDIA T400", 28.0, 70.0), State.BUSY, "its user"),
    "a capped H100 with a model loaded": (a_card("NVIDIA H100 80GB HBM3", 121.0, 300.0), State.IDLE, "who pays"),
    "an H100 at work in MIG without figures": (
        a_card("NVIDIA H100 80GB HBM3", 121.0, 300.0, mig_mode=1, mig_instances=()),
        State.BUSY,
        "who has just removed its instances",
    ),
}


@pytest.mark.parametrize(("reading", "state", "hurt"), CASES.values(), ids=CASES.keys())
def test_power_at_rest_is_no_work(reading: GpuReading, state: State, hurt: str) -> None:
    """Power is busy above what the model draws with its clocks up, and only where work would show elsewhere."""
    assert state_of(reading, reading) is state, hurt


def test_the_table_names_each_model_once_and_exactly() -> None:
    """A row fits whole words of the product name: A10 is neither A10G nor A100, L4 is not L40S."""
    models = [model for model, _ in REST_WATTS]

    assert len(set(models)) == len(models)
    assert [rest_watts(f"NVIDIA {' '.join(model)}") for model in models] == [watts for _, watts in REST_WATTS]
    assert rest_watts("NVIDIA A100-SXM4-40GB") == rest_watts("NVIDIA A100 80GB PCIe") == 80.0
    assert rest_watts("NVIDIA GeForce RTX 4090 Laptop GPU") is None
    assert [rest_watts(name) for name in ("NVIDIA L400", "NVIDIA H100 PCIe", "Quadro T1000", "", None)] == [None] * 5


def test_rest_may_be_left_out() -> None:
    """With max_rest_power_ratio at busy_power_ratio or below, only the share of the limit counts."""
    t4 = a_card("Tesla T4", 28.0, 70.0)

    assert state_of(t4, rules=ActivityRules(max_rest_power_ratio=0.35)) is State.BUSY


def test_the_limit_is_evidence() -> None:
    """People see against what the power was measured, and which setting would change that."""
    evidence = fold(Memory(), a_sample(0, a_card("Tesla T4", 41.0, 70.0)), RULES).activity.evidence

    assert [(entry.name, entry.setting) for entry in evidence] == [("gpu0.power", "agent.activity.busy_power_ratio")]
    assert evidence[0].limit == pytest.approx(33.0 * MARGIN)


# The GPU's own floor.


def hours(count: float, *readings: GpuReading, begin: float = 0.0, memory: Memory | None = None) -> Memory:
    """The memory after so many hours of these readings in turn, one each ten seconds."""
    known = memory or Memory()
    for number in range(int(count * 360) + 1):
        sample = a_sample(begin + number * 10.0, readings[number % len(readings)])
        known = fold(known, sample, RULES)
    return known


REST = a_card(UNNAMED, 28.0, 70.0)


def test_a_gpu_of_an_unknown_model_learns_its_own_rest() -> None:
    """An hour in which nothing but power could be work shows that it is none; until then it counts as work."""
    before, after = hours(0.95, REST), hours(1.1, REST)

    assert (before.activity.state, after.activity.state) == (State.BUSY, State.IDLE)


def test_what_is_learned_holds_in_its_performance_state_alone() -> None:
    """P2 draws less than P0; the floor of one says nothing of the other."""
    memory = hours(1.1, REST)
    other = fold(memory, a_sample(4000.0, replace(REST, performance_state=2)), RULES)

    assert other.activity.state is State.BUSY


def test_the_quietest_hour_counts() -> None:
    """A later hour at less power lowers the floor, and no later one raises it."""
    low, high = replace(REST, power_watts=25.5), replace(REST, power_watts=32.0)
    memory = hours(1.1, high)
    memory = hours(1.1, low, begin=4000.0, memory=memory)
    memory = hours(1.1, high, begin=8000.0, memory=memory)

    assert memory.activity.state is State.BUSY


NO_LESSON: dict[str, tuple[GpuReading, ...]] = {
    "one percent in one sample of five minutes": (*[REST] * 29, replace(REST, utilization_max_ratio=0.01)),
    "an engine at work": (REST, replace(REST, decoder_utilization_ratio=0.2)),
    "memory traffic": (REST, replace(REST, memory_bandwidth_utilization_ratio=0.01)),
    "utilization that cannot be read at times": (
        REST,
        replace(REST, utilization_ratio=None, utilization_max_ratio=None),
    ),
    "processes that cannot all be listed": (replace(REST, processes_partial=True),),
    "performance states that change": (REST, replace(REST, performance_state=2)),
    "power that comes and goes": (*[REST] * 30, *[replace(REST, power_watts=38.0)] * 30),
    "more than six tenths of the limit": (replace(REST, power_watts=43.0),),
}


@pytest.mark.parametrize("readings", NO_LESSON.values(), ids=NO_LESSON.keys())
def test_an_hour_that_may_have_been_work_teaches_nothing(readings: tuple[GpuReading, ...]) -> None:
    """Then power goes on to be a sign of work, and whoever works is not stopped."""
    memory = hours(3, *readings)
    later = fold(memory, a_sample(3 * 3600.0 + 10.0, readings[0]), RULES)

    assert later.activity.state is State.BUSY


def test_a_gap_begins_the_hour_again() -> None:
    """What happened in between is not known."""
    memory = hours(0.9, REST)
    memory = hours(0.9, REST, begin=0.9 * 3600 + 60.0, memory=memory)

    assert memory.activity.state is State.BUSY


def test_a_lost_reading_begins_the_hour_again() -> None:
    """Nobody saw what the GPU did then."""
    memory = hours(0.9, REST)
    memory = fold(memory, a_sample(3250.0), RULES)
    memory = hours(0.9, REST, begin=3260.0, memory=memory)

    assert memory.activity.state is State.BUSY


def test_a_lost_gpu_keeps_what_it_has_learned() -> None:
    """A cycle without a reading is a gap, and no reason to be busy for another hour."""
    memory = fold(hours(1.1, REST), a_sample(3980.0), RULES)

    assert fold(memory, a_sample(3990.0, REST), RULES).activity.state is State.IDLE


# Properties.

WATTS = st.floats(min_value=0.0, max_value=700.0)
STATES = st.sampled_from([None, 0, 2, 8])
NAMES = st.sampled_from(["Tesla T4", "NVIDIA L4", "NVIDIA A10", UNNAMED, None])


@given(NAMES, STATES, WATTS, WATTS, st.floats(min_value=0.01, max_value=0.6))
def test_the_limit_is_bounded(name: str | None, state: int | None, floor: float, limit: float, most: float) -> None:
    """Whatever was learned: never below the share that the administrator chose, never above the bound."""
    reading = a_card(name or "", None, limit, performance_state=state)
    rules = ActivityRules(max_rest_power_ratio=most)
    watts = busy_watts(reading, RestPower(floors={state: floor}), rules)

    assert watts is not None
    assert 0.35 * limit <= watts <= max(0.35, most) * limit


@given(st.lists(st.tuples(STATES, st.booleans(), WATTS, st.sampled_from([1.0, 10.0, 60.0, 300.0])), max_size=200))
def test_no_floor_rises_and_none_comes_from_an_hour_with_work(
    steps: list[tuple[int | None, bool, float, float]],
) -> None:
    """A floor appears or falls only after a whole hour of quiet samples in its state, and is a power seen in it."""
    known, quiet_seconds = RestPower(), 0.0
    last: int | None = -1
    seen: list[float] = []
    for state, quiet, watts, gap in steps:
        after = learn_rest_power(known, replace(REST, performance_state=state), watts, gap, quiet=quiet)
        if not quiet or state != last:
            quiet_seconds, seen = 0.0, []
        else:
            quiet_seconds, seen = quiet_seconds + gap, [*seen, watts]
        last = state if quiet else -1
        for which, floor in after.floors.items():
            before = known.floors.get(which)
            if before is not None:
                assert floor <= before
            if floor != before:
                assert which == state
                assert quiet_seconds >= 3600.0 - 1e-6
                assert min(seen) - 1e-6 <= floor <= max(seen) + 1e-6
        known = after


@given(WATTS, st.floats(min_value=1.0, max_value=700.0))
def test_power_alone_makes_a_gpu_busy_whose_utilization_cannot_be_read(watts: float, limit: float) -> None:
    """As if nothing had been learned, and whatever model it is."""
    reading = a_card("Tesla T4", watts, limit, **BLIND)
    memory = fold(Memory(), a_sample(0, reading), RULES)

    assert memory.activity.state is (State.BUSY if watts >= 0.35 * limit else State.UNKNOWN)


def all_of(readings: Iterable[GpuReading]) -> list[State]:
    """The states of a machine with each of these GPUs alone."""
    return [state_of(reading) for reading in readings]


@given(NAMES, WATTS, st.floats(min_value=1.0, max_value=700.0))
def test_more_power_is_never_less_busy(name: str | None, watts: float, more: float) -> None:
    """P8: of two readings that differ in power alone, the higher one is not the idler one."""
    lower, higher = all_of(a_card(name or "", power, 350.0) for power in (watts, watts + more))

    assert (lower, higher) != (State.BUSY, State.IDLE)
