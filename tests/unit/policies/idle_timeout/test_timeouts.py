"""Waits that need no knowledge, what recorded gaps cost, and what the learned wait learns."""

import math
import random
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.policies.idle_timeout import facts
from gpuwatch.policies.idle_timeout import gap_history as gaps
from gpuwatch.policies.idle_timeout.break_even import restart_seconds
from gpuwatch.policies.idle_timeout.facts import count, ratio, words
from gpuwatch.policies.idle_timeout.gap_history import Gap, GapHistory
from gpuwatch.policies.idle_timeout.hazard import (
    BINS,
    CLASSES,
    EDGES,
    HINT,
    MOST_ROWS,
    Asked,
    Hazard,
    best_stop,
    bin_of,
    chances,
    factors,
    taught,
)
from gpuwatch.policies.idle_timeout.learned import waits
from gpuwatch.policies.idle_timeout.timeouts import follow_round
from gpuwatch.simulate.backtest.replay import Recorded, cost, learned_waits, optimum
from tests.support.builders.fleet import NOW, a_node, a_stop, an_observation
from tests.support.nightly import examples

RESTART = 600.0


def pool_of(lengths: list[float], nodes: int = 1, work: float = 300.0) -> list[Recorded]:
    """Gaps of these lengths, dealt to nodes in turn, each after a spell of work."""
    clocks = [float(node) for node in range(nodes)]
    found = []
    for number, length in enumerate(lengths):
        node = number % nodes
        found.append(Recorded(node_id=f"n{node}", begin=clocks[node], end=clocks[node] + length))
        clocks[node] += length + work
    return found


def ratio_of(recorded: list[Recorded], waited: list[float]) -> float:
    """Cost over the optimum."""
    return cost(recorded, waited, RESTART).seconds / optimum(recorded, RESTART)


@given(length=st.floats(1, 1e6), restart=st.floats(1, 1e5))
def test_break_even_never_pays_more_than_twice_the_optimum(length: float, restart: float) -> None:
    """The bound of ski rental, for every gap and restart."""
    gap = [Recorded(node_id="n", begin=0.0, end=length)]

    assert cost(gap, [restart], restart).seconds <= 2 * optimum(gap, restart) * (1 + 1e-9)


def test_a_restart_costs_its_time_its_money_by_the_machines_price_and_more_while_capacity_is_scarce() -> None:
    """Dear machines wait less for the same people's money; each capacity error adds half, up to three times."""
    assert restart_seconds(600.0) == 600.0
    assert restart_seconds(600.0, usd=60.0, usd_per_hour=40.0) == 600.0 + 5400.0
    assert restart_seconds(600.0, usd=60.0) is None
    assert restart_seconds(600.0, usd=60.0, usd_per_hour=0.0) is None
    assert restart_seconds(600.0, capacity_errors=1) == 900.0
    assert restart_seconds(600.0, capacity_errors=50) == 1800.0


def test_gaps_without_return_cost_no_restart_and_have_an_optimum_of_nothing() -> None:
    """Cost is rental until the end or the reclaim, and a restart only where the node is needed again."""
    rows = [Recorded(node_id="n", begin=0, end=900), Recorded(node_id="n", begin=1000, end=1900, needed=False)]
    found = cost(rows, [100.0, 100.0], RESTART)

    assert (found.idle_seconds, found.restarts, found.seconds) == (200.0, 1, 800.0)
    assert optimum(rows, RESTART) == 600.0


@given(st.floats(0, 1e7))
def test_every_age_lies_in_one_bin(restarts: float) -> None:
    """Begin included, end not, but for what rounding does; past four restarts there is none."""
    number = bin_of(restarts)

    assert EDGES[number] <= restarts + 1e-6
    assert number == BINS or restarts + 1e-6 < EDGES[number + 1]


