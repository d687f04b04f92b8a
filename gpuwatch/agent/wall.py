"""Notices on the terminals of this host: what will happen to the machine, and how to keep it. wall(1) writes them.

The text is composed here. A client gives a time, an action and a key, so its own text or escape sequences never reach
a terminal. Output changes a terminal's modification time, not its access time, so a notice does not count as activity.
"""

import logging
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec

from gpuwatch.agent.command import CommandError, run
from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.evidence.sessions import People
from gpuwatch.agent.evidence.settings import SessionSettings
from gpuwatch.agent.posted import PAUSE_SECONDS, Answer, RetryLaterError
from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)

PATH = "/v1/notice"

_WALL = ("wall",)  # of util-linux; it reads the text from standard input
_WALL_SECONDS = 2.0  # wall leaves a process behind for each terminal that takes no text; it is killed then
_REMINDERS = (300.0, 60.0)  # seconds before the stop at which the notice is repeated
_PAUSE = PAUSE_SECONDS  # between two texts of the same kind, from any client
_LOCK_SECONDS = 2.0  # to wait for the text that is being written
_LONGEST_WAIT = 5.0  # seconds for which the reminder thread sleeps
_HOUR = 3600.0
_STAYS = "gpuwatch: {} stays on; the notice of its stop is withdrawn."
_ACTIONS = {"stop": "be stopped", "terminate": "be terminated, for good"}


class NoticeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request: announce a stop, or withdraw the notice with that key."""

    key: Annotated[str, msgspec.Meta(max_length=1000)]
    stop_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    verb: Literal["stop", "terminate"] | None = None
    withdrawn: bool = False


class NoticeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: how many terminals wall(1) wrote to, which were left out and why, and what is uncertain.

    `repeated`: this notice was written before. Nothing was written now; the figures are of that time.
    """

    reached: int = 0
    refused: dict[str, str] = {}
    doubts: tuple[str, ...] = ()
    repeated: bool = False


@dataclass(slots=True, kw_only=True)
class _Notice:
    """The newest notice; `result` is that of the last text that reached a terminal, else of the last attempt.

    `ends_at` and `due` are times of the monotonic clock; the reminder that is due next is the last item.
    """

    key: str
    verb: str
    stop_at: datetime
    ends_at: float
    result: NoticeResult
    due: list[float]
    withdrawal: NoticeResult | None = None


