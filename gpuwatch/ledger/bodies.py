"""Bodies of rounds in the database. Of a Kubernetes cluster a body holds what differs from its base, a whole body.

The base is a round of the same hour, so that each hour has one. While a body refers to it, compaction leaves it. A
controller writes a whole body after its start, when an hour begins, and when much has changed.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from gpuwatch.guard.settings import Rulebook
from gpuwatch.ledger import snapshots
from gpuwatch.ledger.cluster_snapshots import Base
from gpuwatch.ledger.records import LedgerError, PastRound
from gpuwatch.ledger.snapshots import Rest, Said
from gpuwatch.ledger.store import Store
from gpuwatch.ledger.tables import BODIES, ROUNDS
from gpuwatch.model.decision import Observation

_HOUR = len("2026-01-01T00")


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What is to be written; `becomes` is what later bodies may rest on once it is, by machine."""

    content: bytes
    base: int | None
    becomes: Base | None


class Bodies:
    """Of one open ledger; remembers the base that it wrote last, and the one that it read last."""

    def __init__(self, store: Store) -> None:
        """Nothing is written yet."""
        self._store = store
        self._base: Base | None = None
        self._read: Base | None = None

    def make_body(self, observation: Observation, rulebook: Rulebook | None, said: Said, at: str) -> Body:
        """The body of a round at that time (text)."""
        base = self._base
        if base is not None and (base.hour != at[:_HOUR] or not self._there(base)):
            base = None
        new = Base.of_machines(observation.fleet.nodes, at[:_HOUR])
        shared = None if base is None else base.shared_machines(new)
        if base is None or shared is None:
            content = snapshots.encode(observation, rulebook, *said)
            return Body(content=content, base=None, becomes=new if new.nodes else None)
        rest = Rest(base=base.round_id, shared=shared)
        return Body(content=snapshots.encode(observation, rulebook, *said, rest=rest), base=rest.base, becomes=None)

    def insert(self, db: Connection, round_id: int, at: str, body: Body) -> None:
        """Write it, in the transaction of its round."""
        codec = snapshots.PIECES if body.base is None else snapshots.ON_BASE
        row = {"round_id": round_id, "at": at, "codec": codec, "body": body.content, "base": body.base}
        db.execute(BODIES.insert(), row)

    def note_written(self, round_id: int, body: Body) -> None:
        """It is there for good: others may rest on it."""
        if body.base is None:
            self._base = None if body.becomes is None else body.becomes.with_round_id(round_id)

    def round(self, round_id: int) -> PastRound:
        """A past round, whole.

        Raises:
            LedgerError: no round has that id, or compaction has dropped what it saw.

        """
        query = select(ROUNDS.c.at, BODIES.c.codec, BODIES.c.body).outerjoin(BODIES).where(ROUNDS.c.id == round_id)
        with self._store.reading() as db:
            row = db.execute(query).one_or_none()
        if row is None:
            raise LedgerError(f"round {round_id} is not in this ledger; `gpuwatch rounds` lists them")
        if row.body is None:
            raise LedgerError(
                f"round {round_id} is no longer kept whole (ledger.retention, ledger.quiet_round_retention)"
            )
        return snapshots.decode(round_id, datetime.fromisoformat(row.at), row.codec, row.body, self._base_of)

    def _base_of(self, round_id: int) -> Base:
        """What a body rests on; raises LedgerError."""
        if self._read is None or self._read.round_id != round_id:
            with self._store.reading() as db:
                row = db.execute(select(BODIES).where(BODIES.c.round_id == round_id)).one_or_none()
            if row is None:
                raise LedgerError(f"round {round_id}, on which later ones rest, is gone; restore the ledger")
            nodes = snapshots.nodes(round_id, row.codec, row.body)
            self._read = Base.of_machines(nodes, row.at[:_HOUR]).with_round_id(round_id)
        return self._read

    def _there(self, base: Base) -> bool:
        """Whether it is still in the database, which may have been put back."""
        with self._store.reading() as db:
            return db.scalar(select(BODIES.c.round_id).where(BODIES.c.round_id == base.round_id)) is not None
