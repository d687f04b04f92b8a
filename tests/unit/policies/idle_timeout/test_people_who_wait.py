"""What a stop may cost besides rent: people who wait for the machine, and a machine that does not come back."""

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.decision import Done, Status, Verb
from gpuwatch.model.measurement import Restarts
from gpuwatch.policies.idle_timeout.break_even import LONGEST, restart, waiting_restarts, waiting_usd
from gpuwatch.policies.idle_timeout.hazard import BINS, best_stop, bin_of
from gpuwatch.policies.idle_timeout.restart_times import Starts, count_refusals
from gpuwatch.simulate.backtest.replay import Recorded, learned_waits
from tests.support.builders.fleet import NOW

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


def answered(story: str, *, first: float = 0.0, fault: Status | None = None) -> list[Done]:
    """Starts of the pool that ended an hour after each other; for each `x` its cloud had no machine."""
    return [
        Done(
            key=f"k-{number}",
            verb=Verb.START,
            node_id="i-1",
            pool="default",
            status=Status.FAILED if each == "x" else Status.SETTLED,
            at=NOW + timedelta(hours=first + number),
            fault=fault,
        )
        for number, each in enumerate(story)
    ]


def costs(starts: Starts) -> float:
    """How many restarts' time one restart costs."""
    found = restart(RESTART, Restarts(asked=starts.asked, refused=starts.refused))
    assert found is not None
    return found.seconds / RESTART


def test_starts_that_the_cloud_refused_make_a_stop_dearer_before_the_next_one_is_lost() -> None:
    """Three of ten refused, weeks ago: the price is still there; one of one is not all, and none is nothing."""
    three = count_refusals(Starts(), answered("x" * 3 + "." * 7))

    assert costs(Starts()) == 1.0
    assert costs(count_refusals(Starts(), answered("." * 9))) == 1.0
    assert 1.2 < costs(count_refusals(Starts(), answered("x"))) < 1.3
    assert 1.2 < costs(three) < 1.35
    assert costs(count_refusals(Starts(), answered("x" * 50))) == pytest.approx(3.0)
    assert costs(count_refusals(three, answered("." * 9, first=60 * 24.0))) < 1.1


def test_a_start_is_counted_once_and_no_fault_of_ours_is_a_refusal() -> None:
    """Rounds see the same record again; a denied or a throttled call says nothing of what the cloud has."""
    seen = answered("x.x")
    once = count_refusals(Starts(), seen)

    assert count_refusals(once, seen) == once
    assert count_refusals(Starts(), answered("xx", fault=Status.DENIED)) == Starts()


def test_it_says_that_starts_were_refused() -> None:
    """In the words of the wait."""
    found = restart(RESTART, Restarts(asked=10.0, refused=3.0))

    assert found is not None
    assert "its cloud had no machine for about 3 starts of 10" in found.why
