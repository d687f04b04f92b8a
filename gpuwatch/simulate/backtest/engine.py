"""The real controller over a whole recording on a manual clock: months of a large fleet in minutes.

Only the parts around `step` are played: agents' words come straight from the recording, ledger and cloud are in
memory. Rounds in which by construction nothing can be decided are skipped: the fleet is at rest until some node
has been idle for its wait. Where that cannot be known ahead (learned waits, schedules, …) every round is played.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from heapq import heapify, heappop, heappush

from gpuwatch.clouds import Cloud
from gpuwatch.controller.round import Round, step
from gpuwatch.guard import Rulebook
from gpuwatch.model.activity import State
from gpuwatch.model.progress import Advance, no_advance
from gpuwatch.policies import PoolRules
from gpuwatch.runtime.clock import Clock, ManualClock
from gpuwatch.simulate.backtest.engine_signals import HistorySource, Timeline, timeline_of
from gpuwatch.simulate.backtest.witness import Controller, SafetyChecker, WatchedCloud, WatchedLedger
from gpuwatch.simulate.caches import with_caches
from gpuwatch.simulate.fleet.options import STORY_BEGINS, Options
from gpuwatch.simulate.fleet.play import stage_play
from gpuwatch.simulate.fleet.workloads import Workload
from gpuwatch.simulate.fleet.world import Host, World

_COMPACT_ROUNDS = 1000
_PLAN_ROUNDS = 32  # of so many rounds one is planned first
_ADVANCE_ROUNDS = 16  # so often a play reports how far it is
_ROUNDING_SECONDS = 1e-6  # rather a round too many than one too few
_REMOVES = frozenset({"stop", "terminate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The outcome: `seconds` of the recording were played; the `skipped` rounds in them could decide nothing."""

    world: World
    seconds: float
    rounds: int
    skipped: int
    violations: Sequence[str]


@dataclass(slots=True)
class Resting:
    """When the next node will have been idle for its wait, where that is known ahead of time."""

    world: World
    timelines: Mapping[str, Timeline]
    waits: dict[State, float]
    _due: list[tuple[float, str]] = field(default_factory=list)

    def begin(self) -> None:
        """Begin with all nodes running."""
        self._due = [(0.0, node_id) for node_id in self.world.hosts]
        heapify(self._due)

    def note_start(self, host: Host) -> None:
        """A node runs again."""
        heappush(self._due, (host.runs[-1].ready, host.node_id))

    def idle_until(self, now: float) -> float:
        """The first moment from now on at which a node that runs has been idle for its wait."""
        while self._due and self._due[0][0] <= now:
            _, node_id = heappop(self._due)
            host = self.world.hosts[node_id]
            due = self.timelines[node_id].first_held(now, self.waits, host.runs[-1].ready) if host.running else None
            if due is not None:
                heappush(self._due, (due, node_id))
                if due <= now:
                    return now
        return self._due[0][0] if self._due else math.inf


