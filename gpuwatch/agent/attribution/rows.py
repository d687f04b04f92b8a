"""Samples of who uses a GPU. Labels of many values are on info metrics only, one series for each pid told."""

from collections.abc import Iterator, Mapping, Sequence

from gpuwatch.agent.attribution.joiner import View

_MOST_HOLDERS = 64

_Rows = Iterator[tuple[str, tuple[str | None, ...], float]]


def process_rows(
    key: tuple[str, str | None], sizes: Mapping[int, int | None], told: Sequence[int], view: View
) -> _Rows:
    """The owners of those processes of a GPU that are told one by one, and what the dead among all of them hold."""
    for pid in told:
        labels = _labels(pid, view)
        if any(labels):
            yield "gpuwatch_process_info", (*key, str(pid), *labels), 1
    if view.dead is not None:
        held = [size for pid, size in sizes.items() if pid in view.dead]
        known = [size for size in held if size is not None]
        if len(known) == len(held):
            yield "gpuwatch_gpu_dead_process_memory_bytes", key, sum(known)


def holder_rows(key: tuple[str, str | None], view: View) -> _Rows:
    """The containers that the kubelet gave the GPU or a part of it, whether they use it or not."""
    for holder in view.held.get(key[0], ())[:_MOST_HOLDERS]:
        yield "gpuwatch_gpu_pod_info", (*key, holder.namespace, holder.pod, holder.container), 1


def _labels(pid: int, view: View) -> tuple[str | None, ...]:
    """In the order of the catalogue."""
    owner, workload = view.owners.get(pid), view.workloads.get(pid)
    place = owner.placement if owner else None
    return (
        owner.user if owner else None,
        place.container_id if place else None,
        workload.container if workload else None,
        workload.pod if workload else None,
        workload.namespace if workload else None,
        place.pod_uid if place else None,
        place.slurm_job if place else None,
        place.systemd_unit if place else None,
    )
