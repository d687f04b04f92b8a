"""Small files that others write: read whole or not at all, never waiting, never through a link."""

import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpuwatch.agent.closed_paths import FILE, FOLDER, STATUS
from gpuwatch.agent.closed_reader import ClosedReader, look_into
from gpuwatch.agent.devices.pid_namespace import in_host_pids
from gpuwatch.agent.evidence.base import Roots, UnseenError

_LARGEST_BYTES = 1 << 20
MOST_NAMES = 8192  # in a folder; more than ptys and inhibitor locks can be as the kernel and logind come
_MOST_PROCESSES = 1 << 18
_SHOWN = re.compile(r"(?!\.)(?!.*\.ref\Z).*", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A file's content, its owner, and when it was written (Unix time)."""

    data: bytes
    owner_uid: int
    written_seconds: float

    @property
    def text(self) -> str:
        """As text; invalid bytes are replaced."""
        return self.data.decode("utf-8", "replace")


def read_small(path: Path, most_bytes: int = _LARGEST_BYTES) -> Contents:
    """The whole of a regular file of at most so many bytes.

    Raises:
        OSError: it cannot be opened or read.
        UnseenError: it is not a regular file (a pipe would hold up the reader), or too large.

    """
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        opened = open_by_reader(path, FILE)
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise UnseenError(f"{path} is not a regular file")
        data = b""
        while len(data) <= most_bytes and (more := os.read(opened, min(1 << 16, most_bytes + 1))):
            data += more
    finally:
        os.close(opened)
    if len(data) > most_bytes:
        raise UnseenError(f"{path} is larger than it can rightly be")
    return Contents(data=data, owner_uid=status.st_uid, written_seconds=status.st_mtime)


@cache
def ends_in(*ends: str) -> re.Pattern[str]:
    """The names with one of these ends, for `list_paths`."""
    return re.compile(rf"(?!\.).*(?:{'|'.join(map(re.escape, ends))})", re.DOTALL)


def list_paths(folder: Path, wanted: re.Pattern[str] = _SHOWN, most: int = MOST_NAMES) -> list[Path]:
    """The paths in a folder with wanted names, sorted; without hidden ones and systemd's pipes (`*.ref`).

    Raises:
        OSError: it cannot be listed.
        UnseenError: it holds more than so many names, wanted or not; anybody may make them in some folders.

    """
    try:
        with os.scandir(folder) as entries:
            names = _names(entries, folder, wanted, most)
    except PermissionError:
        opened = open_by_reader(folder, FOLDER)
        try:
            with os.scandir(opened) as entries:
                names = _names(entries, folder, wanted, most)
        finally:
            os.close(opened)
    return [folder / name for name in sorted(names)]


def _names(entries: Iterator["os.DirEntry[str]"], folder: Path, wanted: re.Pattern[str], most: int) -> list[str]:
    names: list[str] = []
    for number, entry in enumerate(entries):
        if number >= most:
            raise UnseenError(f"{folder} holds more than {most} files")
        if wanted.fullmatch(entry.name):
            names.append(entry.name)
    return names


def status_of(path: Path) -> os.stat_result:
    """What a path is, itself and not what it leads to.

    Raises:
        OSError: it does not exist, or may not be looked at.

    """
    try:
        return path.lstat()
    except PermissionError:
        opened = open_by_reader(path, STATUS)
        try:
            return os.fstat(opened)
        finally:
            os.close(opened)


def is_there(path: Path) -> bool:
    """Whether a path exists, itself and not what it leads to; False if it may not be looked at."""
    try:
        status_of(path)
    except OSError:
        return False
    return True


def target_of(path: Path) -> str:
    """Where a link leads to.

    Raises:
        OSError: it is no link, or may not be looked at.

    """
    try:
        return str(path.readlink())
    except PermissionError:
        opened = open_by_reader(path, STATUS)
        try:
            return os.readlink("", dir_fd=opened)
        finally:
            os.close(opened)


def open_by_reader(path: Path, kind: str) -> int:
    """A descriptor of what this process may not open itself, where its reader may.

    Raises:
        OSError: there is no reader, or it may not, either.

    """
    if ClosedReader.current is None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return ClosedReader.current.open(str(path), kind)


def fields(text: str) -> dict[str, str]:
    """`KEY=value` lines, as systemd writes them under /run."""
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key: value for key, found, value in pairs if found}


_SLEEP = re.compile(rb"(\d{1,9}(?:\.\d*)?)([smhd]?)", re.ASCII)
_UNIT_SECONDS = {b"": 1.0, b"s": 1.0, b"m": 60.0, b"h": 3600.0, b"d": 86400.0}
_MOVED = re.compile(rb"^[rw]char: (\d+)$", re.MULTILINE)
_LARGEST_IO_BYTES = 4096

# What reading of a process in /proc raises once it has ended; anything else is no proof of its end.
ENDED = (FileNotFoundError, ProcessLookupError)


def processes(proc: Path) -> Iterator[tuple[Path, str]]:
    """The folder and the short name (15 letters) of each process that may be seen; thousands cost milliseconds.

    Raises:
        OSError: they cannot be listed, or one that has not ended cannot be read (hidepid=1).
        UnseenError: there are more than can rightly be.

    """
    for number, pid in enumerate(_numbers(proc)):
        if number >= _MOST_PROCESSES:
            raise UnseenError(f"more than {_MOST_PROCESSES} processes run")
        try:
            opened = os.open(f"{proc}/{pid}/comm", os.O_RDONLY | os.O_CLOEXEC)
        except ENDED:
            continue
        try:
            name = os.read(opened, 64).decode("utf-8", "replace").rstrip("\n")
        except ENDED:
            continue
        finally:
            os.close(opened)
        yield proc / pid, name


def _numbers(proc: Path) -> Iterator[str]:
    """One at a time: a list of them all is as long as anybody makes it."""
    with os.scandir(proc) as entries:
        for entry in entries:
            if entry.name.isdecimal():
                yield entry.name


def moved_bytes(folder: str) -> int | None:
    """Bytes that the process in that folder has read and written, in whatever way; None if that may not be read."""
    path = f"{folder}/io"
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(opened, _LARGEST_IO_BYTES)
        finally:
            os.close(opened)
    except PermissionError:
        try:
            data = look_into(path)
        except OSError:
            return None
    except OSError:
        return None
    found = _MOVED.findall(data)
    return sum(map(int, found)) if found else None


def sleep_seconds(process: Path) -> float:
    """How long a `sleep` was asked to last; its arguments go nowhere else. 0.0: for ever, or not to be seen."""
    try:
        words = read_small(process / "cmdline").data.rstrip(b"\0").split(b"\0")[1:]
    except (*ENDED, PermissionError, UnseenError):
        return 0.0
    total = 0.0
    for word in words:
        found = _SLEEP.fullmatch(word)
        if found is None:
            return 0.0  # infinity, too: it waits for nothing
        total += float(found[1]) * _UNIT_SECONDS[found[2]]
    return total


def hides_processes(proc: Path) -> bool:
    """Whether this /proc hides others' processes from this agent (hidepid)."""
    return not (proc / "1").exists()


def sees_processes(proc: Path) -> bool:
    """Whether all processes of the host are to be seen: not from within a container, nor where hidepid hides some."""
    return in_host_pids(proc) and not hides_processes(proc)


def surely_dead(pid: int, roots: Roots) -> bool:
    """Whether there is no such process; False if that is unknown."""
    return sees_processes(roots.proc) and not (roots.proc / str(pid)).exists()
