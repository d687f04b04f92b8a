"""The samples of processes (the largest of each GPU, who owns them, which containers hold a GPU), and of pods."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpuwatch.agent.attribution.attribution import View
from gpuwatch.model.activity import State
from gpuwatch.model.gpu import GpuProcess, Kind
from gpuwatch.model.verdict import PodVerdict
from gpuwatch.runtime.metrics.exposition import Sample

_MOST_HOLDERS = 64

Rows = Iterator[Sample]
_POD = ("namespace", "pod", "pod_uid")
_SAYS = (State.BUSY, State.UNKNOWN, State.IDLE)
# As the catalogue lists them.
POD_FAMILIES: tuple[tuple[str, str, tuple[str, ...], str, str], ...] = (
    (
        "gpuwatch_pod_work",
        Kind.GAUGE,
        (*_POD, "state"),
        "1 for what a pod with GPUs does besides them (busy, idle, unknown), 0 for the other states; 64 pods at most.",
        "the pod's control group, processes and network, and signals of the host that cannot be divided",
    ),
    (
        "gpuwatch_pod_quiet_seconds",
        Kind.GAUGE,
        _POD,
        "How long a pod with GPUs has done nothing besides them; 0 while it works, absent while that is unknown.",
        "the pod's control group, processes and network, and signals of the host that cannot be divided",
    ),
)


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
    if sized[top:]:
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
        if held and len(known) == len(held):
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


def pod_rows(pods: Iterable[PodVerdict]) -> Iterator[Sample]:
    """Every sample of every pod."""
    for pod in pods:
        namespace, _, name = (pod.name or "").partition("/")
        key = (namespace or None, name or None, pod.uid)
        for state in _SAYS:
            yield "gpuwatch_pod_work", (*key, state.value), state is pod.activity.state
        if pod.activity.state is not State.UNKNOWN:
            yield (
                "gpuwatch_pod_quiet_seconds",
                key,
                pod.activity.held_seconds if pod.activity.state is State.IDLE else 0,
            )
