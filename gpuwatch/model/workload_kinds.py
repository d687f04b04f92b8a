"""PURE: the kinds of workloads that gpuwatch knows by name: what it reads of each, and what may end its pods.

Every other kind is seen as well, where the role may read it. The table in docs/kubernetes-workloads.md is made of this
one, and a test compares the chart's role. Groups and resources are those of each project's own definitions.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKind:
    """One kind. `by` is the project that it comes from. Of `versions` the first that has it is asked where it is ended.

    Its pods end if its scale is set to zero (`scaled`), if a field of its specification is set (`suspend`, with dots
    between), or if an annotation is written (`stopped_by`). `evicted`: people may also have its pods restarted.
    `apart`: its pods, or its runs, do without each other. `again` is whether a pod that is evicted is made again: not
    known counts as no. `parts` are kinds of its parts that their people may have ended by themselves, for it lets them
    be; any other part it would make again. `left` is why it is ended by no call, as a clause.
    """

    kind: str
    group: str
    resource: str
    by: str
    versions: tuple[str, ...] = ()
    scaled: bool = False
    suspend: str = ""
    stopped_by: str = ""
    evicted: bool = False
    apart: bool = False
    again: bool = True
    parts: tuple[str, ...] = ()
    left: str = ""

    @property
    def actions(self) -> tuple[str, ...]:
        """The values of IDLE_ACTION that end its pods."""
        stops = bool(self.suspend or self.stopped_by)
        found = {"scale-to-zero": self.scaled, "stop": stops, "delete": self.evicted}
        return tuple(action for action, is_its in found.items() if is_its)

    @property
    def label(self) -> str:
        """As kubectl writes it where the name alone would be another group's: `Job.batch.volcano.sh`."""
        return self.kind if self.kind not in _OF_KUBERNETES or self.by == "Kubernetes" else f"{self.kind}.{self.group}"


