"""urllib3's pools with connections that check the permit of a change at every write: `gpuwatch.clouds.sending`.

urllib3 comes with the clouds' and the cluster's packages: only what needs one of these loads this module.
"""

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from gpuwatch.clouds.sending import WatchedConnection


class _Connection(WatchedConnection, HTTPConnection):
    """Plain HTTP, as to an endpoint of one's own or to `kubectl proxy`."""


class _SecureConnection(WatchedConnection, HTTPSConnection):
    """An HTTPS connection that checks the permit last."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


# As urllib3's pool managers take them.
POOLS = {"http": _Pool, "https": _SecurePool}
