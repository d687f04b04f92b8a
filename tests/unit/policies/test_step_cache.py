"""A cache of steps changes no decision."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.model.activity import State
from gpuwatch.model.decision import LedgerView, Observation, Stopped, Verb, Wait
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.model.measurement import Pauses, Restarts
from gpuwatch.model.money import Price
from gpuwatch.model.promise import Notice
from gpuwatch.policies import idle
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.step_cache import StepCache
from tests.support.builders.fleet import NOW, a_node

IDS = ["i-1", "i-2", "i-3"]
RULES = [
    IdleRules(timeout=600.0, grace_period=300.0),
    IdleRules(timeout=600.0, grace_period=300.0, terminate_after=7200.0),
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


@settings(max_examples=150, deadline=None)
@given(rounds=ROUNDS)
def test_a_proposal_with_a_cache_is_that_without_one(rounds: list[tuple[object, ...]]) -> None:
    """Whatever changes from look to look: nodes, notices, stops, waits, prices, rules, the time, starts, or nothing."""
    now, nodes = NOW, {name: a_node(name) for name in IDS}
    cache: StepCache = {}
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
                stopped=tuple(Stopped(node_id=name, key="k", at=NOW) for name in sorted(stopped)),  # type: ignore[call-overload]
            ),
            prices={} if price is None else {"us-east-1/g6.xlarge/on_demand": price, "g6.xlarge": price},  # type: ignore[dict-item]
            waits={name: Wait(seconds=wait, why="so") for name, wait in waits.items()},  # type: ignore[attr-defined]
            restarts={"default": starts},  # type: ignore[dict-item]
            fresh={} if fresh is None else {"default": fresh},  # type: ignore[dict-item]
        )

        cached = idle.propose(observation, "default", rules, cache=cache)  # type: ignore[arg-type]

        assert cached == idle.propose(observation, "default", rules)  # type: ignore[arg-type]


def test_a_cache_keeps_no_node_that_is_gone() -> None:
    """After a look it holds that look's nodes, and no other."""
    cache: StepCache = {}
    for names in (IDS, IDS[:1]):
        fleet = Fleet(observed_at=NOW, nodes=tuple(a_node(name) for name in names))
        idle.propose(Observation(now=NOW, fleet=fleet), "default", RULES[0], cache=cache)

        assert [each.node.id for each in cache["default"].made] == names


def test_what_is_unchanged_is_taken_from_the_cache() -> None:
    """The very same node keeps the very same step; a node that became another value gets a new one."""
    cache: StepCache = {}
    same, other = a_node("i-1"), a_node("i-2")
    seen = [
        idle.propose(Observation(now=NOW, fleet=Fleet(observed_at=NOW, nodes=nodes)), "default", RULES[0], cache=cache)
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
        cache: StepCache = {}
        first, second = (
            idle.propose(
                Observation(now=NOW, fleet=fleet, restarts={"default": starts}), "default", rules, cache=cache
            ).steps[0]
            for starts in STARTS[1:3]
        )

        assert (first is second) is same


def test_the_time_alone_changes_the_step_of_an_old_node_and_of_a_stopped_one() -> None:
    """The very same nodes, an hour later: `max_age` and `terminate_after` go by the clock."""
    old = replace(a_node("i-1", State.BUSY), launched_at=NOW - timedelta(hours=23.5))
    down = replace(a_node("i-2"), state=NodeState.STOPPED)
    ledger = LedgerView(stopped=(Stopped(node_id="i-2", key="k", at=NOW - timedelta(hours=1)),))
    aged, terminates = RULES[2], RULES[1]
    seen: dict[str, list[object]] = {"aged": [], "terminates": []}
    caches: dict[str, StepCache] = {"aged": {}, "terminates": {}}
    for hours in (0.0, 1.0):
        observation = Observation(
            now=NOW + timedelta(hours=hours), fleet=Fleet(observed_at=NOW, nodes=(old, down)), ledger=ledger
        )
        advice = idle.propose(observation, "default", aged, cache=caches["aged"]).advice
        seen["aged"].append([each.reason.code for each in advice])
        seen["terminates"].append(
            idle.propose(observation, "default", terminates, cache=caches["terminates"]).steps[1].verb
        )

    assert seen == {"aged": [[], ["max_age"]], "terminates": [Verb.HOLD, Verb.NOTICE]}
