"""runtime/backoff.py: whatever fails is tried again, later each time."""

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.duration import backoff_seconds
from gpuwatch.runtime.backoff import Backoff
from gpuwatch.runtime.clock import ManualClock


@given(failures=st.integers(0, 10**9), first=st.floats(0.001, 1e6), factor=st.floats(1, 1e6))
def test_a_wait_is_never_shorter_than_the_first_nor_longer_than_the_longest(
    failures: int, first: float, factor: float
) -> None:
    """Each wait is at least the one before it, after however many failures."""
    longest = first * factor
    wait = backoff_seconds(failures, first=first, longest=longest)

    assert first <= wait <= longest
    assert wait <= backoff_seconds(failures + 1, first=first, longest=longest)


def test_each_failure_doubles_the_wait_until_something_worked() -> None:
    """Each thing has its own wait; a success starts it again from the first one."""
    clock = ManualClock()
    patience: Backoff[str] = Backoff(clock=clock, first_seconds=1.0, longest_seconds=3.0)

    assert [patience.note_failure("a") for _ in range(3)] == [1.0, 2.0, 3.0]
    assert patience.is_over("b")
    assert not patience.is_over("a")
    clock.advance(3.0)
    assert patience.is_over("a")
    patience.note_success("a")
    assert patience.note_failure("a") == 1.0


def test_the_next_to_be_tried_comes_first() -> None:
    """What failed most often waits longest; what works again is not listed."""
    patience: Backoff[str] = Backoff(clock=ManualClock(), first_seconds=1.0, longest_seconds=60.0)
    for what in ("a", "a", "b", "c"):
        patience.note_failure(what)
    patience.note_success("c")

    assert list(patience) == ["b", "a"]


def test_what_may_be_tried_at_once_still_has_failed() -> None:
    """Its wait is over, and the next failure counts as one more; what never failed is not listed by that."""
    patience: Backoff[str] = Backoff(clock=ManualClock(), first_seconds=1.0, longest_seconds=60.0)
    patience.note_failure("a")
    patience.at_once("a")
    patience.at_once("b")

    assert list(patience) == ["a"]
    assert patience.is_over("a")
    assert patience.note_failure("a") == 2.0
