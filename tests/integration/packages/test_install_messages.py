"""tools/install.sh, which `make demo` and `make test` install with: nobody waits before an empty terminal."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.real.terminal import Terminal

SCRIPT = ROOT / "tools/install.sh"
PIP = """#!/bin/sh
echo "Collecting aiohttp>=3.13.3 (from gpuwatch==0.1.0)"
echo "  Downloading https://example.com/aiohttp-3.13.3-cp311.whl (1.7 MB)"
echo "Installing collected packages: attrs, aiohttp"
[ "$FAILS" = yes ] && { echo "ERROR: no network" >&2; exit 1; }
echo "Successfully installed aiohttp-3.13.3 attrs-25.1"
"""


@pytest.fixture
def python(tmp_path: Path) -> str:
    """A Python in an environment, whose pip says what pip says."""
    path = tmp_path / "venv/bin/python"
    path.parent.mkdir(parents=True)
    path.write_text(PIP, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def run(python: str, more: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The script without a terminal."""
    command = ["sh", str(SCRIPT), python, "the demo", "--editable", "."]
    return subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **more})


def test_it_says_what_it_installs_and_when_it_is_done(python: str) -> None:
    """On standard error: `make demo ARGS=--json` prints one document on standard output."""
    done = run(python, {})

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [
        f"Installing the demo into {Path(python).parent.parent} (once; half a minute to a few minutes):",
        "  Done: 2 installed.",
    ]


def test_a_failure_has_pips_words_and_its_status(python: str) -> None:
    """And what to look at."""
    done = run(python, {"FAILS": "yes"})

    assert done.returncode == 1
    assert "ERROR: no network" in done.stderr
    assert "pip could not install the demo. Is there a network, or a proxy" in done.stderr


def test_in_a_terminal_it_says_what_it_is_at(python: str) -> None:
    """Each package as it is looked for, downloaded, unpacked; on one line."""
    with Terminal(["sh", str(SCRIPT), python, "the demo", "x"], dict(os.environ)) as terminal:
        assert terminal.ended() == 0
        said = terminal.all

    for words in ("looking for aiohttp>=3.13.3", "downloading aiohttp-3.13.3-cp311.whl", "unpacking 2 packages"):
        assert words in said
    assert said.replace("\r\n", "\n").endswith("\r\x1b[K  Done: 2 installed.\n")
