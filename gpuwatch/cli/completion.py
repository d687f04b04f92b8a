"""The command `gpuwatch completion`, and the values that the tab key completes. A failure completes nothing."""

import argparse
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from gpuwatch.cli.base import commands, print_text

if TYPE_CHECKING:
    from gpuwatch.config.settings import Settings

VARIABLE = "_GPUWATCH_COMPLETE"
_PATIENCE_SECONDS = float(os.environ.get("_GPUWATCH_COMPLETE_SECONDS", "0.8"))  # a person waits at the prompt
_Values = Callable[[Path | None], Iterable[str]]


@commands.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that makes the tab key complete commands, options, nodes and pools in SHELL.

    In ~/.bashrc: eval "$(gpuwatch completion bash)"
    """
    kind = get_completion_class(shell)
    if kind is not None:
        made = kind(commands, {}, "gpuwatch", VARIABLE)
        print_text(made.source_template % made.source_vars())


def attach() -> None:
    """Let options and arguments complete their values; called where a shell asks, so that nothing else pays for it."""
    for command in _commands_within(commands):
        for each in command.params:
            values = _VALUES.get(each.name or "")
            if values is not None:
                each._custom_shell_complete = _completer(values)  # noqa: SLF001  else each declaration would name it
    for name in ("agent", "probe"):
        own = commands.commands[name]
        own.params = [*(click.Option([flag], is_flag=True) for flag in _flags(name)), *own.params]


def _commands_within(command: click.Command) -> Iterator[click.Command]:
    yield command
    for each in getattr(command, "commands", {}).values():
        yield from _commands_within(each)


def _flags(name: str) -> list[str]:
    """The options of a command that reads its own arguments."""
    from gpuwatch.agent import launch
    from gpuwatch.agent.probe import main as probe

    parser: argparse.ArgumentParser = {"agent": launch.flags, "probe": probe.flags}[name]()
    return [each.option_strings[-1] for each in parser._actions if each.option_strings]  # noqa: SLF001  no other way


def _completer(values: _Values) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    def complete(context: click.Context, _: click.Parameter, begin: str) -> list[CompletionItem]:
        path = context.params.get("path")
        found = _in_time(values, path if isinstance(path, Path) else None)
        return [CompletionItem(each) for each in sorted(set(found)) if each.startswith(begin)]

    return complete


def _in_time(values: _Values, path: Path | None) -> list[str]:
    """What is found by then; nothing where it takes longer or fails."""
    found: list[str] = []

    def look() -> None:
        try:
            found.extend(values(path))
        except (Exception, SystemExit):  # noqa: BLE001  a prompt is no place for an error
            found.clear()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(_PATIENCE_SECONDS)
    return [] if thread.is_alive() else found


def _settings(path: Path | None) -> "Settings":
    from gpuwatch.config import load

    return load(path, os.environ)


def pools(path: Path | None) -> Iterable[str]:
    """The pools of the configuration."""
    return _settings(path).rulebook.known


def nodes(path: Path | None) -> Iterable[str]:
    """Ids and names of the nodes of the newest round on record."""
    from gpuwatch.ledger import Ledger

    settings = _settings(path).ledger
    if settings.unwritten:
        return []
    ledger = Ledger.connect(settings, read_only=True)
    try:
        newest = ledger.rounds(limit=1)
        fleet = ledger.observation(newest[0].id).fleet.nodes if newest else ()
        return [name for node in fleet for name in (node.id, node.name)]
    finally:
        ledger.close()


_VALUES: dict[str, _Values] = {"node": nodes, "nodes": nodes, "node_id": nodes, "pool": pools, "only": pools}