@given(since=st.floats(0, 2e9), edge=st.sampled_from(EDGES), restart=st.sampled_from([60.0, 600.0, 1234.5]))
def test_at_the_moment_that_a_bin_begins_a_gap_is_in_it(since: float, edge: float, restart: float) -> None:
    """Whatever rounding does to the difference of two times."""
    gap = Gap(since=since, restart=restart)

    assert gap.bin_at(since + edge * restart) == EDGES.index(edge)


@given(since=st.floats(0, 2e9), wish=st.floats(0, 599), later=st.sampled_from([0.0, 1e-7, -1e-7]))
def test_no_rounding_lets_a_wait_be_over_that_was_not_paid_for(since: float, wish: float, later: float) -> None:
    """At the moment that it wishes to stop, a pool without savings waits for break-even's moment, and on."""
    gap = replace(Gap(since=since, restart=RESTART), wish=wish, bin=bin_of(wish / RESTART))
    at = since + wish + later
    (wait,) = waits(GapHistory(open={"a": gap}), at)[0].values()

    assert since + wait.seconds > at


@given(age=st.floats(0, 3.99))
def test_without_any_data_the_wait_is_break_evens(age: float) -> None:
    """Under a hazard of one over the age no other wait promises to save anything worth it."""
    asked = Asked(bin=bin_of(age), facts={})

    assert best_stop(chances(Hazard(), asked), age, 0.03) == max(age, 1.0)


def test_a_gap_that_is_still_open_counts_as_longer_and_never_as_ended() -> None:
    """Censored gaps: passed bins count, the end does not."""
    open_one = taught(Hazard(), (), 0, 5, ended=False)
    ended = taught(open_one, (), 5, 5, ended=True)

    assert (sum(open_one.reached), sum(open_one.ended)) == (5.0, 0.0)
    assert (sum(ended.reached), ended.ended[5]) == (6.0, 1.0)


def test_a_fact_moves_the_odds_of_the_nodes_that_it_is_told_of_and_of_no_other() -> None:
    """Nodes with an idle one before them return later: the factor lies below one, and above one where none stands."""
    hazard = Hazard()
    for _ in range(300):
        hazard = taught(hazard, (Asked(bin=0, facts={"before": count(0)}),), 0, 1, ended=True)
        hazard = taught(hazard, (Asked(bin=0, facts={"before": count(4)}),), 0, 9, ended=False)
    none, four = Asked(bin=0, facts={"before": count(0)}), Asked(bin=0, facts={"before": count(4)})

    assert chances(hazard, none)[1] > 3 * chances(hazard, four)[1]
    assert words(hazard, four, RESTART).endswith("times as often because 4 idle nodes stand before it")
    assert words(hazard, none, RESTART).endswith("times as often because no idle nodes stand before it")
    assert words(hazard, Asked(bin=0, facts={"idled": count(3)}), RESTART) == ""


def test_a_decision_learns_from_every_bin_after_it_under_the_facts_of_then() -> None:
    """An early decision is taught by a late bin, and a late one by no bin before it."""
    early, late = Asked(bin=0, facts={"a": 1.0}), Asked(bin=4, facts={"b": 1.0})
    hazard = taught(Hazard(), (early, late), 0, 3, ended=False)

    assert chances(hazard, early)[0] < chances(Hazard(reached=hazard.reached), early)[0]
    assert factors(hazard, late) == {"b": 1.0}
    assert factors(taught(hazard, (early, late), 3, 6, ended=False), late)["b"] < 1.0


@given(st.floats(), st.floats(0, 1))
def test_every_fact_has_a_place_on_its_scale(number: float, part: float) -> None:
    """Between two classes at most, whatever the number is: also below zero, without end, and none at all."""
    for at in (facts.length(number), count(number), ratio(part)):
        assert 0 <= at < CLASSES - 1


