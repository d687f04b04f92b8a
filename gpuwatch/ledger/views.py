"""What decisions may know of the past: every query goes by an index to recent records, however old the ledger is."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Row, Text, bindparam, exists, func, or_, select

from gpuwatch.ledger import active_times
from gpuwatch.ledger.attempts import attempts, fault, interruption_of, launch_time, open_intent
from gpuwatch.ledger.chain import text
from gpuwatch.ledger.index_writer import read_unreached
from gpuwatch.ledger.indexes import BESIDE_NOTICES, settled_by_records
from gpuwatch.ledger.records import Entry, read_arguments, read_price, read_reason, read_sentence
from gpuwatch.ledger.scale_in_protection import shields
from gpuwatch.ledger.tables import (
    APPROVALS,
    BACKTESTS,
    CONTROLS,
    GAPS,
    INTENTS,
    KEEPS,
    MESSAGES,
    NOTICES,
    OPEN_INTENTS,
    OUTCOMES,
    PAUSES,
    STOPPED,
    WISHES,
)
from gpuwatch.model.cloud_notice import ON_RECORD, Interruption
from gpuwatch.model.decision import (
    ADDITIONS,
    FINAL,
    REMOVAL_STEPS,
    DesiredNodes,
    Done,
    Intent,
    LedgerView,
    Outcome,
    Status,
    Stopped,
    Verb,
)
from gpuwatch.model.kubernetes import target_of
from gpuwatch.model.orders import Approval, BacktestRecord, Pause, Snooze
from gpuwatch.model.promise import Notice, promise_of
from gpuwatch.model.proposal import stop_words
from gpuwatch.model.stops import read_answer
from gpuwatch.model.verbs import CLOUD_RECORDS, ENDS_OF_A_STOP, RECORDS, REDUCTIONS, SCHEDULER_CHANGES, WORK_ENDINGS

CHANGES_MACHINES = REMOVAL_STEPS | ADDITIONS | SCHEDULER_CHANGES | WORK_ENDINGS | RECORDS | REDUCTIONS

# Statements are made once: every round asks them.
_SINCE, _NOW = bindparam("since", type_=Text), bindparam("now", type_=Text)
# What people heard of a notice, or said to it, counts only where that came afterwards.
_DELIVERED_AT = (
    select(func.min(MESSAGES.c.at))
    .where(MESSAGES.c.key == INTENTS.c.key, MESSAGES.c.reached == 1, MESSAGES.c.id > OUTCOMES.c.id)
    .correlate(INTENTS, OUTCOMES)
    .scalar_subquery()
)
_OF_A_NOTICE: list[Any] = [INTENTS.c[name] for name in ("key", "node_id", "pool", "reason", "arguments")]
_OF_A_NOTICE += [OUTCOMES.c.at.label("given_at"), OUTCOMES.c.id.label("link"), _DELIVERED_AT.label("told_at")]
_IN_FORCE = settled_by_records(
    _OF_A_NOTICE, NOTICES, Verb.NOTICE, lambda verb: verb.not_in(sorted(BESIDE_NOTICES)), {Status.SETTLED}
)
_APPROVALS = select(APPROVALS).where(APPROVALS.c.key.in_(select(NOTICES.c.key)))
# A stop is believed where the records say so: the node's newest settled stop, start or end is that stop.
_ENDED = INTENTS.alias("ended")
_ENDING = (
    select(func.max(OUTCOMES.c.id))
    .join(_ENDED, OUTCOMES.c.key == _ENDED.c.key)
    .where(
        _ENDED.c.node_id == STOPPED.c.node_id,
        _ENDED.c.verb.in_([verb.value for verb in sorted(ENDS_OF_A_STOP)]),
        OUTCOMES.c.status == Status.SETTLED.value,
    )
)
_STOPS = OUTCOMES.alias("stops")
# What the owner of a stopped machine asks: how long the notice before the stop was, and who approved it.
_NOTICED, _YES = INTENTS.alias("noticed"), APPROVALS.alias("yes")
_LAST_NOTICE = (
    select(func.max(_NOTICED.c.id))
    .where(
        _NOTICED.c.node_id == INTENTS.c.node_id,
        _NOTICED.c.verb == Verb.NOTICE.value,
        _NOTICED.c.id < INTENTS.c.id,
    )
    .correlate(INTENTS)
    .scalar_subquery()
)
_LAST_YES = (
    select(func.max(_YES.c.id))
    .where(_YES.c.key == _NOTICED.c.key, _YES.c.id < INTENTS.c.id)
    .correlate(_NOTICED, INTENTS)
    .scalar_subquery()
)
# The cloud's answer to the stop: by it the stop is known to be ours.
_ANSWERS = OUTCOMES.alias("answers")
_LAST_ANSWER = (
    select(func.max(_ANSWERS.c.id))
    .where(_ANSWERS.c.key == STOPPED.c.key, _ANSWERS.c.status == Status.ACCEPTED.value)
    .correlate(STOPPED)
    .scalar_subquery()
)
_STOPPED = (
    select(
        STOPPED,
        INTENTS.c.id.label("link"),
        INTENTS.c.at.label("asked_at"),
        INTENTS.c.arguments,
        INTENTS.c.reason,
        _NOTICED.c.arguments.label("promised"),
        _YES.c.who.label("approved_by"),
        _ANSWERS.c.detail.label("answer"),
    )
    .join(INTENTS, (INTENTS.c.key == STOPPED.c.key) & (INTENTS.c.node_id == STOPPED.c.node_id))
    .join(_STOPS, (_STOPS.c.key == STOPPED.c.key) & (_STOPS.c.at == STOPPED.c.at))
    .outerjoin(_ANSWERS, _ANSWERS.c.id == _LAST_ANSWER)
    .outerjoin(_NOTICED, _NOTICED.c.id == _LAST_NOTICE)
    .outerjoin(_YES, _YES.c.id == _LAST_YES)
    .where(INTENTS.c.verb == Verb.STOP.value, _STOPS.c.id == _ENDING.correlate(STOPPED).scalar_subquery())
    .order_by(STOPPED.c.node_id)
)
KNOWN_GAPS = select(GAPS)
_WISHES = select(WISHES).where(WISHES.c.at > _SINCE).order_by(WISHES.c.at)
_ORDERS = select(CONTROLS).where(CONTROLS.c.verb == bindparam("verb"), CONTROLS.c.at > _SINCE).order_by(CONTROLS.c.id)
_PAUSES = select(CONTROLS).where(
    CONTROLS.c.id.in_(select(PAUSES.c.id)), or_(CONTROLS.c.until.is_(None), CONTROLS.c.until > _NOW)
)
# Of all that tried the same rules of a pool, the newest counts; people make them, so there are few to walk.
_BACKTESTS = select(BACKTESTS).where(
    BACKTESTS.c.id.in_(select(func.max(BACKTESTS.c.id)).group_by(BACKTESTS.c.pool, BACKTESTS.c.rules))
)
# The newest of each node's that has not ended, unless a later one of it has: that one took it back.
_LATER = KEEPS.alias("later")
_KEEPS = select(KEEPS).where(
    KEEPS.c.until > _NOW,
    KEEPS.c.id == select(func.max(_LATER.c.id)).where(_LATER.c.node_id == KEEPS.c.node_id).scalar_subquery(),
)
_OPEN = select(INTENTS).where(INTENTS.c.key.in_(select(OPEN_INTENTS.c.key)))
_OUTCOMES = select(OUTCOMES).where(OUTCOMES.c.key == bindparam("key")).order_by(OUTCOMES.c.id)
# All outcomes of the intents that have a recent one and that `ended_intents` may give. What is sorted here could tempt
# a database to walk the whole table in that order, so it is sorted afterwards.
_LATE, _FAILED = OUTCOMES.alias("late"), OUTCOMES.alias("failed")
_HAS_FAILED = exists().where(_FAILED.c.key == INTENTS.c.key, _FAILED.c.status == Status.FAILED.value)
_RECENT = (
    select(INTENTS, OUTCOMES.c.id.label("step"), OUTCOMES.c.status, OUTCOMES.c.detail, OUTCOMES.c.at.label("then"))
    .join(OUTCOMES, OUTCOMES.c.key == INTENTS.c.key)
    .where(INTENTS.c.key.in_(select(_LATE.c.key).where(_LATE.c.at > _SINCE)))
    .where(INTENTS.c.verb.not_in(sorted(set(Verb) - CHANGES_MACHINES)) | _HAS_FAILED)
)
# What clouds did of themselves lately; the newest of a node's counts.
_RECORDED = (
    select(INTENTS, OUTCOMES.c.at.label("then"))
    .join(OUTCOMES, OUTCOMES.c.key == INTENTS.c.key)
    .where(
        INTENTS.c.verb.in_(sorted(CLOUD_RECORDS)),
        OUTCOMES.c.status == Status.SETTLED.value,
        INTENTS.c.key.in_(select(_LATE.c.key).where(_LATE.c.at > _SINCE)),
    )
)


def view(db: Connection, now: datetime, since: datetime, interval_seconds: float | None = None) -> LedgerView:
    """All of it, within one reading transaction; with an interval as a round of that interval begins with it."""
    past, open_ = {"since": text(since)}, open_actions(db, since)
    in_force = sorted(db.execute(_IN_FORCE).all(), key=attrgetter("node_id"))
    stops = db.execute(_STOPPED).all()
    oldest = min([since, *(_time(row.given_at) for row in in_force), *(_time(row.asked_at) for row in stops)])
    absence = None if interval_seconds is None else active_times.absent(db, now, interval_seconds)
    nothing = tuple(active_times.interruptions_of(active_times.controls(db, oldest), absence))
    links = {row.key: int(row.link) for row in in_force}
    return LedgerView(
        notices=tuple(_notice(row, nothing, now) for row in in_force),
        open_intents=open_.open_intents,
        recent=tuple(ended_intents(sorted(db.execute(_RECENT, past), key=attrgetter("id", "step")))),
        stopped=tuple(_stopped_of_row(row, nothing) for row in stops),
        wishes=tuple(
            DesiredNodes(pool=row.pool, policy=row.policy, at=_time(row.at), want=row.want)
            for row in db.execute(_WISHES, past)
        ),
        pauses=pauses(db, now),
        resumed=active_times.resumed_times(nothing, since, now),
        resume_orders=open_.resume_orders,
        acknowledged=list_orders(db, "acknowledge", since),
        backtests=tuple(map(_backtest_of_row, sorted(db.execute(_BACKTESTS), key=attrgetter("id")))),
        snoozes=snoozes(db, now),
        approvals=tuple(
            Approval(node_id=row.node_id, key=row.key, at=_time(row.at), who=row.who, reason=row.reason)
            for row in sorted(db.execute(_APPROVALS), key=attrgetter("id"))
            if row.id > links.get(row.key, row.id)
        ),
        shields=shields(db),
        interruptions=_interruptions(db, now),
        unreached=read_unreached(db),
    )


def open_actions(db: Connection, since: datetime) -> LedgerView:
    """What is open, and who resumed since then."""
    known = entries(db, sorted(db.execute(_OPEN), key=attrgetter("id")))
    found = tuple(open_intent(each.intent, each.outcomes) for each in known)
    return LedgerView(open_intents=found, resume_orders=list_orders(db, "resume", since))


def _interruptions(db: Connection, now: datetime) -> tuple[Interruption, ...]:
    """The clouds' notices on record that are not over: the newest of each node, where it is one."""
    rows = sorted(db.execute(_RECORDED, {"since": text(now - ON_RECORD)}), key=attrgetter("id"))
    newest = {row.node_id: row for row in rows}
    found = (
        interruption_of(Verb(row.verb), row.node_id, row.key, row.pool, _time(row.then), _arguments(row))
        for row in newest.values()
    )
    return tuple(sorted((each for each in found if each is not None), key=attrgetter("node_id")))


