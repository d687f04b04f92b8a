"""`gpuwatch doctor --record`: what every cloud answers is written down, and nothing that could name somebody."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.cli.doctor.record import ABOUT, record_clouds
from gpuwatch.clouds import FLEET_TAG, OWNER_TAG, POOL_TAG, Cloud, CloudError
from gpuwatch.clouds.permissions import Quota, Quotas
from tests.support.clouds.recorded import FOLDER, WHY_NONE
from tests.support.clouds.replay import ALONE, look_at, replaying
from tests.support.fakes.cloud_worlds import FLEET, WORLDS, World, a_world

SECRET_NAMES = {FLEET_TAG: FLEET, OWNER_TAG: "zora.quill@falcon-labs.test", POOL_TAG: "falconpool", "cost": "falcon 7"}


# Those that this process asks by HTTP.
ASKED = [each for each in WORLDS if each not in {"simulated", "several", "driver"}]


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
        assert set(each) == {
            "source",
            "look",
            "call",
            "region",
            "method",
            "uri",
            "request",
            "status",
            "headers",
            "body",
        }
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


# A recording, played as the cloud that it was recorded of.


def a_fleet(world: World) -> None:
    """Machines of ours and of others, a group, and a volume that nobody uses."""
    world.launch(SECRET_NAMES)
    world.launch({})
    world.launch({}, gpus=False)
    world.add_group("falcon-group", SECRET_NAMES, size=2)
    world.add_volume()
    world.clock.advance(120)


def facts_of(cloud: Cloud) -> dict[str, Counter[Any]]:
    """What an adapter made of a cloud, but for the names in it."""
    nodes = cloud.nodes()
    return {
        "nodes": Counter(
            (each.state, each.instance_type, each.gpu_count, each.region, each.zone, each.capacity_type, each.enrolled)
            for each in nodes
        ),
        "details": Counter(
            (
                each.launched_at,
                each.still_billed is None,
                each.instance_store,
                each.managed_by is None,
                each.group is None,
            )
            for each in nodes
        ),
        "groups": Counter(
            (each.min_size, each.max_size, each.desired, each.instance_type, each.enrolled, len(each.node_ids))
            for each in cloud.groups()
        ),
        "leftovers": Counter((each.kind, each.type, each.size_bytes, each.region) for each in cloud.leftovers()),
        "quotas": Counter((each.name, each.region, each.limit, each.used) for each in quotas_of(cloud)),
    }


def quotas_of(cloud: Cloud) -> Sequence[Quota]:
    """Its limits, where it tells any; moto has none."""
    with suppress(CloudError):
        return cloud.quotas() if isinstance(cloud, Quotas) else ()
    return ()


@pytest.mark.parametrize("kind", ASKED)
def test_a_recording_is_played_as_its_cloud(kind: str, tmp_path: Path) -> None:
    """An adapter makes of the replaced answers what it made of the real ones, and each line is played."""
    with a_world(kind) as world:
        a_fleet(world)
        written = record_clouds({"": lambda: world.cloud}, FLEET, tmp_path / "new")
        told = facts_of(world.cloud)
    (name,) = written.exchanges
    with replaying(name, tmp_path / "new") as (cloud, replay):
        troubles = look_at(cloud, replay)
        found = facts_of(cloud)

    assert {look for look, _ in replay.missed} <= {ALONE, *written.troubles}  # moto has no quotas
    assert set(troubles) == set(written.troubles)
    assert replay.left_out == []
    assert found.pop("quotas") >= told.pop("quotas"), "those of the regions of the settings, or of all"
    assert found == told


@pytest.mark.skipif(not (FOLDER / ABOUT).is_file(), reason=f"{WHY_NONE}, or it was not recorded by gpuwatch")
def test_a_recording_of_somebody_is_played_as_its_cloud() -> None:
    """Nothing breaks an adapter, and each line is played."""
    for file in FOLDER.glob("*.jsonl"):
        with replaying(file.stem, FOLDER) as (cloud, replay):
            troubles = look_at(cloud, replay)
        assert not [why for why in troubles.values() if "an error of gpuwatch itself" in why]
        assert replay.left_out == []
