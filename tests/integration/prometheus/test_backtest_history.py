"""A history from real engines is the truth that was scraped into them: within a step, and never idler than it was."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.controller.observe.exporters import DIALECTS
from gpuwatch.controller.observe.prometheus_api import PromApi
from gpuwatch.controller.observe.settings import PromqlSettings
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.simulate.backtest.gaps import History, history_of
from gpuwatch.simulate.backtest.sources.nodes import Kind
from gpuwatch.simulate.backtest.sources.prometheus import PrometheusRange, dialect_of
from gpuwatch.simulate.backtest.sources.window import SourceError, Window
from gpuwatch.simulate.fleet.options import Options
from tests.support.builders.known_load import BEGIN, EVERY, Load, as_csv, tell_agent, tell_exporter
from tests.support.real.tsdb import PROMETHEUS_BY_DAY
from tests.support.real.tsdb import History as Series

HOURS = 6
END = HOURS * 3600.0
EVERY_DIALECT = ["gpuwatch", *DIALECTS]
# What all dialects can tell, each load from the recording's begin on, as a file of intervals has it.
PLAIN = {
    "often": Load(busy=[(0, 90), (700, 1000), (1900, 1960), (4000, 9000), (9120, 9400), (21000, 21600)]),
    "always": Load(busy=[(0, 21600)], gpus=1),
    "forgotten": Load(busy=[(0, 3600)], gpus=8),
}
TOLD = {
    **PLAIN,
    "silent": Load(busy=[(0, 600), (12000, 12600)], unscraped=[(3000, 3600), (9000, 14000)]),
    "parked": Load(busy=[(0, 600)], parked=[(600, 7200)]),
}


@pytest.fixture(scope="module", params=PROMETHEUS_BY_DAY)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus, and then a VictoriaMetrics, that has scraped all nodes with every exporter."""
    series = Series()
    for name, load in TOLD.items():
        tell_agent(series, name, load, HOURS, pool="agents")
        for dialect in DIALECTS:
            tell_exporter(series, dialect, name, load, HOURS, pool="others")
    # Between two scrapes, and at the end of a step: only the idle time tells.
    hidden = Load(busy=[(6002, 6008), (7194, 7199)], restarts=[15002])
    tell_agent(series, "hidden", hidden, HOURS)
    for name, ahead in (("ahead", 5000.0), ("behind", -5000.0)):
        tell_agent(series, name, Load(busy=[(0, 600), (4000, 9000)], clock_ahead=ahead), HOURS)
    # One address, two machines after each other; and one machine that two targets claim to be.
    tell_agent(series, "first", Load(busy=[(0, 600)], unscraped=[(7000, END)]), HOURS, instance="10.0.0.9:9460")
    tell_agent(series, "second", Load(busy=[(9000, END)], unscraped=[(0, 9000)]), HOURS, instance="10.0.0.9:9460")
    for port in ("1", "2"):
        tell_agent(series, "twice", Load(unscraped=[] if port == "1" else [(0, 7200)]), HOURS, instance=f"twice:{port}")
    with request.param(tmp_path_factory.mktemp("engine") / "data", series) as url:
        yield url


def a_range(url: str, dialect: str, begin: float = 0.0, end: float = END, **given: object) -> PrometheusRange:
    """A range of these hours; times are seconds of the recording."""
    api = PromApi(settings=PromqlSettings(url=url, dialect=dialect), clock=SystemClock(), most_skew_seconds=1e9)  # type: ignore[arg-type]
    window = Window(begin=datetime.fromtimestamp(BEGIN + begin, UTC), end=datetime.fromtimestamp(BEGIN + end, UTC))
    return PrometheusRange(**{"api": api, "window": window, "step": 60.0, **given})  # type: ignore[arg-type]


def gaps_of(history: History, name: str) -> list[tuple[Any, Any, bool]]:
    """A node's gaps: begin, end, needed."""
    return [(gap.begin, gap.end, gap.needed) for gap in history.gaps if gap.node_id == name]


def content(history: History) -> object:
    """What of two histories can be compared."""
    lives = [(life.name, life.pool, life.instance_type, len(life.gpus), list(life.silent)) for life in history.lives]
    return lives, history.gaps, history.evidence, history.node_seconds, history.horizon_seconds, history.begins_at


