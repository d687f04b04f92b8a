"""A backtest of a pool's own rules: what is played of them, when it passes, and what is kept of it."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.model.orders import BacktestRecord
from gpuwatch.policies import PoolRules
from gpuwatch.policies.fingerprint import fingerprint
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.schedule import Window
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.simulate.backtest import pool_rules
from gpuwatch.simulate.backtest import verdict as kept
from gpuwatch.simulate.backtest.compare import Terms
from gpuwatch.simulate.backtest.gaps import history_of
from gpuwatch.simulate.backtest.report import Backtest, backtest
from gpuwatch.simulate.backtest.safety_check import Bounds
from gpuwatch.simulate.fleet.options import Options
from tests.support.builders.fleet import NOW, RULES

HOUR = 3600
SOON = "nodes needed again within 15m of their stop"
SAVED = "what stops saved on nodes that were needed again"


def tried(folder: Path, rules: PoolRules, bounds: Bounds | None = Bounds(hours=6)) -> Backtest:  # noqa: B008  a value
    """The pool's rules over six hours in which one node works now and then, one always, and one was forgotten."""
    path = folder / "trace.csv"
    often = [f"often,{at * HOUR},{at * HOUR + 1200}" for at in range(6)]
    path.write_text("\n".join(["node,busy_from_s,busy_to_s", *often, f"always,0,{6 * HOUR}", "forgotten,0,900"]))
    options = Options(trace=path)
    policies = kept.policies_of("training", rules)
    return backtest("trace.csv", history_of(options), options, policies, Terms(), bounds, SystemClock())


def record(result: Backtest, rules: PoolRules = RULES) -> BacktestRecord:
    """What is kept."""
    return kept.record(result, "training", rules, NOW, "ann@host")


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Backtest:
    """A backtest of RULES that passes."""
    return tried(tmp_path_factory.mktemp("traces"), RULES)


def spoiled(result: Backtest, figures: dict[str, Any], checked: dict[str, Any]) -> Backtest:
    """The same with other results."""
    (line,) = result.lines
    assert line.checked is not None
    line = replace(line, figures=replace(line.figures, **figures), checked=replace(line.checked, **checked))
    return replace(result, lines=(line,))


def test_what_is_kept_says_what_was_tried_and_what_came_of_it(passed: Backtest) -> None:
    """Gaps of 40 minutes end as the notice does, so the forgotten node alone goes."""
    made = record(passed)

    assert (made.pool, made.at, made.who, made.rules) == ("training", NOW, "ann@host", fingerprint(RULES))
    assert (made.source, round(made.node_hours, 2), round(made.checked_node_hours, 2)) == ("trace.csv", 18.0, 18.0)
    assert (made.stops, made.suspected_wrong_stops) == (1, 0)
    assert (made.checked_stops, made.wrongly_stopped, made.violations) == (1, 0, 0)
    assert made.saved_ratio == pytest.approx((5.75 - 2 / 3) / 18)
    assert made.failure is None


@pytest.mark.parametrize(
    ("figures", "checked", "failure"),
    [
        ({}, {"stops": 0}, "no stop was played by the real controller"),
        ({}, {"stops": 9, "wrongly_stopped": 2}, "wrong stops, 2 of 9"),
        ({}, {"violations": ("i-1: P2", "i-1: P9")}, "violations, 2"),
        (
            {"stops": 11, "suspected_wrong_stops": 3, "regret_cost_ratio": 0.31},
            {"violations": ("i-1: P2",)},
            f"violations, 1; {SOON}, 3 of 11, more than 25%; this cost 31% of {SAVED}, more than 25%",
        ),
        ({"stops": 11, "suspected_wrong_stops": 3, "regret_cost_ratio": 0.25}, {}, None),
        ({"stops": 12, "suspected_wrong_stops": 3, "regret_cost_ratio": 9.0}, {}, None),
        ({"stops": 12, "suspected_wrong_stops": 3}, {}, None),
    ],
    ids=str,
)
def test_it_passes_unless_something_speaks_against_it(
    passed: Backtest, figures: dict[str, Any], checked: dict[str, Any], failure: str | None
) -> None:
    """Nothing tried, a wrong stop, a broken property, or too many stops that were soon regretted."""
    assert record(spoiled(passed, figures, checked)).failure == failure


def test_without_a_check_it_does_not_pass(tmp_path: Path) -> None:
    """Figures alone say nothing of wrong stops."""
    assert record(tried(tmp_path, RULES, None)).failure == "no stop was played by the real controller"


def test_rules_that_stop_too_soon_do_not_pass(tmp_path: Path) -> None:
    """A node that is needed again five minutes after each stop."""
    hasty = PoolRules(warm_up=0.0, idle=IdleRules(timeout=1500.0, grace_period=600.0))
    made = record(tried(tmp_path, hasty), hasty)

    cost = f"this cost 1000% of {SAVED}, more than 25%"
    lose = "these stops lose money here: wait longer, or make restarts faster"
    assert made.failure == f"{SOON}, 5 of 7, more than 25%; {cost}; {lose}"


