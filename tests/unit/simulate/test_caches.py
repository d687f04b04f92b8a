"""What a backtest need not find out again: steps and fleets are those that are found out anew."""

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from decimal import Decimal
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.model.activity import State
from gpuwatch.model.cloud_notice import CloudNotice, NoticeKind
from gpuwatch.model.decision import LedgerView, Observation, Verb, Wait
from gpuwatch.model.fleet import Fleet, Node, NodeGroup, NodeState
from gpuwatch.model.measurement import Pauses, Restarts
from gpuwatch.model.money import Price
from gpuwatch.model.promise import Notice
from gpuwatch.model.slurm import SlurmNode
from gpuwatch.policies import idle
from gpuwatch.policies.idle import IdleRules
from gpuwatch.simulate.caches import IdleSteps, KnownFleet, LastFleet
from tests.support.builders.fleet import NOW, a_node, a_stop
from tests.support.nightly import examples

Kind = Callable[..., Fleet]
IDS = ["i-1", "i-2", "i-3"]
RULES = [
    IdleRules(timeout=600.0, grace_period=300.0),
    IdleRules(timeout=600.0, grace_period=300.0, terminate_after=7200.0, terminate_grace_period=300.0),
    IdleRules(timeout="learned", fresh_timeout=None, grace_period=0.0, max_age=86400.0),
    IdleRules(timeout="break_even", restart_usd=Decimal(1)),
    IdleRules(timeout="break_even", restart_cost=600.0),
    IdleRules(unattended_grace_period=0.0),
    IdleRules(occupied_timeout=600.0, parked="report", stalled="terminate", owner_grace_period=300.0),
]
PRICE = Price(usd_per_hour=Decimal("0.8"), as_of=NOW.date(), source="a test")
STARTS = [Restarts(), Restarts(starts=3), Restarts(seconds=90.0, starts=7), Restarts(seconds=90.0, starts=8, failed=2)]
FRESH = [None, Pauses(ended=3, days=1), Pauses(ended=20, days=6)]
# One round: what nodes changed to, who has a notice, who was stopped by us, waits, price, rules, the time that passed,
# what the pool's starts have shown, and what it lacks to learn its waits.
ROUNDS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(IDS), st.sampled_from([*State, NodeState.STOPPED, None])),
        st.sets(st.sampled_from(IDS)),
        st.sets(st.sampled_from(IDS)),
        st.dictionaries(st.sampled_from(IDS), st.sampled_from([60.0, 900.0])),
        st.sampled_from([None, PRICE, replace(PRICE, usd_per_hour=Decimal(3))]),
        st.sampled_from(RULES),
        st.sampled_from([0, 60, 400]),
        st.sampled_from(STARTS),
        st.sampled_from(FRESH),
    ),
    min_size=2,
    max_size=6,
)


def shown(node_id: str, what: State | NodeState | None) -> Node:
    """The node as it is now."""
    if isinstance(what, State):
        return a_node(node_id, what, 700.0)
    return replace(a_node(node_id), state=what or NodeState.RUNNING)


@settings(max_examples=examples(150), deadline=None)
@given(rounds=ROUNDS)
def test_a_proposal_with_a_cache_is_that_without_one(rounds: list[tuple[object, ...]]) -> None:
    """Whatever changes from look to look: nodes, notices, stops, waits, prices, rules, the time, starts, or nothing."""
    now, nodes = NOW, {name: a_node(name) for name in IDS}
    cache = IdleSteps()
    for changed, noticed, stopped, waits, price, rules, seconds, starts, fresh in rounds:
        now += timedelta(seconds=seconds)  # type: ignore[arg-type]
        for name, what in changed.items():  # type: ignore[attr-defined]
            if what is None:
                nodes.pop(name, None)
            else:
                nodes[name] = shown(name, what)
        fleet = Fleet(observed_at=now, nodes=tuple(nodes.values()))
        observation = Observation(
            now=now,
            fleet=fleet,
            ledger=LedgerView(
                notices=tuple(Notice(node_id=name, key="k", at=NOW) for name in sorted(noticed)),  # type: ignore[call-overload]
                stopped=tuple(a_stop(name, at=NOW) for name in sorted(stopped)),  # type: ignore[call-overload]
            ),
            prices={} if price is None else {"us-east-1/g6.xlarge/on_demand": price, "g6.xlarge": price},  # type: ignore[dict-item]
            waits={name: Wait(seconds=wait, why="so") for name, wait in waits.items()},  # type: ignore[attr-defined]
            restarts={"default": starts},  # type: ignore[dict-item]
            fresh={} if fresh is None else {"default": fresh},  # type: ignore[dict-item]
        )

        cached = idle.propose(observation, "default", rules, steps_of=cache.steps_of)  # type: ignore[arg-type]

        assert cached == idle.propose(observation, "default", rules)  # type: ignore[arg-type]


