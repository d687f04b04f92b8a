"""Machines that are not ours are metered, stand beside every sum, and are in none, unless an account is asked for."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.ledger import Ledger
from gpuwatch.model.budget import BudgetState
from gpuwatch.model.fleet import Node, NodeGroup
from gpuwatch.model.usage import FOREIGN, Terms
from gpuwatch.money.accounting.batches import Batches
from gpuwatch.money.accounting.metering import Metering, meter
from gpuwatch.money.accounting.scope import CostScope, count_in, counted_nodes, foreign_nodes
from gpuwatch.money.accounting.settings import EnergySettings
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import Total
from gpuwatch.money.advice.load_curve import LoadError, load_of
from gpuwatch.money.bill.parse import map_columns
from gpuwatch.money.bill.statement import compare_bill
from gpuwatch.money.budgets.budget import with_crossings
from gpuwatch.money.budgets.settings import Budget
from gpuwatch.money.budgets.table import as_text
from gpuwatch.money.budgets.tracker import Budgeting
from gpuwatch.money.forecast.spending import spending
from gpuwatch.money.report import cost
from gpuwatch.money.report.period import period_of
from gpuwatch.money.report.progress import Ends, compare_ends
from gpuwatch.money.report.proof import prove_report
from gpuwatch.policies.spot.batch import BatchRules
from tests.support.builders.fleet import a_node, an_observation
from tests.support.builders.money import a_billed_row, a_busy_node, a_round
from tests.support.nightly import examples

ZONE = ZoneInfo("UTC")
BEGIN = datetime(2026, 3, 2, tzinfo=UTC)
RULES = Metering(zone=ZONE, silent_after_seconds=7200)
HOUR_MS = 3_600_000


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """One without a row."""
    made = Ledger.in_memory()
    yield made
    made.close()


def a_stranger(name: str, at: datetime, fleet: str | None = None, **other: object) -> Node:
    """A busy machine that is not enrolled, with another fleet's tag where one is named."""
    tags = {} if fleet is None else {"gpuwatch:fleet": fleet}
    return replace(a_busy_node(name, at), enrolled=False, tags=tags, **other)  # type: ignore[arg-type]


def two_days(ledger: Ledger, fleet: str | None = None) -> datetime:
    """Two days of one machine of ours and one of others, at $10 an hour each; the time of the last round."""
    at = BEGIN
    for hour in range(50):
        at = BEGIN + timedelta(hours=hour)
        ours, other = a_busy_node("i-ours", at), a_stranger("i-other", at, fleet, pool="vision", owner="zoe")
        SpendBook(ledger).meter(a_round(at, ours, other), RULES)
    return at


def total_of(ledger: Ledger, scope: CostScope = "fleet") -> Total:
    """Everything in the ledger, counted in that scope."""
    count_in(scope)
    made = Total()
    for row in SpendBook(ledger).rows(0, 2**40, by_node=True):
        made.add(row)
    count_in("fleet")
    return made


@settings(max_examples=examples(25))
@given(st.lists(st.booleans(), min_size=2, max_size=30))
def test_a_machine_is_ours_for_its_enrolled_hours_alone(enrolled: list[bool]) -> None:
    """However often it is enrolled and leaves: each hour counts by its begin, none twice, and none is lost."""
    ledger = Ledger.in_memory()
    for hour, now in enumerate(enrolled):
        at = BEGIN + timedelta(hours=hour)
        node = replace(a_busy_node("i-1", at), enrolled=now, launched_at=BEGIN, tags={"team": "a"})
        SpendBook(ledger).meter(a_round(at, node), RULES)
    ours, everything = total_of(ledger), total_of(ledger, "account")
    ledger.close()
    hours = enrolled[:-1]

    assert (ours.node_ms, ours.foreign.node_ms) == (sum(hours) * HOUR_MS, (len(hours) - sum(hours)) * HOUR_MS)
    assert ours.usd + ours.foreign.usd == everything.usd == 10 * len(hours)
    assert everything.foreign.node_ms == 0


def test_a_member_of_an_enrolled_group_is_ours() -> None:
    """Its cloud may not have passed the group's tag on to it; without the group's consent it is its owner's."""
    node = a_node("i-1", enrolled=False, group="g")
    group = NodeGroup(
        id="g", name="g", pool="default", min_size=0, max_size=3, desired=1, region="us-east-1", node_ids=("i-1",)
    )
    for ours in (True, False):
        seen = replace(an_observation(node).fleet, groups=(replace(group, enrolled=ours),))

        assert bool(foreign_nodes(seen)) is not ours
        assert bool(counted_nodes(seen)) is ours