class Terminals:
    """The terminals of this host. One text is written at a time; a thread writes the reminders."""

    def __init__(self, clock: Clock, roots: Roots, host: str, node: Callable[[], str]) -> None:
        """Prepare, without writing. `node` returns the id by which the controller knows this host."""
        self._clock = clock
        self._dev = roots.dev
        self._people = People(SessionSettings(), roots)
        self._host = _printable(host)
        self._node = node
        self._lock = threading.Condition(threading.Lock())
        self._notice: _Notice | None = None
        self._last: dict[str, float] = {}
        self._thread: threading.Thread | None = None

    def stop(self) -> None:
        """Write no more reminders. Returns soon, even while a text is being written."""
        if self._lock.acquire(timeout=_LOCK_SECONDS):
            self._notice = None
            self._lock.notify_all()
            self._lock.release()

    def announce(self, key: str, verb: str, stop_at: datetime) -> NoticeResult:
        """Write that the machine will stop, now and 5 minutes and 1 minute before; once for each key.

        Raises:
            RetryLaterError: another notice was written a minute ago, or is being written.

        """
        with self._lock_folder():
            known, now = self._notice, self._clock.monotonic()
            if known is not None and known.key == key and (known.withdrawal or known.result.reached):
                return msgspec.structs.replace(known.result, repeated=True)
            self._require_pause("notice", now)
            left = (stop_at - self._clock.now()).total_seconds()
            result = self._write("notice", self._notice_text(verb, stop_at, left))
            due = [now + after for after in reversed(reminders(left))]
            self._notice = _Notice(key=key, verb=verb, stop_at=stop_at, ends_at=now + left, result=result, due=due)
            self._start_reminding()
            return result

    def withdraw(self, key: str) -> NoticeResult:
        """Write that this notice no longer holds, if it reached a terminal. No reminder follows in any case.

        Raises:
            RetryLaterError: another withdrawal was written a minute ago, or something is being written.

        """
        with self._lock_folder():
            known = self._notice
            if known is None or known.key != key:
                return NoticeResult()
            if known.withdrawal is not None:
                return msgspec.structs.replace(known.withdrawal, repeated=True)
            known.due.clear()
            self._lock.notify_all()
            if not known.result.reached:
                known.withdrawal = NoticeResult()
                return known.withdrawal
            self._require_pause("withdrawal", self._clock.monotonic())
            known.withdrawal = self._write("withdrawal", (_STAYS.format(self._host),))
            return known.withdrawal

    def _notice_text(self, verb: str, stop_at: datetime, left_seconds: float) -> tuple[str, ...]:
        when = f"{stop_at:%Y-%m-%d %H:%M} UTC, {_in_duration(left_seconds)}"
        return (
            f"gpuwatch: {self._host} is to {_ACTIONS[verb]} at {when}.",
            "To keep it, on this machine:     gpuwatch snooze 4h",
            f"Why, where the controller runs:  gpuwatch explain {_printable(self._node())}",
        )

    def _remind(self) -> float | None:
        """Write the reminder that is due; returns the seconds until the next one, None without any. Needs the lock."""
        known, now = self._notice, self._clock.monotonic()
        if known is None:
            return None
        late = [at for at in known.due if at <= now]
        known.due = known.due[: len(known.due) - len(late)]
        if late and now < known.ends_at:
            result = self._write("reminder", self._notice_text(known.verb, known.stop_at, known.ends_at - now))
            known.result = result if result.reached else known.result
        return known.due[-1] - now if known.due else None

    @contextmanager
    def _lock_folder(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=_LOCK_SECONDS):
            raise RetryLaterError(HTTPStatus.SERVICE_UNAVAILABLE, "another notice is still being written")
        try:
            yield
        finally:
            self._lock.release()

    def _require_pause(self, kind: str, now: float) -> None:
        last = self._last.get(kind)
        if last is not None and now - last < _PAUSE:
            raise RetryLaterError(HTTPStatus.TOO_MANY_REQUESTS, f"another {kind} was written less than a minute ago")

    def _start_reminding(self) -> None:
        self._lock.notify_all()
        if self._thread is None and self._notice is not None and self._notice.due:
            self._thread = threading.Thread(target=self._run, name="terminals", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        with self._lock:
            try:
                while (wait := self._remind()) is not None:
                    self._lock.wait(min(wait, _LONGEST_WAIT))
            finally:
                self._thread = None

    def _write(self, kind: str, lines: tuple[str, ...]) -> NoticeResult:
        """Have wall(1) write that text, if somebody is logged in on a terminal that takes messages.

        wall(1) does not report which terminals it wrote to: all of these count if it ends well, and none if it fails.
        """
        begin = self._clock.monotonic()
        sessions, doubts = self._people.present()
        refused: dict[str, str] = {}
        reached: set[str] = set()
        for session in sessions:
            why = self._why_closed(session.terminal)
            if session.terminal is not None and why is None:
                reached.add(session.terminal)
            elif why is not None:
                refused[session.terminal or session.called] = why
        if reached:
            try:
                status = run(_WALL, _WALL_SECONDS, "".join(f"{line}\n" for line in lines).encode("ascii")).status
                failure = f"wall ended with status {status}" if status else None
            except CommandError as error:
                failure = str(error)
            if failure is None:
                self._last[kind] = begin
            else:
                _LOG.warning("the %s is not written: %s", kind, failure)
                refused.update(dict.fromkeys(sorted(reached), failure))
                reached.clear()
        _LOG.info("%s written to %d of %d terminals", kind, len(reached), len(reached) + len(refused))
        for doubt in doubts:
            _LOG.warning("cannot see everybody who is logged in: %s", doubt)
        return NoticeResult(reached=len(reached), refused=refused, doubts=tuple(doubts))

    def _why_closed(self, terminal: str | None) -> str | None:
        """Why nothing is written on that terminal; None if it takes messages."""
        if terminal is None:
            return "it has no terminal that can be written to"
        path = self._dev / terminal
        try:
            if not path.stat().st_mode & stat.S_IWGRP:
                return "its owner wants no messages (mesg n)"
        except OSError as error:
            return error.strerror
        return None if os.access(path, os.W_OK, effective_ids=True) else "Permission denied"


def reminders(left_seconds: float) -> tuple[float, ...]:
    """After how many seconds a notice is repeated; a reminder within the first minute is left out."""
    return tuple(left_seconds - mark for mark in _REMINDERS if left_seconds - mark >= _PAUSE)


def notices(terminals: Terminals) -> Answer:
    """The answer to POST /v1/notice."""
    decoder = msgspec.json.Decoder(NoticeRequest)
    return lambda body: _execute(terminals, decoder.decode(body))


def _execute(terminals: Terminals, request: NoticeRequest) -> NoticeResult:
    """Announce or withdraw, as requested.

    Raises:
        OverflowError: the time does not exist in UTC.
        RetryLaterError: as `Terminals.announce` and `Terminals.withdraw`.
        ValidationError: the request is for both, or incomplete.

    """
    if request.withdrawn and request.stop_at is None and request.verb is None:
        return terminals.withdraw(request.key)
    if request.withdrawn or request.stop_at is None or request.verb is None:
        raise msgspec.ValidationError("give `stop_at` and `verb`, or `withdrawn`: true")
    return terminals.announce(request.key, request.verb, request.stop_at.astimezone(UTC))


def _printable(name: str) -> str:
    """A name of this host without control characters, at most 64 characters long."""
    return "".join(letter if "!" <= letter <= "~" else "?" for letter in name[:64])


def _in_duration(seconds: float) -> str:
    """How long it is until then: `in 30 minutes`."""
    if seconds < _PAUSE:
        return "in less than a minute"
    if seconds < 2 * _HOUR:
        minutes = round(seconds / 60)
        return f"in {minutes} minute{'s' * (minutes > 1)}"
    return f"in {round(seconds / _HOUR)} hours"
