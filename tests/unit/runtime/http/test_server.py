"""runtime/http/server.py: answers by exact path, and no client can hold it up."""

import gzip
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

import pytest

from gpuwatch.runtime.clock import SystemClock
from gpuwatch.runtime.http.request import Response
from gpuwatch.runtime.http.server import HttpServer, ServerAuth
from tests.support.real.agents import eventually

PAGE = b"a page\n" * 100
SLOTS = 4
PER_CLIENT = 3
TIMEOUT = 1.0


def page(accept: str) -> Response:
    """A route that has a packed form and shows which header it was given."""
    return Response(body=PAGE, content_type=accept or "text/plain", packed=lambda: gzip.compress(PAGE))


def broken(_: str) -> Response:
    """A route with a fault."""
    raise RuntimeError("a fault of ours")


@dataclass(frozen=True, slots=True)
class Work:
    """A route that takes as long as a test wants."""

    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    done: threading.Event = field(default_factory=threading.Event)

    def route(self, accept: str) -> Response:
        """A page, when it is done."""
        self.begun.release()
        self.done.wait(10 * TIMEOUT)
        return page(accept)


@pytest.fixture
def work() -> Iterator[Work]:
    """Done at the end at the latest."""
    made = Work()
    yield made
    made.done.set()


@dataclass(slots=True)
class CountingClock(SystemClock):
    """Counts how often somebody waits."""

    waits: int = 0

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self.waits += 1
        SystemClock.sleep(self, seconds)


@contextmanager
def serving(work: Work, timeout_seconds: float) -> Iterator[HttpServer]:
    """A server with three routes and few slots."""
    served = HttpServer(
        "127.0.0.1",
        0,
        {"/page": page, "/broken": broken, "/work": work.route},
        clock=CountingClock(),
        max_connections=SLOTS,
        timeout_seconds=timeout_seconds,
        door=ServerAuth(max_per_client=PER_CLIENT),
    )
    served.start()
    yield served
    served.close()


@pytest.fixture
def server(work: Work) -> Iterator[HttpServer]:
    """A server with little patience."""
    with serving(work, TIMEOUT) as served:
        yield served


@pytest.fixture
def patient(work: Work) -> Iterator[HttpServer]:
    """A server that cuts nobody for the time it takes, however slow this machine is."""
    with serving(work, 60 * TIMEOUT) as served:
        yield served


def client(server: HttpServer) -> http.client.HTTPConnection:
    """A well-behaved client."""
    return http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)


def ask(server: HttpServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """One request on a connection of its own."""
    connection = client(server)
    connection.request(method, path, headers={key.replace("_", "-"): value for key, value in headers.items()})
    response = connection.getresponse()
    answer = response.status, dict(response.getheaders()), response.read()
    connection.close()
    return answer


def silent(server: HttpServer, say: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
    """A client that connects, says so much, and then nothing more."""
    address = ("127.0.0.1", server.server_address[1])
    connection = socket.create_connection(address, timeout=10, source_address=(source, 0))
    connection.sendall(say)
    return connection


def test_a_route_is_answered(server: HttpServer) -> None:
    """The route gets the Accept header; a query string does not matter."""
    status, headers, body = ask(server, "/page?x=1", Accept="text/x-test")

    assert (status, headers["Content-Type"], body) == (200, "text/x-test", PAGE)
    assert headers["Server"].strip() == "gpuwatch"


def test_head_is_get_without_the_body(server: HttpServer) -> None:
    """HEAD tells the length and sends nothing."""
    status, headers, body = ask(server, "/page", "HEAD")

    assert (status, headers["Content-Length"], body) == (200, str(len(PAGE)), b"")


@pytest.mark.parametrize("accepted", ["gzip", "deflate, GZIP;q=0.5", "br, gzip ; q=1"])
def test_gzip_for_those_who_take_it(server: HttpServer, accepted: str) -> None:
    """The packed form is sent where it is asked for."""
    _, headers, body = ask(server, "/page", Accept_Encoding=accepted)

    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body) == PAGE


@pytest.mark.parametrize("accepted", ["identity", "gzip;q=0", "br", ""])
def test_no_gzip_for_the_others(server: HttpServer, accepted: str) -> None:
    """Whoever does not ask for it gets it plain."""
    _, headers, body = ask(server, "/page", Accept_Encoding=accepted)

    assert "Content-Encoding" not in headers
    assert body == PAGE


@pytest.mark.parametrize("path", ["/", "/pag", "/page/", "/../page", "/PAGE", "/%70age"])
def test_any_other_path_is_404(server: HttpServer, path: str) -> None:
    """Paths are exact; the answer names the right ones."""
    status, _, body = ask(server, path)

    assert (status, body) == (404, b"404 try /page, /broken, /work\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_only_reading(server: HttpServer, method: str) -> None:
    """Every method that could change something, known or not, is refused and the connection closed."""
    status, headers, _ = ask(server, "/page", method)

    assert (status, headers["Allow"], headers["Connection"]) == (405, "GET, HEAD", "close")


def test_a_fault_in_a_route_is_500_and_no_more(server: HttpServer, caplog: pytest.LogCaptureFixture) -> None:
    """The client learns that something broke, the log learns what, and the next request is served."""
    status, _, body = ask(server, "/broken")

    assert (status, body) == (500, b"500 see the agent's log\n")
    assert "a fault of ours" in caplog.text
    assert ask(server, "/page")[0] == HTTPStatus.OK


def test_a_connection_serves_many_requests(server: HttpServer) -> None:
    """HTTP/1.1 keeps the connection."""
    connection = client(server)
    for _ in range(3):
        connection.request("GET", "/page")
        assert connection.getresponse().read() == PAGE
    connection.close()


@pytest.mark.parametrize("head", [b"Content-Length: 26", b"Content-Length : 26", b"X\r\nTransfer-Encoding: chunked"])
def test_a_body_is_never_taken_for_a_request(server: HttpServer, head: bytes) -> None:
    """A GET with a body is answered once, and the connection closed; also where its head is not right."""
    hidden = b"GET /broken HTTP/1.1\r\n\r\n"
    connection = silent(server, b"GET /page HTTP/1.1\r\n%s\r\n\r\n%s" % (head, hidden))
    answer = b"".join(iter(lambda: connection.recv(65536), b""))
    connection.close()

    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"GET\r\n\r\n", b"GET /page HTTP/9.9\r\n\r\n"]
)
def test_garbage_is_turned_away(server: HttpServer, garbage: bytes) -> None:
    """What is no request gets a 4xx or 5xx or silence, never a page, and the next client is served."""
    connection = silent(server, garbage)
    answer = connection.recv(65536)
    connection.close()

    assert b" 200 " not in answer
    assert ask(server, "/page")[0] == HTTPStatus.OK


