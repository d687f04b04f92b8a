"""Every cloud keeps every sentence of `gpuwatch.clouds.Cloud`: one suite, run on each of them."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from gpuwatch.clouds import (
    FLEET_TAG,
    OWNER_TAG,
    POOL_TAG,
    PROTECT_TAG,
    SNOOZE_TAG,
    STOP_AT,
    WRITABLE_TAGS,
    Cloud,
    CloudError,
    CloudUnavailableError,
    NotFoundError,
)
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.clouds.settings import CLOUDS, CloudSettings, connect
from gpuwatch.model.decision import DECISION_TAG, NOTIFIED_TAG
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.slurm import NODE_TAG
from gpuwatch.model.stops import why_not_ours
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.fakes.cloud_worlds import FLEET, MINE, REFUSALS, WORLDS, World, a_world, seen
from tests.support.fakes.moto_faults import REGION
from tools.docs.cloud_capabilities import NOT_THERE, TABLE

MUTATIONS: dict[str, Callable[[Cloud, str], object]] = {
    "stop": lambda cloud, node_id: cloud.stop(node_id, "key", permit=a_permit()),
    "start": lambda cloud, node_id: cloud.start(node_id, "key"),
    "terminate": lambda cloud, node_id: cloud.terminate(node_id, "key", permit=a_permit()),
    "tag": lambda cloud, node_id: cloud.tag(node_id, {STOP_AT: "then"}, "key"),
}


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Each cloud in turn."""
    with a_world(request.param) as world:
        yield world


def states(cloud: Cloud) -> dict[str, NodeState]:
    """Every listed machine's state."""
    return {node.id: node.state for node in cloud.nodes()}


# The list


def test_all_gpu_machines_are_listed_in_the_order_of_their_ids(world: World) -> None:
    """nodes() lists the GPU machines, enrolled or not, and no others."""
    ids = [world.launch(MINE), world.launch({}), world.launch(MINE)]
    world.launch(MINE, gpus=False)

    assert [node.id for node in world.cloud.nodes()] == sorted(ids)


def test_an_account_without_machines_is_an_empty_list(world: World) -> None:
    """nodes() of nothing is nothing, not an error."""
    assert list(world.cloud.nodes()) == []


def test_a_stopped_machine_is_listed_and_a_terminated_one_is_not(world: World) -> None:
    """Whatever still exists is listed, in whatever state; terminating still exists."""
    stopped, going, gone = (world.launch(MINE) for _ in range(3))
    world.cloud.stop(stopped, "key", permit=a_permit())
    world.settle(stopped)
    world.terminate(gone)
    world.settle(gone)
    world.terminate(going)

    assert states(world.cloud) == {stopped: NodeState.STOPPED, going: NodeState.TERMINATING}


def test_tags_say_whose_a_machine_is(world: World) -> None:
    """Enrolment, pool, owner and name come from tags; without tags a machine is nobody's."""
    tagged = world.launch({**MINE, POOL_TAG: "train", OWNER_TAG: "anna", "Name": "gpu-1"})
    foreign = world.launch({FLEET_TAG: "another"})

    node, other = seen(world, tagged), seen(world, foreign)

    assert (node.enrolled, node.pool, node.owner, node.name) == (True, "train", "anna", "gpu-1")
    assert (other.enrolled, other.pool, other.owner) == (False, "default", None)
    assert other.name == foreign or world.words.always_named


def test_the_tag_of_its_slurm_node_protects_nobody(world: World) -> None:
    """It says which node of Slurm the machine is, with its case and its dots, and the machine may be stopped."""
    node = seen(world, world.launch({**MINE, NODE_TAG: "GPU-7.hpc"}))

    assert (node.protected, node.snoozed, node.tags[NODE_TAG]) == (None, None, "GPU-7.hpc")
    world.cloud.stop(node.id, "key", permit=a_permit())
    world.settle(node.id)
    assert seen(world, node.id).state is NodeState.STOPPED


