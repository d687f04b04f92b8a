"""Rounds of a controller on Google Cloud: a day as golden text, faults, and a power cut at every step."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import NOW
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.gcp.desk import GcpDesk
from tests.support.clouds.gcp.world import GcpWorld, a_world
from tests.support.crash_points import Fate, Mortal, PowerCut
from tests.support.fakes.cloud_worlds import MINE, seen
from tests.support.paths import GOLDEN
from tests.support.stories import Story

STOP = "compute.instances.stop"


@pytest.fixture
def desk() -> Iterator[GcpDesk]:
    """A controller over an empty project."""
    with a_world(ManualClock(wall=NOW)) as world:
        yield GcpDesk(world)


def stops(world: GcpWorld) -> list[str]:
    """The names of the machines that a stop was accepted for."""
    return [
        entry.request.path.split("/")[-2]
        for entry in world.server.log
        if entry.effect and entry.asked.operation == STOP
    ]


def test_a_day_on_google_cloud(desk: GcpDesk) -> None:
    """Notice, grace, stop, settled, and the bill stops; the busy machine stays; started again, it is billed again."""
    world = desk.world
    idle, busy = (world.launch({**MINE, "Name": name}) for name in ("idle-1", "busy-1"))
    story: Any = Story(desk=desk, every_seconds=60.0)  # type: ignore[arg-type]
    desk.fleet.show(busy, State.BUSY)
    desk.fleet.show(idle, State.BUSY)
    story.until(0.1)
    story.say("the job on idle-1 ends", lambda: desk.fleet.show(idle, State.IDLE))
    story.until(0.6)
    labels = {key: value for key, value in world.told(idle)["labels"].items() if key != "gpuwatch-decision-id"}
    story.say(f"in the console: status {world.told(idle)['status']}, labels {labels}")
    at_stop = desk.billed_minutes(idle)
    story.until(1.6)
    story.say(f"an hour later: {desk.billed_minutes(idle) - at_stop} more minutes of idle-1 are billed")
    story.say("somebody starts idle-1 again", lambda: world.cloud.start(idle, "by hand"))
    desk.fleet.show(idle, State.BUSY)
    story.until(2.1)
    more = desk.billed_minutes(idle) - at_stop
    story.say(f"half an hour later: {more} more minutes of idle-1 are billed")

    assert stops(world) == ["idle-1"]
    assert 25 <= more <= 31
    text = story.text.replace(idle, "idle-1").replace(busy, "busy-1") + "\n"
    path = GOLDEN / "stories" / "google-cloud.txt"
    if os.environ.get("GPUWATCH_UPDATE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


FAULTS: dict[str, tuple[Callable[[GcpWorld], None], list[str]]] = {
    "none": (lambda _: None, ["stop", "accepted", "settled"]),
    "throttled": (
        lambda world: world.server.plan.strike(Fault.THROTTLED, when(operation=STOP)),
        ["stop", "throttled", "asked", "accepted", "settled"],
    ),
    "answer lost": (
        lambda world: world.server.plan.strike(Fault.RESET_AFTER, when(operation=STOP)),
        ["stop", "unavailable", "settled"],
    ),
    "half an answer": (
        lambda world: world.server.plan.strike(Fault.CUT, when(operation=STOP)),
        ["stop", "unavailable", "settled"],
    ),
    "credentials end": (
        lambda world: world.server.plan.strike(Fault.EXPIRED, when(operation=STOP)),
        ["stop", "denied", "asked", "accepted", "settled"],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_google_does_the_idle_machine_is_stopped_once_and_settled_truly(desk: GcpDesk, fault: str) -> None:
    """One effective stop, the busy machine untouched, and the ledger tells what happened."""
    idle, busy = desk.world.launch(MINE), desk.world.launch(MINE)
    desk.fleet.show(busy, State.BUSY)
    strike, expected = FAULTS[fault]
    strike(desk.world)

    for _ in range(50):
        desk.round()

    told = [each for each in desk.told(idle) if each[0] == "stop"]
    assert told == [expected]
    assert len(set(stops(desk.world))) == 1
    assert seen(desk.world, idle).state is NodeState.STOPPED
    assert (seen(desk.world, busy).state, desk.told(busy)) == (NodeState.RUNNING, [])


def test_a_machine_that_becomes_busy_in_its_grace_keeps_running(desk: GcpDesk) -> None:
    """The notice is withdrawn, in the labels too."""
    node_id = desk.world.launch(MINE)
    for _ in range(13):
        desk.round()
    assert "gpuwatch-stop-at" in desk.world.told(node_id)["labels"]

    desk.fleet.show(node_id, State.BUSY)
    for _ in range(20):
        desk.round()

    labels = desk.world.told(node_id)["labels"]
    assert (stops(desk.world), labels["gpuwatch-stop-at"]) == ([], "")
    assert labels["gpuwatch-notified-at"].startswith("withdrawn-17")


@pytest.mark.nightly  # tests/integration/crash/test_crash_clouds.py cuts each cloud
def test_a_power_cut_at_any_step_leaves_one_stop_and_a_true_ledger() -> None:
    """Before and after each call that leaves the process; another controller goes on with the ledger alone."""
    boundaries = len(_cut(0))
    assert boundaries > 100

    for boundary in range(1, boundaries, 11):
        _cut(boundary)


def _cut(boundary: int) -> list[str]:
    """The story of one idle and one busy machine with the power cut at that boundary; 0: at none."""
    with a_world(ManualClock(wall=NOW)) as world:
        desk, fate = GcpDesk(world), Fate(boundary)
        idle, busy = world.launch({**MINE, "Name": "idle-1"}), world.launch({**MINE, "Name": "busy-1"})
        world.clock.advance(3 * 3600.0)
        desk.fleet.show(busy, State.BUSY)
        for _ in range(9):
            parts: Any = desk.parts
            mortal = replace(
                parts,
                cloud=Mortal(parts.cloud, fate.die),
                signals=Mortal(parts.signals, fate.die),
                ledger=Mortal(parts.ledger, fate.die),
            )
            try:
                desk.round(parts=mortal)
            except PowerCut:
                desk.crash()
                desk.rest(120.0)
        for _ in range(14):
            desk.round()

        where = f"cut {boundary}: {fate.passed[boundary - 1] if boundary else 'none'}"
        assert stops(world) == ["idle-1"], where
        assert seen(world, idle).state is NodeState.STOPPED, where
        assert seen(world, busy).state is NodeState.RUNNING, where
        assert [each[-1] for each in desk.told(idle) if each[0] == "stop"] == ["settled"], where
        return fate.passed
