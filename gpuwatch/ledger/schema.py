"""The schema's versions: a new database is made, an older one is migrated in one transaction, a newer one refused."""

import uuid
from collections.abc import Callable

from sqlalchemy import Connection, Dialect, inspect, select
from sqlalchemy.schema import CreateIndex, CreateTable

from gpuwatch.ledger import migrations
from gpuwatch.ledger.chain import GENESIS
from gpuwatch.ledger.records import LedgerError
from gpuwatch.ledger.tables import HEAD, META, METADATA, SCHEMA_VERSION

_MADE: dict[str, tuple[str, ...]] = {}  # statements by dialect
# By the version that each comes from.
_MIGRATIONS: dict[int, Callable[[Connection], None]] = {
    1: migrations.from_1,
    2: migrations.from_2,
    3: migrations.from_3,
    4: migrations.from_4,
    5: migrations.from_5,
    6: migrations.from_6,
    7: migrations.from_7,
}


def prepare(db: Connection, place: str, ledger_id: str | None = None, *, new: bool = True) -> None:
    """Make or migrate the tables, within a transaction of the caller's. `new`: they may be missing.

    Raises:
        LedgerError: the database is of a version that this gpuwatch does not know, or has lost its tables.

    """
    found = _version(db, place)
    if found is None and not new:
        raise LedgerError(
            f"{place} is a database without a ledger: it has lost its -wal file, or belongs to another program; "
            "nothing was changed. Put the ledger back (docs/ledger.md, Restore), or move it away to begin a new one"
        )
    if found is None:
        for statement in _statements(db.dialect):
            db.exec_driver_sql(statement)
        rows = {"schema_version": str(SCHEMA_VERSION), "ledger_id": ledger_id or uuid.uuid4().hex[:12]}
        db.execute(META.insert(), [{"name": name, "value": value} for name, value in rows.items()])
        db.execute(HEAD.insert(), {"links": 0, "hash": GENESIS, "epoch": 0, "leader": ""})
        return
    while found in _MIGRATIONS:
        _MIGRATIONS[found](db)
        found += 1
        db.execute(META.update().where(META.c.name == "schema_version").values(value=str(found)))
    check(db, place)


def check(db: Connection, place: str) -> None:
    """Refuse what is of another version instead of guessing.

    Raises:
        LedgerError: it is of another version, or no ledger.

    """
    found = _version(db, place)
    if found is None:
        raise LedgerError(f"{place} holds no ledger yet; start `gpuwatch controller`, which makes it")
    if found < SCHEMA_VERSION:
        remedy = "start `gpuwatch controller` once, which migrates it"
    elif found > SCHEMA_VERSION:
        remedy = "use the gpuwatch that wrote it, or a later one"
    else:
        return
    raise LedgerError(f"{place} has schema version {found}, this gpuwatch knows {SCHEMA_VERSION}; {remedy}")


def _statements(dialect: Dialect) -> tuple[str, ...]:
    """What makes the tables, worked out once: simulations open ledgers by the thousand."""
    if dialect.name not in _MADE:
        tables = METADATA.sorted_tables
        made = [str(CreateTable(table).compile(dialect=dialect)) for table in tables]
        made += [str(CreateIndex(index).compile(dialect=dialect)) for table in tables for index in table.indexes]
        _MADE[dialect.name] = tuple(made)
    return _MADE[dialect.name]


def _version(db: Connection, place: str) -> int | None:
    """The schema's version; None where there are no tables of ours."""
    if not inspect(db).has_table("meta"):
        return None
    found = db.scalar(select(META.c.value).where(META.c.name == "schema_version"))
    if found is None or not found.isdecimal():
        raise LedgerError(f"{place} is not a gpuwatch ledger: its table meta names no schema_version")
    return int(found)