def test_a_machine_is_placed_and_sized(world: World) -> None:
    """Type, GPUs, region and zone are told, and the launch time is aware UTC."""
    node, words = seen(world, world.launch(MINE)), world.words

    placed = (node.instance_type, node.gpu_count, node.region, node.zone)
    assert placed == (words.machine_type, 1, words.region, words.zone)
    assert node.launched_at is not None
    assert node.launched_at.utcoffset() == timedelta(0)


def test_what_no_list_announces_is_not_known(world: World) -> None:
    """None is not the same as no end; the table of docs/clouds/README.md says which clouds' lists announce one."""
    node = seen(world, world.launch(MINE))
    (row,) = [each for each in TABLE if "Node.announced" in each.covers]

    assert (node.announced is None) == (row.in_cloud(world.words.provider) == NOT_THERE)
    assert [each.announced for each in world.cloud.nodes()] == [node.announced]


def test_list_and_single_answer_agree(world: World) -> None:
    """node() and nodes() tell the same of the same machine."""
    node_id = world.launch({**MINE, PROTECT_TAG: "true"})

    assert list(world.cloud.nodes()) == [seen(world, node_id)]


def test_protection_by_tag_ends_with_its_time(world: World) -> None:
    """A protection until a time is told while it holds, and ends with it without anybody's call."""
    until = world.words.time(world.clock.now() + timedelta(hours=1))
    node_id = world.launch({**MINE, PROTECT_TAG: until})

    assert seen(world, node_id).protected == f"tag gpuwatch:protect protects it until {until}"
    assert world.cloud.nodes()[0].protected is not None

    world.clock.advance(3601)

    assert world.cloud.nodes()[0].protected is None
    assert seen(world, node_id).protected is None


def test_a_protection_set_later_is_seen(world: World) -> None:
    """What people tag between two rounds is in the next list."""
    node_id = world.launch(MINE)
    assert world.cloud.nodes()[0].protected is None

    world.set_tags(node_id, {PROTECT_TAG: "true", SNOOZE_TAG: "2100-01-01T00:00:00Z"})

    node = world.cloud.nodes()[0]
    assert (node.protected, node.snoozed) == ("tag gpuwatch:protect protects it", "2100-01-01T00:00:00Z")


def test_a_snooze_ends_with_its_time(world: World) -> None:
    """What people postponed until a time is told until then, without anybody's call."""
    until = world.words.time(world.clock.now() + timedelta(hours=1))
    world.launch({**MINE, SNOOZE_TAG: until})
    assert world.cloud.nodes()[0].snoozed == until

    world.clock.advance(3601)

    assert world.cloud.nodes()[0].snoozed is None


# One machine


def test_an_unknown_id_is_an_error_and_never_a_machine_that_is_gone(world: World) -> None:
    """node() of an id that the cloud does not know raises NotFoundError, which names it."""
    with pytest.raises(NotFoundError, match=world.words.nowhere) as caught:
        world.cloud.node(world.words.nowhere)

    assert caught.value.code == world.words.unknown_id


def test_a_terminated_machine_is_one_in_that_state(world: World) -> None:
    """node() tells that a machine is gone by its state."""
    node_id = world.launch(MINE)
    world.terminate(node_id)
    assert seen(world, node_id).state is NodeState.TERMINATING

    world.settle(node_id)

    assert seen(world, node_id).state is NodeState.TERMINATED


# A stop


def test_a_stop_passes_through_stopping(world: World) -> None:
    """stop() returns when it is accepted, which is before the machine has stopped."""
    node_id = world.launch(MINE)

    world.cloud.stop(node_id, "key", permit=a_permit())

    assert seen(world, node_id).state is NodeState.STOPPING
    world.settle(node_id)
    assert seen(world, node_id).state is NodeState.STOPPED


