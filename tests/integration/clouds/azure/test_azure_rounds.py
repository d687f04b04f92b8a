"""Whole rounds on Azure: from idle to a bill that has stopped, under faults, and with the power cut at each step."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from gpuwatch.controller.round import ControllerContext, step
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.azure.controller import Agents, a_controller, told
from tests.support.clouds.azure.world import AzureWorld, an_azure
from tests.support.clouds.faults import Fault, when
from tests.support.crash_points import Fate, Mortal, PowerCut
from tests.support.fakes.cloud_worlds import MINE
from tests.support.golden_text import check

DEALLOCATE = "VirtualMachines_Deallocate"
IDLE_SECONDS = 3 * 3600.0


@pytest.fixture
def world() -> Iterator[AzureWorld]:
    """An empty subscription."""
    with an_azure(ManualClock()) as world:
        yield world


def rounds(world: AzureWorld, parts: ControllerContext, count: int, *, every: float = 60.0) -> None:
    """So many, a minute apart."""
    for _ in range(count):
        step(parts)
        world.clock.advance(every)


FAULTS: dict[str, tuple[Callable[[AzureWorld], None], list[str]]] = {
    "none": (lambda _: None, ["stop", "accepted", "settled"]),
    "throttled": (
        lambda world: world.server.plan.strike(Fault.THROTTLED_FOR, when(operation=DEALLOCATE)),
        ["stop", "throttled", "asked", "accepted", "settled"],
    ),
    "answer lost": (
        lambda world: world.server.plan.strike(Fault.RESET_AFTER, when(operation=DEALLOCATE)),
        ["stop", "unavailable", "settled"],
    ),
    "request lost": (
        lambda world: world.server.plan.strike(Fault.RESET_BEFORE, when(operation=DEALLOCATE)),
        ["stop", "unavailable", "interrupted", "asked", "accepted", "settled"],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_azure_does_the_idle_machine_is_deallocated_once(world: AzureWorld, fault: str) -> None:
    """One effective stop, the busy machine untouched, and the ledger tells what happened."""
    idle, busy = world.launch(MINE), world.launch(MINE)
    world.clock.advance(IDLE_SECONDS)
    agents = Agents(world.clock)
    agents.busy.add(busy)
    parts = a_controller(world.cloud, world.clock, agents)
    strike, expected = FAULTS[fault]
    strike(world)

    rounds(world, parts, 30)

    assert told(parts, idle) == [["notice", "settled"], expected]
    assert (world.vm(idle).power, world.vm(busy).power) == ("deallocated", "running")
    assert sum(entry.effect and entry.asked.operation == DEALLOCATE for entry in world.server.log) == 1
    assert told(parts, busy) == []


def test_a_subscription_that_is_down_for_an_hour_loses_nobody(world: AzureWorld) -> None:
    """Its machines count as they were; nothing is done to them, and afterwards all goes on."""
    node_id = world.launch(MINE)
    parts = a_controller(world.cloud, world.clock, Agents(world.clock))
    rounds(world, parts, 1)
    world.server.plan.strike(Fault.ERROR_BEFORE, when(), times=None)
    world.clock.advance(IDLE_SECONDS)
    rounds(world, parts, 20)
    assert (told(parts, node_id), world.vm(node_id).power) == ([], "running")

    world.server.plan.clear()
    rounds(world, parts, 30)

    assert world.vm(node_id).power == "deallocated"


def test_a_day_on_azure_is_told_line_by_line(world: AzureWorld) -> None:
    """Notice, grace, deallocation, settled, and a bill that has stopped; one that somebody powers off goes on."""
    idle = world.add({**MINE, "Name": "trainer-1"})
    off = world.add({**MINE, "Name": "trainer-2"})
    agents = Agents(world.clock)
    agents.busy.add(off.vm_id)
    world.clock.advance(IDLE_SECONDS)
    parts = a_controller(world.cloud, world.clock, agents)
    lines: list[str] = []
    seen: dict[str, str] = {}
    names = {idle.vm_id: "trainer-1", off.vm_id: "trainer-2"}

    for minute in range(40):
        if minute == 20:
            lines.append("people   somebody runs `shutdown` within trainer-2")
            off.power = "stopped"
        done = step(parts)
        for node in done.observation.fleet.nodes:
            bill = "stands still" if node.state is NodeState.STOPPED and node.still_billed is None else "goes on"
            doing = f"{node.name} is {node.state}, its bill {bill}"
            doing += f": {node.still_billed}" if node.still_billed else ""
            if seen.get(node.id) != doing:
                seen[node.id] = doing
                lines.append(f"{minute:2} min   {doing}")
        lines += [f"{minute:2} min   settled: {each.status}, {each.detail}" for each in done.settled]
        lines += [
            f"{minute:2} min   {act.review.step.verb} {names[act.review.step.node_id]}: {act.outcome.status}"
            for act in done.acts
        ]
        world.clock.advance(60.0)
    lines += [
        f"asked    {entry.asked.operation} {names.get(entry.request.path.split('/')[8], '')}".rstrip()
        for entry in world.server.changes()
    ]
    for node_id, name in names.items():
        lines = [line.replace(node_id, name) for line in lines]

    check("stories/azure.txt", "\n".join(lines))


@pytest.mark.nightly  # tests/integration/crash/test_crash_clouds.py cuts each cloud
@pytest.mark.parametrize(("first", "downtime"), [(0, 0.0), (1, 61.0)], ids=["no downtime", "a minute down"])
def test_a_power_cut_around_the_stop_leaves_one_stopped_machine(first: int, downtime: float) -> None:
    """Before and after each call around the stop, by turns; the new process knows no path and no state."""
    passed = _lived(0, 0.0)
    at = passed.index("before stop") + 1

    for cut in range(at - 6 + first, at + 8, 2):
        assert _lived(cut, downtime)[-1] == passed[cut - 1]


def _lived(cut: int, downtime: float) -> list[str]:
    """A life with the power cut at that boundary after the grace, 0 for none; the boundaries up to it."""
    with an_azure(ManualClock()) as world:
        node_id, busy = world.launch(MINE), world.launch(MINE)
        world.clock.advance(IDLE_SECONDS)
        agents = Agents(world.clock)
        agents.busy.add(busy)
        parts = a_controller(world.cloud, world.clock, agents)
        while not told(parts, node_id):
            rounds(world, parts, 1)
        rounds(world, parts, 5, every=120.0)
        fate, where = Fate(cut), ""
        mortal = replace(
            parts,
            cloud=Mortal(parts.cloud, fate.die),  # type: ignore[arg-type]
            ledger=Mortal(parts.ledger, fate.die),  # type: ignore[arg-type]
        )
        try:
            rounds(world, mortal, 3)
        except PowerCut as error:
            where = str(error)
        world.clock.advance(downtime)
        reborn = a_controller(world.connect(), world.clock, agents, ledger=parts.ledger)
        rounds(world, reborn, 18, every=120.0)
        stops = [entry for entry in world.server.log if entry.asked.operation == DEALLOCATE and entry.effect]
        assert (world.vm(node_id).power, world.vm(busy).power) == ("deallocated", "running"), where
        assert 1 <= len(stops) <= 2, where  # asked again after a cut, it changes nothing more
        assert {entry.request.path.split("/")[8] for entry in stops} == {node_id}, where
        assert parts.ledger.view(world.clock.now()).open_intents == (), where
        settled = [each for each in told(reborn, node_id) if each[0] == "stop" and each[-1] == "settled"]
        assert len(settled) == 1, where
        return fate.passed
