"""Jobs of a daemon that are about its own process."""

import gc
from collections.abc import Iterator
from datetime import timedelta

import pytest

from gpuwatch.runtime.clock import SystemClock
from gpuwatch.runtime.scheduler import SteadyScheduler, schedule_collections


@pytest.fixture
def thresholds() -> Iterator[tuple[int, int, int]]:
    """Those of this process, which it has again afterwards."""
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_all_objects_are_looked_at_once_in_ten_rounds(thresholds: tuple[int, int, int]) -> None:
    """A round of a large fleet makes millions of them, none in a cycle; the young ones are collected as before."""
    scheduler = SteadyScheduler(SystemClock())
    schedule_collections(scheduler, 60.0)
    (job,) = scheduler.get_jobs()

    assert (job.func, job.trigger.interval) == (gc.collect, timedelta(minutes=10))
    assert gc.get_threshold()[:2] == thresholds[:2]
    assert gc.get_threshold()[2] > 1_000_000
