"""The controller dies at every step: after its restart there is exactly one stop, and the ledger is true."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.controller.round import step
from gpuwatch.guard import Limits
from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import NodeState
from tests.support.builders.fleet import Desk, a_node
from tests.support.crash_points import Mortal, PowerCut, Story, every_cut
from tests.support.nightly import by_night


def a_story(lag: float) -> Story:
    """Twenty rounds over an idle and a busy machine, and as many afterwards, in which a stop given up is made anew."""
    desk = Desk(limits=Limits(max_stops_per_hour_ratio=1.0, failure_cooldown=120.0))
    desk.fleet.lag = lambda: lag
    for node in (a_node("i-1"), a_node("i-2", State.BUSY)):
        desk.fleet.put(node)
    return Story(desk=desk, rounds=20, more=20)


@pytest.mark.parametrize(
    ("downtime", "pace", "begin", "lag"),
    [
        (0.0, 3, 2, 90.0),  # the cloud stops slowly
        (3600.0, 7, 1, 0.0),
        *by_night((0.0, 3, 2, 0.0), (61.0, 5, 3, 0.0), (61.0, 5, 3, 90.0), (3600.0, 7, 1, 90.0)),
    ],
)
def test_a_power_cut_anywhere_leaves_exactly_one_stop_and_a_true_ledger(
    downtime: float, pace: int, begin: int, lag: float
) -> None:
    """Before and after every call: one machine stopped once, the busy one never, all intents closed (P4, P6, P12)."""
    cuts = set()
    for where, desk in every_cut(a_story(lag), downtime, pace=pace, begin=begin):
        cuts.add(where.partition(" (")[2])
        effective = desk.fleet.stopped_while

        assert effective == [State.IDLE], f"{where}: machines were stopped while {effective}"
        assert desk.fleet.nodes_["i-1"].state is NodeState.STOPPED, where
        assert set(desk.fleet.stops()) == {"i-1"}, where
        assert desk.ledger.view(desk.clock.now()).open_intents == (), f"{where}: an intent was left open"
        entries = desk.ledger.history("i-1", limit=100)
        settled = [e for e in entries if e.intent.verb is Verb.STOP and e.outcomes[-1].status is Status.SETTLED]
        assert len(settled) == 1, f"{where}: {[(e.intent.verb, [o.status for o in e.outcomes]) for e in entries]}"
        keys = {entry.intent.key for entry in entries}
        assert {key for _, _, key in desk.fleet.calls} <= keys, f"{where}: a call without a ledger record"
    assert {"before stop)", "after stop)"} <= cuts


def test_work_that_began_during_the_downtime_is_safe(tmp_path: Path) -> None:
    """Cut right after the intent to stop; the machine is busy when the controller is back: it stays up (P2)."""
    path = tmp_path / "work.db"
    desk = Desk(ledger=Ledger.open(path))
    desk.fleet.put(a_node("i-1"))
    for _ in range(10):
        desk.round()
    seen: list[str] = []

    def die_at_the_stop(where: str) -> None:
        seen.append(where)
        if where == "before stop":
            raise PowerCut

    parts = replace(desk.parts, cloud=Mortal(desk.fleet, die_at_the_stop))  # type: ignore[arg-type]
    with pytest.raises(PowerCut):
        step(parts)
    desk.fleet.show("i-1", State.BUSY)
    for _ in range(20):
        desk.round()

    assert desk.fleet.stops() == []
    assert desk.fleet.nodes_["i-1"].state is NodeState.RUNNING
    assert desk.ledger.view(desk.clock.now()).open_intents == ()
    desk.ledger.close()
