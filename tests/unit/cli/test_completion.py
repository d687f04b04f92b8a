"""The tab key: the script in a real bash, and the values of pools and nodes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.ledger import Ledger, LedgerSettings
from tests.support.builders.fleet import a_node, an_observation
from tests.support.paths import ROOT


def completed(line: str, config: Path) -> list[str]:
    """What bash offers at the end of a line."""
    shim = config.parent / "gpuwatch"
    shim.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m gpuwatch "$@"\n')
    shim.chmod(0o755)
    script = f"""
eval "$(gpuwatch completion bash)"
COMP_LINE="{line}"; COMP_WORDS=({line}); [[ "$COMP_LINE" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_gpuwatch_completion gpuwatch
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    environment = {**os.environ, "PATH": f"{config.parent}:{os.environ['PATH']}", "GPUWATCH_CONFIG": str(config)}
    environment["_GPUWATCH_COMPLETE_SECONDS"] = "30"  # a loaded machine is no reason to offer less here
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A pool, and a ledger with a round of one node."""
    settings = LedgerSettings(path=str(tmp_path / "ledger.db"))
    ledger = Ledger.connect(settings)
    assert ledger.lead()
    ledger.record_round(an_observation(a_node("i-1", name="trainer-7")))
    ledger.close()
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(f"ledger: {{path: {settings.path}}}\npools: {{training: {{}}}}\n")
    return path


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("gpuwatch expl", ["explain"]),
        ("gpuwatch explain tr", ["trainer-7"]),
        ("gpuwatch pause --pool tr", ["training"]),
        ("gpuwatch agent --li", ["--listen"]),
        ("gpuwatch probe --onc", ["--once"]),
    ],
)
def test_bash_offers_what_fits(line: str, offered: list[str], config: Path) -> None:
    """Commands, nodes of the ledger, pools of the configuration, and options of agent and probe."""
    assert completed(line, config) == offered


def test_a_broken_configuration_offers_nothing(config: Path) -> None:
    """And says nothing."""
    config.write_text("fleeet: x\n")

    assert completed("gpuwatch pause --pool tr", config) == []
