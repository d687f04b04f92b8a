"""P14: what an owner was told is never shortened, sharpened or dropped; what is meant otherwise takes a new notice."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuwatch.clouds import STOP_AT, ThrottledError
from gpuwatch.controller.node_row import node_rows
from gpuwatch.guard import Limits
from gpuwatch.ledger import Ledger
from gpuwatch.ledger.tables import NOTICES
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Reason, Status, Verb
from gpuwatch.model.promise import Interruption, Notice, arguments_of, promise_of
from gpuwatch.policies import PoolRules, notices
from tests.support.builders.fleet import NOW, RULES, Desk, a_node, a_notice
from tests.support.nightly import examples

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
SLOW = replace(RULES, idle=replace(RULES.idle, grace_period=HOUR))


def a_desk(rules: PoolRules = SLOW, **other: object) -> Desk:
    """An idle machine that has just had its notice, with an hour of grace, and a busy one."""
    desk = Desk(rules=rules, **other)  # type: ignore[arg-type]  # of its own fields
    desk.fleet.put(a_node("i-1", owner="ann"))
    desk.fleet.put(a_node("i-2", State.BUSY))
    desk.round()
    assert the_notice(desk) is not None
    return desk


def the_notice(desk: Desk) -> Notice | None:
    """The notice in force."""
    return desk.ledger.view(desk.clock.now()).notice("i-1")


def minutes_to_the_end(desk: Desk, most: int = 300) -> int | None:
    """How many rounds of a minute until the machine is asked to stop or terminate; None: not within so many."""
    for count in range(most):
        if any(call in {"stop", "terminate"} for call, _, _ in desk.fleet.calls):
            return count
        desk.round()
    return None


def test_tag_ledger_and_view_promise_the_same() -> None:
    """One computation: the record has it, the tag shows it, decisions read it."""
    desk = a_desk(replace(SLOW, approval=True))
    (entry,) = desk.ledger.history("i-1")
    notice = the_notice(desk)

    assert notice is not None
    assert notice.promise == promise_of("default", entry.intent.arguments)
    assert notice.promise is not None
    assert (notice.promise.action, notice.promise.approval, notice.promise.heard) == ("stop", True, False)
    assert notice.promise.idle_seconds == 2 * HOUR
    due = notice.promise.due(notice.at)
    assert due == NOW + timedelta(hours=1)
    assert desk.fleet.nodes_["i-1"].tags[STOP_AT] == f"{due:%Y-%m-%dT%H:%M:%SZ}"


def test_a_notice_that_got_through_late_leaves_the_whole_grace() -> None:
    """The tag was throttled at first: it says a time that is a whole grace after it was set."""
    desk = Desk(rules=SLOW)
    desk.fleet.put(a_node("i-1"))
    desk.fleet.put(a_node("i-2", State.BUSY))
    desk.fleet.fault = lambda call, _: ThrottledError("busy") if call == "tag" else None
    for _ in range(3):
        desk.round()
    desk.fleet.fault = lambda _call, _node: None
    while the_notice(desk) is None:
        given = desk.clock.now()
        desk.round()

    assert desk.fleet.nodes_["i-1"].tags[STOP_AT] == f"{given + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    assert minutes_to_the_end(desk) == 60


def idle(**changes: object) -> Callable[[Desk], None]:
    """Another idle policy from now on."""

    def change(desk: Desk) -> None:
        desk.rules = replace(desk.rules, idle=replace(desk.rules.idle, **changes))  # type: ignore[arg-type]

    return change


def moves(desk: Desk) -> None:
    """Somebody changes the machine's pool tag."""
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], pool="other"))


def is_given_away(desk: Desk) -> None:
    """Somebody changes the machine's owner tag."""
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], owner="zoe"))


def lacks_its_tags(desk: Desk) -> None:
    """For one round its cloud shows no owner."""
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], owner=None))
    desk.round()
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], owner="ann"))


def is_paused(desk: Desk) -> None:
    """Paused for a minute, and resumed before any round."""
    desk.ledger.pause(None, "ann", "a drill", desk.clock.now())
    desk.rest(MINUTE)
    desk.ledger.resume(None, "ann", desk.clock.now())


def is_paused_for_a_while(desk: Desk) -> None:
    """A pause that ends by itself."""
    desk.ledger.pause("default", "ann", "a drill", desk.clock.now(), desk.clock.now() + timedelta(minutes=5))
    for _ in range(5):
        desk.round()


def only_observes(desk: Desk) -> None:
    """One round in the other mode."""
    desk.enforce = False
    desk.round()
    desk.enforce = True


