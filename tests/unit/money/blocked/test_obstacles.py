"""What holds a machine back: one machine in each real case, and what counts when there are several."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from gpuwatch.guard import RULES as GUARD_RULES
from gpuwatch.guard import Limits
from gpuwatch.guard.obstacles import IN_DOUBT, Holds, Obstacle
from gpuwatch.model.activity import LocalDisks, State
from gpuwatch.model.decision import REMOVAL_STEPS, Status, Verb
from gpuwatch.model.fleet import CapacityType, Node, NodeReport
from gpuwatch.money.blocked import sorting
from gpuwatch.money.blocked.obstacles import ADVICE, act_text
from gpuwatch.policies import PoolRules
from tests.support.builders.blocked import a_priced_desk, blocked_of, obstacles
from tests.support.builders.fleet import NOW, RULES, Desk, a_node, a_verdict
from tests.support.builders.past_steps import a_group

O = Obstacle  # noqa: E741  the table below is read by its right side
SILENT = NodeReport(failure="its agent did not answer within 5s")


def with_disks(**changes: object) -> NodeReport:
    """An agent that sees data on the local disks."""
    return NodeReport(verdict=replace(a_verdict(), local_disks=LocalDisks.USED, **changes))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A case: the machine, its pool's rules, the controller, and what must hold it, in this order."""

    node: Node
    desk: dict[str, object]
    obstacles: list[Obstacle]


def of(*obstacles: Obstacle, rules: PoolRules = RULES, other: dict[str, object] | None = None, **node: object) -> Told:
    """One of them."""
    return Told(node=a_node(**node), desk={"rules": rules, **(other or {})}, obstacles=list(obstacles))  # type: ignore[arg-type]


def with_idle(**changes: object) -> PoolRules:
    """The pool's rules with another idle policy."""
    return replace(RULES, idle=replace(RULES.idle, **changes))  # type: ignore[arg-type]


# One machine, idle for two hours, enrolled, in a controller that enforces, unless told otherwise.
CASES = {
    "nothing": of(),
    "local disks, not asked": of(O.LOCAL_DISKS, instance_store=True),
    "local disks in use": of(O.LOCAL_DISKS, instance_store=True, signal=with_disks()),
    "local disks, discarded": of(rules=with_idle(instance_store="discard"), instance_store=True),
    "parked": of(O.PARKED, signal=NodeReport(verdict=a_verdict(state=State.PARKED))),
    "parked, reclaimed": of(
        rules=with_idle(parked="stop", parked_timeout=3600.0), signal=NodeReport(verdict=a_verdict(state=State.PARKED))
    ),
    "occupied": of(O.OCCUPIED, signal=NodeReport(verdict=a_verdict(state=State.OCCUPIED))),
    "stalled": of(O.STALLED, signal=NodeReport(verdict=a_verdict(state=State.STALLED))),
    "action: report": of(O.IDLE_REPORT, rules=with_idle(action="report")),
    "not enrolled": of(O.NOT_ENROLLED, enrolled=False),
    "not enrolled, with local disks": of(O.NOT_ENROLLED, O.LOCAL_DISKS, enrolled=False, instance_store=True),
    "protected": of(O.PROTECTED, protected="tag gpuwatch:protect protects it"),
    "protected and parked": of(
        O.PROTECTED, O.PARKED, protected="a tag", signal=NodeReport(verdict=a_verdict(state=State.PARKED))
    ),
    "snoozed": of(O.SNOOZED, snoozed="2026-03-03T12:00Z"),
    "snoozed, with local disks": of(
        O.LOCAL_DISKS, O.SNOOZED, snoozed="2026-03-03T12:00Z", instance_store=True, signal=with_disks()
    ),
    "EKS": of(O.OTHER_SYSTEM, managed_by="EKS cluster blue"),
    "reserved": of(O.PAID_ANYWAY, capacity_type=CapacityType.RESERVED),
    "reserved and not enrolled": of(O.PAID_ANYWAY, O.NOT_ENROLLED, capacity_type=CapacityType.RESERVED, enrolled=False),
    "prepaid": of(O.PAID_ANYWAY, capacity_type=CapacityType.PREPAID),
    "stopped, still billed": of(O.STILL_BILLED, still_billed="it has local disks"),
    "one-time spot": of(O.CANNOT_STOP, cannot_stop="its spot request is one-time"),
    "a key of one's own": of(O.MAY_NOT_START, may_not_start="the key k of its volumes is Disabled"),
    "no price": of(O.NO_PRICE, rules=with_idle(timeout="break_even", restart_usd=5), instance_type="x9.large"),
    "the pool's minimum": of(O.FLOOR, rules=replace(RULES, min_nodes=1)),
    "minimum and local disks": of(
        O.LOCAL_DISKS, O.FLOOR, rules=replace(RULES, min_nodes=1), instance_store=True, signal=with_disks()
    ),
    "observe": of(O.OBSERVE, other={"enforce": False}),
    "observe and local disks": of(O.LOCAL_DISKS, O.OBSERVE, other={"enforce": False}, instance_store=True),
    "no backtest": of(O.NO_BACKTEST, other={"limits": Limits(require_backtest=86400.0)}),
    "no backtest, in observe": of(
        O.NO_BACKTEST, O.OBSERVE, other={"limits": Limits(require_backtest=86400.0), "enforce": False}
    ),
    "unknown pool": of(O.UNKNOWN_POOL, other={"pools": {"default": RULES}}, pool="Prod"),
    "waits, and then local disks": of(
        O.LOCAL_DISKS, instance_store=True, signal=NodeReport(verdict=a_verdict(held=60))
    ),
    # In doubt: it may be in use.
    "silent": of(O.NO_AGENT, signal=SILENT),
    "silent and not enrolled": of(O.NO_AGENT, O.NOT_ENROLLED, signal=SILENT, enrolled=False),
    "silent, with local disks": of(O.NO_AGENT, signal=SILENT, instance_store=True),
    "in doubt": of(O.UNKNOWN_USE, signal=NodeReport(verdict=a_verdict(state=State.UNKNOWN))),
    "a GPU in doubt": of(
        O.UNKNOWN_USE, signal=NodeReport(verdict=replace(a_verdict(), gpus=a_verdict(state=State.UNKNOWN).gpus))
    ),
    "a GPU is gone": of(O.GPUS_MISSING, gpu_count=8),
    "type not known": of(O.GPUS_MISSING, gpu_count=None),
    "start not known": of(O.DOUBTFUL_VERDICT, launched_at=None),
    "idle before its start": of(O.DOUBTFUL_VERDICT, launched_at=NOW - timedelta(seconds=60)),
    "evidence is missing": of(O.NO_EVIDENCE, rules=with_idle(required_evidence=("slurm",))),
}


