"""The demo's live cast: a fast clock, agents over HTTP, EC2 by moto behind the real `clouds/aws`, a ledger file."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gpuwatch.clouds import Cloud
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.controller.observe.scrape import ScrapeKnobs, ScrapeSource
from gpuwatch.controller.round import Parts, Round, step
from gpuwatch.ledger import Ledger
from gpuwatch.model.duration import format_duration
from gpuwatch.runtime.clock import Clock, ScaledClock, SystemClock
from gpuwatch.simulate.fleet.accounts import account, saved_usd
from gpuwatch.simulate.fleet.moto_stage import Agents, CycleClock, PlayedTime, launch, played_aws
from gpuwatch.simulate.fleet.options import FLEET, REGION, STORY_BEGINS, Options, assemble, lives, log_unheard, tags
from gpuwatch.simulate.fleet.screen import Board, story_time
from gpuwatch.simulate.fleet.world import Timing, WitnessedCloud, World

# What a real second can carry, however fast the simulation's clock is.
_SAMPLE_REAL_SECONDS = 0.25
_ROUND_REAL_SECONDS = 1.0
_CONFIRM_REAL_SECONDS = 5.0
_HOURS = 7 * 24.0  # the lives are written for so long


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """A running demo."""

    parts: Parts
    world: World
    cloud: Cloud
    board: Board
    interval: float

    def run(
        self, real_seconds: float | None, interrupted: Callable[[], bool], tell: Callable[[Round, float], None]
    ) -> None:
        """Rounds, and users who start what they need, for so long or until interrupted.

        `tell` is given each round and how many real seconds it took.
        """
        clock, real = self.parts.clock, SystemClock()
        end = None if real_seconds is None else real.monotonic() + real_seconds
        while (end is None or real.monotonic() < end) and clock.monotonic() < _HOURS * 3600:
            if interrupted():
                return
            began = clock.monotonic()
            for host in self.world.users_start(self.cloud):
                self.board.event(f"start {host.life.name}: its user needs it again")
            asked = real.monotonic()
            done = step(self.parts)
            tell(done, real.monotonic() - asked)
            self.board.round(done)
            clock.sleep(began + self.interval - clock.monotonic())

    def totals(self) -> str:
        """What came of it up to now, by the simulation's truth."""
        told = account(self.world, self.parts.clock.monotonic())
        wrong = [stop for stop in self.world.stops if stop.wrong is not None]
        return (
            f"saved ${saved_usd(told)} so far: {told.billed:.0f} of {told.gpus * told.hours:.0f} GPU-hours billed, "
            f"waste {told.waste_ratio:.0%} instead of {told.baseline_waste_ratio:.0%}; "
            f"{len(self.world.stops)} stopped ({len(wrong)} wrongly), {self.world.restarts} started again"
        )

    def summary(self) -> str:
        """The last words."""
        clock = self.parts.clock
        shown = f"{story_time(clock.now(), STORY_BEGINS)}, {format_duration(clock.monotonic())} after the beginning"
        return f"{shown}: {self.totals()}"


@contextlib.contextmanager
def opened(options: Options, say: Callable[[str], None] | None) -> Iterator[Show]:
    """Set everything up, and take it down again; `say` gets each event, where there is no screen."""
    clock = ScaledClock(rate=options.speed)
    sampling = max(10.0, _SAMPLE_REAL_SECONDS * options.speed)
    confirmation = _CONFIRM_REAL_SECONDS * max(1.0, options.speed)
    options = replace(options, hours=_HOURS, trace=None, sample=sampling, confirmation=confirmation)
    told, horizon = lives(options)
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(played_aws(REGION))
        ids = launch(session, ((life.instance_type, tags(life)) for life in told))
        named = dict(zip(ids, told, strict=True))
        aws = AwsCloud(fleet=FLEET, clock=clock, regions=[REGION], session=session)
        aws.nodes()  # EC2's table of machine types takes a second to load
        clock.epoch, clock.start = STORY_BEGINS, clock.base.monotonic()

        cycle = CycleClock(clock, STORY_BEGINS)
        world = World(named, clock, Timing(sampling=sampling, boot=options.boot), horizon, agents_clock=cycle)
        agents = Agents(world, clock, cycle, sampling)
        stack.callback(agents.close)
        agents.start()
        cloud = WitnessedCloud(PlayedTime(aws, clock, STORY_BEGINS), world)
        ledger = Ledger.open(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "ledger.db")
        stack.callback(ledger.close)
        signals = _signals(options, clock, agents)
        parts = assemble(options, clock, cloud, signals, ledger)
        if say is None:
            stack.enter_context(log_unheard())
        board = Board(world=world, clock=clock, begin=STORY_BEGINS, say=say)
        interval = max(options.interval, _ROUND_REAL_SECONDS * options.speed)
        show = Show(parts=parts, world=world, cloud=cloud, board=board, interval=interval)
        board.totals = show.totals
        yield show


def _signals(options: Options, clock: Clock, agents: Agents) -> ScrapeSource:
    """The real source; the agents' addresses are on loopback, not where EC2 says."""
    knobs, limits = ScrapeKnobs(targets=agents.targets), options.limits
    return ScrapeSource(
        knobs=knobs,
        clock=clock,
        max_age_seconds=limits.max_verdict_age,
        max_look_seconds=limits.max_confirmation_age,  # of the simulation, in which real milliseconds are seconds
    )
