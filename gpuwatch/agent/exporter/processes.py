"""The samples of processes: the largest of each GPU, who owns them, and which containers hold a GPU."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpuwatch.agent.attribution.attribution import View
from gpuwatch.model.gpu import GpuProcess
from gpuwatch.runtime.metrics.exposition import Sample

_MOST_HOLDERS = 64

Rows = Iterator[Sample]


def all_process_rows(
    key: tuple[str, str | None], processes: Iterable[GpuProcess], top: int, users: View | None
) -> Rows:
    """The largest processes by themselves and the rest in one sum, so that the number of series is bounded."""
    sizes: dict[int, int | None] = {}
    for process in processes:  # one that computes and draws is listed twice
        known = sizes.get(process.pid)
        sizes[process.pid] = known if process.memory_bytes is None else max(known or 0, process.memory_bytes)
    yield "gpuwatch_gpu_processes", key, len(sizes)
    sized = sorted(
        ((pid, size) for pid, size in sizes.items() if size is not None), key=lambda item: (-item[1], item[0])
    )
    for pid, size in sized[:top]:
        yield "gpuwatch_process_memory_bytes", (*key, str(pid)), size
    yield "gpuwatch_process_memory_other_bytes", key, sum(size for _, size in sized[top:])
    if users is not None:
        unsized = [pid for pid, size in sizes.items() if size is None]
        yield from process_rows(key, sizes, [*(pid for pid, _ in sized), *unsized][:top], users)


def process_rows(
    key: tuple[str, str | None], sizes: Mapping[int, int | None], shown: Sequence[int], view: View
) -> Rows:
    """The owners of the processes of a GPU that are shown one by one, and the memory that dead ones among all hold."""
    for pid in shown:
        labels = _labels(pid, view)
        if any(labels):
            yield "gpuwatch_process_info", (*key, str(pid), *labels), 1
    if view.dead is not None:
        held = [size for pid, size in sizes.items() if pid in view.dead]
        known = [size for size in held if size is not None]
        if len(known) == len(held):
            yield "gpuwatch_gpu_dead_process_memory_bytes", key, sum(known)


def holder_rows(key: tuple[str, str | None], view: View) -> Rows:
    """The containers that the kubelet gave the GPU or a part of it, whether they use it or not."""
    for holder in view.held.get(key[0], ())[:_MOST_HOLDERS]:
        yield "gpuwatch_gpu_pod_info", (*key, holder.namespace, holder.pod, holder.container), 1


def _labels(pid: int, view: View) -> tuple[str | None, ...]:
    """The owner's labels, in the order of the catalogue."""
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
