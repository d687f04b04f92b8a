"""What was billed in a period, sliced: asked of the ledger, as text and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction

from gpuwatch.model.currency import Currency, display_currency
from gpuwatch.model.money import format_usd, price_note
from gpuwatch.model.usage import HOUR_MS, USES
from gpuwatch.money.accounting.scope import CostScope, counted_scope
from gpuwatch.money.accounting.settings import EnergySettings
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import (
    BY_HOLDER,
    Energy,
    Named,
    Row,
    Total,
    TotalDocument,
    energy,
    grouping,
    money_parts,
    round_parts,
    total_document,
    total_documents,
    totals,
    whole,
)
from gpuwatch.money.report.anomalies import Anomaly
from gpuwatch.money.report.blocks import foreign_note, unpriced_note, unproven_note, usd
from gpuwatch.money.report.period import Period
from gpuwatch.money.unused import UnusedDocument
from gpuwatch.runtime.table import align_rows

_SCOPES: dict[CostScope, str] = {"fleet": "", "account": " All machines of the accounts count (cost.scope: account)."}
_LEAST_ASKED = ("silent", "unknown", "down", "stalled", "parked")
_OLD_DAYS = 90
_MANY_MS = 1000 * HOUR_MS  # from there on tenths of an hour, below hundredths
# What the columns mean; a narrow terminal leaves some of them out.
_MEANING = {
    "no use": "idle, parked, stalled and down, of all billed GPU-hours",
    "of cost": "wasted (the cost of no use), of the cost",
    "unproven": "the cost of silent and unknown time, which is no proven waste",
    "silent": "no round observed that time",
    "unknown": "the use of that time is not known",
}

_HOLDERS = (
    "Billed is what pods request, useful what they use; (unallocated): no pod requests it; (not known): nobody "
    "saw which pods had it; (no cluster): of machines outside Kubernetes. Energy is divided as GPU-hours are."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A period, sliced. `began` is when metering began (ms since 1970); `cut`: a row lies across one of its ends."""

    period: Period
    by: str
    groups: Mapping[str, Total]
    whole: Total
    began: int | None
    cut: bool
    prices: tuple[date, date] | None = None  # the oldest and the newest; None: no price has a day
    elsewhere: str | None = None  # that some prices are of another region


def cost_report(spend: SpendBook, period: Period, by: str) -> Report:
    """What the ledger says of a period.

    Raises:
        ValueError: there is no such slicing.

    """
    group = grouping(by, Calendar(period.zone))
    if by in BY_HOLDER:
        rows = spend.rows_by_holder(period.since, period.until)
    else:
        rows = spend.rows(period.since, period.until, by_node=by == "node", by_time=by == "day")
    groups = totals(rows, group)
    days = [row.terms.price_as_of for row in rows if row.terms.price_as_of is not None]
    return Report(
        period=period,
        by=by,
        groups=groups,
        whole=whole((groups if by != "day" else totals(spend.rows(period.since, period.until), _one_group)).values()),
        began=spend.began(),
        cut=spend.cut(period.since, period.until),
        prices=(min(days), max(days)) if days else None,
        elsewhere=price_note(row.terms.price_source for row in rows),
    )


def _one_group(_: Row) -> str:
    """Rows by day do not name their machines; those of the whole period do."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTotal(TotalDocument):
    """A total with its energy."""

    energy: Energy


@dataclass(frozen=True, slots=True, kw_only=True)
class CostGroup(CostTotal, Named):
    """One group of the slicing; the groups add up to the total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostDocument:
    """What was billed from `since` to before `until`.

    `metered_since` is null before the first metering. `cut`: a row lies across an end of the period. `anomalies` are of
    the last day that is over. `wrong` are totals that differ from their single rows (`--explain`). `unused` is null
    without `--unused`. `scope` is which machines count (`cost.scope`).
    """

    since: datetime
    until: datetime
    timezone: str
    scope: CostScope
    metered_since: datetime | None
    cut: bool
    by: str
    currency: Currency | None
    groups: tuple[CostGroup, ...]
    total: CostTotal
    prices_from: date | None
    prices_to: date | None
    anomalies: tuple[Anomaly, ...] = ()
    wrong: Sequence[str] | None = None
    unused: UnusedDocument | None = None


def cost_document(report: Report, factors: EnergySettings) -> CostDocument:
    """Everything: times exact in milliseconds, money to the cent, so that the groups add up to the whole."""
    oldest, newest = report.prices or (None, None)
    return CostDocument(
        since=_time(report.period.since * 1000),
        until=_time(report.period.until * 1000),
        timezone=report.period.zone.key,
        scope=counted_scope(),
        metered_since=None if report.began is None else _time(report.began),
        cut=report.cut,
        by=report.by,
        currency=display_currency().unless_usd,
        groups=total_documents(
            CostGroup,
            report.groups,
            lambda name: {"name": name, "energy": energy(report.groups[name], factors)},
        ),
        total=total_document(CostTotal, report.whole, energy=energy(report.whole, factors)),
        prices_from=oldest,
        prices_to=newest,
    )


