"""Schedule windows: when one is in force, and which bounds follow."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuwatch.model.decision import Proposal
from gpuwatch.policies import schedule
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import a_node, an_observation
from tests.support.nightly import examples

BERLIN = "Europe/Berlin"
OFFICE = Window(days=("mon-fri",), hours="08:00-18:00", zone=BERLIN, min_nodes=4)


def there(text: str, zone: str = BERLIN, fold: int = 0) -> datetime:
    """The instant at which a wall clock shows this."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC)


def forced(window: Window, now: datetime) -> bool:
    """Whether the window is in force."""
    return schedule.in_force({"w": window}, now) == (window,)


def proposed(now: datetime, **windows: Window) -> Proposal:
    """What the policy says of a pool with two running nodes."""
    return schedule.propose(an_observation(a_node("i-1"), a_node("i-2"), now=now), "default", windows)


@pytest.mark.parametrize(
    ("when", "inside"),
    [
        ("2026-03-02T07:59:59", False),
        ("2026-03-02T08:00", True),
        ("2026-03-02T17:59:59.999999", True),
        ("2026-03-02T18:00", False),
        ("2026-03-06T12:00", True),
        ("2026-03-07T12:00", False),
        ("2026-03-08T12:00", False),
    ],
)
def test_office_hours_begin_with_their_first_second_and_end_before_their_last(when: str, inside: bool) -> None:
    """Monday to Friday, 08:00 to 18:00, in Berlin."""
    assert forced(OFFICE, there(when)) is inside


def test_hours_are_the_local_ones_in_summer_and_in_winter() -> None:
    """08:00 in Berlin is 07:00 UTC in March and 06:00 UTC in July."""
    assert forced(OFFICE, datetime(2026, 3, 2, 7, 0, tzinfo=UTC))
    assert not forced(OFFICE, datetime(2026, 3, 2, 6, 59, tzinfo=UTC))
    assert forced(OFFICE, datetime(2026, 7, 6, 6, 0, tzinfo=UTC))


def test_hours_across_midnight_belong_to_the_day_they_begin_on() -> None:
    """Friday 22:00-06:00 runs into Saturday morning, and Friday morning is not Friday's."""
    night = Window(days=("fri",), hours="22:00-06:00", zone=BERLIN, max_nodes=1)

    assert [forced(night, there(f"2026-03-{day}")) for day in ("06T03:00", "06T22:00", "07T05:59", "07T06:00")] == [
        False,
        True,
        True,
        False,
    ]
    assert not forced(night, there("2026-03-07T23:00"))


@pytest.mark.parametrize("hours", ["00:00-24:00", "18:00-24:00"])
def test_a_day_may_end_at_24_00(hours: str) -> None:
    """24:00 is the end of the same day."""
    window = Window(days=("mon",), hours=hours, min_nodes=1)

    assert forced(window, datetime(2026, 3, 2, 23, 59, 59, tzinfo=UTC))
    assert not forced(window, datetime(2026, 3, 3, 0, 0, tzinfo=UTC))


@pytest.mark.parametrize(
    ("days", "begun"),
    [(("mon-sun",), "1111111"), (("sat", "SUN"), "0000011"), (("fri-mon",), "1000111"), (("wed-wed",), "0010000")],
)
def test_days_are_names_and_ranges_that_may_pass_the_weekend(days: tuple[str, ...], begun: str) -> None:
    """`fri-mon` is Friday, Saturday, Sunday and Monday; capitals do not matter."""
    monday = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
    window = Window(days=days, min_nodes=1)

    assert "".join(str(int(forced(window, monday + timedelta(days=day)))) for day in range(7)) == begun


def test_no_window_begins_on_its_exceptions() -> None:
    """Dates, ranges with both ends, and the dates of a calendar of the configuration."""
    window = Window(zone=BERLIN, except_on=("2026-05-01", "2026-12-24/2027-01-01", "company"), min_nodes=1)
    (dated,) = schedule.with_dates({"w": window}, {"company": ["2026-07-03", "2026-08-01/2026-08-02"]}).values()
    free = ["2026-05-01", "2026-12-24", "2027-01-01", "2026-07-03", "2026-08-02"]
    work = ["2026-05-02", "2026-12-23", "2027-01-02", "2026-07-04", "2026-08-03"]

    assert [forced(dated, there(f"{day}T12:00")) for day in free + work] == [False] * 5 + [True] * 5


def test_an_exception_takes_the_whole_night_that_begins_on_it() -> None:
    """New Year's Eve is an exception: its night is off until 06:00, the night before is on until 06:00."""
    night = Window(hours="22:00-06:00", zone=BERLIN, except_on=("2026-12-31",), min_nodes=1)

    assert forced(night, there("2026-12-31T05:00"))
    assert not forced(night, there("2027-01-01T05:00"))
    assert forced(night, there("2027-01-01T22:00"))


def test_first_and_last_day_are_both_days_of_the_window() -> None:
    """A sprint of three days."""
    window = Window(first_day="2026-06-01", last_day="2026-06-03", min_nodes=1)

    assert [forced(window, datetime(2026, 5, 31, 12, 0, tzinfo=UTC) + timedelta(days=day)) for day in range(5)] == [
        False,
        True,
        True,
        True,
        False,
    ]


