"""The live demo: the headless one's fleet and cloud, played no faster than people can watch, with a ledger file."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gpuwatch.controller.round import ControllerContext, Round, step
from gpuwatch.ledger import Ledger
from gpuwatch.model.duration import format_duration
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.simulate.fleet.accounts import account, saved_usd
from gpuwatch.simulate.fleet.options import STORY_BEGINS, Options, lives, log_unheard
from gpuwatch.simulate.fleet.play import play, stage_play
from gpuwatch.simulate.fleet.screen import Board, story_time
from gpuwatch.simulate.fleet.world import Host, World

# What a real second can carry, however fast the story runs.
_SAMPLE_REAL_SECONDS = 0.25
_ROUND_REAL_SECONDS = 1.0
_TICK_REAL_SECONDS = 0.1  # the story's clock moves this often
_HOURS = 7 * 24.0  # the lives are written for so long


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """A demo that is running."""

    parts: ControllerContext
    ledger: Ledger
    world: World
    board: Board
    options: Options
    horizon: float

    def run(self, interrupted: Callable[[], bool], update: Callable[[Round, float], None]) -> None:
        """Play the story for `options.seconds`, or until interrupted.

        `update` is given each round and how many real seconds it took.
        """
        clock, real = self.parts.clock, SystemClock()
        begun, speed, seconds = real.monotonic(), self.options.speed, self.options.seconds

        def wait(moment: float) -> bool:
            while (left := moment - clock.monotonic()) > 0:
                passed = real.monotonic() - begun
                if interrupted() or (seconds is not None and passed >= seconds):
                    return False
                clock.sleep(min(left, _TICK_REAL_SECONDS * speed))
                real.sleep(max(0.0, clock.monotonic() / speed - passed))
            return True

        def controller(parts: ControllerContext) -> None:
            asked = real.monotonic()
            done = step(parts)
            update(done, real.monotonic() - asked)
            self.board.round(done)

        def started(host: Host) -> None:
            self.board.event(f"start {host.life.name}: its user needs it again")

        story = (self.parts, self.world, self.options, self.horizon)
        play(*story, controller=controller, wait=wait, started=started)

    def totals(self) -> str:
        """What came of it up to now, by the simulation's truth."""
        totals = account(self.world, self.parts.clock.monotonic())
        wrong = [stop for stop in self.world.stops if stop.wrong is not None]
        return (
            f"saved ${saved_usd(totals)} so far: "
            f"{totals.billed:.0f} of {totals.gpus * totals.hours:.0f} GPU-hours billed, "
            f"{totals.waste_ratio:.0%} wasted instead of {totals.baseline_waste_ratio:.0%}; "
            f"{len(self.world.stops)} stopped ({len(wrong)} wrongly), {self.world.restarts} started again"
        )

    def summary(self) -> str:
        """Return the last words of the demo."""
        clock = self.parts.clock
        shown = f"{story_time(clock.now(), STORY_BEGINS)}, {format_duration(clock.monotonic())} after the beginning"
        totals = account(self.world, clock.monotonic())
        lost = f"{totals.demanded - totals.useful:.1f} GPU-hours of load came while machines were off"
        return f"{shown}: {self.totals()}; {lost}"


@contextlib.contextmanager
def open_demo(options: Options, say: Callable[[str], None] | None) -> Iterator[Show]:
    """Set everything up, and take it down again; `say` gets each event, where there is no screen."""
    options = replace(
        options,
        hours=_HOURS,
        trace=None,
        sample=max(10.0, _SAMPLE_REAL_SECONDS * options.speed),
        interval=max(options.interval, _ROUND_REAL_SECONDS * options.speed),
    )
    workloads, horizon = lives(options)
    with contextlib.ExitStack() as stack:
        ledger = Ledger.open(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "ledger.db")
        stack.callback(ledger.close)
        parts, world = stage_play(options, workloads, horizon, ledger)
        if say is None:
            stack.enter_context(log_unheard())
        board = Board(world=world, rules=parts.rules, clock=parts.clock, begin=STORY_BEGINS, say=say)
        show = Show(parts=parts, ledger=ledger, world=world, board=board, options=options, horizon=horizon)
        board.totals = show.totals
        yield show
