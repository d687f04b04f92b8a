"""The sections about money to come and money not spent: savings, what holds them back, budgets, forecast; energy."""

from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from fractions import Fraction

from gpuwatch.clouds import LeftoverKind
from gpuwatch.model.budget import BudgetState
from gpuwatch.model.currency import display_currency
from gpuwatch.model.money import day_with_age, format_cents, format_usd
from gpuwatch.model.readable import how_many
from gpuwatch.model.usage import HOUR_MS
from gpuwatch.money.accounting.savings import Saving
from gpuwatch.money.accounting.totals import Total, round_parts
from gpuwatch.money.blocked.blocked import Group
from gpuwatch.money.blocked.text import frees_text, round_money, sums, usd_text
from gpuwatch.money.budgets.table import TOO_EARLY
from gpuwatch.money.report.blocks import Bar, Bars, Part, Table, Words, bar_of, percent
from gpuwatch.money.report.progress import DAYS, FULL_WEEKS, Pair, Progress, Week
from gpuwatch.money.report.report import PriceDays, Report
from gpuwatch.money.storage import STORAGE_AS_OF, STORAGE_SOURCE, StorageRow

_HOW = (
    "An estimate: a machine saves, at the price frozen with its stop, until somebody needs it. If nobody does, it "
    "saves for as long as its pool's machines have usually stayed off, or 30 days where that is not known; after that "
    "it is still off. A termination saves until its pool launches the next machine, by the same rule. Somebody else's "
    "start is known to the hour, or to the day once a day is summed up."
)
_MOST = 10
_MOST_BARS = 26
_MOST_SOURCES = 3  # in the text; JSON has all
_WORDS: dict[str, str] = {
    LeftoverKind.RUNNING_VOLUME: "disks of machines in use",
    LeftoverKind.STOPPED_VOLUME: "disks of stopped machines",
    LeftoverKind.UNATTACHED_VOLUME: "disks, attached to nothing",
    LeftoverKind.STOPPED_ADDRESS: "addresses of stopped machines",
    LeftoverKind.UNUSED_ADDRESS: "addresses, used by nothing",
    LeftoverKind.SNAPSHOT: "snapshots of disks that are gone",
    LeftoverKind.IMAGE: "images, named by no machine or template",
}
_GIB = 1024**3


def saved_parts(report: Report) -> Iterator[Part]:
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
    if savings.regretted:
        waited = format_usd(whole.waiting_usd)
        several = savings.regretted != 1
        notes.append(
            f"{how_many(savings.regretted, 'stop')} {'were' if several else 'was'} regretted, because the "
            f"machine{'s' * several} {'were' if several else 'was'} needed again at once or got no place: {waited} for "
            "people's waits is taken off."
        )
    if savings.still_off:
        notes.append(
            f"{how_many(savings.still_off, 'machine')} {'are' if savings.still_off != 1 else 'is'} still off after "
            f"that, for {whole.off_ms / HOUR_MS:,.1f} machine-hours, which are not counted as saved."
        )
    if savings.stops and savings.still_known:
        still = format_usd(whole.still_usd)
        notes.append(f"Disks and addresses of stopped machines cost {still} meanwhile, as they did before.")
    if savings.endless:
        notes.append(f"{savings.endless:,} stops count nothing: it is not known for how long they held.")
    if savings.unproved:
        several = savings.unproved != 1
        notes.append(
            f"{savings.unproved:,} stop{'s' * several} with {savings.unproved_ms / HOUR_MS:,.1f} machine-hours "
            f"{'are' if several else 'is'} left out: no cloud shows that gpuwatch's call stopped the "
            f"machine{'s' * several}."
        )
    if savings.stops or savings.endless or savings.unproved or savings.still_off:
        yield Words((*notes, _HOW))


def _parts(by: str, parts: Mapping[str, Saving], whole: Saving) -> Table:
    """The largest first, the others in one row; all rows add up to the last."""
    _, cents = round_parts({name: each.usd for name, each in parts.items()}, display_currency().cent)
    all_tenths, tenths = round_parts({name: Fraction(each.ms) for name, each in parts.items()}, Fraction(HOUR_MS, 10))
    names = sorted(parts, key=lambda name: (-cents[name], -parts[name].ms, name))
    rows = [(name, f"{tenths[name] / 10:,.1f}", format_cents(cents[name])) for name in names[:_MOST]]
    if rest := names[_MOST:]:
        hours, usd = (sum(column[name] for name in rest) for column in (tenths, cents))
        rows.append((f"{len(rest):,} others", f"{hours / 10:,.1f}", format_cents(usd)))
    rows.append(("all", f"{all_tenths / 10:,.1f}", format_usd(whole.usd)))
    heads = (by, "machine-hours", "saved")
    return Table(caption=f"Saved by {by}", heads=heads, rows=tuple(rows), left=frozenset({0}), summed=True)


