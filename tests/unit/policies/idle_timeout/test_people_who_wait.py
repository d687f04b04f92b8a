"""People who wait for a machine that was stopped too soon: what their time is worth, and how it changes waits."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.policies.idle_timeout.break_even import LONGEST, waiting_restarts, waiting_usd
from gpuwatch.policies.idle_timeout.hazard import BINS, best_stop, bin_of
from gpuwatch.simulate.backtest.replay import Recorded, learned_waits

RESTART = 600.0


def pauses_of(seconds: float, count: int, nodes: int = 4) -> list[Recorded]:
    """Pauses of one length, dealt to nodes in turn, each after 20 minutes of work."""
    found = [(number % nodes, number // nodes * (seconds + 1200.0) + number % nodes) for number in range(count)]
    return [Recorded(node_id=f"n{node}", begin=at, end=at + seconds) for node, at in found]


def test_somebody_who_waits_for_a_restart_costs_their_hours_price() -> None:
    """Ten minutes of $60 an hour are $10; nobody's time is free of rounding, and no time is below nothing."""
    assert waiting_usd(600.0, Decimal(60)) == Decimal(10)
    assert waiting_usd(600.0, Decimal(0)) == 0
    assert waiting_usd(-1.0, Decimal(60)) == 0
    assert waiting_usd(0.1 + 0.2, Decimal(3600)) == Decimal("0.30000000000000004")


@given(
    ends=st.lists(st.floats(0.01, 0.99), min_size=BINS, max_size=BINS),
    age=st.floats(0, 3.9),
    waiting=st.floats(0, 4),
    soon=st.floats(0.1, 4),
)
def test_no_price_of_people_makes_a_wait_longer_than_the_longest(
    ends: list[float], age: float, waiting: float, soon: float
) -> None:
    """Whatever the chances and the horizon; a price of nothing changes nothing."""
    own = ends[bin_of(age) :]
    free, priced = best_stop(own, age, 0.03), best_stop(own, age, 0.03, waiting=waiting, soon=soon)

    assert age <= priced <= max(age, LONGEST)
    assert best_stop(own, age, 0.03, waiting=0.0, soon=soon) == free


def test_where_needs_come_soon_or_late_people_are_waited_for_until_they_have_come_or_will_not() -> None:
    """Many gaps end within 1.5 restarts, the others last: where people are dear the stop comes after those."""
    ends = [0.03, 0.03, 0.05, 0.06, 0.06, 0.08, 0.09, 0.2, 0.2, 0.02, 0.01]

    assert best_stop(ends, 0.0, 0.03) < 1.0
    assert best_stop(ends, 0.0, 0.03, waiting=4.0, soon=1.5) >= 1.5


def test_what_peoples_waiting_is_worth_depends_on_the_machines_price() -> None:
    """Of a machine without a price it is that of eight large GPUs; a cheap machine's has an end."""
    assert waiting_restarts(30.0, 60.0) == 0.5
    assert waiting_restarts(30.0, None) == 0.5
    assert waiting_restarts(30.0, 0.5) == 4.0
    assert waiting_restarts(0.0, 0.5) == 0.0


def test_people_who_would_be_called_back_each_time_are_waited_for() -> None:
    """Every pause ends just after break-even's stop: whoever prices people stops no machine of such a pool."""
    recorded = pauses_of(RESTART + 45.0, 300)
    free = learned_waits(recorded, RESTART)
    priced = learned_waits(recorded, RESTART, waiting=lambda _: 0.5)

    assert sum(wait < RESTART + 45.0 for wait in free) > 200
    assert sum(wait < RESTART + 45.0 for wait in priced) < 100