def test_beyond_the_cap_there_is_503_at_once(patient: HttpServer, work: Work) -> None:
    """Where every place is one that we are at work for, others are turned away before that work is done."""
    request = b"GET /work HTTP/1.0\r\n\r\n"
    holding = [silent(patient, request, f"127.0.0.{10 + place}") for place in range(SLOTS)]
    assert all(work.begun.acquire(timeout=10) for _ in holding)
    status = ask(patient, "/page")[0]
    beyond = silent(patient)
    answer = beyond.recv(65536)
    work.done.set()
    served = [connection.recv(12) for connection in holding]
    for connection in (*holding, beyond):
        connection.close()

    assert status == HTTPStatus.SERVICE_UNAVAILABLE
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert served == [b"HTTP/1.1 200"] * SLOTS, "who was worked for is answered"


def test_one_of_a_crowd_waits_for_a_place_and_not_each_in_turn(patient: HttpServer, work: Work) -> None:
    """Who finds every place at work after another has waited in vain is turned away at once, until a place is had."""
    clock = patient.clock
    assert isinstance(clock, CountingClock)
    request = b"GET /work HTTP/1.0\r\n\r\n"

    def crowd() -> list[int]:
        holding = [silent(patient, request, f"127.0.0.{10 + place}") for place in range(SLOTS)]
        assert all(work.begun.acquire(timeout=10) for _ in holding)
        waits = []
        for _ in range(3):
            before = clock.waits
            assert ask(patient, "/page")[0] == HTTPStatus.SERVICE_UNAVAILABLE
            waits.append(clock.waits - before)
        work.done.set()
        for connection in holding:
            assert connection.recv(12) == b"HTTP/1.1 200"
            connection.close()
        return waits

    first = crowd()
    eventually(lambda: not patient.places.taken)
    work.done.clear()
    second = crowd()

    assert [waits > 0 for waits in first] == [True, False, False]
    assert [waits > 0 for waits in second] == [True, False, False]


def test_whoever_waits_longest_makes_room(patient: HttpServer) -> None:
    """Silent clients on every place: the first of them hears 503 and the newcomer is served; the others stay."""
    holding = [silent(patient, b"GET /page", f"127.0.0.{10 + place}") for place in range(SLOTS)]
    status = ask(patient, "/page")[0]
    body = holding[0].recv(65536)
    for connection in holding[1:]:
        connection.sendall(b" HTTP/1.0\r\n\r\n")
    answers = [connection.recv(12) for connection in holding[1:]]
    for connection in holding:
        connection.close()

    assert status == HTTPStatus.OK
    assert body.startswith(b"HTTP/1.1 503 ")
    assert answers == [b"HTTP/1.1 200"] * (SLOTS - 1)


