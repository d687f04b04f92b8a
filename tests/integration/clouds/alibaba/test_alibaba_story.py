"""A controller over Alibaba Cloud: notice, grace, stop, settled, and the bill stops; faults and power cuts."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from gpuwatch.controller.round import step
from gpuwatch.ledger import Ledger
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.alibaba.world import AlibabaWorld, a_world
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.idle_agents import IdleAgents, enforcing, rounds, told
from tests.support.crash_points import Fate, Mortal, PowerCut
from tests.support.fakes.cloud_worlds import MINE
from tests.support.golden_text import check

HOURS = 3 * 3600.0
ROUNDS = 24


@pytest.fixture
def world() -> Iterator[AlibabaWorld]:
    """An empty account."""
    with a_world(ManualClock()) as world:
        yield world


def changes(world: AlibabaWorld) -> list[str]:
    """What was asked of the cloud beyond reads, in its own words, with the keys of decisions left out."""
    said = []
    for entry in world.server.changes():
        query = {name: value for name, value in entry.request.query.items() if name not in {"RegionId", "ResourceType"}}
        words = " ".join(f"{name}={value}" for name, value in sorted(query.items()))
        outcome = "no answer" if entry.status is None else str(entry.status)
        at = entry.request.at.strftime("%H:%M")
        said.append(re.sub(r"gpuwatch-memory-[0-9a-z-]+", "KEY", f"{at}  {entry.asked.operation} {words} -> {outcome}"))
    return said


def shown(world: AlibabaWorld, node_id: str) -> str:
    """The machine as the list tells it."""
    node = next(node for node in world.cloud.nodes() if node.id == node_id)
    billed = f"still billed: {node.still_billed}" if node.still_billed else "not billed for its hours"
    return f"{world.clock.now():%H:%M}  {node.state}" + (f", {billed}" if node.state is NodeState.STOPPED else "")


def test_the_story_of_an_idle_machine(world: AlibabaWorld) -> None:
    """Word for word: what leaves for the cloud, what the ledger keeps, what the list shows."""
    idle, busy = world.launch({**MINE, "Name": "trainer-1"}), world.launch({**MINE, "Name": "trainer-2"})
    world.clock.advance(HOURS)
    parts, agents = enforcing(world.cloud, world.clock)
    agents.busy.add(busy)
    states = [shown(world, idle)]
    for _ in range(ROUNDS):
        step(parts)
        states.append(shown(world, idle))
        world.clock.advance(60.0)

    first = [each for index, each in enumerate(states) if index == 0 or each[7:] != states[index - 1][7:]]
    story = [
        "What leaves for Alibaba Cloud",
        *changes(world),
        "",
        "What the list shows of it",
        *first,
        "",
        "What the ledger keeps",
        *(" > ".join(each) for each in told(parts, idle)),
        "",
        "Of the busy machine: " + (", ".join(map(str, told(parts, busy))) or "nothing was asked"),
    ]
    check("stories/alibaba-stop.txt", "\n".join(line.replace(idle, "i-IDLE") for line in story))
    assert world.machine(idle).stopped_mode == "StopCharging"
    assert world.state(busy) is NodeState.RUNNING


FAULTS: dict[str, tuple[Callable[[AlibabaWorld], None], list[str]]] = {
    "none": (lambda _: None, ["stop", "accepted", "settled"]),
    "throttled": (
        lambda world: world.server.plan.strike(Fault.THROTTLED, when(operation="StopInstance")),
        ["stop", "throttled", "asked", "accepted", "settled"],
    ),
    "answer lost": (
        lambda world: world.server.plan.strike(Fault.RESET_AFTER, when(operation="StopInstance")),
        ["stop", "unavailable", "settled"],
    ),
    "half an answer": (
        lambda world: world.server.plan.strike(Fault.CUT, when(operation="StopInstance")),
        ["stop", "unavailable", "settled"],
    ),
    "request lost": (
        lambda world: world.server.plan.strike(Fault.RESET_BEFORE, when(operation="StopInstance")),
        ["stop", "unavailable", "interrupted", "asked", "accepted", "settled"],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_the_cloud_does_the_idle_machine_is_stopped_once_and_settled_truly(
    world: AlibabaWorld, fault: str
) -> None:
    """One effective stop, the busy machine untouched, and the ledger tells what happened."""
    idle, busy = world.launch(MINE), world.launch(MINE)
    world.clock.advance(HOURS)
    parts, agents = enforcing(world.cloud, world.clock)
    agents.busy.add(busy)
    rounds(parts, world.clock, 10)
    strike, expected = FAULTS[fault]
    strike(world)
    rounds(parts, world.clock, 20)

    assert told(parts, idle) == [["notice", "settled"], expected]
    assert (world.state(idle), world.state(busy)) == (NodeState.STOPPED, NodeState.RUNNING)
    assert world.machine(idle).stopped_mode == "StopCharging"
    done = [entry for entry in world.server.changes() if entry.asked.operation == "StopInstance" and entry.effect]
    assert len(done) == 1
    assert told(parts, busy) == []


@pytest.mark.parametrize(
    "made",
    [{"charge": "PrePaid"}, {"network": "classic"}, {"host": "dh-bp1host"}, {"reservation": "crp-bp1res"}],
    ids=lambda made: next(iter(made)),
)
def test_a_machine_that_a_stop_would_leave_on_the_bill_is_never_stopped(
    world: AlibabaWorld, made: dict[str, str]
) -> None:
    """No notice and no stop: people would lose the machine, and nobody would save anything."""
    node_id = world.launch(MINE)
    for name, value in made.items():
        setattr(world.machine(node_id), name, value)
    world.clock.advance(HOURS)
    parts, _ = enforcing(world.cloud, world.clock)
    rounds(parts, world.clock, ROUNDS)

    assert world.server.changes() == []
    assert world.state(node_id) is NodeState.RUNNING


def test_a_machine_that_ends_is_settled_as_gone(world: AlibabaWorld) -> None:
    """DeleteInstance goes through the machine's own shutdown; then the cloud shows it no more, and that is the end."""
    node_id = world.launch(MINE)
    world.clock.advance(HOURS)
    parts, _ = enforcing(world.cloud, world.clock, action="terminate")
    rounds(parts, world.clock, ROUNDS)

    assert told(parts, node_id)[-1] == ["terminate", "accepted", "settled"]
    (deleted,) = (entry for entry in world.server.changes() if entry.asked.operation == "DeleteInstance")
    assert (deleted.request.query["Force"], deleted.request.query["ForceStop"]) == ("true", "false")
    assert world.ids() == set()


