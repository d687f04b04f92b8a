"""What old rounds saw is dropped; that they took place, and what was intended in them, is kept for good.

Rounds with intents stay whole for `retention`, quiet ones for `quiet_round_retention`; then the first of each hour
until `retention`.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from sqlalchemy import Connection, exists, select

from gpuwatch.ledger.chain import Writer, text
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.ledger.tables import BODIES, INTENTS, WISHES
from gpuwatch.ledger.use_history import drop_old

_AT_ONCE = 100  # bodies in one transaction: what a controller may wait for
_WISHES_KEPT = timedelta(days=8)  # longer than any stabilisation window
_HOUR = len("2026-01-01T00")


def compact(writer: Writer, now: datetime, settings: LedgerSettings) -> int:
    """Drop bodies, oldest first; how many is a record of its own, so that an audit knows that they were there."""
    dropped = list(_due(writer.db, now, settings))[:_AT_ONCE]
    writer.db.execute(WISHES.delete().where(WISHES.c.at < text(now - _WISHES_KEPT)))
    drop_old(writer.db, now)
    if dropped:
        writer.db.execute(BODIES.delete().where(BODIES.c.round_id.in_(dropped)))
        about = {"pool": None, "who": "controller", "reason": str(len(dropped)), "until": None}
        writer.append("control", {"at": text(now), "verb": "compact", **about})
    return len(dropped)


def _due(db: Connection, now: datetime, settings: LedgerSettings) -> Iterator[int]:
    """Rounds with bodies older than their retention."""
    acted = exists().where(INTENTS.c.round_id == BODIES.c.round_id)
    query = select(BODIES.c.round_id, BODIES.c.at, acted.label("acted")).order_by(BODIES.c.at, BODIES.c.round_id)
    based = set(db.scalars(select(BODIES.c.base).where(BODIES.c.base.is_not(None)).distinct()))
    quiet_since, kept_since = (
        text(now - timedelta(seconds=age)) for age in (settings.quiet_round_retention, settings.retention)
    )
    hour = ""
    for row in db.execute(query.where(BODIES.c.at < quiet_since)):
        first_of_hour, hour = row.at[:_HOUR] != hour, row.at[:_HOUR]
        due = row.at < kept_since or not (row.acted or first_of_hour)
        if due and row.round_id not in based:  # others rest on it, and go first
            yield row.round_id
