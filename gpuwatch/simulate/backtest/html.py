"""The report as one HTML page that asks nothing of anybody: styles and charts are in it, and there are no scripts."""

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from gpuwatch.model.duration import format_duration
from gpuwatch.money.report import charts
from gpuwatch.money.report.charts import Axis, Band, Item
from gpuwatch.simulate.backtest.compare import Figures, figures_of, policy_of
from gpuwatch.simulate.backtest.report import LISTED, MEASURES, Backtest
from gpuwatch.simulate.backtest.text import again, checked_cells, sentences, stops_title, usd_words
from gpuwatch.simulate.backtest.timeline import Fleet, fleet_of, lengths_of, stopped_of, usual_wait

_BINS = 120  # of the fleet over time
_LONGEST_COST = 4.0  # beside `never` no other bar would be seen
_LENGTHS = (10, 60, 600, 3600, 6 * 3600.0, 86400.0, 7 * 86400.0, 30 * 86400.0)
_TIMES = "\N{MULTIPLICATION SIGN}"
_OPTIMUM_COLOUR = charts.COLOURS - 1
_STOP_HEADS = ("idle since", "stopped at", "needed again", "hours saved", "USD saved", "evidence")
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 72rem; margin: 0 auto; padding: 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--faint); padding: .25rem 0; }
caption span { display: block; max-width: calc(100vw - 2rem); }
th, td { padding: .25rem .45rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap;
  vertical-align: top; }
th { font-weight: 600; }
th[scope=col] { white-space: normal; vertical-align: bottom; }
tbody th { font-weight: 400; white-space: normal; min-width: 7.5rem; text-align: left;
  position: sticky; left: 0; background: var(--paper); }
@media (min-width: 60rem) { tbody th { min-width: 11rem; } .left tbody th { min-width: 8rem; } }
.left td, .left th { text-align: left; }
td:last-child.words { white-space: normal; min-width: 18rem; }
small { color: var(--faint); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1.5rem; }
figure { margin: 0; } figcaption { font-weight: 600; } figcaption small { display: block; font-weight: 400; }
fieldset { border: 0; margin: 0; padding: 0; min-width: 0; }
legend { padding: 0 0 .5rem; }
input[type=radio] { position: absolute; opacity: 0; }
label { display: inline-block; padding: .2rem .7rem; margin: 0 .25rem .4rem 0; border: 1px solid var(--faint);
  border-radius: 1rem; cursor: pointer; }
input:checked + label { background: var(--ink); color: var(--paper); }
input:focus-visible + label { outline: 3px solid var(--k0); outline-offset: 2px; }
.suspect { color: var(--k1); font-weight: 600; }
@media screen { .panel { display: none; } }
@media print {
  body { padding: 0; font-size: 11px; } label, legend { display: none; }
  figure, tr { break-inside: avoid; } h2 { break-after: avoid; } .charts { grid-template-columns: 1fr 1fr; }
  .wide { overflow: visible; } th, td { padding: .15rem .35rem; } .words { min-width: 0; }
}
"""


def as_html(result: Backtest, most: int = LISTED) -> str:
    """The page; `most` bounds each list of stops."""
    title = f"Backtest of {escape(result.source)}"
    figures = [*(line.figures for line in result.lines), result.optimum]
    shown = "".join(f"#p{number}:checked ~ #panel{number} {{ display: block; }}\n" for number in range(len(figures)))
    parts = [
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{charts.STYLE}{_STYLE}{shown}</style></head><body>",
        f"<h1>{title}</h1>",
        *(f"<p>{escape(sentence)}</p>" for sentence in sentences(result)),
        "<h2>Side by side</h2>",
        _figures(result, figures),
        '<h2>Charts</h2>\n<div class="charts">',
        *_charts(result, figures),
        "</div>",
        "<h2>Policy by policy</h2>\n<fieldset><legend>The fleet over time and the stops, under the policy</legend>",
        *_choices(figures),
        *_panels(result, figures, most),
        "</fieldset></body></html>\n",
    ]
    return "\n".join(parts)


def _figures(result: Backtest, figures: Sequence[Figures]) -> str:
    """A row for each figure, a column for each policy; behind a figure its ratio to the optimum's."""
    rows = []
    for measure in MEASURES:
        cells = []
        for each in figures:
            ratio = measure.ratio(each, result.optimum) if measure.compared and each is not result.optimum else None
            beside = "" if ratio is None else f" <small>{_TIMES}{ratio:.2f}</small>"
            cells.append(f"<td>{escape(measure.written(each))}{beside}</td>")
        rows.append(f'<tr><th scope="row">{escape(measure.words)}</th>{"".join(cells)}</tr>')
    checks = [*(checked_cells(line) for line in result.lines), ("-", "-")]
    for words, seen in zip(("wrong stops", "violations"), zip(*checks, strict=True), strict=True):
        columns = "".join(f"<td>{cell}</td>" for cell in seen)
        rows.append(f'<tr><th scope="row">{words} in the check</th>{columns}</tr>')
    heads = ("", *(each.policy.name for each in figures))
    caption = f"What each policy comes to; {_TIMES}: how many times that of the optimum, who knew every end."
    return _table(caption, heads, rows)


