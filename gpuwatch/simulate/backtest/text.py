"""The report for terminals: two tables of figures, the foremost stops, and sentences, within about 120 columns."""

from collections.abc import Iterable, Iterator

from gpuwatch.model.duration import format_duration
from gpuwatch.model.readable import how_many
from gpuwatch.runtime.printable import legible
from gpuwatch.runtime.table import align_rows
from gpuwatch.simulate.backtest.compare import Figures
from gpuwatch.simulate.backtest.gaps import prices_of
from gpuwatch.simulate.backtest.report import MEASURES, Backtest, Line
from gpuwatch.simulate.backtest.stops import StopRecord

LISTED = 5  # stops of each policy
_BY_KEY = {measure.key: measure for measure in MEASURES}
_COST = {
    "cost/optimum": "idle_cost_ratio_to_optimum",
    "live": "live_cost_ratio_to_optimum",
    "bill saved": "bill_saved_ratio",
    "hours billed": "node_hours_billed",
    "hours saved": "node_hours_saved",
    "GPU-hours saved": "gpu_hours_saved",
    "USD billed": "billed_usd",
    "USD saved": "saved_usd",
}
_TROUBLE = {
    "stops": "stops",
    "restarts": "restarts",
    "per node-day": "restarts_per_node_day",
    "waited": "people_waited_seconds",
    "suspect": "suspected_wrong_stops",
    "of stops": "suspected_wrong_ratio",
    "re-stopped": "nodes_stopped_again",
    "most a day": "most_stops_in_a_day",
}
_CHECKS = ("wrong", "violations")


def as_text(result: Backtest, most: int = LISTED) -> str:
    """For people; `most` stops of each policy."""
    figures = [*(line.figures for line in result.lines), result.optimum]
    checks = [*(checked_cells(line) for line in result.lines), ("-", "-")]
    cost = [_cells(each, _COST) for each in figures]
    trouble = [(*_cells(each, _TROUBLE), *seen) for each, seen in zip(figures, checks, strict=True)]
    stops = (line for each in result.lines if each.figures.stops for line in _stops(result, each.figures, most))
    lines = [
        *align_rows([("policy", *_COST), *cost], spare=_spare(_COST, "hours billed", "GPU-hours saved", "hours saved")),
        "",
        *align_rows(
            [("policy", *_TROUBLE, *_CHECKS), *trouble],
            spare=_spare(_TROUBLE, "per node-day", "re-stopped", "most a day", "of stops"),
        ),
        "",
        *stops,
        *sentences(result),
    ]
    return "\n".join(map(legible, lines))


def _spare(heads: Iterable[str], *gone: str) -> dict[int, int]:
    """The columns that a narrow terminal leaves out, in that order; the first one holds the policy."""
    return {number: len(gone) - gone.index(head) for number, head in enumerate(heads, start=1) if head in gone}


def checked_cells(line: Line) -> tuple[str, str]:
    """Wrong stops and violations that the check saw; dashes where nothing was played."""
    seen = line.checked
    return ("-", "-") if seen is None else (str(seen.wrongly_stopped), str(len(seen.violations)))


def sentences(result: Backtest) -> Iterator[str]:
    """What the tables do not say."""
    terms, nodes, gaps = result.terms, len(result.history.lives), len(result.history.gaps)
    yield (
        f"{result.source}: {how_many(nodes, 'node')}, {result.node_hours:,.0f} node-hours, "
        f"{how_many(gaps, 'idle gap')}."
    )
    if result.history.begins_at is not None:
        yield f"From {result.when(0)} to {result.when(result.history.horizon_seconds)}; all times are UTC."
    yield (
        f"A restart costs {format_duration(terms.restart)} of rental, and people wait {format_duration(terms.boot)} "
        f"for it; a stop is suspect if the node is needed again within {format_duration(terms.regret)}. Work that "
        "comes while its node starts is neither lost nor delayed here, so its wait is in no dollars."
    )
    yield (
        f"live: the same with real polling and notice times: a round every {format_duration(terms.interval)}, and "
        f"{format_duration(terms.grace)} of notice where nobody is there."
    )
    yield from _prices(result)
    played = [line.checked for line in result.lines if line.checked is not None and line.checked.hours > 0]
    if played:
        least = format_duration(min(each.hours for each in played) * 3600)
        yield (
            f"Wrong stops and violations: among {how_many(sum(each.stops for each in played), 'stop')} in "
            f"{sum(each.node_hours for each in played):,.0f} node-hours that the real controller played, of "
            f"{'the whole history' if all(each.whole for each in played) else f'the first {least} or more'}."
        )
    else:
        yield "Nothing was played through the real controller: wrong stops and violations are not known."
    for line in result.lines:
        for violation in () if line.checked is None else line.checked.violations[:5]:
            yield f"{line.figures.policy.name}: {violation}"


def stops_title(figures: Figures, most: int) -> str:
    """How many stops there are and which of them are listed."""
    which = "" if figures.stops <= most else f"; the first {most}, suspects before the largest savings"
    return f"{figures.policy.name} would have stopped nodes {how_many(figures.stops, 'time')}{which}:"


def again(result: Backtest, each: StopRecord) -> str:
    """When a stopped node was needed again."""
    return result.when(each.stop.gap.end) if each.stop.gap.needed else "-"


def usd_words(each: StopRecord) -> str:
    """What a stop saved, below 0 what it lost."""
    return "-" if each.saved_usd is None else f"{each.saved_usd:,}"


def _cells(figures: Figures, columns: dict[str, str]) -> tuple[str, ...]:
    return figures.policy.name, *(_BY_KEY[key].measure_text(figures) for key in columns.values())


def _prices(result: Backtest) -> Iterator[str]:
    """Where the money comes from, a sentence for each source."""
    listed = prices_of(result.history)
    missing = [kind for kind, price in listed.items() if price is None]
    if missing:
        yield f"Money is not known: there is no list price for {', '.join(missing)}."
    for source, as_of in sorted({(price.source, price.as_of) for price in listed.values() if price is not None}):
        kinds = (
            f"{kind} {price.usd_per_hour} USD an hour"
            for kind, price in listed.items()
            if price is not None and (price.source, price.as_of) == (source, as_of)
        )
        yield f"Priced as {', '.join(kinds)}: {source}, as of {as_of}."


def _stops(result: Backtest, figures: Figures, most: int) -> Iterator[str]:
    if most == 0:
        return
    yield stops_title(figures, most)
    listed = result.list_stops(figures, most)
    rows = [
        (
            "suspect" if each.suspect else "",
            result.when(each.stop.at),
            each.stop.gap.node_id,
            f"{each.stop.saved_seconds / 3600:,.2f}",
            usd_words(each),
        )
        for each in listed
    ]
    heads, *lines = align_rows([("", "stopped at", "node", "hours saved", "USD saved"), *rows], left={0, 1, 2})
    yield heads
    for line, each in zip(lines, listed, strict=True):
        yield from (line, f"    {each.evidence}")
    yield ""
