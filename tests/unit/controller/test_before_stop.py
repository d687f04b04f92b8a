"""Commands on a machine before its stop: they begin once all others let it go, and the last question comes after."""

from dataclasses import replace

import pytest

from gpuwatch.controller.round import step
from gpuwatch.guard import Limits
from gpuwatch.model.activity import BeforeStop, Preparing, State
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import Node, NodeReport
from gpuwatch.model.stops import StopAnswer, read_answer, with_before
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from tests.support.builders.desk import a_desk
from tests.support.builders.fleet import NOW, Desk, a_node, a_verdict

SOON = PoolRules(warm_up=0.0, idle=IdleRules(timeout=300.0, grace_period=120.0))
FREE = Limits(max_stops_per_hour_ratio=1.0, max_stops_per_hour=99, mass_idleness_nodes=99)
WELL = "alice's command before its stop ended well after 40s"


class Host:
    """A machine whose agent says so of its commands; what the controller had begun is in `begun`."""

    def __init__(self, before: BeforeStop | None, state: State = State.IDLE) -> None:
        self.before, self.state, self.begun = before, state, list[tuple[str, Verb]]()
        self.desk: Desk = a_desk(a_node("i-1", held=0.0), rules=SOON, limits=FREE)
        self.desk.fleet.answer = self._answer

    def _answer(self, node: Node) -> NodeReport:
        at = self.desk.clock.now()
        verdict = a_verdict(node.id, self.state, (at - NOW).total_seconds(), age=0.5, at=at)
        return NodeReport(verdict=replace(verdict, before_stop=self.before))

    def _begin(self, node: Node, verb: Verb) -> str:
        self.begun.append((node.id, verb))
        self.before = BeforeStop(state=Preparing.RUNNING, sentence="The commands before its stop run.")
        return self.before.sentence

    def rounds(self, count: int) -> None:
        """So many, a minute apart."""
        parts = replace(self.desk.parts, begin_before_stop=self._begin)
        for _ in range(count):
            step(parts)
            self.desk.rest(60.0)

    @property
    def stops(self) -> list[tuple[Status, str]]:
        """How each attempt to stop it ended."""
        history = self.desk.ledger.history("i-1", limit=500)
        ended = [entry.outcomes[0] for entry in history if entry.intent.verb is Verb.STOP]
        return [(each.status, each.detail) for each in reversed(ended)]


def test_a_machine_goes_after_its_commands_and_the_ledger_says_what_they_did() -> None:
    """They begin when the grace is over, run while the controller waits, and stand beside the cloud's answer."""
    host = Host(BeforeStop(state=Preparing.READY, sentence="not yet"))
    host.rounds(10)
    assert host.begun == [("i-1", Verb.STOP)]
    assert host.desk.fleet.stops() == []
    assert host.stops[0] == (Status.CANCELLED, "vetoed at the last moment: The commands before its stop run.")
    host.before = BeforeStop(state=Preparing.DONE, sentence=f"{WELL}.")
    host.rounds(15)

    assert host.desk.fleet.stops() == ["i-1"]
    assert host.stops[-1][1].endswith(f"; before it: {WELL}")
    (event,) = [each for each in host.desk.ledger.messages.events(NOW) if each.verb is Verb.STOP]
    assert event.before == WELL
    assert host.desk.parts.memory.before_stops == {}


@pytest.mark.parametrize("state", [Preparing.RUNNING, Preparing.REFUSED])
def test_a_command_that_runs_or_refuses_is_a_veto_with_its_sentence(state: Preparing) -> None:
    """For as long as it says so; nothing is begun a second time."""
    host = Host(BeforeStop(state=state, sentence="alice's command says not now: uploading."))
    host.rounds(40)

    assert host.desk.fleet.stops() == []
    assert host.begun == []
    assert {detail for _, detail in host.stops} == {
        "vetoed at the last moment: alice's command says not now: uploading."
    }


def test_nothing_is_begun_on_a_machine_that_may_not_go() -> None:
    """Whoever works on it again is not to be disturbed by a command that saves."""
    host = Host(BeforeStop(state=Preparing.READY, sentence="not yet"), State.BUSY)
    host.rounds(20)

    assert (host.begun, host.stops) == ([], [])


def test_an_agent_without_commands_is_asked_as_ever() -> None:
    """Also one of an earlier version, whose answers have no such word."""
    host = Host(None)
    host.rounds(12)

    assert host.desk.fleet.stops() == ["i-1"]
    assert "before it" not in host.stops[-1][1]


@pytest.mark.parametrize("ran", [True, False])
def test_what_a_cloud_answered_is_read_from_the_same_words(ran: bool) -> None:
    """Whose stop it was follows from them, whatever a command has said."""
    answered = StopAnswer(ran=ran, request="r-1") if ran else StopAnswer(ran=False)

    assert read_answer(with_before(answered.words, f"{WELL}; before it: nothing.")) == answered
    assert with_before(answered.words, None) == answered.words
