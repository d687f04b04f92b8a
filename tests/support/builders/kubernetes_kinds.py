"""Kinds of other projects, as they define them where their Go modules were fetched, and objects of them.

`tests/support/kubernetes_programs.py definitions` fetches them. Where one is missing, or no Go module has it
(Kubeflow's Notebook), one of ours stands in: the fields that gpuwatch writes, of their types.
"""

import copy
import functools
import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from gpuwatch.model.workload_kinds import WorkloadKind
from tests.support.builders.kubernetes import UNAPPROVED, Object, custom_kind, custom_object
from tests.support.kubernetes_programs import KINDS_OF, defined

_FILLED_IN = re.compile(r"^.*\{\{.*$", re.MULTILINE)  # Longhorn's file is a template of its chart
_NAME = re.compile(r"^  name: (\S+)$", re.MULTILINE)
OTHER_OPERATOR = "training-operator"  # of MPIJobs, which the MPI operator defines as well
_CONTAINERS: Object = {"containers": [{"name": "main", "image": "work"}]}
_TEMPLATE: Object = {"spec": _CONTAINERS}
_JOB: Object = {"template": {"spec": {"template": {"spec": {**_CONTAINERS, "restartPolicy": "Never"}}}}}
_RAY: Object = {"headGroupSpec": {"rayStartParams": {}, "template": _TEMPLATE}}
# KubeRay suspends only a RayJob that ends its cluster.
_RAY_JOB: Object = {"entrypoint": "python train.py", "rayClusterSpec": _RAY, "shutdownAfterJobFinishes": True}
_WORKFLOW: Object = {"entrypoint": "main", "templates": [{"name": "main", "container": {"image": "work"}}]}
_SPARK: Object = {
    "type": "Python",
    "mode": "cluster",
    "sparkVersion": "4.0.0",
    "image": "work",
    "mainApplicationFile": "local:///train.py",
    "driver": {},
    "executor": {},
}


def _replicas(key: str, *roles: str) -> Object:
    return {key: {role: {"replicas": 1, "template": _TEMPLATE} for role in roles}}


# The least that each definition takes; `work` is what runs.
SPECS: Mapping[str, Object] = {
    "PyTorchJob": _replicas("pytorchReplicaSpecs", "Worker"),
    "TFJob": _replicas("tfReplicaSpecs", "Worker"),
    "XGBoostJob": _replicas("xgbReplicaSpecs", "Master"),
    "JAXJob": _replicas("jaxReplicaSpecs", "Worker"),
    "PaddleJob": _replicas("paddleReplicaSpecs", "Worker"),
    "MPIJob": _replicas("mpiReplicaSpecs", "Launcher", "Worker"),
    "Notebook": {"template": _TEMPLATE},
    "TrainJob": {"runtimeRef": {"name": "torch"}, "trainer": {"image": "work"}},
    "RayCluster": _RAY,
    "RayJob": _RAY_JOB,
    "RayCronJob": {"schedule": "0 3 * * *", "jobTemplate": _RAY_JOB},
    "RayService": {"rayClusterConfig": _RAY},
    "JobSet": {"replicatedJobs": [{"name": "workers", **_JOB}]},
    "LeaderWorkerSet": {"leaderWorkerTemplate": {"size": 2, "workerTemplate": _TEMPLATE}},
    "Job.batch.volcano.sh": {"tasks": [{"name": "workers", "replicas": 1, "template": _TEMPLATE}]},
    "Workflow": _WORKFLOW,
    "CronWorkflow": {"schedules": ["0 3 * * *"], "workflowSpec": _WORKFLOW},
    "Rollout": {"selector": {"matchLabels": {"app": "work"}}, "template": _TEMPLATE},
    "InferenceService": {"predictor": _CONTAINERS},
    "Service": {"template": _TEMPLATE},
    "Configuration": {"template": _TEMPLATE},
    "Revision": _CONTAINERS,
    "SparkApplication": _SPARK,
    "ScheduledSparkApplication": {"schedule": "0 3 * * *", "template": _SPARK},
    "TaskRun": {"taskRef": {"name": "work"}},
    "PipelineRun": {"pipelineRef": {"name": "work"}},
    "ScaledJob": {"jobTargetRef": {"template": _TEMPLATE}, "triggers": [{"type": "cron", "metadata": {}}]},
}


def own_kind(minimal: Object, of: str = "") -> Object:
    """As its project defines it, `of` several the one of that project; else the definition that is given."""
    found = _own_kinds(minimal["metadata"]["name"])
    return found.get(of) or next(iter(found.values()), minimal)


def is_ours(definition: Object) -> bool:
    """Whether it is one that stands in."""
    return bool(definition["metadata"].get("annotations", {}).get("api-approved.kubernetes.io") == UNAPPROVED)


@functools.cache
def _own_kinds(name: str) -> Mapping[str, Object]:
    """The definitions of that name, by their projects."""
    texts = _texts().get(name, {})
    return {
        project: _undescribed(yaml.load(_FILLED_IN.sub("", text), yaml.CSafeLoader)) for project, text in texts.items()
    }


