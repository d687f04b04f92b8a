"""Our own limits on how often a cloud is asked, on a clock that moves only when told."""

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds.rate_limit import RateLimiter
from gpuwatch.runtime.clock import ManualClock


def test_a_burst_passes_at_once_and_the_rest_at_the_pace() -> None:
    """The first calls cost no time; then each waits for its turn."""
    clock = ManualClock()
    pace = RateLimiter(clock, per_second=2, burst=3)

    at = []
    for _ in range(6):
        pace.wait()
        at.append(clock.monotonic())

    assert at == [0, 0, 0, 0.5, 1.0, 1.5]


def test_a_clock_that_begins_anew_makes_nobody_wait() -> None:
    """The demo's clock goes back to zero after its machines were made: what was taken before is no debt."""
    clock = ManualClock()
    clock.advance(3600)
    pace = RateLimiter(clock, per_second=2, burst=3)
    clock.elapsed_seconds = 0.0

    pace.wait()

    assert clock.monotonic() == 0.0


def test_a_quiet_time_fills_the_bucket_and_no_further() -> None:
    """After a long pause there is one burst, not several."""
    clock = ManualClock()
    pace = RateLimiter(clock, per_second=2, burst=3)
    for _ in range(3):
        pace.wait()
    clock.advance(3600)

    for _ in range(4):
        pace.wait()

    assert clock.monotonic() == 3600.5


def test_a_refusal_halves_the_pace_and_empties_the_bucket() -> None:
    """The next call waits although there were calls left, and twice as long as before."""
    clock = ManualClock()
    pace = RateLimiter(clock, per_second=2, burst=10)

    pace.slow_down()
    pace.wait()

    assert clock.monotonic() == 1.0


def test_many_refusals_slow_down_to_a_crawl_and_no_further() -> None:
    """However often the cloud refuses, there is still a call every few seconds."""
    pace = RateLimiter(ManualClock(), per_second=2, burst=10)

    for _ in range(20):
        pace.slow_down()

    assert pace.per_second == 2 / 16


def test_the_pace_comes_back_in_a_minute() -> None:
    """Half of it after half a minute from a halving, and never more than all of it."""
    clock = ManualClock()
    pace = RateLimiter(clock, per_second=2, burst=10)
    pace.slow_down()

    seen = []
    for _ in range(3):
        clock.advance(15)
        seen.append(pace.per_second)

    assert seen == [1.5, 2.0, 2.0]


def test_a_jump_of_the_wall_clock_changes_nothing() -> None:
    """The bucket fills on the clock that never jumps."""
    clock = ManualClock()
    pace = RateLimiter(clock, per_second=2, burst=1)
    pace.wait()
    clock.jump(86_400)

    pace.wait()

    assert clock.monotonic() == 0.5


@given(pauses=st.lists(st.floats(0, 30), max_size=60), refused=st.sets(st.integers(0, 59)))
def test_no_stretch_of_time_has_more_than_a_burst_and_its_share(pauses: list[float], refused: set[int]) -> None:
    """Whatever the callers do and the cloud refuses: between any two calls no more than burst + pace x time."""
    clock = ManualClock()
    pace = RateLimiter(clock, per_second=2, burst=5)
    at = []
    for number, seconds in enumerate(pauses):
        clock.advance(seconds)
        if number in refused:
            pace.slow_down()
        pace.wait()
        at.append(clock.monotonic())

    for first, begin in enumerate(at):
        for last in range(first, len(at)):
            assert last - first + 1 <= 5 + 2 * (at[last] - begin) + 1e-6
