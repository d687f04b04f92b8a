"""POST /v1/notice and controller/observe/wall_client.py: who may ask for what, and what the answer comes to."""

import http.client
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gpuwatch.agent import wall as module
from gpuwatch.agent.posted import posted_app
from gpuwatch.agent.wall import PATH, Terminals, notices
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.observe.wall_client import HostNote, send_to_hosts
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock, SystemClock
from gpuwatch.runtime.http.request import TEXT, Request, Response
from gpuwatch.runtime.http.server import HttpServer, ServerAuth
from tests.support.builders.fleet import NOW, a_node
from tests.support.fakes.fake_ttys import Seat, at
from tests.support.fakes.host import FolderHost
from tests.support.fakes.scraped_agent import an_agent

AT = "2026-01-05T01:00:00Z"
NOTICE = msgspec.json.encode({"key": "n1", "verb": "stop", "stop_at": AT})
HARMLESS = re.compile(rb"[\x20-\x7e\n]*")
CLOCK = ManualClock(wall=NOW)
OPEN = ServerAuth()


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host where nobody is logged in."""
    return FolderHost(tmp_path)


@pytest.fixture
def seat(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seat]:
    """Somebody at a terminal, and a stand-in for wall(1) that writes there."""
    with Seat() as taken:
        monkeypatch.setattr(module, "_WALL", ("tee", str(taken.path)))
        yield taken


def gate(authorization: str, _: str, __: set[str]) -> Response | None:
    """Lets those in who know the word."""
    if authorization == "Basic Z3B1OndhdGNo":  # gpu:watch
        return None
    return Response(status=HTTPStatus.UNAUTHORIZED, body=b"401\n", content_type=TEXT)


@contextmanager
def an_asked_agent(host: FolderHost, *seats: Seat, door: ServerAuth = OPEN) -> Iterator[str]:
    """The agent's server with the terminals of that host; its URL."""
    terminals = Terminals(host.clock, at(host, *seats), "box", lambda: "i-1")
    page = {"/metrics": lambda _: Response(body=b"page", content_type=TEXT)}
    server = HttpServer(
        *("127.0.0.1", 0, page),
        clock=SystemClock(),
        max_connections=8,
        timeout_seconds=5,
        door=door,
        app=posted_app({PATH: notices(terminals)}, tuple(page)),
    )
    server.start()
    try:
        yield server.url
    finally:
        server.close()
        terminals.stop()


