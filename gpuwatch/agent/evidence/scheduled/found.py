"""What the readers of spools share: a collector, users and time zone, files parsed once, and what may be seen at all.

Whether the agent stands on the host itself says what it sees, and what would run a closed spool.
"""

import os
import re
import stat
import zoneinfo
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, tzinfo
from io import BytesIO
from pathlib import Path
from typing import Generic, TypeVar

from gpuwatch.agent.attribution.process import user_name
from gpuwatch.agent.devices.pid_namespace import in_host_pids
from gpuwatch.agent.evidence.base import Roots, UnseenError
from gpuwatch.agent.evidence.files import is_there, read_small, status_of
from gpuwatch.agent.evidence.scheduled.planned import Planned

FIRST_PERSON_UID = 1000  # useradd(8): people's accounts begin here
_NOBODY_UID = 65534
_ZONE_FILE = re.compile(r".*/zoneinfo/((?:(?!\.\.)[A-Za-z0-9_+./-])+)")
_MOST_CACHED = 4096

T = TypeVar("T")
REMEDY = "let the agent read it (CAP_DAC_READ_SEARCH), or take this source out of agent.evidence.scheduled.sources"
_FIRST_OF_HOSTS = frozenset({"systemd", "init"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Work that starts at an event, at no known time; `what` is for people, without a command."""

    what: str
    user: str | None = None
    unit: str | None = None


class Found:
    """The queued work that was seen, and why there may be more."""

    def __init__(self) -> None:
        self.planned: list[Planned] = []
        self.standing: list[Standing] = []
        self.doubts: list[str] = []

    @contextmanager
    def doubting(self, what: str) -> Iterator[None]:
        """A file that vanished holds nothing; whatever else goes wrong with it is a doubt about it."""
        try:
            yield
        except FileNotFoundError:
            return
        except UnseenError as error:
            self.doubts.append(f"{what}: {error}")
        except OSError as error:
            self.doubts.append(f"{what}: {error.strerror or type(error).__name__}")


class ParsedFiles(Generic[T]):
    """Files that are read again only after they changed."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int, int], T]] = {}

    def get(self, path: Path, parse: Callable[[str], T]) -> T:
        """What the file holds.

        Raises:
            OSError: it cannot be read.
            UnseenError: it is not a regular file, or too large.

        """
        status = status_of(path)
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        known = self._known.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        parsed = parse(read_small(path).text)
        if len(self._known) >= _MOST_CACHED:
            self._known.clear()
        self._known[path] = (stamp, parsed)
        return parsed


class Users:
    """The accounts of the host's own /etc/passwd; others (LDAP) are not known by it."""

    def __init__(self, roots: Roots) -> None:
        self._path = roots.etc / "passwd"
        self._files: ParsedFiles[dict[str, int]] = ParsedFiles()

    def machines_own(self, name: str) -> bool:
        """Whether it is surely the account of a service: a known one, and not a person's."""
        uid = 0 if name == "root" else self._uids().get(name)
        return uid is not None and (uid < FIRST_PERSON_UID or uid == _NOBODY_UID)

    def name(self, uid: int) -> str:
        """A user's name; the number of an unknown account."""
        names = [name for name, number in self._uids().items() if number == uid]
        return names[0] if names else user_name(uid)

    def _uids(self) -> dict[str, int]:
        try:
            return self._files.get(self._path, _uids)
        except (OSError, UnseenError):
            return {}


def is_folder(path: Path) -> bool:
    """Whether it is a folder that may be looked into."""
    try:
        return path.is_dir()
    except PermissionError:
        return is_there(path) and stat.S_ISDIR(status_of(path).st_mode)
    except OSError:
        return False


def _uids(text: str) -> dict[str, int]:
    rows = [line.split(":") for line in text.splitlines()]
    return {row[0]: int(row[2]) for row in rows if len(row) > 2 and re.fullmatch(r"[0-9]{1,10}", row[2])}  # noqa: PLR2004  name:x:uid


class Zones:
    """Time zones from the host's own files."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._local: tuple[object, tzinfo] | None = None

    def local(self) -> tzinfo:
        """The host's zone by /etc/localtime; UTC without that file, as the C library has it.

        Raises:
            OSError: it cannot be read.
            UnseenError: it is no time zone.

        """
        path = self._roots.etc / "localtime"
        try:
            status = path.lstat()
        except FileNotFoundError:
            return UTC
        stamp = (status.st_mtime_ns, status.st_ino)
        if self._local is None or self._local[0] != stamp:
            self._local = (stamp, self._zone_of_link(path) if path.is_symlink() else _zone(path))
        return self._local[1]

    def zone_named(self, name: str) -> tzinfo:
        """A zone by its name, such as Europe/Berlin; UTC for an unknown one, as the C library has it."""
        if ".." in name or not re.fullmatch(r"[A-Za-z0-9_+/-]+", name):
            return UTC
        try:
            return _zone(self._roots.usr / "share/zoneinfo" / name.lstrip("/"))
        except (OSError, UnseenError):
            return UTC

    def _zone_of_link(self, path: Path) -> tzinfo:
        target = str(path.readlink())
        found = _ZONE_FILE.fullmatch(target)
        if found is None:
            raise UnseenError(f"{path} does not name a time zone")
        try:
            return _zone(self._roots.usr / "share/zoneinfo" / found[1])
        except OSError:
            try:
                return zoneinfo.ZoneInfo(found[1])  # in an image without the zones' files
            except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
                raise UnseenError(f"the time zone that {path} names is not known here") from None


def _zone(path: Path) -> tzinfo:
    """The zone of a file; its aliases are links within the folder of zones, so links are followed here."""
    data = read_small(Path(os.path.realpath(path))).data
    try:
        return zoneinfo.ZoneInfo.from_file(BytesIO(data))
    except (ValueError, EOFError, IndexError, OSError):
        raise UnseenError(f"{path} holds no time zone") from None


def may_run(roots: Roots, *daemons: str) -> bool:
    """Whether one of these daemons is installed; True in a container, which does not see the host's programs."""
    folders = [roots.usr / "sbin", roots.usr / "bin", roots.usr / "lib/systemd/system-generators"]
    return (
        not any(folder.is_dir() for folder in folders)
        or is_container(roots)
        or any((folder / daemon).exists() for folder in folders for daemon in daemons)
    )


def blind(roots: Roots) -> tuple[str, ...]:
    """What this agent cannot see of queued work, a sentence each; empty where it sees the host's own folders.

    A host without any of these folders is not blind: nothing is queued there.
    """
    if not is_container(roots):
        return ()
    unseen: list[str] = []
    if not (roots.var / "spool/cron").is_dir() and not (roots.var / "spool/at").is_dir():
        unseen.append(f"at jobs and crontabs: it does not see the host's {roots.var}/spool; mount it read-only.")
    if not (roots.run / "systemd/system").is_dir():
        unseen.append(f"systemd timers: it does not see the host's {roots.run}/systemd; mount it read-only.")
    if not (roots.run / "user").is_dir():
        unseen.append(
            f"users' own timers: it does not see the host's {roots.run}/user; mount it and the homes read-only."
        )
    return tuple(unseen)


def is_container(roots: Roots) -> bool:
    """Whether this looks like a container within the host: one with a systemd of its own is a host by itself."""
    try:
        first = read_small(roots.proc / "1/comm").text.strip()
        mounts = [line.split() for line in read_small(roots.proc / "self/mountinfo").text.splitlines()]
    except (OSError, UnseenError):
        first, mounts = "", []
    of_image = any(mount[4:5] == ["/"] and "overlay" in mount for mount in mounts)
    unlike = first == "systemd" and not (roots.run / "systemd/system").is_dir()
    return of_image or unlike or (not in_host_pids(roots.proc) and first not in _FIRST_OF_HOSTS)
