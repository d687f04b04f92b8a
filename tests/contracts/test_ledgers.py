"""What every ledger does, in SQLite and in PostgreSQL."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from gpuwatch.ledger import Ledger, LedgerError, LedgerSettings
from gpuwatch.model.decision import (
    ADDITIONS,
    LAUNCHED_AT,
    REMOVAL_STEPS,
    Decision,
    Intent,
    Proposal,
    Reason,
    Status,
    Step,
    Verb,
)
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from gpuwatch.model.verbs import RECORDS, REDUCTIONS, SCHEDULER_CHANGES, WORK_ENDINGS
from tests.support.builders.fleet import NOW, a_node, an_observation
from tests.support.real.postgresql import Place, postgresql

REASON = Reason(code="candidate", sentence="It has been idle for 2h.")
HOUR = timedelta(hours=1)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.component("pg_ctl"))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A fresh place for a ledger, once of each kind."""
    path = str(tmp_path / "ledger.db")
    place = Place(
        LedgerSettings(path=path) if request.param == "sqlite" else LedgerSettings(url=postgresql().database())
    )
    yield place
    place.close()


@pytest.fixture
def ledger(place: Place) -> Ledger:
    """A controller's ledger, which leads."""
    return place.open()


def an_intent(ledger: Ledger, verb: Verb = Verb.STOP, node_id: str = "i-1", status: Status | None = None) -> Intent:
    """One intent of a recorded round, settled where a status is given."""
    down = replace(a_node(node_id), state=NodeState.STOPPED)  # a round that sees it run forgets that it was stopped
    intent = ledger.intend(verb, node_id, "default", NOW, REASON, ledger.record_round(an_observation(down)))
    if status is not None:
        ledger.settle(intent, status, "that is how it went", NOW)
    return intent


def stopped(ledger: Ledger) -> list[str]:
    """The nodes that gpuwatch stopped and that nobody started since."""
    return [each.node_id for each in ledger.view(NOW).stopped]


def test_an_intent_keeps_all_that_a_second_attempt_or_a_limit_needs(ledger: Ledger) -> None:
    """Arguments, owner and price come back as they were, to the last digit."""
    round_id = ledger.record_round(an_observation())
    intent = ledger.intend(
        Verb.LAUNCH,
        "new:training:1",
        "training",
        NOW,
        REASON,
        round_id,
        arguments={"template": "lt-1", "ärger": "größe"},
        owner="Zoë",
        usd_per_hour=Decimal("98.3200"),
    )
    (entry,) = ledger.view(NOW).open_intents
    ledger.settle(intent, Status.SETTLED, "it runs", NOW)
    (done,) = ledger.view(NOW).recent

    assert entry.intent == intent
    assert (done.arguments, done.owner, str(done.usd_per_hour)) == (intent.arguments, "Zoë", "98.3200")
    assert done.detail == "it runs"


def test_all_that_changes_machines_weighs_and_of_the_rest_what_failed(ledger: Ledger) -> None:
    """Limits and cooldowns count removals, ended protections and additions, however they ended."""
    for verb in sorted(set(Verb) - {Verb.HOLD}):
        an_intent(ledger, verb, f"i-{verb}", Status.SETTLED)
        an_intent(ledger, verb, f"j-{verb}", Status.FAILED)
    weighs = {(done.verb, done.status) for done in ledger.view(NOW).recent}

    changes = REMOVAL_STEPS | ADDITIONS | REDUCTIONS | SCHEDULER_CHANGES | WORK_ENDINGS | RECORDS
    assert weighs == {(verb, Status.SETTLED) for verb in changes} | {
        (verb, Status.FAILED) for verb in set(Verb) - {Verb.HOLD}
    }


def test_what_was_removed_in_the_last_weeks_is_there_as_far_as_it_matters(ledger: Ledger) -> None:
    """Stops of a day, older ones that followed a disagreement, and a target's own start after that; oldest first."""
    weeks, day = NOW - timedelta(days=20), NOW - timedelta(hours=20)
    about = {"undone_times": "1", "undone_until": NOW.isoformat()}

    def ended(verb: Verb, node_id: str, at: datetime, **arguments: str) -> str:
        made = ledger.intend(verb, node_id, "default", at, REASON, 1, arguments=arguments)
        ledger.settle(made, Status.ACCEPTED, "the cloud accepted it", at)
        ledger.settle(made, Status.SETTLED, "the cloud shows it", at)
        return made.key

    ledger.record_round(an_observation(a_node("i-1")))
    ended(Verb.STOP, "i-1", NOW - timedelta(days=40), **about)
    kept = [ended(Verb.STOP, "i-1", weeks, **about), ended(Verb.START, "i-1", weeks)]
    ended(Verb.STOP, "i-2", weeks)
    ended(Verb.START, "i-2", weeks)
    kept += [ended(Verb.LEFT_ALONE, "i-1", weeks), ended(Verb.STOP, "i-2", day)]
    ended(Verb.NOTICE, "i-2", day)
    ledger.resume("default", "somebody", weeks)

    view = ledger.removals(NOW)
    assert [done.key for done in view.recent] == kept
    assert view.recent[0].reached_at == weeks
    assert view.resume_orders == (("default", weeks),)