@pytest.mark.parametrize(
    ("lengths", "least", "most"),
    [([7200.0] * 400, 0.0, 60.0), ([900.0] * 400, 0.0, 60.0), ([60.0] * 30 + [9000.0], 60.0, 600.0)],
    ids=["always-long", "a-bit-over-break-even", "always-short"],
)
def test_it_learns_when_waiting_is_of_no_use(lengths: list[float], least: float, most: float) -> None:
    """Nodes that are never needed soon are given up at once; those that are often needed are not."""
    waited = learned_waits(pool_of(lengths), RESTART)

    assert least <= waited[-1] <= most


def test_it_waits_longer_than_break_even_for_nodes_that_return_a_little_later() -> None:
    """Where one gap in ten is longer than a restart's cost but ends soon after, reclaiming it is a loss."""
    chance = random.Random(7)
    lengths = [chance.choice([200.0] * 9 + [660.0]) for _ in range(3000)]
    recorded = pool_of(lengths, nodes=5)
    waited = learned_waits(recorded, RESTART)

    assert cost(recorded[1500:], waited[1500:], RESTART).restarts == 0
    assert ratio_of(recorded, waited) < ratio_of(recorded, [RESTART] * len(recorded))


def test_nodes_with_habits_of_their_own_are_told_apart() -> None:
    """Half of the pool is needed again within a minute, half after hours: each gets the wait that suits it."""
    chance = random.Random(3)
    lengths = [chance.uniform(20, 90) if number % 2 else chance.uniform(9e3, 3e4) for number in range(1200)]
    recorded = pool_of(lengths, nodes=8)
    waited = learned_waits(recorded, RESTART)

    assert ratio_of(recorded[600:], waited[600:]) < 1.02


def test_of_a_number_the_direction_is_learned_from_few_gaps() -> None:
    """Twenty gaps at a few places of a hint's scale tell what to expect at places that no gap has had."""
    hazard = Hazard()
    for number in range(20):
        at = 1.0 + number % 3
        for name in (f"{HINT}free", "last"):
            told = Asked(bin=0, facts={name: at})
            hazard = taught(hazard, [told], 0, 0 if at > 2 else 3, ended=at > 2)

    def soon(name: str, at: float) -> float:
        return chances(hazard, Asked(bin=0, facts={name: at}))[0]

    assert soon(f"{HINT}free", 6.0) > 1.2 * soon("last", 6.0)
    assert soon("last", 6.0) == pytest.approx(soon("last", 9.0))


@given(st.lists(st.floats(1.0, 400000.0), min_size=1, max_size=30))
def test_a_nodes_pace_counts_its_starts_of_a_week_and_forgets_older_ones(apart: list[float]) -> None:
    """Every start adds one, and each fades by the time since."""
    history, at, starts = GapHistory(), 0.0, list[float]()
    for seconds in apart:
        history = gaps.went_idle(history, "a", at, RESTART)
        at += seconds
        history = gaps.need_node(history, "a", at)
        starts.append(at)

    assert history.habits["a"].pace == pytest.approx(sum(math.exp((each - at) / 604800.0) for each in starts))


def test_the_history_is_one_json_value() -> None:
    """It survives the ledger, open gaps and promises included, and answers the same afterwards."""
    history = GapHistory()
    for number in range(50):
        history = gaps.went_idle(history, f"n{number % 7}", number * 1000.0, RESTART)
        history = gaps.need_node(
            gaps.after_time(history, number * 1000.0 + 400), f"n{number % 7}", number * 1000.0 + 450
        )
    history = gaps.went_idle(history, "n1", 60000.0, RESTART)
    back = msgspec.json.decode(msgspec.json.encode(history), type=GapHistory)

    assert back == history
    assert waits(back, 60700.0) == waits(history, 60700.0)


def test_the_history_is_bounded_whatever_comes() -> None:
    """A fixed number of factors, 2,000 nodes, the last moves, and nothing of a gap that is closed."""
    history, chance = GapHistory(), random.Random(1)
    for number in range(4500):
        at = number * 100.0
        history = gaps.after_time(gaps.went_idle(history, f"n{number % 2250}", at, RESTART), at)
        history = gaps.need_node(history, f"n{number % 2250}", at + 10 ** chance.uniform(0, 6))

    assert len(history.habits) == 2000
    assert len(history.hazard.rows) <= MOST_ROWS
    assert max(len(history.idled), len(history.returned)) <= 64
    assert history.open == {}


