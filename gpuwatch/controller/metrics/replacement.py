"""Metrics of sick machines that were terminated in pools that replace them, of the last day, from the ledger."""

from collections import defaultdict
from collections.abc import Iterator

from gpuwatch.controller.metrics.state import ROUND, MetricsState, Value, gauge
from gpuwatch.policies.replacement import Loss, losses

_LABELS = ("pool", "cloud", "instance_type")


def _by_kind(state: MetricsState) -> Iterator[tuple[tuple[str, ...], list[Loss]]]:
    """The losses of each pool, cloud and type."""
    found: defaultdict[tuple[str, ...], list[Loss]] = defaultdict(list)
    for each in () if state.observation is None else losses(state.observation.ledger.recent):
        found[each.pool, each.cloud, each.instance_type].append(each)
    yield from sorted(found.items())


def _lost_values(state: MetricsState) -> Iterator[Value]:
    for key, each in _by_kind(state):
        yield key, float(len(each))


def _came(state: MetricsState) -> Iterator[Value]:
    for key, each in _by_kind(state):
        yield key, float(sum(loss.came_at is not None for loss in each))


def _seconds(state: MetricsState) -> Iterator[Value]:
    for key, each in _by_kind(state):
        known = [loss.seconds for loss in each if loss.seconds is not None]
        if known:
            yield key, sum(known) / len(known)


FAMILIES = (
    gauge(
        "sick_machines_terminated",
        _LABELS,
        "Machines that were terminated within a day while a GPU of theirs was failing, where the pool replaces them.",
        ROUND,
        _lost_values,
    ),
    gauge("sick_machines_replaced", _LABELS, "Of these, those for which another has come.", ROUND, _came),
    gauge(
        "replacement_seconds",
        _LABELS,
        "Mean time from when a GPU was called failing until another machine came for its own, within a day.",
        ROUND,
        _seconds,
    ),
)
