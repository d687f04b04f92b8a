"""A day that is over becomes one row for each machine and terms, before it is sealed.

A machine that gpuwatch had stopped keeps more of a day on which it ran for a part: each hour through which it ran only
in part, and those in between together. They say when somebody started it again, and so until when its stop saved.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, func, select

from gpuwatch.ledger.chain import text
from gpuwatch.ledger.tables import INTENTS, OUTCOMES, SPEND
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.usage import AMOUNTS, GPU, HourKey
from gpuwatch.money.accounting.savings import LONGEST_MS
from gpuwatch.money.accounting.slices import Bucket
from gpuwatch.money.accounting.terms import upsert

_AT_ONCE = 500  # names in one question
_SUMS = tuple(func.sum(SPEND.c[name]) for name in AMOUNTS)
Rows = dict[HourKey, list[int]]


def sum_up(db: Connection, day: Bucket) -> list[int]:
    """Replace the hours of a day by the rows that it keeps; gives the sums of all."""
    within, span = (SPEND.c.begin >= day.begin, SPEND.c.begin < day.end), day.end - day.begin
    keys = (SPEND.c.node_id, SPEND.c.terms)
    found = db.execute(select(*keys, *_SUMS).where(*within).group_by(*keys)).all()
    made = {HourKey(day.begin, row.node_id, row.terms, span): [int(each) for each in row[2:]] for row in found}
    kept: Rows = {}
    for nodes in _some_at_once(_in_part(made) & _stopped_nodes(db, day)):
        query = select(SPEND).where(*within, SPEND.c.node_id.in_(nodes))
        kept |= _pieces(db.execute(query.order_by(SPEND.c.node_id, SPEND.c.terms, SPEND.c.begin)))
    names = {key.node_id for key in kept}
    rows = {key: amounts for key, amounts in made.items() if key.node_id not in names} | kept
    db.execute(SPEND.delete().where(*within))
    upsert(db, SPEND, [(key.begin, key.node_id, key.terms, key.span, *amounts) for key, amounts in rows.items()])
    return [sum(column) for column in zip(*rows.values(), strict=True)]


def _in_part(made: Rows) -> set[str]:
    """The machines that did not run throughout the day."""
    ran: dict[str, int] = {}
    for key, amounts in made.items():
        ran[key.node_id] = ran.get(key.node_id, 0) + sum(amounts[:GPU])
    return {key.node_id for key in made if ran[key.node_id] < key.span * 1000}


def _stopped_nodes(db: Connection, day: Bucket) -> set[str]:
    """The machines that gpuwatch stopped until the end of the day, of which a stop may save on it."""
    since, until = (datetime.fromtimestamp(at, UTC) for at in (day.begin - LONGEST_MS // 1000, day.end))
    joined = OUTCOMES.join(INTENTS, OUTCOMES.c.key == INTENTS.c.key)
    done = (OUTCOMES.c.status == Status.SETTLED.value, INTENTS.c.verb == Verb.STOP.value)
    query = select(INTENTS.c.node_id).select_from(joined).where(*done, OUTCOMES.c.at >= text(since))
    return set(db.scalars(query.where(OUTCOMES.c.at < text(until)).distinct()))


def _some_at_once(names: Iterable[str]) -> Iterator[Sequence[str]]:
    left = sorted(names)
    yield from (left[at : at + _AT_ONCE] for at in range(0, len(left), _AT_ONCE))


def _pieces(rows: Iterable[Row[Any]]) -> Rows:
    """The rows of machines in order, where those that follow each other and were billed throughout are one."""
    made: Rows = {}
    before: HourKey | None = None  # of a row that was billed throughout
    for row in rows:
        key = HourKey(row.begin, row.node_id, row.terms, row.span)
        amounts: list[int] = list(row[4:])
        full = sum(amounts[:GPU]) == key.span * 1000
        if full and before is not None and before == replace(key, begin=before.begin, span=key.begin - before.begin):
            amounts = [mine + its for mine, its in zip(made.pop(before), amounts, strict=True)]
            key = replace(key, begin=before.begin, span=before.span + key.span)
        made[key] = amounts
        before = key if full else None
    return made
