"""The commands of people over Tencent Cloud: real processes with a file of settings, against the fake over HTTP."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.clouds.tencent.world import GPU_TYPE, REGION, TencentWorld, a_world
from tests.support.fakes.cloud_worlds import MINE


@pytest.fixture
def world() -> Iterator[TencentWorld]:
    """An account whose machines are as old as they would be now."""
    with a_world(ManualClock(wall=SystemClock().now())) as world:
        yield world


def gpuwatch(world: TencentWorld, folder: Path, *words: str, more: str = "") -> subprocess.CompletedProcess[str]:
    """One command of one process."""
    file = folder / "gpuwatch.yaml"
    file.write_text(
        f"""
fleet: lab
cloud:
  provider: tencent
  regions: [{REGION}]
  endpoint_url: {world.server.url}
  tencent:
    key_file: {world.folder / "key"}
    {more}
ledger:
  path: {folder / "ledger.db"}
"""
    )
    (world.folder / "key").chmod(0o600)
    return subprocess.run(
        [sys.executable, "-m", "gpuwatch", *words, "--config", str(file)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
        timeout=120,
    )


def document(done: subprocess.CompletedProcess[str], status: int = 0) -> Any:  # noqa: ANN401  JSON
    """What a command with --json says."""
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.nightly  # commands that ask it are run each day
def test_the_settings_are_checked_without_asking_the_cloud(world: TencentWorld, tmp_path: Path) -> None:
    """A role that cannot exist is a mistake of the file."""
    assert gpuwatch(world, tmp_path, "config", "check").returncode == 0
    assert world.fake.sent == []

    wrong = gpuwatch(world, tmp_path, "config", "check", more="accounts: {prod: {role_arn: gpuwatch}}")

    assert wrong.returncode != 0
    assert "cloud.tencent.accounts.prod.role_arn" in wrong.stdout + wrong.stderr
    assert world.fake.sent == []


def test_status_shows_the_machines_and_what_is_left_of_quotas(world: TencentWorld, tmp_path: Path) -> None:
    """Enrolled or not; no agent answers here, which the exit status says."""
    mine, foreign = world.launch({**MINE, "Name": "trainer-1"}), world.launch({})

    shown = document(gpuwatch(world, tmp_path, "status", "--json"), 1)

    assert "PostPaidQuotaSet" in json.dumps(shown)
    assert {node["id"] for node in shown["nodes"]} == {mine, foreign}
    assert "StopInstances" not in {action for action, _ in world.fake.sent}


def test_unused_lists_what_is_left(world: TencentWorld, tmp_path: Path) -> None:
    """A disk that nothing is attached to."""
    disk = world.add_volume()

    done = gpuwatch(world, tmp_path, "unused")

    assert done.returncode == 0, done.stderr
    assert disk in done.stdout


def test_scan_finds_the_machine_in_a_region_that_nobody_named(world: TencentWorld, tmp_path: Path) -> None:
    """Read-only, in every region that the account may use."""
    forgotten = world.fake.state.add_machine("na-siliconvalley", GPU_TYPE).id

    done = gpuwatch(world, tmp_path, "scan")

    assert forgotten in done.stdout, done.stdout + done.stderr
    assert world.server.changes() == []


def test_the_doctor_says_what_may_be_done(world: TencentWorld, tmp_path: Path) -> None:
    """In the words of Tencent Cloud's calls."""
    world.launch(MINE)

    done = gpuwatch(world, tmp_path, "doctor", "controller")

    assert "DescribeAutoScalingInstances" in done.stdout, done.stdout + done.stderr
    assert world.server.changes() == []
