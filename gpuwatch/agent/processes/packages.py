"""The owner of a file: the distribution's package, another vendor's, or nobody's; asked in batches, and remembered.

The databases are read by a program that ends (`package_owners.py`). An answer holds until the file or a database
changes. Where there is no database that can be read, or the agent runs in a container, nothing is known.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import gpuwatch
from gpuwatch.agent import command

# Nothing of that program is loaded here: what it needs is megabytes.
_COMMAND = (
    "import sys; sys.path.insert(0, sys.argv[1]); from gpuwatch.agent.processes.package_owners import main; main()"
)
DATABASES = (
    *("/var/lib/dpkg/status", "/var/lib/dpkg/info", "/var/lib/dpkg/diversions"),
    *("/var/lib/rpm/rpmdb.sqlite", "/var/lib/rpm/rpmdb.sqlite-wal"),
    *("/usr/lib/sysimage/rpm/rpmdb.sqlite", "/usr/lib/sysimage/rpm/rpmdb.sqlite-wal"),
    *("/usr/share/rpm/rpmdb.sqlite", "/usr/share/rpm/rpmdb.sqlite-wal"),
)
_DEADLINE_SECONDS = 3.0
_AGAIN_SECONDS = 300.0  # after no answer
_SETTLED_SECONDS = 60.0  # while packages are installed the databases change all the time
_MOST_KNOWN = 2048
_MOST_ASKED = 512
# Where packages put programs, scripts, units and crontabs; a snap's and Nix's are packages without these databases.
_FOLDERS = ("/usr/", "/bin/", "/sbin/", "/lib", "/etc/", "/opt/")

_Stamp = tuple[int, int, int] | None


class Owner(StrEnum):
    """Who brought a file."""

    DISTRIBUTION = "distribution"
    VENDOR = "vendor"  # another one's: a company's, NVIDIA's
    NOBODY = "nobody"  # no package did, or somebody has edited what it brought
    UNKNOWN = "unknown"


OwnerOf = Callable[[str], Owner]


def owner_not_known(path: str) -> Owner:
    """The answer where no database speaks of this file: it lies in a container, for example."""
    del path
    return Owner.UNKNOWN


def ask_databases(root: str, paths: Sequence[str]) -> list[str]:
    """What the program answers, a word for each path.

    Raises:
        command.CommandError: it could not be started, or did not end in time.

    """
    argv = (sys.executable, "-I", "-S", "-c", _COMMAND, str(Path(gpuwatch.__file__).parent.parent), root)
    ended = command.run(argv, _DEADLINE_SECONDS, b"\0".join(map(os.fsencode, paths)))
    words = ended.output.decode("ascii", "replace").split()
    if ended.status != 0 or len(words) != len(paths):
        raise command.CommandError("the databases of packages cannot be read")
    return words


class PackageOwners:
    """What is known of files. Any thread may ask."""

    def __init__(self, root: Path, contained: Callable[[], bool] = lambda: False) -> None:
        """`root` is where the host's files lie; `contained` says whether its databases are those of an image."""
        self._root = str(root)
        self._contained = contained
        self._is_blind: bool | None = None
        self._lock = threading.Lock()
        self._known: dict[str, tuple[_Stamp, Owner]] = {}
        self._before: Mapping[str, Owner] = {}  # as the databases had it before they changed
        self._wanted: set[str] = set()
        self._checked: set[str] = set()  # since the last look: these files have not changed
        self._databases: tuple[_Stamp, ...] | None = None
        self._read_at: float | None = None
        self._failed_at: float | None = None
        self.misses = 0  # how often a file was looked up that nothing was known of
        self.turn = 0  # how often an answer has become another one

    def owner(self, path: str) -> Owner:
        """What is known of it now, and never waits; what is not known yet is wanted at the next `ask`."""
        if not path.startswith(_FOLDERS) or path != os.path.normpath(path):
            return Owner.UNKNOWN
        known = self._known.get(path)
        if known is not None and (path in self._checked or known[0] == _stamp(f"{self._root}/{path}")):
            self._checked.add(path)
            return known[1]
        self.misses += 1
        if len(self._wanted) < _MOST_ASKED:
            self._wanted.add(path)
        return Owner.UNKNOWN

    def owners(self, paths: Iterable[str], at: float) -> Mapping[str, Owner]:
        """The owners of these files, at that time of the monotonic clock; it waits for an answer."""
        asked = tuple(dict.fromkeys(paths))
        self.look_again()
        for path in asked:
            self.owner(path)
        self.ask(at)
        return {path: self.owner(path) for path in asked}

    def owners_of_files(self, files: Iterable[Path], at: float) -> dict[Path, Owner]:
        """The same of files below the root; nothing is known of others."""
        names = {file: f"/{file.relative_to(self._root)}" for file in files if file.is_relative_to(self._root)}
        owners = self.owners(names.values(), at)
        return {file: owners[name] for file, name in names.items()}

    def look_again(self) -> None:
        """A new look begins: files may have changed since the last one."""
        self._checked = set()

    def ask(self, at: float) -> bool:
        """Ask about what is wanted; whether something new is known."""
        with self._lock:
            self._forget_old(at)
            looked_up, self._wanted = self._wanted, set()
            wanted = sorted(looked_up)[:_MOST_ASKED]
            if not wanted or self.is_closed() or self._fails(at):
                return False
            stamps = [_stamp(f"{self._root}/{path}") for path in wanted]
            try:
                words = ask_databases(self._root, wanted)
            except command.CommandError:
                self._failed_at = at
                return False
            if len(self._known) + len(wanted) > _MOST_KNOWN:
                self._known.clear()
            answers = zip(wanted, stamps, map(Owner, words), strict=True)
            new = {path: (stamp, owner) for path, stamp, owner in answers}
            self.turn += any(self._before.get(path, owner) != owner for path, (_, owner) in new.items())
            self._known |= new
            return True

    def is_closed(self) -> bool:
        """Whether there is no database, or those here are not this host's."""
        if self._databases is not None and not any(self._databases):
            return True
        if self._is_blind is None:
            self._is_blind = self._contained()
        return self._is_blind

    def _fails(self, at: float) -> bool:
        return self._failed_at is not None and 0 <= at - self._failed_at < _AGAIN_SECONDS

    def _forget_old(self, at: float) -> None:
        """Forget all answers once a database has changed, at most each minute."""
        if self._read_at is not None and 0 <= at - self._read_at < _SETTLED_SECONDS:
            return
        self._read_at = at
        now = tuple(_stamp(f"{self._root}/{path}") for path in DATABASES)
        if now != self._databases:
            self._databases = now
            self._wanted |= self._known.keys()
            self._before = {path: owner for path, (_, owner) in self._known.items()}
            self._known = {}


def _stamp(path: str) -> _Stamp:
    try:
        status = os.stat(path)  # noqa: PTH116  hundreds of times
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
