"""Idle nodes that are about to be needed: by a window that opens, or by work that has begun to wait."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch import policies
from gpuwatch.model.activity import State
from gpuwatch.model.decision import REMOVALS, Observation, Status, Step, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.measurement import MetricValue
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.idle_timeout import facts
from gpuwatch.policies.idle_timeout.demand import demand_of, queries
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from gpuwatch.policies.idle_timeout.timeouts import time_round
from gpuwatch.policies.scaling import Metric, ScalingRules
from gpuwatch.policies.schedule import Window, coming
from tests.support.builders.fleet import NOW, RULES, Desk, a_node, a_notice, an_observation
from tests.support.builders.pending_capacity import an_intent

IDLE = IdleRules(timeout="break_even", fresh_timeout=None, restart_cost=600.0, grace_period=300.0)
OFFICE = Window(hours="12:08-18:00", min_nodes=2)  # NOW is 12:00
MINUTE = 60.0
JOBS = {"jobs": "sum(slurm_queue_pending)"}


def the_steps(observation: Observation, rules: PoolRules) -> dict[str, Step]:
    """What the idle policy proposes, by node."""
    return {step.node_id: step for step in policies.propose(observation, "default", rules)[0].steps}


def a_pool(*held: float, noticed: bool = True) -> Observation:
    """Nodes that have been idle for so long, all past their notice."""
    nodes = [a_node(f"i-{number}", held=each) for number, each in enumerate(held)]
    return an_observation(*nodes, notices=tuple(a_notice(node.id) for node in nodes) if noticed else ())


def verbs(observation: Observation, rules: PoolRules) -> list[Verb]:
    """In the order of the nodes."""
    return [step.verb for step in the_steps(observation, rules).values()]


def scheduled(**other: object) -> PoolRules:
    """A pool with an office window."""
    return replace(RULES, idle=IDLE, schedule={"office": replace(OFFICE, **other)})  # type: ignore[arg-type]


def test_nodes_that_a_window_will_ask_for_within_a_restart_are_not_reclaimed() -> None:
    """Of three idle nodes the one idle the longest goes; two would be started again eight minutes later."""
    steps = the_steps(a_pool(7200.0, 9000.0, 8000.0), scheduled())

    assert [step.verb for step in steps.values()] == [Verb.HOLD, Verb.STOP, Verb.HOLD]
    assert steps["i-0"].reason.code == "window_ahead"
    assert "the window office opens in 8m and asks for 2 nodes: it would be started again at once" in (
        steps["i-0"].reason.sentence
    )


@pytest.mark.parametrize(
    ("hours", "kept"),
    [("12:10-18:00", True), ("12:11-18:00", False), ("12:00-18:00", False), ("22:00-06:00", False)],
    ids=["just-within", "just-not", "in-force-already", "tonight"],
)
def test_a_window_counts_for_as_long_as_a_restart_costs(hours: str, kept: bool) -> None:
    """What opens later is no reason to pay rent until then; what is in force is a floor already."""
    assert (verbs(a_pool(7200.0, 9000.0), scheduled(hours=hours)) == [Verb.HOLD] * 2) is kept


def test_nobody_gets_notice_of_a_stop_that_a_window_would_prevent() -> None:
    """The grace is looked over as well: five minutes more than for the stop itself."""
    ahead = a_pool(7200.0, 9000.0, noticed=False)

    assert verbs(ahead, scheduled(hours="12:15-18:00")) == [Verb.HOLD, Verb.HOLD]
    assert verbs(ahead, scheduled(hours="12:16-18:00")) == [Verb.NOTICE, Verb.NOTICE]


def test_a_window_ahead_is_not_met_by_what_only_comes() -> None:
    """Two run and a third is launched: the idle one stays until that one is there."""
    ahead = a_pool(7200.0, 9000.0)
    asked = (an_intent(Verb.LAUNCH, "new:default:1", Status.ACCEPTED),)
    coming = replace(ahead, ledger=replace(ahead.ledger, open_intents=asked))
    there = a_pool(7200.0, 9000.0, 8000.0)

    assert verbs(coming, scheduled()) == [Verb.HOLD, Verb.HOLD]
    assert verbs(there, scheduled()) == [Verb.HOLD, Verb.STOP, Verb.HOLD]


@given(
    minutes=st.integers(0, 30),
    floor=st.integers(0, 6),
    held=st.lists(st.floats(0, 9000), min_size=1, max_size=6),
    window=st.booleans(),
)
def test_a_window_ahead_never_makes_a_removal_likelier(
    minutes: int, floor: int, held: list[float], window: bool
) -> None:
    """What is removed with it is removed without it, and as many stay as it asks for."""
    observation = a_pool(*held)
    hours = f"12:{minutes:02}-18:00" if window else "12:01-18:00"
    rules = scheduled(hours=hours, min_nodes=floor)
    without = the_steps(observation, replace(rules, schedule={}))
    gone = [name for name, step in the_steps(observation, rules).items() if step.verb in REMOVALS]

    assert all(without[name].verb in REMOVALS for name in gone)
    if 0 < minutes <= 10 or not window:
        assert len(held) - len(gone) >= min(floor, len(held))


@pytest.mark.parametrize(
    ("windows", "within", "found"),
    [
        ({"a": OFFICE}, 600.0, ("a", 8, 2)),
        ({"a": OFFICE}, 479.0, None),
        ({"a": OFFICE, "b": Window(hours="12:05-13:00", min_nodes=5)}, 600.0, ("b", 5, 5)),
        ({"a": OFFICE, "b": Window(min_nodes=3)}, 600.0, None),
        ({"a": replace(OFFICE, except_on=("2026-03-02",))}, 600.0, None),
        ({"a": replace(OFFICE, min_nodes=None, max_nodes=3)}, 600.0, None),
        ({"a": Window(days=("tue",), min_nodes=2)}, 43200.0, ("a", 720, 2)),
        ({"a": Window(hours="17:38-20:00", zone="Asia/Kolkata", min_nodes=1)}, 600.0, ("a", 8, 1)),
    ],
)
def test_the_schedule_tells_which_floor_is_coming(
    windows: dict[str, Window], within: float, found: tuple[str, int, int] | None
) -> None:
    """The largest that is above the one in force, and when it comes."""
    expected = None if found is None else (found[0], NOW + timedelta(minutes=found[1]), found[2])

    assert coming(windows, NOW, within) == expected


@given(start=st.integers(0, 400 * 24 * 60), length=st.integers(1, 1500), zone=st.sampled_from(["Europe/Berlin", "UTC"]))
def test_a_floor_that_comes_was_announced_unless_the_clocks_changed(start: int, length: int, zone: str) -> None:
    """Any minute before a window is in force its opening is foreseen, at the time at which it is in force."""
    now = datetime.fromisoformat("2026-01-01T00:00:00Z") + timedelta(minutes=start)
    window = Window(hours="07:30-09:00", zone=zone, days=("mon-fri",), min_nodes=1)
    minutes = [now + timedelta(minutes=minute) for minute in range(length + 1)]
    forced = [bool(policies.schedule.in_force({"w": window}, each)) for each in minutes]
    opens = next((at for at, (before, here) in zip(minutes[1:], pairwise(forced), strict=True) if here > before), None)
    rows = coming({"w": window}, now, length * MINUTE)

    if forced[0] or opens is None:
        assert forced[0] or rows is None
    else:
        assert rows == ("w", opens, 1)


def measured(*measures: tuple[str, float | None]) -> Observation:
    """An idle node and these numbers of its pool."""
    rows = tuple(
        MetricValue(pool="default", name=name, at=NOW, value=value, doubt=None if value is not None else "no answer")
        for name, value in measures
    )
    return replace(an_observation(a_node("i-1", held=700.0)), measures=rows)


@pytest.mark.parametrize(("value", "waits"), [(3.0, True), (0.0, False), (-1.0, False), (None, None)])
def test_work_waits_where_a_demand_is_above_zero(value: float | None, waits: bool | None) -> None:
    """What is not known says neither, and so does a pool without such a number."""
    rules = IdleRules(demand=JOBS)

    assert [(query.name, query.expression) for query in queries("default", rules)] == [
        ("idle.demand.jobs", "sum(slurm_queue_pending)")
    ]
    assert demand_of(measured(("idle.demand.jobs", value)), "default", rules, ScalingRules()) is waits
    assert demand_of(measured(("idle.demand.jobs", value)), "default", IdleRules(), ScalingRules()) is None


@pytest.mark.parametrize(("value", "waits"), [(11.0, True), (10.0, False), (None, None), (float("nan"), None)])
def test_a_total_that_the_pool_scales_by_is_demand_above_what_its_nodes_should_have(
    value: float | None, waits: bool | None
) -> None:
    """Requests or a queue need no second setting; means of GPUs are no demand."""
    queue = Metric(signal="promql", expression="sum(waiting)", target=10.0, per_node=True)
    rules = ScalingRules(metrics={"queue": queue, "load": Metric(target=0.6)})

    assert demand_of(measured(("queue", value), ("gpu_utilization", 0.9)), "default", IdleRules(), rules) is waits


def test_a_part_of_a_number_can_say_that_work_waits_and_not_that_none_does() -> None:
    """Of two queues one that answered is empty."""
    partial = MetricValue(pool="default", name="idle.demand.jobs", at=NOW, value=0.0, samples=1, expected=2)
    rules = IdleRules(demand=JOBS)

    def waits(measure: MetricValue) -> bool | None:
        return demand_of(replace(measured(), measures=(measure,)), "default", rules, ScalingRules())

    assert waits(partial) is None
    assert waits(replace(partial, value=1.0)) is True
    assert waits(replace(partial, samples=2)) is False


@pytest.mark.parametrize("after", ["break_even", 650.0])
def test_work_that_began_to_wait_keeps_idle_nodes_for_a_restarts_time(after: float) -> None:
    """After that it does not fit them; and no queue keeps a node that has been idle for four restarts."""
    rules = replace(RULES, idle=replace(IDLE, timeout=after))

    def verb(queued: float | None, held: float = 700.0) -> Verb:
        observation = replace(a_pool(held, noticed=False), queued={} if queued is None else {"default": queued})
        return verbs(observation, rules)[0]

    assert verb(None) is Verb.NOTICE
    assert [verb(0.0), verb(599.0), verb(600.0)] == [Verb.HOLD, Verb.HOLD, Verb.NOTICE]
    assert [verb(0.0, 2399.0), verb(0.0, 2400.0)] == [Verb.HOLD, Verb.NOTICE]


def test_a_hold_for_waiting_work_says_so() -> None:
    """For how long it has waited."""
    step = the_steps(replace(a_pool(700.0, noticed=False), queued={"default": 120.0}), replace(RULES, idle=IDLE))["i-0"]

    assert step.reason.code == "queued"
    assert step.reason.sentence.endswith("; work has waited for the pool for 2m, which it may take.")


def test_rounds_ask_for_the_queue_remember_since_when_it_waits_and_stop_at_last() -> None:
    """A queue that does not go away keeps an idle machine for a restart's time, and an empty one not at all."""

    def rounds(queue: float | None) -> int:
        desk = Desk(rules=replace(RULES, warm_up=0.0, idle=replace(IDLE, demand=JOBS)))
        desk.fleet.put(a_node("i-1", State.BUSY))
        desk.fleet.numbers["default", "idle.demand.jobs"] = 0.0
        desk.round()
        desk.fleet.show("i-1", State.IDLE, 0.0)
        for number in range(60):
            if number == 8:
                desk.fleet.numbers["default", "idle.demand.jobs"] = queue
            desk.round()
            if desk.fleet.nodes_["i-1"].state is not NodeState.RUNNING:
                return number
        return 60

    assert rounds(0.0) == rounds(None) == 15
    assert rounds(2.0) == 23