def play(  # noqa: PLR0913  what a play is made of
    options: Options,
    lives: Sequence[Workload],
    horizon: float,
    *,
    least_seconds: float,
    rules: Rulebook | None = None,
    cloud: Callable[[Cloud, Clock], Cloud] = lambda cloud, _: cloud,
    controller: Controller = step,
    every_round: bool = False,
    enough: Callable[[], bool] = lambda: False,
    advance: Advance = no_advance,
) -> Played:
    """Play lives up to the horizon, or until it is enough.

    `rules` take the place of those that the options make. `cloud` may put faults around the cloud that controller and
    users speak to. `least_seconds` is the shortest idle time after which a node may be stopped, for the witness.
    `advance` gets the seconds that are played, and the horizon.
    """
    ledger = WatchedLedger("backtest")
    bare, world = stage_play(options, lives, horizon, ledger)
    clock = bare.clock
    assert isinstance(clock, ManualClock)  # noqa: S101  as `staged` makes it
    bare = bare if rules is None else replace(bare, rules=rules)
    timelines = {node_id: timeline_of(host.life, horizon) for node_id, host in world.hosts.items()}
    outside = cloud(bare.cloud, clock)
    witness = SafetyChecker(world=world, cloud=bare.cloud, ledger=ledger, rules=bare.rules, least_seconds=least_seconds)
    ledger.look = witness.settles
    parts = with_caches(replace(bare, signals=HistorySource(world, clock, timelines)))
    parts = replace(parts, cloud=WatchedCloud(outside, parts, witness))
    waits = None if every_round else _all_foreseen(bare.rules, lives)
    resting = None if waits is None else Resting(world, timelines, waits)
    if resting is not None:
        resting.begin()
    rounds, number, following = 0, 0, 1  # the rounds played, the number of the last, and of the next
    seconds = horizon
    while True:
        wake, due = world.next_wake, following * options.interval
        now = due if wake is None else min(due, wake)
        if now >= horizon:
            break
        if enough():
            seconds = clock.monotonic()
            break
        _reach(clock, now)
        for host in world.users_start(outside):
            if resting is not None:
                resting.note_start(host)
                if number < following - 1:
                    following = _next(now, options.interval, resting, number)
        if now < following * options.interval:
            continue
        plan = witness.plan(controller, parts) if rounds % _PLAN_ROUNDS == 0 else None
        done = controller(parts)
        witness.check_round(plan, done)
        rounds, number = rounds + 1, following
        if rounds % _ADVANCE_ROUNDS == 0:
            advance(now, horizon)
        following = number + 1
        if resting is not None and _quiet(done):
            following = _next(now, options.interval, resting, number)
        if rounds % _COMPACT_ROUNDS == 0:
            ledger.compact(clock.now())
    return Played(
        world=world,
        seconds=seconds,
        rounds=rounds,
        skipped=math.ceil(seconds / options.interval) - 1 - rounds,
        violations=tuple(witness.violations),
    )


def _all_foreseen(rules: Rulebook, lives: Sequence[Workload]) -> dict[State, float] | None:
    """The same for all pools, the shortest of each; None where one pool's is not known."""
    found: dict[State, float] = {}
    for pool in {life.pool for life in lives} | set(rules.growing):
        waits = foreseen(rules.pool(pool))
        if waits is None:
            return None
        found = {state: min(found.get(state, math.inf), waits.get(state, math.inf)) for state in found | waits}
    return found


def foreseen(rules: PoolRules) -> dict[State, float] | None:
    """By state how long it must hold before anything is decided; None where that is not known ahead of time."""
    idle = rules.idle
    wait = idle.restart_cost if idle.timeout == "break_even" and not idle.restart_usd else idle.timeout
    if isinstance(wait, str):
        return None
    if rules.scaling.metrics or rules.schedule or idle.demand:
        return None
    if idle.terminate_after is not None or idle.max_age is not None:
        return None
    waits = {State.IDLE: (idle.action, wait), State.PARKED: (idle.parked, idle.parked_timeout)}
    return {state: seconds for state, (then, seconds) in waits.items() if then in _REMOVES}


def _quiet(done: Round) -> bool:
    """Whether everything held, and nothing is under way."""
    ledger = done.observation.ledger
    return done.trouble is None and not (done.reviews or ledger.open_intents or ledger.notices)


def _next(now: float, interval: float, resting: Resting, number: int) -> int:
    """The number of the next round in which something may be decided, after the one of this number."""
    due = resting.idle_until(now)
    if math.isinf(due):
        return 10**12
    return max(number + 1, math.ceil((due - _ROUNDING_SECONDS) / interval))


def _reach(clock: ManualClock, seconds: float) -> None:
    """Set the clock, so that no sum of many steps depends on which rounds were skipped."""
    clock.elapsed_seconds = seconds
    clock.wall = STORY_BEGINS + timedelta(seconds=seconds)
