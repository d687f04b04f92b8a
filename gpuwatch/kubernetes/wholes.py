"""PURE: which pods belong together and are judged together: the head of a Ray cluster and its workers.

Rules, all of them:

1. Pods belong together if their lowest common owner makes them for the same work: a Job, a StatefulSet, an MPIJob, a
   RayCluster, a kind that gpuwatch does not know. A pod may be such an owner, as Spark's driver is of its executors.
2. Pods of one Deployment, and runs of one CronJob, do not: one goes on without the others (`APART`). So it is with
   the groups of a LeaderWorkerSet.
3. Labels by which operators name the work of a pod, and schedulers its gang (`_LABELS`), bind as well, also where no
   owner can be read, and inside a namespace alone.
4. What is bound to the same pod is bound to each other.
5. `app.kubernetes.io/instance` names what was installed together, which is often more than that. It is kept apart
   (`release`), and binds only where one pod of it has GPUs and another has no GPU.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpuwatch.kubernetes.facts import GANG
from gpuwatch.model.kubernetes import Pod
from gpuwatch.model.workload_kinds import APART

Chain = tuple[tuple[str, str], ...]  # kind and uid of each owner, from the nearest to the topmost
# By which each operator says whose pod it is; a second label, where there is one, tells parts of it from each other.
_LABELS: tuple[tuple[str, str | None], ...] = (
    ("ray.io/cluster", None),
    ("jobset.sigs.k8s.io/jobset-name", None),
    ("leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"),
    ("training.kubeflow.org/job-name", None),
    ("volcano.sh/job-name", None),
    ("batch.kubernetes.io/job-name", None),
    ("job-name", None),  # of Jobs before Kubernetes 1.27, and of Kubeflow's before 1.5
    ("spark-app-selector", None),
    ("sparkoperator.k8s.io/app-name", None),
    ("dask.org/cluster-name", None),
    ("workflows.argoproj.io/workflow", None),
    ("scheduling.x-k8s.io/pod-group", None),
    ("pod-group.scheduling.sigs.k8s.io", None),
    ("kueue.x-k8s.io/pod-group-name", None),
    (GANG, None),
)
_RELEASE = "app.kubernetes.io/instance"


def together(pods: Iterable[tuple[Pod, Chain, Mapping[str, str]]]) -> list[Pod]:
    """The pods with `group` and `release`; each comes with its owners and its labels."""
    told = list(pods)
    known = [each for each in told if not (each[0].daemon or each[0].system)]
    roots = _Roots()
    branches: defaultdict[str, set[str]] = defaultdict(set)
    for pod, chain, _ in known:
        below = pod.uid
        branches[below].add(below)
        for _, uid in chain:
            branches[uid].add(below)
            below = uid
    keys = {pod.uid: _keys(pod, chain, labels, branches) for pod, chain, labels in known}
    for its in keys.values():
        roots.bind(its)
    sizes: defaultdict[str, int] = defaultdict(int)
    for its in keys.values():
        if its:
            sizes[roots.root(its[0])] += 1
    releases = _releases(known)
    found = []
    for pod, _, labels in told:
        its = keys.get(pod.uid, ())
        group = roots.root(its[0]) if its and sizes[roots.root(its[0])] > 1 else None
        release = _release(pod, labels)
        release = release if release in releases and pod.uid in keys else None
        found.append(pod if group is None and release is None else replace(pod, group=group, release=release))
    return found


class _Roots:
    """Keys that are bound to each other; the first by name stands for all of them."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def root(self, key: str) -> str:
        """What stands for a key and all that is bound to it."""
        found = key
        while (above := self._above.get(found, found)) != found:
            found = above
        while (above := self._above.get(key, key)) != key:
            self._above[key], key = found, above
        return found

    def bind(self, keys: Iterable[str]) -> None:
        """Bind these to each other."""
        first, *others = sorted({self.root(key) for key in keys}) or [""]
        for each in others:
            self._above[each] = first


def _keys(pod: Pod, chain: Chain, labels: Mapping[str, str], branches: Mapping[str, set[str]]) -> tuple[str, ...]:
    """By what a pod is bound: the topmost owner that binds (rule 1 and 2), and its labels (rule 3)."""
    found = []
    steps = (("Pod", pod.uid), *chain)
    kinds = [kind for kind, _ in steps] + [""]
    for place, (kind, uid) in enumerate(steps):
        apart = kind in APART or (kind == "StatefulSet" and kinds[place + 1] == "LeaderWorkerSet")
        if not apart and len(branches[uid]) > 1:
            found = [f"{pod.namespace}/{uid}"]
    for key, part in _LABELS:
        if value := labels.get(key):
            found.append(f"{pod.namespace}/{key}={value}/{labels.get(part, '') if part else ''}")
    return tuple(found)


def _release(pod: Pod, labels: Mapping[str, str]) -> str | None:
    """What a pod was installed with (rule 5)."""
    value = labels.get(_RELEASE)
    return f"{pod.namespace}/{_RELEASE}={value}" if value else None


def _releases(pods: Iterable[tuple[Pod, Chain, Mapping[str, str]]]) -> frozenset[str | None]:
    """The releases that have pods with GPUs, and pods without."""
    with_gpus: dict[str, set[bool]] = {}
    for pod, _, labels in pods:
        if (release := _release(pod, labels)) is not None:
            with_gpus.setdefault(release, set()).add(pod.gpus > 0)
    return frozenset(each for each, found in with_gpus.items() if len(found) > 1)
