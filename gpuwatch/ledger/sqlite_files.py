"""The files of an SQLite ledger: who may have them, whether they are still those that were opened, and the marker.

The marker `<ledger>.id` says which ledger lies here and how far it was written. It is written after each transaction,
so it is never ahead of the ledger: a ledger that is behind its marker has lost records.
"""

import fcntl
import os
import stat
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gpuwatch.ledger.records import LedgerError, OtherLedgerError

PRIVATE = 0o600
_PRIVATE_FOLDER = 0o700
_WAL, _SHM, _LOCK, _MARKER = "-wal", "-shm", ".lock", ".id"
# A byte that SQLite never touches (https://sqlite.org/lockingv3.html): far beyond any file's end.
_LOCKED_BYTE = 2**62
_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux
_SET_LOCK = getattr(fcntl, "F_OFD_SETLK", None)  # None: not Linux; the lock file alone holds there
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_FORM = "gpuwatch-ledger 1 {} {:020d} {}\n"
_BEGIN, _WORDS = ["gpuwatch-ledger", "1"], 5
_MOST_BYTES = 1024
# Descriptors of files that another controller of this very process has open. To close one would drop the locks that
# SQLite holds for that controller (https://sqlite.org/howtocorrupt.html, 2.2).
_LEFT_OPEN: list[int] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How far a ledger was written: its id, its newest link and that link's hash."""

    ledger_id: str
    links: int
    hash: str


def beside(path: Path, ending: str) -> Path:
    """The file of that ending."""
    return path.parent / f"{path.name}{ending}"


def left_over(path: Path) -> str | None:
    """Where the ledger itself is missing or empty: the name of a file which shows that there was one; None: none."""
    try:
        if path.exists() and path.stat().st_size > 0:
            return None
        found = next((each for each in (beside(path, _MARKER), beside(path, _WAL)) if each.exists()), None)
    except OSError:
        return None
    return None if found is None else found.name


def lost_error(path: Path, name: str) -> LedgerError:
    """What to say of a ledger that is gone and has left that file."""
    what = "is empty" if path.exists() else "is missing"
    return LedgerError(
        f"{path} {what}, but {name} next to it shows that there was a ledger; nothing was changed. Put the ledger back "
        f"(docs/ledger.md, Restore), or move {name} away to begin a new one"
    )


AS_ITS_USER = "run this as root or as the controller's user"


def refuse_directory(path: Path) -> None:
    """Raise LedgerError for a directory, in which the ledger was probably meant to lie, and for what cannot be seen."""
    try:
        directory = path.is_dir()
    except OSError as error:
        raise LedgerError(f"{path} cannot be opened ({error.strerror}); {AS_ITS_USER}, or set ledger.path") from error
    if directory:
        raise LedgerError(f"{path} is a directory; expected a file, such as {path / 'ledger.db'}, in ledger.path")


def at_rest(path: Path) -> bool:
    """Whether nobody has it open, and all of it is in its one file."""
    return not beside(path, _WAL).exists()


class Marker:
    """The file that says which ledger lies here."""

    def __init__(self, path: Path) -> None:
        """Of the ledger at `path`."""
        self.path = beside(path, _MARKER)

    def read(self) -> Mark | None:
        """What it says; None without such a file.

        Raises:
            LedgerError: it says nothing that can be understood.

        """
        try:
            body = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerError(f"its marker {self.path.name} cannot be read ({error.strerror})") from error
        mark = _mark_of(body)
        if mark is None:
            raise LedgerError(f"its marker {self.path.name} is damaged")
        return mark

    def write(self, mark: Mark, *, make: bool, anew: bool = False) -> None:
        """Durable when this returns; all marks have the same length, so that one replaces another in place.

        `make`: also where there is no marker. Only a controller makes one, so that it belongs to the controller's user.
        A mark never goes back, which a slower writer could bring about, unless `anew`.
        """
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0)
        try:
            file = os.open(self.path, flags, PRIVATE)
        except FileNotFoundError:
            if make:
                raise
            return
        try:
            size = os.fstat(file).st_size
            if size == 0:
                os.fchmod(file, PRIVATE)
            before = _mark_of(os.pread(file, _MOST_BYTES, 0))
            if not anew and before is not None and before.ledger_id == mark.ledger_id and before.links > mark.links:
                return
            body = _FORM.format(mark.ledger_id, mark.links, mark.hash).encode("ascii")
            os.pwrite(file, body, 0)
            if size != len(body):
                os.ftruncate(file, len(body))
            os.fsync(file)
        finally:
            os.close(file)
        if size == 0:
            _sync_folder(self.path.parent)


