"""One request is one answer, however its head is written: nothing that a proxy may read differently is obeyed."""

import contextlib
import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.runtime.clock import SystemClock
from gpuwatch.runtime.http.request import Request, Response
from gpuwatch.runtime.http.server import HttpServer

HIDDEN = b"GET /secret HTTP/1.1\r\nHost: localhost\r\n\r\n"
LENGTH = b"Content-Length: %d" % len(HIDDEN)
FORBIDDEN = bytes([*range(9), *range(10, 32), 127])


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A server with a route and an app, as the controller's is."""

    def route(_: str) -> Response:
        return Response(body=b"page\n", content_type="text/plain")

    def app(request: Request) -> Response:
        return Response(body=b"app %s\n" % request.target.encode(), content_type="text/plain")

    server = HttpServer(
        "127.0.0.1", 0, {"/page": route}, clock=SystemClock(), max_connections=8, timeout_seconds=5.0, app=app
    )
    server.start()
    yield int(server.server_address[1])
    server.close()


def said(port: int, request: bytes) -> bytes:
    """All that is answered to these bytes, until the server has closed or has nothing more to say."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        heard = b""
        with contextlib.suppress(OSError):  # it may be cut off while it goes on writing
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while more := connection.recv(65536):
                heard += more
    return heard


def answers(heard: bytes) -> list[bytes]:
    """The status of each."""
    return [line.split()[1] for line in heard.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


MALFORMED = {
    "a lone CR ends a line": b"X: a\r" + LENGTH,
    "a CR before the line's end": b"X: a\r\r\n" + LENGTH,
    "a line of a CR": b"X: a\r\n\r\r\n" + LENGTH,
    "a folded line": b"X: a\r\n " + LENGTH,
    "a folded line by tab": b"X: a\r\n\t" + LENGTH,
    "folded at once": b" X: a\r\n" + LENGTH,
    "NUL in a value": b"X: a\0b\r\n" + LENGTH,
    "NUL in a name": b"X\0: a\r\n" + LENGTH,
    "a lone LF": b"X: a\n" + LENGTH,
    "a form feed": b"X: a\x0c\r\n" + LENGTH,
    "a blank before the colon": b"X: a\r\nContent-Length : 5",
    "no colon": b"X\r\n" + LENGTH,
    "no name": b": a\r\n" + LENGTH,
    "an envelope's line": b"From mallory\r\n" + LENGTH,
    "a name that is none": b"X(y): a\r\n" + LENGTH,
    "two lengths": LENGTH + b"\r\nContent-Length: 0",
    "the same length twice": LENGTH + b"\r\n" + LENGTH,
    "a length and chunks": LENGTH + b"\r\nTransfer-Encoding: chunked",
    "two encodings": b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    "two hosts": b"Host: b\r\n" + LENGTH,
    "two users": b"Authorization: Basic YTpi\r\nAuthorization: Basic Yzpk",
}


@pytest.mark.parametrize("path", [b"/page", b"/other"])
@pytest.mark.parametrize("head", MALFORMED.values(), ids=MALFORMED)
def test_what_two_readers_may_read_differently_is_400(port: int, path: bytes, head: bytes) -> None:
    """RFC 9112, 2.2, 5.1, 5.2 and 6.3; and the connection is closed, so that nothing of it is a second request."""
    heard = said(port, b"GET %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n\r\n%b" % (path, head, HIDDEN))

    assert answers(heard) == [b"400"]
    assert b"Connection: close" in heard
    assert b"secret" not in heard


@pytest.mark.parametrize(
    "line",
    [
        b"GET /page\r\n",
        b"GET  /page HTTP/1.1\r\n",
        b"GET\t/page HTTP/1.1\r\n",
        b" GET /page HTTP/1.1\r\n",
        b"GET /page HTTP/1.1 \r\n",
        b"GET /page HTTP/1.1\r\r\n",
        b"GET /page HTTP/1.1\n",
        b"GET /page HTTP/1.1\r",
        b"GET /pa\0ge HTTP/1.1\r\n",
        b"GET /page\x0bHTTP/1.1\r\n",
        b"GET /page\xa0HTTP/1.1\r\n",
        b"GET /page\x85x HTTP/1.1\r\n",
        b"G{T /page HTTP/1.1\r\n",
        b"GET /page XTTP/1.1\r\n",
        b"GET /page HTTP/1.1X\r\n",
        b"GET /page HTTP/11\r\n",
    ],
)
def test_a_first_line_that_is_none_is_400(port: int, line: bytes) -> None:
    """Also one of HTTP/0.9, which has no headers and whose answer has none."""
    assert answers(said(port, line + b"Host: localhost\r\n\r\n" + HIDDEN)) == [b"400"]


@pytest.mark.parametrize("target", [b"http://evil.example/page", b"page", b"*", b"/page/../page", b"/%70age"])
def test_only_the_very_path_is_a_route(port: int, target: bytes) -> None:
    """Absolute and other forms of a target are another path, for the app to judge."""
    assert b"\r\n\r\npage\n" not in said(port, b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % target)


@pytest.mark.parametrize(
    "body",
    [b"5;\nx\r\nhello\r\n0\r\n\r\n", b"%b\r\n0\r\n\r\n" % (b"f" * 70_000), b"0\r\n\r\n" + HIDDEN, b"-1\r\n", b"\r\n"],
)
def test_chunks_are_not_read(port: int, body: bytes) -> None:
    """However they are written: the request is answered without its body, and nothing after it."""
    heard = said(port, b"POST /other HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + body)

    assert len(answers(heard)) <= 1
    assert b"secret" not in heard


@pytest.mark.parametrize("head", [b"", b"X:\r\n", b"X: a\tb\r\n", b"X: \xe4\xf6\r\n", b"x!#$%&'*+.^_`|~9: a\r\n"])
def test_what_is_well_formed_is_answered(port: int, head: bytes) -> None:
    """Empty values, tabs and bytes beyond ASCII in values, and every letter that a name may have."""
    request = b"\r\nGET /page HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n"

    assert answers(said(port, request))[:1] == [b"200"] or answers(said(port, request[2:])) == [b"200"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_a_byte_that_no_head_may_have_makes_it_none(port: int, data: st.DataObject) -> None:
    """Wherever it stands."""
    request = b"GET /page HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\nX-Y: z\r\n\r\n"
    at = data.draw(st.integers(0, len(request) - 5))
    byte = data.draw(st.sampled_from(FORBIDDEN))
    if (request[at : at + 1], byte) == (b"\n", 13):  # the CR that belongs there, twice
        at -= 1
    statuses = answers(said(port, request[:at] + bytes([byte]) + request[at:] + HIDDEN))

    assert statuses[:1] == [b"400"]
    assert len(statuses) == 1
