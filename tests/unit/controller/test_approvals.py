"""Operators approve removals, where a pool asks for it: on the command line, beside the running controller."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.cli.main import commands
from gpuwatch.controller.operations import operator_name
from gpuwatch.guard import Limits, judge
from gpuwatch.ledger import Ledger, LedgerError, LedgerSettings
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Intent, Reason, Status, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.fleet import NOW, RULES, Desk, a_node, an_observation
from tests.support.builders.guard_cases import a_case
from tests.support.builders.guard_cases_notices import approved, notified
from tests.support.nightly import examples
from tests.support.real.postgresql import Place, postgresql

REASON = Reason(code="candidate", sentence="It has been idle for 2h.")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.component("pg_ctl"))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Where a ledger may be."""
    settings = LedgerSettings(path=str(tmp_path / "ledger.db"))
    place = Place(settings if request.param == "sqlite" else LedgerSettings(url=postgresql().database()))
    yield place
    place.close()


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """A running controller's ledger, to which a configuration points whose pool `training` wants approvals."""
    settings = LedgerSettings(path=str(tmp_path / "ledger.db"))
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(json.dumps({"ledger": {"path": settings.path}, "pools": {"training": {"approval": True}}}), "utf-8")
    monkeypatch.setenv("GPUWATCH_CONFIG", str(file))
    ledger = Ledger.connect(settings)
    assert ledger.lead()
    yield ledger
    ledger.close()


def gpuwatch(*arguments: str) -> Result:
    """One command."""
    return CliRunner().invoke(commands, arguments)


def noticed(ledger: Ledger, node_id: str, pool: str = "training", **about: object) -> Intent:
    """A notice in force for a node that the newest round has seen."""
    node = replace(a_node(node_id, pool=pool), **about)  # type: ignore[arg-type]
    round_id = ledger.record_round(an_observation(node))
    intent = ledger.intend(Verb.NOTICE, node_id, pool, NOW, REASON, round_id)
    ledger.settle(intent, Status.SETTLED, "its tags are set", NOW)
    return intent


# The word.


def test_an_approved_removal_goes_and_only_after_its_grace() -> None:
    """The whole way: notice, waiting for days, the word, the stop."""
    desk = Desk(rules=replace(RULES, approval=True), interval=3600.0)
    desk.fleet.put(a_node("i-1", held=7200.0))
    desk.fleet.put(a_node("i-2", State.BUSY))
    for _ in range(3 * 24):
        desk.round(seconds=3600.0)
    before = list(desk.fleet.calls)
    refused = desk.plan().reviews
    desk.ledger.approve("i-1", "ann@host", "the project has ended", desk.clock.now())
    desk.round()

    assert [call[0] for call in before if call[0] == "stop"] == []
    assert [[each.rule for each in review.refusals] for review in refused] == [["approval"]]
    assert desk.fleet.nodes_["i-1"].state in {NodeState.STOPPING, NodeState.STOPPED}


def test_activity_after_the_approval_ends_it() -> None:
    """The next notice asks anew: nobody has seen what the node has done since."""
    desk = Desk(rules=replace(RULES, approval=True))
    desk.fleet.put(a_node("i-1", held=7200.0))
    desk.fleet.put(a_node("i-2", State.BUSY))
    desk.round()
    desk.ledger.approve("i-1", "ann@host", "", desk.clock.now())
    desk.fleet.show("i-1", State.BUSY, 0.0)
    desk.round()
    desk.fleet.show("i-1", State.IDLE, 0.0)
    for _ in range(60):
        desk.round()

    assert desk.fleet.nodes_["i-1"].state is NodeState.RUNNING
    assert desk.ledger.view(desk.clock.now()).notice("i-1") is not None
    assert desk.ledger.view(desk.clock.now()).approvals == ()


@pytest.mark.parametrize("case", [approved(a_case()), notified(a_case(), 600.0), notified(a_case(), 601.0)])
def test_what_people_have_said_and_heard_is_enough(case: object) -> None:
    """An approval of this notice; a message a whole grace period ago."""
    assert judge(case).refusals == ()  # type: ignore[arg-type]


