"""A cloud's API on loopback: any provider's fake behind real HTTP or HTTPS, a log, and faults on the wire.

A provider's fake:

    class FakeTencent:
        def asked(self, request: Request) -> Asked: ...      # operation, region, whether it changes anything
        def answer(self, request: Request) -> Response: ...  # carries it out; called by one thread at a time
        def refusal(self, request: Request, kind: Refused) -> Response: ...  # throttled, internal, expired in its words

and, where it has pages, `Paged`. For reads that are late it is copied by `copy.deepcopy`; a fake that cannot be copied
so defines `__deepcopy__`. `Request.at` is the time of the cloud's clock: a fake that checks signatures compares their
time with it, and refuses as its cloud does when they are too far apart. A test then says

    with serving(fake) as server:                            # or serving(fake, authority=Authority(tmp_path))
        cloud = TencentCloud(..., endpoint_url=server.url)   # with its own time-outs: `silence.py`
        server.plan.strike(Fault.RESET_AFTER, when(operation="StopInstances"))

`server.down()` makes the address refuse connections; one region that is down among several on one address is
`plan.strike(Fault.RESET_BEFORE, when(region=...), times=None)`. Whatever a fake raises is raised again at the end.
"""

import json
import os
import socket
import ssl
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from email.utils import format_datetime
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, runtime_checkable
from urllib.parse import parse_qsl, urlsplit

from gpuwatch.runtime.clock import Clock, SystemClock
from tests.support.clouds.faults import (
    AFTER_EFFECT,
    OF_PAGES,
    RESET,
    RETRY_AFTER_SECONDS,
    SILENT,
    SKEW_SECONDS,
    Asked,
    Fault,
    FaultPlan,
)
from tests.support.clouds.silence import heard_at_once, no_answer_to
from tests.support.real.certificates import Authority

_ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST
_GATEWAY_PAGE = b"<html><body><h1>502 Bad Gateway</h1></body></html>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it came. `at` is the time of the cloud's clock when it came."""

    method: str
    host: str
    path: str  # without the query
    query: Mapping[str, str]  # of a name that comes several times the last; `pairs` has all
    pairs: Sequence[tuple[str, str]]
    headers: Mapping[str, str]  # by names in small letters
    body: bytes
    at: datetime
    target: str  # path and query as they were sent, for signatures

    @property
    def json(self) -> Any:  # noqa: ANN401  whatever was sent
        """The body as JSON; an empty body is an empty object."""
        return json.loads(self.body or b"{}")

    @property
    def form(self) -> dict[str, str]:
        """The body as a form."""
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What comes back: bytes and text as they are, anything else as JSON."""

    body: object = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        """As it is on the wire."""
        if isinstance(self.body, bytes):
            return self.body
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()


class Refused(StrEnum):
    """What every cloud says in its own words."""

    THROTTLED = "too many calls"  # status 429, or what this cloud has in its place
    INTERNAL = "an error of the cloud's own"  # status 500 or above
    EXPIRED = "the credentials have expired"


class Fake(Protocol):
    """A provider's cloud as a state and its answers."""

    def asked(self, request: Request) -> Asked:
        """What the request asks; nothing changes."""
        ...

    def answer(self, request: Request) -> Response:
        """Carry the request out."""
        ...

    def refusal(self, request: Request, kind: Refused) -> Response:
        """The cloud's own answer of that kind; nothing changes."""
        ...


@runtime_checkable
class Paged(Protocol):
    """A fake with lists in pages."""

    def continues(self, request: Request) -> bool:
        """Whether the request asks for a page after the first."""
        ...

    def without_token(self, response: Response) -> Response:
        """A first page that lacks the way to the next one; the same response where it has none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One request that reached the cloud: what it asked, what became of it."""

    request: Request
    asked: Asked
    fault: Fault | None
    status: int | None  # None: no whole answer left
    effect: bool  # whether the fake carried it out


@dataclass(slots=True, kw_only=True)
class _Outcome:
    """How the connection goes on."""

    response: Response | None
    fault: Fault | None = None
    at: datetime | None = None


