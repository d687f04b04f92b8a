"""What was billed in a period, sliced: asked of the ledger, as text and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from gpuwatch.model.usage import HOUR_MS, USES
from gpuwatch.money.accounting.energy import Energy, EnergySettings, energy
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import Total, grouping, shown, totals, whole
from gpuwatch.money.report.period import Period
from gpuwatch.runtime.printable import legible

_CENT = Fraction(1, 100)
_MANY_MS = 1000 * HOUR_MS  # from there on tenths of an hour, below hundredths
_WASTE = "Waste is billed GPU-hours without useful activity / billed GPU-hours"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A period, sliced. `began` is when metering began (ms since 1970); `cut`: a row lies across one of its ends."""

    period: Period
    by: str
    groups: Mapping[str, Total]
    whole: Total
    began: int | None
    cut: bool


def spent(spend: SpendBook, period: Period, by: str) -> Report:
    """What the ledger says of a period.

    Raises:
        ValueError: there is no such slicing.

    """
    group = grouping(by, Calendar(period.zone))
    rows = spend.rows(period.since, period.until, by_node=by == "node", by_time=by == "day")
    groups = totals(rows, group)
    return Report(
        period=period,
        by=by,
        groups=groups,
        whole=whole(groups.values()),
        began=spend.began(),
        cut=spend.cut(period.since, period.until),
    )


def as_object(report: Report, factors: EnergySettings) -> dict[str, Any]:
    """Everything: times exact in milliseconds, money to the cent, so that the groups add up to the whole."""
    usd, usd_of = shown({name: each.usd for name, each in report.groups.items()}, _CENT)
    wasted, wasted_of = shown({name: each.usd_wasted for name, each in report.groups.items()}, _CENT)
    return {
        "since": _utc(report.period.since * 1000),
        "until": _utc(report.period.until * 1000),
        "timezone": report.period.zone.key,
        "metered_since": None if report.began is None else _utc(report.began),
        "cut": report.cut,
        "by": report.by,
        "groups": [
            {"name": name, **_total(each, usd_of[name], wasted_of[name], factors)}
            for name, each in report.groups.items()
        ],
        "total": _total(report.whole, usd, wasted, factors),
    }


def as_text(report: Report, factors: EnergySettings) -> str:
    """A table with the dearest first, and what is to be known about it."""
    if report.began is None:
        return "Nothing is metered yet; `gpuwatch controller` does it from its first round on."
    lines = [f"Billed {report.period}, by {report.by}; metered since {_utc(report.began)}.", "", *_table(report), ""]
    lines.append(f"{_WASTE}; silent is time of which nobody looked, unknown of which nobody could tell.")
    lines += notes(report.whole)
    if report.cut:
        lines.append("A row lies across the begin or the end of this period: it counts to the one in which it begins.")
    lines += _energy_lines(energy(report.whole, factors))
    return "\n".join(lines)


def notes(total: Total) -> list[str]:
    """What the sums of money do not say by themselves."""
    lines = []
    doubtful = total.usd_wasted - total.usd_wasted_for_sure
    if doubtful:
        lines.append(f"Of what was wasted {dollars(round(doubtful / _CENT))} are of silent and unknown time.")
    if total.unpriced_ms:
        hours = total.unpriced_ms / HOUR_MS
        lines.append(f"{hours:.1f} machine-hours have no known price: they are in no sum of money.")
    return lines


def dollars(cents: int) -> str:
    """With all digits."""
    return f"${cents / 100:,.2f}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns; the first one to the left, the others to the right."""
    rows = [[legible(cell) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]


def _table(report: Report) -> list[str]:
    """Each column adds up to its last cell."""
    columns = {"billed": {name: Fraction(each.gpu_ms) for name, each in report.groups.items()}}
    for use in USES:
        columns[use.value] = {name: Fraction(each.gpu_ms_by_use[use]) for name, each in report.groups.items()}
    digits = 1 if report.whole.gpu_ms >= _MANY_MS else 2
    hours = {head: shown(column, Fraction(HOUR_MS, 10**digits)) for head, column in columns.items()}
    cost = shown({name: each.usd for name, each in report.groups.items()}, _CENT)
    wasted = shown({name: each.usd_wasted for name, each in report.groups.items()}, _CENT)
    rows = [[report.by, *columns, "waste", "cost", "wasted"]]
    for name, each in sorted(report.groups.items(), key=lambda item: (-item[1].usd, -item[1].gpu_ms, item[0])):
        cells = [f"{told[1][name] / 10**digits:,.{digits}f}" for told in hours.values()]
        rows.append([name, *cells, _ratio(each), _usd(each, cost[1][name]), _usd(each, wasted[1][name])])
    cells = [f"{told[0] / 10**digits:,.{digits}f}" for told in hours.values()]
    rows.append(["all", *cells, _ratio(report.whole), _usd(report.whole, cost[0]), _usd(report.whole, wasted[0])])
    return aligned(rows)


def _ratio(total: Total) -> str:
    return "-" if total.waste_ratio is None else f"{total.waste_ratio:.1%}"


def _usd(total: Total, cents: int) -> str:
    """Unknown where no machine has a price, more than that where some have none."""
    if total.unpriced_ms and total.unpriced_ms == total.node_ms:
        return "unknown"
    return f"{dollars(cents)}{'+?' if total.unpriced_ms else ''}"


def _total(total: Total, cents: int, wasted_cents: int, factors: EnergySettings) -> dict[str, Any]:
    unknown = total.unpriced_ms > 0 and total.unpriced_ms == total.node_ms
    return {
        "gpu_hours": total.gpu_ms / HOUR_MS,
        "machine_hours": total.node_ms / HOUR_MS,
        "gpu_ms": {"billed": total.gpu_ms, **{use.value: ms for use, ms in total.gpu_ms_by_use.items()}},
        "waste_ratio": total.waste_ratio,
        "usd": None if unknown else f"{cents // 100}.{cents % 100:02}",
        "usd_wasted": None if unknown else f"{wasted_cents // 100}.{wasted_cents % 100:02}",
        "unpriced_machine_hours": total.unpriced_ms / HOUR_MS,
        "energy": asdict(energy(total, factors)),
    }


def _energy_lines(told: Energy) -> list[str]:
    """What was measured, what was not, and what the stated factors make of it."""
    if told.measured_ratio is None:
        return []
    measured = f"measured over {told.measured_ratio:.1%} of their billed time"
    line = f"Energy: {told.gpu_kwh:,.1f} kWh of the GPUs, {measured}"
    if told.unmeasured_gpu_hours > 0:
        line += f" ({told.unmeasured_gpu_hours:,.1f} GPU-hours are not)"
    if told.host_kwh is not None:
        line += f"; {told.host_kwh:,.1f} kWh of the hosts by cost.energy.host_watts"
    if told.facility_kwh is not None:
        line += f"; {told.facility_kwh:,.1f} kWh with the building by cost.energy.pue"
    if told.co2e_kg is not None:
        line += f"; {told.co2e_kg:,.1f} kg of CO2e by cost.energy.co2e_grams_per_kwh"
    return [line + "."]


def _utc(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
