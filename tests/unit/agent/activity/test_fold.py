"""agent/activity/fold.py: when a machine is busy, parked, stalled, idle or unknown, and what counts as idle time."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.activity import ActivityRules, Memory, Sample, fold
from gpuwatch.model.activity import Activity, Evidence, State
from gpuwatch.model.gpu import DownCause, GpuDown, GpuReading, ProcessKind
from gpuwatch.model.mig import MigInstance
from tests.support.builders.gpu import GIB, START, a_busy_reading, a_down, a_process, a_reading, a_sample

RULES = ActivityRules()
DESKTOP = a_process(7, 1, ProcessKind.GRAPHICS)
HELD = a_reading(memory_used_bytes=GIB, processes=(a_process(8),))


def folded(*samples: Sample, rules: ActivityRules = RULES) -> Memory:
    """The memory after these samples."""
    memory = Memory()
    for sample in samples:
        memory = fold(memory, sample, rules)
    return memory


def at_rest(seconds: Iterable[float], *entries: GpuReading | GpuDown) -> tuple[Sample, ...]:
    """The same entries again at each of these seconds."""
    return tuple(a_sample(second, *(entries or (a_reading(),))) for second in seconds)


def a_mig_reading(*activity: float | None) -> GpuReading:
    """A GPU at rest, split into instances with these SM activities."""
    parts = tuple(MigInstance(id=number, sm_activity_ratio=ratio) for number, ratio in enumerate(activity))
    return a_reading(mig_mode=1, mig_instances=parts)


# What one sample says.

STATES: dict[str, tuple[GpuReading | GpuDown, State]] = {
    "nothing runs": (a_reading(), State.IDLE),
    "one percent of one sample": (a_reading(utilization_max_ratio=0.01), State.BUSY),
    "a mean without a maximum": (a_reading(utilization_ratio=0.5, utilization_max_ratio=None), State.BUSY),
    "power over the floor alone": (a_reading(power_watts=245.0), State.BUSY),
    "power just under it": (a_reading(power_watts=244.0), State.IDLE),
    "power without a limit to compare with": (a_reading(power_watts=600.0, power_limit_watts=None), State.IDLE),
    "memory held": (a_reading(memory_used_bytes=GIB, processes=(DESKTOP,)), State.PARKED),
    "memory held by no process": (a_reading(memory_used_bytes=GIB), State.IDLE),
    "a compute process that holds nothing": (a_reading(processes=(a_process(7, None),)), State.PARKED),
    "a desktop": (a_reading(processes=(DESKTOP,)), State.IDLE),
    "a busy GPU with memory held": (a_busy_reading(memory_used_bytes=GIB), State.BUSY),
    "utilization that is not known": (a_reading(utilization_ratio=None, utilization_max_ratio=None), State.UNKNOWN),
    "processes that could not be listed": (a_reading(processes=None), State.UNKNOWN),
    "power that is not known": (a_reading(power_watts=None), State.IDLE),
    "memory that is not known, without processes": (a_reading(memory_used_bytes=None), State.IDLE),
    "busy by power though utilization is not known": (
        a_reading(utilization_ratio=None, utilization_max_ratio=None, power_watts=600.0),
        State.BUSY,
    ),
    "multiprocessors at work alone": (a_reading(sm_activity_ratio=0.01), State.BUSY),
    "multiprocessors at rest alone": (
        a_reading(utilization_ratio=None, utilization_max_ratio=None, sm_activity_ratio=0.0),
        State.UNKNOWN,
    ),
    "a MIG GPU whose parts rest": (a_mig_reading(0.0, 0.0), State.IDLE),
    "a MIG GPU with one part at work": (a_mig_reading(0.0, 0.01), State.BUSY),
    "a MIG GPU with one part that is not known": (a_mig_reading(0.0, None), State.UNKNOWN),
    "a MIG GPU with one part at work, one not known": (a_mig_reading(0.5, None), State.BUSY),
    "a MIG GPU without parts": (a_mig_reading(), State.IDLE),  # nothing can compute on it
    "a MIG GPU whose parts could not be listed": (a_reading(mig_mode=1), State.UNKNOWN),
    "a lost GPU": (a_down(), State.UNKNOWN),
    "a hung GPU": (a_down(cause=DownCause.HANG), State.UNKNOWN),
}


@pytest.mark.parametrize(("entry", "state"), STATES.values(), ids=STATES.keys())
def test_one_gpu(entry: GpuReading | GpuDown, state: State) -> None:
    """Each of these says what a machine with this GPU alone is doing."""
    memory = folded(a_sample(0, entry))

    assert memory.activity.state is state
    assert memory.gpus[0].activity.state is state


def test_zero_is_a_measurement_and_none_is_not() -> None:
    """A measured zero makes a GPU idle; the same value missing makes it unknown, and the doubt names the GPU."""
    measured = folded(a_sample(0, a_reading(utilization_ratio=0.0, utilization_max_ratio=None)))
    missing = folded(a_sample(0, a_reading(utilization_ratio=None, utilization_max_ratio=None)))

    assert measured.activity.state is State.IDLE
    assert missing.activity.state is State.UNKNOWN
    assert missing.activity.doubt == "GPU 0: its utilization could not be read"


def test_evidence_says_what_was_seen_against_which_limit() -> None:
    """Every signal that was looked at is in the GPU's evidence, with both numbers."""
    evidence = {entry.name: entry for entry in folded(a_sample(0, a_reading())).gpus[0].activity.evidence}

    assert set(evidence) == {"gpu0.utilization_max", "gpu0.power", "gpu0.memory_used", "gpu0.compute_processes"}
    assert evidence["gpu0.power"].observed == pytest.approx(70.0)
    assert evidence["gpu0.power"].limit == pytest.approx(245.0)