def as_text(report: Report, factors: EnergySettings) -> str:
    """A table with the dearest first, and what is to be known about it."""
    if report.began is None:
        return "Nothing is metered yet; `gpuwatch controller` does it from its first round on."
    about = f"Billed {report.period} ({report.period.zone.key}), by {report.by}; metered since {_utc(report.began)}."
    lines = [
        about + _SCOPES[counted_scope()],
        "",
        *(table := _table(report)),
        "",
        "; ".join(f"{head}: {means}" for head, means in _MEANING.items() if head in table[0]) + ".",
    ]
    if report.by in BY_HOLDER:
        lines.append(_HOLDERS)
    lines += notes(report.whole)
    lines += filter(None, [report.elsewhere])
    lines += _age(report)
    if report.cut:
        lines.append("A row lies across the begin or the end of this period: it counts to the one in which it begins.")
    lines += _energy_lines(energy(report.whole, factors))
    return "\n".join([*lines, *filter(None, [display_currency().note])])


def notes(total: Total) -> list[str]:
    """What the sums of money do not say by themselves."""
    lines = []
    if total.unproven_ms:
        lines.append(unproven_note(total))
    if total.unpriced_ms:
        lines.append(unpriced_note(total))
    if total.foreign.node_ms:
        lines.append(foreign_note(total))
    return lines


def _age(report: Report) -> list[str]:
    """Of which days the prices are: list prices change, and old ones mislead."""
    if report.prices is None:
        return []
    oldest, newest = report.prices
    days = (report.period.first - oldest).days
    span = f"{oldest}" if oldest == newest else f"{oldest} to {newest}"
    old = ""
    if days > _OLD_DAYS:
        old = f"; the oldest is {days} days older than this period: see `gpuwatch prices`, prices.live"
    return [f"Prices are of {span}{old}."]


def _table(report: Report) -> list[str]:
    """Each column adds up to its last cell; a group of foreign machines alone is no row."""
    groups = {name: each for name, each in report.groups.items() if each.node_ms or not each.foreign.node_ms}
    columns = {"billed": {name: Fraction(each.gpu_ms) for name, each in groups.items()}}
    for use in USES:
        columns[use.value] = {name: Fraction(each.gpu_ms_by_use[use]) for name, each in groups.items()}
    digits = 1 if report.whole.gpu_ms >= _MANY_MS else 2
    hours = {head: round_parts(column, Fraction(HOUR_MS, 10**digits)) for head, column in columns.items()}
    cent = display_currency().cent
    cost, wasted, unproven = money_parts(groups, cent)
    rows = [[report.by, *columns, "no use", "cost", "wasted", "of cost", "unproven"]]
    for name, each in sorted(groups.items(), key=lambda item: (-item[1].usd, -item[1].gpu_ms, item[0])):
        cells = [f"{parts[name] / 10**digits:,.{digits}f}" for _, parts in hours.values()]
        rows.append([name, *cells, *_money(each, cost[1][name], wasted[1][name], unproven[1][name])])
    cells = [f"{total / 10**digits:,.{digits}f}" for total, _ in hours.values()]
    rows.append(["all", *cells, *_money(report.whole, cost[0], wasted[0], unproven[0])])
    return align_rows(rows, spare=_spare(rows, unproven=report.whole.unproven_ms > 0))


def _spare(rows: Sequence[Sequence[str]], *, unproven: bool) -> dict[int, int]:
    """The columns that a narrow terminal may leave out: what no machine did first, then what few people ask for."""
    heads = rows[0]
    last = [heads.index(use) for use in _LEAST_ASKED]
    nothing = [column for column in last if not float(rows[-1][column].replace(",", ""))]
    shares = [heads.index("of cost"), heads.index("no use")]
    order = [*shares, *(column for column in reversed(last) if column not in nothing), *nothing]
    if not unproven:
        order.append(heads.index("unproven"))
    return {column: rank for rank, column in enumerate(order, start=1)}


def _money(total: Total, cost: int, wasted: int, unproven: int) -> list[str]:
    """Its share of hours stands by the hours, that of dollars by the dollars."""
    ratios = _ratio(total.waste_ratio), _ratio(total.usd_waste_ratio)
    return [ratios[0], usd(total, cost), usd(total, wasted), ratios[1], usd(total, unproven)]


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.1%}"


def _energy_lines(found: Energy) -> list[str]:
    """What was measured, what was not, and the result with the stated factors."""
    if found.measured_ratio is None:
        return []
    measured = f"measured over {found.measured_ratio:.1%} of their billed time"
    line = f"Energy: {found.gpu_kwh:,.1f} kWh of the GPUs, {measured}"
    if found.unmeasured_gpu_hours > 0:
        line += f" ({found.unmeasured_gpu_hours:,.1f} GPU-hours are not)"
    if found.host_kwh is not None:
        line += f"; {found.host_kwh:,.1f} kWh of the hosts by cost.energy.host_watts"
    if found.facility_kwh is not None:
        line += f"; {found.facility_kwh:,.1f} kWh with the building by cost.energy.pue"
    if found.usd is not None:
        line += f"; {format_usd(found.usd)} of power by cost.energy.usd_per_kwh, in no sum above"
    if found.co2e_kg is not None:
        line += f"; {found.co2e_kg:,.1f} kg of CO2e by cost.energy.co2e_grams_per_kwh"
    return [line + "."]


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC)


def _utc(ms: int) -> str:
    return f"{_time(ms):%Y-%m-%dT%H:%M:%SZ}"
