"""What of a workload's object says how many pods it is to have, and whether it may be ended."""

from msgspec import Struct, field

from gpuwatch.clouds.errors import ProtectedError
from gpuwatch.kubernetes.objects import ObjectMeta
from gpuwatch.model.bounds import BoundedInt, BoundedText
from gpuwatch.model.kubernetes import RELEASED_GENERATION, Target
from gpuwatch.model.workload_kinds import BY_LABEL, KUBEFLOW_STOPPED, WorkloadKind

POD = WorkloadKind(kind="Pod", group="", resource="pods", by="Kubernetes", versions=("v1",), evicted=True)


class _Retention(Struct, rename="camel"):
    """What becomes of a StatefulSet's volumes: Retain, or Delete with the pod."""

    when_scaled: str = "Retain"


class _RunPolicy(Struct):
    """What of a training job says whether it runs."""

    suspend: bool | None = None


class _Spec(Struct, rename="camel"):
    """What of a workload says how many pods it wants, and what goes with them."""

    replicas: BoundedInt | None = None
    suspend: bool | None = None
    run_policy: _RunPolicy | None = None
    shutdown_after_job_finishes: bool | None = None
    cluster_selector: dict[str, str] | None = None
    parallelism: BoundedInt | None = None
    retention: _Retention | None = field(name="persistentVolumeClaimRetentionPolicy", default=None)


class WorkloadObject(Struct, rename="camel"):
    """A workload of any kind."""

    api_version: BoundedText
    metadata: ObjectMeta
    spec: _Spec | None = None


def wanted_pods(kind: str, read: WorkloadObject) -> int | None:
    """How many pods it is to have."""
    spec, its = read.spec or _Spec(), BY_LABEL.get(kind, POD)
    if its.scaled:
        return 1 if spec.replicas is None else spec.replicas
    if its.stopped_by:
        value = (read.metadata.annotations or {}).get(its.stopped_by)
        return 0 if value is not None and (value == "true" or its.stopped_by == KUBEFLOW_STOPPED) else 1
    if its.suspend:
        suspended = spec.suspend or (spec.run_policy is not None and spec.run_policy.suspend)
        return 0 if suspended else 1 if kind != "Job" or spec.parallelism is None else spec.parallelism
    return None


def check_suspendable(target: Target, read: WorkloadObject) -> None:
    """KubeRay gives up a RayJob that it cannot suspend.

    Raises:
        ProtectedError: it is protected.

    """
    spec = read.spec or _Spec()
    if target.kind == "RayJob" and (not spec.shutdown_after_job_finishes or spec.cluster_selector):
        why = "KubeRay suspends only a RayJob with shutdownAfterJobFinishes and a cluster of its own"
        raise ProtectedError(f"{target} is kept: {why}", code="Kept")


def only_marked(read: WorkloadObject) -> bool:
    """Whether the marks of a scale are on it, and it was not scaled: a change of the specification counts one up."""
    return (read.metadata.annotations or {}).get(RELEASED_GENERATION) == str(read.metadata.generation)
