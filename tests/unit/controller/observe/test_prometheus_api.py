"""Answers of a Prometheus-compatible API: whole, without a remark, of the moment asked about, or a doubt in words."""

import json
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.controller.observe.exporters import DIALECTS
from gpuwatch.controller.observe.prometheus_api import Answer, PromApi, read_answer
from gpuwatch.controller.observe.promql import PromqlSource
from gpuwatch.controller.observe.settings import ObserveSettings, PromqlSettings
from gpuwatch.controller.observe.verdicts import Moment, Target, agents_signal, exporters_signal
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Fleet
from gpuwatch.model.measurement import MetricQuery
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import NOW, a_node
from tests.support.fakes.scraped_agent import an_agent

T = NOW.timestamp()


def body(result: object = (), kind: str = "vector", **more: object) -> bytes:
    """An answer as the API gives it."""
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}, **more}).encode()


def a_row(value: str = "1", at: float = T, **labels: str) -> dict[str, object]:
    """One row of a vector."""
    return {"metric": labels, "value": [at, value]}


def test_rows_and_numbers_are_read() -> None:
    """A vector has labels and values, a scalar a value alone."""
    assert read_answer(200, body([a_row("0.5", job="x")]), NOW) == Answer(rows=(({"job": "x"}, 0.5),))
    assert read_answer(200, body([T, "2"], "scalar"), NOW) == Answer(scalar=2.0)


def test_series_are_read() -> None:
    """A matrix has labels and points at the steps that were asked for, with holes or without."""
    rows = [{"metric": {"job": "x"}, "values": [[T + 60, "0.5"], [T + 180, "NaN"]]}]
    ((labels, points),) = read_answer(200, body(rows, "matrix"), (T, 60.0)).series

    assert (labels, points[0], points[1][0]) == ({"job": "x"}, (T + 60, 0.5), T + 180)
    assert math.isnan(points[1][1])


@pytest.mark.parametrize(
    ("result", "kind", "why"),
    [
        ([a_row()], "vector", "the query gives a vector, not series"),
        ([{"metric": {}, "values": [[T + 30, "1"]]}], "matrix", "answered for another time"),
        ([{"metric": {}, "values": [[T, "one"]]}], "matrix", "no matrix"),
    ],
)
def test_doubtful_series_are_none(result: object, kind: str, why: str) -> None:
    """Another kind, other steps, or what is no number."""
    answer = read_answer(200, body(result, kind), (T, 60.0))

    assert answer.series == ()
    assert why in (answer.doubt or "")


DOUBTS = {
    "nothing": (200, b"", "no answer of its API"),
    "a page of a proxy": (502, b"<html>", "HTTP 502"),
    "another program": (
        404,
        b"<h1>Not Found</h1>",
        "another program than Prometheus answers (HTTP 404); check the URL",
    ),
    "a login page": (302, b"", "another program than Prometheus answers (HTTP 302)"),
    "a proxy": (502, b"", "Prometheus gave HTTP 502"),
    "half an answer": (200, body([a_row()])[:-9], "no answer of its API"),
    "an error": (422, b'{"status":"error","errorType":"execution","error":"too many samples"}', "too many samples"),
    "an error with data": (200, body([a_row()]).replace(b"success", b"error"), "refused"),
    "a warning": (200, body([a_row()], warnings=["store-2 did not answer"]), "store-2 did not answer"),
    "a remark": (200, body([a_row()], infos=["metric might not be a counter"]), "might not be a counter"),
    "a part": (200, body([a_row()], isPartial=True), "lacks"),
    "no data": (200, b'{"status":"success"}', "refused"),
    "another time": (200, body([a_row(at=T - 15)]), "another time"),
    "one row of another time": (200, body([a_row(), a_row(at=T + 1)]), "another time"),
    "a time that is none": (200, body([a_row()]).replace(str(T).encode(), b"1e999"), ""),
    "a scalar of another time": (200, body([T - 15, "2"], "scalar"), "another time"),
    "a matrix": (200, body([], "matrix"), "matrix"),
    "a value that is none": (200, body([a_row("one")]), "no vector"),
    "a value without quotes": (200, body([{"metric": {}, "value": [T, 1]}]), "no vector"),
    "rows without labels": (200, body([{"value": [T, "1"]}]), "no vector"),
    "a document without a bottom": (200, b'{"status":' + b"[" * 100_000, "no answer of its API"),
    "far too much": (200, b" " * (64 * 1024**2 + 1), "too large"),
}


