"""The rest of the contract of `test_clouds.py`: ends of machines, launches, groups, and what is left over."""

from collections.abc import Callable, Iterator

import pytest

from gpuwatch.clouds import (
    FLEET_TAG,
    NO_GPU,
    POOL_TAG,
    PROTECT_TAG,
    Cloud,
    CloudError,
    CloudUnavailableError,
    LeftoverKind,
    NotFoundError,
    ProtectedError,
)
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.model.fleet import NodeState
from tests.support.builders.fleet import a_permit
from tests.support.fakes.cloud_worlds import FLEET, MINE, REFUSALS, WORLDS, World, a_world, seen


def from_template(world: World) -> dict[str, str]:
    """The arguments of a launch."""
    return {"template": world.words.template, "version": "$Default", "pool": "train", "region": world.words.region}


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Each cloud in turn."""
    with a_world(request.param) as world:
        yield world


# An end


def test_an_end_passes_through_terminating(world: World) -> None:
    """terminate() returns when it is accepted; the machine is gone later, and asking again changes nothing."""
    node_id = world.launch(MINE)

    world.cloud.terminate(node_id, "key", permit=a_permit())

    assert seen(world, node_id).state is NodeState.TERMINATING
    world.cloud.terminate(node_id, "key", permit=a_permit())
    world.settle(node_id)
    assert seen(world, node_id).state is NodeState.TERMINATED
    world.cloud.terminate(node_id, "key", permit=a_permit())


def test_a_stopped_machine_ends(world: World) -> None:
    """terminate() needs no running machine."""
    node_id = world.launch(MINE)
    world.cloud.stop(node_id, "key", permit=a_permit())
    world.settle(node_id)

    world.cloud.terminate(node_id, "key", permit=a_permit())

    assert seen(world, node_id).state is NodeState.TERMINATING


def test_an_end_touches_no_other_machine(world: World) -> None:
    """One machine a call."""
    ids = sorted(world.launch(MINE) for _ in range(3))

    world.cloud.terminate(ids[1], "key", permit=a_permit())

    assert [node.state is NodeState.RUNNING for node in world.cloud.nodes()] == [True, False, True]


# Groups


def test_a_group_is_told_whole(world: World) -> None:
    """groups() tells sizes, place, pool, consent and members, and group() the same of one."""
    group_id, words = world.add_group("train", {**MINE, POOL_TAG: "train"}, size=2, MinSize=1, MaxSize=4), world.words

    (group,) = world.cloud.groups()

    assert (group.id, group.name, group.pool, group.region) == (group_id, "train", "train", words.region)
    assert (group.min_size, group.max_size, group.desired) == (1, 4, 2)
    assert (group.enrolled, group.protected, group.suspended) == (True, None, frozenset())
    assert (group.instance_type, group.zones, group.account) == (words.machine_type, (words.zone,), words.account)
    assert group.node_ids == tuple(node.id for node in world.cloud.nodes())
    assert world.cloud.group(group_id) == group


def test_a_member_of_a_group_with_consent_is_nobody_elses(world: World) -> None:
    """The group's own tag is the consent: its members name their group and no foreign owner."""
    group_id = world.add_group("train", MINE, size=1)

    (node,) = world.cloud.nodes()

    assert (node.group, node.managed_by, node.enrolled, node.scale_in_protected) == (group_id, None, True, False)
    assert seen(world, node.id) == node


def test_a_member_of_a_group_without_consent_belongs_to_the_group(world: World) -> None:
    """Without the group's tag the members are the group's, and the group is told as not enrolled."""
    group_id = world.add_group("theirs", {FLEET_TAG: "another"}, size=1)

    (node,) = world.cloud.nodes()

    assert (node.group, node.managed_by) == (group_id, f"{world.words.group_kind} theirs")
    assert not world.cloud.group(group_id).enrolled


def test_an_empty_group_with_consent_is_listed(world: World) -> None:
    """A group scaled to zero can grow again, and its type is known."""
    world.add_group("empty", MINE, size=0)

    assert [(group.name, group.desired, group.instance_type) for group in world.cloud.groups()] == [
        ("empty", 0, world.words.machine_type)
    ]


