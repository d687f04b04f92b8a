"""A pool on a recording: by hand arithmetic, and by what holds on every recording."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.policies.spot.mix import MixRules
from gpuwatch.simulate.spot.fleet import Terms, lower_bound, play
from gpuwatch.simulate.spot.recording import Recording
from tests.support.nightly import examples

TERMS = Terms(on_demand_usd_per_hour=2.0, spot_price_ratio=0.5, boot_minutes=4, notice_minutes=2)
STRETCHES = st.lists(st.tuples(st.integers(1, 90), st.integers(0, 4)), min_size=2, max_size=12)


def a_recording(**rooms: list[int]) -> Recording:
    """Offers with so many nodes, minute by minute."""
    return Recording(minutes=min(map(len, rooms.values())), nodes=dict(rooms))


def stretched(stretches: list[tuple[int, int]], minutes: int) -> list[int]:
    """So many minutes with so many nodes, one stretch after the other."""
    flat = [nodes for length, nodes in stretches for _ in range(length)]
    return (flat * (1 + minutes // len(flat)))[:minutes]


def test_one_loss_by_hand() -> None:
    """60 minutes of one spot node, which is gone at minute 30; on demand comes at its notice in minute 28."""
    found = play(a_recording(a=[1] * 30 + [0] * 30), 1, MixRules(), TERMS, "x")

    # Spot is billed for 30 minutes and on demand for 32, half and all of $2 an hour.
    assert found.cost_usd == pytest.approx((30 * 1.0 + 32 * 2.0) / 60)
    assert found.spot_node_hours == pytest.approx(30 / 60)
    assert found.on_demand_node_hours == pytest.approx(32 / 60)
    # It boots for four minutes at the beginning, and after the loss on demand boots for two more.
    assert found.working_ratio == pytest.approx((60 - 4 - 2) / 60)
    assert found.interruptions == 1
    assert found.lost_node_hours == pytest.approx(14 / 60)


def test_on_demand_goes_once_spot_works_again() -> None:
    """Ten minutes without spot: on demand from the notice until the new spot node has booted."""
    found = play(a_recording(a=[1] * 100 + [0] * 10 + [1] * 90), 1, MixRules(), TERMS, "x")

    # The notice at 98 is a refusal, asked and refused at 101 and 105; from 113 it boots, and works at 117.
    assert found.on_demand_node_hours == pytest.approx((117 - 98) / 60)
    assert found.full_ratio == pytest.approx(1 - 6 / 200, abs=0.001)


def test_a_recording_without_spot_costs_what_on_demand_costs() -> None:
    """And the bound is the same."""
    nothing = a_recording(a=[0] * 600)
    found = play(nothing, 3, MixRules(), TERMS, "x")

    assert found.cost_ratio == 1.0
    assert lower_bound(nothing, 3, TERMS) == 1.0
    assert found.most_failed_launches_a_day <= 10 * 2 + 4  # in ten hours, the first four soon after another


def test_spot_that_costs_more_than_the_rules_allow_is_not_bought() -> None:
    """Its price is read minute by minute."""
    dear = Recording(minutes=120, nodes={"a": [1] * 120}, usd_per_hour={"a": [1.9] * 120})

    assert play(dear, 1, MixRules(max_price_ratio=0.9), TERMS, "x").spot_node_hours == 0
    assert play(dear, 1, MixRules(max_price_ratio=1.0), TERMS, "x").spot_node_hours > 0


@settings(max_examples=examples(20), deadline=None)
@given(first=STRETCHES, second=STRETCHES, wanted=st.integers(1, 5), spare=st.integers(0, 2))
def test_no_policy_costs_less_than_the_bound_or_has_more_than_wanted_and_the_surge(
    first: list[tuple[int, int]], second: list[tuple[int, int]], wanted: int, spare: int
) -> None:
    """Whatever the recording: a spot node and its stand-in are the only pair, and the spare nodes are declared."""
    minutes = 300
    recording = a_recording(a=stretched(first, minutes), b=stretched(second, minutes))
    found = play(recording, wanted, MixRules(over_provision=spare), TERMS, "x")

    if spare == 0:
        # A node that boots costs and does not work, so the bound is never beaten by working less than it wants.
        lazy = (1 - found.working_ratio) * wanted
        assert found.cost_ratio >= lower_bound(recording, wanted, TERMS) - lazy / wanted - 1e-9
    assert found.spot_node_hours <= (wanted + spare + wanted) * minutes / 60  # those with a notice beside the new ones
    assert found.on_demand_node_hours <= wanted * minutes / 60
    assert 0 <= found.full_ratio <= found.working_ratio <= 1


@settings(max_examples=examples(25), deadline=None)
@given(stretches=STRETCHES)
def test_with_fallback_few_minutes_are_lost_for_each_interruption(stretches: list[tuple[int, int]]) -> None:
    """The difference of boot and notice for each, and the boots at the beginning."""
    recording = a_recording(a=stretched(stretches, 300))
    found = play(recording, 2, MixRules(), TERMS, "x")
    lost = (1 - found.working_ratio) * 2 * 300

    # A node that is given notice while it boots never works: its stand-in boots from then on.
    assert lost <= 2 * 4 + found.interruptions * (4 + 4) + 1e-6
