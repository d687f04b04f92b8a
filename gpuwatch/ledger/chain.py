"""The hash chain: every record's link hashes the one before it, so that no record changes without being seen.

What it cannot show by itself: that a forger rewrote the records, all later links and the head. A head's hash that was
kept elsewhere shows it (`gpuwatch audit verify` prints the hash).
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Result, Row, Table, func, select

from gpuwatch.ledger import indexes
from gpuwatch.ledger.any_text import json_of
from gpuwatch.ledger.records import Audit, Broken
from gpuwatch.ledger.tables import BODIES, CHAIN, CONTROLS, HEAD, RECORDS

GENESIS = "0" * 64
_ROWS_AT_ONCE = 500
_RECORD, _LINK = {kind: table.insert() for kind, table in RECORDS.items()}, CHAIN.insert()


@dataclass(slots=True)
class Writer:
    """Appends within one transaction; its caller writes the head back."""

    db: Connection
    links: int
    head: str

    def append(self, kind: str, values: Mapping[str, object]) -> int:
        """Write one record with its link; gives its id."""
        self.links += 1
        row = {"id": self.links, **values}
        self.head = link_hash(self.head, kind, [row[column.name] for column in RECORDS[kind].columns])
        self.db.execute(_RECORD[kind], row)
        self.db.execute(_LINK, {"id": self.links, "kind": kind, "at": row["at"], "hash": self.head})
        return self.links


def link_hash(before: str, kind: str, row: list[object]) -> str:
    """SHA-256 over the hash before and the record: its kind and its columns in the schema's order, as JSON."""
    return hashlib.sha256(before.encode() + json_of([kind, *row])).hexdigest()


def sha256(body: bytes) -> str:
    """Of a round's body."""
    return hashlib.sha256(body).hexdigest()


def audit(db: Connection, anchor: tuple[int, str] | None) -> Audit:
    """Walk the whole chain within a reading transaction; memory stays bounded. `anchor` is a link known from before."""
    walk = _Walk(db, anchor)
    try:
        broken = next(walk.links(), None) or next(walk.check_end(), None)
    finally:
        walk.close()
    return Audit(links=walk.count, head=walk.hash, bodies=walk.bodies, broken=broken)


@dataclass(slots=True)
class _Walk:
    """One walk along the chain, and along the records of each kind, in the order of their ids."""

    db: Connection
    anchor: tuple[int, str] | None
    count: int = 0
    hash: str = GENESIS
    bodies: int = 0
    _rows: dict[str, Iterator[Row[Any]]] = field(default_factory=dict)
    _next: dict[str, Row[Any] | None] = field(default_factory=dict)
    _results: list[Result[Any]] = field(default_factory=list)

    def links(self) -> Iterator[Broken]:
        """What is wrong, link by link."""
        for kind, table in RECORDS.items():
            self._rows[kind] = self._stream(table)
            self._step(kind)
        for link in self._stream(CHAIN):
            yield from self._unlinked_records(link.id)
            if link.id != self.count + 1:
                yield Broken(kind="link", id=self.count + 1, at="", wrong=f"missing; the next one is {link.id}")
            row = self._next.get(link.kind)
            if row is None or row.id != link.id:
                yield Broken(kind=link.kind, id=link.id, at=link.at, wrong="missing: its link is there, it is not")
            else:
                yield from self._judge(link, row)
                self._step(link.kind)
            self.count, self.hash = link.id, link.hash
        yield from self._unlinked_records(None)

    def check_end(self) -> Iterator[Broken]:
        """What is wrong with the head and the indexes, once all links are right."""
        head = self.db.execute(select(HEAD)).one()
        if head.links > self.count:
            wrong = f"the tail is cut off: the head counts {head.links} links, the chain has {self.count}"
            yield Broken(kind="link", id=self.count + 1, at="", wrong=wrong)
        elif (head.links, head.hash) != (self.count, self.hash):
            wrong = f"the head names link {head.links} with {head.hash[:12]}…, the chain ends in {self.hash[:12]}…"
            yield Broken(kind="head", id=head.links, at="", wrong=wrong)
        if self.anchor is not None:
            number, known = self.anchor
            found = self.db.scalar(select(CHAIN.c.hash).where(CHAIN.c.id == number))
            if found != known:
                wrong = "missing" if found is None else f"its hash is {found[:12]}…, not the anchor's: rewritten"
                yield Broken(kind="link", id=number, at="", wrong=wrong)
        yield from indexes.untrue(self.db)
        dropped = select(func.count()).select_from(CONTROLS).where(CONTROLS.c.verb == "compact")
        recorded = sum(
            int(each) for each in self.db.scalars(select(CONTROLS.c.reason).where(CONTROLS.c.verb == "compact"))
        )
        gone = (self.db.scalar(select(func.count()).select_from(RECORDS["round"])) or 0) - self.bodies
        if gone != recorded:
            count = self.db.scalar(dropped)
            wrong = f"{gone} are gone, but the {count} compactions on record dropped {recorded}"
            yield Broken(kind="bodies of rounds", id=self.count, at="", wrong=wrong)

    def _judge(self, link: Row[Any], row: Row[Any]) -> Iterator[Broken]:
        """One record against its link, and a round's body against the record."""
        if link.hash != link_hash(self.hash, link.kind, list(row)) or link.at != row.at:
            yield Broken(kind=link.kind, id=link.id, at=row.at, wrong="changed: its hash is another than its link's")
        if link.kind != "round":
            return
        body = self.db.scalar(select(BODIES.c.body).where(BODIES.c.round_id == row.id))
        self.bodies += body is not None
        if body is not None and sha256(body) != row.body_sha256:
            yield Broken(
                kind="round", id=row.id, at=row.at, wrong="what it saw was changed: another hash than recorded"
            )

    def _unlinked_records(self, before: int | None) -> Iterator[Broken]:
        """Records that no link leads to, up to the next link."""
        for kind, row in self._next.items():
            if row is not None and (before is None or row.id < before):
                yield Broken(kind=kind, id=row.id, at=row.at, wrong="inserted: no link leads to it")

    def close(self) -> None:
        """A walk may end at the first break, with rows still to come."""
        for result in self._results:
            result.close()

    def _step(self, kind: str) -> None:
        """The next record of a kind."""
        self._next[kind] = next(self._rows[kind], None)

    def _stream(self, table: Table) -> Iterator[Row[Any]]:
        """All rows by id, a few at a time."""
        query = select(table).order_by(table.c.id).execution_options(yield_per=_ROWS_AT_ONCE)
        self._results.append(self.db.execute(query))
        return iter(self._results[-1])


def text(at: datetime) -> str:
    """Aware UTC as text that sorts by time: always with microseconds."""
    return at.isoformat(timespec="microseconds")
