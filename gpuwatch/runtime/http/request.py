"""What is asked over HTTP: how much of it is read, and who asks."""

import io
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from http.client import LineTooLong
from typing import Any, BinaryIO

from gpuwatch.runtime.http.access import basic_credentials

LARGEST_HEAD_BYTES = 16384  # of a request: its first line and its headers
LARGEST_BODY_BYTES = 16384


_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# An empty line may come before a request (RFC 9112, 2.2), and ends a head.
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb" [^\x00-\x20\x7f]+ HTTP/\d\.\d)?\r\n")
_FIELD_LINE = re.compile(rb"(" + _TOKEN + rb":[^\x00-\x08\x0a-\x1f\x7f]*)?\r\n")
_ONCE = ("Content-Length", "Transfer-Encoding", "Host", "Authorization")
TEXT = "text/plain; charset=utf-8"
PROBES = ("/livez", "/readyz")  # what kubelets ask, which have no password: everybody may


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to an app. `user` logged in by a password or a certificate; None: no login is needed.

    `certificate` is the client's (DER), which the handshake has verified; None: it has shown none.
    `headers` are by names in lower case. `body` is None where it is too large or has no length.
    """

    method: str
    target: str  # path and query as they came
    client: str  # its address
    user: str | None = None
    secure: bool = False  # it came over TLS
    certificate: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = b""


class LimitedReader(io.BufferedIOBase):
    """Reads lines, and of each request no more bytes than a head may have.

    A line that RFC 9112 does not allow in a head makes it `malformed`, and ends it: Python's own parser takes a lone CR
    for the end of a line, joins folded lines and ignores others. What a proxy reads differently can hide a request.
    """

    def __init__(self, source: BinaryIO | io.BufferedIOBase) -> None:
        self._source = source
        self.begin()

    def begin(self) -> None:
        """A new request has a new ration."""
        self.left = LARGEST_HEAD_BYTES
        self._malformed = False
        self._form = _REQUEST_LINE

    def is_malformed(self) -> bool:
        """Whether a line that was read is not allowed in a head."""
        return self._malformed

    def readline(self, size: int | None = -1, /) -> bytes:
        """A line, or as much of it as is left; nothing more of a head that is malformed."""
        if self._malformed:
            return b""
        if self.left <= 0:
            raise LineTooLong("head")
        parse_request = self.left if size is None or size < 0 else min(size, self.left)
        line = self._source.readline(parse_request)
        self.left -= len(line)
        if line and self.left > 0:  # a line that was cut off is too long, as the next one shows
            self._malformed = self._form.fullmatch(line) is None
            self._form = _FIELD_LINE
        return line

    def body(self, size: int) -> bytes:
        """What follows a head, whole or cut short."""
        return self._source.read(size)

    def close(self) -> None:
        """Close what it reads from."""
        self._source.close()


def ambiguous(headers: Message) -> bool:
    """Whether two readers may differ on the end, the recipient or the sender of the request."""
    twice = any(len(headers.get_all(name, ())) > 1 for name in _ONCE)
    return twice or ("Content-Length" in headers and "Transfer-Encoding" in headers)


def parse_request(
    line: tuple[str, str, str], headers: Message, source: LimitedReader, connection: socket.socket, *, gated: bool
) -> Request:
    """A request of a method, a target and a client's address; where there is a gate, it has let its user pass."""
    given = basic_credentials(headers.get("Authorization", "")) if gated else None
    declared = headers.get("Content-Length", "0")
    known = declared.isdecimal() and declared.isascii() and len(declared) <= len(str(LARGEST_BODY_BYTES))
    length = int(declared) if known and "Transfer-Encoding" not in headers else LARGEST_BODY_BYTES + 1
    return Request(
        method=line[0],
        target=line[1],
        client=line[2],
        user=given[0] if given is not None else _client_name(connection),
        secure=isinstance(connection, ssl.SSLSocket),
        certificate=connection.getpeercert(binary_form=True) if isinstance(connection, ssl.SSLSocket) else None,
        headers={name.lower(): value for name, value in headers.items()},
        body=source.body(length) if length <= LARGEST_BODY_BYTES else None,
    )


def _client_name(connection: socket.socket) -> str | None:
    """The common name of the client's certificate, which the handshake has verified."""
    certificate: Any = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    for part in (certificate or {}).get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return str(value)
    return None


def names_of(connection: socket.socket) -> frozenset[str]:
    """The subjectAltNames of the client's certificate, of whatever kind."""
    certificate: Any = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    return frozenset(str(value) for _, value in (certificate or {}).get("subjectAltName", ()))


def without_bearer(text: str, prefix: str | None) -> str:
    """A line for the log: paths that begin so say who may come in, and must not be read there."""
    return text if prefix is None else re.sub(rf"({re.escape(prefix)})[^\s\"']+", r"\1…", text)


def takes_gzip(accept_encoding: str) -> bool:
    """Whether the header allows gzip."""
    for entry in accept_encoding.lower().split(","):
        coding, _, quality = entry.partition(";")
        if coding.strip() == "gzip":
            return quality.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What a route answers; `packed` gives the body in gzip, where it can be had so, to those who take it."""

    body: bytes
    content_type: str
    status: HTTPStatus = HTTPStatus.OK
    packed: Callable[[], bytes] | None = None
    headers: tuple[tuple[str, str], ...] = ()


def probe_routes(live: Callable[[], bool], ready: Callable[[], bool]) -> dict[str, Callable[[str], Response]]:
    """Return the answers to kubelets, whether it lives and is ready: a yes or a no, and nothing else."""

    def answer(holds: Callable[[], bool]) -> Response:
        well = holds()
        status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(body=b"200 yes\n" if well else b"503 no\n", content_type=TEXT, status=status)

    return dict(zip(PROBES, (lambda _: answer(live), lambda _: answer(ready)), strict=True))
