"""The server of the clouds' fakes: each fault happens on the wire as it is named, and what comes is logged."""

import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.clouds.faults import AFTER_EFFECT, RETRY_AFTER_SECONDS, Asked, Fault, FaultPlan, when
from tests.support.clouds.server import CloudServer, Refused, Request, Response, serving
from tests.support.real.certificates import Authority

STATUS = {Refused.THROTTLED: 429, Refused.INTERNAL: 500, Refused.EXPIRED: 401}
SIGNATURE_SECONDS = 900.0
NEVER = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)


@dataclass
class Machines:
    """A cloud with machines that run until they are stopped, in pages of two."""

    running: dict[str, bool] = field(default_factory=lambda: {f"m-{number}": True for number in range(5)})

    def asked(self, request: Request) -> Asked:
        """The path is the operation."""
        operation = request.path.strip("/")
        return Asked(operation=operation, region=request.query.get("region", "here"), change=operation == "stop")

    def answer(self, request: Request) -> Response:
        """List or stop; the signature is its time."""
        signed = request.headers.get("x-signed-at")
        if signed and abs(request.at - datetime.fromisoformat(signed)) > timedelta(seconds=SIGNATURE_SECONDS):
            return Response(status=403, body={"error": "signature expired"})
        if request.path == "/stop":
            self.running[request.json["id"]] = False
            return Response(body={"stopped": request.json["id"]})
        begin = int(request.query.get("token", "0"))
        page = dict(list(self.running.items())[begin : begin + 2])
        return Response(body={"machines": page} | ({"next": begin + 2} if begin + 2 < len(self.running) else {}))

    def refusal(self, request: Request, kind: Refused) -> Response:
        """In its own words."""
        del request
        return Response(status=STATUS[kind], body={"error": kind.value})

    def continues(self, request: Request) -> bool:
        """With a token."""
        return "token" in request.query

    def without_token(self, response: Response) -> Response:
        """The page alone."""
        body: Any = response.body
        return replace(response, body={key: value for key, value in body.items() if key != "next"})


@pytest.fixture
def server() -> Iterator[CloudServer]:
    """Five machines."""
    with serving(Machines()) as server:
        yield server


@dataclass(frozen=True)
class Heard:
    """What a client read."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401  whatever came
        """As JSON."""
        return json.loads(self.body)


def ask(server: CloudServer, path: str, body: object = None, **headers: str) -> Heard:
    """One request by a connection of its own."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=0.3)) as connection:
        content = None if body is None else json.dumps(body)
        connection.request(
            "GET" if body is None else "POST", path, content, {"X-" + key: headers[key] for key in headers}
        )
        answer = connection.getresponse()
        named = {name.lower(): value for name, value in answer.getheaders()}
        return Heard(status=answer.status, headers=named, body=answer.read())


def stop(server: CloudServer, machine: str = "m-0") -> Heard:
    """The change."""
    return ask(server, "/stop", {"id": machine})


def is_running(server: CloudServer, machine: str = "m-0") -> bool:
    """What the cloud itself holds."""
    fake: Any = server.fake
    return bool(fake.running[machine])


def test_without_a_plan_a_request_is_carried_out_and_logged(server: CloudServer) -> None:
    """The log has what was asked, the status, and whether it happened."""
    assert ask(server, "/list").json == {"machines": {"m-0": True, "m-1": True}, "next": 2}
    assert stop(server).json == {"stopped": "m-0"}

    assert [(entry.asked.operation, entry.status, entry.effect) for entry in server.log] == [
        ("list", 200, True),
        ("stop", 200, True),
    ]
    assert [entry.request.json for entry in server.changes()] == [{"id": "m-0"}]
    assert server.count("stop") == 1