def test_a_stop_says_whether_it_was_what_stopped_the_machine(world: World) -> None:
    """The answer of the call that the machine ran until is proved by what the cloud shows afterwards; no other's is."""
    node_id = world.launch(MINE)
    first = world.cloud.stop(node_id, "key", permit=a_permit())
    second = world.cloud.stop(node_id, "key", permit=a_permit())
    world.settle(node_id)
    third = world.cloud.stop(node_id, "key", permit=a_permit())
    shown = seen(world, node_id).last_stop

    assert [each.ran for each in (first, second, third)] == [True, False, False]
    assert why_not_ours(first, shown) is None
    assert why_not_ours(second, shown) is not None
    assert why_not_ours(third, shown) is not None


def test_a_second_stop_is_success(world: World) -> None:
    """stop() of a machine that is stopping or stopped returns and changes nothing."""
    node_id = world.launch(MINE)
    world.cloud.stop(node_id, "key", permit=a_permit())
    world.cloud.stop(node_id, "key", permit=a_permit())
    world.settle(node_id)

    world.cloud.stop(node_id, "key", permit=a_permit())

    assert seen(world, node_id).state is NodeState.STOPPED


def test_a_stop_of_what_is_gone_is_success(world: World) -> None:
    """stop() of a machine that is terminating or terminated returns, and does not bring it back."""
    node_id = world.launch(MINE)
    world.terminate(node_id)
    world.cloud.stop(node_id, "key", permit=a_permit())
    world.settle(node_id)

    world.cloud.stop(node_id, "key", permit=a_permit())

    assert seen(world, node_id).state is NodeState.TERMINATED


def test_a_stop_touches_no_other_machine(world: World) -> None:
    """One instance a call."""
    ids = sorted(world.launch(MINE) for _ in range(3))

    world.cloud.stop(ids[1], "key", permit=a_permit())

    assert states(world.cloud) == {
        ids[0]: NodeState.RUNNING,
        ids[1]: NodeState.STOPPING,
        ids[2]: NodeState.RUNNING,
    }


def test_a_pending_machine_refuses_a_stop(world: World) -> None:
    """stop() of a machine that is starting is a CloudError with the cloud's code, not a success."""
    node_id = world.launch(MINE)
    world.cloud.stop(node_id, "key", permit=a_permit())
    world.settle(node_id)
    world.cloud.start(node_id, "key")

    with pytest.raises(CloudError) as caught:
        world.cloud.stop(node_id, "key", permit=a_permit())

    assert caught.value.code in world.words.wrong_state


# A start


def test_a_start_passes_through_pending_and_renews_the_launch_time(world: World) -> None:
    """start() returns when it is accepted; the machine's launch time is that of its last start."""
    node_id = world.launch(MINE)
    launched_at = seen(world, node_id).launched_at
    world.cloud.stop(node_id, "key", permit=a_permit())
    world.settle(node_id)
    assert seen(world, node_id).launched_at == launched_at
    started_at = world.clock.now()

    world.cloud.start(node_id, "key")

    assert seen(world, node_id).state is NodeState.PENDING
    world.settle(node_id)
    assert seen(world, node_id).state is NodeState.RUNNING
    assert seen(world, node_id).launched_at == started_at


def test_a_second_start_is_success(world: World) -> None:
    """start() of a machine that is starting or running returns and changes nothing."""
    node_id = world.launch(MINE)
    launched_at = seen(world, node_id).launched_at
    world.clock.advance(60)

    world.cloud.start(node_id, "key")

    assert seen(world, node_id).state is NodeState.RUNNING
    assert seen(world, node_id).launched_at == launched_at


@pytest.mark.parametrize("end", ["stop", "terminate"])
def test_a_machine_on_its_way_down_refuses_a_start(world: World, end: str) -> None:
    """start() of a machine that is stopping or terminating is a CloudError with the cloud's code."""
    node_id = world.launch(MINE)
    if end == "stop":
        world.cloud.stop(node_id, "key", permit=a_permit())
    else:
        world.terminate(node_id)

    with pytest.raises(CloudError) as caught:
        world.cloud.start(node_id, "key")

    assert caught.value.code in world.words.wrong_state