def test_a_cache_keeps_no_node_that_is_gone() -> None:
    """After a look it holds that look's nodes, and no other."""
    cache = IdleSteps()
    for names in (IDS, IDS[:1]):
        fleet = Fleet(observed_at=NOW, nodes=tuple(a_node(name) for name in names))
        idle.propose(Observation(now=NOW, fleet=fleet), "default", RULES[0], steps_of=cache.steps_of)

        assert [each.node.id for each in cache.by_pool["default"].made] == names


def test_what_is_unchanged_is_taken_from_the_cache() -> None:
    """The very same node keeps the very same step; a node that became another value gets a new one."""
    cache = IdleSteps()
    same, other = a_node("i-1"), a_node("i-2")
    seen = [
        idle.propose(
            Observation(now=NOW, fleet=Fleet(observed_at=NOW, nodes=nodes)),
            "default",
            RULES[0],
            steps_of=cache.steps_of,
        )
        for nodes in ((same, other), (same, replace(other)))
    ]

    assert seen[0].steps[0] is seen[1].steps[0]
    assert seen[0].steps[1] is not seen[1].steps[1]
    assert seen[0] == seen[1]


def test_a_start_of_the_pool_changes_no_step_of_a_wait_that_is_set() -> None:
    """In a busy pool every start is measured: the steps are taken from the cache but where that cost is in use."""
    node = a_node("i-1", held=300.0)
    fleet = Fleet(observed_at=NOW, nodes=(node,))
    for rules, same in ((RULES[0], True), (RULES[4], True), (replace(RULES[4], restart_cost="measured"), False)):
        cache = IdleSteps()
        first, second = (
            idle.propose(
                Observation(now=NOW, fleet=fleet, restarts={"default": starts}),
                "default",
                rules,
                steps_of=cache.steps_of,
            ).steps[0]
            for starts in STARTS[1:3]
        )

        assert (first is second) is same


def test_the_time_alone_changes_the_step_of_an_old_node_and_of_a_stopped_one() -> None:
    """The very same nodes, an hour later: `max_age` and `terminate_after` go by the clock."""
    old = replace(a_node("i-1", State.BUSY), launched_at=NOW - timedelta(hours=23.5))
    down = replace(a_node("i-2"), state=NodeState.STOPPED)
    ledger = LedgerView(stopped=(a_stop("i-2", at=NOW - timedelta(hours=1)),))
    aged, terminates = RULES[2], RULES[1]
    seen: dict[str, list[object]] = {"aged": [], "terminates": []}
    caches = {"aged": IdleSteps(), "terminates": IdleSteps()}
    for hours in (0.0, 1.0):
        observation = Observation(
            now=NOW + timedelta(hours=hours), fleet=Fleet(observed_at=NOW, nodes=(old, down)), ledger=ledger
        )
        advice = idle.propose(observation, "default", aged, steps_of=caches["aged"].steps_of).advice
        seen["aged"].append([each.reason.code for each in advice])
        seen["terminates"].append(
            idle.propose(observation, "default", terminates, steps_of=caches["terminates"].steps_of).steps[1].verb
        )

    assert seen == {"aged": [[], ["max_age"]], "terminates": [Verb.HOLD, Verb.NOTICE]}


TAKEN = CloudNotice(kind=NoticeKind.SPOT_INTERRUPTION, action="terminate", deadline=NOW, seen_at=NOW)
GROUP = NodeGroup(id="g", name="g", pool="a", min_size=0, max_size=3, desired=1, region="r")


