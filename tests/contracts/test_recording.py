"""`gpuwatch doctor --record`: what every cloud answers is written down, and nothing that could name somebody."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.cli.doctor.record import ABOUT, record_clouds
from gpuwatch.clouds import FLEET_TAG, OWNER_TAG, POOL_TAG
from tests.support.fakes.cloud_worlds import FLEET, WORLDS, World, a_world

SECRET_NAMES = {FLEET_TAG: FLEET, OWNER_TAG: "zora.quill@falcon-labs.test", POOL_TAG: "falconpool", "cost": "falcon 7"}


# Those that are asked by HTTP.
ASKED = [each for each in WORLDS if each not in {"simulated", "several"}]


@pytest.fixture(params=ASKED)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Each cloud in turn."""
    with a_world(request.param) as world:
        yield world


def lines(folder: Path) -> list[dict[str, Any]]:
    """What was written of the only cloud."""
    (file,) = folder.glob("*.jsonl")
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def record(world: World, folder: Path) -> Mapping[str, int]:
    """Look once."""
    return record_clouds({"": lambda: world.cloud}, FLEET, folder).exchanges


def test_each_request_and_its_answer_is_a_line(world: World, tmp_path: Path) -> None:
    """With what was asked, the status, and the text that came back."""
    world.launch(SECRET_NAMES)
    counts = record(world, tmp_path / "new")
    found = lines(tmp_path / "new")

    assert [len(found)] == list(counts.values())
    assert len(found) > 1
    for each in found:
        assert set(each) == {"source", "call", "method", "uri", "request", "status", "headers", "body"}
        assert each["uri"].startswith("http"), each
        assert each["status"] in range(200, 600)


def test_nothing_written_names_anybody(world: World, tmp_path: Path) -> None:
    """No id, name, owner, tag, account or address of the fleet stands in any file."""
    world.launch(SECRET_NAMES)
    node = world.cloud.nodes()[0]
    record(world, tmp_path / "new")

    written = "".join(file.read_text(encoding="utf-8") for file in (tmp_path / "new").iterdir()).lower()
    private = {node.id, node.name, node.account, "zora", "quill", "falcon", "falconpool", "falcon-labs"}
    leaked = {each for each in private if each and re.search(rf"(?<![a-z0-9]){re.escape(each.lower())}", written)}
    assert not leaked


def test_what_an_adapter_reads_is_still_there(world: World, tmp_path: Path) -> None:
    """The type, the place and the tag that enrols a machine are written as they are, or by the same stand-in."""
    world.launch(SECRET_NAMES)
    node = world.cloud.nodes()[0]
    record(world, tmp_path / "new")

    written = "".join(str(each["body"]) for each in lines(tmp_path / "new"))
    fleet = json.loads((tmp_path / "new" / ABOUT).read_text(encoding="utf-8"))["fleet"]
    assert node.instance_type in written
    assert (node.region or "") in written
    assert "fleet" in written
    assert fleet in written
    assert fleet != FLEET


def test_a_folder_with_something_in_it_is_left_alone(world: World, tmp_path: Path) -> None:
    """A recording never mixes with another."""
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(FileExistsError):
        record(world, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


def test_only_the_owner_may_read_it(world: World, tmp_path: Path) -> None:
    """Replaced or not, it is the inside of an account."""
    record(world, tmp_path / "new")
    assert {file.stat().st_mode & 0o077 for file in [tmp_path / "new", *(tmp_path / "new").iterdir()]} == {0}
