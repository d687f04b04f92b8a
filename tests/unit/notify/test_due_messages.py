"""What is to be told: everything once, nothing that is over before it was told, and no withdrawal out of the blue."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.ledger.sent_messages import Event
from gpuwatch.model.decision import Verb
from gpuwatch.notify.due_messages import (
    DONE_FIRST,
    NOTICE_NOT_SENT,
    REPLACED,
    TOO_OLD,
    WITHDRAWN_FIRST,
    Filter,
    History,
    due_messages,
    name_of,
    unexplained_withdrawals,
)
from gpuwatch.notify.settings import EVENTS
from tests.support.builders.fleet import NOW
from tests.support.builders.notices import an_event

HOUR = timedelta(hours=1)
ALL = Filter(name="mail", events=frozenset(EVENTS), pools=frozenset())
NODES = st.sampled_from(["i-1", "i-2"])
# What happens, in order: something to a node, a look of the crier that may find the mail server down, or its crash.
LIVES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([Verb.NOTICE, Verb.WITHDRAW, Verb.STOP]), NODES),
        st.sampled_from(["look", "down", "crash"]),
    ),
    max_size=30,
)


@dataclass(slots=True)
class Life:
    """A ledger in small: only a node with a notice has it withdrawn, and each of the two ends the notice."""

    events: list[Event] = field(default_factory=list)
    in_force: dict[str, str] = field(default_factory=dict)
    on_record: set[tuple[str, str]] = field(default_factory=set)
    mails: list[Event] = field(default_factory=list)

    def happens(self, verb: Verb, node: str) -> None:
        """Settled a second after what was before."""
        if verb is Verb.WITHDRAW and node not in self.in_force:
            return
        at = NOW + timedelta(seconds=len(self.events))
        event = an_event(verb, node, f"k{len(self.events)}", at=at)
        self.events.append(event)
        self.in_force.pop(node, None)
        if verb is Verb.NOTICE:
            self.in_force[node] = event.key

    def look(self, how: str) -> None:
        """What is to be told is sent and recorded; a crash comes between the first mail and its record."""
        tell, superseded = due_messages(self.past, ALL, NOW, HOUR)
        self.on_record |= {(each.event.key, "mail") for each in superseded}
        for event in () if how == "down" else tell:
            self.mails.append(event)
            if how == "crash":
                return
            self.on_record.add((event.key, "mail"))

    @property
    def past(self) -> History:
        """What the ledger tells."""
        return History(events=self.events, in_force=set(self.in_force.values()), recorded=self.on_record, notices={})


def lived(story: list[object]) -> Life:
    """A life to its end, with a last look at a mail server that works."""
    life = Life()
    for each in story:
        if isinstance(each, tuple):
            life.happens(*each)
        else:
            life.look(str(each))
    life.look("look")
    return life


@given(LIVES)
def test_nothing_is_told_twice_and_nothing_is_told_after_it_is_on_record(story: list[object]) -> None:
    """Without a crash each event is mailed once at most; with crashes, once more for each of them at most."""
    life = lived(story)
    crashes = sum(each == "crash" for each in story)
    keys = [event.key for event in life.mails]

    assert len(keys) - len(set(keys)) <= crashes
    assert due_messages(life.past, ALL, NOW, HOUR)[0] == ()


@given(LIVES)
def test_what_is_in_force_or_done_has_been_told_at_the_end(story: list[object]) -> None:
    """No notice in force and no stop is lost, whatever failed in between."""
    life = lived(story)
    names = {event.key for event in life.mails}

    assert set(life.in_force.values()) <= names
    assert {event.key for event in life.events if event.verb is Verb.STOP} <= names


@given(LIVES)
def test_a_withdrawal_is_told_exactly_where_its_notice_was(story: list[object]) -> None:
    """A withdrawal without its notice would only puzzle; a notice without its withdrawal would mislead."""
    life = lived([each for each in story if each != "crash"])
    names = {event.key for event in life.mails}
    pairs = list(_withdrawals(life.events))

    assert [(notice in names) for notice, _ in pairs] == [(withdrawal in names) for _, withdrawal in pairs]


@given(LIVES)
def test_the_news_of_a_node_come_in_their_order(story: list[object]) -> None:
    """Nobody hears of a stop before its notice."""
    life = lived([each for each in story if each != "crash"])
    for node in ("i-1", "i-2"):
        times = [event.at for event in life.mails if event.node_id == node]

        assert times == sorted(times), node


def _withdrawals(events: list[Event]) -> Iterator[tuple[str, str]]:
    last: dict[str, str] = {}
    for event in events:
        if event.verb is Verb.WITHDRAW:
            yield last[event.node_id], event.key
        last[event.node_id] = event.key


@pytest.mark.parametrize(
    ("follower", "why"),
    [
        (Verb.WITHDRAW, [NOTICE_NOT_SENT, WITHDRAWN_FIRST]),
        (Verb.STOP, [DONE_FIRST]),
        (Verb.TERMINATE, [DONE_FIRST]),
        (Verb.NOTICE, [REPLACED]),
    ],
)
def test_a_notice_that_is_over_before_it_was_sent_is_superseded(follower: Verb, why: list[str]) -> None:
    """Why is put on record, a withdrawal before its notice: after a crash in between it still is no news."""
    events = [an_event(key="n"), an_event(follower, key="f", at=NOW + timedelta(seconds=5))]
    _, superseded = due_messages(History(events=events, in_force={"f"}, recorded=set(), notices={}), ALL, NOW, HOUR)

    assert [each.why for each in superseded] == why


def test_an_old_notice_in_force_is_told_and_old_deeds_are_given_up() -> None:
    """After a long outage people hear of what is still to come, and not of what was done hours ago."""
    events = [an_event(Verb.STOP, "i-2", "s"), an_event(key="n")]
    past = History(events=events, in_force={"n"}, recorded=set(), notices={})
    tell, superseded = due_messages(past, ALL, NOW + 2 * HOUR, HOUR)

    assert [event.key for event in tell] == ["n"]
    assert [(each.event.key, each.why) for each in superseded] == [("s", TOO_OLD)]


def test_a_withdrawal_is_told_though_its_notice_is_of_long_ago() -> None:
    """The notice is no longer among the events: its key, where it was told, comes from the node's history."""
    withdrawal = an_event(Verb.WITHDRAW, key="w")
    history = History(events=[withdrawal], in_force=set(), recorded={("n", "mail")}, notices={"w": "n"})
    untold = History(events=[withdrawal], in_force=set(), recorded=set(), notices={"w": "n"})

    assert unexplained_withdrawals([withdrawal]) == (withdrawal,)
    assert unexplained_withdrawals([an_event(key="n"), withdrawal]) == ()
    assert due_messages(history, ALL, NOW, HOUR) == ((withdrawal,), ())
    assert due_messages(untold, ALL, NOW, HOUR)[0] == ()