_OF_KUBERNETES = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "Job"})
KUBEFLOW_STOPPED = "kubeflow-resource-stopped"
KINDS: tuple[WorkloadKind, ...] = (
    *(
        WorkloadKind(
            kind=kind,
            group="apps",
            resource=resource,
            by="Kubernetes",
            versions=("v1",),
            scaled=True,
            apart=kind != "StatefulSet",
        )
        for kind, resource in (
            *(("Deployment", "deployments"), ("StatefulSet", "statefulsets"), ("ReplicaSet", "replicasets")),
        )
    ),
    WorkloadKind(
        kind="ReplicationController",
        group="",
        resource="replicationcontrollers",
        by="Kubernetes",
        apart=True,
        left="Deployments have replaced it",
    ),
    WorkloadKind(
        kind="Job", group="batch", resource="jobs", by="Kubernetes", versions=("v1",), suspend="suspend", evicted=True
    ),
    WorkloadKind(
        kind="CronJob",
        group="batch",
        resource="cronjobs",
        by="Kubernetes",
        apart=True,
        parts=("Job",),
        left="its suspend stops later runs alone",
    ),
    WorkloadKind(
        kind="Notebook",
        group="kubeflow.org",
        resource="notebooks",
        by="Kubeflow",
        versions=("v1",),
        stopped_by=KUBEFLOW_STOPPED,
    ),
    *(
        WorkloadKind(
            kind=kind,
            group="kubeflow.org",
            resource=resource,
            by="Kubeflow's training operator",
            versions=("v1",),
            suspend="runPolicy.suspend",
            again=False,
        )
        for kind, resource in (
            *(("PyTorchJob", "pytorchjobs"), ("TFJob", "tfjobs"), ("XGBoostJob", "xgboostjobs")),
            *(("JAXJob", "jaxjobs"), ("PaddleJob", "paddlejobs")),
        )
    ),
    # Two operators make MPIJobs, each in a version of its own, and a cluster has one of them.
    WorkloadKind(
        kind="MPIJob",
        group="kubeflow.org",
        resource="mpijobs",
        by="Kubeflow's MPI operator or training operator",
        versions=("v2beta1", "v1"),
        suspend="runPolicy.suspend",
        again=False,
    ),
    WorkloadKind(
        kind="TrainJob",
        group="trainer.kubeflow.org",
        resource="trainjobs",
        by="Kubeflow's trainer",
        versions=("v1alpha1",),
        suspend="suspend",
    ),
    *(
        WorkloadKind(kind=kind, group="ray.io", resource=resource, by="KubeRay", versions=("v1",), suspend="suspend")
        for kind, resource in (("RayCluster", "rayclusters"), ("RayJob", "rayjobs"))
    ),
    WorkloadKind(
        kind="RayCronJob",
        group="ray.io",
        resource="raycronjobs",
        by="KubeRay",
        apart=True,
        parts=("RayJob",),
        left="its suspend stops later runs alone",
    ),
    WorkloadKind(
        kind="RayService",
        group="ray.io",
        resource="rayservices",
        by="KubeRay",
        left="it has no field that suspends it, and makes its RayCluster again",
    ),
    WorkloadKind(
        kind="JobSet",
        group="jobset.x-k8s.io",
        resource="jobsets",
        by="JobSet",
        versions=("v1alpha2",),
        suspend="suspend",
    ),
    WorkloadKind(
        kind="LeaderWorkerSet",
        group="leaderworkerset.x-k8s.io",
        resource="leaderworkersets",
        by="LeaderWorkerSet",
        versions=("v1",),
        scaled=True,
        apart=True,
    ),
    WorkloadKind(
        kind="Job",
        group="batch.volcano.sh",
        resource="jobs",
        by="Volcano",
        again=False,
        left="Volcano aborts it by a Command, a new object, and gpuwatch makes none",
    ),
    WorkloadKind(
        kind="Workflow",
        group="argoproj.io",
        resource="workflows",
        by="Argo Workflows",
        again=False,
        left="its suspend does not stop steps that run, and its shutdown is final",
    ),
    WorkloadKind(
        kind="CronWorkflow",
        group="argoproj.io",
        resource="cronworkflows",
        by="Argo Workflows",
        apart=True,
        left="its suspend stops later runs alone",
    ),
    WorkloadKind(
        kind="Rollout",
        group="argoproj.io",
        resource="rollouts",
        by="Argo Rollouts",
        versions=("v1alpha1",),
        scaled=True,
        apart=True,
    ),
    WorkloadKind(
        kind="InferenceService",
        group="serving.kserve.io",
        resource="inferenceservices",
        by="KServe",
        versions=("v1beta1",),
        stopped_by="serving.kserve.io/stop",
    ),
    *(
        WorkloadKind(
            kind=kind,
            group="serving.knative.dev",
            resource=f"{kind.lower()}s",
            by="Knative",
            left="Knative itself scales it to zero where its people let it",
        )
        for kind in ("Service", "Configuration", "Revision")
    ),
    WorkloadKind(
        kind="SparkApplication",
        group="sparkoperator.k8s.io",
        resource="sparkapplications",
        by="Spark",
        versions=("v1beta2",),
        suspend="suspend",
        again=False,
    ),
    WorkloadKind(
        kind="ScheduledSparkApplication",
        group="sparkoperator.k8s.io",
        resource="scheduledsparkapplications",
        by="Spark",
        apart=True,
        parts=("SparkApplication",),
        left="its suspend stops later runs alone",
    ),
    *(
        WorkloadKind(
            kind=kind,
            group="tekton.dev",
            resource=f"{kind.lower()}s",
            by="Tekton",
            again=kind == "PipelineRun",
            left="a run that is cancelled cannot go on",
        )
        for kind in ("TaskRun", "PipelineRun")
    ),
    WorkloadKind(
        kind="ScaledJob",
        group="keda.sh",
        resource="scaledjobs",
        by="KEDA",
        apart=True,
        parts=("Job",),
        left="its pause stops later runs alone",
    ),
)
BY_LABEL: Mapping[str, WorkloadKind] = {each.label: each for each in KINDS}
# What each kind, and a pod alone, can be asked. `delete` of a Job's pods restarts them, for a Job makes them again.
ACTIONS: Mapping[str, frozenset[str]] = {
    **{each.label: frozenset(each.actions) for each in KINDS if each.actions},
    "Pod": frozenset({"delete"}),
}
# Kinds whose pods end while a field says so, and come back once it does not.
SUSPENDED = frozenset({each.label for each in KINDS if each.suspend})
# Owners whose pods, or whose runs, do without each other.
APART = frozenset({each.label for each in KINDS if each.apart}) | {"DaemonSet", "Node"}
# Owners that make no other pod for one that is evicted, or of which nobody knows it.
ONCE = frozenset({each.label for each in KINDS if not each.again})
# By whom a workload waits whose suspension is not its people's alone.
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
DEACTIVATE = "deactivate"  # how a job of Kueue's is stopped: by its Workload, for Kueue owns its suspension


def suspension(kind: WorkloadKind, *, suspended: bool) -> dict[str, object]:
    """What of a specification suspends an object of a kind, or resumes it."""
    *above, last = kind.suspend.split(".")
    found: dict[str, object] = {last: suspended}
    for part in reversed(above):
        found = {part: found}
    return found