# Clocks that are put forward and back


def covered(window: Window, day: date, step: timedelta = timedelta(minutes=5)) -> timedelta:
    """How long a window is in force from noon before that date to noon after it, in its zone."""
    zone = ZoneInfo(window.zone)
    noon = datetime.combine(day, datetime.min.time(), zone)
    now, end = ((noon + timedelta(hours=hours)).astimezone(UTC) for hours in (-12, 36))
    total = timedelta()
    while now < end:
        total += step * forced(window, now)
        now += step
    return total


@pytest.mark.parametrize(
    ("zone", "day", "hours", "minutes"),
    [
        (BERLIN, "2026-03-29", "02:00-03:00", 0),  # the hour does not exist
        (BERLIN, "2026-03-29", "02:30-03:30", 30),  # it begins when the clock shows 03:00
        (BERLIN, "2026-03-29", "00:00-24:00", 23 * 60),
        (BERLIN, "2026-10-25", "02:00-03:00", 120),  # the hour is shown twice
        (BERLIN, "2026-10-25", "01:00-02:30", 150),  # 01:00 to the second 02:30
        (BERLIN, "2026-10-25", "02:30-06:00", 270),  # from the first 02:30
        (BERLIN, "2026-10-25", "02:10-02:20", 70),
        (BERLIN, "2026-10-25", "03:00-06:00", 180),
        (BERLIN, "2026-10-25", "00:00-02:00", 120),
        (BERLIN, "2026-10-25", "00:00-24:00", 25 * 60),
        ("Australia/Lord_Howe", "2026-10-04", "02:00-02:30", 0),  # half an hour is skipped
        ("Australia/Lord_Howe", "2026-10-04", "00:00-24:00", 23 * 60 + 30),
        ("Australia/Lord_Howe", "2026-04-05", "01:30-02:00", 60),  # half an hour is shown twice
        ("Australia/Lord_Howe", "2026-04-05", "00:00-24:00", 24 * 60 + 30),
        ("Asia/Kolkata", "2026-03-29", "00:00-24:00", 24 * 60),  # never changes
        ("UTC", "2026-10-25", "02:00-03:00", 60),
        ("Pacific/Apia", "2011-12-30", "00:00-24:00", 0),  # the day does not exist
    ],
)
def test_a_skipped_hour_is_not_there_and_a_repeated_one_is_as_long_as_it_lasts(
    zone: str, day: str, hours: str, minutes: int
) -> None:
    """Both transitions, half hours, and zones without."""
    window = Window(hours=hours, zone=zone, first_day=day, last_day=day, min_nodes=1)

    assert covered(window, date.fromisoformat(day)) == timedelta(minutes=minutes)


@settings(max_examples=examples(40), deadline=None)
@given(
    zone=st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "America/Santiago", "UTC"]),
    start=st.integers(0, 24 * 12 - 1),
    length=st.integers(1, 23 * 12),
    day=st.sampled_from(["2026-03-08", "2026-03-29", "2026-04-05", "2026-10-04", "2026-10-25", "2026-11-01"]),
)
@example(zone=BERLIN, start=6 * 12, length=20 * 12 + 6, day="2026-10-24")
@example(zone=BERLIN, start=2 * 12 + 6, length=42, day="2026-10-25")
def test_a_window_begins_once_and_ends_once(zone: str, start: int, length: int, day: str) -> None:
    """Also where the clock shows its begin or its end twice: whoever started a machine after it is left alone."""
    texts = [f"{each // 12 % 24:02d}:{each % 12 * 5:02d}" for each in (start, start + length)]
    window = Window(hours="-".join(texts), zone=zone, first_day=day, last_day=day, min_nodes=1)
    begin = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) - timedelta(hours=3)
    held = [forced(window, begin + timedelta(minutes=5 * number)) for number in range(54 * 12)]

    assert sum(one != other for one, other in pairwise(held)) <= 2
    assert not held[0]
    assert not held[-1]


def test_a_night_over_the_change_is_an_hour_shorter_or_longer() -> None:
    """22:00-06:00 lasts seven hours in spring and nine in autumn."""
    spring, autumn = (
        Window(hours="22:00-06:00", zone=BERLIN, first_day=day, last_day=day, min_nodes=1)
        for day in ("2026-03-28", "2026-10-24")
    )

    assert covered(spring, date(2026, 3, 28)) == timedelta(hours=7)
    assert covered(autumn, date(2026, 10, 24)) == timedelta(hours=9)


def transitions(zone: ZoneInfo, year: int) -> list[tuple[datetime, timedelta]]:
    """When a zone's clock is changed in a year: what it shows just before, as a naive time, and by how much."""
    found = []
    now = datetime(year, 1, 1, tzinfo=UTC) - timedelta(days=2)
    while now < datetime(year + 1, 1, 3, tzinfo=UTC):
        after = now + timedelta(minutes=30)
        before, later = now.astimezone(zone).replace(tzinfo=None), after.astimezone(zone).replace(tzinfo=None)
        if later - before != timedelta(minutes=30):
            found.append((before + timedelta(minutes=30), later - before - timedelta(minutes=30)))
        now = after
    return found


