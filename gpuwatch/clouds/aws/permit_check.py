"""The last moment before a change leaves for AWS: the permit is checked there, and nowhere else is late enough.

botocore fetches credentials, waits for its turn, signs, resolves the name, connects and shakes hands, and each of these
may take long. So the permit is checked twice: at `before-send`, which comes with every attempt and after signing, and
at each write to the open connection. What remains is the time that the bytes need.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http.client import HTTPConnection
from typing import Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)

from gpuwatch.clouds import CloudUnavailableError, PermitExpiredError
from gpuwatch.clouds.permit import Permit


class _Sending:
    """One change under a permit. `departed` counts the attempts of which something was, or may have been, written."""

    def __init__(self, permit: Permit) -> None:
        self.departed = 0
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
        self._written = True

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

    """
    if permit is None:
        yield
        return
    current = _Sending(permit)
    token = _SENDING.set(current)
    try:
        yield
    except Exception:
        # botocore wraps what is raised while it sends; what was refused is known here.
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


def watch(client: Any) -> None:  # noqa: ANN401  a client of any of AWS's services
    """Check the permit of `sending` at every attempt and every write of this client."""
    # The widest pattern that is registered first comes before all other handlers, those that answer by themselves too.
    client.meta.events.register_first("before-send.*.*", _before_send)
    # The classes are botocore's own; only the dictionary that names them has no public door.
    client._endpoint.http_session._pool_classes_by_scheme.update(http=_Pool, https=_SecurePool)  # noqa: SLF001


def _before_send(**_: object) -> None:
    current = _SENDING.get()
    if current is not None:
        current.begins()


class _Watched(HTTPConnection):
    """A connection that checks before it writes; opening it, with a proxy's tunnel and TLS, comes before."""

    _opening = False

    def connect(self) -> None:
        """Open it: what is said meanwhile is no part of the request."""
        self._opening = True
        try:
            super().connect()
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


class _Connection(_Watched, AWSHTTPConnection):  # type: ignore[misc]  # botocore's own mixture of signatures
    """Plain HTTP, as to an endpoint of one's own."""


class _SecureConnection(_Watched, AWSHTTPSConnection):  # type: ignore[misc]  # likewise
    """HTTPS."""


class _Pool(AWSHTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(AWSHTTPSConnectionPool):
    ConnectionCls = _SecureConnection
