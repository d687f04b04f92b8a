"""The controller dies at every step of an interruption: one record, one replacement, one loss."""

from collections import Counter
from dataclasses import replace

import pytest

from gpuwatch.controller.interruptions import FIRST
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Verb
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.policies.scaling import Metric, ScalingRules
from tests.support.builders.fleet import Desk
from tests.support.builders.market import POOL, Market, a_market
from tests.support.builders.offers import SPOT_A, SPOT_B, a_node_of
from tests.support.crash_points import Story, every_cut
from tests.support.nightly import by_night

LOAD = ScalingRules(
    metrics={"queue": Metric(signal="promql", expression="queue", target=10.0, per_node=True)},
    cooldown_out=1800.0,
    cooldown_in=1800.0,
)
LIMITS = Limits(max_additions_per_round=9, max_additions_per_hour=99)
SCHEDULED = replace(POOL, max_nodes=2)
BY_LOAD = replace(POOL, schedule={}, scaling=LOAD, launch=LaunchRules(), max_nodes=3)


def a_desk(load: bool) -> Market:
    """Two working nodes, as many as are wanted."""
    desk = a_market(BY_LOAD if load else SCHEDULED, LIMITS)
    for name, offer in (("a", SPOT_A), ("b", SPOT_B)):
        desk.fleet.put(a_node_of(offer, f"i-{name}"))
        desk.fleet.show(f"i-{name}", State.BUSY)
        desk.fleet.offer_of[f"i-{name}"] = f"spot-{name}"
    desk.fleet.numbers["default", "queue"] = 20.0
    return desk


def befalls(desk: Desk, number: int) -> None:
    """A notice, whose deadline moves once; then the machine is gone."""
    assert isinstance(desk, Market)
    if number in {1, 2} and "i-a" in desk.fleet.alive():
        desk.fleet.announce("i-a", minutes=2.0)
    desk.fleet.carry_out()


@pytest.mark.parametrize(
    ("load", "downtime", "pace"),
    [
        (False, 0.0, 11),  # a floor
        (True, 900.0, 23),  # a load within its cooldown
        *by_night((False, 61.0, 17), (False, 900.0, 23), (True, 0.0, 11), (True, 61.0, 17)),
    ],
)
def test_a_power_cut_anywhere_leaves_one_replacement_for_one_loss(load: bool, downtime: float, pace: int) -> None:
    """Before and after each call and record; with the whole controller down over the deadline, too."""
    for where, desk in every_cut(Story(desk=a_desk(load), rounds=6, more=14, befalls=befalls), downtime, pace=pace):
        assert isinstance(desk, Market)
        assert sum(desk.fleet.made.values()) == 1, f"{where}: {desk.fleet.made}"
        assert len(desk.fleet.alive()) == 2, f"{where}: {desk.fleet.alive()}"
        records = [entry.intent for entry in desk.ledger.history("i-a", limit=50)]
        counts = Counter(
            each.verb for each in records if each.verb is not Verb.INTERRUPTION or each.reason.code == FIRST
        )
        # Who was down from before the notice until after the loss never saw it.
        assert counts[Verb.INTERRUPTION] <= 1, f"{where}: {counts}"
        assert counts[Verb.LOST] == counts[Verb.INTERRUPTION], f"{where}: {counts}"
        assert counts[Verb.SPARED] == 0, f"{where}: {counts}"