def learning(observation: Observation, history: GapHistory) -> tuple[float, GapHistory]:
    """A round of a pool that learns: its node's wait, and what it knows."""
    rules = replace(RULES, idle=replace(IDLE, timeout="learned", demand=JOBS))
    found = time_round(observation, "default", rules, history)
    return found.waits["i-1"].seconds, found.history


def test_a_learned_wait_is_longer_while_work_begins_to_wait_as_far_as_the_savings_go() -> None:
    """Without savings it is break-even's; with some it takes them; a queue that is not known changes nothing."""
    queue = measured(("idle.demand.jobs", 4.0))

    assert learning(queue, GapHistory())[0] == pytest.approx(700.0)
    assert learning(queue, GapHistory(saved=1000.0))[0] == pytest.approx(
        900.0
    )  # to the next bin, where it is asked again
    assert learning(measured(("idle.demand.jobs", None)), GapHistory(saved=1000.0))[0] == pytest.approx(700.0)
    old = GapHistory(saved=1000.0, queued_since=NOW.timestamp() - 600.0)
    assert learning(queue, old)[0] == pytest.approx(700.0)


@pytest.mark.parametrize("value", [2.0, 0.0, None])
def test_work_that_waits_is_a_fact_to_learn_from(value: float | None) -> None:
    """As its number is; none where it is not known."""
    _, history = learning(measured(("idle.demand.jobs", value)), GapHistory())
    known = history.open["i-1"].asked[0].facts

    assert known.get("hint jobs") == (None if value is None else facts.count(value))


