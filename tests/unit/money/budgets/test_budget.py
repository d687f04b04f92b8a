"""What of a month's budget is spent, where its month will end, and what follows from that."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.money import in_place_of_region
from gpuwatch.money.budgets.budget import (
    Past,
    past,
    rows_in_scope,
    state,
    unknown,
    with_crossings,
)
from gpuwatch.money.budgets.settings import Budget
from gpuwatch.money.budgets.table import as_text
from tests.support.builders.budgeted_months import (
    DAY,
    HOUR,
    TERMS,
    a_month,
    a_state,
    an_hour,
    at,
    hours,
)
from tests.support.builders.fleet import a_node


def test_a_budget_says_where_prices_are_of_another_region() -> None:
    """Among its notes, while such a machine runs."""
    source = in_place_of_region("a list", "eu-west-2, the nearest with a list price", "eu-west-1")

    assert any("another region (eu-west-2)" in note for note in a_state([], a_month(), machines=1, source=source).notes)
    assert not any("another region" in note for note in a_state([], a_month(), machines=1).notes)


def test_spent_is_what_was_billed_since_the_month_began_to_the_minute() -> None:
    """Half an hour of the hour under way counts, February does not."""
    rows = [*hours("2026-02-27T00:00", "2026-03-20T12:00"), an_hour(at("2026-03-20T12:00"), 0.5)]
    result = a_state(rows, a_month())

    assert result.spent_usd == Decimal(10) * (19 * 24 + 12) + 5
    assert result.month == "2026-03"
    assert result.ends_at == at("2026-04-01T00:00")


def test_a_steady_load_is_forecast_to_go_on_and_the_interval_is_narrow() -> None:
    """Ten dollars an hour make 7440 in March; the day that lies across the month's begin is not counted twice."""
    result = a_state(hours("2025-12-01T00:00", "2026-03-20T12:00"), a_month(), Budget(usd_per_month=Decimal(7000)))

    assert result.forecast_usd == Decimal(7440)
    assert result.lower_usd is not None
    assert result.upper_usd is not None
    assert result.lower_usd <= Decimal(7440) <= result.upper_usd
    assert result.probability_over is not None
    assert result.probability_over > 0.5


def test_the_day_on_which_all_will_be_spent_follows_from_the_forecasts_pace() -> None:
    """Of 6000 dollars 4680 are spent; the rest lasts for 132 more hours."""
    rows = hours("2025-12-01T00:00", "2026-03-20T12:00")
    result = a_state(rows, a_month(), Budget(usd_per_month=Decimal(6000)))

    assert result.reaches_at is not None
    assert abs(result.reaches_at - at("2026-03-26T00:00")) < timedelta(hours=1)
    assert a_state(rows, a_month(), Budget(usd_per_month=Decimal(8000))).reaches_at is None


def test_with_less_than_a_day_on_record_it_is_too_early_for_a_forecast() -> None:
    """Hours drawn out to a month would be far above, which nobody is to act on or to be warned of: there is none."""
    month = a_month("2026-03-02T05:00", began="2026-03-02T00:00")
    budget = Budget(block_growth="forecast", shorten_idle_timeout="forecast")
    result = a_state(hours("2026-03-02T00:00", "2026-03-02T05:00", 2.0), month, budget, machines=2)

    assert result.spent_usd == 100
    assert (result.forecast_usd, result.method, result.reaches_at) == (None, "", None)
    assert (result.lower_usd, result.probability_over, result.blocked, result.hastening) == (None, None, None, None)
    assert with_crossings(result, budget, None, month.now).crossings == ()
    early = "too early for a forecast: it needs a day of history, and metering began at 2026-03-02 00:00 UTC"
    assert early in result.notes
    text = as_text([replace(result, name="team")], month.now, month.now)
    [row] = [line for line in text.splitlines() if line.startswith("team  ")]
    assert ("too early" in row, row.count("%")) == (True, 1), "what is spent has a share, the forecast has none"
    assert "forecast by" not in text
    assert "needs a day of history" in text
    assert any("earlier this month is not in it" in each for each in result.notes)


