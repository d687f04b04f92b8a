"""Every cloud's groups without stock: seen as they are, and taken back without touching a member.

The rest of the contract of `test_clouds.py`; the policy is in `gpuwatch/policies/places.py` and `uncounted.py`.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpuwatch.clouds import CloudError, ProtectedError
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.policies.places import group_places
from tests.support.builders.fleet import an_observation
from tests.support.builders.past_steps import a_done
from tests.support.fakes.cloud_worlds import MINE, WORLDS, World, a_world, seen


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Each cloud in turn."""
    with a_world(request.param) as world:
        yield world


def short(world: World, *, size: int = 2, wanted: int = 4) -> str:
    """A group with so many members that wants more, for which its cloud has none; its id."""
    group_id = world.add_group("trainers", MINE, size=size, MinSize=1, MaxSize=6)
    world.cloud.nodes()
    world.no_stock(group_id)
    world.cloud.grow(group_id, wanted, "key-1")
    world.settle(world.cloud.group(group_id).node_ids[0])
    return group_id


def protect(world: World, group_id: str) -> None:
    """Every member, where the group would choose one."""
    group = world.cloud.group(group_id)
    for node_id in () if group.gives_back_places else group.node_ids:
        world.cloud.protect(node_id, group_id, f"key-{node_id}", on=True)


def test_a_group_without_stock_is_seen_short(world: World) -> None:
    """It wants four and has two, and says why in its cloud's own words."""
    group_id = short(world)
    (listed,) = world.cloud.groups()
    for group in (listed, world.cloud.group(group_id)):
        assert (group.desired, len(group.node_ids)) == (4, 2)
        assert group.refused is not None
        assert group.refused.why
        assert group.refused.at <= world.clock.now()


def test_a_group_without_stock_is_left_at_once(world: World) -> None:
    """In the minute of its growth, and by every cloud's own word: nobody waits ten minutes for it."""
    group_id = world.add_group("trainers", MINE, size=2, MinSize=1, MaxSize=6)
    world.cloud.nodes()
    world.no_stock(group_id)
    world.clock.advance(17.0)
    asked = world.clock.now()
    world.cloud.grow(group_id, 4, "key-1")
    world.clock.advance(31.0)

    (group,) = world.cloud.groups()
    group = replace(group, short_since=asked)
    growth = replace(a_done(group_id), at=asked, reached_at=asked, verb=Verb.GROW, arguments={"size": "4"})
    observation = replace(an_observation(recent=(growth,)), now=world.clock.now())
    observation = replace(observation, fleet=replace(observation.fleet, groups=(group,)))
    assert (group_places(observation, group).why_left or "").startswith("its cloud gives it no more: ")


def test_a_group_with_all_its_members_says_nothing(world: World) -> None:
    """Nothing is missing."""
    group_id = world.add_group("trainers", MINE, size=2, MinSize=1, MaxSize=6)
    assert world.cloud.group(group_id).refused is None


def test_what_a_group_lacks_is_taken_back_and_every_member_stays(world: World) -> None:
    """Asked again it is the same."""
    group_id = short(world)
    protect(world, group_id)
    before = world.cloud.group(group_id).node_ids
    for _ in range(2):
        world.cloud.shrink(group_id, 2, "key-2")
    world.settle(before[0])

    after = world.cloud.group(group_id)
    assert (after.desired, after.node_ids) == (2, before)
    assert {seen(world, node_id).state for node_id in before} == {NodeState.RUNNING}


def test_a_part_of_it_may_be_taken_back(world: World) -> None:
    """As many as come from elsewhere."""
    group_id = short(world)
    protect(world, group_id)
    world.cloud.shrink(group_id, 3, "key-2")
    assert world.cloud.group(group_id).desired == 3


def test_nothing_is_taken_back_where_a_member_could_go_for_it(world: World) -> None:
    """One that is not protected, or a size below the members: each is refused, and nothing has changed."""
    group_id = short(world)
    group = world.cloud.group(group_id)
    if not group.gives_back_places:
        with pytest.raises(ProtectedError):
            world.cloud.shrink(group_id, 2, "key-2")
    protect(world, group_id)
    with pytest.raises(CloudError):
        world.cloud.shrink(group_id, 1, "key-3")
    assert world.cloud.group(group_id).desired == 4


def test_nothing_is_taken_back_below_the_minimum(world: World) -> None:
    """The group's own bound holds."""
    group_id = world.add_group("trainers", MINE, size=1, MinSize=1, MaxSize=6)
    world.cloud.nodes()
    protect(world, group_id)
    with pytest.raises(CloudError):
        world.cloud.shrink(group_id, 0, "key-1")


def test_a_foreign_group_is_left_alone(world: World) -> None:
    """Without its owner's consent nothing is taken back."""
    group_id = world.add_group("trainers", {}, size=2, MinSize=0, MaxSize=6)
    world.cloud.nodes()
    with pytest.raises(CloudError):
        world.cloud.shrink(group_id, 1, "key-1")
