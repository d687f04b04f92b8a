"""Pure: which messages one receiver gets now, and which are dropped.

1. A notice is sent while it is in force, however old it is. A notice that was over before it was sent is dropped.
2. A withdrawal is sent only to receivers that got its notice.
3. What was done is sent whether or not its notice was; so is what a cloud takes, and what is left alone.
4. Withdrawals, actions and clouds' notices older than `max_age` are dropped.
5. What is on record is not sent again.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuwatch.ledger.sent_messages import Event
from gpuwatch.model.decision import Verb
from gpuwatch.model.verbs import RECORDS
from gpuwatch.notify.settings import EventName

WITHDRAWN_FIRST = "it was withdrawn before it could be sent"
DONE_FIRST = "it was carried out before it could be sent"
REPLACED = "another notice replaced it before it could be sent"
NOTICE_NOT_SENT = "its notice was not sent"
TOO_OLD = "it is older than notify.max_age"
_OVER = {Verb.WITHDRAW: WITHDRAWN_FIRST, Verb.NOTICE: REPLACED}
_EVENTS: Mapping[Verb, EventName] = {
    Verb.NOTICE: "notice",
    Verb.WITHDRAW: "withdrawn",
    Verb.INTERRUPTION: "interruption",
    Verb.LEFT_ALONE: "left_alone",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the ledger knows: events oldest first, the keys of notices in force, and the messages on record.

    `recorded` are (event key, receiver). `notices` are the keys of withdrawn notices that are no longer among the
    events, by the keys of their withdrawals.
    """

    events: Sequence[Event]
    in_force: AbstractSet[str]
    recorded: AbstractSet[tuple[str, str]]
    notices: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """An event that is not sent, and why."""

    event: Event
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which events a receiver gets; without pools, those of all pools."""

    name: str
    events: AbstractSet[EventName]
    pools: AbstractSet[str]

    def takes(self, event: Event) -> bool:
        """Whether the receiver gets this event."""
        return name_of(event) in self.events and (not self.pools or event.pool in self.pools)


def name_of(event: Event) -> EventName:
    """The event's name in the settings."""
    return _EVENTS.get(event.verb, "done")


def due_messages(
    history: History, receiver: Filter, now: datetime, max_age: timedelta
) -> tuple[tuple[Event, ...], tuple[Superseded, ...]]:
    """What to send, oldest first; and what to record as dropped, newest first.

    That order matters: a dropped notice is recorded after its withdrawal. A crash in between then leaves no withdrawal
    that looks as if its notice had been sent.
    """
    notices = withdrawn(history)
    after = {notice: event for event, notice in _followers(history)}
    send, dropped = list[Event](), list[Superseded]()
    for event in history.events:
        if (event.key, receiver.name) in history.recorded or not receiver.takes(event):
            continue
        if event.verb is Verb.NOTICE:
            follower = after.get(event.key)
            if event.key in history.in_force and follower is None:
                send.append(event)
            elif follower is not None:
                dropped.append(Superseded(event=event, why=_OVER.get(follower.verb, DONE_FIRST)))
        elif event.verb is Verb.WITHDRAW and (notices.get(event.key, ""), receiver.name) not in history.recorded:
            dropped.append(Superseded(event=event, why=NOTICE_NOT_SENT))
        elif now - event.at > max_age:
            dropped.append(Superseded(event=event, why=TOO_OLD))
        else:
            send.append(event)
    return tuple(send), tuple(reversed(dropped))


def withdrawn(history: History) -> dict[str, str]:
    """The keys of withdrawn notices, by the keys of their withdrawals."""
    found = {event.key: notice for event, notice in _followers(history) if event.verb is Verb.WITHDRAW}
    return {**history.notices, **found}


def _followers(history: History) -> Iterator[tuple[Event, str]]:
    """Each event that ended a notice or replaced it, with that notice's key."""
    last: dict[str, str] = {}
    for event in history.events:
        if event.verb in RECORDS:
            continue  # what others did; gpuwatch's own notice stands beside it
        notice = last.pop(event.node_id, None)
        if notice is not None:
            yield event, notice
        if event.verb is Verb.NOTICE:
            last[event.node_id] = event.key


def unexplained_withdrawals(events: Sequence[Event]) -> tuple[Event, ...]:
    """The withdrawals without their notice among the events."""
    explained = {
        event.key for event, _ in _followers(History(events=events, in_force=set(), recorded=set(), notices={}))
    }
    return tuple(event for event in events if event.verb is Verb.WITHDRAW and event.key not in explained)
