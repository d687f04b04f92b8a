"""`gpuwatch demo`: a simulated fleet under the real controller; headless, or live in the terminal and on its page."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.round import ControllerContext, Round
from gpuwatch.controller.web.app import Web
from gpuwatch.controller.web.serve import Discovery, make_server
from gpuwatch.controller.web.settings import ControllerSettings
from gpuwatch.controller.web.state import State
from gpuwatch.ledger import Ledger
from gpuwatch.money.accounting.settings import CostSettings
from gpuwatch.money.accounting.store import Meter
from gpuwatch.runtime.clock import Clock, SystemClock
from gpuwatch.runtime.http.server import HttpServer
from gpuwatch.simulate.fleet.accounts import Account, account, saved_usd
from gpuwatch.simulate.fleet.options import FLEET, Options, lives
from gpuwatch.simulate.fleet.play import play, staged
from gpuwatch.simulate.fleet.world import World
from gpuwatch.simulate.memory_ledger import InMemoryLedger

# A headless run's JSON object; docs/demo.md defines each key.
Figures = dict[str, str | int | float]


def run_headless(options: Options) -> Figures:
    """Play the whole horizon on a manual clock and give the figures; the same options give the same.

    Raises:
        DemoError: the recording cannot be played, or an option is wrong.

    """
    told, horizon = lives(options)
    parts, world = staged(options, told, horizon, InMemoryLedger(f"demo-{options.seed}"))
    rounds = play(parts, world, options, horizon)
    return figures(world, account(world, horizon), options, rounds)


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


@dataclass(frozen=True, slots=True)
class _PageClock:
    """The story's wall clock, by which browsers reckon; connections have real seconds."""

    story: Clock
    real: Clock

    def now(self) -> datetime:
        """The story's day and time."""
        return self.story.now()

    def monotonic(self) -> float:
        """Real seconds."""
        return self.real.monotonic()

    def uptime(self) -> float:
        """Likewise."""
        return self.real.uptime()

    def sleep(self, seconds: float) -> None:
        """Let real seconds pass."""
        self.real.sleep(seconds)


@contextmanager
def _shown(
    parts: ControllerContext, ledger: Ledger, interval: float
) -> Iterator[tuple[str, Callable[[Round, float], None]]]:
    """The controller's own page, API and metrics of this fleet on loopback: where they are, and whom to tell rounds."""
    cost = CostSettings()
    metering = cost.metering(interval)
    state = State(
        fleet=FLEET,
        interval_seconds=interval,
        rules=parts.rules,
        ledger=ledger,
        clock=parts.clock,
        zone=metering.zone,
        energy=cost.energy,
    )
    telling = ControllerMetrics("enforce", FLEET, parts.clock)
    server = _server(telling, _PageClock(parts.clock, SystemClock()), Web(state=state))
    server.start()
    meter = Meter(ledger, metering)

    def tell(done: Round, seconds: float) -> None:
        telling.billed(meter(done.observation))
        telling.round(done, seconds)
        state.tell(done, leading=True)

    try:
        yield server.url, tell
    finally:
        server.close()


def _server(telling: ControllerMetrics, clock: Clock, web: Web) -> HttpServer:
    """On the controller's own port, or on any where that is taken."""
    settings, discovery = ControllerSettings(), Discovery(signals=ObserveSettings())
    try:
        server = make_server(settings, discovery, telling, clock, web)
    except OSError:
        server = make_server(replace(settings, port=0), discovery, telling, clock, web)
    assert server is not None, "metrics and page are on by default"  # noqa: S101  for the type checker
    return server


def run_live(options: Options) -> None:
    """Show the fleet in the terminal and on its page until Ctrl-C, or for `options.seconds`.

    Without a terminal the events are printed.

    Raises:
        ImportError: the extra `demo` is not installed.

    """
    from rich.console import Console  # noqa: PLC0415  the extra `demo`
    from rich.live import Live  # noqa: PLC0415  likewise

    from gpuwatch.simulate.fleet.live_demo import opened  # noqa: PLC0415  likewise

    console = Console()
    say = None if console.is_terminal else partial(print, flush=True)
    with opened(options, say) as show, _shown(show.parts, show.ledger, show.options.interval) as (url, tell):
        show.board.page = f"The fleet's page: {url}"
        if say is not None:
            say(show.board.page)
        # As a flag: an exception in the middle of a round may be swallowed by whatever library is at work there.
        ended = threading.Event()
        before = signal.signal(signal.SIGINT, lambda *_: ended.set())
        try:
            if console.is_terminal:
                with Live(get_renderable=lambda: show.board, console=console, refresh_per_second=4, screen=True):
                    show.run(ended.is_set, tell)
            else:
                show.run(ended.is_set, tell)
        finally:
            signal.signal(signal.SIGINT, before)
        console.print(show.summary(), highlight=False, soft_wrap=True)
