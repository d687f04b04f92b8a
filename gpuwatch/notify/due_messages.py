"""Pure: what is to be told to one destination now, and what is not to be told any more.

1. A notice is told while it is in force, however old it is. One that is over before it was told is moot.
2. A withdrawal is told where its notice was, and nowhere else.
3. What was done is told whether or not its notice was.
4. Withdrawals and deeds that are older than `max_age` are given up.
5. What is on record is not told again.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuwatch.ledger.sent_messages import Event
from gpuwatch.model.decision import Verb
from gpuwatch.notify.settings import EventName

WITHDRAWN_FIRST = "it was withdrawn before it could be told"
DONE_FIRST = "it was carried out before it could be told"
REPLACED = "another notice took its place before it could be told"
NOTICE_UNTOLD = "its notice was not told"
TOO_OLD = "it is older than notify.max_age"
_OVER = {Verb.WITHDRAW: WITHDRAWN_FIRST, Verb.NOTICE: REPLACED}
_EVENTS: Mapping[Verb, EventName] = {Verb.NOTICE: "notice", Verb.WITHDRAW: "withdrawn"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What the ledger knows: events oldest first, the keys of notices in force, what is on record, notices of old.

    `told` are (event key, destination). `notices` are the keys of notices that withdrawals took back, by theirs, where
    the notice is no longer among the events.
    """

    events: Sequence[Event]
    in_force: AbstractSet[str]
    told: AbstractSet[tuple[str, str]]
    notices: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """An event that will not be told, and why."""

    event: Event
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a destination listens to; without pools to all."""

    name: str
    events: AbstractSet[EventName]
    pools: AbstractSet[str]

    def takes(self, event: Event) -> bool:
        """Whether this is for it."""
        return name_of(event) in self.events and (not self.pools or event.pool in self.pools)


def name_of(event: Event) -> EventName:
    """The event as the settings call it."""
    return _EVENTS.get(event.verb, "done")


def due_messages(
    past: Past, wanted: Wanted, now: datetime, max_age: timedelta
) -> tuple[tuple[Event, ...], tuple[Superseded, ...]]:
    """What to tell, oldest first; and what to put on record as never told, the newest first.

    That order matters: a notice whose withdrawal is moot is on record after it, so that a crash in between leaves no
    withdrawal that looks as if its notice had been told.
    """
    notices = withdrawn(past)
    after = {notice: event for event, notice in _followers(past)}
    tell, moot = list[Event](), list[Superseded]()
    for event in past.events:
        if (event.key, wanted.name) in past.told or not wanted.takes(event):
            continue
        if event.verb is Verb.NOTICE:
            follower = after.get(event.key)
            if event.key in past.in_force and follower is None:
                tell.append(event)
            elif follower is not None:
                moot.append(Superseded(event=event, why=_OVER.get(follower.verb, DONE_FIRST)))
        elif event.verb is Verb.WITHDRAW and (notices.get(event.key, ""), wanted.name) not in past.told:
            moot.append(Superseded(event=event, why=NOTICE_UNTOLD))
        elif now - event.at > max_age:
            moot.append(Superseded(event=event, why=TOO_OLD))
        else:
            tell.append(event)
    return tuple(tell), tuple(reversed(moot))


def withdrawn(past: Past) -> dict[str, str]:
    """The notices that withdrawals took back, by theirs."""
    found = {event.key: notice for event, notice in _followers(past) if event.verb is Verb.WITHDRAW}
    return {**past.notices, **found}


def _followers(past: Past) -> Iterator[tuple[Event, str]]:
    """Each notice's key with what came of it, or took its place."""
    last: dict[str, str] = {}
    for event in past.events:
        notice = last.pop(event.node_id, None)
        if notice is not None:
            yield event, notice
        if event.verb is Verb.NOTICE:
            last[event.node_id] = event.key


def unexplained(events: Sequence[Event]) -> tuple[Event, ...]:
    """The withdrawals whose notice is not among the events."""
    explained = {event.key for event, _ in _followers(Past(events=events, in_force=set(), told=set(), notices={}))}
    return tuple(event for event in events if event.verb is Verb.WITHDRAW and event.key not in explained)
