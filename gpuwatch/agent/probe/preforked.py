"""The agent's first probe: forked before the settings are known, it loads what only a probe needs, and waits for them.

It shares with the agent what neither of them changes, and saves the start of an interpreter. The agent forks it before
it has any thread, so nobody who is missing in the child can hold a lock there, and before it loads what only itself
needs. Every later probe is a program of its own. The agent never loads the driver's library, so that the child maps the
one that is there when it starts (ADR 2).
"""

import contextlib
import fcntl
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NoReturn

import msgspec

_COMM = b"gpuwatch-probe"  # what ps and top call it; at most 15 bytes
_FIRST_FREE = 3
_FAILED = 1
_LOOK_SECONDS = 0.02
_PATIENCE_SECONDS = 1.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # which the agent, or who has started it, may have changed

Run = Callable[[Sequence[str]], int]


class PreforkedProbe:
    """A child that waits for its arguments, then runs; used as a `subprocess.Popen` with three pipes is."""

    def __init__(self, run: Run, load: Callable[[], None] = lambda: None) -> None:
        """Fork: in a session of its own, the child runs `run` with what `begin` says; its result is the exit status.

        Before that it runs `load`, while the settings are judged.

        Raises:
            OSError: there is no room for another process, or no descriptor.
            RuntimeError: this process has other threads.

        """
        if threading.active_count() > 1:
            raise RuntimeError("a process with threads cannot be forked safely")
        gc.collect()
        gc.freeze()  # what is there now stays: no collection looks at it, here or there
        self.returncode: int | None = None
        self._reaping = threading.Lock()
        with contextlib.ExitStack() as opened:
            pipes = [os.pipe() for _ in range(3)]
            for end in (end for pipe in pipes for end in pipe):
                opened.callback(os.close, end)
            (its_stdin, stdin), (stdout, its_stdout), (stderr, its_stderr) = pipes
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()  # else the child writes it once more
            self.pid = os.fork()
            if self.pid == 0:
                _live(run, load, (its_stdin, its_stdout, its_stderr))
            opened.pop_all()
        for end in (its_stdin, its_stdout, its_stderr):
            os.close(end)
        self.stdin: IO[bytes] | None = os.fdopen(stdin, "wb")
        self.stdout: IO[bytes] | None = os.fdopen(stdout, "rb")
        self.stderr: IO[bytes] | None = os.fdopen(stderr, "rb")

    def begin(self, arguments: Sequence[str]) -> None:
        """Let it run with these, as a command line has them. One that is gone by now says so by its exit status."""
        with contextlib.suppress(OSError):
            if self.stdin is not None:
                self.stdin.write(msgspec.json.encode(arguments) + b"\n")
                self.stdin.flush()

    def poll(self) -> int | None:
        """Its exit status, negative for the signal that killed it; None: it has not ended."""
        with self._reaping:
            if self.returncode is None:
                try:
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:  # somebody else has reaped it, and knows how it ended
                    pid, status = self.pid, 0
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not, within that many seconds.

        """
        waited, never = 0.0, threading.Event()
        while (status := self.poll()) is None:
            if timeout is not None and waited >= timeout:
                raise subprocess.TimeoutExpired(_COMM.decode(), timeout)
            never.wait(_LOOK_SECONDS)
            waited += _LOOK_SECONDS
        return status

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def dismiss(self) -> None:
        """End it if it still runs, whatever it does: nobody listens to it."""
        for stream in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(_PATIENCE_SECONDS)


def _live(run: Run, load: Callable[[], None], streams: tuple[int, int, int]) -> NoReturn:
    """In the child: keep nothing of the agent but its memory, run, and end without the agent's own farewells."""
    status = _FAILED
    try:
        os.setsid()
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        above = [fcntl.fcntl(stream, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for stream in streams]
        for place, stream in enumerate(above):
            os.dup2(stream, place)
        os.closerange(_FIRST_FREE, os.sysconf("SC_OPEN_MAX"))
        sys.stdout = open(1, "w", closefd=False, encoding="utf-8")  # noqa: SIM115  as long as it lives
        sys.stderr = open(2, "w", closefd=False, encoding="utf-8", buffering=1)  # noqa: SIM115  as above
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_bytes(_COMM)
        load()
        gc.collect()
        gc.freeze()
        said = _line()
        status = 0 if not said else run(msgspec.json.decode(said, type=list[str]))
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else _FAILED
    except BaseException:  # noqa: BLE001  whatever it was, this is not the agent, and must not go on as one
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _line() -> bytes:
    """The first line of standard input, and nothing of what follows; empty: the agent ended before it wrote it."""
    said = bytearray()
    while not said.endswith(b"\n"):
        more = os.read(0, 1)
        if not more:
            return b""
        said += more
    return bytes(said)
