"""A pool's nodes go only under rules that a backtest vouches for, where `limits.require_backtest` asks for one."""

from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.cli import render as show
from gpuwatch.guard import judge
from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.model.orders import BacktestRecord
from gpuwatch.policies import PoolRules
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.policies.fingerprint import fingerprint, removes, waits
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.backtests import a_backtest
from tests.support.builders.fleet import NOW, RULES, Desk, a_node
from tests.support.builders.guard_cases import a_case, a_start, tried
from tests.support.real.postgresql import Place, postgresql

MONTH = 30 * 86400.0
# Another value for each setting of the idle policy.
OTHERS: dict[str, Any] = {
    "timeout": "learned",
    "fresh_timeout": 900.0,
    "restart_cost": 300.0,
    "restart_usd": Decimal("0.01"),
    "waiting_usd_per_hour": Decimal(0),
    "demand": {"queue": "pending_jobs"},
    "hints": {"free": "free_gpus"},
    "grace_period": 0.0,
    "terminate_grace_period": 0.0,
    "unattended_grace_period": 0.0,
    "action": "terminate",
    "terminate_after": 86400.0,
    "instance_store": "discard",
    "required_evidence": ("gpu*.power",),
    "owner_grace_period": 0.0,
    "occupied": "stop",
    "occupied_timeout": 60.0,
    "parked": "stop",
    "parked_timeout": 60.0,
    "stalled": "stop",
    "stalled_timeout": 60.0,
    "max_age": 86400.0,
    "max_snooze": 0.0,
}


# Which rules a backtest was of.


@pytest.mark.parametrize("name", [each.name for each in fields(IdleRules)])
def test_every_setting_of_the_idle_policy_makes_other_rules(name: str) -> None:
    """One that is forgotten here would let untried rules act."""
    changed = replace(RULES, idle=replace(RULES.idle, **{name: OTHERS[name]}))

    assert fingerprint(changed) != fingerprint(RULES)


def test_the_warm_up_and_the_waits_of_windows_make_other_rules() -> None:
    """They, too, say when a node goes."""
    night = replace(RULES, schedule={"night": Window(hours="22:00-06:00", idle_timeout=600.0)})
    found = {fingerprint(each) for each in (RULES, night, replace(RULES, warm_up=0.0))}

    assert len(found) == 3
    assert waits(night) == (1800.0, 600.0)


def test_what_only_keeps_nodes_or_adds_some_may_change() -> None:
    """Floors, ceilings, templates, and the hours of windows: the harshest of them was played."""
    freer = replace(RULES, min_nodes=3, max_nodes=9, launch=LaunchRules(template="lt-1", instance_type="g6.xlarge"))
    by_day, by_night = (
        replace(freer, schedule={name: Window(hours=hours, min_nodes=2, idle_timeout=600.0)})
        for name, hours in (("day", "08:00-18:00"), ("night", "22:00-06:00"))
    )

    assert fingerprint(freer) == fingerprint(RULES)
    assert fingerprint(by_day) == fingerprint(by_night)


def test_equal_values_are_the_same_rules_however_they_are_written() -> None:
    """A configuration read from YAML and one read from the ledger may differ in that."""
    one = replace(RULES, warm_up=900, idle=replace(RULES.idle, grace_period=600, restart_usd=Decimal("1.00")))
    other = replace(RULES, warm_up=900.0, idle=replace(RULES.idle, grace_period=600.0, restart_usd=Decimal("1E+0")))

    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(
    ("changes", "does"),
    [
        ({}, True),
        ({"action": "report"}, False),
        ({"action": "report", "parked": "terminate"}, True),
        ({"action": "report", "occupied": "stop"}, True),
    ],
    ids=str,
)
def test_some_pools_remove_nothing(changes: dict[str, Any], does: bool) -> None:
    """They need no backtest to go on telling."""
    assert removes(PoolRules(idle=replace(RULES.idle, **changes))) is does


# The controller.


@pytest.fixture
def desk() -> Desk:
    """One node that has been idle for two hours, where a backtest a month old at most is required."""
    desk = Desk(rules=RULES)
    desk.limits = replace(desk.limits, require_backtest=MONTH)
    desk.fleet.put(a_node("i-1"))
    return desk


def hours(desk: Desk, count: int) -> None:
    """Rounds every five minutes."""
    for _ in range(12 * count):
        desk.round(300.0)


