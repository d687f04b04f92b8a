"""What a fleet will cost, from the machines that exist and how long such machines usually run."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.money.accounting.totals import Billed
from gpuwatch.money.forecast.machines import DAY, Coming, FleetDays, coming, expected_machines, fleet_change, fleet_days
from tests.support.builders.money import a_billed_row
from tests.support.nightly import examples

EDGE = datetime(2026, 11, 19, tzinfo=UTC)
USD = 10.0
KIND = ("default", "", "us-east-1", "p5.48xlarge", "on_demand")


def a_fleet(*days: float | None, edge: datetime = EDGE) -> FleetDays:
    """So many machines at $10 an hour on each day up to then."""
    return FleetDays(edge=int(edge.timestamp()), machines={KIND: days}, usd_per_hour={KIND: USD})


def stepped(before: float, after: float, days_ago: float, days: int = 60) -> tuple[float, ...]:
    """A fleet that had so many machines, and since so many days ago another number."""
    parts = [min(1.0, max(0.0, days_ago - back)) for back in range(days - 1, -1, -1)]
    return tuple(before * (1 - part) + after * part for part in parts)


def expected(fleet: FleetDays, days: float) -> Coming:
    """What comes in so many days."""
    return coming(fleet, days * DAY)


@pytest.mark.parametrize("days_ago", [3, 3.4, 5, 6.9, 10])
@pytest.mark.parametrize(("before", "after"), [(10, 20), (20, 10), (10, 2), (4, 10), (10, 12), (10, 0), (0, 3)])
def test_three_days_after_any_lasting_change_the_forecast_is_the_new_fleet(
    before: float, after: float, days_ago: float
) -> None:
    """Whatever ran before: what is spent and what comes are within 3 % of the truth, and the interval holds it."""
    days = stepped(before, after, days_ago)
    spent, found = 24 * USD * sum(days[-18:]), expected(a_fleet(*days), 12)
    truth = spent + 24 * USD * after * 12

    assert spent + found.usd == pytest.approx(truth, rel=0.03, abs=1e-6)
    assert found.radius is not None
    assert abs(spent + found.usd - truth) <= found.radius


@pytest.mark.parametrize(("before", "after"), [(10, 20), (20, 10), (10, 2), (4, 10)])
def test_noise_hides_no_lasting_change(before: float, after: float) -> None:
    """With 5 % of noise the mean error three days later is below 3 %."""
    errors = []
    for seed in range(20):
        draw = random.Random(seed)
        days = tuple(count * draw.gauss(1, 0.05) for count in (*[before] * 57, *[after] * 3))
        spent = 24 * USD * sum(days[-18:])
        truth = spent + 24 * USD * after * 12
        errors.append(abs(spent + expected(a_fleet(*days), 12).usd - truth) / truth)

    assert sum(errors) / len(errors) < 0.03


@given(
    st.lists(st.integers(0, 30), min_size=8, max_size=60),
    st.integers(0, 30),
    st.floats(0.1, 31),
)
@settings(deadline=None, max_examples=examples(40))
def test_no_interval_is_narrower_than_one_machine(days: list[int], last: int, ahead: float) -> None:
    """Even a fleet that never changed may gain or lose a machine today; and nothing is forecast below zero."""
    found = expected(a_fleet(*map(float, [*days, last])), ahead)

    assert found.usd >= 0
    assert found.radius is not None
    assert found.radius >= 24 * USD * ahead - 1e-6


@given(st.lists(st.floats(0, 50), min_size=1, max_size=60), st.floats(0.5, 100))
@settings(deadline=None, max_examples=examples(40))
def test_twice_the_fleet_costs_twice_as_much(days: list[float], times: float) -> None:
    """Prices and the dollars expected are proportional, and what never ran is not expected."""
    once = expected(a_fleet(*days), 10)
    dearer = replace(a_fleet(*days), usd_per_hour={KIND: USD * times})

    assert expected(dearer, 10).usd == pytest.approx(once.usd * times)
    assert expected(a_fleet(*[0.0] * len(days)), 10).usd == 0


def test_machines_that_rest_at_weekends_are_forecast_by_the_weekday() -> None:
    """Eight machines from Monday to Friday: on Friday evening two days of nothing come, on Sunday a week of work."""
    week = [8.0] * 5 + [0.0] * 2
    friday, sunday = [*week * 8][:-2], [*week * 8]

    assert sum(expected_machines(friday, 10)) == pytest.approx(8 * (5 + 1), rel=0.03)
    assert sum(expected_machines(sunday, 8)) == pytest.approx(8 * 6, rel=0.03)


def test_a_machine_that_runs_part_of_the_time_is_expected_for_that_part() -> None:
    """60 % of the hours, and twelve hours of each night."""
    assert sum(expected_machines([0.6] * 20, 10)) == pytest.approx(6)
    assert sum(expected_machines([3.0] * 40, 15)) == pytest.approx(45)


def test_a_pool_that_comes_and_goes_is_forecast_by_its_habit_and_a_burst_is_no_step() -> None:
    """Runs of two days in seven go on so; that it runs today, as it often did, says little of the month."""
    days = [4.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0] * 8
    draw = random.Random(1)
    bursts = [draw.choice([0.0, 0.0, 0.0, 6.0]) for _ in range(59)] + [6.0]

    assert sum(expected_machines(days, 14)) == pytest.approx(16, rel=0.1)
    assert sum(expected_machines(bursts, 20)) < 0.5 * 6 * 20


def test_what_is_dark_as_a_whole_may_be_in_maintenance_for_three_days() -> None:
    """Thirty machines off for a day and a half are expected back, and the interval holds that they are not."""
    found = expected(a_fleet(*stepped(30, 0, 1.5)), 19)

    assert found.usd == pytest.approx(24 * USD * 30 * 19, rel=0.05)
    assert found.radius is not None
    assert found.radius >= found.usd
    assert expected(a_fleet(*stepped(30, 0, 3)), 19).usd == 0


def test_work_at_each_months_end_is_expected_at_the_next_one() -> None:
    """200 machine-days in the last five days of three months come in the fourth, too; once is no habit."""
    start = EDGE - timedelta(days=91)
    ends = [datetime(2026, month, 1, tzinfo=UTC) for month in (9, 10, 11)]

    def days(batches: Sequence[datetime]) -> list[float]:
        dates = [start + timedelta(days=number) for number in range(91)]
        return [2.0 + 40 * any(end - timedelta(days=5) <= day < end for end in batches) for day in dates]

    seconds = (datetime(2026, 12, 1, tzinfo=UTC) - EDGE).total_seconds()
    month_ends = [int(end.timestamp()) for end in ends]
    usual = coming(a_fleet(*days(ends)), seconds, month_ends)
    once = coming(a_fleet(*days(ends[-1:])), seconds, month_ends)

    assert usual.usd == pytest.approx(24 * USD * (2 * 12 + 200), rel=0.05)
    assert once.usd == pytest.approx(24 * USD * 2 * 12, rel=0.1)
    assert usual.radius == pytest.approx(12 * 24 * USD), "one machine: what comes each month surprises nobody"


def test_the_first_weeks_of_a_fleet_do_not_widen_its_intervals_for_months() -> None:
    """Wild weeks at a fleet's beginning are forgotten when there were eight weeks of other days."""
    wild, calm = random.Random(1), random.Random(2)
    days = [wild.choice((0.0, 40.0)) for _ in range(27)] + [10 + calm.uniform(-0.5, 0.5) for _ in range(80)]

    assert expected(a_fleet(*days), 10).radius == pytest.approx(10 * 24 * USD, rel=0.1)


