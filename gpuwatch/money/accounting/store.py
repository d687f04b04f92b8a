"""What was billed: rows by hour, later by day, of each node under its terms; and how they are metered and proved.

A round's metering is one transaction with the marks up to which each node is metered: metering it twice, after a crash
or by another leader, bills nothing twice. A local day that ended `ledger.hourly_spend_retention` ago is summed up and
sealed: the SHA-256 of its rows becomes a record of the chain, and it changes no more.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import add
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, Select, func, select

from gpuwatch.ledger import Ledger
from gpuwatch.ledger.any_text import json_of
from gpuwatch.ledger.chain import Writer, text
from gpuwatch.ledger.tables import ROUNDS, SPEND, SPEND_DAYS, SPEND_MARKS
from gpuwatch.model.decision import Observation
from gpuwatch.model.duration import format_time
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.usage import AMOUNTS, GPU, Holder, HourKey, Terms, milliseconds
from gpuwatch.money.accounting import held_store
from gpuwatch.money.accounting.holders import held_rows, rows_by_holder
from gpuwatch.money.accounting.metering import LostTags, Marks, Metering, UnmeteredError, meter
from gpuwatch.money.accounting.scope import counted_terms
from gpuwatch.money.accounting.sealing import sum_up
from gpuwatch.money.accounting.slices import Bucket, Calendar
from gpuwatch.money.accounting.terms import Numbers, all_terms, insert_terms, terms_texts, upsert
from gpuwatch.money.accounting.totals import Billed
from gpuwatch.money.accounting.totals import Row as Spent

log = logging.getLogger(__name__)

_DAY_S = 86_400
_SUMS = tuple(func.sum(SPEND.c[name]).label(name) for name in AMOUNTS)
_NODE_MS = func.sum(sum((SPEND.c[name] for name in AMOUNTS[1:GPU]), SPEND.c[AMOUNTS[0]])).label("node_ms")
_ROWS_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What SPEND_MARKS holds: `open` and `held` are the sums of all rows of days that are not sealed.

    `clusters` are those of the machines that were nodes of one when they were seen last.
    """

    marks: Marks
    open: tuple[int, ...] = (0,) * len(AMOUNTS)
    held: tuple[int, ...] = (0,) * len(held_store.HELD)
    clusters: Mapping[str, str] = field(default_factory=dict)


class Meter:
    """Bills every round of one controller by the same rules; gives what each added, by terms and again by holder."""

    def __init__(self, ledger: Ledger, rules: Metering) -> None:
        """Of an open ledger."""
        self.spend, self._rules = SpendBook(ledger), rules

    def __call__(self, observation: Observation) -> tuple[Spent, ...]:
        """Bill what has passed since the round before.

        Raises:
            LeadLostError: another controller leads; nothing was written.

        """
        self.spend.meter(observation, self._rules)
        return self.spend.latest


