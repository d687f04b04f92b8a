"""The figures of a backtest: what each idle policy costs over recorded gaps."""

import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.simulate.backtest.compare import Figures, Terms, figures_of, optimum_of, policy_of, waits_of
from gpuwatch.simulate.backtest.gaps import History, history_of
from gpuwatch.simulate.backtest.replay import Recorded, live_waits, optimum
from gpuwatch.simulate.fleet.options import Options
from tests.support.builders.backtests import busy_spans, of_intervals
from tests.support.nightly import examples

NAMES = ["never", "timeout=2m", "timeout=break_even", "timeout=learned"]
TERMS = Terms(restart=600.0)
# Busy and idle stretches in turn, in seconds, for each node; what is left of the day is idle.
STRETCH = st.integers(1, 4000)
TRACES = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.lists(st.tuples(STRETCH, STRETCH), min_size=1, max_size=12), min_size=1
)


def all_figures(history: History) -> dict[str, Figures]:
    """Every policy's figures by its name."""
    return {name: figures_of(policy_of(name), history, TERMS) for name in NAMES}


# The gaps.


def test_gaps_lie_between_work_and_the_last_has_no_known_end() -> None:
    """A node begins with its first work; what follows its last work ends with the recording, not in need."""
    history = of_intervals({"a": [(100, 200), (500, 600)], "b": [(300, 1000)]})

    assert history.gaps == (
        Recorded(node_id="a", begin=100.0, end=400.0),
        Recorded(node_id="a", begin=500.0, end=900.0, needed=False),
    )
    assert history.node_seconds == {"a": 900.0, "b": 700.0}


def test_hours_cut_a_recording_and_the_gap_that_reaches_the_cut() -> None:
    """With --hours the recording ends there: a later need is not known, and a later node is none."""
    history = of_intervals({"a": [(0, 600), (7200, 7300)], "late": [(5000, 5100)]}, hours=1)

    assert history.gaps == (Recorded(node_id="a", begin=600.0, end=3600.0, needed=False),)
    assert history.node_seconds == {"a": 3600.0}


def test_samples_make_gaps_and_silence_makes_none(tmp_path: Path) -> None:
    """Idle samples are a gap from the first on; silence ends one without a need, and a new one begins after it."""
    busy = {0: 0, 60: 0, 120: 1, 180: 0, 240: 0, 3600: 0, 3660: 1}
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(["time_s,node,gpu,utilization_ratio", *(f"{at},n,0,{use}" for at, use in busy.items())]))

    assert history_of(Options(trace=path)).gaps == (
        Recorded(node_id="n", begin=0.0, end=120.0),
        Recorded(node_id="n", begin=180.0, end=300.0, needed=False),
        Recorded(node_id="n", begin=3600.0, end=3660.0),
    )


# The figures.


def second_by_second(gaps: tuple[Recorded, ...], waits: list[float], restart: float) -> tuple[float, int]:
    """What gaps cost, walked a second at a time: rental while it is held, and a restart where it is missed."""
    paid, restarts = 0.0, 0
    for gap, wait in zip(gaps, waits, strict=True):
        held, age = True, 0
        while age < gap.seconds:
            held = held and age < wait
            paid += min(1.0, wait - age) if held else 0.0
            age += 1
        restarts += gap.needed and wait < gap.seconds
    return paid + restarts * restart, restarts


@settings(max_examples=examples(25), deadline=None)
@given(turns=TRACES)
def test_costs_are_those_of_a_walk_through_every_second(turns: dict[str, list[tuple[int, int]]]) -> None:
    """Cost, restarts and the saved part of the bill are what brute force finds, for every policy."""
    history = of_intervals({name: busy_spans(each) for name, each in turns.items()})
    idle, node_seconds = sum(gap.seconds for gap in history.gaps), sum(history.node_seconds.values())

    for name, figures in all_figures(history).items():
        waits = waits_of(policy_of(name), history.gaps, TERMS.restart)
        paid, restarts = second_by_second(history.gaps, waits, TERMS.restart)

        assert figures.cost.seconds == pytest.approx(paid), name
        assert figures.cost.restarts == restarts, name
        assert figures.bill_saved_ratio == pytest.approx((idle - paid) / node_seconds), name