def test_days_that_nobody_saw_are_no_days_of_zero() -> None:
    """A controller that was down for two days leaves a hole, and the forecast as it was."""
    days: list[float | None] = [10.0] * 40
    days[-4:-2] = [None, None]

    assert sum(expected_machines(days, 10)) == pytest.approx(100)
    assert fleet_change(a_fleet(*days), EDGE) is None


@pytest.mark.parametrize(
    ("before", "after", "days_ago", "said"),
    [
        (10, 16, 3.5, "6 machines more in pool default since Sunday, $60.00 an hour"),
        (10, 9, 2, "1 machine fewer in pool default since Tuesday, $10.00 an hour"),
        (10, 0, 9, "10 machines fewer in pool default since 2026-11-10, $100.00 an hour"),
        (10, 16, 20, None),
        (10, 10, 3, None),
    ],
)
def test_the_last_change_of_the_fleet_is_named(before: float, after: float, days_ago: float, said: str | None) -> None:
    """What changed, in which pool, since which day of the place, and what it makes an hour."""
    assert fleet_change(a_fleet(*stepped(before, after, days_ago)), EDGE.astimezone(ZoneInfo("UTC"))) == said


def a_row(begin: datetime, hours: float, machines: float, **terms: object) -> Billed:
    """So many machines for so long."""
    made = replace(a_billed_row(1, 0, pool="default", owner=None).terms, **terms)  # type: ignore[arg-type]
    span = int(hours * 3600)
    return Billed(begin=int(begin.timestamp()), span=span, terms=made, node_ms=round(machines * span * 1000))


def test_machines_are_counted_by_kind_at_the_price_of_now() -> None:
    """A new price is no new machine; hours without one are in no sum; cheaper machines of another type are cheaper."""
    yesterday = EDGE - timedelta(days=1)
    rows = [
        a_row(EDGE - timedelta(days=2), 24, 4),
        a_row(yesterday, 24, 4, usd_per_hour=Decimal(8)),
        a_row(yesterday, 12, 6, usd_per_hour=Decimal(3), instance_type="g4dn.xlarge"),
        a_row(yesterday, 24, 9, usd_per_hour=None),
    ]
    fleet = fleet_days(rows, int(EDGE.timestamp()), 2)

    assert sorted(fleet.machines.values()) == [(0.0, 3.0), (4.0, 4.0)]
    assert sorted(fleet.usd_per_hour.values()) == [3.0, 8.0]
    assert fleet.dearest_usd_per_hour == 8.0
    assert fleet.lasting_usd_per_hour == 4 * 8


def test_a_pool_that_began_two_hours_ago_is_as_large_as_it_is_now() -> None:
    """Not two parts of twenty-four of it: before its first machine it did not run a part of the time."""
    rows = [a_row(EDGE - timedelta(days=20), 24 * 20, 1), a_row(EDGE - timedelta(hours=2), 2, 4, pool="new")]
    fleet = fleet_days(rows, int(EDGE.timestamp()), 20)
    found = expected(fleet, 10)

    assert found.usd == pytest.approx(24 * 10 * (1 + 4) * 10)
    assert found.radius is not None
    assert found.radius >= 24 * 10 * 10


def test_the_probability_to_exceed_follows_from_the_interval() -> None:
    """A tenth lies beyond either bound; without an interval nothing is known."""
    found = Coming(usd=100.0, radius=20.0)

    assert found.probability_above(120) == pytest.approx(0.1, abs=0.001)
    assert found.probability_above(80) == pytest.approx(0.9, abs=0.001)
    assert (found.probability_above(-1e9), found.probability_above(1e9)) == (0.99, 0.01)
    assert Coming(usd=100.0, radius=None).probability_above(1) is None
