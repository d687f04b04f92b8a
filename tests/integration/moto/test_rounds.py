"""Rounds on EC2 with its faults, and on a schedule that never runs two at once."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from gpuwatch.cli.controller import one_round, schedule_rounds
from gpuwatch.clouds import CloudError
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.controller.context import LiveParts
from gpuwatch.controller.observe.pool_metrics import of_verdicts
from gpuwatch.controller.round import ControllerContext, step
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import DEFAULT_POOL, Fleet, Node, NodeReport, NodeState
from gpuwatch.model.measurement import MetricQuery, MetricValue
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.fleet import RULES, Desk, a_node, a_verdict
from tests.support.fakes.cloud_worlds import FLEET, MINE
from tests.support.fakes.moto_faults import REGION, MotoFaults

DISCARD = replace(RULES, idle=replace(RULES.idle, instance_store="discard"))  # moto's GPU machines have local disks


class Agents:
    """The agents of the machines at EC2: idle for hours unless told otherwise."""

    def __init__(self, clock: ManualClock) -> None:
        """Nobody is busy."""
        self.clock = clock
        self.busy: set[str] = set()

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """All of them answer."""
        asked = tuple(replace(node, signal=self.confirm(node)) for node in nodes)
        return Fleet(observed_at=self.clock.now(), nodes=asked)

    def measure(self, fleet: Fleet, queries: Sequence[MetricQuery]) -> tuple[MetricValue, ...]:
        """Nobody asks for numbers."""
        return of_verdicts(fleet, queries, self.clock.now())

    def confirm(self, node: Node) -> NodeReport:
        """One of them answers, as long as its machine runs."""
        if node.state is not NodeState.RUNNING:
            return NodeReport(failure=f"it is {node.state}")
        state, held = (State.BUSY, 0.0) if node.id in self.busy else (State.IDLE, 0.9 * self.clock.monotonic())
        return NodeReport(verdict=a_verdict(node.id, state, held, gpus=node.known_gpus, at=self.clock.now()))


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the test moves."""
    return ManualClock()


@pytest.fixture
def ec2(clock: ManualClock) -> Iterator[MotoFaults]:
    """EC2 that shows `stopping` for a while."""
    with MotoFaults(clock, lag_describes=2) as faults:
        yield faults


def a_controller(ec2: MotoFaults, clock: ManualClock) -> tuple[LiveParts, Agents]:
    """A controller that enforces over EC2."""
    agents = Agents(clock)
    cloud = AwsCloud(fleet=FLEET, clock=clock, regions=[REGION], session=ec2.session)
    parts = LiveParts(
        clock=clock,
        cloud=cloud,
        signals=agents,
        ledger=Ledger.in_memory(),
        rules=Rulebook(pools={DEFAULT_POOL: DISCARD}, limits=Limits(max_stops_per_hour_ratio=1.0), enforce=True),
    )
    return parts, agents


def rounds(parts: ControllerContext, clock: ManualClock, count: int) -> None:
    """So many rounds, a minute apart."""
    for _ in range(count):
        step(parts)
        clock.advance(60.0)


def story(parts: LiveParts, node_id: str) -> list[list[str]]:
    """Every intent of a machine, oldest first, as its verb and its outcomes."""
    history = reversed(parts.ledger.history(node_id))
    return [[entry.intent.verb, *(outcome.status for outcome in entry.outcomes)] for entry in history]


def stops(ec2: MotoFaults) -> int:
    """How many stops EC2 carried out."""
    return sum(call.action == "StopInstances" and call.done for call in ec2.calls)


FAULTS: dict[str, tuple[Callable[[MotoFaults], None], list[str]]] = {
    "none": (lambda _: None, ["stop", "accepted", "settled"]),
    "throttled": (lambda ec2: ec2.throttle("StopInstances"), ["stop", "throttled", "asked", "accepted", "settled"]),
    "answer lost": (lambda ec2: ec2.lose_response("StopInstances"), ["stop", "unavailable", "settled"]),
    "request lost": (
        lambda ec2: ec2.lose_request("StopInstances"),
        ["stop", "unavailable", "interrupted", "asked", "accepted", "settled"],
    ),
    "protected in EC2": (lambda ec2: ec2.protect("StopInstances"), ["stop", "refused", "asked", "accepted", "settled"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_ec2_does_the_idle_machine_is_stopped_once_and_settled_truly(
    ec2: MotoFaults, clock: ManualClock, fault: str
) -> None:
    """One effective stop, the busy machine untouched, and the ledger tells what happened."""
    idle, busy = ec2.launch(MINE), ec2.launch(MINE)
    clock.advance(3 * 3600.0)
    parts, agents = a_controller(ec2, clock)
    agents.busy.add(busy)
    rounds(parts, clock, 10)
    strike, expected = FAULTS[fault]
    strike(ec2)
    rounds(parts, clock, 20)

    assert story(parts, idle) == [["notice", "settled"], expected]
    assert (ec2.state(idle), ec2.state(busy)) == ("stopped", "running")
    assert stops(ec2) == 1
    assert story(parts, busy) == []


def test_a_round_takes_its_time_and_no_second_one_begins_beside_it() -> None:
    """Rounds are due far more often than they end: never two at once, and those that were missed run as one."""
    desk, gate, running, most, done = Desk(), threading.Event(), [0], [0], threading.Semaphore(0)
    desk.fleet.put(a_node())

    def slow(call: str, _node: str) -> CloudError | None:
        if call == "nodes":
            running[0] += 1
            most[0] = max(most[0], running[0])
            gate.wait(10)
            running[0] -= 1
            done.release()
        return None

    desk.fleet.fault = slow
    scheduler = schedule_rounds(
        replace(desk.parts, clock=SystemClock(), rules=replace(desk.rulebook, enforce=False)), interval_seconds=0.02
    )
    scheduler.start()
    assert not done.acquire(timeout=0.5), "a round ended although it was held"
    held = running[0]
    gate.set()
    assert done.acquire(timeout=5)
    assert done.acquire(timeout=5), "no further round came"
    scheduler.shutdown(wait=True)

    assert (held, most[0]) == (1, 1)


def test_a_round_that_breaks_is_told_and_does_not_end_the_controller(caplog: pytest.LogCaptureFixture) -> None:
    """A bug, or a ledger that cannot be written, costs one round."""
    desk = Desk()
    desk.fleet.nodes_ = None  # type: ignore[assignment]  # a bug
    with caplog.at_level(logging.ERROR):
        assert one_round(desk.parts) is None

    assert "The round failed" in caplog.text
    desk.fleet.nodes_ = {}
    assert one_round(desk.parts) is not None