@settings(max_examples=examples(50), deadline=None)
@given(turns=TRACES)
def test_bounds_between_policies_hold_on_any_trace(turns: dict[str, list[tuple[int, int]]]) -> None:
    """Never saves nothing, the optimum is the cheapest, and learned costs 1.05 times break-even at most."""
    history = of_intervals({name: busy_spans(each) for name, each in turns.items()})
    document, best = all_figures(history), optimum_of(history, TERMS).bill_saved_ratio

    assert best is not None
    assert (document["never"].bill_saved_ratio, document["never"].stops) == (0.0, 0)
    for name, figures in document.items():
        saved, ratio = figures.bill_saved_ratio, figures.idle_cost_ratio_to_optimum
        assert optimum(history.gaps, TERMS.restart) <= figures.cost.seconds + 1e-6, name
        assert saved is not None, name
        assert saved <= best + 1e-9, name
        assert ratio is None or ratio >= 1 - 1e-9, name
    assert optimum_of(history, TERMS).cost.seconds == pytest.approx(optimum(history.gaps, TERMS.restart))
    assert document["timeout=learned"].cost.seconds <= 1.05 * document["timeout=break_even"].cost.seconds + 1e-6


def test_a_fixed_wait_comes_to_the_figures_computed_by_hand() -> None:
    """Gaps of 5, 20 and 100 min that end in need and one of 60 that does not, under a wait of 10 min."""
    minute = 60
    ends = [0, 6, 27, 128]  # each after a minute of work
    spans = [((at) * minute, (at + 1) * minute) for at in ends]
    history = of_intervals({"a": spans, "b": [(0, 189 * minute)]})
    figures = figures_of(policy_of("timeout=10m"), history, TERMS)
    node_seconds = 2 * 189 * minute

    assert [gap.seconds / minute for gap in history.gaps] == [5, 20, 100, 60]
    assert figures.idle_cost_ratio_to_optimum == (5 + 10 + 10 + 10 + 10) / (5 + 10 + 10)
    assert figures.cost.seconds == 55 * minute
    assert figures.bill_saved_ratio == (185 - 55) * minute / node_seconds
    assert figures.restarts_per_node_day == pytest.approx(2 / (node_seconds / 86400))
    assert figures.people_waited_seconds == 2 * 180.0
    assert figures.suspected_wrong_stops == 1, "needed ten minutes after its stop; the other, ninety"
    assert str(figures.saved_usd) == "1.74", "130 min of a g6.xlarge at 0.8048 an hour"
    assert (figures.stops, figures.restarts, figures.nodes_stopped_again, figures.most_stops_in_a_day) == (3, 2, 1, 3)
    assert figures.suspected_wrong_ratio == 1 / 3


def test_the_optimum_comes_to_the_figures_computed_by_hand() -> None:
    """Of gaps of 5, 20 and 100 min in need and a last of 60, it keeps the first, and stops all others at once."""
    minute = 60
    history = of_intervals(
        {"a": [(at * minute, (at + 1) * minute) for at in (0, 6, 27, 128)], "b": [(0, 189 * minute)]}
    )
    best = optimum_of(history, TERMS)

    assert best.idle_cost_ratio_to_optimum == 1.0
    assert (best.stops, best.restarts) == (3, 2)
    assert best.node_hours_saved == pytest.approx((20 + 100 + 60 - 2 * 10) / 60)
    assert best.node_hours_billed == pytest.approx((2 * 189 - 160) / 60)
    assert best.saved_usd == Decimal("2.15"), "160 min of a g6.xlarge at 0.8048 an hour"
    assert best.people_waited_seconds == 2 * 180.0


@settings(max_examples=examples(25), deadline=None)
@given(turns=TRACES)
def test_what_is_billed_and_what_is_saved_are_together_what_never_costs(
    turns: dict[str, list[tuple[int, int]]],
) -> None:
    """Of hours, GPU-hours and money, for every policy."""
    history = of_intervals({name: busy_spans(each) for name, each in turns.items()}, gpus=4)
    document = all_figures(history)
    never = document["never"]

    assert never.gpu_hours_billed == pytest.approx(4 * never.node_hours_billed)
    assert never.saved_usd == 0
    for name, each in document.items():
        assert each.node_hours_billed + each.node_hours_saved == pytest.approx(never.node_hours_billed), name
        assert each.gpu_hours_billed + each.gpu_hours_saved == pytest.approx(never.gpu_hours_billed), name
        assert each.billed_usd is not None, name
        assert each.saved_usd is not None, name
        assert each.billed_usd + each.saved_usd == never.billed_usd, name


def test_money_is_not_known_where_a_machine_has_no_list_price() -> None:
    """One such machine is enough, for a part of the money would look like all of it; hours are known nevertheless."""
    history = of_intervals({"a": [(0, 60)], "b": [(0, 7200)]})
    strange = replace(history.lives[0], instance_type="abacus")
    figures = figures_of(policy_of("timeout=10m"), replace(history, lives=(strange, history.lives[1])), TERMS)

    assert (figures.billed_usd, figures.saved_usd) == (None, None)
    assert figures.node_hours_saved == pytest.approx((7140 - 600) / 3600)