# Several GPUs.


@pytest.mark.parametrize(
    ("entries", "state"),
    [
        ((a_reading(0), a_reading(1)), State.IDLE),
        ((a_reading(0), a_busy_reading(1)), State.BUSY),
        ((a_reading(1), HELD), State.PARKED),
        ((a_reading(0), a_down(1)), State.UNKNOWN),
        ((HELD, a_down(1)), State.UNKNOWN),
        ((a_busy_reading(0), a_down(1)), State.BUSY),
        ((), State.UNKNOWN),
    ],
)
def test_a_node_is_its_busiest_gpu_then_its_most_doubtful(
    entries: tuple[GpuReading | GpuDown, ...], state: State
) -> None:
    """Busy wins, then unknown, then parked; idle is only where every GPU is; no GPU at all is no idleness."""
    assert folded(a_sample(0, *entries)).activity.state is state


def test_a_gpu_that_vanishes_makes_its_node_unknown() -> None:
    """A GPU that was there and is neither read nor reported down is a doubt, not one GPU less to look at."""
    memory = folded(a_sample(0, a_reading(0), a_reading(1)), a_sample(1, a_reading(0)))

    assert memory.activity.state is State.UNKNOWN
    assert memory.activity.doubt == "GPU 1: it is no longer listed by the driver"
    assert memory.gpus[0].activity.state is State.IDLE


# Time.


def test_idle_time_is_the_sum_between_good_samples() -> None:
    """The first sample begins at zero; each later one adds the time since the one before."""
    memory = folded(*at_rest(range(11)))

    assert memory.activity.held_seconds == pytest.approx(10.0)
    assert memory.activity.since == START


def test_busy_starts_the_idle_time_again() -> None:
    """One busy sample wipes out all idle time before it."""
    memory = folded(*at_rest(range(11)), a_sample(11, a_busy_reading()), *at_rest(range(12, 15)))

    assert memory.activity.state is State.IDLE
    assert memory.activity.held_seconds == pytest.approx(2.0)


def test_parked_time_is_no_idle_time() -> None:
    """A GPU whose memory is let go begins its idle time then."""
    parked = at_rest(range(11), HELD)
    memory = folded(*parked, *at_rest(range(11, 14)))

    assert folded(*parked).activity.held_seconds == pytest.approx(10.0)
    assert memory.activity.held_seconds == pytest.approx(2.0)


def test_short_doubt_pauses_idle_time() -> None:
    """A doubt no longer than forget_after stops the count, which then goes on where it was; the doubt adds nothing."""
    memory = folded(*at_rest(range(11)), *at_rest(range(11, 21), a_down()), *at_rest(range(21, 24)))

    assert memory.activity.state is State.IDLE
    assert memory.activity.held_seconds == pytest.approx(12.0)


def test_long_doubt_forgets_idle_time() -> None:
    """A doubt longer than forget_after starts the count again from zero."""
    memory = folded(*at_rest(range(11)), *at_rest(range(11, 80), a_down()), *at_rest(range(80, 83)))

    assert memory.activity.held_seconds == pytest.approx(2.0)


def test_a_gap_is_not_idle_time() -> None:
    """Two samples further apart than max_gap leave out the time between; further apart than forget_after, all of it."""
    short = folded(*at_rest(range(11)), *at_rest((41, 42)))
    long = folded(*at_rest(range(11)), *at_rest((111, 112)))

    assert short.activity.held_seconds == pytest.approx(11.0)
    assert long.activity.held_seconds == pytest.approx(1.0)


