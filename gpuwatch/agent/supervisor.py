"""Keeps one probe running and feeds what it says to the core. Whatever the probe does, this loop goes on.

A driver call that hangs cannot be interrupted, only its process can be left behind. So each line has a deadline; a
probe that misses it is killed, and abandoned if even that does not end it (it sleeps in the kernel). The next one skips
the GPU that hung, until its time to be tried again.
"""

import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

from gpuwatch.agent.core import AgentCore, Interruption
from gpuwatch.agent.knobs import AgentKnobs
from gpuwatch.agent.probe import NEEDS_FRESH_PROCESS
from gpuwatch.clock import Clock
from gpuwatch.devices.protocol import End, Message, Reading, Unavailable, decode
from gpuwatch.model.knobs import format_duration

_LOG = logging.getLogger(__name__)

_LONGEST_LINE_BYTES = 1 << 20
_TERMINATE_SECONDS = 0.5  # a probe that is only busy ends by itself: SIGKILL inside a driver call can wedge the GPU
_KILL_SECONDS = 0.5
_RELEASE_SECONDS = 2 * (_TERMINATE_SECONDS + _KILL_SECONDS) + 1.0
_MOST_STUCK = 3  # abandoned probes; beyond, a new one waits until one of them ends
_GOOD_CYCLES = 5  # so many make a probe a good one: the next failure is a first one again
_LONGEST_RETRY_DOUBLINGS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ending:
    """Why a probe is to be replaced."""

    why: Interruption
    detail: str


@dataclass(slots=True, kw_only=True)
class _Hung:
    """A GPU that hung a probe."""

    times: int
    retry_at: float


def probe_command(knobs: AgentKnobs) -> tuple[str, ...]:
    """How the probe of these settings is started."""
    command = [sys.executable, "-P", "-m", "gpuwatch", "probe"]
    command += ["--source", knobs.source, "--interval", str(knobs.interval), "--seed", str(knobs.seed)]
    for flag, value in (("--script", knobs.script), ("--capture", knobs.capture)):
        if value is not None:
            command += [flag, value]
    return tuple(command)