def test_churn_counts_the_stops_of_a_node_within_any_day() -> None:
    """Two stops less than 24 h apart are churn on whichever days they lie; two that are farther apart are none."""
    hour = 3600
    close = [(0, hour), (20 * hour, 21 * hour), (90 * hour, 91 * hour)]  # stopped near hours 1, 21 and 91
    apart = [(0, hour), (30 * hour, 31 * hour), (90 * hour, 91 * hour)]
    figures = figures_of(
        policy_of("timeout=10m"), of_intervals({"close": close, "apart": apart, "end": [(0, 95 * hour)]}), TERMS
    )

    assert (figures.stops, figures.nodes_stopped_again, figures.most_stops_in_a_day) == (6, 1, 2)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("never", math.inf),
        ("timeout=90s", 90.0),
        ("timeout=1h30m", 5400.0),
        ("timeout=break_even", "break_even"),
        ("profile=cautious", 7200.0),
        ("profile=balanced", "learned"),
    ],
)
def test_a_policy_is_told_by_its_name(text: str, after: float | str) -> None:
    """`never`, a duration, or a rule."""
    assert policy_of(text).timeout == after


@pytest.mark.parametrize(
    "text",
    [
        "always",
        "profile=bold",
        "after",
        "timeout=",
        "timeout=soon",
        "timeout=0",
        "timeout=-5m",
        "timeout=nan",
        "wait=5m",
    ],
)
def test_what_is_no_policy_is_refused_with_what_would_be_right(text: str) -> None:
    """The error holds the value and every right form."""
    with pytest.raises(ValueError, match=r"expected|write for example") as refused:
        policy_of(text)

    assert repr(text) in str(refused.value)
    assert "timeout=learned" in str(refused.value)


# What rounds and notices add.


def test_live_a_stop_comes_in_a_round_after_its_notice() -> None:
    """At :30 of a minute: a learned wait holds the notice, any other is followed by it, and none is below a minute."""
    gap = [Recorded(node_id="a", begin=30.0, end=9000.0)]

    assert live_waits(gap, [0.0], 0.0, learned=True) == [150.0]
    assert live_waits(gap, [600.0], 0.0, learned=True) == [630.0]
    assert live_waits(gap, [600.0], 300.0, learned=True) == [630.0]
    assert live_waits(gap, [600.0], 300.0, learned=False) == [930.0]
    assert live_waits(gap, [math.inf], 0.0, learned=True) == [math.inf]


@settings(max_examples=examples(40), deadline=None)
@given(TRACES)
def test_live_no_stop_is_sooner_than_its_wait(trace: dict[str, list[tuple[int, int]]]) -> None:
    """Rounds and notices only ever take longer."""
    history = of_intervals({name: busy_spans(each) for name, each in trace.items()})
    waits = waits_of(policy_of("timeout=learned"), history.gaps, 600.0)
    live = live_waits(history.gaps, waits, 0.0, learned=True)

    assert all(after >= before for before, after in zip(waits, live, strict=True))


def spans_of(days: int) -> list[tuple[int, int]]:
    """A node's work: all day but for three hours at noon, and three in the evening."""
    shifts = ((0, 12), (15, 18), (21, 24))
    return [((day * 24 + begin) * 3600, (day * 24 + end) * 3600) for day in range(days) for begin, end in shifts]


def daily(days: int, *names: str) -> History:
    """Nodes that all work so."""
    return of_intervals({name: spans_of(days) for name in names})


def test_a_profile_is_played_with_its_fixed_waits_until_the_pool_is_known() -> None:
    """15 minutes in the first days and in a node's first pause; then what the pauses of three hours taught."""
    history = daily(30, "a", "b")
    waits = waits_of(policy_of("profile=balanced"), history.gaps, 600.0)
    began = [gap.begin for gap in history.gaps]

    assert {wait for wait, at in zip(waits, began, strict=True) if at < 2 * 86400} == {900.0}
    assert {wait for wait, at in zip(waits, began, strict=True) if at > 20 * 86400} == {120.0}
    spans = {name: spans_of(30) for name in ("a", "b")} | {"new": [(20 * 86400, 20 * 86400 + 3600)]}
    new = next(number for number, gap in enumerate(of_intervals(spans).gaps) if gap.node_id == "new")
    assert waits_of(policy_of("profile=balanced"), of_intervals(spans).gaps, 600.0)[new] == 900.0


def test_a_profile_takes_the_restart_that_is_compared_by() -> None:
    """No fixed wait of a pool that is not known yet is shorter than a restart."""
    history = daily(2, "a")

    assert set(waits_of(policy_of("profile=balanced"), history.gaps, 3600.0)) == {3600.0}
    assert set(waits_of(policy_of("profile=cautious"), history.gaps, 3600.0)) == {9000.0}
