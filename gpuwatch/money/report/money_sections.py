"""The sections about money to come and money not spent: savings, budgets, forecast; and energy."""

from collections.abc import Iterator, Mapping
from decimal import Decimal

from gpuwatch.model.budget import BudgetState
from gpuwatch.model.currency import shown_in
from gpuwatch.model.money import format_cents, format_usd
from gpuwatch.model.usage import HOUR_MS
from gpuwatch.money.accounting.savings import Saving
from gpuwatch.money.accounting.totals import shown
from gpuwatch.money.budgets.table import TOO_EARLY
from gpuwatch.money.report.blocks import Part, Table, Words, percent
from gpuwatch.money.report.report import Report

_HOW = (
    "An estimate: the hours from when gpuwatch stopped a machine to when it next ran, at the price frozen with the "
    "stop. It assumes that without the stop the machine would have run idle until it was started "
    "again. Somebody else's start is known to the hour, or to the day once a day is summed up. Terminated machines "
    "count nothing."
)
_MOST = 10


def saved(report: Report) -> Iterator[Part]:
    """What stops saved, by pool and owner, and how that is computed."""
    savings, whole = report.facts.saved, report.facts.saved.whole
    if savings.stops:
        stops = f"{savings.stops:,} stop{'s' if savings.stops != 1 else ''}"
        hours = f"{whole.ms / HOUR_MS:,.1f} machine-hours"
        yield Words((f"{stops} saved {hours}, about {format_usd(whole.usd)}.",))
        for by, parts in (("pool", savings.by_pool), ("owner", savings.by_owner)):
            yield _parts(by, parts, whole)
    notes = []
    if whole.unpriced_ms:
        notes.append(f"{whole.unpriced_ms / HOUR_MS:,.1f} of these hours have no known price.")
    if savings.stops and savings.still_known:
        still = format_usd(whole.still_usd)
        notes.append(f"What stopped machines' disks and addresses cost meanwhile, {still}, is taken off.")
    elif savings.stops:
        notes.append("What the stopped machines' disks cost meanwhile was not asked, and is not taken off.")
    if savings.endless:
        notes.append(f"{savings.endless:,} stops count nothing: it is not known for how long they held.")
    if savings.stops or savings.endless:
        yield Words((*notes, _HOW))


def _parts(by: str, parts: Mapping[str, Saving], whole: Saving) -> Table:
    """The largest first, the others in one row; all rows add up to the last."""
    _, cents = shown({name: each.usd for name, each in parts.items()}, shown_in().cent)
    names = sorted(parts, key=lambda name: (-cents[name], -parts[name].ms, name))
    rows = [(name, f"{parts[name].ms / HOUR_MS:,.1f}", format_cents(cents[name])) for name in names[:_MOST]]
    if rest := names[_MOST:]:
        hours = sum(parts[name].ms for name in rest) / HOUR_MS
        rows.append((f"{len(rest):,} others", f"{hours:,.1f}", format_cents(sum(cents[name] for name in rest))))
    rows.append(("all", f"{whole.ms / HOUR_MS:,.1f}", format_usd(whole.usd)))
    heads = (by, "machine-hours", "saved")
    return Table(caption=f"Saved by {by}", heads=heads, rows=tuple(rows), left=frozenset({0}), summed=True)


def budgets(report: Report) -> Iterator[Part]:
    """Each month's budget: what is spent, and where it will end."""
    states = report.facts.budgets
    if not states:
        return
    rows = [
        (
            state.name,
            str(state.scope),
            format_usd(state.usd_per_month, "?"),
            format_usd(state.spent_usd, "?"),
            "-" if state.spent_usd is None else percent(float(state.spent_usd / state.usd_per_month)),
            format_usd(state.forecast_usd, TOO_EARLY if state.doubt is None else "?"),
            "-" if state.probability_over is None else f"{state.probability_over:.0%}",
        )
        for state in states
    ]
    heads = ("budget", "scope", "a month", "spent", "of it", "forecast", "over with")
    yield Table(caption=f"Budgets of {states[0].month}", heads=heads, rows=tuple(rows), left=frozenset({0, 1}))
    words = tuple(word for state in states for word in _of(state))
    if words:
        yield Words(words)


def _of(state: BudgetState) -> Iterator[str]:
    """What there is to say of one budget."""
    if state.doubt is not None:
        yield f"{state.name}: {state.doubt}."
    elif state.forecast_usd is None:
        yield from (f"{state.name}: {note}." for note in state.notes)
    if state.reaches_at is not None:
        yield f"{state.name}: at the forecast's pace all of it is spent on {state.reaches_at:%Y-%m-%d}."
    if state.blocked is not None:
        yield f"{state.name}: no machine is added, for {state.blocked}."
    if state.hastening is not None:
        yield f"{state.name}: idle machines go sooner, for {state.hastening.why}."


def forecast(report: Report) -> Iterator[Part]:
    """The month's end and the year ahead, each with its interval."""
    month = report.month
    if month is None:
        if report.no_forecast is not None and report.facts.began is not None:
            yield Words((f"There is no forecast: {report.no_forecast}.",))
        return
    words = f"{month.month:%B %Y} will end at {format_usd(month.expected)}"
    if month.lower is not None and month.upper is not None:
        words += f", with 80 % between {format_usd(month.lower)} and {format_usd(month.upper)}"
    words += f"; {format_usd(month.actual)} are of days that are over (method: {month.method})."
    notes = [f"{note[0].upper()}{note[1:]}." for note in month.warnings]
    yield Words((words, *notes))
    if report.year:
        rows = [
            (f"{each.month:%Y-%m}", format_usd(each.expected), format_usd(each.lower, "?"), format_usd(each.upper, "?"))
            for each in report.year
        ]
        total = sum((each.expected for each in report.year), Decimal(0))
        rows.append(("all", format_usd(total), "", ""))
        heads = ("month", "expected", "lower", "upper")
        caption = "The twelve months after it, at the level of the last 28 days (80 % intervals)"
        yield Table(caption=caption, heads=heads, rows=tuple(rows), left=frozenset({0}), summed=True)


def energy(report: Report) -> Iterator[Part]:
    """As measured; factors only where somebody states them."""
    used = report.energy
    if not used.measured_ratio:
        return
    words = [f"{used.gpu_kwh:,.1f} kWh of the GPUs, measured over {percent(used.measured_ratio)} of their billed time."]
    if used.host_kwh is not None:
        words.append(f"{used.host_kwh:,.1f} kWh of the hosts, by cost.energy.host_watts.")
    if used.facility_kwh is not None:
        words.append(f"{used.facility_kwh:,.1f} kWh with the building, by cost.energy.pue.")
    if used.usd is not None:
        words.append(f"{format_usd(used.usd)} of power, by cost.energy.usd_per_kwh; it is in no sum above.")
    if used.co2e_kg is not None:
        words.append(f"{used.co2e_kg:,.1f} kg of CO2e, by cost.energy.co2e_grams_per_kwh.")
    yield Words(tuple(words))
