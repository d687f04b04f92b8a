"""A small HTTP server that no client can hold up: a thread per connection, caps, and a time limit for each request.

Where every place is taken, who has kept us waiting for longest makes room: slow clients take places from each other.

Only GET and HEAD, only the routes it was given; an `App` answers all other paths, also POST and DELETE. Its own thread
accepts, counts and cuts off, and waits for no client: TLS handshakes and passwords are the connection's own thread's
work.
"""

import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import format_datetime
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.access import client_of, is_known, is_loopback
from gpuwatch.runtime.http.connections import FULL, GREEDY, ConnectionLimiter, cut
from gpuwatch.runtime.http.request import (
    PROBES,
    TEXT,
    LimitedReader,
    Request,
    Response,
    ambiguous,
    names_of,
    parse_request,
    takes_gzip,
    without_bearer,
)

_LOG = logging.getLogger(__name__)


_TURNS, _TURN_SECONDS = 125, 0.002  # a quarter of a second: threads of a busy machine get a turn that seldom
_END = b"Content-Length: %d\r\nConnection: close\r\n\r\n"
_NOT_TLS = b"400 this port speaks https\n"
_METHODS = ("GET", "HEAD")
_HSTS = "max-age=31536000"  # not of subdomains, which are others'
_APP_METHODS = (*_METHODS, "POST", "DELETE")