def test_a_listener_hears_of_its_pools_and_events_alone() -> None:
    """What is not for it is neither told nor put on record."""
    events = [an_event(key="a", pool="a"), an_event(Verb.STOP, "i-2", "b", pool="a"), an_event(Verb.STOP, "i-3", "c")]
    past = History(events=events, in_force={"a"}, recorded=set(), notices={})
    wanted = Filter(name="mail", events=frozenset({"done"}), pools=frozenset({"a"}))
    tell, superseded = due_messages(past, wanted, NOW + 2 * HOUR, 3 * HOUR)

    assert [name_of(event) for event in events] == ["notice", "done", "done"]
    assert [event.key for event in tell] == ["b"]
    assert superseded == ()


@pytest.mark.parametrize("verb", [Verb.INTERRUPTION, Verb.LEFT_ALONE])
def test_what_others_do_is_told_once_and_ends_no_notice(verb: Verb) -> None:
    """It stands beside gpuwatch's own notice; after an hour nobody needs to hear of it."""
    notice, taken = an_event(key="k1"), an_event(verb, key="k2")
    history = History(events=(notice, taken), in_force={"k1"}, recorded=set(), notices={})

    assert due_messages(history, ALL, NOW, HOUR) == ((notice, taken), ())
    send, dropped = due_messages(history, ALL, NOW + 2 * HOUR, HOUR)
    assert (send, [(each.event, each.why) for each in dropped]) == ((notice,), [(taken, TOO_OLD)])
    assert name_of(taken) == verb.value
