"""The controller itself on recordings: it reaches what the rules alone reach, and keeps its own promises."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.guard import Limits
from gpuwatch.policies.spot.mix import MixRules
from gpuwatch.simulate.spot.fleet import Terms, lower_bound, play
from gpuwatch.simulate.spot.live import play_live
from gpuwatch.simulate.spot.recording import Recording
from tests.support.nightly import examples

TERMS = Terms()
RULES = MixRules(give_back_notice=60.0)
STRETCHES = st.lists(st.tuples(st.integers(20, 120), st.integers(0, 3)), min_size=2, max_size=6)


def a_recording(**rooms: list[int]) -> Recording:
    """Offers with so many nodes, minute by minute."""
    return Recording(minutes=min(map(len, rooms.values())), nodes=dict(rooms))


def stretched(stretches: list[tuple[int, int]], minutes: int) -> list[int]:
    """So many minutes with so many nodes, one stretch after the other."""
    flat = [nodes for length, nodes in stretches for _ in range(length)]
    return (flat * (1 + minutes // len(flat)))[:minutes]


def test_one_loss_by_hand() -> None:
    """One spot node is gone at minute 30; on demand is ordered at its notice in minute 28."""
    found = play_live(a_recording(a=[1] * 30 + [0] * 30), 1, RULES, TERMS, "x")

    assert found.interruptions == 1
    assert found.on_demand_node_hours == pytest.approx(32 / 60)
    assert found.spot_node_hours == pytest.approx(30 / 60)
    assert found.working_ratio == pytest.approx((60 - 4 - 2) / 60)


def test_a_notice_for_a_node_that_boots_is_seen_in_the_cloud_s_list() -> None:
    """Its agent says nothing yet. Its place is filled at the notice, as the rules alone fill it."""
    short = a_recording(a=[1] * 5 + [0] * 55)
    found, alone = (each(short, 1, RULES, TERMS, "x") for each in (play_live, play))

    assert found.on_demand_node_hours == alone.on_demand_node_hours == pytest.approx(57 / 60)
    assert found.working_ratio == alone.working_ratio


def test_on_demand_goes_once_spot_works_again() -> None:
    """Make before break: with an hour without spot no minute is without a node after its boot."""
    found = play_live(a_recording(a=[1] * 100 + [0] * 60 + [1] * 140), 1, RULES, TERMS, "x")
    alone = play(a_recording(a=[1] * 100 + [0] * 60 + [1] * 140), 1, RULES, TERMS, "x")

    assert found.full_ratio == pytest.approx(alone.full_ratio, abs=0.01)
    assert 1.0 < found.on_demand_node_hours <= alone.on_demand_node_hours + 0.2


def test_dear_spot_is_not_bought() -> None:
    """The prices are those of the recording, minute by minute."""
    dear = Recording(minutes=90, nodes={"a": [1] * 90}, usd_per_hour={"a": [0.95] * 90})

    assert play_live(dear, 1, RULES, TERMS, "x").spot_node_hours == 0


def test_the_limits_of_a_fleet_hold_in_a_play() -> None:
    """With two additions an hour, eight nodes take hours."""
    found = play_live(a_recording(a=[8] * 120), 8, RULES, TERMS, "x", Limits(max_additions_per_hour=2))

    assert found.spot_node_hours <= 2 * 2 + 2


@settings(max_examples=examples(3), deadline=None)
@given(first=STRETCHES, second=STRETCHES, wanted=st.integers(1, 4))
def test_the_controller_reaches_what_its_rules_reach(
    first: list[tuple[int, int]], second: list[tuple[int, int]], wanted: int
) -> None:
    """Within a tenth of the wanted node-hours, whatever the recording; its offers rest a little longer."""
    recording = a_recording(a=stretched(first, 300), b=stretched(second, 300))
    live, alone = play_live(recording, wanted, RULES, TERMS, "x"), play(recording, wanted, RULES, TERMS, "x")

    assert live.cost_ratio <= alone.cost_ratio + 0.1
    assert live.working_ratio >= alone.working_ratio - 0.1
    lazy = 1 - live.working_ratio
    assert live.cost_ratio >= lower_bound(recording, wanted, TERMS) - lazy - 1e-9