def list_orders(db: Connection, verb: str, since: datetime) -> tuple[tuple[str | None, datetime], ...]:
    """When people gave an order of this kind, and for which pool (None: all)."""
    found = db.execute(_ORDERS, {"verb": verb, "since": text(since)})
    return tuple((row.pool, _time(row.at)) for row in found)


def notice_key(db: Connection, node_id: str) -> str | None:
    """The key of the notice in force for a node."""
    row = db.execute(_IN_FORCE.where(INTENTS.c.node_id == node_id)).one_or_none()
    return None if row is None else str(row.key)


def snoozes(db: Connection, now: datetime) -> tuple[Snooze, ...]:
    """Those in force, one for each node."""
    return tuple(
        Snooze(node_id=row.node_id, at=_time(row.at), until=_time(row.until), who=row.who, reason=row.reason)
        for row in sorted(db.execute(_KEEPS, {"now": text(now)}), key=attrgetter("id"))
    )


def pauses(db: Connection, now: datetime) -> tuple[Pause, ...]:
    """Return the pauses that are in force."""
    return tuple(
        Pause(
            pool=row.pool,
            at=_time(row.at),
            who=row.who,
            reason=row.reason,
            until=None if row.until is None else _time(row.until),
        )
        for row in sorted(db.execute(_PAUSES, {"now": text(now)}), key=attrgetter("id"))
    )


