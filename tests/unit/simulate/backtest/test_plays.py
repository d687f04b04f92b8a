"""Policies are charged and checked one after the other or at once, and the figures are the same."""

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from gpuwatch.runtime.clock import Clock, ManualClock
from gpuwatch.runtime.json_document import json_text
from gpuwatch.simulate.backtest.compare import Terms, policy_of
from gpuwatch.simulate.backtest.document import backtest_document
from gpuwatch.simulate.backtest.gaps import history_of
from gpuwatch.simulate.backtest.plays import shared_out, workers
from gpuwatch.simulate.backtest.report import Backtest, backtest
from gpuwatch.simulate.backtest.safety_check import Bounds
from gpuwatch.simulate.fleet.options import Options
from gpuwatch.simulate.fleet.workloads import DemoError

POLICIES = ("timeout=5m", "timeout=30m", "timeout=break_even", "timeout=learned", "never")
HOURS = 3.0


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Six nodes that work and pause in lengths of their own."""
    rows = [
        f"n{node},{at},{at + 400 + 50 * node}"
        for node in range(6)
        for at in range(0, round(2 * HOURS * 3600), 1100 + 170 * node)
    ]
    path = tmp_path / "load.csv"
    path.write_text("\n".join(["node,busy_from_s,busy_to_s", *rows]))
    return path


def played(
    trace: Path, jobs: int | None, clock: Clock | None = None, advance: Callable[[float, float], object] | None = None
) -> Backtest:
    """The five policies, a part of the recording played, in so many processes."""
    options = Options(trace=trace)
    named = [policy_of(name) for name in POLICIES]
    bounds, clock = Bounds(hours=HOURS), clock or ManualClock()
    told = advance or (lambda _done, _whole: None)
    return backtest("load.csv", history_of(options), options, named, Terms(), bounds, clock, jobs=jobs, advance=told)


def test_processes_give_the_figures_of_one_byte_by_byte(trace: Path) -> None:
    """Charges and checks of five policies in two processes: the same document, and no process is left."""
    alone, shared = (json_text("backtest", backtest_document(played(trace, jobs), 20)) for jobs in (1, 2))

    assert all(name in alone for name in POLICIES)
    assert shared == alone
    assert not multiprocessing.active_children()


def test_processes_tell_how_far_all_of_them_are(trace: Path) -> None:
    """What is done never becomes less, and is all of it at the end."""
    told: list[tuple[float, float]] = []

    played(trace, 2, advance=lambda done, whole: told.append((done, whole)))

    assert {whole for _, whole in told} == {2 * len(POLICIES)}
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == 2 * len(POLICIES)


class Deadly(ManualClock):
    """A clock that ends any process but the first at the first look."""

    def monotonic(self) -> float:
        """The time, in the process that the tests are in."""
        if multiprocessing.parent_process() is not None:
            os._exit(9)
        return super().monotonic()


def test_a_process_that_ends_early_is_an_error_that_says_what_to_do(trace: Path) -> None:
    """Such as one that the kernel ended for its memory: no figure is made up, and no process is left."""
    with pytest.raises(DemoError, match="--jobs 1"):
        played(trace, 2, clock=Deadly())

    assert not multiprocessing.active_children()


def test_without_semaphores_all_is_done_in_one_process(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container without /dev/shm can have no queue between processes; the backtest works there as before."""

    def refused(_context: object) -> NoReturn:
        raise FileNotFoundError(2, "No such file or directory")

    expected = backtest_document(played(trace, 1), 20)
    monkeypatch.setattr("multiprocessing.context.BaseContext.SimpleQueue", refused)

    assert backtest_document(played(trace, 2), 20) == expected


def test_only_large_histories_are_worth_processes() -> None:
    """A process starts within a second or two; a small history is played sooner. There are never more than tasks."""
    assert workers(8, node_hours=100.0, tasks=10) == 1
    assert workers(8, node_hours=100_000.0, tasks=10) == 8
    assert workers(64, node_hours=100_000.0, tasks=10) == 10
    assert workers(1, node_hours=100_000.0, tasks=10) == 1


def test_a_minute_of_checks_is_a_minute_however_many_are_played_at_once() -> None:
    """Each check's share of the real seconds grows with the processes; `never` plays nothing."""
    named, minute = [policy_of(name) for name in POLICIES], Bounds(real_seconds=60.0)

    assert shared_out(minute, named, 1) == Bounds(real_seconds=15.0)
    assert shared_out(minute, named, 2) == Bounds(real_seconds=30.0)
    assert shared_out(minute, named, 9) == Bounds(real_seconds=60.0)
    assert shared_out(None, named, 2) is None
