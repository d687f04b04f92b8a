"""The permit is the last question before a change leaves, on every provider: whatever else is asked comes before it.

Each cloud of `FAULT_WORLDS` is played by its real SDK over HTTP.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.clouds import STOP_AT, PermitExpiredError
from gpuwatch.clouds.permit import Permit, in_force
from tests.support.builders.fleet import a_permit
from tests.support.clouds.fault_worlds import FAULT_WORLDS, MINE, FaultWorld, a_fault_world

CHANGES: dict[str, Callable[[FaultWorld, str, Permit], object]] = {
    "stop": lambda world, node_id, permit: world.cloud.stop(node_id, "key", permit=permit),
    "start": lambda world, node_id, _: world.cloud.start(node_id, "key"),
    "terminate": lambda world, node_id, permit: world.cloud.terminate(node_id, "key", permit=permit),
    "tag": lambda world, node_id, _: world.cloud.tag(node_id, {STOP_AT: "2026-01-05T12:00:00+00:00"}, "key"),
    "launch": lambda world, _, __: world.cloud.launch(world.arguments, "key"),
}


@pytest.fixture(params=FAULT_WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FaultWorld]:
    """Each provider in turn."""
    with a_fault_world(request.param, tmp_path) as world:
        yield world


def ready(world: FaultWorld, verb: str, *, seen: bool) -> str:
    """A machine for which the change is something to do; `seen`: a list has shown it."""
    node_id = world.launch(MINE, region=world.regions[0])
    if seen or verb == "start":
        world.cloud.nodes()
    if verb == "start":
        world.cloud.stop(node_id, "key", permit=a_permit(world.clock))
        world.settle(node_id)
    return node_id


@pytest.mark.parametrize("why", ["too old", "not leading"])
@pytest.mark.parametrize("verb", CHANGES)
def test_without_a_permit_that_holds_no_change_leaves(world: FaultWorld, verb: str, why: str) -> None:
    """Not even one that the cloud would refuse."""
    node_id = ready(world, verb, seen=True)
    permit = a_permit(world.clock, leads=lambda: why == "too old")
    if why == "too old":
        world.clock.advance(60)
    sent = len(world.server.changes())

    with in_force(permit), pytest.raises(PermitExpiredError):
        CHANGES[verb](world, node_id, permit)

    assert len(world.server.changes()) == sent


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("verb", CHANGES)
def test_whatever_is_asked_before_a_change_is_asked_before_its_permit(world: FaultWorld, verb: str, seen: bool) -> None:
    """A permit that ends with the first request: if that is a read, as a search for the machine is, nothing follows."""
    node_id = ready(world, verb, seen=seen)
    begun = len(world.server.log)
    permit = a_permit(world.clock, leads=lambda: len(world.server.log) == begun)

    with in_force(permit):
        try:
            CHANGES[verb](world, node_id, permit)
        except PermitExpiredError:
            expired = True
        else:
            expired = False

    asked = [entry.asked.change for entry in world.server.log[begun:]]
    if expired:
        assert True not in asked
    else:
        assert asked[0]
        assert asked.count(True) == 1
