"""How many nodes are spot and how many on demand: on demand comes at the notice and goes when spot works."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.policies.spot.mix import Goal, Has, MixRules, goal, shares

COUNTS = st.integers(0, 20)
HAS = st.builds(Has, spot_working=COUNTS, spot_coming=COUNTS, on_demand=COUNTS, missing_seconds=st.floats(0, 7200))
RULES = st.builds(
    MixRules,
    on_demand_base=st.integers(0, 6),
    spot_share=st.floats(0, 1),
    fallback_after=st.sampled_from([0.0, 600.0]),
    over_provision=st.integers(0, 2),
)


@given(wanted=COUNTS, has=HAS, rules=RULES)
def test_growth_stays_within_what_is_wanted_and_the_surge(wanted: int, has: Has, rules: MixRules) -> None:
    """Never more spot than its share and the spare nodes, never more on demand than wanted."""
    found, (spot, fixed) = goal(wanted, has, rules), shares(wanted, rules)

    assert found.spot_missing == 0 or has.spot_working + has.spot_coming + found.spot_missing <= spot + (
        rules.over_provision
    )
    assert fixed <= found.on_demand <= wanted


@given(wanted=COUNTS, has=HAS, rules=RULES)
def test_every_wanted_node_works_or_comes_unless_the_fallback_waits(wanted: int, has: Has, rules: MixRules) -> None:
    """With what is ordered there are as many as wanted."""
    found = goal(wanted, has, rules)
    here = has.spot_working + has.spot_coming

    if has.missing_seconds >= rules.fallback_after:
        assert here + found.on_demand >= wanted


@given(wanted=COUNTS, has=HAS, rules=RULES)
def test_no_working_node_is_given_back_before_another_works(wanted: int, has: Has, rules: MixRules) -> None:
    """Make before break: where as many worked as wanted, as many still do."""
    found = goal(wanted, has, rules)
    kept = min(has.on_demand, found.on_demand)

    assert has.spot_working + kept >= min(wanted, has.spot_working + has.on_demand)


def test_the_story_of_a_loss() -> None:
    """Notice, order on demand; spot is found and boots; spot works, and on demand goes."""
    rules = MixRules()

    assert goal(4, Has(spot_working=4, spot_coming=0, on_demand=0), rules) == Goal(spot_missing=0, on_demand=0)
    assert goal(4, Has(spot_working=3, spot_coming=0, on_demand=0), rules) == Goal(spot_missing=1, on_demand=1)
    assert goal(4, Has(spot_working=3, spot_coming=1, on_demand=1), rules) == Goal(spot_missing=0, on_demand=1)
    assert goal(4, Has(spot_working=4, spot_coming=0, on_demand=1), rules) == Goal(spot_missing=0, on_demand=0)


def test_a_fallback_may_wait_and_what_stands_in_already_stays() -> None:
    """`fallback_after: 10m`."""
    rules = MixRules(fallback_after=600.0)
    has = Has(spot_working=2, spot_coming=0, on_demand=1, missing_seconds=599.0)

    assert goal(4, has, rules) == Goal(spot_missing=2, on_demand=1)
    assert goal(4, replace(has, missing_seconds=600.0), rules) == Goal(spot_missing=2, on_demand=2)


@pytest.mark.parametrize(
    ("wanted", "base", "share", "expected"), [(10, 2, 0.8, (6, 4)), (1, 2, 1.0, (0, 1)), (3, 0, 0.5, (2, 1))]
)
def test_the_base_is_on_demand_and_of_the_rest_a_share_is_spot(
    wanted: int, base: int, share: float, expected: tuple[int, int]
) -> None:
    """Halves are rounded towards spot."""
    assert shares(wanted, MixRules(on_demand_base=base, spot_share=share)) == expected
