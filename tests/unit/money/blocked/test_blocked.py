"""The sums of `blocked`: each machine once, never a busy one, and what an act is said to free comes free."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.guard import Limits
from gpuwatch.guard.obstacles import IN_DOUBT, Obstacle
from gpuwatch.model.activity import LocalDisks, State
from gpuwatch.model.decision import REMOVAL_STEPS
from gpuwatch.model.fleet import CapacityType, Node, NodeReport, NodeState
from gpuwatch.money.accounting.scope import count_in
from gpuwatch.money.blocked.blocked import Blocked, Money
from gpuwatch.policies import PoolRules
from gpuwatch.policies.profiles import Removal
from tests.support.builders.blocked import a_priced_desk, all_groups, blocked_of, obstacles
from tests.support.builders.fleet import LIVES, NOW, RULES, Desk, a_node, a_verdict

_POOLS = ("default", "training")


@st.composite
def machines(draw: st.DrawFn) -> Node:
    """A machine in any state, with anything that may hold it."""
    state = draw(st.sampled_from(list(State)))
    verdict = replace(
        a_verdict(state=state, held=draw(st.sampled_from([60.0, 1795.0, 7200.0, 72000.0]))),
        local_disks=draw(st.sampled_from([None, *LocalDisks])),
    )
    if draw(st.integers(0, 5)) == 0:
        verdict = replace(verdict, gpus=a_verdict(state=draw(st.sampled_from(list(State)))).gpus)
    node = a_node(
        signal=NodeReport(failure="it is silent") if draw(st.integers(0, 6)) == 0 else NodeReport(verdict=verdict),
        pool=draw(st.sampled_from([*_POOLS, "elsewhere"])),
        enrolled=draw(st.integers(0, 3)) > 0,
        instance_store=draw(st.booleans()),
        instance_type=draw(st.sampled_from(["g6.xlarge", "x9.large"])),
        gpu_count=draw(st.sampled_from([1, 1, 1, 2, None])),
        protected=draw(st.sampled_from([None, None, None, "a tag"])),
        snoozed=draw(st.sampled_from([None, None, None, "2026-03-09T12:00Z"])),
        managed_by=draw(st.sampled_from([None, None, None, "EKS cluster blue"])),
        cannot_stop=draw(st.sampled_from([None, None, None, "one-time spot"])),
        capacity_type=draw(st.sampled_from([CapacityType.ON_DEMAND] * 3 + [CapacityType.RESERVED])),
        launched_at=draw(st.sampled_from([NOW - timedelta(days=2), NOW - timedelta(days=2), None])),
    )
    there = draw(st.sampled_from([NodeState.RUNNING] * 5 + [NodeState.STOPPED, NodeState.UNKNOWN]))
    return replace(node, state=there)


@st.composite
def rules_of_pools(draw: st.DrawFn) -> PoolRules:
    """Any rules of a pool that matter here."""
    word: st.SearchStrategy[Removal] = st.sampled_from(["stop", "report"])
    idle = replace(
        RULES.idle,
        action=draw(st.sampled_from(["stop", "terminate", "report"])),
        parked=draw(word),
        occupied=draw(word),
        stalled=draw(word),
        instance_store=draw(st.sampled_from(["ask", "discard"])),
        grace_period=draw(st.sampled_from([60.0, 600.0])),
        required_evidence=draw(st.sampled_from([(), (), ("slurm",)])),
    )
    return replace(RULES, idle=idle, min_nodes=draw(st.integers(0, 2)), approval=draw(st.booleans()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A controller after some rounds, and what it says."""

    desk: Desk
    found: Blocked


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """Some rounds of a fleet."""
    nodes = [replace(node, id=f"i-{number}") for number, node in enumerate(draw(st.lists(machines(), max_size=7)))]
    named = [replace(node, name=node.id, signal=_of(node.signal, node.id)) for node in nodes]
    desk = a_priced_desk(
        *named,
        pools={pool: draw(rules_of_pools()) for pool in _POOLS},
        enforce=draw(st.booleans()),
        limits=Limits(max_stops_per_hour=draw(st.sampled_from([0, 1, 10])), max_stops_per_hour_ratio=1.0),
    )
    for _ in range(draw(st.integers(0, 4))):
        desk.round()
    if draw(st.integers(0, 4)) == 0:
        desk.ledger.pause(None, "ann", "", desk.clock.now(), None)
    return Life(desk=desk, found=blocked_of(desk.plan(), desk))