def is_away(desk: Desk) -> None:
    """The controller is down for longer than the grace."""
    desk.rest(HOUR + MINUTE)


# What happens ten minutes after the notice, and in which round of a minute from then on the machine goes. Where a new
# notice comes first, there is a round for the withdrawal and one for the notice.
ANEW = 1 + 1 + 60
CHANGES: dict[str, tuple[Callable[[Desk], None], int]] = {
    "nothing": (lambda _: None, 51),
    "a shorter grace": (idle(grace_period=2.0), 51),
    "a longer grace": (idle(grace_period=2 * HOUR), 111),
    "a termination": (idle(action="terminate"), ANEW),
    "another pool": (moves, ANEW),
    "another owner": (is_given_away, ANEW),
    "no owner for a round": (lacks_its_tags, 50),
    "a pause": (is_paused, ANEW),
    "a pause that ends by itself": (is_paused_for_a_while, ANEW),
    "observing": (only_observes, ANEW),
    "an absence": (is_away, ANEW),
    "a moment's absence": (lambda desk: desk.rest(50 * MINUTE), 1),
}


@pytest.mark.parametrize("told", CHANGES)
def test_what_was_promised_holds_or_a_new_notice_comes_first(told: str) -> None:
    """Whatever changes during the grace: not before the promised time, or a whole grace after a new notice."""
    change, expected = CHANGES[told]
    desk = a_desk()
    for _ in range(9):
        desk.round()
    first = the_notice(desk)
    change(desk)
    count = minutes_to_the_end(desk)

    assert first is not None
    assert count == expected, f"{told}: after {count} minutes"
    given = [entry.intent.key for entry in desk.ledger.history("i-1") if entry.intent.verb is Verb.NOTICE]
    anew = expected == ANEW
    assert (len(given) == 2) is anew, f"{told}: {len(given)} notices"


def test_a_milder_end_than_promised_takes_no_new_notice() -> None:
    """A termination was told; the pool says `stop` by now: stopped at the promised time."""
    desk = a_desk(replace(SLOW, idle=replace(SLOW.idle, action="terminate")))
    idle(action="stop")(desk)

    assert minutes_to_the_end(desk) == 59 + 1
    assert desk.fleet.stops() == ["i-1"]


def test_a_promised_approval_is_not_dropped_with_the_setting() -> None:
    """The owner was told that an operator must approve: so one must, and may."""
    desk = a_desk(replace(SLOW, approval=True))
    desk.rules = SLOW

    assert minutes_to_the_end(desk, 120) is None
    desk.ledger.approve("i-1", "ann@host", "", desk.clock.now())
    assert minutes_to_the_end(desk, 3) == 1


def test_an_approval_is_of_its_notice_alone() -> None:
    """Approved as a stop; the pool says `terminate` by now: the new notice asks anew."""
    desk = a_desk(replace(SLOW, approval=True))
    desk.ledger.approve("i-1", "ann@host", "", desk.clock.now())
    idle(action="terminate")(desk)

    assert minutes_to_the_end(desk, 120) is None


def test_a_machine_that_leaves_the_fleet_for_a_moment_has_a_new_notice() -> None:
    """Its enrolment tag was taken off and set again: the notice ended in the ledger, the machine was not touched."""
    desk = a_desk()
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], enrolled=False))
    tags = dict(desk.fleet.nodes_["i-1"].tags)
    desk.round()
    assert desk.fleet.nodes_["i-1"].tags == tags
    assert the_notice(desk) is None
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], enrolled=True))

    assert minutes_to_the_end(desk) == 60 + 1


@settings(max_examples=examples(12), deadline=None)
@given(ahead=st.sampled_from([1.0, 59.0, 599.0, 3599.0, 3600.0, 7200.0, 14400.0]), at=st.sampled_from([0, 1, 30, 59]))
def test_a_clock_set_forward_shortens_no_grace(ahead: float, at: int) -> None:
    """P18: the agent's own count of idleness has to cover the grace, whatever the controller's clock says."""
    desk = a_desk()
    began = desk.clock.monotonic() - MINUTE
    for _ in range(at):
        desk.round()
    desk.clock.jump(ahead)
    minutes_to_the_end(desk)

    assert desk.clock.monotonic() - MINUTE - began >= HOUR
    assert desk.fleet.stops() == ["i-1"]


