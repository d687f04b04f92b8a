"""Commands of a GPU host: agent, probe, snooze; `snooze` also keeps a workload of a cluster."""

import os
import sys
from pathlib import Path

import click

from gpuwatch.cli.base import (
    commands,
    config_option,
    duration_or_none,
    explain_errors,
    json_option,
    print_text,
    settings_of,
)
from gpuwatch.runtime.json_document import json_text

_PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}
_MOST_WORDS = 2  # of `snooze`: a workload and a duration


@commands.command(context_settings=_PASS_ON, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def agent(arguments: tuple[str, ...]) -> None:
    """Watch this host's GPUs and serve metrics and a verdict."""
    if arguments[:1] == ("join",):
        from gpuwatch.cli.join_host import agent_join

        agent_join.main(list(arguments[1:]), prog_name="gpuwatch agent join")
    from gpuwatch.agent.launch import main as run

    sys.exit(run(list(arguments)))


@commands.command(context_settings=_PASS_ON, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def probe(arguments: tuple[str, ...]) -> None:
    """Read this host's GPUs and print JSON lines."""
    from gpuwatch.agent.probe.main import main as run

    sys.exit(run(list(arguments)))


def _wish(context: click.Context, param: click.Parameter, words: tuple[str, ...]) -> tuple[str | None, float | None]:
    """The workload and the seconds, each None where it is not given. Only the name of a workload has a slash."""
    if len(words) > _MOST_WORDS:
        raise click.BadParameter(f"{words[_MOST_WORDS]!r} is too much; quote a name that has spaces", param=param)
    named = len(words) == _MOST_WORDS or any("/" in each for each in words)
    rest = words[1:] if named else words
    return words[0] if named else None, duration_or_none(context, param, rest[0] if rest else None)


@commands.command()
@click.argument("wish", metavar="[WORKLOAD] [DURATION]", nargs=-1, callback=_wish)
@click.option("--reason", default="", help="Why it is needed, with each DURATION; others see it.")
@click.option("--list", "listing", is_flag=True, help="Print the snoozes of this machine that hold.")
@click.option("--end", "ending", is_flag=True, help="Take your own snooze back; with WORKLOAD, anybody's.")
@config_option
@json_option
def snooze(
    wish: tuple[str | None, float | None],
    reason: str,
    path: Path | None,
    *,
    listing: bool,
    ending: bool,
    as_json: bool,
) -> None:
    """Keep this machine for DURATION, such as 4h: its agent reports busy. A new snooze replaces your last one.

    With WORKLOAD, such as team-a/notebook/alice, and where the controller runs: keep that workload of the cluster. Its
    notice is withdrawn, and its pods are neither ended nor drained.
    """
    workload, duration = wish
    if workload is None and (duration is not None) + listing + ending != 1:
        raise click.UsageError('give one of DURATION, --list, --end, such as: gpuwatch snooze 4h --reason "evaluation"')
    if workload is not None and (listing or (duration is not None) == ending):
        raise click.UsageError("with WORKLOAD, give DURATION or --end; `gpuwatch explain WORKLOAD` shows who keeps it")
    if duration is not None and not reason.strip():
        raise click.UsageError('a snooze needs a reason, such as --reason "evaluation runs overnight"')
    if workload is None:
        _snooze_machine(duration, reason, path, listing=listing, ending=ending, as_json=as_json)
    else:
        _snooze_workload(workload, duration, reason, path, as_json=as_json)


def _snooze_workload(workload: str, seconds: float | None, reason: str, path: Path | None, *, as_json: bool) -> None:
    """An order on the ledger; without seconds it takes the last one back."""
    with explain_errors():
        from gpuwatch.agent.evidence.snoozes import SnoozesDocument
        from gpuwatch.controller import workload_orders as orders
        from gpuwatch.runtime.clock import SystemClock

        settings, clock = settings_of(path), SystemClock()
        if seconds is None:
            given = orders.end_snooze(settings.ledger, clock, workload)
        else:
            given = orders.snooze(settings.ledger, clock, settings.rulebook, workload, seconds, reason)
        print_text(json_text("snooze", SnoozesDocument(workload=given)) if as_json else orders.text(given))


def _snooze_machine(
    duration: float | None, reason: str, path: Path | None, *, listing: bool, ending: bool, as_json: bool
) -> None:
    """A file on this machine, which its agent reads."""
    from gpuwatch.agent.evidence import snoozes
    from gpuwatch.config import ConfigError, load_agent
    from gpuwatch.runtime.clock import SystemClock

    try:
        settings = load_agent(path, os.environ).evidence
        text = ""
        if duration is not None:
            text = snoozes.snooze(settings, duration, reason, SystemClock())
        elif ending:
            text = "Your snooze has ended." if snoozes.end(settings.snooze) else "You hold no snooze."
        if as_json or listing:
            there, broken = snoozes.snoozes_in_force(settings.snooze, SystemClock())
            document = snoozes.SnoozesDocument(snoozes=there, broken=broken)
            text = json_text("snooze", document) if as_json else snoozes.listing(there, broken)
        print_text(text)
    except ConfigError as error:
        print_text(error, err=True)
        sys.exit(2)
    except snoozes.SnoozeError as error:
        print_text(error, err=True)
        sys.exit(1)
