"""What a person orders is obeyed until the moment at which a call leaves: a pause, a snooze, at any boundary."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from gpuwatch.clouds import CloudError
from gpuwatch.controller.round import Round, step
from gpuwatch.guard import Limits
from gpuwatch.ledger import LedgerError
from gpuwatch.model.decision import LedgerView
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import Desk, a_node
from tests.support.crash_points import a_mortal, copied


def a_desk(*, rounds: int = 10) -> Desk:
    """A controller whose next round stops i-1."""
    desk = Desk(limits=Limits(max_stops_per_hour_ratio=1.0))
    desk.fleet.put(a_node("i-1"))
    for _ in range(rounds):
        desk.round()
    assert desk.fleet.stops() == []
    return desk


def outcomes(done: Round) -> list[tuple[str, str]]:
    """What became of each step."""
    return [(act.review.step.node_id, act.outcome.status) for act in done.acts]


@dataclass(slots=True)
class Happens:
    """Counts the boundaries of a round, and lets something happen at some of them."""

    at: Callable[[int], None]
    passed: list[str] = field(default_factory=list)

    def die(self, where: str) -> None:
        """One boundary."""
        self.passed.append(where)
        self.at(len(self.passed))


def disturbed(desk: Desk, at: Callable[[int], None]) -> list[str]:
    """A round with that at its boundaries; gives their names."""
    happens = Happens(at)
    step(a_mortal(desk, happens))  # type: ignore[arg-type]  # a fate that kills nobody
    return happens.passed


ORDERS: dict[str, Callable[[Desk], object]] = {
    "a pause": lambda desk: desk.ledger.pause(None, "ann", "an incident", desk.clock.now()),
    "a pause of its pool": lambda desk: desk.ledger.pause("default", "ann", "", desk.clock.now()),
    "a snooze": lambda desk: desk.ledger.snooze(
        "i-1", "ann", "", desk.clock.now(), desk.clock.now() + timedelta(days=1)
    ),
}


def ordering(desk: Desk, at: str, order: str) -> Callable[[str, str], CloudError | None]:
    """The order is given within that call to the cloud, before it leaves."""

    def given(call: str, _: str) -> CloudError | None:
        if call == at:
            ORDERS[order](desk)
        return None

    return given


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_that_is_on_record_when_the_call_would_leave_is_obeyed(order: str) -> None:
    """At each boundary of the round, and in the cloud's client, a person gives the order: nothing leaves after it."""
    base = a_desk()
    boundaries = disturbed(copied(base), lambda _: None)
    asked_last = max(
        at for at, name in enumerate(boundaries[: boundaries.index("after stop")]) if name == "before orders"
    )
    for number in range(1, asked_last + 2):
        desk = copied(base)

        def given(reached: int, number: int = number, desk: Desk = desk) -> None:
            if reached == number:
                ORDERS[order](desk)

        disturbed(desk, given)

        assert desk.fleet.stops() == [], f"stopped after {order} at {boundaries[number - 1]} ({number})"

    desk = copied(base)
    desk.fleet.fault = ordering(desk, "stop", order)
    done = desk.round()

    assert outcomes(done) == [("i-1", "cancelled")]
    assert "not sent: ann has" in done.acts[0].outcome.detail
    assert desk.fleet.stops() == []


@pytest.mark.parametrize("verb", ["tag", "start"])
def test_a_pause_holds_up_every_other_change_as_well(verb: str) -> None:
    """A notice and a start that are about to leave stay unsent, too."""
    desk = a_desk(rounds=0 if verb == "tag" else 10)
    if verb == "start":
        desk.round()
        desk.rest(60.0)
        desk.rules = replace(desk.rules, schedule={"always": Window(min_nodes=1)})
    before = list(desk.fleet.calls)
    desk.fleet.fault = ordering(desk, verb, "a pause")
    done = step(desk.parts)

    assert [status for _, status in outcomes(done)] == ["cancelled"]
    assert desk.fleet.calls == before


def _fail_after(desk: Desk, answers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the ledger says so often what was ordered, and then no more."""
    says, left = desk.ledger.orders, iter(range(answers))

    def locked(now: datetime) -> LedgerView:
        if next(left, None) is None:
            raise LedgerError("the ledger failed: database is locked")
        return says(now)

    monkeypatch.setattr(desk.ledger, "orders", locked)


def test_nothing_leaves_while_the_ledger_cannot_say_what_was_ordered(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails at that very moment: a clear refusal, and no error that a cloud's client could take for its own."""
    desk = a_desk()
    _fail_after(desk, 1, monkeypatch)  # it answers the last question
    done = desk.round()

    assert outcomes(done) == [("i-1", "cancelled")]
    assert "not sent: the ledger cannot say" in done.acts[0].outcome.detail
    assert "database is locked" in done.acts[0].outcome.detail
    assert desk.fleet.stops() == []


def test_a_ledger_that_fails_at_the_last_question_ends_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what was ordered, and nothing leaves."""
    desk = a_desk()
    _fail_after(desk, 0, monkeypatch)
    with pytest.raises(LedgerError, match="database is locked"):
        desk.round()

    assert desk.fleet.stops() == []


def test_a_pause_of_another_pool_and_a_snooze_of_another_machine_hold_up_nothing() -> None:
    """Orders are for what they name."""
    desk = a_desk()

    def elsewhere(call: str, _: str) -> None:
        if call == "stop":
            now = desk.clock.now()
            desk.ledger.pause("other", "ann", "", now)
            desk.ledger.snooze("i-2", "ann", "", now, now + timedelta(days=1))

    desk.fleet.fault = elsewhere

    assert outcomes(desk.round()) == [("i-1", "accepted")]
