"""What became of a removal, where the cloud alone cannot tell whose it was."""

from dataclasses import replace

import pytest

from gpuwatch.cli import status
from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.controller.metrics.fleet import FAMILIES
from gpuwatch.controller.metrics.state import MetricsState
from gpuwatch.controller.node_row import node_rows
from gpuwatch.controller.timings import Timings
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Status
from gpuwatch.model.fleet import NodeReport, NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from tests.support.builders.fleet import Desk, a_node
from tests.support.builders.served_page import PRICE

STILL = "it has local disks"


def a_desk(then: str) -> Desk:
    """One idle machine, whose pool gives no grace."""
    rules = PoolRules(idle=IdleRules(grace_period=0.0, action=then))  # type: ignore[arg-type]
    desk = Desk(rules=rules, prices={"g6.xlarge": PRICE})
    desk.fleet.put(a_node("i-1"))
    return desk


def test_a_termination_whose_answer_was_lost_counts_as_ours() -> None:
    """The machine is gone and the call was made: the limits of the hour hold for it (P4)."""
    desk = a_desk("terminate")
    desk.fleet.lose = lambda call, _: CloudUnavailableError("reset") if call == "terminate" else None
    for _ in range(4):
        desk.round()

    past = desk.ledger.view(desk.clock.now()).recent
    assert desk.fleet.nodes_["i-1"].state is NodeState.TERMINATED
    assert [(done.node_id, done.status) for done in past] == [("i-1", Status.SETTLED)]


def test_a_machine_that_its_owner_started_and_stopped_unseen_was_not_stopped_by_us() -> None:
    """While no controller looked somebody used it again: terminate_after has no claim on it (P3)."""
    desk = a_desk("stop")
    for _ in range(2):
        desk.round()
    assert desk.fleet.stops() == ["i-1"]
    desk.rest(3600.0)
    desk.fleet.start("i-1", "owner")
    desk.fleet.show("i-1", State.BUSY)
    desk.rest(3600.0)
    desk.fleet.put(
        replace(desk.fleet.nodes_["i-1"], state=NodeState.STOPPED, signal=NodeReport(failure="it is stopped"))
    )
    desk.round()

    view = desk.ledger.view(desk.clock.now())
    assert view.stopped == ()
    assert [done.status for done in view.recent] == [Status.FAILED]


def test_a_stop_that_did_not_end_the_bill_is_done_and_told(caplog: pytest.LogCaptureFixture) -> None:
    """The record, the log, the status and the metric say that the machine goes on costing."""
    desk = a_desk("stop")
    for _ in range(2):
        desk.round()
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], state=NodeState.STOPPED, still_billed=STILL, signal=NodeReport()))
    last = desk.round()

    (done,) = desk.ledger.view(desk.clock.now()).recent
    assert (done.status, done.detail) == (Status.SETTLED, f"the cloud shows it stopped, and still bills it: {STILL}")
    assert f"i-1 is stopped and still billed: {STILL}" in caplog.text
    (row,) = node_rows(last, desk.rulebook)
    assert (row.usd_per_hour, status.why(row)) == (
        PRICE.usd_per_hour,
        f"It is stopped, and its cloud still bills it: {STILL}.",
    )
    metrics = MetricsState(mode="enforce", fleet="lab", clock=desk.clock, timings=Timings(), last=last)
    told = {family.name: [value for _, _, value in samples(metrics)] for family, samples in FAMILIES}
    assert told["gpuwatch_fleet_stopped_billed_nodes"] == [1.0]


def test_a_machine_that_did_not_start_says_why() -> None:
    """Its cloud accepted the start, and shows it stopped again: that word stands in status and explain."""
    desk = a_desk("stop")
    why = "Client.InternalError: Client error on launch"
    desk.fleet.put(
        replace(a_node("i-1"), state=NodeState.STOPPED, failed_start=why, signal=NodeReport(failure="it is stopped"))
    )
    (row,) = node_rows(desk.round(), desk.rulebook)

    assert f"its last start failed, and its cloud says {why}." in status.why(row)
