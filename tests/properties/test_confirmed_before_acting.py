"""P15: what lets a machine go is younger than a stated bound when the call leaves, wherever time passes before that."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.clouds import CloudError, CloudUnavailableError
from gpuwatch.controller.round import Round, step
from gpuwatch.guard import Limits
from gpuwatch.ledger import LeadLostError, Ledger
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from gpuwatch.policies.schedule import Window
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import Desk, a_node
from tests.support.builders.past_steps import a_group
from tests.support.crash_points import a_mortal, copied
from tests.support.nightly import examples

BOUND = 5.0
LIMITS = Limits(max_stops_per_hour_ratio=1.0)

PAUSES: dict[str, Callable[[ManualClock, float], None]] = {
    "it is stopped, or something is slow": ManualClock.advance,
    "its machine sleeps": ManualClock.suspend,
    "its virtual machine is paused, and the wall clock set right": ManualClock.jump,
}


def a_desk(*nodes: Node, rounds: int = 10, **other: object) -> Desk:
    """A controller whose next round stops the idle ones of these machines."""
    desk = Desk(**{"limits": LIMITS, **other})  # type: ignore[arg-type]
    for node in nodes or (a_node("i-1"),):
        desk.fleet.put(node)
    for _ in range(rounds):
        desk.round()
    assert desk.fleet.stops() == []
    return desk


def outcomes(done: Round) -> list[tuple[str, str]]:
    """What became of each step."""
    return [(act.review.step.node_id, act.outcome.status) for act in done.acts]


def acting(desk: Desk) -> Round:
    """The next round that does something: an interrupted intent is not tried again at once."""
    return next(done for done in (desk.round() for _ in range(20)) if done.acts)


@dataclass(slots=True)
class Delay:
    """Counts the boundaries of a round, and lets something happen at some of them."""

    at: Callable[[int, str], None]
    passed: list[str] = field(default_factory=list)

    def die(self, where: str) -> None:
        """One boundary."""
        self.passed.append(where)
        self.at(len(self.passed), where)


def delayed(desk: Desk, at: Callable[[int, str], None]) -> list[str]:
    """A round with that at its boundaries; gives their names."""
    delay = Delay(at)
    step(a_mortal(desk, delay))  # type: ignore[arg-type]  # a fate that kills nobody
    return delay.passed


@pytest.mark.parametrize("how", PAUSES)
def test_a_pause_anywhere_in_the_round_stops_no_machine_that_went_to_work_meanwhile(how: str) -> None:
    """At each boundary of the round the controller is away for 90 s, at whose beginning a job starts: P2, P15."""
    base = a_desk()
    boundaries = delayed(copied(base), lambda *_: None)
    effect = boundaries.index("after stop") + 1
    for number in range(1, effect):
        desk = copied(base)

        def pause(reached: int, _: str, number: int = number, desk: Desk = desk) -> None:
            if reached == number:
                desk.fleet.show("i-1", State.BUSY)
                PAUSES[how](desk.clock, 90.0)

        delayed(desk, pause)

        assert desk.fleet.stops() == [], f"stopped after a pause at {boundaries[number - 1]} ({number})"
        assert desk.fleet.nodes_["i-1"].state is NodeState.RUNNING


@pytest.mark.parametrize("how", PAUSES)
def test_a_pause_inside_the_cloud_s_client_stops_no_machine(how: str) -> None:
    """Credentials that are fetched, a turn that is waited for, a connection that is opened: all after the asking."""
    desk = a_desk()

    def slow(call: str, _: str) -> CloudError | None:
        if call == "stop":
            PAUSES[how](desk.clock, 18.0)
        return None

    desk.fleet.fault = slow
    done = desk.round()

    assert outcomes(done) == [("i-1", "cancelled")]
    assert "not sent: its confirmation was 18s old" in done.acts[0].outcome.detail
    assert desk.fleet.stops() == []


def test_what_was_not_sent_is_asked_again_in_the_next_round_and_was_no_stop() -> None:
    """It is no attempt, spends no limit, starts no cooldown: the next round stops the machine under a new key."""
    desk = a_desk(limits=replace(LIMITS, max_stops_per_hour=1))
    away = [True]
    desk.fleet.fault = lambda call, _: desk.clock.advance(6.0) if call == "stop" and away.pop() else None
    first = desk.round()
    away.append(False)
    second = desk.round()
    desk.fleet.fault = lambda *_: None
    rest = [desk.round() for _ in range(3)]

    assert (outcomes(first), outcomes(second)) == ([("i-1", "cancelled")], [("i-1", "accepted")])
    assert rest[0].settled[0].status is Status.SETTLED
    assert desk.fleet.stops() == ["i-1"]
    keys = {entry.intent.key for entry in desk.ledger.history("i-1") if entry.intent.verb is Verb.STOP}
    assert len(keys) == 2


def test_one_machine_s_slow_confirmation_holds_up_no_other() -> None:
    """What was not sent is no sign of trouble with the cloud, which would end the round."""
    desk = a_desk(a_node("i-1"), a_node("i-2"))
    desk.fleet.fault = lambda call, node: desk.clock.advance(6.0) if (call, node) == ("stop", "i-1") else None
    done = desk.round()

    assert outcomes(done) == [("i-1", "cancelled"), ("i-2", "accepted")]
    assert desk.fleet.stops() == ["i-2"]


def test_the_bound_is_the_administrator_s() -> None:
    """Two seconds: three are too many."""
    desk = a_desk(limits=replace(LIMITS, max_confirmation_age=2.0))
    desk.fleet.fault = lambda call, _: desk.clock.advance(3.0) if call == "stop" else None

    assert outcomes(desk.round()) == [("i-1", "cancelled")]
    desk.limits = LIMITS
    assert outcomes(desk.round()) == [("i-1", "accepted")]


def test_an_attempt_that_may_have_happened_goes_on_counting_when_the_next_one_is_not_sent() -> None:
    """Its request was lost; the retry is refused by its permit: the intent stays open, and the limit stays spent."""
    desk = a_desk(a_node("i-1"), a_node("i-2"), limits=replace(LIMITS, max_stops_per_hour=1))
    desk.fleet.fault = lambda call, node: CloudUnavailableError("lost") if (call, node) == ("stop", "i-1") else None
    assert outcomes(desk.round()) == [("i-1", "unavailable")]
    desk.fleet.fault = lambda call, _: desk.clock.advance(6.0) if call == "stop" else None
    second = acting(desk)
    view = desk.ledger.view(desk.clock.now())

    assert outcomes(second) == [("i-1", "interrupted")]
    assert [(each.intent.node_id, each.reached, each.attempts) for each in view.open_intents] == [("i-1", True, 1)]
    desk.fleet.fault = lambda *_: None
    assert outcomes(acting(desk)) == [("i-1", "accepted")]
    assert len({key for call, _, key in desk.fleet.calls if call == "stop"}) == 1


def test_a_veto_after_an_attempt_that_may_have_happened_still_counts() -> None:
    """P4: the agent is silent because the machine stops; that is no proof that nothing was done."""
    desk = a_desk(a_node("i-1"), a_node("i-2"), limits=replace(LIMITS, max_stops_per_hour=1))
    desk.fleet.fault = lambda call, node: CloudUnavailableError("lost") if (call, node) == ("stop", "i-1") else None
    desk.round()
    desk.fleet.fault = lambda *_: None
    seen: list[str] = []  # what was asked of the cloud

    def watched(call: str, _: str) -> CloudError | None:
        seen.append(call)
        return None

    def silent_when_asked_again(node: Node) -> NodeReport:
        silent = node.id == "i-1" and seen[-1] == "node"
        return NodeReport(failure="its agent did not answer") if silent else desk.fleet.nodes_[node.id].signal

    desk.fleet.answer, desk.fleet.fault = silent_when_asked_again, watched
    assert outcomes(acting(desk)) == [("i-1", "failed")]
    desk.fleet.answer = None
    for _ in range(5):
        desk.round()

    assert desk.fleet.stops() == []


@pytest.mark.parametrize("verb", ["stop", "terminate", "tag", "start"])
def test_a_controller_that_is_suspended_within_a_call_and_lost_the_lead_sends_nothing(
    verb: str, tmp_path: Path
) -> None:
    """Another one has led since: removals, and every other change, of the former leader stay unsent."""
    path = tmp_path / "ledger.db"
    desk = a_desk(a_node("i-1"), rounds=0 if verb == "tag" else 10, ledger=Ledger.open(path), rules=_rules(verb))
    if verb == "start":
        desk.round()
        desk.rest(60.0)
    others: list[str] = []

    def another_leads(call: str, _: str) -> CloudError | None:
        if call == verb:
            with sqlite3.connect(path) as other:  # as on a file system whose locks do not hold
                other.execute("UPDATE head SET epoch = epoch + 1, leader = 'another'")
            other.close()
            others.append(call)
        return None

    desk.fleet.fault = another_leads
    before = list(desk.fleet.calls)
    if verb == "start":
        desk.rules = replace(desk.rules, schedule={"always": Window(min_nodes=1)})
    with pytest.raises(LeadLostError, match="another controller leads now"):
        step(desk.parts)

    assert others, "nobody took the lead"
    assert desk.fleet.calls == before
    desk.ledger.close()


def test_a_lead_that_was_lost_and_won_again_is_another_lead() -> None:
    """A permit is of one epoch: what was decided before somebody else led is not sent afterwards."""
    desk = a_desk()

    def lost_and_won(call: str, _: str) -> CloudError | None:
        if call == "stop":
            desk.ledger.store._take()
        return None

    desk.fleet.fault = lost_and_won

    assert outcomes(desk.round()) == [("i-1", "cancelled")]
    assert desk.fleet.stops() == []


def test_a_member_s_protection_is_taken_away_only_after_the_last_word() -> None:
    """Its group ends what it may: so its agent is asked, and the word must be young, as before a stop."""
    rules = replace(Desk().rules, idle=replace(Desk().rules.idle, action="terminate"))
    member = a_node("i-1", State.BUSY, group="g-1")
    for happens, status in (("work", "cancelled"), ("delay", "cancelled"), ("nothing", "accepted")):
        desk = Desk(limits=LIMITS, rules=rules)
        desk.fleet.groups_["g-1"] = replace(a_group(), node_ids=("i-1",))
        desk.fleet.put(member)
        desk.round()  # gpuwatch protects it while it works
        desk.fleet.show("i-1", State.IDLE, 0.0)
        while desk.ledger.view(desk.clock.now()).notice("i-1") is None:
            desk.round()
        for _ in range(9):
            desk.round()
        assert desk.fleet.nodes_["i-1"].scale_in_protected
        asked: list[str] = []

        def answer(node: Node, asked: list[str] = asked, happens: str = happens, desk: Desk = desk) -> NodeReport:
            asked.append(node.id)
            if len(asked) > 1 and happens == "work":
                desk.fleet.show("i-1", State.BUSY)
            return desk.fleet.nodes_["i-1"].signal

        def slow(call: str, _: str, happens: str = happens, desk: Desk = desk) -> CloudError | None:
            if call == "protect" and happens == "delay":
                desk.clock.advance(6.0)
            return None

        desk.fleet.answer, desk.fleet.fault = answer, slow
        done = step(desk.parts)
        lifted = [(act.review.step.verb, act.outcome.status) for act in done.acts if act.review.step.verb != "notice"]

        assert lifted == [(Verb.UNPROTECT, status)], happens
        assert desk.fleet.nodes_["i-1"].scale_in_protected is (happens != "nothing")


@settings(max_examples=examples(60), deadline=None)
@given(
    st.dictionaries(
        st.integers(1, 90), st.tuples(st.sampled_from(sorted(PAUSES)), st.floats(0.1, 8.0)), min_size=1, max_size=4
    ),
    st.sampled_from([1.0, 3.0, BOUND]),
)
def test_no_removal_leaves_on_an_older_word_than_the_bound(pauses: dict[int, tuple[str, float]], bound: float) -> None:
    """Pauses of any kind and length, at any boundaries: from the question to the effect there is at most the bound."""
    desk = copied(BASE)
    desk.limits = replace(LIMITS, max_confirmation_age=bound)
    asked: dict[str, float] = {}
    ages: list[float] = []
    slept = [0.0]  # by no clock but the wall's

    def answer(node: Node) -> NodeReport:
        asked[node.id] = desk.clock.uptime() + slept[0]
        return desk.fleet.nodes_[node.id].signal

    def pause(number: int, _: str) -> None:
        how, seconds = pauses.get(number, ("", 0.0))
        if how:
            slept[0] += seconds if PAUSES[how] is ManualClock.jump else 0.0
            PAUSES[how](desk.clock, seconds)

    desk.fleet.answer = answer
    desk.fleet.watch_stop = lambda node_id, _: ages.append(desk.clock.uptime() + slept[0] - asked[node_id])
    delayed(desk, pause)

    assert all(age <= bound for age in ages), ages


def _rules(verb: str) -> object:
    rules = Desk().rules
    return replace(rules, idle=replace(rules.idle, action="terminate")) if verb == "terminate" else rules


BASE = a_desk()