def test_a_stopped_node_is_known_as_such_until_it_is_proved_to_be_started_or_gone(ledger: Ledger) -> None:
    """A settled START or TERMINATE ends it, and so does a round with its agent's answer, or with a later launch time.

    A list that lacks it, or shows it as it was before its stop, is no proof.
    """

    def sees(*nodes: Node) -> None:
        ledger.record_round(an_observation(*nodes))

    an_intent(ledger, Verb.STOP, "i-1", Status.SETTLED)
    assert stopped(ledger) == ["i-1"]
    sees(replace(a_node("i-1"), state=NodeState.STOPPED))
    assert stopped(ledger) == ["i-1"]
    sees(a_node("i-1"))
    assert stopped(ledger) == []
    for verb in (Verb.START, Verb.TERMINATE):
        an_intent(ledger, Verb.STOP, "i-1", Status.SETTLED)
        an_intent(ledger, verb, "i-1", Status.SETTLED)
        assert stopped(ledger) == []
    silent = replace(a_node("i-1"), signal=NodeReport(failure="no answer"))
    for seen in ((), (silent,), (replace(silent, state=NodeState.TERMINATING),)):
        an_intent(ledger, Verb.STOP, "i-1", Status.SETTLED)
        sees(*seen)
        assert stopped(ledger) == ["i-1"], seen
    for launched_at in (None, NOW + timedelta(minutes=1)):
        an_intent(ledger, Verb.STOP, "i-1", Status.SETTLED)
        sees(replace(silent, launched_at=launched_at))
        assert stopped(ledger) == [], launched_at
    an_intent(ledger, Verb.STOP, "i-1", Status.SETTLED)
    ledger.forget_stop("i-1")
    assert stopped(ledger) == []
    before = {LAUNCHED_AT: (NOW + timedelta(minutes=5)).isoformat()}  # the cloud's clock is ahead of ours
    intent = ledger.intend(Verb.STOP, "i-1", "default", NOW, REASON, 1, arguments=before)
    ledger.settle(intent, Status.SETTLED, "done", NOW)
    sees(replace(silent, launched_at=NOW + timedelta(minutes=5)))
    assert stopped(ledger) == ["i-1"]
    sees(replace(silent, launched_at=NOW + timedelta(minutes=6)))
    assert stopped(ledger) == []


@pytest.mark.parametrize("status", sorted(set(Status) - {Status.SETTLED}))
def test_a_stop_that_did_not_settle_stops_nothing(ledger: Ledger, status: Status) -> None:
    """Only what the cloud has shown counts."""
    an_intent(ledger, Verb.STOP, "i-1", status)

    assert stopped(ledger) == []


def test_wishes_are_kept_for_the_stabilisation_window(ledger: Ledger) -> None:
    """Each proposal's unsmoothed want, as far back as asked."""
    wish = Proposal(policy="scaling", pool="default", reason=REASON, desired_nodes=4, raw_desired_nodes=3)
    silent = Proposal(policy="idle", pool="default", reason=REASON)
    ledger.record_round(an_observation(now=NOW - HOUR / 2), (wish, silent))
    ledger.record_round(an_observation(now=NOW), (replace(wish, raw_desired_nodes=0),))

    assert [(each.want, each.policy) for each in ledger.view(NOW).wishes] == [(3, "scaling"), (0, "scaling")]
    assert [each.want for each in ledger.view(NOW, recent=HOUR / 4).wishes] == [0]


def test_pauses_hold_until_their_time_or_until_they_are_taken_back(ledger: Ledger) -> None:
    """A pause of all is not ended by resuming one pool; resuming all ends every one."""

    def held() -> list[str | None]:
        return [each.pool for each in ledger.view(NOW).pauses]

    ledger.pause("a", "ann@host", "move", NOW - HOUR, NOW + HOUR)
    ledger.pause(None, "bob@host", "audit", NOW - HOUR)
    ledger.pause("a", "ann@host", "over", NOW - HOUR, NOW)
    assert held() == ["a", None]
    assert [each.pool for each in ledger.resume("a", "ann@host", NOW)] == [None]
    assert held() == [None]
    assert ledger.resume(None, "ann@host", NOW) == ()
    assert held() == []
    assert set(ledger.view(NOW).resumed) == {("a", NOW), (None, NOW)}
    assert ledger.view(NOW + HOUR).resumed == ()
    assert ledger.audit().broken is None


