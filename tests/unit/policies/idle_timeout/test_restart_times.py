"""What a restart costs: as set, as measured from start to first work, with its money, and while capacity is scarce."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Done, Status, Verb
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.measurement import Restarts
from gpuwatch.policies import idle
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.idle_timeout.break_even import restart
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from gpuwatch.policies.idle_timeout.node_wait import restart_of, wait_seconds
from gpuwatch.policies.idle_timeout.restart_times import Starts, measured_restart, watch_starts
from gpuwatch.policies.idle_timeout.timeouts import time_round
from tests.support.builders.fleet import NOW, RULES, Desk, a_node, an_observation
from tests.support.builders.money import a_price

AT = NOW.timestamp()
MEASURED = replace(RULES, warm_up=0.0, idle=IdleRules(timeout="break_even", restart_cost="measured", grace_period=60.0))


def started(ago: float, node_id: str = "i-1", state: State = State.BUSY, held: float = 0.0) -> Node:
    """A machine that was started so many seconds ago."""
    return a_node(node_id, state, held, launched_at=NOW - timedelta(seconds=ago))


def test_a_start_is_measured_from_its_launch_to_the_beginning_of_its_first_work() -> None:
    """However late the round that sees it, as its agent says since when it works."""
    assert watch_starts(Starts(), AT, [started(500.0, held=80.0)]).seconds == (420.0,)


def test_each_start_is_measured_once_and_the_next_one_again() -> None:
    """The launch time tells starts of one machine apart."""
    starts = watch_starts(Starts(), AT, [started(500.0)])
    again = watch_starts(watch_starts(starts, AT + 60, [started(500.0)]), AT + 600, [started(500.0)])

    assert again.seconds == (500.0,)
    assert watch_starts(again, AT + 600, [started(-300.0)]).seconds == (500.0, 300.0)


@pytest.mark.parametrize(
    "node",
    [
        started(4000.0),
        started(-5.0),
        started(500.0, held=900.0),
        started(500.0, state=State.IDLE),
        started(500.0, state=State.UNKNOWN),
        replace(started(500.0), launched_at=None),
        replace(started(500.0), state=NodeState.STOPPING),
    ],
    ids=["after-an-hour", "ahead-of-us", "works-since-before", "idle", "unknown", "no-launch-time", "not-running"],
)
def test_what_says_nothing_of_a_restart_is_no_measurement(node: Node) -> None:
    """A machine started and left idle, a clock that is wrong, doubt."""
    assert watch_starts(Starts(), AT, [node]).seconds == ()


def test_five_starts_are_enough_and_their_median_counts() -> None:
    """One machine that waited for its user does not make restarts dear."""
    assert measured_restart(Starts(seconds=(300.0,) * 4)) == (None, 4)
    assert measured_restart(Starts(seconds=(300.0, 310.0, 290.0, 3500.0, 305.0))) == (305.0, 5)


@given(st.lists(st.tuples(st.floats(-4000, 4000), st.floats(0, 8000), st.sampled_from("abcdef")), max_size=200))
def test_measurements_are_bounded_and_within_the_hour_whatever_comes(
    seen: list[tuple[float, float, str]],
) -> None:
    """At most 64 are kept, of at most an hour; of starts only those of the last hour are remembered."""
    starts = Starts()
    for number, (ago, held, name) in enumerate(seen):
        starts = watch_starts(starts, AT + 60 * number, [started(ago - 60 * number, name, held=held)])

    assert len(starts.seconds) <= 64
    assert all(0 < seconds <= 3600 for seconds in starts.seconds)
    assert len(starts.counted) <= 6


def test_a_body_of_before_there_were_measurements_is_read() -> None:
    """What an older gpuwatch kept of a pool loads, and the measurements begin with nothing."""
    body = msgspec.json.encode(GapHistory(saved=12.0))
    old = {key: value for key, value in msgspec.json.decode(body).items() if key not in {"starts", "queued_since"}}

    assert msgspec.json.decode(msgspec.json.encode(old), type=GapHistory) == GapHistory(saved=12.0)


@pytest.mark.parametrize(
    ("cost", "known", "usd", "seconds", "why"),
    [
        (900.0, Restarts(), 0.0, 900.0, "a restart costs 15m"),
        (900.0, Restarts(seconds=100.0, starts=9), 0.0, 900.0, "a restart costs 15m"),
        ("measured", Restarts(starts=3), 0.0, 600.0, "a restart costs 10m, not measured yet, 3 of 5 starts seen"),
        ("measured", Restarts(seconds=240.0, starts=23), 0.0, 240.0, "a restart costs 4m, measured from 23 starts"),
        (600.0, Restarts(failed=2), 0.0, 1200.0, "a restart costs 20m, more for 2 starts that failed lately"),
        (600.0, Restarts(), 5.0, 2400.0, "a restart costs 40m, its money included"),
    ],
)
def test_a_restarts_cost_says_where_it_comes_from(
    cost: float, known: Restarts, usd: float, seconds: float, why: str
) -> None:
    """Set, measured or not yet, with its money, and dearer while starts fail."""
    found = restart(cost, known, usd=usd, usd_per_hour=10.0)

    assert found is not None
    assert (found.seconds, found.why) == (seconds, why)


def test_break_even_waits_as_long_as_a_restart_was_measured_to_take_and_says_so() -> None:
    """The step's sentence names the cost and its source."""
    observation = replace(an_observation(a_node(held=100.0)), restarts={"default": Restarts(seconds=330.0, starts=23)})
    rules = IdleRules(timeout="break_even", restart_cost="measured", restart_usd=Decimal(0))

    assert wait_seconds(a_node(), observation, rules) == 330.0
    step = idle.propose(observation, "default", rules).steps[0]
    assert (
        step.reason.sentence == "It has been idle for 1m40s of 5m30s (a restart costs 5m30s, measured from 23 starts)."
    )


