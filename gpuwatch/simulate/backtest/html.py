"""The backtest as one HTML page that loads nothing: styles and charts are in it, and there are no scripts."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuwatch.model.duration import format_duration
from gpuwatch.money.report import charts
from gpuwatch.money.report.charts import Axis, Band, Item
from gpuwatch.runtime.html import render
from gpuwatch.simulate.backtest.compare import Figures, figures_of, policy_of
from gpuwatch.simulate.backtest.report import LISTED, MEASURES, Backtest
from gpuwatch.simulate.backtest.text import again, checked_cells, sentences, stops_title, usd_words
from gpuwatch.simulate.backtest.timeline import Fleet, fleet_of, lengths_of, mean_stopped, usual_wait

_BINS = 120  # of the fleet over time
_LONGEST_COST = 4.0  # beside `never` no other bar would be seen
_LENGTHS = (10, 60, 600, 3600, 6 * 3600.0, 86400.0, 7 * 86400.0, 30 * 86400.0)
_TIMES = "\N{MULTIPLICATION SIGN}"
_OPTIMUM_COLOUR = charts.COLOURS - 1
_STOP_HEADS = ("idle since", "stopped at", "needed again", "hours saved", "USD saved", "evidence")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chart:
    """An SVG with its heading and a note."""

    heading: str
    note: str
    svg: str


def as_html(result: Backtest, most: int = LISTED) -> str:
    """The page; `most` bounds each list of stops."""
    figures = [*(line.figures for line in result.lines), result.optimum]
    fleet = fleet_of(result.history, _BINS)
    return render(
        "simulate/backtest/backtest.html",
        title=f"Backtest of {result.source}",
        chart_style=charts.STYLE,
        sentences=list(sentences(result)),
        measures=_measures(result, figures),
        charts=list(_charts(result, figures)),
        panels=[
            {
                "policy": each.policy.name,
                "chart": _fleet_chart(result, each, fleet),
                "stops": _stops(result, each, most) if each.stops and most else None,
            }
            for each in figures
        ],
    )


def _measures(result: Backtest, figures: Sequence[Figures]) -> dict[str, object]:
    """A row for each figure, a column for each policy; behind a figure its ratio to the optimum's."""
    rows: list[tuple[str, list[tuple[str, str]]]] = []
    for measure in MEASURES:
        ratios = [
            measure.ratio(each, result.optimum) if measure.compared and each is not result.optimum else None
            for each in figures
        ]
        cells = [
            (measure.measure_text(each), "" if ratio is None else f"{_TIMES}{ratio:.2f}")
            for each, ratio in zip(figures, ratios, strict=True)
        ]
        rows.append((measure.words, cells))
    checks = [*(checked_cells(line) for line in result.lines), ("-", "-")]
    for words, seen in zip(("wrong stops", "violations"), zip(*checks, strict=True), strict=True):
        rows.append((f"{words} in the check", [(cell, "") for cell in seen]))
    return {
        "caption": f"Figures of each policy; {_TIMES}: ratio to the optimum, which knows the end of every gap.",
        "heads": ("", *(each.policy.name for each in figures)),
        "rows": rows,
    }


def _charts(result: Backtest, figures: Sequence[Figures]) -> Iterator[_Chart]:
    """Cost compared with the optimum and break-even, the trade-off, and gaps by length with each policy's wait."""
    colour = {id(each): number % _OPTIMUM_COLOUR for number, each in enumerate(figures)} | {
        id(result.optimum): _OPTIMUM_COLOUR
    }
    yield _cost_chart(result, figures, colour)
    yield _trade_chart(figures, colour)
    if result.history.gaps:
        yield from _length_charts(result, figures, colour)


def _cost_chart(result: Backtest, figures: Sequence[Figures], colour: dict[int, int]) -> _Chart:
    even = figures_of(policy_of("timeout=break_even"), result.history, result.terms).idle_cost_ratio_to_optimum
    items = [
        Item(label=each.policy.name, x=ratio, written=f"{ratio:.2f}", colour=colour[id(each)])
        for each in figures
        if (ratio := each.idle_cost_ratio_to_optimum) is not None
    ]
    marks = [] if even is None else [Item(label=f"break-even {even:.2f}", x=even, colour=_OPTIMUM_COLOUR)]
    words = ", ".join(f"{item.label} {item.written}" for item in items)
    more = f"Of gaps that ended in work. 1 is the optimum; bars end at {_LONGEST_COST:g}."
    chart = charts.bars("Idle cost over the optimum's", words, items, marks=marks, end=_LONGEST_COST)
    return _Chart(heading="Idle cost ÷ optimum", note=more, svg=chart)


def _trade_chart(figures: Sequence[Figures], colour: dict[int, int]) -> _Chart:
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
    svg = charts.points(f"{unit} against restarts", words, items, *axes)
    return _Chart(heading="Saved against restarts", note=more, svg=svg)


def _length_charts(result: Backtest, figures: Sequence[Figures], colour: dict[int, int]) -> Iterator[_Chart]:
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
        svg = charts.histogram(heading, words, lengths.edges, heights, marks, x, y)
        yield _Chart(heading=heading, note=more, svg=svg)


def _fleet_chart(result: Backtest, figures: Figures, fleet: Fleet) -> _Chart:
    stopped = mean_stopped(result.history, figures, _BINS)
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
    note = f"On the mean of each {format_duration(horizon / _BINS)}; silent nodes are left out."
    return _Chart(heading=heading, note=note, svg=chart)


def _stops(result: Backtest, figures: Figures, most: int) -> dict[str, object]:
    """The foremost stops of a policy; their pools where there are several."""
    listed = result.list_stops(figures, most)
    pools = len({each.pool for each in listed}) > 1
    rows = [
        {
            "node": each.stop.gap.node_id,
            "cells": (
                *((each.pool,) if pools else ()),
                result.when(each.stop.gap.begin),
                result.when(each.stop.at),
                again(result, each),
                f"{each.stop.saved_seconds / 3600:,.2f}",
                usd_words(each),
            ),
            "suspect": each.suspect,
            "evidence": each.evidence,
        }
        for each in listed
    ]
    heads = ("node", *(("pool",) if pools else ()), *_STOP_HEADS)
    return {"caption": stops_title(figures, most), "heads": heads, "rows": rows}


def _short(value: float) -> str:
    """A number on an axis."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
