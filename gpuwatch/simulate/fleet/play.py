"""A simulated fleet under the real controller, on a manual clock."""

from collections.abc import Callable, Sequence

from gpuwatch.controller.round import ControllerContext, step
from gpuwatch.ledger.protocol import RoundLedger
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.progress import Advance, no_advance
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.simulate.cloud import SimulatedCloud
from gpuwatch.simulate.fleet.options import FLEET, REGION, STORY_BEGINS, Options, assemble, tags
from gpuwatch.simulate.fleet.workloads import Workload
from gpuwatch.simulate.fleet.world import Host, InProcess, Timing, WitnessedCloud, World

_STOPPING_SECONDS = 45.0
_PENDING_SECONDS = 30.0
_FORGET_AFTER_ROUNDS = 50


def stage_play(
    options: Options, workloads: Sequence[Workload], horizon: float, ledger: RoundLedger
) -> tuple[ControllerContext, World]:
    """The controller's parts and the world under it, on a manual clock at second 0."""
    clock = ManualClock(wall=STORY_BEGINS)
    named = {f"i-{number:017x}": life for number, life in enumerate(workloads, start=1)}
    world = World(named, clock, Timing(sampling=options.sample, boot=options.boot), horizon)
    machines = SimulatedCloud(
        fleet=FLEET,
        clock=clock,
        pending_seconds=min(_PENDING_SECONDS, options.boot),
        stopping_seconds=_STOPPING_SECONDS,
    )
    for node_id, life in named.items():
        machines.add(_machine(node_id, life))
    cloud = WitnessedCloud(machines, world)
    pools = {life.pool for life in workloads}
    return assemble(options, clock, cloud, InProcess(world, clock), ledger, pools), world


def _machine(node_id: str, life: Workload) -> Node:
    return Node(
        id=node_id,
        name=life.name,
        pool=life.pool,
        state=NodeState.RUNNING,
        instance_type=life.instance_type,
        gpu_count=len(life.gpus),
        region=REGION,
        zone=f"{REGION}a",
        tags=tags(life),
    )


def play(  # noqa: PLR0913  what a play is made of
    parts: ControllerContext,
    world: World,
    options: Options,
    horizon: float,
    *,
    controller: Callable[[ControllerContext], object] = step,
    wait: Callable[[float], bool] | None = None,
    started: Callable[[Host], None] = lambda _: None,
    advance: Advance = no_advance,
) -> int:
    """Let time pass from event to event: users, then agents, then the controller; gives the number of rounds.

    `wait` lets the clock reach a moment and says whether to go on; without it the clock jumps. `started` is called
    with each host that its user started, `advance` with the seconds that are over and the horizon.
    """
    clock = parts.clock
    rounds = samples = 0
    while True:
        due = [(samples + 1) * options.sample, (rounds + 1) * options.interval]
        wake = world.next_wake
        now = min(due if wake is None else [*due, wake])
        if now >= horizon:
            return rounds
        if wait is None:
            clock.sleep(now - clock.monotonic())
        elif not wait(now):
            return rounds
        for host in world.users_start(parts.cloud):
            started(host)
        if now >= due[0]:
            samples += 1
            world.sample()
        if now >= due[1]:
            rounds += 1
            controller(parts)
            advance(now, horizon)
            if rounds % _FORGET_AFTER_ROUNDS == 0:
                parts.ledger.compact(clock.now())