def test_only_a_notice_in_force_is_approved(place: Place) -> None:
    """Once it is withdrawn there is nothing to approve, and nothing is written."""
    ledger = place.open()
    notice = noticed(ledger, "i-1")
    given = ledger.approve("i-1", "ann@host", "over", NOW + timedelta(minutes=1))
    approvals = ledger.view(NOW).approvals
    undone = ledger.intend(Verb.WITHDRAW, "i-1", "training", NOW, REASON, 1)
    ledger.settle(undone, Status.SETTLED, "its tags are set", NOW)

    assert (given.key, approvals) == (notice.key, (given,))
    assert ledger.view(NOW).approvals == ()
    with pytest.raises(LedgerError, match=r"^i-1 has no notice in force: there is nothing to approve$"):
        ledger.approve("i-1", "ann@host", "over", NOW)
    assert ledger.audit().broken is None


def test_an_approval_counts_for_no_other_notice_than_the_one_that_was_looked_at(place: Place) -> None:
    """Another round may have withdrawn it and given a new one since the look."""
    ledger = place.open()
    old = noticed(ledger, "i-1")
    new = noticed(ledger, "i-1")

    with pytest.raises(LedgerError, match=r"^i-1 has had another notice since: look again$"):
        ledger.approve("i-1", "ann@host", "over", NOW, key=old.key)
    assert ledger.view(NOW).approvals == ()
    assert ledger.approve("i-1", "ann@host", "over", NOW, key=new.key).key == new.key


# What people were told.


def test_a_notice_says_when_the_first_message_about_it_arrived(place: Place) -> None:
    """Of several the first; one that was given up reached nobody; the messages of other notices do not count."""
    ledger = place.open()
    notice, other = noticed(ledger, "i-1"), noticed(ledger, "i-2")
    ledger.messages.keep(notice.key, "slack", NOW, reached=False, detail="HTTP 500, given up")
    unheard = ledger.view(NOW).notice("i-1")
    for minutes, name in ((3, "mail"), (2, "chat")):
        ledger.messages.keep(notice.key, name, NOW + timedelta(minutes=minutes), reached=True, detail="1 by smtp")
    heard, untold = (ledger.view(NOW).notice(node_id) for node_id in ("i-1", "i-2"))

    assert unheard is not None
    assert unheard.told_at is None
    assert heard is not None
    assert heard.told_at == NOW + timedelta(minutes=2)
    assert untold is not None
    assert untold.told_at is None
    assert ledger.messages.recorded_messages([notice.key, other.key]) == {
        (notice.key, name) for name in ("slack", "mail", "chat")
    }
    assert ledger.audit().broken is None


def test_people_are_told_of_what_was_carried_out_lately_and_of_every_notice_in_force(place: Place) -> None:
    """Oldest first, with all that a message needs; a notice that is days old and still in force is among them."""
    ledger = place.open()
    late = NOW + timedelta(days=3)
    notice = noticed(ledger, "i-1")
    gone = noticed(ledger, "i-2")
    for verb, status in ((Verb.WITHDRAW, Status.SETTLED), (Verb.STOP, Status.CANCELLED), (Verb.STOP, Status.SETTLED)):
        made = ledger.intend(verb, "i-2", "training", late, REASON, 1, owner="ann")
        ledger.settle(made, status, "as told", late)
    events = ledger.messages.events(NOW + timedelta(days=2))

    assert [(each.node_id, each.verb, each.at) for each in events] == [
        ("i-1", Verb.NOTICE, NOW),
        ("i-2", Verb.WITHDRAW, late),
        ("i-2", Verb.STOP, late),
    ]
    assert (events[0].key, events[1].owner, events[2].reason) == (notice.key, "ann", REASON)
    assert gone.key not in {each.key for each in events}


def test_a_required_message_is_waited_for() -> None:
    """While nobody could be told, nothing is stopped; the grace counts from the message."""
    desk = Desk(rules=RULES, limits=Limits(max_stops_per_hour_ratio=1.0, require_notification=True))
    desk.fleet.put(a_node("i-1", held=7200.0))
    desk.fleet.put(a_node("i-2", State.BUSY))
    for _ in range(60):
        desk.round()
    waiting = desk.fleet.nodes_["i-1"].state
    notice = desk.ledger.view(desk.clock.now()).notice("i-1")
    assert notice is not None
    desk.ledger.messages.keep(notice.key, "mail", desk.clock.now(), reached=True, detail="")
    states = []
    for _ in range(12):
        desk.round()
        states.append(desk.fleet.nodes_["i-1"].state)

    assert waiting is NodeState.RUNNING
    assert states[:10] == [NodeState.RUNNING] * 10
    assert states[-1] is not NodeState.RUNNING