def test_an_unknown_group_is_not_found(world: World) -> None:
    """No group is made up."""
    with pytest.raises(NotFoundError):
        world.cloud.group(world.words.no_group)
    with pytest.raises(NotFoundError):
        world.cloud.grow(world.words.no_group, 1, "key")


def test_a_member_goes_with_its_place(world: World) -> None:
    """terminate() with the group lowers its desired size by one, and nothing comes in the member's place."""
    group_id = world.add_group("train", MINE, size=3)
    gone = world.cloud.nodes()[1].id

    world.cloud.terminate(gone, "key", group=group_id, permit=a_permit())
    world.settle(gone)

    group = world.cloud.group(group_id)
    assert (group.desired, len(group.node_ids)) == (2, 2)
    assert gone not in group.node_ids


def test_a_member_that_goes_without_its_place_is_replaced(world: World) -> None:
    """That is what the group is for, and why terminate() takes the group's id; where groups do so."""
    if not world.words.replaces_members:
        pytest.skip("its groups replace nobody")
    group_id = world.add_group("train", MINE, size=2)
    gone = world.cloud.nodes()[0].id

    world.cloud.terminate(gone, "key", permit=a_permit())
    world.settle(gone)

    assert world.cloud.group(group_id).desired == 2
    assert len([node for node in world.cloud.nodes() if node.state is not NodeState.TERMINATING]) == 2


def test_no_member_takes_two_places(world: World) -> None:
    """Asked again while the member goes, and when it is gone, terminate() is success and lowers nothing more."""
    group_id = world.add_group("train", MINE, size=3)
    gone = world.cloud.nodes()[0].id
    world.cloud.terminate(gone, "key", group=group_id, permit=a_permit())

    world.cloud.terminate(gone, "key", group=group_id, permit=a_permit())
    world.settle(gone)
    world.cloud.terminate(gone, "key", group=group_id, permit=a_permit())

    assert world.cloud.group(group_id).desired == 2


@pytest.mark.parametrize(
    ("bounds", "suspended", "code"), [({"MinSize": 2}, [], "MinSize"), ({}, ["Terminate"], "ProcessSuspended")]
)
def test_a_group_that_cannot_shrink_keeps_its_member(
    world: World, bounds: dict[str, int], suspended: list[str], code: str
) -> None:
    """At the minimum, or with its Terminate process suspended, nothing is ended and nothing lowered."""
    if suspended and not world.words.has_processes:
        pytest.skip("its groups have no processes")
    group_id = world.add_group("train", MINE, size=2, suspended=suspended, **bounds)
    node_id = world.cloud.nodes()[0].id

    with pytest.raises(CloudError) as caught:
        world.cloud.terminate(node_id, "key", group=group_id, permit=a_permit())

    assert caught.value.code == code
    assert seen(world, node_id).state is NodeState.RUNNING
    assert world.cloud.group(group_id).desired == 2


def test_a_machine_that_is_no_member_is_left_alone(world: World) -> None:
    """Detached since the decision, or never in it: terminate() with that group refuses."""
    group_id = world.add_group("train", MINE, size=1)
    node_id = world.launch(MINE)

    with pytest.raises(CloudError) as caught:
        world.cloud.terminate(node_id, "key", group=group_id, permit=a_permit())

    assert caught.value.code == "NotAMember"
    assert seen(world, node_id).state is NodeState.RUNNING


def test_a_member_that_its_owner_protects_is_left_alone(world: World) -> None:
    """A protecting tag set after the decision holds at the cloud's door too."""
    group_id = world.add_group("train", MINE, size=2)
    node_id = world.cloud.nodes()[0].id
    world.set_tags(node_id, {PROTECT_TAG: "true"})

    with pytest.raises(ProtectedError, match="gpuwatch:protect"):
        world.cloud.terminate(node_id, "key", group=group_id, permit=a_permit())

    assert world.cloud.group(group_id).desired == 2


GROUP_ACTS: dict[str, Callable[[Cloud, str, str], None]] = {
    "terminate": lambda cloud, node_id, group_id: cloud.terminate(node_id, "key", group=group_id, permit=a_permit()),
    "grow": lambda cloud, _, group_id: cloud.grow(group_id, 2, "key"),
    "protect": lambda cloud, node_id, group_id: cloud.protect(node_id, group_id, "key", on=True),
}


