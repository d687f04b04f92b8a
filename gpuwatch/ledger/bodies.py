"""Bodies of rounds in the database. Many hold what differs from their base, which is a whole body.

The base is a round of the same hour, so that each hour has one. While a body refers to it, compaction leaves it. A
controller writes a whole body after its start, when an hour begins, and when much has changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from gpuwatch.guard.settings import Rulebook
from gpuwatch.ledger import snapshots
from gpuwatch.ledger.records import LedgerError, LedgerValueError, PastRound
from gpuwatch.ledger.snapshots import Rest, Said
from gpuwatch.ledger.store import Store
from gpuwatch.ledger.tables import BODIES, ROUNDS
from gpuwatch.ledger.unchanged import Line, Marks, node_objects, shared_objects
from gpuwatch.model.decision import Decision, Observation
from gpuwatch.model.kubernetes import KubernetesNode

_HOUR = len("2026-01-01T00")
_COPIED_BYTES = 1 << 20  # SQLite copies a value twice on its way into a row; a larger one is written into its place
_LEAST_UNCHANGED = 0.25  # of the machines: with fewer lines, a body of its own costs little more
_INSERT, _THERE = BODIES.insert(), select(BODIES.c.round_id).where(BODIES.c.round_id == bindparam("round_id"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """What later bodies need of a whole one; `hour` is its time's, `2026-01-01T00`."""

    hour: str
    objects: Mapping[str, KubernetesNode]
    marks: Marks
    round_id: int = 0

    @classmethod
    def of_round(
        cls, observation: Observation, decisions: Sequence[Decision], hour: str, base: "_Base | None" = None
    ) -> tuple["_Base", Rest | None]:
        """What a round would be to later ones, and what it need not hold because the base does; None: too little."""
        nodes, decided = observation.fleet.nodes, {step.node_id: step for each in decisions for step in each.steps}
        marks, lines = Marks.of_round(nodes, decided, None if base is None else base.marks)
        new = cls(hour=hour, objects=node_objects(nodes), marks=marks)
        return new, None if base is None else base.rest_of(new, lines, len(nodes))

    def rest_of(self, later: "_Base", lines: Mapping[str, Line], nodes: int) -> Rest | None:
        """What a later round of so many nodes need not hold."""
        shared = shared_objects(self.objects, later.objects)
        if shared is None:
            return None
        others = (self.objects.keys() | later.objects.keys()) - shared
        if others:
            lines = {node_id: line for node_id, line in lines.items() if node_id not in others}
        if not shared and len(lines) <= _LEAST_UNCHANGED * nodes:
            return None
        return Rest(base=self.round_id, shared=shared, lines=lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What is to be written; `becomes` is what later bodies may rest on once it is."""

    content: bytes
    base: int | None
    becomes: _Base | None


class Bodies:
    """Of one open ledger; remembers the base that it wrote last, and the one that it read last."""

    def __init__(self, store: Store) -> None:
        """Nothing is written yet."""
        self._store = store
        self._base: _Base | None = None
        self._read: PastRound | None = None

    def make_body(self, observation: Observation, rulebook: Rulebook | None, said: Said, at: str) -> Body:
        """The body of a round at that time (text).

        Raises:
            LedgerValueError: the round holds a value that has no form in MessagePack.

        """
        try:
            return self._make_body(observation, rulebook, said, at)
        except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
            raise LedgerValueError(f"the ledger cannot hold what the round saw: {error}") from error

    def _make_body(self, observation: Observation, rulebook: Rulebook | None, said: Said, at: str) -> Body:
        base, hour = self._base, at[:_HOUR]
        if base is not None and (base.hour != hour or not self._there(base.round_id)):
            base = None
        new, rest = _Base.of_round(observation, said[1], hour, base)
        content = snapshots.encode(observation, rulebook, *said, rest=rest)
        return Body(content=content, base=None if rest is None else rest.base, becomes=new if rest is None else None)

    def insert(self, db: Connection, round_id: int, at: str, body: Body) -> None:
        """Write it, in the transaction of its round."""
        codec = snapshots.PIECES if body.base is None else snapshots.CHANGES
        row = {"round_id": round_id, "at": at, "codec": codec, "body": body.content, "base": body.base}
        if db.dialect.name == "sqlite" and len(body.content) > _COPIED_BYTES:
            raw: Any = db.connection.driver_connection
            db.execute(_INSERT.values(row | {"body": func.zeroblob(len(body.content))}))
            with raw.blobopen(BODIES.name, BODIES.c.body.name, round_id) as place:
                place.write(body.content)
            return
        db.execute(_INSERT, row)

    def note_written(self, round_id: int, body: Body) -> None:
        """It is there for good: others may rest on it."""
        if body.becomes is not None:
            self._base = replace(body.becomes, round_id=round_id)

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

    def _base_of(self, round_id: int) -> PastRound:
        """What a body rests on; raises LedgerError."""
        if self._read is None or self._read.id != round_id:
            with self._store.reading() as db:
                row = db.execute(select(BODIES).where(BODIES.c.round_id == round_id)).one_or_none()
            if row is None:
                raise LedgerError(f"round {round_id}, on which later ones rest, is gone; restore the ledger")
            self._read = snapshots.decode_base(round_id, datetime.fromisoformat(row.at), row.codec, row.body)
        return self._read

    def _there(self, round_id: int) -> bool:
        """Whether it is still in the database, which may have been put back."""
        with self._store.reading() as db:
            return db.scalar(_THERE, {"round_id": round_id}) is not None