@pytest.mark.parametrize("name", CASES)
def test_each_case_has_its_obstacles(name: str) -> None:
    """The first of them counts the money, the others are told beside it."""
    case = CASES[name]
    desk = a_priced_desk(case.node, **case.desk)

    assert obstacles(blocked_of(desk.plan(), desk)) == case.obstacles


IN_USE = {
    "busy": NodeReport(verdict=a_verdict(state=State.BUSY)),
    "one GPU is busy": NodeReport(verdict=replace(a_verdict(), gpus=a_verdict(state=State.BUSY).gpus)),
}


@pytest.mark.parametrize("name", IN_USE)
def test_a_busy_machine_is_never_in_it(name: str) -> None:
    """Neither as blocked, nor on its way, nor in doubt, whatever else is true of it."""
    desk = a_priced_desk(a_node(signal=IN_USE[name], enrolled=False, instance_store=True), enforce=False)
    found = blocked_of(desk.plan(), desk)

    assert found.not_used.nodes == found.in_doubt.nodes == 0


def paused(desk: Desk) -> None:
    """Somebody pauses everything."""
    desk.ledger.pause(None, "ann", "an incident", desk.clock.now(), None)


def members(**group: object) -> Callable[[Desk], None]:
    """Three idle members of a group."""

    def put(desk: Desk) -> None:
        owner = "Auto Scaling group trainers" if group.get("enrolled") is False else None
        for name in ("i-1", "i-2", "i-3"):
            node = a_node(name, group="g-1", held=7200.0 - int(name[-1]))
            desk.fleet.put(replace(node, managed_by=owner))
        desk.fleet.groups_["g-1"] = a_group(**group)

    return put


GROUPS = {
    "members, action: stop": (members(), RULES, [[O.GROUP_MEMBER]] * 3),
    "members, action: terminate": (members(), with_idle(action="terminate"), [[]] * 3),
    "no consent": (members(enrolled=False), with_idle(action="terminate"), [[O.GROUP_WITHOUT_CONSENT]] * 3),
    "minimum of the group": (members(min_size=2), with_idle(action="terminate"), [[], [O.GROUP_SIZE], [O.GROUP_SIZE]]),
    "Terminate suspended": (
        members(suspended=frozenset({"Terminate"})),
        with_idle(action="terminate"),
        [[O.GROUP_SIZE]] * 3,
    ),
}


@pytest.mark.parametrize("name", GROUPS)
def test_groups_hold_their_members(name: str) -> None:
    """By consent, by what a stop would do, and by their own minimum, which lets some of them go."""
    put, rules, expected = GROUPS[name]
    desk = a_priced_desk(rules=rules)
    put(desk)
    found = blocked_of(desk.plan(), desk)

    assert [obstacles(found, node_id) for node_id in ("i-1", "i-2", "i-3")] == expected


def test_a_pause_holds_what_nothing_else_holds() -> None:
    """A notice from before the pause does not count any more, so the machine is held at once."""
    desk = a_priced_desk(a_node())
    desk.round()
    assert obstacles(blocked_of(desk.round(), desk)) == []
    paused(desk)

    assert obstacles(blocked_of(desk.round(), desk)) == [O.PAUSED]


