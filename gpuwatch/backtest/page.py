"""The report as one HTML page that asks nothing of anybody: styles and charts are in it, and there are no scripts."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

from gpuwatch.backtest.compare import Figures, Stopped
from gpuwatch.backtest.report import Backtest, cells, heads, percent, sentences
from gpuwatch.model.knobs import format_duration

_LISTED = 200
_LONGEST_COST = 4.0  # beside `never` no other bar would be seen
_BAR_PIXELS = 420
_ROW_PIXELS = 24
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #d0d7de; --bar: #2f6f4f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --line: #30363d; --bar: #57ab7d; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; }
svg text { fill: var(--ink); font: 13px system-ui, sans-serif; }
svg rect { fill: var(--bar); }
"""


def as_html(told: Backtest) -> str:
    """The page."""
    title = f"Backtest of {escape(told.trace.name)}"
    parts = [
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1>",
        *(f"<p>{escape(sentence)}</p>" for sentence in sentences(told)),
        _table(heads(), map(cells, told.lines)),
        *_charts(told),
        *(part for line in told.lines if line.figures.stops for part in _stops(line.figures)),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def _charts(told: Backtest) -> Iterator[str]:
    """Three bars for each policy, and the optimum's beside them where it has one."""
    figures = [line.figures for line in told.lines]
    saved = [("optimum", told.optimum_bill_saved_ratio), *_named(figures, lambda each: each.bill_saved_ratio)]
    costs = [("optimum", 1.0), *_named(figures, lambda each: each.idle_cost_ratio_to_optimum)]
    yield _bars("Part of the bill saved", saved, percent)
    yield _bars(f"Idle cost over the optimum's (bars end at {_LONGEST_COST:g})", costs, "{:.2f}".format, _LONGEST_COST)
    yield _bars("Restarts per node-day", _named(figures, lambda each: each.restarts_per_node_day), "{:.2f}".format)


def _named(figures: Iterable[Figures], ratio: Callable[[Figures], float | None]) -> list[tuple[str, float | None]]:
    return [(each.policy.name, ratio(each)) for each in figures]


def _bars(
    title: str, values: Sequence[tuple[str, float | None]], written: Callable[[float], str], end: float = math.inf
) -> str:
    """A bar for each value; one below zero has none, and its number says it."""
    known = [(name, value) for name, value in values if value is not None]
    most = min(end, max([value for _, value in known], default=0.0))
    rows = []
    for number, (name, value) in enumerate(known):
        y, width = number * _ROW_PIXELS, min(1.0, max(0.0, value / most)) * _BAR_PIXELS if most > 0 else 0.0
        rows.append(
            f'<text x="0" y="{y + 16}">{escape(name)}</text>'
            f'<rect x="160" y="{y + 4}" width="{width:.1f}" height="{_ROW_PIXELS - 8}"/>'
            f'<text x="{166 + width:.1f}" y="{y + 16}">{escape(written(value))}</text>'
        )
    size = f"0 0 {_BAR_PIXELS + 240} {max(1, len(known)) * _ROW_PIXELS}"
    svg = f'<svg viewBox="{size}" width="{_BAR_PIXELS + 240}" role="img" aria-label="{escape(title)}">'
    return f"<h2>{escape(title)}</h2>\n{svg}{''.join(rows)}</svg>"


def _stops(figures: Figures) -> Iterator[str]:
    """What a policy would have stopped, the first of it."""
    shown = figures.stops[:_LISTED]
    more = "" if len(shown) == len(figures.stops) else f"; the first {_LISTED}"
    name, count = escape(figures.policy.name), len(figures.stops)
    yield f"<details><summary>{name} would have stopped {count} times{more}</summary>"
    yield _table(("node", "idle since", "idle for", "stopped at", "needed again at"), map(_row, shown))
    yield "</details>"


def _row(stop: Stopped) -> tuple[str, ...]:
    idle = format_duration(stop.stopped_at - stop.idle_since)
    again = "not seen" if stop.needed_at is None else _at(stop.needed_at)
    return stop.node, _at(stop.idle_since), idle, _at(stop.stopped_at), again


def _at(seconds: float) -> str:
    """A moment as days and time of day after the recording's begin."""
    days, rest = divmod(int(seconds), 86400)
    return f"{days}d {rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
