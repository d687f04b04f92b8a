"""What shells wait for: one at its prompt waits for its person, and any other for something that somebody would miss.

1. A shell that forked and runs no other program (`( … )`, a part of a pipeline, a loop with `&`) is work.
2. While a program runs in the terminal's foreground, the shell waits for that, and it is judged by itself. But zsh and
   ksh run the last part of a pipeline themselves: then they do not wait for a child.
3. A shell in the foreground is at its prompt where it edits the line itself: its terminal neither collects lines nor
   echoes. Where the terminal does, the shell is within a builtin: `wait`, `read`, a loop.
4. A shell that edits no lines (dash) leaves its terminal alone: it is at its prompt while it reads from it.
5. What cannot be seen is no prompt: a terminal that may not be opened, one that two sessions name.
"""

import errno
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from gpuwatch.agent.closed_paths import TERMINAL, terminal_modes
from gpuwatch.agent.closed_reader import ClosedReader, look_into
from gpuwatch.agent.processes.kinds import SHELL
from gpuwatch.agent.processes.process import Kind, Process

SUBSHELL = "subshell"
WAITS = "shell that waits in a builtin"
_ICANON, _ECHO = 0o2, 0o10  # asm-generic/termbits.h, of all machines with NVIDIA's driver
_EDITORS = frozenset({"bash", "rbash", "zsh", "fish", "tcsh"})
_RUN_THE_LAST_PART = frozenset({"zsh", "ksh", "ksh93"})
_READS_TERMINAL = re.compile(r"wait_woken|n_tty_read|tty_read")  # by kernel
_WAITS_FOR_CHILD = re.compile(r"do_wait|kernel_wait4|sigsuspend|__do_sys_rt_sigsuspend|sys_pause|do_signal_stop")
_PTS_MAJORS = (136, 143)
_CONSOLES, _MOST_CONSOLES = 4, 64
_MOST_ASKED = 256  # of the reader, in a look


class ShellLooks(Protocol):
    """What is looked at of a shell besides its own files."""

    def begin(self) -> None:
        """Begin a look at all shells."""
        ...

    def modes(self, tty: int) -> int | None:
        """The local modes of a terminal, by its device number; None: they cannot be seen."""
        ...

    def waits_in(self, pid: int) -> str | None:
        """The kernel's function that a process waits in; None: that cannot be seen."""
        ...


class HostsShells:
    """Looks at the host's own terminals."""

    def __init__(self, proc: Path, dev: Path) -> None:
        """Nothing is looked at yet."""
        self._proc = proc
        self._dev = dev
        self._asked = 0

    def begin(self) -> None:
        """Begin a look: in each, the reader of closed files is asked so many times at most."""
        self._asked = 0

    def modes(self, tty: int) -> int | None:
        """The local modes of a terminal. Who may write on it (group tty) may ask, and takes no input."""
        name = terminal_name(tty)
        if name is None:
            return None
        path = f"{self._dev}/{name}"
        try:
            return terminal_modes(path, os.O_WRONLY)
        except PermissionError:  # `mesg n`, as root has it on Debian
            if ClosedReader.current is None or self._asked >= _MOST_ASKED:
                return None
            self._asked += 1
        except OSError:
            return None
        try:
            return int(ClosedReader.current.ask(TERMINAL, path)[0])
        except (OSError, ValueError):
            return None

    def waits_in(self, pid: int) -> str | None:
        """As `wchan` says; "0" is for who may not know, and of a process that runs."""
        path = f"{self._proc}/{pid}/wchan"
        try:
            said = _beginning(path)
        except OSError as error:
            said = b"0" if error.errno == errno.EACCES else b""
        if said == b"0":
            try:
                said = look_into(path)
            except OSError:
                return None
        return said.decode("ascii", "replace").partition(".")[0] if said not in {b"", b"0"} else None


def shells_at_work(found: Mapping[int, Process], looks: ShellLooks) -> dict[int, Process]:
    """The shells of logins that are not at their prompt: they are somebody's work."""
    shells = [each for each in found.values() if each.kind is Kind.SESSION and each.rule == SHELL]
    if not shells:
        return {}
    looks.begin()
    jobs = {(each.tty, each.group) for each in found.values() if each.tty and each.state not in {"Z", "X"}}
    sessions = Counter(tty for tty, _ in {(each.tty, each.session) for each in shells})
    theirs = {}
    for shell in shells:
        unclear = sessions[shell.tty] > 1
        rule = SUBSHELL if shell.forked else None if _rests(shell, jobs, looks, unclear=unclear) else WAITS
        if rule is not None:
            theirs[shell.pid] = replace(shell, kind=Kind.PEOPLE, rule=rule)
    return theirs


def _rests(shell: Process, jobs: Collection[tuple[int, int]], looks: ShellLooks, *, unclear: bool) -> bool:
    """Whether it is at its prompt, or waits for a program in the foreground."""
    if not shell.tty:
        return False  # its terminal is gone, and it is not
    names = {shell.name.removeprefix("-"), shell.executable or ""}
    if shell.foreground != shell.group and (shell.tty, shell.foreground) in jobs:
        return not names & _RUN_THE_LAST_PART or _waits_in(shell, _WAITS_FOR_CHILD, looks)
    modes = None if unclear else looks.modes(shell.tty)
    if modes is None:
        return False
    if not modes & (_ICANON | _ECHO):
        return True
    return not names & _EDITORS and _waits_in(shell, _READS_TERMINAL, looks)


def _waits_in(shell: Process, functions: re.Pattern[str], looks: ShellLooks) -> bool:
    where = looks.waits_in(shell.pid)
    return where is not None and functions.fullmatch(where) is not None


def terminal_name(tty: int) -> str | None:
    """The file below /dev of a terminal, by a device number as in /proc/<pid>/stat; None of others, a serial port's."""
    major, minor = (tty >> 8) & 0xFFF, (tty & 0xFF) | ((tty >> 12) & 0xFFF00)
    first, last = _PTS_MAJORS
    if first <= major <= last:
        return f"pts/{(major - first) * 256 + minor}"
    return f"tty{minor}" if major == _CONSOLES and 0 < minor < _MOST_CONSOLES else None


def _beginning(path: str) -> bytes:
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(opened, 256)
    finally:
        os.close(opened)
