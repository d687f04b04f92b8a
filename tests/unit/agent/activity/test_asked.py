"""agent/activity/asked.py: a server that is asked at the same hour each day is due at that hour."""

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.activity.asked import HOUR_SECONDS, MOST_HOURS, MOST_PORTS, Hours, after_asks, due_hours

DAY, FIRST = 24, 500_000  # hours; the first of them is one since 1970


def asked_on(*hours: int, port: str = "tcp 445") -> Hours:
    """What is kept of asks in these hours, one after the other."""
    known: Hours = {}
    for hour in hours:
        known = after_asks(known, hour * HOUR_SECONDS, [(port, hour)])
    return known


@given(hour=st.integers(0, 23), early=st.integers(-1, 1), since=st.integers(2, 23))
def test_what_came_at_the_same_hour_of_two_days_is_due_until_it_comes(hour: int, early: int, since: int) -> None:
    """At any time between the second visit and the third, an hour more or less."""
    before = FIRST + hour
    known = asked_on(before, before + DAY + early)
    at = (before + DAY + early + since) * HOUR_SECONDS
    assert due_hours(known, at) == {"tcp 445": (before + 2 * DAY + early) * HOUR_SECONDS}


def test_what_stays_away_is_no_longer_due() -> None:
    """Once its hour and the one after are over, it is forgotten: a server that nobody needs any more is found."""
    known = asked_on(FIRST, FIRST + DAY)
    due = (FIRST + 2 * DAY) * HOUR_SECONDS
    assert due_hours(known, due + 1.0) == {"tcp 445": due + 2 * HOUR_SECONDS}
    assert due_hours(known, due + 2 * HOUR_SECONDS) == {}


@given(hours=st.lists(st.integers(0, 2000), max_size=200))
def test_one_visit_a_day_at_changing_hours_is_due_at_none(hours: list[int]) -> None:
    """Only what has come two days in a row at the same hour is due, whatever else came."""
    known = asked_on(*sorted(FIRST + hour for hour in hours))
    at = (FIRST + max(hours, default=0)) * HOUR_SECONDS + 1.0
    for begin in due_hours(known, at).values():
        hour = int(begin // HOUR_SECONDS) - FIRST
        days = [{each - hour + DAY * ago for each in hours} & {-3, -2, -1, 0, 1, 2} for ago in (1, 2)]
        assert all(days)


@given(came=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 300)), max_size=300))
def test_what_is_kept_is_bounded(came: list[tuple[int, int]]) -> None:
    """By ports and by hours, whoever asks."""
    known: Hours = {}
    for port, hour in came:
        known = after_asks(known, (FIRST + 300) * HOUR_SECONDS, [(f"udp {port}", FIRST + hour)])
    assert len(known) <= MOST_PORTS
    assert all(0 < len(hours) <= MOST_HOURS for hours in known.values())
