"""A controller that begins while its ledger's times lie in the future: growth does not wait for the wall clock."""

from dataclasses import replace

import pytest

from gpuwatch.controller.context import Memory
from gpuwatch.controller.round import Round
from gpuwatch.guard import Limits
from gpuwatch.model.fleet import NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.launches import LaunchRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import RULES, Desk, a_node
from tests.support.builders.past_steps import a_group

BACK = -7200.0


def a_short_pool(*, mute: bool) -> Desk:
    """Three nodes are wanted; a group was asked for them and its cloud has none. A template has stock."""
    desk = Desk(limits=Limits(max_additions_per_round=9, max_additions_per_hour=99))
    always = {"always": Window(min_nodes=3)}
    desk.pools = {"default": replace(RULES, launch=LaunchRules(template="lt-1"), max_nodes=6, schedule=always)}
    desk.fleet.groups_["g-1"] = a_group(desired=0, max_size=9, node_ids=())
    desk.fleet.room_["g-1"] = 0
    desk.fleet.mute_groups = mute
    assert [act.review.step.verb.value for act in desk.round().acts] == ["grow"]
    return desk


def restart(desk: Desk) -> None:
    """Begin anew: nothing is kept but the ledger."""
    desk.memory = Memory()


def clamps(done: Round) -> str:
    """All that a round says of the pool's size."""
    return " ".join(done.decisions[0].clamps)


@pytest.mark.parametrize("mute", [False, True], ids=["its cloud says why", "it says nothing"])
def test_a_group_without_stock_is_left_after_its_own_wait(mute: bool) -> None:
    """The clock goes back by two hours and the controller restarts: ten minutes later nodes come from elsewhere."""
    desk = a_short_pool(mute=mute)
    desk.clock.jump(BACK)
    restart(desk)
    said = [clamps(desk.round()) for _ in range(13)]

    assert sum(node.state in {NodeState.PENDING, NodeState.RUNNING} for node in desk.fleet.nodes_.values()) == 3
    expected = "its cloud gives it no more: there is none now." if not mute else "the pool waits for them until "
    assert f"The group trainers wants 3 nodes and has 0: {expected}" in said[0], "a pool says for what it waits"


def test_a_second_restart_begins_the_same_wait_and_no_longer_one() -> None:
    """Nothing but the ledger says how old its records are."""
    desk = a_short_pool(mute=True)
    desk.clock.jump(BACK)
    for _ in range(2):
        restart(desk)
        desk.round()
        desk.clock.advance(300.0)
    for _ in range(8):
        desk.round()

    assert len(desk.fleet.nodes_) == 3


def test_a_notice_in_the_future_gives_its_owner_no_less_than_was_said() -> None:
    """An hour was promised: it is an hour at least, and never before the time that the newest notice told its owner."""
    soon = PoolRules(warm_up=0.0, idle=IdleRules(timeout=300.0, grace_period=3600.0))
    desk = Desk(rules=soon, limits=Limits(max_stops_per_hour_ratio=1.0))
    desk.fleet.put(a_node("i-1", held=0.0))
    while (notice := desk.ledger.view(desk.clock.now()).notice("i-1")) is None:
        desk.round()
    began = desk.clock.monotonic()
    desk.clock.jump(BACK)
    restart(desk)
    while desk.fleet.nodes_["i-1"].state is NodeState.RUNNING:
        notice = desk.ledger.view(desk.clock.now()).notice("i-1") or notice
        desk.round()
        assert desk.clock.monotonic() - began < 2 * 3600.0, "it goes, all the same"

    assert desk.clock.monotonic() - began >= 3600.0
    assert notice.promise is not None
    assert desk.clock.now() >= notice.promise.stop_at


def test_the_stops_of_the_hour_are_not_forgotten() -> None:
    """One stop an hour, whatever the clock shows that the new process began with."""
    soon = PoolRules(warm_up=0.0, idle=IdleRules(timeout=300.0, grace_period=60.0))
    desk = Desk(rules=soon, limits=Limits(max_stops_per_hour=1, max_stops_per_hour_ratio=1.0))
    times: list[float] = []
    desk.fleet.watch_stop = lambda _node, _key: times.append(desk.clock.monotonic())
    for name in ("i-1", "i-2"):
        desk.fleet.put(a_node(name, held=0.0))
    while not times:
        desk.round()
    desk.clock.jump(BACK)
    restart(desk)
    while len(times) < 2:
        desk.round()

    assert 3600.0 <= times[1] - times[0] <= 2 * 7200.0