def test_orders_are_given_beside_the_running_controller(place: Place, ledger: Ledger) -> None:
    """A person's connection writes pauses and nothing else, and the chain goes on behind them."""
    beside = place.beside(read_only=False)
    an_intent(ledger)
    beside.pause(None, "ann@host", "maintenance", NOW)
    intent = an_intent(ledger, node_id="i-2")

    assert [pause.who for pause in ledger.view(NOW).pauses] == ["ann@host"]
    with pytest.raises(LedgerError, match="does not lead"):
        beside.settle(intent, Status.SETTLED, "by hand", NOW)
    assert ledger.audit().broken is None


def test_a_reader_sees_all_and_changes_nothing(place: Place, ledger: Ledger) -> None:
    """Even a pause is refused."""
    an_intent(ledger)
    reader = place.beside()

    assert len(reader.view(NOW).open_intents) == 1
    with pytest.raises(LedgerError, match=r"read-?only"):
        reader.pause(None, "ann@host", "maintenance", NOW)


def test_a_round_comes_back_whole(ledger: Ledger) -> None:
    """Observation, proposals, decisions and reviews, of more nodes than one piece holds."""
    nodes = tuple(a_node(f"i-{number}") for number in range(250))
    step = Step(node_id="i-1", verb=Verb.GROW, reason=REASON, change="Less load.", arguments={"size": "4"})
    proposal = Proposal(policy="idle", pool="default", reason=REASON, desired_nodes=0, steps=(step,))
    decision = Decision(pool="default", steps=(step,), clamps=("The floor is 1.",), target=1)
    first = ledger.record_round(an_observation(*nodes, now=NOW - HOUR), (proposal,), (decision,))
    second = ledger.record_round(an_observation(now=NOW))
    found = ledger.round(first)

    assert (found.observation, found.proposals, found.decisions, found.reviews) == (
        an_observation(*nodes, now=NOW - HOUR),
        (proposal,),
        (decision,),
        (),
    )
    assert ledger.round_at(NOW - HOUR / 2) == found
    assert [(line.id, line.nodes, line.steps, line.intents, line.whole) for line in ledger.rounds()] == [
        (second, 0, 0, 0, True),
        (first, 250, 1, 0, True),
    ]
    with pytest.raises(LedgerError, match="no round until"):
        ledger.round_at(NOW - 2 * HOUR)
    with pytest.raises(LedgerError, match="round 99 is not in this ledger"):
        ledger.round(99)


def test_old_rounds_are_thinned_and_the_chain_stays_whole(ledger: Ledger) -> None:
    """Past two days quiet rounds go but for one an hour, past 400 days all go; that they took place stays."""
    quiet = [ledger.record_round(an_observation(now=NOW + timedelta(minutes=15 * n))) for n in range(8)]
    acted = ledger.record_round(an_observation(now=NOW + timedelta(minutes=116)))
    ledger.intend(Verb.STOP, "i-1", "default", NOW, REASON, acted)

    def whole() -> list[int]:
        return [line.id for line in reversed(ledger.rounds(100)) if line.whole]

    assert ledger.compact(NOW + timedelta(days=2)) == 0
    assert ledger.compact(NOW + timedelta(days=2, minutes=40)) == 2
    assert whole() == [quiet[0], *quiet[3:], acted]
    assert ledger.compact(NOW + timedelta(days=3)) == 4
    assert whole() == [quiet[0], quiet[4], acted]
    with pytest.raises(LedgerError, match="no longer kept whole"):
        ledger.round(quiet[1])
    assert ledger.round_at(NOW + HOUR / 2).id == quiet[0]
    assert ledger.compact(NOW + timedelta(days=401)) == 3
    assert (whole(), len(ledger.rounds(100))) == ([], 9)
    assert ledger.audit().broken is None


def test_the_next_controller_finds_everything(place: Place, ledger: Ledger) -> None:
    """Closed and opened again: the same view, and no key is given twice."""
    intent = an_intent(ledger)
    an_intent(ledger, Verb.NOTICE, "i-2", Status.SETTLED)
    ledger.pause("a", "ann@host", "move", NOW)
    before = ledger.view(NOW)
    place.close()
    later = place.open()

    assert later.view(NOW) == before
    assert an_intent(later).key != intent.key
    assert later.audit().broken is None
