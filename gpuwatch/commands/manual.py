"""docs/commands.md, from the commands themselves: every one of them with every option."""

import argparse
from collections.abc import Iterator

import click

from gpuwatch.agent import launch, probe
from gpuwatch.commands.base import commands

_LEAN = {"agent": launch.flags, "probe": probe.flags}  # these read their own arguments, without click
_COMMON = {"--config": "See above.", "--json": "See above."}
_HEAD = """# Commands

Printed by `gpuwatch docs commands`; do not edit. `gpuwatch COMMAND --help` says the same on the spot.

- `--config FILE`: the configuration; else `$GPUWATCH_CONFIG`, else `/etc/gpuwatch/gpuwatch.yaml`, else all defaults.
  Each key can be set by a variable, too ([CONFIGURATION.md](CONFIGURATION.md)).
- `--json`: one JSON document instead of text, on standard output; what is wrong goes to standard error.
- Exit status: 0 well; 1 what was asked about is not well (a problem found, a fleet that cannot be seen); 2 the command
  could not be carried out as given (options, configuration, ledger, cloud).
- Completion of commands and options by the tab key, for bash 4.4 or newer, zsh and fish:

  ```console
  $ echo 'eval "$(_GPUWATCH_COMPLETE=bash_source gpuwatch)"' >> ~/.bashrc
  $ echo 'eval "$(_GPUWATCH_COMPLETE=zsh_source gpuwatch)"' >> ~/.zshrc
  $ echo '_GPUWATCH_COMPLETE=fish_source gpuwatch | source' > ~/.config/fish/completions/gpuwatch.fish
  ```
"""


def render_commands_md() -> str:
    """The whole page."""
    lines = [_HEAD]
    for title, names in commands.sections().items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += _told(commands.commands[name], (name,))
    return "\n".join(lines).rstrip("\n") + "\n"


def _told(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
    """One command, and those within it."""
    yield f"### gpuwatch {' '.join(path)}"
    yield from ("", *(" ".join(each.split()) for each in (command.help or "").split("\n\n")), "")
    rows = list(_lean(_LEAN[path[0]]()) if path[0] in _LEAN else _options(command))
    if rows:
        yield from ("| option | |", "| --- | --- |")
        yield from (f"| `{_cell(written)}` | {_cell(sentence)} |" for written, sentence in rows)
        yield ""
    if path == ("agent",):
        yield from (f"- `gpuwatch agent {order}`: {sentence}" for order, sentence in launch.ORDERS.items())
        yield ""
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from _told(command.commands[name], (*path, name))


def _options(command: click.Command) -> Iterator[tuple[str, str]]:
    """Its arguments and options as they are written, with their sentences."""
    for each in command.params:
        if isinstance(each, click.Argument):
            yield each.metavar or (each.name or "").upper(), "" if each.required else "Optional."
        elif isinstance(each, click.Option):
            name = max(each.opts, key=len)
            yield f"{name} {'' if each.is_flag else _value(each)}".strip(), _COMMON.get(name) or _sentence(each)


def _value(option: click.Option) -> str:
    """What an option takes, in one word."""
    if option.metavar:
        return option.metavar
    choices = getattr(option.type, "choices", None)
    return "|".join(map(str, choices)) if choices else option.type.name.split()[0].upper()


def _sentence(option: click.Option) -> str:
    """What it does, with its default."""
    shown = option.show_default if isinstance(option.show_default, str) else option.default
    return f"{option.help or ''} [default: {shown}]".strip() if option.show_default else option.help or ""


def _lean(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Likewise of a parser of the standard library."""
    for each in parser._actions:  # noqa: SLF001  argparse has no other way to ask
        metavar = each.metavar or ("" if each.choices is None else "|".join(map(str, each.choices)))
        if "--help" not in each.option_strings:
            yield f"{each.option_strings[-1]} {metavar}".strip(), each.help or ""


def _cell(text: str) -> str:
    """Within a table."""
    return " ".join(text.split()).replace("|", "\\|")