def test_a_hint_is_asked_for_and_a_fact() -> None:
    """Whatever number a scheduler has; also the next window of the schedule is one."""
    idle = replace(IDLE, timeout="learned", hints={"free GPUs": "gpus_free"})
    rules = replace(RULES, idle=idle, schedule={"w": Window(hours="12:30-18:00", min_nodes=1)})
    found = time_round(measured(("idle.hints.free GPUs", 3.0)), "default", rules, GapHistory())

    assert [(each.name, each.expression) for each in queries("default", idle)] == [
        ("idle.hints.free GPUs", "gpus_free")
    ]
    assert found.history.open["i-1"].asked[0].facts.keys() >= {"hint free GPUs", "window"}


@pytest.mark.parametrize("floor", ["min_nodes", "window", "window ahead"])
def test_a_pool_at_its_floor_keeps_its_savings(floor: str) -> None:
    """Nodes that nothing may remove cost the learned wait nothing, however long they idle; without it they would."""
    at_floor = {
        "min_nodes": {"min_nodes": 1},
        "window": {"schedule": {"w": Window(min_nodes=1)}},
        "window ahead": {"schedule": {"w": Window(hours="12:05-18:00", min_nodes=1)}},
    }[floor]
    rules = replace(RULES, idle=replace(IDLE, timeout="learned"))
    observation = an_observation(a_node("i-1", held=36000.0))
    kept = time_round(observation, "default", replace(rules, **at_floor), GapHistory())  # type: ignore[arg-type]  # fields
    free = time_round(observation, "default", rules, GapHistory())

    assert kept.history.spare(NOW.timestamp()) >= 0
    assert free.history.spare(NOW.timestamp()) < -30000
    assert kept.waits == {}
