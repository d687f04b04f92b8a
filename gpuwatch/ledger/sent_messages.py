"""What messages are about (notices, withdrawals, what was carried out, what clouds take), and which went out."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from sqlalchemy import and_, select

from gpuwatch.ledger.chain import text
from gpuwatch.ledger.records import present_destination, read_arguments, read_price, read_reason
from gpuwatch.ledger.store import Store
from gpuwatch.ledger.tables import INTENTS, MESSAGES, NOTICES, OUTCOMES
from gpuwatch.model.decision import Reason, Status, Verb
from gpuwatch.model.promise import Promise, promise_of
from gpuwatch.model.stops import NOT_PROVED, before_in

_VERBS = (Verb.NOTICE, Verb.WITHDRAW, Verb.STOP, Verb.TERMINATE, Verb.RELEASE, Verb.INTERRUPTION, Verb.LEFT_ALONE)
_LATE = OUTCOMES.alias("late")
_KEYS_AT_ONCE = 500  # of a database's variables


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An intent that was settled at `at`: something that messages are about.

    `promise` is that of a notice; None: it is no notice, or says nothing that can be read.
    `arguments` are the intent's. `proved` is whether a stop is known to be gpuwatch's own, `before` what ran before it.
    """

    key: str
    verb: Verb
    node_id: str
    pool: str
    owner: str | None
    usd_per_hour: Decimal | None
    reason: Reason
    intended_at: datetime
    at: datetime
    promise: Promise | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    proved: bool = True
    before: str | None = None


class SentMessages:
    """The part of a ledger that messages to people are made from."""

    def __init__(self, store: Store) -> None:
        """Of an open ledger."""
        self._store = store

    def events(self, since: datetime) -> tuple[Event, ...]:
        """What was settled at or after `since`, and every notice in force however old; oldest first.

        Of a cloud's notice its first record alone: people hear of it once, also if its deadline moves.
        """
        settled = and_(OUTCOMES.c.status == Status.SETTLED.value, INTENTS.c.verb.in_([verb.value for verb in _VERBS]))
        # Each by its own index: an `or` over both tables would walk all outcomes there ever were.
        lately = select(_LATE.c.key).where(_LATE.c.at >= text(since), _LATE.c.status == Status.SETTLED.value)
        of_late = INTENTS.c.key.in_(lately.union(select(NOTICES.c.key)))
        query = select(INTENTS, OUTCOMES.c.at.label("settled_at"), OUTCOMES.c.id.label("outcome"), OUTCOMES.c.detail)
        query = query.join(OUTCOMES, OUTCOMES.c.key == INTENTS.c.key).where(settled, of_late)
        with self._store.reading() as db:
            rows = sorted(db.execute(query), key=lambda row: int(row.outcome))
        return tuple(
            Event(
                key=row.key,
                verb=Verb(row.verb),
                node_id=row.node_id,
                pool=row.pool,
                owner=row.owner,
                usd_per_hour=read_price(row.usd_per_hour, row.key),
                reason=read_reason(row.reason),
                intended_at=datetime.fromisoformat(row.at),
                at=datetime.fromisoformat(row.settled_at),
                promise=promise_of(row.pool, arguments) if row.verb == Verb.NOTICE.value else None,
                arguments=arguments,
                proved=NOT_PROVED not in row.detail,
                before=before_in(row.detail),
            )
            for row, arguments in ((row, read_arguments(row.arguments, row.key)) for row in rows)
            if row.verb != Verb.INTERRUPTION.value or read_reason(row.reason).code == Verb.INTERRUPTION.value
        )

    def recorded_messages(self, keys: Collection[str]) -> frozenset[tuple[str, str]]:
        """The (key, destination) of the messages about these intents that are on record, arrived or given up."""
        wanted, found = sorted(keys), set[tuple[str, str]]()
        with self._store.reading() as db:
            for first in range(0, len(wanted), _KEYS_AT_ONCE):
                some = MESSAGES.c.key.in_(wanted[first : first + _KEYS_AT_ONCE])
                found |= {
                    (row.key, present_destination(row.destination)) for row in db.execute(select(MESSAGES).where(some))
                }
        return frozenset(found)

    def keep(self, key: str, destination: str, at: datetime, *, reached: bool, detail: str) -> None:
        """A message about the intent of that key arrived, or was given up; also by a controller that does not lead."""
        row = {"at": text(at), "key": key, "destination": destination, "reached": int(reached), "detail": detail}
        with self._store.writing(fenced=False) as writer:
            writer.append("message", row)
