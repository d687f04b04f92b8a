"""A ledger in one file, or in memory: one controller at a time, readers and short orders next to it."""

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Self

from sqlalchemy import Connection, Engine, create_engine, event, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from gpuwatch.ledger import schema
from gpuwatch.ledger.chain import Writer
from gpuwatch.ledger.records import LedgerError, OtherLedgerError
from gpuwatch.ledger.sqlite_files import (
    AS_ITS_USER,
    HeldFile,
    Mark,
    Marker,
    at_rest,
    left_over,
    lost_error,
    refuse_directory,
)
from gpuwatch.ledger.store import RESTART, Store, cause, this_process
from gpuwatch.ledger.tables import CHAIN

log = logging.getLogger(__name__)

_NO_ROOM = ("SQLITE_FULL", "SQLITE_IOERR")
_CLOSED = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")  # to this user
_BUSY_SECONDS = 10  # how long a write waits for `gpuwatch pause`, and that one for a write

IN_MEMORY = "in memory"  # where a ledger is that no controller writes


class SqliteStore(Store):
    """A file, or memory. The controller holds the file's locks: two can never share it by mistake."""

    def __init__(self, uri: str, place: str, controller: str, path: Path | None = None) -> None:
        """Use the class methods."""
        engine = _memory() if path is None else _engine(uri, lambda: self._begin)
        super().__init__(engine, place, controller)
        self._file: HeldFile | None = None
        self._marker = None if path is None else Marker(path)
        self._unmarked = False
        self._begin = "BEGIN"

    @classmethod
    def open(cls, path: Path) -> Self:
        """Lock, create and migrate the file, and lead."""
        file = HeldFile(path)
        store = cls(f"file:{path}", str(path), this_process(), path)
        store._file = file
        try:
            store._prepare(new=file.empty)
            file.note_files().check()
            store.doubt = store._doubts()
            if store.doubt is None:
                store._mark()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def beside(cls, path: Path, *, read_only: bool) -> Self:
        """A file that another process may hold: to read it for a moment, or for a person's short orders.

        Where nobody has it open, SQLite makes no files next to it for a reader, and does not look for changes.

        Raises:
            LedgerError: it is not there, was lost, is no ledger; for orders also where it is not as it was left.

        """
        try:
            there, name = path.exists(), left_over(path)
        except OSError as error:
            raise LedgerError(f"{path} cannot be opened ({error.strerror}); {AS_ITS_USER}") from error
        refuse_directory(path)
        if name is not None:
            raise lost_error(path, name)
        if not there:
            raise LedgerError(f"{path} does not exist yet; start `gpuwatch controller`, or set ledger.path")
        untouched = read_only and at_rest(path)
        mode = f"{'ro' if read_only else 'rw'}{'&immutable=1' if untouched else ''}"
        store = cls(f"file:{path}?mode={mode}", str(path), this_process(), path)
        try:
            with store._readable() as db:
                schema.check(db, store.place)
            store._adopt()
            store.doubt = store._doubts()
            if not read_only:
                store._refuse_doubts()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def in_memory(cls, ledger_id: str) -> Self:
        """As long as its process."""
        store = cls("file::memory:", IN_MEMORY, "this process")
        store._prepare(ledger_id)
        return store

    def close(self) -> None:
        """Release the file, SQLite's own locks first."""
        super().close()
        if self._file is not None:
            self._file.close()

    @contextmanager
    def writing(self, *, fenced: bool = True) -> Iterator[Writer]:
        """As in `Store`; the write lock is taken first, so that a head once read stays the head."""
        with self._turn:
            self._check_file()
            with self._at_once(), super().writing(fenced=fenced) as writer:
                yield writer
            if self.doubt is None:
                self._mark()

    def leading(self) -> bool:
        """As in `Store`, on the very file that was opened."""
        try:
            self._check_file()
        except LedgerError as error:
            self.trouble = str(error)
            return False
        return super().leading()

    def begin_paused(self) -> None:
        """As in `Store`; from here on the marker says so."""
        super().begin_paused()
        self._mark(anew=True)

    def _check_file(self) -> None:
        """See `HeldFile.check`; a file that was once another's is never trusted again."""
        if self._other is not None:
            raise OtherLedgerError(self._other)
        if self._file is None:
            return
        try:
            self._file.check()
        except OtherLedgerError as error:
            self.trouble = self._other = f"{error}; {RESTART}"
            raise OtherLedgerError(self._other) from error

    def _doubts(self) -> str | None:
        """How the ledger is another than its marker says; None: it is not, or has no marker."""
        if self._marker is None:
            return None
        try:
            mark = self._marker.read()
        except LedgerError as error:
            return f"{self.place} may not be the ledger that was written here last: {error}."
        if mark is None or self._seen is None:
            return None
        links = self._seen[0]
        if mark.ledger_id != self.id:
            return (
                f"{self.place} is another ledger ({self.id}) than the one that was written here last "
                f"({mark.ledger_id}, {mark.links} records)."
            )
        if links < mark.links:
            return (
                f"{self.place} has lost its records {links + 1} to {mark.links}: it is an older copy, or a copy "
                "without its -wal file. Pauses, notices, stops and limits of that time are not known."
            )
        with self.reading() as db:
            found = db.scalar(select(CHAIN.c.hash).where(CHAIN.c.id == mark.links))
        if mark.links and found != mark.hash:
            return f"{self.place} is another copy of the ledger than the one that was written here last."
        return None

    def _refuse_doubts(self) -> None:
        """Orders go to the ledger that a controller reads, or nowhere."""
        if self.doubt is not None:
            raise LedgerError(
                f"{self.doubt} Nothing was written: a controller that runs may have another file open. Stop it and "
                "start it again; it begins paused"
            )

    def _mark(self, *, anew: bool = False) -> None:
        """Write next to the ledger how far it was written; without that, a loss is noticed later or not at all."""
        if self._marker is None or self._seen is None:
            return
        try:
            mark = Mark(ledger_id=self.id, links=self._seen[0], hash=self._seen[1])
            self._marker.write(mark, make=self._file is not None, anew=anew)
        except OSError as error:
            if not self._unmarked:
                log.warning("The marker %s cannot be written: %s", self._marker.path, error.strerror)
            self._unmarked = True
        else:
            self._unmarked = False

    def _prepare(self, ledger_id: str | None = None, *, new: bool = True) -> None:
        """Schema and lead. The tables are in the file itself before there is a WAL that could get lost."""
        with self._at_once():
            with self._readable() as db:
                schema.prepare(db, self.place, ledger_id, new=new)
            raw = self._db().connection.driver_connection
            if raw is not None:
                raw.execute("PRAGMA journal_mode = WAL")
            self._adopt()
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
        """A file that is not a database is named in the error and left as it is."""
        try:
            with self._db().begin():
                yield self._db()
        except DBAPIError as error:
            name = getattr(error.orig, "sqlite_errorname", "")
            if name.startswith(_CLOSED):
                raise LedgerError(f"{self.place} cannot be opened ({cause(error)}); {AS_ITS_USER}") from error
            if name.startswith(_NO_ROOM):
                raise LedgerError(
                    f"{self.place} cannot be written: the disk is full or fails; make room there, or set ledger.path"
                ) from error
            raise LedgerError(
                f"{self.place} is no ledger: {cause(error)}; move it away, or set ledger.path to another file"
            ) from error


def _engine(uri: str, begin: Callable[[], str]) -> Engine:
    """Opens this database; each transaction begins with that statement."""
    engine = create_engine("sqlite://", creator=lambda: _connect(uri), poolclass=NullPool, hide_parameters=True)
    event.listen(engine, "begin", lambda db: db.exec_driver_sql(begin()))
    return engine


@cache
def _memory() -> Engine:
    """The same for all ledgers in memory, each of which is its own connection: they share the compiled statements."""
    return _engine("file::memory:", lambda: "BEGIN")


def _connect(uri: str) -> sqlite3.Connection:
    """In autocommit: transactions are ours. Rounds run on a scheduler's thread, never two at once."""
    db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS)
    if "?mode=ro" not in uri:
        db.execute("PRAGMA synchronous = FULL")
    return db
