"""Notices on the host's own terminals, as wall(1) writes them: what will happen to this machine, and how to keep it.

The words are this module's own. Who asks gives a time, a verb and a key, so nobody's text or escape sequence gets
through. Output moves a terminal's modification time and never its access time, so none of it passes for a person.
"""

import errno
import logging
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.evidence.sessions import People
from gpuwatch.agent.evidence.settings import SessionSettings
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.request import TEXT, Request, Response
from gpuwatch.runtime.http.server import App

_LOG = logging.getLogger(__name__)

PATH = "/v1/notice"

_LARGEST_BYTES = 4096
_MARKS = (300.0, 60.0)  # seconds before the end, at which people are told again
_PAUSE = 60.0  # seconds between two texts of the same kind, whoever asks
_TURN_SECONDS = 2.0  # to wait for whoever is writing; longer, and a terminal holds it up
_WRITING_SECONDS = 2.0  # for all terminals together: none of them is waited for
_LONGEST_WAIT = 5.0  # of the one who repeats
_HOUR = 3600.0
_STAYS = "gpuwatch: {} stays on; what was said of its end no longer holds."
_ENDS = {"stop": "be stopped", "terminate": "be terminated, for good"}
# utmp may name any file of /dev, and some do things when they are opened: only consoles, serial lines and ptys are.
_TERMINAL = re.compile(r"pts/\d{1,7}|tty[A-Z]{0,3}\d{1,3}", re.ASCII)


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked: people are told of an end, or that what they were told of that key no longer holds."""

    key: Annotated[str, msgspec.Meta(max_length=1000)]
    stop_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    verb: Literal["stop", "terminate"] | None = None
    withdrawn: bool = False


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: how many terminals have the text, which have not and why, and who could not be looked for.

    `repeated`: this was said before; nothing was written, and the figures are of that time.
    """

    reached: int = 0
    refused: dict[str, str] = {}
    doubts: tuple[str, ...] = ()
    repeated: bool = False


