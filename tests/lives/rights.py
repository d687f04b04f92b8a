"""What the agent may look at on a made host: all of it, or what ships; the kernel closes the rest, and so do we.

What ships is read where it ships: in the unit, the chart's manifests and the image's description.
"""

import builtins
import errno
import io
import os
import re
import stat
import termios
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from gpuwatch.agent import closed_paths
from gpuwatch.agent.closed_reader import ClosedReader, ProcessReader
from gpuwatch.agent.closed_server import LOOKS

_ROOT = Path(__file__).parents[2]
UNIT = _ROOT / "systemd/gpuwatch-agent.service"
MANIFEST = _ROOT / "deploy/kustomize/gpuwatch/agent.yaml"  # made of the chart, and compared with it
IMAGE = _ROOT / "Dockerfile"
_TTY_GROUP = 5  # of all distributions
PTRACE, READ_ALL = "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"
# Of a process of another user, without CAP_SYS_PTRACE (proc(5); fs/proc/base.c): the targets of these links and all
# that lies behind them, what is in these folders, and these files.
LINKS = ("exe", "cwd", "root")
FOLDERS = ("fd", "fdinfo", "ns", "map_files")
FILES = ("io", "environ", "auxv", "maps", "smaps", "smaps_rollup", "mem", "pagemap", "mountstats", "syscall", "stack")
_PROCESS = re.compile(rf"/(\d+)(?:/task/\d+)?/({'|'.join((*LINKS, *FOLDERS, *FILES))})(?:/(.*))?")
# What is closed to everybody but root and its owner on a usual host, without CAP_DAC_READ_SEARCH.
_PRIVATE = re.compile(r"/(?:home/[^/]+|root|run/user/\d+|var/spool/cron/(?:atjobs|crontabs))(?:/.*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """The name of the form, the user that the agent runs as, and the capabilities that it has then."""

    form: str
    root: bool
    capabilities: frozenset[str]
    terminals: str = ""  # what it may do with those of others: w by its group and devices, r by its reader

    @property
    def sees_programs(self) -> bool:
        """Whether it may look into others' processes."""
        return self.root or PTRACE in self.capabilities


ROOT = Rights(form="root", root=True, capabilities=frozenset())


def nobody() -> Rights:
    """A user without any right."""
    return Rights(form="nobody", root=False, capabilities=frozenset())


def granted_by_unit(text: str) -> Rights:
    """What a unit grants to what it starts."""
    lines = [line.partition("=") for line in text.splitlines()]
    words = {name: {word for key, _, text in lines if key == name for word in text.split()} for name, _, _ in lines}
    granted = words.get("AmbientCapabilities", set()) & words.get("CapabilityBoundingSet", set())
    devices = re.search(r"^DeviceAllow=char-pts ([rw]+)$", text, re.MULTILINE)
    allowed = "rw" if words.get("DevicePolicy", {"auto"}) == {"auto"} else devices[1] if devices else ""
    writes = "w" if "w" in allowed and "tty" in words.get("SupplementaryGroups", set()) else ""
    reads = "r" if "r" in allowed and READ_ALL in granted else ""
    root = words.get("User", {"root"}) == {"root"}
    return Rights(form="unit", root=root, capabilities=frozenset(granted), terminals=writes + reads)


def granted_by_pod(text: str) -> Rights:
    """What a manifest grants: a user that is not root has none of the capabilities that are added."""
    [pod] = [
        each["spec"]["template"]["spec"] for each in yaml.safe_load_all(text) if each and each["kind"] == "DaemonSet"
    ]
    own, all_ = pod["containers"][0].get("securityContext", {}), pod.get("securityContext", {})
    root = own.get("runAsUser", all_.get("runAsUser", 0)) == 0
    added = own.get("capabilities", {}).get("add", []) if root else []
    writes = "w" if _TTY_GROUP in all_.get("supplementalGroups", []) else ""
    return Rights(form="pod", root=False, capabilities=frozenset(f"CAP_{each}" for each in added), terminals=writes)


def granted_by_image(text: str) -> Rights:
    """What an image grants by itself."""
    users = re.findall(r"^USER (\S+)$", text, re.MULTILINE)
    root = not users or users[-1].partition(":")[0] in {"0", "root"}
    return Rights(form="image", root=root, capabilities=frozenset())


@cache
def unit_rights() -> Rights:
    """What the shipped unit grants; the packages have the same."""
    return granted_by_unit(UNIT.read_text(encoding="utf-8"))


@cache
def least_rights() -> Rights:
    """The unit's, without the right to look into processes where another form that ships has it not.

    What the unit lets be read of homes and spools, a pod has not at all: it is somebody else's.
    """
    others = granted_by_pod(MANIFEST.read_text(encoding="utf-8")), granted_by_image(IMAGE.read_text(encoding="utf-8"))
    if all(each.sees_programs for each in others):
        return unit_rights()
    unit = unit_rights()
    fewest = min((unit.terminals, *(each.terminals for each in others)), key=len)
    return Rights(form="least", root=False, capabilities=unit.capabilities - {PTRACE}, terminals=fewest)


class Sight:
    """An agent's sight of a made host, with these rights."""

    def __init__(self, rights: Rights, root: Path, own: int, closed: tuple[str, ...] = ()) -> None:
        """`own` is the agent's process. `closed`: only these of what a process has are closed to it."""
        self._rights = rights
        self._root = str(root)
        self._own = own
        self._closed = closed or (*LINKS, *FOLDERS, *FILES)
        self._judged: dict[tuple[str, bool, bool], bool] = {}  # an agent looks at the same paths in each cycle

    def refuses(self, path: str, *, follows: bool = True, opens: bool = False) -> bool:
        """Whether the kernel would refuse to open, list or follow it."""
        found = self._judged.get((path, follows, opens))
        if found is None and opens and path.startswith(f"{self._root}/dev/pts/"):
            return "w" not in self._rights.terminals or not _STAT(path).st_mode & stat.S_IWGRP
        if found is None:
            # The kernel opens a wchan and says 0, which is as good.
            found = path.startswith(self._root) and (
                (opens and path.endswith("/wchan")) or self._refuses_always(path, follows=follows)
            )
            self._judged[path, follows, opens] = found
        return found

    def _refuses_always(self, path: str, *, follows: bool) -> bool:
        name = path[len(self._root) :].rstrip("/")
        if name == "/proc/net/nf_conntrack":
            return True  # mode 0440; the reader has it
        if not name.startswith("/proc/"):
            return _PRIVATE.fullmatch(name) is not None  # the agent's reader opens some of these, and not the agent
        found = _PROCESS.fullmatch(name[5:])
        if found is None or int(found[1]) == self._own or found[2] not in self._closed:
            return False
        return follows or found[3] is not None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within, this process sees the made host so."""
        if self._rights.root:
            yield
            return
        with ExitStack() as stack:
            for where, name, follows in _CALLS:
                stack.enter_context(patch.object(where, name, self._closing(getattr(where, name), follows=follows)))
            stack.enter_context(patch.object(ClosedReader, "current", _MadeReader(self._rights, self._root)))
            stack.enter_context(patch.object(ProcessReader, "current", _MadeLooks(self._rights, self._root)))
            yield

    def _closing(self, call: Callable[..., Any], *, follows: bool) -> Callable[..., Any]:
        opens, refuses = call is _OPEN, self.refuses

        def closing(path: Any = ".", *more: Any, **named: Any) -> Any:  # noqa: ANN401  as the call has it
            name = path if path is None or isinstance(path, str | int) else os.fspath(path)
            through = follows and (not named or named.get("follow_symlinks", True))
            if isinstance(name, str) and refuses(name, follows=through, opens=opens):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
            return call(name, *more, **named)

        return closing


class _MadeReader(ClosedReader):
    """Answers as the real one does, from the made host; without the right, nothing."""

    def __init__(self, rights: Rights, root: str) -> None:
        self._rights = rights
        self._root = root

    def open(self, path: str, kind: str) -> int:
        """A descriptor of what is on the list."""
        name = path.removeprefix(self._root)
        if READ_ALL not in self._rights.capabilities or not closed_paths._splits(name, kind, ()):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return _OPEN(path, closed_paths._FLAGS[kind])

    def ask(self, kind: str, path: str) -> tuple[bytes, int | None]:
        """The modes of a terminal."""
        if kind != closed_paths.TERMINAL or "r" not in self._rights.terminals:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        opened = _OPEN(path, os.O_RDONLY)
        try:
            return b"%d" % termios.tcgetattr(opened)[3], None
        finally:
            os.close(opened)


class _MadeLooks(ProcessReader):
    """The same for processes."""

    def __init__(self, rights: Rights, root: str) -> None:
        self._rights = rights
        self._root = root

    def look_into(self, path: str) -> bytes:
        """Where a link leads to, or what a process has read and written."""
        asked = LOOKS.fullmatch(os.fsencode(path.removeprefix(self._root)))
        if asked is None or PTRACE not in self._rights.capabilities:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        if asked[2] not in {b"io", b"wchan"}:
            return os.fsencode(_READLINK(path))
        opened = _OPEN(path, os.O_RDONLY)
        try:
            return os.read(opened, 4096)
        finally:
            os.close(opened)


_OPEN, _READLINK, _STAT = os.open, os.readlink, os.stat
_CALLS: tuple[tuple[Any, str, bool], ...] = (
    (os, "open", True), (os, "readlink", True), (os, "stat", True), (os, "lstat", False), (os, "listdir", True),
    (os, "scandir", True), (io, "open", True), (builtins, "open", True),
)  # fmt: skip
