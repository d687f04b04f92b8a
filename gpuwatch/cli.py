"""Operators' commands: parse, call, print. Each loads what it needs when it runs, so that `--help` stays quick."""

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch import __version__

if TYPE_CHECKING:
    from gpuwatch.controller import Parts, Round
    from gpuwatch.settings import Settings

_PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}
_config_option = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    help="The configuration file; else $GPUWATCH_CONFIG, else /etc/gpuwatch/gpuwatch.yaml.",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")


def main() -> int:
    """Run a command; the result is the exit status."""
    try:
        commands(prog_name="gpuwatch")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpuwatch")
def commands() -> None:
    """See every GPU, stop paying for the idle ones, never touch a busy one."""


@commands.command(context_settings=_PASS_ON, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def agent(arguments: tuple[str, ...]) -> None:
    """Watch this host's GPUs and serve metrics and a verdict."""
    from gpuwatch.agent.launch import main as run  # noqa: PLC0415  loaded by this command only

    sys.exit(run(list(arguments)))


@commands.command(context_settings=_PASS_ON, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def probe(arguments: tuple[str, ...]) -> None:
    """Read this host's GPUs and print JSON lines."""
    from gpuwatch.agent.probe import main as run  # noqa: PLC0415  loaded by this command only

    sys.exit(run(list(arguments)))


@commands.group()
def config() -> None:
    """Check the configuration, or print its schema."""


@config.command()
@_config_option
def check(path: Path | None) -> None:
    """Say what is in force, or every mistake and its remedy (exit status 2)."""
    from gpuwatch.configuration import default_path  # noqa: PLC0415  loaded by this command only

    settings = _settings(path)
    source = path or default_path(os.environ) or "no file, all defaults"
    click.echo(f"OK: {source}: {settings.summary}")


@config.command()
def schema() -> None:
    """Print the JSON Schema of the file, for editors."""
    from gpuwatch import configuration  # noqa: PLC0415  loaded by this command only

    click.echo(json.dumps(configuration.schema(), indent=2))


@commands.group()
def docs() -> None:
    """Print the pages that are generated from the code."""


@docs.command("metrics")
def docs_metrics() -> None:
    """Print docs/METRICS.md."""
    from gpuwatch.agent.catalogue import render_metrics_md  # noqa: PLC0415  loaded by this command only

    click.echo(render_metrics_md(), nl=False)


@docs.command("health")
def docs_health() -> None:
    """Print docs/health.md."""
    from gpuwatch.agent.health_manual import render_health_md  # noqa: PLC0415  loaded by this command only

    click.echo(render_health_md(), nl=False)


@docs.command("configuration")
def docs_configuration() -> None:
    """Print docs/CONFIGURATION.md."""
    from gpuwatch.configuration.manual import render_configuration_md  # noqa: PLC0415  loaded by this command only

    click.echo(render_configuration_md(), nl=False)


@commands.command()
@_config_option
def controller(path: Path | None) -> None:
    """Run rounds: observe, decide, and act where the mode is `enforce`."""
    _log_to_stderr()
    with _explained():
        from gpuwatch.rounds import run  # noqa: PLC0415  loaded by this command only

        run(_settings(path))


@commands.command()
@_config_option
@_json_option
def plan(path: Path | None, *, as_json: bool) -> None:
    """Print what a round would do now, and what forbids it, without doing anything."""
    with _a_plan(path) as (_, done):
        from gpuwatch import show  # noqa: PLC0415  loaded by this command only

        click.echo(json.dumps(show.plan_object(done)) if as_json else show.plan_text(done))
        sys.exit(1 if done.trouble else 0)


@commands.command()
@_config_option
@_json_option
def status(path: Path | None, *, as_json: bool) -> None:
    """Print the fleet: each node's use, what happens to it next, and why."""
    with _a_plan(path) as (_, done):
        from gpuwatch import show  # noqa: PLC0415  loaded by this command only

        if done.trouble:
            click.echo(done.trouble, err=True)
            sys.exit(1)
        click.echo(json.dumps(show.fleet_rows(done)) if as_json else show.status_table(done))


@commands.command()
@click.argument("node")
@_config_option
@_json_option
def explain(node: str, path: Path | None, *, as_json: bool) -> None:
    """Say of NODE (id or name): verdict, evidence, every guard rule's answer, what would change it, and its past."""
    with _a_plan(path) as (parts, done):
        from gpuwatch import show  # noqa: PLC0415  loaded by this command only
        from gpuwatch.controller import explained  # noqa: PLC0415  likewise

        if done.trouble:
            click.echo(done.trouble, err=True)
            sys.exit(1)
        found = done.observation.fleet.node(node)
        if found is None:
            known = ", ".join(each.name for each in done.observation.fleet.nodes[:10]) or "none"
            click.echo(f"No GPU node has the id or the unique name {node!r}. There are: {known}.", err=True)
            sys.exit(2)
        step, review = explained(parts, done, found)
        history = parts.ledger.history(found.id)
        if as_json:
            click.echo(json.dumps(show.explain_object(found, step, review, history)))
        else:
            click.echo(show.explain_text(found, step, review, history))


def _above_zero(_: click.Context, param: click.Parameter, value: str) -> float:
    """Seconds of a duration such as 90s, 5m or 2h."""
    from gpuwatch.model.knobs import parse_duration  # noqa: PLC0415  loaded by this command only

    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from error
    if not isinstance(seconds, float) or not 0 < seconds < float("inf"):
        raise click.BadParameter(f"{value!r} is not above 0; write for example 90s, 5m or 2h", param=param)
    return seconds


def _duration(context: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """An optional duration above zero."""
    return None if value is None else _above_zero(context, param, value)


@commands.command()
@click.argument("duration", required=False, callback=_duration)
@click.option("--reason", default="", help="Why the machine is needed; others see it.")
@click.option("--list", "listing", is_flag=True, help="Print the leases that hold.")
@click.option("--end", "ending", is_flag=True, help="Take your own lease back.")
@_config_option
def keep(duration: float | None, reason: str, path: Path | None, *, listing: bool, ending: bool) -> None:
    """Keep this machine for DURATION, such as 4h: its agent says busy until then. A new lease replaces your last."""
    from gpuwatch.agent.host import leases  # noqa: PLC0415  loaded by this command only
    from gpuwatch.clock import SystemClock  # noqa: PLC0415  likewise
    from gpuwatch.configuration import ConfigError, load_agent  # noqa: PLC0415  likewise

    if (duration is not None) + listing + ending != 1:
        raise click.UsageError('give one of DURATION, --list, --end, such as: gpuwatch keep 4h --reason "evaluation"')
    try:
        knobs = load_agent(path, os.environ).evidence
        if duration is not None:
            click.echo(leases.keep(knobs, duration, reason, SystemClock()))
        elif ending:
            click.echo("Your lease has ended." if leases.end(knobs.keep) else "You hold no lease.")
        else:
            click.echo(leases.listing(knobs.keep, SystemClock()))
    except ConfigError as error:
        click.echo(error, err=True)
        sys.exit(2)
    except leases.LeaseError as error:
        click.echo(error, err=True)
        sys.exit(1)


@commands.command()
@click.option("--headless", is_flag=True, help="Play it as fast as possible and print what came of it.")
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
@click.option("--after", callback=_above_zero, default="10m", show_default=True, help="Idle for so long: a candidate.")
@click.option("--notice", callback=_above_zero, default="5m", show_default=True, help="From notice to stop.")
@click.option("--warm-up", callback=_above_zero, default="10m", show_default=True, help="Untouched after a start.")
@click.option("--boot", callback=_above_zero, default="3m", show_default=True, help="From a start to a working node.")
@click.option("--interval", callback=_above_zero, default="1m", show_default=True, help="From round to round.")
@click.option("--sample", callback=_above_zero, default="1m", show_default=True, help="Headless: between GPU readings.")
@click.option(
    "--parked", type=click.Choice(["stop", "tell"]), help="Memory held, nothing computed [tell; traces: stop]."
)
@click.option("--speed", type=click.FloatRange(1, 3600), default=60, show_default=True, help="Live: times real time.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Live: end by itself after so many.")
def demo(*, headless: bool, as_json: bool, **chosen: Any) -> None:  # noqa: ANN401  as click gives them; Options has the types
    """Watch a simulated fleet being reclaimed by the real controller; nothing outside this process is touched."""
    try:
        from gpuwatch.demo import run_headless, run_live  # noqa: PLC0415  loaded by this command only
        from gpuwatch.simulation.lives import DemoError  # noqa: PLC0415  likewise
        from gpuwatch.simulation.options import Options  # noqa: PLC0415  likewise

        if not headless and (chosen["trace"] or chosen["hours"] or as_json):
            raise click.UsageError("--trace, --hours and --json belong to --headless")
        options = Options(**chosen)
        if not headless:
            run_live(options)
            return
        try:
            figures = run_headless(options)
        except DemoError as error:
            click.echo(error, err=True)
            sys.exit(2)
    except ImportError as error:
        click.echo(f"The demo needs a part that is not installed ({error}): pip install 'gpuwatch[demo]'", err=True)
        sys.exit(2)
    if as_json:
        click.echo(json.dumps(figures))
    else:
        click.echo("\n".join(f"{name:<22}{value}" for name, value in figures.items()))


@contextmanager
def _a_plan(path: Path | None) -> Iterator[tuple["Parts", "Round"]]:
    """One round that ends before anything is written down, over the live fleet."""
    with _explained():
        from gpuwatch.controller import step  # noqa: PLC0415  loaded by these commands only
        from gpuwatch.rounds import assembled  # noqa: PLC0415  likewise

        with assembled(_settings(path), read_only=True) as parts:
            yield parts, step(parts, act=False)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn what a person can mend into a sentence on stderr and exit status 2."""
    from gpuwatch.clouds import CloudError  # noqa: PLC0415  loaded by these commands only
    from gpuwatch.ledger import LedgerError  # noqa: PLC0415  likewise

    try:
        yield
    except (CloudError, LedgerError) as error:
        click.echo(error, err=True)
    except ImportError as error:
        click.echo(f"This command needs a part that is not installed ({error}): pip install 'gpuwatch[aws]'", err=True)
    else:
        return
    sys.exit(2)


def _settings(path: Path | None) -> "Settings":
    """The settings in force, or every mistake on stderr and exit status 2."""
    from gpuwatch.configuration import ConfigError, load  # noqa: PLC0415  loaded by these commands only

    try:
        return load(path, os.environ)
    except ConfigError as error:
        click.echo(error, err=True)
        sys.exit(2)


def _log_to_stderr() -> None:
    """Lines for the journal, which has its own clock; with the time elsewhere."""
    stamp = "" if "JOURNAL_STREAM" in os.environ else "%(asctime)s "
    logging.basicConfig(level=logging.INFO, format=f"{stamp}%(levelname)s %(name)s: %(message)s")
    for noisy in ("apscheduler", "botocore", "boto3", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
