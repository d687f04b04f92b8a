"""systemd timers: those of systemd-run and of administrators, and users' own.

Timers below /usr/lib/systemd are the machine's own where the distribution brought them (`shipped`), also where /etc
only links to them or adds to them; so are those that the setting `ignored` names. A user's timers run only while that
user's manager does (a login, or lingering), and only enabled ones are known. The manager of the system is asked at most
each five minutes, and at once after a change of the folders with its units.
"""

import fnmatch
import os
import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from gpuwatch.agent.evidence.base import Moment, Roots, UnseenError
from gpuwatch.agent.evidence.files import ends_in, is_there, list_paths, read_small, status_of, target_of
from gpuwatch.agent.evidence.scheduled.found import FIRST_PERSON_UID, Found, Standing, Users, Zones, is_folder
from gpuwatch.agent.evidence.scheduled.housekeeping import of_the_machine
from gpuwatch.agent.evidence.scheduled.manager import ManagerTimer, ask_timers, planned_by_manager
from gpuwatch.agent.evidence.scheduled.shipped import SHIPPED_UNIT, ShippedFiles, shipped_units
from gpuwatch.agent.evidence.scheduled.timer_units import TimerFile, parse_timer, plan_starts, with_drop_ins
from gpuwatch.runtime.printable import legible

EVENT_UNITS = (".path", ".socket")  # they start something at an event
_ASK_AGAIN_SECONDS = 300.0
_WATCHED = ("systemd/system", "systemd/system/timers.target.wants")


class Timers:
    """The timers of the host's manager."""

    def __init__(
        self,
        roots: Roots,
        zones: Zones,
        ignored: Sequence[str],
        deadline_seconds: float,
        shipped: ShippedFiles,
        systemctl: str | None = None,
    ) -> None:
        self._shipped = shipped
        self._roots = roots
        self._zones = zones
        self._ignored = tuple(ignored)
        self._deadline_seconds = deadline_seconds
        self._systemctl = systemctl
        self._answer: tuple[float, object, tuple[ManagerTimer, ...] | None] | None = None

    def read(self, found: Found, now: Moment) -> None:
        """Add what its timers start; nothing where systemd does not run."""
        if not (self._roots.run / "systemd").is_dir():
            return
        known = self._known_timers(now)
        if known is None:
            self._by_files(found, now)
            return
        for timer in known:
            own = timer.fragment.startswith("/etc/") and of_the_machine(
                self._roots.etc / timer.fragment.removeprefix("/etc/")
            )
            if not own and not _matches(timer.name, self._ignored):
                with found.doubting(f"timer {legible(timer.name, 80)}"):
                    found.planned += planned_by_manager(timer, now.at, uptime(self._roots), self._zones, self._roots)

    def _known_timers(self, now: Moment) -> tuple[ManagerTimer, ...] | None:
        """What the manager said lately; None if it cannot be asked."""
        changed = [_stamp(self._roots.run / "systemd/transient")]
        changed += [_stamp(self._roots.etc / name) for name in _WATCHED]
        if self._answer is not None:
            asked, before, known = self._answer
            if before == changed and 0 <= now.monotonic_seconds - asked < _ASK_AGAIN_SECONDS:
                return known
        systemctl = self._systemctl
        if systemctl is None and self._roots.run == Roots().run:  # elsewhere it would answer for another host
            systemctl = shutil.which("systemctl")
        try:
            theirs = lambda fragments: self._theirs(fragments, now)  # noqa: E731  of this moment
            known = None if systemctl is None else ask_timers(systemctl, self._deadline_seconds, theirs)
        except UnseenError:
            known = None
        self._answer = (now.monotonic_seconds, changed, known)
        return known

    def _theirs(self, fragments: Collection[str], now: Moment) -> frozenset[str]:
        """Those of these files of packages' units that start somebody's work."""
        files = {self._roots.usr.parent / each.lstrip("/"): each for each in fragments}
        return frozenset(files[unit] for unit in self._shipped.units(files, now))

    def _by_files(self, found: Found, now: Moment) -> None:
        system = self._roots.etc / "systemd/system"
        boot = now.at - timedelta(seconds=uptime(self._roots))
        with found.doubting("systemd's timers"):
            for path in transient(self._roots.run / "systemd/transient"):
                if not _matches(path.name, self._ignored):
                    _add(path, "systemd-run", None, found, now.at, self._zones, boot=boot, once=True)
        with found.doubting(str(system)):
            theirs = [path for path in made_here(system) if not of_the_machine(path)]
            brought = shipped_units(system, self._roots.usr.parent)
            for path in (*theirs, *self._shipped.units(brought, now)):
                if not _matches(path.name, self._ignored):
                    _add(path, "timer", None, found, now.at, self._zones, boot=boot)


