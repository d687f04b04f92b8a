"""Jobs of at(1) and batch(1), by the names of their files, as atd reads them.

A file is called by its queue's letter, five hexadecimal digits of its number and eight of the minutes since 1970. It is
its user's own; it can be run once its execute bit is set, and has a second name (with `=` for the queue) while it runs.
Queue b and upper-case queues are batch: due from their time on, as soon as the load is low.
"""

import re
import stat
from datetime import UTC, datetime
from pathlib import Path

from gpuwatch.agent.evidence.base import Roots, UnseenError
from gpuwatch.agent.evidence.files import list_paths, status_of
from gpuwatch.agent.evidence.scheduled.found import REMEDY, Found, Users, may_run
from gpuwatch.agent.evidence.scheduled.planned import Planned
from gpuwatch.runtime.printable import legible

_FOLDERS = ("spool/cron/atjobs", "spool/at", "spool/atjobs")  # Debian; Red Hat; SUSE
_DAEMON = "atd"
_JOB = re.compile(r"([A-Za-z])([0-9a-f]{5})([0-9a-f]{8})")
_LAST_MINUTE = 4_000_000_000  # beyond the year 9000 there is no date


class AtJobs:
    """The spools of the host."""

    def __init__(self, roots: Roots, users: Users) -> None:
        self._roots = roots
        self._users = users

    def read(self, found: Found) -> None:
        """Add what is queued. A running job is seen by its processes, and not here."""
        for name in _FOLDERS:
            folder = self._roots.var / name
            try:
                paths = list_paths(folder, _JOB)
            except FileNotFoundError:
                continue
            except PermissionError:
                if may_run(self._roots, _DAEMON):
                    found.doubts.append(f"{folder} may not be listed, and {_DAEMON} may run its jobs; {REMEDY}")
                continue
            except OSError as error:
                found.doubts.append(f"{folder}: {error.strerror}")
                continue
            except UnseenError as error:
                found.doubts.append(str(error))
                continue
            for path in paths:
                with found.doubting(f"at job {path.name}"):
                    self._add(path, found)

    def _add(self, path: Path, found: Found) -> None:
        status = status_of(path)
        name = _JOB.fullmatch(path.name)
        if name is None or not stat.S_ISREG(status.st_mode):
            return
        if not status.st_mode & stat.S_IXUSR or status.st_nlink > 1:
            return
        user = legible(self._users.name(status.st_uid), 32)
        batch = name[1].isupper() or name[1] == "b"
        minutes = min(int(name[3], 16), _LAST_MINUTE)
        found.planned.append(
            Planned(
                what=f"{user}'s {'batch' if batch else 'at'} job",
                user=user,
                due=datetime.fromtimestamp(60 * minutes, UTC),
                batch=batch,
            )
        )
