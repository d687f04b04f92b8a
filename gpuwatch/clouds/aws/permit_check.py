"""`gpuwatch.clouds.sending` for botocore: its handlers come before every attempt, and its connections check."""

from typing import Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)

from gpuwatch.clouds.sending import WatchedConnection, attempt_begins, sending

__all__ = ["sending", "watch"]


def watch(client: Any) -> None:  # noqa: ANN401  a client of any of AWS's services
    """Check the permit of `sending` at every attempt and every write of this client."""
    # The widest pattern that is registered first comes before all other handlers, those that answer by themselves too.
    client.meta.events.register_first("before-send.*.*", _before_send)
    # The classes are botocore's own; only the dictionary that names them has no public door.
    client._endpoint.http_session._pool_classes_by_scheme.update(http=_Pool, https=_SecurePool)  # noqa: SLF001


def _before_send(**_: object) -> None:
    attempt_begins()


class _Connection(WatchedConnection, AWSHTTPConnection):  # type: ignore[misc]  # botocore's own mixture of signatures
    """Plain HTTP, as to an endpoint of one's own."""


class _SecureConnection(WatchedConnection, AWSHTTPSConnection):  # type: ignore[misc]  # likewise
    """HTTPS."""


class _Pool(AWSHTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(AWSHTTPSConnectionPool):
    ConnectionCls = _SecureConnection
