"""What reports read from the ledger besides spending: actions, savings, and times without rounds."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import msgspec
from sqlalchemy import func, select

from gpuwatch.ledger import Ledger
from gpuwatch.ledger.attempts import launch_time
from gpuwatch.ledger.chain import text
from gpuwatch.ledger.records import read_reason
from gpuwatch.ledger.tables import BACKTESTS, CONTROLS, INTENTS, META, OUTCOMES, ROUNDS, SPEND, STOPPED
from gpuwatch.model.decision import ADDITIONS, FINAL, Done, Status, Verb
from gpuwatch.model.money import SAVES
from gpuwatch.model.stops import NOT_PROVED, STILL_BILLED
from gpuwatch.model.usage import USES, milliseconds
from gpuwatch.money.accounting.savings import Ran, Turn
from gpuwatch.money.report.progress import Event
from gpuwatch.money.report.report import ActionRecord, Actions, Count, Order, Rounds
from gpuwatch.policies.replacement import FAILING_SINCE, losses

_TURNS = (Verb.STOP, Verb.START, Verb.TERMINATE)
_CAPACITY = sorted(verb.value for verb in ADDITIONS | {Verb.TERMINATE})
_NAMED_AT_MOST = 500  # of a database's variables; beyond, all nodes are read
_BILLED = func.sum(sum((SPEND.c[f"node_{use}_ms"] for use in USES[1:]), SPEND.c[f"node_{USES[0]}_ms"]))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SAID = {
    "enforce": "mode: enforce",
    "observe": "mode: observe",
    "pause": "pause of {pool}",
    "resume": "resume of {pool}",
    "away": "a time without rounds",
}
_FINAL = tuple(status.value for status in FINAL)


class ActionHistory:
    """The part of a ledger that reports are made from."""

    def __init__(self, ledger: Ledger) -> None:
        """Of an open ledger."""
        self._store = ledger.store

    def actions(self, since: datetime, until: datetime, newest: int) -> Actions:
        """What ended in [since, until): all counted, the newest in full."""
        joined = OUTCOMES.join(INTENTS, OUTCOMES.c.key == INTENTS.c.key)
        within = (OUTCOMES.c.at >= text(since), OUTCOMES.c.at < text(until), OUTCOMES.c.status.in_(_FINAL))
        counts = select(INTENTS.c.verb, OUTCOMES.c.status, func.count()).select_from(joined).where(*within)
        full = select(INTENTS, OUTCOMES.c.at.label("ended"), OUTCOMES.c.status, OUTCOMES.c.detail).select_from(joined)
        ordered = select(CONTROLS).where(CONTROLS.c.verb.in_(("pause", "resume", "acknowledge")))
        ordered = ordered.where(CONTROLS.c.at >= text(since), CONTROLS.c.at < text(until)).order_by(
            CONTROLS.c.id.desc()
        )
        with self._store.reading() as db:
            counted = db.execute(counts.group_by(INTENTS.c.verb, OUTCOMES.c.status)).all()
            rows = db.execute(full.where(*within).order_by(OUTCOMES.c.id.desc()).limit(newest)).all()
            orders = db.execute(ordered.limit(newest)).all()
            changes = db.execute(
                select(INTENTS, OUTCOMES.c.at.label("ended"))
                .select_from(joined)
                .where(
                    OUTCOMES.c.at >= text(since),
                    OUTCOMES.c.at < text(until),
                    OUTCOMES.c.status == Status.SETTLED.value,
                    INTENTS.c.verb.in_(_CAPACITY),
                )
            ).all()
        return Actions(
            counts=tuple(Count(verb=Verb(verb), status=Status(status), count=n) for verb, status, n in sorted(counted)),
            newest=tuple(
                ActionRecord(
                    at=datetime.fromisoformat(row.ended),
                    verb=Verb(row.verb),
                    node_id=row.node_id,
                    pool=row.pool,
                    owner=row.owner,
                    status=Status(row.status),
                    why=read_reason(row.reason).sentence,
                    detail=row.detail,
                )
                for row in rows
            ),
            orders=tuple(
                Order(at=datetime.fromisoformat(row.at), verb=row.verb, pool=row.pool, who=row.who, reason=row.reason)
                for row in orders
            ),
            sick_machines=losses(
                Done(
                    key=row.key,
                    verb=Verb(row.verb),
                    node_id=row.node_id,
                    pool=row.pool,
                    status=Status.SETTLED,
                    at=datetime.fromisoformat(row.ended),
                    arguments=msgspec.json.decode(row.arguments, type=dict[str, str]),
                )
                for row in changes
            ),
        )

    def turns(self, since: datetime, until: datetime) -> list[Turn]:
        """Stops, starts and terminations that were shown done in [since, until), and each node's last one before.

        Launches of the time are among them. Of sick machines no termination is.
        """
        joined = OUTCOMES.join(INTENTS, OUTCOMES.c.key == INTENTS.c.key)
        done = (OUTCOMES.c.status == Status.SETTLED.value, INTENTS.c.verb.in_([verb.value for verb in _TURNS]))
        last = select(func.max(OUTCOMES.c.id)).select_from(joined).where(*done, OUTCOMES.c.at < text(since))
        columns = [INTENTS.c[name] for name in ("key", "node_id", "verb", "pool", "owner", "usd_per_hour")]
        query = select(*columns, OUTCOMES.c.at, OUTCOMES.c.detail, INTENTS.c.arguments).select_from(joined)
        failed = select(INTENTS.c.node_id, INTENTS.c.at).select_from(joined)
        failed = failed.where(OUTCOMES.c.status == Status.FAILED.value, INTENTS.c.verb == Verb.START.value)
        launched = (OUTCOMES.c.status == Status.SETTLED.value, INTENTS.c.verb == Verb.LAUNCH.value)
        within = (OUTCOMES.c.at >= text(since), OUTCOMES.c.at < text(until))
        with self._store.reading() as db:
            rows = [
                *db.execute(query.where(OUTCOMES.c.id.in_(last.group_by(INTENTS.c.node_id)))).all(),
                *db.execute(query.where(*done, *within).order_by(OUTCOMES.c.at, OUTCOMES.c.id)).all(),
                *db.execute(query.where(*launched, *within).order_by(OUTCOMES.c.at, OUTCOMES.c.id)).all(),
            ]
            tries = db.execute(failed.where(*within).order_by(INTENTS.c.id)).all()
        wanted: dict[str, list[int]] = {}
        for row in tries:
            wanted.setdefault(row.node_id, []).append(milliseconds(datetime.fromisoformat(row.at)))
        turns = [
            Turn(
                key=key,
                node_id=node_id,
                verb=Verb(verb),
                at=milliseconds(datetime.fromisoformat(at)),
                pool=pool,
                owner=owner,
                usd_per_hour=None if (saves := said.get(SAVES, usd)) is None else Decimal(saves),
                proved=NOT_PROVED not in detail,
                ended_bill=STILL_BILLED not in detail,
                launched=None if (began := launch_time(said)) is None else milliseconds(began),
            )
            for key, node_id, verb, pool, owner, usd, at, detail, arguments in map(tuple, rows)
            if not (FAILING_SINCE in (said := msgspec.json.decode(arguments)) and verb == Verb.TERMINATE.value)
        ]
        return list(_with_first_tries(turns, wanted))

    def events(self, since: datetime, until: datetime) -> list[Event]:
        """What may have changed the waste: modes, pauses, times without rounds, tried rules, stops, starts."""
        query = select(CONTROLS).where(CONTROLS.c.verb.in_(tuple(_SAID)), CONTROLS.c.at >= text(since))
        tried = select(BACKTESTS.c.at, BACKTESTS.c.pool, BACKTESTS.c.rules).where(BACKTESTS.c.at >= text(since))
        with self._store.reading() as db:
            controls = db.execute(query.where(CONTROLS.c.at < text(until)).order_by(CONTROLS.c.id)).all()
            tests = db.execute(tried.where(BACKTESTS.c.at < text(until)).order_by(BACKTESTS.c.id)).all()
        found = [
            Event(at=datetime.fromisoformat(row.at), what=_SAID[row.verb].format(pool=row.pool or "all pools"))
            for row in controls
        ]
        known: dict[str, str] = {}
        for row in tests:
            if known.get(row.pool, row.rules) != row.rules:
                found.append(Event(at=datetime.fromisoformat(row.at), what=f"new rules of pool {row.pool}"))
            known[row.pool] = row.rules
        begin = milliseconds(since)
        turns = [turn for turn in self.turns(since, until) if turn.at >= begin and turn.verb in _TURNS]
        return [*found, *(Event(at=_EPOCH + timedelta(milliseconds=turn.at), verb=turn.verb) for turn in turns)]

    def stops_in_force(self) -> frozenset[str]:
        """The keys of stops that hold until now."""
        with self._store.reading() as db:
            return frozenset(db.scalars(select(STOPPED.c.key)))

    def ran(self, nodes: Collection[str], since: int, until: int) -> dict[str, list[Ran]]:
        """What was billed of these nodes, in order; seconds since 1970, rows that reach into it count."""
        query = select(SPEND.c.node_id, SPEND.c.begin, SPEND.c.span, _BILLED).where(
            SPEND.c.begin >= since - 25 * 3600, SPEND.c.begin < until
        )
        if len(nodes) <= _NAMED_AT_MOST:
            query = query.where(SPEND.c.node_id.in_(sorted(nodes)))
        query = query.group_by(SPEND.c.node_id, SPEND.c.begin, SPEND.c.span).order_by(SPEND.c.begin)
        wanted, found = frozenset(nodes), dict[str, list[Ran]]()
        with self._store.reading() as db:
            for node_id, begin, span, billed in db.execute(query):
                if node_id in wanted:
                    stretch = Ran(begin=begin * 1000, end=(begin + span) * 1000, billed=int(billed))
                    found.setdefault(node_id, []).append(stretch)
        return found

    def rounds(self, since: datetime, until: datetime, longest_seconds: float) -> Rounds:
        """How many there were in [since, until), and where they were farther apart than that; the ends count."""
        query = select(ROUNDS.c.at).where(ROUNDS.c.at >= text(since), ROUNDS.c.at < text(until)).order_by(ROUNDS.c.at)
        with self._store.reading() as db:
            times = [datetime.fromisoformat(at) for at in db.scalars(query)]
        longest = timedelta(seconds=longest_seconds)
        ends = pairwise([since.astimezone(UTC), *times, until.astimezone(UTC)])
        gaps = [(begin, end) for begin, end in ends if end - begin > longest]
        return Rounds(count=len(times), gaps=tuple(sorted(gaps, key=lambda gap: (gap[0] - gap[1], gap[0]))))

    def ledger_id(self) -> str:
        """The id of this ledger."""
        with self._store.reading() as db:
            return str(db.scalar(select(META.c.value).where(META.c.name == "ledger_id")))

    def last_delivered(self, name: str) -> str | None:
        """The last day with a report delivered to that destination, as YYYY-MM-DD; None: no day."""
        with self._store.reading() as db:
            return db.scalar(select(META.c.value).where(META.c.name == _meta(name)))

    def keep_delivered(self, name: str, day: str) -> None:
        """Remember the day. Any controller may write it; it is not a record of the chain."""
        with self._store.writing(fenced=False) as writer:
            writer.db.execute(META.delete().where(META.c.name == _meta(name)))
            writer.db.execute(META.insert(), {"name": _meta(name), "value": day})


def _with_first_tries(turns: Sequence[Turn], tried: Mapping[str, Sequence[int]]) -> Iterator[Turn]:
    """Starts with the first one since the turn before that was asked for in vain."""
    before: dict[str, int] = {}
    for turn in turns:
        since = before.get(turn.node_id, 0)
        first = [at for at in tried.get(turn.node_id, ()) if since < at < turn.at] if turn.verb is Verb.START else []
        before[turn.node_id] = turn.at
        yield replace(turn, wanted=min(first, default=None))


def _meta(name: str) -> str:
    return f"report:{name}"