def _notice(row: Row[Any], nothing: Sequence[active_times.Between], now: datetime) -> Notice:
    """One in force, with what came between."""
    at, arguments = _time(row.given_at), _arguments(row)
    return Notice(
        node_id=row.node_id,
        key=row.key,
        at=at,
        told_at=None if row.told_at is None else _time(row.told_at),
        promise=promise_of(row.pool, arguments),
        interruptions=active_times.touching(nothing, row.pool, int(row.link), at, now),
        why=read_sentence(row.reason),
        target=target_of(arguments),
    )


def list_stopped(db: Connection) -> tuple[Stopped, ...]:
    """What we stopped and nobody has started since."""
    return tuple(map(_stopped_of_row, db.execute(_STOPPED)))


def _stopped_of_row(row: Row[Any], nothing: Sequence[active_times.Between] = ()) -> Stopped:
    """A machine that we stopped, with the newest of those times since then in which no controller looked."""
    away = [each.interruption for each in nothing if each.first > row.link and each.interruption.why == "away"]
    launched_at = launch_time(_arguments(row)) if row.arguments is not None else None
    promise = None if row.promised is None else promise_of("", read_arguments(row.promised, row.key))
    return Stopped(
        node_id=row.node_id,
        key=row.key,
        at=_time(row.at),
        launched_at=launched_at,
        why=stop_words(read_reason(row.reason), None if promise is None else promise.grace_seconds),
        approved_by=row.approved_by,
        asked_at=_time(row.asked_at),
        away=max(away, key=attrgetter("since"), default=None),
        answer=read_answer(row.answer or ""),
    )


