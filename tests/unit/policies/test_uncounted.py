"""What was asked for and is no longer waited for: groups without stock, and machines that no list ever shows."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from gpuwatch.clouds import ThrottledError
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation, Status, Verb
from gpuwatch.model.fleet import Fleet, GroupRefusal, NodeGroup
from gpuwatch.policies import machines
from gpuwatch.policies.launches import LaunchRules
from gpuwatch.policies.places import group_places
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import NOW, RULES, Desk, a_node, an_observation
from tests.support.builders.past_steps import a_done, a_group

SHORT = replace(a_group(), desired=5, short_since=NOW - timedelta(minutes=30))


def seen(group: NodeGroup, *, launched_minutes_ago: float = 600.0, **ledger: object) -> Observation:
    """The group with its three members, which came then."""
    at = NOW - timedelta(minutes=launched_minutes_ago)
    nodes = [a_node(name, State.BUSY, group="g-1", launched_at=at) for name in group.node_ids]
    observation = an_observation(*nodes, **ledger)  # type: ignore[arg-type]
    fleet = Fleet(observed_at=NOW, nodes=tuple(nodes), groups=(group,), named=("default",))
    return replace(observation, fleet=fleet)


@pytest.mark.parametrize(
    ("observation", "coming"),
    [
        (seen(replace(SHORT, short_since=None)), 2),
        (seen(SHORT), 0),
        (seen(replace(SHORT, short_since=NOW - timedelta(minutes=9))), 2),
        (seen(SHORT, launched_minutes_ago=9.0), 2),
        (seen(SHORT, recent=(replace(a_done("g-1", minutes_ago=9.0), verb=Verb.GROW, arguments={"size": "5"}),)), 2),
        (seen(replace(SHORT, short_since=NOW, refused=GroupRefusal(at=NOW, why="none"))), 0),
        (seen(replace(SHORT, seen_now=False)), 2),
    ],
    ids=["nobody counts", "for long", "not yet", "one came", "asked again", "its cloud says so", "its cloud is silent"],
)
def test_what_a_group_lacks_is_waited_for_as_long_as_members_may_come(observation: Observation, coming: int) -> None:
    """Ten minutes from the newest of: the first look, our growth, a member; not at all where the cloud has none."""
    assert len(machines.pool_machines(observation, "default").coming) == coming
    assert len(machines.pool_machines(observation, "default").late) == 2 - coming


def test_a_refusal_from_before_the_growth_says_nothing_of_it() -> None:
    """Clouds keep their records: that of yesterday's try is no answer to today's."""
    growth = replace(a_done("g-1", minutes_ago=5.0), verb=Verb.GROW, arguments={"size": "5"})
    old = replace(SHORT, refused=GroupRefusal(at=NOW - timedelta(minutes=6), why="none"))
    assert group_places(seen(old, recent=(growth,)), old).why_left is None
    new = replace(old, refused=GroupRefusal(at=NOW - timedelta(minutes=4), why="none"))
    assert group_places(seen(new, recent=(growth,)), new).why_left == "its cloud gives it no more: none"


def a_desk(*, room: int, wanted: int, most: int | None = None, by_name: bool = True, mute: bool = False) -> Desk:
    """A pool with an empty group, where there is stock for so many, and a template, where there is always some."""
    floor = {"always": Window(min_nodes=wanted)}
    rules = replace(RULES, launch=LaunchRules(template="lt-1"), schedule=floor, max_nodes=most)
    desk = Desk(rules=rules, limits=Limits(max_additions_per_round=9, max_additions_per_hour=99))
    desk.fleet.groups_["g-1"] = a_group(desired=0, node_ids=(), gives_back_places=by_name)
    desk.fleet.room_["g-1"] = room
    desk.fleet.mute_groups = mute
    return desk


def alive(desk: Desk) -> int:
    """The machines that run."""
    return len([node for node in desk.fleet.nodes_.values() if node.state.value == "running"])


@pytest.mark.parametrize("mute", [False, True])
@pytest.mark.parametrize("most", [None, 5])
def test_what_a_group_has_no_stock_for_comes_from_elsewhere(*, most: int | None, mute: bool) -> None:
    """Asked for five, it has three: two are launched, and the group wants three again and brings no second two."""
    desk = a_desk(room=3, wanted=5, most=most, mute=mute)
    for _ in range(16 if mute else 6):
        desk.round()
    assert alive(desk) == 5
    assert desk.fleet.groups_["g-1"].desired == 3
    desk.fleet.room_["g-1"] = 9
    for _ in range(90):
        desk.round()
    assert alive(desk) == 5


def test_a_group_whose_members_are_not_protected_keeps_its_size_until_they_are() -> None:
    """Its cloud would choose who goes: first the shield, then the size, and below max_nodes nobody waits for that."""
    desk = a_desk(room=3, wanted=5, by_name=False)
    done = [act for _ in range(6) for act in desk.round().acts]
    verbs = [act.review.step.verb for act in done]
    assert verbs.index(Verb.PROTECT) < verbs.index(Verb.SHRINK)
    assert (alive(desk), desk.fleet.groups_["g-1"].desired) == (5, 3)


def test_at_its_maximum_a_pool_asks_elsewhere_once_the_size_is_taken_back() -> None:
    """What the group lacks may come all the same, and counts towards max_nodes until then."""
    desk = a_desk(room=3, wanted=5, most=5)
    desk.fleet.fault = lambda call, _: ThrottledError("too many calls") if call == "shrink" else None
    for _ in range(2):
        desk.round()
    refused = [answer for review in desk.plan().reviews for answer in review.refusals]
    assert {answer.rule for answer in refused} == {"max_nodes"}
    assert "2 that may still come" in refused[0].sentence


def test_a_group_with_nothing_beside_it_keeps_its_wish() -> None:
    """Its own next try is the best there is."""
    desk = a_desk(room=3, wanted=5)
    desk.rules = replace(desk.rules, launch=LaunchRules())
    for _ in range(20):
        desk.round()
    assert desk.fleet.groups_["g-1"].desired == 5
    assert any("wants 5 nodes and has 3" in each for each in desk.plan().decisions[0].clamps)
    desk.fleet.room_["g-1"] = 5
    desk.round()
    assert alive(desk) == 5


def test_what_others_want_of_a_group_stays_as_it_is() -> None:
    """Somebody raised its size by hand, and no pool's wish asks for it."""
    desk = a_desk(room=3, wanted=2)
    desk.fleet.groups_["g-1"] = replace(desk.fleet.groups_["g-1"], desired=5)
    for _ in range(30):
        desk.round()
    assert (alive(desk), desk.fleet.groups_["g-1"].desired) == (3, 5)


