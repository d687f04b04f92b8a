"""Commands of a GPU host: agent, probe, snooze."""

import os
import sys
from pathlib import Path

import click

from gpuwatch.cli.base import commands, config_option, duration_or_none, json_option, say
from gpuwatch.cli.json_output import json_text

_PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


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
    from gpuwatch.agent.probe.main import main as run  # noqa: PLC0415  loaded by this command only

    sys.exit(run(list(arguments)))


@commands.command()
@click.argument("duration", required=False, callback=duration_or_none)
@click.option("--reason", default="", help="Why the machine is needed, with each DURATION; others see it.")
@click.option("--list", "listing", is_flag=True, help="Print the snoozes that hold.")
@click.option("--end", "ending", is_flag=True, help="Take your own snooze back.")
@config_option
@json_option
def snooze(
    duration: float | None, reason: str, path: Path | None, *, listing: bool, ending: bool, as_json: bool
) -> None:
    """Keep this machine for DURATION, such as 4h: its agent reports busy. A new snooze replaces your last one."""
    from gpuwatch.agent.evidence import snoozes  # noqa: PLC0415  loaded by this command only
    from gpuwatch.config import ConfigError, load_agent  # noqa: PLC0415  likewise
    from gpuwatch.runtime.clock import SystemClock  # noqa: PLC0415  likewise

    if (duration is not None) + listing + ending != 1:
        raise click.UsageError('give one of DURATION, --list, --end, such as: gpuwatch snooze 4h --reason "evaluation"')
    if duration is not None and not reason.strip():
        raise click.UsageError('a snooze needs a reason, such as --reason "evaluation runs overnight"')
    try:
        settings = load_agent(path, os.environ).evidence
        text = ""
        if duration is not None:
            text = snoozes.snooze(settings, duration, reason, SystemClock())
        elif ending:
            text = "Your snooze has ended." if snoozes.end(settings.snooze) else "You hold no snooze."
        if as_json or listing:
            found = snoozes.held(settings.snooze, SystemClock())
            text = json_text("snooze", snoozes.listing_object(*found)) if as_json else snoozes.listing(*found)
        say(text)
    except ConfigError as error:
        say(error, err=True)
        sys.exit(2)
    except snoozes.SnoozeError as error:
        say(error, err=True)
        sys.exit(1)