@pytest.mark.parametrize("fault", [Fault.RESET_BEFORE, Fault.RESET_AFTER])
def test_a_connection_breaks_before_or_after_the_effect(server: CloudServer, fault: Fault) -> None:
    """The client reads no byte of an answer."""
    server.plan.strike(fault, when(operation="stop"))

    with pytest.raises(NEVER):
        stop(server)

    assert is_running(server) is (fault is Fault.RESET_BEFORE)
    assert [(entry.status, entry.effect) for entry in server.log] == [(None, fault is Fault.RESET_AFTER)]


@pytest.mark.parametrize("fault", [Fault.SILENT_BEFORE, Fault.SILENT_AFTER])
def test_silence_lasts_until_the_client_gives_up(server: CloudServer, fault: Fault) -> None:
    """The connection stays open, and nothing comes."""
    server.plan.strike(fault, when())

    with pytest.raises(TimeoutError):
        stop(server)

    assert is_running(server) is (fault is Fault.SILENT_BEFORE)


@pytest.mark.parametrize("fault", [Fault.THROTTLED, Fault.THROTTLED_FOR])
def test_too_many_calls_are_refused_in_the_clouds_words(server: CloudServer, fault: Fault) -> None:
    """With Retry-After only where it is wanted; nothing happens."""
    server.plan.strike(fault, when())

    heard = stop(server)

    assert (heard.status, heard.json) == (429, {"error": "too many calls"})
    assert heard.headers.get("retry-after") == (str(RETRY_AFTER_SECONDS) if fault is Fault.THROTTLED_FOR else None)
    assert is_running(server)


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER])
def test_an_error_of_the_clouds_own_says_nothing_of_the_effect(server: CloudServer, fault: Fault) -> None:
    """The same answer in both cases."""
    server.plan.strike(fault, when())

    assert stop(server).status == 500
    assert is_running(server) is (fault is Fault.ERROR_BEFORE)


@pytest.mark.parametrize(("fault", "status"), [(Fault.GATEWAY, 502), (Fault.GARBLED, 200)])
def test_something_else_answers_with_a_page(server: CloudServer, fault: Fault, status: int) -> None:
    """HTML, and nothing happens."""
    server.plan.strike(fault, when())

    heard = stop(server)

    assert (heard.status, heard.headers["content-type"], heard.body[:6]) == (status, "text/html", b"<html>")
    assert is_running(server)


def test_half_an_answer_is_shorter_than_it_says(server: CloudServer) -> None:
    """The change has happened, and the connection ends in the middle of its answer."""
    server.plan.strike(Fault.CUT, when())

    with pytest.raises(http.client.IncompleteRead) as caught:
        stop(server)

    assert caught.value.partial == b'{"stopped'
    assert not is_running(server)


def test_a_page_loses_the_way_to_the_next(server: CloudServer) -> None:
    """Only a first page: a page that continues waits for its turn."""
    server.plan.strike(Fault.LOST_TOKEN, when())

    assert "next" in ask(server, "/list?token=2").json
    assert ask(server, "/list").json == {"machines": {"m-0": True, "m-1": True}}
    assert "next" in ask(server, "/list").json


def test_the_page_before_comes_once_more(server: CloudServer) -> None:
    """With the same token as the first time."""
    server.plan.strike(Fault.REPEATED_PAGE, when(operation="list"))
    first = ask(server, "/list").json

    assert ask(server, "/list?token=2").json == first
    assert ask(server, "/list?token=2").json == {"machines": {"m-2": True, "m-3": True}, "next": 4}


def test_reads_after_a_write_are_late(server: CloudServer) -> None:
    """So many reads show what was before it; reads before any write are right."""
    server.plan.strike(Fault.STALE, when(change=False), times=2)
    assert ask(server, "/list").json["machines"]["m-0"] is True

    stop(server)

    assert [ask(server, "/list").json["machines"]["m-0"] for _ in range(3)] == [True, True, False]


