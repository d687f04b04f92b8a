"""One record that nobody can read costs its own machine a notice or a price, and no other machine its round."""

import json
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuwatch.guard import Limits
from gpuwatch.ledger import Ledger
from gpuwatch.ledger.records import read_price, read_reason, read_sentence
from gpuwatch.ledger.tables import INTENTS
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Status, Verb
from tests.support.builders.fleet import NOW, Desk, a_node
from tests.support.builders.sick_parts import others
from tests.support.nightly import examples

ODD = "i-odd"
CUT = ("", '{"action":"st', "[]", "null", '{"action":5}', "\x00", '{"grace_seconds":"NaN","action":"stop"}')
TIMES = (
    '{"action":"stop","grace_seconds":"nan","stop_at":"2026-03-02T12:10:00+00:00","approval":"false","heard":"false"}',
    '{"action":"stop","grace_seconds":"600","stop_at":"2026-03-02T12:10:00","approval":"false","heard":"false"}',
    '{"launched_at":"yesterday"}',
    '{"launched_at":"2026-03-02T12:00:00"}',
)
COLUMNS = {
    "arguments": (*CUT, *TIMES),
    "reason": (*CUT, '{"code":"candidate"}'),
    "usd_per_hour": ("NaN", "sNaN", "Infinity", "", "a lot"),
}


def a_desk() -> Desk:
    """Three machines that are idle and one that works; removals take their time, and prices count."""
    desk = Desk(limits=Limits(max_stops_per_hour_ratio=1.0, mass_idleness_nodes=99))
    for name in (ODD, "i-1", "i-2"):
        desk.fleet.put(a_node(name))
    desk.fleet.put(a_node("i-busy", State.BUSY, 60.0))
    desk.fleet.lag = lambda: 90.0
    return desk


def spoil(ledger: Ledger, column: str, by: str) -> None:
    """Every record of the odd machine."""
    with ledger.store.writing() as writer:
        writer.db.execute(INTENTS.update().where(INTENTS.c.node_id == ODD).values({column: by}))


def lived(spoilt_after: int, change: Callable[[Ledger], None] | None) -> tuple[list[object], Desk]:
    """What is decided of the others, round by round; after so many rounds the odd machine's records are changed."""
    desk, told = a_desk(), list[object]()
    for number in range(16):
        if number == spoilt_after and change is not None:
            change(desk.ledger)
        told.append(others(desk.round(), lambda node_id: node_id != ODD))
    return told, desk


WITHOUT = lived(0, None)[0]


@settings(max_examples=examples(15), deadline=None)
@example(spoilt=("arguments", TIMES[2]), after=11)
@example(spoilt=("arguments", TIMES[3]), after=11)
@given(
    spoilt=st.sampled_from([(column, by) for column, each in COLUMNS.items() for by in each]),
    after=st.sampled_from([1, 5, 11, 12, 13]),
)
def test_a_record_that_cannot_be_read_changes_nothing_about_other_machines(spoilt: tuple[str, str], after: int) -> None:
    """A notice in force, a stop under way and one that is done; cut, of another shape, or a price that is none."""
    told, desk = lived(after, lambda ledger: spoil(ledger, *spoilt))

    assert told == WITHOUT
    assert State.BUSY not in desk.fleet.stopped_while


@pytest.mark.parametrize("written", [None, *COLUMNS["usd_per_hour"]])
def test_a_price_that_is_no_number_is_not_known(written: str | None) -> None:
    """Limits in money then refuse; a comparison with it would end the round."""
    assert read_price(written, "k") is None


@pytest.mark.parametrize("written", [*CUT, *TIMES[:2]])
def test_a_notice_that_cannot_be_read_is_given_anew_with_its_whole_grace(written: str) -> None:
    """Nobody knows what it promised."""
    _, desk = lived(5, lambda ledger: spoil(ledger, "arguments", written))
    done = [
        (entry.intent.verb, (entry.intent.at - NOW).total_seconds()) for entry in reversed(desk.ledger.history(ODD))
    ]

    assert [verb for verb, _ in done[:3]] == [Verb.NOTICE, Verb.WITHDRAW, Verb.NOTICE]
    assert all(verb is not Verb.STOP or at - done[2][1] >= 600.0 for verb, at in done)


def test_a_stop_whose_record_cannot_be_read_is_finished_by_its_clouds_word() -> None:
    """It stays open until its cloud shows it done, and it is not asked for again."""
    _, desk = lived(11, lambda ledger: spoil(ledger, "arguments", '{"cut'))
    (stop,) = [entry for entry in desk.ledger.history(ODD) if entry.intent.verb is Verb.STOP]

    assert stop.outcomes[-1].status is Status.SETTLED
    assert desk.fleet.stops().count(ODD) == 1


@settings(deadline=None, max_examples=examples(50))
@given(st.one_of(st.text(), st.recursive(st.text(), lambda each: st.dictionaries(st.text(), each)).map(json.dumps)))
@example('{"code":"idle","sentence":"It is idle.","evidence":[5]}')
@example('{"code":"idle","sentence":"It is idle.","evidence":[{"name":"people"')
@example('{"code":"idle","sentence":"It is idle."}')
def test_the_sentence_of_a_reason_is_that_of_the_whole_reason(written: str) -> None:
    """Rounds read it without the evidence, whatever stands on record."""
    assert read_sentence(written) == read_reason(written).sentence
