"""The samples of pods with GPUs: what they do besides them."""

from collections.abc import Iterable, Iterator

from gpuwatch.model.activity import State
from gpuwatch.model.fleet import PodVerdict
from gpuwatch.model.gpu import Kind
from gpuwatch.runtime.metrics.exposition import Sample

_POD = ("namespace", "pod", "pod_uid")
_SAYS = (State.BUSY, State.UNKNOWN, State.IDLE)

# As agent.catalogue lists them.
FAMILIES: tuple[tuple[str, str, tuple[str, ...], str, str], ...] = (
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


def rows(pods: Iterable[PodVerdict]) -> Iterator[Sample]:
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
