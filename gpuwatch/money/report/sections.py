"""What a report says, in which order and in which words; every renderer shows these sections and nothing else."""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from gpuwatch.model.currency import display_currency
from gpuwatch.model.duration import format_duration
from gpuwatch.model.money import format_cents, format_usd, price_note
from gpuwatch.model.readable import how_many
from gpuwatch.model.usage import HOUR_MS, Use
from gpuwatch.money.accounting.totals import TAG, Total, round_parts, whole
from gpuwatch.money.report import fleet_sections, money_sections
from gpuwatch.money.report.blocks import (
    Bars,
    Figure,
    Figures,
    Part,
    Section,
    Table,
    Words,
    bar_of,
    foreign_note,
    percent,
    unpriced_note,
    unproven_cents,
    usd,
)
from gpuwatch.money.report.report import Line, Report

_MOST_LINES = 10
_ONE_AND_ALL = 2  # rows of a table that says nothing more than the figures at the top
_SHOWN = frozenset({"pool", "owner", "node", "namespace", "workload"})  # the others are in the JSON document
_TENTH_HOUR = Fraction(HOUR_MS, 10)
OVER_TIME = "Cost over time"
WASTE = (
    "Wasted is what GPUs cost that were seen idle, parked, stalled or down; shares of it are of the cost. Where nobody "
    "knows the use, it is not proven waste"
)


def title(report: Report) -> str:
    """The heading, and a mail's subject."""
    return f"GPU report for {report.facts.period}"


def headline(report: Report) -> str:
    """The day in one sentence."""
    if report.facts.began is None:
        return "Nothing is metered yet; the controller does it from its first round on."
    if not report.whole.node_ms:
        if report.whole.foreign.node_ms:
            return f"No machine of this fleet was billed. {foreign_note(report.whole)}"
        return "No machine was billed."
    machines = len({line.name for line in report.slices["node"] if line.total.node_ms})
    waste, unproven = report.whole.waste_ratio, report.unproven_cents
    sentence = f"{machines:,} machine{'s' if machines != 1 else ''} cost {usd(report.whole, report.cents)}"
    of_cost = report.whole.usd_waste_ratio
    if of_cost is not None:
        sentence += f"; {usd(report.whole, report.wasted_cents)} of it ({percent(of_cost)}) was proven waste"
        if unproven:
            sentence += f", and nobody knows the use of another {format_cents(unproven)}"
    elif waste is not None:
        sentence += f"; {percent(waste)} of the GPU-hours were proven waste"
        if report.whole.unproven_ratio:
            sentence += f", and nobody knows the use of another {percent(report.whole.unproven_ratio)}"
    return " ".join(filter(None, (f"{sentence}.", _saved_words(report), display_currency().note)))


def _saved_words(report: Report) -> str:
    saved = report.facts.saved.whole
    if not saved.ms:
        return ""
    return f"Stopping idle machines saved about {format_usd(saved.usd)}."


def sections(report: Report) -> Iterator[Section]:
    """All of them that have something to say; where no machine was billed, those that would hold zeros are left out."""
    billed = report.whole.node_ms or report.whole.foreign.node_ms
    for name, parts_of in _SECTIONS if billed else _WITHOUT_MACHINES:
        parts = tuple(parts_of(report))
        if parts:
            by_cloud = parts_of is _waste and len(report.slices["cloud"]) > 1
            yield Section(title="Waste, by cloud, pool and owner" if by_cloud else name, parts=parts)


def figures(report: Report) -> Figures:
    """The key figures at the top."""
    total, saved = report.whole, report.facts.saved
    useful = "-" if not total.gpu_ms else percent(total.useful_ms / total.gpu_ms)
    stops = f"{saved.stops:,} stop{'s' if saved.stops != 1 else ''}, {saved.whole.ms / HOUR_MS:,.1f} machine-hours"
    lacking = "+?" if saved.whole.unpriced_ms else ""
    made = [
        Figure("Cost", usd(total, report.cents), against(report)),
        Figure("Wasted", usd(total, report.wasted_cents), _wasted_part(total)),
        *_unproven_figure(total),
        *_foreign_figure(total),
        Figure("Saved (estimate)", f"{format_usd(saved.whole.usd)}{lacking}", stops),
        Figure("Useful", useful, f"of {total.gpu_ms / HOUR_MS:,.1f} GPU-hours"),
    ]
    seen = report.facts.inventory
    if seen is not None:
        made.append(
            Figure(
                "Idle now",
                f"{len(seen.machines.idle):,}",
                f"of {seen.machines.states.get('running', 0):,} running machines",
            )
        )
    if report.month is not None:
        ends, how = ("ended", "all its days are over") if report.month_is_over else ("will end", "forecast")
        made.append(Figure(f"{report.month.month:%B} {ends} at", format_usd(report.month.expected), how))
    return Figures(tuple(made))


