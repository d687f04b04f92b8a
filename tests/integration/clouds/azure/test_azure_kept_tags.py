"""Tags of a member of a Uniform scale set that Azure says it has written, and has not.

A public issue (gh:Azure/azure-libraries-for-net#1299) records such an answer. Nobody could be told of a stop by such a
machine's tags, nor keep one member by them: so no member is removed, and the whole set can be protected.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpuwatch.clouds import PROTECT_TAG, CloudError
from gpuwatch.controller.round import step
from gpuwatch.model.decision import NOTIFIED_TAG
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import RULES
from tests.support.clouds.azure.controller import Agents, a_controller
from tests.support.clouds.azure.world import AzureWorld, an_azure
from tests.support.fakes.cloud_worlds import MINE

TAGS = "Tags_UpdateAtScope"


@pytest.fixture
def world() -> Iterator[AzureWorld]:
    """An empty subscription."""
    with an_azure(ManualClock()) as world:
        yield world


def sent(world: AzureWorld, minutes: int) -> list[str]:
    """What a controller changes while all members are idle."""
    world.clock.advance(3 * 3600.0)
    rules = replace(RULES, idle=replace(RULES.idle, action="terminate"))
    parts = a_controller(world.cloud, world.clock, Agents(world.clock), rules=rules)
    for _ in range(minutes):
        step(parts)
        world.clock.advance(60.0)
    return [each.asked.operation for each in world.server.changes()]


@pytest.mark.parametrize("drops", [False, True])
def test_a_member_whose_tags_do_not_hold_is_not_removed(world: AzureWorld, *, drops: bool) -> None:
    """One whose tags hold is, after its notice and its grace."""
    world.add_scale_set("train", MINE, size=2)
    world.state.drops_tags_of_members = drops

    changes = sent(world, 60)

    assert TAGS in changes
    assert ("Scale_DeleteInstances" in changes) is not drops


def test_the_tag_of_the_set_protects_all_its_members(world: AzureWorld) -> None:
    """It is what remains to people."""
    world.add_scale_set("train", {**MINE, PROTECT_TAG: "true"}, size=2)
    world.state.drops_tags_of_members = True

    assert set(sent(world, 60)) == {"ScaleVMs_Update"}, "its own scale-in spares them, too"


def test_tags_that_azure_did_not_keep_are_an_error(world: AzureWorld) -> None:
    """What it merged is not: the case of a key does not matter, and what was there before stays."""
    world.add_scale_set("train", MINE, size=1)
    (node,) = world.cloud.nodes()
    world.cloud.tag(node.id, {NOTIFIED_TAG: "2026-01-05T09:00:00Z"}, "key")
    world.state.drops_tags_of_members = True

    with pytest.raises(CloudError, match="did not keep them") as caught:
        world.cloud.tag(node.id, {NOTIFIED_TAG: "2026-01-06T09:00:00Z"}, "key")
    assert caught.value.code == "TagsNotKept"