def anomalies(report: Report) -> Iterator[Part]:
    """What cost more on the last day than its past explains."""
    if report.facts.anomalies:
        yield Words(tuple(each.sentence for each in report.facts.anomalies))


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
            format_usd(state.present_rate_usd, "?"),
            format_usd(state.forecast_usd, TOO_EARLY if state.doubt is None else "?"),
            "-" if state.probability_over is None else f"{state.probability_over:.0%}",
        )
        for state in states
    ]
    heads = ("budget", "scope", "a month", "spent", "of it", "present rate", "as usual", "over with")
    yield Table(caption=f"Budgets of {states[0].month}", heads=heads, rows=tuple(rows), left=frozenset({0, 1}))
    words = tuple(word for state in states for word in _budget_words(state))
    if words:
        yield Words(words)


def _budget_words(state: BudgetState) -> Iterator[str]:
    """What there is to say of one budget."""
    if state.doubt is not None:
        yield f"{state.name}: {state.doubt}."
    elif state.forecast_usd is None:
        yield from (f"{state.name}: {note}." for note in state.notes)
    if state.change is not None:
        yield f"{state.name}: the fleet has changed: {state.change}."
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
            yield Words((f"Forecast: none, because {report.no_forecast}.",))
        return
    words = f"{month.month:%B %Y} will end at {format_usd(month.expected)}"
    if month.lower is not None and month.upper is not None:
        words += f", with 80 % between {format_usd(month.lower)} and {format_usd(month.upper)}"
    words += f"; {format_usd(month.actual)} are of days that are over (method: {month.method})."
    if report.month_is_over:
        words = f"{month.month:%B %Y} ended at {format_usd(month.expected)}."
    notes = [f"{note[0].upper()}{note[1:]}." for note in month.warnings]
    yield Words((words, *notes))
    if report.year:
        expected = {f"{each.month:%Y-%m}": Fraction(each.expected) for each in report.year}
        total, cents = round_parts(expected, display_currency().cent)
        rows = [
            (name, format_cents(cents[name]), format_usd(each.lower, "?"), format_usd(each.upper, "?"))
            for name, each in zip(expected, report.year, strict=True)
        ]
        rows.append(("all", format_cents(total), "", ""))
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


def blocked_parts(report: Report) -> Iterator[Part]:
    """What machines without use cost a day, by what holds it, with what would free it; nothing where none is held."""
    if report.facts.blocked is None or not report.facts.blocked.blocked.nodes:
        return
    found = round_money(report.facts.blocked)
    yield Words(tuple(sums(found)))
    yield Table(
        caption="By what holds it",
        heads=("held by", f"{display_currency().code}/day", "machines", "GPUs", "what would free it"),
        rows=tuple(_held_parts(group) for group in found.groups),
        left=frozenset({0, 4}),
        beneath=True,
        extra=frozenset({3}),
    )


def _held_parts(group: Group) -> tuple[str, ...]:
    freed = "" if group.alone.nodes == group.money.nodes else f" Frees {frees_text(group)}."
    act = f"{group.act[0].upper()}{group.act[1:]}. Risk: {group.risk}.{freed}"
    return group.name, usd_text(group.money), f"{group.money.nodes:,}", f"{group.money.gpus:,}", act


def storage(report: Report) -> Iterator[Part]:
    """How many of each kind, and what they cost; nothing where the cloud was not asked."""
    sums = report.facts.storage
    if sums is None:
        return
    if not sums:
        yield Words(("No disk and nothing left over was found.",))
        return
    total, cents = round_parts({each.kind: Fraction(each.usd_per_month) for each in sums}, display_currency().cent)
    size, sizes = round_parts({each.kind: Fraction(each.size_bytes) for each in sums}, Fraction(_GIB))
    rows = [
        (_WORDS[each.kind], f"{each.count:,}", _gib(sizes[each.kind]), _monthly(each, cents[each.kind]))
        for each in sums
    ]
    rows.append(("all", f"{sum(each.count for each in sums):,}", _gib(size), format_cents(total)))
    heads = ("what", "number", "GiB", "a month")
    yield Table(caption="By the month", heads=heads, rows=tuple(rows), left=frozenset({0}), summed=True)
    unpriced = sum(each.without_price for each in sums)
    lacking = [f"{unpriced:,} without a known price are not in the sums."] if unpriced else []
    source = f"Prices of {STORAGE_AS_OF}: {STORAGE_SOURCE}."
    yield Words(
        (
            "As it is when the report is made, besides the machines' own cost; `gpuwatch unused` lists each.",
            *lacking,
            source,
        )
    )


def _monthly(each: StorageRow, cents: int) -> str:
    """A "?" where no price is known, "+?" where some are not."""
    if each.without_price == each.count:
        return "?"
    return f"{format_cents(cents)}{'+?' if each.without_price else ''}"


def _gib(size: int) -> str:
    """Addresses have no size."""
    return f"{size:,}" if size else "-"


