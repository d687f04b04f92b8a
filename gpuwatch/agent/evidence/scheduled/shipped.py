"""The owners of files that lie where packages put theirs: crontabs, scripts of cron.daily and its like, and units.

The distribution's are the machine's own. Those of another vendor's package, and those that no package brought or that
somebody has edited, are somebody's: unless they only keep the machine tidy, or are units of a known vendor's. Where no
database of packages speaks, all of them are the machine's own.
"""

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from gpuwatch.agent.evidence.base import Moment, UnseenError
from gpuwatch.agent.evidence.files import ends_in, list_paths, read_small, target_of
from gpuwatch.agent.evidence.scheduled.housekeeping import of_the_machine, tidies
from gpuwatch.agent.processes.kinds import is_vendors_unit
from gpuwatch.agent.processes.packages import Owner, PackageOwners

# What a link in /etc may lead to without saying anything; not /usr/local/lib/systemd.
SHIPPED_UNIT = re.compile(r".*(?<!/local)/lib/systemd/(system|user)/[^/]+|/dev/null")
_SCRIPT = re.compile(r"(?!\.)[\w.-]+(?<!\.rpmsave)(?<!\.rpmnew)(?<!\.rpmorig)", re.ASCII)
_SAYS_NOTHING = re.compile(r"\s*(?:#.*|set [-+]\w+|exit 0)?\s*")


class ShippedFiles:
    """Separates the machine's own from somebody's."""

    def __init__(self, packages: PackageOwners | None) -> None:
        """Without `packages` all are the machine's own."""
        self._packages = packages

    def owners(self, files: Iterable[Path], now: Moment) -> dict[Path, Owner]:
        """The owners of these files."""
        if self._packages is None:
            return {}
        return self._packages.owners_of_files(files, now.monotonic_seconds)

    def somebodys(self, files: Iterable[Path], now: Moment) -> list[Path]:
        """Those of these files that are not the distribution's."""
        owners = self.owners(files, now)
        return [file for file, owner in owners.items() if owner in {Owner.VENDOR, Owner.NOBODY}]

    def units(self, files: Iterable[Path], now: Moment) -> list[Path]:
        """Those of these units that start somebody's work."""
        found = self.somebodys(files, now)
        return [unit for unit in found if not is_vendors_unit(unit.name) and not of_the_machine(unit)]

    def scripts(self, folder: Path, now: Moment) -> list[Path]:
        """Somebody's scripts in such a folder as /etc/cron.daily, that run and do more than to keep the machine tidy.

        Raises:
            OSError: it cannot be listed.
            UnseenError: it holds more than it can rightly.

        """
        try:
            files = [path for path in list_paths(folder, _SCRIPT) if _runs(path)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [path for path in self.somebodys(files, now) if not _tidies(path)]


def shipped_units(units: Path, root: Path, kinds: tuple[str, ...] = (".timer",)) -> list[Path]:
    """The files of packages' units of these kinds that links in /etc, or in the packages' own folder, start."""
    found: dict[str, Path] = {}
    for folder in (units, root / "usr/lib/systemd/system"):
        try:
            wants = list_paths(folder, ends_in(".wants", ".requires"))
        except (OSError, UnseenError):
            continue
        for link in (link for each in wants for link in list_paths(each, ends_in(*kinds))):
            try:
                target = os.path.normpath(link.parent / target_of(link)).removeprefix(str(root))
            except OSError:
                continue
            if SHIPPED_UNIT.fullmatch(target) and target != "/dev/null" and not (units / link.name).exists():
                merged = root / "usr" / target.lstrip("/")  # /lib leads to /usr/lib nearly everywhere
                found[link.name] = merged if merged.exists() else root / target.lstrip("/")
    return list(found.values())


def _runs(path: Path) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & 0o111)


def _tidies(path: Path) -> bool:
    try:
        lines = read_small(path).text.splitlines()
    except (OSError, UnseenError):
        return False
    commands = [line for line in lines if not _SAYS_NOTHING.fullmatch(line)]
    return bool(commands) and all(map(tidies, commands))
