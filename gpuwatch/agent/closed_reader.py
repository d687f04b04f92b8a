"""The process that opens closed files for the agent, which has no right to do so itself.

1. The agent forks it before it has a thread, reads a setting or hears the network, and then gives its own right up. It
   answers one question: open a path of the list (`closed_paths.py`), and hand the descriptor over.
2. It forks again for the work, at the first question, and whenever what worked has ended: the one that waits does
   nothing else. Both end with the agent.
3. Without an answer the agent knows nothing: what it would have read is doubt.
"""

import contextlib
import errno
import gc
import os
import select
import signal
import socket
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import ClassVar, NoReturn

import msgspec

from gpuwatch.agent import capabilities
from gpuwatch.agent.capabilities import DAC_READ_SEARCH, SYSLOG
from gpuwatch.agent.closed_paths import open_closed

VARIABLE = "GPUWATCH_READER_FD"  # its line, for the agent that a reload begins under the same pid
_COMM = b"gpuwatch-reader"
_LONGEST_BYTES = 1 << 16
_OPENS_SECONDS = 4  # then the one that works ends: a home on a dead server must not keep others from being read
_ANSWERS_SECONDS = 6.0
_RESTS_SECONDS = 1.0
_AT_END = 0
_LINKS = frozenset({errno.ELOOP, errno.EXDEV})


class ClosedReader:
    """The agent's side: any thread may ask, one at a time."""

    current: ClassVar["ClosedReader | None"] = None  # this process's, if it has one

    def __init__(self, line: socket.socket) -> None:
        """`line` leads to the reader."""
        self._line = line
        self._lock = threading.Lock()
        self._asked = 0

    def tell(self, folders: Sequence[str]) -> None:
        """Send it a word that has no answer."""
        with contextlib.suppress(OSError), self._lock:
            self._line.send(msgspec.json.encode(folders))

    def open(self, path: str, kind: str) -> int:
        """A descriptor from the reader.

        Raises:
            OSError: it refuses that, cannot open it, or does not answer.

        """
        with self._lock:
            self._asked += 1
            try:
                self._line.settimeout(_ANSWERS_SECONDS)
                self._line.send(msgspec.json.encode([self._asked, path, kind]))
                return self._answer(path)
            except (TimeoutError, ConnectionError, ValueError):
                raise OSError(errno.EIO, "the agent's reader of closed files does not answer", path) from None

    def hand_over(self) -> None:
        """Keep the line open for the program that this process becomes, which finds it by its variable."""
        os.set_inheritable(self._line.fileno(), True)  # noqa: FBT003  the standard library's way
        os.environ[VARIABLE] = str(self._line.fileno())

    def _answer(self, path: str) -> int:
        while True:
            data, descriptors, _, _ = socket.recv_fds(self._line, _LONGEST_BYTES, 1)
            if not data:
                raise ConnectionResetError
            number, failed = msgspec.json.decode(data, type=tuple[int, int])
            if number == self._asked:
                if descriptors:
                    return descriptors[0]
                failed = errno.EACCES if failed in _LINKS else failed  # as good as closed
                raise OSError(failed, os.strerror(failed), path)
            for each in descriptors:  # of a question that nobody waits for any more
                os.close(each)


def begin() -> bool:
    """Fork the reader, or take it over: not without the right, and not for root, who reads everything.

    No thread may run yet. What this process starts afterwards has no right at all, and it itself none but to read the
    kernel's log. True: it must first become another program (`before_exec`), for the unit filters the call that gives a
    right up.
    """
    handed = os.environ.pop(VARIABLE, None)
    reader = None
    if handed is not None:
        os.set_inheritable(int(handed), False)  # noqa: FBT003  the standard library's way
        reader = ClosedReader(socket.socket(fileno=int(handed)))
    elif os.geteuid() != 0 and DAC_READ_SEARCH in capabilities.capability_set():
        reader = _fork()
    filtered = False
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
        ClosedReader.current.tell(sorted(folders))


def before_exec() -> None:
    """What this process passes on when it begins again: the kernel's log, and the line to its reader."""
    if ClosedReader.current is not None:
        ClosedReader.current.hand_over()
    if os.geteuid() != 0:
        with contextlib.suppress(OSError):
            capabilities.pass_on({SYSLOG} if ClosedReader.current is not None else {SYSLOG, DAC_READ_SEARCH})


def _fork() -> ClosedReader | None:
    """Fork it; None: there is no room for another process, and the agent keeps its right."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gc.collect()
    gc.freeze()  # what is there now stays, here and there: no collection writes into memory that both share
    try:
        pid = os.fork()
    except OSError:
        ours.close()
        its.close()
        return None
    if pid == 0:
        ours.close()
        _keep_reader(its)
    its.close()
    return ClosedReader(ours)


def _keep_reader(line: socket.socket) -> NoReturn:
    """In the reader: hear what it may read, then fork for each piece of work, until the agent has gone."""
    try:
        os.setsid()
        gc.disable()
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_bytes(_COMM)
        with contextlib.suppress(OSError):
            capabilities.clear_ambient()
            capabilities.keep_only({DAC_READ_SEARCH})
        first = line.recv(_LONGEST_BYTES)
        folders = msgspec.json.decode(first, type=list[str]) if first else []
        while first:
            select.select([line], [], [])
            pid = os.fork()
            if pid == 0:
                _work(line, folders)
            if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == _AT_END:
                break
            select.select([], [], [], _RESTS_SECONDS)
    finally:
        os._exit(0)


def _work(line: socket.socket, folders: Sequence[str]) -> NoReturn:
    """Answer until the agent has gone; whatever goes wrong ends this process alone."""
    status = 1
    with contextlib.suppress(OSError):
        capabilities.refuse_network()
    try:
        while data := line.recv(_LONGEST_BYTES):
            question = msgspec.json.decode(data)
            if len(question) == 3 and isinstance(question[0], int):  # noqa: PLR2004  a later word on folders is none
                _answer(line, question, folders)
        status = _AT_END
    finally:
        os._exit(status)


def _answer(line: socket.socket, question: tuple[int, str, str], folders: Sequence[str]) -> None:
    number, path, kind = question
    signal.alarm(_OPENS_SECONDS)
    try:
        opened = open_closed(path, kind, folders)
    except (OSError, KeyError) as error:
        failed = error.errno if isinstance(error, OSError) else errno.EINVAL
        line.send(msgspec.json.encode([number, failed or errno.EIO]))
        return
    finally:
        signal.alarm(0)
    try:
        socket.send_fds(line, [msgspec.json.encode([number, 0])], [opened])
    finally:
        os.close(opened)
