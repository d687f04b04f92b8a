"""One round after another: from an idle machine to a settled stop, and everything that must keep it from happening."""

import gc
from dataclasses import replace
from datetime import timedelta
from weakref import ref

import pytest

from gpuwatch.clouds import STOP_AT, CloudError, CloudUnavailableError, NotFoundError, ProtectedError, ThrottledError
from gpuwatch.controller.round import Round
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import DECISION_TAG, NOTIFIED_TAG, Status, Verb
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from tests.support.builders.desk import a_desk, ledger_statuses
from tests.support.builders.fleet import a_node, a_verdict


def statuses(done: Round) -> list[tuple[str, str, str]]:
    """What a round did: verb, node, status."""
    return [(act.review.step.verb, act.review.step.node_id, act.outcome.status) for act in done.acts]


def test_an_idle_node_goes_from_notice_to_settled_stop_and_a_busy_one_is_left_alone() -> None:
    """Notice, grace, stop, verified and settled: two intents in the ledger, one stop in the cloud."""
    desk = a_desk()

    rounds = [desk.round() for _ in range(13)]

    assert statuses(rounds[0]) == [("notice", "i-1", "settled")]
    assert [statuses(each) for each in rounds[1:10]] == [[]] * 9
    assert statuses(rounds[10]) == [("stop", "i-1", "accepted")]
    assert [(o.status, o.detail) for o in rounds[11].settled] == [(Status.SETTLED, "the cloud shows it stopped")]
    assert desk.fleet.stops() == ["i-1"]
    assert ledger_statuses(desk) == [["notice", "settled"], ["stop", "accepted", "settled"]]
    assert desk.ledger.view(desk.clock.now()).notices == ()


def test_a_notice_writes_on_the_machine_when_it_will_be_stopped() -> None:
    """The owner finds the time of the notice, the time of the stop and the ledger's key among the tags."""
    desk = a_desk()
    desk.round()

    tags = desk.fleet.nodes_["i-1"].tags
    assert tags[NOTIFIED_TAG] == "2026-03-02T12:00:00Z"
    assert tags[STOP_AT] == "2026-03-02T12:10:00Z"
    assert tags[DECISION_TAG] == desk.ledger.history("i-1")[0].intent.key


def test_work_during_the_grace_period_withdraws_the_notice() -> None:
    """A node that becomes busy keeps running, and its tags say that the notice is off."""
    desk = a_desk()
    desk.round()
    desk.fleet.show("i-1", State.BUSY)
    done = desk.round()
    later = [desk.round() for _ in range(30)]

    assert statuses(done) == [("withdraw", "i-1", "settled")]
    assert all(not each.acts for each in later)
    assert desk.fleet.nodes_["i-1"].tags[NOTIFIED_TAG].startswith("withdrawn")


def test_observe_only_touches_nothing_and_says_what_it_would_do() -> None:
    """Without `mode: enforce` there is no tag, no stop, no intent; the refusal is named."""
    desk = a_desk(enforce=False)
    rounds = [desk.round() for _ in range(30)]

    assert desk.fleet.calls == []
    assert ledger_statuses(desk) == []
    assert {answer.rule for answer in rounds[-1].reviews[0].refusals} == {"observe_only"}


def test_a_plan_is_what_the_round_then_decides_and_changes_nothing() -> None:
    """Plan and round give the same proposals, decisions and reviews on the same input (P5)."""
    desk = a_desk()
    for _ in range(12):
        calls, past = list(desk.fleet.calls), desk.ledger.history("i-1")
        plan = desk.plan()
        assert (desk.fleet.calls, desk.ledger.history("i-1")) == (calls, past)
        done = desk.round()
        if not done.settled:
            assert (plan.proposals, plan.decisions, plan.reviews) == (done.proposals, done.decisions, done.reviews)


def test_a_node_that_turns_busy_between_deciding_and_acting_is_not_stopped() -> None:
    """The node's own last word is a veto: the intent is cancelled, nothing is called (P2)."""
    desk = a_desk()
    for _ in range(10):
        desk.round()
    asked = []

    def answer(node: Node) -> NodeReport:
        asked.append(node.id)
        state = State.BUSY if asked.count("i-1") > 1 else node.activity.state
        held = 0.0 if state is State.BUSY else node.activity.held_seconds
        return NodeReport(verdict=a_verdict(node.id, state, held, at=desk.clock.now()))

    desk.fleet.answer = answer
    done = desk.round()

    assert statuses(done) == [("stop", "i-1", "cancelled")]
    assert "vetoed" in done.acts[0].outcome.detail
    assert desk.fleet.stops() == []


@pytest.mark.parametrize(
    "last_word",
    [
        NodeReport(failure="its agent did not answer within 5s"),
        NodeReport(verdict=a_verdict(state=State.UNKNOWN)),
        NodeReport(verdict=a_verdict(age=10.0, at=a_desk().clock.now() + timedelta(minutes=10))),
    ],
    ids=["silent", "in doubt", "an old sample"],
)
def test_silence_or_doubt_at_the_last_moment_is_a_veto(last_word: NodeReport) -> None:
    """Only a fresh, sure answer lets a stop pass (P1)."""
    desk = a_desk(a_node("i-1"))
    for _ in range(10):
        desk.round()
    asked = []

    def answer(node: Node) -> NodeReport:
        asked.append(node)
        return node.signal if len(asked) == 1 else last_word

    desk.fleet.answer = answer
    done = desk.round()

    assert statuses(done) == [("stop", "i-1", "cancelled")]
    assert desk.fleet.stops() == []