def test_a_long_queue_under_a_small_limit_is_worked_off() -> None:
    """Held back for days: notices become out of date and are given again, and in the end all have gone."""
    desk = Desk(rules=RULES, limits=Limits(max_stops_per_hour=1, max_stops_per_hour_ratio=1.0, mass_idleness_nodes=99))
    for number in range(30):
        desk.fleet.put(a_node(f"i-{number:02}"))
    hours = 0
    while len(set(desk.fleet.stops())) < 30 and hours < 60:
        for _ in range(6):
            desk.round(seconds=600.0)
        hours += 1
    view = desk.ledger.view(desk.clock.now())

    assert len(set(desk.fleet.stops())) == 30
    assert hours < 40
    assert view.notices == ()
    given = dict.fromkeys(desk.fleet.nodes_, 0)
    for name in given:
        given[name] = sum(entry.intent.verb is Verb.NOTICE for entry in desk.ledger.history(name, limit=99))
    assert max(given.values()) <= 3, "no loop of notices and withdrawals"


def test_what_its_floor_keeps_is_not_told_again_and_again() -> None:
    """The last node of a pool stays under its notice, and its owner has one message for a week."""
    desk = Desk(rules=replace(RULES, min_nodes=1))
    desk.fleet.put(a_node("i-1"))
    for _ in range(7 * 24 * 6):
        desk.round(seconds=600.0)

    assert [entry.intent.verb for entry in desk.ledger.history("i-1")] == [Verb.NOTICE]


@given(
    told=st.sampled_from(["stop", "terminate"]),
    verb=st.sampled_from([Verb.STOP, Verb.TERMINATE, Verb.UNPROTECT]),
    approval=st.booleans(),
    late=st.sampled_from([0.0, 1.0, DAY, DAY + 1, 7 * DAY, 7 * DAY + 1]),
)
def test_a_notice_covers_its_own_action_or_a_milder_one_while_it_is_current(
    told: str, verb: Verb, approval: bool, late: float
) -> None:
    """The edges of what stands, by action and by age."""
    notice = a_notice(age=600.0 + late, action=told, approval=approval)

    assert (notices.sharper(notice, verb) is None) is (told == "terminate" or verb is Verb.STOP)
    assert (notices.why_outdated(notice, NOW) is None) is (late <= (7 * DAY if approval else DAY))


def test_a_window_of_samples_and_a_stopped_node_wait_by_the_calendar_without_absences() -> None:
    """Where no agent counts: two minutes without rounds are two minutes more."""
    node = replace(a_node(held=HOUR), signal=replace(a_node(held=HOUR).signal, windowed=True))
    notice = a_notice(age=600.0, idle_seconds=HOUR)
    absence = Interruption(why="away", since=NOW - timedelta(minutes=4), until=NOW - timedelta(minutes=2))
    pause = Interruption(why="paused", since=NOW - timedelta(minutes=9), until=NOW - timedelta(minutes=4))

    assert notices.left_seconds(notice, a_node(held=HOUR), 600.0, NOW) == 600.0
    assert notices.left_seconds(notice, node, 600.0, NOW) == 0.0
    assert notices.left_seconds(replace(notice, interruptions=(absence, pause)), node, 600.0, NOW) == 120.0


@pytest.mark.parametrize("seconds", ["soon", "inf", "nan"])
def test_a_wait_for_a_delivery_that_cannot_be_read_promises_nothing(seconds: str) -> None:
    """Nobody knows then when its grace began."""
    whole = arguments_of(
        "stop", grace_seconds=1.0, idle_seconds=None, at=NOW, approval=False, heard=False, delivery_seconds=60.0
    )

    promise = promise_of("default", whole)
    assert promise is not None
    assert promise.delivery_seconds == 60.0
    assert promise_of("default", {**whole, "delivery_seconds": seconds}) is None


@pytest.mark.parametrize("wrong", ["action", "stop_at", "grace_seconds", "approval", "heard"])
def test_a_record_that_cannot_be_read_promises_nothing(wrong: str) -> None:
    """An older version's, or a damaged one: the notice does not stand."""
    whole = arguments_of("stop", grace_seconds=1.0, idle_seconds=None, at=NOW, approval=False, heard=False)

    assert promise_of("default", whole) is not None
    assert promise_of("default", {name: text for name, text in whole.items() if name != wrong}) is None
    assert notices.withdrawn(replace(a_notice(), promise=None), "default", None) is not None


OWNERS = [("ann", "ann", True), ("ann", "zoe", False), ("", "zoe", False), ("ann", None, True), (None, "zoe", True)]
OWNERS += [("a" * 512, "a" * 3000, True), ("?ann", "\ud800ann", True)]  # in a round, and in its last look


