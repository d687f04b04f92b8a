"""APScheduler's jobs on a clock that does not jump, whatever is done to the host's wall clock.

APScheduler compares wall-clock times: after a clock was set back by a day, no job would run for a day; after a step
forward, waits would be cut short. Here a step of the clock moves the times of all jobs with it.
"""

import gc
import sys
from datetime import UTC, timedelta

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from gpuwatch.runtime.clock import Clock

# A smaller difference is no step: NTP slews the clock, and two readings take time. It moves a job by as much at most.
_STEP_SECONDS = 1.0
# A step in the very moment in which a wait is computed would make it wrong: it is computed again so often.
_LOOKS_SECONDS = 15.0
INTERVALS_A_COLLECTION = 10


class SteadyScheduler(BackgroundScheduler):  # type: ignore[misc]  # APScheduler 3 has no types
    """A BackgroundScheduler that keeps the distances of jobs by the monotonic clock. `clock` must be the host's."""

    def __init__(self, clock: Clock) -> None:
        """Without jobs, not started."""
        self._clock = clock
        self._offset = self._wall_ahead()
        super().__init__(timezone=UTC)

    def _wall_ahead(self) -> float:
        """How far the wall clock is ahead of the monotonic one; constant unless somebody sets it."""
        before = self._clock.monotonic()
        return self._clock.now().timestamp() - (before + self._clock.monotonic()) / 2

    def _process_jobs(self) -> float | None:
        """Run what is due. APScheduler calls this whenever its wait, which is monotonic, is over."""
        offset = self._wall_ahead()
        step = offset - self._offset
        if abs(step) >= _STEP_SECONDS:
            self._offset = offset
            for job in self.get_jobs():
                if job.next_run_time is not None:
                    job.modify(next_run_time=job.next_run_time + timedelta(seconds=step))
        due: float | None = super()._process_jobs()
        return None if due is None else min(due, _LOOKS_SECONDS)


def schedule_collections(scheduler: BackgroundScheduler, interval_seconds: float) -> None:
    """Have all of the process's objects looked at for garbage once in ten intervals, and at no other time.

    Python does so whenever a quarter of them is new. Each round has a new fleet: of 12,500 machines that was a third of
    a second of CPU in each. What does not live for long is collected as ever.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, sys.maxsize >> 32)
    every = IntervalTrigger(seconds=INTERVALS_A_COLLECTION * interval_seconds, timezone=UTC)
    scheduler.add_job(gc.collect, every, max_instances=1, coalesce=True, misfire_grace_time=None)