@pytest.mark.parametrize("step", [60.0, 300.0])
@pytest.mark.parametrize("dialect", EVERY_DIALECT)
def test_the_same_load_has_the_same_gaps_from_a_file_and_from_each_dialect(
    engine: str, dialect: str, step: float, tmp_path: Path
) -> None:
    """Gaps longer than two steps agree within a step at both ends, and are never longer than the truth."""
    file = tmp_path / "trace.csv"
    file.write_text(as_csv(PLAIN))
    truth = history_of(Options(trace=file, gpus_per_node=4))
    history = a_range(engine, dialect, step=step).history(Options())

    for name, load in PLAIN.items():
        expected = [gap for gap in gaps_of(truth, name) if gap[1] - gap[0] > 2 * step]
        found = [
            gap for gap in gaps_of(history, name) if any(gap[0] < end and gap[1] > begin for begin, end, _ in expected)
        ]
        assert [needed for *_, needed in found] == [needed for *_, needed in expected], name
        for (begin, end, _), (since, until, _) in zip(found, expected, strict=True):
            assert since - 1 <= begin <= since + step + EVERY, name
            assert until - step - EVERY <= end <= until, name
        assert history.node_seconds[name] == END
        life = next(life for life in history.lives if life.name == name)
        assert len(life.gpus) == load.gpus
        assert life.pool == ("agents" if dialect == "gpuwatch" else "others")


@pytest.mark.parametrize("dialect", EVERY_DIALECT)
def test_silence_is_neither_idle_nor_paid_for(engine: str, dialect: str) -> None:
    """A gap that silence ends has no known end; what follows is a new one, from the first step with samples on."""
    history = a_range(engine, dialect).history(Options())
    first, second, third = gaps_of(history, "silent")

    assert first == (pytest.approx(600, abs=61), 3000.0, False)
    assert second == (3600.0, 9000.0, False)
    assert third == (pytest.approx(14000, abs=61), END, False), "the work at 12000 was not seen"
    assert history.node_seconds["silent"] == pytest.approx(END - 600 - 5000, abs=61)


@pytest.mark.parametrize("dialect", EVERY_DIALECT)
def test_held_memory_is_work_unless_asked_otherwise(engine: str, dialect: str) -> None:
    """Parked is not idle; with parked as idle the gap begins where the work ends, and its evidence says so."""
    busy = a_range(engine, dialect).history(Options())
    idle = a_range(engine, dialect, parked_is=Kind.IDLE).history(Options())
    (gap,) = gaps_of(idle, "parked")
    words = idle.evidence["parked", gap[0]]

    assert gaps_of(busy, "parked") == [(pytest.approx(7200, abs=61), END, False)]
    assert gap == (pytest.approx(600, abs=61), END, False)
    assert "held" in words


def test_work_between_two_scrapes_ends_a_gap(engine: str) -> None:
    """An agent's idle time that began anew shows work that no scrape saw, also where two steps meet."""
    gaps = gaps_of(a_range(engine, "gpuwatch").history(Options()), "hidden")

    assert [(round(begin), needed) for begin, _, needed in gaps[:3]] == [(0, True), (6008, True), (7201, False)]
    assert [end for _, end, _ in gaps[:2]] == [6000.0, 7200.0]


@pytest.mark.parametrize("name", ["ahead", "behind"])
def test_a_clock_that_is_wrong_moves_a_gap_by_a_step_at_most(engine: str, name: str) -> None:
    """A host's own time is believed within the step that it was scraped in."""
    gaps = gaps_of(a_range(engine, "gpuwatch").history(Options()), name)

    assert [needed for *_, needed in gaps] == [True, False]
    assert [begin for begin, *_ in gaps] == [pytest.approx(600, abs=61), pytest.approx(9000, abs=61)]
    assert [end for _, end, _ in gaps] == [3960, END]


def test_an_agent_that_was_restarted_proves_no_work(engine: str) -> None:
    """Its idle time begins anew: the gap before has no known end, and a new one begins."""
    gaps = gaps_of(a_range(engine, "gpuwatch").history(Options()), "hidden")

    assert [(round(begin), round(end), needed) for begin, end, needed in gaps[2:]] == [
        (7201, 15000, False),
        (15002, END, False),
    ]


@pytest.mark.parametrize("dialect", EVERY_DIALECT)
def test_evidence_says_why_a_gap_is_one(engine: str, dialect: str) -> None:
    """The agent's own words, or what the samples show and what was there before."""
    history = a_range(engine, dialect).history(Options())
    begin = gaps_of(history, "forgotten")[0][0]
    since = f"{datetime.fromtimestamp(BEGIN + 3600, UTC):%Y-%m-%d %H:%M:%S}"

    if dialect == "gpuwatch":
        assert history.evidence["forgotten", begin] == f"idle since {since} UTC by its agent"
    else:
        assert history.evidence["forgotten", begin] == "8 GPUs below 1 %, after 97%"