class HeldFile:
    """A ledger's file, locked and open. SQLite must be closed before this is."""

    def __init__(self, path: Path) -> None:
        """Lock and create it; all files are the user's alone, whatever the umask.

        Raises:
            LedgerError: another controller holds it, it was lost, is a directory, or nothing can be made there.

        """
        refuse_directory(path)
        self.path = path
        self._files: list[int] = []
        self._seen: tuple[object, ...] = ()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=_PRIVATE_FOLDER)
            lock = self._open(beside(path, _LOCK))
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise _held_error(path) from error
        name = left_over(path)
        if name is not None:
            self.close()
            raise lost_error(path, name)
        try:
            self.file = self._open(path)
        except OSError as error:
            self.close()
            raise _unwritable(path, error) from error
        self._lock_bytes()

    @property
    def empty(self) -> bool:
        """Whether nothing was ever written to it."""
        return os.fstat(self.file).st_size == 0

    def note_files(self) -> Self:
        """Remember SQLite's files as they are now: from here on they must stay the same ones."""
        self._seen = self._files_now()
        return self

    def check(self) -> None:
        """See that they are still the same ones, whole and writable.

        Raises:
            OtherLedgerError: other files are in their place, or none.
            LedgerError: they cannot be looked at, are damaged, or may only be read.

        """
        try:
            now, about = self._files_now(), self.path.stat()
            mounted = os.fstatvfs(self.file).f_flag
            header = os.pread(self.file, _HEADER_BYTES, 0)
        except FileNotFoundError as error:
            raise OtherLedgerError(f"{self.path} is no longer there, or what belongs to it is not") from error
        except OSError as error:
            raise LedgerError(f"{self.path} cannot be looked at ({error.strerror})") from error
        if now != self._seen:
            raise OtherLedgerError(f"{self.path} is no longer the file that this controller has open")
        if about.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) == 0 or mounted & os.ST_RDONLY:
            raise LedgerError(f"{self.path} has become read-only")
        if not header.startswith(_MAGIC) or about.st_size < _bytes_of(header):
            raise LedgerError(f"{self.path} is damaged: a part of it is gone")

    def close(self) -> None:
        """Release the locks on the files."""
        while self._files:
            os.close(self._files.pop())

    def _files_now(self) -> tuple[object, ...]:
        """Where the path leads to, and which files lie there."""
        real = Path(os.path.realpath(self.path))
        found = [each.stat() for each in (real, beside(real, _WAL), beside(real, _SHM))]
        return (real, *((about.st_dev, about.st_ino) for about in found))

    def _open(self, path: Path) -> int:
        """Open or create one, for the user alone where it is new."""
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
            os.fchmod(file, PRIVATE)
        except FileExistsError:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        self._files.append(file)
        return file

    def _lock_bytes(self) -> None:
        """Lock the database file itself, too: the lock file may be deleted, and another name may lead to the file."""
        if _SET_LOCK is None:
            return
        try:
            fcntl.fcntl(self.file, _SET_LOCK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _LOCKED_BYTE, 1, 0))
        except (BlockingIOError, PermissionError) as error:
            _LEFT_OPEN.append(self._files.pop())
            self.close()
            raise _held_error(self.path) from error
        except OSError:  # a file system without such locks: the lock file alone holds there
            pass


def _mark_of(body: bytes) -> Mark | None:
    """What a marker says; None where that cannot be understood."""
    words = body[:_MOST_BYTES].decode("ascii", errors="replace").split()
    if len(words) != _WORDS or words[:2] != _BEGIN or not words[3].isdecimal() or not body.endswith(b"\n"):
        return None
    return Mark(ledger_id=words[2], links=int(words[3]), hash=words[4])


def _bytes_of(header: bytes) -> int:
    """How long the file is by its own header (https://sqlite.org/fileformat.html, 1.3)."""
    page = int.from_bytes(header[16:18], "big")
    return (65536 if page == 1 else page) * int.from_bytes(header[28:32], "big")


def _sync_folder(folder: Path) -> None:
    """A new name lasts only once its folder is on disk; not every file system can do that."""
    with suppress(OSError):
        file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def _held_error(path: Path) -> LedgerError:
    return LedgerError(f"{path} is held by another controller; run one controller per ledger")


def _unwritable(path: Path, error: OSError) -> LedgerError:
    return LedgerError(f"{path} cannot be written ({error.strerror}); set ledger.path")
