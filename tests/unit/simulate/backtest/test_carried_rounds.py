"""What a controller carries on from round to round changes no decision: each is as if it had just begun."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.agent.devices.load_profile import LoadProfile, Phase
from gpuwatch.controller.context import ControllerContext, Memory, Round
from gpuwatch.controller.round import step
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.policies import PoolRules
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.idle import each_step
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.schedule import Window
from gpuwatch.simulate.backtest.engine import play
from gpuwatch.simulate.caches import KnownFleets
from gpuwatch.simulate.fleet.options import Options
from gpuwatch.simulate.fleet.workloads import Workload
from tests.support.nightly import examples

HOUR = 3600.0
IDLE = IdleRules(timeout=300.0, grace_period=0.0, instance_store="discard", fresh_timeout=None)
OFFICE = {"office": Window(hours="01:00-02:00", min_nodes=2), "soon": Window(hours="00:30-01:30", idle_timeout=120.0)}
# Waits that are set, learned, or follow from money; notices, floors, windows, ends of what is stopped, old nodes.
IDLES = st.sampled_from(
    [
        IDLE,
        replace(IDLE, grace_period=300.0, unattended_grace_period=60.0),
        replace(IDLE, timeout="learned", restart_cost=300.0),
        replace(IDLE, timeout="learned", restart_cost="measured", fresh_timeout=600.0),
        replace(IDLE, timeout="break_even", restart_usd=Decimal("0.05")),
        replace(IDLE, terminate_after=HOUR, max_age=HOUR),
        replace(IDLE, demand={"queue": "queue"}, hints={"jobs": "jobs"}),
    ]
)
POOLS = st.builds(
    PoolRules,
    warm_up=st.just(60.0),
    idle=IDLES,
    min_nodes=st.sampled_from([0, 2]),
    schedule=st.sampled_from([{}, OFFICE]),
    clouds=st.sampled_from([(), (), ("elsewhere",)]),
    approval=st.sampled_from([False, False, True]),
    health=st.sampled_from([HealthRules(), HealthRules(action="replace")]),
)
LIMITS = st.sampled_from([Limits(max_stops_per_hour=2, max_stops_per_round=1), Limits(max_stops_per_hour_ratio=1.0)])
TURNS = st.lists(
    st.lists(st.tuples(st.floats(60, 4000), st.floats(60, 4000)), min_size=1, max_size=5), min_size=1, max_size=12
)


def lives_of(turns: list[list[tuple[float, float]]]) -> tuple[Workload, ...]:
    """A node for each list of idle and busy turns, in two pools."""
    found = []
    for number, its in enumerate(turns):
        phases, at = [], 0.0
        for idle, busy in its:
            phases += [Phase(at=at + idle, utilization_ratio=0.9), Phase(at=at + idle + busy)]
            at += idle + busy
        life = Workload(name=f"n{number}", story="made", instance_type="g6.xlarge", gpus=(LoadProfile(tuple(phases)),))
        found.append(replace(life, pool="ab"[number % 4 == 0]))
    return tuple(found)


@settings(max_examples=examples(10), deadline=None)
@given(turns=TURNS, first=POOLS, second=POOLS, limits=LIMITS)
def test_a_round_decides_as_one_of_a_controller_that_has_just_begun(
    turns: list[list[tuple[float, float]]], first: PoolRules, second: PoolRules, limits: Limits
) -> None:
    """Every round of a made fleet: proposals, decisions, reviews, waits and prices are those without a memory."""
    compared = []

    def controller(parts: ControllerContext, *, act: bool = True) -> Round:
        steps = parts.memory.clock_steps
        source = parts.signals.source if isinstance(parts.signals, KnownFleets) else parts.signals
        plain = replace(parts, signals=source, idle_steps=each_step)
        anew = step(replace(plain, memory=Memory(clock_steps=steps)), act=False)
        planned = step(parts, act=False)
        seen, other = anew.observation, planned.observation
        compared.append(
            (anew.proposals, anew.decisions, anew.reviews) == (planned.proposals, planned.decisions, planned.reviews)
        )
        compared.append(
            (seen.waits, seen.prices, seen.fleet.rosters) == (other.waits, other.prices, other.fleet.rosters)
        )
        assert all(compared), f"{planned.decisions}\n{anew.decisions}"
        return step(parts, act=act)

    play(
        Options(trace=Path("made"), interval=120.0),
        lives_of(turns),
        3 * HOUR,
        least_seconds=60.0,
        rules=Rulebook(pools={"a": first, "b": second}, limits=limits, enforce=True),
        controller=controller,
        every_round=True,
    )

    assert compared
