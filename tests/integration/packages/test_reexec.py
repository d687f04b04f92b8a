"""gpuwatch/runtime/program.py: an agent starts its own processes the way it was started."""

import os
import shutil
import signal
import subprocess
import sys
import venv
import zipapp
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from gpuwatch.runtime.program import own_command
from tests.support.fakes.nvml import StubDriver
from tests.support.paths import ROOT
from tests.support.real.agents import RunningAgent, eventually

_DEPENDENCIES = Path(msgspec.__file__).parent.parent
_MAIN = f"""\
import sys
sys.path.append({str(_DEPENDENCIES)!r})
from gpuwatch.__main__ import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has nothing installed, least of all gpuwatch."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True, with_pip=False)
    return folder / "bin/python"


@pytest.fixture(params=["archive", pytest.param("folder", marks=pytest.mark.nightly)])
def packed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The package with a `__main__`, packed by the standard library's zipapp or as the folder that it packs."""
    folder = tmp_path / "packed"
    shutil.copytree(ROOT / "gpuwatch", folder / "gpuwatch", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "__main__.py").write_text(_MAIN, encoding="utf-8")
    if request.param == "folder":
        return folder
    zipapp.create_archive(folder, tmp_path / "gpuwatch.pyz")
    shutil.rmtree(folder)
    return tmp_path / "gpuwatch.pyz"


def test_an_agent_runs_out_of_what_it_was_packed_in(driver: StubDriver, bare_python: Path, packed: Path) -> None:
    """Where the package is nowhere installed: settings are judged, GPUs read and pages served as ever."""
    environment = {name: value for name, value in driver.environment.items() if name != "PYTHONPATH"}
    alone = subprocess.run(
        [bare_python, "-P", "-c", "import gpuwatch"], env=environment, capture_output=True, text=True, check=False
    )
    with RunningAgent(environment, (str(bare_python), str(packed))) as agent:
        eventually(lambda: agent.health()["gpus_up"] == 1, lambda: agent.log)
        (first,) = agent.children()
        os.kill(first, signal.SIGKILL)  # it is a fork of the agent; those that follow are started
        eventually(lambda: [str(bare_python), "-P", str(packed), "probe"] in commands(agent), lambda: agent.log)

    assert "No module named 'gpuwatch'" in alone.stderr, "the interpreter is not bare"


def commands(agent: RunningAgent) -> list[list[str]]:
    """The first four words of each child's command line; a child shows its parent's until it runs its own program."""
    found = []
    for each in agent.children():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            found.append(Path(f"/proc/{each}/cmdline").read_text(encoding="utf-8").split("\0")[:4])
    return found


def test_a_mistake_in_the_settings_is_told_from_there_too(bare_python: Path, packed: Path) -> None:
    """With the words and the exit status of an installed agent."""
    result = subprocess.run(
        [bare_python, packed, "agent", "--interval", "never"], capture_output=True, text=True, check=False
    )

    assert (result.returncode, "agent.interval" in result.stderr) == (2, True), result.stderr


def test_an_installed_one_never_takes_the_working_directorys() -> None:
    """The package that this interpreter finds, not one that lies where somebody happens to stand."""
    assert own_command("probe", "--once") == [sys.executable, "-P", "-m", "gpuwatch", "probe", "--once"]
