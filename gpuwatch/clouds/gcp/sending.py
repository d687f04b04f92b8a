"""HTTP to Google's APIs by urllib3, which google-auth uses for its tokens too.

A change leaves only while its permit holds (`gpuwatch.clouds.sending`), and nothing is sent twice: urllib3's retries
are off, and no redirect is followed.
"""

import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.clouds.sending import WatchedConnection, attempt_begins

CONNECT_SECONDS, READ_SECONDS = 5.0, 20.0
_CONNECTIONS = 16


class _Connection(WatchedConnection, HTTPConnection):
    """Plain HTTP, as to an endpoint of one's own."""


class _SecureConnection(WatchedConnection, HTTPSConnection):
    """HTTPS."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class Wire:
    """The connections to one address, through the proxy that the environment names for it."""

    def __init__(
        self, url: str, *, connect_seconds: float = CONNECT_SECONDS, read_seconds: float = READ_SECONDS
    ) -> None:
        """Nothing is opened yet."""
        self._options = {
            "timeout": urllib3.Timeout(connect=connect_seconds, read=read_seconds),
            "retries": False,
            "maxsize": _CONNECTIONS,
        }
        self.manager = self._manager(url)
        self.manager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}

    def _manager(self, url: str) -> urllib3.PoolManager:
        parts = urlsplit(url)
        options: dict[str, Any] = dict(self._options)
        if parts.scheme == "https":
            options["ssl_context"] = ssl.create_default_context()
        proxy = getproxies().get(parts.scheme)
        if proxy and not proxy_bypass(parts.hostname or ""):
            return urllib3.ProxyManager(proxy, **options)
        return urllib3.PoolManager(**options)

    def ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> "Heard":
        """Send one request, once.

        Raises:
            PermitExpiredError: the permit of `sending` does not hold.
            CloudUnavailableError: no whole answer came.

        """
        attempt_begins()
        try:
            answer = self.manager.request(method, url, headers=dict(headers), body=body, redirect=False)
        except urllib3.exceptions.HTTPError as error:
            name = type(error).__name__
            raise CloudUnavailableError(f"no usable answer ({name})", code=name) from None
        return Heard(answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.data)


class Heard:
    """An answer as it came; the names of headers are in small letters."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body
