"""Rounds keep their distance whatever is done to the wall clock (P18)."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo

import pytest
from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers import base
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.triggers.interval import IntervalTrigger
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.cli.controller import schedule_rounds
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.runtime.scheduler import SteadyScheduler
from tests.support.builders.fleet import Desk

DAY = 86400.0


@dataclass(slots=True)
class Driver:
    """A scheduler without its thread and its own time: its waits pass on a manual clock, and jobs run at once."""

    clock: ManualClock
    scheduler: BaseScheduler
    ran: list[float] = field(default_factory=list)

    def begin(self) -> None:
        """As `start` does, less the thread."""
        self.scheduler.add_executor(DebugExecutor(), "default")
        self.scheduler._event = threading.Event()
        BaseScheduler.start(self.scheduler)

    def pass_time(self, seconds: float, jump: Callable[[float], None] = lambda _waited: None) -> None:
        """Let its loop run for so long; `jump` may set the clock in the middle of each wait."""
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            wait = self.scheduler._process_jobs()
            assert wait is not None
            wait = min(max(wait, 0.001), until - self.clock.monotonic())
            self.clock.advance(wait / 2)
            jump(wait)
            self.clock.advance(wait / 2)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A job every minute, from now on."""
    return a_driver(monkeypatch)


def a_driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """The same, for one example of many."""
    clock = ManualClock()

    class Wall(datetime):
        """What APScheduler takes for the present."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            """The manual clock's."""
            return clock.now().astimezone(tz)

    monkeypatch.setattr(base, "datetime", Wall)
    made = Driver(clock=clock, scheduler=SteadyScheduler(clock))
    made.scheduler.add_job(
        lambda: made.ran.append(clock.monotonic()),
        IntervalTrigger(seconds=60, timezone="UTC"),
        next_run_time=clock.now(),
        coalesce=True,
        misfire_grace_time=None,
    )
    return made


@pytest.mark.parametrize("step", [-30 * DAY, -DAY, -300.0, -2.0, 2.0, 300.0, DAY, 30 * DAY])
def test_a_step_of_the_clock_moves_no_round(driver: Driver, step: float) -> None:
    """Back or forward, by seconds or by days: the rounds go on a minute apart."""
    driver.begin()
    driver.pass_time(150.0)
    driver.clock.jump(step)
    driver.pass_time(600.0)

    assert driver.ran == pytest.approx([60.0 * n for n in range(13)], abs=0.1)


@given(steps=st.lists(st.floats(-DAY, DAY), min_size=1, max_size=20))
def test_a_clock_that_is_set_all_the_time_moves_no_round(steps: list[float]) -> None:
    """Whatever it shows at each of the waits (P18); a step of less than a second may move one by as much."""
    with pytest.MonkeyPatch.context() as patch:
        driver = a_driver(patch)
        driver.begin()
        left = list(steps)
        driver.pass_time(600.0, lambda _wait: driver.clock.jump(left.pop()) if left else None)
    distances = [later - earlier for earlier, later in zip(driver.ran, driver.ran[1:], strict=False)]

    assert len(driver.ran) >= 10
    assert all(58.9 <= distance <= 61.1 for distance in distances), distances


def test_a_clock_that_is_set_before_the_start_delays_nothing(driver: Driver) -> None:
    """Between making the jobs and starting them somebody sets the clock back by a day."""
    driver.clock.jump(-DAY)
    driver.begin()
    driver.pass_time(130.0)

    assert driver.ran == pytest.approx([0.0, 60.0, 120.0], abs=0.1)


def test_the_controllers_rounds_are_such_jobs() -> None:
    """Rounds, messages and reports share one scheduler."""
    desk = Desk()
    scheduler = schedule_rounds(desk.parts, interval_seconds=60.0)
    (job,) = scheduler.get_jobs()

    assert isinstance(scheduler, SteadyScheduler)
    assert job.next_run_time - desk.clock.now() == timedelta(0)
