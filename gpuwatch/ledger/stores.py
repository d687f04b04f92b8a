"""Where a ledger lives: one connection, transactions that are ours, and the fence against a second leader.

Every write of the leader's reads the head in its own transaction and must find its own epoch there. So whoever took the
lead since then has shut it out, however long this process was away.
"""

import fcntl
import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import IO, Self

from sqlalchemy import Connection, Engine, create_engine, event, select, update
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from gpuwatch.ledger import schema
from gpuwatch.ledger.chain import Writer
from gpuwatch.ledger.entries import LeadLostError, LedgerError
from gpuwatch.ledger.tables import HEAD

_CLOSED = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")  # to this user
_AS_ITS_USER = "run this as root or as the controller's user"
_BUSY_SECONDS = 10  # how long a write waits for `gpuwatch pause`, and that one for a write


class Store:
    """An open database. `epoch` is the number of this process's lead; None where it does not lead."""

    def __init__(self, engine: Engine, place: str, controller: str) -> None:
        """Use `SqliteStore` or `PostgresqlStore`."""
        self.place = place
        self.controller = controller
        self.epoch: int | None = None
        self._engine = engine
        self._turn = RLock()  # a status page may read while a round writes
        self._held: Connection | None = None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent picture."""
        with self._turn, self._explained(), self._db().begin():
            yield self._db()

    @contextmanager
    def writing(self, *, fenced: bool = True) -> Iterator[Writer]:
        """All or nothing, durable at the end. Fenced: only while this process leads.

        Raises:
            LeadLostError: another one leads, or nobody; nothing is written.
            LedgerError: the database failed; nothing is written.

        """
        with self._turn, self._explained(), self._db().begin():
            db = self._db()
            head = db.execute(select(HEAD).with_for_update()).one()
            if fenced and (self.epoch is None or head.epoch != self.epoch):
                raise LeadLostError(f"this controller does not lead; {head.leader or 'nobody'} does")
            writer = Writer(db, links=head.links, head=head.hash)
            yield writer
            if writer.links != head.links:
                db.execute(update(HEAD).values(links=writer.links, hash=writer.head))

    def lead(self) -> bool:
        """Take the lead where nobody has it; whether this process has it now."""
        return self.leading()

    def leading(self) -> bool:
        """Whether this process has the lead at this moment; an error is no."""
        try:
            with self.reading() as db:
                return self.epoch is not None and self._leads(db)
        except LedgerError:
            return False

    def leader(self) -> str:
        """Who leads, or led last."""
        with self.reading() as db:
            return str(db.scalar(select(HEAD.c.leader)))

    def close(self) -> None:
        """Let go."""
        self._drop()
        self._engine.dispose()

    def _leads(self, db: Connection) -> bool:
        """What the database says of it."""
        return bool(db.scalar(select(HEAD.c.epoch)) == self.epoch)

    def _take(self) -> None:
        """Begin a lead of one's own: all earlier leaders are shut out from here on."""
        with self._turn, self._db().begin():
            db = self._db()
            epoch = db.execute(select(HEAD.c.epoch).with_for_update()).scalar_one() + 1
            db.execute(update(HEAD).values(epoch=epoch, leader=self.controller))
        self.epoch = epoch

    def _db(self) -> Connection:
        """The connection, made anew where it was dropped."""
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
    def _explained(self) -> Iterator[None]:
        """Errors of the database as one sentence without a statement or a value."""
        try:
            yield
        except SQLAlchemyError as error:
            raise LedgerError(f"the ledger {self.place} failed: {cause(error)}") from error


class SqliteStore(Store):
    """A file, or memory. The controller holds the file's lock: two can never share it by mistake."""

    def __init__(self, uri: str, place: str, controller: str, lock: IO[bytes] | None = None) -> None:
        """Use the class methods."""
        engine = create_engine("sqlite://", creator=lambda: _connect(uri), poolclass=NullPool, hide_parameters=True)
        super().__init__(engine, place, controller)
        self._lock = lock
        self._begin = "BEGIN"
        event.listen(engine, "begin", lambda db: db.exec_driver_sql(self._begin))

    @classmethod
    def open(cls, path: Path) -> Self:
        """Lock, create and migrate the file, and lead."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = path.with_name(path.name + ".lock").open("wb")
        except OSError as error:
            raise LedgerError(f"{path} cannot be written ({error.strerror}); set ledger.path") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise LedgerError(f"{path} is held by another controller; run one controller per ledger") from error
        store = cls(f"file:{path}", str(path), this_process(), lock)
        try:
            store._prepare()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def beside(cls, path: Path, *, read_only: bool, untouched: bool = False) -> Self:
        """A file that another process may hold: to read it, or for a person's short orders.

        `untouched` where nobody has it open: SQLite makes no files beside it then, and does not look for changes.
        """
        try:
            there = path.exists()
        except OSError as error:
            raise LedgerError(f"{path} cannot be opened ({error.strerror}); {_AS_ITS_USER}") from error
        if not there:
            raise LedgerError(f"{path} does not exist yet; start `gpuwatch controller`, or set ledger.path")
        at_rest = untouched and not path.with_name(path.name + "-wal").exists()
        mode = f"{'ro' if read_only else 'rw'}{'&immutable=1' if at_rest else ''}"
        store = cls(f"file:{path}?mode={mode}", str(path), this_process())
        try:
            with store._readable() as db:
                schema.check(db, store.place)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def in_memory(cls, ledger_id: str) -> Self:
        """As long as its process."""
        store = cls("file::memory:", "in memory", "this process")
        store._prepare(ledger_id)
        return store

    def close(self) -> None:
        """Release the file."""
        super().close()
        if self._lock is not None:
            self._lock.close()

    @contextmanager
    def writing(self, *, fenced: bool = True) -> Iterator[Writer]:
        """As told; the write lock is taken first, so that a head once read stays the head."""
        with self._turn, self._at_once(), super().writing(fenced=fenced) as writer:
            yield writer

    def _prepare(self, ledger_id: str | None = None) -> None:
        """Schema and lead."""
        with self._at_once():
            with self._readable() as db:
                schema.prepare(db, self.place, ledger_id)
            self._take()

    @contextmanager
    def _at_once(self) -> Iterator[None]:
        """Transactions that begin with the write lock."""
        self._begin = "BEGIN IMMEDIATE"
        try:
            yield
        finally:
            self._begin = "BEGIN"

    @contextmanager
    def _readable(self) -> Iterator[Connection]:
        """What is no database at all is told by its name, and left as it is."""
        try:
            with self._db().begin():
                yield self._db()
        except DBAPIError as error:
            if getattr(error.orig, "sqlite_errorname", "").startswith(_CLOSED):
                raise LedgerError(f"{self.place} cannot be opened ({cause(error)}); {_AS_ITS_USER}") from error
            raise LedgerError(f"{self.place} is no ledger: {cause(error)}") from error


def this_process() -> str:
    """Who writes, for people."""
    return f"{socket.gethostname()}:{os.getpid()}"


def cause(error: SQLAlchemyError) -> str:
    """The database's own words, first line."""
    told = str(error.orig if isinstance(error, DBAPIError) and error.orig is not None else error)
    return (told.strip().splitlines() or [type(error).__name__])[0]


def _connect(uri: str) -> sqlite3.Connection:
    """In autocommit: transactions are ours. Rounds run on a scheduler's thread, never two at once."""
    db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS)
    if "?mode=ro" not in uri:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
    return db
