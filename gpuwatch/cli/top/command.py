"""The command `gpuwatch top`; what draws is loaded by this command only."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import above_zero, commands, config_option, json_option, print_text
from gpuwatch.runtime.json_document import json_text
from gpuwatch.runtime.printable import not_utf8

if TYPE_CHECKING:
    from gpuwatch.agent.settings import AgentSettings
    from gpuwatch.cli.top.source import Login, Source

_NOTHING_READ = 1


@commands.command()
@click.option("--once", is_flag=True, help="Print the table once and end; so without a terminal.")
@click.option("--interval", callback=above_zero, default="2s", show_default=True, help="From one look to the next.")
@click.option("--agent", "url", metavar="URL", help="The agent to ask; else this host's own, else none is needed.")
@click.option("--user", metavar="NAME", help="Log in to the agent; the password is asked for.")
@click.option(
    "--password-file", type=click.Path(dir_okay=False, path_type=Path), help="With --user: the file with the password."
)
@config_option
@json_option
def top(
    *,
    once: bool,
    interval: float,
    url: str | None,
    user: str | None,
    password_file: Path | None,
    path: Path | None,
    as_json: bool,
) -> None:
    """Show this host's GPUs live: who uses them, and why they count as busy or idle."""
    from gpuwatch.cli.console import console, is_interactive
    from gpuwatch.cli.top.source import AgentSource, NoAgentError, RefusedError, find_source
    from gpuwatch.runtime.clock import SystemClock

    if url is not None and path is not None:
        raise click.UsageError("--agent names the agent to ask, and --config where to look for it: give one of them")
    clock, login = SystemClock(), _login(user, password_file)
    source: Source
    try:
        source = AgentSource(url, login) if url is not None else find_source(_settings(path), login, clock)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--agent") from error
    try:
        if as_json or once or not is_interactive():
            status = _once(source, as_json=as_json)
        else:
            from gpuwatch.cli.top.live import run

            if url is not None:
                source.page()  # a mistake in the URL is said at once
            status = run(source, console(), clock, interval)
    except (NoAgentError, RefusedError) as error:
        print_text(error, err=True)
        status = 2
    finally:
        source.close()
    sys.exit(status)


def _once(source: "Source", *, as_json: bool) -> int:
    """Print one page; 1 if no GPU could be read."""
    import msgspec

    source.settle()
    page = source.page()
    if as_json:
        print_text(json_text("top", {"note": source.note, **msgspec.to_builtins(page)}))  # the note first
    else:
        from gpuwatch.cli.console import console, width_of
        from gpuwatch.cli.top.screen import Look, screen
        from gpuwatch.runtime.clock import SystemClock

        out = console()
        look = Look(width=width_of(out), note=source.note)
        for line in screen(page, look, SystemClock().now()):
            out.print(line, soft_wrap=True)
    return 0 if any(gpu.down is None for gpu in page.gpus) else _NOTHING_READ


def _login(user: str | None, password_file: Path | None) -> "Login | None":
    """The user of the agent, with a password from the file or the keyboard."""
    from gpuwatch.cli.top.source import Login

    if user is None:
        if password_file is not None:
            raise click.UsageError("--password-file goes with --user NAME")
        return None
    if password_file is None:
        return Login(user=user, password=click.prompt("Password", hide_input=True, err=True))
    try:
        return Login(user=user, password=password_file.read_text(encoding="utf-8").rstrip("\r\n"))
    except OSError as error:
        wrong = f"{password_file} cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        wrong = f"{password_file} {not_utf8(error)}"
    raise click.BadParameter(wrong, param_hint="--password-file")


def _settings(path: Path | None) -> "AgentSettings":
    """The agent's settings: where it listens, and how to read without it.

    The file in /etc is as none if this user may not read it: people may look at GPUs who may not see settings.
    """
    from gpuwatch.agent.settings import AgentSettings
    from gpuwatch.config import ConfigError, load_agent
    from gpuwatch.config.chosen_file import DEFAULT_PATH, FILE_VARIABLE

    usual = path is None and not os.environ.get(FILE_VARIABLE)
    try:
        if usual and DEFAULT_PATH.exists() and not os.access(DEFAULT_PATH, os.R_OK):
            return AgentSettings()
        return load_agent(path, os.environ)
    except PermissionError:  # not even its folder may be looked into
        return AgentSettings()
    except ConfigError as error:
        print_text(error, err=True)
        sys.exit(2)
