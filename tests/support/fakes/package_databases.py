"""Databases of packages on a made host: dpkg's files, and rpm's in SQLite, as far as the agent reads them."""

import hashlib
import sqlite3
import struct
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

DEBIAN = "Debian Systemd Maintainers <pkg-systemd-maintainers@lists.alioth.debian.org>"
UBUNTU = "Ubuntu Developers <ubuntu-devel-discuss@lists.ubuntu.com>"
COMPANY = "Acme Platform <platform@acme.example>"
ROCKY = "Rocky Enterprise Software Foundation"


@dataclass(frozen=True, slots=True, kw_only=True)
class APackage:
    """One that is installed: `texts` are files that its sums know, `configuration` those of dpkg's conffiles."""

    name: str
    files: Collection[str] = ()
    by: str = DEBIAN
    priority: str = "optional"
    texts: Mapping[str, str] = field(default_factory=dict)
    configuration: Mapping[str, str] = field(default_factory=dict)
    script: str | None = None

    @property
    def all_files(self) -> list[str]:
        """Every path in its list."""
        return [*self.files, *self.texts, *self.configuration]


def base_files(by: str = DEBIAN) -> APackage:
    """What every system of the family has."""
    return APackage(name="base-files", files=("/usr/lib/os-release",), by=by, priority="required")


def put_dpkg(root: Path, *packages: APackage, diversions: str = "") -> None:
    """Write /var/lib/dpkg."""
    folder = root / "var/lib/dpkg"
    (folder / "info").mkdir(parents=True, exist_ok=True)
    paragraphs = []
    for each in packages:
        text = "".join(f"{path}\n" for path in ("/.", *each.all_files))
        (folder / f"info/{each.name}.list").write_text(text)
        sums = "".join(f"{_md5(text)}  {path[1:]}\n" for path, text in each.texts.items())
        (folder / f"info/{each.name}.md5sums").write_text(sums)
        if each.script is not None:
            (folder / f"info/{each.name}.postinst").write_text(each.script)
        listed = "".join(f" {path} {_md5(text)}\n" for path, text in each.configuration.items())
        paragraphs.append(
            f"Package: {each.name}\nStatus: install ok installed\nPriority: {each.priority}\nSection: misc\n"
            f"Maintainer: {each.by}\nArchitecture: amd64\nVersion: 1.0-1\n"
            + (f"Conffiles:\n{listed}" if listed else "")
            + "Description: made\n more of it\n"
        )
    (folder / "status").write_text("\n".join(paragraphs))
    if diversions:
        (folder / "diversions").write_text(diversions)


def put_rpm(root: Path, *packages: APackage, folder: str = "var/lib/rpm") -> None:
    """Write rpmdb.sqlite."""
    path = root / folder / "rpmdb.sqlite"
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY AUTOINCREMENT, blob BLOB NOT NULL)")
        database.execute("CREATE TABLE Basenames (key TEXT NOT NULL, hnum INTEGER NOT NULL, idx INTEGER NOT NULL)")
        for number, each in enumerate(packages, 1):
            database.execute("INSERT INTO Packages VALUES (?, ?)", (number, _header(each)))
            names = [(file.rpartition("/")[2], number, index) for index, file in enumerate(each.all_files)]
            database.executemany("INSERT INTO Basenames VALUES (?, ?, ?)", names)
        database.commit()


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _header(package: APackage) -> bytes:
    """A header as rpm keeps it: its name, vendor, and files with their sums."""
    files, known = package.all_files, {**package.texts, **package.configuration}
    folders = sorted({f"{file.rpartition('/')[0]}/" for file in files})
    sums = [hashlib.sha256(known[file].encode()).hexdigest() if file in known else "" for file in files]
    tags: list[tuple[int, int, list[str] | list[int]]] = [
        (1000, 6, [package.name]),
        (1011, 6, [package.by]),
        (1035, 8, sums),
        (1116, 4, [folders.index(f"{file.rpartition('/')[0]}/") for file in files]),
        (1117, 8, [file.rpartition("/")[2] for file in files]),
        (1118, 8, folders),
        (5011, 4, [8]),
    ]
    index, data = b"", b""
    for tag, kind, values in tags:
        data += b"\0" * (-len(data) % 4)
        index += struct.pack(">iiii", tag, kind, len(data), len(values))
        data += b"".join(struct.pack(">i", each) if isinstance(each, int) else each.encode() + b"\0" for each in values)
    return struct.pack(">II", len(tags), len(data)) + index + data
