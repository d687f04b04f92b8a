"""PURE: the kinds of workloads that gpuwatch knows by name: what it reads of each, and what may end its pods.

Every other kind is seen as well, where the role may read it. The table in docs/kubernetes.md is made of this one, and
the chart's role is held to it. Groups and resources are those of each project's own definitions.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKind:
    """One kind. `by` is the project that it comes from, `version` is asked for where it may be ended.

    Its pods end if its scale is set to zero (`scaled`), if a field of its specification is set (`suspend`, with dots
    between), or if an annotation is written (`stopped_by`). `evicted`: people may also have its pods restarted.
    `apart`: its pods, or its runs, do without each other. `again` is whether a pod that is evicted is made again: not
    known counts as no. `parts` are kinds of its parts that their people may have ended by themselves, for it lets them
    be; any other part it would make again.
    """

    kind: str
    group: str
    resource: str
    by: str
    version: str = ""
    scaled: bool = False
    suspend: str = ""
    stopped_by: str = ""
    evicted: bool = False
    apart: bool = False
    again: bool = True
    parts: tuple[str, ...] = ()

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
            version="v1",
            scaled=True,
            apart=kind != "StatefulSet",
        )
        for kind, resource in (
            *(("Deployment", "deployments"), ("StatefulSet", "statefulsets"), ("ReplicaSet", "replicasets")),
        )
    ),
    WorkloadKind(
        kind="ReplicationController", group="", resource="replicationcontrollers", by="Kubernetes", apart=True
    ),
    WorkloadKind(
        kind="Job", group="batch", resource="jobs", by="Kubernetes", version="v1", suspend="suspend", evicted=True
    ),
    WorkloadKind(kind="CronJob", group="batch", resource="cronjobs", by="Kubernetes", apart=True, parts=("Job",)),
    WorkloadKind(
        kind="Notebook",
        group="kubeflow.org",
        resource="notebooks",
        by="Kubeflow",
        version="v1",
        stopped_by=KUBEFLOW_STOPPED,
    ),
    *(
        WorkloadKind(
            kind=kind,
            group="kubeflow.org",
            resource=resource,
            by="Kubeflow's training operator",
            version="v1",
            suspend="runPolicy.suspend",
            again=False,
        )
        for kind, resource in (
            *(("PyTorchJob", "pytorchjobs"), ("TFJob", "tfjobs"), ("XGBoostJob", "xgboostjobs")),
            *(("JAXJob", "jaxjobs"), ("PaddleJob", "paddlejobs")),
        )
    ),
    # Two operators make MPIJobs, in versions of their own.
    WorkloadKind(
        kind="MPIJob", group="kubeflow.org", resource="mpijobs", by="Kubeflow's training operator", again=False
    ),
    WorkloadKind(
        kind="TrainJob",
        group="trainer.kubeflow.org",
        resource="trainjobs",
        by="Kubeflow's trainer",
        version="v1alpha1",
        suspend="suspend",
    ),
    *(
        WorkloadKind(kind=kind, group="ray.io", resource=resource, by="KubeRay", version="v1", suspend="suspend")
        for kind, resource in (("RayCluster", "rayclusters"), ("RayJob", "rayjobs"))
    ),
    WorkloadKind(kind="RayService", group="ray.io", resource="rayservices", by="KubeRay"),
    WorkloadKind(
        kind="JobSet",
        group="jobset.x-k8s.io",
        resource="jobsets",
        by="JobSet",
        version="v1alpha2",
        suspend="suspend",
    ),
    WorkloadKind(
        kind="LeaderWorkerSet",
        group="leaderworkerset.x-k8s.io",
        resource="leaderworkersets",
        by="LeaderWorkerSet",
        version="v1",
        scaled=True,
        apart=True,
    ),
    WorkloadKind(kind="Job", group="batch.volcano.sh", resource="jobs", by="Volcano", again=False),
    WorkloadKind(kind="Workflow", group="argoproj.io", resource="workflows", by="Argo Workflows", again=False),
    WorkloadKind(kind="CronWorkflow", group="argoproj.io", resource="cronworkflows", by="Argo Workflows", apart=True),
    WorkloadKind(
        kind="Rollout",
        group="argoproj.io",
        resource="rollouts",
        by="Argo Rollouts",
        version="v1alpha1",
        scaled=True,
        apart=True,
    ),
    WorkloadKind(
        kind="InferenceService",
        group="serving.kserve.io",
        resource="inferenceservices",
        by="KServe",
        version="v1beta1",
        stopped_by="serving.kserve.io/stop",
    ),
    WorkloadKind(kind="Service", group="serving.knative.dev", resource="services", by="Knative"),
    WorkloadKind(kind="Configuration", group="serving.knative.dev", resource="configurations", by="Knative"),
    WorkloadKind(kind="Revision", group="serving.knative.dev", resource="revisions", by="Knative"),
    WorkloadKind(
        kind="SparkApplication", group="sparkoperator.k8s.io", resource="sparkapplications", by="Spark", again=False
    ),
    WorkloadKind(
        kind="ScheduledSparkApplication",
        group="sparkoperator.k8s.io",
        resource="scheduledsparkapplications",
        by="Spark",
        apart=True,
    ),
    WorkloadKind(kind="TaskRun", group="tekton.dev", resource="taskruns", by="Tekton", again=False),
    WorkloadKind(kind="PipelineRun", group="tekton.dev", resource="pipelineruns", by="Tekton"),
    WorkloadKind(kind="ScaledJob", group="keda.sh", resource="scaledjobs", by="KEDA", apart=True, parts=("Job",)),
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