@pytest.mark.parametrize("act", sorted(GROUP_ACTS))
def test_a_group_without_consent_is_left_alone(world: World, act: str) -> None:
    """Whoever asks: no act on a group whose owner did not consent."""
    group_id = world.add_group("theirs", {FLEET_TAG: "another"}, size=1)
    before = world.cloud.nodes()

    with pytest.raises(CloudError) as caught:
        GROUP_ACTS[act](world.cloud, before[0].id, group_id)

    assert caught.value.code == "NotEnrolled"
    assert world.cloud.nodes() == before


def test_a_group_grows_to_a_size(world: World) -> None:
    """grow() raises the desired size; asked again, or for less, it changes nothing."""
    group_id = world.add_group("train", MINE, size=1)

    world.cloud.grow(group_id, 3, "key")
    world.cloud.grow(group_id, 3, "key")
    world.cloud.grow(group_id, 2, "key")

    assert world.cloud.group(group_id).desired == 3
    assert [node.enrolled for node in world.cloud.nodes()] == [True] * 3


@pytest.mark.parametrize(
    ("bounds", "suspended", "code"), [({"MaxSize": 2}, [], "MaxSize"), ({}, ["Launch"], "ProcessSuspended")]
)
def test_a_group_that_cannot_grow_says_why(
    world: World, bounds: dict[str, int], suspended: list[str], code: str
) -> None:
    """Above the maximum, or with its Launch process suspended, grow() refuses."""
    if suspended and not world.words.has_processes:
        pytest.skip("its groups have no processes")
    group_id = world.add_group("train", MINE, size=1, suspended=suspended, **bounds)

    with pytest.raises(CloudError) as caught:
        world.cloud.grow(group_id, 3, "key")

    assert caught.value.code == code
    assert world.cloud.group(group_id).desired == 1


def test_a_member_is_kept_from_its_groups_own_choice(world: World) -> None:
    """protect() is seen on the member and on no other, and is lifted again."""
    if not world.words.protects_members:
        pytest.skip("its groups protect nobody")
    group_id = world.add_group("train", MINE, size=2)
    kept, other = (node.id for node in world.cloud.nodes())

    world.cloud.protect(kept, group_id, "key", on=True)
    world.cloud.protect(kept, group_id, "key", on=True)

    assert (seen(world, kept).scale_in_protected, seen(world, other).scale_in_protected) == (True, False)
    world.cloud.protect(kept, group_id, "key", on=False)
    assert not seen(world, kept).scale_in_protected


# A launch


def test_a_launch_is_one_machine_of_this_fleet(world: World) -> None:
    """launch() gives the id of a machine that carries fleet, pool and key from its first moment."""
    node_id = world.cloud.launch(from_template(world), "key-1")

    node = seen(world, node_id)
    assert (node.state, node.pool, node.enrolled) == (NodeState.PENDING, "train", True)
    assert node.tags.items() >= {FLEET_TAG: FLEET, POOL_TAG: "train", DECISION_TAG: "key-1"}.items()
    assert [each.id for each in world.cloud.nodes()] == [node_id]
    world.settle(node_id)
    assert world.cloud.find("key-1") == seen(world, node_id)
    assert seen(world, node_id).state is NodeState.RUNNING


def test_the_same_key_is_the_same_machine(world: World) -> None:
    """Asked again, also after a lost answer, launch() gives the machine that is there; another key is another one."""
    world.lose_response("launch")
    with pytest.raises(CloudUnavailableError):
        world.cloud.launch(from_template(world), "key-1")

    again = world.cloud.launch(from_template(world), "key-1")
    other = world.cloud.launch(from_template(world), "key-2")

    assert world.cloud.launch(from_template(world), "key-1") == again
    assert {node.id for node in world.cloud.nodes()} == {again, other}


