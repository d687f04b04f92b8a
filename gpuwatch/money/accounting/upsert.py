"""Adds amounts to rows of a table by their keys, in either database."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Dialect, Table, bindparam
from sqlalchemy.dialects import postgresql, sqlite

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
    in_order = places == list(range(len(names)))
    db.exec_driver_sql(str(sql), list(rows) if in_order else [tuple([row[at] for at in places]) for row in rows])


@lru_cache(maxsize=8)
def _upserting(table: Table, dialect: Dialect) -> tuple[Any, Sequence[str] | None]:
    """The statement, and the order of its values where a database takes them by place."""
    key = list(table.primary_key)
    statement = _INSERT[dialect.name](table).values({each.name: bindparam(each.name) for each in table.columns})
    more = {each.name: each + statement.excluded[each.name] for each in table.columns if each not in set(key)}
    statement = statement.on_conflict_do_update(index_elements=key, set_=more)
    compiled = statement.compile(dialect=dialect)
    return (str(compiled), compiled.positiontup) if dialect.positional else (statement, None)
