"""The permit of a change: young by every clock, and only of the leader."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds import CloudError, PermitExpiredError
from gpuwatch.clouds.permit import Permit, check_in_force, in_force, permit_in_force
from gpuwatch.runtime.clock import Clock, ManualClock, SystemClock
from tests.support.builders.fleet import a_permit

BOUND = 5.0


def holds(permit: Permit) -> bool:
    """Whether it allows the change now."""
    try:
        permit.check()
    except PermitExpiredError:
        return False
    return True


@given(
    st.lists(st.tuples(st.sampled_from(["passes", "sleeps", "jumps"]), st.floats(-30, 30, allow_nan=False)), max_size=6)
)
def test_a_permit_never_outlives_its_bound_by_time_awake_or_asleep(steps: list[tuple[str, float]]) -> None:
    """P15: time that passes, awake or asleep, ages it, whatever the wall clock does meanwhile."""
    clock = ManualClock()
    permit, real, wall = a_permit(clock, max_age=BOUND), 0.0, 0.0
    for what, seconds in steps:
        if what == "jumps":
            clock.jump(seconds)
        elif what == "sleeps":
            clock.suspend(abs(seconds))
        else:
            clock.advance(abs(seconds))
        real += 0.0 if what == "jumps" else abs(seconds)
        wall += seconds if what == "jumps" else abs(seconds)

    if real > BOUND + 0.001 or wall > BOUND + 0.001:
        assert not holds(permit)
    if real < BOUND - 0.001 and wall < BOUND - 0.001:
        assert holds(permit)


def test_a_suspended_machine_s_permit_is_too_old_although_its_monotonic_clock_stood_still() -> None:
    """A laptop's lid, or a virtual machine that is saved: Linux' CLOCK_MONOTONIC does not count that time."""
    clock = ManualClock()
    permit = a_permit(clock, max_age=BOUND)
    clock.suspend(90.0)

    assert clock.monotonic() == 0.0
    with pytest.raises(PermitExpiredError, match=r"its confirmation was 1m30s old.*5s are allowed"):
        permit.check()


def test_a_wall_clock_that_was_set_forward_ends_a_permit() -> None:
    """A paused virtual machine sees no time on its own clocks; then its wall clock is set right."""
    clock = ManualClock()
    permit = a_permit(clock, max_age=BOUND)
    clock.jump(90.0)

    assert not holds(permit)


def test_a_wall_clock_that_was_set_back_makes_no_permit_younger() -> None:
    """Only the larger age counts."""
    clock = ManualClock()
    permit = a_permit(clock, max_age=BOUND)
    clock.jump(-3600.0)
    clock.advance(6.0)

    assert not holds(permit)


def test_a_controller_that_lost_the_lead_has_no_permit() -> None:
    """However young it is."""
    with pytest.raises(PermitExpiredError, match="does not lead"):
        a_permit(leads=lambda: False).check()


def test_the_time_that_the_question_for_the_lead_takes_counts() -> None:
    """A database that answers late: the age is looked at after the answer."""
    clock = ManualClock()

    def slow() -> bool:
        clock.advance(6.0)
        return True

    assert not holds(a_permit(clock, leads=slow))


def test_a_permit_is_in_force_within_its_context_only() -> None:
    """Changes that are handed none check the one in force; without any, nobody asks for one."""
    clock = ManualClock()
    stale = a_permit(clock)
    clock.advance(10.0)
    check_in_force()
    with in_force(stale):
        assert permit_in_force() is stale
        with pytest.raises(CloudError):
            check_in_force()
    assert permit_in_force() is None


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()], ids=type)
def test_every_clock_s_uptime_goes_on(clock: Clock) -> None:
    """It runs as the monotonic clock does, and faster where the machine slept."""
    before = clock.uptime()
    clock.sleep(0.05)

    assert clock.uptime() - before >= 0.05
