"""What only keeps machines goes on in a pause; an end has a grace of its own; a clock set back holds nothing up."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.controller.context import Memory
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import HOUR, NOW, RULES, Desk, a_node
from tests.support.builders.past_steps import a_group
from tests.support.nightly import by_night

DAY = 24 * HOUR
ENDING = replace(RULES, idle=replace(RULES.idle, action="terminate"))


def calls(desk: Desk, *names: str) -> list[tuple[str, str]]:
    """What was asked of the cloud, of these kinds."""
    return [(call, node_id) for call, node_id, _ in desk.fleet.calls if call in names]


def paused(desk: Desk) -> None:
    """Somebody pauses everything."""
    desk.ledger.pause(None, "ann", "an incident", desk.clock.now())


def test_a_member_that_goes_to_work_in_a_pause_is_protected() -> None:
    """Its group may end it while it works otherwise: a pause protects machines, and not the group."""
    desk = Desk(rules=ENDING)
    desk.fleet.put(a_node("i-1", State.BUSY, group="g-1"))
    desk.fleet.groups_["g-1"] = a_group(desired=1, node_ids=("i-1",))
    paused(desk)
    desk.round()

    assert calls(desk, "protect", "unprotect", "terminate", "tag") == [("protect", "i-1")]


def test_a_notice_of_a_machine_that_works_again_is_withdrawn_in_a_pause() -> None:
    """Its tag must not go on naming a time. Notices of idle machines stay until the pause is over."""
    desk = Desk()
    for name in ("i-1", "i-2"):
        desk.fleet.put(a_node(name, held=2 * HOUR))
    desk.round()
    assert [each.node_id for each in desk.ledger.view(desk.clock.now()).notices] == ["i-1", "i-2"]
    paused(desk)
    desk.fleet.show("i-1", State.BUSY)
    for _ in range(30):
        desk.round()

    assert [each.node_id for each in desk.ledger.view(desk.clock.now()).notices] == ["i-2"]
    assert desk.fleet.stops() == []
    desk.ledger.resume(None, "ann", desk.clock.now())
    desk.round()
    assert [each.node_id for each in desk.ledger.view(desk.clock.now()).notices] == []
    for _ in range(9):
        desk.round()
    assert desk.fleet.stops() == [], "its new notice has its whole grace"


def ended_after(idle: IdleRules) -> tuple[float, float]:
    """How long after its notice a stopped machine is ended, and how long after its stop, in days."""
    desk = Desk(rules=PoolRules(warm_up=0.0, idle=idle), interval=600.0)
    desk.fleet.put(a_node("i-1"))
    stopped_at = told_at = 0.0
    while not calls(desk, "terminate"):
        desk.round(600.0)
        if desk.fleet.nodes_["i-1"].state is NodeState.STOPPING:
            stopped_at = desk.clock.monotonic()
        history = desk.ledger.history("i-1")
        if history and history[0].intent.verb is Verb.NOTICE:
            told_at = history[0].intent.at.timestamp() - (desk.clock.now().timestamp() - desk.clock.monotonic())
        assert desk.clock.monotonic() < 30 * DAY
    now = desk.clock.monotonic()
    return (now - told_at) / DAY, (now - stopped_at) / DAY


@pytest.mark.parametrize(("after", "at_least"), [(DAY, 3.0), *by_night((7 * DAY, 7.0))])
def test_the_end_of_a_stopped_machine_is_announced_three_days_before(after: float, at_least: float) -> None:
    """Nobody sees a notice on a machine that is off: its owner has days, however short the pool's grace is."""
    told, kept = ended_after(IdleRules(timeout=300.0, grace_period=60.0, terminate_after=after))

    assert told == pytest.approx(3.0, abs=0.1)
    assert kept == pytest.approx(at_least, abs=0.1)


def test_a_shorter_grace_of_an_end_is_what_somebody_wrote() -> None:
    """The setting is the user's."""
    rules = IdleRules(timeout=300.0, grace_period=60.0, terminate_after=DAY, terminate_grace_period=HOUR)

    assert ended_after(rules)[0] == pytest.approx(1 / 24, abs=0.02)


@pytest.mark.parametrize("kind", ["agents that count", "a controller that begins anew"])
def test_an_open_notice_is_not_longer_than_a_new_one_after_the_clock_went_back_a_day(kind: str) -> None:
    """The stop comes within the grace, and no sooner."""
    desk = Desk(clock=ManualClock(wall=NOW + timedelta(days=3)))
    desk.fleet.put(a_node("i-1"))
    desk.round()
    assert calls(desk, "tag")
    desk.clock.jump(-DAY)
    if kind == "a controller that begins anew":
        desk.memory = Memory()
    waited = 0
    while not desk.fleet.stops():
        desk.round()
        waited += 1
        assert waited < 40
    assert waited >= RULES.idle.grace_period / 60 - 1
