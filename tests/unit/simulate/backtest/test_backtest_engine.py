"""The backtest's engine: the real controller over a whole recording, fast, and nothing comes out otherwise for it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.agent.devices.load_profile import Intervals, LoadProfile, Phase
from gpuwatch.clouds import Cloud
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.schedule import Window
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.simulate.backtest.engine import Played, foreseen, play
from gpuwatch.simulate.backtest.engine_signals import HistorySource, timeline_of
from gpuwatch.simulate.cloud import LostResponseError, SimulatedCloud
from gpuwatch.simulate.fleet.options import STORY_BEGINS, Options
from gpuwatch.simulate.fleet.play import play as play_agents
from gpuwatch.simulate.fleet.play import stage_play
from gpuwatch.simulate.fleet.workloads import Lost, Workload
from gpuwatch.simulate.fleet.world import Timing, World
from gpuwatch.simulate.memory_ledger import InMemoryLedger
from tests.support.builders.fleet import RULES
from tests.support.fakes.faulty_cloud import FaultRates, FaultyCloud
from tests.support.nightly import examples

GIB = 1024**3
MINUTE = 60.0
OPTIONS = Options(trace=Path("recorded"), grace_period=0.0, warm_up=60.0)
# Idle and busy stretches in turn, in seconds, for each node.
TURNS = st.lists(
    st.lists(st.tuples(st.floats(1, 3000), st.floats(1, 3000)), min_size=1, max_size=6), min_size=1, max_size=3
)
NOTICES = st.sampled_from([0.0, 300.0])


def a_life(name: str, *phases: Phase, **other: object) -> Workload:
    """A node of one GPU."""
    life = Workload(name=name, story="recorded", instance_type="g6.xlarge", gpus=(LoadProfile(phases),))
    return replace(life, **other)  # type: ignore[arg-type]


def lives_of(turns: Sequence[Sequence[tuple[float, float]]]) -> tuple[Workload, ...]:
    """A node for each list of turns; every second turn's work is so faint that its mean rounds to nothing."""
    lives = []
    for number, its in enumerate(turns):
        phases, at = [], 0.0
        for turn, (idle, busy) in enumerate(its):
            phases += [Phase(at=at + idle, utilization_ratio=(0.9, 0.002)[turn % 2]), Phase(at=at + idle + busy)]
            at += idle + busy
        lives.append(a_life(f"n{number}", *phases))
    return tuple(lives)


def came_to(played: Played) -> tuple[object, ...]:
    """All that a play came to but how it got there."""
    runs = {name: [(run.begin, run.ready, run.end) for run in host.runs] for name, host in played.world.hosts.items()}
    return played.world.stops, played.world.restarts, runs, played.violations


def faulty(seed: int) -> object:
    """The cloud with faults of that seed."""
    return lambda cloud, clock: FaultyCloud(cloud, clock, seed)


# What is skipped could decide nothing.


@settings(max_examples=examples(40), deadline=None)
@given(
    turns=TURNS,
    after=st.sampled_from([60.0, 599.5, 600.0, "break_even"]),
    seed=st.none() | st.integers(0, 99),
    notice=NOTICES,
)
def test_skipped_rounds_change_nothing(
    turns: list[list[tuple[float, float]]], after: float | str, seed: int | None, notice: float
) -> None:
    """Stops, starts, runs and violations are those of every round played, whether the cloud fails or not."""
    idle = IdleRules(timeout=after, grace_period=notice, parked_timeout=60.0, instance_store="discard")  # type: ignore[arg-type]
    idle = replace(idle, owner_grace_period=notice)
    options = replace(OPTIONS, idle=idle)
    cloud = (lambda cloud, _: cloud) if seed is None else faulty(seed)
    played = [
        play(options, lives_of(turns), 4 * 3600.0, least_seconds=60.0, cloud=cloud, every_round=every)  # type: ignore[arg-type]
        for every in (False, True)
    ]

    assert came_to(played[0]) == came_to(played[1])
    assert played[1].violations == ()
    assert (played[1].rounds, played[1].skipped) == (239, 0)
    assert played[0].rounds + played[0].skipped == 239
    assert played[0].rounds < 239 or not played[0].skipped


def test_a_fleet_at_work_is_played_in_one_round() -> None:
    """A week in which no node is ever idle for its wait has nothing to decide."""
    life = a_life("busy", Phase(at=0.0, utilization_ratio=1.0))
    played = play(OPTIONS, [life], 7 * 86400.0, least_seconds=600.0)

    assert (played.rounds, played.skipped, played.world.stops) == (1, 7 * 1440 - 2, [])


