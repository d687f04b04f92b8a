"""The command that tries idle policies on recorded history."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.backtest_gate import OWN, Trial, may_be_kept, others_of, trial_of
from gpuwatch.cli.backtest_input import Asked, history_options
from gpuwatch.cli.base import above_zero, commands, explain_errors, json_option, print_text, progress
from gpuwatch.runtime.json_document import json_text

if TYPE_CHECKING:
    from gpuwatch.simulate.backtest.compare import Policy

_COMPARED = ("timeout=5m", "timeout=30m", "timeout=break_even", "timeout=learned", "profile=balanced", "never")


def _count_or_all(_: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """A whole number from 0 on; None where nothing is asked for."""
    if value is None or value == "all":
        return None if value is None else sys.maxsize
    if not (value.isascii() and value.isdigit()):
        raise click.BadParameter(f"{value!r} is neither a whole number from 0 on nor 'all'", param=param)
    return int(value)


@commands.command(options_metavar="--trace FILE | --prometheus [URL] | --ledger [FILE] [OPTIONS]")
@history_options
@click.option("--restart-cost", callback=above_zero, default="10m", show_default=True, help="In time of rental.")
@click.option(
    "--compare",
    multiple=True,
    metavar="POLICY...",
    help="never, timeout=<duration>, timeout=break_even or =learned, profile=<name>, pool: the rules of --pool in "
    "--config; several may follow, or repeat it.",
)
@click.option("--gpus-per-node", type=click.IntRange(1, 64), default=1, show_default=True, help="In interval traces.")
@click.option("--instance-type", help="What recorded nodes are priced as [by their GPUs].")
@click.option("--hours", type=click.FloatRange(0, 87600, min_open=True), help="The first of the recording [all].")
@click.option("--boot", callback=above_zero, default="3m", show_default=True, help="For which people wait at a start.")
@click.option(
    "--regret", callback=above_zero, default="15m", show_default=True, help="Needed so soon: a suspected wrong stop."
)
@click.option(
    "--stops",
    "most",
    callback=_count_or_all,
    metavar="N|all",
    help="Stops of each policy that are listed [5 as text, 20 as JSON and on the page].",
)
@click.option(
    "--check-hours",
    type=click.FloatRange(0),
    help="Play the first so many hours through the real controller; 0: none [as many as a minute allows].",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Processes that work at once [as many as processors, for large histories].",
)
@click.option(
    "--keep", is_flag=True, help="Try the rules of --pool in --config, too, and keep the result in their ledger."
)
@click.option(
    "--other-nodes",
    "why_others",
    metavar="REASON",
    help="With --keep: keep it although the recording is of other nodes than the pool's; REASON goes on record.",
)
@json_option
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write the report as one page, too.")
@click.argument("more", nargs=-1, metavar="")
def backtest(  # noqa: PLR0913  one parameter for each option
    *,
    asked: Asked,
    restart_cost: float,
    compare: tuple[str, ...],
    gpus_per_node: int,
    instance_type: str | None,
    hours: float | None,
    boot: float,
    regret: float,
    most: int | None,
    check_hours: float | None,
    jobs: int | None,
    keep: bool,
    why_others: str | None,
    as_json: bool,
    html: Path | None,
    more: tuple[str, ...],
) -> None:
    """Replay idle policies on recorded history, and show what each would have saved and cost.

    Ends with 1 if the real controller, playing a part of it, stopped a node wrongly or broke a property, or if what is
    kept did not pass.
    """
    from gpuwatch.runtime.clock import SystemClock
    from gpuwatch.simulate.backtest import html as page
    from gpuwatch.simulate.backtest import report, text
    from gpuwatch.simulate.backtest.compare import Terms
    from gpuwatch.simulate.backtest.document import backtest_document
    from gpuwatch.simulate.backtest.safety_check import Bounds
    from gpuwatch.simulate.fleet.options import Options
    from gpuwatch.simulate.fleet.workloads import DemoError

    names = _names(compare, more, keep=keep)
    trial = trial_of(asked) if OWN in names else None
    policies = _policies(names, trial)
    if why_others is not None and not (keep and why_others.strip()):
        raise click.UsageError("--other-nodes REASON goes with --keep, and needs a reason; it is recorded")
    if trial is not None and keep:
        may_be_kept(trial, asked, regret, check_hours)
    recorded = asked.trace or Path()  # whatever the source, it is a recording that is played: nothing is rationed
    options = Options(trace=recorded, hours=hours, gpus_per_node=gpus_per_node, instance_type=instance_type, boot=boot)
    terms = Terms(restart=restart_cost, boot=boot, regret=regret)
    try:
        with explain_errors():
            asked = asked if trial is None else asked.beside(trial.parked, trial.parked_after)
            with progress("reading the history"):
                source, history = asked.history(options, SystemClock())
            others = others_of(trial, asked, history) if trial is not None and keep else None
        if others is not None and why_others is None:
            raise click.UsageError(f"--keep: {others}")
        bounds = None if check_hours == 0 else Bounds(hours=check_hours)
        with progress("playing the policies") as advance:
            result = report.backtest(
                source, history, options, policies, terms, bounds, SystemClock(), jobs=jobs, advance=advance
            )
    except DemoError as error:
        print_text(error, err=True)
        sys.exit(2)
    listed = report.LISTED if most is None else most
    if html is not None:
        try:
            html.write_text(page.as_html(result, listed), encoding="utf-8")
        except OSError as error:
            raise click.BadParameter(f"{html} cannot be written: {error.strerror}", param_hint="--html") from error
    if as_json:
        print_text(json_text("backtest", backtest_document(result, listed)))
    else:
        print_text(text.as_text(result, text.LISTED if most is None else most))
    passed = trial is None or not keep or trial.keep(result, SystemClock(), None if others is None else why_others)
    if not (result.sound and passed):
        sys.exit(1)


def _names(compare: tuple[str, ...], more: tuple[str, ...], *, keep: bool) -> tuple[str, ...]:
    """Each policy's once; click gives the words that follow the first after --compare as arguments."""
    if more and not compare:
        raise click.UsageError(f"{more[0]!r} stands alone; policies follow --compare")
    names = (*compare, *more) or _COMPARED
    return tuple(dict.fromkeys((OWN, *names) if keep else names))


def _policies(names: tuple[str, ...], trial: Trial | None) -> "tuple[Policy, ...]":
    """Each policy by its name; the pool's own rules are one for each wait that they may use."""
    from gpuwatch.simulate.backtest.compare import policy_of

    try:
        chosen = [trial.policies if trial is not None and name == OWN else (policy_of(name),) for name in names]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--compare") from error
    return tuple(policy for each in chosen for policy in each)