def _backtest_of_row(row: Row[Any]) -> BacktestRecord:
    """Return one record of a backtest."""
    return BacktestRecord(
        pool=row.pool,
        at=_time(row.at),
        who=row.who,
        rules=row.rules,
        source=row.source,
        node_hours=float(row.node_hours),
        stops=row.stops,
        suspected_wrong_stops=row.suspected_wrong_stops,
        checked_node_hours=float(row.checked_node_hours),
        checked_stops=row.checked_stops,
        wrongly_stopped=row.wrongly_stopped,
        violations=row.violations,
        saved_ratio=None if row.saved_ratio is None else float(row.saved_ratio),
        failure=row.failure,
    )


def entries(db: Connection, rows: Sequence[Row[Any]]) -> Iterator[Entry]:
    """Intents with their outcomes."""
    for row in rows:
        outcomes = db.execute(_OUTCOMES, {"key": row.key})
        yield Entry(
            intent=Intent(
                key=row.key,
                verb=Verb(row.verb),
                node_id=row.node_id,
                pool=row.pool,
                at=_time(row.at),
                reason=read_reason(row.reason),
                arguments=_arguments(row),
                owner=row.owner,
                usd_per_hour=_usd(row),
            ),
            outcomes=tuple(
                Outcome(key=row.key, at=_time(each.at), status=Status(each.status), detail=each.detail)
                for each in outcomes
            ),
        )


def ended_intents(rows: Iterable[Row[Any]]) -> Iterator[Done]:
    """The finished ones among intents with all their outcomes: all that change machines, and every failure.

    Of an intent's times the newest counts: a clock set back before its settlement must not make it look older.
    """
    for _, outcomes in groupby(rows, key=attrgetter("id")):
        known = list(outcomes)
        row = known[-1]
        status = Status(row.status)
        if status in FINAL and (status is Status.FAILED or Verb(row.verb) in CHANGES_MACHINES):
            tried = attempts((Status(each.status), _time(each.then)) for each in known[:-1])
            yield Done(
                key=row.key,
                verb=Verb(row.verb),
                node_id=row.node_id,
                pool=row.pool,
                status=status,
                at=_time(max(each.then for each in known)),
                owner=row.owner,
                usd_per_hour=_usd(row),
                arguments=_arguments(row),
                detail=row.detail,
                reached=status is Status.SETTLED or tried.reached,
                reached_at=tried.reached_at,
                refused=tried.given_up_as_refused(status),
                why=(reason := read_reason(row.reason)).sentence,
                code=reason.code,
                fault=fault(status, row.detail, [Status(each.status) for each in known[:-1]]),
            )


def _arguments(row: Row[Any]) -> dict[str, str]:
    """What went to the cloud."""
    return read_arguments(row.arguments, row.key)


def _usd(row: Row[Any]) -> Decimal | None:
    """The price of then."""
    return read_price(row.usd_per_hour, row.key)


def _time(at: str) -> datetime:
    """Return a stored time as aware UTC."""
    return datetime.fromisoformat(at)
