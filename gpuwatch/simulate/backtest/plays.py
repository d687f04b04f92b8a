"""The charges and checks of a backtest's policies: one after the other, or several at once in processes of their own.

Each is made of the same values by the same functions either way, so the figures are the same. A process that works
imports the package and gets the history once, which takes a second or two: small histories are played in this one.
"""

import multiprocessing
import signal
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.queues import SimpleQueue
from typing import Any

from gpuwatch.model.progress import Advance, no_advance
from gpuwatch.runtime.clock import Clock
from gpuwatch.simulate.backtest.compare import Figures, Policy, Terms, figures_of
from gpuwatch.simulate.backtest.gaps import History
from gpuwatch.simulate.backtest.safety_check import Bounds, Checked, check
from gpuwatch.simulate.fleet.options import Options
from gpuwatch.simulate.fleet.workloads import DemoError

_SMALL_NODE_HOURS = 20_000.0
_TOLD = 0.01  # of a task: a smaller advance is not worth a message to the parent
_LOOK_SECONDS = 0.2  # how often the parent reads those messages

Told = SimpleQueue[tuple[int, float]]  # how far a task is


@dataclass(frozen=True, slots=True, kw_only=True)
class Plays:
    """What is to be done: for each policy its charge and then, with `bounds`, its check. Tasks are numbered so."""

    history: History
    options: Options
    policies: tuple[Policy, ...]
    terms: Terms
    bounds: Bounds | None  # of each policy's check
    clock: Clock

    @property
    def tasks(self) -> int:
        """How many there are."""
        return len(self.policies) * (1 if self.bounds is None else 2)

    def charge_policy(self, number: int) -> Figures:
        """Return the figures of a policy."""
        return figures_of(self.policies[number], self.history, self.terms)

    def check_policy(self, number: int, advance: Advance) -> Checked:
        """The policy's check. `advance` gets the part that is done, of 1."""
        assert self.bounds is not None  # noqa: S101  there is no such task without them
        restart = self.terms.restart
        policy = self.policies[number]
        return check(policy, self.history, self.options, restart, self.bounds, self.clock, advance=advance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What came of all tasks; no `checks` without bounds. `charging_seconds` is how long the charges took together."""

    figures: Sequence[Figures]
    checks: Sequence[Checked]
    charging_seconds: float


def workers(jobs: int, node_hours: float, tasks: int) -> int:
    """How many processes are worth their start on so many processors; 1: all is done in this one."""
    return min(jobs, tasks) if node_hours * tasks >= _SMALL_NODE_HOURS else 1


def one_by_one(plays: Plays, advance: Advance = no_advance) -> Results:
    """All tasks in this process."""
    begun, count, whole = plays.clock.monotonic(), len(plays.policies), plays.tasks
    figures = []
    for number in range(count):
        advance(number, whole)
        figures.append(plays.charge_policy(number))
    seconds = plays.clock.monotonic() - begun
    checks = [
        plays.check_policy(number - count, partial(_part, advance, number, whole)) for number in range(count, whole)
    ]
    return Results(figures=figures, checks=checks, charging_seconds=seconds)


def _part(advance: Advance, before: int, whole: int, done: float, of: float) -> None:
    """Tell how far one check is, after so many whole tasks."""
    advance(before + done / of, whole)


def at_once(plays: Plays, jobs: int, advance: Advance = no_advance) -> Results:
    """All tasks in so many processes; without semaphores (no /dev/shm) they are done in this one.

    Raises:
        DemoError: a process ended before its task did; memory may be short.

    """
    context = multiprocessing.get_context("spawn")  # a fork would copy the thread that draws the progress
    try:
        told: Told = context.SimpleQueue()
        others = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(plays, told))
    except (ImportError, NotImplementedError, OSError):
        return one_by_one(plays, advance)
    try:
        return _collect_results(plays, pool, told, advance)
    except BrokenProcessPool as error:
        raise DemoError(
            f"a process of the backtest ended early; with --jobs 1 it takes less memory ({error})"
        ) from error
    finally:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        pool.shutdown(cancel_futures=True)


def _collect_results(plays: Plays, pool: ProcessPoolExecutor, told: Told, advance: Advance) -> Results:
    """The results, in the order of the tasks, while the parent says how far all of them are."""
    begun, count = plays.clock.monotonic(), len(plays.policies)
    # What learns takes longest, so it begins first.
    order = sorted(range(count), key=lambda number: plays.policies[number].timeout != "learned")
    charges = {number: pool.submit(_charge_task, number) for number in order}
    checks = {number: pool.submit(_check_task, number) for number in order if plays.tasks > count}
    seconds, done = 0.0, dict[int, float]()
    left: set[Future[Any]] = {*charges.values(), *checks.values()}
    while left:
        _, left = wait(left, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
        while not told.empty():
            number, part = told.get()
            done[number] = part
        if not seconds and all(each.done() for each in charges.values()):
            seconds = plays.clock.monotonic() - begun
        advance(sum(done.values()), plays.tasks)
    return Results(
        figures=[charges[number].result() for number in range(count)],
        checks=[checks[number].result() for number in range(count) if number in checks],
        charging_seconds=seconds,
    )


# In the processes that work.


@dataclass(slots=True)
class _Worker:
    """What a process was given."""

    plays: Plays
    told: Told


_given: list[_Worker] = []


def _begin(plays: Plays, told: Told) -> None:
    """Ctrl-C reaches all processes of a terminal; the parent ends these."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _given[:] = [_Worker(plays, told)]


def _charge_task(number: int) -> Figures:
    worker = _given[0]
    found = worker.plays.charge_policy(number)
    worker.told.put((number, 1.0))
    return found


def _check_task(number: int) -> Checked:
    worker = _given[0]
    task, last = number + len(worker.plays.policies), 0.0

    def tell(done: float, of: float) -> None:
        nonlocal last
        if done / of >= last + _TOLD:
            last = done / of
            worker.told.put((task, last))

    found = worker.plays.check_policy(number, tell)
    worker.told.put((task, 1.0))
    return found


def shared_out(bounds: Bounds | None, policies: Sequence[Policy], jobs: int) -> Bounds | None:
    """The bounds of each check, so that all of them together take the real seconds of `bounds`."""
    if bounds is None:
        return None
    played = max(1, sum(not policy.never for policy in policies))
    return replace(bounds, real_seconds=bounds.real_seconds * min(jobs, played) / played)
