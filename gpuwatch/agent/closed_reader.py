"""The agent's side of its reader, processes that see for it what is closed: the agent has no right to do so itself.

It starts the reader before it has a thread, reads a setting or hears the network, and then gives its own rights up.
Without an answer the agent knows nothing: what it would have read is doubt.
"""

import contextlib
import errno
import fcntl
import os
import socket
import sys
import threading
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

import gpuwatch
from gpuwatch.agent import capabilities
from gpuwatch.agent.capabilities import DAC_READ_SEARCH, SYS_PTRACE, SYSLOG
from gpuwatch.agent.closed_server import ALSO, COMMAND, LINE

VARIABLE = "GPUWATCH_READER_FD"  # its lines, for the agent that begins again under the same pid: RIGHT:DESCRIPTOR …
_LONGEST_BYTES = 1 << 14  # of an answer
_ANSWERS_SECONDS = 6.0
_LINKS = frozenset({errno.ELOOP, errno.EXDEV})
_FAILED = 1
_RIGHTS = (DAC_READ_SEARCH, SYS_PTRACE)


class _Line:
    """A line to the reader: any thread may ask, one at a time."""

    def __init__(self, line: "socket.socket") -> None:
        """`line` leads to the reader."""
        self._line = line
        self._lock = threading.Lock()
        self._asked = 0

    def tell(self, folders: Collection[str]) -> None:
        """Send it a word that has no answer: what else it may read."""
        with contextlib.suppress(OSError), self._lock:
            self._line.send(b"\0".join([ALSO, *map(os.fsencode, sorted(folders))]))

    def hand_over(self) -> int:
        """Keep the line open for the program that this process becomes; its descriptor."""
        os.set_inheritable(self._line.fileno(), True)  # noqa: FBT003  the standard library's way
        return self._line.fileno()

    def ask(self, kind: str, path: str) -> tuple[bytes, int | None]:
        """What it says, and the descriptor that it sends.

        Raises:
            OSError: it refuses that, it is not to be had, or nobody answers.

        """
        with self._lock:
            self._asked += 1
            try:
                self._line.settimeout(_ANSWERS_SECONDS)
                self._line.send(b"\0".join([b"%d" % self._asked, kind.encode(), os.fsencode(path)]))
                return self._hear_answer(path)
            except (TimeoutError, ConnectionError, ValueError):
                raise OSError(errno.EIO, "the agent's reader of closed files does not answer", path) from None

    def _hear_answer(self, path: str) -> tuple[bytes, int | None]:
        while True:
            data, descriptors, _, _ = socket.recv_fds(self._line, _LONGEST_BYTES, 1)
            if not data:
                raise ConnectionResetError
            number, failed, *said = data.split(b"\0", 2)
            if int(number) == self._asked:
                if int(failed):
                    code = errno.EACCES if int(failed) in _LINKS else int(failed)  # as good as closed
                    raise OSError(code, os.strerror(code), path)
                return b"".join(said), descriptors[0] if descriptors else None
            for each in descriptors:  # an answer that came after its time
                os.close(each)


class ClosedReader(_Line):
    """The line to the part that opens closed files."""

    current: ClassVar["ClosedReader | None"] = None  # this process's, if it has one

    def open(self, path: str, kind: str) -> int:
        """A descriptor from the reader.

        Raises:
            OSError: it refuses that, cannot open it, or does not answer.

        """
        _, descriptor = self.ask(kind, path)
        if descriptor is None:
            raise OSError(errno.EIO, "the agent's reader of closed files does not answer", path)
        return descriptor


class ProcessReader(_Line):
    """The line to the part that looks into processes."""

    current: ClassVar["ProcessReader | None"] = None

    def look_into(self, path: str) -> bytes:
        """Where the link exe, cwd or root of a process in /proc leads to, or what is in its files io and wchan.

        Raises:
            FileNotFoundError: there is no such link, or the process has ended.
            PermissionError: it may not be read, or nobody answers.

        """
        try:
            return self.ask("look", path)[0]
        except (FileNotFoundError, ProcessLookupError):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
        except OSError:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path) from None