@pytest.mark.parametrize(
    ("rules", "waits"),
    [
        (PoolRules(idle=replace(RULES.idle, timeout=300.0)), {State.IDLE: 300.0}),
        (
            PoolRules(idle=IdleRules(timeout=300.0, parked="stop", parked_timeout=900.0)),
            {State.IDLE: 300.0, State.PARKED: 900.0},
        ),
        (PoolRules(idle=replace(RULES.idle, timeout="break_even", restart_cost=120.0)), {State.IDLE: 120.0}),
        (PoolRules(idle=replace(RULES.idle, action="report")), {}),
        (PoolRules(idle=IdleRules(timeout="break_even", restart_cost="measured")), None),
        (PoolRules(idle=IdleRules(timeout="learned")), None),
        (PoolRules(idle=IdleRules(terminate_after=3600.0)), None),
        (PoolRules(idle=IdleRules(max_age=3600.0)), None),
        (PoolRules(idle=IdleRules(demand={"jobs": "sum(pending)"})), None),
        (PoolRules(schedule={"day": Window(min_nodes=1)}), None),
    ],
)
def test_rounds_are_skipped_only_where_waits_are_known_ahead(
    rules: PoolRules, waits: dict[State, float] | None
) -> None:
    """Whatever depends on more than how long a node has been idle is played round by round."""
    assert foreseen(rules) == waits


def test_a_play_ends_when_it_is_enough() -> None:
    """It says how much of the recording it is about."""
    asked = iter([False] * 30 + [True] * 9)
    life = a_life("idle", Phase(at=0.0, utilization_ratio=1.0), Phase(at=60.0))
    played = play(OPTIONS, [life], 86400.0, least_seconds=600.0, every_round=True, enough=lambda: next(asked))

    assert (played.rounds, played.seconds) == (30, 30 * MINUTE)


# Verdicts from spans are the agents'.


def test_the_engine_stops_what_the_simulated_agents_make_it_stop() -> None:
    """The same stops as with an agent for each node that samples, at most one round earlier."""
    turns = [(1500.0, 900.0), (2000.0, 1200.0)]
    held = [Phase(at=0.0, utilization_ratio=1.0), Phase(at=1800.0, memory_bytes=4 * GIB), Phase(at=4000.0)]
    lives = (
        *lives_of([turns, [(1210.0, 1000.0), *turns]]),
        a_life("held", *held),
        a_life("deaf", silent=Intervals([(300.0, 2000.0)])),
    )
    lives += tuple(a_life(f"busy{number}", Phase(at=0.0, utilization_ratio=1.0)) for number in range(4))
    options, horizon = replace(OPTIONS, sample=10.0), 2 * 3600.0
    parts, world = stage_play(options, lives, horizon, InMemoryLedger())
    play_agents(parts, world, options, horizon)
    stops = play(options, lives, horizon, least_seconds=600.0).world.stops

    assert {"held", "deaf", "n0", "n1"} == {stop.node for stop in stops}
    for life in lives:
        mine, theirs = ([stop.at for stop in rows if stop.node == life.name] for rows in (stops, world.stops))
        assert len(mine) == len(theirs), life.name
        for early, late in zip(mine, theirs, strict=True):
            assert 0 <= late - early <= options.interval, f"{life.name}: {early} and {late}"


LOST = Lost(gpu=0, spans=Intervals([(100.0, 200.0)]))


@pytest.mark.parametrize(
    ("life", "at", "says", "held"),
    [
        (a_life("n", Phase(at=0.0, utilization_ratio=0.5)), 50.0, State.BUSY, 50.0),
        (a_life("n", Phase(at=10.0, utilization_ratio=0.5), Phase(at=30.0)), 90.0, State.IDLE, 60.0),
        (a_life("n", Phase(at=0.0, utilization_ratio=0.004)), 50.0, State.BUSY, 50.0),
        (a_life("n", Phase(at=20.0, memory_bytes=GIB)), 50.0, State.PARKED, 30.0),
        (a_life("n", lost=(LOST,)), 150.0, State.UNKNOWN, 0.0),
        (a_life("n", lost=(LOST,)), 250.0, State.IDLE, 50.0),
        (a_life("n", silent=Intervals([(0.0, 200.0)])), 150.0, None, 0.0),
        (a_life("n", silent=Intervals([(50.0, 200.0)])), 250.0, State.IDLE, 50.0),
        (
            a_life("n", gpus=(LoadProfile([Phase(at=0.0)]), LoadProfile([Phase(at=99.0, utilization_ratio=1.0)]))),
            100.0,
            State.BUSY,
            1.0,
        ),
        (
            a_life("n", gpus=(LoadProfile([Phase(at=0.0, utilization_ratio=1.0)]),) * 2, lost=(LOST,)),
            150.0,
            State.BUSY,
            150.0,
        ),
    ],
)
def test_a_node_says_what_its_agent_would(life: Workload, at: float, says: State | None, held: float) -> None:
    """Busy above all, a lost GPU unknown, silence no answer; time counts from zero after any doubt."""
    clock = ManualClock(wall=STORY_BEGINS)
    world = World({"i-1": life}, clock, Timing(), 3600.0)
    clock.advance(at)
    source = HistorySource(world, clock, {"i-1": timeline_of(life, 3600.0)})
    parts, _ = stage_play(OPTIONS, [life], 3600.0, InMemoryLedger())
    node = replace(parts.cloud.nodes()[0], id="i-1")
    verdict = source.confirm(node).verdict

    assert source.observe([node]).nodes[0].signal == source.confirm(node)
    assert (None if verdict is None else verdict.activity.state) is says
    assert (0.0 if verdict is None else verdict.activity.held_seconds) == held
    assert verdict is None or len(verdict.gpus) == len(life.gpus)