def test_the_table_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval goes first, and the last line says what went; spent and forecast stay."""
    monkeypatch.setenv("COLUMNS", "80")
    result = a_state(hours("2025-12-01T00:00", "2026-03-20T12:00"), a_month())
    head, row, lacks = as_text([result], a_month().now, a_month().now).splitlines()[2:5]

    assert max(len(head), len(row)) <= 80
    assert lacks.startswith("(a wider terminal, or a pipe, also has: 80 % interval")


def test_a_few_days_give_a_forecast_to_warn_of_but_not_to_act_on() -> None:
    """No interval can be told of five days: 100 % is crossed by the forecast, and growth is not blocked."""
    month = a_month("2026-03-06T00:00", began="2026-03-01T00:00")
    budget = Budget(block_growth="forecast", shorten_idle_timeout="forecast")
    result = with_crossings(
        a_state(hours("2026-03-01T00:00", "2026-03-06T00:00"), month, budget), budget, None, month.now
    )

    assert result.forecast_usd == 7440
    assert [(each.ratio, each.on) for each in result.crossings] == [
        (0.5, "forecast"),
        (0.8, "forecast"),
        (1.0, "forecast"),
    ]
    assert (result.blocked, result.hastening) == (None, None)
    assert any("history is too short" in each for each in result.notes)


def test_on_the_first_day_of_a_month_the_last_months_tell_what_comes() -> None:
    """Nothing is spent yet but an hour, and the forecast has its interval."""
    result = a_state(hours("2025-12-01T00:00", "2026-03-01T01:00"), a_month("2026-03-01T01:00"))

    assert result.spent_usd == 10
    assert result.forecast_usd == 7440
    assert result.lower_usd is not None


def test_in_the_last_hour_the_forecast_is_what_is_spent_and_a_little() -> None:
    """Where the month is as good as over, nothing much is left to be unsure of."""
    result = a_state(hours("2025-12-01T00:00", "2026-03-31T23:00"), a_month("2026-03-31T23:30"))

    assert result.spent_usd == 7430
    assert result.forecast_usd == 7440


@pytest.mark.parametrize(("zone", "length"), [("Europe/Berlin", 743), ("UTC", 744), ("America/New_York", 743)])
def test_a_month_with_a_clock_change_is_an_hour_shorter(zone: str, length: int) -> None:
    """March has 743 hours where clocks go forward, and its begin is the place's own."""
    month = a_month(zone=zone)
    result = a_state(hours("2025-12-01T00:00", "2026-03-20T12:00"), month)

    assert (month.end - month.begin) == timedelta(hours=length)
    assert result.forecast_usd == 10 * length


def test_december_ends_with_the_year() -> None:
    """The next month is January."""
    month = a_month("2026-12-31T23:59")

    assert (month.begin, month.end, month.name) == (at("2026-12-01T00:00"), at("2027-01-01T00:00"), "2026-12")


def test_hours_without_a_price_are_counted_and_in_no_sum() -> None:
    """Three of them; what has a price is the least that it can be."""
    rows = [an_hour(at("2026-03-20T08:00")), an_hour(at("2026-03-20T09:00"), 2.0, usd_per_hour=None)]
    rows.append(an_hour(at("2026-03-20T12:00"), 1.0, usd_per_hour=None))
    result = a_state(rows, a_month())

    assert result.spent_usd == 10
    assert result.unpriced_hours == 3.0


def test_a_price_of_zero_is_a_price() -> None:
    """A machine that costs nothing has no unpriced hours."""
    result = a_state([an_hour(at("2026-03-20T08:00"), usd_per_hour=Decimal(0))], a_month())

    assert (result.spent_usd, result.unpriced_hours) == (Decimal(0), 0.0)


