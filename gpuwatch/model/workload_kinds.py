"""PURE: the kinds of workloads that gpuwatch knows by name: what it reads of each, and what may end its pods.

Every other kind is seen as well, where the role may read it. The table in docs/kubernetes.md is made of this one, and
the chart's role is held to it. Groups and resources are those of each project's own definitions.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKind:
    """One kind. `actions` are the values of IDLE_ACTION that end its pods; `by` is the project that it comes from.

    `apart`: its pods, or its runs, do without each other. `again` is whether a pod that is evicted is made again: not
    known counts as no. `parts` are kinds of its parts that their people may have ended by themselves, for it lets them
    be; any other part it would make again.
    """

    kind: str
    group: str
    resource: str
    by: str
    actions: tuple[str, ...] = ()
    apart: bool = False
    again: bool = True
    parts: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """As kubectl writes it where the name alone would be another group's: `Job.batch.volcano.sh`."""
        return self.kind if self.kind not in _OF_KUBERNETES or self.by == "Kubernetes" else f"{self.kind}.{self.group}"


_OF_KUBERNETES = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "Job"})
_SCALED = ("scale-to-zero",)
KINDS: tuple[WorkloadKind, ...] = (
    WorkloadKind(kind="Deployment", group="apps", resource="deployments", by="Kubernetes", actions=_SCALED, apart=True),
    WorkloadKind(kind="StatefulSet", group="apps", resource="statefulsets", by="Kubernetes", actions=_SCALED),
    WorkloadKind(kind="ReplicaSet", group="apps", resource="replicasets", by="Kubernetes", actions=_SCALED, apart=True),
    WorkloadKind(
        kind="ReplicationController", group="", resource="replicationcontrollers", by="Kubernetes", apart=True
    ),
    WorkloadKind(kind="Job", group="batch", resource="jobs", by="Kubernetes", actions=("stop", "delete")),
    WorkloadKind(kind="CronJob", group="batch", resource="cronjobs", by="Kubernetes", apart=True, parts=("Job",)),
    WorkloadKind(kind="Notebook", group="kubeflow.org", resource="notebooks", by="Kubeflow", actions=("stop",)),
    *(
        WorkloadKind(kind=kind, group="kubeflow.org", resource=resource, by="Kubeflow's training operator", again=False)
        for kind, resource in (
            *(("PyTorchJob", "pytorchjobs"), ("TFJob", "tfjobs"), ("XGBoostJob", "xgboostjobs")),
            *(("JAXJob", "jaxjobs"), ("PaddleJob", "paddlejobs"), ("MPIJob", "mpijobs")),
        )
    ),
    WorkloadKind(kind="TrainJob", group="trainer.kubeflow.org", resource="trainjobs", by="Kubeflow's trainer"),
    WorkloadKind(kind="RayCluster", group="ray.io", resource="rayclusters", by="KubeRay"),
    WorkloadKind(kind="RayJob", group="ray.io", resource="rayjobs", by="KubeRay"),
    WorkloadKind(kind="RayService", group="ray.io", resource="rayservices", by="KubeRay"),
    WorkloadKind(kind="JobSet", group="jobset.x-k8s.io", resource="jobsets", by="JobSet"),
    WorkloadKind(
        kind="LeaderWorkerSet",
        group="leaderworkerset.x-k8s.io",
        resource="leaderworkersets",
        by="LeaderWorkerSet",
        apart=True,
    ),
    WorkloadKind(kind="Job", group="batch.volcano.sh", resource="jobs", by="Volcano", again=False),
    WorkloadKind(kind="Workflow", group="argoproj.io", resource="workflows", by="Argo Workflows", again=False),
    WorkloadKind(kind="CronWorkflow", group="argoproj.io", resource="cronworkflows", by="Argo Workflows", apart=True),
    WorkloadKind(kind="Rollout", group="argoproj.io", resource="rollouts", by="Argo Rollouts", apart=True),
    WorkloadKind(kind="InferenceService", group="serving.kserve.io", resource="inferenceservices", by="KServe"),
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
# Owners whose pods, or whose runs, do without each other.
APART = frozenset({each.label for each in KINDS if each.apart}) | {"DaemonSet", "Node"}
# Owners that make no other pod for one that is evicted, or of which nobody knows it.
ONCE = frozenset({each.label for each in KINDS if not each.again})
# By whom a workload waits whose suspension is not its people's alone.
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
DEACTIVATE = "deactivate"  # how a Job of Kueue's is stopped: by its Workload, for Kueue owns its suspension
