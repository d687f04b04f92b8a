"""An error in one step of a round is that step's alone: the round goes on, and the step has failed."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

import pytest

from gpuwatch.controller.round import Round, step
from gpuwatch.ledger import LeadLostError, Ledger, LedgerError, LedgerValueError
from gpuwatch.model.decision import Intent, OpenIntent, Outcome, Reason, Status, Verb
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from tests.support.builders.desk import a_desk, ledger_statuses
from tests.support.builders.fleet import FakeFleet, a_node

SOON = PoolRules(warm_up=0.0, idle=IdleRules(timeout=300.0, grace_period=120.0))


class Clumsy(FakeFleet):
    """An adapter with a mistake that one machine brings to light: before its call leaves, or after it."""

    sent = False

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Fail for i-1."""
        if node_id == "i-1" and not self.sent:
            raise OverflowError("can't serialize ints")
        super().tag(node_id, tags, key)
        if node_id == "i-1":
            raise KeyError("no such part\x00")


@pytest.mark.parametrize(("sent", "status"), [(False, Status.FAILED), (True, Status.UNAVAILABLE)])
def test_an_error_of_an_adapter_is_its_steps_alone(
    *, sent: bool, status: Status, caplog: pytest.LogCaptureFixture
) -> None:
    """The other machine has its notice; what may have left has no answer, and what has not left has failed."""
    desk = a_desk(rules=SOON)
    clumsy = Clumsy(clock=desk.clock)
    clumsy.sent, desk.fleet = sent, clumsy
    for name in ("i-1", "i-2"):
        desk.fleet.put(a_node(name))
    with caplog.at_level(logging.ERROR):
        done = desk.round()

    assert {act.review.step.node_id: act.outcome.status for act in done.acts} == {"i-1": status, "i-2": Status.SETTLED}
    assert ledger_statuses(desk, "i-1") == [["notice", status]]
    assert "notice of i-1 failed" in caplog.text
    assert desk.ledger.view(desk.clock.now()).notice("i-2") is not None


class Choosy(Ledger):
    """A ledger that does not take the values of one machine, or has lost its lead there."""

    error: LedgerError = LedgerValueError("PostgreSQL text fields cannot contain NUL (0x00)")

    def intend(  # noqa: PLR0913  as the real one's
        self,
        verb: Verb,
        node_id: str,
        pool: str,
        at: datetime,
        reason: Reason,
        round_id: int,
        *,
        arguments: Mapping[str, str] | None = None,
        owner: str | None = None,
        usd_per_hour: Decimal | None = None,
    ) -> Intent:
        """Refuse that of i-1."""
        if node_id == "i-1":
            raise self.error
        return super().intend(
            verb, node_id, pool, at, reason, round_id, arguments=arguments, owner=owner, usd_per_hour=usd_per_hour
        )


def a_round(error: LedgerError = Choosy.error) -> tuple[Ledger, Round]:
    """One round on such a ledger."""
    ledger = Choosy.in_memory()
    ledger.error = error
    desk = a_desk(a_node("i-1"), a_node("i-2"), rules=SOON, ledger=ledger)
    return ledger, desk.round()


def test_a_value_that_the_ledger_refuses_fails_its_step_alone() -> None:
    """It is on record as allowed and not reached, with why; the other machine has its notice."""
    ledger, done = a_round()
    view = ledger.view(done.observation.now)

    assert [(act.review.step.node_id, act.outcome.status) for act in done.acts] == [
        ("i-1", Status.FAILED),
        ("i-2", Status.SETTLED),
    ]
    assert view.notice("i-2") is not None
    assert [(each.verb, each.targets) for each in view.unreached] == [(Verb.NOTICE, ("i-1",))]
    assert "cannot contain NUL" in view.unreached[0].why


@pytest.mark.parametrize("error", [LedgerError("the server closed the connection"), LeadLostError("another leads")])
def test_a_ledger_that_may_not_be_written_ends_the_round(error: LedgerError) -> None:
    """Without it nothing may be done to anybody."""
    with pytest.raises(LedgerError, match=str(error)):
        a_round(error)


def test_an_error_in_the_look_at_one_open_intent_ends_no_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """What became of the other one is found out."""
    desk = a_desk(a_node("i-1"), a_node("i-2"), rules=SOON)
    desk.fleet.lag = lambda: 30.0
    for _ in range(3):
        desk.round()
    assert len(desk.ledger.view(desk.clock.now()).open_intents) == 2
    shown = desk.fleet.node

    def node(node_id: str) -> object:
        if node_id == "i-1":
            raise OverflowError("a date that no calendar has")
        return shown(node_id)

    monkeypatch.setattr(FakeFleet, "node", lambda _, node_id: node(node_id))
    settled = step(replace(desk.parts)).settled

    assert [each.status for each in settled] == [Status.SETTLED]
    left: tuple[OpenIntent, ...] = desk.ledger.view(desk.clock.now()).open_intents
    assert [entry.intent.node_id for entry in left] == ["i-1"]
    outcomes: tuple[Outcome, ...] = desk.ledger.history("i-2")[0].outcomes
    assert outcomes[-1].status is Status.SETTLED
