"""P1 to P13 over generated lives of a controller on each provider's fake, by the real provider over HTTP.

What depends on the cloud is held against what the fake itself holds: P1 to P7, P10, P12, P13. P8, P9 and P11 are about
decisions alone, and are proved without a cloud. A restart brings a provider without memory.
"""

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gpuwatch.clouds import POOL_TAG
from gpuwatch.controller.round import Round, step
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Intent, Outcome, Status, Verb
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from tests.support.builders.fleet import a_verdict
from tests.support.clouds.fault_worlds import FAULT_WORLDS, MINE
from tests.support.clouds.faults import SILENT, Fault, when
from tests.support.clouds.idle_agents import IdleAgents
from tests.support.clouds.lives import ENDED, SOLO, CloudLife, a_life

LIVES = max(4, int(os.environ.get("NIGHTLY_LIVES", "0")) // 10)
STEPS = 20
IDLE_AFTER, WARM_UP = 600.0, 900.0
FAULTS = sorted(set(Fault) - SILENT)  # silence is no other answer than a broken connection
MACHINES = st.integers(0, 4)
GONE = ENDED - {NodeState.TERMINATING}
LIMITS = Limits(max_stops_per_round=1, max_stops_per_hour=2, max_stops_per_hour_ratio=1.0)


class Doubtful(IdleAgents):
    """Agents that fall silent, and machines that are idle only since somebody has left them."""

    def __init__(self, clock: Any) -> None:  # noqa: ANN401  the fake's
        """Nobody is busy, and everybody answers."""
        super().__init__(clock)
        self.deaf: set[str] = set()
        self.left: dict[str, float] = {}  # monotonic

    def held(self, node_id: str) -> float:
        """For how many seconds it has been idle."""
        return self.clock.monotonic() - self.left.get(node_id, 0.0)

    def confirm(self, node: Node) -> NodeReport:
        """One of them answers, or does not."""
        if node.state is not NodeState.RUNNING or node.id in self.deaf:
            return NodeReport(failure="its agent did not answer")
        busy = node.id in self.busy
        state, held = (State.BUSY, 0.0) if busy else (State.IDLE, self.held(node.id))
        return NodeReport(verdict=a_verdict(node.id, state, held, gpus=node.known_gpus, at=self.clock.now()))


class LifeOnACloud(RuleBasedStateMachine):
    """Rounds, restarts, faults of the wire, agents that fall silent, people who begin and end their work."""

    cloud: str

    @initialize()
    def begin(self) -> None:
        """Three idle machines of a pool that keeps one, one that is nobody's to stop, and those of every life."""
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.life: CloudLife = self.stack.enter_context(a_life(self.cloud, folder))
        world = self.life.world
        more = [world.launch({**MINE, POOL_TAG: SOLO}, region=region) for region in world.regions]
        self.foreign = world.launch({POOL_TAG: SOLO}, region=world.regions[0])
        self.ids = [self.life.idle, self.life.busy, *more, self.foreign]
        self.solo = self.ids[:4]
        self.agents = self.life.agents = Doubtful(world.clock)
        self.agents.busy = {self.life.busy, *self.life.members[1:]}
        self.begun = world.clock.monotonic()
        world.clock.advance(3 * 3600.0)
        self.life.limits, self.life.watch = LIMITS, self.leaves
        self.stops: list[tuple[float, str]] = []
        self.faults = False
        settle = self.life.ledger.settle

        def watched(intent: Intent, status: Status, detail: str, at: Any) -> Outcome:  # noqa: ANN401  a time
            if intent.verb in {Verb.STOP, Verb.TERMINATE} and status is Status.SETTLED:
                state = world.state(intent.node_id)
                done = GONE | ({NodeState.STOPPED} if intent.verb is Verb.STOP else set())
                assert state in done, f"P13: a {intent.verb} was settled while the cloud says {state} ({detail})"
            return settle(intent, status, detail, at)

        self.life.ledger.settle = watched  # type: ignore[method-assign]

    def leaves(self, change: str, _key: str, target: str) -> None:
        """Every change, right before it leaves; that its record is there (P12) the life itself looks at."""
        assert target != self.foreign, f"P3: {change} of a machine that is not enrolled"
        if change not in {"stop", "terminate"}:
            return
        agents, now = self.agents, self.life.world.clock.monotonic()
        assert target not in agents.deaf, f"P1: {change} while its agent is silent"
        assert target not in agents.busy, f"P2: {change} of a busy machine"
        assert agents.held(target) >= IDLE_AFTER, f"P9: idle for {agents.held(target)} s only"
        assert now - self.begun >= WARM_UP, f"P10: {change} in its warm-up"
        assert target in {*self.ids, *self.life.members}, f"P10: {change} of what was launched a moment ago"
        assert self.life.world.state(target) is not NodeState.STOPPED, f"P6: {change} of what is stopped"
        self.stops.append((now, target))

    @rule(rounds=st.sampled_from([1, 1, 3]))
    def rounds_pass(self, rounds: int) -> None:
        """A minute each."""
        for _ in range(rounds):
            self.life.round()
            self.life.rest()

    @rule()
    def the_controller_begins_anew(self) -> None:
        """Without any memory but the ledger."""
        self.life.restart()

    @rule(
        fault=st.sampled_from(FAULTS), region=st.sampled_from([0, 1, None]), change=st.sampled_from([True, False, None])
    )
    def something_goes_wrong(self, fault: Fault, region: int | None, change: bool | None) -> None:
        """From now on, with every call of that kind, until it is over."""
        world = self.life.world
        if fault in world.cannot:
            return
        where = {} if region is None else {"region": world.regions[region]}
        what = {} if change is None else {"change": change}
        world.server.plan.strike(fault, when(**where, **what), times=None)  # type: ignore[arg-type]
        self.faults = True

    @rule()
    def all_is_well_again(self) -> None:
        """The faults are over."""
        self.life.world.server.plan.clear()
        self.faults = False

    @rule(number=MACHINES)
    def somebody_works(self, number: int) -> None:
        """Or goes on."""
        self.agents.busy.add(self.ids[number])

    @rule(number=MACHINES)
    def somebody_leaves(self, number: int) -> None:
        """From now on it is idle."""
        if self.ids[number] in self.agents.busy:
            self.agents.busy.discard(self.ids[number])
            self.agents.left[self.ids[number]] = self.life.world.clock.monotonic()

    @rule(number=MACHINES)
    def an_agent_changes_its_mind(self, number: int) -> None:
        """It falls silent, or answers again."""
        self.agents.deaf ^= {self.ids[number]}

    @rule(seconds=st.sampled_from([300.0, 1800.0]))
    def nobody_looks(self, seconds: float) -> None:
        """The controller's machine is off."""
        self.life.rest(seconds)

    @rule()
    def a_plan_is_what_is_done(self) -> None:
        """P5: on the same input; and the same round once more changes nothing more (P6)."""
        parts, before = self.life.parts(), len(self.stops)
        plan = step(parts, act=False)
        done = step(parts)
        if not self.faults and not done.settled:
            assert shown(plan) == shown(done), "P5: the plan differs"
        step(parts)
        targets = [target for _, target in self.stops[before:]]
        assert self.faults or len(targets) == len(set(targets)), f"P6: one round more stops {targets}"
        self.life.rest()

    @invariant()
    def the_pool_keeps_its_minimum(self) -> None:
        """P7, as the cloud itself sees it."""
        if hasattr(self, "solo") and self.stops:
            running = sum(self.life.world.state(node_id) is NodeState.RUNNING for node_id in self.solo)
            assert running >= 1, "P7: the pool fell below its minimum"

    @invariant()
    def no_hour_sees_too_many_stops(self) -> None:
        """P4: whatever happens between the rounds; a call that is made again for the same machine is the same stop."""
        stops: list[tuple[float, str]] = getattr(self, "stops", [])
        for end, _ in stops:
            within = {target for at, target in stops if end - 3600.0 < at <= end}
            assert len(within) <= LIMITS.max_stops_per_hour, f"P4: {within} within the hour before {end:.0f} s"

    @invariant()
    def one_machine_is_launched_at_most(self) -> None:
        """P17: a floor of one in a pool without machines, whatever is lost or late."""
        if hasattr(self, "solo"):
            new = [each for each in self.life.launched() if each not in self.ids]
            assert len(new) <= 1, f"P17: {new} were launched for one place"

    def teardown(self) -> None:
        """The fake goes."""
        if hasattr(self, "stack"):
            self.stack.close()


def shown(done: Round) -> list[tuple[str, ...]]:
    """What a round would do, and what refuses it. Its evidence has ages, and paced calls take time."""
    changes = [(each.step.verb, each.step.node_id, *(answer.rule for answer in each.refusals)) for each in done.reviews]
    return sorted(changes)


@pytest.mark.parametrize("name", FAULT_WORLDS)
def test_a_life_on_a_cloud(name: str) -> None:
    """Whatever happens in whatever order."""
    machine = type(f"LifeOn{name.title()}", (LifeOnACloud,), {"cloud": name})
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=LIVES, stateful_step_count=STEPS, deadline=None, report_multiple_bugs=False),
    )
