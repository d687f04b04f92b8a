"""Who did what, when and why: people's orders and controllers' steps with what came of them, for those who audit."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Row,
    Select,
    Table,
    false,
    func,
    or_,
    select,
    true,
    union_all,
)

from gpuwatch.ledger import views
from gpuwatch.ledger.chain import text
from gpuwatch.ledger.records import Entry, read_sentence
from gpuwatch.ledger.store import Store
from gpuwatch.ledger.tables import APPROVALS, BACKTESTS, CONTROLS, INTENTS, KEEPS, MESSAGES, OUTCOMES, ROUNDS
from gpuwatch.model.decision import Verb
from gpuwatch.model.duration import format_time
from gpuwatch.policies.launches import NEW
from gpuwatch.policies.lives import launch_details

_STEPS = tuple(verb.value for verb in Verb if verb is not Verb.HOLD)
DEEDS = (
    "pause",
    "resume",
    "acknowledge",
    "observe",
    "enforce",
    "away",
    "snooze",
    "approve",
    "backtest",
    "message",
    *_STEPS,
)
ENTRIES = 20  # about one node, that are given at most
# Among the controls; the rest of those is the ledger's own housekeeping.
_ORDERS = ("pause", "resume", "acknowledge", "observe", "enforce", "away")
_LATE = OUTCOMES.alias("late")
_LAST = select(func.max(_LATE.c.id)).where(_LATE.c.key == INTENTS.c.key).correlate(INTENTS).scalar_subquery()
_NAMED, _ASKED = OUTCOMES.alias("named"), INTENTS.alias("asked")
_AFTER_NEW = f"{NEW[:-1]}{chr(ord(NEW[-1]) + 1)}"  # the first text that does not begin as the name of a new machine
_DONE = INTENTS.outerjoin(ROUNDS, ROUNDS.c.id == INTENTS.c.round_id).outerjoin(OUTCOMES, OUTCOMES.c.id == _LAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One record: `id` is its link in the chain; `node_id` and `pool` None: it is about no machine, about all pools."""

    id: int
    at: datetime
    who: str
    what: str
    node_id: str | None
    pool: str | None
    why: str
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which records: of these deeds (none: of all), of a node, of a pool, not before `since`; the newest `limit`."""

    limit: int
    whats: Collection[str] = ()
    node_id: str | None = None
    pool: str | None = None
    since: datetime | None = None


class AuditLog:
    """The part of a ledger that audits read."""

    def __init__(self, store: Store) -> None:
        """Of an open ledger."""
        self._store = store

    def traces(self, asked: Asked) -> tuple[AuditRecord, ...]:
        """The newest records that were asked for, newest first."""
        with self._store.reading() as db:
            found = [trace for kind in _KINDS for trace in kind.traces(db, asked)]
        return tuple(sorted(found, key=lambda trace: -trace.id)[: asked.limit])

    def entries_about(self, node_id: str, until: datetime | None = None) -> tuple[Entry, ...]:
        """The newest intents about a node or workload with their outcomes, until a time, newest first.

        The launch that brought a machine is one of these. There are ENTRIES at most.
        """
        with self._store.reading() as db:
            its = _of_machine(node_id, by_bytes=db.dialect.name == "sqlite")
            query = select(INTENTS).where(its).order_by(INTENTS.c.id.desc()).limit(ENTRIES)
            if until is not None:
                query = query.where(INTENTS.c.at <= text(until))
            return tuple(views.entries(db, db.execute(query).all()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Where one kind of record is stored and how it is rendered."""

    table: Table
    source: FromClause
    columns: tuple[ColumnElement[Any], ...]
    render: Callable[[Row[Any]], AuditRecord]
    what: str | ColumnElement[str]
    among: Collection[str] = ()
    node_id: Callable[[str], ColumnElement[bool]] | None
    pool: Callable[[str], ColumnElement[bool]]

    def traces(self, db: Connection, asked: Asked) -> Iterator[AuditRecord]:
        """The newest of this kind."""
        query: Select[Any] = select(*self.columns).select_from(self.source).where(*self._conditions(asked))
        yield from map(self.render, db.execute(query.order_by(self.table.c.id.desc()).limit(asked.limit)))

    def _conditions(self, asked: Asked) -> Iterator[ColumnElement[bool]]:
        if isinstance(self.what, str):
            yield true() if not asked.whats or self.what in asked.whats else false()
        else:
            yield self.what.in_([each for each in self.among if not asked.whats or each in asked.whats])
        if asked.node_id is not None:
            yield false() if self.node_id is None else self.node_id(asked.node_id)
        if asked.pool is not None:
            yield self.pool(asked.pool)
        if asked.since is not None:
            yield self.table.c.at >= text(asked.since)


def _control(row: Row[Any]) -> AuditRecord:
    """A pause or its end, another mode, an acknowledgement, or a time without rounds."""
    result = "" if row.until is None else f"until {format_time(datetime.fromisoformat(row.until), seconds=True)}"
    why = row.reason
    if row.verb == "away":
        why = f"no round since {format_time(datetime.fromisoformat(row.reason), seconds=True)}"
    return _trace(row, who=row.who, what=row.verb, pool=row.pool, why=why, result=result)