class SpendBook:
    """What was billed, kept in a ledger's store."""

    def __init__(self, ledger: Ledger) -> None:
        """Of an open ledger. Who meters keeps one: it remembers what it has read."""
        self._store = ledger.store
        self._keep_ms = int(ledger.hourly_spend_retention * 1000)
        self._snapshot: Connection | None = None
        self._known: tuple[int | None, dict[Terms, int]] = (None, {})  # with the epoch in which they were all
        self._met: dict[int, Terms] = {}  # by `billed`
        self._holders: tuple[int | None, dict[Holder, int]] = (None, {})  # likewise
        self._lost_tags = LostTags()
        self.latest: tuple[Spent, ...] = ()  # what the last metering added, by terms, and then again by holder

    def meter(self, observation: Observation, rules: Metering) -> int:
        """Bill what has passed since the marks, and seal a day that is due; gives how many rows changed.

        Raises:
            LeadLostError: another controller leads; nothing was written.

        """
        calendar, old = Calendar(rules.zone), milliseconds(observation.now) - self._keep_ms
        self.latest = ()
        with self._store.writing() as writer:
            page = _page(writer.db)
            before = None if page is None else page.marks
            doubted = self._lost_tags.doubted_nodes(observation, before, self._terms(writer.db), rules)
            while True:
                known = self._terms(writer.db)
                numbers = Numbers(known, first=max(known.values(), default=0) + 1)
                try:
                    marks, rows = meter(before, observation, rules, numbers.number_of, calendar, old, doubted)
                    break
                except UnmeteredError as error:
                    log.exception("%s is not metered in this round", error.node_id)
                    observation = _without_the_unmetered(observation, error.node_id)
            insert_terms(writer.db, numbers.added)
            _upsert(writer.db, rows)
            page = page or Page(marks=marks)
            parts, clusters = held_rows(rows, observation, marks.nodes, page.clusters)
            holders = self._all_holders(writer.db)
            held_store.write(writer.db, parts, holders)
            added = [sum(column) for column in zip(*rows.values(), strict=True)] or [0] * len(AMOUNTS)
            made = Page(
                marks=marks,
                open=tuple(map(sum, zip(page.open, added, strict=True))),
                held=held_store.more(page.held, parts),
                clusters=clusters,
            )
            made = self._seal(writer, made, calendar, observation.now, rules.hours_since(observation.now))
            writer.db.execute(SPEND_MARKS.delete())
            writer.db.execute(SPEND_MARKS.insert(), {"id": 1, "body": msgspec.msgpack.encode(made)})
        self._known, self._holders = (self._store.epoch, numbers.known), (self._store.epoch, holders)
        self.latest = _by_terms(rows, numbers.known)
        if parts:
            by_number = {number: counted_terms(terms) for terms, number in numbers.known.items()}
            self.latest += tuple(held_store.added_rows(parts, by_number))
        return len(rows)

    def billed_time(self, since: int, until: int) -> list[Billed]:
        """Machines' time by terms and hour or day, of rows that begin in [since, until): cheaper than `rows`."""
        keys = (SPEND.c.begin, SPEND.c.span, SPEND.c.terms)
        with self._reading() as db:
            found = db.execute(_rows_between(select(*keys, _NODE_MS), since, until).group_by(*keys)).all()
            if any(row.terms not in self._met for row in found):
                self._met = _terms_that_count(db)
        return [
            Billed(begin=row.begin, span=row.span, terms=self._met[row.terms], node_ms=int(row.node_ms))
            for row in found
        ]

    def billed_by_namespace(self, since: int, until: int) -> list[Billed]:
        """The part of `billed` that pods of a cluster held, by their namespaces."""
        with self._reading() as db:
            return held_store.namespaces_billed(db, since, until, _terms_that_count(db))

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Reads within see one moment, whatever the controller writes meanwhile."""
        with self._store.reading() as db:
            self._snapshot = db
            try:
                yield
            finally:
                self._snapshot = None

    def rows(self, since: int, until: int, *, by_node: bool = False, by_time: bool = False) -> list[Spent]:
        """Sums of the rows that begin in [since, until) by terms, and by node and time if asked; seconds since 1970.

        The time of a sealed day is its begin: of some machines alone parts of it are known.
        """
        keys = [SPEND.c.terms, *([SPEND.c.node_id] if by_node else []), *([SPEND.c.begin] if by_time else [])]
        with self._reading() as db:
            terms = _terms_that_count(db)
            found = db.execute(_rows_between(select(*keys, *_SUMS), since, until).group_by(*keys)).all()
            machines = {} if by_node or by_time else _apart(db, terms, since, until)
            days = db.execute(select(SPEND_DAYS.c.begin, SPEND_DAYS.c.until)).all() if by_time else []
        first, begins = len(keys), {at: day for day, until in days for at in range(day, until, 3600)}
        return [
            Spent(
                terms=terms[row.terms],
                amounts=[int(each) for each in row[first:]],
                begin=begins.get(row.begin, row.begin) if by_time else None,
                node_id=row.node_id if by_node else None,
                machines=machines.get(row.terms, frozenset()),
            )
            for row in found
        ]

    def rows_by_holder(self, since: int, until: int) -> list[Spent]:
        """The same sums as `rows`, by who held the GPUs in a Kubernetes cluster; those of no cluster have no holder."""
        query = _rows_between(select(SPEND.c.terms, *_SUMS), since, until).group_by(SPEND.c.terms)
        with self._reading() as db:
            terms, parts = _terms_that_count(db), held_store.sums_by_terms(db, since, until)
            found, machines = db.execute(query).all(), _apart(db, terms, since, until)
        return [
            replace(made, machines=machines.get(row.terms, frozenset()))
            for row in found
            for made in rows_by_holder(terms[row.terms], [int(each) for each in row[1:]], parts.get(row.terms, {}))
        ]

    def each(self, since: int, until: int, *, pool: str | None = None) -> Iterator[tuple[HourKey, Terms, list[int]]]:
        """The rows themselves, in order, a few at a time; those of one pool, if asked."""
        with self._reading() as db:
            terms, query = _terms_that_count(db), _rows_between(select(SPEND), since, until)
            if pool is not None:
                query = query.where(SPEND.c.terms.in_([number for number, each in terms.items() if each.pool == pool]))
            for row in _stream(db, query):
                yield HourKey(row.begin, row.node_id, row.terms, row.span), terms[row.terms], list(row[4:])

    def proof(self, since: int, until: int, pool: str, use: str) -> tuple[int, int, int]:
        """How many days are sealed, and of a pool how many rows begin in [since, until), and the sum of this amount.

        While these are the same so are those amounts: until a day is sealed, rows are made and added to, never less.
        """
        with self._reading() as db:
            of_pool = [number for number, each in all_terms(db).items() if each.pool == pool]
            sums = [func.count(), func.sum(SPEND.c[use])]
            query = _rows_between(select(*sums), since, until)
            rows, amount = db.execute(query.where(SPEND.c.terms.in_(of_pool))).one()
            return db.scalar(select(func.count()).select_from(SPEND_DAYS)) or 0, rows, int(amount or 0)

    def each_held(self, since: int, until: int) -> Iterator[tuple[int, Holder, list[int]]]:
        """The rows by holder themselves: the number of their terms, who held, GPU-milliseconds by use."""
        with self._reading() as db:
            yield from held_store.each(db, since, until)

    def has_rounds(self, since: datetime, until: datetime) -> bool:
        """Whether there was any round in [since, until); without one nobody knows what ran."""
        query = select(ROUNDS.c.id).where(ROUNDS.c.at >= text(since), ROUNDS.c.at < text(until)).limit(1)
        with self._reading() as db:
            return db.scalar(query) is not None

    def began(self) -> int | None:
        """When metering began, in ms since 1970; None: it has not."""
        with self._reading() as db:
            page = _page(db)
        return None if page is None else page.marks.began

    def nodes(self) -> frozenset[str]:
        """Ids of all nodes that were ever metered."""
        with self._reading() as db:
            return frozenset(db.scalars(select(SPEND.c.node_id).distinct()))

    def cut(self, since: int, until: int) -> bool:
        """Whether a row lies across either end, so that its part within is not known."""
        with self._reading() as db:
            return any(
                db.scalar(
                    _rows_between(select(SPEND.c.begin), at - 2 * _DAY_S, at).where(SPEND.c.begin + SPEND.c.span > at)
                )
                for at in (since, until)
            )

    def wrong(self, since: int, until: int) -> Iterator[str]:
        """What cannot be as it was written, a sentence each: of days that lie in [since, until), and of open rows."""
        with self._reading() as db:
            page, terms = _page(db), terms_texts(db)
            sealed = 0 if page is None else page.marks.sealed // 1000
            days = db.execute(select(SPEND_DAYS).order_by(SPEND_DAYS.c.begin)).all()
            yield from self._unsealed_days(db, days, sealed)
            for day in days:
                if since < day.until and day.begin < until:
                    rows = list(db.execute(_rows_between(select(SPEND), day.begin, day.until)))
                    found = _digest(rows, terms, held_store.sealed_texts(db, day.begin, day.until, terms))
                    if found != day.sha256:
                        counts = f"{len(rows)} rows, {day.row_count} when it was sealed"
                        yield f"the day that began {format_time(day.begin)} was changed since it was sealed: {counts}"
            sums = db.execute(_rows_between(select(*_SUMS), sealed, None)).one()
            opened = held_store.opening_sums(db, sealed)
            if page is not None and (tuple(int(each or 0) for each in sums), opened) != (page.open, page.held):
                rows_since = f"the rows since {format_time(sealed)}"
                yield f"{rows_since} do not add up to what was metered: some were changed or are gone"

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """The snapshot, or this moment."""
        if self._snapshot is not None:
            yield self._snapshot
            return
        with self._store.reading() as db:
            yield db

    def _unsealed_days(self, db: Connection, days: Sequence[Row[Any]], sealed: int) -> Iterator[str]:
        """Rows before the last seal that belong to no sealed day."""
        spans = [(day.begin, day.until) for day in days]
        for begin in db.scalars(select(SPEND.c.begin).where(SPEND.c.begin < sealed).distinct().order_by(SPEND.c.begin)):
            if not any(first <= begin < end for first, end in spans):
                yield f"the row of {format_time(begin)} lies in no sealed day: it was inserted"
                return

    def _terms(self, db: Connection) -> dict[Terms, int]:
        """All there are, without their dates; kept while this process leads without a break."""
        epoch, known = self._known
        if epoch is None or epoch != self._store.epoch:
            known = {replace(terms, price_as_of=None): number for number, terms in all_terms(db).items()}
        return dict(known)

    def _all_holders(self, db: Connection) -> dict[Holder, int]:
        """All there are, kept the same way."""
        epoch, known = self._holders
        if epoch is None or epoch != self._store.epoch:
            known = {holder: number for number, holder in held_store.all_holders(db).items()}
        return dict(known)

    def _seal(self, writer: Writer, page: Page, calendar: Calendar, now: datetime, hours_since: datetime) -> Page:
        """Sum up and seal the oldest day that is due, one a round."""
        db, due = writer.db, min(milliseconds(now) - self._keep_ms, milliseconds(hours_since))
        if due - page.marks.sealed < _DAY_S * 500:  # half a day: not asked every round
            return page
        first = db.scalar(select(func.min(SPEND.c.begin)).where(SPEND.c.begin >= page.marks.sealed // 1000))
        day = None if first is None else calendar.day(first * 1000)
        if day is None or day.end * 1000 > due:
            return page
        day = Bucket(max(day.begin, page.marks.sealed // 1000), day.end)  # the time zone may have been another one
        sums, parts = sum_up(db, day), held_store.sum_up(db, day.begin, day.end)
        rows = list(db.execute(_rows_between(select(SPEND), day.begin, day.end)))
        about = {"at": text(now), "begin": day.begin, "until": day.end, "row_count": len(rows)}
        terms = terms_texts(db)
        digest = _digest(rows, terms, held_store.sealed_texts(db, day.begin, day.end, terms))
        writer.append("spend_day", {**about, "sha256": digest})
        return replace(
            page,
            marks=replace(page.marks, sealed=day.end * 1000),
            open=tuple(mine - its for mine, its in zip(page.open, sums, strict=True)),
            held=tuple(mine - its for mine, its in zip(page.held, parts, strict=True)),
        )


def _without_the_unmetered(observation: Observation, node_id: str) -> Observation:
    """The same, with that node's state unknown: nothing is billed until it can be counted, and all of it then."""
    nodes = [replace(each, state=NodeState.UNKNOWN) if each.id == node_id else each for each in observation.fleet.nodes]
    return replace(observation, fleet=replace(observation.fleet, nodes=tuple(nodes)))


