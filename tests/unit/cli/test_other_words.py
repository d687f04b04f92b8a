"""Words that people type for a command: each hint names a command that exists."""

import click
import pytest
from click.testing import CliRunner

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


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("start", "`gpuwatch agent` runs on a GPU host, `gpuwatch controller` on one machine"),
        ("stop gpu-1", "No command stops a machine"),
        ("run", "You may want `gpuwatch controller`."),
        ("protect gpu-1", "You may want `gpuwatch snooze`."),
        ("off", "You may want `gpuwatch pause`."),
        ("tonight", "You may want `gpuwatch plan`."),
        ("uninstall", "docs/install.md"),
        ("frobnicate", "`gpuwatch --help` lists all commands."),
        ("stauts", "Did you mean 'status'?"),
        ("status gpu-1", "You may want `gpuwatch explain NODE`."),
        ("pause 2h --reason x", "You may want `gpuwatch pause --for DURATION`."),
        ("snooze --node gpu-1 4h", "Run it there, or give the machine the tag gpuwatch:snooze-until=TIME."),
    ],
)
def test_a_wrong_word_is_answered_by_what_somebody_means(line: str, words: str) -> None:
    """What people type for something else comes before a command whose name looks like it; the status is 2."""
    answer = CliRunner().invoke(commands, line.split(), prog_name="gpuwatch")
    assert (words in answer.output, answer.exit_code) == (True, 2), answer.output


def test_a_word_within_a_group_is_found_there() -> None:
    """All groups that have it; a word that is unlike any command gives no hint."""
    assert meant_by("init", commands) == "`gpuwatch config init`"
    assert meant_by("ls", commands) == "`gpuwatch status`"
    assert meant_by("abracadabra", commands) is None