def _unproven_figure(total: Total) -> Iterator[Figure]:
    """Next to the waste, never in it."""
    if total.unproven_ms:
        yield Figure("Use not known", usd(total, unproven_cents(total)), "no proven waste")


def _foreign_figure(total: Total) -> Iterator[Figure]:
    """What the foreign machines cost, which is in no other figure."""
    found = total.foreign
    if found.node_ms:
        value = "unknown" if found.unpriced else f"{format_usd(found.usd)}{'+?' if found.unpriced_ms else ''}"
        yield Figure("Not ours", value, f"{how_many(len(found.machines), 'machine')}, in no sum")


def _wasted_part(total: Total) -> str:
    """Dollars have a share of dollars; where no price is known, it is one of GPU-hours."""
    if total.usd_waste_ratio is not None:
        return f"{percent(total.usd_waste_ratio)} of the cost"
    return "-" if total.waste_ratio is None else f"{percent(total.waste_ratio)} of the GPU-hours"


def against(report: Report) -> str:
    """The cost compared with that of the same days before; of days that are not over, whole ones alone count."""
    before = report.before_days
    if not before.days:
        return "no whole day is over yet"
    name = f"the {before.first:%A} before" if before.days == 1 else f"{before}"
    if report.before is None:
        return f"nothing metered on {name}" if before.days == 1 else f"nothing metered in {name}"
    if not report.before.usd:
        return f"{format_cents(0)} on {name}"
    change = float(report.compared.usd / report.before.usd) - 1
    days = report.facts.period.days
    lengths = f", {days} days against {before.days}" if report.over and days != before.days else ""
    return f"{change:+.1%} against {name}{lengths}"


def _doubts(report: Report) -> Iterator[Part]:
    """What the figures lack."""
    facts, zone = report.facts, report.facts.period.zone
    notes = []
    if not report.over:
        notes.append(f"These days are not over: figures are as of {facts.now.astimezone(zone):%Y-%m-%d %H:%M}.")
    if facts.began is not None and facts.began.timestamp() > facts.period.since:
        notes.append(f"Metering began at {facts.began.astimezone(zone):%Y-%m-%d %H:%M}; nothing before it is known.")
    if facts.rounds.gaps:
        begin, end = (each.astimezone(zone) for each in facts.rounds.gaps[0])
        more = len(facts.rounds.gaps) - 1
        notes.append(
            f"There was no round for {format_duration(facts.rounds.gap_seconds)}: from {begin:%Y-%m-%d %H:%M} to "
            f"{end:%Y-%m-%d %H:%M}{f', and {more} shorter gaps' if more else ''}."
        )
    for use, words in ((Use.SILENT, "there is no observation"), (Use.UNKNOWN, "the use is not known")):
        ms = report.whole.gpu_ms_by_use[use]
        if ms:
            notes.append(f"Of {ms / HOUR_MS:,.1f} GPU-hours {words}; they are no proven waste ({use.value}).")
    if report.whole.unpriced_ms:
        notes.append(unpriced_note(report.whole))
    if report.whole.foreign.node_ms:
        notes.append(foreign_note(report.whole))
    notes += filter(None, [price_note(row.terms.price_source for row in facts.nodes)])
    if facts.cut:
        notes.append("A row lies across the begin or the end of these days; it counts to those in which it begins.")
    if facts.unseen:
        notes.append(f"Days of the forecast's history without rounds, and so without a value: {len(facts.unseen)}.")
    if notes:
        yield Words(tuple(notes))


def _over_time(report: Report) -> Iterator[Part]:
    """Where in time the money went; each bar's share is of the bar."""
    for caption, steps in (("", report.steps), ("The two weeks up to it", report.days)):
        if len(steps) > 1:
            yield Bars(caption or f"By {report.unit}", tuple(bar_of(step.label, step.total) for step in steps))


