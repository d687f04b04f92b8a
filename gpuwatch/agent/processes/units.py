"""Who made a systemd unit: a package, the administrator, or `systemd-run`, by where its file lies."""

from pathlib import Path

from gpuwatch.agent.processes import programs
from gpuwatch.agent.processes.kinds import UnitOrigin

_MOST_KNOWN = 4096


class UnitFiles:
    """Looks up each unit once; units rarely move."""

    def __init__(self, *, etc: Path, usr: Path, run: Path) -> None:
        """Nothing is looked up yet."""
        self._own = (etc / "systemd/system", usr.parent / "usr/local/lib/systemd/system")
        self._transient = (run / "systemd/transient",)
        self._shipped = (
            usr / "lib/systemd/system",
            usr.parent / "lib/systemd/system",
            run / "systemd/generator",
            run / "systemd/generator.late",
        )
        self._known: dict[str, UnitOrigin] = {}

    def origin(self, unit: str | None) -> UnitOrigin:
        """Who made the unit; a link in /etc to a package's file, or an override, makes it nobody else's."""
        if unit is None:
            return UnitOrigin.UNKNOWN
        if unit not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[unit] = self._find(unit)
        return self._known[unit]

    def _find(self, unit: str) -> UnitOrigin:
        name, at, rest = unit.partition("@")
        files = [unit, f"{name}@{rest[rest.rfind('.') :]}"] if at else [unit]  # an instance has its template's file
        if _any(self._transient, files):
            return UnitOrigin.TRANSIENT
        own = [folder / file for folder in self._own for file in files if _is_own(folder / file)]
        if own:
            return UnitOrigin.SHIPPED if all(map(_is_of_snapd, own)) else UnitOrigin.ADMINISTRATOR
        return UnitOrigin.SHIPPED if _any(self._shipped, files) else UnitOrigin.UNKNOWN


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
