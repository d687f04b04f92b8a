"""The configuration's file: what is no readable file of settings is refused."""

import os
from pathlib import Path

import pytest

from gpuwatch.config import ConfigError, load
from tests.support.builders.configurations import mistakes


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """A named file must exist: defaults in its place would be a surprise."""
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file or directory"):
        load(tmp_path / "none.yaml", {})


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """A folder in the file's place is told."""
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, {})


def test_a_pipe_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    """What is named and cannot be read twice must not quietly mean "all defaults"."""
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ConfigError, match="cannot be read: not a regular file"):
        load(tmp_path / "pipe", {})


def test_a_file_of_bytes_is_told(file: Path) -> None:
    """What is no UTF-8 is no configuration."""
    file.write_bytes(b"fleet: \xff")

    with pytest.raises(ConfigError, match=r"is not UTF-8 text .byte 0xff"):
        load(file, {})


def test_a_bomb_of_aliases_is_refused(file: Path) -> None:
    """A small file that unfolds to millions of values is refused before it is unfolded."""
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]

    assert "aliases repeat or contain each other without end" in mistakes(file, "\n".join(lines))


@pytest.mark.parametrize(
    ("written", "found"), [("ledger.db", "FOLDER/ledger.db"), ("a/../b.db", "FOLDER/a/../b.db"), ("/x.db", "/x.db")]
)
def test_a_relative_ledger_is_of_the_files_folder(
    file: Path, monkeypatch: pytest.MonkeyPatch, written: str, found: str
) -> None:
    """Wherever a command is run, and however the file is named. A variable's path is of the working folder."""
    file.write_text(f"ledger: {{path: {written}}}", encoding="utf-8")
    monkeypatch.chdir(file.parent.parent)
    named = [file, file.relative_to(Path.cwd())]

    assert {load(each, {}).ledger.path for each in named} == {found.replace("FOLDER", str(file.parent))}
    assert load(file, {"GPUWATCH_LEDGER__PATH": "other.db"}).ledger.path == "other.db"


def test_a_command_may_have_variables_of_its_own(file: Path) -> None:
    """A shell's, and a template of docker's: what is started puts them in."""
    file.write_text(
        "agent:\n"
        "  before_stop: {command: [/bin/sh, -c, 'tar cf \"/save/${HOSTNAME}.tar\" /scratch']}\n"
        "  evidence: {command: {argv: [/usr/bin/docker, ps, --format, '{{ .ID }}']}}\n"
        "  metadata: {on_interruption: [/bin/sh, -c, '${HOME}/save']}\n"
    )

    agent = load(file, {}).agent
    assert "${HOSTNAME}" in agent.before_stop.command[2]
    assert agent.evidence.command.argv[3] == "{{ .ID }}"
    assert agent.metadata.on_interruption[2] == "${HOME}/save"
