"""What a group makes after gpuwatch raised its size, and does not last, rests the group, falls back, and is told."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.controller.context import Memory
from gpuwatch.controller.round import Round
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.cloud_notice import CloudNotice
from gpuwatch.model.decision import Done, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.lasting import LAUNCHES
from gpuwatch.policies.launches import LaunchRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import RULES
from tests.support.builders.light_desk import LightDesk
from tests.support.builders.past_steps import a_group
from tests.support.fakes.failing_images import FailingImages

MINUTES = 3  # from one round to the next
POOL = replace(RULES, schedule={"always": Window(min_nodes=2)})


def a_desk(rules: PoolRules = POOL, **image: object) -> tuple[LightDesk, FailingImages]:
    """A pool that wants two nodes and has an empty group; the default limits."""
    desk = LightDesk(limits=Limits(), rules=rules, interval=60.0 * MINUTES)
    cloud = FailingImages(clock=desk.clock, **image)  # type: ignore[arg-type]
    cloud.groups_["g-1"] = a_group(desired=0, max_size=9, node_ids=())
    cloud.room_["g-1"] = 9
    desk.fleet = cloud
    return desk, cloud


def hours(desk: LightDesk, count: float) -> Round:
    """Rounds for so many hours; the last one."""
    for _ in range(int(count * 60 / MINUTES) - 1):
        desk.round(60.0 * MINUTES)
    return desk.round(60.0 * MINUTES)


def want(desk: LightDesk, count: int) -> None:
    """From now on the pool is to have so many nodes."""
    desk.pools = {"default": replace(desk.rules, schedule={"always": Window(min_nodes=count)})}


def said(done: Round) -> str:
    """What the round's decisions and refusals say."""
    sentences = [clamp for each in done.decisions for clamp in each.clamps]
    return " ".join([*sentences, *(answer.sentence for each in done.reviews for answer in each.refusals)])


def ends(desk: LightDesk) -> list[Done]:
    """The ends that are on record."""
    past = desk.light.view(desk.clock.now(), recent=timedelta(days=3))
    return [done for done in past.recent if done.verb is Verb.ENDED]


def grown(cloud: FailingImages) -> int:
    """How often the group's size was raised."""
    return sum(call == "grow" for call, _, _ in cloud.calls)


@pytest.mark.parametrize("minutes", [6.0, 30.0])
@pytest.mark.parametrize("restarts", [False, True], ids=["goes on", "restarts"])
def test_a_group_whose_members_do_not_last_is_not_made_larger(minutes: float, *, restarts: bool) -> None:
    """A bad image: however much more is wanted, its size stays, and it is said; a restart changes nothing."""
    desk, cloud = a_desk(minutes=minutes, then=NodeState.TERMINATED)
    hours(desk, 3)
    if restarts:
        desk.memory = Memory()
    want(desk, 6)
    last = hours(desk, 3)

    assert cloud.groups_["g-1"].desired == 2
    assert grown(cloud) == 1
    assert "The group trainers is not made larger for a time. The last " in said(last)
    assert "members of the group did not last; g-1-" in said(last)


def test_what_the_group_does_not_bring_comes_from_elsewhere() -> None:
    """The template's machines last: the pool has its two nodes, and the size of the group is taken back."""
    rules = replace(POOL, launch=LaunchRules(template="lt-1"))
    desk, cloud = a_desk(rules, minutes=6.0, then=NodeState.TERMINATED, members_alone=True)
    hours(desk, 1)
    before = cloud.launched
    hours(desk, 12)

    assert cloud.groups_["g-1"].desired <= 1
    assert cloud.launched - before < 24
    assert sum(node.state is NodeState.RUNNING for node in cloud.nodes_.values()) <= 3


@pytest.mark.parametrize("most", [None, 3])
def test_members_that_stop_keep_their_places_and_count_towards_the_maximum(most: int | None) -> None:
    """A scale set leaves them there: others come, from elsewhere in the end, and no more than the maximum."""
    rules = replace(POOL, launch=LaunchRules(template="lt-1"), max_nodes=most)
    desk, cloud = a_desk(rules, minutes=90.0, then=NodeState.STOPPED, members_alone=True)
    hours(desk, 1)
    assert len(cloud.nodes_) == 2
    last = hours(desk, 12)

    running = sum(node.state is NodeState.RUNNING for node in cloud.nodes_.values())
    assert (running, len(cloud.nodes_)) == ((2, 6) if most is None else (0, 3))
    assert "members of the group trainers stopped without gpuwatch: they keep their places" in said(last)


