"""The controller dies at every step of a launch from offers, and of the way back to spot: never a node twice."""

from dataclasses import replace

import pytest

from gpuwatch.clouds import CloudError, CloudUnavailableError
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import INTERRUPTIBLE_TAG
from gpuwatch.model.fleet import CapacityType, NodeState
from gpuwatch.policies.spot.mix import MixRules
from tests.support.builders.fleet import Desk
from tests.support.builders.market import POOL, Market, a_market
from tests.support.builders.offers import SURE, a_node_of
from tests.support.crash_points import Story, every_cut
from tests.support.nightly import by_night

LIMITS = Limits(
    max_additions_per_round=9,
    max_additions_per_hour=99,
    max_stops_per_hour=99,
    max_stops_per_hour_ratio=1.0,
    failure_cooldown=120.0,
)
RULES = replace(POOL, max_nodes=2, warm_up=120.0, capacity=MixRules(surge=1, give_back_notice=60.0))


def unanswered(call: str, target: str) -> CloudError | None:
    """What the second zone launches is there, and nobody is told."""
    return CloudUnavailableError("no answer") if (call, target) == ("launch", "spot-b") else None


def nothing(desk: Desk, number: int) -> None:
    """Nothing happens besides."""


@pytest.mark.parametrize(
    ("lost", "downtime", "pace"),
    [
        (False, 900.0, 13),
        (True, 0.0, 7),  # answers are lost
        *by_night((False, 0.0, 7), (False, 61.0, 11), (True, 61.0, 11), (True, 900.0, 13)),
    ],
)
def test_a_power_cut_anywhere_in_a_round_of_refusals_brings_what_is_wanted_and_no_more(
    lost: bool, downtime: float, pace: int
) -> None:
    """One zone has none, the other one node; the second comes on demand."""
    desk = a_market(RULES, LIMITS, spot_a=0, spot_b=1)
    if lost:
        desk.fleet.lose = unanswered
    for where, ended in every_cut(Story(desk=desk, rounds=4, more=14, befalls=nothing), downtime, pace=pace):
        assert isinstance(ended, Market)
        assert dict(ended.fleet.made) == {"spot-b": 1, "sure": 1}, f"{where}: {ended.fleet.made}"


@pytest.mark.parametrize(("downtime", "pace"), [(61.0, 29), *by_night((0.0, 19), (900.0, 37))])
def test_a_power_cut_anywhere_on_the_way_back_costs_no_node_that_is_needed(downtime: float, pace: int) -> None:
    """Both nodes on demand work and may be interrupted: each goes once, for one spot node, and spot never goes."""
    desk = a_market(RULES, LIMITS)
    desk.fleet.tags = {INTERRUPTIBLE_TAG: "true"}
    for name in ("i-1", "i-2"):
        desk.fleet.put(a_node_of(SURE, name, tags=desk.fleet.tags))
        desk.fleet.show(name, State.BUSY)
        desk.fleet.offer_of[name] = "sure"
    for where, ended in every_cut(Story(desk=desk, rounds=10, more=20, befalls=nothing), downtime, pace=pace):
        assert isinstance(ended, Market)
        fleet = ended.fleet
        assert (sum(fleet.made.values()), fleet.made["sure"]) == (2, 0), f"{where}: {fleet.made}"
        running = [node for node in fleet.nodes_.values() if node.state is NodeState.RUNNING]
        assert [node.capacity_type for node in running] == [CapacityType.SPOT] * 2, where
        assert sorted(set(fleet.stops())) == ["i-1", "i-2"], where