def _keep_record(row: Row[Any]) -> AuditRecord:
    """A node kept, or given free."""
    result = (
        f"until {format_time(datetime.fromisoformat(row.until), seconds=True)}" if row.until > row.at else "taken back"
    )
    return _trace(row, who=row.who, what="snooze", node_id=row.node_id, why=row.reason, result=result)


def _approval(row: Row[Any]) -> AuditRecord:
    """Return the record of an approved removal."""
    return _trace(row, who=row.who, what="approve", node_id=row.node_id, pool=row.pool, why=row.reason)


def _backtest(row: Row[Any]) -> AuditRecord:
    """Return the record of rules that were tried on history."""
    result = "passed" if row.failure is None else f"failed: {row.failure}"
    return _trace(row, who=row.who, what="backtest", pool=row.pool, why=f"on {row.source}", result=result)


def _message(row: Row[Any]) -> AuditRecord:
    """A message that was delivered, or was not."""
    result = row.detail if row.reached else f"reached nobody for certain: {row.detail}"
    about = row.verb or row.key  # of a message about a budget, the key says what it was about
    why = f"{about} sent to {row.destination}"
    return _trace(row, who="controller", what="message", node_id=row.node_id, pool=row.pool, why=why, result=result)


def _intent(row: Row[Any]) -> AuditRecord:
    """A step, and its last known outcome."""
    why = read_sentence(row.reason)
    result = "open" if row.status is None else f"{row.status}: {row.detail}" if row.detail else row.status
    who = row.controller or "controller"
    return _trace(row, who=who, what=row.verb, node_id=row.node_id, pool=row.pool, why=why, result=result)


def _trace(
    row: Row[Any],
    *,
    who: str,
    what: str,
    why: str,
    node_id: str | None = None,
    pool: str | None = None,
    result: str = "",
) -> AuditRecord:
    at = datetime.fromisoformat(row.at)
    return AuditRecord(id=row.id, at=at, who=who, what=what, node_id=node_id, pool=pool, why=why, result=result)


def _of_machine(node_id: str, *, by_bytes: bool = False) -> ColumnElement[bool]:
    """What was done to a machine, and the launch that brought it: of that the outcomes alone name the machine.

    `by_bytes` is whether the index of machines is in the order of bytes. Then launches stand together in it, by the
    name of a new machine, and nothing else is walked for them; in the order of a language they may stand anywhere.
    """
    whole, begins = launch_details(node_id)
    said = [_NAMED.c.detail.in_(whole), *(_NAMED.c.detail.startswith(each, autoescape=True) for each in begins)]
    brought = select(_NAMED.c.id).where(_NAMED.c.key == _ASKED.c.key, or_(*said)).correlate(_ASKED).exists()
    new = [_ASKED.c.node_id >= NEW, _ASKED.c.node_id < _AFTER_NEW] if by_bytes else []
    launched = select(_ASKED.c.id).where(*new, _ASKED.c.verb == Verb.LAUNCH.value, brought)
    return INTENTS.c.id.in_(union_all(select(_ASKED.c.id).where(_ASKED.c.node_id == node_id), launched))


def _of_intents(pool: str) -> ColumnElement[bool]:
    return INTENTS.c.pool == pool


_KINDS = (
    _Kind(
        table=CONTROLS,
        source=CONTROLS,
        columns=tuple(CONTROLS.c),
        render=_control,
        what=CONTROLS.c.verb,
        among=_ORDERS,
        node_id=None,
        pool=lambda pool: or_(CONTROLS.c.pool == pool, CONTROLS.c.pool.is_(None)),
    ),
    _Kind(
        table=KEEPS,
        source=KEEPS,
        columns=tuple(KEEPS.c),
        render=_keep_record,
        what="snooze",
        node_id=lambda node_id: KEEPS.c.node_id == node_id,
        # A keep names no pool: its node's is known by the steps on record.
        pool=lambda pool: KEEPS.c.node_id.in_(select(INTENTS.c.node_id).where(INTENTS.c.pool == pool)),
    ),
    _Kind(
        table=APPROVALS,
        source=APPROVALS.outerjoin(INTENTS, INTENTS.c.key == APPROVALS.c.key),
        columns=(*APPROVALS.c, INTENTS.c.pool),
        render=_approval,
        what="approve",
        node_id=lambda node_id: APPROVALS.c.node_id == node_id,
        pool=_of_intents,
    ),
    _Kind(
        table=BACKTESTS,
        source=BACKTESTS,
        columns=tuple(BACKTESTS.c),
        render=_backtest,
        what="backtest",
        node_id=None,
        pool=lambda pool: BACKTESTS.c.pool == pool,
    ),
    _Kind(
        table=MESSAGES,
        source=MESSAGES.outerjoin(INTENTS, INTENTS.c.key == MESSAGES.c.key),
        columns=(*MESSAGES.c, INTENTS.c.verb, INTENTS.c.node_id, INTENTS.c.pool),
        render=_message,
        what="message",
        node_id=lambda node_id: INTENTS.c.node_id == node_id,
        pool=_of_intents,
    ),
    _Kind(
        table=INTENTS,
        source=_DONE,
        columns=(*INTENTS.c, ROUNDS.c.controller, OUTCOMES.c.status, OUTCOMES.c.detail),
        render=_intent,
        what=INTENTS.c.verb,
        among=_STEPS,
        node_id=_of_machine,
        pool=_of_intents,
    ),
)