SLOTS = 3 * (BINS + 1)
SENTENCES = [
    ("usual", facts.length(1.0), "its gaps usually last about 10m"),
    ("usual", facts.UNKNOWN, "too little is known of its gaps"),
    ("last", facts.length(6.0), "its last gap lasted about 1h"),
    ("long", ratio(0.75), "about 75% of its gaps outlast a restart"),
    ("spell", facts.length(0.5), "it worked for about 5m before"),
    ("own", count(1), "it was needed 1 time within six restarts' time"),
    ("own", count(0), "it was needed no times within six restarts' time"),
    ("pace", count(4), "it was needed about 4 times within a week"),
    ("before", count(4), "4 idle nodes stand before it"),
    ("before", count(1), "1 idle node stands before it"),
    ("idled", count(3), "3 nodes turned idle within half a restart's time"),
    ("turn", facts.length(2.0), "at the pool's pace its turn comes in about 20m"),
    ("turn", facts.UNKNOWN, "too little is known of the pool's pace"),
    ("window", facts.length(2.0), "a window of the schedule opens in about 20m"),
    (facts.FREE_GPUS, count(1), "about 1 GPU is free on nodes at work"),
    (facts.PENDING_GPUS, count(8), "pods that wait want about 8 GPUs"),
    (f"{HINT}requests", count(40), "requests is about 40"),
]


@pytest.mark.parametrize(("name", "at", "because"), SENTENCES, ids=[f"{each[0]}-{each[1]:g}" for each in SENTENCES])
def test_every_fact_says_in_a_sentence_by_what_factor_it_moves_the_return(name: str, at: float, because: str) -> None:
    """As in: it returns 0.4 times as often because 4 idle nodes stand before it."""
    row = [math.log(0.4) / 2] * SLOTS + [100.0] * SLOTS
    hazard = Hazard(rows={f"{number} {name}": row for number in range(CLASSES)})

    assert words(hazard, Asked(bin=0, facts={name: at}), RESTART) == f"it returns 0.4 times as often because {because}"


def test_every_fact_that_a_gap_has_is_among_those_with_a_sentence() -> None:
    """A fact of which no sentence is checked would be told by its bare name."""
    history = GapHistory()
    for number in range(20):
        history = gaps.went_idle(history, "a", number * 1000.0, RESTART)
        history = gaps.need_node(gaps.after_time(history, number * 1000.0), "a", number * 1000.0 + 100.0)
    history = gaps.after_time(gaps.went_idle(history, "a", 30000.0, RESTART), 30000.0)

    assert history.open["a"].asked[0].facts.keys() <= {name for name, _, _ in SENTENCES}


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.floats()), min_size=5, max_size=30))
def test_what_is_known_stays_of_one_size_whatever_facts_come_and_go(days: list[tuple[int, float]]) -> None:
    """Hints that are renamed every day push out what was taught longest ago; a fact that stays is not among them."""
    hazard = Hazard()
    for day, (hints, number) in enumerate(days):
        renamed = {f"{HINT}{day}.{each}": count(number + each) for each in range(hints)}
        hazard = taught(hazard, (Asked(bin=0, facts={"before": count(2)} | renamed),), 0, 2, ended=True)

    assert len(hazard.rows) <= MOST_ROWS
    assert all(len(row) == 2 * SLOTS for row in hazard.rows.values())
    assert factors(hazard, Asked(bin=0, facts={"before": count(2)}))["before"] != 1.0