@pytest.mark.parametrize(
    "scope",
    [
        {"pool": "training"},
        {"owner": "bob"},
        {"account": "2"},
        {"tag": "team=speech"},
        {"cloud": "us"},
        {"pool": "default", "owner": "bob"},
    ],
)
def test_what_is_out_of_the_scope_does_not_count(scope: dict[str, str]) -> None:
    """All that a scope names must be so, of what is spent and of what runs now."""
    rows = [an_hour(at("2026-03-20T08:00"))]
    out = a_state(rows, a_month(), Budget(**scope), machines=1)  # type: ignore[arg-type]
    inside = a_state(rows, a_month(), Budget(cloud="bj", pool="default", owner="ann", account="1", tag="team=vision"))

    assert out.spent_usd == 0
    assert inside.spent_usd == 10


def test_what_was_billed_before_its_cloud_had_a_name_is_told_and_not_counted() -> None:
    """Of this month, and of what is in the scope but for that; a budget of all clouds counts it."""
    unnamed_hours = [an_hour(at(f"2026-03-20T0{hour}:00"), cloud=cloud) for hour, cloud in enumerate(["", None])]
    others = [an_hour(at("2026-03-20T02:00"), cloud=None, owner="bob"), an_hour(at("2026-02-20T02:00"), cloud=None)]
    rows = [*unnamed_hours, *others, an_hour(at("2026-03-20T03:00"))]
    of_cloud, of_all = (a_state(rows, a_month(), Budget(cloud=cloud, owner="ann")) for cloud in ("bj", None))
    note = "2.0 machine-hours are not in it: their cloud had no name when they were metered"

    assert (of_cloud.spent_usd, of_cloud.notes[0], str(of_cloud.scope)) == (Decimal(10), note, "cloud bj, owner ann")
    assert (of_all.spent_usd, note in of_all.notes) == (Decimal(30), False)


@pytest.mark.parametrize(
    ("when", "spent", "blocked"), [("actual", 7000, False), ("forecast", 7000, True), ("never", 5000, False)]
)
def test_a_budget_blocks_growth_by_what_is_spent_or_forecast_as_it_says(
    when: str, spent: int, *, blocked: bool
) -> None:
    """Spent are 4680, forecast 7440."""
    budget = Budget(usd_per_month=Decimal(spent), block_growth=when, shorten_idle_timeout=when)  # type: ignore[arg-type]
    result = a_state(hours("2025-12-01T00:00", "2026-03-20T12:00"), a_month(), budget)

    assert (result.blocked is not None) is blocked
    assert (result.hastening is not None) is blocked


def test_effects_say_what_they_rest_on() -> None:
    """By the forecast, and once it is spent by that alone."""
    rows = hours("2025-12-01T00:00", "2026-03-20T12:00")
    ahead = a_state(
        rows, a_month(), Budget(usd_per_month=Decimal(6000), block_growth="forecast", shorten_idle_timeout="forecast")
    )
    spent = a_state(
        rows, a_month(), Budget(usd_per_month=Decimal(4680), block_growth="forecast", shorten_idle_timeout="actual")
    )

    assert ahead.blocked == (
        "$4,680.00 of the $6,000.00 of the budget ml are spent in 2026-03, "
        "and the month is forecast to end at $7,440.00 as usual"
    )
    assert ahead.hastening is not None
    assert ahead.hastening.why == "the budget ml is forecast as usual at 124%"
    assert spent.blocked == "$4,680.00 of the $4,680.00 of the budget ml are spent in 2026-03"
    assert spent.hastening is not None
    assert spent.hastening.why == "the budget ml is spent at 100%"
    assert spent.probability_over is not None


def test_what_is_spent_is_certain_and_no_forecast_is_below_it() -> None:
    """A load that has ended: past the budget for good."""
    rows = [*hours("2025-12-01T00:00", "2026-03-01T00:00"), *hours("2026-03-19T00:00", "2026-03-20T12:00", 40.0)]
    result = a_state(rows, a_month())

    assert result.spent_usd == 14400
    assert result.probability_over == 1.0
    assert result.forecast_usd is not None
    assert min(result.forecast_usd, result.lower_usd or result.forecast_usd) >= 14400
    assert result.reaches_at is None


