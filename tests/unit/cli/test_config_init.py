"""`gpuwatch config init`: a first configuration that is right as it stands, asks nothing, and overwrites nothing."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuwatch.cli.main import commands
from gpuwatch.config import load
from tests.support.paths import ROOT

STARTER = ROOT / "docs/examples/starter.yaml"


def init(*arguments: str | Path) -> Result:
    """The command's outcome."""
    return CliRunner().invoke(commands, ["config", "init", *map(str, arguments)])


def test_it_writes_the_example_and_names_the_next_step(tmp_path: Path) -> None:
    """docs/examples has the same text; the folder is made."""
    file = tmp_path / "etc" / "gpuwatch.yaml"
    done = init(file)

    assert done.exit_code == 0
    assert done.output == (
        f"Wrote {file}. Edit the lines with CHANGE, then run: gpuwatch config check --config {file}\n"
    )
    assert file.read_text(encoding="utf-8") == STARTER.read_text(encoding="utf-8")


def test_without_a_name_it_is_gpuwatch_yaml_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the comments of the file call it."""
    monkeypatch.chdir(tmp_path)

    assert init().exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["gpuwatch.yaml"]


def test_a_dash_prints_it() -> None:
    """To compare an older file with it."""
    assert init("-").output == STARTER.read_text(encoding="utf-8")


def test_it_overwrites_no_file(tmp_path: Path) -> None:
    """Not even an empty one; exit status 2 and a way to compare."""
    file = tmp_path / "gpuwatch.yaml"
    file.write_text("mode: enforce\n", encoding="utf-8")
    done = init(file)

    assert done.exit_code == 2
    assert f"{file} exists already and was not changed" in done.output
    assert file.read_text(encoding="utf-8") == "mode: enforce\n"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A sentence and exit status 2."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = init(tmp_path / "file" / "gpuwatch.yaml")

    assert done.exit_code == 2
    assert "cannot be written" in done.output


def test_it_passes_the_check_without_an_edit_and_stops_nothing() -> None:
    """What it says is what holds: observe, and no machine with local disks."""
    any_day = {"GPUWATCH_PRICES__WARN_OLDER_THAN": "36500d"}
    done = CliRunner().invoke(commands, ["config", "check", "--config", str(STARTER)], env=any_day)
    settings = load(STARTER, {})

    assert done.exit_code == 0, done.output
    assert "Warning" not in done.output
    assert settings.mode == "observe"
    assert settings.fleet == "my-fleet"
    assert settings.rulebook.pool("default").idle.instance_store == "ask"


def test_each_setting_that_it_shows_in_a_comment_is_right(tmp_path: Path) -> None:
    """Whoever removes every # that has no blank after it has a valid file, and each of them says something."""
    text = STARTER.read_text(encoding="utf-8")
    commented = re.findall(r"^ *#(?=[^ \n])", text, re.MULTILINE)
    file = tmp_path / "all.yaml"
    file.write_text(re.sub(r"^( *)#(?=[^ \n])", r"\1", text, flags=re.MULTILINE), encoding="utf-8")
    settings = load(file, {})

    assert len(commented) > 15
    assert settings.rulebook.pool("notebooks").idle.timeout == 45 * 60
    assert settings.rulebook.pool("default").idle.instance_store == "keep"
    assert "owners" in settings.notify.receivers
    assert settings.budgets["everything"].usd_per_month == 20000
    assert str(settings.agent.users_file) == "/etc/gpuwatch/users"
