"""What this agent cannot see on its host: a machine that it sees half of must never pass for idle without a word.

It is looked at when the agent starts and every few minutes, in a thread of its own, because a home on a dead network
mount never answers. Before the first look ends, nothing is reported.
"""

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gpuwatch.agent.closed_reader import look_into
from gpuwatch.agent.devices.pid_namespace import in_host_pids
from gpuwatch.agent.evidence.base import Roots, UnseenError
from gpuwatch.agent.evidence.files import hides_processes, list_paths
from gpuwatch.runtime.printable import legible

_LOG = logging.getLogger(__name__)

_EVERY_SECONDS = 300.0
_MOST_HOMES = 256
_IN_HOME = ".local/share/jupyter/runtime"
_MOST_CARDS = 1024
_CLOSED_PROCESSES = (
    "It may not see what file other users' processes run, where they work, and what they read and write. Any program "
    "that may be somebody's keeps this machine occupied. A program that only reads and writes is not seen at work. "
    "CAP_SYS_PTRACE allows it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindSpot:
    """One thing that cannot be seen: a code for machines, a sentence with its remedy for people."""

    what: str
    sentence: str


def host_pids(roots: Roots) -> str | None:
    """Return the name of the host's PID namespace."""
    if in_host_pids(roots.proc):
        return None
    return "It runs in a PID namespace of its own and sees no process of the host: run it with --pid=host."


def processes(roots: Roots) -> str | None:
    """Others' processes in /proc."""
    if not hides_processes(roots.proc):
        return None
    return f"{roots.proc} hides other users' processes (hidepid): exempt the agent by its gid=, or mount it without."


def cgroups(roots: Roots) -> str | None:
    """The control groups, of either version."""
    folder = roots.sys / "fs/cgroup"
    try:
        seen = (folder / "cgroup.controllers").exists() or any(each.is_dir() for each in folder.iterdir())
    except OSError:
        seen = False
    return None if seen else f"No control group is visible in {folder}: mount the host's /sys/fs/cgroup, read-only."


def run(roots: Roots) -> str | None:
    """What the host's programs keep in /run: logins, locks, sessions."""
    try:
        if (roots.run / "systemd").is_dir() or (roots.run / "utmp").exists():
            return None
    except OSError:
        pass
    return f"{roots.run} is not the host's (no logins, no locks): mount the host's /run."


def process_io(roots: Roots) -> str | None:
    """What others' processes run, read and write: of the first process, which is root's everywhere."""
    first = roots.proc / "1"
    for name, look in (("exe", os.readlink), ("io", _first_byte)):
        try:
            look(first / name)
        except (FileNotFoundError, ProcessLookupError):
            continue  # hidden, as `processes` says, or a kernel that does not count it
        except OSError:
            try:
                look_into(f"{first}/{name}")
            except FileNotFoundError:
                continue
            except OSError:
                return _CLOSED_PROCESSES
    return None


def _first_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(1)


def homes(roots: Roots) -> str | None:
    """Users' home folders, where Jupyter servers leave their files; a folder of homes may be one itself, as /root."""
    shut = [legible(str(home)) for folder in roots.homes for home in (folder, *_children(folder)) if _is_shut(home)]
    if not shut:
        return None
    more = f" and {len(shut) - 1} more" if len(shut) > 1 else ""
    return f"It may not read {shut[0]}{more}: CAP_DAC_READ_SEARCH allows it."


def network(roots: Roots) -> str | None:
    """The host's network cards and connections."""
    own, first = _namespace(roots.proc / "self/ns/net"), _namespace(roots.proc / "1/ns/net")
    known = own is not None and first is not None
    apart = own != first if known else not _has_card(roots.sys / "class/net")
    return "It runs in a network namespace of its own: give it the host's network (--network=host)." if apart else None


LOOKS: dict[str, Callable[[Roots], str | None]] = {
    "host_pids": host_pids,
    "processes": processes,
    "cgroups": cgroups,
    "run": run,
    "process_io": process_io,
    "homes": homes,
    "network": network,
}


def find_blind_spots(roots: Roots) -> tuple[BlindSpot, ...]:
    """All that cannot be seen now; a look that fails cannot see."""
    found: list[BlindSpot] = []
    for what, each in LOOKS.items():
        try:
            sentence = each(roots)
        except OSError as error:
            sentence = f"It cannot look at {what}: {error.strerror or type(error).__name__}."
        if sentence is not None:
            found.append(BlindSpot(what=what, sentence=sentence))
    return tuple(found)


class BlindWatch:
    """Looks now and then; readers never wait."""

    def __init__(self, roots: Roots | None = None, *, enabled: bool = True) -> None:
        """Nothing is looked at before `start`; where it is not `enabled`, never."""
        self._roots = roots or Roots()
        self._enabled = enabled
        self._stopping = threading.Event()
        self._warned: set[str] = set()
        self.spots: tuple[BlindSpot, ...] = ()

    def start(self) -> None:
        """Begin; returns at once."""
        if self._enabled:
            threading.Thread(target=self._run, name="blind", daemon=True).start()

    def stop(self) -> None:
        """Stop looking; returns at once."""
        self._stopping.set()

    def sentences(self) -> tuple[str, ...]:
        """What a verdict says about this blind spot."""
        return tuple(each.sentence for each in self.spots)

    def codes(self) -> tuple[str, ...]:
        """The same for machines."""
        return tuple(each.what for each in self.spots)

    def step(self) -> None:
        """Look once; what is new is logged, each once."""
        self.spots = find_blind_spots(self._roots)
        for each in self.spots:
            if each.what not in self._warned:
                self._warned.add(each.what)
                _LOG.warning("this agent is blind to %s: %s", each.what, each.sentence)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.step()
            self._stopping.wait(_EVERY_SECONDS)


def _children(folder: Path) -> list[Path]:
    """What lies in a folder of homes; nothing of one that cannot be listed, which is itself shut."""
    try:
        with os.scandir(folder) as entries:
            return [folder / entry.name for entry in islice(entries, _MOST_HOMES) if entry.name[0] != "."]
    except OSError:
        return []


def _is_shut(home: Path) -> bool:
    """Whether the agent would not find a server's files in it."""
    try:
        list_paths(home / _IN_HOME)
    except (FileNotFoundError, NotADirectoryError, UnseenError):
        return False
    except OSError:
        return True
    return False


def _namespace(link: Path) -> str | None:
    """Which one; None: it may not be read."""
    try:
        return str(link.readlink())
    except OSError:
        return None


def _has_card(folder: Path) -> bool:
    """Whether a network card stands for hardware, a virtual machine's included."""
    try:
        with os.scandir(folder) as entries:
            return any(os.path.lexists(folder / entry.name / "device") for entry in islice(entries, _MOST_CARDS))
    except OSError:
        return False