def test_who_has_most_places_makes_room_first(patient: HttpServer) -> None:
    """One client's second connection does not cost another its first, though that one is older."""
    older = silent(patient, b"GET /page", "127.0.0.10")
    greedy = [silent(patient, source="127.0.0.11") for _ in range(PER_CLIENT)]
    status = ask(patient, "/page")[0]
    older.sendall(b" HTTP/1.0\r\n\r\n")
    answer = older.recv(12)
    body = greedy[0].recv(12)
    for connection in (older, *greedy):
        connection.close()

    assert status == HTTPStatus.OK
    assert answer == b"HTTP/1.1 200"
    assert body == b"HTTP/1.1 503"


@pytest.mark.parametrize("say", [b"", b"GET /page HTTP/1.1\r\nX-Slow: "])
def test_silent_clients_lose_their_place(server: HttpServer, say: bytes) -> None:
    """However many clients connect and say nothing, or stop in mid-sentence, others are served after the time-out."""
    holding = [silent(server, say, f"127.0.0.{10 + place}") for place in range(SLOTS)]
    served = soon(server)
    for connection in holding:
        connection.close()

    assert served


def test_a_greedy_client_gets_429_and_leaves_room_for_others(patient: HttpServer) -> None:
    """Whatever one address opens, another is served; and so is the greedy one when it has closed some."""
    greedy = [silent(patient, source="127.0.0.9") for _ in range(PER_CLIENT)]
    beyond = silent(patient, source="127.0.0.9")
    answer = beyond.recv(65536)
    other = ask(patient, "/page")[0]
    for connection in (*greedy, beyond):
        connection.close()

    def again() -> bytes:
        with silent(patient, b"GET /page HTTP/1.0\r\n\r\n", "127.0.0.9") as connection:
            return connection.recv(12)

    assert answer.startswith(b"HTTP/1.1 429 ")
    assert other == HTTPStatus.OK
    eventually(lambda: again() == b"HTTP/1.1 200")


def test_hundreds_of_clients_at_once_are_all_answered(server: HttpServer) -> None:
    """With a page, or with the word that there are too many; none is left without an answer."""
    crowd = [silent(server, b"GET /page HTTP/1.0\r\n\r\n", f"127.0.1.{place}") for place in range(1, 251)]
    answers = [connection.recv(12) for connection in crowd]
    for connection in crowd:
        connection.close()

    assert set(answers) <= {b"HTTP/1.1 200", b"HTTP/1.1 503"}
    assert b"HTTP/1.1 200" in answers
    assert ask(server, "/page")[0] == HTTPStatus.OK


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /" + b"x" * 70_000, b"414"),
        (b"GET /page HTTP/1.1\r\nX-Long: " + b"x" * 70_000, b"431"),
        (b"GET /page HTTP/1.1\r\n" + b"X-Many: x\r\n" * 99 + b"X-Last: " + b"x" * 16_000 + b"\r\n\r\n", b"431"),
        (b"GET /page HTTP/1.1\r\n" + b"X-Many: x\r\n" * 200, b"431"),
    ],
    ids=["line", "header", "headers together", "many headers"],
)
def test_a_head_is_read_up_to_16_kilobytes(server: HttpServer, head: bytes, status: bytes) -> None:
    """A client cannot fill the memory with what it asks."""
    connection = silent(server, head)
    answer = connection.recv(65536)
    connection.close()

    assert answer.split(b" ")[1] == status


def test_a_dripping_client_loses_its_place(server: HttpServer) -> None:
    """The limit is for the whole request: a byte now and then does not extend it."""
    dripping = silent(server, b"GET /page HTTP/1.1\r\nX-Slow: ")
    lasted = drip(dripping)
    dripping.close()

    assert TIMEOUT / 2 <= lasted < 10 * TIMEOUT


def test_closing_cuts_those_who_wait(server: HttpServer) -> None:
    """The end does not wait for a silent client."""
    waiting = silent(server)
    assert ask(server, "/page")[0] == HTTPStatus.OK
    server.close()
    end = waiting.recv(1)
    waiting.close()

    assert end == b""


def soon(server: HttpServer) -> bool:
    """Whether the page is served before long."""
    deadline = time.perf_counter() + 10 * TIMEOUT
    while time.perf_counter() < deadline:
        if ask(server, "/page")[0] == HTTPStatus.OK:
            return True
        SystemClock().sleep(0.05)
    return False


def drip(connection: socket.socket) -> float:
    """Send a byte now and then until the connection breaks; how long that took."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < 10 * TIMEOUT:
        try:
            connection.sendall(b"x")
        except OSError:
            break
        SystemClock().sleep(0.05)
    return time.perf_counter() - begin
