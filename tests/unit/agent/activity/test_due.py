"""What used a GPU at this hour on earlier days is due: its machine is kept, until it stays away."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.activity.days import DAY_SECONDS, EMPTY, MOST_STARTERS, Due, Week

_MONDAY = 20_003 * DAY_SECONDS
HOUR, MINUTE = 3600.0, 60.0
NIGHTLY = "1001 python3 1a2b3c4d"


def began(*hours: float, key: str = NIGHTLY, week: Week = EMPTY) -> Week:
    """The week after starts at these hours since Monday."""
    for hour in hours:
        week = week.after_begins(_MONDAY + hour * HOUR, {key: _MONDAY + hour * HOUR})
    return week


def due_hours(week: Week, hour: float) -> list[float]:
    """At which hours something is due, as of an hour."""
    return [(each.at - _MONDAY) / HOUR for each in week.due(_MONDAY + hour * HOUR)]


@pytest.mark.parametrize(
    ("who", "starts", "now", "expected"),
    [
        ("a nightly training by another machine's scheduler", (2, 26, 50), 60, [74]),
        ("the same after two nights: nobody knows", (2, 26), 40, []),
        ("it is a few minutes late each night", (2, 26.1, 50.2), 60, [74.2]),
        ("it is late by an hour: it may still come", (2, 26, 50), 74.9, [74]),
        ("it has stayed away", (2, 26, 50), 75.1, []),
        ("it has come, and is due again", (2, 26, 50, 74), 75, [98]),
        ("a weekly job, twice on a Monday", (9, 9 + 168), 200, [9 + 336]),
        ("a weekly job, once", (9,), 100, []),
        ("somebody who begins when they come: 8:10, 9:40, 9:05", (8.2, 33.7, 57.1), 60, []),
        ("each weekday, asked at the weekend", (2, 26, 50, 74, 98), 125, []),
        ("each weekday, in the third week", (2, 26, 50, 74, 98, 170, 194, 218, 242, 266), 300, [338]),
        ("nobody: each night for ten nights, and no more", tuple(2 + 24 * night for night in range(10)), 260, []),
        ("two programs, one of which keeps time", (2, 3, 26, 50), 60, [74]),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_is_due(who: str, starts: tuple[float, ...], now: float, expected: list[float]) -> None:
    """Three days in a row, or a weekday in two weeks."""
    assert due_hours(began(*starts), now) == pytest.approx(expected), who


def test_a_due_program_says_how_often_it_came() -> None:
    """For people."""
    assert began(2, 26, 50).due(_MONDAY + 60 * HOUR) == (
        Due(key=NIGHTLY, at=_MONDAY + 74 * HOUR, period_seconds=DAY_SECONDS, starts=3),
    )


def test_the_ranks_of_one_job_are_one_start() -> None:
    """Eight processes with the same words within a few minutes."""
    week = began(2, 2.01, 2.02, 2.1)
    assert week.begins == {NIGHTLY: (_MONDAY + 2 * HOUR,)}


starts = st.lists(
    st.tuples(st.floats(0, 60 * 24), st.sampled_from([f"{uid} python3" for uid in range(90)])), max_size=60
)


@given(starts, st.floats(0, 60 * 24))
def test_what_is_due_is_bounded_and_never_long_past(lived: list[tuple[float, str]], now: float) -> None:
    """By any clock: so many programs, each with so many starts, due for an hour at most after their time."""
    week = EMPTY
    for hour, key in lived:
        week = began(hour, key=key, week=week)
    assert len(week.begins) <= MOST_STARTERS
    assert all(len(each) <= 16 for each in week.begins.values())
    for each in week.due(_MONDAY + now * HOUR):
        assert each.at >= _MONDAY + (now - 1.01) * HOUR
        assert each.starts >= 2


@given(st.floats(0, 23), st.integers(3, 10), st.floats(0.0, 0.2))
def test_whoever_comes_each_night_is_due_the_next(hour: float, nights: int, jitter: float) -> None:
    """Within minutes of its time; and no more once a night has passed without it."""
    week = began(*(hour + 24 * night + jitter * (night % 2) for night in range(nights)))
    following = hour + 24 * nights
    assert due_hours(week, following - 5) == pytest.approx([following], abs=0.21)
    assert due_hours(week, following + 1.5) == []