def test_unknown_holds_no_time() -> None:
    """While in doubt the held time shown is zero, so that nobody can act on it."""
    memory = folded(*at_rest(range(11)), a_sample(11, a_down()))

    assert memory.activity.held_seconds == 0.0


def test_a_duplicate_or_late_sample_changes_nothing() -> None:
    """A sample no later than the last one is as if it had not come, busy ones included."""
    memory = folded(*at_rest(range(11)))

    assert fold(memory, a_sample(10, a_reading()), RULES) is memory
    assert fold(memory, a_sample(3, a_busy_reading()), RULES) is memory


@pytest.mark.parametrize("jump", [-86400.0, -6.0, 6.0, 3600.0])
def test_a_clock_jump_is_a_doubt(jump: float) -> None:
    """Where the wall clock leaves the monotonic one, the sample is in doubt and its time does not count."""
    memory = folded(*at_rest(range(11)), a_sample(11, a_reading(), wall_jump_seconds=jump))

    assert memory.activity.state is State.UNKNOWN
    assert "clock jumped" in (memory.activity.doubt or "")


def test_busy_shows_through_a_clock_jump() -> None:
    """No doubt hides a busy GPU."""
    memory = folded(*at_rest(range(3)), a_sample(3, a_busy_reading(), wall_jump_seconds=3600.0))

    assert memory.activity.state is State.BUSY


# Energy and stalls.


def test_energy_shows_work_between_samples() -> None:
    """A burst between two calm samples is in the energy counter: its mean power makes the GPU busy."""
    calm, burst = a_reading(energy_joules_total=1000.0), a_reading(energy_joules_total=1000.0 + 5 * 300.0)

    assert folded(a_sample(0, calm), a_sample(5, burst)).activity.state is State.BUSY


def test_an_energy_counter_that_starts_again_says_nothing() -> None:
    """After a driver reload the counter is smaller: that is no negative power and no sign of work."""
    memory = folded(a_sample(0, a_reading(energy_joules_total=1e9)), a_sample(1, a_reading(energy_joules_total=5.0)))

    assert memory.activity.state is State.IDLE


STALLED = a_reading(utilization_ratio=1.0, utilization_max_ratio=1.0)


def test_full_utilization_at_idle_power_becomes_stalled() -> None:
    """A deadlock is busy until it has lasted for stalled_timeout, then stalled, and never idle."""
    states = [folded(*at_rest(range(0, last, 10), STALLED)).activity.state for last in (600, 611)]

    assert states == [State.BUSY, State.STALLED]


def test_memory_traffic_is_no_stall() -> None:
    """What moves memory works, however little power it draws."""
    working = a_reading(utilization_ratio=1.0, utilization_max_ratio=1.0, memory_bandwidth_utilization_ratio=0.01)

    assert folded(*at_rest(range(0, 1000, 10), working)).activity.state is State.BUSY


# Properties.

ENTRIES = st.sampled_from(
    [
        a_reading(),
        a_busy_reading(),
        HELD,
        a_reading(utilization_ratio=None, utilization_max_ratio=None),
        a_reading(processes=None),
        a_down(),
        STALLED,
    ]
)
STEPS = st.lists(
    st.tuples(st.floats(min_value=-30.0, max_value=120.0), ENTRIES, st.sampled_from([0.0, 0.0, 0.0, -9000.0, 9000.0])),
    max_size=40,
)


def story(steps: list[tuple[float, GpuReading | GpuDown, float]]) -> list[Sample]:
    """Samples in the order in which they arrive, which need not be that of their times."""
    samples, now = [], 0.0
    for step, entry, jump in steps:
        now += step
        samples.append(a_sample(now, entry, wall_jump_seconds=jump))
    return samples


@given(STEPS)
def test_idle_time_never_exceeds_the_time_since_anything_else(
    steps: list[tuple[float, GpuReading | GpuDown, float]],
) -> None:
    """P9: late, duplicate and jumping samples never make a node idle for longer than it has shown itself idle."""
    memory, idle_from = Memory(), None
    for sample in story(steps):
        after = fold(memory, sample, RULES)
        if after is memory:
            continue
        memory = after
        state = memory.activity.state
        if state is State.IDLE and idle_from is None:
            idle_from = sample.monotonic_seconds
        elif state not in {State.IDLE, State.UNKNOWN}:
            idle_from = None
        if state is State.IDLE and idle_from is not None:
            assert memory.activity.held_seconds <= sample.monotonic_seconds - idle_from + 1e-6


