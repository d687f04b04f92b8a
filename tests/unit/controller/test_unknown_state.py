"""A machine of which the cloud gives no usable answer: it counts, keeps what was said about it, and is left alone."""

from dataclasses import replace
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.web.serve import Discovery
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from gpuwatch.money.accounting.metering import Metering, meter
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.policies import PoolRules, capacity, machines
from gpuwatch.policies.idle import IdleRules, propose
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import NOW, Desk, a_node, a_notice, a_stop, an_observation

DOUBT = NodeReport(failure="it is unknown")
METERING, CALENDAR = Metering(zone=ZoneInfo("UTC")), Calendar(ZoneInfo("UTC"))


def doubtful(node_id: str = "i-1", *, address: str | None = "127.0.0.2") -> Node:
    """Nobody knows its state."""
    return replace(a_node(node_id), state=NodeState.UNKNOWN, signal=DOUBT, address=address)


def test_its_notice_stays() -> None:
    """It is neither withdrawn nor carried out."""
    observation = an_observation(doubtful(), notices=(a_notice(),))

    (step,) = propose(observation, "default", IdleRules()).steps

    assert step.verb is Verb.HOLD
    assert "state is not known" in step.reason.sentence


def test_it_counts_as_capacity() -> None:
    """Nothing is launched in its place."""
    assert machines.now(an_observation(doubtful()), "default") == 1


@pytest.mark.parametrize("state", [NodeState.UNKNOWN, NodeState.STOPPED])
def test_what_gpuwatch_stopped_stays_due_to_be_terminated(state: NodeState) -> None:
    """A doubt about its state is no proof that somebody started it."""
    desk = Desk(rules=PoolRules(idle=IdleRules(grace_period=0.0)))
    desk.fleet.put(a_node("i-1"))
    for _ in range(4):
        desk.round()
    assert [each.node_id for each in desk.ledger.view(desk.clock.now()).stopped] == ["i-1"]
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], state=state))
    desk.round()

    assert [each.node_id for each in desk.ledger.view(desk.clock.now()).stopped] == ["i-1"]


def test_nothing_is_done_to_it() -> None:
    """Whatever is wanted: no removal of it, no start, no launch beside it, and an open stop of it waits."""
    desk = Desk(
        rules=PoolRules(idle=IdleRules(grace_period=0.0), start="any", schedule={"always": Window(min_nodes=1)})
    )
    desk.fleet.put(a_node("i-1"))
    desk.fleet.put(replace(a_node("i-1"), state=NodeState.UNKNOWN))
    for _ in range(30):
        desk.round()

    assert desk.fleet.calls == []


def test_an_open_stop_waits_for_an_answer() -> None:
    """A doubt is no effect, and no failure either."""
    desk = Desk(rules=PoolRules(idle=IdleRules(grace_period=0.0)))
    desk.fleet.put(a_node("i-1"))
    desk.round()
    desk.round()
    assert desk.fleet.stops() == ["i-1"]
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], state=NodeState.UNKNOWN))
    for _ in range(30):
        desk.round()
    (entry,) = desk.ledger.view(desk.clock.now()).open_intents
    assert not entry.resumable
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], state=NodeState.STOPPED))
    desk.round()

    view = desk.ledger.view(desk.clock.now())
    assert (view.open_intents, [each.node_id for each in view.stopped]) == ((), ["i-1"])


def test_its_time_is_billed_once_it_is_known_again() -> None:
    """Metering goes on from its last mark: nothing is lost and nothing is billed twice."""
    seen = an_observation(a_node("i-1"))
    later = NOW + timedelta(minutes=2)
    marks, _ = meter(None, seen, METERING, lambda _: 1, CALENDAR)
    during = replace(an_observation(doubtful(), now=NOW + timedelta(minutes=1)))
    between, rows = meter(marks, during, METERING, lambda _: 1, CALENDAR)
    assert (between.nodes, rows) == (marks.nodes, {})

    _, rows = meter(between, an_observation(a_node("i-1"), now=later), METERING, lambda _: 1, CALENDAR)

    assert rows
    fresh, rows = meter(None, during, METERING, lambda _: 1, CALENDAR)
    assert (dict(fresh.nodes), rows) == ({}, {})


def test_prometheus_goes_on_scraping_it() -> None:
    """Its agent is where it was."""
    discovery = Discovery(signals=ObserveSettings())
    discovery.update(an_observation(doubtful(), doubtful("i-2", address=None)).fleet)

    assert discovery.page().body.count(b"__meta_gpuwatch_node_id") == 1


def test_it_is_not_started_although_gpuwatch_stopped_it() -> None:
    """It may run."""
    stopped = (a_stop("i-1", at=NOW),)
    observation = an_observation(doubtful(), stopped=stopped)

    assert capacity.additions(observation, "default", 2, PoolRules().launch) == ()
