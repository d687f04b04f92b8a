"""A server in the place of an agent, which answers by a rule of the test."""

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeVerdict
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.fleet import a_verdict


def encoded(verdict: NodeVerdict) -> bytes:
    """A verdict as an agent sends it."""
    return msgspec.json.encode(verdict)


class Answer(BaseHTTPRequestHandler):
    """An agent that answers by its port's rule."""

    def do_GET(self) -> None:
        """The rule's answer."""
        with contextlib.suppress(OSError):  # the asker has hung up
            self.server.rule(self)  # type: ignore[attr-defined]

    do_POST = do_GET  # noqa: N815  the base class asks for it by that name

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextmanager
def an_agent(rule: object) -> Iterator[str]:
    """A server on loopback that answers by the rule; gives its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    server.rule = rule  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def a_good_agent(request: BaseHTTPRequestHandler) -> None:
    """It is busy, and says so."""
    body = encoded(a_verdict("i-1", State.BUSY, at=SystemClock().now()))
    request.send_response(200)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
