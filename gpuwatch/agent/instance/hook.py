"""The administrator's program that a notice starts: once, in a process group of its own, killed at the deadline."""

import contextlib
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Iterable, Mapping
from datetime import timedelta

from gpuwatch.agent.environment import inherited
from gpuwatch.agent.instance.knobs import InstanceKnobs
from gpuwatch.agent.instance.memory import Announced, NoticeMemory
from gpuwatch.clock import Clock
from gpuwatch.model.knobs import format_duration

_LOG = logging.getLogger(__name__)

_NOT_STARTED = 127  # as a shell has it
_STDERR = 2


class NoticeHook:
    """Starts the program and waits for it in a thread, so that looking for notices goes on."""

    def __init__(self, knobs: InstanceKnobs, memory: NoticeMemory, clock: Clock) -> None:
        """Without a program it does nothing."""
        self._command = knobs.on_interruption
        self._lead = timedelta(seconds=knobs.on_interruption_lead)
        self._memory = memory
        self._clock = clock
        self._statuses: dict[str, int] = {}

    @property
    def statuses(self) -> Mapping[str, int]:
        """How the last run for each kind of notice ended: its exit status, or the signal's number below zero."""
        return dict(self._statuses)

    def consider(self, notices: Iterable[Announced]) -> None:
        """Start the program for each notice that is due and had no run; returns at once."""
        now = self._clock.now()
        for notice in notices if self._command else ():
            left = self._lead if notice.deadline is None else notice.deadline - now
            if timedelta() < left <= self._lead and not self._memory.ran(notice.key):
                self._memory.note_run(notice.key)
                self._start(notice, left.total_seconds())

    def _start(self, notice: Announced, left_seconds: float) -> None:
        deadline = notice.deadline
        told = {
            "GPUWATCH_NOTICE_KIND": notice.kind.value,
            "GPUWATCH_NOTICE_ACTION": notice.action,
            "GPUWATCH_NOTICE_DEADLINE": "" if deadline is None else f"{deadline:%Y-%m-%dT%H:%M:%SZ}",
            "GPUWATCH_NOTICE_SECONDS_LEFT": "" if deadline is None else str(int(left_seconds)),
        }
        words = f"on_interruption for {notice.kind.value} ({notice.action})"
        try:
            process = subprocess.Popen(  # noqa: S603  the administrator's own command line
                self._command,
                env={**inherited(), **told},
                stdin=subprocess.DEVNULL,
                stdout=_STDERR,
                stderr=_STDERR,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._statuses[notice.kind.value] = _NOT_STARTED
            _LOG.error("%s could not be started: %s", words, error)
            return
        _LOG.warning("%s starts, with %s left", words, format_duration(left_seconds))
        ended = (notice.kind.value, words, process, left_seconds)
        threading.Thread(target=self._await, args=ended, name="on-interruption", daemon=True).start()

    def _await(self, kind: str, words: str, process: subprocess.Popen[bytes], left_seconds: float) -> None:
        """Note how it ends, at the deadline at the latest."""
        try:
            process.wait(left_seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):  # it may have become another user's
                os.killpg(process.pid, signal.SIGKILL)
            _LOG.error("%s was still running at its deadline and was killed", words)
        status = process.wait()
        self._statuses[kind] = status
        _LOG.log(logging.WARNING if status else logging.INFO, "%s ended with status %d", words, status)
