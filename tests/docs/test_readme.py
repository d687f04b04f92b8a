"""The README's blocks do what its reader expects: they run as they stand, on a GPU host with an account at moto."""

import re
import shutil
from pathlib import Path

import pytest

from tests.support.components import require
from tests.support.fakes.nvml import StubDriver, build
from tests.support.markdown import blocks
from tests.support.newcomer import environment_with, installed_by, played
from tests.support.paths import ROOT
from tests.support.real.terminal import Terminal

README = Path("README.md")
# They go on until somebody ends them: a reader has another terminal for each.
_FOR_EVER = {"gpuwatch top": "", "gpuwatch agent": "9460/v1/verdict", "gpuwatch controller": "9461/api/v1/nodes"}
# A ledger of one round has no history, and no agent runs at the address that moto gives the machine: they say so.
_BAD_NEWS = {"gpuwatch backtest --ledger": 2, "gpuwatch recommend commitments": 2, "gpuwatch status": 1}
_NODE = """
import boto3
tags = [{"Key": "Name", "Value": "NODE"}, {"Key": "gpuwatch:fleet", "Value": "ml-research"}]
boto3.client("ec2", "us-east-1").run_instances(
    ImageId="ami-12c6146b", InstanceType="g6.xlarge", MinCount=1, MaxCount=1,
    TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
)
"""
_WAIT = "curl --silent --retry 60 --retry-delay 1 --retry-all-errors --fail --output answer http://127.0.0.1:{}\n"


def lines() -> list[str]:
    """What the README tells to type, comments apart, in its order."""
    typed = [re.split(r"\s#", line)[0].strip() for block in blocks(README, "sh") for line in block.splitlines()]
    return [line for line in typed if line.startswith(("gpuwatch ", "export "))]


def in_its_terminal(line: str) -> str:
    """A line as it is typed, in the background if it does not end; bad news has a status of its own."""
    if line in _FOR_EVER:
        waits = _WAIT.format(_FOR_EVER[line]) if _FOR_EVER[line] else ""
        return f"{line} > {line.rpartition(' ')[2]}.log 2>&1 &\n{waits}"
    return f"{line} || test $? = {_BAD_NEWS[line]}\n" if line in _BAD_NEWS else f"{line}\n"


def test_every_line_of_the_readme_runs(tmp_path: Path) -> None:
    """On a GPU host with an account in which one machine, NODE, runs: each succeeds, and prints something."""
    require("curl")
    (settings,) = blocks(README, "yaml")
    begin = (
        "moto_server --port 5000 > moto.log 2>&1 &\n"
        f"{_WAIT.format('5000/moto-api/data.json')}"
        f"python3 -c '{_NODE}'\n"
        f"cat > gpuwatch.yaml <<'EOF'\n{settings}EOF\n"
        f"cp -r {ROOT}/docs .\n"
    )
    driver = StubDriver(tmp_path / "driver", build(tmp_path / "nvml"))
    programs = environment_with(installed_by("$ pip install '.[demo,aws]' 'moto[ec2,server]'"), tmp_path / "python")
    account = {"AWS_ACCESS_KEY_ID": "of", "AWS_SECRET_ACCESS_KEY": "moto", "AWS_ENDPOINT_URL": "http://127.0.0.1:5000"}
    gpu = {"LD_LIBRARY_PATH": str(driver.library), "NVML_STUB_STATE": str(driver.state_file)}
    typed = lines()

    printed, status = played(
        [begin, *map(in_its_terminal, typed)], tmp_path, programs, at_root=True, host={**account, **gpu}
    )

    assert status == 0, f"{typed[len(printed) - 2]} ended with {status}:\n{printed[-1]}"
    quiet = {line for line in typed if line in _FOR_EVER or ">" in line or line.startswith("export")}
    silent = [line for line, seen in zip(typed, printed[1:], strict=True) if not seen.strip() and line not in quiet]
    assert silent == []


def test_make_demo_stops_an_idle_machine_within_a_minute(tmp_path: Path) -> None:
    """As the README says, until Ctrl-C; in a clone with what `make demo` installs."""
    require("make")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    programs = environment_with(installed_by("$ pip install '.[demo]'"), tmp_path / ".venv")
    for mark in ("python", "demo"):  # as `make` leaves them: nothing is installed, through these links least of all
        (tmp_path / ".venv" / mark).touch()
    (block,) = [each for each in blocks(README, "sh") if "make demo" in each]

    with Terminal(
        ["sh", "-c", f"cd {tmp_path} && exec {block.strip()}"],
        {"HOME": str(tmp_path), "PATH": f"{programs}:/usr/bin:/bin"},
    ) as terminal:
        terminal.shows("stopped ")
        terminal.type("\x03")

        terminal.ended()  # make itself ends by the signal
        assert "after the beginning: saved $" in terminal.all


@pytest.mark.parametrize("line", ["gpuwatch top", "gpuwatch agent", "gpuwatch controller"])
def test_what_goes_on_for_ever_is_in_the_readme(line: str) -> None:
    """A line that the test above treats in its own way, and that is gone, would hide that nothing is treated so."""
    assert line in lines()