def test_the_price_of_people_is_part_of_what_regretted_stops_cost(tmp_path: Path) -> None:
    """$0.80 an hour for the machine, $30 for them: four restarts more, as many as count."""
    hasty = IdleRules(timeout=1500.0, grace_period=600.0)
    cost = [
        tried(tmp_path, PoolRules(warm_up=0.0, idle=replace(hasty, waiting_usd_per_hour=Decimal(each))), None)
        for each in (0, 30)
    ]

    assert [result.lines[0].figures.regret_cost_ratio for result in cost] == [2.0, 10.0]


def test_every_wait_that_the_pool_may_use_is_tried_and_must_pass(tmp_path: Path) -> None:
    """A window's wait as well as its own; the words say which one failed."""
    rules = replace(RULES, schedule={"night": Window(hours="22:00-06:00", idle_timeout=1500.0)})
    result = tried(tmp_path, rules)
    made = record(result, rules)

    assert [line.figures.policy.name for line in result.lines] == ["training:timeout=30m", "training:timeout=25m"]
    assert made.failure is not None
    assert made.failure.startswith(
        "training:timeout=25m: nodes needed again within 15m of their stop, 5 of 7, more than 25%;"
    )
    assert made.stops == 1 + 7
    assert made.saved_ratio == result.lines[0].figures.bill_saved_ratio


def test_the_rules_are_played_at_their_harshest() -> None:
    """What only keeps nodes is left out; a termination is played as a stop, after the same wait."""
    idle = IdleRules(
        timeout="learned",
        action="terminate",
        parked="terminate",
        stalled="report",
        terminate_after=HOUR,
        required_evidence=("gpu*.power",),
        grace_period=300.0,
        max_age=86400.0,
    )
    (played,) = pool_rules.trials(PoolRules(min_nodes=3, max_nodes=5, warm_up=60.0, idle=idle))

    assert played == PoolRules(
        warm_up=60.0,
        idle=IdleRules(
            timeout="learned",
            action="stop",
            parked="stop",
            stalled="report",
            fresh_timeout=None,
            instance_store="discard",
            grace_period=300.0,
            max_age=86400.0,
        ),
    )


@pytest.mark.parametrize(
    ("rules", "seconds"),
    [
        ({}, 20 * HOUR - 900.0),
        ({"parked": "report"}, 20 * HOUR - 900.0),
        ({"occupied": "report", "parked": "report"}, None),
        ({"occupied": "report", "parked_timeout": 60.0, "owner_grace_period": 60.0}, 0.0),
        ({"occupied_timeout": 2 * HOUR, "owner_grace_period": 1800.0}, 2.5 * HOUR - 900.0),
        ({"timeout": "break_even", "restart_cost": 900.0}, 20 * HOUR - 1500.0),
    ],
    ids=str,
)
def test_somebodys_nodes_are_played_with_the_wait_of_their_own(rules: dict[str, Any], seconds: float | None) -> None:
    """By how much it is longer than that of idle ones; of the two states the sooner one counts."""
    assert pool_rules.owned_seconds(PoolRules(idle=IdleRules(**rules))) == seconds


def test_a_shorter_wait_of_a_window_makes_it_no_longer() -> None:
    """The longest wait counts, so that no trial lets somebody's node be for longer than the rules do."""
    rules = PoolRules(schedule={"night": Window(hours="22:00-06:00", idle_timeout=300.0)})

    assert pool_rules.owned_seconds(rules) == 20 * HOUR - 900.0


@pytest.mark.parametrize(
    ("rules", "seconds"),
    [
        ({"timeout": 1800.0}, 1800.0),
        ({"timeout": "break_even"}, 600.0),
        ({"timeout": "break_even", "restart_cost": "measured"}, 0.0),
        ({"timeout": "learned"}, 60.0),
        ({"timeout": "learned", "restart_cost": 30.0}, 30.0),
        ({"timeout": 1800.0, "parked": "stop", "parked_timeout": 900.0}, 900.0),
        ({"timeout": 1800.0, "max_age": 86400.0}, 300.0),
    ],
    ids=str,
)
def test_the_witness_knows_the_shortest_idleness_before_a_stop(rules: dict[str, Any], seconds: float) -> None:
    """A stop after less breaks P9."""
    assert pool_rules.least_seconds(IdleRules(**rules)) == seconds


@pytest.mark.parametrize(
    ("rules", "wait", "seconds"),
    [
        ({"timeout": 1800.0, "grace_period": 600.0}, 1800.0, 2400.0),
        ({"timeout": "learned", "unattended_grace_period": 600.0}, 700.0, 700.0),
        ({"timeout": "learned", "unattended_grace_period": 600.0}, 200.0, 660.0),
    ],
    ids=str,
)
def test_the_notice_follows_a_wait_that_is_set_and_is_a_part_of_one_that_is_found(
    rules: dict[str, Any], wait: float, seconds: float
) -> None:
    """As the idle policy has it; nobody is told before a minute is over."""
    assert pool_rules.in_all(IdleRules(**rules), wait) == seconds
