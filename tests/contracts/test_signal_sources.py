"""Every source of signals keeps every sentence of `controller.observe.NodeReportSource`: one suite, run on each."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import pytest

from gpuwatch.controller.observe import NodeReportSource
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Fleet, Node, NodeReport
from gpuwatch.model.measurement import MetricQuery
from tests.support.builders.exporters import MAX_AGE
from tests.support.fakes.mute_servers import UNREACHABLE
from tests.support.fakes.scraped_agent import an_agent
from tests.support.fakes.signal_sources import AT, CAST, PATIENT, SOURCES, every_source, nowhere, the_nodes

UNSEEN = [name for name, role in CAST.items() if role.state is State.UNKNOWN]
QUERIES = [
    MetricQuery(pool="default", name="gpu_utilization"),
    MetricQuery(pool="default", name="no_such_number"),
    MetricQuery(pool="default", name="mine", expression="sum("),
    MetricQuery(pool="nobodys", name="gpu_utilization"),
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, NodeReportSource]]:
    """All of them, made once."""
    with every_source(tmp_path_factory.mktemp("sources")) as sources:
        yield sources


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.component("prometheus")) for name in SOURCES])
def source(request: pytest.FixtureRequest, sources: dict[str, NodeReportSource]) -> NodeReportSource:
    """Each source in turn."""
    return sources[request.param]


def seen(source: NodeReportSource) -> dict[str, Node]:
    """What a round sees of the cast."""
    return {node.id: node for node in source.observe(the_nodes()).nodes}


# A round's question


def test_every_node_comes_back_in_its_place(source: NodeReportSource) -> None:
    """With nothing changed but its signal: what cannot be seen is not left out."""
    fleet = source.observe(the_nodes())

    assert [node.id for node in fleet.nodes] == list(CAST)
    assert [(node.name, node.state, node.address) for node in fleet.nodes] == [
        (node.name, node.state, node.address) for node in the_nodes()
    ]
    assert fleet.observed_at == AT


def test_no_node_at_all_is_an_empty_fleet(source: NodeReportSource) -> None:
    """A fleet may be scaled to zero."""
    assert source.observe([]).nodes == ()


def test_each_node_is_what_its_newest_word_says(source: NodeReportSource) -> None:
    """And no doubtful neighbour changes it: a node that cannot be seen costs the others nothing."""
    assert {name: node.activity.state for name, node in seen(source).items()} == {
        name: role.state for name, role in CAST.items()
    }


@pytest.mark.parametrize("name", UNSEEN)
def test_every_doubt_is_a_sentence(source: NodeReportSource, name: str) -> None:
    """A node is never idle on doubt; people read why, on one line."""
    assert_doubtful(seen(source)[name].signal)


def test_an_idle_node_says_for_how_long(source: NodeReportSource) -> None:
    """As far back as the source can see."""
    assert seen(source)["i-idle"].activity.held_seconds >= 3300


def test_what_is_believed_is_young_and_says_how_old_it_is(source: NodeReportSource) -> None:
    """The age of what was measured, when it was received, and from which node it is."""
    for name in ("i-idle", "i-busy"):
        signal = seen(source)[name].signal
        verdict = signal.verdict

        assert verdict is not None
        assert 0.0 <= verdict.age_seconds <= MAX_AGE
        assert abs((AT - verdict.at).total_seconds()) <= MAX_AGE
        assert verdict.at.tzinfo is not None
        assert signal.received_at == AT
        assert len(verdict.gpus) in {0, 2}


# The last question before an action


def test_an_idle_node_is_confirmed(source: NodeReportSource) -> None:
    """By what it says now."""
    signal = source.confirm(the_nodes()[0])

    assert signal.failure is None
    assert signal.verdict is not None
    assert signal.verdict.activity.state is State.IDLE


@pytest.mark.parametrize("name", [name for name in UNSEEN if "twin" not in name])
def test_nothing_that_is_in_doubt_is_confirmed(source: NodeReportSource, name: str) -> None:
    """An old answer, one of the future, none. That another node has its name shows only in a round, of all nodes."""
    node = next(node for node in the_nodes() if node.id == name)

    assert_doubtful(source.confirm(node))


def assert_doubtful(signal: NodeReport) -> None:
    """It is unknown, for a reason on one line."""
    activity = replace(the_nodes()[0], signal=signal).activity

    assert activity.state is State.UNKNOWN
    assert activity.doubt
    assert activity.doubt.isprintable()


# Numbers of pools


def test_every_number_asked_for_is_answered_in_its_place(source: NodeReportSource) -> None:
    """One that is not known, an expression that cannot be read and an empty pool are doubts in words."""
    values = source.measure(source.observe(the_nodes()), QUERIES)

    assert [(value.pool, value.name) for value in values] == [(query.pool, query.name) for query in QUERIES]
    assert all((value.value is None) == bool(value.doubt) for value in values), values
    assert [value.value for value in values[1:]] == [None] * 3
    assert source.measure(Fleet(observed_at=AT, nodes=()), []) == ()


# A source that fails


def refusing(request: BaseHTTPRequestHandler) -> None:
    """An error of the server's own."""
    request.send_response(500)
    request.end_headers()