def post(
    url: str, body: bytes = NOTICE, path: str = "/v1/notice", method: str = "POST", **headers: str
) -> tuple[int, str]:
    """Status and body of one request."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    given = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    connection.request(method, path, body, given)
    response = connection.getresponse()
    answer = response.status, response.read().decode()
    connection.close()
    return answer


def test_a_notice_is_answered_with_what_came_of_it(host: FolderHost, seat: Seat) -> None:
    """How many terminals have it, and which have not and why."""
    with Seat(messages=False) as closed, an_asked_agent(host, seat, closed) as url:
        status, body = post(url, path="/v1/notice?x=1")
        refused = {closed.name: "its owner wants no messages (mesg n)"}

    assert status == HTTPStatus.OK
    assert msgspec.json.decode(body) == {"reached": 1, "refused": refused, "doubts": [], "repeated": False}
    assert b"to be stopped at 2026-01-05 01:00 UTC" in seat.shown()


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"method": "GET"}, 405),
        ({"method": "DELETE"}, 405),
        ({"method": "PUT"}, 405),
        ({"path": "/metrics"}, 405),
        ({"path": "/v1/notice/"}, 404),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
        ({"body": NOTICE + b" " * 4096}, 413),
        ({"body": NOTICE + b" " * 40_960}, 413),
        ({"body": b""}, 400),
        ({"body": b'{"key": "n1"}'}, 400),
        ({"body": NOTICE.replace(b"stop_at", b"text")}, 400),
        ({"body": NOTICE.replace(b'"stop"', b'"reboot"')}, 400),
        ({"body": NOTICE.replace(b"Z", b"")}, 400),
        ({"body": NOTICE.replace(AT.encode(), b"0001-01-01T00:00:00+14:00")}, 400),
        ({"body": NOTICE.replace(b"{", b'{"withdrawn": true,')}, 400),
        ({"body": NOTICE.replace(b"n1", b"n" * 1001)}, 400),
    ],
)
def test_anything_else_is_refused(host: FolderHost, seat: Seat, asked: dict[str, Any], status: int) -> None:
    """Another method, path or type, too much, and whatever is no order: nothing is written."""
    with an_asked_agent(host, seat) as url:
        assert post(url, **asked)[0] == status
    assert seat.shown() == b""


def test_it_is_behind_the_agents_own_gate(host: FolderHost, seat: Seat) -> None:
    """Whoever may not read may not write."""
    with an_asked_agent(host, seat, door=ServerAuth(gate=gate)) as url:
        closed = post(url)[0]
        before = seat.shown()

        assert (closed, before) == (401, b"")
        assert post(url, Authorization="Basic Z3B1OndhdGNo")[0] == HTTPStatus.OK
    assert b"gpuwatch snooze 4h" in seat.shown()


def test_too_soon_says_when_to_come_again(host: FolderHost, seat: Seat) -> None:
    """429, in words."""
    with an_asked_agent(host, seat) as url:
        post(url)

        assert post(url, NOTICE.replace(b"n1", b"n2")) == (
            429,
            "429 another notice was written less than a minute ago\n",
        )


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
ORDERS = st.fixed_dictionaries(
    {"key": st.text()},
    optional={
        "verb": st.sampled_from(["stop", "terminate"]) | st.text(),
        "stop_at": st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat) | st.text() | JSON,
        "withdrawn": st.booleans() | JSON,
        "text": st.text(),
    },
)


@given(body=st.binary(max_size=200) | (JSON | ORDERS).map(msgspec.json.encode), name=st.text(), node=st.text())
@example(body=NOTICE, name="\x1b]0;x\x07\x9b", node="\x1b[2J\x85\u202e")
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_control_characters_reach_a_terminal(
    host: FolderHost, seat: Seat, body: bytes, name: str, node: str
) -> None:
    """Whatever is asked and whatever the host is called: printable ASCII and line ends; never a 500."""
    terminals = Terminals(host.clock, at(host, seat), name, lambda: node)
    request = Request(
        method="POST", target="/v1/notice", client="::1", headers={"content-type": "application/json"}, body=body
    )
    answer = posted_app({PATH: notices(terminals)}, ())(request)
    terminals.stop()
    shown = seat.shown()

    assert HARMLESS.fullmatch(shown), shown
    assert (answer.status is HTTPStatus.OK) or (answer.status is HTTPStatus.BAD_REQUEST and not shown)


def note(url: str, **more: Any) -> tuple[ObserveSettings, HostNote]:  # noqa: ANN401  a note's fields
    """A note to the agent at that URL."""
    fields: dict[str, Any] = {"key": "n1", "stop_at": NOW + timedelta(minutes=30), **more}
    return ObserveSettings(targets={"i-1": url}, timeout=2.0), HostNote(
        node=fields.pop("node", a_node("i-1")), **fields
    )


def why_not(url: str, **more: Any) -> str | None:  # noqa: ANN401  likewise
    """What a controller learns of one note."""
    settings, one = note(url, **more)
    (said,) = send_to_hosts(settings, CLOCK, [one])
    return said


def test_a_note_is_written_and_withdrawn(host: FolderHost, seat: Seat) -> None:
    """The two sides understand each other, a second time too."""
    host.clock.wall = NOW
    with an_asked_agent(host, seat) as url:
        said = [why_not(url, verb=Verb.TERMINATE), why_not(url), why_not(url, stop_at=None), why_not(url, stop_at=None)]
    shown = seat.shown()

    assert said == [None] * 4
    assert (shown.count(b"be terminated, for good"), shown.count(b"stays on")) == (1, 1)


def test_a_host_where_nobody_reads_is_no_success(host: FolderHost) -> None:
    """Nobody there, or nobody who takes it, each in words; there is nothing to withdraw, which is done."""
    with Seat(messages=False) as closed, an_asked_agent(host) as url:
        nobody = why_not(url)
        at(host, closed)
        refused = why_not(url, key="n2")

        assert why_not(url, stop_at=None) is None
    assert nobody == "no terminal was reached: nobody is logged in"
    assert refused == f"no terminal was reached: {closed.name}: its owner wants no messages (mesg n)"


ANSWERS = {
    "an old agent": (405, b"405 only GET, HEAD\n", "its agent does not write on terminals: it is too old"),
    "another server": (404, b"", "its agent is too old"),
    "no rights": (401, b"", "signals.username"),
    "too soon": (429, b"", "less than a minute ago"),
    "broken": (500, b"", "HTTP 500"),
    "elsewhere": (302, b"", "HTTP 302"),
    "no answer": (200, b"fine", "its agent's answer is not valid"),
    "a rude answer": (200, b'{"reached":0,"refused":{"pts/1":"\\u001b[2J"}}', "pts/1: \\x1b[2J"),
    "no end": (200, b" " * 1_000_000, "its agent's answer is not valid"),
}


@pytest.mark.parametrize(("status", "body", "words"), ANSWERS.values(), ids=ANSWERS)
def test_what_goes_wrong_is_told_in_words(status: int, body: bytes, words: str) -> None:
    """Each with its remedy where there is one."""

    def rule(answer: Any) -> None:  # noqa: ANN401  the stand-in's handler
        answer.rfile.read(int(answer.headers["Content-Length"]))
        answer.send_response(status)
        answer.send_header("Location", "/elsewhere")
        answer.send_header("Content-Length", str(len(body)))
        answer.end_headers()
        answer.wfile.write(body)

    with an_agent(rule) as url:
        assert words in (why_not(url) or "")


def test_each_note_has_its_own_result() -> None:
    """In its place: one who cannot be reached, one who never answers, and those who are not even asked."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        _, one = note("http://127.0.0.1:1")
        never = f"http://127.0.0.1:{silent.getsockname()[1]}"
        settings = ObserveSettings(targets={"i-1": "http://127.0.0.1:1", "i-2": never}, timeout=0.3)
        nodes = [one.node, a_node("i-2"), replace(one.node, state=NodeState.STOPPED), a_node("i-3", address=None)]
        notes = [replace(one, node=node) for node in nodes]
        said = send_to_hosts(settings, CLOCK, [*notes, replace(one, stop_at=NOW)])

    assert "could not be asked" in (said[0] or "")
    assert said[1:] == [
        "its agent did not answer within 0.3s",
        "it is stopped",
        "the cloud reports no address for it; set signals.targets",
        "its time has come",
    ]
    assert send_to_hosts(settings, CLOCK, []) == []


def test_a_password_that_cannot_be_read_asks_nobody() -> None:
    """Every note has the reason."""
    settings, one = note("http://127.0.0.1:1")
    closed = replace(settings, username="gpu", password_file="/nowhere/password")  # noqa: S106  no password

    assert "/nowhere/password" in (send_to_hosts(closed, CLOCK, [one])[0] or "")
