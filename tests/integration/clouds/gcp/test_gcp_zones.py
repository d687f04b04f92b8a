"""Zones of Google's that cannot be reached: the list is whole but for them, and all other zones go on."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.gcp.service import FakeGcp
from tests.support.clouds.gcp.world import ZONE, GcpWorld, a_world, add_group
from tests.support.clouds.gcp.world import run_machine as run
from tests.support.clouds.server import Request, Response
from tests.support.fakes.cloud_worlds import MINE

ARGUMENTS = {"template": "gpu-node", "pool": "train"}


@pytest.fixture
def world() -> Iterator[GcpWorld]:
    """An empty project."""
    with a_world(ManualClock()) as world:
        yield world


def test_a_zone_that_is_not_reached_keeps_its_machines_and_the_others_go_on(world: GcpWorld) -> None:
    """Google answers 200 with a warning in that zone: it is no empty zone."""
    here, there = world.launch(MINE), run(world.project, "us-central1-b", MINE).told["id"]
    world.cloud.nodes()
    world.fake.unreachable.add("us-central1-b")

    for _ in range(2):
        world.clock.advance(7200)
        states = {node.id: node.state for node in world.cloud.nodes()}
        assert states == {here: NodeState.RUNNING, there: NodeState.UNKNOWN}

    world.fake.unreachable.clear()
    assert {node.state for node in world.cloud.nodes()} == {NodeState.RUNNING}


def test_a_zone_that_was_never_reached_is_an_error_and_one_of_another_region_is_not(world: GcpWorld) -> None:
    """Nobody knows what is there."""
    node_id = world.launch(MINE)
    world.fake.unreachable.add("us-east1-b")
    assert [node.id for node in world.cloud.nodes()] == [node_id]

    world.fake.unreachable.add("us-central1-b")
    fresh = world.anew()
    with pytest.raises(CloudUnavailableError, match="us-central1-b") as caught:
        fresh.nodes()
    assert caught.value.code == "UNREACHABLE"


def test_an_id_is_not_unknown_while_a_zone_is_not_reached(world: GcpWorld) -> None:
    """It may be there."""
    world.fake.unreachable.add("us-central1-b")

    with pytest.raises(CloudUnavailableError):
        world.cloud.node("42")


def test_a_zone_that_is_not_reached_hides_no_machine_of_a_group_in_another_zone(world: GcpWorld) -> None:
    """Machines of groups lead to the lists of groups and autoscalers, and these lack the zone as well."""
    group = add_group(world.project, "train", MINE, size=1)
    for _ in range(2):
        world.settle("")
    there = run(world.project, "us-central1-b", MINE).told["id"]
    (member,) = group.members
    before = world.cloud.nodes()
    shown = world.cloud.groups()
    world.fake.unreachable.add("us-central1-b")

    states = {node.id: node.state for node in world.cloud.nodes()}

    assert states == {member: NodeState.RUNNING, there: NodeState.UNKNOWN}
    assert [node.managed_by for node in before] == [node.managed_by for node in world.cloud.nodes()]
    assert world.cloud.groups() == shown, "its zone answers"
    world.cloud.stop(member, "key", permit=a_permit())


def test_a_group_in_a_zone_that_is_not_reached_is_as_last_seen_and_left_alone(world: GcpWorld) -> None:
    """Its machines are shown as they were; nobody changes its size. Where nobody has seen it, that is said."""
    add_group(world.project, "train", MINE, size=1)
    for _ in range(2):
        world.settle("")
    (before,) = world.cloud.groups()
    world.fake.unreachable.add(ZONE)

    (after,) = world.cloud.groups()

    assert (after.id, after.node_ids, after.seen_now) == (before.id, before.node_ids, False)
    assert "UNREACHABLE" in str(after.protected)
    with pytest.raises(CloudUnavailableError, match=ZONE):
        world.anew().groups()


def test_a_launch_goes_to_a_zone_that_is_reached_while_another_is_not(world: GcpWorld) -> None:
    """What its key may have launched before is where it would go to now; a zone that is cut off holds up no other."""
    world.fake.unreachable.add("us-central1-b")
    arguments = {**ARGUMENTS, "zone": ZONE}

    node_id = world.cloud.launch(arguments, "key")

    assert world.anew().launch(arguments, "key") == node_id
    assert len(world.project.machines) == 1
    for elsewhere in ({**ARGUMENTS, "zone": "us-central1-b"}, ARGUMENTS):  # the second may have gone to any zone
        with pytest.raises(CloudUnavailableError):
            world.cloud.launch(elsewhere, "another")


def test_a_zone_that_comes_on_several_pages_is_one_zone(world: GcpWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Google cuts its lists anywhere, and a page may hold nothing but the way to the next one."""
    launched = {world.launch(MINE) for _ in range(5)}
    real, begun = FakeGcp.answer, set[str]()

    def answer(fake: FakeGcp, request: Request) -> Response:
        listed = request.path.endswith("/aggregated/instances")
        if listed and "pageToken" not in request.query:
            begun.add(request.path)
            return Response(body={"id": "1", "kind": "compute#instanceAggregatedList", "nextPageToken": "page-0"})
        pages = {**request.query, "maxResults": "2"} if listed else request.query
        return real(fake, replace(request, query=pages))

    monkeypatch.setattr(FakeGcp, "answer", answer)

    assert {node.id for node in world.cloud.nodes()} == launched
    assert begun
