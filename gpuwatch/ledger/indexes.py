"""The indexes against the records: decisions read them, so each row must say what the records say."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, func, select

from gpuwatch.ledger import snapshots
from gpuwatch.ledger.records import Broken, LedgerError
from gpuwatch.ledger.tables import (
    BODIES,
    CONTROLS,
    GAPS,
    INTENTS,
    NOTICES,
    OPEN_INTENTS,
    OUTCOMES,
    PAUSES,
    ROUNDS,
    SHIELDS,
    STOPPED,
    WISHES,
)
from gpuwatch.model.decision import FINAL, Status, Verb
from gpuwatch.model.verbs import ENDS_OF_A_STOP, RECORDS, SCHEDULER_CHANGES, SHIELDINGS

BESIDE_NOTICES = SHIELDINGS | SCHEDULER_CHANGES | RECORDS  # they neither give nor end a notice
_WISHES_COMPARED = timedelta(days=7)  # compaction drops them after eight
_ROWS_AT_ONCE = 100
_LATER_INTENT, _LATER_OUTCOME = INTENTS.alias("later_intent"), OUTCOMES.alias("later_outcome")


def untrue(db: Connection) -> Iterator[Broken]:
    """What the indexes say and the records do not, or the other way round; the first of each."""
    yield from _open_intents(db)
    yield from _pauses(db)
    yield from _standing(db, NOTICES, Verb.NOTICE, tuple(set(Verb) - BESIDE_NOTICES))
    yield from _standing(db, SHIELDS, Verb.PROTECT, tuple(SHIELDINGS))
    yield from _standing(db, STOPPED, Verb.STOP, tuple(ENDS_OF_A_STOP))
    yield from _wishes(db)
    yield from _gaps(db)


def settled_by_records(
    columns: Sequence[Any],
    index: Table,
    verb: Verb,
    ended_by: Callable[[ColumnElement[Any]], ColumnElement[bool]],
    ended_once: Collection[Status],
) -> Select[Any]:
    """These columns of the entries of an index of nodes and keys that count.

    An entry counts only where its key is that of a settled `verb` of its own node, and no later word on that node ended
    it. `ended_by` says by its verb whether a word does so, once the outcome of that word is one of `ended_once`.
    """
    later = (
        select(_LATER_INTENT.c.id)
        .join(_LATER_OUTCOME, _LATER_OUTCOME.c.key == _LATER_INTENT.c.key)
        .where(
            _LATER_INTENT.c.node_id == INTENTS.c.node_id,
            _LATER_INTENT.c.id > INTENTS.c.id,
            ended_by(_LATER_INTENT.c.verb),
            _LATER_OUTCOME.c.id > OUTCOMES.c.id,
            _LATER_OUTCOME.c.status.in_(sorted(ended_once)),
        )
    )
    return (
        select(*columns)
        .join(OUTCOMES, OUTCOMES.c.key == INTENTS.c.key)
        .where(
            INTENTS.c.verb == verb.value,
            INTENTS.c.key.in_(select(index.c.key)),
            select(index.c.key).where(index.c.node_id == INTENTS.c.node_id).scalar_subquery() == INTENTS.c.key,
            OUTCOMES.c.status == Status.SETTLED.value,
            ~later.exists(),
        )
    )


def _open_intents(db: Connection) -> Iterator[Broken]:
    """Those without a final outcome."""
    closed = select(OUTCOMES.c.key).where(OUTCOMES.c.status.in_(sorted(FINAL)))
    still_open = select(INTENTS.c.key).where(INTENTS.c.key.not_in(closed))
    different = set(db.scalars(still_open)) ^ set(db.scalars(select(OPEN_INTENTS.c.key)))
    for row in db.execute(select(INTENTS).where(INTENTS.c.key.in_(sorted(different)[:1]))):
        yield Broken(kind="intent", id=row.id, at=row.at, wrong="open_intents does not say of it what its outcomes say")


def _pauses(db: Connection) -> Iterator[Broken]:
    """Those that are still in force."""
    held: dict[int, Row[Any]] = {}
    for row in db.execute(select(CONTROLS).where(CONTROLS.c.verb.in_(("pause", "resume"))).order_by(CONTROLS.c.id)):
        if row.verb == "pause":
            held[row.id] = row
        else:
            held = {} if row.pool is None else {n: each for n, each in held.items() if each.pool != row.pool}
    stored = set(db.scalars(select(PAUSES.c.id)))
    for number in sorted(stored ^ held.keys())[:1]:
        at = held[number].at if number in held else ""
        yield Broken(kind="control", id=number, at=at, wrong="pauses does not say of it what the controls say")


def _standing(db: Connection, table: Table, verb: Verb, ends: Collection[Verb]) -> Iterator[Broken]:
    """Each row is its node's newest settled intent among those verbs. A row may be missing: the node was seen gone."""
    settled = select(INTENTS.c.key, INTENTS.c.verb, OUTCOMES.c.id, OUTCOMES.c.at)
    settled = settled.join(OUTCOMES, OUTCOMES.c.key == INTENTS.c.key).where(OUTCOMES.c.status == Status.SETTLED.value)
    settled = settled.where(INTENTS.c.verb.in_([each.value for each in ends])).order_by(OUTCOMES.c.id.desc()).limit(1)
    for row in db.execute(select(table).order_by(table.c.node_id)).all():
        newest = db.execute(settled.where(INTENTS.c.node_id == row.node_id)).one_or_none()
        if newest is None or (newest.key, newest.verb, newest.at) != (row.key, verb.value, row.at):
            record = "no record of it" if newest is None else f"its newest record is the {newest.verb} {newest.key}"
            wrong = f"it names {row.key} for {row.node_id}, but there is {record}"
            yield Broken(kind=table.name, id=0 if newest is None else newest.id, at=row.at, wrong=wrong)
            return


