"""Machines of one cloud, account or region that cannot be changed hold up nobody elsewhere (P19, P20, P21).

Their calls time out, are denied or throttled, in the order of the fleet before all others. Whoever is elsewhere gets
notice, protection and end in the same rounds as without them.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.clouds import AuthFailedError, CloudError, CloudUnavailableError, ThrottledError
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import Node, NodeGroup, NodeReport, NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import Desk, a_node
from tests.support.nightly import examples

SOON = PoolRules(warm_up=0.0, idle=IdleRules(timeout=300.0, grace_period=120.0))
FREE = Limits(
    max_stops_per_hour_ratio=1.0,
    max_stops_per_hour=500,
    max_stops_per_round=500,
    mass_idleness_nodes=999,
    max_stops_per_owner_per_hour=None,
)
FAULTS: dict[str, Callable[[], CloudError]] = {
    "time-out": lambda: CloudUnavailableError("no answer within 25s"),
    "denied": lambda: AuthFailedError("UnauthorizedOperation"),
    "throttled": lambda: ThrottledError("Rate exceeded"),
}
ELSEWHERE: dict[str, dict[str, object]] = {
    "cloud": {"cloud": "aws", "account": "1", "region": "eu"},
    "account": {"cloud": "azure", "account": "2", "region": "eu"},
    "region": {"cloud": "azure", "account": "1", "region": "us"},
}
SICK: dict[str, object] = {"cloud": "azure", "account": "1", "region": "eu", "pool": "a"}


def machine(node_id: str, place: dict[str, object], state: State = State.IDLE, **other: object) -> Node:
    """A machine of that place."""
    return replace(a_node(node_id, state), **(place | other))  # type: ignore[arg-type]


def a_world(sick: int, healthy: int, elsewhere: str, fault: str, *, waits: float, calls: frozenset[str]) -> Desk:
    """Idle machines of two places; of the first every change fails."""
    desk = Desk(rules=SOON, limits=FREE)
    for number in range(sick):
        desk.fleet.put(machine(f"a-{number:03}", SICK))
    for number in range(healthy):
        desk.fleet.put(machine(f"z-{number:03}", ELSEWHERE[elsewhere], pool="z"))

    def fail(call: str, node_id: str) -> CloudError | None:
        if call not in calls or not node_id.startswith("a-"):
            return None
        desk.clock.advance(waits)
        return FAULTS[fault]()

    desk.fleet.fault = fail
    return desk


def of_z(desk: Desk) -> list[Node]:
    """The machines elsewhere."""
    return [desk.fleet._now(node) for name, node in list(desk.fleet.nodes_.items()) if name.startswith("z-")]


@settings(max_examples=examples(6))
@given(
    sick=st.sampled_from([1, 3, 17, 20, 40, 200]),
    healthy=st.integers(1, 10),
    elsewhere=st.sampled_from(sorted(ELSEWHERE)),
    fault=st.sampled_from(sorted(FAULTS)),
    waits=st.sampled_from([0.0, 0.5, 25.0]),
)
def test_everybody_elsewhere_has_notice_in_the_first_round_and_is_stopped_as_without_the_sick(
    sick: int, healthy: int, elsewhere: str, fault: str, waits: float
) -> None:
    """However many are sick, and whatever their place says."""
    desk = a_world(sick, healthy, elsewhere, fault, waits=waits, calls=frozenset({"tag"}))
    desk.round()
    noticed = {notice.node_id for notice in desk.ledger.view(desk.clock.now()).notices}
    for _ in range(4):
        desk.round()

    assert noticed == {node.id for node in of_z(desk)}
    assert {node.state for node in of_z(desk)} == {NodeState.STOPPED}


@pytest.mark.parametrize("fault", sorted(FAULTS))
@pytest.mark.parametrize("call", ["stop", "node"])
def test_removals_that_fail_in_one_place_hold_up_no_removal_elsewhere(fault: str, call: str) -> None:
    """The last question, or the call itself, is never answered there."""
    desk = a_world(20, 5, "cloud", fault, waits=10.0, calls=frozenset({call}))
    for _ in range(6):
        desk.round()

    assert {node.state for node in of_z(desk)} == {NodeState.STOPPED}


@pytest.mark.parametrize("fault", sorted(FAULTS))
@pytest.mark.parametrize("sick", [1, 40])
def test_a_member_that_works_is_protected_in_the_same_round(fault: str, sick: int) -> None:
    """Its group may end it while it works: its protection does not wait for anybody's notice."""
    desk = a_world(sick, 0, "cloud", fault, waits=25.0, calls=frozenset({"tag", "protect"}))
    group = NodeGroup(id="g-1", name="g", pool="z", min_size=0, max_size=9, desired=1, region="eu", enrolled=True)
    desk.fleet.groups_["g-1"] = replace(group, node_ids=("z-1",), cloud="aws", account="1")
    desk.fleet.put(machine("z-1", ELSEWHERE["cloud"], State.BUSY, pool="z", group="g-1"))
    asked: list[float] = []
    fail, begun = desk.fleet.fault, desk.clock.monotonic()

    def listen(call: str, node_id: str) -> CloudError | None:
        if (call, node_id) == ("protect", "z-1"):
            asked.append(desk.clock.monotonic() - begun)
        return fail(call, node_id)

    desk.fleet.fault = listen
    desk.round()

    assert desk.fleet.nodes_["z-1"].scale_in_protected
    assert asked == [0.0], "before anything that could have been waited for"


