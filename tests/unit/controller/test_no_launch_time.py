"""A machine for which its cloud names no launch time is kept for its warm-up, and its controller counts how long."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.cli.parts import assemble_parts
from gpuwatch.controller.context import Memory
from gpuwatch.controller.explain import find_node, node_page
from gpuwatch.controller.recall import recall_undated
from gpuwatch.controller.round import step
from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle_settings import IdleRules
from tests.support.builders.configurations import read
from tests.support.builders.fleet import Desk, a_node

WARM_UP = 30
RULES = PoolRules(idle=IdleRules(grace_period=0.0), warm_up=60.0 * WARM_UP)


@pytest.fixture
def desk() -> Desk:
    """Two idle machines without a launch time, idle for hours by their agents; a busy one."""
    made = Desk(rules=RULES)
    for node_id in ("i-1", "i-2"):
        made.fleet.put(replace(a_node(node_id), launched_at=None))
    made.fleet.put(a_node("i-3", State.BUSY))
    return made


def stopped_after(desk: Desk, minutes: int) -> bool:
    """Whether i-1 was told to stop within so many minutes."""
    for _ in range(minutes):
        desk.round()
    return "i-1" in desk.fleet.stops()


def test_it_goes_once_it_was_watched_for_its_whole_warm_up(desk: Desk) -> None:
    """It was kept for ever. Its cloud's silence is no proof of youth for longer than that."""
    assert not stopped_after(desk, WARM_UP)
    assert stopped_after(desk, 5)


@pytest.mark.parametrize("hours", [3.0, -3.0])
def test_a_step_of_the_wall_clock_makes_it_no_older(desk: Desk, hours: float) -> None:
    """The time that it was watched counts, and no date."""
    assert not stopped_after(desk, 5)
    desk.clock.jump(3600.0 * hours)
    assert not stopped_after(desk, WARM_UP - 5)


def test_a_new_process_watches_anew(desk: Desk) -> None:
    """What was before it does not know."""
    assert not stopped_after(desk, WARM_UP - 1)
    desk.memory = Memory()
    assert not stopped_after(desk, WARM_UP)


def test_what_nobody_watched_may_have_been_started_again(desk: Desk) -> None:
    """A machine that did not run in between, or a controller that was away."""
    assert not stopped_after(desk, WARM_UP - 1)
    desk.rest(660.0)
    assert not stopped_after(desk, WARM_UP - 1)
    node = desk.fleet.nodes_["i-1"]
    desk.fleet.put(replace(node, state=NodeState.PENDING))
    desk.round()
    desk.fleet.put(node)
    assert not stopped_after(desk, WARM_UP)


@pytest.mark.parametrize(("away", "refused"), [(0.0, False), (660.0, True), (-60.0, True)])
def test_a_plan_knows_for_how_long_the_controller_has_watched(desk: Desk, away: float, *, refused: bool) -> None:
    """It was refused in every plan: a command looks once. Not if the controller is gone, or ahead of the clock."""
    assert not stopped_after(desk, WARM_UP)
    if away > 0.0:
        desk.rest(away)
    else:
        desk.clock.jump(away)
    memory = Memory()
    recall_undated(memory, desk.ledger, desk.clock)
    done = step(replace(desk.parts, memory=memory), act=False)
    page = node_page(
        done, desk.parts.rules, desk.ledger, find_node(done, "i-1"), done.observation.ledger, round_id=None
    )
    assert ("warm_up" in {each.rule for each in page.if_stopped_now.refusals}) is refused


@pytest.mark.parametrize("read_only", [True, False])
def test_commands_recall_what_was_watched_and_a_new_controller_does_not(tmp_path: Path, *, read_only: bool) -> None:
    """Its own looks count for a controller: it acts on them."""
    desk = Desk(rules=RULES, ledger=Ledger.open(tmp_path / "ledger.db"))
    desk.fleet.put(replace(a_node("i-1"), launched_at=None))
    desk.round()
    desk.ledger.close()
    text = f"ledger: {{path: {tmp_path / 'ledger.db'}}}\ncloud: {{regions: [us-east-1]}}\n"
    with assemble_parts(read(tmp_path / "gpuwatch.yaml", text), read_only=read_only) as parts:
        assert bool(parts.memory.undated) is read_only
