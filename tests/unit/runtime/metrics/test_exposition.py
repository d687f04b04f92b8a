"""runtime/metrics/exposition.py: whatever there is to say, its pages are prometheus-client's to the byte."""

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.gpu import Kind
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.runtime.metrics.exposition import Exposition, Labels, Sample, as_families
from gpuwatch.runtime.metrics.family import HISTOGRAM, INFO, Family, Histogram
from tests.support.builders.gpu import a_busy_reading, a_cycle, a_down, a_process

PLAIN = "text/plain; version=0.0.4"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
EXTREMES = (0.0, -0.0, 5e-324, 1e-5, 999999.0, 1e6, -1e6, 1e6 + 0.5, 1e15, 1e16, 1e21, 2**63, -(2**63), 1.8e308, True)

SUFFIXES = {
    Kind.GAUGE: ("", "_seconds", "_bytes", "_ratio"),
    Kind.COUNTER: ("_total", "_joules_total"),
    INFO: ("_info",),
    HISTOGRAM: ("_seconds", ""),
}

words = st.from_regex(r"[a-z][a-z0-9_]{0,6}[a-z0-9]", fullmatch=True)
values = st.sampled_from(EXTREMES) | st.floats() | st.integers(-(2**70), 2**70)
texts = st.text() | st.text(alphabet='\\"\n\r{},= é☃a', max_size=6)


@st.composite
def families(draw: st.DrawFn) -> Family:
    """Any family that a catalogue may have."""
    kind = draw(st.sampled_from([*SUFFIXES]))
    return Family(
        name=f"x_{draw(words)}{draw(st.sampled_from(SUFFIXES[kind]))}",
        kind=kind,
        labels=tuple(draw(st.lists(words.filter(lambda word: word != "le"), max_size=4, unique=True))),
        help=draw(texts),
        source="a test",
    )


@st.composite
def pages(draw: st.DrawFn) -> tuple[dict[str, Family], list[list[Sample]]]:
    """A catalogue, and the samples of a few pages in a row that repeat some labels."""
    known = {family.name: family for family in draw(st.lists(families(), min_size=1, max_size=4))}
    few = st.sampled_from(draw(st.lists(st.none() | texts, min_size=1, max_size=3)))

    def samples(family: Family) -> st.SearchStrategy[list[Sample]]:
        labels: st.SearchStrategy[Labels] = st.tuples(*[few] * len(family.labels))
        if family.kind == HISTOGRAM:
            return st.tuples(labels, st.lists(values, max_size=4)).map(lambda seen: _observed(family, *seen))
        return st.tuples(st.just(family.name), labels, values).map(lambda sample: [sample])

    several = st.lists(st.sampled_from([*known.values()]).flatmap(samples), max_size=8)
    page = several.map(lambda found: [sample for each in found for sample in each])
    return known, draw(st.lists(page, min_size=1, max_size=3))


def _observed(family: Family, labels: Labels, seen: Iterable[float]) -> list[Sample]:
    """A histogram that has seen these."""
    histogram = Histogram((0.005, 1, 2.5))
    for value in seen:
        histogram.observe(value)
    return [(name, (*labels, *rest), value) for name, rest, value in histogram.samples(family.name)]


class Told(Collector):
    """The same samples as prometheus-client wants them."""

    def __init__(self, known: dict[str, Family], samples: Iterable[Sample]) -> None:
        self._families = list(as_families(known, samples).values())

    def collect(self) -> Sequence[Metric]:
        """Those that have a sample."""
        return self._families


@given(pages())
def test_as_prometheus_client_writes_it(told: tuple[dict[str, Family], list[list[Sample]]]) -> None:
    """In both formats, whatever the names, labels and values are, on each of several pages in a row."""
    known, several = told
    exposition = Exposition(known)
    for samples in several:
        for accept in (PLAIN, OPENMETRICS):
            encoder, _ = choose_encoder(accept)

            assert exposition.page(samples, openmetrics=accept == OPENMETRICS) == encoder(Told(known, samples))


@pytest.mark.parametrize("value", [*EXTREMES, float("inf"), float("-inf"), float("nan"), 123456789, 1234567.25])
def test_numbers(value: float) -> None:
    """The numbers at which Go's way of writing parts from Python's."""
    known = {"x": Family(name="x", kind=Kind.GAUGE, help="X.", source="a test")}
    encoder, _ = choose_encoder(PLAIN)

    assert Exposition(known).page([("x", (), value)], openmetrics=False) == encoder(Told(known, [("x", (), value)]))


def test_what_a_page_no_longer_has_is_forgotten() -> None:
    """Texts are kept from one page to the next and not for ever: pids and byte counts never end."""
    known = {"x": Family(name="x", kind=Kind.GAUGE, labels=("pid",), help="X.", source="a test")}
    exposition = Exposition(known)
    for pid in range(100):
        exposition.page([("x", (str(pid),), 1e9 + pid)], openmetrics=False)

    assert exposition._braced == {("pid",): {("99",): '{pid="99"}'}}
    assert list(exposition._large) == [1e9 + 99]


@pytest.mark.parametrize(
    ("name", "labels", "error"), [("y", (), KeyError), ("x", (), ValueError), ("x", ("1", "2"), ValueError)]
)
def test_what_is_in_no_catalogue_is_refused(name: str, labels: Labels, error: type[Exception]) -> None:
    """A sample of an unknown family, or with other labels than its family's, never gets onto a page."""
    exposition = Exposition({"x": Family(name="x", kind=Kind.GAUGE, labels=("a",), help="X.", source="a test")})

    with pytest.raises(error):
        exposition.page([(name, labels, 1.0)], openmetrics=False)


@pytest.mark.parametrize("escaping", ["", ";escaping=allow-utf-8", ";escaping=underscores", ";escaping=dots"])
@pytest.mark.parametrize("media", ["", "text/plain;version=1.0.0", "application/openmetrics-text;version=1.0.0"])
def test_the_agents_own_page(media: str, escaping: str) -> None:
    """A whole page of the exporter is what prometheus-client would write, in each format that a client may ask for."""
    clock = ManualClock()
    core = AgentCore(node_id="n", clock=clock, rules=ActivityRules(), interval_seconds=1.0, stale_after_seconds=8.0)
    core.ingest_messages(a_cycle(1, 0.0, a_busy_reading(0, processes=(a_process(7, 1 << 34),)), a_down(1)))
    exporter = Exporter(core, clock, node_id='n"\\', top_processes=3, own_process=False)
    encoder, content_type = choose_encoder(f"{media}{escaping}")
    expected = encoder(exporter).decode()  # before the page: making one is counted
    page = exporter.page(f"{media}{escaping}")

    assert page.content_type == content_type
    assert page.body.decode() == expected
