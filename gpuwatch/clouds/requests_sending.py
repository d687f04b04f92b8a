"""`gpuwatch.clouds.sending` for SDKs that send by `requests`, as those of Tencent Cloud, Alibaba Cloud and Azure do.

The package `requests` comes with these SDKs: only their providers load this module.
"""

from typing import Any

from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

from gpuwatch.clouds.sending import attempt_begins
from gpuwatch.clouds.watched_pools import POOLS


class WatchedAdapter(HTTPAdapter):
    """Checks the permit of a change at every attempt and every write; it never sends anything a second time."""

    def __init__(self) -> None:
        """Nothing is sent yet."""
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  those of requests
        """Make connections that check."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = POOLS

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  those of requests
        """The same through a proxy."""
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = POOLS
        return manager

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:  # noqa: ANN401  those of requests
        """Send one attempt of a request."""
        attempt_begins()
        return super().send(request, *args, **kwargs)


def watch_session(session: Session) -> Session:
    """Let this session send changes only while their permits hold, each once; a redirect is not followed."""
    for scheme in ("http://", "https://"):
        session.mount(scheme, WatchedAdapter())
    session.max_redirects = 0
    return session