def test_a_group_that_was_taken_back_rests_for_a_growing_time() -> None:
    """As an offer without stock does: it is asked again after 3, 4, 8 minutes and more."""
    desk = a_desk(room=0, wanted=2)
    desk.rules = replace(desk.rules, schedule={})
    grown = []
    for minute in range(60):
        count = 1 + len(desk.fleet.nodes_)  # one more than there are, in each round
        desk.rules = replace(desk.rules, schedule={"always": Window(min_nodes=count)})
        grown += [minute for act in desk.round().acts if act.review.step.verb is Verb.GROW]
    gaps = [later - earlier for earlier, later in pairwise(grown)]
    assert gaps == sorted(gaps)
    assert gaps[-1] >= 16


@pytest.mark.parametrize("shown", [False, True])
def test_a_machine_that_no_list_shows_counts_for_twenty_minutes(*, shown: bool) -> None:
    """Then others may have its place below max_nodes, and a sentence says so; one that is shown counts on."""
    desk = a_desk(room=9, wanted=1)
    desk.fleet.groups_.clear()
    desk.fleet.room_.clear()
    desk.pools = {"default": desk.rules}
    desk.fleet.listed = lambda _: False
    if shown:
        desk.fleet.born = lambda node: replace(node, pool="dev")
    else:
        desk.fleet.found = lambda _: False
    for _ in range(25):
        desk.round()
    (entry,) = desk.ledger.view(desk.clock.now()).open_intents
    assert entry.last is not None
    assert entry.last.status is Status.UNSEEN
    observation = desk.plan().observation
    assert machines.now(observation, "default") == (1 if shown else 0)
    assert len(machines.pool_machines(observation, "default").late) == (0 if shown else 1)
    said = [each for each in desk.plan().decisions[0].clamps if "no longer counts" in each]
    assert bool(said) is not shown


def test_a_machine_that_is_shown_late_counts_again() -> None:
    """With another tag it is no node of the pool, and lives all the same."""
    desk = a_desk(room=9, wanted=1)
    desk.fleet.groups_.clear()
    desk.fleet.room_.clear()
    desk.fleet.listed = desk.fleet.found = lambda _: False
    for _ in range(25):
        desk.round()
    assert machines.now(desk.plan().observation, "default") == 0
    desk.fleet.found = lambda _: True
    for _ in range(2):
        desk.round()
    assert machines.now(desk.plan().observation, "default") == 1
