"""The kinds of workloads of a cluster with GPUs, a row each: what is seen, what keeps it, and what may end it."""

import functools
from dataclasses import dataclass
from typing import Any

from tests.support.builders.kubernetes import Object
from tests.support.builders.workload_places import (
    Make,
    alone,
    asking,
    besides,
    by,
    claimed,
    claiming,
    gang,
    nominated,
    of_a_queue,
    on_node,
    queued,
    replicated,
    spark,
    unowned_kind,
    volume,
    whole,
    with_budget,
)

EMPTIED, EVICTED, SUSPENDED, SCALED = "emptied", "evicted", "spec.suspend=True", "spec.replicas=0"
UNASKED = "nobody has said that it may go once it is idle"
PODS = "pods_stay"
LOST = "would lose local data"
WEB = functools.partial(by, "Deployment", "ReplicaSet", gpus=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A kind of workload on a node of its own. While the node is busy, nothing is ever done.

    `seen` is the workload by kind and name, where it has GPUs. `idle` is what becomes of the node once its agent says
    that it is idle: EMPTIED, or kept, with these words; `rule` is the rule of the guard that then refuses. `consent` is
    what people write next, as `Kind/name key=value`, and `then` what follows: EMPTIED, EVICTED, what is set on that
    object, or words of why it is kept all the same.
    """

    name: str
    make: Make
    idle: str
    seen: str = ""
    rule: str = ""
    consent: str = ""
    then: str = ""


def ended(kind: str, action: str, then: str, *via: str, **more: Any) -> Row:  # noqa: ANN401  whatever it may have
    """A workload that its people may have ended: it is kept until they say so, and then ends by its own kind's call."""
    return Row(
        name=f"{kind} of people who let it {action}",
        make=by(kind, *via, here=True, **more),
        idle=UNASKED,
        rule=PODS,
        seen=f"{kind}/work",
        consent=f"{kind}/work idle-action={action}",
        then=then,
    )


def kept(kind: str, *via: str, action: str = "stop") -> Row:
    """A workload of a kind that gpuwatch ends by no call."""
    return Row(
        name=f"{kind} that only its people end",
        make=by(kind, *via, here=True),
        idle=UNASKED,
        rule=PODS,
        seen=f"{kind}/work",
        consent=f"{kind}/work idle-action={action}",
        then=f"gpuwatch ends no pods of the kind {kind}",
    )


def run(kind: str, part: str, *via: str) -> Row:
    """One run of what makes many: its people may have it ended by itself."""
    return Row(
        name=f"{part} of a {kind}",
        make=by(kind, part, *via, here=True),
        idle=UNASKED,
        rule=PODS,
        seen=f"{kind}/work",
        consent=f"{part}/work-0 idle-action=stop",
        then=SUSPENDED,
    )


_CLAIM: Object = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
_LOCAL: dict[str, Object] = {
    "emptyDir": {"emptyDir": {}},
    "hostPath": {"hostPath": {"path": "/mnt/nvme"}},
    "an ephemeral volume": {"ephemeral": {"volumeClaimTemplate": _CLAIM}},
}
ROWS: tuple[Row, ...] = (
    # Kubernetes' own.
    Row(name="no pod at all", make=lambda at: at.add_node(), idle=EMPTIED),
    Row(name="Deployment without GPUs", make=WEB(), idle=EMPTIED),
    Row(name="Deployment that fits nowhere else", make=WEB(here=True), idle="fits on no other node", rule=PODS),
    Row(
        name="Deployment that may be moved",
        make=by("Deployment", "ReplicaSet"),
        idle=UNASKED,
        rule=PODS,
        seen="Deployment/work",
        consent="Deployment/work interruptible=true",
        then=EMPTIED,
    ),
    ended("Deployment", "scale-to-zero", SCALED, "ReplicaSet"),
    ended("StatefulSet", "scale-to-zero", SCALED),
    Row(
        name="StatefulSet with a local volume",
        make=lambda at: claiming(at, {"local": {"path": "/mnt/nvme"}}),
        idle=LOST,
        rule=PODS,
        consent="StatefulSet/work delete-local-data=true",
        then="fits on no other node",
    ),
    Row(
        name="StatefulSet with a volume on the network",
        make=lambda at: claiming(at, {"nfs": {"server": "files.example.com", "path": "/data"}}),
        idle=EMPTIED,
    ),
    Row(name="DaemonSet without GPUs", make=by("DaemonSet", gpus=0), idle=EMPTIED),
    Row(
        name="DaemonSet with GPUs",
        make=by("DaemonSet"),
        idle=UNASKED,
        rule=PODS,
        consent="DaemonSet/work idle-action=stop",
        then=UNASKED,
    ),
    ended("Job", "stop", SUSPENDED),
    ended("Job", "delete", EVICTED),
    run("CronJob", "Job"),
    Row(name="bare pod without GPUs", make=alone(), idle="is made again by nothing", rule=PODS),
    Row(
        name="bare pod with GPUs",
        make=alone(gpus=1),
        idle=UNASKED,
        rule=PODS,
        seen="Pod/work-a",
        consent="Pod/work-a interruptible=true",
        then="is made again by nothing",
    ),
    Row(
        name="JupyterHub's pod of a user",
        make=alone("jupyter-ann", gpus=1, labels={"hub.jupyter.org/username": "ann"}),
        idle=UNASKED,
        rule=PODS,
        seen="Pod/jupyter-ann of ann",
        consent="Pod/jupyter-ann idle-action=delete",
        then=EVICTED,
    ),
    Row(
        name="static pod with GPUs",
        make=alone("work-{node}", gpus=1, static=True),
        idle=UNASKED,
        rule=PODS,
        seen="Pod/work-{node}",
        consent="Pod/work-{node} idle-action=delete",
        then="It is a static pod: a file on",
    ),
    Row(name="pod that has failed", make=alone(phase="Failed"), idle=EMPTIED),
    Row(
        name="pod without GPUs beside one with",
        make=besides,
        idle=UNASKED,
        rule=PODS,
        seen="Deployment/work",
        consent="Deployment/work interruptible=true",
        then=EMPTIED,
    ),
    # Data on the machine.
    *(
        Row(
            name=f"pod with {what}",
            make=WEB(**volume(**source)),
            idle=LOST,
            rule=PODS,
            consent="Deployment/work delete-local-data=true",
            then=EMPTIED,
        )
        for what, source in _LOCAL.items()
    ),
    Row(name="pod with emptyDir in memory", make=WEB(**volume(emptyDir={"medium": "Memory"})), idle=EMPTIED),
    Row(name="replica of Longhorn's", make=replicated, idle="a replica of Longhorn's volume", rule=PODS),
    # What people and others say.
    Row(
        name="PodDisruptionBudget that blocks",
        make=with_budget,
        idle="PodDisruptionBudget {team}/work",
        consent="PodDisruptionBudget/work disruptionsAllowed=1",
        then=EMPTIED,
    ),
    *(
        Row(
            name=f"pod with {key}",
            make=WEB(annotations={key: value}),
            idle=f"is protected ({its} {key}",
            rule=PODS,
        )
        for its, key, value in (
            ("its annotation", "karpenter.sh/do-not-disrupt", "true"),
            ("its annotation", "cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
            ("the annotation", "gpuwatch.io/protect", "true"),
        )
    ),
    *(
        Row(
            name=f"node with {key}",
            make=on_node(annotations={key: "true"}),
            idle=f"Its node object keeps it: its annotation {key}",
            rule="kept_node",
        )
        for key in ("karpenter.sh/do-not-disrupt", "cluster-autoscaler.kubernetes.io/scale-down-disabled")
    ),
    Row(
        name="node of Cluster API's",
        make=on_node(annotations={"cluster.x-k8s.io/machine": "gpu-1"}),
        idle="Cluster API removes it",
        rule="node_owner",
    ),
    Row(
        name="node of Karpenter's",
        make=on_node(labels={"karpenter.sh/nodepool": "gpus"}),
        idle="karpenter removes it",
        rule="node_owner",
    ),
    Row(
        name="node that somebody cordoned",
        make=on_node(unschedulable=True),
        idle="Somebody else has cordoned it",
        rule="foreign_cordon",
    ),
    # Frameworks.
    ended("JobSet", "stop", SUSPENDED, "Job"),
    ended("PyTorchJob", "stop", "spec.runPolicy.suspend=True"),
    ended("TFJob", "stop", "spec.runPolicy.suspend=True"),
    ended("MPIJob", "stop", "spec.runPolicy.suspend=True"),
    Row(
        name="leader of a JobSet at work",
        make=whole("JobSet", "work-leader-0", "work-worker-0"),
        idle="goes whole, and its worker",
        rule=PODS,
    ),
    ended("TrainJob", "stop", SUSPENDED, "JobSet", "Job"),
    ended("RayCluster", "stop", SUSPENDED),
    Row(
        name="head of a RayCluster at work",
        make=whole("RayCluster", "work-head", "work-worker-0"),
        idle="goes whole, and its worker",
        rule=PODS,
    ),
    ended("RayJob", "stop", SUSPENDED, "RayCluster"),
    run("RayCronJob", "RayJob", "RayCluster"),
    kept("RayService", "RayCluster"),
    ended("LeaderWorkerSet", "scale-to-zero", SCALED, "StatefulSet"),
    ended("Rollout", "scale-to-zero", SCALED, "ReplicaSet"),
    kept("Workflow"),
    ended("Notebook", "stop", "annotation kubeflow-resource-stopped", "StatefulSet"),
    ended("InferenceService", "stop", "annotation serving.kserve.io/stop", "Deployment", "ReplicaSet"),
    kept("Job.batch.volcano.sh"),
    kept("TaskRun"),
    kept("PipelineRun", "TaskRun"),
    kept("Revision"),
    run("ScaledJob", "Job"),
    ended("SparkApplication", "stop", SUSPENDED),
    run("ScheduledSparkApplication", "SparkApplication"),
    Row(name="driver of Spark at work", make=spark, idle="{team}/spark-driver is made again by nothing", rule=PODS),
    Row(
        name="Job of Kueue's queue",
        make=of_a_queue,
        idle=UNASKED,
        rule=PODS,
        seen="Job/work",
        consent="Job/work idle-action=stop",
        then="It cannot be stopped: ",
    ),
    Row(name="Workload that waits in Kueue's queue", make=queued, idle="pods of Workload {team}/work have waited"),
    Row(name="gang that waits", make=gang, idle="2 pods of JobSet {team}/work have waited"),
    Row(
        name="pod for which the scheduler makes room",
        make=nominated,
        idle="the pod {team}/work-a has waited for",
        rule=PODS,
    ),
    # Devices.
    Row(name="claim of devices", make=claimed, idle=UNASKED, rule=PODS, seen="Deployment/work"),
    *(
        Row(name=what, make=asking(resource, offered, wanted), idle=UNASKED, rule=PODS, seen="Deployment/work")
        for what, resource, offered, wanted in (
            ("shared GPU", "nvidia.com/gpu.shared", "4", "1"),
            ("part of a GPU by MIG", "nvidia.com/mig-1g.10gb", "7", "1"),
            ("part of a GPU by an extended resource", "aliyun.com/gpu-mem", "80", "10"),
            ("GPU of AMD's", "amd.com/gpu", "1", "1"),
        )
    ),
    # What the cluster, or gpuwatch, needs.
    *(
        Row(
            name=f"static pod of {each}",
            make=alone(f"{each}-{{node}}", namespace="kube-system", static=True),
            idle="is part of the control plane",
            rule="vital_node",
        )
        for each in ("etcd", "kube-apiserver")
    ),
    Row(
        name="node with the role control-plane",
        make=on_node(labels={"node-role.kubernetes.io/control-plane": ""}),
        idle="serves the control plane",
        rule="vital_node",
    ),
    Row(
        name="gpuwatch's own controller",
        make=WEB(labels={"app.kubernetes.io/name": "gpuwatch", "app.kubernetes.io/component": "controller"}),
        idle="gpuwatch's own controller runs there",
        rule="vital_node",
    ),
    Row(
        name="slurmd of Slinky",
        make=WEB(labels={"app.kubernetes.io/name": "slurmd"}),
        idle="it is a node of Slurm",
        rule=PODS,
    ),
    Row(name="pod of an unknown operator", make=unowned_kind, idle="is protected (", rule=PODS),
)
