"""The labels and prices that spending is billed under, each set under a number that it keeps; adding up rows by key."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import Connection, Dialect, Table, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite

from gpuwatch.ledger.any_text import AnyText, json_of, storable_text
from gpuwatch.ledger.records import LedgerError
from gpuwatch.ledger.tables import SPEND_TERMS
from gpuwatch.model.usage import Terms

_LATER = ("cloud", "provider")  # columns that schema 6 did not have


@dataclass(slots=True)
class Numbers:
    """The number of each set of terms: known ones, and what this transaction adds.

    A price that is reported again with a later date is the same one; the first date is kept.
    """

    known: dict[Terms, int]
    first: int
    added: dict[int, Terms] = field(default_factory=dict)

    def number_of(self, terms: Terms) -> int:
        """The number of these terms; it never changes."""
        undated = replace(terms, price_as_of=None)
        found = self.known.get(undated)
        if found is None:
            found = self.known[undated] = self.first + len(self.added)
            self.added[found] = terms
        return found


def insert_terms(db: Connection, added: dict[int, Terms]) -> None:
    """Write new sets of terms."""
    if added:
        rows = [
            {"id": number, "digest": hashlib.sha256(_canonical(terms)).hexdigest(), **_columns(terms)}
            for number, terms in added.items()
        ]
        db.execute(SPEND_TERMS.insert(), rows)


def terms_texts(db: Connection) -> dict[int, str]:
    """All terms by number, as one text each."""
    return {number: _canonical(each).decode() for number, each in all_terms(db).items()}


def _columns(terms: Terms) -> dict[str, str | int | None]:
    """As texts, which both databases give back as they are."""
    usd, as_of = terms.usd_per_hour, terms.price_as_of
    return {
        **asdict(terms),
        "usd_per_hour": None if usd is None else str(usd),
        "price_as_of": None if as_of is None else as_of.isoformat(),
        "tags": json_of(dict(terms.tags)).decode(),
    }


def _canonical(terms: Terms) -> bytes:
    """What is hashed. What a schema did not have is left out while it is not known: the seals of old days hold."""
    columns = _columns(terms)
    unknown = [name for name in _LATER if columns[name] is None]
    return json_of({name: columns[name] for name in columns.keys() - unknown})


class _Known(dict[int, Terms]):
    """By number; a number without its terms is an error that says so."""

    def __missing__(self, number: int) -> Terms:
        """Raise: somebody deleted them."""
        raise LedgerError(f"the terms {number}, under which spending was billed, are gone; restore the ledger")


def all_terms(db: Connection) -> dict[int, Terms]:
    """By number.

    Raises:
        LedgerError: at a number without its terms.

    """
    return _Known(
        (
            row.id,
            Terms(
                pool=row.pool,
                owner=row.owner,
                account=row.account,
                region=row.region,
                instance_type=row.instance_type,
                capacity_type=row.capacity_type,
                gpus=row.gpus,
                usd_per_hour=None if row.usd_per_hour is None else Decimal(row.usd_per_hour),
                price_as_of=None if row.price_as_of is None else date.fromisoformat(row.price_as_of),
                price_source=row.price_source,
                tags=tuple(sorted(msgspec.json.decode(row.tags, type=dict[str, str]).items())),
                cloud=row.cloud,
                provider=row.provider,
            ),
        )
        for row in db.execute(select(SPEND_TERMS))
    )


_INSERT: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def upsert(db: Connection, table: Table, rows: Sequence[tuple[int | str, ...]]) -> None:
    """Add to the rows that are there, make the others; values stand as the table's columns do, its key first."""
    if not rows:
        return
    names = [column.name for column in table.columns]
    sql, order = _upserting(table, db.dialect)
    if order is None:
        db.execute(sql, [dict(zip(names, row, strict=True)) for row in rows])
        return
    # By place: that SQLAlchemy names 40 values of each row takes as long as writing them.
    places = [names.index(name) for name in order]
    texts = {at for at in places if isinstance(table.columns[names[at]].type, AnyText)}
    written = [[storable_text(str(row[at])) if at in texts else row[at] for at in places] for row in rows]
    db.exec_driver_sql(str(sql), list(map(tuple, written)))


@lru_cache(maxsize=8)
def _upserting(table: Table, dialect: Dialect) -> tuple[Any, Sequence[str] | None]:
    """The statement, and the order of its values where a database takes them by place."""
    key = list(table.primary_key)
    statement = _INSERT[dialect.name](table).values({each.name: bindparam(each.name) for each in table.columns})
    more = {each.name: each + statement.excluded[each.name] for each in table.columns if each not in set(key)}
    statement = statement.on_conflict_do_update(index_elements=key, set_=more)
    compiled = statement.compile(dialect=dialect)
    return (str(compiled), compiled.positiontup) if dialect.positional else (statement, None)
