"""Waits that need no knowledge, what recorded gaps cost, and what the learned wait learns."""

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.policies.idle_timeout import gap_history as gaps
from gpuwatch.policies.idle_timeout.break_even import restart_seconds
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from gpuwatch.policies.idle_timeout.hazard import EDGES, PRIOR, Table, best_wait, bin_of, chances, counted
from gpuwatch.policies.idle_timeout.learned import waits
from gpuwatch.policies.idle_timeout.tracking import Sighting, followed
from gpuwatch.simulate.backtest.replay import Recorded, cost, learned_waits, optimum

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
def test_every_age_lies_in_one_bin(seconds: float) -> None:
    """Begin included, end not; the last bin has no end."""
    number = bin_of(seconds)

    assert EDGES[number] <= seconds
    assert number == len(PRIOR) - 1 or seconds < EDGES[number + 1]


@given(restart=st.floats(60, 1e5))
def test_without_any_data_the_wait_is_break_evens(restart: float) -> None:
    """Under the prior, a hazard of one over the age, no other wait promises to save anything worth it."""
    assert best_wait(chances([]), restart, 0.0, 4 * restart) == restart


def test_a_gap_that_is_still_open_counts_as_longer_and_never_as_ended() -> None:
    """Censored gaps: passed bins count, the end does not."""
    open_one = counted(Table(), 0, 5, ended=False)
    ended = counted(open_one, 5, 5, ended=True)

    assert (sum(open_one.reached), sum(open_one.ended)) == (5.0, 0.0)
    assert (sum(ended.reached), ended.ended[5]) == (6.0, 1.0)


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


def test_the_history_is_one_json_value() -> None:
    """It survives the ledger, open gaps and promises included, and answers the same afterwards."""
    history = GapHistory()
    for number in range(50):
        history = gaps.went_idle(history, f"n{number % 7}", number * 1000.0, RESTART)
        history = gaps.needed(gaps.aged(history, number * 1000.0 + 400), f"n{number % 7}", number * 1000.0 + 450)
    history = gaps.went_idle(history, "n1", 60000.0, RESTART)
    back = msgspec.json.decode(msgspec.json.encode(history), type=GapHistory)

    assert back == history
    assert waits(back, 60700.0) == waits(history, 60700.0)


def test_the_history_is_bounded_whatever_comes() -> None:
    """At most 43 tables, 2,000 nodes, and nothing of a gap that is closed."""
    history, chance = GapHistory(), random.Random(1)
    for number in range(4500):
        at = number * 100.0
        history = gaps.went_idle(history, f"n{number % 2250}", at, RESTART)
        history = gaps.needed(history, f"n{number % 2250}", at + 10 ** chance.uniform(0, 6))

    assert len(history.tables) <= 43
    assert len(history.habits) == 2000
    assert history.open == {}


def test_a_round_tells_the_history_what_it_saw() -> None:
    """Idle opens a gap, work ends it, a reclaim keeps it open, a start after it ends it, and a lost node closes it."""
    seen = [Sighting(node_id=name, says="idle", idle_seconds=100.0) for name in "abcd"]
    history = followed(GapHistory(), 1000.0, seen, RESTART)

    assert {name: gap.since for name, gap in history.open.items()} == dict.fromkeys("abcd", 900.0)

    seen = [
        Sighting(node_id="a", says="needed"),
        Sighting(node_id="b", says="reclaimed"),
        Sighting(node_id="c", says="unknown"),
    ]
    history = followed(history, 1100.0, seen, RESTART)

    assert sorted(history.open) == ["b", "c"]
    assert history.open["b"].reclaimed == 200.0
    assert history.open["c"].passed == bin_of(100.0)  # what was not seen since is not counted
    assert history.habits.keys() == {"a"}

    seen = [Sighting(node_id="b", says="idle", idle_seconds=50.0), Sighting(node_id="c", says="idle", idle_seconds=5.0)]
    history = followed(history, 1500.0, seen, RESTART)

    assert {name: gap.since for name, gap in history.open.items()} == {"b": 1450.0, "c": 1495.0}
    assert all(gap.reclaimed is None for gap in history.open.values())
    assert history.habits.keys() == {"a", "b", "c"}
