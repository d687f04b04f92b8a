"""What starts at an event: path and socket units that an administrator made, and tables of incron.

Between two events nothing of it is alive, and nobody knows when the next one comes: it occupies the node. Units of
the distribution's packages, those of vendors (docker.socket) and what only keeps the machine tidy do not count.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from gpuwatch.agent.evidence.base import Moment, Roots
from gpuwatch.agent.evidence.files import list_paths, read_small
from gpuwatch.agent.evidence.scheduled.found import REMEDY, Found, Standing, is_folder, may_run
from gpuwatch.agent.evidence.scheduled.housekeeping import of_the_machine
from gpuwatch.agent.evidence.scheduled.shipped import ShippedFiles, shipped_units
from gpuwatch.agent.evidence.scheduled.timers import EVENT_UNITS, made_here
from gpuwatch.agent.processes.kinds import is_vendors_unit
from gpuwatch.runtime.printable import legible

_TABLE = re.compile(r"(?!\.)(?!.*~\Z)[^/]+")


class Events:
    """The standing orders of the host."""

    def __init__(self, roots: Roots, ignored: Sequence[str], shipped: ShippedFiles) -> None:
        """`ignored`: units, by names with `*`, that are the machine's own."""
        self._shipped = shipped
        self._roots = roots
        self._ignored = tuple(ignored)

    def read(self, found: Found, now: Moment) -> None:
        """Add what waits for an event."""
        units = self._roots.etc / "systemd/system"
        with found.doubting(str(units)):
            paths = [each for each in made_here(units, EVENT_UNITS) if not is_vendors_unit(each.name)]
            theirs = [each for each in paths if not of_the_machine(each)]
            brought = shipped_units(units, self._roots.usr.parent, EVENT_UNITS)
            for path in (*theirs, *self._shipped.units(brought, now)):
                name = path.name
                if not any(fnmatchcase(name, pattern) for pattern in self._ignored):
                    found.standing.append(Standing(what=f"unit {legible(name, 80)}", unit=legible(name, 80)))
        for folder in (self._roots.var / "spool/incron", self._roots.etc / "incron.d"):
            self._tables(folder, found)

    def _tables(self, folder: Path, found: Found) -> None:
        try:
            paths = [path for path in list_paths(folder, _TABLE) if not is_folder(path)]
        except (FileNotFoundError, NotADirectoryError):
            return
        except PermissionError:
            if may_run(self._roots, "incrond"):
                found.doubts.append(f"{folder} may not be listed, and incron may run its jobs; {REMEDY}")
            return
        for path in paths:
            with found.doubting(str(path)):
                lines = (line.strip() for line in read_small(path).text.splitlines())
                if any(line and not line.startswith("#") for line in lines):
                    user = legible(path.name, 32)
                    found.standing.append(Standing(what=f"{user}'s incron table", user=user))
