"""A node that somebody keeps is left alone for so long, up to its pool's cap; the ledger knows who and until when."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.clouds import CloudError
from gpuwatch.ledger import Ledger, LedgerError
from gpuwatch.model.decision import Verb
from tests.support.builders.fleet import NOW, RULES, Desk, a_node
from tests.support.nightly import examples

HOUR = timedelta(hours=1)


def kept(desk: Desk, for_: timedelta, node_id: str = "i-1") -> None:
    """Somebody keeps a node from now on."""
    now = desk.clock.now()
    desk.ledger.snooze(node_id, "ann@host", "a demo", now, now + for_)


def verbs(desk: Desk, rounds: int) -> list[Verb]:
    """What is done to machines in so many rounds of a minute."""
    return [act.review.step.verb for _ in range(rounds) for act in desk.round().acts]


def test_a_kept_node_gets_no_notice_until_the_keep_ends() -> None:
    """Then all goes its way again: a notice first, and the grace after it."""
    desk = Desk()
    desk.fleet.put(a_node())
    kept(desk, HOUR)
    before, after = verbs(desk, 60), verbs(desk, 12)

    assert before == []
    assert after == [Verb.NOTICE, Verb.STOP]


def test_a_node_that_has_had_its_notice_is_kept_too() -> None:
    """The notice is taken back; once the keep has ended, a new one comes first, with the whole grace after it."""
    desk = Desk()
    desk.fleet.put(a_node())
    first = verbs(desk, 1)
    kept(desk, HOUR)
    meanwhile, after = verbs(desk, 60), verbs(desk, 12)

    assert (first, meanwhile) == ([Verb.NOTICE], [Verb.WITHDRAW])
    assert after == [Verb.NOTICE, Verb.STOP]


@pytest.mark.parametrize("said", [{"protected": "tag gpuwatch:protect protects it"}, {"snoozed": "2026-03-03T12:00Z"}])
def test_a_tag_takes_a_notice_back_too(said: dict[str, str]) -> None:
    """What the machine's tags say of its stop must not stand beside what protects it."""
    desk = Desk()
    desk.fleet.put(a_node())
    first = verbs(desk, 1)
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], **said))  # type: ignore[arg-type]  # two texts
    [act] = desk.round().acts

    assert (first, act.review.step.verb) == ([Verb.NOTICE], Verb.WITHDRAW)
    assert next(iter(said.values())) in act.review.step.reason.sentence
    assert verbs(desk, 30) == []


def test_the_notice_of_a_termination_is_taken_back_too() -> None:
    """Of a node that gpuwatch stopped, and that somebody snoozes before its end."""
    desk = Desk(rules=replace(RULES, idle=replace(RULES.idle, terminate_after=86400.0)))
    desk.fleet.put(a_node())
    stopped = verbs(desk, 15)
    desk.rest(23.6 * 3600)
    noticed = verbs(desk, 15)
    kept(desk, HOUR)
    meanwhile, after = verbs(desk, 60), verbs(desk, 30)

    assert (stopped, noticed, meanwhile) == ([Verb.NOTICE, Verb.STOP], [Verb.NOTICE], [Verb.WITHDRAW])
    assert after == [Verb.NOTICE, Verb.TERMINATE]


def test_a_keep_said_while_the_stop_is_on_its_way_is_heard() -> None:
    """The last look before the call to the cloud asks the ledger again."""
    desk = Desk()
    desk.fleet.put(a_node())
    verbs(desk, 10)

    def said(call: str, _node: str) -> CloudError | None:
        if call == "node":
            kept(desk, HOUR)
        return None

    desk.fleet.fault = said
    [act] = desk.round().acts

    assert act.outcome.detail.startswith("vetoed at the last moment: ")
    assert "it is snoozed until 2026-03-02 13:10 UTC by ann@host" in act.outcome.detail
    assert desk.fleet.stops() == []


def test_a_keep_holds_up_to_the_pools_cap() -> None:
    """Idle for longer than max_snooze, a machine goes whatever is said of it."""
    desk = Desk(rules=replace(RULES, idle=replace(RULES.idle, max_snooze=3600.0)))
    desk.fleet.put(a_node(held=7200.0))
    kept(desk, 24 * HOUR)

    assert verbs(desk, 12) == [Verb.NOTICE, Verb.STOP]


def test_only_the_node_itself_is_kept() -> None:
    """Its neighbour goes."""
    desk = Desk()
    desk.fleet.put(a_node("i-1"))
    desk.fleet.put(a_node("i-2"))
    kept(desk, HOUR)
    verbs(desk, 12)

    assert desk.fleet.stops() == ["i-2"]


def test_the_newest_word_about_a_node_counts(tmp_path: Path) -> None:
    """Longer or shorter; one that ends at once takes back what was said before; it is all in the chain."""
    path = tmp_path / "ledger.db"
    ledger = Ledger.open(path)
    ledger.snooze("i-1", "ann", "", NOW, NOW + 3 * HOUR)
    ledger.snooze("i-1", "bob", "", NOW, NOW + HOUR)
    ledger.snooze("i-2", "bob", "", NOW, NOW + 3 * HOUR)
    ledger.snooze("i-2", "ann", "", NOW, NOW)
    ledger.close()
    again = Ledger.open(path, read_only=True)
    try:
        seen = {
            hours: [(each.node_id, each.who) for each in again.view(NOW + hours * HOUR).snoozes] for hours in (0, 2)
        }

        assert seen == {0: [("i-1", "bob")], 2: []}
        assert again.audit().broken is None
    finally:
        again.close()


def test_who_may_only_read_the_ledger_keeps_nothing(tmp_path: Path) -> None:
    """It is a record like any other."""
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    reader = Ledger.open(path, read_only=True)
    try:
        with pytest.raises(LedgerError):
            reader.snooze("i-1", "ann", "", NOW, NOW + HOUR)
    finally:
        reader.close()


@settings(max_examples=examples(12), deadline=None)
@given(said=st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["i-1", "i-2"]), st.integers(0, 30)), max_size=4))
def test_keeping_never_makes_a_removal_likelier(said: list[tuple[int, str, int]]) -> None:
    """P8: whoever is stopped in spite of some keeps is stopped without them as early."""

    def stopped(orders: list[tuple[int, str, int]]) -> dict[str, int]:
        desk = Desk()
        desk.fleet.put(a_node("i-1"))
        desk.fleet.put(a_node("i-2"))
        found: dict[str, int] = {}
        for minute in range(25):
            for at, node_id, minutes in orders:
                if at == minute:
                    kept(desk, timedelta(minutes=minutes), node_id)
            desk.round()
            for node_id in desk.fleet.stops():
                found.setdefault(node_id, minute)
        desk.ledger.close()
        return found

    free, held = stopped([]), stopped(said)

    assert all(free[node_id] <= minute for node_id, minute in held.items())
