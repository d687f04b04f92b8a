"""The command that shows it all on a simulated fleet."""

import sys
from pathlib import Path
from typing import Any

import click

from gpuwatch.cli.base import above_zero, commands, is_given, print_text, progress, zero_or_more
from gpuwatch.runtime.installed import install_command
from gpuwatch.runtime.json_document import json_text


@commands.command()
@click.option("--headless", is_flag=True, help="Play it as fast as possible and print the outcome.")
@click.option("--json", "as_json", is_flag=True, help="Headless: one JSON object.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same fleet.")
@click.option(
    "--hours", type=click.FloatRange(0, 8760, min_open=True), help="Headless: for so long [24, or the trace]."
)
@click.option(
    "--trace", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Headless: recorded load, CSV or .gz."
)
@click.option("--gpus-per-node", type=click.IntRange(1, 64), default=1, show_default=True, help="In interval traces.")
@click.option("--instance-type", help="What recorded nodes are priced as [by their GPUs].")
@click.option("--timeout", callback=above_zero, default="10m", show_default=True, help="Idle for so long: a candidate.")
@click.option(
    "--grace-period", "--notice", callback=zero_or_more, default="5m", show_default=True, help="From notice to stop."
)
@click.option("--warm-up", callback=above_zero, default="10m", show_default=True, help="Untouched after a start.")
@click.option("--boot", callback=above_zero, default="3m", show_default=True, help="From a start to a working node.")
@click.option("--interval", callback=above_zero, default="1m", show_default=True, help="From round to round.")
@click.option("--sample", callback=above_zero, default="1m", show_default=True, help="Headless: between GPU readings.")
@click.option(
    "--parked",
    type=click.Choice(["stop", "report"]),
    help="Memory held, nothing computed: after --timeout, or never [after 16 h; traces: stop].",
)
@click.option("--speed", type=click.FloatRange(1, 3600), default=60, show_default=True, help="Live: times real time.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Live: end by itself after so many.")
def demo(*, headless: bool, as_json: bool, **chosen: Any) -> None:  # noqa: ANN401  as click gives them; Options has the types
    """Watch the real controller stop idle nodes of a simulated fleet. Nothing outside this process is changed."""
    try:
        from gpuwatch.simulate.demo import run_headless, run_live
        from gpuwatch.simulate.fleet.options import Options
        from gpuwatch.simulate.fleet.workloads import DemoError

        if not headless and (chosen["trace"] or chosen["hours"] or as_json):
            raise click.UsageError("--trace, --hours and --json belong to --headless")
        if headless and (chosen["seconds"] is not None or is_given("speed")):
            raise click.UsageError("--speed and --seconds belong to the live demo: leave --headless away")
        if chosen["instance_type"] and not chosen["trace"]:
            raise click.UsageError("--instance-type belongs to --trace: the demo's own fleet has its machines")
        options = Options(**chosen)
        if not headless:
            from gpuwatch.cli.console import console

            run_live(options, console())
            return
        try:
            with progress("playing the story") as advance:
                figures = run_headless(options, advance)
        except DemoError as error:
            print_text(error, err=True)
            sys.exit(2)
    except ImportError as error:
        print_text(f"The demo needs a part that is not installed ({error}): {install_command('demo')}", err=True)
        sys.exit(2)
    if as_json:
        print_text(json_text("demo", figures))
    else:
        print_text(figures.sentences())
