"""`gpuwatch doctor`: what keeps an agent or a controller from its work."""

import getpass
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch import __version__
from gpuwatch.cli.base import commands, config_option, json_option, print_text, progress, settings_of
from gpuwatch.runtime.json_document import json_text

if TYPE_CHECKING:
    from gpuwatch.cli.doctor.report import Finding

_alive_option = click.option("--alive", is_flag=True, help="Only ask whether it runs and answers.")


@commands.group(invoke_without_command=True)
@click.option(
    "--record",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Instead: list once what the clouds have, and write their answers to a new folder, with names replaced.",
)
@config_option
@click.pass_context
def doctor(context: click.Context, folder: Path | None, path: Path | None) -> None:
    """Find what keeps an agent or a controller from working, with the remedy. Nothing is changed."""
    if context.invoked_subcommand is None:
        _record(context, folder, path)
    if folder is not None:
        raise click.UsageError(f"--record takes no command: gpuwatch doctor --record {folder}", context)
    if path is not None:
        context.default_map = {name: {"path": path} for name in ("agent", "controller")}


def _record(context: click.Context, folder: Path | None, path: Path | None) -> None:
    """Write what the clouds of the settings answer to lists; exit status 1 where one of the looks had no answer."""
    if folder is None:
        print_text(context.get_help())
        context.exit(2)
    settings = settings_of(path)
    from gpuwatch.cli.doctor.record import record_clouds
    from gpuwatch.clouds.settings import connect
    from gpuwatch.runtime.clock import SystemClock

    clock, clouds = SystemClock(), settings.named_clouds
    ways = {name: partial(connect, chosen, fleet=settings.fleet, clock=clock) for name, chosen in clouds.items()}
    try:
        with progress("asking the clouds"):
            done = record_clouds(ways, settings.fleet, folder)
    except OSError as error:
        raise click.BadParameter(f"{error}; name a new or empty folder", param_hint="--record") from error
    for name, count in done.exchanges.items():
        print_text(f"{folder / name}.jsonl: {count} answers of {name}")
    for looked_at, why in done.troubles.items():
        print_text(f"Warning: {looked_at}: {why}", err=True)
    print_text("Names, ids, addresses, account numbers and tags are replaced. Look at the files before you send them.")
    context.exit(1 if done.troubles else 0)


def _cuda(_: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A version of CUDA."""
    from gpuwatch.cli.doctor.devices import cuda_version

    try:
        if value is not None:
            cuda_version(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from error
    return value


@doctor.command()
@click.option("--cuda", callback=_cuda, metavar="VERSION", help="Say whether the driver can run this CUDA, as 12.4.")
@config_option
@json_option
@_alive_option
def agent(path: Path | None, *, cuda: str | None, as_json: bool, alive: bool) -> None:
    """Check this GPU host: driver, permissions, metadata, clock, port, certificates."""
    from gpuwatch.cli.doctor import agent as part
    from gpuwatch.cli.doctor import ports
    from gpuwatch.cli.doctor.context import AgentCase
    from gpuwatch.cli.doctor.runner import examine
    from gpuwatch.config import ConfigError, load_agent
    from gpuwatch.runtime.clock import SystemClock

    try:
        settings = load_agent(path, os.environ)
    except ConfigError as error:
        print_text(error, err=True)
        sys.exit(2)
    clock = SystemClock()
    if alive:
        _report("agent", (ports.alive(settings, "agent"),), as_json=as_json)
    with progress("checking this host") as advance:
        findings = examine(part.CHECKS, AgentCase(settings=settings, clock=clock, cuda=cuda), clock, advance)
    _report("agent", findings, as_json=as_json)


@doctor.command()
@config_option
@json_option
@_alive_option
def controller(path: Path | None, *, as_json: bool, alive: bool) -> None:
    """Check this controller: cloud, permissions, agents, Prometheus, ledger, clock, port, certificates."""
    settings = settings_of(path)
    from gpuwatch.cli.doctor import ports
    from gpuwatch.runtime.clock import SystemClock

    if alive:
        _report("controller", (ports.alive(settings.controller, "controller"),), as_json=as_json)
    from gpuwatch.cli.doctor import controller as part
    from gpuwatch.cli.doctor.context import ControllerCase
    from gpuwatch.cli.doctor.runner import examine
    from gpuwatch.cli.parts import cloud_of

    clock = SystemClock()
    case = ControllerCase(settings, clock, lambda: cloud_of(settings, clock))
    with progress("checking the controller") as advance:
        findings = examine(part.CHECKS, case, clock, advance)
    _report("controller", findings, as_json=as_json)


def _report(part: str, findings: "tuple[Finding, ...]", *, as_json: bool) -> None:
    """Print what was found, and end with the status that says whether there is a problem."""
    from gpuwatch.cli.doctor.report import Examination, Severity, as_text, doctor_document

    examination = Examination(part=part, version=__version__, user=_user(), findings=findings)
    document = doctor_document(examination)
    print_text(json_text(f"doctor.{part}", document) if as_json else as_text(examination))
    sys.exit(1 if examination.count(Severity.PROBLEM) else 0)


def _user() -> str:
    """Who looks; a number has no name in many containers."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "an unknown user"
    return f"{name} (uid {os.geteuid()})"