@given(STEPS)
def test_unknown_never_counts(steps: list[tuple[float, GpuReading | GpuDown, float]]) -> None:
    """P1: a sample in doubt never shows held time, and never lets the hidden count grow."""
    memory = Memory()
    for sample in story(steps):
        after = fold(memory, sample, RULES)
        if after is not memory and after.activity.state is State.UNKNOWN:
            assert after.activity.held_seconds == 0.0
            assert after.node.held_seconds <= memory.node.held_seconds
        memory = after


def idle_seconds(activity: Activity) -> float:
    """How far a node is on its way to being stopped."""
    return activity.held_seconds if activity.state is State.IDLE else 0.0


@given(STEPS, st.data())
def test_more_busy_evidence_never_makes_a_node_idler(
    steps: list[tuple[float, GpuReading | GpuDown, float]], data: st.DataObject
) -> None:
    """P2 and P8: turning any one sample busy never lengthens the idle time at the end."""
    samples = story(steps)
    if not samples:
        return
    which = data.draw(st.integers(min_value=0, max_value=len(samples) - 1))
    busier = list(samples)
    busier[which] = Sample(
        at=samples[which].at, monotonic_seconds=samples[which].monotonic_seconds, readings=(a_busy_reading(),)
    )

    assert idle_seconds(folded(*busier).activity) <= idle_seconds(folded(*samples).activity) + 1e-6


@given(STEPS)
def test_a_second_lost_gpu_never_makes_a_node_idle(steps: list[tuple[float, GpuReading | GpuDown, float]]) -> None:
    """With one GPU down throughout, the node is never idle, parked or stalled: busy or unknown."""
    memory = Memory()
    for sample in story(steps):
        with_lost = Sample(
            at=sample.at,
            monotonic_seconds=sample.monotonic_seconds,
            readings=sample.readings,
            downs=(*sample.downs, a_down(1)),
        )
        memory = fold(memory, with_lost, RULES)

        assert memory.activity.state in {State.BUSY, State.UNKNOWN}


# What people and programs do on the host.


def on_the_host(says: State, note: str | None = None) -> Evidence:
    """One signal of the host."""
    return Evidence(name="people", says=says, observed=None, limit=None, unit="seconds", source="utmp", note=note)


HOST: dict[str, tuple[tuple[Evidence, ...], State]] = {
    "somebody types": ((on_the_host(State.BUSY, "ana on pts/0"),), State.BUSY),
    "nobody is there": ((on_the_host(State.IDLE),), State.IDLE),
    "a signal that failed": ((on_the_host(State.UNKNOWN, "no permission"),), State.UNKNOWN),
    "one failed, another is busy": ((on_the_host(State.UNKNOWN), on_the_host(State.BUSY)), State.BUSY),
}


@pytest.mark.parametrize(("host", "state"), HOST.values(), ids=HOST.keys())
def test_the_host_beside_idle_gpus(host: tuple[Evidence, ...], state: State) -> None:
    """Busy evidence of the host makes the node busy, a failed signal makes it unknown; quiet adds nothing."""
    memory = folded(replace(a_sample(0, a_reading()), host=host))

    assert memory.activity.state is state
    assert [gpu.activity.state for gpu in memory.gpus] == [State.IDLE]


def test_a_quiet_host_is_evidence_of_an_idle_node() -> None:
    """So that people see that somebody was looked for, and pools may require it; of a busy node the work is told."""
    quiet = on_the_host(State.IDLE)
    idle, busy = (
        folded(replace(a_sample(0, a_reading(utilization_ratio=load)), host=(quiet,))).activity for load in (0.0, 0.9)
    )

    assert (idle.state, idle.evidence[-1]) == (State.IDLE, quiet)
    assert (busy.state, quiet in busy.evidence) == (State.BUSY, False)


def test_activity_of_the_host_starts_the_nodes_idle_time_again() -> None:
    """Somebody typed for one sample: the node's idle time begins anew, and the verdict said who."""
    samples = at_rest(range(100))
    typed = replace(a_sample(100, a_reading()), host=(on_the_host(State.BUSY, "ana on pts/0"),))
    memory = folded(*samples, typed)

    assert [entry.note for entry in memory.activity.evidence] == ["ana on pts/0"]
    assert folded(*samples, typed, a_sample(101, a_reading())).activity.held_seconds == 0.0


def test_a_host_signal_without_any_gpu_is_no_proof_of_idleness() -> None:
    """Where the driver lists no GPU the node is unknown, whatever the host shows."""
    assert folded(replace(a_sample(0), host=(on_the_host(State.IDLE),))).activity.state is State.UNKNOWN
