"""P21: whatever the limits allow of a wanted growth happens in that round, from wherever it may come."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.controller.act import execute
from gpuwatch.guard import Limits, Rulebook, case_of, judge, review
from gpuwatch.model.activity import State
from gpuwatch.model.budget import Scope
from gpuwatch.model.decision import (
    ADDITIONS,
    Decision,
    LedgerView,
    Observation,
    Proposal,
    Review,
    Status,
    Step,
    Verb,
)
from gpuwatch.model.fleet import Fleet, Node, NodeGroup, NodeState
from gpuwatch.model.money import Price
from gpuwatch.policies import PoolRules, capacity, machines, resolve
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.policies.scaling import Metric, ScalingRules
from tests.support.builders.fleet import NOW, Desk, a_node, a_stop
from tests.support.builders.money import a_state
from tests.support.builders.past_steps import REASON, a_done, a_group
from tests.support.nightly import examples

KINDS = ["g5.xlarge", "g6.xlarge", "p5.48xlarge"]


def a_price(usd: int) -> Price:
    """Of an hour."""
    return Price(usd_per_hour=Decimal(usd), as_of=NOW.date(), source="a test")


def wished(observation: Observation, rules: Rulebook, targets: dict[str, int]) -> list[Decision]:
    """Decisions of pools that scaling wants at these sizes."""
    return [
        resolve(
            observation,
            pool,
            [Proposal(policy="scaling", pool=pool, reason=REASON, desired_nodes=target, grows=True)],
            replace(rules.pool(pool), max_nodes=None),  # the guard alone holds the ceiling here
        )
        for pool, target in sorted(targets.items())
    ]


def granted(reviews: Sequence[Review]) -> tuple[Step, ...]:
    """What may come."""
    return tuple(each.step for each in reviews if each.allowed and each.step.verb in ADDITIONS)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Observation, Rulebook, dict[str, int]]:
    """Two pools with whatever they may grow by, limits that bind, and prices that are not all known."""
    nodes: list[Node] = []
    groups: list[NodeGroup] = []
    targets, rules = {}, {}
    for pool in ("a", "b"):
        for number in range(draw(st.integers(0, 4))):
            node = a_node(f"i-{pool}{number}", State.BUSY, pool=pool, instance_type=draw(st.sampled_from(KINDS)))
            nodes.append(replace(node, state=draw(st.sampled_from([NodeState.RUNNING, NodeState.STOPPED]))))
        for number in range(draw(st.integers(0, 2))):
            desired = draw(st.integers(0, 3))
            kind = draw(st.sampled_from([*KINDS, None]))
            suspended = draw(st.sampled_from([frozenset(), frozenset({"Launch"})]))
            group = a_group(id=f"g-{pool}{number}", pool=pool, desired=desired, instance_type=kind, node_ids=())
            room = draw(st.integers(0, 9))
            groups.append(replace(group, max_size=desired + room, suspended=suspended))
        template = draw(st.sampled_from([None, "lt-1"]))
        launch = LaunchRules(template=template, instance_type=draw(st.sampled_from([*KINDS, None])))
        rules[pool] = PoolRules(launch=launch, max_nodes=draw(st.sampled_from([None, 4, 9])))
        targets[pool] = draw(st.integers(0, 14))
    limits = Limits(
        max_additions_per_round=draw(st.integers(0, 8)),
        max_additions_per_hour=draw(st.integers(0, 12)),
        max_usd_per_hour=draw(st.sampled_from([None, None, Decimal(10), Decimal(60), Decimal(200)])),
    )
    prices = {kind: a_price(usd) for kind, usd in zip(KINDS, (1, 4, 40), strict=True) if draw(st.integers(0, 3))}
    past = draw(st.integers(0, 3))
    ledger = LedgerView(
        stopped=tuple(a_stop(each.id, at=NOW - timedelta(hours=9)) for each in nodes),
        recent=tuple(replace(a_done(f"i-{n}", key=f"k-{n}", minutes_ago=30.0), verb=Verb.START) for n in range(past)),
    )
    fleet = Fleet(observed_at=NOW, nodes=tuple(nodes), groups=tuple(groups), named=("a", "b"))
    observation = Observation(now=NOW, fleet=fleet, ledger=ledger, prices=prices)
    return observation, Rulebook(pools=rules, limits=limits, enforce=True), targets


@settings(deadline=None, max_examples=examples(300))
@given(situation=situations())
def test_nothing_that_is_wanted_and_allowed_is_left_out(
    situation: tuple[Observation, Rulebook, dict[str, int]],
) -> None:
    """After the round's additions not one more node may come to any pool that wants one; and none comes unwanted."""
    observation, rules, targets = situation
    steps = granted(review(observation, wished(observation, rules, targets), rules))

    for pool, target in targets.items():
        roster = observation.fleet.roster(pool)
        there = {node.id for node in roster.nodes} | {group.id for group in roster.groups}
        mine = [step for step in steps if step.node_id in there or capacity.pool_of_launch(step) == pool]
        missing = target - machines.now(observation, pool) - sum(map(capacity.adds, mine))
        assert missing >= 0 or not mine, "more comes than is wanted"
        assert len({step.node_id for step in steps}) == len(steps)
        for step in one_more(observation, pool, steps, rules.pool(pool)) if missing > 0 else ():
            others = tuple(each for each in steps if each.node_id != step.node_id)
            case = case_of(step, observation, pool, rules, frozen=None, granted=others)
            assert not judge(case).allowed, f"{step.verb} of {step.node_id} could have come to {pool}"


