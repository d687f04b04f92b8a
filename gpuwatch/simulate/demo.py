"""`gpuwatch demo`: a simulated fleet under the real controller; headless, or live in the terminal and on its page."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.round import ControllerContext, Round
from gpuwatch.controller.web.serve import make_observers, make_server
from gpuwatch.controller.web.settings import ControllerSettings
from gpuwatch.ledger import Ledger
from gpuwatch.model.money import format_usd
from gpuwatch.model.progress import Advance, no_advance
from gpuwatch.model.readable import how_many
from gpuwatch.money.accounting.settings import CostSettings
from gpuwatch.money.accounting.store import Meter
from gpuwatch.runtime.clock import Clock, SystemClock
from gpuwatch.simulate.backtest.engine import play as play_recording
from gpuwatch.simulate.backtest.pool_rules import least_seconds
from gpuwatch.simulate.fleet.accounts import Account, account, saved_usd
from gpuwatch.simulate.fleet.options import FLEET, Options, lives
from gpuwatch.simulate.fleet.play import play, stage_play
from gpuwatch.simulate.fleet.world import World
from gpuwatch.simulate.memory_ledger import InMemoryLedger

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoDocument:
    """What a headless run comes to; docs/demo.md defines each key."""

    source: str
    seed: int
    hours: float
    nodes: int
    gpus: int
    rounds: int
    billed_gpu_hours: float
    useful_gpu_hours: float
    missed_gpu_hours: float
    silent_gpu_hours: float
    waste_ratio: float
    baseline_waste_ratio: float
    stopped: int
    wrongly_stopped: int
    restarts: int
    saved_usd: float

    def sentences(self) -> str:
        """The same for people."""
        wrong = "None of these stops was wrong" if not self.wrongly_stopped else f"{self.wrongly_stopped} were wrong"
        return (
            f"Played: {self.hours:g} hours of {how_many(self.nodes, 'machine')} with {how_many(self.gpus, 'GPU')}, "
            f"{how_many(self.rounds, 'round')} ({self.source}, seed {self.seed}).\n"
            f"Saved: {format_usd(Decimal(str(self.saved_usd)))}. Of the GPU-hours that are billed, "
            f"{self.waste_ratio:.1%} were wasted; without gpuwatch, {self.baseline_waste_ratio:.1%}.\n"
            f"Stops: {self.stopped}. {wrong}, by the simulation's own truth.\n"
            f"Starts after a stop: {self.restarts}. "
            f"Meanwhile {self.missed_gpu_hours:.1f} GPU-hours of work were missed.\n"
            f"GPU-hours: {self.billed_gpu_hours:.1f} billed, {self.useful_gpu_hours:.1f} useful, "
            f"{self.silent_gpu_hours:.1f} while an agent was silent."
        )


def run_headless(options: Options, advance: Advance = no_advance) -> DemoDocument:
    """Play the whole horizon on a manual clock and give the figures; the same options give the same.

    A recording is played by the engine of the backtest, which skips rounds in which nothing can be decided; its agents
    sample without pause. The scripted fleet's agents read simulated GPUs.

    Raises:
        DemoError: the recording cannot be played, or an option is wrong.

    """
    workloads, horizon = lives(options)
    if options.trace is not None:
        least = least_seconds(options.pool.idle)
        played = play_recording(options, workloads, horizon, least_seconds=least, advance=advance)
        return figures(played.world, account(played.world, horizon), options, played.rounds + played.skipped)
    parts, world = stage_play(options, workloads, horizon, InMemoryLedger(f"demo-{options.seed}"))
    rounds = play(parts, world, options, horizon, advance=advance)
    return figures(world, account(world, horizon), options, rounds)


def figures(world: World, totals: Account, options: Options, rounds: int) -> DemoDocument:
    """What a run comes to."""
    return DemoDocument(
        source="demo fleet" if options.trace is None else options.trace.name,
        seed=options.seed,
        hours=round(totals.hours, 4),
        nodes=len(world.hosts),
        gpus=totals.gpus,
        rounds=rounds,
        billed_gpu_hours=round(totals.billed, 4),
        useful_gpu_hours=round(totals.useful, 4),
        missed_gpu_hours=round(totals.demanded - totals.useful, 4),
        silent_gpu_hours=round(totals.silent, 4),
        waste_ratio=round(totals.waste_ratio, 6),
        baseline_waste_ratio=round(totals.baseline_waste_ratio, 6),
        stopped=len(world.stops),
        wrongly_stopped=sum(stop.wrong is not None for stop in world.stops),
        restarts=world.restarts,
        saved_usd=float(saved_usd(totals)),
    )


@dataclass(frozen=True, slots=True)
class _PageClock:
    """The story's wall clock, by which browsers reckon; connections have real seconds."""

    story: Clock
    real: Clock

    def now(self) -> datetime:
        """The story's day and time."""
        return self.story.now()

    def monotonic(self) -> float:
        """Return real seconds, not those of the play."""
        return self.real.monotonic()

    def uptime(self) -> float:
        """Real seconds since the start of the machine."""
        return self.real.uptime()

    def sleep(self, seconds: float) -> None:
        """Let real seconds pass."""
        self.real.sleep(seconds)


@contextmanager
def serve_page(parts: ControllerContext, ledger: Ledger) -> Iterator[tuple[str, Callable[[Round, float], None]]]:
    """The controller's own page, API and metrics on loopback: their address, and what takes each round."""
    server, cost = ControllerSettings(), CostSettings()
    observers = make_observers(parts, ledger, FLEET, server=server, signals=ObserveSettings(), cost=cost)
    rules = cost.metering(parts.interval_seconds, {"": "simulated"})
    clock, meter = _PageClock(parts.clock, SystemClock()), Meter(ledger, rules)
    try:
        running = make_server(server, observers, clock)
    except OSError:  # the controller's own port is taken
        running = make_server(replace(server, port=0), observers, clock)
    assert running is not None, "metrics and page are on by default"  # noqa: S101  for the type checker
    running.start()

    def update(done: Round, seconds: float) -> None:
        observers.metrics.count_billed(meter(done.observation))
        observers.update(done, seconds)

    try:
        yield running.url, update
    finally:
        running.close()


def run_live(options: Options, console: "Console") -> None:
    """Show the fleet on the console and on its page until Ctrl-C, or for `options.seconds`.

    Without a terminal the events are printed.

    Raises:
        ImportError: the extra `demo` is not installed.

    """
    from rich.live import Live  # noqa: PLC0415  loaded by the live demo only

    from gpuwatch.simulate.fleet.live_demo import open_demo  # noqa: PLC0415  likewise

    say = None if console.is_terminal else partial(print, flush=True)
    with open_demo(options, say) as show, serve_page(show.parts, show.ledger) as (url, update):
        show.board.page = f"The fleet's page: {url}"
        if say is not None:
            say(show.board.page)
        # As a flag: an exception in the middle of a round may be swallowed by whatever library is at work there.
        ended = threading.Event()
        before = signal.signal(signal.SIGINT, lambda *_: ended.set())
        try:
            if console.is_terminal:
                with Live(get_renderable=lambda: show.board, console=console, refresh_per_second=4, screen=True):
                    show.run(ended.is_set, update)
            else:
                show.run(ended.is_set, update)
        finally:
            signal.signal(signal.SIGINT, before)
        console.print(show.summary(), highlight=False, soft_wrap=True)