class UserTimers:
    """The timers of users' own managers that run now."""

    def __init__(self, roots: Roots, users: Users, zones: Zones, ignored: Sequence[str]) -> None:
        self._roots = roots
        self._users = users
        self._zones = zones
        self._ignored = tuple(ignored)

    def read(self, found: Found, now: Moment) -> None:
        """Add what they start."""
        running: dict[int, Path] = {}
        with found.doubting("users' managers"):
            running = {int(path.name): path for path in list_paths(self._roots.run / "user") if path.name.isdecimal()}
        # A greeter's closed folder is no doubt; what can be read is read.
        running = {
            uid: path
            for uid, path in running.items()
            if uid == 0 or uid >= FIRST_PERSON_UID or os.access(path, os.R_OK | os.X_OK)
        }
        if not running:
            return
        boot = now.at - timedelta(seconds=uptime(self._roots))
        for uid, folder in running.items():
            user = legible(self._users.name(uid), 32)
            with found.doubting(f"{user}'s timers"):
                for path in transient(folder / "systemd/transient"):
                    _add(path, "systemd-run", user, found, now.at, self._zones, boot=boot, once=True)
        for home in self._homes(found):
            owner = owner_of_home(home)
            if owner is not None and owner in running:
                user = legible(self._users.name(owner), 32)
                units = home / ".config/systemd/user"
                with found.doubting(f"{user}'s timers"):
                    for path in made_here(units):
                        if not _matches(path.name, self._ignored):
                            _add(path, "timer", user, found, now.at, self._zones, boot=boot)
                    for path in made_here(units, EVENT_UNITS):
                        if not _matches(path.name, self._ignored):
                            found.standing.append(Standing(what=f"{user}'s unit {legible(path.name, 80)}", user=user))

    def _homes(self, found: Found) -> list[Path]:
        """Every home; a folder of homes may be a home itself, as /root, and is then not always open."""
        homes: list[Path] = []
        for folder in self._roots.homes:
            homes.append(folder)
            with found.doubting(str(folder)), suppress(PermissionError):
                homes += [path for path in list_paths(folder) if is_folder(path)]
        return homes


def owner_of_home(home: Path) -> int | None:
    """The uid of a home's owner; None if that may not be seen."""
    try:
        return home.stat().st_uid
    except PermissionError:
        return status_of(home).st_uid if is_there(home) else None
    except OSError:
        return None


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _add(  # noqa: PLR0913  what is known of a timer's file
    path: Path,
    kind: str,
    user: str | None,
    found: Found,
    now: datetime,
    zones: Zones,
    *,
    boot: datetime,
    once: bool = False,
) -> None:
    """Add what the timer of that file starts."""
    name = legible(path.name, 80)
    shown = f"{user}'s {kind} {name}" if user else f"{kind} {name}"
    with found.doubting(shown):
        text = with_drop_ins(path)
        written = datetime.fromtimestamp(status_of(path).st_mtime, now.tzinfo)
        timer = TimerFile(
            name=name,
            what=shown,
            user=user,
            transient=once,
            timing=parse_timer(text),
            activated=written if once else max(boot, written),
            boot=boot,
        )
        found.planned += plan_starts(timer, now, zones)


def transient(folder: Path) -> list[Path]:
    """The timers of systemd-run in that folder."""
    try:
        return list_paths(folder, ends_in(".timer"))
    except FileNotFoundError:
        return []


def made_here(units: Path, kinds: tuple[str, ...] = (".timer",)) -> list[Path]:
    """The files of the units of these kinds that are started with a target, without those that packages ship.

    A link in the target's folder names them: most lead to a package's file, and then no file lies in `units`.
    """
    found: dict[str, Path] = {}
    try:
        folders = list_paths(units, ends_in(".wants", ".requires"))
    except FileNotFoundError:
        return []
    for folder in folders:
        for link in list_paths(folder, ends_in(*kinds)):
            file = units / link.name
            found[link.name] = file if is_there(file) else link
    return [path for path in found.values() if not _is_shipped(path)]


def _is_shipped(path: Path) -> bool:
    """Whether it is a link to a package's file; a relative one leads from its folder."""
    try:
        return SHIPPED_UNIT.fullmatch(os.path.normpath(path.parent / target_of(path))) is not None
    except OSError:
        return False


def uptime(roots: Roots) -> float:
    """Seconds since the host booted.

    Raises:
        OSError: it cannot be read.
        UnseenError: it is no number.

    """
    words = read_small(roots.proc / "uptime").text.split()
    try:
        return float(words[0])
    except (IndexError, ValueError):
        raise UnseenError(f"{roots.proc / 'uptime'} holds no number") from None


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