def test_a_pause_at_the_last_moment_is_honoured() -> None:
    """Paused between deciding and acting: the stop is cancelled."""
    desk = a_desk(a_node("i-1"))
    for _ in range(10):
        desk.round()

    def pause(call: str, _node_id: str) -> CloudError | None:
        if call == "node":
            desk.ledger.pause(None, "ann", "moving racks", desk.clock.now())
        return None

    desk.fleet.fault = pause
    done = desk.round()

    assert statuses(done) == [("stop", "i-1", "cancelled")]
    assert "moving racks" in done.acts[0].outcome.detail


def test_a_protection_set_at_the_last_moment_is_honoured() -> None:
    """The cloud is asked about the machine once more right before the stop (P3)."""
    desk = a_desk(a_node("i-1"))
    for _ in range(10):
        desk.round()

    def protect(call: str, node_id: str) -> CloudError | None:
        if call == "node":
            desk.fleet.put(replace(desk.fleet.nodes_[node_id], protected="tag gpuwatch:protect"))
        return None

    desk.fleet.fault = protect
    done = desk.round()

    assert statuses(done) == [("stop", "i-1", "cancelled")]
    assert "gpuwatch:protect" in done.acts[0].outcome.detail


def test_a_fleet_that_cannot_be_listed_is_not_an_empty_fleet() -> None:
    """When the cloud gives no whole list the round says so and decides nothing."""
    desk = a_desk()
    desk.fleet.fault = lambda call, _: CloudUnavailableError("timed out") if call == "nodes" else None
    done = desk.round()

    assert done.trouble is not None
    assert "timed out" in done.trouble
    assert done.acts == ()


@pytest.mark.parametrize(
    ("error", "status", "attempts"),
    [
        (ThrottledError("RequestLimitExceeded"), "throttled", 5),
        (ProtectedError("OperationNotPermitted"), "refused", 2),
    ],
)
def test_a_refused_stop_is_tried_again_under_its_own_key_and_given_up_at_last(
    error: CloudError, status: str, attempts: int
) -> None:
    """A few attempts, ever further apart, then failed and left alone; never settled as done (P13)."""
    desk = a_desk(a_node("i-1"))
    desk.fleet.fault = lambda call, _: error if call == "stop" else None
    for _ in range(60):
        desk.round()

    tries = [status, *["asked", status] * (attempts - 1)]
    assert ledger_statuses(desk)[1] == ["stop", *tries, "failed"]
    assert len(ledger_statuses(desk)) == 2
    assert desk.fleet.nodes_["i-1"].state is NodeState.RUNNING


def test_a_throttled_stop_succeeds_once_the_cloud_relents() -> None:
    """The second attempt carries the key of the first: one intent, one stop."""
    desk = a_desk(a_node("i-1"))
    refuse = [ThrottledError("RequestLimitExceeded")]
    desk.fleet.fault = lambda call, _: refuse.pop() if call == "stop" and refuse else None
    for _ in range(15):
        desk.round()

    assert ledger_statuses(desk)[1] == ["stop", "throttled", "asked", "accepted", "settled"]
    assert [key for call, _, key in desk.fleet.calls if call == "stop"] == [desk.ledger.history("i-1")[0].intent.key]


def test_after_a_throttle_nothing_more_is_asked_in_the_same_round() -> None:
    """One throttle ends the round's calls; the others wait for the next."""
    desk = a_desk(a_node("i-1"), a_node("i-2"), a_node("i-3"))
    asked: list[str] = []

    def throttle(call: str, _node: str) -> CloudError | None:
        if call != "tag":
            return None
        asked.append(call)
        return ThrottledError("RequestLimitExceeded")

    desk.fleet.fault = throttle
    desk.round()

    assert asked == ["tag"]


def test_a_lost_answer_is_found_out_before_anything_else() -> None:
    """The stop happened, its answer did not arrive: the next round settles it and stops nothing twice."""
    desk = a_desk(a_node("i-1"))
    desk.fleet.lose = lambda call, _: CloudUnavailableError("connection reset") if call == "stop" else None
    for _ in range(14):
        desk.round()

    assert ledger_statuses(desk)[1] == ["stop", "unavailable", "settled"]
    assert desk.fleet.stops() == ["i-1"]


def test_a_call_that_never_arrived_is_tried_again_under_its_key() -> None:
    """No answer and no effect: when the cloud has shown it running for long enough, the same intent goes on."""
    desk = a_desk(a_node("i-1"))
    silence = [CloudUnavailableError("timed out")]
    desk.fleet.fault = lambda call, _: silence.pop() if call == "stop" and silence else None
    for _ in range(20):
        desk.round()
    within_ten_minutes = ledger_statuses(desk)[1]
    for _ in range(5):
        desk.round()

    assert within_ten_minutes == ["stop", "unavailable"]
    assert ledger_statuses(desk)[1] == ["stop", "unavailable", "interrupted", "asked", "accepted", "settled"]