def progress(report: Report) -> Iterator[Part]:
    """The first weeks against the last ones."""
    if report.facts.progress is not None:
        yield from since_we_began(report.facts.progress)


def since_we_began(found: Progress) -> Iterator[Part]:
    """What was wasted then and now, the curve, pools and owners, and what changed."""
    yield Words(tuple(_sentences(found)))
    shown = found.weeks[-_MOST_BARS:]
    yield Bars("A week each, from that day on; * something changed", tuple(_bar(each) for each in shown))
    for by, pairs in found.by.items():
        if pairs:
            yield _wasted_by(by, found)
    changed = [(f"{each.first}", "; ".join(_changes(each))) for each in found.weeks if any(_changes(each))]
    if changed:
        rows = tuple(changed[-_MOST_BARS:])
        yield Table(
            caption="What changed, by week", heads=("week of", "what"), rows=rows, left=frozenset({0, 1}), beneath=True
        )


def _sentences(found: Progress) -> Iterator[str]:
    first, last = found.pair.first, found.pair.last
    weeks = "week" if found.count == 1 else f"{found.count} weeks"
    yield (
        f"The first {weeks} of metering ({_days(found.first, found)}) wasted {_weekly(first, found)} a week"
        f"{_share(first)}; the last {weeks} ({_days(found.last, found)}) {_weekly(last, found)}{_share(last)}."
    )
    if first.unproven_ms or last.unproven_ms:
        then, now = (format_usd(total.usd_unproven / found.count) for total in (first, last))
        yield f"Nobody knows the use of {then} a week at first and of {now} now: that is no proven waste."
    avoided, year = found.pair.avoided, found.avoided_a_year
    if avoided is None or year is None:
        return
    word = "less" if avoided >= 0 else "more"
    pace = f", about {format_usd(abs(year))} a year at this pace" if found.count >= FULL_WEEKS else ""
    yield (
        f"For the same useful work that is {format_usd(abs(avoided) / found.count)} a week {word} than at first{pace} "
        "(an estimate: other work may waste more or less by itself)."
    )


def _days(first: date, found: Progress) -> str:
    return f"{first} to {first + timedelta(days=found.count * DAYS - 1)}"


def _weekly(total: Total, found: Progress) -> str:
    """Money and hours of one week."""
    return f"{format_usd(total.usd_wasted / found.count)} and {found.hours(total):,.1f} GPU-hours"


def _share(total: Total) -> str:
    return "" if total.usd_waste_ratio is None else f" ({percent(total.usd_waste_ratio)} of the cost)"


def _bar(week: Week) -> Bar:
    return bar_of(f"{week.first}{' *' if week.changes else ''}", week.total)


def _wasted_by(by: str, found: Progress) -> Table:
    """The worst at first, with what they waste now."""
    named = list(found.by[by].items())[:_MOST]
    rows = tuple((name, *_then_and_now(pair, found)) for name, pair in named)
    heads = (by, "GPU-hours first", "now", "wasted first", "now", "of cost first", "now")
    return Table(
        caption=f"Wasted a week, by {by}", heads=heads, rows=rows, left=frozenset({0}), extra=frozenset({1, 2})
    )


def _then_and_now(pair: Pair, found: Progress) -> Iterator[str]:
    for total in (pair.first, pair.last):
        yield f"{found.hours(total):,.1f}"
    for total in (pair.first, pair.last):
        yield format_usd(total.usd_wasted / found.count)
    for total in (pair.first, pair.last):
        yield "-" if total.usd_waste_ratio is None else percent(total.usd_waste_ratio)


def _changes(week: Week) -> Iterator[str]:
    """What was ordered or set, and how often gpuwatch acted."""
    yield from week.changes
    if week.stops:
        yield f"{week.stops} stop{'s' if week.stops != 1 else ''}"
    if week.starts:
        yield f"{week.starts} start{'s' if week.starts != 1 else ''}"


def prices(report: Report) -> Iterator[Part]:
    """The age and the source of the prices that all of this rests on."""
    if report.prices is not None:
        yield Words(price_words(report.prices, report.facts.now.date()))


def price_words(days: PriceDays, today: date) -> tuple[str, ...]:
    """The days of the prices, then a line for each source where there are several."""
    span = day_with_age(days.oldest, today)
    if days.newest != days.oldest:
        span = f"{days.oldest} to {days.newest}, the oldest {days.age_days} days old"
    if len(days.sources) == 1:
        return (f"Prices are of {span}: {days.sources[0]}.",)
    more = len(days.sources) - _MOST_SOURCES
    rest = (f"and {how_many(more, 'more source')}",) if more > 0 else ()
    named = (*days.sources[:_MOST_SOURCES], *rest)
    return (f"Prices are of {span}, from {how_many(len(days.sources), 'source')}:", *(f"- {each}" for each in named))
