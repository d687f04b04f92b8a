"""`gpuwatch export focus`: what was metered as rows in FOCUS 1.2 columns, for tools that read bills.

Rules, all of them:

1. A row is a day of a machine, or of a workload, under one set of terms. Columns of the specification hold what it
   says; ours begin with `x_`. All mandatory columns are there (focus.finops.org, "Columns"); a null is an empty cell.
2. Costs are rounded so that they add up: BilledCost to the same cent as `gpuwatch cost`, and useful, wasted and
   unproven cost to theirs.
   Machines that are not ours are in no row, unless `cost.scope` counts them.
3. The specification allows no null as a cost. Time without a known price costs 0 there and stands in x_UnpricedHours.
4. The list price of a machine at an effective rate is the table's, where that has one; else it is the price that was
   used.
5. Text that a spreadsheet would take for a formula gets an apostrophe before it.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from gpuwatch.clouds.settings import TITLES
from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.money import EFFECTIVE
from gpuwatch.model.usage import HOUR_MS
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import NO_CLUSTER, Row, Total, round_parts
from gpuwatch.money.prices import catalogue
from gpuwatch.money.report.period import Period

BY = ("node", "workload")
COLUMNS = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart",
    "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart",
    "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost",
    "PricingCategory", "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "RegionId", "ResourceId",
    "ResourceType", "ServiceCategory", "ServiceName", "ServiceSubcategory", "SubAccountId", "Tags",
    "x_Pool", "x_Owner", "x_Job", "x_Cloud", "x_InstanceType", "x_CapacityType", "x_GpuHours", "x_UsefulGpuHours",
    "x_WastedGpuHours", "x_UnprovenGpuHours", "x_UsefulCost", "x_WastedCost", "x_UnprovenCost", "x_UnpricedHours",
    "x_PriceSource",
)  # fmt: skip
_STEP = Fraction(1, 10**12)
_DIGITS = Decimal("0.000001")
_PUBLISHERS = {**TITLES, "azure": "Microsoft"}
_CATEGORIES = {CapacityType.ON_DEMAND.value: "Standard", CapacityType.SPOT.value: "Dynamic"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def focus_table(spend: SpendBook, period: Period, by: str = "node") -> tuple[str, float]:
    """The table as CSV, and the machine-hours in it without a known price."""
    rows = [(day, row) for day, row in _days(spend, period, by) if row.terms.foreign is None]
    totals = [_total(row) for _, row in rows]
    costs = [
        _round([getattr(total, name) for total in totals])
        for name in ("usd", "usd_useful", "usd_wasted", "usd_unproven")
    ]
    text = io.StringIO()
    made = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    made.writeheader()
    for (day, row), total, *money in zip(rows, totals, *costs, strict=True):
        cells = _cells(row, total, day, period, money)
        made.writerow({name: _safe_text(value) for name, value in cells.items()})
    return text.getvalue(), sum(total.unpriced_ms for total in totals) / HOUR_MS


def _days(spend: SpendBook, period: Period, by: str) -> Iterator[tuple[date, Row]]:
    """What was metered on each day, in the order of days, pools, machines and workloads."""
    calendar = Calendar(period.zone)
    if by == "node":
        found = spend.rows(period.since, period.until, by_node=True, by_time=True)
        yield from sorted(_of_one_day(found, calendar), key=_order)
        return
    for number in range(period.days):
        day = period.first + timedelta(days=number)
        begin, end = calendar.midnight(day), calendar.midnight(day + timedelta(days=1))
        yield from sorted(((day, row) for row in spend.rows_by_holder(begin, end)), key=_order)


def _of_one_day(rows: Iterable[Row], calendar: Calendar) -> Iterator[tuple[date, Row]]:
    """The hours of a machine's day under the same terms as one row."""
    sums: dict[tuple[date, str, int], tuple[Row, list[int]]] = {}
    for row in rows:
        day = calendar.local((row.begin or 0) * 1000).date()
        key = (day, row.node_id or "", id(row.terms))
        before = sums.get(key)
        amounts = list(row.amounts) if before is None else [a + b for a, b in zip(before[1], row.amounts, strict=True)]
        sums[key] = (row, amounts)
    for (day, _, _), (row, amounts) in sums.items():
        yield day, Row(terms=row.terms, amounts=amounts, node_id=row.node_id)


def _order(item: tuple[date, Row]) -> tuple[str, ...]:
    day, row = item
    terms = row.terms
    job = row.holder.workload if row.holder else ""
    return (day.isoformat(), terms.pool, terms.owner or "", row.node_id or "", job, terms.instance_type, str(terms))