def test_the_history_of_an_earlier_version_is_read() -> None:
    """What it saved and its nodes' usual gaps stand; its tables begin afresh, and its open gaps go on."""
    old = (
        b'{"tables":{"all":{"reached":[1.0],"ended":[0.0]}},"habits":{"n1":{"usual_log":5.0,"gaps":9,"ended_at":50.0},'
        b'"n2":{"usual_log":5.0,"gaps":9,"ended_at":50.0,"last_seconds":null,"long_ratio":null}},'
        b'"open":{"n1":{"since":100.0,"restart":600.0,"tables":["all"],"passed":7,"promised":0.0,"reclaimed":null,'
        b'"excused":0.0}},"saved":1234.0,"starts":{"seconds":[200.0],"counted":{}},"queued_since":null}'
    )
    history = msgspec.json.decode(old, type=GapHistory)
    answers, history = waits(gaps.after_time(history, 400.0), 400.0)
    history = gaps.need_node(history, "n1", 500.0)

    assert answers["n1"].seconds == RESTART
    assert history.saved > 1234.0
    assert history.habits["n2"].last_seconds is None
    assert (history.habits["n1"].gaps, history.habits["n1"].last_seconds) == (10, 400.0)
    assert history.hazard.rows


def test_a_round_tells_the_history_what_it_saw() -> None:
    """Idle opens a gap, work ends it, a reclaim keeps it open, a start after it ends it, and a lost node closes it."""

    def after(history: GapHistory, seconds: float, *nodes: Node) -> GapHistory:
        now = NOW + timedelta(seconds=seconds)
        observation = an_observation(*nodes, now=now, stopped=(a_stop("b", at=now),))
        return follow_round(history, observation, "default", RESTART, {})

    history = after(GapHistory(), 1000.0, *(a_node(name, held=100.0) for name in "abcd"))
    begin = NOW.timestamp()

    assert {name: gap.since - begin for name, gap in history.open.items()} == dict.fromkeys("abcd", 900.0)

    stopped = replace(a_node("b"), state=NodeState.STOPPED)
    history = after(history, 1100.0, a_node("a", State.BUSY), stopped, a_node("c", State.UNKNOWN))

    assert sorted(history.open) == ["b", "c"]
    assert history.open["b"].reclaimed == 200.0
    assert history.open["c"].bin == bin_of(100.0 / RESTART)  # what was not seen since is not counted
    assert history.habits.keys() == {"a"}

    history = after(history, 1500.0, a_node("b", held=50.0), a_node("c", held=5.0))

    assert {name: gap.since - begin for name, gap in history.open.items()} == {"b": 1450.0, "c": 1495.0}
    assert all(gap.reclaimed is None for gap in history.open.values())
    assert history.habits.keys() == {"a", "b", "c"}


def test_a_clock_that_is_set_back_makes_no_idle_node_younger() -> None:
    """Its agent's own clock says for how long it has been idle; the account is charged for all of that."""
    back, steady = GapHistory(), GapHistory()
    for seconds, held in ((0.0, 300.0), (300.0, 600.0), (600.0, 900.0)):
        steady = follow_round(
            steady, an_observation(a_node(held=held), now=NOW + timedelta(seconds=seconds)), "default", RESTART, {}
        )
        set_back = 7200.0 * (seconds > 0)
        now = NOW + timedelta(seconds=seconds - set_back)
        back = follow_round(back, an_observation(a_node(held=held), now=now), "default", RESTART, {})
    at = NOW.timestamp() + 600.0

    assert back.open["i-1"].since == steady.open["i-1"].since - 7200.0
    assert back.spare(at - 7200.0) == pytest.approx(steady.spare(at))
    assert waits(back, at - 7200.0)[0]["i-1"].seconds == pytest.approx(waits(steady, at)[0]["i-1"].seconds)


def test_a_clock_that_is_set_back_before_a_stop_is_seen_saves_nothing() -> None:
    """No node was idle for less than nothing before it was reclaimed."""
    history = gaps.reclaim_node(gaps.went_idle(GapHistory(), "a", 9000.0, RESTART), "a", 5400.0)

    assert history.open["a"].reclaimed == 0.0
    assert gaps.need_node(history, "a", 5500.0).saved < 0.0
