"""Figures of the controller's round: `gpuwatch.controller.round.step`, enforcing, over 100 and 1,000 nodes.

Three rounds make a story that repeats on a fresh ledger: one node in ten is given notice; nothing more is to be done;
the notices have run out and as many nodes are stopped as the guard's default allows. Once with signals at hand, which
leaves the decisions, and once with the real ScrapeSource asking each node's agent over loopback HTTP.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import IO

import aiohttp

from benchmarks import targets
from benchmarks.figures import Figure
from benchmarks.processes import free_port, peak_rss_bytes
from gpuwatch.clouds import CloudError, CloudUnavailableError
from gpuwatch.controller.observe import NodeReportSource
from gpuwatch.controller.observe.scrape import ObserveSettings, ScrapeSource
from gpuwatch.controller.round import ControllerContext, step
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import DEFAULT_POOL, NodeReport
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import HOUR, NOW, FakeFleet, a_node, a_verdict

_COUNTS = (100, 1000)
_RUNS = 5
_MIB = 1024**2
_HANGS_SECONDS = 25.0
_NOTICE_SECONDS = 5.0  # short, because the prepared verdicts are of one moment and must stay fresh
_RULES = PoolRules(min_nodes=0, warm_up=900.0, idle=IdleRules(timeout=1800.0, grace_period=_NOTICE_SECONDS))
_LIMITS = Limits()
_ROUNDS = ("1 in 10 given notice", "nothing to do", f"{_LIMITS.max_stops_per_round} stopped")
_SOURCES = {False: "signals at hand", True: "over HTTP"}
_FLOORS = {False: "the same without deciding", True: "the same requests by bare aiohttp"}


@dataclass(slots=True, kw_only=True)
class _Seen:
    """What a process saw that ran the story for one size of fleet."""

    rounds: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in _ROUNDS})
    floor: list[float] = field(default_factory=list)
    bare_rss: int
    peak_rss: int = 0


def measure() -> Iterator[Figure]:
    """All figures."""
    seen: dict[tuple[bool, int], _Seen] = {}
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.targets", str(max(_COUNTS)), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as agents:
        try:
            _wait_ready(agents.stdout)
            for asked in _SOURCES:
                for count in _COUNTS:  # each in a fresh process, for its memory
                    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                        seen[asked, count] = process.submit(_story, count, port if asked else None).result()
        finally:
            agents.terminate()
    small, large = _COUNTS
    for asked, source in _SOURCES.items():
        for name in _ROUNDS:
            runs = _milliseconds(seen[asked, large].rounds[name])
            floors = {
                _FLOORS[asked]: seen[asked, large].floor,
                f"{small} nodes; {large // small}x is linear": seen[asked, small].rounds[name],
            }
            for floor, others in floors.items():
                yield Figure(
                    name=f"round of {large:,} nodes, {source}, {name}",
                    unit="ms",
                    runs=runs,
                    floor=floor,
                    floor_runs=_milliseconds(others),
                )
    yield from _seconds_beside_a_hanging_region(large)
    for count in _COUNTS:
        yield Figure(
            name=f"peak RSS, {count:,} nodes, over HTTP",
            unit="MiB",
            runs=[seen[True, count].peak_rss / _MIB],
            floor="the same imports without a fleet",
            floor_runs=[seen[True, count].bare_rss / _MIB],
        )


def _seconds_beside_a_hanging_region(count: int) -> Iterator[Figure]:
    """How long, on the clock that it is given, a round lets others wait for a region in which each call hangs.

    Half of the fleet is there; every machine is idle, so each is to have its notice.
    """
    clock = ManualClock(wall=NOW)
    fleet, told = FakeFleet(clock=clock), dict[str, float]()
    for number in range(count):
        region = "sick" if number % 2 else "well"
        fleet.put(replace(a_node(f"{region}-{number}"), region=region))

    def hang(call: str, node_id: str) -> CloudError | None:
        if call != "tag":
            return None
        if node_id.startswith("well"):
            told[node_id] = clock.monotonic()
            return None
        clock.advance(_HANGS_SECONDS)
        return CloudUnavailableError("no answer")

    fleet.fault = hang
    limits = replace(_LIMITS, mass_idleness_nodes=count)
    rules = Rulebook(pools={DEFAULT_POOL: _RULES}, limits=limits, enforce=True)
    parts = ControllerContext(clock=clock, cloud=fleet, signals=fleet, ledger=Ledger.in_memory(), rules=rules)
    for name in ("first", "next"):
        begun = clock.monotonic()
        step(parts)
        if name == "first" and len(told) != count // 2:
            raise RuntimeError(f"{len(told)} of {count // 2} machines elsewhere have their notice after one round")
        waited = max(told.values()) - begun if name == "first" else clock.monotonic() - begun
        what = (
            "until the last notice elsewhere" if name == "first" else "which all machines elsewhere have been through"
        )
        yield Figure(
            name=f"{name} round of {count:,} nodes, each call of one region hangs for {_HANGS_SECONDS:.0f} s, {what}",
            unit="s",
            runs=[waited],
            at_most=2 * _HANGS_SECONDS,
        )


def _milliseconds(runs: Sequence[float]) -> list[float]:
    return [run * 1e3 for run in runs]


def _wait_ready(output: IO[bytes] | None) -> None:
    if output is None or output.readline() != b"ready\n":
        raise RuntimeError(
            "the simulated agents did not start; run `python -m benchmarks.targets 1000 9460` to see why"
        )


def _fleet(count: int, clock: ManualClock) -> FakeFleet:
    fleet = FakeFleet(clock=clock)
    for number in range(count):
        node_id, state = targets.node_id(number), targets.state(number)
        signal = NodeReport(verdict=a_verdict(node_id, state, gpus=targets.GPUS))
        node = a_node(node_id, state, address=targets.address(number), gpu_count=targets.GPUS, signal=signal)
        fleet.put(node)
    return fleet


def _story(count: int, port: int | None) -> _Seen:
    """Runs the three rounds several times; the first time is not measured."""
    seen = _Seen(bare_rss=peak_rss_bytes())
    for run in range(_RUNS + 1):
        clock = ManualClock(wall=NOW)
        fleet = _fleet(count, clock)
        signals: NodeReportSource = fleet
        if port is not None:
            settings = ObserveSettings(port=port)
            signals = ScrapeSource(settings=settings, clock=clock, max_age_seconds=_LIMITS.max_verdict_age)
        parts = ControllerContext(
            clock=clock,
            cloud=fleet,
            signals=signals,
            ledger=Ledger.in_memory(),
            rules=Rulebook(pools={DEFAULT_POOL: _RULES}, limits=_LIMITS, enforce=True),
        )
        begin = time.perf_counter()
        if port is None:
            fleet.observe(fleet.nodes())
        else:
            asyncio.run(_ask_bare(count, port))
        floor = time.perf_counter() - begin
        times = [_round(parts, fleet, name, count) for name in _ROUNDS]
        parts.ledger.close()
        if run > 0:
            seen.floor.append(floor)
            for name, seconds in zip(_ROUNDS, times, strict=True):
                seen.rounds[name].append(seconds)
    return replace(seen, peak_rss=peak_rss_bytes())


def _round(parts: ControllerContext, fleet: FakeFleet, name: str, count: int) -> float:
    """The time of one round, which must have done what its name says."""
    expected = dict(
        zip(
            _ROUNDS,
            ([Verb.NOTICE] * targets.idle(count), [], [Verb.STOP] * _LIMITS.max_stops_per_round),
            strict=True,
        )
    )[name]
    begin = time.perf_counter()
    done = step(parts)
    seconds = time.perf_counter() - begin
    verbs = [act.review.step.verb for act in done.acts]
    if verbs != expected or done.trouble:
        message = f"round {name!r} of {count} nodes did {len(verbs)} steps, not {len(expected)}; {done.trouble or ''}"
        raise RuntimeError(message)
    if not expected:
        parts.clock.sleep(_NOTICE_SECONDS + 1)
        for number in filter(lambda number: targets.state(number) is State.IDLE, range(count)):
            fleet.show(targets.node_id(number), State.IDLE, 2 * HOUR + _NOTICE_SECONDS + 1)
    return seconds


async def _ask_bare(count: int, port: int) -> None:
    """What asking costs with the same client and as many requests at once, and no look at the answers."""
    limit = asyncio.Semaphore(ObserveSettings().concurrency)

    async def ask(number: int) -> None:
        async with limit, session.get(f"http://{targets.address(number)}:{port}/v1/verdict") as response:
            await response.read()

    connector = aiohttp.TCPConnector(limit=ObserveSettings().concurrency)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*map(ask, range(count)))