def _table(caption: str, heads: Iterable[str], rows: Iterable[str], kind: str = "") -> str:
    head = "".join(
        f'<th scope="col">{escape(each).replace("=", "=<wbr>")}</th>' if each else "<td></td>" for each in heads
    )
    body = "\n".join(rows)
    return (
        f'<div class="wide"><table{kind}><caption><span>{escape(caption)}</span></caption>'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def _figure(words: str, more: str, chart: str) -> str:
    return f"<figure><figcaption>{escape(words)}<small>{escape(more)}</small></figcaption>{chart}</figure>"


def _charts(result: Backtest, figures: Sequence[Figures]) -> Iterator[str]:
    """Cost beside the optimum and break-even, the trade-off, and gaps by length with each policy's wait."""
    colour = {id(each): number % _OPTIMUM_COLOUR for number, each in enumerate(figures)} | {
        id(result.optimum): _OPTIMUM_COLOUR
    }
    yield _cost_chart(result, figures, colour)
    yield _trade_chart(figures, colour)
    if result.history.gaps:
        yield from _length_charts(result, figures, colour)


def _cost_chart(result: Backtest, figures: Sequence[Figures], colour: dict[int, int]) -> str:
    even = figures_of(policy_of("after=break_even"), result.history, result.terms).idle_cost_ratio_to_optimum
    items = [
        Item(label=each.policy.name, x=ratio, written=f"{ratio:.2f}", colour=colour[id(each)])
        for each in figures
        if (ratio := each.idle_cost_ratio_to_optimum) is not None
    ]
    marks = [] if even is None else [Item(label=f"break-even {even:.2f}", x=even, colour=_OPTIMUM_COLOUR)]
    words = ", ".join(f"{item.label} {item.written}" for item in items)
    more = f"Of gaps that ended in work. 1 is the optimum; bars end at {_LONGEST_COST:g}."
    chart = charts.bars("Idle cost over the optimum's", words, items, marks=marks, end=_LONGEST_COST)
    return _figure("Idle cost ÷ optimum", more, chart)


def _trade_chart(figures: Sequence[Figures], colour: dict[int, int]) -> str:
    money = all(each.saved_usd is not None for each in figures)
    items = [
        Item(
            label=each.policy.name,
            x=each.restarts_per_node_day or 0.0,
            y=float(each.saved_usd) if each.saved_usd is not None and money else each.node_hours_saved,
            colour=colour[id(each)],
        )
        for each in figures
        if each.stops
    ]
    unit = "USD saved" if money else "node-hours saved"
    words = ", ".join(f"{item.label}: {item.y:,.0f} {unit} at {item.x:.3f} restarts" for item in items)
    axes = Axis(name="restarts per node-day", write=_short), Axis(name=unit, write=_short)
    more = "Up is cheaper, right is more waiting for people."
    return _figure("Saved against restarts", more, charts.points(f"{unit} against restarts", words, items, *axes))


def _length_charts(result: Backtest, figures: Sequence[Figures], colour: dict[int, int]) -> Iterator[str]:
    lengths = lengths_of(result.history)
    marks = [
        Item(label=f"{each.policy.name}: {format_duration(wait)}", x=wait, colour=colour[id(each)])
        for each in figures
        if each is not result.optimum and (wait := usual_wait(result.history, each)) is not None
    ]
    more = "A line is a policy's wait, the median of its stops."
    x = Axis(name="length of the gap", write=format_duration, ticks=_LENGTHS)
    for heading, heights, unit in (
        ("Idle gaps by length", lengths.counts, "gaps"),
        ("Idle hours by length of the gap", lengths.hours, "node-hours idle"),
    ):
        peak = max(range(len(heights)), key=heights.__getitem__)
        span = f"{format_duration(lengths.edges[peak])} to {format_duration(lengths.edges[peak + 1])}"
        words = f"Most {unit} are in gaps of {span}; waits: {', '.join(mark.label for mark in marks) or 'none'}"
        y = Axis(name=unit, write=_short)
        yield _figure(heading, more, charts.histogram(heading, words, lengths.edges, heights, marks, x, y))


def _choices(figures: Sequence[Figures]) -> Iterator[str]:
    """One button for each policy; what it shows is told in the style."""
    for number, each in enumerate(figures):
        checked = " checked" if number == 0 else ""
        yield (
            f'<input type="radio" name="policy" id="p{number}"{checked}>'
            f'<label for="p{number}">{escape(each.policy.name)}</label>'
        )


def _panels(result: Backtest, figures: Sequence[Figures], most: int) -> Iterator[str]:
    """For each policy the fleet over time and the foremost stops."""
    fleet = fleet_of(result.history, _BINS)
    for number, each in enumerate(figures):
        yield f'<div class="panel" id="panel{number}">'
        yield _fleet_chart(result, each, fleet)
        if each.stops and most:
            yield _stops(result, each, most)
        yield "</div>"


def _fleet_chart(result: Backtest, figures: Figures, fleet: Fleet) -> str:
    stopped = stopped_of(result.history, figures, _BINS)
    held = [max(0.0, idle - gone) for idle, gone in zip(fleet.idle, stopped, strict=True)]
    bands = [
        Band(label="busy", values=fleet.busy, colour=0),
        Band(label="idle", values=held, colour=1),
        Band(label="stopped", values=stopped, colour=2),
    ]
    bands = [band for band in bands if any(value > 0 for value in band.values)]
    words = ", ".join(f"{band.label} {math.fsum(band.values) / _BINS:,.1f} nodes on the mean" for band in bands)
    horizon = result.history.horizon_seconds
    moments = [(share, result.when(share * horizon)[:-3]) for share in (0.0, 0.5, 1.0)]
    heading = f"The fleet under {figures.policy.name}"
    chart = charts.areas(heading, words, bands, Axis(name="nodes", write=_short), moments)
    return _figure(
        heading, f"On the mean of each {format_duration(horizon / _BINS)}; silent nodes are left out.", chart
    )


def _stops(result: Backtest, figures: Figures, most: int) -> str:
    listed = result.listed(figures, most)
    pools = len({each.pool for each in listed}) > 1
    rows = []
    for each in listed:
        cells = (
            *((each.pool,) if pools else ()),
            result.when(each.stop.gap.begin),
            result.when(each.stop.at),
            again(result, each),
            f"{each.stop.saved_seconds / 3600:,.2f}",
            usd_words(each),
        )
        suspect = '<strong class="suspect">suspect</strong>; ' if each.suspect else ""
        rows.append(
            f'<tr><th scope="row">{escape(each.stop.gap.node_id)}</th>'
            f"{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}"
            f'<td class="words">{suspect}{escape(each.evidence)}</td></tr>'
        )
    heads = ("node", *(("pool",) if pools else ()), *_STOP_HEADS)
    return _table(stops_title(figures, most), heads, rows, ' class="left"')


def _short(value: float) -> str:
    """A number on an axis."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