def _wishes(db: Connection) -> Iterator[Broken]:
    """Those of the last days against what was proposed in the rounds that are still whole."""
    newest = db.scalar(select(func.max(BODIES.c.at)))
    if newest is None:
        return
    since = (datetime.fromisoformat(newest) - _WISHES_COMPARED).isoformat(timespec="microseconds")
    dropped = select(WISHES.c.at).where(WISHES.c.at > since, WISHES.c.at.not_in(select(ROUNDS.c.at)))
    for at in db.scalars(dropped.limit(1)):
        yield Broken(kind="wishes", id=0, at=at, wrong="there was no round at that time")
        return
    whole = select(BODIES).where(BODIES.c.at > since).order_by(BODIES.c.at, BODIES.c.round_id)
    result = db.execute(whole.execution_options(yield_per=_ROWS_AT_ONCE))
    try:
        for at, rows in groupby(result, key=attrgetter("at")):
            expected: Counter[tuple[str, str, int]] = Counter()
            number = 0
            for row in rows:
                number = row.round_id
                expected.update(snapshots.wishes(number, row.codec, row.body))
            stored = db.execute(select(WISHES.c.pool, WISHES.c.policy, WISHES.c.want).where(WISHES.c.at == at))
            if Counter(map(tuple, stored)) != expected:
                yield Broken(kind="wishes", id=number, at=at, wrong="they are not what the round proposed")
                return
    except LedgerError as error:
        yield Broken(kind="round", id=0, at="", wrong=str(error))
    finally:
        result.close()


def _gaps(db: Connection) -> Iterator[Broken]:
    """Those that the newest round saw."""
    row = db.execute(select(BODIES).order_by(BODIES.c.round_id.desc()).limit(1)).one_or_none()
    known = None if row is None else snapshots.gaps(row.codec, row.body)
    if row is None or known is None:
        return
    stored = {each.pool: snapshots.digest(each.body) for each in db.execute(select(GAPS))}
    for pool in sorted(known.items() ^ stored.items())[:1]:
        yield Broken(
            kind="gaps", id=row.round_id, at=row.at, wrong=f"pool {pool[0]} is not as the newest round left it"
        )
