"""Machines without a price under a budget: never a zero, never a reason to stop anything, and no free growth."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.guard.rate_limits import month_budget
from gpuwatch.model.budget import BudgetState
from gpuwatch.model.decision import Verb
from gpuwatch.model.money import Price
from gpuwatch.money.accounting.totals import Billed
from gpuwatch.money.budgets.budget import Month, past, price_running, state
from gpuwatch.money.budgets.settings import Budget
from gpuwatch.money.budgets.table import as_text
from gpuwatch.money.budgets.unpriced import last_prices
from tests.support.builders.fleet import a_node, an_observation
from tests.support.builders.guard_cases import a_case, a_growth, a_launch
from tests.support.builders.money import a_billed_row, budgeted

NOW = datetime(2026, 3, 28, 12, tzinfo=UTC)
MONTH = Month(now=NOW, edge=NOW, zone=ZoneInfo("UTC"), began=NOW - timedelta(days=80))
CAPPED = Budget(usd_per_month=Decimal(10_000), block_growth="actual", shorten_idle_timeout="actual")
GCP = "a3-highgpu-8g"


def billed(begin: datetime, machine_hours: int, usd: str | None, kind: str = "g6.xlarge") -> Billed:
    """So many machine-hours within one hour of the ledger."""
    terms = replace(
        a_billed_row(0, 0, pool="default", owner=None).terms,
        instance_type=kind,
        region="us-east-1",
        capacity_type="on_demand",
        usd_per_hour=None if usd is None else Decimal(usd),
        price_as_of=None if usd is None else date(2026, 3, 26),
        cloud="",
    )
    return Billed(begin=int(begin.timestamp()), span=3600, terms=terms, node_ms=machine_hours * 3_600_000)


def the_state(rows: list[Billed], running: int = 0, budget: Budget = CAPPED) -> BudgetState:
    """The budget now, while so many machines run without a price."""
    nodes = [a_node(f"i-{number}", instance_type=GCP) for number in range(running)]
    seen = an_observation(*nodes, now=NOW)
    return state("ml", budget, MONTH, past(rows, MONTH, None), [], price_running(seen), last_prices(rows))


def test_a_cap_with_a_hole_counts_the_last_known_price_and_stops_growth_alone() -> None:
    """$9,900 spent, twenty machines of $88 without a price for two days: about $84,480 more, which is in no sum."""
    rows = [billed(NOW - timedelta(days=3), 112, "88.00", GCP), billed(NOW - timedelta(days=3), 11, "4.00")]
    rows += [billed(NOW - timedelta(hours=hour), 20, None, GCP) for hour in range(1, 49)]
    found = the_state(rows, running=20)

    assert found.spent_usd == Decimal(9900)
    assert (found.assumed_usd, found.unpriced_now, found.unpriced_hours) == (Decimal(84_480), 20, 960.0)
    assert found.blocked == (
        "$9,900.00 of the $10,000.00 of the budget ml are spent in 2026-03, and hours without a price would be about "
        "$84,480.00 at the last known prices (of 2026-03-26)"
    )
    assert (found.hastening, found.usd_per_hour) == (None, Decimal(0))
    assert "would be about $84,480.00 at the last known prices (of 2026-03-26)" in as_text([found], NOW, NOW)


def test_machines_of_which_no_price_was_ever_known_stop_growth_and_are_named() -> None:
    """There is room in the budget by what is known, and nobody knows whether there is."""
    found = the_state([billed(NOW - timedelta(days=3), 100, "1.00")], running=20)

    assert found.blocked == (
        "$100.00 of the $10,000.00 of the budget ml are spent in 2026-03, and what 20 machines cost has never been "
        "known (a3-highgpu-8g in us-east-1)"
    )
    assert found.hastening is None


def test_a_hole_within_the_budget_stops_nothing() -> None:
    """At the last known price there is room, so growth that limits allow happens."""
    rows = [billed(NOW - timedelta(days=3), 2, "88.00", GCP), billed(NOW - timedelta(hours=2), 20, None, GCP)]
    found = the_state(rows, running=20)

    assert (found.blocked, found.assumed_usd, found.assumed_types) == (None, Decimal(1760), (GCP,))


def test_by_the_forecast_what_runs_without_a_price_counts_until_the_month_ends() -> None:
    """20 machines of $88 for three days and a half are $147,840."""
    rows = [billed(NOW - timedelta(days=3), 2, "88.00", GCP)]
    by = {when: the_state(rows, 20, replace(CAPPED, block_growth=when)) for when in ("actual", "forecast", "never")}

    assert [each.blocked is not None for each in by.values()] == [False, True, False]
    assert (by["forecast"].blocked or "").endswith("machines without a price run at about $1,760.00 an hour")


@given(
    st.lists(st.tuples(st.integers(1, 600), st.none() | st.sampled_from(["1.00", "88.00"])), max_size=8),
    st.integers(0, 9),
)
def test_what_has_no_price_never_hastens_crosses_or_lowers_anything(
    found: list[tuple[int, str | None]], running: int
) -> None:
    """Next to the same ledger without these hours: the same spending and waits, and growth no freer."""
    rows = [billed(NOW - timedelta(hours=1 + at), hours, usd) for at, (hours, usd) in enumerate(found)]
    with_hole = the_state(rows, running)
    without = the_state([row for row in rows if row.terms.usd_per_hour is not None])

    assert (with_hole.spent_usd, with_hole.hastening) == (without.spent_usd, without.hastening)
    assert with_hole.blocked is not None or without.blocked is None
    assert with_hole.blocked is not None or not running


@pytest.mark.parametrize("case", [a_launch(a_case()), a_growth(a_case())])
def test_what_is_added_needs_a_price_or_a_last_known_one(case: object) -> None:
    """Otherwise a budget that limits growth would count it as nothing."""
    capped = budgeted(case, blocked=None, block_growth="actual")  # type: ignore[arg-type]  # a case of either kind
    kind = "g6.xlarge"
    price = Price(usd_per_hour=Decimal(1), as_of=date(2026, 3, 1), source="a list")
    known = replace(capped, observation=replace(capped.observation, prices={kind: price}))
    last = budgeted(case, blocked=None, block_growth="actual", assumed_types=(kind,))  # type: ignore[arg-type]  # same
    never = budgeted(case, blocked=None, block_growth="never")  # type: ignore[arg-type]  # same

    assert capped.step.verb in {Verb.LAUNCH, Verb.GROW}
    assert [month_budget(each)[0] for each in (capped, known, last, never)] == [True, False, False, False]
    assert month_budget(capped)[1] == "The price of what is added is not known, and the budget ml limits growth."
