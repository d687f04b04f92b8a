"""What was stopped and ended in the last weeks and may be undone, or was: read once by a process, and not each round.

Of the past weeks a round needs what is of the last day, and what has been undone before. That is little, however much
was stopped since; it is sought by the numbers of the records, which grow with time.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from gpuwatch.ledger.chain import text
from gpuwatch.ledger.tables import INTENTS, OUTCOMES
from gpuwatch.ledger.views import ended_intents, list_orders
from gpuwatch.model.decision import ADDITIONS, Done, LedgerView, Verb
from gpuwatch.model.undone import GROUP, UNTIL
from gpuwatch.policies.undone import ACTIONS, MEMORY, WITHIN

_ROWS_AT_ONCE = 500
_SLACK = timedelta(hours=1)
_FIRST = (
    select(INTENTS.c.id)
    .join(OUTCOMES, OUTCOMES.c.key == INTENTS.c.key)
    .where(OUTCOMES.c.at > bindparam("since"))
    .order_by(OUTCOMES.c.at)
    .limit(1)
)
_ENDED = (
    select(INTENTS, OUTCOMES.c.id.label("step"), OUTCOMES.c.status, OUTCOMES.c.detail, OUTCOMES.c.at.label("then"))
    .join(OUTCOMES, OUTCOMES.c.key == INTENTS.c.key)
    .where(INTENTS.c.verb.in_(sorted(ACTIONS)), INTENTS.c.id >= bindparam("first"))
    .order_by(INTENTS.c.id, OUTCOMES.c.id)
)


def past_removals(db: Connection, now: datetime) -> LedgerView:
    """What ended of them as `recent`, in the order of the intents, and the orders that end what follows from it."""
    since = now - MEMORY
    first = db.scalar(_FIRST, {"since": text(since)})
    ended = () if first is None else tuple(those_that_matter(_ended_since(db, first), now))
    return LedgerView(recent=ended, resume_orders=list_orders(db, "resume", since))


def _ended_since(db: Connection, first: int) -> Iterator[Done]:
    """What ended of the intents from that number on, a few rows at a time."""
    result = db.execute(_ENDED.execution_options(yield_per=_ROWS_AT_ONCE), {"first": first})
    try:
        rows: Iterator[Row[Any]] = iter(result)
        yield from ended_intents(rows)
    finally:
        result.close()


def those_that_matter(actions: Iterable[Done], now: datetime) -> list[Done]:
    """Those of the last day, those after something was undone, and each target's own starts and growths since."""
    kept = list[Done]()
    targets, day = set[str](), now - WITHIN - _SLACK
    for done in actions:
        if done.verb not in ACTIONS:
            continue
        target = done.arguments.get(GROUP, done.node_id)
        lasts = done.at > day or UNTIL in done.arguments or done.verb is Verb.LEFT_ALONE
        if lasts and done.verb not in ADDITIONS:
            targets.add(target)
        if lasts or target in targets:
            kept.append(done)
    return kept