class NotNowError(Exception):
    """It cannot be written now; the message says why. `status` is how HTTP has it."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(slots=True, kw_only=True)
class _Notice:
    """The notice that people were told last; `told`: when somebody was, or else the last try.

    `ends_at` and `due` are of the monotonic clock; what is due next stands last.
    """

    key: str
    verb: str
    stop_at: datetime
    ends_at: float
    told: Written
    due: list[float]
    withdrawn: Written | None = None


class Terminals:
    """This host's terminals. One at a time writes; a thread repeats a notice while there is one to repeat."""

    def __init__(self, clock: Clock, roots: Roots, host: str, node: Callable[[], str]) -> None:
        """Nothing is written before somebody asks. `node` is the id that the controller knows this host by."""
        self._clock = clock
        self._dev = roots.dev
        self._people = People(SessionSettings(), roots)
        self._host = _plain_word(host)
        self._node = node
        self._turn = threading.Condition(threading.Lock())
        self._notice: _Notice | None = None
        self._last: dict[str, float] = {}
        self._thread: threading.Thread | None = None

    def stop(self) -> None:
        """Repeat nothing any more; returns soon, whatever hangs."""
        if self._turn.acquire(timeout=_TURN_SECONDS):
            self._notice = None
            self._turn.notify_all()
            self._turn.release()

    def tell(self, key: str, verb: str, stop_at: datetime) -> Written:
        """Write of an end to come, now, and again when 5 minutes and 1 minute remain. Of one key once.

        Raises:
            NotNowError: another notice was written a minute ago, or is being written.

        """
        with self._held():
            known, now = self._notice, self._clock.monotonic()
            if known is not None and known.key == key and (known.withdrawn or known.told.reached):
                return msgspec.structs.replace(known.told, repeated=True)
            self._pause("notice", now)
            left = (stop_at - self._clock.now()).total_seconds()
            told = self._write("notice", self._words(verb, stop_at, left))
            due = [now + after for after in reversed(reminders(left))]
            self._notice = _Notice(key=key, verb=verb, stop_at=stop_at, ends_at=now + left, told=told, due=due)
            self._begin()
            return told

    def withdraw(self, key: str) -> Written:
        """Write that this notice no longer holds, to those who could read of it; whatever happens, repeat it no more.

        Raises:
            NotNowError: another withdrawal was written a minute ago, or something is being written.

        """
        with self._held():
            known = self._notice
            if known is None or known.key != key:
                return Written()
            if known.withdrawn is not None:
                return msgspec.structs.replace(known.withdrawn, repeated=True)
            known.due.clear()
            self._turn.notify_all()
            if not known.told.reached:
                known.withdrawn = Written()
                return known.withdrawn
            self._pause("withdrawal", self._clock.monotonic())
            known.withdrawn = self._write("withdrawal", (_STAYS.format(self._host),))
            return known.withdrawn

    def _words(self, verb: str, stop_at: datetime, left_seconds: float) -> tuple[str, ...]:
        """Of an end to come."""
        return (
            f"gpuwatch: {self._host} is to {_ENDS[verb]} at {stop_at:%Y-%m-%d %H:%M} UTC, {_in(left_seconds)}.",
            "To keep it, on this machine:     gpuwatch keep 4h",
            f"Why, where the controller runs:  gpuwatch explain {_plain_word(self._node())}",
        )

    def _repeat(self) -> float | None:
        """Say once more what is due; the seconds until the next time, None if there is none. Only with the turn."""
        known, now = self._notice, self._clock.monotonic()
        if known is None:
            return None
        late = [at for at in known.due if at <= now]
        known.due = known.due[: len(known.due) - len(late)]
        if late and now < known.ends_at:
            told = self._write("reminder", self._words(known.verb, known.stop_at, known.ends_at - now))
            known.told = told if told.reached else known.told
        return known.due[-1] - now if known.due else None

    @contextmanager
    def _held(self) -> Iterator[None]:
        """The turn to write."""
        if not self._turn.acquire(timeout=_TURN_SECONDS):
            raise NotNowError(HTTPStatus.SERVICE_UNAVAILABLE, "a terminal holds up the writing of another notice")
        try:
            yield
        finally:
            self._turn.release()

    def _pause(self, kind: str, now: float) -> None:
        last = self._last.get(kind)
        if last is not None and now - last < _PAUSE:
            raise NotNowError(HTTPStatus.TOO_MANY_REQUESTS, f"another {kind} was written less than a minute ago")

    def _begin(self) -> None:
        """Have somebody who repeats."""
        self._turn.notify_all()
        if self._thread is None and self._notice is not None and self._notice.due:
            self._thread = threading.Thread(target=self._run, name="terminals", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        with self._turn:
            try:
                while (wait := self._repeat()) is not None:
                    self._turn.wait(min(wait, _LONGEST_WAIT))
            finally:
                self._thread = None

    def _write(self, kind: str, lines: tuple[str, ...]) -> Written:
        """That text on every terminal that takes it."""
        begin = self._clock.monotonic()
        sessions, doubts = self._people.present()
        data = "\r\n".join(("\x07", *lines, "")).encode("ascii")
        refused: dict[str, str] = {}
        reached: set[str] = set()
        for session in sessions:
            name = session.terminal
            if name is None:
                refused[session.called] = "its text cannot be seen"
            elif name in reached or name in refused:
                pass
            elif not _TERMINAL.fullmatch(name):
                refused[name] = "it is none that is written on"
            elif self._clock.monotonic() - begin > _WRITING_SECONDS:
                refused[name] = "no time was left for it"
            else:
                try:
                    write(self._dev / name, data)
                    reached.add(name)
                except OSError as error:
                    refused[name] = error.strerror or type(error).__name__
        if reached:
            self._last[kind] = begin
        _LOG.info("%s written on %d of %d terminals", kind, len(reached), len(reached) + len(refused))
        for doubt in doubts:
            _LOG.warning("who is logged in is not known: %s", doubt)
        return Written(reached=len(reached), refused=refused, doubts=tuple(doubts))


def reminders(left_seconds: float) -> tuple[float, ...]:
    """So many seconds after a notice it is said again; what would come within a minute of it is left out."""
    return tuple(left_seconds - mark for mark in _MARKS if left_seconds - mark >= _PAUSE)


def write(path: Path, data: bytes) -> None:
    """Write on one terminal as much as it takes at once; it is never waited for, and nothing else is written on.

    Raises:
        OSError: it is none, it is gone, its owner wants no messages (`mesg n`), or it does not take all of it.

    """
    seen = os.lstat(path)
    if not stat.S_ISCHR(seen.st_mode):
        raise OSError(errno.ENOTTY, "it is no terminal")
    if not seen.st_mode & stat.S_IWGRP:  # mesg(1)
        raise OSError(errno.EACCES, "its owner wants no messages (mesg n)")
    opened = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(opened).st_rdev != seen.st_rdev or not os.isatty(opened):
            raise OSError(errno.ENOTTY, "it is no terminal")
        try:
            written = os.write(opened, data)
        except BlockingIOError:
            written = 0
        if written < len(data):
            raise OSError(errno.EAGAIN, f"it took {written} of {len(data)} bytes: nobody reads it, or it is stopped")
    finally:
        os.close(opened)


_ORDER = msgspec.json.Decoder(Order)


def answering(terminals: Terminals, others: tuple[str, ...], users: tuple[str, ...] = ()) -> App:
    """What answers POST on the one path that takes it; `others` are the paths that an agent answers besides.

    Of `users`, where there are any, one must ask. No browser may: a site could be made to be one's own (DNS rebinding).
    """

    def answer(request: Request) -> Response:
        path = request.target.split("?", 1)[0]
        if path != PATH:
            return _plain(HTTPStatus.NOT_FOUND, f"404 try {', '.join((*others, PATH))}")
        if request.method != "POST":
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED, "405 only POST", ("Allow", "POST"))
        if "origin" in request.headers or "sec-fetch-site" in request.headers:
            return _plain(HTTPStatus.FORBIDDEN, "403 this is not for browsers")
        if users and request.user not in users:
            return _plain(HTTPStatus.FORBIDDEN, "403 this user is none of agent.notice_users")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return _plain(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "415 only application/json")
        if request.body is None or len(request.body) > _LARGEST_BYTES:
            return _plain(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"413 at most {_LARGEST_BYTES} bytes")
        try:
            told = _done(terminals, _ORDER.decode(request.body))
        except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError) as error:
            return _plain(HTTPStatus.BAD_REQUEST, f"400 {error}")
        except NotNowError as error:
            return _plain(error.status, f"{error.status.value} {error}", ("Retry-After", f"{_PAUSE:.0f}"))
        return Response(body=msgspec.json.encode(told), content_type="application/json")

    return answer


