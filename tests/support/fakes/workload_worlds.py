"""The clusters that `tests/contracts/test_cluster_workloads.py` runs on, each with the people around it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.kubernetes import Workloads
from gpuwatch.model.kubernetes import PROTECT, Pod, PodPhase, Target, Workload, WorkloadNow
from gpuwatch.runtime.clock import Clock, ManualClock
from tests.support.builders.fleet import NOW
from tests.support.fakes.workloads import FakeWorkloads
from tests.support.real.workload_world import real_workloads


class WorkloadWorld(Protocol):
    """What happens around a cluster's workloads without gpuwatch, all in one namespace."""

    @property
    def workloads(self) -> Workloads:
        """What is tested."""
        ...

    @property
    def clock(self) -> Clock:
        """Its time, and that of permits."""
        ...

    def make(self, kind: str, *, pods: int = 1, local_data: bool = False, replicas: int = 1) -> Target:
        """A workload with so many running pods."""

    def remake(self, target: Target) -> None:
        """It is deleted, and another one has its name."""

    def scale(self, target: Target, replicas: int) -> None:
        """`kubectl scale`."""

    def protect(self, target: Target) -> None:
        """Its people write `gpuwatch.io/protect`."""

    def volumes_go(self, target: Target) -> None:
        """Its volumes are deleted when it is scaled down."""

    def give_up(self, target: Target) -> None:
        """Its people write `gpuwatch.io/delete-local-data`."""

    def budget(self, pod: str) -> None:
        """A PodDisruptionBudget keeps that pod."""

    def events(self, target: Target) -> list[str]:
        """The notes of gpuwatch's Events on it."""

    def before(self, target: Target) -> str | None:
        """What the object says of how many pods it wanted before its end."""

    def hush(self) -> None:
        """The API server does not answer any more."""


@dataclass(slots=True)
class FakeWorkloadWorld:
    """The simulated one."""

    workloads: FakeWorkloads
    clock: ManualClock

    def make(self, kind: str, *, pods: int = 1, local_data: bool = False, replicas: int = 1) -> Target:
        """With pods of its own."""
        target = Target(namespace="team-a", kind=kind, name="work", uid=f"uid-{kind}")
        owner = Workload(namespace="team-a", kind=kind, name="work", uid=target.uid)
        its = tuple(
            Pod(
                namespace="team-a",
                name=f"work-{number}",
                uid=f"uid-work-{number}",
                phase=PodPhase.RUNNING,
                workload=owner,
                local_data="scratch" if local_data else None,
            )
            for number in range(pods)
        )
        wants = None if kind == "Pod" else replicas
        self.workloads.put(WorkloadNow(target=target, wants=wants, pods=its))
        return target

    def remake(self, target: Target) -> None:
        """Another uid."""
        now = self.workloads.shown.pop(target.uid)
        self.workloads.put(replace(now, target=replace(target, uid=f"{target.uid}+"), pods=()))

    def scale(self, target: Target, replicas: int) -> None:
        """Its own word; the pods stay until somebody takes them away."""
        self.workloads.put(replace(self.workloads.shown[target.uid], wants=replicas))

    def protect(self, target: Target) -> None:
        """As the client words it."""
        self.workloads.kept[target.uid] = f"the annotation {PROTECT} of {target} protects it"

    def volumes_go(self, target: Target) -> None:
        """By its uid."""
        self.workloads.volumes.add(target.uid)

    def give_up(self, target: Target) -> None:
        """On each of its pods."""
        now = self.workloads.shown[target.uid]
        self.workloads.put(replace(now, pods=tuple(replace(pod, loses_local_data=True) for pod in now.pods)))

    def budget(self, pod: str) -> None:
        """By its name."""
        self.workloads.budgets.add(pod)

    def events(self, target: Target) -> list[str]:
        """In their order."""
        return [note for about, _, note in self.workloads.events if about == str(target)]

    def before(self, target: Target) -> str | None:
        """By its uid."""
        return self.workloads.before.get(target.uid)

    def hush(self) -> None:
        """Every call fails."""
        self.workloads.fault = lambda _call, _workload: CloudUnavailableError("no answer")


@contextmanager
def _fake() -> Iterator[WorkloadWorld]:
    clock = ManualClock(wall=NOW)
    yield FakeWorkloadWorld(workloads=FakeWorkloads(clock=clock), clock=clock)


WORKLOAD_WORLDS: Mapping[str, Callable[[], AbstractContextManager[WorkloadWorld]]] = {
    "simulated": _fake,
    "api-server": real_workloads,
}
