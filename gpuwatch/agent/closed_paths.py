"""The closed files that the agent may read at all: a list of patterns, and how a path is opened below its base.

1. A base is a folder that root alone makes or replaces: links in its own path are root's, and are followed.
2. Below a base no link is followed, for there its user decides what a name leads to.
3. What matches no pattern is refused, whatever its mode is.
"""

import ctypes
import errno
import os
import re
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:  # as typing has it, which is half a megabyte to the reader
    from collections.abc import Collection

FILE, FOLDER, STATUS, TERMINAL = "file", "folder", "status", "terminal"
_TERMINALS = re.compile(r"/dev/(?:pts/\d{1,7}|tty\d{1,2})")
_FLAGS = {
    FILE: os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC,
    FOLDER: os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC,
    STATUS: os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC,
}
_OPENAT2 = 437  # the same on every architecture
_BENEATH, _NO_SYMLINKS = 0x08, 0x04  # linux/openat2.h
_NAME = r"(?:[^/]+)?"


class Rule:
    """A kind of base, and what below it may be opened. `links`: those below it are root's as well.

    `looks`: what is below may be looked at (STATUS), and not read. No dataclass: that is two megabytes to the reader.
    """

    __slots__ = ("base", "below", "links", "looks")

    def __init__(self, base: str, below: str, *, links: bool = False, looks: bool = False) -> None:
        """Patterns, for whole texts."""
        self.base, self.below = re.compile(base), re.compile(below)
        self.links, self.looks = links, looks


RULES = (
    # Queued jobs and crontabs.
    Rule(r"/var/spool/(?:cron/(?:atjobs|crontabs|tabs)|cron|at|atjobs|incron|fcron)", _NAME),
    Rule(r"/usr/local/var/spool/fcron", _NAME),
    Rule(r"/etc/(?:cron\.d|incron\.d|crontabs)", _NAME, links=True),
    Rule(r"/etc", r"crontab", links=True),
    # Timers of users' own managers, with their drop-ins.
    Rule(r"/run/user/\d+", r"systemd/transient(?:/[^/]+){0,2}"),
    Rule(r"/(?:home|root)(?:/[^/]+)?", r"\.config/systemd/user(?:/[^/]+){0,2}"),
    # Where Jupyter servers leave their files.
    Rule(r"/(?:home|root)(?:/[^/]+)?", r"\.local/share/jupyter/runtime(?:/[^/]+)?"),
    # The flows that the kernel's firewall follows: who asks by UDP.
    Rule(r"/proc/net", r"nf_conntrack"),
    # Which machine this is, for its BMC.
    Rule(r"/sys/class/dmi/id", r"product_uuid"),
    # Which homes there are, and the names of pods.
    Rule(r"/home|/root|/var/log/pods", r""),
    Rule(r"/home|/root", r"[^/]+", looks=True),
)


def open_closed(path: str, kind: str, also: "Collection[str]" = ()) -> int:
    """A descriptor of what is there: a regular file, a folder, or (STATUS) something to look at and not to read.

    `also` are folders that an administrator has named: their files may be read besides.

    Raises:
        PermissionError: no pattern has it.
        OSError: it cannot be opened, or something of it is a link.

    """
    if not path.startswith("/") or "\0" in path or path != os.path.normpath(path):
        raise PermissionError(errno.EACCES, "no plain path", path)
    for base, below, links in _splits(path, kind, also):
        opened = _open_below(base, below, _FLAGS[kind], links=links)
        if kind == FILE and not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise PermissionError(errno.EACCES, "no regular file", path)
        return opened
    if kind == FOLDER and path in _mount_points():  # whether a disk is empty: those are not people's folders
        return os.open(path, _FLAGS[FOLDER])
    raise PermissionError(errno.EACCES, "not among the files that the agent may read", path)


def closed_terminal_modes(path: str) -> int:
    """The local modes of a terminal that its user has closed to others; nothing that is typed there.

    Raises:
        OSError: there is no such terminal, or it cannot be opened.

    """
    if not _TERMINALS.fullmatch(path):
        raise PermissionError(errno.EACCES, "no terminal", path)
    return terminal_modes(path, os.O_RDONLY)


def terminal_modes(path: str, access: int) -> int:
    """The local modes (c_lflag) of a terminal. The look leaves its times, its lines and its input alone.

    Raises:
        OSError: it cannot be opened, or is no terminal.

    """
    import termios  # noqa: PLC0415  for the part of the reader alone that is asked this

    opened = os.open(path, access | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        modes: int = termios.tcgetattr(opened)[3]
    except termios.error as error:
        raise OSError(*error.args) from None
    finally:
        os.close(opened)
    return modes


def _splits(path: str, kind: str, also: "Collection[str]") -> list[tuple[str, str, bool]]:
    """How a rule takes the path apart, if one does: base, what is below it, and whether links there are root's."""
    for cut in (at for at in range(len(path) + 1) if at == len(path) or path[at] == "/"):
        base, below = path[:cut], path[cut + 1 :]
        for rule in RULES:
            fits = rule.base.fullmatch(base) and rule.below.fullmatch(below)
            if fits and (kind == STATUS or not rule.looks):
                return [(base, below, rule.links)]
        if base in also and "/" not in below:
            return [(base, below, False)]
    return []


def _open_below(base: str, below: str, flags: int, *, links: bool) -> int:
    if links or not below:
        return os.open(f"{base}/{below}" if below else base, flags)
    folder = os.open(base, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _openat2(folder, below, flags)
    except OSError as error:
        if error.errno not in {errno.ENOSYS, errno.EPERM}:  # older than Linux 5.6, or filtered
            raise
        return _walk(folder, below, flags)
    finally:
        os.close(folder)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _openat2(folder: int, below: str, flags: int) -> int:
    """The kernel's own way to open without links and without leaving the folder."""
    how = _How(flags, 0, _BENEATH | _NO_SYMLINKS)
    call = ctypes.CDLL(None, use_errno=True).syscall
    opened: int = call(_OPENAT2, folder, os.fsencode(below), ctypes.byref(how), ctypes.sizeof(how))
    if opened < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), below)
    return opened


def _walk(folder: int, below: str, flags: int) -> int:
    """The same in steps: no part may be a link, and none is `..`."""
    *parents, name = below.split("/")
    held = os.dup(folder)
    try:
        for each in parents:
            inner = os.open(each, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=held)
            os.close(held)
            held = inner
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=held)
    finally:
        os.close(held)


def _mount_points() -> frozenset[str]:
    """Where file systems are mounted; none where that cannot be read."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:  # noqa: PTH123  as said
            return frozenset(line.split(" ")[4] for line in lines)
    except (OSError, IndexError):
        return frozenset()
