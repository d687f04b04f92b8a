"""Two controllers on one PostgreSQL ledger: the leader dies anywhere, the other goes on, nothing happens twice."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpuwatch.cli.controller import one_round
from gpuwatch.clouds import CloudError
from gpuwatch.controller.round import ControllerContext
from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import NodeState
from tests.support.builders.clusters import ENDING, a_cluster_desk, a_gpu_pod, a_pod
from tests.support.builders.fleet import Desk, a_node
from tests.support.crash_points import Fate, Mortal, PowerCut, a_mortal
from tests.support.nightly import by_night
from tests.support.real.postgresql import postgresql

pytestmark = pytest.mark.component("pg_ctl")


@pytest.fixture
def ledgers() -> Iterator[tuple[Ledger, Ledger]]:
    """Two controllers' ledgers on one database; the first leads."""
    settings = LedgerSettings(url=postgresql().database())
    first, second = Ledger.connect(settings), Ledger.connect(settings)
    assert first.lead()
    yield first, second
    first.close()
    second.close()


def parts_on(desk: Desk, ledger: Ledger) -> ControllerContext:
    """A controller over the desk's fleet with a ledger of its own."""
    return replace(desk.parts, ledger=ledger)


def test_who_does_not_lead_does_nothing(ledgers: tuple[Ledger, Ledger]) -> None:
    """The second controller's rounds ask nobody and write nothing while the first leads."""
    desk = Desk()
    desk.fleet.put(a_node("i-1"))
    first, second = ledgers

    assert one_round(parts_on(desk, second)) is None
    assert desk.fleet.calls == []
    done = one_round(parts_on(desk, first))
    assert done is not None
    assert [act.review.step.verb for act in done.acts] == [Verb.NOTICE]
    assert one_round(parts_on(desk, second)) is None


def test_a_leader_that_was_suspended_in_the_middle_of_its_stop_leaves_the_machine_to_the_next_one(
    ledgers: tuple[Ledger, Ledger],
) -> None:
    """Away for 90 s between its confirmation and its call: the other leads and sees work; nothing is stopped (P15)."""
    desk = Desk()
    desk.fleet.put(a_node("i-1"))
    first, second = ledgers
    for _ in range(10):
        one_round(parts_on(desk, first))
        desk.rest(60.0)
    rows: list[str] = []
    session: int = first.store._session  # type: ignore[attr-defined]  # PostgreSQL's

    def suspended(call: str, _: str) -> CloudError | None:
        if call == "stop" and not rows:
            rows.append(call)
            desk.clock.suspend(90.0)
            desk.fleet.show("i-1", State.BUSY)
            postgresql().execute("postgres", f"SELECT pg_terminate_backend({session})")  # as after `leader_timeout`
            assert one_round(parts_on(desk, second)) is not None
        return None

    desk.fleet.fault = suspended

    assert one_round(parts_on(desk, first)) is None
    assert rows == ["stop"]
    assert (first.leading(), second.leading()) == (False, True)
    for _ in range(5):
        one_round(parts_on(desk, first))
        one_round(parts_on(desk, second))
        desk.rest(60.0)
    assert desk.fleet.stops() == []


# Of the first intent, a notice, and of the second.
@pytest.mark.parametrize(
    ("where", "turn"),
    [
        *(("after intend", 1), ("after intend", 2), ("before stop", 1), ("after stop", 1), ("before settle", 2)),
        *by_night(
            *(("before intend", 1), ("before settle", 1), ("after settle", 1), ("before intend", 2)),
            *(("after confirm", 1), ("after settle", 2), ("after record_round", 3), ("after tag", 1)),
        ),
    ],
)
def test_the_next_leader_finishes_what_the_last_one_began(
    ledgers: tuple[Ledger, Ledger], where: str, turn: int
) -> None:
    """The leader's power is cut around any of its calls; the other takes the lead: one stop, a true ledger (P4, P6)."""
    desk = Desk()
    desk.fleet.put(a_node("i-1"))
    desk.fleet.put(a_node("i-2", State.BUSY))
    first, second = ledgers
    fate = Fate(at=(where, turn))
    dying = parts_on(desk, first)
    dying = replace(
        dying,
        cloud=Mortal(dying.cloud, fate.die),  # type: ignore[arg-type]  # it has the inner object's methods
        signals=Mortal(dying.signals, fate.die),  # type: ignore[arg-type]  # likewise
        ledger=Mortal(dying.ledger, fate.die),  # type: ignore[arg-type]  # likewise
    )
    alive = True
    for _ in range(40):  # a stop that was cut off has another notice
        if alive:
            try:
                one_round(dying)
            except PowerCut:
                alive = False
                first.close()  # its session ends with its process
        one_round(parts_on(desk, second))
        desk.rest(60.0)

    assert not alive, f"{where} was passed fewer than {turn} times"
    stops = [entry for entry in second.history("i-1", limit=100) if entry.intent.verb is Verb.STOP]
    assert desk.fleet.stopped_while == [State.IDLE], f"{where}: stopped while {desk.fleet.stopped_while}"
    assert desk.fleet.nodes_["i-1"].state is NodeState.STOPPED, where
    assert second.audit().broken is None, where
    assert second.view(desk.clock.now()).open_intents == (), f"{where}: an intent was left open"
    assert sum(entry.outcomes[-1].status is Status.SETTLED for entry in stops) == 1, where