def _total(row: Row) -> Total:
    made = Total()
    made.add(row)
    return made


def _round(parts: Sequence[Fraction]) -> list[Decimal]:
    """Amounts to twelve digits, which add up to their sum to twelve digits."""
    _, made = round_parts({f"{place:09}": part for place, part in enumerate(parts)}, _STEP)
    return [Decimal(made[name]).scaleb(-12) for name in sorted(made)]


def _cells(row: Row, total: Total, day: date, period: Period, money: Sequence[Decimal]) -> Mapping[str, str]:
    """One row of the table."""
    terms, calendar = row.terms, Calendar(period.zone)
    cost, useful, wasted, unproven = (f"{each.normalize() + 0:f}" for each in money)
    first, following = day.replace(day=1), day.replace(day=28) + timedelta(days=4)
    job = "" if row.holder is None else row.holder.workload
    provider = _PUBLISHERS.get(terms.provider or "", terms.provider or "unknown")
    hours = _hours(total.node_ms)
    return {
        "BilledCost": cost,
        "BillingAccountId": terms.account or terms.cloud or "gpuwatch",
        "BillingCurrency": "USD",
        "BillingPeriodStart": _moment(calendar.midnight(first)),
        "BillingPeriodEnd": _moment(calendar.midnight(following.replace(day=1))),
        "ChargeCategory": "Usage",
        "ChargeDescription": f"{terms.instance_type} {terms.capacity_type}, metered by gpuwatch",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": _moment(calendar.midnight(day)),
        "ChargePeriodEnd": _moment(calendar.midnight(day + timedelta(days=1))),
        "ConsumedQuantity": hours,
        "ConsumedUnit": "Hours",
        "ContractedCost": cost,
        "EffectiveCost": cost,
        "InvoiceIssuerName": provider,
        "ListCost": _list_cost(row, total) or cost,
        "PricingCategory": _CATEGORIES.get(terms.capacity_type, "Committed"),
        "PricingQuantity": hours,
        "PricingUnit": "Hours",
        "ProviderName": provider,
        "PublisherName": provider,
        "RegionId": terms.region,
        "ResourceId": row.node_id or "",
        "ResourceType": "GPU machine" if row.node_id else "",
        "ServiceCategory": "Compute",
        "ServiceName": "GPU machines",
        "ServiceSubcategory": "Virtual Machines",
        "SubAccountId": terms.account or "",
        "Tags": json.dumps(dict(terms.tags), ensure_ascii=False, sort_keys=True),
        "x_Pool": terms.pool,
        "x_Owner": terms.owner or "",
        "x_Job": "" if job == NO_CLUSTER else job,
        "x_Cloud": terms.cloud or "",
        "x_InstanceType": terms.instance_type,
        "x_CapacityType": terms.capacity_type,
        "x_GpuHours": _hours(total.gpu_ms),
        "x_UsefulGpuHours": _hours(total.useful_ms),
        "x_WastedGpuHours": _hours(total.wasted_ms),
        "x_UnprovenGpuHours": _hours(total.unproven_ms),
        "x_UsefulCost": useful,
        "x_WastedCost": wasted,
        "x_UnprovenCost": unproven,
        "x_UnpricedHours": _hours(total.unpriced_ms),
        "x_PriceSource": terms.price_source or "",
    }


def _list_cost(row: Row, total: Total) -> str | None:
    """What it costs at the table's list price (rule 4); None: it was that, or the table lacks it."""
    terms = row.terms
    if not (terms.price_source or "").startswith(EFFECTIVE):
        return None
    places = catalogue.places(terms.provider or "", terms.instance_type, CapacityType(terms.capacity_type))
    listed = places.get(terms.region)
    if listed is None or listed.currency != "USD":
        return None
    usd = Fraction(listed.per_hour) * total.node_ms / HOUR_MS
    return f"{Decimal(round(usd * 10**6)).scaleb(-6).normalize() + 0:f}"


def _hours(ms: int) -> str:
    return f"{(Decimal(ms) / HOUR_MS).quantize(_DIGITS).normalize() + 0:f}"


def _moment(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _safe_text(value: str) -> str:
    """A cell that no spreadsheet takes for a formula (rule 5)."""
    number = value.lstrip("-").replace(".", "", 1).isdigit()
    return f"'{value}" if value.startswith(_FORMULA) and not number else value