# Tags that gpuwatch writes


def test_tags_are_set_beside_the_others(world: World) -> None:
    """tag() sets its keys and leaves people's tags alone."""
    node_id = world.launch({**MINE, OWNER_TAG: "anna"})

    world.cloud.tag(node_id, {NOTIFIED_TAG: "now", DECISION_TAG: "7"}, "key")

    assert world.cloud.nodes()[0].tags == {**MINE, OWNER_TAG: "anna", NOTIFIED_TAG: "now", DECISION_TAG: "7"}


@pytest.mark.parametrize("key", [FLEET_TAG, PROTECT_TAG, SNOOZE_TAG, OWNER_TAG, POOL_TAG, "Name"])
def test_a_foreign_tag_is_never_written(world: World, key: str) -> None:
    """tag() refuses a key outside the allow-list by name and sets nothing of the call."""
    node_id = world.launch(MINE)

    with pytest.raises(ValueError, match=f"never writes the tag '{key}'"):
        world.cloud.tag(node_id, {STOP_AT: "then", key: "x"}, "key")

    assert seen(world, node_id).tags == MINE


# Faults


@pytest.mark.parametrize("call", sorted(MUTATIONS))
def test_a_mutation_of_an_unknown_id_is_not_found(world: World, call: str) -> None:
    """Each mutation of an id that the cloud does not know raises NotFoundError: that is no success."""
    with pytest.raises(NotFoundError):
        MUTATIONS[call](world.cloud, world.words.nowhere)


@pytest.mark.pairwise
@pytest.mark.parametrize("kind", REFUSALS)
@pytest.mark.parametrize("call", sorted(MUTATIONS))
def test_a_refusal_is_typed_and_nothing_happens(world: World, call: str, kind: type[CloudError]) -> None:
    """Each refusal comes as its own error with the cloud's code, and the machine is as it was."""
    node_id = world.launch(MINE)
    if call == "start":
        world.cloud.stop(node_id, "key", permit=a_permit())
        world.settle(node_id)
    before = seen(world, node_id)
    world.refuse(call, kind)

    with pytest.raises(CloudError) as caught:
        MUTATIONS[call](world.cloud, node_id)

    assert type(caught.value) is kind
    assert caught.value.code == world.words.refusals[kind]
    assert seen(world, node_id) == before
    MUTATIONS[call](world.cloud, node_id)
    assert seen(world, node_id) != before, "the refusal should strike once"


def test_a_lost_answer_is_unavailable_though_it_happened(world: World) -> None:
    """A mutation whose answer is lost raises CloudUnavailableError; asking again is harmless."""
    node_id = world.launch(MINE)
    world.lose_response("stop")

    with pytest.raises(CloudUnavailableError):
        world.cloud.stop(node_id, "key", permit=a_permit())

    assert seen(world, node_id).state is NodeState.STOPPING
    world.cloud.stop(node_id, "key", permit=a_permit())
    world.settle(node_id)
    assert seen(world, node_id).state is NodeState.STOPPED


# The table of clouds


def test_a_cloud_is_made_by_its_name() -> None:
    """connect() imports a cloud when it is chosen and hands it its settings."""
    cloud = connect(CloudSettings(provider="aws", regions=(REGION,)), fleet=FLEET, clock=ManualClock())

    assert isinstance(cloud, AwsCloud)


def test_an_unknown_cloud_is_refused_by_name() -> None:
    """connect() of a misspelt name lists the right ones."""
    with pytest.raises(ValueError, match=f"no cloud is named 'awz'; there are: {', '.join(sorted(CLOUDS))}"):
        connect(CloudSettings(provider="awz"), fleet=FLEET, clock=ManualClock())


def test_only_gpuwatch_keys_are_writable() -> None:
    """The allow-list holds no tag that enrols, protects or postpones."""
    assert not WRITABLE_TAGS & {FLEET_TAG, POOL_TAG, OWNER_TAG, PROTECT_TAG, SNOOZE_TAG}
