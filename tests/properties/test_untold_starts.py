"""P3 where a cloud does not say when a machine was started last (Azure, Tencent Cloud), at any outage of anything."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.clouds.sightings import Sightings
from gpuwatch.controller.context import Memory
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.starts import not_to_start
from tests.support.builders.fleet import Desk, FakeFleet, a_node
from tests.support.nightly import examples

KEPT = 4 * 3600.0
RULES = PoolRules(
    warm_up=0.0, idle=IdleRules(timeout=300.0, grace_period=120.0, terminate_after=KEPT, terminate_grace_period=120.0)
)
ROUNDS = 240.0  # seconds from one to the next


@dataclass(slots=True)
class Mute(FakeFleet):
    """A cloud that says when a machine was made and nothing of its last start; it is silent while `deaf`."""

    sightings: Sightings | None = None
    deaf: bool = False

    def begin(self) -> None:
        """The process begins."""
        self.sightings = Sightings(self.clock)
        self.fault = lambda *_: CloudUnavailableError("silent") if self.deaf else None

    def nodes(self) -> tuple[Node, ...]:
        """The list, as this process has watched its machines."""
        return tuple(map(self._watched, FakeFleet.nodes(self)))

    def node(self, node_id: str) -> Node | None:
        """One machine, likewise."""
        found = FakeFleet.node(self, node_id)
        return None if found is None else self._watched(found)

    def _watched(self, node: Node) -> Node:
        assert self.sightings is not None
        return self.sightings.with_sight(node)


def mute(desk: Desk) -> Mute:
    """Its cloud."""
    assert isinstance(desk.fleet, Mute)
    return desk.fleet


def a_desk() -> Desk:
    """A controller that has stopped i-1 a moment ago."""
    desk = Desk(rules=RULES, interval=ROUNDS)
    desk.fleet = Mute(clock=desk.clock)
    mute(desk).begin()
    desk.fleet.put(a_node("i-1"))
    while desk.fleet.nodes_["i-1"].state is not NodeState.STOPPED:
        desk.round()
    desk.round()
    assert desk.ledger.view(desk.clock.now()).stop_of("i-1") is not None
    return desk


def used(desk: Desk, seconds: float) -> None:
    """Its owner starts it, works for so long, and stops it; the cloud shows nothing of that afterwards."""
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], state=NodeState.RUNNING))
    desk.fleet.show("i-1", State.BUSY)
    desk.rest(seconds)
    gone = NodeReport(failure="it is stopped")
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], state=NodeState.STOPPED, signal=gone))


@contextmanager
def nobody_looks(desk: Desk, how: str) -> Iterator[None]:
    """Nobody sees the machine meanwhile."""
    if how == "its cloud is silent":
        mute(desk).deaf = True
        desk.round()
    yield
    mute(desk).deaf = False
    if how == "the controller begins anew":
        desk.memory = Memory()
        mute(desk).begin()


BLIND = ["the controller begins anew", "its machine is suspended", "its cloud is silent"]


def terminated(desk: Desk, seconds: float) -> bool:
    """Whether it is terminated within that time."""
    until = desk.clock.now().timestamp() + seconds
    while desk.clock.now().timestamp() < until:
        desk.round(ROUNDS)
    return any(call == "terminate" for call, *_ in desk.fleet.calls)


@pytest.mark.parametrize("how", BLIND)
def test_a_machine_that_its_owner_used_while_nobody_looked_is_its_owners(how: str) -> None:
    """It is stopped, as gpuwatch left it, and its launch time is the same: its disks stay all the same."""
    desk = a_desk()
    with nobody_looks(desk, how):
        used(desk, 3600.0)

    assert not terminated(desk, 1.2 * KEPT)
    stop = desk.ledger.view(desk.clock.now()).stop_of("i-1")
    assert stop is not None
    (node,) = desk.fleet.nodes()
    assert stop.why_unwatched(node, ROUNDS) is not None


def test_a_machine_that_was_watched_all_the_time_is_terminated_after_its_time() -> None:
    """Nobody can have started it, also if the controller was restarted in between."""
    desk = a_desk()
    assert not terminated(desk, 0.9 * KEPT)
    desk.memory = Memory()
    mute(desk).begin()

    assert terminated(desk, 0.2 * KEPT)


@settings(max_examples=examples(20), deadline=None)
@given(st.sampled_from(BLIND), st.floats(0.0, 0.8 * KEPT), st.floats(3 * ROUNDS + 2 * 60.0, 48 * 3600.0))
def test_whenever_and_for_however_long_nobody_looked(how: str, after: float, seconds: float) -> None:
    """Whatever its owner did in more than ten minutes without a look, gpuwatch does not terminate it."""
    desk = a_desk()
    until = desk.clock.now().timestamp() + after
    while desk.clock.now().timestamp() < until:
        desk.round(ROUNDS)
    with nobody_looks(desk, how):
        used(desk, seconds)

    assert not terminated(desk, 1.2 * KEPT)


def startable(desk: Desk) -> bool:
    """Whether the pool may start it as one of gpuwatch's own stops."""
    observation = desk.plan().observation
    node = observation.fleet.find("i-1")
    assert node is not None
    return not_to_start(observation, node, "own") is None


def test_after_a_short_restart_a_machine_of_ours_may_be_started_though_its_launch_time_is_forgotten() -> None:
    """The new process knows the time of its making alone; nobody can have used it in a minute."""
    desk = a_desk()
    made = desk.fleet.nodes_["i-1"].launched_at
    assert made is not None
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], launched_at=made - timedelta(days=9)))
    desk.memory = Memory()
    mute(desk).begin()

    assert startable(desk)


@pytest.mark.parametrize("how", BLIND)
def test_what_its_owner_may_have_stopped_while_nobody_looked_is_not_started(how: str) -> None:
    """`start: own` is about gpuwatch's own stops."""
    desk = a_desk()
    assert startable(desk)
    with nobody_looks(desk, how):
        used(desk, 3600.0)

    assert not startable(desk)
