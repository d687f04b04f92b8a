"""Ledgers as earlier gpuwatches wrote them: `tests/captures/ledger_schema_N.sql`, in SQLite and in PostgreSQL."""

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import create_engine, insert

from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.ledger.tables import METADATA

_CAPTURES = Path(__file__).parents[1] / "captures"


def written(path: Path, schema: int) -> Path:
    """The file as it was left."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript((_CAPTURES / f"ledger_schema_{schema}.sql").read_text("utf-8"))
    return path


def copied(path: Path, url: str, schema: int) -> None:
    """The same ledger in PostgreSQL: its tables as they were, with every row of the file."""
    Ledger.connect(LedgerSettings(url=url)).close()
    there = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with closing(sqlite3.connect(written(path, schema))) as db, there.begin() as copy:
        db.row_factory = sqlite3.Row
        had = {name: {row["name"] for row in db.execute(f"PRAGMA table_info({name})")} for name in METADATA.tables}
        for table in reversed(METADATA.sorted_tables):
            copy.execute(table.delete())
            if not had[table.name]:
                copy.exec_driver_sql(f"DROP TABLE {table.name}")
                continue
            for column in {each.name for each in table.columns} - had[table.name]:
                copy.exec_driver_sql(f"ALTER TABLE {table.name} DROP COLUMN {column}")
        for table in METADATA.sorted_tables:
            rows = [dict(row) for row in db.execute(f"SELECT * FROM {table.name}")] if had[table.name] else []  # noqa: S608  its own names
            if rows:
                copy.execute(insert(table), rows)
    there.dispose()
