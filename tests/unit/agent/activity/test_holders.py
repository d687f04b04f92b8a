"""agent/activity/holders.py: work and memory of the machine's own processes, and of nobody's."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.activity import ActivityRules, Memory, Sample, fold
from gpuwatch.model.activity import Activity, Evidence, State, WorkOwner
from gpuwatch.model.gpu import GpuDown, GpuProcess, GpuReading, ProcessKind
from gpuwatch.model.mig import MigInstance
from tests.support.builders.gpu import GIB, a_busy_reading, a_down, a_process, a_reading, a_sample

RULES = ActivityRules()
NVVS, MPS, XORG, TRAIN, RENDER = (
    a_process(101),
    a_process(102),
    a_process(103, 50 << 20, ProcessKind.GRAPHICS),
    a_process(900, 30 * GIB),
    a_process(901, 2 * GIB, ProcessKind.GRAPHICS),
)
OWN = frozenset({101, 102, 103})
REDRAW = {"utilization_ratio": 0.001, "utilization_max_ratio": 0.01}


def sampled(second: float, *entries: GpuReading | GpuDown) -> Sample:
    """A sample in which the processes below 900 are the machine's own."""
    return replace(a_sample(second, *entries), service_pids=OWN)


def resting(*processes: GpuProcess, **measured: Any) -> GpuReading:  # noqa: ANN401  any field of GpuReading
    """A GPU at rest that these processes hold."""
    used = sum(process.memory_bytes or 0 for process in processes)
    return a_reading(**{"memory_used_bytes": used, "processes": processes, **measured})


def working(*processes: GpuProcess, **measured: Any) -> GpuReading:  # noqa: ANN401  as above
    """A GPU at full work that these processes hold."""
    return resting(
        *processes, **{"utilization_ratio": 0.9, "utilization_max_ratio": 1.0, "power_watts": 600.0, **measured}
    )


def played(*readings: GpuReading | GpuDown, step: float = 1.0, since: float = 0.0) -> Memory:
    """The memory after these readings, so many seconds apart."""
    memory = Memory()
    for number, reading in enumerate(readings):
        memory = fold(memory, sampled(since + number * step, reading), RULES)
    return memory


EMPTY = resting()
# What a GPU shows second by second, the state in the last one that is true, and who is hurt by another answer.
CASES: dict[str, tuple[Sequence[GpuReading | GpuDown], State, str]] = {
    "a health check begins": ((EMPTY, working(NVVS)), State.IDLE, "who pays: the clock begins again each time"),
    "a health check goes on": ((EMPTY, working(NVVS), working(NVVS)), State.IDLE, "who pays"),
    "it has just ended": ((EMPTY, working(NVVS), working()), State.IDLE, "who pays: samples look back a second"),
    "its power is still falling": (
        (EMPTY, working(NVVS), *[resting(power_watts=300.0)] * 5),
        State.IDLE,
        "who pays: power and clocks settle within seconds",
    ),
    "work eleven seconds after its end": ((EMPTY, working(NVVS), *[EMPTY] * 11, working()), State.BUSY, "somebody"),
    "a check's utilization, shown again until it is read": (
        (EMPTY, working(NVVS), *[working()] * 9),
        State.IDLE,
        "who pays: what is shown is of up to ten seconds ago",
    ),
    "a check that rests with memory held": ((EMPTY, resting(NVVS)), State.IDLE, "who pays: nobody is parked there"),
    "a check beside a training": ((EMPTY, working(NVVS, TRAIN)), State.BUSY, "who trains"),
    "a check right after a training": ((working(TRAIN), working(NVVS)), State.BUSY, "who trains: it may be its work"),
    "a training between two checks": (
        (working(NVVS), working(TRAIN), working(NVVS), working(NVVS), working(NVVS)),
        State.BUSY,
        "who trains in short runs",
    ),
    "a check while the energy counter may hold that of a training": (
        (working(TRAIN), *[resting(NVVS)] * 12, working(NVVS)),
        State.BUSY,
        "who trains in short runs",
    ),
    "a check that the agent finds at its start": ((working(NVVS),), State.BUSY, "who may have been there before"),
    "a check right after a lost reading": ((EMPTY, a_down(), working(NVVS)), State.BUSY, "who may have been there"),
    "a check after a list that failed": (
        (EMPTY, resting(processes=None), working(NVVS)),
        State.BUSY,
        "who may have been in that list",
    ),
    "a list that may leave somebody out": (
        (resting(processes_partial=True), working(NVVS, processes_partial=True)),
        State.BUSY,
        "who is not listed",
    ),
    "a virtual GPU": (
        tuple(replace(each, info=replace(each.info, name="NVIDIA A10-24Q")) for each in (EMPTY, working(NVVS))),
        State.BUSY,
        "who works in another machine",
    ),
    "work of a process that nobody has listed": ((EMPTY, working()), State.BUSY, "who runs programs of half a second"),
    "an MPS server and its client": ((resting(MPS), working(MPS, TRAIN)), State.BUSY, "the client"),
    "an MPS server at rest": ((resting(MPS), resting(MPS)), State.IDLE, "who pays"),
    "Xorg redraws": ((resting(XORG), resting(XORG, **REDRAW)), State.IDLE, "who pays"),
    "more than Xorg redraws": ((resting(XORG), working(XORG)), State.BUSY, "whose program was too short to be listed"),
    "power that Xorg does not need": ((resting(XORG), resting(XORG, power_watts=400.0)), State.BUSY, "somebody"),
    "a desktop with somebody's viewer": ((resting(XORG), resting(XORG, RENDER, **REDRAW)), State.BUSY, "the viewer's"),
    "somebody's viewer at rest": ((resting(XORG, RENDER),) * 2, State.PARKED, "whose scene is loaded"),
    "memory of nobody": ((resting(memory_used_bytes=40 * GIB),), State.IDLE, "who pays for a page cache or a leak"),
    "memory beside Xorg": ((resting(XORG, memory_used_bytes=40 * GIB),), State.IDLE, "who pays"),
    "memory of nobody who can be seen": (
        (resting(memory_used_bytes=40 * GIB, processes_partial=True),),
        State.UNKNOWN,
        "whose process has no name here",
    ),
    "memory of a virtual machine": (
        (replace(EMPTY, memory_used_bytes=GIB, info=replace(EMPTY.info, name="GRID T4-16Q")),),
        State.PARKED,
        "whose process the driver does not list here",
    ),
    "memory of an instance with a process": (
        (
            resting(
                memory_used_bytes=GIB,
                mig_mode=1,
                mig_instances=(MigInstance(id=1, sm_activity_ratio=0.0, process_count=1),),
            ),
        ),
        State.PARKED,
        "whose process only the instance lists",
    ),
    "memory of an instance that does not list": (
        (resting(memory_used_bytes=GIB, mig_mode=1, mig_instances=(MigInstance(id=1, sm_activity_ratio=0.0),)),),
        State.PARKED,
        "whose process is not listed",
    ),
    "memory of instances that list nobody": (
        (
            resting(
                memory_used_bytes=GIB,
                mig_mode=1,
                mig_instances=(MigInstance(id=1, sm_activity_ratio=0.0, process_count=0),),
            ),
        ),
        State.IDLE,
        "who pays",
    ),
}


