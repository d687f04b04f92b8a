"""Waste in the first weeks of metering against the last ones: per pool and owner, with what changed between."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.decision import Verb
from gpuwatch.model.usage import USES
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.totals import Row
from gpuwatch.money.report.blocks import Table, Words
from gpuwatch.money.report.money_sections import since_we_began
from gpuwatch.money.report.progress import Event, Progress, compare_ends, ends_of, progress, progress_document
from tests.support.builders.money import a_billed_row

BEGAN = datetime(2026, 1, 5, tzinfo=UTC)  # a Monday
UTC_DAYS = Calendar(ZoneInfo("UTC"))


def a_day(day: int, useful: float, idle: float, pool: str = "training", owner: str | None = "ann") -> Row:
    """So many hours of one machine with one GPU, on that day since metering began."""
    begin = int((BEGAN + timedelta(days=day)).timestamp())
    return replace(a_billed_row(useful, idle, pool=pool, owner=owner), begin=begin)


def twelve_weeks() -> Iterator[Row]:
    """At first 15 useful and 9 idle hours a day, and 15 and 2 from the ninth week on; bob's machine is always idle."""
    for day in range(84):
        yield a_day(day, 15, 9 if day < 56 else 2)
        yield a_day(day, 0, 1, pool="dev", owner="bob")


def found(rows: list[Row], days: int = 84, *events: Event) -> Progress:
    """After so many days."""
    made = progress(rows, BEGAN, date(2026, 1, 5) + timedelta(days=days), UTC_DAYS, events)
    assert made is not None
    return made


def test_four_weeks_at_each_end_are_compared_in_hours_and_money() -> None:
    """Hand arithmetic: 70 of 175 hours a week were wasted, 21 of 126 are."""
    result = found(list(twelve_weeks()))

    assert (result.count, result.first, result.last) == (4, date(2026, 1, 5), date(2026, 3, 2))
    assert (result.hours(result.pair.first), result.hours(result.pair.last)) == (70.0, 21.0)
    assert (result.pair.first.usd_wasted, result.pair.last.usd_wasted) == (Fraction(2800), Fraction(840))
    assert result.pair.first.usd_waste_ratio == 0.4
    assert result.pair.avoided == 1960  # as much useful work as before: all of the difference
    assert result.avoided_a_year == Fraction(1960, 4) * Fraction(36525, 700)


def test_less_useful_work_is_not_counted_as_avoided_waste() -> None:
    """Half of the work with half of the waste avoids nothing."""
    rows = [a_day(day, 16 if day < 28 else 8, 8 if day < 28 else 4) for day in range(56)]

    assert found(rows, 56).pair.avoided == 0


def test_pools_and_owners_have_their_own_lines_the_most_wasteful_at_first_before_the_others() -> None:
    """Each adds up to the whole."""
    result = found(list(twelve_weeks()))

    assert list(result.by["owner"]) == ["ann", "bob"]
    assert result.by["pool"]["dev"].last.usd_wasted == 280
    assert result.by["pool"]["dev"].avoided is None  # there was no useful time
    for pairs in result.by.values():
        assert sum(pair.first.usd_wasted for pair in pairs.values()) == result.pair.first.usd_wasted


def test_with_less_than_two_weeks_nothing_is_said() -> None:
    """Days are whole ones: the one in which metering began does not count."""
    rows = [a_day(day, 1, 1) for day in range(20)]
    noon = BEGAN + timedelta(hours=12)

    assert progress(rows, BEGAN, date(2026, 1, 18), UTC_DAYS) is None
    assert progress(rows, noon, date(2026, 1, 19), UTC_DAYS) is None
    assert found(rows, 14).count == 1


