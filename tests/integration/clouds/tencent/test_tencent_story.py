"""A controller over Tencent Cloud: notice, grace, stop, settled, and the bill stops; faults and power cuts."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.clouds.tencent.cloud import TencentCloud
from gpuwatch.controller.round import Round, step
from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.idle_agents import IdleAgents, enforcing, rounds, told
from tests.support.clouds.tencent.world import REGION, TencentWorld, a_world
from tests.support.crash_points import Fate, Mortal, PowerCut
from tests.support.fakes.cloud_worlds import FLEET, MINE
from tests.support.golden_text import check

LONG_IDLE = 3 * 3600.0
ROUNDS = 24
_KEY = re.compile(r"gpuwatch-memory-[0-9a-z-]+")


@pytest.fixture
def world() -> Iterator[TencentWorld]:
    """An empty account."""
    with a_world(ManualClock()) as world:
        yield world


class Diary:
    """What happens, line by line, each once: what leaves for the cloud, what the round says, what the cloud bills."""

    def __init__(self, world: TencentWorld, names: dict[str, str]) -> None:
        """The machines by their names."""
        self.lines: list[str] = []
        self._world, self._names, self._last, self._sent = world, names, dict[str, str](), 0

    def tell(self, done: Round) -> None:
        """One round."""
        for review in done.reviews:
            rules = ", ".join(answer.rule for answer in review.refusals)
            sentence = review.refusals[0].sentence if rules else review.step.reason.sentence
            what = f"refused by {rules}: {sentence}" if rules else f"decided: {sentence}"
            self._once(f"{review.step.verb} {review.step.node_id}", what)
        for action, parameters in self._world.fake.sent[self._sent :]:
            if not action.startswith(("Describe", "Get")):
                self._line(f"sent: {action} {parameters}")
        self._sent = len(self._world.fake.sent)
        for outcome in done.settled:
            self._line(f"settled: {outcome.status}, {outcome.detail}")
        for node in self._world.cloud.nodes():
            billed = node.state is not NodeState.STOPPED or node.still_billed is not None
            self._once(node.id, f"is {node.state}, and its hours are {'billed' if billed else 'not billed'}")
        self._sent = len(self._world.fake.sent)

    def _once(self, about: str, what: str) -> None:
        if self._last.get(about) != what:
            self._last[about] = what
            self._line(f"{about} {what}")

    def _line(self, what: str) -> None:
        for node_id, name in self._names.items():
            what = what.replace(node_id, name)
        self.lines.append(f"{self._world.clock.now():%H:%M}  {_KEY.sub('KEY', what)}")


def test_the_story_of_five_machines(world: TencentWorld) -> None:
    """One idle machine is stopped, and its bill ends; four are left alone: busy, prepaid, spot, with a local disk."""
    made: dict[str, dict[str, Any]] = {
        "ins-idle": {},
        "ins-busy": {},
        "ins-prepaid": {"charge": "PREPAID"},
        "ins-spot": {"charge": "SPOTPAID"},
        "ins-local": {"disk_types": ("CLOUD_PREMIUM", "LOCAL_NVME")},
    }
    names = {world.launch(MINE, **more): name for name, more in made.items()}
    ids = {name: node_id for node_id, name in names.items()}
    world.clock.advance(LONG_IDLE)
    parts, agents = enforcing(world.cloud, world.clock)
    agents.busy.add(ids["ins-busy"])
    diary = Diary(world, names)

    for _ in range(ROUNDS):
        diary.tell(step(parts))
        world.clock.advance(60.0)

    check("stories/tencent-stop.txt", "\n".join(diary.lines))
    assert world.machine(ids["ins-idle"]).stopped_mode == "STOP_CHARGING"
    assert {world.machine(ids[name]).state for name in made if name != "ins-idle"} == {"RUNNING"}


FAULTS: dict[str, tuple[Fault | None, list[str]]] = {
    "none": (None, ["stop", "accepted", "settled"]),
    "throttled": (Fault.THROTTLED, ["stop", "throttled", "asked", "accepted", "settled"]),
    "answer lost": (Fault.RESET_AFTER, ["stop", "unavailable", "settled"]),
    "half an answer": (Fault.CUT, ["stop", "unavailable", "settled"]),
    "request lost": (Fault.RESET_BEFORE, ["stop", "unavailable", "interrupted", "asked", "accepted", "settled"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_the_cloud_does_the_idle_machine_is_stopped_once_and_settled_truly(
    world: TencentWorld, fault: str
) -> None:
    """One effective stop, the busy machine untouched, and the ledger tells what happened."""
    idle, busy = world.launch(MINE), world.launch(MINE)
    world.clock.advance(LONG_IDLE)
    parts, agents = enforcing(world.cloud, world.clock)
    agents.busy.add(busy)
    rounds(parts, world.clock, 10)
    strikes, expected = FAULTS[fault]
    if strikes is not None:
        world.server.plan.strike(strikes, when(operation="StopInstances"))
    rounds(parts, world.clock, 20)

    assert told(parts, idle) == [["notice", "settled"], expected]
    assert (world.machine(idle).state, world.machine(busy).state) == ("STOPPED", "RUNNING")
    assert world.machine(idle).stopped_mode == "STOP_CHARGING"
    done = [entry for entry in world.server.changes() if entry.asked.operation == "StopInstances" and entry.effect]
    assert sum(world.fake.said[id(entry.request)] == "" for entry in done) == 1
    assert told(parts, busy) == []


def test_a_stop_that_goes_on_charging_is_told(world: TencentWorld) -> None:
    """The cloud stopped the machine and did not end its bill: the ledger says so."""
    node_id = world.launch(MINE)
    world.machine(node_id).overrides["StopChargingMode"] = "KEEP_CHARGING"
    world.clock.advance(LONG_IDLE)
    parts, _ = enforcing(world.cloud, world.clock)

    rounds(parts, world.clock, ROUNDS)

    (stop,) = (entry for entry in parts.ledger.history(node_id) if entry.intent.verb is Verb.STOP)
    assert stop.outcomes[-1].status is Status.SETTLED
    assert "still bills it: it was stopped without STOP_CHARGING" in stop.outcomes[-1].detail


def test_an_end_is_settled_although_the_cloud_shows_nothing_of_it(world: TencentWorld) -> None:
    """After TERMINATING the machine is in no list."""
    node_id = world.launch(MINE)
    world.clock.advance(LONG_IDLE)
    parts, _ = enforcing(world.cloud, world.clock, action="terminate")

    rounds(parts, world.clock, ROUNDS)

    assert told(parts, node_id)[-1] == ["terminate", "accepted", "settled"]
    assert world.fake.state.machines == {}


def power_cut_at(fatal: int) -> Fate:
    """The idle machine's story with the power cut at that call of the cloud; the controller then begins anew."""
    with a_world(ManualClock()) as world:
        idle, busy = world.launch(MINE), world.launch(MINE)
        world.clock.advance(LONG_IDLE)
        fate, ledger, agents = Fate(fatal), Ledger.in_memory(), IdleAgents(world.clock)
        agents.busy.add(busy)
        parts, _ = enforcing(world.cloud, world.clock, agents=agents, ledger=ledger)
        parts = replace(parts, cloud=Mortal(world.cloud, fate.die))  # type: ignore[arg-type]
        for _ in range(ROUNDS + 8):
            try:
                step(parts)
            except PowerCut:
                parts, _ = enforcing(anew(world), world.clock, agents=agents, ledger=ledger)
            world.clock.advance(60.0)

        where = f"cut {fatal} of {fate.passed[-1]}"
        stops = [entry for entry in world.server.changes() if entry.asked.operation == "StopInstances"]
        assert sum(world.fake.said[id(entry.request)] == "" for entry in stops) == 1, where
        assert (world.machine(idle).state, world.machine(busy).state) == ("STOPPED", "RUNNING"), where
        assert world.machine(idle).stopped_mode == "STOP_CHARGING", where
        assert ledger.view(world.clock.now()).open_intents == (), f"{where}: an intent was left open"
        assert told(parts, idle)[-1][-1] == "settled", where
        return fate


def anew(world: TencentWorld) -> TencentCloud:
    """The provider of a controller that has just begun: it remembers nothing."""
    return TencentCloud(
        fleet=FLEET,
        clock=world.clock,
        regions=[REGION],
        key_file=str(world.folder / "key"),
        endpoint_url=world.server.url,
    )


@pytest.mark.nightly  # tests/integration/crash/test_crash_clouds.py cuts each cloud
def test_a_power_cut_at_any_call_near_a_change_leaves_exactly_one_stop_and_a_true_ledger() -> None:
    """Before and after the notice, the stop, and the calls around them."""
    passed = power_cut_at(0).passed
    changes = [number for number, where in enumerate(passed, 1) if where.endswith((" tag", " stop"))]
    assert [passed[number - 1] for number in changes] == ["before tag", "after tag", "before stop", "after stop"]

    for fatal in sorted({near for change in changes for near in range(change - 1, change + 2)}):
        power_cut_at(fatal)