@pytest.mark.parametrize(("told", "now", "stands"), OWNERS)
def test_a_notice_stands_for_the_owner_whom_it_told(told: str | None, now: str | None, stands: bool) -> None:
    """Whoever has the machine by then gets one of their own; who was told is not on record of older notices."""
    notice = a_notice()
    assert notice.promise is not None
    why = notices.withdrawn(replace(notice, promise=replace(notice.promise, owner=told)), "default", now)

    assert (why is None) is stands
    assert why is None or why.endswith("and its owner is zoe now")


REASON = Reason(code="candidate", sentence="It has been idle.")


def given_notice(ledger: Ledger, at: datetime) -> str:
    """A settled notice of i-1; its key."""
    document = arguments_of("stop", grace_seconds=1.0, idle_seconds=0.0, at=at, approval=True, heard=True)
    intent = ledger.intend(Verb.NOTICE, "i-1", "default", at, REASON, 1, arguments=document)
    ledger.settle(intent, Status.SETTLED, "its tags are set", at)
    return intent.key


def forge(ledger: Ledger, node_id: str, key: str) -> None:
    """Write the index by hand."""
    with ledger.store.writing() as writer:
        writer.db.execute(NOTICES.delete().where(NOTICES.c.node_id == node_id))
        writer.db.execute(NOTICES.insert(), {"node_id": node_id, "key": key, "at": NOW.isoformat()})


def test_a_forged_entry_of_the_index_is_no_notice() -> None:
    """Without a record, of another verb, of another node, withdrawn or used since: none of them counts."""
    ledger = Ledger.in_memory()
    ledger.record_round(Desk().plan().observation)
    key = given_notice(ledger, NOW)
    ledger.approve("i-1", "ann", "", NOW)
    ledger.messages.keep(key, "ops", NOW, reached=True, detail="")
    assert [(each.key, each.told_at) for each in ledger.view(NOW).notices] == [(key, NOW)]
    assert len(ledger.view(NOW).approvals) == 1
    withdrawal = ledger.intend(Verb.WITHDRAW, "i-1", "default", NOW, REASON, 1)
    ledger.settle(withdrawal, Status.SETTLED, "gone", NOW)

    for node_id, text in (("i-1", key), ("i-2", key), ("i-1", "made-up"), ("i-1", withdrawal.key)):
        forge(ledger, node_id, text)
        view = ledger.view(NOW)
        assert (view.notices, view.approvals) == ((), ()), (node_id, text)
    later = given_notice(ledger, NOW + timedelta(minutes=1))
    forge(ledger, "i-1", key)
    assert ledger.view(NOW).notices == ()
    forge(ledger, "i-1", later)
    (notice,) = ledger.view(NOW).notices
    assert (notice.key, notice.at, notice.told_at) == (later, NOW + timedelta(minutes=1), None)
    assert ledger.view(NOW).approvals == ()


@settings(max_examples=examples(3), deadline=None)
@example(before=10, after=90, changed=3, wait=1800.0)
@given(
    before=st.sampled_from([10, 25, 60]),
    after=st.sampled_from([5, 30, 90]),
    changed=st.integers(1, 8),
    wait=st.sampled_from([1800.0, 9000.0]),
)
def test_what_is_said_to_come_next_comes_then(before: int, after: int, changed: int, wait: float) -> None:
    """Whatever the settings say after the notice: each round names the minute of the stop, or of a new notice."""

    def rules(minutes: int, timeout: float) -> PoolRules:
        graces = {"grace_period": minutes * MINUTE, "owner_grace_period": minutes * MINUTE}
        return replace(RULES, idle=replace(RULES.idle, timeout=timeout, **graces))  # type: ignore[arg-type]  # floats

    desk = a_desk(rules(before, 1800.0))
    said: list[tuple[datetime, Verb, Verb, datetime]] = []
    for minute in range(240):
        if minute == changed:
            desk.rules = rules(after, wait)
        at = desk.clock.now()
        done = desk.round()
        (row,) = [each for each in node_rows(done, desk.rulebook) if each.id == "i-1"]
        assert row.next is not None
        said += [(at, row.action, row.next.verb, row.next.at)] if minute > changed else []
        if row.action is Verb.STOP:
            break
    else:
        pytest.fail("it is never stopped")
    for place, (when, _, verb, due) in enumerate(said):
        came = next(each for each, acts, *_ in said[place:] if acts is verb)
        assert timedelta() <= came - due <= timedelta(minutes=1), f"at {when} it says {verb} at {due}"
