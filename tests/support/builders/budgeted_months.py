"""Months of machines at ten dollars an hour, and a budget's state in them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from gpuwatch.model.budget import BudgetState
from gpuwatch.model.money import Price
from gpuwatch.model.usage import Terms
from gpuwatch.money.accounting.totals import Billed
from gpuwatch.money.budgets.budget import Month, forecast, past, price_running, rows_in_scope, state, unnamed_time
from gpuwatch.money.budgets.settings import Budget
from tests.support.builders.fleet import a_node, an_observation

HOUR, DAY = 3600, 86400
TERMS = Terms(
    pool="default",
    owner="ann",
    account="1",
    region="us-east-1",
    instance_type="g6.xlarge",
    capacity_type="on_demand",
    gpus=1,
    usd_per_hour=Decimal(10),
    price_as_of=None,
    price_source="a list",
    tags=(("team", "vision"),),
    cloud="bj",
    provider="tencent",
)


def at(text: str) -> datetime:
    """UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def a_month(now: str = "2026-03-20T12:30", *, began: str | None = "2025-10-01T00:00", zone: str = "UTC") -> Month:
    """The month of a moment; metering began long ago unless told otherwise."""
    moment = at(now)
    edge = moment.replace(minute=0)
    return Month(now=moment, edge=edge, zone=ZoneInfo(zone), began=None if began is None else at(began))


def an_hour(begin: datetime, machines: float = 1.0, **terms: object) -> Billed:
    """So many machines for one hour at ten dollars."""
    made = replace(TERMS, **terms)  # type: ignore[arg-type]
    return Billed(begin=int(begin.timestamp()), span=HOUR, terms=made, node_ms=int(machines * HOUR * 1000))


def hours(first: str, last: str, machines: float = 1.0) -> list[Billed]:
    """Every hour from one time to another."""
    count = int((at(last) - at(first)).total_seconds()) // HOUR
    return [an_hour(at(first) + number * timedelta(hours=1), machines) for number in range(count)]


def a_state(
    rows: list[Billed], month: Month, budget: Budget | None = None, machines: int = 0, source: str = "a list"
) -> BudgetState:
    """The budget now, while so many machines run at a price of that source."""
    budget = budget or Budget()
    edge = month.edge.timestamp()
    mine = rows_in_scope(budget, rows)
    known = past([row for row in mine if row.begin < edge], month, None, unnamed_time(budget, rows, month))
    known = replace(known, ahead=forecast(budget, [row for row in mine if row.begin < edge], month))
    price = Price(usd_per_hour=Decimal(10), as_of=month.now.date(), source=source)
    nodes = [a_node(f"i-{number}") for number in range(machines)]
    seen = replace(an_observation(*nodes, now=month.now), prices={"g6.xlarge": price})
    return state("ml", budget, month, known, [row for row in mine if row.begin >= edge], price_running(seen))