def test_an_intent_that_nobody_wants_any_more_is_cancelled() -> None:
    """A throttled stop whose node went back to work is dropped, and its notice withdrawn."""
    desk = a_desk(a_node("i-1"))
    desk.fleet.fault = lambda call, _: ThrottledError("RequestLimitExceeded") if call == "stop" else None
    for _ in range(11):
        desk.round()
    desk.fleet.show("i-1", State.BUSY)
    desk.round()

    assert ledger_statuses(desk)[1:] == [["stop", "throttled", "cancelled"], ["withdraw", "settled"]]


def test_a_slow_stop_is_waited_for_and_not_repeated() -> None:
    """While the cloud shows `stopping` nothing else happens to the machine; the others have their turn."""
    desk = a_desk(a_node("i-1"), a_node("i-2"), limits=Limits(max_stops_per_round=1, max_stops_per_hour_ratio=1.0))
    desk.fleet.lag = lambda: 300.0
    for _ in range(20):
        desk.round()

    assert desk.fleet.stops() == ["i-1", "i-2"]


def test_applying_twice_changes_nothing_more() -> None:
    """A second round on the same moment makes no second call (P6)."""
    desk = a_desk()
    for _ in range(12):
        desk.round(seconds=0.0)
        calls = list(desk.fleet.calls)
        desk.round(seconds=60.0)
        assert desk.fleet.calls == calls


def test_a_node_that_vanishes_takes_its_notice_along() -> None:
    """A terminated machine leaves no notice behind."""
    desk = a_desk(a_node("i-1"))
    desk.round()
    del desk.fleet.nodes_["i-1"]
    desk.round()

    assert desk.ledger.view(desk.clock.now()).notices == ()


def test_a_node_that_the_cloud_does_not_know_is_not_settled_as_gone() -> None:
    """An unknown id right after a call proves nothing; the intent stays open, and fails after ten minutes (P13)."""
    desk = a_desk(a_node("i-1"))
    for _ in range(11):
        desk.round()
    desk.fleet.fault = lambda call, _: NotFoundError("InvalidInstanceID.NotFound") if call == "node" else None
    desk.round()
    still_open = desk.ledger.view(desk.clock.now()).open_intents
    for _ in range(12):
        desk.round()

    assert [entry.intent.verb for entry in still_open] == [Verb.STOP]
    assert ledger_statuses(desk)[1] == ["stop", "accepted", "failed"]


def test_a_restarted_machine_gets_its_warm_up_and_a_new_notice() -> None:
    """A stop, a restart by its owner: fifteen minutes untouched, then everything from the beginning (P10)."""
    desk = a_desk(a_node("i-1"))
    for _ in range(13):
        desk.round()
    desk.fleet.start("i-1", "by hand")
    desk.fleet.show("i-1", State.IDLE, 0.0)
    started = desk.clock.now()
    calls = len(desk.fleet.calls)
    while len(desk.fleet.calls) == calls:
        desk.round()

    waited = (desk.clock.now() - started).total_seconds()
    assert waited >= 1800.0
    assert desk.fleet.calls[-1][0] == "tag"


def test_a_stop_that_took_effect_counts_although_its_owner_restarted_the_machine_at_once() -> None:
    """Started again in the same second, before anybody saw it stopped: not settled, but spent (P4)."""
    desk = a_desk(a_node("i-1"), a_node("i-2"), limits=Limits(max_stops_per_hour=1, max_stops_per_hour_ratio=1.0))
    for _ in range(10):
        desk.round()
    desk.round(seconds=0.0)
    first = desk.fleet.stops()
    desk.fleet.start(first[0], "by hand")
    desk.fleet.show(first[0], State.IDLE, 0.0)
    for _ in range(30):
        desk.round()

    assert ledger_statuses(desk, first[0])[1] == ["stop", "accepted", "failed"]
    assert desk.fleet.stops() == first


def test_what_a_decision_rested_on_can_be_read_again() -> None:
    """The round behind a stop is in the ledger: the same observation, the same reviews (P12)."""
    desk = a_desk(a_node("i-1"))
    rounds = [desk.round() for _ in range(11)]

    for line, each in zip(reversed(desk.ledger.rounds()), rounds, strict=True):
        past = desk.ledger.round(line.id)
        rows = (each.observation, desk.rulebook, each.proposals, each.decisions, each.reviews)
        assert (past.observation, past.rulebook, past.proposals, past.decisions, past.reviews) == rows


def test_what_a_round_saw_is_gone_once_nobody_holds_it() -> None:
    """A controller collects circles once in ten rounds: one round that is held by a circle is ten fleets in memory."""
    desk = a_desk()
    gc.collect()
    gc.disable()
    try:
        seen = [ref(desk.round().observation.fleet) for _ in range(13)]
        left = [number for number, each in enumerate(seen) if each() is not None]
    finally:
        gc.enable()

    assert desk.fleet.stops() == ["i-1"]
    assert left == []
