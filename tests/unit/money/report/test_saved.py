"""What is called saved, from rounds that gpuwatch really made: its own stops, and those that others made before it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.clouds import CloudError
from gpuwatch.guard import Limits
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.stops import LastStop
from gpuwatch.money.report.history import ActionHistory
from gpuwatch.money.report.saved import stops_of
from tests.support.builders.fleet import RULES, Desk, a_node


@pytest.mark.parametrize("cause", [None, "its machine has shut itself down", "the market took it"])
@pytest.mark.parametrize("seconds", [0, 20])
def test_only_what_the_cloud_shows_as_our_stop_is_booked_as_saved(cause: str | None, seconds: int) -> None:
    """Its owner types poweroff, or the market takes it, right before the call; or nobody does."""
    desk = Desk(limits=Limits(), rules=RULES)
    desk.fleet.put(a_node("i-1"))

    def before_us(call: str, node_id: str) -> CloudError | None:
        if call == "stop" and cause is not None:
            at = (desk.clock.now() - timedelta(seconds=seconds)).replace(microsecond=0)
            stopped = replace(desk.fleet.nodes_[node_id], state=NodeState.STOPPED)
            desk.fleet.put(replace(stopped, last_stop=LastStop(at=at, other=cause)))
        return None

    desk.fleet.fault = before_us
    for _ in range(90):
        desk.round()
    now = desk.clock.now()
    found = stops_of(ActionHistory(desk.ledger), now - timedelta(hours=9), now, 60.0, frozenset())

    assert len(found.known) == (cause is None)
    assert len(found.unproved) == (cause is not None)
