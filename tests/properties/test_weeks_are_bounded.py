"""P11, P17, P23: with a constant load, whatever images and markets do, machines and calls a day are bounded.

At every round no more machines run than are wanted and the declared surge. What fails is tried seldom; what lasts is
replaced for ever.
"""

import os
import random
from dataclasses import replace

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from gpuwatch.controller.round import Round
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeState
from gpuwatch.policies.machines import pool_machines
from tests.support.builders.fleet import Desk
from tests.support.builders.light_desk import LightDesk
from tests.support.builders.weeks import Cause, Week, a_market, an_image, play

EXAMPLES = max(3, int(os.environ.get("NIGHTLY_LIVES", "0")) // 8)
DAYS, MINUTES = 2, 3


def runs_no_more_than_wanted(week: Week, cause: Cause) -> None:
    """P17, at every round."""
    assert week.most <= cause.pools * cause.wanted + cause.surge


def said(done: Round) -> str:
    """What the round's decisions and refusals say."""
    sentences = [clamp for each in done.decisions for clamp in each.clamps]
    return " ".join([*sentences, *(answer.sentence for each in done.reviews for answer in each.refusals)])


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


@settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.explicit, Phase.generate])  # a seed shrinks to nothing
@given(
    seed=st.integers(0, 10_000),
    rests=st.sampled_from([0.02, 0.1, 0.5]),
    leaves=st.sampled_from([0.005, 0.02, 0.1]),
    days=st.integers(4, 7),
    ledger=st.sampled_from(["memory", "database"]),
)
def test_what_launches_leave_stopped_counts_for_as_long_as_it_is_there(
    seed: int, rests: float, leaves: float, days: int, ledger: str
) -> None:
    """Whatever notices it had before, and however old its launch is; a sentence says why nothing more is launched."""
    chance = random.Random(seed)
    cause = an_image(None, state=State.BUSY)
    desk = (LightDesk if ledger == "memory" else Desk)(limits=Limits(), interval=900.0)
    desk.rules = rules = replace(cause.rules, max_nodes=8)
    desk.fleet = cloud = cause.cloud(desk)
    desk.pools, cloud.numbers[("default", "load")] = {"default": rules}, 40.0
    for _ in range(days * 96):
        done = desk.round(900.0)
        shown = [node for node in done.observation.fleet.nodes if node.state is NodeState.STOPPED]
        left = {node.id for node in shown if node.last_stop is None}
        found = pool_machines(done.observation, "default")
        assert {node.id for node in found.stopped} == left
        assert len(left) + len(found.present) <= 8
        more = any((each.wanted or 0) > len(found.present) for each in done.decisions)
        if more and len(left) > 4 and not found.coming and not done.acts:
            full = f"{len(left)} that gpuwatch launched and that stopped by themselves"
            assert full in said(done) or "did not last" in said(done)
        for node in [each for each in cloud.nodes_.values() if each.state is NodeState.RUNNING]:
            if chance.random() < rests:
                cloud.show(node.id, State.IDLE if node.activity.state is State.BUSY else State.BUSY)
            if chance.random() < leaves:
                cloud.put(replace(node, state=NodeState.STOPPED))
