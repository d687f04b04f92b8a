"""A budget's two forecasts: as usual from the machines that exist, and at the present rate."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from gpuwatch.money.accounting.totals import Billed
from gpuwatch.money.budgets.budget import with_crossings
from gpuwatch.money.budgets.settings import Budget
from tests.support.builders.budgeted_months import a_month, a_state, hours


def steps(*parts: tuple[str, float]) -> list[Billed]:
    """So many machines from each time on, until the hour of `a_month`."""
    ends = [begin for begin, _ in parts[1:]] + ["2026-03-20T12:00"]
    return [row for (begin, count), end in zip(parts, ends, strict=True) for row in hours(begin, end, count)]


@pytest.mark.parametrize(
    ("before", "after", "limit", "blocked"), [(10, 2, 60_000, False), (4, 10, 50_000, True), (10, 20, 100_000, True)]
)
def test_three_days_after_a_change_growth_is_judged_by_the_new_fleet(
    before: int, after: int, limit: int, *, blocked: bool
) -> None:
    """What ran before the change blocks no growth, and hides no overrun; the change is named."""
    rows = steps(("2025-12-20T00:00", before), ("2026-03-17T06:00", after))
    budget = Budget(usd_per_month=Decimal(limit), block_growth="forecast")
    result = a_state(rows, a_month(), budget, machines=after)
    truth = Decimal(10 * (before * (16 * 24 + 6) + after * (744 - 16 * 24 - 6)))

    assert result.forecast_usd is not None
    assert result.present_rate_usd is not None
    assert result.lower_usd is not None
    assert result.upper_usd is not None
    assert abs(result.forecast_usd - truth) < truth * Decimal("0.03")
    assert abs(result.present_rate_usd - truth) < truth * Decimal("0.03")
    assert result.lower_usd <= truth <= result.upper_usd
    assert (result.blocked is not None) is blocked
    assert result.change is not None
    assert result.change.startswith(f"{abs(after - before)} machines {'more' if after > before else 'fewer'}")
    assert "since Tuesday" in result.change
    if blocked:
        assert f"as usual ({result.change})" in (result.blocked or "")


@pytest.mark.parametrize(("off", "blocked"), [(6, True), (24, False), (36, False), (60, False), (96, False)])
def test_a_day_after_all_machines_have_gone_a_forecast_blocks_nothing(off: int, *, blocked: bool) -> None:
    """In a night they only sleep; after a day nobody knows whether they come again, and what comes is no growth."""
    month = a_month()
    rows = hours("2025-12-01T00:00", f"{month.edge - timedelta(hours=off):%Y-%m-%dT%H:%M}", 2.0)
    budget = Budget(usd_per_month=Decimal(12_000), block_growth="forecast")

    made = a_state(rows, month, budget)

    assert made.spent_usd is not None
    assert made.forecast_usd is not None
    assert made.spent_usd < 12_000
    assert (made.blocked is not None) is blocked


def test_what_runs_on_at_a_rate_that_is_not_usual_is_told_as_the_present_rate() -> None:
    """Machines that rest at weekends have run for three days: such a month is past the budget, a usual one is not.

    It is told once, and not again where it is past as usual as well.
    """
    weeks = [
        row
        for row in hours("2025-12-22T00:00", "2026-03-20T12:00", 8)
        if datetime.fromtimestamp(row.begin, UTC).weekday() < 5
    ]
    budget, month = Budget(usd_per_month=Decimal(47_000), block_growth="forecast"), a_month()
    found = with_crossings(a_state(weeks, month, budget, machines=8), budget, None, month.now)

    assert found.forecast_usd is not None
    assert found.forecast_usd < 47_000 < (found.lasting_rate_usd or 0)
    assert (1.0, "rate") in {(each.ratio, each.on) for each in found.crossings}
    assert not {0.5, 0.8} & {each.ratio for each in found.crossings if each.on == "rate"}
    assert "at the rate of the last three days the month ends at" in (found.blocked or "")
    assert with_crossings(found, budget, found, month.now).crossings == found.crossings
