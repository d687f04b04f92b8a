"""What a machine is without the GPUs that its driver has lost: said beside "unknown", and only where it is sure.

| case | what the agent says of the rest | who would be hurt otherwise |
| --- | --- | --- |
| one GPU of eight is lost, nothing else is used | idle, from ten minutes after the loss on | whoever pays for eight |
| training goes on on the other seven | the machine is busy as ever | the training |
| a person's process lives on the host | occupied | its owner, whose data it may still hold |
| all eight are lost | unknown: it may be the driver | everybody, at a roll-out |
| the GPU comes back after a reset | nothing more is said | nobody |
| it is lost for less than ten minutes, or with gaps | unknown | who is just resetting it |
| given to a virtual machine (vfio): not listed any more | unknown: it may work there | the guest |
| it hangs, or its calls err | unknown: its work may go on | its job |
| the driver is upgraded, GPUs are released | unknown | who upgrades it |
| the host's people or processes are not looked at | unknown: what held the GPU cannot be seen | its job |
| another GPU cannot be judged | unknown | its job |
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gpuwatch.agent.activity import ActivityRules, Memory, Sample, fold
from gpuwatch.agent.activity.fold import LOST_SECONDS
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.gpu import DownCause, GpuDown, GpuReading
from tests.support.builders.gpu import a_busy_reading, a_down, a_reading, a_sample

RULES = ActivityRules()
EVERY = 5.0
REST = tuple(a_reading(gpu) for gpu in range(1, 8))


def on_host(name: str, says: State = State.IDLE) -> Evidence:
    """A signal of the host."""
    return Evidence(name=name, says=says, observed=None, limit=None, unit="", source="x")


NOBODY = (on_host("people"), on_host("processes"))


def after(
    seconds: float,
    entries: Sequence[GpuReading | GpuDown],
    host: tuple[Evidence, ...] = NOBODY,
    before: Memory | None = None,
    every: float = EVERY,
) -> Memory:
    """What is remembered after so long of the same."""
    memory = before or Memory()
    begin = 0.0 if before is None or before.monotonic_seconds is None else before.monotonic_seconds - 1000.0 + every
    for number in range(int(seconds / every) + 1):
        sample: Sample = replace(a_sample(begin + number * every, *entries), host=host)
        memory = fold(memory, sample, RULES)
    return memory


def test_the_rest_counts_from_ten_minutes_after_the_loss() -> None:
    """The machine stays unknown; what it did before the loss does not count."""
    before = after(3600.0, [a_reading(0), *REST])
    assert before.without_lost is None
    soon = after(LOST_SECONDS - 60.0, [a_down(0), *REST], before=before)
    later = after(LOST_SECONDS + 300.0, [a_down(0), *REST], before=before)

    assert soon.without_lost is not None
    assert soon.without_lost.state is State.UNKNOWN
    assert later.activity.state is State.UNKNOWN
    assert later.without_lost is not None
    assert (later.without_lost.state, later.without_lost.held_seconds <= 300.0) == (State.IDLE, True)


@pytest.mark.parametrize(
    ("entries", "host", "state"),
    [
        ([a_down(0), a_busy_reading(1), *REST[1:]], NOBODY, State.BUSY),
        ([a_down(0), *REST], (*NOBODY, on_host("cpu", State.BUSY)), State.BUSY),
        ([a_down(0), *REST], (on_host("people"), on_host("processes", State.OCCUPIED)), State.OCCUPIED),
        ([a_down(0), *REST], (on_host("people", State.UNKNOWN), on_host("processes")), State.UNKNOWN),
        ([a_down(0), *REST], (on_host("people"),), State.UNKNOWN),
        ([a_down(0), *REST], (), State.UNKNOWN),
        ([a_down(gpu) for gpu in range(8)], NOBODY, State.UNKNOWN),
        ([a_down(0), a_reading(1, utilization_ratio=None, utilization_max_ratio=None)], NOBODY, State.UNKNOWN),
        ([a_down(0), a_down(1, DownCause.HANG), *REST[1:]], NOBODY, State.UNKNOWN),
    ],
)
def test_any_sign_of_use_and_any_doubt_about_the_rest_stays(
    entries: list[GpuReading | GpuDown], host: tuple[Evidence, ...], state: State
) -> None:
    """After an hour."""
    left = after(3600.0, entries, host).without_lost
    assert left is not None
    assert left.state is state


@pytest.mark.parametrize("cause", sorted(set(DownCause) - {DownCause.LOST, DownCause.RESET}))
def test_what_the_driver_does_not_call_lost_is_not_lost(cause: DownCause) -> None:
    """Not listed (a guest has it), hung, released, or its calls err."""
    memory = after(3600.0, [a_down(0, cause), *REST])
    assert memory.without_lost is None
    assert memory.activity.state is State.UNKNOWN


def test_one_that_nobody_can_use_until_it_is_reset_is_as_good_as_lost() -> None:
    """Its driver refuses all else: the machine would wait for ever."""
    left = after(3600.0, [a_down(0, DownCause.RESET), *REST]).without_lost
    assert left is not None
    assert left.state is State.IDLE


def test_a_gpu_that_is_back_is_one_that_is_read() -> None:
    """After its reset the machine is judged with it; lost again, ten minutes count anew."""
    lost = after(3600.0, [a_down(0), *REST])
    back = after(60.0, [a_reading(0), *REST], before=lost)
    again = after(60.0, [a_down(0), *REST], before=back)
    assert back.without_lost is None
    assert again.without_lost is not None
    assert again.without_lost.state is State.UNKNOWN


def test_gaps_between_samples_are_no_proof_of_a_loss() -> None:
    """An agent that looks once in five minutes does not know what was in between."""
    left = after(7200.0, [a_down(0), *REST], every=RULES.max_gap * 3).without_lost
    assert left is not None
    assert left.state is State.UNKNOWN