def test_another_group_takes_the_place_of_one_that_rests() -> None:
    """Its members last."""
    desk, cloud = a_desk(minutes=6.0, then=NodeState.TERMINATED)
    hours(desk, 3)
    cloud.groups_["g-2"] = a_group(id="g-2", name="others", desired=0, max_size=9, node_ids=())
    cloud.sound_group = "g-2"
    want(desk, 6)
    hours(desk, 1)

    assert cloud.groups_["g-2"].desired >= 4
    assert cloud.groups_["g-1"].desired <= 2


def test_an_image_that_is_mended_ends_the_rest_by_what_the_group_makes_itself() -> None:
    """The group has filled its places: an hour later it may be made larger again."""
    desk, cloud = a_desk(minutes=6.0, then=NodeState.TERMINATED, state=State.BUSY)
    hours(desk, 3)
    cloud.minutes = None
    want(desk, 6)
    hours(desk, 0.5)
    assert cloud.groups_["g-1"].desired == 2
    hours(desk, 1)
    assert cloud.groups_["g-1"].desired == 6


def test_whoever_resumes_the_pool_makes_the_group_larger_at_once() -> None:
    """By its name."""
    desk, cloud = a_desk(minutes=6.0, then=NodeState.TERMINATED)
    hours(desk, 3)
    want(desk, 3)
    desk.light.resume("default", "somebody", desk.clock.now())
    desk.round()
    assert cloud.groups_["g-1"].desired == 3


@pytest.mark.parametrize("who", ["the owner", "gpuwatch"])
def test_members_that_go_because_fewer_are_wanted_say_nothing(who: str) -> None:
    """A night with fewer, again and again: the group is made larger each morning."""
    rules = replace(POOL, idle=replace(RULES.idle, action="terminate"))
    desk, cloud = a_desk(rules, state=State.IDLE)
    for _ in range(4):
        want(desk, 6)
        hours(desk, 0.2)
        assert cloud.groups_["g-1"].desired == 6
        want(desk, 0)
        if who == "the owner":
            for node_id in cloud.groups_["g-1"].node_ids:
                cloud.put(replace(cloud.nodes_[node_id], state=NodeState.TERMINATED))
            cloud.groups_["g-1"] = replace(cloud.groups_["g-1"], desired=0)
            hours(desk, 0.5)
        else:
            hours(desk, 3)
    assert not ends(desk)


def test_a_group_that_gpuwatch_never_made_larger_is_its_owners_business() -> None:
    """Runners that end themselves after each job: no record is made of them."""
    desk, cloud = a_desk(replace(POOL, schedule={}), minutes=6.0, then=NodeState.TERMINATED)
    cloud.groups_["g-1"] = replace(cloud.groups_["g-1"], desired=3)
    hours(desk, 4)

    assert cloud.launched > 50
    assert not desk.memory.members
    assert not ends(desk)


def test_members_that_their_cloud_takes_rest_their_group_after_a_restart_too() -> None:
    """Each is announced: the notice's record says of which group the machine was."""
    desk, cloud = a_desk(state=State.BUSY)
    for _ in range(3):
        hours(desk, 0.1)
        for node_id in cloud.groups_["g-1"].node_ids:
            node = cloud.nodes_[node_id]
            told = CloudNotice(kind="spot_interruption", action="terminate", deadline=None, seen_at=desk.clock.now())
            cloud.put(replace(node, announced=(told,)))
        hours(desk, 0.1)
        for node_id in cloud.groups_["g-1"].node_ids:
            cloud.put(replace(cloud.nodes_[node_id], state=NodeState.TERMINATED))
        hours(desk, 0.1)
    desk.memory = Memory()
    size = cloud.groups_["g-1"].desired
    want(desk, 6)
    assert "was taken by its cloud after" in said(hours(desk, 0.5))
    assert cloud.groups_["g-1"].desired == size


@pytest.mark.parametrize("grouped", [True, False])
def test_operators_hear_once_that_what_is_launched_does_not_last(*, grouped: bool) -> None:
    """Of a group, or of a template; the message names what rests."""
    rules = POOL if grouped else replace(POOL, launch=LaunchRules(template="lt-1"))
    desk, cloud = a_desk(rules, minutes=6.0, then=NodeState.TERMINATED)
    if not grouped:
        cloud.groups_.clear()
        cloud.room_.clear()
    for _ in range(3):
        hours(desk, 4)
        desk.memory = Memory()
    past = desk.light.view(desk.clock.now(), recent=timedelta(days=3)).recent
    (told,) = [done for done in past if done.verb is Verb.LEFT_ALONE]

    what = "The group trainers is not made larger" if grouped else "Nothing is launched from the template lt-1"
    assert (told.code, told.owner) == (LAUNCHES, None)
    assert told.why.startswith(f"{what} for a time. The last ")