def test_what_changed_stands_at_its_week_with_stops_and_starts() -> None:
    """The curve has every whole week, the newest last."""
    at = BEGAN + timedelta(days=58)
    events = [
        Event(at=at, what="mode: enforce"),
        *(Event(at=at + timedelta(days=day), verb=Verb.STOP) for day in range(3)),
        Event(at=at + timedelta(days=1), verb=Verb.START),
    ]
    result = found(list(twelve_weeks()), 84, *events)
    week = result.weeks[8]
    tables = [part for part in since_we_began(result) if isinstance(part, Table)]

    assert len(result.weeks) == 12
    assert (week.first, week.stops, week.starts, week.changes) == (date(2026, 3, 2), 3, 1, ("mode: enforce",))
    assert tables[-1].rows == (("2026-03-02", "mode: enforce; 3 stops; 1 start"),)


def test_the_sentences_name_both_stretches_and_a_year() -> None:
    """The figure that a manager asks for: from 40 % to 16.7 %, and what that is worth."""
    words = next(part for part in since_we_began(found(list(twelve_weeks()))) if isinstance(part, Words))

    then = (
        "The first 4 weeks of metering (2026-01-05 to 2026-02-01) wasted $700.00 and 70.0 GPU-hours a week (40.0% of "
    )
    now = "the cost); the last 4 weeks (2026-03-02 to 2026-03-29) $210.00 and 21.0 GPU-hours (16.7% of the cost)."
    year = "For the same useful work that is $490.00 a week less than at first, about $25,567.50 a year at this pace "
    doubt = "(an estimate: other work may waste more or less by itself)."
    assert words.sentences == (then + now, year + doubt)


def test_json_has_the_same_in_dollars() -> None:
    """With the curve, a row a week."""
    document = progress_document(found(list(twelve_weeks())))

    assert (document.first.usd_wasted, document.last.usd_wasted) == (Decimal("2800.00"), Decimal("840.00"))
    assert (document.usd_avoided, document.usd_avoided_a_year) == (Decimal("1960.00"), Decimal("25567.50"))
    assert [row.name for row in document.by["pool"]] == ["training", "dev"]
    assert len(document.curve) == 12


@given(days=st.integers(0, 200), hours=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=40))
def test_the_two_ends_never_overlap_and_the_curve_holds_no_day_twice(days: int, hours: list[tuple[int, int]]) -> None:
    """Whatever is on record."""
    rows = [a_day(day, useful, idle) for day, (useful, idle) in enumerate(hours)]
    made = progress(rows, BEGAN, date(2026, 1, 5) + timedelta(days=days), UTC_DAYS)

    if made is None:
        assert days < 14
        return
    assert made.first + timedelta(weeks=made.count) <= made.last
    assert sum(week.total.node_ms for week in made.weeks) <= sum(sum(row.amounts[: len(USES)]) for row in rows)


@given(
    days=st.integers(14, 120),
    work=st.lists(
        st.tuples(st.integers(0, 119), st.integers(0, 12), st.integers(0, 12), st.sampled_from("ab"), st.booleans()),
        max_size=40,
    ),
)
def test_the_ends_alone_give_the_same_figures_as_all_rows(
    days: int, work: list[tuple[int, int, int, str, bool]]
) -> None:
    """By pool and owner they add up to each pool's line of the whole comparison, exactly."""
    rows = [
        a_day(day, useful, idle, pool=pool, owner="ann" if owned else None) for day, useful, idle, pool, owned in work
    ]
    end = date(2026, 1, 5) + timedelta(days=days)
    whole, ends = progress(rows, BEGAN, end, UTC_DAYS), ends_of(BEGAN, end, UTC_DAYS)
    assert whole is not None
    assert ends is not None
    at = {id(row): UTC_DAYS.local((row.begin or 0) * 1000).date() for row in rows}
    early, late = (
        [row for row in rows if first <= at[id(row)] < first + ends.length] for first in (ends.first, ends.last)
    )
    pairs = compare_ends(ends, early, late).pairs

    assert (ends.count, ends.first, ends.last) == (whole.count, whole.first, whole.last)
    for pool, pair in whole.by["pool"].items():
        parts = [each for (name, _), each in pairs.items() if name == pool]
        assert sum(each.first.usd_wasted for each in parts) == pair.first.usd_wasted
        assert sum(each.last.gpu_ms for each in parts) == pair.last.gpu_ms
