"""What was intended, what came of it, and the observations that decisions rested on: SQLite, one file, one writer.

Intents and outcomes are only ever appended; an intent is durable (WAL, synchronous=FULL) before the cloud is called.
`open_intents` and `notices` are indexes over them, kept in the same transaction.
"""

import fcntl
import sqlite3
import uuid
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Self

import msgspec

from gpuwatch.model.decision import (
    FINAL,
    Done,
    Intent,
    LedgerView,
    Notice,
    Observation,
    OpenIntent,
    Outcome,
    Reason,
    Review,
    Status,
    Verb,
)

SCHEMA_VERSION = 1
HOUR = timedelta(hours=1)  # how far back limits look

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE rounds (id INTEGER PRIMARY KEY, at TEXT NOT NULL, observation BLOB NOT NULL, reviews BLOB NOT NULL);
CREATE TABLE intents (
    seq INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, verb TEXT NOT NULL, node_id TEXT NOT NULL, pool TEXT NOT NULL,
    at TEXT NOT NULL, reason TEXT NOT NULL, round_id INTEGER REFERENCES rounds (id)
);
CREATE INDEX intents_by_node ON intents (node_id, seq);
CREATE TABLE outcomes (
    seq INTEGER PRIMARY KEY, key TEXT NOT NULL REFERENCES intents (key), at TEXT NOT NULL, status TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE INDEX outcomes_by_key ON outcomes (key, seq);
CREATE INDEX outcomes_by_time ON outcomes (at);
CREATE TABLE open_intents (key TEXT PRIMARY KEY REFERENCES intents (key)) WITHOUT ROWID;
CREATE TABLE notices (node_id TEXT PRIMARY KEY, key TEXT NOT NULL, at TEXT NOT NULL) WITHOUT ROWID;
"""

# Attempts are outcomes that came from a call to the cloud.
_CALLS = frozenset({Status.ACCEPTED, Status.THROTTLED, Status.REFUSED, Status.DENIED, Status.UNAVAILABLE})

_MAY_HAVE_HAPPENED = frozenset({Status.ACCEPTED, Status.UNAVAILABLE})


class LedgerError(Exception):
    """The ledger cannot be used; the sentence says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An intent with all that came of it, for people."""

    intent: Intent
    outcomes: tuple[Outcome, ...]


class Ledger:
    """One open ledger. A writer holds the file's lock, so that two controllers can never share it by mistake."""

    def __init__(self, db: sqlite3.Connection, *, lock: IO[bytes] | None = None) -> None:
        """Use `Ledger.open` or `Ledger.in_memory`."""
        self._db = db
        self._lock = lock
        row = db.execute("SELECT value FROM meta WHERE name = 'ledger_id'").fetchone()
        self._id: str = row[0]

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Self:
        """Open or create the file.

        Raises:
            LedgerError: it is not there (read only), another controller holds it, it is of another version, or no file
                can be made there.

        """
        if read_only:
            if not path.exists():
                raise LedgerError(f"{path} does not exist yet; start `gpuwatch controller`, or set ledger.path")
            db = _connect(f"file:{path}?mode=ro")
            _check_version(db, path)
            return cls(db)
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
        db = _connect(f"file:{path}")
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            _create(db, uuid.uuid4().hex[:12])
            _check_version(db, path)
        except (sqlite3.DatabaseError, LedgerError) as error:
            db.close()
            lock.close()
            raise error if isinstance(error, LedgerError) else LedgerError(f"{path} is no ledger: {error}") from error
        return cls(db, lock=lock)

    @classmethod
    def in_memory(cls, ledger_id: str = "memory") -> Self:
        """A ledger that lives as long as its process; its keys repeat with its id."""
        db = _connect("file::memory:")
        _create(db, ledger_id)
        return cls(db)

    def close(self) -> None:
        """Release the file."""
        self._db.close()
        if self._lock is not None:
            self._lock.close()

    def record_round(self, observation: Observation, reviews: Sequence[Review]) -> int:
        """Keep what a round saw and what the guard said; gives the round's id."""
        seen, said = (zlib.compress(msgspec.json.encode(part), 1) for part in (observation, tuple(reviews)))
        with self._transaction():
            cursor = self._db.execute(
                "INSERT INTO rounds (at, observation, reviews) VALUES (?, ?, ?)", (_text(observation.now), seen, said)
            )
        assert cursor.lastrowid is not None  # noqa: S101  sqlite3 gives one after every INSERT
        return cursor.lastrowid

    def round(self, round_id: int) -> tuple[Observation, tuple[Review, ...]]:
        """What a past round saw and said."""
        row = self._db.execute("SELECT observation, reviews FROM rounds WHERE id = ?", (round_id,)).fetchone()
        if row is None:
            raise LedgerError(f"round {round_id} is not in this ledger")
        seen = msgspec.json.decode(zlib.decompress(row[0]), type=Observation)
        return seen, msgspec.json.decode(zlib.decompress(row[1]), type=tuple[Review, ...])

    def intend(self, verb: Verb, node_id: str, pool: str, at: datetime, reason: Reason, round_id: int) -> Intent:
        """Write down what is about to be done; the key is allocated here and is durable when this returns."""
        with self._transaction():
            seq = self._db.execute("SELECT COALESCE(MAX(seq), 0) + 1 FROM intents").fetchone()[0]
            key = f"gpuwatch-{self._id}-{seq}"
            self._db.execute(
                "INSERT INTO intents VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (seq, key, verb, node_id, pool, _text(at), msgspec.json.encode(reason).decode(), round_id),
            )
            self._db.execute("INSERT INTO open_intents VALUES (?)", (key,))
        return Intent(key=key, verb=verb, node_id=node_id, pool=pool, at=at, reason=reason)

    def settle(self, intent: Intent, status: Status, detail: str, at: datetime) -> Outcome:
        """Write down what came of an attempt; a final status closes the intent."""
        with self._transaction():
            self._db.execute(
                "INSERT INTO outcomes (key, at, status, detail) VALUES (?, ?, ?, ?)",
                (intent.key, _text(at), status, detail),
            )
            if status in FINAL:
                self._db.execute("DELETE FROM open_intents WHERE key = ?", (intent.key,))
            if status is Status.SETTLED:
                self._db.execute("DELETE FROM notices WHERE node_id = ?", (intent.node_id,))
                if intent.verb is Verb.NOTICE:
                    self._db.execute("INSERT INTO notices VALUES (?, ?, ?)", (intent.node_id, intent.key, _text(at)))
        return Outcome(key=intent.key, at=at, status=status, detail=detail)

    def drop_notice(self, node_id: str) -> None:
        """Forget the notice of a node that no longer exists: there is nothing left to tag."""
        with self._transaction():
            self._db.execute("DELETE FROM notices WHERE node_id = ?", (node_id,))

    def view(self, now: datetime, *, recent: timedelta = HOUR) -> LedgerView:
        """What decisions may know of the past: stops and failures as far back as `recent`."""
        notices = tuple(
            Notice(node_id=node_id, key=key, at=datetime.fromisoformat(at))
            for node_id, key, at in self._db.execute("SELECT node_id, key, at FROM notices ORDER BY node_id")
        )
        open_intents = tuple(
            self._open(entry) for entry in self._entries("WHERE key IN (SELECT key FROM open_intents) ORDER BY seq", ())
        )
        done = tuple(
            Done(
                key=key,
                verb=Verb(verb),
                node_id=node_id,
                pool=pool,
                status=Status(status),
                at=datetime.fromisoformat(at),
            )
            for key, verb, node_id, pool, status, at in self._db.execute(
                # The newest of an intent's times: a clock set back before its settlement must not make it look older.
                "SELECT i.key, verb, node_id, pool, f.status, MAX(o.at) FROM outcomes o JOIN intents i ON i.key = o.key"
                " JOIN outcomes f ON f.key = o.key AND f.status IN (?, ?, ?) WHERE o.at > ?"
                " AND (verb = ? OR f.status = ?) GROUP BY i.seq",
                (*sorted(FINAL), _text(now - recent), Verb.STOP, Status.FAILED),
            )
        )
        return LedgerView(notices=notices, open_intents=open_intents, recent=done)

    def history(self, node_id: str, *, limit: int = 20) -> tuple[Entry, ...]:
        """The newest intents of a node with their outcomes, newest first."""
        return tuple(self._entries("WHERE node_id = ? ORDER BY seq DESC LIMIT ?", (node_id, limit)))

    def _entries(self, where: str, values: tuple[object, ...]) -> Iterator[Entry]:
        """Intents of a query with their outcomes."""
        query = f"SELECT key, verb, node_id, pool, at, reason FROM intents {where}"  # noqa: S608  fixed texts
        for key, verb, node_id, pool, at, reason in self._db.execute(query, values).fetchall():
            intent = Intent(
                key=key,
                verb=Verb(verb),
                node_id=node_id,
                pool=pool,
                at=datetime.fromisoformat(at),
                reason=msgspec.json.decode(reason, type=Reason),
            )
            rows = self._db.execute("SELECT at, status, detail FROM outcomes WHERE key = ? ORDER BY seq", (key,))
            outcomes = tuple(
                Outcome(key=key, at=datetime.fromisoformat(when), status=Status(status), detail=detail)
                for when, status, detail in rows
            )
            yield Entry(intent=intent, outcomes=outcomes)

    @staticmethod
    def _open(entry: Entry) -> OpenIntent:
        """An open entry as decisions see it."""
        attempts = sum(outcome.status in _CALLS for outcome in entry.outcomes)
        last = entry.outcomes[-1] if entry.outcomes else None
        reached = any(outcome.status in _MAY_HAVE_HAPPENED for outcome in entry.outcomes)
        return OpenIntent(intent=entry.intent, attempts=attempts, last=last, reached=reached)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing, durable at the end."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def _connect(uri: str) -> sqlite3.Connection:
    """A connection in autocommit: transactions are ours. Rounds run on a scheduler's thread, never two at once."""
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10)


def _create(db: sqlite3.Connection, ledger_id: str) -> None:
    """The tables of a new file."""
    with closing(db.execute("SELECT COUNT(*) FROM sqlite_master WHERE name = 'meta'")) as cursor:
        if cursor.fetchone()[0]:
            return
    db.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
    db.execute("INSERT INTO meta VALUES ('schema_version', ?), ('ledger_id', ?)", (str(SCHEMA_VERSION), ledger_id))


def _check_version(db: sqlite3.Connection, path: Path) -> None:
    """Refuse a file of another version instead of guessing."""
    try:
        row = db.execute("SELECT value FROM meta WHERE name = 'schema_version'").fetchone()
    except sqlite3.DatabaseError as error:
        raise LedgerError(f"{path} is not a gpuwatch ledger ({error})") from error
    if row is None or row[0] != str(SCHEMA_VERSION):
        found = "none" if row is None else row[0]
        raise LedgerError(
            f"{path} has schema version {found}, this gpuwatch knows {SCHEMA_VERSION}; use its own version"
        )


def _text(at: datetime) -> str:
    """Aware UTC as text that sorts by time: always with microseconds."""
    return at.isoformat(timespec="microseconds")
