"""Metrics of a Slurm cluster as the last round saw it: drained nodes, and the GPUs that jobs hold and do not use.

A cluster that is not configured has no series; series of jobs need `slurm.squeue`.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from gpuwatch.controller.metrics.state import ROUND, MetricsState, Series, Value, gauge
from gpuwatch.model.slurm import SlurmView
from gpuwatch.policies import job_use, slurm_sick
from gpuwatch.policies.job_use import JobUse

_JOB = ("pool", "node", "user", "slurm_job")


def _view(state: MetricsState) -> SlurmView | None:
    return None if state.observation is None else state.observation.fleet.slurm


def _up(state: MetricsState) -> Iterator[Value]:
    view = _view(state)
    if view is not None:
        yield (), float(view.doubt is None and view.jobs_doubt is None and view.queue_doubt is None)


def _drained_values(state: MetricsState) -> Iterator[Value]:
    """Nodes of each pool that somebody has drained."""
    seen, view = state.observation, _view(state)
    if seen is None or view is None or view.doubt is not None:
        return
    found: Counter[tuple[str, ...]] = Counter()
    for node in seen.fleet.nodes:
        if node.slurm is not None and node.slurm.drained:
            found[node.pool, "gpuwatch" if slurm_sick.ours(node.slurm, seen) else "others"] += 1
    for pool in view.pools:
        for who in ("gpuwatch", "others"):
            yield (pool, who), float(found[pool, who])


def _held_values(state: MetricsState) -> Iterator[Value]:
    """GPUs by who holds them, and by what they do."""
    found: Counter[tuple[str, ...]] = Counter()
    for each in () if state.observation is None else job_use.uses(state.observation):
        for activity, count in each.states.items():
            found[each.node.pool, each.job.user, activity.value] += count
    yield from sorted((key, float(count)) for key, count in found.items())


def _unused_series(value: Callable[[JobUse], float | None], *, money: bool = False) -> Series:
    """One series for each job on each node; of money, where the node counts."""

    def series(state: MetricsState) -> Iterator[Value]:
        for each in () if state.observation is None else job_use.unused_jobs(state.observation):
            number = None if money and each.node.id in state.uncounted else value(each)
            if number is not None:
                yield (each.node.pool, each.node.id, each.job.user, each.job.id), number

    return series


FAMILIES = (
    gauge("slurm_up", (), "1 if Slurm gave a usable answer to each question, 0 if not.", ROUND, _up),
    gauge(
        "slurm_drained_nodes",
        ("pool", "by"),
        "Machines with a drained node in Slurm, by who has drained it: gpuwatch or others.",
        ROUND,
        _drained_values,
    ),
    gauge(
        "slurm_allocated_gpus",
        ("pool", "user", "activity"),
        "GPUs that running jobs hold, by what the nodes' agents say of these GPUs.",
        ROUND,
        _held_values,
    ),
    gauge(
        "slurm_unused_gpus",
        _JOB,
        "GPUs of a running job on one node that were idle, parked or stalled for an hour and more.",
        ROUND,
        _unused_series(lambda each: float(each.unused)),
    ),
    gauge(
        "slurm_unused_seconds",
        _JOB,
        "How long all of these have had no use.",
        ROUND,
        _unused_series(lambda each: each.held_seconds),
    ),
    gauge(
        "slurm_unused_usd_per_hour",
        _JOB,
        "What they cost.",
        ROUND,
        _unused_series(lambda each: None if each.usd_per_hour is None else float(each.usd_per_hour), money=True),
    ),
)