@pytest.mark.parametrize(("status", "told", "why"), DOUBTS.values(), ids=DOUBTS)
def test_a_doubtful_answer_has_no_rows_and_says_why(status: int, told: bytes, why: str) -> None:
    """Nothing of it is used."""
    answer = read_answer(status, told, NOW)

    assert (answer.rows, answer.scalar) == ((), None)
    assert answer.doubt is not None
    assert why in answer.doubt


@given(st.binary(max_size=300), st.integers(100, 599))
def test_no_bytes_whatever_break_the_reader(told: bytes, status: int) -> None:
    """Garbage is a doubt, not an exception."""
    assert read_answer(status, told, NOW).doubt


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.sampled_from([T, str(T), "NaN", "+Inf", "-0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(JSON, st.sampled_from(["vector", "scalar", "matrix", "string", ""]))
def test_no_document_whatever_breaks_the_reader(result: object, kind: str) -> None:
    """The envelope is right, and what is in it may be anything."""
    answer = read_answer(200, body(result, kind), NOW)

    assert answer.doubt is not None or answer.rows == () or kind == "vector"


NUMBERS = st.floats() | st.sampled_from([0.0, 1.0, 2.0, 13.0, 20.0, 40.0, T - 3, T, T + 60])


@pytest.mark.parametrize("name", sorted(DIALECTS))
@given(data=st.data())
def test_no_numbers_whatever_break_the_judgement_or_hide_work(name: str, data: st.DataObject) -> None:
    """Each query may have answered with any number or none; where one shows work the node is busy or unknown."""
    dialect = DIALECTS[name]
    parts = ["future", "split"]
    parts += [f"{part}:{sign.name}" for sign in dialect.signs for part in ("max", "samples", "gpus", "at", "covered")]
    values = data.draw(st.dictionaries(st.sampled_from(parts), NUMBERS))
    moment = Moment(at=NOW, settings=PromqlSettings(dialect=name), max_age_seconds=30.0)  # type: ignore[arg-type]
    signal = exporters_signal(a_node("i-1", gpu_count=2), Target(labels=("x",), values=values), moment, dialect)
    activity = a_node("i-1", signal=signal).activity
    working = [s for s in dialect.signs if s.says is State.BUSY and values.get(f"max:{s.name}", 0.0) >= s.limit]

    assert not working or activity.state in {State.BUSY, State.UNKNOWN}
    assert activity.state in {State.BUSY, State.UNKNOWN} or activity.held_seconds <= moment.settings.lookback


@given(
    values=st.dictionaries(st.sampled_from(["idle", "idle_at", "cycle_age", "samples", "gpu_idle", "future"]), NUMBERS),
    states=st.dictionaries(st.sampled_from([*State, "lazy"]).map(str), NUMBERS, max_size=2),
    gpus=st.dictionaries(st.sampled_from([*State, "lazy"]).map(str), NUMBERS, max_size=2),
)
def test_no_rows_whatever_make_an_agent_idle_that_does_not_say_so(
    values: dict[str, float], states: dict[str, float], gpus: dict[str, float]
) -> None:
    """Idle is a node whose agent says idle, alone, with an idle time of the same scrape."""
    target = Target(labels=("x",), values=values, states={"state": states, "gpus": gpus})
    moment = Moment(at=NOW, settings=PromqlSettings(), max_age_seconds=30.0)
    activity = a_node("i-1", signal=agents_signal(a_node("i-1"), target, moment)).activity

    assert activity.state is not State.IDLE or (list(states) == ["idle"] and activity.held_seconds == values["idle"])


Rule = Callable[[BaseHTTPRequestHandler], None]


def answering(result: bytes, *, date: datetime | None = NOW, status: int = 200, asked: list[str] | None = None) -> Rule:
    """A server that gives this answer, at that time by its clock."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        sent = request.rfile.read(int(request.headers["Content-Length"])).decode()
        if asked is not None:
            asked.append(f"{request.headers['Authorization']} {request.headers['X-Scope-OrgID']} {sent}")
        request.send_response_only(status)
        if date is not None:
            request.send_header("Date", format_datetime(date))
        request.send_header("Content-Length", str(len(result)))
        request.send_header("Location", "http://127.0.0.1:1/")
        request.end_headers()
        request.wfile.write(result)

    return answer


@pytest.fixture
def served() -> Callable[..., Answer]:
    """Asks a server with that rule one thing."""

    def ask(rule: Rule, **settings: object) -> Answer:
        with an_agent(rule) as url:
            api = PromApi(settings=PromqlSettings(url=url, timeout=2.0, **settings), clock=ManualClock(wall=NOW))  # type: ignore[arg-type]
            return api.instant({"up": 'up{job="a&b"}'}, NOW)["up"]

    return ask


def test_a_query_goes_past_caches_and_refuses_parts(served: Callable[..., Answer], tmp_path: Path) -> None:
    """With the token of the file and the tenant's header, at the time that was asked about, by every engine's name."""
    token, asked = tmp_path / "token", list[str]()
    token.write_text("a-token\n")
    answer = served(answering(body([a_row()]), asked=asked), bearer_file=str(token), headers={"X-Scope-OrgID": "gpus"})
    who, tenant, sent = asked[0].rsplit(" ", 2)

    assert answer.rows == (({}, 1.0),)
    assert (who, tenant) == ("Bearer a-token", "gpus")
    assert {name: values[0] for name, values in parse_qs(sent).items()} == {
        "query": 'up{job="a&b"}',
        "time": f"{T:.3f}",
        "timeout": "2000ms",
        "nocache": "1",
        "partial_response": "false",
        "deny_partial_response": "1",
        "dedup": "true",
    }


REFUSED = {
    "its clock is ahead": (answering(body([a_row()]), date=NOW + timedelta(seconds=9)), "9s ahead of ours"),
    "its clock is behind": (answering(body([a_row()]), date=NOW - timedelta(minutes=2)), "-2m ahead of ours"),
    "it has no clock": (answering(body([a_row()]), date=None), "does not say what time it is"),
    "it wants a password": (answering(b"", status=401), "HTTP 401"),
}


@pytest.mark.parametrize(("rule", "why"), REFUSED.values(), ids=REFUSED)
def test_a_server_that_cannot_be_believed_is_a_doubt(served: Callable[..., Answer], rule: Rule, why: str) -> None:
    """Its answer is not used, whatever it is."""
    answer = served(rule)

    assert answer.rows == ()
    assert why in (answer.doubt or "")


SETTINGS = {
    "no URL": ({"url": None}, "signals.promql.url is not set"),
    "no file": ({"bearer_file": "/nowhere/token"}, "signals.promql.bearer_file: /nowhere/token cannot be read"),
    "a secret in the clear": ({"url": "http://192.0.2.1", "bearer_file": "FILE"}, "goes out over https only"),
    "a header that is none": ({"headers": {"X": "a\nb"}}, "asked"),
}


@pytest.mark.parametrize(("settings", "why"), SETTINGS.values(), ids=SETTINGS)
def test_what_the_settings_get_wrong_leaves_the_fleet_unknown(
    settings: dict[str, object], why: str, tmp_path: Path
) -> None:
    """Every node says why; no secret is in it; nothing raises."""
    (tmp_path / "token").write_text("s3cret")
    document = {"url": "http://127.0.0.1:1", **settings}
    document = {key: str(tmp_path / "token") if value == "FILE" else value for key, value in document.items()}
    setting = ObserveSettings(source="promql", promql=PromqlSettings(**document))  # type: ignore[arg-type]
    source = PromqlSource.from_settings(setting, ManualClock(wall=NOW), 30.0)
    node = source.observe([a_node("i-1")]).nodes[0]
    measured = source.measure(Fleet(observed_at=NOW, nodes=()), [MetricQuery(pool="p", name="x", expression="1")])[0]

    assert node.activity.state is State.UNKNOWN
    assert why in (node.activity.doubt or "")
    assert (measured.value, why in (measured.doubt or "")) == (None, True)
    assert "s3cret" not in f"{node.activity.doubt} {measured.doubt}"
