"""Every command of the command line, found by walking the tree of groups: a new one is in every test that walks it."""

from collections.abc import Iterator

import click

from gpuwatch.cli.main import commands

Path = tuple[str, ...]


def every_command(group: click.Command = commands, path: Path = ()) -> Iterator[tuple[Path, click.Command]]:
    """The words of each command that does something, such as ("audit", "log"), and the command."""
    if not isinstance(group, click.Group):
        yield path, group
        return
    if group.invoke_without_command:
        yield path, group
    for name, command in group.commands.items():
        yield from every_command(command, (*path, name))
