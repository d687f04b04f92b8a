"""Asking agents: only a whole, fresh, possible answer of the right node is believed; all else is unknown, with why."""

import threading
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.controller.observe.scrape import ObserveSettings, ScrapeSource, read_answer
from gpuwatch.controller.timings import CONFIRMATION, VERDICT
from gpuwatch.model.activity import State
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.fleet import NOW, a_node, a_verdict
from tests.support.builders.last_busy import busy_last, cpu_evidence
from tests.support.fakes.scraped_agent import a_good_agent, an_agent, encoded

MAX_AGE = 30.0


def test_a_fresh_answer_of_the_node_that_was_asked_is_believed() -> None:
    """The verdict comes through as it is."""
    verdict = a_verdict("i-1", State.BUSY)

    assert read_answer(encoded(verdict), a_node("i-1"), NOW, MAX_AGE).verdict == verdict


def test_an_agent_may_call_itself_by_its_nodes_name() -> None:
    """A node's id or its name will do."""
    node = a_node("i-1", name="trainer-3")

    assert read_answer(encoded(a_verdict("trainer-3")), node, NOW, MAX_AGE).verdict is not None


DOUBTS = {
    "nothing": (b"", "no verdict"),
    "no JSON": (b"<html>502 Bad Gateway</html>", "no verdict"),
    "half an answer": (encoded(a_verdict())[:-40], "no verdict"),
    "another document": (b'{"status": "ok"}', "no verdict"),
    "a number for a text": (encoded(a_verdict()).replace(b'"i-1"', b"1", 1), "no verdict"),
    "not a number": (encoded(a_verdict()).replace(b'"held_seconds":7200.0', b'"held_seconds":NaN'), "no verdict"),
    "another node": (encoded(a_verdict("i-2")), "'i-2'"),
    "another schema": (encoded(replace(a_verdict(), schema=2)), "schema 2"),
    "old by its own count": (encoded(replace(a_verdict(), age_seconds=31.0)), "stale"),
    "an old time stamp": (encoded(replace(a_verdict(), at=NOW - timedelta(hours=2))), "stale"),
    "a time to come": (encoded(replace(a_verdict(), at=NOW + timedelta(minutes=1))), "stale"),
    "a time without a zone": (encoded(a_verdict()).replace(b"Z", b"", 1), "zone"),
    "a beginning without a zone": (
        encoded(a_verdict()).replace(b'"since":"2026-03-02T10:00:00Z"', b'"since":"2026-03-02T10:00:00"'),
        "zone",
    ),
    "busy last without a zone": (
        encoded(busy_last(a_verdict(), (cpu_evidence(), 90.0))).replace(b":58:30Z", b":58:30"),
        "zone",
    ),
    "busy in time to come": (encoded(busy_last(a_verdict(), (cpu_evidence(), -90.0))), "negative"),
    "busy without end": (encoded(busy_last(a_verdict(), *[(cpu_evidence(), 90.0)] * 65)), "more than 64"),
    "a negative age": (encoded(replace(a_verdict(), age_seconds=-1.0)), "negative"),
    "a GPU twice": (encoded(replace(a_verdict(), gpus=a_verdict().gpus * 2)), "twice"),
    "a document without a bottom": (b'{"schema":1,"more":' + b"[" * 100_000, "no verdict"),
    "far too much": (b" " * 1_000_001, "too large"),
}


@pytest.mark.parametrize(("body", "why"), DOUBTS.values(), ids=DOUBTS)
def test_a_doubtful_answer_is_unknown_and_says_why(body: bytes, why: str) -> None:
    """The node's activity is unknown, never idle."""
    signal = read_answer(body, a_node(), NOW, MAX_AGE)
    node = a_node(signal=signal)

    assert node.activity.state is State.UNKNOWN
    assert why in (node.activity.doubt or "")


@given(st.binary(max_size=300))
def test_no_bytes_whatever_break_the_reader(body: bytes) -> None:
    """Garbage is an answer in words, not an exception."""
    assert read_answer(body, a_node(), NOW, MAX_AGE).failure


@given(place=st.integers(0, 400), byte=st.integers(0, 255))
def test_one_broken_byte_never_makes_a_busy_node_idle(place: int, byte: int) -> None:
    """A verdict damaged on its way is still busy, or unknown."""
    body = bytearray(encoded(a_verdict("i-1", State.BUSY)))
    body[place % len(body)] = byte

    signal = read_answer(bytes(body), a_node("i-1"), NOW, MAX_AGE)

    assert a_node(signal=signal).activity.state in {State.BUSY, State.UNKNOWN}


def a_source(timeout: float = 0.3, **targets: str) -> ScrapeSource:
    """A source that knows these agents."""
    named = {name.replace("_", "-"): url for name, url in targets.items()}
    return ScrapeSource(
        settings=ObserveSettings(timeout=timeout, targets=named), clock=SystemClock(), max_age_seconds=MAX_AGE
    )


def test_what_answers_take_is_counted_with_those_that_do_not_come_in_time() -> None:
    """By question; a node that cannot be reached, or refuses, answers nothing and is not counted."""
    told_of: list[tuple[float, tuple[str, ...]]] = []
    enough = threading.Event()

    def silent(_: BaseHTTPRequestHandler) -> None:
        enough.wait(10)

    def refuses(request: BaseHTTPRequestHandler) -> None:
        request.send_response(401)
        request.end_headers()

    with an_agent(a_good_agent) as good, an_agent(silent) as late, an_agent(refuses) as closed:
        source = a_source(i_1=good, i_2=late, i_3=closed)
        source = replace(source, answered=lambda seconds, question: told_of.append((seconds, question)))
        source.observe([a_node("i-1"), a_node("i-2"), a_node("i-3")])
        source.confirm(a_node("i-1"))
        enough.set()

    assert [question for _, question in told_of] == [(VERDICT,), (VERDICT,), (CONFIRMATION,)]
    assert max(seconds for seconds, _ in told_of) >= source.settings.timeout - 0.01


def test_an_agent_that_never_stops_talking_is_cut_off() -> None:
    """An answer without end is refused at its size, not read into memory."""

    def babble(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        for _ in range(3000):
            request.wfile.write(b" " * 1000)

    with an_agent(babble) as url:
        signal = a_source(timeout=10.0, i_1=url).confirm(a_node("i-1"))

    assert signal.failure == "its agent's answer is too large to be a verdict"


def test_the_address_of_the_cloud_leads_to_the_agents_port() -> None:
    """Without a target of its own a node is asked at its address; IPv6 in brackets."""
    settings = ObserveSettings(port=9999)

    assert settings.base_url(a_node(address="10.1.2.3")) == "http://10.1.2.3:9999"
    assert settings.base_url(a_node(address="fd00::1")) == "http://[fd00::1]:9999"
