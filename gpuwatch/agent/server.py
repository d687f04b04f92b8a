"""A small HTTP server that no client can hold up: a thread per connection, a cap, and a time limit for each request.

Only GET and HEAD, only the routes it was given. Its own thread accepts, counts and cuts off, and waits for no client.
"""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from gpuwatch.clock import Clock

_LOG = logging.getLogger(__name__)

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_METHODS = ("GET", "HEAD")
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What a route answers; `packed` is the body in gzip, where it has one ready."""

    body: bytes
    content_type: str
    status: HTTPStatus = HTTPStatus.OK
    packed: bytes | None = None


Route = Callable[[str], Response]  # given the Accept header, empty if there is none


class AgentServer(ThreadingMixIn, TCPServer):
    """Serves `routes` by exact path until `close`."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self,
        host: str,
        port: int,
        routes: Mapping[str, Route],
        *,
        clock: Clock,
        max_connections: int,
        timeout_seconds: float,
    ) -> None:
        """Bind and listen; nothing is answered before `start`.

        Raises:
            OSError: the address cannot be had.

        """
        self.routes = dict(routes)
        self.timeout_seconds = timeout_seconds
        self.clock = clock
        self._slots = threading.Semaphore(max_connections)
        self._open: dict[socket.socket, float] = {}
        self._open_lock = threading.Lock()
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        self.address_family, self.socket_type = family, kind
        super().__init__((str(address[0]), int(address[1])), _Handler)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        """Serve in a thread of its own."""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.25}, name="http", daemon=True).start()

    def close(self) -> None:
        """Stop accepting and cut every connection."""
        self.shutdown()
        self.server_close()
        with self._open_lock:
            remaining = list(self._open)
        for connection in remaining:
            _cut(connection)

    def allow(self, connection: socket.socket) -> None:
        """Give a connection its time for one more request."""
        with self._open_lock:
            self._open[connection] = self.clock.monotonic() + self.timeout_seconds

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  socketserver's types
        """Take a connection if there is room, else turn it away without waiting for it."""
        if not self._slots.acquire(blocking=False):
            with contextlib.suppress(OSError):
                request.setblocking(False)  # noqa: FBT003  the socket's own signature
                request.send(_FULL)
                request.recv(65536)  # what is unread at the close would take the answer with it
            self.shutdown_request(request)
            return
        self.allow(request)
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread to be had
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  likewise
        """One connection, to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def _forget(self, connection: socket.socket) -> None:
        """Give its slot to another."""
        with self._open_lock:
            self._open.pop(connection, None)
        self._slots.release()

    def service_actions(self) -> None:
        """Cut the connections whose time is up: those that say nothing, drip, or do not read their answer."""
        now = self.clock.monotonic()
        with self._open_lock:
            late = [connection for connection, until in self._open.items() if now >= until]
        for connection in late:
            _cut(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  likewise
        """A client that went away is no news."""
        del request
        _LOG.debug("connection from %s broke", client_address, exc_info=True)


def _cut(connection: socket.socket) -> None:
    """End a connection under its thread's feet: reads return empty, writes fail."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """One connection's requests."""

    server: AgentServer
    protocol_version = "HTTP/1.1"
    server_version = "gpuwatch"
    sys_version = ""
    disable_nagle_algorithm = True
    wbufsize = -1
    error_content_type = _TEXT
    error_message_format = "%(code)d %(message)s\n"

    def do_GET(self) -> None:
        """Answer the route of this path."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """The same without a body."""
        self._answer(with_body=False)

    def parse_request(self) -> bool:
        """Read a request; False where it is malformed, or asks for more than to read."""
        if not super().parse_request():
            return False
        if self.command in _METHODS:
            return True
        self.close_connection = True  # its body, if any, is not read
        body = f"405 only {', '.join(_METHODS)}\n".encode()
        self._send(Response(status=HTTPStatus.METHOD_NOT_ALLOWED, body=body, content_type=_TEXT), with_body=True)
        return False

    def _answer(self, *, with_body: bool) -> None:
        """Find and run the route."""
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # likewise
        route = self.server.routes.get(self.path.split("?", 1)[0])
        if route is None:
            known = ", ".join(self.server.routes)
            response = Response(status=HTTPStatus.NOT_FOUND, body=f"404 try {known}\n".encode(), content_type=_TEXT)
        else:
            try:
                response = route(self.headers.get("Accept", ""))
            except Exception:  # noqa: BLE001  one broken page must not take the others with it
                _LOG.exception("%s failed", self.path)
                status = HTTPStatus.INTERNAL_SERVER_ERROR
                response = Response(status=status, body=b"500 see the agent's log\n", content_type=_TEXT)
        self._send(response, with_body=with_body)
        self.server.allow(self.connection)

    def _send(self, response: Response, *, with_body: bool) -> None:
        """Headers and body, packed if the client takes gzip and there is a packed one."""
        body = response.body
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        if response.packed is not None:
            self.send_header("Vary", "Accept, Accept-Encoding")
            if _takes_gzip(self.headers.get("Accept-Encoding", "")):
                body = response.packed
                self.send_header("Content-Encoding", "gzip")
        if response.status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", ", ".join(_METHODS))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401  the base class' signature
        """Requests are worth a line only to whoever debugs them."""
        _LOG.debug("%s %s", self.client_address[0], format % args)


def _takes_gzip(accept_encoding: str) -> bool:
    """Whether the header allows gzip."""
    for entry in accept_encoding.lower().split(","):
        coding, _, quality = entry.partition(";")
        if coding.strip() == "gzip":
            return quality.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
