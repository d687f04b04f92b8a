"""The agent's side of its reader, a process that opens closed files for it: the agent has no right to do so itself.

It starts the reader before it has a thread, reads a setting or hears the network, and then gives its own right up.
Without an answer the agent knows nothing: what it would have read is doubt.
"""

import contextlib
import errno
import os
import socket
import sys
import threading
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

import gpuwatch
from gpuwatch.agent import capabilities
from gpuwatch.agent.capabilities import DAC_READ_SEARCH, SYSLOG
from gpuwatch.agent.closed_server import ALSO, COMMAND

VARIABLE = "GPUWATCH_READER_FD"  # its line, for the agent that begins again under the same pid
_LONGEST_BYTES = 1 << 10  # of an answer
_ANSWERS_SECONDS = 6.0
_LINE = 3
_LINKS = frozenset({errno.ELOOP, errno.EXDEV})
_FAILED = 1


class ClosedReader:
    """The line to the reader: any thread may ask, one at a time."""

    current: ClassVar["ClosedReader | None"] = None  # this process's, if it has one

    def __init__(self, line: socket.socket) -> None:
        """`line` leads to the reader."""
        self._line = line
        self._lock = threading.Lock()
        self._asked = 0

    def tell(self, folders: Collection[str]) -> None:
        """Send it a word that has no answer: what else it may read."""
        with contextlib.suppress(OSError), self._lock:
            self._line.send(b"\0".join([ALSO, *map(os.fsencode, sorted(folders))]))

    def open(self, path: str, kind: str) -> int:
        """A descriptor from the reader.

        Raises:
            OSError: it refuses that, cannot open it, or does not answer.

        """
        with self._lock:
            self._asked += 1
            try:
                self._line.settimeout(_ANSWERS_SECONDS)
                self._line.send(b"\0".join([b"%d" % self._asked, kind.encode(), os.fsencode(path)]))
                return self._hear_answer(path)
            except (TimeoutError, ConnectionError, ValueError):
                raise OSError(errno.EIO, "the agent's reader of closed files does not answer", path) from None

    def hand_over(self) -> None:
        """Keep the line open for the program that this process becomes, which finds it by its variable."""
        os.set_inheritable(self._line.fileno(), True)  # noqa: FBT003  the standard library's way
        os.environ[VARIABLE] = str(self._line.fileno())

    def _hear_answer(self, path: str) -> int:
        while True:
            data, descriptors, _, _ = socket.recv_fds(self._line, _LONGEST_BYTES, 1)
            if not data:
                raise ConnectionResetError
            number, failed = map(int, data.split(b"\0"))
            if number == self._asked:
                if descriptors:
                    return descriptors[0]
                failed = errno.EACCES if failed in _LINKS else failed  # as good as closed
                raise OSError(failed, os.strerror(failed), path)
            for each in descriptors:  # an answer that came after its time
                os.close(each)


def begin() -> bool:
    """Start the reader, or take it over: not without the right, and not for root, who reads everything.

    No thread may run yet. What this process starts afterwards has no right at all, and it itself none but to read the
    kernel's log. True: it must first become another program (`before_exec`), for the unit filters the call that gives a
    right up.
    """
    handed, reader, filtered = os.environ.pop(VARIABLE, None), None, False
    if handed is not None:
        os.set_inheritable(int(handed), False)  # noqa: FBT003  the standard library's way
        reader = ClosedReader(socket.socket(fileno=int(handed)))
    elif os.geteuid() != 0 and DAC_READ_SEARCH in capabilities.capability_set():
        reader = _start_reader()
    if os.geteuid() != 0 and capabilities.capability_set():
        with contextlib.suppress(OSError):
            capabilities.clear_ambient()
        if reader is not None:
            try:
                capabilities.keep_only({SYSLOG})
            except OSError:
                filtered = handed is None
    ClosedReader.current = reader
    return filtered


def allow(folders: Collection[str]) -> None:
    """Name what else the reader may read; it hears the first such word alone, which is the agent's at its start."""
    if ClosedReader.current is not None:
        ClosedReader.current.tell(folders)


def before_exec() -> None:
    """What this process passes on when it begins again: the kernel's log, and the line to its reader."""
    if ClosedReader.current is not None:
        ClosedReader.current.hand_over()
    if os.geteuid() != 0:
        with contextlib.suppress(OSError):
            capabilities.pass_on({SYSLOG} if ClosedReader.current is not None else {SYSLOG, DAC_READ_SEARCH})


def _start_reader() -> ClosedReader | None:
    """A program of its own with the right; None: there is no room for a process, and the agent keeps its right."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Without site: it needs the standard library and this package, and shall load nothing that somebody has installed.
    command = [sys.executable, "-I", "-S", "-c", COMMAND, str(Path(gpuwatch.__file__).parent.parent)]
    try:
        pid = os.fork()
    except OSError:
        ours.close()
        its.close()
        return None
    if pid == 0:
        try:
            os.dup2(its.fileno(), _LINE)
            os.set_inheritable(_LINE, True)  # noqa: FBT003  the standard library's way; it may have been that one
            capabilities.clear_ambient()
            capabilities.pass_on({DAC_READ_SEARCH})
            os.execv(command[0], command)  # noqa: S606  ours, without a shell
        finally:
            os._exit(_FAILED)
    its.close()
    return ClosedReader(ours)