def one_more(observation: Observation, pool: str, steps: Sequence[Step], rules: PoolRules) -> list[Step]:
    """Every single node by which the pool could be larger."""
    taken = {step.node_id: step for step in steps}
    found = [
        Step(node_id=node.id, verb=Verb.START, reason=REASON, change="")
        for node in observation.fleet.roster(pool).nodes
        if node.state is NodeState.STOPPED and node.id not in taken
    ]
    for group in observation.fleet.roster(pool).groups:
        adds = 1 + (capacity.adds(taken[group.id]) if group.id in taken else 0)
        arguments = {"size": str(group.desired + adds), "adds": str(adds)}
        found.append(Step(node_id=group.id, verb=Verb.GROW, reason=REASON, change="", arguments=arguments))
    if rules.launch.template is not None:
        document = {"pool": pool, "template": rules.launch.template, "version": "$Default"}
        document |= {} if rules.launch.instance_type is None else {"instance_type": rules.launch.instance_type}
        found.append(Step(node_id=f"new:{pool}:99", verb=Verb.LAUNCH, reason=REASON, change="", arguments=document))
    return found


def a_desk(desired: int, limits: Limits, **rules: object) -> Desk:
    """A consented group of busy members whose queue wants twice as many."""
    queue = Metric(signal="promql", expression="q", target=10.0, per_node=True)
    scaling = ScalingRules(metrics={"queue": queue}, tolerance=0.0)
    desk = Desk(rules=PoolRules(scaling=scaling, **rules), limits=limits)  # type: ignore[arg-type]
    members = tuple(f"i-{number}" for number in range(desired))
    for node_id in members:
        desk.fleet.put(a_node(node_id, State.BUSY, group="g-1"))
    desk.fleet.groups_["g-1"] = a_group(desired=desired, max_size=60, node_ids=members)
    desk.fleet.numbers["default", "queue"] = desired * 20.0
    return desk


@pytest.mark.parametrize("desired", [1, 4, 6, 12])
def test_a_group_whose_load_doubles_grows_at_once(desired: int) -> None:
    """By default five nodes a round; the rest follows, and the sentence says what held it."""
    desk = a_desk(desired, Limits())
    done = desk.round()

    assert desk.fleet.groups_["g-1"].desired == desired + min(desired, 5)
    (act,) = [each for each in done.acts if each.review.step.verb is Verb.GROW]
    limited = "max_additions_per_round allows 5" in act.review.step.reason.sentence
    assert limited is (desired > 5)
    for _ in range(30):
        desk.round()
    assert desk.fleet.groups_["g-1"].desired == 2 * desired


@pytest.mark.parametrize(
    ("limits", "rules", "size"),
    [
        (Limits(max_additions_per_hour=2), {}, 8),
        (Limits(max_additions_per_round=0), {}, 6),
        (Limits(max_usd_per_hour=Decimal(90)), {}, 9),
        (Limits(max_usd_per_hour=Decimal(65)), {}, 6),
        (Limits(), {"max_nodes": 8}, 8),
    ],
)
def test_each_limit_lets_its_part_come(limits: Limits, rules: dict[str, object], size: int) -> None:
    """Nodes in a round and an hour, dollars, the pool's maximum."""
    desk = a_desk(6, limits, **rules)
    desk.prices["g6.xlarge"] = a_price(10)
    desk.round()

    assert desk.fleet.groups_["g-1"].desired == size