@pytest.mark.parametrize(("readings", "state", "hurt"), CASES.values(), ids=CASES.keys())
def test_whose_work_and_memory_it_is(readings: Sequence[GpuReading | GpuDown], state: State, hurt: str) -> None:
    """The machine's own neither parks a GPU nor makes it busy; any doubt about that is somebody's."""
    assert played(*readings).activity.state is state, hurt


def evidence(activity: Activity, name: str) -> Evidence:
    """The evidence of that name."""
    return next(entry for entry in activity.evidence if entry.name == f"gpu0.{name}")


def test_a_health_check_does_not_begin_the_idle_time_again() -> None:
    """Each ten minutes for a minute: the machine is idle for two hours all the same."""
    lives = [working(NVVS) if second % 600 < 60 else EMPTY for second in range(1, 7201, 5)]
    memory = played(EMPTY, *lives, step=5.0)

    assert memory.activity.held_seconds == pytest.approx(7200.0)


def test_what_is_excused_is_said() -> None:
    """People see which process it was, and that it is the machine's own."""
    seen = evidence(played(EMPTY, working(NVVS)).gpus[0].activity, "utilization_max")

    assert (seen.says, seen.observed, seen.owner) == (State.IDLE, 1.0, WorkOwner(pid=101))
    assert seen.note == "the machine's own: process 101"


def test_work_and_memory_name_their_process() -> None:
    """The only process of people is whose work it is; of several the largest is whose memory it is."""
    busy = evidence(played(working(TRAIN, XORG)).gpus[0].activity, "utilization_max")
    crowd = played(working(TRAIN, RENDER)).gpus[0].activity
    parked = played(resting(a_process(7), TRAIN, XORG)).activity

    assert (busy.owner, busy.setting) == (WorkOwner(pid=900), "agent.activity.busy_utilization_ratio")
    assert evidence(crowd, "utilization_max").owner is None
    assert {entry.name: (entry.owner, entry.setting) for entry in parked.evidence} == {
        "gpu0.memory_used": (WorkOwner(pid=900), "agent.activity.held_memory_bytes"),
        "gpu0.compute_processes": (WorkOwner(pid=900), None),
    }