def test_a_machine_of_another_fleet_is_marked_with_its_name_and_no_tag_forges_the_mark() -> None:
    """What is kept of a machine's tags never makes one of ours foreign."""
    book: dict[Terms, int] = {}
    rules = replace(RULES, tags=("team", FOREIGN))
    tags = {"team": "a", FOREIGN: "hand-made"}
    nodes = (a_node("i-1", tags=tags), a_node("i-2", enrolled=False, tags={**tags, "gpuwatch:fleet": "vision"}))
    meter(None, an_observation(*nodes), rules, lambda terms: book.setdefault(terms, len(book)), Calendar(ZONE))

    assert [terms.tags for terms in book] == [(("team", "a"),), ((FOREIGN, "vision"), ("team", "a"))]


def test_the_text_of_costs_names_what_is_not_ours_and_has_no_row_of_it(ledger: Ledger) -> None:
    """A pool or an owner with foreign machines alone is no row of zeros."""
    now = two_days(ledger, "vision")
    spend, period = SpendBook(ledger), period_of(ZONE, now)
    texts = {by: cost.as_text(cost.cost_report(spend, period, by), EnergySettings()) for by in ("pool", "owner")}

    for text in texts.values():
        assert (
            "Not ours: 49.0 machine-hours of 1 machine, $490.00 (not enrolled, or of fleet vision), in no sum." in text
        )
        assert not [line for line in text.splitlines() if line.startswith(("vision", "zoe"))]
    for scope in ("fleet", "account"):
        count_in(scope)
        for by in ("pool", "owner", "node", "day"):
            assert prove_report(spend, cost.cost_report(spend, period, by)).wrong == []


def budget_of(ledger: Ledger, now: datetime, budget: Budget) -> BudgetState:
    """The budget in a round at that time, with both machines running."""
    seen = a_round(now, a_busy_node("i-ours", now), a_stranger("i-other", now, pool="vision", owner="zoe"))
    [found] = Budgeting(ledger=ledger, budgets={"ml": budget}, zone=ZONE).states(seen)
    return found


def test_a_budget_counts_what_is_ours_and_says_what_it_leaves_out(ledger: Ledger) -> None:
    """Neither spent, nor now, nor forecast; with `account` it is in all three, and that is said."""
    now = two_days(ledger)
    budget = Budget(usd_per_month=Decimal(10_000), block_growth="actual")
    ours = budget_of(ledger, now, budget)
    count_in("account")
    both = budget_of(ledger, now, budget)
    count_in("fleet")

    assert (ours.spent_usd, ours.usd_per_hour) == (Decimal("490.00"), Decimal(10))
    assert (ours.foreign_usd, ours.foreign_hours) == (Decimal("490.00"), 49.0)
    assert "not in it: 49.0 machine-hours ($490.00) of machines that are not enrolled" in as_text([ours], now, now)
    assert (both.spent_usd, both.usd_per_hour, both.foreign_hours) == (Decimal("980.00"), Decimal(20), 0.0)
    assert ours.forecast_usd is not None
    assert both.forecast_usd is not None
    assert ours.forecast_usd < both.forecast_usd
    assert any("cost.scope: account" in note for note in both.notes)


def test_a_budget_of_somebody_else_s_owner_is_empty(ledger: Ledger) -> None:
    """A machine that its owner did not enrol costs its owner nothing here."""
    found = budget_of(ledger, two_days(ledger), Budget(usd_per_month=Decimal(100), owner="zoe", block_growth="actual"))

    assert (found.spent_usd, found.usd_per_hour, found.blocked) == (Decimal("0.00"), Decimal(0), None)
    assert found.foreign_usd == Decimal("490.00")


def test_the_forecast_of_the_ledger_is_of_our_machines(ledger: Ledger) -> None:
    """Each hour is $10, not 20; the note says what is left out, and a ledger of others alone has no forecast."""
    two_days(ledger, "vision")
    series = spending(SpendBook(ledger), 3600)
    assert sum(series.known[:24]) == pytest.approx(240)
    assert any("49.0 machine-hours of machines that are not enrolled are in no sum" in each for each in series.notes)
    with pytest.raises(ValueError, match="no machine of pool vision is metered"):
        spending(SpendBook(ledger), 3600, "vision")
    count_in("account")
    assert sum(spending(SpendBook(ledger), 3600).known[:24]) == pytest.approx(480)


def test_a_bill_is_compared_with_all_machines(ledger: Ledger, tmp_path: Path) -> None:
    """The bill has what is not ours as well, so nothing of it is missing on either side."""
    two_days(ledger)
    head = "resource,begin,end,cost,currency\n"
    lines = [f"{name},2026-03-02T00:00:00Z,2026-03-03T00:00:00Z,240.00,USD" for name in ("i-ours", "i-other")]
    path = tmp_path / "bill.csv"
    path.write_text(head + "\n".join(lines), encoding="utf-8")
    own = map_columns(("node=resource", "start=begin", "end=end", "cost=cost", "currency=currency"), ())
    found = compare_bill(SpendBook(ledger), path, ZONE, {}, own).found

    assert (float(found.billed_usd), float(found.metered_usd), found.equal) == (480.0, 480.0, 2)