App = Callable[[Request], Response]
Route = Callable[[str], Response]  # given the Accept header, empty if there is none
QueryRoute = Callable[[str, str], Response]  # given the query string as well, before that header
# Given the Authorization header, who asks, and who has logged in on this connection; None lets the request pass.
Gate = Callable[[str, str, set[str]], Response | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAuth:
    """Who may come in, and how many of them at a time. `secure` gives the TLS of the next connection."""

    gate: Gate | None = None
    failures: Callable[[], Mapping[str, int]] = dict  # log-ins that the gate refused, by result
    secure: "Callable[[], ssl.SSLContext] | None" = None
    max_per_client: int = 64
    client_names: frozenset[str] = frozenset()  # one of which a client's certificate must have, where there are any
    names: frozenset[str] = frozenset()  # by which it may be asked on loopback, in plain http and without a gate
    open: str | None = None  # paths that begin so take no user: they are their bearer's right, and in no log

    def gate_to(self, path: str) -> Gate | None:
        """Who is asked on the way to a path."""
        return None if path in PROBES or (self.open is not None and path.startswith(self.open)) else self.gate


class HttpServer(ThreadingMixIn, TCPServer):
    """Serves `routes` by exact path until `close`."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(  # noqa: PLR0913  what it serves, and what it allows
        self,
        host: str,
        port: int,
        routes: Mapping[str, Route],
        *,
        clock: Clock,
        max_connections: int,
        timeout_seconds: float,
        door: ServerAuth = ServerAuth(),
        app: App | None = None,
        queries: Mapping[str, QueryRoute] | None = None,
    ) -> None:
        """Bind and listen; nothing is answered before `start`.

        `queries` answer a path that is asked with a query string.

        Raises:
            OSError: the address cannot be had.

        """
        self.routes = dict(routes)
        self.queries = dict(queries or {})
        self.timeout_seconds = timeout_seconds
        self.clock = clock
        self.door, self._turns = door, _TURNS
        self.app = app
        self.methods = _METHODS if app is None else _APP_METHODS
        self.places = ConnectionLimiter(
            most=max_connections, most_of_one=door.max_per_client, timeout_seconds=timeout_seconds, clock=clock
        )
        name = host.encode() if host.isascii() else host  # for a text Python loads its tables of all scripts
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, _, _, address = found[0]
        self.address_family, self.socket_type = family, kind
        super().__init__((str(address[0]), int(address[1])), _Handler)

    @property
    def url(self) -> str:
        """Return the URL on which the server listens."""
        host, port = self.socket.getsockname()[:2]
        scheme = "http" if self.door.secure is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def start(self) -> None:
        """Serve in a thread of its own."""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.5}, name="http", daemon=True).start()

    def close(self) -> None:
        """Stop accepting and cut every connection."""
        cut(self.socket)  # wakes who accepts, who would look up at the next poll only
        self.shutdown()
        self.server_close()
        for connection in self.places.taken:
            cut(connection)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  socketserver's types
        """Take a connection if there is room, else turn it away without waiting for it."""
        client, plain = client_of(client_address[0]), self.door.secure is None
        refusal = self.places.take(request, client, plain=plain)
        for _ in range(self._turns):
            if refusal is not FULL:
                break
            self.clock.sleep(_TURN_SECONDS)  # those who are at work, or came just now, have a turn
            refusal = self.places.take(request, client, plain=plain)
        if refusal is not GREEDY:  # nobody is accepted meanwhile: of a crowd only the first waits in vain
            self._turns = 0 if refusal is FULL else _TURNS
        if refusal is not None:
            with contextlib.suppress(OSError):
                request.setblocking(False)  # noqa: FBT003  the socket's own signature
                if plain:  # to those who expect TLS the close says as much
                    request.send(refusal)
                request.recv(65536)  # what is unread at the close would take the answer with it
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread to be had
            self.places.leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  likewise
        """One connection, to its end."""
        connection = request
        try:
            self.places.listening(request)
            if self.door.secure is not None:
                connection = self._wrap_in_tls(request, self.door.secure())
                connection.do_handshake()
        except OSError as error:
            _LOG.debug("no TLS with %s: %s", client_address, error)
            if isinstance(error, ssl.SSLError) and error.reason == "HTTP_REQUEST":
                _say_plainly(connection)
            _drain(connection)
            self.shutdown_request(connection)
        else:
            super().process_request_thread(connection, client_address)
        finally:
            self.places.leave(connection)

    def _wrap_in_tls(self, connection: socket.socket, context: "ssl.SSLContext") -> "ssl.SSLSocket":
        """The same connection with TLS around it, written down in place of the bare one."""
        encrypted = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        try:
            self.places.note_wrapped(connection, encrypted)
        except ConnectionAbortedError:
            encrypted.close()  # nothing else knows of it: the bare connection has given its descriptor away
            raise
        return encrypted

    def service_actions(self) -> None:
        """Cut the connections past their deadline: they send nothing or too slowly, or do not read their answer."""
        for connection in self.places.late:
            cut(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  likewise
        """A client that went away is not logged."""
        del request
        _LOG.debug("connection from %s broke", client_address, exc_info=True)


def _say_plainly(connection: socket.socket) -> None:
    """Tell a client that does not speak TLS what to speak."""
    with contextlib.suppress(OSError):
        answer = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n" + _END % len(_NOT_TLS) + _NOT_TLS
        socket.socket.send(connection, answer)


def _drain(connection: socket.socket) -> None:
    """Read what a refused client still says, until it hangs up or is cut: else it never hears why it was refused."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_WR)
        while socket.socket.recv(connection, 4096):
            pass


def _refusal(status: HTTPStatus, why: str) -> Response:
    return Response(status=status, body=f"{why}\n".encode(), content_type=TEXT)


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    server: HttpServer
    protocol_version = "HTTP/1.1"
    server_version = "gpuwatch"
    sys_version = ""
    disable_nagle_algorithm = True
    wbufsize = -1
    error_content_type = TEXT
    error_message_format = "%(code)d %(message)s\n"

    def do_GET(self) -> None:
        """Answer the route of this path."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """The same without a body."""
        self._answer(with_body=False)

    do_POST = do_DELETE = do_GET  # noqa: N815  http.server's names; what an app is asked to do

    def setup(self) -> None:
        """Read through a ration."""
        super().setup()
        self.rfile = self._ration = LimitedReader(self.rfile)
        self._passed: set[str] = set()
        self._is_error = False

    def handle_one_request(self) -> None:
        """A new request has a new ration."""
        self._ration.begin()
        super().handle_one_request()

    def parse_request(self) -> bool:
        """Read a request; False where it is malformed, or asks for more than to read."""
        if self._ration.left <= 0:
            self.requestline, self.request_version, self.command, self.close_connection = "", "", "", True
            self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
            return False
        if self._ration.is_malformed():
            self.requestline, self.request_version, self.command, self.close_connection = "", "", "", True
            self.send_error(HTTPStatus.BAD_REQUEST, "no request by RFC 9112")
            return False
        if not super().parse_request():
            return False
        if self._ration.is_malformed() or ambiguous(self.headers):
            self.close_connection = True  # what follows is read as nothing
            self.send_error(HTTPStatus.BAD_REQUEST, "a header is malformed or repeated")
            return False
        methods = self.server.methods
        if self.command in methods:
            return True
        self.close_connection = True  # its body, if any, is not read
        body = f"405 only {', '.join(methods)}\n".encode()
        allow = (("Allow", ", ".join(methods)),)
        status = HTTPStatus.METHOD_NOT_ALLOWED
        self._send(Response(status=status, body=body, content_type=TEXT, headers=allow), with_body=True)
        return False

    def _answer(self, *, with_body: bool) -> None:
        """Ask the gate, then the route."""
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # a body is read by the app alone, and nothing after it
        gate = self.server.door.gate_to(self.path)
        given = self.headers.get("Authorization", "")
        refusal = self._answer_misled()
        if refusal is None and gate is not None:
            refusal = gate(given, self.client_address[0], self._passed)
        answer = refusal or self._page()
        self.server.places.answering(self.connection)
        self._send(answer, with_body=with_body)
        self.server.places.again(self.connection)

    def _answer_misled(self) -> Response | None:
        """What to answer a client with the wrong certificate, or a browser that a made-up name has led here.

        Only on loopback, in plain http and without a gate is the name all there is to tell such a browser by. An app
        judges its own paths.
        """
        door = self.server.door
        if door.client_names and not door.client_names & names_of(self.connection):
            return _refusal(HTTPStatus.FORBIDDEN, "403 this certificate has none of the names of tls_client_names")
        host = self.headers.get("Host")
        if door.gate is not None or door.secure is not None or host is None or is_known(host, door.names):
            return None
        if not is_loopback(str(self.server.server_address[0])) or self.path.split("?", 1)[0] not in self.server.routes:
            return None
        why = "421 this host name is not known here: use an address, localhost, or add it to `names` in the settings"
        return _refusal(HTTPStatus.MISDIRECTED_REQUEST, why)

    def _page(self) -> Response:
        """Find and run the route, or ask the app."""
        path, _, query = self.path.partition("?")
        route, app = self.server.routes.get(path), self.server.app
        given = self.headers.get("Accept", "")
        if query and path in self.server.queries:
            route = partial(self.server.queries[path], query)
        if route is not None and self.command not in _METHODS:
            allow = (("Allow", ", ".join(_METHODS)),)
            status = HTTPStatus.METHOD_NOT_ALLOWED
            return Response(status=status, body=b"405 only GET, HEAD\n", content_type=TEXT, headers=allow)
        if route is None and app is not None:
            request = self._make_request()
            route = lambda _: app(request)  # noqa: E731  what may raise is the same
        if route is None:
            known = ", ".join(self.server.routes)
            return Response(status=HTTPStatus.NOT_FOUND, body=f"404 try {known}\n".encode(), content_type=TEXT)
        self.server.places.working(self.connection)
        try:
            return route(given)
        except Exception:  # noqa: BLE001  one broken page must not take the others with it
            _LOG.exception("%s failed", without_bearer(self.path, self.server.door.open))
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            return Response(status=status, body=b"500 see the agent's log\n", content_type=TEXT)

    def _make_request(self) -> Request:
        """What the app is asked."""
        return parse_request(
            (self.command, self.path, self.client_address[0]),
            self.headers,
            self._ration,
            self.connection,
            gated=self.server.door.gate_to(self.path) is not None,
        )

    def _safe(self) -> Iterator[tuple[str, str]]:
        """Headers for browsers in every answer: no guessing of its type, and https from now on where it is https."""
        yield "X-Content-Type-Options", "nosniff"
        if self.server.door.secure is not None:
            yield "Strict-Transport-Security", _HSTS

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """As any other answer."""
        self._is_error = True
        super().send_error(code, message, explain)

    def end_headers(self) -> None:
        """Errors of the base class have these headers, too."""
        if self._is_error:
            self._is_error = False
            for name, value in self._safe():
                self.send_header(name, value)
        super().end_headers()

    def _send(self, response: Response, *, with_body: bool) -> None:
        """Headers and body, packed if the client takes gzip and there is a packed one."""
        body = response.body
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        given = {name.lower() for name, _ in response.headers}
        for name, value in self._safe():
            if name.lower() not in given:
                self.send_header(name, value)
        if response.packed is not None:
            self.send_header("Vary", "Accept, Accept-Encoding")
            if takes_gzip(self.headers.get("Accept-Encoding", "")):
                body = response.packed()
                self.send_header("Content-Encoding", "gzip")
        for name, value in response.headers:
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        if response.status is not HTTPStatus.NOT_MODIFIED:  # it has the length of what it is no answer to
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)
        self.wfile.flush()

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The Date of an answer, by the server's own clock."""
        del timestamp
        return format_datetime(self.server.clock.now(), usegmt=True)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401  the base class' signature
        """Requests are logged for debugging only."""
        _LOG.debug("%s %s", self.client_address[0], without_bearer(format % args, self.server.door.open))