def _page(db: Connection) -> Page | None:
    """The marks; None before the first metering."""
    body = db.scalar(select(SPEND_MARKS.c.body))
    return None if body is None else msgspec.msgpack.decode(body, type=Page)


def _rows_between(query: Select[Any], since: int, until: int | None) -> Select[Any]:
    """Rows that begin in [since, until)."""
    query = query.where(SPEND.c.begin >= since)
    return query if until is None else query.where(SPEND.c.begin < until)


def _stream(db: Connection, query: Select[Any]) -> Iterator[Row[Any]]:
    """Rows in the order of their key, a few at a time."""
    ordered = query.order_by(SPEND.c.begin, SPEND.c.node_id, SPEND.c.terms, SPEND.c.span)
    yield from db.execute(ordered.execution_options(yield_per=_ROWS_AT_ONCE))


def _terms_that_count(db: Connection) -> dict[int, Terms]:
    """All terms by number, as the scope of this process takes them."""
    found = all_terms(db)
    for number, terms in found.items():
        found[number] = counted_terms(terms)
    return found


def _apart(db: Connection, terms: dict[int, Terms], since: int, until: int) -> dict[int, frozenset[str]]:
    """The machines under each terms that are counted: foreign ones, and those without a price."""
    asked = [number for number, each in terms.items() if each.usd_per_hour is None or each.foreign is not None]
    if not asked:
        return {}
    query = select(SPEND.c.terms, SPEND.c.node_id).where(SPEND.c.terms.in_(asked)).distinct()
    found: dict[int, set[str]] = {}
    for row in db.execute(_rows_between(query, since, until)):
        found.setdefault(row.terms, set()).add(row.node_id)
    return {number: frozenset(names) for number, names in found.items()}


def _by_terms(rows: dict[HourKey, list[int]], numbers: dict[Terms, int]) -> tuple[Spent, ...]:
    """What rows add up to under each terms."""
    sums: dict[int, list[int]] = {}
    for key, amounts in rows.items():
        known = sums.get(key.terms)
        sums[key.terms] = amounts if known is None else list(map(add, known, amounts))
    return tuple(
        Spent(terms=counted_terms(terms), amounts=sums[number]) for terms, number in numbers.items() if number in sums
    )


def _upsert(db: Connection, rows: dict[HourKey, list[int]]) -> None:
    """Add to the rows that are there, make the others."""
    upsert(db, SPEND, [(key.begin, key.node_id, key.terms, key.span, *amounts) for key, amounts in rows.items()])


def _digest(rows: Sequence[Row[Any]], terms: dict[int, str], parts: Iterator[bytes]) -> str:
    """SHA-256 of a day: each row with all of its terms, in the order of their keys; then those by holder."""
    made = hashlib.sha256()
    for row in sorted(rows, key=lambda row: (row.node_id, row.terms, row.begin, row.span)):
        made.update(json_of([*row, terms.get(row.terms)]))
    for each in parts:
        made.update(each)
    return made.hexdigest()