def test_a_stop_that_is_under_way_is_not_blocked() -> None:
    """From the notice to the last round that sees the machine run, also where a rule would object by then."""
    desk = a_priced_desk(a_node())
    for _ in range(3):
        desk.round()
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], instance_store=True))
    found = blocked_of(desk.round(), desk)

    assert (found.blocked.nodes, found.on_its_way.nodes) == (0, 1)


def test_a_minimum_holds_the_machines_that_were_idle_the_shortest() -> None:
    """As many as the pool's minimum takes beyond those that stay anyway."""
    nodes = (a_node("i-old", held=9000.0), a_node("i-mid", held=8000.0), a_node("i-new", held=7000.0))
    desk = a_priced_desk(*nodes, a_node("i-busy", State.BUSY), rules=replace(RULES, min_nodes=3))
    found = blocked_of(desk.plan(), desk)

    assert {name: obstacles(found, name) for name in ("i-old", "i-mid", "i-new")} == {
        "i-old": [],
        "i-mid": [O.FLOOR],
        "i-new": [O.FLOOR],
    }


def test_an_approval_that_is_due_holds_and_one_that_is_not_due_does_not() -> None:
    """The machine is on its way until its grace is over; then somebody has to approve."""
    desk = a_priced_desk(a_node(), rules=replace(RULES, approval=True))
    seen = [obstacles(blocked_of(desk.round(), desk)) for _ in range(13)]

    assert seen[2] == []
    assert seen[-1] == [O.APPROVAL]


def test_limits_hold_what_is_due_beyond_them() -> None:
    """A fleet whose limits allow no stop."""
    desk = a_priced_desk(a_node(), limits=Limits(max_stops_per_hour=0))
    seen = [obstacles(blocked_of(desk.round(), desk)) for _ in range(13)]

    assert seen[-1] == [O.LIMITS]


def test_a_stop_that_was_given_up_holds() -> None:
    """The machine is left alone for a time, with the cause on record."""
    desk = a_priced_desk(a_node())
    round_id = desk.ledger.record_round(desk.plan().observation)
    intent = desk.ledger.intend(Verb.STOP, "i-1", "default", NOW, sorting._UNASKED, round_id)
    desk.ledger.settle(intent, Status.FAILED, "the cloud refused it", NOW)

    assert obstacles(blocked_of(desk.plan(), desk)) == [O.GIVEN_UP]


def test_a_pool_that_turned_idle_at_once_is_held() -> None:
    """Until somebody acknowledges it."""
    nodes = [a_node(f"i-{number}", held=2000.0) for number in range(6)]
    desk = a_priced_desk(*nodes, limits=Limits(max_stops_per_hour_ratio=1.0))

    assert obstacles(blocked_of(desk.plan(), desk), "i-3") == [O.MASS_IDLENESS]
    desk.ledger.acknowledge("default", "ann", "a job ended", desk.clock.now())
    assert obstacles(blocked_of(desk.plan(), desk), "i-3") == []


# The rules whose objection is not always the same obstacle: what is looked at for them stands in sorting.py.
BY_FACTS = {"not_enrolled", "owned", "group", "action_not_enabled", "busy", "unknown", "stale", "gpus_missing"}
BY_FACTS |= {"warm_up", "min_nodes", "min_gpus"}


def test_every_obstacle_of_a_rule_is_one_to_a_removal() -> None:
    """And where it takes a closer look, somebody has written down what is looked at."""
    for name, rule in GUARD_RULES.items():
        assert rule.obstacle is None or (rule.machines is not None and rule.machines.verbs & REMOVAL_STEPS), name

    assert {name for name, rule in GUARD_RULES.items() if rule.holds is Holds.BY_FACTS} == BY_FACTS


def test_every_obstacle_says_what_frees_it_and_at_which_risk() -> None:
    """In words that name the pool's key, or the command with the pool."""
    assert set(ADVICE) == set(Obstacle)
    assert set(list(Obstacle)[-len(IN_DOUBT) :]) == IN_DOUBT
    for obstacle, advice in ADVICE.items():
        text = act_text(obstacle, ["a"])
        assert "{" not in text
        assert ("pools.a." in text) == bool(advice.key)
        assert advice.risk
    assert act_text(O.NO_BACKTEST, ["a"]) == "`gpuwatch backtest --ledger --pool a --keep`"
    assert act_text(O.NO_BACKTEST, ["a", "b"]) == "`gpuwatch backtest --ledger --pool NAME --keep`"
    assert "pools.c.idle.parked and that of 2 more pools" in act_text(O.PARKED, list("abcde"))


def test_pauses_end() -> None:
    """One that is over holds nothing."""
    desk = a_priced_desk(a_node())
    desk.ledger.pause("default", "ann", "", NOW - timedelta(hours=2), NOW - timedelta(hours=1))

    assert obstacles(blocked_of(desk.plan(), desk)) == []