def test_memory_of_nobody_says_so() -> None:
    """It is seen, and it is no reason to keep the machine."""
    activity = played(resting(memory_used_bytes=40 * GIB)).gpus[0].activity

    assert evidence(activity, "memory_used").note == "held by no process"
    assert evidence(activity, "memory_used").observed == 40 * GIB


def test_what_computes_for_more_than_an_hour_is_no_check() -> None:
    """An MPS server, or whatever stays: its work is that of others, who may be too quick to be listed."""
    memory = played(*[resting(MPS)] * 400, step=9.9)
    memory = fold(memory, sampled(400 * 9.9, working(MPS)), RULES)

    assert memory.activity.state is State.BUSY


def test_samples_far_apart_excuse_nothing() -> None:
    """Who came and went between two samples further apart than max_gap is not known."""
    assert played(EMPTY, working(NVVS), step=RULES.max_gap + 1).activity.state is not State.IDLE


def test_a_slow_agent_excuses_the_sample_after_the_end() -> None:
    """With ten seconds between samples the one before the end is further back than the window, and still counts."""
    memory = played(EMPTY, working(NVVS), working(), step=10.0)
    later = fold(memory, sampled(30.0, working()), RULES)

    assert (memory.activity.state, later.activity.state) == (State.IDLE, State.BUSY)


def test_a_new_process_with_the_number_of_a_check_is_somebodys() -> None:
    """What is the machine's own is said for each sample anew."""
    memory = played(EMPTY, working(NVVS))
    memory = fold(memory, a_sample(2, working(NVVS)), RULES)

    assert memory.activity.state is State.BUSY


def test_work_that_is_excused_is_no_deadlock() -> None:
    """A check that keeps the GPU at full utilization without power is no stalled job."""
    hung = resting(NVVS, utilization_ratio=1.0, utilization_max_ratio=1.0)

    memory = played(EMPTY, *[hung] * 100, step=9.9)
    guest = resting(NVVS, TRAIN, utilization_ratio=1.0, utilization_max_ratio=1.0)
    later = fold(memory, sampled(101 * 9.9, guest), RULES)

    assert (memory.activity.state, later.activity.state) == (State.IDLE, State.BUSY)


# Properties.

READINGS = st.sampled_from(
    [
        EMPTY,
        working(),
        working(NVVS),
        resting(NVVS),
        resting(XORG, **REDRAW),
        working(TRAIN),
        resting(TRAIN),
        resting(processes=None),
        resting(processes_partial=True),
        resting(memory_used_bytes=GIB),
        a_busy_reading(processes=None),
        a_down(),
    ]
)
LIVES = st.lists(st.tuples(READINGS, st.sampled_from([0.5, 1.0, 3.0, 9.0, 20.0])), min_size=1, max_size=40)


def story(life: list[tuple[GpuReading | GpuDown, float]]) -> list[Sample]:
    """The samples of a life."""
    now, samples = 0.0, []
    for entry, step in life:
        now += step
        samples.append(sampled(now, entry))
    return samples


def told(samples: list[Sample]) -> list[Activity]:
    """What the machine is said to do in each."""
    memory, activities = Memory(), []
    for sample in samples:
        memory = fold(memory, sample, RULES)
        activities.append(memory.activity)
    return activities


def stillness(activity: Activity) -> tuple[bool, bool, float]:
    """How near a machine is to being stopped: idle before what is reported, that before busy and unknown."""
    state = activity.state
    return state is State.IDLE, state not in {State.BUSY, State.UNKNOWN}, activity.held_seconds * (state is State.IDLE)


@given(LIVES, st.data())
def test_one_more_process_of_people_never_makes_a_machine_less_busy(
    life: list[tuple[GpuReading | GpuDown, float]], data: st.DataObject
) -> None:
    """Wherever it is put in, computing or drawing: no sample is called more still than without it."""
    samples = story(life)
    which = data.draw(st.integers(min_value=0, max_value=len(samples) - 1))
    guest = data.draw(st.sampled_from([TRAIN, RENDER]))
    crowded = list(samples)
    crowded[which] = replace(
        samples[which],
        readings=tuple(
            reading if reading.processes is None else replace(reading, processes=(*reading.processes, guest))
            for reading in samples[which].readings
        ),
    )

    for without, withal in zip(told(samples), told(crowded), strict=True):
        assert stillness(withal) <= stillness(without)


@given(LIVES)
def test_with_nothing_known_of_kinds_no_work_is_excused(life: list[tuple[GpuReading | GpuDown, float]]) -> None:
    """An agent that cannot tell whose a process is takes each one for somebody's."""
    for sample, activity in zip(
        story(life), told([replace(sample, service_pids=frozenset()) for sample in story(life)]), strict=True
    ):
        if any((reading.utilization_ratio or 0.0) >= 0.01 for reading in sample.readings):
            assert activity.state is State.BUSY
