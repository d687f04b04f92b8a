"""A machine that its pool wants and that is not started, whatever is in the way: its owner hears so once."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.clouds import (
    AuthFailedError,
    CloudError,
    CloudUnavailableError,
    InsufficientCapacityError,
    QuotaExceededError,
)
from gpuwatch.clouds.silence import as_last_seen
from gpuwatch.controller.context import Memory
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Done, Verb
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.policies.lasting import STARTS
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import RULES, FakeFleet, a_node
from tests.support.builders.light_desk import LightDesk
from tests.support.nightly import by_night

COUNT = 3
FLOOR = {"always": Window(min_nodes=COUNT)}


def a_desk(limits: Limits | None = None) -> LightDesk:
    """Ann's machines, which gpuwatch has stopped in the evening; in the morning a schedule wants all of them."""
    desk = LightDesk(limits=limits or Limits(), rules=RULES, interval=60.0)
    desk.fleet = FakeFleet(clock=desk.clock)
    for number in range(COUNT):
        desk.fleet.put(a_node(f"i-{number}", owner="ann"))
    minutes(desk, 150)
    assert {node.state for node in desk.fleet.nodes_.values()} == {NodeState.STOPPED}
    desk.rest(12 * 3600.0)
    desk.pools = {"default": replace(RULES, schedule=FLOOR)}
    return desk


def minutes(desk: LightDesk, count: int) -> None:
    """So many rounds."""
    for _ in range(count):
        desk.round()


def told(desk: LightDesk) -> list[Done]:
    """What people got a message about."""
    past = desk.light.view(desk.clock.now(), recent=timedelta(days=3)).recent
    return sorted([done for done in past if done.verb is Verb.LEFT_ALONE], key=lambda done: done.node_id)


def failing(error: CloudError) -> Callable[[str, str], CloudError | None]:
    """A cloud that starts nothing."""
    return lambda call, _: error if call == "start" else None


@pytest.mark.parametrize(
    "error",
    [
        AuthFailedError("the role is gone"),
        InsufficientCapacityError("there is no stock"),
        *by_night(QuotaExceededError("32 of 32 vCPUs are used"), CloudUnavailableError("no answer within 10s")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_owner_hears_once_why_a_machine_is_not_started(error: CloudError) -> None:
    """However long it goes on, and in new processes too."""
    desk = a_desk()
    desk.fleet.fault = failing(error)
    minutes(desk, 9)
    assert all(done.code == STARTS for done in told(desk)), "it may be a matter of minutes, unless three starts failed"
    for _ in range(4):
        minutes(desk, 60)
        desk.memory = Memory()

    assert [(done.node_id, done.owner, done.verb) for done in told(desk)] == [
        (f"i-{number}", "ann", Verb.LEFT_ALONE) for number in range(COUNT)
    ]
    words = (str(error), "its cloud did not answer the start, and shows it stopped")
    assert all(any(word in done.why for word in words) for done in told(desk))
    assert any(str(error) in done.why for done in told(desk))


def test_a_machine_that_its_account_does_not_show_is_told_about_as_well() -> None:
    """It was stopped when it was seen last, counts for its pool's size all the same, and nobody may start it."""
    desk = a_desk()
    silence = "account 7 gives no answer: AccessDenied"
    shown = FakeFleet.nodes

    class Silent(FakeFleet):
        def nodes(self) -> tuple[Node, ...]:
            return tuple(as_last_seen(node, silence) if node.id == "i-0" else node for node in shown(self))

    desk.fleet.__class__ = Silent
    minutes(desk, 60)

    (only,) = told(desk)
    assert (only.node_id, only.owner) == ("i-0", "ann")
    assert only.why.startswith("Pool default has wanted it to run since ")
    assert only.why.endswith(f"and it is not started: its cloud does not show it: {silence}.")
    assert {node.id for node in desk.fleet.nodes_.values() if node.state is NodeState.RUNNING} == {"i-1", "i-2"}


def test_a_limit_of_gpuwatch_s_own_is_a_reason_too() -> None:
    """Two of three have come: the third's owner hears which limit it is."""
    desk = a_desk(Limits(max_additions_per_hour=2))
    minutes(desk, 30)

    (only,) = told(desk)
    assert "hour" in only.why


def test_nothing_is_said_of_a_machine_that_starts_within_minutes() -> None:
    """Also if the first tries failed."""
    desk = a_desk()
    desk.fleet.fault = failing(QuotaExceededError("32 of 32 vCPUs are used"))
    minutes(desk, 5)
    desk.fleet.fault = lambda _call, _node: None
    minutes(desk, 60)

    assert not told(desk)
    assert {node.state for node in desk.fleet.nodes_.values()} == {NodeState.RUNNING}


def test_once_a_machine_has_run_again_the_next_time_is_news() -> None:
    """The role was mended, and is gone again the next morning."""
    desk = a_desk()
    for _ in range(2):
        desk.fleet.fault = failing(AuthFailedError("the role is gone"))
        minutes(desk, 30)
        desk.fleet.fault = lambda _call, _node: None
        minutes(desk, 30)
        desk.pools = None
        for node_id in desk.fleet.nodes_:
            desk.fleet.show(node_id, State.IDLE)
        minutes(desk, 180)
        assert {node.state for node in desk.fleet.nodes_.values()} == {NodeState.STOPPED}
        desk.pools = {"default": replace(RULES, schedule=FLOOR)}

    assert len(told(desk)) == 2 * COUNT


def test_a_pool_that_has_enough_nodes_owes_nobody_a_start() -> None:
    """The machines that stay as they are were not asked for."""
    desk = a_desk()
    desk.pools = {"default": replace(RULES, schedule={"always": Window(min_nodes=1)})}
    desk.fleet.fault = lambda call, node: QuotaExceededError("full") if (call, node) == ("start", "i-9") else None
    minutes(desk, 60)

    assert not told(desk)
