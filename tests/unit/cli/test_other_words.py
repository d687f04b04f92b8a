"""Words that people type for a command: each hint names a command that exists."""

import click
import pytest

from gpuwatch.cli.hints import _MEANT, meant_by
from gpuwatch.cli.main import commands


@pytest.mark.parametrize("line", sorted(set(_MEANT.values())))
def test_every_hint_is_a_command_line(line: str) -> None:
    """Its words lead to a command, its options are the command's own."""
    command: click.Command = commands
    for word in line.split():
        if word.startswith("-"):
            assert word == "--help" or any(word in each.opts for each in command.params)
        else:
            assert isinstance(command, click.Group)
            command = command.commands[word]


def test_a_command_keeps_its_name() -> None:
    """No hint stands for a name that a command has."""
    assert set(_MEANT).isdisjoint(commands.commands)


def test_a_word_within_a_group_is_found_there() -> None:
    """All groups that have it; a word that is unlike any command gives no hint."""
    assert meant_by("init", commands) == "`gpuwatch config init`"
    assert meant_by("ls", commands) == "`gpuwatch status`"
    assert meant_by("abracadabra", commands) is None
