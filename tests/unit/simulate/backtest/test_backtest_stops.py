"""The would-have-stopped list of a backtest, and the charts' bins."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.runtime.clock import SystemClock
from gpuwatch.runtime.json_document import json_text
from gpuwatch.simulate.backtest.compare import Terms, figures_of, policy_of
from gpuwatch.simulate.backtest.document import backtest_document
from gpuwatch.simulate.backtest.gaps import History
from gpuwatch.simulate.backtest.report import Backtest, backtest
from gpuwatch.simulate.backtest.stops import StopRecord
from gpuwatch.simulate.backtest.text import as_text
from gpuwatch.simulate.backtest.timeline import fleet_of, lengths_of, mean_stopped, usual_wait
from gpuwatch.simulate.fleet.options import Options
from tests.support.builders.backtests import busy_spans, of_intervals
from tests.support.nightly import examples

MINUTE, HOUR = 60, 3600
# Idle for 10, 12, 200 and 30 min, the last without an end; timeout=5m regrets the first two.
TURNS = {
    "soon": [(0, 30 * MINUTE), (40 * MINUTE, HOUR), (72 * MINUTE, 2 * HOUR)],
    "late": [(0, HOUR), (260 * MINUTE, 290 * MINUTE)],
    "always": [(0, 320 * MINUTE)],
}
NODES = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.lists(st.tuples(st.integers(1, 4000), st.integers(1, 4000)), min_size=1, max_size=8),
    min_size=1,
)


def told_of(history: History, *policies: str) -> Backtest:
    """A backtest without a check."""
    named = [policy_of(each) for each in policies]
    return backtest("load.csv", history, Options(), named, Terms(), None, SystemClock())


def listed(result: Backtest, most: int) -> list[StopRecord]:
    """The list of the first policy."""
    return result.list_stops(result.lines[0].figures, most)


def test_suspects_come_first_and_then_the_largest_savings() -> None:
    """Of suspects the dearest leads; of the others the one that saved most."""
    result = told_of(of_intervals(TURNS), "timeout=5m")

    assert [(each.stop.gap.node_id, each.stop.saved_seconds / MINUTE, each.suspect) for each in listed(result, 9)] == [
        ("soon", -5, True),
        ("soon", -3, True),
        ("soon", 195, False),
        ("late", 185, False),
        ("late", 25, False),
    ]
    assert [each.stop.saved_seconds / MINUTE for each in listed(result, 3)] == [-5, -3, 195]


def test_evidence_says_what_came_before_a_stop_and_what_after() -> None:
    """How long it had worked, the source's words, when it was stopped, and whether it was needed again."""
    words = {each.stop.at: each.evidence for each in listed(told_of(of_intervals(TURNS), "timeout=5m"), 9)}

    assert words[35.0 * MINUTE].startswith("idle after 30m of work; ")
    assert words[35.0 * MINUTE].endswith("; stopped after 5m; needed again 5m later")
    assert words[295.0 * MINUTE].endswith("; stopped after 5m; not needed in the 25m to the end")


def test_the_source_s_own_words_are_evidence() -> None:
    """What the history says of a gap stands in its evidence, and only there."""
    history = replace(of_intervals(TURNS), evidence={("late", 3600.0): "GPU at 0 %, nobody logged in"})
    first = {each.stop.at: each.evidence for each in listed(told_of(history, "timeout=5m"), 9)}

    assert first[65.0 * MINUTE] == (
        "idle after 1h of work; GPU at 0 %, nobody logged in; stopped after 5m; needed again 3h15m later"
    )
    assert sum("nobody logged in" in each for each in first.values()) == 1


@settings(max_examples=examples(25), deadline=None)
@given(turns=NODES)
def test_the_stops_add_up_to_the_figures(turns: dict[str, list[tuple[int, int]]]) -> None:
    """Their number, their hours, their restarts, their suspects, for policies of every kind."""
    history = of_intervals({name: busy_spans(each) for name, each in turns.items()})
    result = told_of(history, "timeout=2m", "timeout=break_even", "timeout=learned", "never")

    for line in result.lines:
        figures, stops = line.figures, result.list_stops(line.figures, 10**6)
        assert len(stops) == figures.stops
        assert sum(each.stop.saved_seconds for each in stops) / 3600 == pytest.approx(figures.node_hours_saved)
        assert sum(each.stop.gap.needed for each in stops) == figures.restarts
        assert sum(each.suspect for each in stops) == figures.suspected_wrong_stops


def test_moments_are_absolute_where_the_source_knows_them() -> None:
    """In JSON beside the seconds from the begin, in text in their place."""
    history = of_intervals(TURNS)
    known = replace(history, begins_at=datetime(2026, 3, 1, 23, 30, tzinfo=UTC))
    first, bare = (
        json.loads(json_text("backtest", backtest_document(told_of(each, "timeout=5m"), 1)))["policies"][0][
            "would_have_stopped"
        ][0]
        for each in (known, history)
    )

    assert (first["idle_since"], first["needed_at"]) == ("2026-03-02T00:00:00Z", "2026-03-02T00:10:00Z")
    assert (first["idle_since_seconds"], first["needed_at_seconds"]) == (1800, 2400)
    assert bare["idle_since"] is None
    assert "2026-03-02 00:05:00" in as_text(told_of(known, "timeout=5m"))
    assert "0d 00:35:00" in as_text(told_of(history, "timeout=5m"))


@settings(max_examples=examples(25), deadline=None)
@given(turns=NODES, bins=st.integers(1, 50))
def test_the_fleet_over_time_holds_every_second_once(turns: dict[str, list[tuple[int, int]]], bins: int) -> None:
    """Busy and idle are what nodes exist for; what a policy stopped is idle in every bin; the areas are the hours."""
    history = of_intervals({name: busy_spans(each) for name, each in turns.items()})
    fleet, width = fleet_of(history, bins), history.horizon_seconds / bins
    figures = figures_of(policy_of("timeout=5m"), history, Terms())
    stopped = mean_stopped(history, figures, bins)

    assert sum([*fleet.busy, *fleet.idle]) * width == pytest.approx(sum(history.node_seconds.values()))
    assert sum(stopped) * width == pytest.approx(
        sum(gap.seconds for gap in history.gaps) - figures.cost.idle_seconds, abs=1e-6
    )
    assert all(gone <= idle + 1e-6 for gone, idle in zip(stopped, fleet.idle, strict=True))
    assert max([*fleet.busy, *fleet.idle]) <= len(turns) + 1e-6


@settings(max_examples=examples(25), deadline=None)
@given(turns=NODES)
def test_gaps_by_length_hold_every_gap_once(turns: dict[str, list[tuple[int, int]]]) -> None:
    """Whatever is shorter or longer than all edges is in the outer bins."""
    history = of_intervals({name: busy_spans(each) for name, each in turns.items()})
    lengths = lengths_of(history)

    assert sum(lengths.counts) == len(history.gaps)
    assert sum(lengths.hours) == pytest.approx(sum(gap.seconds for gap in history.gaps) / 3600)
    assert list(lengths.edges) == sorted(set(lengths.edges))
    assert len(lengths.edges) == len(lengths.counts) + 1


def test_the_usual_wait_is_that_of_the_stops() -> None:
    """A policy that stops nothing has none."""
    history = of_intervals(TURNS)

    assert usual_wait(history, figures_of(policy_of("timeout=5m"), history, Terms())) == 300.0
    assert usual_wait(history, figures_of(policy_of("never"), history, Terms())) is None
