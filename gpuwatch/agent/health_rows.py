"""Health and XIDs as samples: name, label values, value."""

from collections.abc import Iterator, Sequence

from gpuwatch.agent.xids import Counts
from gpuwatch.model.fleet import GpuVerdict
from gpuwatch.model.health import Health

Rows = Iterator[tuple[str, tuple[str | None, ...], float]]


def health_rows(gpu: GpuVerdict) -> Rows:
    """One GPU's verdict as a set of states, with each cause and its remedy."""
    if gpu.health is None:
        return
    key = gpu.key
    for state in Health:
        yield "gpuwatch_gpu_health", (*key, state.value), state is gpu.health.state
    for finding in gpu.health.findings:
        yield "gpuwatch_gpu_health_cause_info", (*key, finding.code, finding.remedy.value), 1
    if gpu.health.since is not None:
        yield "gpuwatch_gpu_health_since_timestamp_seconds", key, gpu.health.since.timestamp()


def xid_rows(counts: Counts, gpus: Sequence[GpuVerdict]) -> Rows:
    """Each XID of each GPU. They are history, so they stay while nothing can be read."""
    keys = {gpu.uuid: gpu.key for gpu in gpus}
    for (uuid, xid), count in counts.items():
        if uuid in keys:
            key = (*keys[uuid], str(xid))
            yield "gpuwatch_gpu_xid_errors_total", key, count.total
            yield "gpuwatch_gpu_xid_last_seen_timestamp_seconds", key, count.last_at.timestamp()