def test_a_key_launches_nothing_else(world: World) -> None:
    """Asked with other arguments it gives the first machine, or is a doubt: a new key would make a second one."""
    node_id, code = world.cloud.launch(from_template(world), "key-1"), None
    other = {**from_template(world), "instance_type": world.words.larger_type}
    try:
        assert world.cloud.launch(other, "key-1") == node_id
    except CloudUnavailableError as error:
        code = error.code

    assert code == world.words.key_of_another_launch
    assert [node.id for node in world.cloud.nodes()] == [node_id]
    there = world.cloud.find("key-1")
    assert there is not None
    assert there.id == node_id


def test_an_unknown_template_launches_nothing(world: World) -> None:
    """launch() of a template that is not there is a CloudError."""
    with pytest.raises(CloudError):
        world.cloud.launch({**from_template(world), "template": world.words.no_template}, "key-1")

    assert list(world.cloud.nodes()) == []
    assert world.cloud.find("key-1") is None


def test_a_template_without_a_gpu_launches_nothing(world: World) -> None:
    """Its machines would never be nodes: launch() refuses before the cloud is asked, by a code of our own."""
    with pytest.raises(CloudError) as caught:
        world.cloud.launch({**from_template(world), "template": world.words.cpu_template}, "key-1")

    assert caught.value.code == NO_GPU
    assert world.cloud.find("key-1") is None


def test_what_was_launched_is_found_after_its_end(world: World) -> None:
    """find() tells that a launched machine is gone by its state, as long as the cloud shows it, whatever its tags."""
    node_id = world.cloud.launch(from_template(world), "key-1")
    world.settle(node_id)
    world.cloud.tag(node_id, {DECISION_TAG: "key-2"}, "key-2")
    world.cloud.terminate(node_id, "key-3", permit=a_permit())
    world.settle(node_id)

    found = world.cloud.find("key-1")

    assert found is not None
    assert (found.id, found.state) == (node_id, NodeState.TERMINATED)
    assert world.cloud.find("key-2") is None


ADDITIONS: dict[str, Callable[[World, str], object]] = {
    "launch": lambda world, _: world.cloud.launch(from_template(world), "key-1"),
    "grow": lambda world, group_id: world.cloud.grow(group_id, 2, "key"),
    "protect": lambda world, group_id: world.cloud.protect(world.cloud.nodes()[0].id, group_id, "key", on=True),
}


@pytest.mark.pairwise
@pytest.mark.parametrize("kind", REFUSALS)
@pytest.mark.parametrize("call", sorted(ADDITIONS))
def test_a_refused_addition_is_typed_and_nothing_happens(world: World, call: str, kind: type[CloudError]) -> None:
    """Each refusal comes as its own error with the cloud's code; asked again, it happens."""
    if call == "protect" and not world.words.protects_members:
        pytest.skip("its groups protect nobody")
    group_id = world.add_group("train", MINE, size=1)
    before = world.cloud.nodes()
    world.refuse(call, kind)

    with pytest.raises(CloudError) as caught:
        ADDITIONS[call](world, group_id)

    assert type(caught.value) is kind
    assert caught.value.code == world.words.refusals[kind]
    assert world.cloud.nodes() == before
    ADDITIONS[call](world, group_id)
    assert world.cloud.nodes() != before, "the refusal should strike once"


# What is left


def test_what_nobody_uses_is_told(world: World) -> None:
    """leftovers() tells unattached volumes and those of stopped machines, with type and size, and no others."""
    volume = world.add_volume()
    stopped, _ = world.launch(MINE), world.launch(MINE)
    world.cloud.stop(stopped, "key", permit=a_permit())
    world.settle(stopped)

    document = {each.kind: each for each in world.cloud.leftovers()}

    assert sorted(document) == [LeftoverKind.UNATTACHED_VOLUME, LeftoverKind.STOPPED_VOLUME]
    unattached = document[LeftoverKind.UNATTACHED_VOLUME]
    words = world.words
    assert (unattached.id, unattached.type, unattached.size_bytes) == (volume, words.volume_type, words.volume_bytes)
    assert (unattached.region, unattached.account, unattached.node_id) == (words.region, words.account, None)
    assert document[LeftoverKind.STOPPED_VOLUME].node_id == stopped
    assert {each.provider for each in document.values()} == {words.provider}
