"""The last moment before a change leaves for a cloud: the permit is checked there, and nowhere else is late enough.

An SDK fetches credentials, waits for its turn, signs, resolves the name, connects and shakes hands, and each of these
may take long. So the permit is checked twice: when an attempt is signed and about to be sent (`attempt_begins`), and at
each write to the open connection (`WatchedConnection`). What remains is the time that the bytes need.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http.client import HTTPConnection
from typing import Any

from gpuwatch.clouds.errors import CloudUnavailableError, NotSentError, PermitExpiredError
from gpuwatch.clouds.permit import Permit


class _Sending:
    """One change under a permit. `departed` counts the attempts of which something was, or may have been, written.

    `unopened`: a connection for it could not be opened; `written`: something of it was written to any connection.
    """

    def __init__(self, permit: Permit) -> None:
        self.departed = 0
        self.unopened = self.written = False
        self.refusal: PermitExpiredError | None = None
        self._permit = permit
        self._written = False

    def begins(self) -> None:
        """An attempt is signed and about to be sent, perhaps over a connection that is yet to be opened."""
        self._check()
        self.departed += 1
        self._written = False

    def writes(self) -> None:
        """The connection is open and the next bytes of the request are about to leave."""
        try:
            self._check()
        except PermitExpiredError:
            self.departed -= not self._written
            raise
        self._written = self.written = True

    def _check(self) -> None:
        try:
            self._permit.check()
        except PermitExpiredError as error:
            self.refusal = error
            raise


_SENDING: ContextVar[_Sending | None] = ContextVar("sending", default=None)


@contextmanager
def sending(call: str, permit: Permit | None) -> Iterator[None]:
    """Send the change within only while the permit holds; None: nobody asks for one.

    Raises:
        PermitExpiredError: it did not hold; nothing was sent.
        CloudUnavailableError: it did not hold for a further attempt; what became of an earlier one is not known.
        NotSentError: no connection could be opened, and nothing was written to any.

    """
    if permit is None:
        yield
        return
    current = _Sending(permit)
    token = _SENDING.set(current)
    try:
        yield
    except Exception as error:
        # SDKs wrap what is raised while they send; what was refused, and what was written, is known here.
        if current.refusal is None and current.unopened and not current.written:
            name = type(error).__name__
            raise NotSentError(f"{call}: no connection, so nothing was sent ({name})", code=name) from None
        if current.refusal is None:
            raise
        if current.departed:
            raise CloudUnavailableError(
                f"{call}: what became of an earlier attempt is not known, and it was not sent again: {current.refusal}",
                code=current.refusal.code,
            ) from None
        raise current.refusal from None
    finally:
        _SENDING.reset(token)


@contextmanager
def apart() -> Iterator[None]:
    """What is sent within belongs to no change, for example the question for new credentials on the way to one."""
    token = _SENDING.set(None)
    try:
        yield
    finally:
        _SENDING.reset(token)


def attempt_begins() -> None:
    """An attempt of the change of this context is signed, and is sent next.

    Raises:
        PermitExpiredError: the permit does not hold any more.

    """
    current = _SENDING.get()
    if current is not None:
        current.begins()


class WatchedConnection(HTTPConnection):
    """A connection that checks before it writes; opening it, with a proxy's tunnel and TLS, comes before."""

    _opening = False

    def connect(self) -> None:
        """Open it: what is said meanwhile is no part of the request."""
        self._opening = True
        try:
            super().connect()
        except Exception:
            current = _SENDING.get()
            if current is not None:
                current.unopened = True
            raise
        finally:
            self._opening = False

    def send(self, data: Any) -> None:  # noqa: ANN401  http.client's signature
        """Write a part of the request."""
        current = _SENDING.get()
        if current is not None and not self._opening:
            if self.sock is None:
                self.connect()
            current.writes()
        super().send(data)