class CloudServer(ThreadingHTTPServer):
    """One address of loopback with a fake behind it."""

    daemon_threads = False

    def __init__(self, fake: Fake, *, clock: Clock, tls: ssl.SSLContext | None, port: int = 0) -> None:
        self.fake, self.clock, self.tls = fake, clock, tls
        self.plan = FaultPlan()
        self.log: list[Entry] = []
        self.broken: list[Exception] = []  # of the fake itself
        self.released = threading.Event()
        self._turn = threading.Lock()
        self._open: set[socket.socket] = set()
        self._pages: dict[Asked, Response] = {}
        self._past: Fake | None = None
        self._is_up = True
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.server_address[1]}"

    def changes(self) -> list[Entry]:
        """The requests that ask for a change, in the order of their coming."""
        return [entry for entry in self.log if entry.asked.change]

    def count(self, operation: str) -> int:
        """How often a request of that operation came."""
        return sum(entry.asked.operation == operation for entry in self.log)

    def down(self) -> None:
        """Refuse connections from here on."""
        self._is_up = False
        self.shutdown()
        self.socket.close()
        self._end_connections()

    # One request.

    def carry(self, request: Request) -> _Outcome:
        """What comes of a request."""
        with self._turn:
            try:
                return self._carry(request)
            except Exception as error:  # noqa: BLE001  whatever the fake does wrong is told at the end
                self.broken.append(error)
                return _Outcome(response=Response(status=599, body=repr(error)))

    def _carry(self, request: Request) -> _Outcome:
        asked = self.fake.asked(request)
        fault = self.plan.take(asked, lambda fault: self._possible(fault, request, asked))
        if fault is Fault.SKEW:
            request = replace(request, at=request.at + timedelta(seconds=SKEW_SECONDS))
        instead = self._instead(fault, request, asked)
        response = instead if instead is not None else self._answer(request, asked)
        if instead is None and isinstance(self.fake, Paged):
            if fault is Fault.LOST_TOKEN:
                response = self.fake.without_token(response)
            self._pages[asked] = response
        if fault is Fault.ERROR_AFTER:
            response = self.fake.refusal(request, Refused.INTERNAL)
        gone = fault in RESET or fault in SILENT
        self.log.append(
            Entry(
                request=request,
                asked=asked,
                fault=fault,
                status=None if gone or fault is Fault.CUT else response.status,
                effect=instead is None,
            )
        )
        return _Outcome(response=None if gone else response, fault=fault, at=request.at)

    def _possible(self, fault: Fault, request: Request, asked: Asked) -> bool:
        if fault is Fault.STALE:
            return self._past is not None and not asked.change
        if fault not in OF_PAGES or not isinstance(self.fake, Paged):
            return fault not in OF_PAGES
        if fault is Fault.REPEATED_PAGE:
            return self.fake.continues(request) and asked in self._pages
        return not asked.change and not self.fake.continues(request)

    def _instead(self, fault: Fault | None, request: Request, asked: Asked) -> Response | None:
        """What comes in place of the effect; None: it happens."""
        if fault is None or fault in AFTER_EFFECT or fault in {Fault.LOST_TOKEN, Fault.SKEW}:
            return None
        if fault is Fault.REPEATED_PAGE:
            return self._pages[asked]
        if fault is Fault.STALE and self._past is not None:
            return self._past.answer(request)
        if fault in {Fault.GATEWAY, Fault.GARBLED}:
            status = 502 if fault is Fault.GATEWAY else 200
            return Response(status=status, body=_GATEWAY_PAGE, headers={"Content-Type": "text/html"})
        if fault in {Fault.THROTTLED, Fault.THROTTLED_FOR}:
            refusal = self.fake.refusal(request, Refused.THROTTLED)
            later = {"Retry-After": str(RETRY_AFTER_SECONDS)} if fault is Fault.THROTTLED_FOR else {}
            return replace(refusal, headers={**refusal.headers, **later})
        kind = Refused.EXPIRED if fault is Fault.EXPIRED else Refused.INTERNAL
        return self.fake.refusal(request, kind)

    def _answer(self, request: Request, asked: Asked) -> Response:
        if asked.change and self.plan.waiting(Fault.STALE):
            self._past = deepcopy(self.fake)
        return self.fake.answer(request)

    # Connections.

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  as in the base
        """The handshake is the connection's own thread's."""
        if self.tls is not None:
            request.settimeout(10)
            request = self.tls.wrap_socket(request, server_side=True)
            request.settimeout(None)
        self._open.add(request)
        try:
            super().finish_request(request, client_address)
        finally:
            self._open.discard(request)
            with suppress(OSError):
                request.close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up, or that believes no certificate, is what tests are about."""

    def close(self) -> None:
        """Serve no more; every connection ends."""
        self.released.set()
        if self._is_up:
            self.down()
        self.server_close()

    def _end_connections(self) -> None:
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: CloudServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        try:
            request = self._request()
        except EOFError:  # its client gave up in the middle of it
            self.close_connection = True
            return
        outcome = self.server.carry(request)
        if outcome.fault in SILENT:
            with no_answer_to(self.client_address[1]):
                self.server.released.wait()
        if outcome.response is None:
            self._break(abort=outcome.fault in RESET)
            return
        content = outcome.response.content
        if outcome.fault is Fault.CUT and not content:
            self._break(abort=False)  # of an answer that is all headers, half is as good as nothing
            return
        self.send_response_only(outcome.response.status)
        usual = {"Content-Type": "application/json", "Content-Length": str(len(content))}
        date = {"Date": format_datetime(outcome.at or self.server.clock.now(), usegmt=True)}
        for name, value in {**usual, **date, **outcome.response.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if outcome.fault is Fault.CUT:
            self.wfile.write(content[: len(content) // 2])
            self._break(abort=False)
        elif self.command != "HEAD":
            self.wfile.write(content)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET  # noqa: N815  every method alike

    def _request(self) -> Request:
        parts = urlsplit(self.path)  # behind a proxy's client the whole URL
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        return Request(
            method=self.command,
            host=parts.netloc or self.headers.get("Host", ""),
            path=parts.path,
            query=dict(pairs),
            pairs=tuple(pairs),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self._body(),
            at=self.server.clock.now(),
            target=parts.path + (f"?{parts.query}" if parts.query else ""),
        )

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size)
            if len(body) < size:
                raise EOFError
            return body
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _break(self, *, abort: bool) -> None:
        """End the connection in the middle, with RST or as if all were said."""
        self.close_connection = True
        if abort:
            with suppress(OSError):
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        with suppress(OSError):
            os.close(self.connection.detach())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(
    fake: Fake,
    *,
    authority: Authority | None = None,
    hosts: Sequence[str] = ("127.0.0.1", "localhost"),
    clock: Clock | None = None,
    port: int = 0,
) -> Iterator[CloudServer]:
    """A server that runs; with an authority by HTTPS, with a certificate for these hosts.

    `clock` is the cloud's: SDKs sign with the machine's own time, so it is that one where nothing is given.
    """
    tls = None
    if authority is not None:
        issued = authority.issue("cloud", *hosts)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(issued.certificate, issued.key)
    server = CloudServer(fake, clock=clock or SystemClock(), tls=tls, port=port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        with heard_at_once():
            yield server
    finally:
        server.close()
        thread.join()
    if server.broken:
        raise server.broken[0]