def test_failed_starts_of_the_last_hour_make_every_kind_of_wait_longer() -> None:
    """Half as much again for each error of the pool; older ones, other pools and stops count nothing."""

    def done(verb: Verb = Verb.START, *, age: float = 600.0, pool: str = "default") -> Done:
        at = NOW - timedelta(seconds=age)
        return Done(key="k", verb=verb, node_id="i-9", pool=pool, status=Status.FAILED, at=at)

    recent = (done(), done(Verb.LAUNCH), done(age=4000.0), done(pool="other"), done(Verb.STOP))
    found = time_round(an_observation(a_node(), recent=recent), "default", MEASURED, GapHistory())

    assert found.restarts.failed == 2
    observation = replace(an_observation(a_node()), restarts={"default": found.restarts})
    assert wait_seconds(a_node(), observation, IdleRules(timeout="break_even")) == 1200.0
    learned = replace(MEASURED, idle=IdleRules(timeout="learned", fresh_timeout=None))
    waits = time_round(an_observation(a_node(held=1.0), recent=recent), "default", learned, GapHistory()).waits
    assert waits["i-1"].seconds == 1200.0


def test_without_a_price_restarts_that_cost_money_have_no_cost() -> None:
    """Nothing is guessed."""
    rules = IdleRules(timeout="break_even", restart_usd=Decimal(5))

    assert restart_of(an_observation(), "default", rules, None) is None
    assert restart_of(an_observation(), "default", rules, a_price("10")) is not None


@pytest.mark.parametrize("after", ["break_even", "learned", 1800.0])
def test_rounds_measure_every_pools_starts_and_keep_them(after: float) -> None:
    """Whatever its waits: machines that take four minutes to work are known to after five starts."""
    desk = Desk(rules=replace(MEASURED, warm_up=900.0, idle=replace(MEASURED.idle, timeout=after)))
    for number in range(6):
        node_id = f"i-{number}"
        desk.fleet.put(a_node(node_id, State.IDLE, 0.0, launched_at=desk.clock.now()))
        for _ in range(4):
            desk.round()
        desk.fleet.show(node_id, State.BUSY, 0.0)
        desk.round()

    assert desk.ledger.gaps()["default"].starts.seconds == (240.0,) * 6
    assert desk.plan().observation.restarts["default"] == Restarts(seconds=240.0, starts=6)


def test_rounds_in_which_nothing_starts_write_nothing() -> None:
    """A pool with a fixed wait is kept in the ledger only when a start was measured."""
    desk = Desk()
    desk.fleet.put(a_node("i-1", State.IDLE))
    desk.round()

    assert desk.ledger.gaps() == {}