def test_a_file_has_evidence_too(tmp_path: Path) -> None:
    """Of samples what they show where a gap begins; of intervals that there is none."""
    file = tmp_path / "trace.csv"
    file.write_text(as_csv(PLAIN))
    intervals = history_of(Options(trace=file))
    rows = [f"{at},n,{gpu},{int(at < 60)},{3 * 1024**3}" for at in (0, 60, 120) for gpu in (0, 1)]
    file.write_text("\n".join(["time_s,node,gpu,utilization_ratio,memory_bytes", *rows]))
    samples = history_of(Options(trace=file, instance_type="g6.12xlarge"))

    assert set(intervals.evidence.values()) == {"no work recorded"}
    assert samples.evidence == {("n", 60.0): "2 GPUs at 0 %, 6 GiB held"}


def test_an_address_that_changes_hands_is_two_nodes(engine: str) -> None:
    """A target is the node that it was called at the time, whatever it is called later."""
    history = a_range(engine, "gpuwatch").history(Options())

    assert gaps_of(history, "first") == [(600.0, pytest.approx(7000, abs=61), False)]
    assert gaps_of(history, "second") == []
    assert history.node_seconds["second"] == pytest.approx(END - 9000, abs=61)


def test_two_targets_that_claim_to_be_one_node_are_unknown(engine: str) -> None:
    """While only one tells, it is believed."""
    history = a_range(engine, "gpuwatch").history(Options())

    assert gaps_of(history, "twice") == [(0.0, pytest.approx(7200, abs=61), False)]


@pytest.mark.parametrize("points", [1, 500, 5000])
def test_the_length_of_chunks_changes_nothing(engine: str, points: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step at a time, or all at once."""
    whole = a_range(engine, "gpuwatch", 5400, 9000).history(Options())
    monkeypatch.setattr("gpuwatch.simulate.backtest.sources.prometheus._POINTS_AT_ONCE", points)
    monkeypatch.setattr("gpuwatch.simulate.backtest.sources.prometheus._LEAST_STEPS", 1)

    assert content(a_range(engine, "gpuwatch", 5400, 9000).history(Options())) == content(whole)


def test_what_a_server_refuses_is_asked_in_smaller_parts(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More points than it allows, and the range is halved until it answers."""
    whole = a_range(engine, "dcgm").history(Options())
    ranged, lengths = PromApi.query_range, list[float]()

    def refusing(api: PromApi, expressions: dict[str, str], begin: float, end: float, step: float) -> object:
        if len(expressions) > 1:  # not where it is looked who tells anything
            lengths.append((end - begin) / step + 1)
        refused = bool(lengths) and lengths[-1] > 250
        return ranged(api, {"none": "("} if refused else expressions, begin, end, step)

    monkeypatch.setattr(PromApi, "query_range", refusing)

    assert content(a_range(engine, "dcgm").history(Options())) == content(whole)
    assert max(lengths) > 250


def test_a_pool_is_told_by_its_label(engine: str) -> None:
    """Only targets with that label are asked about, and no target is an error that names it."""
    history = a_range(engine, "gpuwatch", pool="agents").history(Options())

    assert {life.name for life in history.lives} == set(TOLD)
    with pytest.raises(SourceError, match="shows no node with the label pool 'nobodys'"):
        a_range(engine, "gpuwatch", pool="nobodys").history(Options())


def test_our_own_agents_come_first_where_nobody_says_whose_metrics_are_there(engine: str) -> None:
    """The dialect that tells most."""
    asked = a_range(engine, "dcgm")

    assert dialect_of(asked.api, asked.window) == "gpuwatch"


FAILURES: dict[str, tuple[Callable[[str], PrometheusRange], str]] = {
    "nobody there": (lambda _: a_range("http://127.0.0.1:1", "dcgm"), r"http://127.0.0.1:1: Prometheus could not be "),
    "no such time": (lambda url: a_range(url, "dcgm", -864000, -860000), r"\(dcgm\) has no DCGM_FI_DEV_GPU_UTIL from"),
    "no such API": (lambda url: a_range(f"{url}/nowhere", "dcgm"), "another program than Prometheus|refused the query"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_is_one_sentence(engine: str, failure: str) -> None:
    """Who was asked, what is wrong, and never an empty history."""
    made, sentence = FAILURES[failure]

    with pytest.raises(SourceError, match=sentence) as failed:
        made(engine).history(Options())
    assert "\n" not in str(failed.value)


def test_nothing_of_any_dialect_is_said_with_what_was_looked_for(engine: str) -> None:
    """All metrics that would have done."""
    asked = a_range(engine, "dcgm", -864000, -860000)

    with pytest.raises(SourceError, match=r"none of these metrics .*gpuwatch_node_idle_seconds \(gpuwatch\), DCGM_"):
        dialect_of(asked.api, asked.window)
