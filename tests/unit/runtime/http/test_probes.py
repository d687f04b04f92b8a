"""runtime/http/request.py: what a kubelet asks, which has no password and shows no certificate."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import pytest
import urllib3

from gpuwatch.runtime.clock import SystemClock
from gpuwatch.runtime.http.auth import Authenticator
from gpuwatch.runtime.http.request import PROBES, Response, probe_routes
from gpuwatch.runtime.http.server import HttpServer, ServerAuth
from tests.support.builders.authenticator import Gate


@contextmanager
def served(*, live: bool = True, ready: bool = True) -> Iterator[str]:
    """The URL of a server whose pages take a user."""
    gate: Authenticator = Gate().authenticator
    routes = {"/metrics": lambda _: Response(body=b"secret", content_type="text/plain")}
    server = HttpServer(
        "127.0.0.1",
        0,
        {**routes, **probe_routes(lambda: live, lambda: ready)},
        clock=SystemClock(),
        max_connections=4,
        timeout_seconds=5.0,
        door=ServerAuth(gate=gate),
    )
    server.start()
    try:
        yield server.url
    finally:
        server.close()


def test_a_kubelet_needs_no_user_and_learns_nothing() -> None:
    """Everything else stays closed, also under a path or a query that begins like one of these."""
    with served() as url:
        answers = {path: urllib3.request("GET", url + path, retries=False) for path in PROBES}
        others = ("/metrics", "/livez/", "/livez/../metrics", "/readyz?x=1", "/livez%2f")
        closed = {path: urllib3.request("GET", url + path, retries=False).status for path in others}

    assert {path: (each.status, each.data) for path, each in answers.items()} == dict.fromkeys(
        PROBES, (HTTPStatus.OK, b"200 yes\n")
    )
    assert set(closed.values()) == {HTTPStatus.UNAUTHORIZED}


@pytest.mark.parametrize(("live", "ready"), [(True, False), (False, False), (True, True)])
def test_it_lives_before_it_is_ready(live: bool, ready: bool) -> None:
    """Each path by itself."""
    with served(live=live, ready=ready) as url:
        found = [urllib3.request("GET", url + path, retries=False).status for path in PROBES]

    assert found == [HTTPStatus.OK if each else HTTPStatus.SERVICE_UNAVAILABLE for each in (live, ready)]
