"""The command that says what a shorter restart, and packed requests, would save: what no wait can repair."""

import sys
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.backtest_input import Asked, history_options
from gpuwatch.cli.base import above_zero, duration_or_none, explain_errors, json_option, print_text, progress
from gpuwatch.cli.recommend import recommend
from gpuwatch.model.duration import format_duration
from gpuwatch.runtime.json_document import json_text
from gpuwatch.runtime.table import align_rows

if TYPE_CHECKING:
    from gpuwatch.simulate.backtest.restarts import RestartsDocument


@recommend.command(options_metavar="--trace FILE | --prometheus [URL] | --ledger [FILE] [OPTIONS]")
@history_options
@click.option(
    "--restart-cost",
    callback=above_zero,
    default="10m",
    show_default=True,
    help="What a restart costs, in time of rental.",
)
@click.option("--boot", callback=duration_or_none, help="Part of the restart: booting the machine.")
@click.option("--image", callback=duration_or_none, help="Part of the restart: pulling container images.")
@click.option("--weights", callback=duration_or_none, help="Part of the restart: loading the model's weights.")
@click.option("--hours", type=click.FloatRange(0, 87600, min_open=True), help="The first of the recording [all].")
@json_option
def restarts(
    *,
    asked: Asked,
    restart_cost: float,
    boot: float | None,
    image: float | None,
    weights: float | None,
    hours: float | None,
    as_json: bool,
) -> None:
    """What a shorter restart would save, and what sending work to the most recently used node would."""
    from pathlib import Path

    from gpuwatch.runtime.clock import SystemClock
    from gpuwatch.simulate.backtest.restarts import advise as advice_of
    from gpuwatch.simulate.fleet.options import Options
    from gpuwatch.simulate.fleet.workloads import DemoError

    parts = [
        (name, seconds)
        for name, seconds in (("boot", boot), ("image", image), ("weights", weights))
        if seconds is not None
    ]
    try:
        with explain_errors(), progress("reading the history"):
            source, history = asked.history(Options(trace=asked.trace or Path(), hours=hours), SystemClock())
        advice = advice_of(source, history, restart_cost, parts)
    except DemoError as error:
        print_text(error, err=True)
        sys.exit(2)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    print_text(json_text("recommend.restarts", advice) if as_json else _as_text(advice))


def _as_text(advice: "RestartsDocument") -> str:
    today, best = advice.cases[0], max(advice.cases, key=lambda each: each.saved_ratio)
    lines = [f"{advice.source}: {advice.node_hours:,.1f} node-hours, {advice.gaps:,} idle gaps.", ""]
    heads = ("a restart", "costs", "node-hours", "saved", "could be")
    rows = [
        (
            each.name,
            format_duration(each.restart_seconds),
            f"{each.node_hours_billed:,.1f}",
            f"{each.saved_ratio:.1%}",
            f"{each.best_ratio:.1%}",
        )
        for each in advice.cases
    ]
    lines += [*align_rows([heads, *rows], left={0}), "Waits are break-even; could be: with each gap's end known.", ""]
    if best is not today:
        more = today.node_hours_billed - best.node_hours_billed
        lines += [f"At {format_duration(best.restart_seconds)} a restart {more:,.1f} node-hours less are billed.", ""]
    columns = ("pool", "nodes", "at work at once", "node-hours", "packed", "saved")
    pools = [
        (
            each.pool,
            str(each.nodes),
            str(each.most_at_work),
            f"{each.node_hours_billed:,.1f}",
            f"{each.packed_node_hours_billed:,.1f}",
            f"{each.saved_ratio:.1%}",
        )
        for each in advice.pools
    ]
    lines += align_rows([columns, *pools], left={0})
    lines.append("Packed: work goes to the most recently used node that is free. It is the most that routing can save,")
    lines.append("for pools in which any node may serve any request.")
    return "\n".join(lines)
