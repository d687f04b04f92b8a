"""The command that tries idle policies on recorded history."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.commands.base import above_zero, commands, json_option

if TYPE_CHECKING:
    from gpuwatch.backtest.compare import Policy

_COMPARED = ("after=5m", "after=30m", "after=break_even", "after=learned", "never")


@commands.command(options_metavar="--trace FILE [OPTIONS]")
@click.option(
    "--trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="Recorded load, CSV or .gz, in either form of `gpuwatch demo --trace`.",
)
@click.option("--restart-cost", callback=above_zero, default="10m", show_default=True, help="In time of rental.")
@click.option(
    "--compare",
    multiple=True,
    metavar="POLICY...",
    help="never, after=<duration>, after=break_even, =randomized or =learned; several may follow, or repeat it.",
)
@click.option("--gpus-per-node", type=click.IntRange(1, 64), default=1, show_default=True, help="In interval traces.")
@click.option("--instance-type", help="What recorded nodes are priced as [by their GPUs].")
@click.option("--hours", type=click.FloatRange(0, 87600, min_open=True), help="The first of the recording [all].")
@click.option("--boot", callback=above_zero, default="3m", show_default=True, help="For which people wait at a start.")
@click.option(
    "--regret", callback=above_zero, default="15m", show_default=True, help="Needed so soon: a suspected wrong stop."
)
@click.option(
    "--check-hours",
    type=click.FloatRange(0),
    help="Play the first so many hours through the real controller; 0: none [what 20 s allow of some nodes].",
)
@json_option
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write the report as one page, too.")
@click.argument("more", nargs=-1, metavar="")
def backtest(  # noqa: PLR0913  one parameter for each option
    *,
    trace: Path,
    restart_cost: float,
    compare: tuple[str, ...],
    gpus_per_node: int,
    instance_type: str | None,
    hours: float | None,
    boot: float,
    regret: float,
    check_hours: float | None,
    as_json: bool,
    html: Path | None,
    more: tuple[str, ...],
) -> None:
    """Try idle policies on recorded history: what each would have saved, and what it would have cost.

    Ends with 1 if the real controller, playing a part of it, stopped a node wrongly or broke a property.
    """
    from gpuwatch.backtest import page, report  # noqa: PLC0415  loaded by this command only
    from gpuwatch.backtest.checked import Bounds  # noqa: PLC0415  likewise
    from gpuwatch.backtest.compare import Terms  # noqa: PLC0415  likewise
    from gpuwatch.clock import SystemClock  # noqa: PLC0415  likewise
    from gpuwatch.simulation.lives import DemoError  # noqa: PLC0415  likewise
    from gpuwatch.simulation.options import Options  # noqa: PLC0415  likewise

    policies = _policies(compare, more)
    options = Options(trace=trace, hours=hours, gpus_per_node=gpus_per_node, instance_type=instance_type, boot=boot)
    terms = Terms(restart=restart_cost, boot=boot, regret=regret)
    try:
        told = report.backtest(
            options, policies, terms, None if check_hours == 0 else Bounds(hours=check_hours), SystemClock()
        )
    except DemoError as error:
        click.echo(error, err=True)
        sys.exit(2)
    if html is not None:
        try:
            html.write_text(page.as_html(told), encoding="utf-8")
        except OSError as error:
            raise click.BadParameter(f"{html} cannot be written: {error.strerror}", param_hint="--html") from error
    click.echo(json.dumps(report.as_json(told)) if as_json else report.as_text(told))
    if not told.sound:
        sys.exit(1)


def _policies(compare: tuple[str, ...], more: tuple[str, ...]) -> "tuple[Policy, ...]":
    """Each policy once; click gives the words that follow the first after --compare as arguments."""
    from gpuwatch.backtest.compare import policy_of  # noqa: PLC0415  loaded by this command only

    if more and not compare:
        raise click.UsageError(f"{more[0]!r} stands alone; policies follow --compare")
    try:
        return tuple(policy_of(text) for text in dict.fromkeys((*compare, *more) or _COMPARED))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--compare") from error