def test_a_clock_that_is_ahead_refuses_signatures(server: CloudServer) -> None:
    """The time of the request at the cloud, and the Date of its answer, are an hour ahead; nothing happens."""
    signed = server.clock.now()
    server.plan.strike(Fault.SKEW, when(operation="list"))

    late = ask(server, "/list", **{"Signed-At": signed.isoformat()})
    right = ask(server, "/list", **{"Signed-At": signed.isoformat()})

    assert (late.status, right.status) == (403, 200)
    assert parsedate_to_datetime(late.headers["date"]).astimezone(UTC) - signed > timedelta(minutes=59)


def test_credentials_expire_in_the_middle(server: CloudServer) -> None:
    """From one request on, each is refused in the cloud's words."""
    server.plan.strike(Fault.EXPIRED, when(), skip=2, times=None)

    assert [ask(server, "/list").status for _ in range(4)] == [200, 200, 401, 401]
    server.plan.clear()
    assert ask(server, "/list").status == 200


def test_one_region_is_down_and_the_others_answer(server: CloudServer) -> None:
    """A predicate on the region, without an end."""
    server.plan.strike(Fault.RESET_BEFORE, when(region="north"), times=None)

    for _ in range(2):
        with pytest.raises(NEVER):
            ask(server, "/list?region=north")
        assert ask(server, "/list?region=south").status == 200


def test_an_address_that_is_down_refuses_connections(server: CloudServer) -> None:
    """Nobody listens there any more."""
    server.down()

    with pytest.raises(ConnectionRefusedError):
        ask(server, "/list")


def test_a_connection_is_used_again(server: CloudServer) -> None:
    """As SDKs do, which keep their connections."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=5)) as connection:
        for _ in range(3):
            connection.request("GET", "/list")
            assert connection.getresponse().read().startswith(b"{")


def asked_by_https(server: CloudServer, context: ssl.SSLContext, path: str, body: str | None = None) -> bytes:
    """The body of the answer, by a connection of its own."""
    port = server.server_address[1]
    with closing(http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context)) as connection:
        connection.request("GET" if body is None else "POST", path, body)
        return connection.getresponse().read()


def test_https_is_served_with_a_certificate_of_the_tests(tmp_path: Path) -> None:
    """A client that believes the authority is answered, and a fault strikes inside TLS, too; another client is not."""
    authority = Authority(tmp_path)
    with serving(Machines(), authority=authority) as server:
        assert asked_by_https(server, authority.client(), "/list").startswith(b"{")
        with pytest.raises(ssl.SSLCertVerificationError):
            asked_by_https(server, ssl.create_default_context(), "/list")

        server.plan.strike(Fault.RESET_AFTER, when())
        with pytest.raises((*NEVER, ssl.SSLError)):
            asked_by_https(server, authority.client(), "/stop", '{"id": "m-0"}')

        assert not is_running(server)


def test_a_defect_of_the_fake_fails_the_test() -> None:
    """It is no fault of the plan."""

    def play() -> None:
        with serving(Machines()) as server:
            assert stop(server, "").status == 200
            assert ask(server, "/stop", {}).status == 599

    with pytest.raises(KeyError):
        play()


def test_a_plan_goes_from_strike_to_strike() -> None:
    """The first that fits is spent; what may not strike now waits; skipped requests pass."""
    plan = FaultPlan()
    plan.strike(Fault.CUT, when(operation="stop"), skip=1)
    plan.strike(Fault.GATEWAY, when(change=False), times=2)
    read, change = Asked(operation="list"), Asked(operation="stop", change=True)

    took = [plan.take(asked, lambda _: True) for asked in (change, read, change, read, read, change)]

    assert took == [None, Fault.GATEWAY, Fault.CUT, Fault.GATEWAY, None, None]
    plan.strike(Fault.STALE, when())
    assert plan.take(read, lambda _: False) is None
    assert plan.waiting(Fault.STALE)


def test_what_happens_after_the_effect_is_named_so() -> None:
    """The sets that the fault matrix asks."""
    assert {fault for fault in Fault if "after the effect" in fault.value} == AFTER_EFFECT
