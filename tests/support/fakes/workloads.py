"""The simulated workloads of a cluster: they answer and fail as an API server does, at every call that a test names.

Its truth is plain fields, without Kubernetes' controllers: a test takes pods away itself, as in the real one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from gpuwatch.clouds import CloudError, NotFoundError, ProtectedError
from gpuwatch.clouds.permit import Permit
from gpuwatch.model.kubernetes import Drain, Pod, Target, WorkloadNow
from gpuwatch.runtime.clock import ManualClock

_BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
# What each end is for which kinds.
_CAN = {
    "scale-to-zero": {"Deployment", "StatefulSet", "ReplicaSet"},
    "stop": {"Notebook", "Job"},
    "delete": {"Job", "Pod"},
}
_KNOWN = frozenset().union(*_CAN.values())


@dataclass(slots=True)
class FakeWorkloads:
    """`fault(call, workload)` may raise before a call has its effect, `lose(call, workload)` after it.

    `kept` are the annotations of workloads that protect them, by uid, `volumes` the uids of StatefulSets whose volumes
    go with their pods, `budgets` the names of pods that a PodDisruptionBudget keeps, `before` what each wanted before
    its end, `events` (workload, key, note), `calls` all changes. Of a simulated cluster: `pods_of` gives a uid's pods,
    `ends` is told which pods end.
    """

    clock: ManualClock
    pods_of: Callable[[str], tuple[Pod, ...]] | None = None
    ends: Callable[[Pod], None] = lambda _pod: None
    shown: dict[str, WorkloadNow] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    before: dict[str, str] = field(default_factory=dict)
    volumes: set[str] = field(default_factory=set)
    budgets: set[str] = field(default_factory=set)
    events: list[tuple[str, str, str]] = field(default_factory=list)
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    fault: Callable[[str, str], CloudError | None] = lambda _call, _workload: None
    lose: Callable[[str, str], CloudError | None] = lambda _call, _workload: None
    watch: Callable[[str, WorkloadNow], None] = lambda _call, _workload: None

    def put(self, workload: WorkloadNow) -> None:
        """It is there, or changes."""
        self.shown[workload.target.uid] = workload

    def workload(self, target: Target) -> WorkloadNow | None:
        """The object of that uid, now."""
        self._ask("workload", target)
        return self._found(target)

    def announce(self, target: Target, key: str, stop_at: datetime | None, note: str, *, permit: Permit) -> None:
        """Once for each key."""
        self._ask("announce", target)
        now = self._there(target)
        if stop_at is not None:
            self._keeps_volumes(now)
        permit.check()
        if now.stop_at != stop_at:
            self._did("announce", now, key)
            self.put(replace(now, stop_at=stop_at))
        if (str(target), key) not in {(about, of) for about, of, _ in self.events}:
            self.events.append((str(target), key, note))
        self._answer("announce", target)

    def release(self, target: Target, how: str, pods: tuple[str, ...], key: str, *, permit: Permit) -> Drain:
        """By the kind's own means; of a delete a budget's refusal is an answer."""
        self._ask("release", target)
        now = self._there(target)
        if target.uid in self.kept:
            raise ProtectedError(f"{target} is kept: {self.kept[target.uid]}", code="Kept")
        if target.kind not in _CAN.get(how, ()):
            raise CloudError(f"a {target.kind} cannot be asked to {how}", code="Unsupported")
        if how == "delete":
            permit.check()
            return self._delete(now, frozenset(pods), key)
        if now.released_by == key or now.wants == 0:
            return Drain()
        self._keeps_volumes(now)
        permit.check()
        self._did("release", now, key)
        self.before[target.uid] = str(now.wants)
        self.put(replace(now, wants=0, released_by=key, stop_at=None))
        for pod in now.pods:
            self.ends(pod)
        self._answer("release", target)
        return Drain()

    def _keeps_volumes(self, now: WorkloadNow) -> None:
        """As the real one refuses it."""
        if now.target.uid in self.volumes and not all(pod.loses_local_data for pod in now.pods):
            raise ProtectedError(f"{now.target} is kept: its volumes would be deleted", code="Kept")

    def _delete(self, now: WorkloadNow, uids: frozenset[str], key: str) -> Drain:
        """Those of these uids that are there."""
        self._did("release", now, key)
        evicted: list[Pod] = []
        refused = {}
        for pod in (pod for pod in now.pods if pod.uid in uids):
            if pod.local_data is not None and not pod.loses_local_data:
                refused[str(pod)] = f"its volume {pod.local_data} would be lost"
            elif pod.name in self.budgets:
                refused[str(pod)] = _BUDGET
            else:
                evicted.append(pod)
                self.ends(pod)
        left = tuple(pod for pod in now.pods if pod not in evicted)
        self.put(replace(now, pods=left))
        self._answer("release", now.target)
        return Drain(evicted=tuple(map(str, evicted)), refused=refused, left=len(now.pods))

    def _there(self, target: Target) -> WorkloadNow:
        if target.kind not in _KNOWN:
            raise CloudError(f"gpuwatch ends no pods of the kind {target.kind}", code="Unsupported")
        found = self._found(target)
        if found is None:
            raise NotFoundError(f"{target} not found", code="NotFound")
        return found

    def _found(self, target: Target) -> WorkloadNow | None:
        """The object of that uid; of a simulated cluster with the pods that are there."""
        pods = () if self.pods_of is None else self.pods_of(target.uid)
        found = self.shown.get(target.uid)
        if found is None and pods:
            wants = None if target.kind == "Pod" else len(pods)
            found = WorkloadNow(target=target, wants=wants)
        if found is None or found.target != target:
            return None
        return found if self.pods_of is None else replace(found, pods=pods)

    def _did(self, call: str, now: WorkloadNow, key: str) -> None:
        self.watch(call, now)
        self.calls.append((call, str(now.target), key))

    def _ask(self, call: str, target: Target) -> None:
        error = self.fault(call, str(target))
        if error is not None:
            raise error

    def _answer(self, call: str, target: Target) -> None:
        error = self.lose(call, str(target))
        if error is not None:
            raise error
