"""P23: whoever starts, resets and protects machines at any times, gpuwatch stops an idle one twice a day at most.

The neighbour never uses what it brings back; where it does, gpuwatch never takes what works.
"""

import os
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuwatch.guard import Limits
from gpuwatch.model.fleet import NodeGroup
from tests.support.builders.fleet import RULES, a_node
from tests.support.builders.light_desk import LightDesk
from tests.support.fakes.neighbours import RandomNeighbour, most_in_a_day

EXAMPLES = max(3, int(os.environ.get("NIGHTLY_LIVES", "0")) // 8)
MINUTES, DAYS, SIZE = 10, 4, 3
ENDS_MEMBERS = replace(RULES, idle=replace(RULES.idle, action="terminate"))


def play(*, members: bool, **neighbour: object) -> RandomNeighbour:
    """Two idle machines, or a group of three members, and days of that neighbour; the default limits."""
    desk = LightDesk(limits=Limits(), rules=ENDS_MEMBERS if members else RULES, interval=60.0 * MINUTES)
    cloud = desk.fleet = RandomNeighbour(clock=desk.clock, **neighbour)  # type: ignore[arg-type]
    names = tuple(f"m-{number}" for number in range(SIZE)) if members else ("i-1", "i-2")
    for each in names:
        cloud.put(a_node(each, group="asg" if members else None))
    if members:
        cloud.whole["asg"] = SIZE
        cloud.groups_["asg"] = NodeGroup(
            id="asg",
            name="asg",
            pool="default",
            min_size=0,
            max_size=9,
            desired=SIZE,
            region="us-east-1",
            zones=("us-east-1a",),
            enrolled=True,
            node_ids=names,
        )
    for _ in range(DAYS * 24 * 60 // MINUTES):
        desk.round(60.0 * MINUTES)
    return cloud


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    often=st.sampled_from([0.02, 0.1, 0.5, 1.0, 3.0]),
    protects=st.booleans(),
    tells_launches=st.booleans(),
)
def test_a_machine_that_nobody_uses_is_stopped_twice_within_a_day_at_most(
    seed: int, often: float, *, protects: bool, tells_launches: bool
) -> None:
    """However often it is started again, and whenever."""
    cloud = play(members=False, seed=seed, often=often, protects=protects, tells_launches=tells_launches)
    assert most_in_a_day(cloud.removed) <= 2
    assert cloud.wrongly == []


@settings(max_examples=EXAMPLES, deadline=None)
@given(seed=st.integers(0, 2**32), often=st.sampled_from([0.02, 0.1, 0.5, 1.0, 3.0]), protects=st.booleans())
@example(seed=0, often=0.1, protects=False)  # its last member goes an hour after the others
@example(seed=1, often=0.5, protects=False)
def test_a_group_whose_members_nobody_uses_is_ended_twice_within_a_day_at_most(
    seed: int, often: float, *, protects: bool
) -> None:
    """Its size is set again at any time: each time all of its members may go, one by one."""
    cloud = play(members=True, seed=seed, often=often, protects=protects)
    assert most_in_a_day(cloud.removed) <= 2 * SIZE
    assert cloud.wrongly == []


@settings(max_examples=EXAMPLES, deadline=None)
@given(seed=st.integers(0, 2**32), works=st.sampled_from([5.0, 20.0, 90.0]), members=st.booleans())
def test_what_works_or_is_protected_is_never_taken(seed: int, works: float, *, members: bool) -> None:
    """Real work in between makes no difference to that."""
    assert play(members=members, seed=seed, often=1.0, works=works).wrongly == []
