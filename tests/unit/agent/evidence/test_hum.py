"""agent/evidence/rate.py: what a server moves by itself is even, and its use stands out."""

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.evidence.rate import Hum


def played(minutes: list[int], *, seconds: float = 60.0) -> list[bool]:
    """What is said after each minute."""
    hum = Hum()
    hum.stands_out(0, 0.0)
    return [hum.stands_out(moved, seconds * number) for number, moved in enumerate(minutes, 1)]


@given(each=st.integers(0, 10**6), jitter=st.lists(st.floats(0.6, 1.4), min_size=1, max_size=90))
def test_what_is_even_never_stands_out(each: int, jitter: list[float]) -> None:
    """Keep-alives and probes differ a little from minute to minute."""
    assert not any(played([round(each * part) for part in jitter]))


@given(hum=st.integers(0, 5000), asked=st.integers(1000, 10**6), before=st.integers(5, 80))
def test_use_stands_out_once(hum: int, asked: int, before: int) -> None:
    """A minute with a kilobyte more than three times the usual one, and not the minutes after it."""
    found = played([hum] * before + [3 * hum + asked] + [hum] * 3)
    assert found == [False] * before + [True] + [False] * 3


def test_nothing_stands_out_before_five_minutes_are_known() -> None:
    """An agent that has just started does not know what is usual."""
    assert played([0, 0, 0, 0, 50_000]) == [False] * 5


def test_less_than_a_kilobyte_is_nothing() -> None:
    """A lone keep-alive after an hour of silence is no use."""
    assert not any(played([0] * 70 + [900]))


def test_long_looks_count_by_the_minute() -> None:
    """A look that came late has the traffic of several minutes."""
    assert not any(played([1200] * 10, seconds=120.0))