def _of(signal: NodeReport, node_id: str) -> NodeReport:
    return signal if signal.verdict is None else NodeReport(verdict=replace(signal.verdict, node_id=node_id))


@settings(max_examples=LIVES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(lives())
def test_every_machine_counts_once_and_the_sums_are_whole(life: Life) -> None:
    """Groups share no machine; their sums are those of the parts. No machine in them is busy, or about to stop."""
    _about_nodes(life)
    found = life.found
    named = Counter(node.id for group in all_groups(found) for node in group.nodes)
    whole = added(found.blocked, found.blocked_soon, found.on_its_way)

    assert max(named.values(), default=1) == 1
    assert found.not_used == whole
    for groups, money in (
        (found.groups, found.blocked),
        (found.groups_soon, found.blocked_soon),
        (found.groups_in_doubt, found.in_doubt),
    ):
        assert added(*(group.money for group in groups)) == money
        for group in groups:
            assert added(*(each.money for each in group.frees)) == group.money
            assert added(*(each.money for each in group.pools)) == group.money
            assert len(group.nodes) == group.money.nodes
            assert (group.reason in IN_DOUBT) == (groups is found.groups_in_doubt)


def _about_nodes(life: Life) -> None:
    """What is blocked runs, is known to be without use, and has no stop that is under way."""
    done = life.desk.plan()
    seen = done.observation
    let_go = {review.step.node_id for review in done.reviews if review.allowed and review.step.verb in REMOVAL_STEPS}
    for group in (*life.found.groups, *life.found.groups_soon):
        for named in group.nodes:
            node = seen.fleet.find(named.id)
            assert node is not None
            assert node.state is NodeState.RUNNING
            assert node.verdict is not None
            states = {node.activity.state, *(gpu.activity.state for gpu in node.verdict.gpus)}
            assert not states & {State.BUSY, State.UNKNOWN}
            assert node.id not in let_go
            assert seen.ledger.open_for(node.id) is None


@settings(max_examples=max(3, LIVES // 5), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(lives())
def test_what_is_on_its_way_is_let_go_in_the_end(life: Life) -> None:
    """A machine that nothing holds is stopped, or waits for a person, if it stays without use."""
    desk = life.desk
    named = {node.id for group in all_groups(life.found) for node in group.nodes}
    running = [node for node in desk.fleet.nodes_.values() if node.state is NodeState.RUNNING and node.id not in named]
    coming = {node.id for node in running if not _in_use(node)}
    for _ in range(5):  # the longest wait here is 16 h
        desk.rest(4 * 3600.0)
        for _ in range(14):
            desk.round()
    gone = {node_id for call, node_id, _ in desk.fleet.calls if call in {"stop", "terminate"}}

    for node_id in coming - gone:
        assert obstacles(blocked_of(desk.plan(), desk), node_id) in ([Obstacle.APPROVAL], [Obstacle.LIMITS])


def _in_use(node: Node) -> bool:
    verdict = node.verdict
    return verdict is None or any(
        each.state is State.BUSY for each in (verdict.activity, *(gpu.activity for gpu in verdict.gpus))
    )


def added(*parts: Money) -> Money:
    """The sum of sums."""
    return Money(
        nodes=sum(each.nodes for each in parts),
        gpus=sum(each.gpus for each in parts),
        usd_per_day=sum((each.usd_per_day for each in parts), Decimal(0)),
        unpriced=sum(each.unpriced for each in parts),
    )


def change_node(**changes: object) -> Callable[[Desk], None]:
    """Somebody changes the machine."""

    def change(desk: Desk) -> None:
        for node in list(desk.fleet.nodes_.values()):
            desk.fleet.put(replace(node, **changes))  # type: ignore[arg-type]

    return change


def change_idle(**changes: object) -> Callable[[Desk], None]:
    """Somebody changes the pool's idle policy."""

    def change(desk: Desk) -> None:
        desk.rules = replace(desk.rules, idle=replace(desk.rules.idle, **changes))  # type: ignore[arg-type]

    return change


def enforce(desk: Desk) -> None:
    """Somebody sets the mode."""
    desk.enforce = True


def lower(desk: Desk) -> None:
    """Somebody lowers the minimum."""
    desk.rules = replace(desk.rules, min_nodes=0)


ACTS: dict[Obstacle, tuple[Node, PoolRules, Callable[[Desk], None]]] = {
    Obstacle.LOCAL_DISKS: (a_node(instance_store=True), RULES, change_idle(instance_store="discard")),
    Obstacle.PARKED: (
        a_node(signal=NodeReport(verdict=a_verdict(state=State.PARKED, held=72000.0))),
        RULES,
        change_idle(parked="stop"),
    ),
    Obstacle.IDLE_REPORT: (
        a_node(),
        replace(RULES, idle=replace(RULES.idle, action="report")),
        change_idle(action="stop"),
    ),
    Obstacle.NOT_ENROLLED: (a_node(enrolled=False), RULES, change_node(enrolled=True)),
    Obstacle.PROTECTED: (a_node(protected="a tag"), RULES, change_node(protected=None)),
    Obstacle.FLOOR: (a_node(), replace(RULES, min_nodes=1), lower),
    Obstacle.OBSERVE: (a_node(), RULES, enforce),
}


@pytest.mark.parametrize("obstacle", ACTS)
def test_what_an_act_frees_alone_comes_free(obstacle: Obstacle) -> None:
    """After the act that the group names, its machine is on its way, and is stopped."""
    node, rules, act = ACTS[obstacle]
    desk = a_priced_desk(node, rules=rules, enforce=obstacle is not Obstacle.OBSERVE)
    [group] = all_groups(blocked_of(desk.plan(), desk))
    assert (group.reason, group.alone.nodes) == (obstacle, 1)

    act(desk)
    assert blocked_of(desk.plan(), desk).on_its_way.nodes == 1
    for _ in range(16):
        desk.round()
    assert desk.fleet.stops() == ["i-1"]


def test_what_is_not_ours_is_in_no_sum_with_or_without_an_agent() -> None:
    """It is shown with what would enrol it; an account's whole has it among the others."""
    silent = NodeReport(failure="it is silent")
    desk = a_priced_desk(a_node("i-1", enrolled=False), a_node("i-2", enrolled=False, signal=silent))
    found = blocked_of(desk.plan(), desk)

    assert (found.not_used.nodes, found.blocked.nodes, found.in_doubt.nodes, found.groups) == (0, 0, 0, ())
    assert found.foreign == Money(nodes=2, gpus=2, usd_per_day=48 * Decimal("5.672"), unpriced=0)
    assert {node.id for group in found.groups_foreign for node in group.nodes} == {"i-1", "i-2"}
    count_in("account")
    assert blocked_of(desk.plan(), desk).not_used.nodes == 1


def test_one_pool_alone() -> None:
    """Only its machines count."""
    desk = a_priced_desk(a_node("i-1", instance_store=True), a_node("i-2", pool="training", instance_store=True))
    found = blocked_of(desk.plan(), desk, "training")

    assert [node.id for group in found.groups for node in group.nodes] == ["i-2"]
    assert found.groups[0].act.startswith("set pools.training.idle.instance_store to `discard`")


def test_money_is_by_the_day_and_a_machine_without_a_price_is_counted_apart() -> None:
    """A missing price is no zero: it is told."""
    nodes = (a_node("i-1", instance_store=True), a_node("i-2", instance_store=True, instance_type="x9.large"))
    desk = a_priced_desk(*nodes)
    [group] = blocked_of(desk.plan(), desk).groups

    assert group.money == Money(nodes=2, gpus=2, usd_per_day=24 * Decimal("5.672"), unpriced=1)
    assert [node.usd_per_day for node in group.nodes] == [24 * Decimal("5.672"), None]
