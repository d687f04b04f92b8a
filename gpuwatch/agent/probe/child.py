"""One probe process: its lines, its last message, and how it is ended or left behind.

A process that sleeps in the kernel outlives its SIGKILL. How many probes are abandoned is bounded. A GPU that hung is
tried again only while fewer than two are, and a hang with no GPU to blame has no successor while three are. A hang with
a GPU to blame always has one, for the sake of the others; since that GPU is left out from then on, there are never more
abandoned probes than GPUs and two.
"""

import contextlib
import fcntl
import logging
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, ClassVar

from gpuwatch.agent.probe.main import NEEDS_FRESH_PROCESS
from gpuwatch.agent.probe.preforked import PreforkedProbe
from gpuwatch.agent.state import Interruption

_LOG = logging.getLogger(__name__)

TERMINATE_SECONDS = 0.5  # a probe that is only busy ends by itself: SIGKILL inside a driver call can wedge the GPU
KILL_SECONDS = 0.5
_LONGEST_LINE_BYTES = 1 << 20
# What the agent has not taken yet is some five cycles of one GPU, less than one of eight. With more, an agent that is
# always a little too slow would be so far behind that each cycle is stale before it is shown.
_MOST_LINES = 8
_PIPE_BYTES = 4096  # the kernel makes it a page
_BEHIND_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeExit:
    """Why a probe must be replaced."""

    why: Interruption
    detail: str
    culprit: bool = False  # one GPU is to blame, and will be left out from now on


class ProbeChild:
    """A probe process and the threads that drain its two pipes."""

    _running: ClassVar[dict[tuple[str, ...], PreforkedProbe]] = {}

    def __init__(self, command: Sequence[str]) -> None:
        """Start it in a session of its own, so that it can be killed with all it started; or take a running one."""
        running = self._running.pop(tuple(command), None)
        while self._running:
            self._running.popitem()[1].dismiss()  # nobody will ask for it any more
        self.process = running or subprocess.Popen(  # noqa: S603  our own command line
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        if self.process.stdin is not None:
            os.set_blocking(self.process.stdin.fileno(), False)  # a probe that does not read must not hold up the agent
        if self.process.stdout is not None:
            with contextlib.suppress(OSError):  # it has written more by now, or the kernel has no such pipes
                fcntl.fcntl(self.process.stdout.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._last_message = ""
        self._over = threading.Event()  # nobody takes its lines any more
        self._drains = [
            self._drain("stdout", self.process.stdout, self._keep, at_end=lambda: self.lines.put(None)),
            self._drain("stderr", self.process.stderr, self._log, at_end=lambda: None),
        ]

    @classmethod
    def runs(cls, command: Sequence[str], process: PreforkedProbe) -> None:
        """Let the next child take this process, if it is to have the same command line; else the process is ended."""
        cls._running[tuple(command)] = process

    def ask(self) -> None:
        """Ask it to begin a cycle as soon as it can; a probe that does not read, or is gone, misses this."""
        with contextlib.suppress(OSError, ValueError):
            if self.process.stdin is not None:
                self.process.stdin.write(b"\n")
                self.process.stdin.flush()

    def farewell(self) -> ProbeExit:
        """How it ended, after it closed its output."""
        try:
            status: int | None = self.process.wait(TERMINATE_SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        self._drains[1].join(TERMINATE_SECONDS)
        if status == NEEDS_FRESH_PROCESS:
            return ProbeExit(why=Interruption.RENEW, detail="only a fresh process can reach the driver")
        how = "it closed its output"
        if status is not None:
            how = f"it ended with status {status}" if status >= 0 else f"it was killed by {_signal_name(-status)}"
        reason = f": {self._last_message}" if self._last_message else ""
        return ProbeExit(why=Interruption.EXIT, detail=how + reason)

    def end(self) -> bool:
        """Terminate its process group, then kill it; False if even that does not end it."""
        self._over.set()
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        for number, patience in ((signal.SIGTERM, TERMINATE_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
            if self.process.poll() is not None:
                return True
            _signal_group(self.process.pid, number)
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                continue
        return self.process.poll() is not None

    def _keep(self, line: bytes) -> None:
        """Keep a line for the agent; while that is far behind, the pipe fills, and the probe waits."""
        while self.lines.qsize() >= _MOST_LINES and not self._over.wait(_BEHIND_SECONDS):
            pass
        self.lines.put(line)

    def _log(self, line: bytes) -> None:
        """Write a line of its standard error to the agent's log."""
        self._last_message = line.decode(errors="replace").strip()[:500]
        _LOG.warning("probe: %s", self._last_message)

    @staticmethod
    def _drain(
        name: str, pipe: IO[bytes] | None, take: Callable[[bytes], None], at_end: Callable[[], None]
    ) -> threading.Thread:
        """Read a pipe to its end in a thread; an endless line comes in pieces, which are not messages."""

        def drain() -> None:
            if pipe is not None:
                with pipe:
                    for line in iter(lambda: pipe.readline(_LONGEST_LINE_BYTES), b""):
                        take(line)
            at_end()

        thread = threading.Thread(target=drain, name=f"probe-{name}", daemon=True)
        thread.start()
        return thread


def _signal_group(pid: int, number: int) -> None:
    """Signal a process and its group; a forked one that has not begun its own group yet is alone."""
    for send in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            send(pid, number)
            return


def _signal_name(number: int) -> str:
    """The name of a signal, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class EndingProbes:
    """Ends each probe in a thread of its own, so that the supervisor never waits for it."""

    def __init__(self) -> None:
        """Begin without a probe that is to end."""
        self._ending: list[tuple[ProbeChild, threading.Thread]] = []
        self.stuck: list[ProbeChild] = []

    def end(self, child: ProbeChild) -> None:
        """Begin to end a probe; returns at once."""
        thread = threading.Thread(target=child.end, name="probe-end", daemon=True)
        self._ending.append((child, thread))
        thread.start()

    def reap(self) -> None:
        """Forget those that have ended; remember those that could not be ended."""
        for child, thread in self._ending:
            if not thread.is_alive() and child.process.poll() is None:
                self.stuck.append(child)
                _LOG.error(
                    "probe %d cannot be killed, because it sleeps in the kernel; it is left behind", child.process.pid
                )
        self._ending = [(child, thread) for child, thread in self._ending if thread.is_alive()]
        self.stuck = [child for child in self.stuck if child.process.poll() is None]

    def settle(self) -> None:
        """Wait until each has ended or proved that it cannot be ended: a second at most."""
        for _, thread in self._ending:
            thread.join(TERMINATE_SECONDS + KILL_SECONDS + 0.5)
        self.reap()

    @property
    def alive(self) -> tuple[ProbeChild, ...]:
        """All that still run."""
        there = [*self.stuck, *(child for child, _ in self._ending)]
        return tuple(child for child in there if child.process.poll() is None)
