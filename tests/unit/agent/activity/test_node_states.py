"""agent/activity/fold.py: what a node does when its GPUs and its host say different things."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.activity import ActivityRules, Memory, fold
from gpuwatch.model.activity import Activity, Evidence, State, WorkOwner
from gpuwatch.model.gpu import GpuDown, GpuReading
from tests.support.builders.gpu import GIB, a_busy_reading, a_down, a_process, a_reading, a_sample

RULES = ActivityRules()


def of_host(name: str, says: State, **more: Any) -> Evidence:  # noqa: ANN401  any field of Evidence
    """A signal of the host."""
    return Evidence(name=name, says=says, observed=None, limit=None, unit="", source="test", **more)


SPINS = of_host("gpu_process_cpu", State.BUSY)
SLEEPER = of_host("processes", State.OCCUPIED, owner=WorkOwner(user="ana", process="python", pid=12))
NOBODY = of_host("people", State.IDLE)


def a_deadlock(gpu: int = 0, **measured: Any) -> GpuReading:  # noqa: ANN401  any field of GpuReading
    """Full utilization at idle power, held by somebody's process."""
    return a_reading(
        gpu,
        **{"utilization_ratio": 1.0, "utilization_max_ratio": 1.0, "processes": (a_process(40 + gpu),), **measured},
    )


def lasting(
    *entries: GpuReading | GpuDown,
    host: tuple[Evidence, ...] = (),
    seconds: int = 1000,
    services: frozenset[int] = frozenset(),
) -> Memory:
    """The memory after so long of the same."""
    memory = Memory()
    for second in range(0, seconds + 1, 10):
        sample = replace(a_sample(second, *entries), host=host, service_pids=services)
        memory = fold(memory, sample, RULES)
    return memory


HELD = a_reading(1, memory_used_bytes=GIB, processes=(a_process(7),))
# GPUs and host, the state that is true, and who is hurt by another answer.
SPINNING: dict[str, tuple[tuple[GpuReading | GpuDown, ...], tuple[Evidence, ...], State, str]] = {
    "a deadlocked job that spins": ((a_deadlock(0), a_deadlock(1)), (SPINS,), State.STALLED, "who pays for it"),
    "beside an empty GPU": ((a_deadlock(0), a_reading(1)), (SPINS,), State.STALLED, "who pays for it"),
    "beside a job that waits on another GPU": ((a_deadlock(0), HELD), (SPINS,), State.BUSY, "whose CPU it may be"),
    "beside a job at work": ((a_deadlock(0), a_busy_reading(1)), (SPINS,), State.BUSY, "who works there"),
    "beside a lost GPU": ((a_deadlock(0), a_down(1)), (SPINS,), State.BUSY, "whose process was there"),
    "beside a GPU that does not list": (
        (a_deadlock(0), a_reading(1, processes=None)),
        (SPINS,),
        State.BUSY,
        "who is not listed",
    ),
    "somebody types": ((a_deadlock(),), (SPINS, of_host("people", State.BUSY)), State.BUSY, "who types"),
    "the host computes": ((a_deadlock(),), (SPINS, of_host("cpu", State.BUSY)), State.BUSY, "whose data is prepared"),
    "a signal that failed": ((a_deadlock(),), (SPINS, of_host("disk", State.UNKNOWN)), State.UNKNOWN, "somebody"),
    "no deadlock": ((HELD,), (SPINS,), State.BUSY, "whose process prepares data"),
}


@pytest.mark.parametrize(("entries", "host", "state", "hurt"), SPINNING.values(), ids=SPINNING.keys())
def test_spinning_processes_of_a_deadlock(
    entries: tuple[GpuReading | GpuDown, ...], host: tuple[Evidence, ...], state: State, hurt: str
) -> None:
    """Only CPU time that can be nothing but waiting does not make a node busy."""
    assert lasting(*entries, host=host).activity.state is state, hurt


def test_the_spinning_is_told() -> None:
    """It is evidence of the stalled node, with why it does not count."""
    (spins,) = (entry for entry in lasting(a_deadlock(), host=(SPINS,)).activity.evidence if entry.name == SPINS.name)

    assert (spins.says, spins.note) == (
        State.STALLED,
        "every GPU that it can be about is stalled: it spins while it waits",
    )


def test_it_counts_until_the_deadlock_has_lasted() -> None:
    """For stalled_timeout the node is busy."""
    states = [lasting(a_deadlock(), host=(SPINS,), seconds=seconds).activity.state for seconds in (590, 610)]

    assert states == [State.BUSY, State.STALLED]


SIGNS: dict[str, dict[str, Any]] = {
    "a sample below full": {"utilization_ratio": 0.98},
    "device memory is read": {"memory_bandwidth_utilization_ratio": 0.01},
    "device memory is read, by GPM": {"dram_activity_ratio": 0.02},
    "power": {"power_watts": 250.0},
    "arithmetic": {"fp32_activity_ratio": 0.02},
    "a transfer": {"nvlink_tx_bytes_per_second": 1e9},
    "energy between two looks": {"energy_joules_total": 1e7},
}


