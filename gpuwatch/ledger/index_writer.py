"""What an outcome, and the end of a round, change in the indexes: open intents, notices, stops, what had no turn.

And the record of what machines were seen at work with, which is no index: nothing else knows it.
"""

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Connection, bindparam, select

from gpuwatch.ledger import scale_in_protection
from gpuwatch.ledger.any_text import json_of
from gpuwatch.ledger.attempts import runs_again
from gpuwatch.ledger.chain import text
from gpuwatch.ledger.indexes import BESIDE_NOTICES
from gpuwatch.ledger.store import Store
from gpuwatch.ledger.tables import META, NOTICES, OPEN_INTENTS, STOPPED
from gpuwatch.model.decision import FINAL, Intent, Observation, Status, Stopped, Unreached, Verb
from gpuwatch.model.sensors import SensorRecord
from gpuwatch.model.verbs import ENDS_OF_A_STOP

log = logging.getLogger(__name__)

_UNREACHED, _SENSORS = "unreached", "sensors"  # the names of their rows
_KEPT = select(META.c.value).where(META.c.name == bindparam("name"))


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


def forget_what_runs_again(db: Connection, stops: Iterable[Stopped], observation: Observation) -> None:
    """What gpuwatch stopped and somebody has started since is no longer a stop of ours."""
    for each in stops:
        if runs_again(each, observation.fleet.find(each.node_id)):
            db.execute(STOPPED.delete().where(STOPPED.c.node_id == each.node_id))


def keep_unreached(db: Connection, unreached: Sequence[Unreached]) -> None:
    """Keep what the newest round allowed and did not come to; the next round's own record has it, too."""
    db.execute(META.delete().where(META.c.name == _UNREACHED))
    if unreached:
        db.execute(META.insert(), {"name": _UNREACHED, "value": msgspec.json.encode(unreached).decode()})


def read_unreached(db: Connection) -> tuple[Unreached, ...]:
    """What the newest round allowed and did not come to."""
    kept = db.scalar(_KEPT, {"name": _UNREACHED})
    return () if kept is None else msgspec.json.decode(kept, type=tuple[Unreached, ...])


class Sensors:
    """Which drivers, agents and images machines were seen at work with."""

    def __init__(self, store: Store) -> None:
        """Of an open store."""
        self._store = store
        self._read: tuple[str, SensorRecord] | None = None  # reading it again takes longer than all else about it

    def read(self) -> SensorRecord | None:
        """What is known; None: nothing yet, or what is there cannot be read."""
        with self._store.reading() as db:
            kept = db.scalar(_KEPT, {"name": _SENSORS})
        if kept is None:
            return None
        if self._read is not None and self._read[0] == kept:
            return self._read[1]
        try:
            record = msgspec.json.decode(kept, type=SensorRecord)
        except msgspec.MsgspecError as error:
            log.warning(
                "It cannot be read with what machines were seen at work; what they do now is the beginning: %s", error
            )
            return None
        self._read = (kept, record)
        return record

    def keep(self, record: SensorRecord) -> None:
        """Put it in the place of what was known."""
        with self._store.writing() as writer:
            writer.db.execute(META.delete().where(META.c.name == _SENSORS))
            writer.db.execute(META.insert(), {"name": _SENSORS, "value": json_of(record).decode()})


class SensorsInMemory:
    """The same, for as long as a process lives."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._record: SensorRecord | None = None

    def read(self) -> SensorRecord | None:
        """What is known; None: nothing yet."""
        return self._record

    def keep(self, record: SensorRecord) -> None:
        """Put it in the place of what was known."""
        self._record = record