def overlap(one: tuple[datetime, datetime], other: tuple[datetime, datetime]) -> timedelta:
    """How long two stretches of wall-clock time have in common."""
    return max(timedelta(), min(one[1], other[1]) - max(one[0], other[0]))


@settings(max_examples=examples(12), deadline=None)
@given(
    zone=st.sampled_from(
        [BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Santiago", "UTC"]
    ),
    days=st.lists(st.sampled_from(["mon", "tue-thu", "fri-mon", "sat", "sun"]), min_size=1, max_size=2),
    start=st.integers(0, 47),
    length=st.integers(1, 47),
)
def test_a_years_coverage_is_the_sum_of_its_local_spans(zone: str, days: list[str], start: int, length: int) -> None:
    """Over a year a window is in force for its spans, less what the clock skips, and more by what it repeats."""
    year, half = 2026, timedelta(minutes=30)
    ends = (start + length) % 48
    texts = [f"{minutes // 2:02d}:{minutes % 2 * 30:02d}" for minutes in (start, ends)]
    window = Window(days=tuple(days), hours="-".join(texts), zone=zone, min_nodes=1)
    changes = transitions(ZoneInfo(zone), year)

    expected = timedelta()
    whole = datetime(year, 1, 1), datetime(year + 1, 1, 1)  # noqa: DTZ001  wall-clock time has no zone
    for number in range(-1, 366):
        day = whole[0] + timedelta(days=number)
        if day.strftime("%a").lower() in {name for each in days for name in schedule._weekdays(each)}:
            begin = max(whole[0], day + start * half)
            span = begin, max(begin, min(whole[1], day + (start + length) * half))
            expected += overlap(span, span)
            for shown, jump in changes:  # put forward: skipped after `shown`; put back: repeated before it
                expected -= overlap(span, (shown, shown + jump))
                expected -= jump if overlap(span, (shown + jump, shown)) else timedelta()

    found, now = timedelta(), whole[0].replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    while now < whole[1].replace(tzinfo=ZoneInfo(zone)).astimezone(UTC):
        found += half * forced(window, now)
        now += half
    assert found == expected


# Bounds


def test_a_window_in_force_raises_the_floor_and_adds_nodes() -> None:
    """The proposal says which window, where, and what time it is there."""
    proposal = proposed(there("2026-03-02T09:15"), office=OFFICE)

    assert (proposal.min_nodes, proposal.max_nodes, proposal.desired_nodes, proposal.grows) == (4, None, None, True)
    assert proposal.reason.sentence == (
        "office (mon-fri 08:00-18:00 Europe/Berlin, there it is mon 09:15): at least 4 nodes."
    )


def test_outside_of_all_windows_the_policy_has_no_say() -> None:
    """It says so aloud."""
    proposal = proposed(there("2026-03-07T09:15"), office=OFFICE)

    assert (proposal.min_nodes, proposal.max_nodes, proposal.grows) == (None, None, False)
    assert proposal.reason.sentence == "None of 1 windows is in force."


def test_of_overlapping_windows_the_largest_floor_and_the_smallest_ceiling_hold() -> None:
    """Whatever their order."""
    windows = {
        "a": Window(min_nodes=1, max_nodes=9),
        "b": Window(min_nodes=3),
        "c": Window(max_nodes=5),
        "d": Window(idle_timeout=60.0),
    }
    now = there("2026-03-02T12:00")
    one, other = proposed(now, **windows), proposed(now, **dict(reversed(windows.items())))

    assert (one.min_nodes, one.max_nodes) == (other.min_nodes, other.max_nodes) == (3, 5)


def test_a_floor_above_another_windows_ceiling_wins_and_says_so() -> None:
    """People who said that four are needed are not left with two."""
    proposal = proposed(there("2026-03-02T12:00"), office=OFFICE, thrift=Window(max_nodes=2))

    assert (proposal.min_nodes, proposal.max_nodes) == (4, 4)
    assert "a floor of 4 is above a ceiling of 2: the floor wins" in proposal.reason.sentence


def test_a_ceiling_names_no_node_and_no_number_to_come_down_to() -> None:
    """It keeps nodes from being added; nothing is removed because of the time of day."""
    proposal = proposed(there("2026-03-02T12:00"), night=Window(max_nodes=0))

    assert (proposal.max_nodes, proposal.steps, proposal.desired_nodes, proposal.grows) == (0, (), None, False)


def test_the_idle_policy_finds_its_shorter_wait() -> None:
    """`in_force` gives the windows themselves."""
    evening = Window(hours="18:00-24:00", zone=BERLIN, idle_timeout=300.0)

    assert [each.idle_timeout for each in schedule.in_force({"e": evening}, there("2026-03-02T19:00"))] == [300.0]
    assert schedule.in_force({"e": evening}, there("2026-03-02T17:00")) == ()
