"""Without any configuration, commands say that the defaults hold; a file or a variable is a configuration."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No file and no variable; a region and credentials may be around."""
    for name in ("GPUWATCH_CONFIG", "GPUWATCH_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("gpuwatch.config.chosen_file.DEFAULT_PATH", tmp_path / "none.yaml")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    return tmp_path


def test_no_configuration_is_said(nothing: Path) -> None:
    """On stderr, so that what is piped stays what it is; and how to write one."""
    done = CliRunner().invoke(commands, ["rounds"])

    assert f"there is no configuration, so all defaults hold: {nothing}/none.yaml does not exist" in done.stderr
    assert "`gpuwatch config init` writes a file" in done.stderr


def test_a_variable_is_a_configuration(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As containers are configured."""
    del nothing
    monkeypatch.setenv("GPUWATCH_MODE", "observe")

    assert "no configuration" not in CliRunner().invoke(commands, ["rounds"]).stderr


def test_a_file_is_a_configuration(nothing: Path) -> None:
    """Named by an option."""
    file = nothing / "gpuwatch.yaml"
    file.write_text("mode: observe\n", encoding="utf-8")

    assert "no configuration" not in CliRunner().invoke(commands, ["rounds", "--config", str(file)]).stderr