def test_after_a_boot_an_agent_knows_nothing_and_then_begins_at_zero() -> None:
    """It is silent until the node is ready, and its idle time counts from there."""
    clock, life = ManualClock(wall=STORY_BEGINS), a_life("n")
    world = World({"i-1": life}, clock, Timing(boot=180.0), 3600.0)
    source = HistorySource(world, clock, {"i-1": timeline_of(life, 3600.0)})
    parts, _ = stage_play(OPTIONS, [life], 3600.0, InMemoryLedger())
    node = replace(parts.cloud.nodes()[0], id="i-1")
    clock.advance(600.0)
    world.witness_stop("i-1")
    world.witness_start("i-1")
    clock.advance(100.0)
    booting = source.observe([node]).nodes[0].signal
    clock.advance(200.0)
    ready = source.observe([node]).nodes[0].signal

    assert booting.failure == "its agent is silent"
    assert ready.verdict is not None
    assert ready.verdict.activity.held_seconds == 120.0


def test_what_is_not_idle_is_the_very_same_value_again() -> None:
    """So that a round costs what has changed; a stopped node, a busy one and a silent one are not made anew."""
    clock = ManualClock(wall=STORY_BEGINS)
    lives = {
        "busy": a_life("busy", Phase(at=0.0, utilization_ratio=1.0), Phase(at=500.0)),
        "silent": a_life("silent", silent=Intervals([(0.0, 900.0)])),
        "idle": a_life("idle"),
    }
    world = World(lives, clock, Timing(), 3600.0)
    source = HistorySource(world, clock, {name: timeline_of(life, 3600.0) for name, life in lives.items()})
    parts, _ = stage_play(OPTIONS, [lives["idle"]], 3600.0, InMemoryLedger())
    machine = parts.cloud.nodes()[0]
    nodes = [*(replace(machine, id=name) for name in lives), replace(machine, id="off", state=NodeState.STOPPED)]
    seen = []
    for _ in range(3):
        clock.advance(240.0)
        seen.append({node.id: node for node in source.observe(nodes).nodes})

    assert [name for name in seen[0] if seen[0][name] is seen[1][name]] == ["busy", "silent", "off"]
    assert [name for name in seen[1] if seen[1][name] is seen[2][name]] == ["silent", "off"]


# Faults.


@pytest.mark.parametrize("after", [300.0, "learned"])
def test_whatever_the_cloud_does_no_property_is_broken(after: float | str) -> None:
    """Throttles, lost answers, no capacity, slow stops and blind spells: the stops come later, and none is wrong."""
    turns = [[(1500.0 + 100 * number, 700.0)] * 12 for number in range(6)]
    idle = IdleRules(timeout=after, fresh_timeout=None, grace_period=0.0, parked_timeout=14400.0)  # type: ignore[arg-type]
    idle = replace(idle, instance_store="discard", owner_grace_period=0.0)
    clouds: list[FaultyCloud] = []

    def broken(cloud: Cloud, clock: object) -> Cloud:
        rates = FaultRates(throttled=0.2, lost_answer=0.2, no_capacity=0.3, slow_stop=0.3, blind_spell=0.3)
        clouds.append(FaultyCloud(cloud, clock, 5, rates))  # type: ignore[arg-type]
        return clouds[-1]

    played = [
        play(replace(OPTIONS, idle=idle), lives_of(turns), 8 * 3600.0, least_seconds=60.0, cloud=cloud)
        for cloud in (broken, broken, lambda cloud, _: cloud)
    ]

    assert came_to(played[0]) == came_to(played[1]), "the same seed fails otherwise"
    assert played[0].world.stops != played[2].world.stops, "nothing ever failed"
    assert len(played[0].world.stops) > 20
    assert [stop for stop in played[0].world.stops if stop.wrong] == []
    assert list(played[0].violations) == []


def test_a_tests_own_faults_can_be_put_into_the_machines() -> None:
    """The cloud handed to the engine's hook ends in the simulated one, whose own hook takes any fault."""
    struck: list[str] = []

    def strike(call: str, node_id: str) -> Exception | None:
        if call == "stop":
            struck.append(node_id)
            return LostResponseError("gone") if len(struck) % 2 else None
        return None

    def cloud(inner: Cloud, _: object) -> Cloud:
        machines = inner.cloud  # type: ignore[attr-defined]  # what tells the world
        assert isinstance(machines, SimulatedCloud)
        machines.faults = strike
        return inner

    played = play(OPTIONS, lives_of([[(1000.0, 500.0)] * 5] * 3), 3 * 3600.0, least_seconds=600.0, cloud=cloud)

    assert struck
    assert list(played.violations) == []
