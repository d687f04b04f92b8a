"""`gpuwatch doctor --record DIR` on an account: read rights are enough, and what has no answer is a warning."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuwatch.cli.main import commands
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.cloud_worlds import MINE
from tests.support.fakes.moto_faults import REGION, MotoFaults


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[MotoFaults]:
    """An account with one machine of the fleet."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with MotoFaults(ManualClock()) as made:
        made.launch(MINE)
        made.calls.clear()
        yield made


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Settings that name its region."""
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(f"fleet: lab\ncloud: {{provider: aws, regions: [{REGION}]}}\n")
    return path


def doctor(*words: str | Path) -> Result:
    """One command line."""
    return CliRunner().invoke(commands, ["doctor", *map(str, words)])


def test_it_lists_and_describes_and_asks_for_nothing_else(ec2: MotoFaults, config: Path, tmp_path: Path) -> None:
    """Rights to read are enough, and the account is as it was."""
    done = doctor("--record", tmp_path / "new", "--config", config)

    calls = {json.loads(line)["call"] for line in (tmp_path / "new" / "aws.jsonl").read_text().splitlines()}
    assert {"ec2.DescribeInstances", "autoscaling.DescribeAutoScalingGroups"} <= calls
    verbs = {call.partition(".")[2] for call in calls} | {call.action for call in ec2.calls}
    assert [verb for verb in verbs if not verb.startswith(("Describe", "Get", "List"))] == []
    assert f"{tmp_path / 'new' / 'aws'}.jsonl: " in done.output
    assert "Look at the files before you send them." in done.output


def test_what_has_no_answer_is_a_warning_and_the_rest_is_written(ec2: MotoFaults, config: Path, tmp_path: Path) -> None:
    """The refusal is an answer too, and is in the file."""
    ec2.refuse("DescribeVolumes", "UnauthorizedOperation", status=403)
    done = doctor("--record", tmp_path / "new", "--config", config)

    assert done.exit_code == 1
    assert "Warning: " in done.output
    assert "UnauthorizedOperation" in (tmp_path / "new" / "aws.jsonl").read_text()


def test_a_folder_that_is_not_empty_is_a_mistake(config: Path, tmp_path: Path) -> None:
    """It is named, with what would be right."""
    done = doctor("--record", tmp_path, "--config", config)

    assert done.exit_code == 2
    assert "is not empty; name a new or empty folder" in done.output


def test_it_takes_no_command_beside_it(config: Path, tmp_path: Path) -> None:
    """One does not look at the host and record the clouds."""
    done = doctor("--record", tmp_path / "new", "agent", "--config", config)

    assert (done.exit_code, "--record takes no command" in done.output) == (2, True)


def test_without_anything_the_help_is_shown() -> None:
    """As any group of commands does."""
    done = doctor()
    assert (done.exit_code, "--record DIR" in done.output) == (2, True)