class ProbeSupervisor:
    """One node's probe, watched by one thread."""

    def __init__(self, core: AgentCore, knobs: AgentKnobs, clock: Clock, command: Sequence[str] = ()) -> None:
        """`command` replaces the probe of the settings; `--skip UUID` is appended for each GPU to leave alone."""
        self._core = core
        self._knobs = knobs
        self._clock = clock
        self._command = tuple(command) or probe_command(knobs)
        self._stopping = threading.Event()
        self._released: str | None = None
        self._resting = False  # released, and the loop has noticed
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self._child: _Child | None = None
        self._stuck: list[_Child] = []
        self._hung: dict[str, _Hung] = {}
        self._failures = 0

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the probe and the loop; at most about a second."""
        self._stopping.set()
        self._call()
        self._thread.join(_TERMINATE_SECONDS + _KILL_SECONDS + 0.5)

    @property
    def alive(self) -> bool:
        """Whether the loop still runs."""
        return self._thread.is_alive()

    @property
    def released(self) -> str | None:
        """By whom the GPUs were released and since when, in words; None while they are read."""
        return self._released

    def release(self, words: str) -> tuple[int, ...]:
        """End the probe and start none until `acquire`; the result are the pids of probes that do not let go."""
        with self._changed:
            self._released = self._released or words
        self._call()
        with self._changed:
            self._changed.wait_for(lambda: self._resting, _RELEASE_SECONDS)
            child = self._child
        held = [*self._stuck, *([] if child is None else [child])]
        return tuple(each.process.pid for each in held if each.process.poll() is None)

    def acquire(self) -> None:
        """Start probes again, of all GPUs."""
        with self._changed:
            self._released = None
            self._changed.notify_all()

    @property
    def _called(self) -> bool:
        """Whether the probe at work is to end now."""
        return self._stopping.is_set() or self._released is not None

    def _call(self) -> None:
        """Wake the loop, whatever it waits for."""
        with self._changed:
            self._changed.notify_all()
        child = self._child
        if child is not None:
            child.lines.put(None)

    def _wait(self, seconds: float) -> None:
        """Let that time pass, unless the loop is called."""
        with self._changed:
            self._changed.wait_for(lambda: self._called, seconds)

    def _rest(self) -> None:
        """Say that the GPUs are released, again and again, until they are acquired: so the verdict is fresh."""
        with self._changed:
            self._resting = True
            self._changed.notify_all()
            while self._released is not None and not self._stopping.is_set():
                self._core.withhold(self._released)
                self._changed.wait(self._knobs.interval)
            self._resting = False
        self._hung.clear()  # a reset may have mended them
        self._failures = 0

    def _run(self) -> None:
        """Replace probes for ever."""
        while not self._stopping.is_set():
            if self._released is not None:
                self._rest()
                continue
            ending = self._one_probe()
            if self._called:
                continue
            self._core.interrupt(ending.why, ending.detail)
            failed = ending.why is not Interruption.RENEW
            self._failures = self._failures + 1 if failed else self._failures
            doublings = max(0, min(self._failures - 1, 30))
            delay = min(self._knobs.restart_max, self._knobs.restart_min * 2**doublings) if failed else 0.0
            level = logging.WARNING if failed else logging.INFO
            _LOG.log(level, "probe replaced in %s (%s): %s", format_duration(delay), ending.why.value, ending.detail)
            self._wait(delay)
            self._await_stuck()

    def _one_probe(self) -> _Ending:
        """Start a probe and listen to it until it must be replaced."""
        now = self._clock.monotonic()
        skipped = [uuid for uuid, hung in self._hung.items() if now < hung.retry_at]
        command = [*self._command, *(part for uuid in skipped for part in ("--skip", uuid))]
        try:
            child = _Child(command)
        except OSError as error:
            return _Ending(why=Interruption.EXIT, detail=f"it could not be started: {error}")
        self._child = child
        if self._called:
            child.lines.put(None)
        try:
            return self._listen(child, min((self._hung[uuid].retry_at for uuid in skipped), default=None))
        finally:
            self._child = None
            if not child.end():
                self._stuck.append(child)
                _LOG.error("probe %d does not die, it sleeps in the kernel; it is left behind", child.process.pid)

    def _listen(self, child: "_Child", retry_at: float | None) -> _Ending:
        """Feed the core line by line; the result is why there will be no more."""
        allowed, doing, good_cycles = self._knobs.start_deadline, "say its first word", 0
        while True:
            try:
                line = child.lines.get(timeout=allowed)
            except queue.Empty:
                return self._hang(allowed, doing)
            if self._called:
                return _Ending(why=Interruption.EXIT, detail="it is no longer wanted")
            if line is None:
                return child.farewell()
            try:
                message = decode(line)
                self._core.ingest(message)
            except Exception as error:  # noqa: BLE001  nothing that a probe says may end this loop
                return _Ending(why=Interruption.GARBAGE, detail=f"it said {line[:80]!r}, which is no message: {error}")
            allowed, doing = self._after(message)
            if not isinstance(message, End):
                continue
            good_cycles += 1
            self._failures = self._failures if good_cycles < _GOOD_CYCLES else 0
            if retry_at is not None and self._clock.monotonic() >= retry_at:
                return _Ending(why=Interruption.RENEW, detail="a GPU that hung is tried again")

    def _after(self, message: Message) -> tuple[float, str]:
        """How long the next line may take, and what it should bring."""
        deadline = self._knobs.deadline
        match message:
            case Reading():
                self._hung.pop(message.reading.info.uuid, None)
            case End() | Unavailable():
                return self._knobs.interval + deadline, "list its GPUs"
        return deadline, "end its cycle"

    def _hang(self, allowed: float, doing: str) -> _Ending:
        """Note which GPU it was, so that the next probe serves the others."""
        gpu = self._core.awaited
        if gpu is None:
            return _Ending(why=Interruption.HANG, detail=f"it did not {doing} within {format_duration(allowed)}")
        hung = self._hung.setdefault(gpu.uuid, _Hung(times=0, retry_at=0.0))
        wait = self._knobs.hung_retry * 2 ** min(hung.times, _LONGEST_RETRY_DOUBLINGS)
        hung.times, hung.retry_at = hung.times + 1, self._clock.monotonic() + wait
        return _Ending(why=Interruption.HANG, detail=f"GPU {gpu.index} was not read within {format_duration(allowed)}")

    def _await_stuck(self) -> None:
        """Reap abandoned probes that have ended; wait while there are too many."""
        while not self._called:
            self._stuck = [child for child in self._stuck if child.process.poll() is None]
            if len(self._stuck) < _MOST_STUCK:
                return
            self._wait(self._knobs.restart_max)


class _Child:
    """A probe process and the threads that drain its two pipes."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it in a session of its own, so that it can be killed with all that it started."""
        self.process = subprocess.Popen(  # noqa: S603  our own command line
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._last_words = ""
        self._drains = [
            self._drain("stdout", self.process.stdout, self.lines.put, at_end=lambda: self.lines.put(None)),
            self._drain("stderr", self.process.stderr, self._log, at_end=lambda: None),
        ]

    def farewell(self) -> _Ending:
        """It closed its output: how it ended."""
        try:
            status: int | None = self.process.wait(_TERMINATE_SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        self._drains[1].join(_TERMINATE_SECONDS)
        if status == NEEDS_FRESH_PROCESS:
            return _Ending(why=Interruption.RENEW, detail="only a fresh process can reach the driver")
        how = "it closed its output"
        if status is not None:
            how = f"it ended with status {status}" if status >= 0 else f"it was killed by {_signal_name(-status)}"
        said = f": {self._last_words}" if self._last_words else ""
        return _Ending(why=Interruption.EXIT, detail=how + said)

    def end(self) -> bool:
        """Terminate its process group, then kill it; False if even that does not end it."""
        for number, patience in ((signal.SIGTERM, _TERMINATE_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
            if self.process.poll() is not None:
                return True
            os.killpg(self.process.pid, number)
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                continue
        return self.process.poll() is not None

    def _log(self, line: bytes) -> None:
        """What it says to people goes to the agent's log."""
        self._last_words = line.decode(errors="replace").strip()[:500]
        _LOG.warning("probe: %s", self._last_words)

    @staticmethod
    def _drain(
        name: str, pipe: IO[bytes] | None, take: Callable[[bytes], None], at_end: Callable[[], None]
    ) -> threading.Thread:
        """Read a pipe to its end in a thread; an endless line comes in pieces, which are no messages."""

        def drain() -> None:
            if pipe is not None:
                with pipe:
                    for line in iter(lambda: pipe.readline(_LONGEST_LINE_BYTES), b""):
                        take(line)
            at_end()

        thread = threading.Thread(target=drain, name=f"probe-{name}", daemon=True)
        thread.start()
        return thread


def _signal_name(number: int) -> str:
    """SIGKILL rather than 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