def look_into(path: str) -> bytes:
    """What a process shows under this path, to those who may look into it.

    Raises:
        FileNotFoundError: it has no such link, or has ended.
        PermissionError: it may not be read.

    """
    if ProcessReader.current is None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return ProcessReader.current.look_into(path)


def begin() -> bool:
    """Start the reader, or take it over: only with a right for it, and never for root, who reads everything.

    No thread may run yet. What this process starts afterwards has no right at all, and it itself none but to read the
    kernel's log. True: it must first become another program (`before_exec`), for the unit filters the call that gives a
    right up.
    """
    handed, filtered = os.environ.pop(VARIABLE, None), False
    lines: dict[int, socket.socket] = {}
    if handed is not None:
        for right, descriptor in (map(int, each.split(":")) for each in handed.split()):
            os.set_inheritable(descriptor, False)  # noqa: FBT003  the standard library's way
            lines[right] = socket.socket(fileno=descriptor)
    elif os.geteuid() != 0:
        lines = _start_reader([each for each in _RIGHTS if each in capabilities.capability_set()])
    if os.geteuid() != 0 and capabilities.capability_set():
        with contextlib.suppress(OSError):
            capabilities.clear_ambient()
        if lines:
            try:
                capabilities.keep_only({SYSLOG})
            except OSError:
                filtered = handed is None
    ClosedReader.current = ClosedReader(lines[DAC_READ_SEARCH]) if DAC_READ_SEARCH in lines else None
    ProcessReader.current = ProcessReader(lines[SYS_PTRACE]) if SYS_PTRACE in lines else None
    return filtered


def allow(folders: Collection[str]) -> None:
    """Name what else the reader may read; it hears the first such word alone, which is the agent's at its start."""
    if ClosedReader.current is not None:
        ClosedReader.current.tell(folders)
    elif ProcessReader.current is not None:
        ProcessReader.current.tell(())


def before_exec() -> None:
    """What this process passes on when it begins again: the kernel's log, and the lines to its reader."""
    lines = {DAC_READ_SEARCH: ClosedReader.current, SYS_PTRACE: ProcessReader.current}
    handed = {right: line.hand_over() for right, line in lines.items() if line is not None}
    if handed:
        os.environ[VARIABLE] = " ".join(f"{right}:{descriptor}" for right, descriptor in handed.items())
    if os.geteuid() != 0:
        with contextlib.suppress(OSError):
            capabilities.pass_on({SYSLOG} if handed else {SYSLOG, *_RIGHTS})


def _start_reader(rights: list[int]) -> "dict[int, socket.socket]":
    """A program of its own with these rights, and a line for each; none: there is no room, and the agent keeps them."""
    if not rights:
        return {}
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in rights]
    # Without site: it needs the standard library and this package, and shall load nothing that somebody has installed.
    command = [sys.executable, "-I", "-S", "-c", COMMAND, str(Path(gpuwatch.__file__).parent.parent)]
    command += map(str, rights)
    try:
        pid = os.fork()
    except OSError:
        for each in pairs:
            each[0].close()
            each[1].close()
        return {}
    if pid == 0:
        try:
            _take_lines([its.fileno() for _, its in pairs])
            capabilities.clear_ambient()
            capabilities.pass_on(rights)
            os.execv(command[0], command)  # noqa: S606  ours, without a shell
        finally:
            os._exit(_FAILED)
    for _, its in pairs:
        its.close()
    return {right: ours for right, (ours, _) in zip(rights, pairs, strict=True)}


def _take_lines(descriptors: list[int]) -> None:
    """Give these the numbers that the reader expects, whatever numbers they have."""
    beyond = [fcntl.fcntl(each, fcntl.F_DUPFD, LINE + len(descriptors)) for each in descriptors]
    for at, each in enumerate(beyond):
        os.dup2(each, LINE + at)
        os.close(each)