@pytest.mark.parametrize(
    ("where", "turn"),
    [
        *(("after intend", 2), ("before cordon", 1), ("after cordon", 1), ("after drain", 1), ("after terminate", 1)),
        *by_night(
            *(("after intend", 1), ("before settle", 2), ("after settle", 2), ("before drain", 1)),
            *(("after intend", 3), ("before terminate", 1), ("before settle", 3), ("after settle", 3)),
        ),
    ],
)
def test_the_next_leader_goes_on_with_the_cordon_of_the_last_one(
    ledgers: tuple[Ledger, Ledger], where: str, turn: int
) -> None:
    """Cut anywhere between cordon, eviction and end: the node is drained and ended once, under one cordon."""
    desk = a_cluster_desk(ENDING, a_pod(), a_gpu_pod())
    first, second = ledgers
    fate = Fate(at=(where, turn))
    dying = a_mortal(desk, fate)
    dying = replace(dying, ledger=Mortal(first, fate.die))  # type: ignore[arg-type]  # it has the inner object's methods
    alive = True
    for _ in range(30):
        if alive:
            try:
                one_round(dying)
            except PowerCut:
                alive = False
                first.close()
        one_round(parts_on(desk, second))
        desk.rest(60.0)

    assert not alive, f"{where} was passed fewer than {turn} times"
    keys = {key for call, _, key in desk.cluster.calls if call == "cordon"}
    assert desk.fleet.stopped_while == [State.IDLE], f"{where}: ended while {desk.fleet.stopped_while}"
    assert desk.fleet.nodes_["i-1"].state is NodeState.TERMINATED, where
    assert [pod.name for pod in desk.cluster.nodes["node-1"].to_drain] == [], where
    assert len(keys) == 1, f"{where}: cordoned {len(keys)} times"
    assert second.identity.foreign(keys) == (), f"{where}: a cordon without a record"
    assert second.view(desk.clock.now()).open_intents == (), f"{where}: an intent was left open"


@pytest.mark.parametrize("call", ["cordon", "drain"])
def test_a_leader_that_was_suspended_before_a_change_of_a_node_makes_none(
    ledgers: tuple[Ledger, Ledger], call: str
) -> None:
    """Away for 90 s between its last question and its call: the other leads and sees work (P15)."""
    desk = a_cluster_desk(ENDING, a_pod(), a_gpu_pod())
    first, second = ledgers
    suspended: list[str] = []
    session: int = first.store._session  # type: ignore[attr-defined]  # PostgreSQL's

    def befalls(asked: str, name: str) -> None:
        if asked == call and name == "node-1" and not suspended:
            suspended.append(asked)
            desk.clock.suspend(90.0)
            desk.fleet.show("i-1", State.BUSY)
            postgresql().execute("postgres", f"SELECT pg_terminate_backend({session})")  # as after `leader_timeout`
            assert one_round(parts_on(desk, second)) is not None

    desk.cluster.befalls = befalls
    for _ in range(25):
        if not suspended:
            one_round(parts_on(desk, first))
        else:
            one_round(parts_on(desk, second))
        desk.rest(60.0)

    assert suspended == [call]
    assert (first.leading(), second.leading()) == (False, True)
    assert [each for each in desk.calls(call) if call == "cordon"] == []
    assert desk.cluster.evicted == []
    assert not desk.cluster.nodes["node-1"].unschedulable
    assert desk.fleet.stopped_while == []