@pytest.mark.parametrize("sign", SIGNS.values(), ids=SIGNS.keys())
def test_any_sign_of_work_ends_a_deadlock(sign: dict[str, Any]) -> None:
    """A rank that waited for another one goes on: busy at once, and the ten minutes begin again."""
    quiet: dict[str, Any] = {"energy_joules_total": 0.0}
    memory = lasting(a_deadlock(**quiet), host=(SPINS,))
    memory = fold(memory, replace(a_sample(1001, a_deadlock(**(quiet | sign))), host=(SPINS,)), RULES)
    at_once = memory.activity.state
    for second in range(1010, 1600, 10):
        memory = fold(memory, replace(a_sample(second, a_deadlock(**quiet)), host=(SPINS,)), RULES)

    assert (at_once, memory.activity.state) == (State.BUSY, State.BUSY)


# Somebody's process that does nothing.


@pytest.mark.parametrize(
    ("entry", "state"),
    [
        (a_reading(), State.OCCUPIED),
        (HELD, State.PARKED),
        (a_deadlock(), State.STALLED),
        (a_busy_reading(), State.BUSY),
        (a_down(), State.UNKNOWN),
    ],
)
def test_a_sleeping_process_occupies_a_node_that_is_idle_otherwise(entry: GpuReading | GpuDown, state: State) -> None:
    """The state of a GPU goes before, and no GPU is occupied."""
    memory = lasting(entry, host=(SLEEPER, NOBODY))

    assert memory.activity.state is state
    assert State.OCCUPIED not in {gpu.activity.state for gpu in memory.gpus}


def test_an_occupied_node_says_by_whom_and_who_was_looked_for() -> None:
    """So that its owner can be told, and pools may require that people were looked for."""
    assert lasting(a_reading(), host=(SLEEPER, NOBODY)).activity.evidence == (SLEEPER, NOBODY)


@pytest.mark.parametrize("entry", [HELD, a_deadlock()], ids=["parked", "stalled"])
def test_a_parked_or_stalled_node_says_by_whom_it_is_occupied(entry: GpuReading) -> None:
    """Whoever sleeps there is a likely owner."""
    assert SLEEPER in lasting(entry, host=(SLEEPER, NOBODY)).activity.evidence


def test_a_busy_node_tells_its_work_alone() -> None:
    """As before."""
    assert SLEEPER not in lasting(a_busy_reading(), host=(SLEEPER,)).activity.evidence


def test_a_process_that_comes_and_goes_pauses_the_time() -> None:
    """Occupied time is no idle time, and idle time is none in which it was occupied; after a visit it goes on."""
    memory = Memory()
    held = []
    for second, host in enumerate([(NOBODY,)] * 10 + [(SLEEPER,)] * 10 + [(NOBODY,)] * 10):
        memory = fold(memory, replace(a_sample(second, a_reading()), host=host), RULES)
        held.append((memory.activity.state, memory.activity.held_seconds))

    assert [held[9], held[10], held[19], held[20], held[29]] == [
        (State.IDLE, 9.0),
        (State.OCCUPIED, 0.0),
        (State.OCCUPIED, 9.0),
        (State.IDLE, 9.0),
        (State.IDLE, 18.0),
    ]


ORDER = [State.BUSY, State.UNKNOWN, State.STALLED, State.PARKED, State.OCCUPIED, State.IDLE]
GPUS: dict[State, GpuReading | GpuDown] = {
    State.BUSY: a_busy_reading(),
    State.UNKNOWN: a_down(),
    State.PARKED: HELD,
    State.IDLE: a_reading(),
}


@pytest.mark.parametrize(("gpu", "says"), [*product(GPUS, [State.BUSY, State.UNKNOWN, State.OCCUPIED, State.IDLE])])
def test_the_order_of_states(gpu: State, says: State) -> None:
    """A node's state is the first that any part of it has."""
    state = lasting(GPUS[gpu], host=(of_host("processes", says),), seconds=0).activity.state

    assert state is min(gpu, says, key=ORDER.index)


HOSTS = st.lists(
    st.sampled_from([SPINS, SLEEPER, NOBODY, of_host("cpu", State.BUSY), of_host("disk", State.UNKNOWN)]), max_size=4
)
ENTRIES = st.lists(
    st.sampled_from([a_deadlock(0), a_reading(1), HELD, a_reading(2, processes=None), a_down(3)]),
    min_size=1,
    max_size=4,
)


def rank(activity: Activity) -> int:
    """How near to idle."""
    return ORDER.index(activity.state)


@given(ENTRIES, HOSTS, st.sampled_from([SPINS, SLEEPER, of_host("cpu", State.BUSY), of_host("x", State.UNKNOWN)]))
def test_more_evidence_of_the_host_never_makes_a_node_idler(
    entries: list[GpuReading | GpuDown], host: list[Evidence], more: Evidence
) -> None:
    """P8, for every state: busy, unknown or occupied evidence moves a node up in the order, or not at all."""
    unique = tuple({entry.info.uuid: entry for entry in entries}.values())
    without, with_it = (lasting(*unique, host=tuple(each)).activity for each in (host, [*host, more]))

    assert rank(with_it) <= rank(without)
