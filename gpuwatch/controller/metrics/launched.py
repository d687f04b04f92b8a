"""Metrics of what did not last: machines that were launched or started, and stops that people took back.

The first counts the newest machines of one template and place, of all pools; at three of them launches rest. All of it
comes from the ledger, so that a restart of the controller changes nothing.
"""

from collections.abc import Iterator
from itertools import chain

from gpuwatch.controller.metrics.state import ROUND, MetricsState, Value, gauge
from gpuwatch.policies.lasting import failures_in_a_row
from gpuwatch.policies.machines import pool_machines


def _pools(state: MetricsState) -> tuple[str, ...]:
    """The pools for which something was launched or started, or a group made members that ended."""
    seen = state.observation
    known = () if seen is None else chain(seen.lives, *seen.members.values())
    return tuple(sorted({life.pool for life in known}))


def _failures(state: MetricsState) -> Iterator[Value]:
    seen = state.observation
    for pool in _pools(state):
        if seen is not None:
            yield (pool,), float(failures_in_a_row(seen, pool))


def _stopped_values(state: MetricsState) -> Iterator[Value]:
    seen = state.observation
    for pool in () if seen is None else seen.fleet.pools:
        if seen is not None:
            yield (pool,), float(len(pool_machines(seen, pool).stopped))


def _stops(state: MetricsState) -> Iterator[Value]:
    for pool, each in () if state.observation is None else state.observation.answers.items():
        yield (pool,), float(each.stops)


def _regretted_stops(state: MetricsState) -> Iterator[Value]:
    for pool, each in () if state.observation is None else state.observation.answers.items():
        yield (pool,), float(each.regretted)


def _known_pools(state: MetricsState) -> Iterator[Value]:
    for pool, each in () if state.observation is None else state.observation.answers.items():
        yield (pool,), float(each.known)


FAMILIES = (
    gauge(
        "launches_not_lasting",
        ("pool",),
        "Machines in a row, the newest of one template and place, that were launched and ended, stopped or were taken "
        "within the hour or without work, or never answered. Starts of one machine and members of one group "
        "count as well: the most of any source of the pool. From 3 on it rests.",
        "ledger",
        _failures,
    ),
    gauge(
        "launches_stopped_nodes",
        ("pool",),
        "Machines that gpuwatch launched and that stopped by themselves; they count towards max_nodes.",
        ROUND,
        _stopped_values,
    ),
    gauge(
        "stops_judged",
        ("pool",),
        "Stops and terminations by gpuwatch in the last 30 days that are an hour old, or were taken back before.",
        "ledger",
        _stops,
    ),
    gauge(
        "stops_regretted",
        ("pool",),
        "Of those, how many somebody took back with a start within an hour: gpuwatch was wrong.",
        "ledger",
        _regretted_stops,
    ),
    gauge(
        "pool_known",
        ("pool",),
        "Whether enough notices of the pool ran out unanswered: else the first notice of a machine is a question.",
        "ledger",
        _known_pools,
    ),
)