def _waste(report: Report) -> Iterator[Part]:
    """Who and what wasted how much. One pool, owner or tag alone has no table: its figures are those at the top."""
    for by, found in report.slices.items():
        tag = by.startswith(TAG)
        if by in _SHOWN or tag or (by == "cloud" and len(found) > 1):
            name = f"tag {by.removeprefix(TAG)}" if tag else {"node": "machine"}.get(by, by)
            table = _slice(f"By {name}", name, found, report)
            if len(table.rows) > _ONE_AND_ALL or by == "node":
                yield table


def _slice(caption: str, by: str, found: Sequence[Line], report: Report) -> Table:
    """The worst of them, and the others in one row: in each column the rows add up to the last one.

    What has foreign machines alone is not among them.
    """
    found = [line for line in found if line.total.node_ms or not line.total.foreign.node_ms]
    hours = [
        round_parts({line.name: Fraction(ms(line.total)) for line in found}, _TENTH_HOUR) for ms in _COLUMNS.values()
    ]
    rows = []
    for line in found[:_MOST_LINES]:
        name = fleet_sections.machine_name(report, line.name) if by == "machine" else line.name
        tenths = [parts[line.name] for _, parts in hours]
        rows.append((name, *_cells(tenths, line.total, line.cents, line.wasted_cents, line.unproven_cents)))
    rest = found[_MOST_LINES:]
    if rest:
        tenths = [sum(parts[line.name] for line in rest) for _, parts in hours]
        cents = tuple(
            sum(column)
            for column in zip(*((line.cents, line.wasted_cents, line.unproven_cents) for line in rest), strict=True)
        )
        rows.append((f"{len(rest):,} others", *_cells(tenths, whole(line.total for line in rest), *cents)))
    tenths = [total for total, _ in hours]
    rows.append(("all", *_cells(tenths, report.whole, report.cents, report.wasted_cents, report.unproven_cents)))
    heads = (by, *_COLUMNS, "cost", "wasted", "of cost", "unproven")
    return Table(
        caption=caption, heads=heads, rows=tuple(rows), left=frozenset({0}), summed=True, extra=frozenset({2, 3})
    )


def _cells(tenths: Sequence[int], total: Total, *cents: int) -> tuple[str, ...]:
    """Hours, and from the cents of the cost, of the waste and of what is not proven the money."""
    waste = "-" if total.usd_waste_ratio is None else percent(total.usd_waste_ratio)
    cost, wasted, unproven = (usd(total, each) for each in cents)
    return (*(f"{tenth / 10:,.1f}" for tenth in tenths), cost, wasted, waste, unproven)


_COLUMNS: dict[str, Callable[[Total], int]] = {
    "GPU-hours": lambda total: total.gpu_ms,
    "useful": lambda total: total.gpu_ms_by_use[Use.USEFUL],
    "idle": lambda total: sum(total.gpu_ms_by_use[use] for use in (Use.IDLE, Use.PARKED, Use.STALLED)),
}
_SECTIONS: tuple[tuple[str, Callable[[Report], Iterator[Part]]], ...] = (
    ("What is not usual", money_sections.anomalies),
    ("What is not known", _doubts),
    (OVER_TIME, _over_time),
    ("Waste, by pool and owner", _waste),
    ("Idle machines", fleet_sections.idle),
    ("GPUs that Slurm jobs hold and do not use", fleet_sections.unused_gpus),
    ("What holds savings back", money_sections.blocked_parts),
    ("Stopped machines", fleet_sections.stopped_parts),
    ("Saved", money_sections.saved_parts),
    ("Since metering began", money_sections.progress),
    ("What gpuwatch did", fleet_sections.actions),
    ("Health", fleet_sections.health),
    ("Disks and what is left over", money_sections.storage),
    ("Budgets", money_sections.budgets),
    ("Forecast", money_sections.forecast),
    ("Energy", money_sections.energy),
    ("Prices", money_sections.prices),
)
_OF_BILLED = frozenset(
    {OVER_TIME, "Waste, by pool and owner", "Saved", "Since metering began", "Forecast", "Energy", "Prices"}
)
_WITHOUT_MACHINES = tuple(each for each in _SECTIONS if each[0] not in _OF_BILLED)
