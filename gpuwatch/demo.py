"""`gpuwatch demo`: a simulated fleet under the real controller; headless on a manual clock, or live in the terminal."""

import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial

from gpuwatch.clock import ManualClock
from gpuwatch.clouds import Cloud
from gpuwatch.clouds.simulated import SimulatedCloud
from gpuwatch.controller import Parts, step
from gpuwatch.ledger import Ledger
from gpuwatch.ledger.lean import LeanLedger
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.simulation.accounts import Account, account, saved_usd
from gpuwatch.simulation.lives import Life
from gpuwatch.simulation.options import FLEET, REGION, STORY_BEGINS, Options, assemble, lives, tags
from gpuwatch.simulation.world import InProcess, Timing, WitnessedCloud, World

_STOPPING_SECONDS = 45.0
_PENDING_SECONDS = 30.0

_FORGET_AFTER_ROUNDS = 50

# A headless run's JSON object; docs/demo.md defines each key.
Figures = dict[str, str | int | float]


def run_headless(options: Options) -> Figures:
    """Play the whole horizon on a manual clock and give the figures; the same options give the same.

    Raises:
        DemoError: the recording cannot be played, or an option is wrong.

    """
    told, horizon = lives(options)
    parts, world = staged(options, told, horizon, LeanLedger(f"demo-{options.seed}"))
    rounds = play(parts, world, parts.cloud, options, horizon)
    return figures(world, account(world, horizon), options, rounds)


def staged(options: Options, told: Sequence[Life], horizon: float, ledger: Ledger) -> tuple[Parts, World]:
    """The controller's parts and the world under it, on a manual clock at second 0."""
    clock = ManualClock(wall=STORY_BEGINS)
    named = {f"i-{number:017x}": life for number, life in enumerate(told, start=1)}
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
    return assemble(options, clock, cloud, InProcess(world, clock), ledger), world


def _machine(node_id: str, life: Life) -> Node:
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


def play(
    parts: Parts,
    world: World,
    cloud: Cloud,
    options: Options,
    horizon: float,
    *,
    controller: Callable[[Parts], object] = step,
) -> int:
    """Let time pass from event to event: users, then agents, then the controller; gives the number of rounds."""
    clock = parts.clock
    rounds = samples = 0
    while True:
        due = [(samples + 1) * options.sample, (rounds + 1) * options.interval]
        wake = world.next_wake
        now = min(due if wake is None else [*due, wake])
        if now >= horizon:
            return rounds
        clock.sleep(now - clock.monotonic())
        world.users_start(cloud)
        if now >= due[0]:
            samples += 1
            world.sample()
        if now >= due[1]:
            rounds += 1
            controller(parts)
            if rounds % _FORGET_AFTER_ROUNDS == 0:
                parts.ledger.compact(clock.now())


def figures(world: World, told: Account, options: Options, rounds: int) -> Figures:
    """What a run comes to."""
    return {
        "source": "demo fleet" if options.trace is None else options.trace.name,
        "seed": options.seed,
        "hours": round(told.hours, 4),
        "nodes": len(world.hosts),
        "gpus": told.gpus,
        "rounds": rounds,
        "billed_gpu_hours": round(told.billed, 4),
        "useful_gpu_hours": round(told.useful, 4),
        "missed_gpu_hours": round(told.demanded - told.useful, 4),
        "silent_gpu_hours": round(told.silent, 4),
        "waste_ratio": round(told.waste_ratio, 6),
        "baseline_waste_ratio": round(told.baseline_waste_ratio, 6),
        "stopped": len(world.stops),
        "wrongly_stopped": sum(stop.wrong is not None for stop in world.stops),
        "restarts": world.restarts,
        "saved_usd": float(saved_usd(told)),
    }


def run_live(options: Options) -> None:
    """Show the fleet in the terminal until Ctrl-C, or for `options.seconds`; without a terminal, print the events.

    Raises:
        ImportError: the extra `demo` is not installed.

    """
    from rich.console import Console  # noqa: PLC0415  the extra `demo`
    from rich.live import Live  # noqa: PLC0415  likewise

    from gpuwatch.simulation.live import opened  # noqa: PLC0415  likewise

    console = Console()
    with opened(options, None if console.is_terminal else partial(print, flush=True)) as show:
        # As a flag: an exception in the middle of a round may be swallowed by whatever library is at work there.
        ended = threading.Event()
        before = signal.signal(signal.SIGINT, lambda *_: ended.set())
        try:
            if console.is_terminal:
                with Live(get_renderable=lambda: show.board, console=console, refresh_per_second=4, screen=True):
                    show.run(options.seconds, ended.is_set)
            else:
                show.run(options.seconds, ended.is_set)
        finally:
            signal.signal(signal.SIGINT, before)
        console.print(show.summary(), highlight=False, soft_wrap=True)