def redirecting(request: BaseHTTPRequestHandler) -> None:
    """The answer is elsewhere."""
    request.send_response(302)
    request.send_header("Location", "http://127.0.0.1:9/elsewhere")
    request.end_headers()


def babbling(request: BaseHTTPRequestHandler) -> None:
    """A page of something else."""
    body = b"<html>\x1b[31m502 Bad Gateway</html>"
    request.send_response(200)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


def breaking_off(request: BaseHTTPRequestHandler) -> None:
    """Less than was promised."""
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(b'{"schema":1')


def trickling(request: BaseHTTPRequestHandler) -> None:
    """The beginning of an answer, and then nothing until the asker hangs up."""
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(b" ")
    request.wfile.flush()
    request.rfile.read(4000)


TOO_LATE = "did not answer within 0.3s"
# What each does, and a part of the reason that people read.
RULES: dict[str, tuple[Callable[[BaseHTTPRequestHandler], None], str]] = {
    "it refuses": (refusing, "HTTP 500"),
    "it sends elsewhere": (redirecting, "HTTP 302"),
    "it is something else": (babbling, "answer"),
    "it breaks off": (breaking_off, ""),
    "it trickles": (trickling, TOO_LATE),
}
REASONS = {"nobody listens": "could not be asked", "it never answers": TOO_LATE, "it hangs up": ""}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", SOURCES)
def test_an_answer_that_cannot_be_used_leaves_all_unknown(name: str, rule: str) -> None:
    """It is data, not an exception, for rounds, confirmations and numbers alike."""
    answers, why = RULES[rule]
    with an_agent(answers) as url:
        assert_nothing_is_known(nowhere(name, url, timeout_of(why)), why)


@pytest.mark.parametrize("unreachable", UNREACHABLE)
@pytest.mark.parametrize("name", SOURCES)
def test_a_server_that_does_not_answer_leaves_all_unknown(name: str, unreachable: str) -> None:
    """After a time-out, however many nodes there are."""
    with UNREACHABLE[unreachable]() as port:
        why = REASONS[unreachable]
        assert_nothing_is_known(nowhere(name, f"http://127.0.0.1:{port}", timeout_of(why)), why)


def timeout_of(why: str) -> float:
    """Short where nothing answers in time."""
    return 0.3 if why == TOO_LATE else PATIENT


def assert_nothing_is_known(source: NodeReportSource, why: str) -> None:
    """Each node is there, in doubt for that reason; so is each number."""
    fleet = source.observe(the_nodes())

    assert [node.id for node in fleet.nodes] == list(CAST)
    for signal in (*(node.signal for node in fleet.nodes), source.confirm(the_nodes()[0])):
        assert_doubtful(signal)
    assert why in (fleet.nodes[0].activity.doubt or "")
    assert [value.value for value in source.measure(fleet, QUERIES)] == [None] * len(QUERIES)
