"""The administrator's program that a notice starts: one run at a time, in a process group of its own, with a deadline.

`hook_queue.py` decides which notice is next; this module has the processes.
"""

import contextlib
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gpuwatch.agent.command import inherited_environment
from gpuwatch.agent.metadata.hook_queue import Turns
from gpuwatch.agent.metadata.settings import MetadataSettings
from gpuwatch.agent.metadata.state_file import Announced, NoticeMemory
from gpuwatch.model.duration import format_duration
from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)

_NOT_STARTED = 127  # as a shell has it
_STDERR = 2
_LONGEST_WORD = 256  # bytes of what the program says
_DIES_SECONDS = 10.0  # a killed process ends at once, unless it sleeps in the kernel
_LOOK_SECONDS = 1.0  # between two checks whether a run must give way


class NoticeHook:
    """Starts the program and waits for it in a thread, so that looking for notices goes on."""

    def __init__(self, settings: MetadataSettings, memory: NoticeMemory, clock: Clock) -> None:
        """Prepare; without a program it does nothing."""
        self._command = settings.on_interruption
        self._memory = memory
        self._clock = clock
        self._turns = Turns(timedelta(seconds=settings.on_interruption_lead), lambda notice: memory.ran(notice.key))
        for of in memory.subjects_that_ran:
            self._turns.hold(of, clock.monotonic())
        self._lock = threading.Lock()  # for the queue and the statuses
        self._statuses: dict[str, int] = {}
        self._said = Path(settings.state).with_name("checkpoint")
        self.checkpoint_at = checkpoint_in(self._said, clock.now())

    @property
    def statuses(self) -> Mapping[str, int]:
        """How the last run for each kind of notice ended: its exit status, or the signal's number below zero."""
        with self._lock:
            return dict(self._statuses)

    def consider(self, notices: Iterable[Announced]) -> None:
        """Start the program for the notice that is next, if it is due; returns at once."""
        if self._command:
            with self._lock:
                self._turns.take_notices(notices, self._clock.now())
                self._advance()

    def _advance(self) -> None:
        """Start the next run, if one is due and none is running."""
        while (notice := self._turns.next(self._clock.now(), self._clock.monotonic())) is not None:
            left_seconds = self._turns.time_left(notice, self._clock.now()).total_seconds()
            self._memory.note_run(notice.key)
            self._turns.begin(notice, self._clock.now())
            if not self._start(notice, left_seconds):
                self._statuses[notice.kind.value] = _NOT_STARTED
                self._turns.end(self._clock.monotonic())

    def _start(self, notice: Announced, left_seconds: float) -> bool:
        """Start the program; returns whether that worked."""
        deadline = notice.deadline
        variables = {
            "GPUWATCH_NOTICE_KIND": notice.kind.value,
            "GPUWATCH_NOTICE_ACTION": notice.action,
            "GPUWATCH_NOTICE_DEADLINE": "" if deadline is None else f"{deadline:%Y-%m-%dT%H:%M:%SZ}",
            "GPUWATCH_NOTICE_SECONDS_LEFT": "" if deadline is None else str(int(left_seconds)),
            "GPUWATCH_NOTICE_CHECKPOINT_FILE": str(self._said),
        }
        with contextlib.suppress(OSError):  # what an earlier run said is no word of this one
            self._said.unlink()
        words = f"on_interruption for {notice.kind.value} ({notice.action})"
        try:
            process = subprocess.Popen(  # noqa: S603  the administrator's own command line
                self._command,
                env={**inherited_environment(), **variables},
                stdin=subprocess.DEVNULL,
                stdout=_STDERR,
                stderr=_STDERR,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            _LOG.error("%s could not be started: %s", words, error)
            return False
        _LOG.warning("%s starts, with %s left", words, format_duration(left_seconds))
        waited = threading.Thread(
            target=self._await,
            args=(notice.kind.value, words, process, left_seconds),
            name="on-interruption",
            daemon=True,
        )
        try:
            waited.start()
        except RuntimeError as error:  # its end would be missed, and the next run would never begin
            _kill(process)
            _LOG.error("%s was killed: %s", words, error)
            return False
        return True

    def _await(self, kind: str, words: str, process: subprocess.Popen[bytes], left_seconds: float) -> None:
        """Note how it ends, at the deadline at the latest, and start the run that waits for its end."""
        why = self._overdue(process, left_seconds)
        if why is not None:
            _kill(process)
            _LOG.error("%s was still running %s and was killed", words, why)
        try:
            status = process.wait(_DIES_SECONDS)
        except subprocess.TimeoutExpired:  # the next run must still start
            status = -signal.SIGKILL
            _LOG.error("%s cannot be killed, because it sleeps in the kernel; it is left behind", words)
        _LOG.log(logging.WARNING if status else logging.INFO, "%s ended with status %d", words, status)
        self.checkpoint_at = checkpoint_in(self._said, self._clock.now())
        with self._lock:
            self._statuses[kind] = status
            self._turns.end(self._clock.monotonic())
            self._advance()

    def _overdue(self, process: subprocess.Popen[bytes], left_seconds: float) -> str | None:
        """Wait for its end; returns why it must be killed, or None."""
        while left_seconds > 0:
            wait_seconds = min(_LOOK_SECONDS, left_seconds)
            try:
                process.wait(wait_seconds)
            except subprocess.TimeoutExpired:
                left_seconds -= wait_seconds
            else:
                return None
            with self._lock:
                if self._turns.must_end(self._clock.now()):
                    return "when a notice with a nearer deadline could wait no longer"
        return "at its deadline"


def checkpoint_in(path: Path, now: datetime) -> datetime | None:
    """When the work was saved last, as the program has written it: one line, `checkpoint=` and a time with its zone.

    None: it has written nothing that is such a time, or one that has not come yet.
    """
    try:
        with path.open("rb") as file:
            words = file.read(_LONGEST_WORD).decode("ascii").split()
        at = _moment(words[-1].removeprefix("checkpoint=")) if words else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, OverflowError) as error:
        _LOG.warning("%s is no word about a checkpoint (checkpoint=2026-01-05T00:02:00Z): %s", path, error)
        return None
    if at is None or at > now:
        return None
    return at


def _moment(text: str) -> datetime:
    """A time that names its zone, as aware UTC."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text!r} names no zone")
    return at.astimezone(UTC)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill its whole process group."""
    with contextlib.suppress(OSError):  # it may run as another user now
        os.killpg(process.pid, signal.SIGKILL)