def test_a_threshold_is_crossed_once_a_month_and_stays_so() -> None:
    """The next round knows since when; another month begins anew."""
    budget, month = Budget(usd_per_month=Decimal(8000)), a_month()
    rows = hours("2025-12-01T00:00", "2026-03-20T12:00")
    first = with_crossings(a_state(rows, month, budget), budget, None, month.now)
    later = a_month("2026-03-20T12:45")
    second = with_crossings(a_state(rows, later, budget), budget, first, later.now)
    april = a_month("2026-04-01T00:30")
    third = with_crossings(
        a_state(hours("2025-12-01T00:00", "2026-04-01T00:00", 0.1), april, budget), budget, second, april.now
    )

    assert {(each.ratio, each.on, each.at) for each in first.crossings} == {
        (0.5, "actual", month.now),
        (0.5, "forecast", month.now),
        (0.8, "forecast", month.now),
    }
    assert second.crossings == first.crossings
    assert third.crossings == ()


def test_before_anything_was_metered_nothing_is_spent_and_that_is_said() -> None:
    """The first round."""
    result = a_state([], a_month(began=None), machines=1)

    assert result.spent_usd == 0
    assert result.notes == ("nothing has been metered yet",)


def test_a_budget_of_which_nothing_is_known_has_no_effect_of_its_own() -> None:
    """No figure, no haste; growth is for the guard to refuse."""
    result = unknown("ml", Budget(block_growth="actual", shorten_idle_timeout="actual"), a_month(), None, "no ledger")

    assert (result.spent_usd, result.hastening, result.block_growth, result.doubt) == (
        None,
        None,
        "actual",
        "no ledger",
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 60 * 24), st.integers(0, 10**9), st.sampled_from(["0.8048", "3", None])), max_size=30
    ),
    st.integers(0, 31 * 24),
)
def test_scopes_that_divide_a_fleet_add_up_to_it_to_the_cent_however_rows_are_cut(
    found: list[tuple[int, int, str | None]], cut: int
) -> None:
    """Where the edge lies does not matter either."""
    month = a_month("2026-03-31T23:30")
    rows = [
        replace(
            an_hour(at("2026-01-31T00:00") + hour * timedelta(hours=1)),
            node_ms=ms,
            terms=replace(TERMS, usd_per_hour=None if usd is None else Decimal(usd), pool=f"p{hour % 3}"),
        )
        for hour, ms, usd in found
    ]
    edge = month.begin.timestamp() + cut * HOUR
    parts = [
        past(rows_in_scope(Budget(pool=pool), some), month, None).usd
        for pool in ("p0", "p1", "p2")
        for some in ([row for row in rows if row.begin < edge], [row for row in rows if row.begin >= edge])
    ]

    assert sum(parts, Fraction(0)) == past(rows, month, None).usd


def test_days_and_hours_of_the_same_spending_give_the_same_forecast() -> None:
    """Sealed days are one row; what is spent evenly is forecast evenly."""
    month = a_month("2026-03-20T00:00")
    by_hours = hours("2025-12-01T00:00", "2026-03-20T00:00")
    by_days = [
        replace(row, span=DAY, node_ms=DAY * 1000)
        for row in by_hours
        if row.begin % DAY == 0 and row.begin < month.edge.timestamp()
    ]

    assert a_state(by_days, month).forecast_usd == a_state(by_hours, month).forecast_usd == 7440


def test_a_state_needs_no_forecast() -> None:
    """What is spent is known without one; what runs now without a known price is marked in the table."""
    month = a_month()
    result = state("ml", Budget(), month, Past(usd=Fraction(1, 3), unpriced_ms={}, ahead=None), [], [(a_node(), None)])

    assert (result.spent_usd, result.forecast_usd, result.unpriced_now) == (Decimal("0.33"), None, 1)
    assert " $0.00+? " in as_text([result], month.now, month.now)