def test_work_of_others_machines_is_no_work_of_the_pool(ledger: Ledger) -> None:
    """A machine that nobody enrolled counts to the default pool by its missing tag alone."""
    job = BatchRules(work=36_000.0, since=BEGIN.isoformat(), by=(BEGIN + timedelta(hours=40)).isoformat(), nodes=2)
    now = BEGIN
    for hour in range(4):
        now = BEGIN + timedelta(hours=hour)
        SpendBook(ledger).meter(a_round(now, a_busy_node("i-1", now), a_stranger("i-2", now)), RULES)

    for _ in range(2):
        found = Batches(ledger, {"default": job})(a_round(now, a_busy_node("i-1", now)))
        assert found["default"].done_seconds == pytest.approx(3 * 3600 / 2)  # one of two nodes


def test_advice_and_compared_weeks_are_of_our_machines(ledger: Ledger) -> None:
    """No commitment for what others run, and no owner of foreign machines among those who waste."""
    for hour in range(3):
        at = BEGIN + timedelta(hours=hour)
        SpendBook(ledger).meter(a_round(at, a_stranger("i-2", at)), RULES)
    with pytest.raises(LoadError):
        load_of(SpendBook(ledger), None)
    ours, other = (a_billed_row(1, 5, pool="p", owner=owner) for owner in ("ann", "zoe"))
    other = replace(other, terms=replace(other.terms, tags=((FOREIGN, ""),)))
    found = compare_ends(Ends(count=1, first=BEGIN.date(), last=BEGIN.date()), [ours, other], [ours, other])

    assert set(found.pairs) == {("p", "ann")}


def test_rows_of_earlier_ledgers_are_ours() -> None:
    """They have no mark; nothing that was counted before disappears."""
    row = a_billed_row(2, 1, pool="p", owner=None)
    made = Total()
    made.add(row)

    assert row.terms.foreign is None
    assert (float(made.usd), made.foreign.node_ms) == (30.0, 0)


@pytest.mark.parametrize(("rounds", "foreign"), [(1, 0), (4, 0), (30, 26)])
def test_a_listing_without_tags_makes_nothing_foreign_until_it_lasts(ledger: Ledger, rounds: int, foreign: int) -> None:
    """For five minutes a machine keeps its pool, its owner and its budget; a lack that lasts is believed."""
    spend, at = SpendBook(ledger), BEGIN
    for minute in range(60):
        at = BEGIN + timedelta(minutes=minute)
        tagged = replace(a_busy_node("i-1", at), launched_at=BEGIN, tags={"gpuwatch:enrolled": "true"}, owner="ann")
        lost = replace(tagged, enrolled=False, tags={}, owner=None, pool="default-by-mistake")
        spend.meter(
            a_round(at, lost if 10 <= minute < 10 + rounds else tagged), replace(RULES, silent_after_seconds=300.0)
        )
    found = total_of(ledger)
    pools = {row.terms.pool for row in spend.rows(0, 2**40) if row.terms.foreign is None}

    assert found.node_ms + found.foreign.node_ms == 59 * 60_000
    assert found.foreign.node_ms == foreign * 60_000
    assert pools == {a_busy_node("i-1", at).pool}


def test_a_tag_that_is_taken_away_among_others_counts_at_once(ledger: Ledger) -> None:
    """Somebody's word is no lost listing."""
    spend = SpendBook(ledger)
    for minute in range(10):
        at = BEGIN + timedelta(minutes=minute)
        node = replace(a_busy_node("i-1", at), launched_at=BEGIN, tags={"team": "a"}, enrolled=minute < 5)
        spend.meter(a_round(at, node), RULES)

    assert total_of(ledger).foreign.node_ms == 4 * 60_000


def test_another_scope_in_mid_month_restates_a_budget_and_what_it_has_reached(ledger: Ledger) -> None:
    """With `account` 98 % are spent, past 50 and 80; with `fleet` 49 are, and neither is; each says its scope."""
    now, budget = two_days(ledger), Budget(usd_per_month=Decimal(1000), thresholds=("50%", "80%"))
    tracked: dict[str, tuple[BudgetState, list[tuple[float, str]]]] = {}
    before: BudgetState | None = None
    scopes: tuple[CostScope, ...] = ("fleet", "account", "fleet")
    for number, scope in enumerate(scopes):
        count_in(scope)
        found = with_crossings(budget_of(ledger, now, budget), budget, before, now + timedelta(minutes=number))
        before = found
        tracked[f"{number} {scope}"] = found, [(each.ratio, each.on) for each in found.crossings if each.on == "actual"]
    count_in("fleet")

    assert [found.spent_usd for found, _ in tracked.values()] == [Decimal(490), Decimal(980), Decimal(490)]
    assert [reached for _, reached in tracked.values()] == [[], [(0.5, "actual"), (0.8, "actual")], []]
    assert any("cost.scope: account" in note for note in tracked["1 account"][0].notes)
    assert tracked["2 fleet"][0].foreign_usd == Decimal("490.00")
