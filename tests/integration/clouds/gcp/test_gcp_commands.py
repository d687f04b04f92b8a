"""The commands of people over Google Cloud: real processes with a file of settings, against the fake over HTTP."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.clouds.gcp.tokens import TokenService, a_key, token_service
from tests.support.clouds.gcp.world import REGION, GcpWorld, a_world, run_machine
from tests.support.fakes.cloud_worlds import MINE


@pytest.fixture
def world() -> Iterator[GcpWorld]:
    """A project with machines as old as they would be now."""
    with a_world(ManualClock(wall=SystemClock().now())) as world:
        yield world


@pytest.fixture
def tokens(world: GcpWorld) -> Iterator[TokenService]:
    """The service of tokens."""
    with token_service(world) as service:
        yield service


@pytest.fixture
def file(world: GcpWorld, tokens: TokenService, tmp_path: Path) -> Path:
    """The settings."""
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(
        f"""
fleet: lab
cloud:
  provider: gcp
  regions: [{REGION}]
  endpoint_url: {world.server.url}
  gcp:
    credentials_file: {a_key(tmp_path, tokens)}
ledger:
  path: {tmp_path / "ledger.db"}
"""
    )
    return path


def gpuwatch(file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """One command of one process."""
    return subprocess.run(
        [sys.executable, "-m", "gpuwatch", *words, "--config", str(file)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
        timeout=120,
    )


@pytest.mark.nightly  # commands that ask it are run each day
def test_the_settings_are_checked_without_asking_the_cloud(world: GcpWorld, file: Path) -> None:
    """A project that cannot exist is a mistake of the file."""
    assert gpuwatch(file, "config", "check").returncode == 0

    file.write_text(file.read_text().replace("  gcp:\n", "  gcp:\n    projects: [My Project]\n"))
    wrong = gpuwatch(file, "config", "check")

    assert wrong.returncode != 0
    assert "'My Project' is no project's id" in wrong.stdout + wrong.stderr
    assert world.fake.asked_for == []


def test_status_shows_the_machines_and_what_is_left_of_quotas(world: GcpWorld, file: Path) -> None:
    """Enrolled or not; nothing is changed. No agent answers here, which the exit status says."""
    mine, foreign = world.launch(MINE), world.launch({})

    done = gpuwatch(file, "status", "--json")

    assert done.returncode == 1, done.stdout + done.stderr
    shown = json.loads(done.stdout)
    assert {node["id"] for node in shown["nodes"]} == {mine, foreign}
    assert "NVIDIA_L4_GPUS" in done.stdout
    assert world.server.changes() == []


@pytest.mark.nightly  # its status of this fleet runs each day
def test_the_name_of_another_fleet_gives_status_one(world: GcpWorld, file: Path) -> None:
    """A slip in `fleet` must not look like a fleet without work, not to a script either."""
    machine = world.launch({"gpuwatch:fleet": "ml"})
    world.told(machine)["status"] = "TERMINATED"

    done = gpuwatch(file, "status")

    assert "By their tags gpuwatch:fleet: 1 machine of 'ml'" in done.stdout
    assert done.returncode == 1, done.stdout + done.stderr


def test_unused_lists_what_is_left(world: GcpWorld, file: Path) -> None:
    """A disk that nothing uses."""
    disk = world.add_volume()

    done = gpuwatch(file, "unused")

    assert done.returncode == 0, done.stderr
    assert disk in done.stdout


def test_scan_finds_the_machine_in_a_region_that_nobody_named(world: GcpWorld, file: Path) -> None:
    """Read-only, in every region of the project."""
    forgotten = run_machine(world.project, "us-east1-b", {"Name": "forgotten-1"}).told["id"]

    done = gpuwatch(file, "scan")

    assert forgotten in done.stdout, done.stdout + done.stderr
    assert world.server.changes() == []


def test_the_doctor_says_what_may_be_done(world: GcpWorld, file: Path) -> None:
    """In the words of Google's calls."""
    world.launch(MINE)

    done = gpuwatch(file, "doctor", "controller")

    assert "compute.instances.aggregatedList" in done.stdout, done.stdout + done.stderr
    assert world.server.changes() == []
