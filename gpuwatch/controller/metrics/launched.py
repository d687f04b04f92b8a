"""Metrics of what was launched or started: how many machines in a row did not last, and how many stopped by themselves.

The first counts the newest machines of one template and place, of all pools; at three of them launches rest. Both come
from the ledger, so that a restart of the controller changes nothing.
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
)
