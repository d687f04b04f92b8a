"""Every provider in a process that has just begun: a region that is silent then, and machines that ended before."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gpuwatch.clouds import CloudError, NotFoundError
from gpuwatch.clouds.silence import Listed, Past, Recalling, partial
from gpuwatch.model.fleet import Node, NodeState
from tests.support.builders.fleet import a_permit
from tests.support.clouds.fault_worlds import FAULT_WORLDS, MINE, FaultWorld, a_fault_world, without_leftovers
from tests.support.clouds.faults import Fault, when


@pytest.fixture(params=FAULT_WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FaultWorld]:
    """Each provider in turn, with one machine in each of two regions that a controller has seen."""
    with a_fault_world(request.param, tmp_path) as world:
        for region in world.regions:
            world.launch(MINE, region=region)
        yield world


def first_process(world: FaultWorld) -> tuple[Past, list[Node]]:
    """What a controller has written down, and the machine of each region."""
    assert isinstance(world.cloud, Recalling)
    nodes = tuple(world.cloud.nodes())
    places = world.cloud.outlook().places
    order = sorted(nodes, key=lambda node: [each in f"{node.region} {node.account}" for each in world.regions])
    return Past(nodes=nodes, groups=tuple(world.cloud.groups()), places=places), order[::-1]


def silence(world: FaultWorld, number: int = 1) -> None:
    """One of the regions gives no answer to anything."""
    world.server.plan.strike(Fault.RESET_BEFORE, when(change=False, region=world.regions[number]), times=None)


def test_a_restart_while_a_region_is_silent_takes_nothing_for_gone(world: FaultWorld) -> None:
    """Its machine is in an unknown state with the reason; the region answers again, and all is as it was."""
    past, (here, there) = first_process(world)
    silence(world)
    cloud = world.anew()
    assert isinstance(cloud, Recalling)
    cloud.recall(lambda: past)

    found = {node.id: node for node in cloud.nodes()}
    cloud.groups()

    assert found[here.id] == here
    assert (found[there.id].state, found[there.id].last_shown) == (NodeState.UNKNOWN, NodeState.RUNNING)
    assert found[there.id].unseen
    assert cloud.outlook().silent
    assert all(each.known and each.reason for each in cloud.outlook().silent)
    assert cloud.outlook().places >= past.places

    world.server.plan.clear()
    assert {node.id: node.state for node in cloud.nodes()} == dict.fromkeys([here.id, there.id], NodeState.RUNNING)
    cloud.groups()
    assert cloud.outlook().silent == ()


def test_a_silent_region_of_which_nothing_is_known_is_said(world: FaultWorld) -> None:
    """An empty ledger: the other region's machine is there, and nobody claims to know the rest."""
    _, (here, _there) = first_process(world)
    silence(world)
    cloud = world.anew()
    assert isinstance(cloud, Recalling)
    cloud.recall(Past)

    assert [node.id for node in cloud.nodes()] == [here.id]
    assert [each.known for each in cloud.outlook().silent] == [False]


def test_lists_for_people_go_on_without_a_silent_region_and_say_so(world: FaultWorld) -> None:
    """What is left over, in the regions that answer; without `partial` it is an error."""
    if without_leftovers(world):
        pytest.skip("it shows nothing that is left over, and says so")
    silence(world)
    cloud = world.anew()

    with pytest.raises(CloudError):
        cloud.leftovers()
    with partial() as silent:
        cloud.leftovers()

    assert silent
    assert all(each.reason for each in silent)


def test_without_any_answer_lists_for_people_fail_as_well(world: FaultWorld) -> None:
    """Nothing found and nobody asked are not the same."""
    if without_leftovers(world):
        pytest.skip("it shows nothing that is left over, and says so")
    silence(world, 0)
    silence(world)

    with partial(), pytest.raises(CloudError):
        world.anew().leftovers()


def test_a_whole_list_says_that_a_machine_is_not_in_its_region(world: FaultWorld) -> None:
    """Of one that has ended, past every memory; not of one that is there, nor where the region gives no answer."""
    _, (here, there) = first_process(world)
    world.cloud.terminate(here.id, "key", permit=a_permit(world.clock))
    for _ in range(70):
        world.settle(there.id)
        if world.state(here.id) in {None, NodeState.TERMINATED}:
            break
    cloud = world.anew()
    assert isinstance(cloud, Listed)

    assert cloud.lacks(here)
    assert not cloud.lacks(there)
    silence(world)
    with pytest.raises(CloudError):
        cloud.lacks(there)


def test_a_start_that_no_process_saw_is_told_or_is_said_to_be_unknown(world: FaultWorld) -> None:
    """Stopped, then started and stopped again while nobody looked: the launch time is another, or nobody claims it."""
    _, (here, _) = first_process(world)
    world.cloud.stop(here.id, "key", permit=a_permit(world.clock))
    world.settle(here.id)
    ours = world.cloud.node(here.id)
    world.clock.advance(3600.0)
    owner = world.anew()
    owner.start(here.id, "theirs")
    world.settle(here.id)
    owner.stop(here.id, "theirs", permit=a_permit(world.clock))
    world.settle(here.id)

    cloud = world.anew()
    assert [node.id for node in cloud.nodes() if node.id == here.id] == [here.id]
    found = cloud.node(here.id)

    assert ours is not None
    assert found is not None
    assert (ours.state, found.state) == (NodeState.STOPPED, NodeState.STOPPED)
    assert found.sight is not None or found.launched_at != ours.launched_at


def test_a_machine_of_such_a_cloud_that_was_out_of_sight_says_so(world: FaultWorld) -> None:
    """An hour without a look is remembered, and since when there have been looks again."""
    _, (here, _) = first_process(world)
    before = world.cloud.node(here.id)
    world.clock.advance(3600.0)
    after = world.cloud.node(here.id)

    assert before is not None
    assert after is not None
    assert before.sight is None or not before.sight.lost_since(world.clock.now() - timedelta(hours=2), 60.0)
    assert after.sight is None or after.sight.lost_since(world.clock.now() - timedelta(hours=2), 60.0)
    assert after.sight is None or not after.sight.lost_since(world.clock.now(), 60.0)


def test_a_list_of_another_account_says_nothing_of_a_machine(world: FaultWorld) -> None:
    """Its credentials are others now: the id is not there, and the machine runs."""
    _, (here, _) = first_process(world)
    foreign = Node(
        id=here.id,
        name=here.id,
        pool="default",
        state=NodeState.RUNNING,
        instance_type=here.instance_type,
        gpu_count=1,
        region=here.region,
        zone=here.zone,
        account="another",
    )
    cloud = world.anew()
    assert isinstance(cloud, Listed)

    with pytest.raises(NotFoundError):
        cloud.lacks(foreign)