def test_what_one_source_may_not_bring_comes_from_another() -> None:
    """A group of unknown price, one that launches nothing, and a machine of unknown price stand in nobody's way."""
    nodes = (
        a_node("i-1", State.BUSY),
        replace(a_node("i-2", instance_type="p5.48xlarge"), state=NodeState.STOPPED),
        replace(a_node("i-3"), state=NodeState.STOPPED),
    )
    groups = (
        a_group(id="g-1", desired=0, instance_type=None, node_ids=()),
        a_group(id="g-2", desired=0, suspended=frozenset({"Launch"}), node_ids=()),
        a_group(id="g-3", desired=0, max_size=1, node_ids=()),
    )
    stopped = tuple(a_stop(each, at=NOW - timedelta(hours=age)) for each, age in (("i-2", 1), ("i-3", 2)))
    observation = Observation(
        now=NOW,
        fleet=Fleet(observed_at=NOW, nodes=nodes, groups=groups),
        ledger=LedgerView(stopped=stopped),
        prices={"g6.xlarge": a_price(10)},
    )
    rules = PoolRules(launch=LaunchRules(template="lt-1", instance_type="g6.xlarge"))
    book = Rulebook(pools={"default": rules}, limits=Limits(max_usd_per_hour=Decimal(40)), enforce=True)

    steps = granted(review(observation, wished(observation, book, {"default": 4}), book))

    assert [(step.verb, step.node_id) for step in steps] == [
        (Verb.START, "i-3"),
        (Verb.GROW, "g-3"),
        (Verb.LAUNCH, "new:default:1"),
    ]


def a_pool(*stopped: Node, groups: tuple[NodeGroup, ...], usd: int = 100) -> tuple[Observation, Rulebook]:
    """What gpuwatch stopped, the last first, and groups; only g6.xlarge has a price."""
    past = tuple(a_stop(each.id, at=NOW - timedelta(hours=n)) for n, each in enumerate(stopped, 1))
    observation = Observation(
        now=NOW,
        fleet=Fleet(observed_at=NOW, nodes=stopped, groups=groups, named=("default",)),
        ledger=LedgerView(stopped=past),
        prices={"g6.xlarge": a_price(10)},
    )
    rules = PoolRules(launch=LaunchRules(template="lt-1", instance_type="g6.xlarge"))
    limits = Limits(max_usd_per_hour=Decimal(usd))
    return observation, Rulebook(pools={"default": rules}, limits=limits, enforce=True)


def asleep(node_id: str, kind: str) -> Node:
    """A stopped machine."""
    return replace(a_node(node_id, instance_type=kind), state=NodeState.STOPPED)


def test_a_growth_instead_of_others_is_as_large_as_what_is_still_missing() -> None:
    """Two starts of unknown price are wanted; one other start and one more member come."""
    observation, book = a_pool(
        asleep("i-1", "p5.48xlarge"),
        asleep("i-2", "p5.48xlarge"),
        asleep("i-3", "g6.xlarge"),
        asleep("i-4", "p5.48xlarge"),
        groups=(a_group(desired=0, node_ids=()),),
    )

    reviews = review(observation, wished(observation, book, {"default": 2}), book)

    assert [(step.verb, step.node_id, capacity.adds(step)) for step in granted(reviews)] == [
        (Verb.START, "i-3", 1),
        (Verb.GROW, "g-1", 1),
    ]
    assert "i-4" not in {each.step.node_id for each in reviews}, "its price is known to be unknown"


def test_what_one_owner_may_not_have_another_may() -> None:
    """A month's budget of one owner says nothing about the next machine of the same type."""
    nodes = (
        asleep("i-1", "p5.48xlarge"),
        replace(asleep("i-2", "g6.xlarge"), owner="ann"),
        replace(asleep("i-3", "g6.xlarge"), owner="bob"),
    )
    observation, book = a_pool(*nodes, groups=())
    observation = replace(observation, budgets=(a_state(scope=Scope(owner="ann")),))

    steps = granted(review(observation, wished(observation, book, {"default": 1}), book))

    assert [step.node_id for step in steps] == ["i-3"]


def test_a_group_that_grows_anyway_may_grow_for_another() -> None:
    """One step with both parts: two growths of one group would be about the same size."""
    groups = (
        a_group(id="g-1", desired=0, max_size=2, suspended=frozenset({"Launch"}), node_ids=()),
        a_group(id="g-2", desired=0, max_size=9, node_ids=()),
    )
    observation, book = a_pool(groups=groups)

    reviews = review(observation, wished(observation, book, {"default": 3}), book)

    assert [(each.step.node_id, each.allowed, capacity.adds(each.step)) for each in reviews] == [
        ("g-1", False, 2),
        ("g-2", True, 3),
    ]


