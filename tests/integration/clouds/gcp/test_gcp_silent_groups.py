"""Groups of Google's whose members cannot be listed: they alone are in doubt, and no machine of theirs is removed."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.gcp.machines import Group, Machine
from tests.support.clouds.gcp.world import PROJECT, REGION, ZONE, GcpWorld, a_world, add_group
from tests.support.clouds.gcp.world import run_machine as run
from tests.support.fakes.cloud_worlds import MINE

ELSEWHERE = "us-central1-b"
PATH = f"regions/{REGION}/instanceGroupManagers/train"


@pytest.fixture
def world() -> Iterator[GcpWorld]:
    """An empty project."""
    with a_world(ManualClock()) as world:
        yield world


def a_regional_group(world: GcpWorld, size: int = 2) -> Group:
    """In one zone of its region."""
    group = add_group(world.project, "train", MINE, size=size)
    del group.told["zone"]
    zones = [{"zone": world.project.link(f"zones/{ZONE}")}]
    group.told.update(region=world.project.link(f"regions/{REGION}"), distributionPolicy={"zones": zones})
    group.told["selfLink"] = world.project.link(PATH)
    del world.project.groups[f"zones/{ZONE}/instanceGroupManagers/train"]
    world.project.groups[PATH] = group
    for _ in range(2):
        world.settle("")
    return group


def states(cloud: Any) -> dict[str, NodeState]:  # noqa: ANN401  any cloud
    """By the ids of the nodes."""
    return {node.id: node.state for node in cloud.nodes()}


def clean(machine: Machine) -> None:
    """Somebody replaces a member's metadata, and gives it the fleet's label."""
    machine.told["metadata"] = {"kind": "compute#metadata", "items": [{"key": "created-by", "value": "bob"}]}
    machine.told["labels"] = {"gpuwatch-fleet": MINE["gpuwatch:fleet"]}


@pytest.mark.parametrize("fresh", [False, True])
def test_a_group_whose_members_cannot_be_listed_hides_nothing_else(world: GcpWorld, *, fresh: bool) -> None:
    """Its machines are there, in an unknown state; all others of the project are as they are."""
    group = a_regional_group(world)
    alone = run(world.project, ZONE, MINE).told["id"]
    other = world.add_group("serve", MINE, size=1)
    world.cloud.nodes()
    before = {each.id: each for each in world.cloud.groups()}
    group.unlisted = True
    cloud = world.anew() if fresh else world.cloud

    shown = states(cloud)
    after = {each.id: each for each in cloud.groups()}

    assert {each: shown.pop(each) for each in group.members} == dict.fromkeys(group.members, NodeState.UNKNOWN)
    assert set(shown.values()) == {NodeState.RUNNING}
    assert alone in shown
    assert after[other] == before[other]
    silent = after[f"projects/{PROJECT}/{PATH}"]
    assert (silent.seen_now, silent.enrolled, silent.desired) == (False, True, 2)
    assert "cannot be listed" in str(silent.protected)
    assert silent.node_ids == (() if fresh else tuple(sorted(group.members)))
    (member, *_) = group.members
    node: Any = cloud.node(member)
    assert node.state is NodeState.UNKNOWN
    assert "cannot be listed" in node.unseen

    group.unlisted = False
    assert set(states(cloud).values()) == {NodeState.RUNNING}
    assert cloud.groups() == tuple(before[each] for each in sorted(before))


def test_a_machine_that_may_be_in_such_a_group_is_in_doubt(world: GcpWorld) -> None:
    """Its metadata may have been replaced: its group would make it again. One that was proven to be alone is alone."""
    group = a_regional_group(world)
    alone, far = run(world.project, ZONE, MINE).told["id"], run(world.project, ELSEWHERE, MINE).told["id"]
    world.cloud.nodes()
    cleaned, named = group.members
    clean(world.project.machines[cleaned])
    group.unlisted = True

    assert states(world.cloud) == {
        alone: NodeState.RUNNING,
        far: NodeState.RUNNING,
        cleaned: NodeState.UNKNOWN,
        named: NodeState.UNKNOWN,
    }
    fresh = world.anew()
    assert states(fresh)[far] is NodeState.RUNNING, "no group is in its zone"
    assert {each for each, state in states(fresh).items() if state is NodeState.UNKNOWN} == {alone, cleaned, named}
    node: Any = fresh.node(alone)
    assert node.state is NodeState.UNKNOWN, "the last question before a removal"

    group.unlisted = False
    assert {node.id: node.group is not None for node in fresh.nodes()} == {
        alone: False,
        far: False,
        cleaned: True,
        named: True,
    }


@pytest.mark.parametrize("error", [(503, "backendError"), (429, "rateLimitExceeded")])
def test_a_list_of_groups_that_fails_leaves_in_doubt_who_was_never_proven_to_be_alone(
    world: GcpWorld, error: tuple[int, str]
) -> None:
    """No machine names a group, so the list of groups is the one place where a hidden member shows."""
    group = a_regional_group(world, size=1)
    clean(world.project.machines[group.members[0]])
    fresh = world.anew()
    for _ in range(3):
        world.fake.refuse("compute.instanceGroupManagers.aggregatedList", *error)

    assert states(fresh) == {group.members[0]: NodeState.UNKNOWN}
    (node,) = fresh.nodes()
    assert (node.state, node.group is None) == (NodeState.RUNNING, False)


def test_a_zone_whose_operations_cannot_be_listed_is_silent_alone(world: GcpWorld) -> None:
    """A machine that stops may be on its way out, which its zone's operations say."""
    here, there = world.launch(MINE), run(world.project, ELSEWHERE, MINE).told["id"]
    world.cloud.nodes()
    world.told(here)["status"] = "STOPPING"
    for _ in range(3):
        world.fake.refuse("compute.zoneOperations.list", 503, "backendError")

    assert states(world.cloud) == {here: NodeState.UNKNOWN, there: NodeState.RUNNING}
