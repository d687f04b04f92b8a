"""Metrics of pools that have a deadline: how far the work is, and whether another start still fits."""

from collections.abc import Iterator

from gpuwatch.controller.metrics.state import ROUND, MetricsState, Value, gauge
from gpuwatch.model.measurement import BatchPast
from gpuwatch.policies.spot.batch import BatchRules, spare_seconds


def _pools(state: MetricsState) -> Iterator[tuple[str, BatchRules]]:
    """Those that have a deadline."""
    pools = {} if state.rules is None else state.rules.pools
    yield from ((name, pool.batch) for name, pool in sorted(pools.items()) if pool.batch.work)


def _known_batches(state: MetricsState) -> Iterator[tuple[str, BatchRules, BatchPast]]:
    """Those of which the last round knew how far they are."""
    batches = {} if state.observation is None else state.observation.batches
    yield from ((name, rules, batches[name]) for name, rules in _pools(state) if name in batches)


def _work(state: MetricsState) -> Iterator[Value]:
    for name, rules in _pools(state):
        yield (name,), rules.work


def _deadline(state: MetricsState) -> Iterator[Value]:
    for name, rules in _pools(state):
        yield (name,), rules.ends.timestamp()


def _done_values(state: MetricsState) -> Iterator[Value]:
    for name, rules, known in _known_batches(state):
        yield (name,), min(known.done_seconds, rules.work)


def _slack(state: MetricsState) -> Iterator[Value]:
    if state.observation is not None:
        for name, rules, known in _known_batches(state):
            spare = spare_seconds(rules, known, state.observation.now)
            if spare is not None:
                yield (name,), spare


_POOL = ("pool",)
FAMILIES = (
    gauge(
        "batch_work_seconds",
        _POOL,
        "How long the work of a pool with a deadline takes on all its nodes together (pools.<name>.batch.work).",
        "settings",
        _work,
    ),
    gauge("batch_deadline_timestamp_seconds", _POOL, "When it has to be done (batch.by).", "settings", _deadline),
    gauge(
        "batch_done_seconds",
        _POOL,
        "How much of it is done; absent before its begin, and while the ledger cannot be asked.",
        ROUND,
        _done_values,
    ),
    gauge(
        "batch_slack_seconds",
        _POOL,
        "Time to the deadline without the work that is left and one start (batch.restart): below zero a node that is "
        "lost makes it late. Absent once the work is done, and where it is not known what is done.",
        ROUND,
        _slack,
    ),
)