def test_growths_of_two_groups_in_one_round_count_together() -> None:
    """Two groups that may each bring one machine do not bring two where a round may bring one."""
    groups = tuple(a_group(id=each, desired=0, max_size=1, node_ids=()) for each in ("g-1", "g-2"))
    observation, book = a_pool(groups=groups)
    book = replace(book, limits=replace(book.limits, max_additions_per_round=1))

    steps = granted(review(observation, wished(observation, book, {"default": 2}), book))

    assert [(step.node_id, capacity.adds(step)) for step in steps] == [("g-1", 1)]


def test_a_groups_larger_growth_takes_the_place_of_its_smaller_one() -> None:
    """One member and then three are three, not four: as many as a round may bring."""
    groups = (
        a_group(id="g-1", desired=0, max_size=2, suspended=frozenset({"Launch"}), node_ids=()),
        a_group(id="g-2", desired=0, max_size=9, node_ids=()),
    )
    observation, book = a_pool(groups=groups)
    book = replace(book, limits=replace(book.limits, max_additions_per_round=3))

    steps = granted(review(observation, wished(observation, book, {"default": 3}), book))

    assert [(step.node_id, capacity.adds(step)) for step in steps] == [("g-2", 3)]


def test_a_launch_may_follow_launches() -> None:
    """What a group cannot bring is launched beside what is to be launched anyway."""
    group = a_group(desired=0, max_size=1, suspended=frozenset({"Launch"}), node_ids=())
    observation, book = a_pool(groups=(group,))

    steps = granted(review(observation, wished(observation, book, {"default": 3}), book))

    assert [step.node_id for step in steps] == [f"new:default:{number}" for number in (1, 2, 3)]


def test_what_is_too_dear_is_not_launched_instead_of_a_launch() -> None:
    """Two of three launches are paid for: the third is refused once, and asked for once."""
    observation, book = a_pool(groups=(), usd=20)

    reviews = review(observation, wished(observation, book, {"default": 3}), book)

    assert [each.allowed for each in reviews] == [True, True, False]


def test_a_node_that_is_about_to_be_terminated_is_not_started_beside_it() -> None:
    """What a decision does with a node in this round is not overruled while other nodes are looked for."""
    node = replace(a_node("i-1"), state=NodeState.STOPPED)
    groups = (a_group(id="g-1", desired=0, instance_type=None, node_ids=()),)
    ledger = LedgerView(stopped=(a_stop("i-1", at=NOW - timedelta(hours=1)),))
    observation = Observation(
        now=NOW,
        fleet=Fleet(observed_at=NOW, nodes=(node,), groups=groups),
        ledger=ledger,
        prices={"g6.xlarge": a_price(10)},
    )
    book = Rulebook(pools={"default": PoolRules()}, limits=Limits(max_usd_per_hour=Decimal(40)), enforce=True)
    grow = Step(node_id="g-1", verb=Verb.GROW, reason=REASON, change="", arguments={"size": "1", "adds": "1"})
    end = Step(node_id="i-1", verb=Verb.TERMINATE, reason=REASON, change="")

    reviews = review(observation, [Decision(pool="default", steps=(end, grow), target=1)], book)

    assert [each.step.verb for each in reviews] == [Verb.TERMINATE, Verb.GROW]


def test_a_growth_that_is_asked_for_in_another_size_is_another_intent() -> None:
    """What the guard has allowed is what the cloud is asked for, whatever an open intent said."""
    desk = a_desk(6, Limits(max_additions_per_round=9))
    reason = REASON
    intent = desk.ledger.intend(Verb.GROW, "g-1", "default", NOW, reason, 1, arguments={"size": "11", "adds": "5"})
    desk.ledger.settle(intent, Status.THROTTLED, "busy", NOW)
    step = Step(node_id="g-1", verb=Verb.GROW, reason=reason, change="", arguments={"size": "8", "adds": "2"})
    parts, seen = desk.parts, desk.plan().observation

    acts = execute(parts, seen, (Review(pool="default", step=step, answers=()),), 1).acts

    assert desk.fleet.groups_["g-1"].desired == 8
    assert len(acts) == 1
    assert [each.intent.arguments["size"] for each in desk.ledger.view(NOW).open_intents] == ["8"]