BECOMES = st.sampled_from(
    [
        lambda node: node,
        lambda node: a_node(node.id, State.BUSY, 5.0),
        lambda node: a_node(node.id, State.UNKNOWN),
        lambda node: a_node(node.id, State.STALLED),
        lambda node: a_node(node.id, enrolled=False),
        lambda node: replace(node, state=NodeState.STOPPED),
        lambda node: a_node(node.id, pool="b"),
        lambda node: a_node(f"{node.id}-new"),
        lambda node: a_node(node.id, slurm=SlurmNode(doubt="none")),
        lambda node: a_node(node.id, cloud_notice=TAKEN),
        lambda _: a_node("i-1"),
    ]
)


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), BECOMES), max_size=3), min_size=1, max_size=5), st.booleans())
def test_what_is_carried_on_is_what_would_be_counted(
    rounds: list[list[tuple[int, Callable[[Node], Node]]]],
    all_asked: bool,
) -> None:
    """Round after round a few nodes become others, of two pools and with a group; now and then two have one id."""
    nodes = [a_node(f"i-{number}", pool="ab"[number % 3 == 0]) for number in range(10)]
    first = tuple(nodes)
    last = LastFleet()
    before = KnownFleet(last=last, observed_at=NOW, nodes=first, groups=(GROUP,))
    for changes in rounds:
        asked = before.rosters, before.find("i-1"), before.enrolled
        assert asked
        if all_asked:
            assert not before.in_kubernetes
            assert (before.in_slurm, before.with_notice) == (
                any(node.slurm is not None for node in nodes),
                any(node.cloud_notice is not None for node in nodes),
            )
        for place, become in changes:
            nodes[place] = become(nodes[place])
        plain = Fleet(observed_at=NOW, nodes=tuple(nodes), groups=(GROUP,))
        before = KnownFleet(last=last, observed_at=NOW, nodes=tuple(nodes), groups=(GROUP,))

        assert before.rosters == plain.rosters
        assert [before.find(node.id) for node in nodes] == [plain.find(node.id) for node in nodes]
        assert (before.enrolled, before.in_slurm) == (plain.enrolled, plain.in_slurm)
        assert before.in_kubernetes == plain.in_kubernetes
        assert before.with_notice == plain.with_notice
        assert before.missing(["i-1", "i-0-new", "x"]) == plain.missing(["i-1", "i-0-new", "x"])


def test_a_fleet_with_few_changes_is_not_counted_again() -> None:
    """Of eight nodes one has changed: the nodes of another pool are not looked at."""
    nodes, last = [a_node(f"i-{number}", pool="ab"[number % 2]) for number in range(8)], LastFleet()
    before = KnownFleet(last=last, observed_at=NOW, nodes=tuple(nodes))
    others = before.rosters["a"]
    nodes[3] = a_node("i-3", State.BUSY, pool="b")

    assert KnownFleet(last=last, observed_at=NOW, nodes=tuple(nodes)).rosters["a"] is others


def test_a_known_fleet_with_other_nodes_is_counted_by_those() -> None:
    """What is replaced in it is never answered from what it was."""
    fleet = KnownFleet(last=LastFleet(), observed_at=NOW, nodes=(a_node("i-1"), a_node("i-2")))
    assert fleet.enrolled == {"i-1", "i-2"}

    assert replace(fleet, nodes=(a_node("i-1", enrolled=False), a_node("i-2"))).enrolled == {"i-2"}
    assert replace(fleet, nodes=()).find("i-1") is None
    assert fleet.find("i-1") is not None


@pytest.mark.parametrize("kind", [Fleet, partial(KnownFleet, last=LastFleet())])
@pytest.mark.parametrize(
    "again",
    [
        a_node("i-1", State.IDLE, 700.0),
        a_node("i-1", State.BUSY, 5.0),
        replace(a_node("i-1", State.IDLE, 700.0), state=NodeState.STOPPED),
        a_node("i-1", State.IDLE, 700.0, pool="other"),
        a_node("i-1", State.IDLE, 700.0, enrolled=False),
        a_node("i-9", State.IDLE, 700.0),
    ],
)
def test_with_a_node_its_pools_come_to_what_they_would_if_counted_again(kind: Kind, again: Node) -> None:
    """Whatever the node has become: another state, another pool, not enrolled, or one that the fleet lacks."""
    nodes = tuple(a_node(f"i-{number}", State.IDLE, 600.0) for number in range(1, 6))
    fleet = kind(observed_at=NOW, nodes=nodes, groups=(GROUP,))
    assert fleet.rosters
    later, wider = NOW + timedelta(seconds=5), (replace(GROUP, desired=2),)
    plain = Fleet(
        observed_at=later, nodes=tuple(again if each.id == again.id else each for each in nodes), groups=wider
    )

    seen = fleet.with_node(again, wider, later)

    assert {each.name: getattr(seen, each.name) for each in fields(Fleet)} == vars(plain)
    assert seen.rosters == plain.rosters
    assert seen.find(again.id) == plain.find(again.id)


@pytest.mark.parametrize("kind", [Fleet, partial(KnownFleet, last=LastFleet())])
def test_both_nodes_of_one_id_are_replaced(kind: Kind) -> None:
    """A fleet that has two of that id gets the new one in both places."""
    twice = (a_node("i-1", State.IDLE, 600.0), a_node("i-2", State.BUSY, 60.0), a_node("i-1", State.BUSY, 60.0))
    again = a_node("i-1", State.IDLE, 700.0)

    seen = kind(observed_at=NOW, nodes=twice).with_node(again, (), NOW)

    assert seen.nodes == (again, twice[1], again)
    assert seen.rosters == Fleet(observed_at=NOW, nodes=seen.nodes).rosters
