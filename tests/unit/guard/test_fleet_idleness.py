"""P25: many machines that turn idle together freeze the fleet, however they are divided into pools."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.guard import Limits, Rulebook, burst, find_bursts, review
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Decision
from gpuwatch.model.fleet import Node, NodeReport
from gpuwatch.policies import PoolRules
from tests.support.builders.fleet import HOUR, LIVES, NOW, RULES, a_node, a_notice, a_verdict, an_observation
from tests.support.builders.past_steps import a_step

LIMITS = Limits()


def in_pools(nodes: list[Node], size: int) -> list[Node]:
    """The same machines in pools of so many."""
    return [replace(node, pool=f"p{place // size}") for place, node in enumerate(nodes)]


def turned(count: int, held: float = HOUR, name: str = "t") -> list[Node]:
    """Machines that turned idle in the same second."""
    return [a_node(f"i-{name}{number}", held=held) for number in range(count)]


def busy(count: int) -> list[Node]:
    """Machines that work."""
    return [a_node(f"i-b{number}", State.BUSY) for number in range(count)]


def with_agent(node: Node, driver: str | None = None, agent: str = "1.0") -> Node:
    """Its agent's version, and its driver's."""
    verdict = node.verdict or a_verdict(node.id)
    return replace(node, signal=NodeReport(verdict=replace(verdict, driver_version=driver, agent_version=agent)))


MACHINES = st.lists(
    st.tuples(st.sampled_from([State.IDLE, State.PARKED, State.BUSY, State.UNKNOWN]), st.floats(0.0, 2 * HOUR)),
    max_size=30,
)


@settings(max_examples=LIVES * 4)
@given(MACHINES, st.lists(st.integers(0, 5), min_size=30, max_size=30), st.sampled_from([0.0, 0.2, 0.5, 0.9]))
def test_however_machines_are_divided_into_pools_the_freeze_is_the_same_or_stricter(
    machines: list[tuple[State, float]], pools: list[int], ratio: float
) -> None:
    """A burst of one pool of all of them is one of each of their pools, and no earlier one."""
    limits = replace(LIMITS, mass_idleness_ratio=max(ratio, 0.1))
    nodes = [a_node(f"i-{place}", state, held) for place, (state, held) in enumerate(machines)]
    divided = [replace(node, pool=f"p{pool}") for node, pool in zip(nodes, pools, strict=False)]
    whole = burst(an_observation(*nodes), "default", limits)
    found = find_bursts(an_observation(*divided), limits)

    for node in divided if whole is not None else ():
        there = found.on(node.pool, node)
        assert there is not None
        assert whole is not None
        assert there.last >= whole.last


@pytest.mark.parametrize("size", [100, 4, 1])
def test_a_hundred_machines_that_turn_idle_at_once_freeze_in_pools_of_any_size(size: int) -> None:
    """A driver's upgrade, and all of them work: no pool is small enough to be stopped."""
    nodes = in_pools(turned(100), size)
    notices = tuple(a_notice(node.id, pool=node.pool) for node in nodes)
    observation = an_observation(*nodes, notices=notices)
    decisions = [Decision(pool=node.pool, steps=(a_step(node.id),)) for node in nodes[:3]]
    rules = Rulebook(pools={node.pool: RULES for node in nodes}, limits=LIMITS, enforce=True)
    reviews = review(observation, decisions, rules)

    assert [[each.rule for each in found.refusals if each.rule == "mass_idleness"] for found in reviews] == [
        ["mass_idleness"]
    ] * 3


@settings(max_examples=LIVES * 4)
@given(count=st.integers(0, 4), working=st.integers(0, 9))
def test_few_machines_whose_people_go_home_never_freeze(count: int, working: int) -> None:
    """Fewer than mass_idleness_nodes are no reason to suspect a sensor, in the whole fleet as in a pool."""
    nodes = in_pools([*turned(count), *busy(working)], 1)

    assert find_bursts(an_observation(*nodes), LIMITS).by_group == {}


def test_a_pool_that_ends_its_work_does_not_freeze_a_large_fleet() -> None:
    """Eight of a hundred are no half of the fleet."""
    nodes = [*turned(8), *(replace(node, pool="other") for node in busy(92))]
    found = find_bursts(an_observation(*nodes), LIMITS)

    assert found.on("default") is not None
    assert found.on("other", nodes[-1]) is None


@pytest.mark.parametrize("shared", ["driver", "agent", "image", "cloud"])
def test_what_turned_idle_together_and_has_something_in_common_is_suspected_together(shared: str) -> None:
    """Six of sixty machines in pools of their own: those with it freeze, and the others do not."""
    same = {"driver": {"driver": "570.1"}, "agent": {"agent": "2.0"}}.get(shared, {})
    fields = {shared: "new"} if shared in {"image", "cloud"} else {}
    sick = [replace(with_agent(node, **same), **fields) for node in turned(6)]  # type: ignore[arg-type]
    nodes = in_pools([*sick, *map(with_agent, busy(54)), *map(with_agent, turned(1, 5 * HOUR, "other"))], 1)
    found = find_bursts(an_observation(*nodes), LIMITS)

    for node in nodes:
        there = found.on(node.pool, node)
        assert (there is not None) is (node.id.startswith("i-t"))
        if there is not None:
            assert (there.count, there.members) == (6, 6)


def test_a_freeze_says_what_its_machines_have_in_common() -> None:
    """People look at the driver first, not at a hundred machines."""
    nodes = in_pools([with_agent(node, "570.1") for node in turned(100)], 4)
    observation = an_observation(*nodes, notices=(a_notice("i-t0", pool="p0"),))
    rules = Rulebook(pools={node.pool: RULES for node in nodes}, limits=LIMITS, enforce=True)
    [found] = review(observation, [Decision(pool="p0", steps=(a_step("i-t0"),))], rules)
    [said] = [each for each in found.refusals if each.rule == "mass_idleness"]

    assert "100 of 100 working nodes of the fleet turned idle at once" in said.sentence
    assert "in common they have the driver 570.1, the agent 1.0" in said.sentence
    assert "run `gpuwatch acknowledge`" in said.remedy


def test_an_acknowledgement_of_one_pool_is_of_that_pool_alone() -> None:
    """Its people know that their machines are idle, and nothing of the others."""
    nodes = in_pools(turned(100), 4)
    known = (("p3", NOW - timedelta(minutes=5)),)
    found = find_bursts(an_observation(*nodes, acknowledged=known), LIMITS)

    assert found.on("p3", nodes[12]) is None
    assert found.on("p4", nodes[16]) is not None
    everywhere = ((None, NOW - timedelta(minutes=5)),)
    assert find_bursts(an_observation(*nodes, acknowledged=everywhere), LIMITS).on("p4", nodes[16]) is None


def test_the_rules_of_a_pool_change_nothing_of_the_fleets_freeze() -> None:
    """A pool with a shorter wait is let go no sooner than its own first possible notice allows."""
    nodes = in_pools(turned(100, held=2100.0), 1)
    observation = an_observation(*nodes, notices=(a_notice("i-t0", pool="p0"),))
    short = PoolRules(warm_up=0.0, idle=replace(RULES.idle, timeout=600.0))
    rules = Rulebook(pools={node.pool: short for node in nodes}, limits=LIMITS, enforce=True)
    [found] = review(observation, [Decision(pool="p0", steps=(a_step("i-t0"),))], rules)

    assert "mass_idleness" in {each.rule for each in found.refusals}
