"""What an outcome changes in the indexes: open intents, notices, stops and protections."""

from datetime import datetime

from sqlalchemy import Connection

from gpuwatch.ledger import scale_in_protection
from gpuwatch.ledger.chain import text
from gpuwatch.ledger.indexes import BESIDE_NOTICES
from gpuwatch.ledger.tables import NOTICES, OPEN_INTENTS, STOPPED
from gpuwatch.model.decision import FINAL, Intent, Status, Verb
from gpuwatch.model.verbs import ENDS_OF_A_STOP


def mark(db: Connection, intent: Intent, status: Status, at: datetime) -> None:
    """In the transaction of the outcome."""
    node_id, row = intent.node_id, {"node_id": intent.node_id, "key": intent.key, "at": text(at)}
    scale_in_protection.settle(db, intent, status, at)
    if status in FINAL:
        db.execute(OPEN_INTENTS.delete().where(OPEN_INTENTS.c.key == intent.key))
    if status is not Status.SETTLED or intent.verb in BESIDE_NOTICES:
        return
    db.execute(NOTICES.delete().where(NOTICES.c.node_id == node_id))
    if intent.verb is Verb.NOTICE:
        db.execute(NOTICES.insert(), row)
    if intent.verb in ENDS_OF_A_STOP:
        db.execute(STOPPED.delete().where(STOPPED.c.node_id == node_id))
    if intent.verb is Verb.STOP:
        db.execute(STOPPED.insert(), row)