@functools.cache
def _texts() -> Mapping[str, Mapping[str, str]]:
    """All definitions as text, by name and project: megabytes, of which a test reads a few."""
    found: dict[str, dict[str, str]] = {}
    for project in sorted(KINDS_OF):
        for file in sorted(defined(project).glob("*.yaml")):
            for text in file.read_text(encoding="utf-8").split("\n---\n"):
                for name in _NAME.findall(text):
                    found.setdefault(name, {})[project] = text
    return found


def _undescribed(part: Any) -> Any:  # noqa: ANN401  JSON
    """Without the prose, half of its bytes: it decides nothing, and an API server works through it at each change."""
    if isinstance(part, list):
        return [_undescribed(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {key: _undescribed(each) for key, each in part.items() if key != "description" or not isinstance(each, str)}


def stored_version(definition: Object) -> str:
    """The version in which the API server keeps its objects."""
    (version,) = (str(each["name"]) for each in definition["spec"]["versions"] if each["storage"])
    return version


def kind_of(kind: WorkloadKind, of: str = "") -> Object:
    """A kind of the table as its project defines it, or else ours."""
    made = own_kind(our_kind(kind), of)
    if len(kind.versions) <= 1:
        return made
    made = copy.deepcopy(made)
    served = made["spec"]["versions"]
    # An API server that has kept objects in one version serves no later definition of that name without it.
    for other in (own_kind(our_kind(kind)), own_kind(our_kind(kind), OTHER_OPERATOR)):
        known = {each["name"] for each in served}
        served += [
            {**each, "served": False, "storage": False}
            for each in other["spec"]["versions"]
            if each["name"] not in known
        ]
    return made


def our_kind(kind: WorkloadKind) -> Object:
    """The fields that gpuwatch writes, and any others; with a status of its own and, if it is scaled, a scale."""
    # An API server that has kept objects in the versions of its project serves no later definition without them.
    kept = map(stored_version, _own_kinds(f"{kind.resource}.{kind.group}").values())
    version, *others = dict.fromkeys([*kind.versions, *kept]) or ["v1"]
    made = custom_kind(kind.group, kind.kind, kind.resource, version)
    (served,) = made["spec"]["versions"]
    schema: Object = {"type": "integer"} if kind.scaled else {"type": "boolean"}
    path = "replicas" if kind.scaled else kind.suspend
    for part in reversed(path.split(".") if path else []):
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {part: schema}}
    if path:
        served["schema"]["openAPIV3Schema"]["properties"] = {"spec": schema}
    served["subresources"] = {"status": {}}
    if kind.scaled:
        paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
        served["subresources"]["scale"] = paths
    made["spec"]["versions"] += [{**served, "name": each, "served": False, "storage": False} for each in others]
    return made


def object_of(
    kind: WorkloadKind,
    namespace: str,
    name: str,
    *,
    annotations: Mapping[str, str] | None = None,
    definition: Object | None = None,
    **spec: object,
) -> Object:
    """An object of such a kind that runs."""
    made = {**SPECS[kind.label], **({"replicas": 2} if kind.scaled else {}), **spec}
    version = stored_version(definition or kind_of(kind))
    return custom_object(kind.group, kind.kind, namespace, name, annotations=annotations, version=version, spec=made)


def with_other_image(made: Object) -> Object:
    """A change of what an object runs."""
    spec: Object = json.loads(json.dumps(made["spec"]).replace('"work"', '"evil"'))
    return {"spec": spec}


def project_kinds(name: str) -> list[Object]:
    """All that a project's own controller wants to be there; empty where they were not fetched."""
    files = sorted(defined(name).glob("*.yaml"))
    return [_undescribed(yaml.load(each.read_text(encoding="utf-8"), yaml.CSafeLoader)) for each in files]


def longhorn_kind() -> Object:
    """Longhorn's replicas."""
    return own_kind(custom_kind("longhorn.io", "Replica", "replicas", "v1beta2"))


def kueue_kind() -> Object:
    """Kueue's Workloads; in ours are no more of the fields of its apis/kueue/*/workload_types.go than gpuwatch uses."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    one_set = {"type": "object", "properties": {"name": _TEXT, "count": {"type": "integer"}, "template": anything}}
    spec = {"active": {"type": "boolean", "default": True}, "queueName": _TEXT, "podSets": _list_of(one_set)}
    told = dict.fromkeys(("type", "status", "reason", "message", "lastTransitionTime"), _TEXT)
    status = {"conditions": _list_of({"type": "object", "properties": told})}
    made = custom_kind("kueue.x-k8s.io", "Workload", "workloads")
    properties = {
        "spec": {"type": "object", "properties": spec},
        "status": {"type": "object", "properties": status},
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    made["spec"]["versions"] = [
        {"name": "v1beta1", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    ]
    return own_kind(made)


_TEXT = {"type": "string"}


def _list_of(items: Object) -> Object:
    return {"type": "array", "items": items}