def test_a_node_goes_once_its_rules_are_tried_and_only_then(desk: Desk) -> None:
    """Before that nobody is even given notice."""
    hours(desk, 2)
    before = list(desk.fleet.calls)
    desk.ledger.keep_backtest(a_backtest(at=desk.clock.now()))
    hours(desk, 2)

    assert before == []
    assert desk.fleet.stops() == ["i-1"]


@pytest.mark.parametrize(
    "made",
    [
        {"failure": "wrong stops, 2 of 9"},
        {"pool": "training"},
        {"rules": fingerprint(PoolRules(warm_up=0.0))},
        {"at": NOW - timedelta(days=31)},
        {"at": NOW + timedelta(days=365)},
    ],
    ids=str,
)
def test_nothing_goes_by_another_backtest(desk: Desk, made: dict[str, Any]) -> None:
    """One that failed, is of other rules or another pool, is too old or of the future."""
    desk.ledger.keep_backtest(a_backtest(**made))
    hours(desk, 4)

    assert desk.fleet.calls == []


def test_a_change_of_the_rules_ends_what_was_under_way(desk: Desk) -> None:
    """A notice that is out does not turn into a stop under rules that nobody has tried."""
    desk.ledger.keep_backtest(a_backtest())
    desk.round()
    desk.rules = replace(RULES, idle=replace(RULES.idle, timeout=1200.0))
    hours(desk, 4)

    assert [call for call, _, _ in desk.fleet.calls] == ["tag"]


def test_additions_are_not_refused_for_it() -> None:
    """Nobody waits for a machine because the rules for removing it are new."""
    start = a_start(tried(a_case(), failure="wrong stops, 2 of 9"))

    assert judge(start).allowed
    assert "backtest" not in {answer.rule for answer in judge(start).answers}


def test_a_past_round_still_tells_what_vouched_for_it(desk: Desk) -> None:
    """What the guard went by is in the round's body, so that `explain` can judge it again."""
    desk.ledger.keep_backtest(a_backtest())
    desk.round()

    assert desk.ledger.round(desk.ledger.rounds(1)[0].id).observation.ledger.backtests == (a_backtest(),)


def test_status_names_the_pools_that_wait(desk: Desk) -> None:
    """One line each, until a backtest passes; pools that remove nothing are left out."""
    (text,) = show.untried_lines(desk.plan(), desk.rulebook)

    assert text == (
        "Pool default removes no node: No backtest of the pool is on record. "
        "Run `gpuwatch backtest --ledger --pool default --keep`."
    )
    desk.rules = replace(RULES, idle=replace(RULES.idle, action="report"))
    assert list(show.untried_lines(desk.plan(), desk.rulebook)) == []
    desk.rules = RULES
    desk.ledger.keep_backtest(a_backtest())
    assert list(show.untried_lines(desk.plan(), desk.rulebook)) == []


# The record.


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.component("pg_ctl"))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A fresh place for a ledger, once of each kind."""
    path = str(tmp_path / "ledger.db")
    place = Place(
        LedgerSettings(path=path) if request.param == "sqlite" else LedgerSettings(url=postgresql().database())
    )
    yield place
    place.close()


def kept(ledger: Ledger) -> tuple[BacktestRecord, ...]:
    """What decisions see."""
    return ledger.view(NOW).backtests


def test_a_backtest_is_kept_beside_the_controller_as_it_was_made(place: Place) -> None:
    """To the last digit, whatever is not known of it left out."""
    ledger = place.open()
    made = a_backtest(node_hours=1 / 3, saved_ratio=None, failure="wrong stops, 2 of 9", source="größe.csv")
    place.beside(read_only=False).keep_backtest(made)

    assert kept(ledger) == (made,)
    assert ledger.audit().broken is None


def test_the_newest_of_the_same_rules_counts(place: Place) -> None:
    """By the order in which they were kept, whatever their clocks said; one of other rules stands beside it."""
    ledger = place.open()
    first = a_backtest(at=NOW + timedelta(days=9), failure="wrong stops, 2 of 9")
    others = (a_backtest(rules="other"), a_backtest(pool="training"), a_backtest(source="newer.csv"))
    for each in (first, *others):
        ledger.keep_backtest(each)

    assert kept(ledger) == others


def test_compaction_leaves_backtests_alone(place: Place) -> None:
    """They are records, kept for good."""
    ledger = place.open()
    ledger.keep_backtest(a_backtest())
    ledger.record_round(Desk().plan().observation)

    assert ledger.compact(NOW + timedelta(days=4000)) == 1
    assert kept(ledger) == (a_backtest(),)
    assert ledger.audit().broken is None
