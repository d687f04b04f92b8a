"""Where a ledger lives: one connection, transactions that are ours, and the fence against a second leader.

Every write of the leader's reads the head in its own transaction and must find its own epoch there. So a
process that took the lead since then has shut it out, however long this process was away. And every write, as every
look whether this process still leads, must find the ledger that it has known so far: its id, and in its chain the
newest link that was seen.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

from sqlalchemy import Connection, Engine, Row, select, update
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError, StatementError

from gpuwatch.ledger.chain import Writer
from gpuwatch.ledger.records import LeadLostError, LedgerError, LedgerValueError, OtherLedgerError
from gpuwatch.ledger.tables import CHAIN, HEAD, META

# SQLSTATE's classes: data exception, integrity constraint violation, program limit exceeded (a text in an index).
_OF_VALUES = frozenset({"22", "23", "54"})
_UNBOUND = "Error binding parameter"  # in SQLite's words: a type that it does not have
_ID = select(META.c.value).where(META.c.name == "ledger_id")
_HEAD, _MOVE_HEAD, _EPOCH = select(HEAD), update(HEAD), select(HEAD.c.epoch)
_HELD_HEAD, _HELD_EPOCH = _HEAD.with_for_update(), _EPOCH.with_for_update()
RESTART = "restart the controller once the right one is back (docs/ledger.md, What survives what)"


class Store:
    """An open database. `epoch` is the number of this process's lead; None where it does not lead.

    `trouble` is why nothing may be done by it now, as of the last look; None: nothing is known against it. `doubt` is
    why a controller that begins with it begins paused; None: it is as it was left.
    """

    def __init__(self, engine: Engine, place: str, controller: str) -> None:
        """Use `SqliteStore` or `PostgresqlStore`."""
        self.place = place
        self.controller = controller
        self.epoch: int | None = None
        self.trouble: str | None = None
        self.doubt: str | None = None
        self.id = ""
        self._engine = engine
        self._turn = RLock()  # a status page may read while a round writes
        self._held: Connection | None = None
        self._seen: tuple[int, str] | None = None  # the newest link and its hash, as of the last look
        self._other: str | None = None  # once it was another ledger, this process never trusts it again

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection that sees one consistent state."""
        with self._turn, self._explain_errors(), self._db().begin():
            yield self._db()

    @contextmanager
    def writing(self, *, fenced: bool = True) -> Iterator[Writer]:
        """All or nothing, durable at the end. Fenced: only while this process leads.

        Raises:
            LeadLostError: another one leads, or nobody; nothing is written.
            LedgerValueError: the database cannot hold one of the values; nothing is written.
            OtherLedgerError: it is not the ledger that this process knows; nothing is written.
            LedgerError: the database failed; nothing is written.

        """
        with self._turn:
            with self._explain_errors(), self._db().begin():
                db = self._db()
                head = db.execute(_HELD_HEAD).one()
                self._recognise(db, head)
                if fenced and (self.epoch is None or head.epoch != self.epoch):
                    raise LeadLostError(f"this controller does not lead; {head.leader or 'nobody'} does")
                writer = Writer(db, links=head.links, head=head.hash)
                yield writer
                if writer.links != head.links:
                    db.execute(_MOVE_HEAD, {"links": writer.links, "hash": writer.head})
            self._seen = (writer.links, writer.head)

    def lead(self) -> bool:
        """Take the lead where nobody has it; whether this process has it now."""
        return self.leading()

    def leading(self) -> bool:
        """Whether this process has the lead at this moment; an error, or another ledger, is no and is `trouble`."""
        try:
            with self.reading() as db:
                self._recognise(db, db.execute(_HEAD).one())
                leads = self.epoch is not None and self._leads(db)
        except LedgerError as error:
            self.trouble = str(error)
            return False
        self.trouble = None
        return leads

    def begin_paused(self) -> None:
        """The pause that `doubt` asks for is on record: from here on the ledger counts as it is."""
        self.doubt = None

    def leader(self) -> str:
        """Who leads, or led last."""
        with self.reading() as db:
            return str(db.scalar(select(HEAD.c.leader)))

    def close(self) -> None:
        """Close the connection and the file."""
        self._drop()
        self._engine.dispose()

    def _adopt(self) -> None:
        """This is the ledger from here on."""
        with self.reading() as db:
            self.id = str(db.scalar(_ID))
            head = db.execute(_HEAD).one()
        self._seen = (head.links, head.hash)

    def _recognise(self, db: Connection, head: Row[Any]) -> None:
        """It is the ledger that this process has known so far, with all that was in it.

        Raises:
            OtherLedgerError: it is not, or once was not.

        """
        if self._seen is None:
            return
        if self._other is None:
            self._other = self._difference(db, head, *self._seen)
        if self._other is not None:
            self.trouble = self._other
            raise OtherLedgerError(self._other)
        self._seen = (head.links, head.hash)

    def _difference(self, db: Connection, head: Row[Any], links: int, known: str) -> str | None:
        """How it is another than the one with that newest link; None: it is not."""
        found = db.scalar(_ID)
        if found != self.id:
            return f"{self.place} is another ledger ({found}) than this controller's ({self.id}); {RESTART}"
        if (head.links, head.hash) == (links, known):
            return None
        if head.links < links:
            missing = f"records {head.links + 1} to {links}" if head.links + 1 < links else f"record {links}"
            return f"{self.place} has lost {missing}: it was replaced by an older copy; {RESTART}"
        if links and db.scalar(select(CHAIN.c.hash).where(CHAIN.c.id == links)) != known:
            return f"{self.place} is another copy: its record {links} is not the one that was there; {RESTART}"
        return None

    def _leads(self, db: Connection) -> bool:
        """What the database says."""
        return bool(db.scalar(_EPOCH) == self.epoch)

    def _take(self) -> None:
        """Begin a lead of one's own: all earlier leaders are shut out from here on."""
        with self._turn, self._db().begin():
            db = self._db()
            epoch = db.execute(_HELD_EPOCH).scalar_one() + 1
            db.execute(_MOVE_HEAD, {"epoch": epoch, "leader": self.controller})
        self.epoch = epoch

    def _db(self) -> Connection:
        """The connection, opened again if it was dropped."""
        if self._held is None:
            self._held = self._engine.connect()
        return self._held

    def _drop(self) -> None:
        """Forget the connection, and the lead with it."""
        self.epoch = None
        held, self._held = self._held, None
        if held is not None:
            try:
                held.invalidate()
            finally:
                held.close()

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Errors of the database as one sentence without a statement or a value."""
        try:
            yield
        except SQLAlchemyError as error:
            kind = LedgerValueError if _is_of_a_value(error) else LedgerError
            raise kind(f"the ledger {self.place} failed: {cause(error)}") from error
        except (OverflowError, UnicodeEncodeError) as error:  # the drivers' own, of numbers and texts
            raise LedgerValueError(f"the ledger {self.place} cannot hold a value: {error}") from error


def this_process() -> str:
    """Who writes, for people."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _is_of_a_value(error: SQLAlchemyError) -> bool:
    """Whether the database, or its driver, refuses what was to be written, and would take something else."""
    if isinstance(error, DataError | IntegrityError):
        return True
    if not isinstance(error, DBAPIError):
        return isinstance(error, StatementError)  # it could not be made ready for the driver
    state = str(getattr(error.orig, "sqlstate", None) or "")
    return state[:2] in _OF_VALUES or _UNBOUND in str(error.orig)


def cause(error: SQLAlchemyError) -> str:
    """The database's own words, first line."""
    text = str(error.orig if isinstance(error, DBAPIError) and error.orig is not None else error)
    return (text.strip().splitlines() or [type(error).__name__])[0]
