"""P11, P17, P23: with a constant load, whatever images and markets do, machines and calls a day are bounded.

At every round no more machines run than are wanted and the declared surge. What fails is tried seldom; what lasts is
replaced for ever.
"""

import os

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeState
from tests.support.builders.weeks import Cause, Week, a_market, an_image, play

EXAMPLES = max(3, int(os.environ.get("GPUWATCH_LIVES", "25")) // 8)
DAYS, MINUTES = 2, 3


def runs_no_more_than_wanted(week: Week, cause: Cause) -> None:
    """P17, at every round."""
    assert week.most <= cause.pools * cause.wanted + cause.surge


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    minutes=st.sampled_from([3.0, 6.0, 15.0, 30.0, 50.0, 90.0, 200.0]),
    then=st.sampled_from([NodeState.STOPPED, NodeState.TERMINATED]),
    pools=st.integers(1, 3),
)
def test_an_image_that_never_works_brings_few_machines(minutes: float, then: NodeState, pools: int) -> None:
    """Its machines go after minutes or hours without work: on the first day they are few, and then fewer."""
    cause = an_image(minutes, then, pools=pools)
    week = play(cause, DAYS, minutes=MINUTES)

    runs_no_more_than_wanted(week, cause)
    assert week.launched[0] <= 2 * pools * cause.wanted + 12
    assert week.launched[1] <= 12
    assert week.calls[1] <= 24 + 12 * pools
    assert week.stopped <= 10 * pools  # half as many again as four, and four more at least


@settings(max_examples=EXAMPLES, deadline=None)
@given(minutes=st.sampled_from([3.0, 10.0, 40.0]), pools=st.integers(1, 3), clouds=st.integers(1, 2))
@example(minutes=40.0, pools=2, clouds=2)
def test_an_image_that_works_for_minutes_brings_few_machines(minutes: float, pools: int, clouds: int) -> None:
    """Also where they are busy until they end, and where a cloud does not answer in every other hour."""
    cause = an_image(minutes, NodeState.TERMINATED, state=State.BUSY, pools=pools, clouds=clouds)
    week = play(cause, DAYS, minutes=MINUTES)

    runs_no_more_than_wanted(week, cause)
    assert week.launched[0] <= 2 * pools * cause.wanted + 12
    assert week.launched[1] <= 12


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    hours=st.none() | st.sampled_from([0.5, 2.0, 4.0, 7.0]),
    taken_after=st.none() | st.sampled_from([3.0, 6.0, 30.0]),
    floor=st.booleans(),
)
def test_no_market_brings_more_machines_than_wanted_and_the_surge(
    hours: float | None, taken_after: float | None, *, floor: bool
) -> None:
    """Spot that comes, goes, and is taken without a word."""
    cause = a_market(hours=hours, taken_after=taken_after, floor=floor)
    week = play(cause, DAYS, minutes=MINUTES)

    runs_no_more_than_wanted(week, cause)
    changes = 0 if hours is None else 24 / hours
    assert week.launched[1] <= 30 + 2 * cause.wanted * changes
    assert week.calls[1] <= 200 + 12 * cause.wanted * changes