def test_a_floor_elsewhere_is_filled_in_the_same_round() -> None:
    """What a schedule wants is launched there and then (P21)."""
    desk = a_world(40, 0, "cloud", "time-out", waits=25.0, calls=frozenset({"tag"}))
    floor = replace(SOON, schedule={"day": Window(hours="00:00-24:00", min_nodes=2)}, start="any")
    desk.pools = {"default": SOON, "a": SOON, "z": floor}
    for number in range(2):
        stopped = machine(f"z-{number}", ELSEWHERE["cloud"], pool="z", signal=NodeReport(failure="it is stopped"))
        desk.fleet.put(replace(stopped, state=NodeState.STOPPED))
    desk.round()

    assert sorted(name for call, name, _ in desk.fleet.calls if call == "start") == ["z-0", "z-1"]


def test_a_place_that_is_sick_is_asked_a_few_times_a_round_and_after_all_others() -> None:
    """It is not forgotten: once it answers, all its machines have their notice."""
    desk = a_world(40, 10, "region", "time-out", waits=25.0, calls=frozenset({"tag"}))
    asked: list[str] = []
    fail = desk.fleet.fault

    def listen(call: str, node_id: str) -> CloudError | None:
        asked.extend([node_id] * (call == "tag"))
        return fail(call, node_id)

    desk.fleet.fault = listen
    for _ in range(3):
        desk.round()
    assert sum(name.startswith("a-") for name in asked) == 3, "one time-out a round"
    desk.fleet.fault = lambda _call, _node: None
    desk.round()

    noticed = {notice.node_id for notice in desk.ledger.view(desk.clock.now()).notices}
    assert len([name for name in noticed if name.startswith("a-")]) >= 37


def test_open_steps_of_a_silent_place_cost_a_round_one_time_out() -> None:
    """What became of them is asked in later rounds; of those elsewhere it is found out in the first."""
    desk = a_world(20, 5, "cloud", "time-out", waits=0.0, calls=frozenset())
    desk.fleet.lag = lambda: 30.0
    for _ in range(3):
        desk.round(0.0)
        desk.rest(60.0)
    open_there = [entry.intent.node_id for entry in desk.ledger.view(desk.clock.now()).open_intents]
    assert len(open_there) == 25

    def hang(call: str, node_id: str) -> CloudError | None:
        if call != "node" or not node_id.startswith("a-"):
            return None
        desk.clock.advance(25.0)
        return CloudUnavailableError("no answer within 25s")

    desk.fleet.fault = hang
    begun = desk.clock.monotonic()
    done = desk.round(0.0)

    assert {node.state for node in of_z(desk)} == {NodeState.STOPPED}
    assert len(done.settled) == 5
    assert desk.clock.monotonic() - begun <= 50.0


@settings(max_examples=examples(3))
@given(sick=st.sampled_from([3, 20, 40]), fault=st.sampled_from(["time-out", "denied"]))
def test_sick_machines_of_one_pool_hold_up_no_other_pool_of_their_place(sick: int, fault: str) -> None:
    """The calls of one region alternate between its pools; an answer between two silent ones shows that it is well."""
    desk = Desk(rules=SOON, limits=FREE)
    for number in range(sick):
        desk.fleet.put(machine(f"a-{number:03}", SICK))
    for number in range(10):
        desk.fleet.put(machine(f"z-{number:03}", SICK, pool="z"))
    desk.fleet.fault = lambda call, name: FAULTS[fault]() if call == "tag" and name.startswith("a-") else None
    desk.round()

    noticed = {notice.node_id for notice in desk.ledger.view(desk.clock.now()).notices}
    assert noticed == {f"z-{number:03}" for number in range(10)}


def test_thousands_of_notices_delay_no_protection_by_more_than_a_second() -> None:
    """Neither in their own round nor in the next one, which begins when it is due."""
    desk = Desk(rules=SOON, limits=FREE)
    for number in range(2000):
        desk.fleet.put(machine(f"a-{number:04}", SICK))
    group = NodeGroup(id="g-1", name="g", pool="z", min_size=0, max_size=9, desired=2, region="eu", enrolled=True)
    desk.fleet.groups_["g-1"] = replace(group, node_ids=("z-1", "z-2"), cloud="azure", account="1")
    desk.fleet.put(machine("z-1", SICK, State.BUSY, pool="z", group="g-1"))
    asked: dict[str, float] = {}

    def slow(call: str, node_id: str) -> CloudError | None:
        if call in {"tag", "protect"}:
            asked.setdefault(node_id, desk.clock.monotonic())
            desk.clock.advance(0.5)
        return None

    desk.fleet.fault = slow
    first = desk.round(0.0)
    took = desk.clock.monotonic()
    desk.fleet.put(machine("z-2", SICK, State.BUSY, pool="z", group="g-1"))
    desk.rest(max(0.0, 60.0 - took))
    begun = desk.clock.monotonic()
    desk.round()

    assert asked["z-1"] == 0.0
    assert took <= 60.0, "the next round is not late"
    assert asked["z-2"] - begun <= 1.0
    unreached = [each for each in first.unreached or () if each.verb is Verb.NOTICE]
    assert (
        sum(len(each.targets) for each in unreached) + sum(act.review.step.verb is Verb.NOTICE for act in first.acts)
        == 2000
    )


def test_all_thousands_have_their_notice_in_the_end_the_first_ones_first() -> None:
    """A notice that had no turn has it in one of the next rounds, however many machines join them."""
    desk = Desk(rules=SOON, limits=FREE)
    for number in range(200):
        desk.fleet.put(machine(f"a-{number:04}", SICK))

    def slow(call: str, _node: str) -> CloudError | None:
        desk.clock.advance(0.5 if call == "tag" else 0.0)
        return None

    desk.fleet.fault = slow
    for _ in range(6):
        desk.round()

    noticed = {notice.node_id for notice in desk.ledger.view(desk.clock.now()).notices}
    assert len(noticed | set(desk.fleet.stops())) == 200