def _done(terminals: Terminals, order: Order) -> Written:
    """Do what is asked.

    Raises:
        NotNowError: as `Terminals.tell` and `Terminals.withdraw`.
        OverflowError: there is no such moment in UTC.
        ValidationError: it asks for both, or for half of one.

    """
    if order.withdrawn and order.stop_at is None and order.verb is None:
        return terminals.withdraw(order.key)
    if order.withdrawn or order.stop_at is None or order.verb is None:
        raise msgspec.ValidationError("give `stop_at` and `verb`, or `withdrawn`: true")
    return terminals.tell(order.key, order.verb, order.stop_at.astimezone(UTC))


def _plain(status: HTTPStatus, why: str, *headers: tuple[str, str]) -> Response:
    return Response(status=status, body=f"{why}\n".encode(), content_type=TEXT, headers=headers)


def _plain_word(text: str) -> str:
    """A name of this host, whoever gave it, without anything that a terminal obeys."""
    return "".join(letter if "!" <= letter <= "~" else "?" for letter in text[:64])


def _in(seconds: float) -> str:
    """How long it is until then."""
    if seconds < _PAUSE:
        return "in less than a minute"
    if seconds < 2 * _HOUR:
        minutes = round(seconds / 60)
        return f"in {minutes} minute{'s' * (minutes > 1)}"
    return f"in {round(seconds / _HOUR)} hours"
