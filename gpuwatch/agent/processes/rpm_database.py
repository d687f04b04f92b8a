"""The owner of a file, by rpm's database in SQLite (Fedora 33, Red Hat 9, Amazon Linux 2023 and what came after them).

A package is the distribution's if its vendor is that of the package with /usr/lib/os-release, or Fedora's, which makes
EPEL. Older systems (Berkeley DB) and SUSE (ndb) have databases that nothing here reads. What was written lately may
still be in the log next to the file: then the owner of a file without one is not known.
"""

import hashlib
import os
import sqlite3
import struct

from gpuwatch.agent.processes.dpkg_database import DISTRIBUTION, NOBODY, VENDOR, read_whole, spellings

TYPE_CHECKING = False
if TYPE_CHECKING:  # as in dpkg_database
    from collections.abc import Iterable

FOLDERS = ("/var/lib/rpm", "/usr/lib/sysimage/rpm", "/usr/share/rpm")
_RELEASES = ("/usr/lib/os-release", "/etc/os-release", "/etc/system-release", "/etc/redhat-release")
_TRUSTED = frozenset({"Fedora Project"})
# rpm/rpmtag.h
_VENDOR, _DIGESTS, _DIR_INDEXES, _BASENAMES, _DIR_NAMES, _ALGORITHM = 1011, 1035, 1116, 1117, 1118, 5011
_INT32, _STRINGS, _MOST_ENTRIES = 4, frozenset({6, 8, 9}), 1 << 16
_ENTRY = struct.Struct(">iiii")
_ALGORITHMS = {None: "md5", 1: "md5", 2: "sha1", 8: "sha256", 10: "sha512"}
_LARGEST_EDITED_BYTES = 1 << 18


class RpmDatabase:
    """One that is open."""

    def __init__(self, root: str) -> None:
        """Open the database of the host that has its files there.

        Raises:
            OSError: there is no database, or it may not be read.

        """
        self._root = root.rstrip("/")
        path = next((found for each in FOLDERS if os.path.isfile(found := f"{self._root}{each}/rpmdb.sqlite")), None)  # noqa: PTH113  no pathlib
        if path is None:
            raise FileNotFoundError(2, os.strerror(2), self._root)
        # As a file that does not change: a reader may not make the log's index in a folder of root's.
        try:
            self._database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
            self._headers: dict[int, _Header] = {}
            self.is_whole = not _has_bytes(f"{path}-wal")
            self._vendors = self._of_releases() | _TRUSTED
        except sqlite3.Error as error:
            raise OSError(5, str(error), path) from None

    @property
    def of_this_host(self) -> bool:
        """Whether the system itself came by it."""
        return len(self._vendors) > len(_TRUSTED)

    def owners(self, paths: "Iterable[str]") -> dict[str, str]:
        """The owners of these files; without those that it does not know.

        Raises:
            OSError: it cannot be read.

        """
        found: dict[str, str] = {}
        try:
            for path in paths:
                for name in spellings(self._root, path):
                    for header, index in self._with_file(name):
                        vendor = DISTRIBUTION if header.text(_VENDOR) in self._vendors else VENDOR
                        found[path] = NOBODY if self._is_edited(header, index, path) else vendor
        except (sqlite3.Error, struct.error) as error:
            raise OSError(5, str(error)) from None
        return found

    def _with_file(self, path: str) -> "Iterable[tuple[_Header, int]]":
        folder, _, base = path.rpartition("/")
        for number, index in self._database.execute("SELECT hnum, idx FROM Basenames WHERE key = ?", (base,)):
            header = self._header(number)
            if header is not None and header.path(index) == f"{folder}/{base}":
                yield header, index

    def _header(self, number: int) -> "_Header | None":
        if number not in self._headers:
            row = self._database.execute("SELECT blob FROM Packages WHERE hnum = ?", (number,)).fetchone()
            if row is None:
                return None
            self._headers[number] = _Header(row[0])
        return self._headers[number]

    def _of_releases(self) -> frozenset[str]:
        found = (header.text(_VENDOR) for path in _RELEASES for header, _ in self._with_file(path))
        return frozenset(vendor for vendor in found if vendor)

    def _is_edited(self, header: "_Header", index: int, path: str) -> bool:
        algorithm = _ALGORITHMS.get(header.number(_ALGORITHM))
        wanted = header.texts(_DIGESTS)[index : index + 1]
        if algorithm is None or not wanted or not wanted[0]:
            return False
        text = read_whole(f"{self._root}{path}", _LARGEST_EDITED_BYTES)
        return text is not None and hashlib.new(algorithm, text, usedforsecurity=False).hexdigest() != wanted[0]


class _Header:
    """A package's header: an index of tags, and their data (rpm's manual, "Package format")."""

    __slots__ = ("_data", "_tags")

    def __init__(self, blob: bytes) -> None:
        entries, size = struct.unpack_from(">II", blob)
        begin = 8 + 16 * min(entries, _MOST_ENTRIES)
        self._data = blob[begin : begin + size]
        found = (_ENTRY.unpack_from(blob, 8 + 16 * at) for at in range(min(entries, _MOST_ENTRIES)))
        self._tags = {tag: (kind, at, count) for tag, kind, at, count in found}

    def texts(self, tag: int) -> list[str]:
        kind, at, count = self._tags.get(tag, (0, 0, 0))
        if kind not in _STRINGS:
            return []
        parts = self._data[at:].split(b"\0", count)[:count]
        return [each.decode("utf-8", "surrogateescape") for each in parts]

    def text(self, tag: int) -> str:
        return next(iter(self.texts(tag)), "")

    def number(self, tag: int, index: int = 0) -> int | None:
        kind, at, count = self._tags.get(tag, (0, 0, 0))
        if kind != _INT32 or not 0 <= index < count:
            return None
        found: int = struct.unpack_from(">i", self._data, at + 4 * index)[0]
        return found

    def path(self, index: int) -> str | None:
        names, folder = self.texts(_BASENAMES), self.number(_DIR_INDEXES, index)
        folders = self.texts(_DIR_NAMES)
        known = folder is not None and index < len(names) and 0 <= folder < len(folders)
        return f"{folders[folder or 0]}{names[index]}" if known else None


def _has_bytes(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0  # noqa: PTH116  no pathlib
    except OSError:
        return False
