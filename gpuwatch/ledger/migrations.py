"""How older schemas become the present one, each in the transaction of its caller: all of it happens, or nothing."""

from typing import Any

from sqlalchemy import Connection, inspect, text

from gpuwatch.ledger import snapshots
from gpuwatch.ledger.chain import GENESIS, Writer, sha256
from gpuwatch.ledger.tables import BODIES, HEAD, METADATA, NOTICES, OPEN_INTENTS, SHIELDS, SPEND_TERMS

_OLD_1 = ("outcomes", "open_intents", "notices", "intents", "rounds")


def from_1(db: Connection) -> None:
    """Schema 1 (SQLite only): no chain, bodies in the rounds, no arguments, owners or prices.

    Records get their links in the order rounds, intents, outcomes; keys stay. What was stopped before is not known to
    have stayed so: no `terminate_after` begins at it.
    """
    for index in ("intents_by_node", "outcomes_by_key", "outcomes_by_time"):
        db.exec_driver_sql(f"DROP INDEX {index}")
    for name in _OLD_1:
        db.exec_driver_sql(f"ALTER TABLE {name} RENAME TO old_{name}")
    METADATA.create_all(db)
    writer = Writer(db, links=0, head=GENESIS)
    rounds: dict[int, int] = {}
    for row in _rows(db, "SELECT * FROM old_rounds ORDER BY id"):
        body = snapshots.frame_v1(row.observation, row.reviews)
        about = {"at": row.at, "body_sha256": sha256(body), "epoch": 0, "controller": "", "nodes": None, "steps": None}
        rounds[row.id] = writer.append("round", about)
        db.execute(BODIES.insert(), {"round_id": rounds[row.id], "at": row.at, "codec": snapshots.V1, "body": body})
    for row in _rows(db, "SELECT key, verb, node_id, pool, at, reason, round_id FROM old_intents ORDER BY seq"):
        new = {"round_id": rounds.get(row.round_id), "arguments": "{}", "owner": None, "usd_per_hour": None}
        writer.append("intent", {**row._mapping, **new})  # noqa: SLF001  SQLAlchemy's public name
    for row in _rows(db, "SELECT key, at, status, detail FROM old_outcomes ORDER BY seq"):
        writer.append("outcome", dict(row._mapping))  # noqa: SLF001  likewise
    for table in (OPEN_INTENTS, NOTICES):
        for row in _rows(db, f"SELECT * FROM old_{table.name}"):  # noqa: S608  fixed names
            db.execute(table.insert(), dict(row._mapping))  # noqa: SLF001  likewise
    db.execute(HEAD.insert(), {"links": writer.links, "hash": writer.head, "epoch": 0, "leader": ""})
    for name in _OLD_1:
        db.exec_driver_sql(f"DROP TABLE old_{name}")


def from_2(db: Connection) -> None:
    """Schema 2: nothing was known of backtests, keeps, nor of what was spent; the tables that it lacks begin empty."""
    METADATA.create_all(db)


def from_3(db: Connection) -> None:
    """Schema 3: nothing was known of approvals and messages."""
    METADATA.create_all(db)


def from_4(db: Connection) -> None:
    """Schema 4: gpuwatch's own scale-in protection was not distinguished from others'.

    gpuwatch set it only on nodes without protection. So the newest settled action on a node shows it; the next round
    forgets those that it sees without protection.
    """
    METADATA.create_all(db)
    query = (
        "SELECT intents.node_id, intents.verb, intents.key, outcomes.at FROM intents JOIN outcomes "
        "ON outcomes.key = intents.key AND outcomes.status = 'settled' "
        "WHERE intents.verb IN ('protect', 'unprotect', 'terminate') ORDER BY outcomes.id"
    )
    newest = {row.node_id: row for row in _rows(db, query)}
    for row in newest.values():
        if row.verb == "protect":
            db.execute(SHIELDS.insert(), {"node_id": row.node_id, "key": row.key, "at": row.at, "missing_since": None})


def from_5(db: Connection) -> None:
    """Schema 5: nothing was known of what the fleet was used for by the minute; the timelines begin empty."""
    METADATA.create_all(db)


def from_6(db: Connection) -> None:
    """Schema 6: spending did not know its cloud. Nobody can say it of the past: there it is not known.

    In a ledger that comes from schema 1 or 2 the table was made a moment ago, as it is now.
    """
    there = {column["name"] for column in inspect(db).get_columns(SPEND_TERMS.name)}
    for name in ("cloud", "provider"):
        if name not in there:
            db.exec_driver_sql(f"ALTER TABLE {SPEND_TERMS.name} ADD COLUMN {name} TEXT")


def from_7(db: Connection) -> None:
    """Schema 7: what was billed was not divided among the pods of a cluster, and each body was whole.

    Of the past nobody can say who held which GPUs. In a ledger that comes from schema 1 the table of bodies is new.
    """
    METADATA.create_all(db)
    if "base" not in {column["name"] for column in inspect(db).get_columns(BODIES.name)}:
        db.exec_driver_sql(f"ALTER TABLE {BODIES.name} ADD COLUMN base BIGINT")
        db.exec_driver_sql(f"CREATE INDEX bodies_by_base ON {BODIES.name} (base)")


def _rows(db: Connection, query: str) -> Any:  # noqa: ANN401  rows of tables that no longer have a description
    """Rows of the old tables, a few at a time."""
    return db.execute(text(query), execution_options={"yield_per": 100})