# Power cuts


def played(world: AlibabaWorld, ledger: Ledger, agents: IdleAgents, fate: Fate) -> None:
    """The story with a controller that dies where its fate says, and another one that begins anew."""
    cloud = world.another()
    for _ in range(ROUNDS + 14):
        parts, _ = enforcing(cloud, world.clock, agents=agents, ledger=ledger)
        try:
            step(
                replace(
                    parts,
                    cloud=Mortal(parts.cloud, fate.die),  # type: ignore[arg-type]
                    ledger=Mortal(parts.ledger, fate.die),  # type: ignore[arg-type]
                )
            )
        except PowerCut:
            cloud = world.another()
        world.clock.advance(60.0)


def boundaries() -> list[int]:
    """Those of the rounds that change something, by one run without a cut."""
    with a_world(ManualClock()) as world:
        world.launch(MINE)
        world.clock.advance(HOURS)
        fate = Fate(0)
        played(world, Ledger.in_memory(), IdleAgents(world.clock), fate)
    acts = [number for number, where in enumerate(fate.passed, 1) if where.split()[1] in {"tag", "stop"}]
    assert len(acts) == 4, "before and after the notice and the stop"
    return sorted({near for act in acts for near in range(act - 2, act + 3)})


@pytest.mark.nightly  # tests/integration/crash/test_crash_clouds.py cuts each cloud
def test_a_power_cut_near_a_change_leaves_exactly_one_stop_and_a_true_ledger() -> None:
    """Before and after the notice, the stop and what the ledger writes around them."""
    for fatal in boundaries():
        with a_world(ManualClock()) as world:
            idle, busy = world.launch(MINE), world.launch(MINE)
            world.clock.advance(HOURS)
            ledger, agents, fate = Ledger.in_memory(), IdleAgents(world.clock), Fate(fatal)
            agents.busy.add(busy)
            played(world, ledger, agents, fate)
            where = f"cut {fatal} ({fate.passed[fatal - 1]})"

            done = [each for each in world.server.changes() if each.asked.operation == "StopInstance" and each.effect]
            assert len(done) == 1, where
            assert (world.state(idle), world.state(busy)) == (NodeState.STOPPED, NodeState.RUNNING), where
            assert world.machine(idle).stopped_mode == "StopCharging", where
            assert ledger.view(world.clock.now()).open_intents == (), f"{where}: an intent was left open"
