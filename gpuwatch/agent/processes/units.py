"""Who made a systemd unit: a package, the administrator, or `systemd-run`; what it starts.

Where its file lies says so, and the databases of packages: a file in /usr/lib that no package brought is the
administrator's. A generator's file has the owner of the script in /etc/init.d that it was made of.
"""

import re
from pathlib import Path

from gpuwatch.agent.processes import programs
from gpuwatch.agent.processes.kinds import UnitOrigin
from gpuwatch.agent.processes.packages import Owner, OwnerOf, owner_not_known

_MOST_KNOWN = 4096
_SOURCE = re.compile(r"^SourcePath=(/etc/(?:init\.d|rc\.d|cron)\S*)$", re.MULTILINE)
_BY_OWNER = {Owner.NOBODY: UnitOrigin.ADMINISTRATOR, Owner.VENDOR: UnitOrigin.VENDOR}
_STARTS = re.compile(r"^[ \t]*ExecStart[ \t]*=(.*)$", re.MULTILINE)


class UnitFiles:
    """Looks up each unit once; units rarely move."""

    def __init__(self, *, etc: Path, usr: Path, run: Path) -> None:
        """Nothing is looked up yet."""
        self._root, self._run = usr.parent, run
        self._own = (etc / "systemd/system", usr.parent / "usr/local/lib/systemd/system")
        self._transient = (run / "systemd/transient",)
        self._shipped = (
            usr / "lib/systemd/system",
            usr.parent / "lib/systemd/system",
            run / "systemd/generator",
            run / "systemd/generator.late",
        )
        self._known: dict[str, tuple[UnitOrigin, str | None, tuple[str, ...]]] = {}
        self._timers: dict[str, str | None] = {}

    def origin(self, unit: str | None, owner_of: OwnerOf = owner_not_known) -> UnitOrigin:
        """Who made the unit; a link in /etc to a package's file, or an override, makes it nobody else's."""
        if unit is None:
            return UnitOrigin.UNKNOWN
        origin, file, _ = self._look_up(unit)
        return origin if file is None else _BY_OWNER.get(owner_of(file), origin)

    def starts(self, unit: str | None) -> tuple[str, ...]:
        """The programs that the unit's file starts, and what of their arguments is a path."""
        return () if unit is None else self._look_up(unit)[2]

    def is_timed(self, unit: str | None, owner_of: OwnerOf = owner_not_known) -> bool:
        """Whether a package of the distribution is proved to have brought a timer of its name: it tidies up."""
        if unit is None or not unit.endswith(".service"):
            return False
        if unit not in self._timers:
            if len(self._timers) >= _MOST_KNOWN:
                self._timers.clear()
            paths = (folder / f"{unit.removesuffix('.service')}.timer" for folder in self._shipped[:2])
            self._timers[unit] = next((self._decisive(path) for path in paths if _exists(path)), None)
        timer = self._timers[unit]
        return timer is not None and owner_of(timer) is Owner.DISTRIBUTION

    def _look_up(self, unit: str) -> tuple[UnitOrigin, str | None, tuple[str, ...]]:
        if unit not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            name, at, rest = unit.partition("@")
            # An instance has its template's file.
            files = [unit, f"{name}@{rest[rest.rfind('.') :]}"] if at else [unit]
            self._known[unit] = *self._find(files), self._find_starts(files)
        return self._known[unit]

    def _find(self, files: list[str]) -> tuple[UnitOrigin, str | None]:
        """By where its file lies; and the file that decides by its owner, if it may be a package's."""
        if _any(self._transient, files):
            return UnitOrigin.TRANSIENT, None
        own = [folder / file for folder in self._own for file in files if _is_own(folder / file)]
        if own:
            return (UnitOrigin.SHIPPED if all(map(_is_of_snapd, own)) else UnitOrigin.ADMINISTRATOR), None
        for folder in self._shipped:
            for path in (folder / file for file in files if _exists(folder / file)):
                return UnitOrigin.SHIPPED, self._decisive(path)
        return UnitOrigin.UNKNOWN, None

    def _decisive(self, path: Path) -> str | None:
        """The file that decides by its owner, as the host names it."""
        if not path.is_relative_to(self._run):
            return f"/{path.relative_to(self._root)}"
        try:
            found = _SOURCE.search(programs.read_beginning(path).decode("utf-8", "replace"))
        except OSError:
            return None
        return None if found is None else found[1]

    def _find_starts(self, files: list[str]) -> tuple[str, ...]:
        """Of the first file that systemd would take; what overrides add is not looked at."""
        for folder in (*self._transient, *self._own, *self._shipped):
            for path in (folder / file for file in files if _exists(folder / file)):
                try:
                    text = programs.read_beginning(path).decode("utf-8", "replace")
                except OSError:
                    return ()
                words = (word for line in _STARTS.findall(text) for word in line.split())
                return tuple(dict.fromkeys(found for word in words if (found := word.lstrip("@-:+!|")).startswith("/")))
        return ()


def _any(folders: tuple[Path, ...], files: list[str]) -> bool:
    return any(_exists(folder / file) for folder in folders for file in files)


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _is_of_snapd(path: Path) -> bool:
    """Whether snapd wrote it for a snap, which is a package: snapd puts its units into /etc."""
    try:
        return path.name.startswith("snap.") and b"\nX-Snappy=yes" in programs.read_beginning(path)
    except OSError:
        return False


def _is_own(path: Path) -> bool:
    """Whether it is a file of its own, and no link to a package's."""
    try:
        return path.is_file() and not path.is_symlink()
    except OSError:
        return False