@given(delivered=st.integers(1, 30) | st.none(), longest=st.integers(1, 25))
@settings(max_examples=examples(20))
def test_the_grace_begins_with_the_first_message_or_once_it_is_waited_for_no_longer(
    delivered: int | None, longest: int
) -> None:
    """A tag that nobody sees begins no grace, and a mail server that stays down keeps no idle machine for good."""
    desk = Desk(rules=RULES, delivery_seconds={"default": 60.0 * longest})
    desk.fleet.put(a_node("i-1", held=7200.0))
    desk.fleet.put(a_node("i-2", State.BUSY))
    desk.round()
    (notice,) = desk.ledger.view(desk.clock.now()).notices
    for minute in range(1, 50):
        if minute == delivered:
            desk.ledger.messages.keep(notice.key, "mail", desk.clock.now(), reached=True, detail="")
        desk.round()
        if desk.fleet.stops():
            break
    stopped = desk.clock.now() - timedelta(minutes=1) - notice.at

    begun = longest if delivered is None or delivered > longest + 10 else delivered
    assert timedelta(minutes=begun + 10) <= stopped <= timedelta(minutes=begun + 12)


def test_a_pool_without_a_receiver_waits_for_no_message() -> None:
    """Its notices are for the tag alone, as ever."""
    desk = Desk(rules=RULES, delivery_seconds={"another": 3600.0})
    desk.fleet.put(a_node("i-1", held=7200.0))
    desk.fleet.put(a_node("i-2", State.BUSY))
    for _ in range(13):
        desk.round()
    assert desk.fleet.stops() == ["i-1"]


# The command.


def test_who_waits_is_listed_until_somebody_approves(ledger: Ledger) -> None:
    """By id or unique name, beside the running controller; only in pools that want approvals."""
    notice, due = noticed(ledger, "i-1", name="trainer-7"), NOW + timedelta(minutes=10)
    listed, there = gpuwatch("approve"), json.loads(gpuwatch("approve", "--json").output)
    done = gpuwatch("approve", "trainer-7", "--reason", "the project has ended")
    approvals = ledger.view(SystemClock().now()).approvals

    when = f"noticed {NOW:%Y-%m-%d %H:%M}Z, may go from {due:%H:%M}Z on"
    assert listed.output == f"i-1  trainer-7  pool training, {when}. {REASON.sentence}\n"
    assert [(each["id"], each["why"]) for each in there["waiting"]] == [("i-1", REASON.sentence)]
    assert done.output == "Approved: i-1; it goes if it still has no use then.\n"
    assert [(each.key, each.who, each.reason) for each in approvals] == [
        (notice.key, operator_name(), "the project has ended")
    ]
    assert gpuwatch("approve").output == "No node waits for an approval.\n"


@pytest.mark.parametrize(("name", "pool"), [("i-7", "training"), ("i-1", "default")])
def test_approving_what_does_not_wait_is_a_mistake(ledger: Ledger, name: str, pool: str) -> None:
    """A misspelt node, and one whose pool wants no approval: exit status 2, who there is, and nothing written."""
    noticed(ledger, "i-1", pool)
    done = gpuwatch("approve", name)

    assert done.exit_code == 2
    assert f"No node with the id or the unique name {name!r} waits for an approval. " in done.output
    assert ledger.view(SystemClock().now()).approvals == ()


def test_of_several_nodes_all_are_approved_or_none(ledger: Ledger) -> None:
    """A mistake in the middle of a long line must not leave half of it done."""
    noticed(ledger, "i-1")
    done = gpuwatch("approve", "i-1", "i-7")

    assert done.exit_code == 2
    assert ledger.view(SystemClock().now()).approvals == ()


def test_before_the_first_round_nobody_waits(ledger: Ledger) -> None:
    """An empty list, and no error."""
    assert ledger.rounds(1) == ()
    assert gpuwatch("approve").output == "No node waits for an approval.\n"
