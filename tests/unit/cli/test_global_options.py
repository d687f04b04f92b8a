"""`--config` and `--json` before or after the command, and exit status 2 for what cannot work as given."""

import json
import subprocess
import sys
from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from gpuwatch.cli.main import commands
from tests.support.paths import ROOT

_OWN_PARSERS = {("agent",), ("probe",)}


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with its words."""
    if path and path not in _OWN_PARSERS and not isinstance(command, click.Group):
        yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from leaves(each, (*path, name))


LEAVES = sorted(leaves(commands), key=lambda leaf: leaf[0])


def run(*words: str | Path) -> Result:
    """One command line."""
    return CliRunner().invoke(commands, list(map(str, words)))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration with a pool of its own."""
    path = tmp_path / "gpuwatch.yaml"
    path.write_text("pools: {own: {}}\n")
    return path


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("form", ["--config {}", "--config={}"])
def test_before_within_or_after(place: int, form: str, config: Path) -> None:
    """Wherever both options stand, it is the same command."""
    words = ["config", "show"]
    words[place:place] = [*form.format(config).split(), "--json"]
    done = run(*words)

    assert done.exit_code == 0, done.output
    assert "pools.own.max_nodes" in json.loads(done.stdout)["settings"]


def test_a_group_that_is_a_command_gets_them_too(config: Path) -> None:
    """`cost` has subcommands, and is itself a command."""
    before, after = run("--config", config, "cost"), run("cost", "--config", config)

    assert (before.exit_code, before.output) == (after.exit_code, after.output)


def test_a_command_that_does_not_take_it_says_so(config: Path) -> None:
    """With the name of the command; a value that is missing is named, too."""
    wrong, alone = run("--config", config, "version"), run("--config")

    assert (wrong.exit_code, alone.exit_code) == (2, 2)
    assert "`gpuwatch version` takes no --config" in wrong.output.replace("commands", "gpuwatch")
    assert "--config needs a value" in alone.output


@pytest.mark.parametrize(("words", "command"), LEAVES, ids=[" ".join(words) for words, _ in LEAVES])
def test_what_cannot_work_as_given_is_2(words: tuple[str, ...], command: click.Command, tmp_path: Path) -> None:
    """An unknown option, a missing argument, and a configuration with a mistake; nothing of it is a traceback."""
    broken = tmp_path / "broken.yaml"
    broken.write_text("fleeet: lab\n")
    asked = [[*words, "--no-such-option"]]
    if any(each.required for each in command.params):
        asked.append([*words])
    if not any(each.required for each in command.params) and any("--config" in each.opts for each in command.params):
        asked.append([*words, "--config", str(broken)])
        if words == ("snooze",):
            asked[-1].append("--list")
    results = [run(*each) for each in asked]

    assert [each.exit_code for each in results] == [2] * len(asked), [each.output for each in results]


@pytest.mark.parametrize(
    "words", [("pause", "--reason", "\udcfcber"), ("audit", "log", "--node", "\udcfc"), ("explain", "\udcfc")]
)
def test_an_argument_in_another_encoding_is_2(words: tuple[str, ...], tmp_path: Path) -> None:
    """Nothing could store or print it: the argument and the encoding are named, and nothing is looked up."""
    done = run(*words, "--config", tmp_path / "none.yaml")

    assert done.exit_code == 2
    assert "is no text in the encoding of this terminal, utf-8: " in " ".join(done.output.split())


def test_a_file_with_a_name_in_another_encoding_can_be_given(tmp_path: Path) -> None:
    """Such names are on old disks."""
    path = tmp_path / "\udcfc.yaml"
    path.write_text("mode: observe\n")

    assert run("config", "check", "--config", path).exit_code == 0


def test_help_loads_no_fleet() -> None:
    """Help and shell completion start without the nouns of fleets and clusters, which are the half of their time."""
    program = (
        "import sys, gpuwatch.cli.main; print([each for each in sys.modules if each.startswith('gpuwatch.model.')])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    assert not {"gpuwatch.model.fleet", "gpuwatch.model.kubernetes"} & set(literal_eval(done.stdout))
