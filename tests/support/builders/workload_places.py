"""Workloads of a cluster with GPUs, each on a node of its own, as operators, scheduler and kubelets leave them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuwatch.model.workload_kinds import BY_LABEL, KINDS
from tests.support.builders.kubernetes import (
    Object,
    budget_object,
    cron_job_object,
    custom_object,
    daemon_set_object,
    deployment_object,
    job_object,
    node_object,
    pod_object,
    queued_object,
    reference,
    replica_object,
    replica_set_object,
    stateful_set_object,
)
from tests.support.builders.kubernetes_kinds import kueue_kind, longhorn_kind, object_of, our_kind
from tests.support.builders.resource_claims import (
    allocated,
    claim_object,
    class_object,
    exactly,
    gpu_devices,
    slice_object,
)
from tests.support.real.kubernetes_api import Api, place

HOST, ROW = "kubernetes.io/hostname", "example.com/row"
_MIRROR = {
    "kubernetes.io/config.mirror": "0a1b",
    "kubernetes.io/config.hash": "0a1b",
    "kubernetes.io/config.source": "file",
}
_PLAIN: Mapping[str, Callable[[str, str], Object]] = {
    "CronJob": cron_job_object,
    "DaemonSet": daemon_set_object,
    "Deployment": deployment_object,
    "Job": job_object,
    "ReplicaSet": replica_set_object,
    "StatefulSet": stateful_set_object,
}
_RESOURCES = {(each.group, each.kind): each.resource for each in KINDS} | {
    ("kueue.x-k8s.io", "Workload"): "workloads",
    ("longhorn.io", "Replica"): "replicas",
}
EXTRA_KINDS = (kueue_kind(), longhorn_kind())
DRA = "gpu.nvidia.com"


@dataclass(slots=True)
class Place:
    """Where a row is made: a namespace, a node with one GPU, and a busy node beside it. `paths` are of its objects."""

    admin: Api
    team: str
    node: str
    beside: str
    machine: str = ""
    paths: list[str] = field(default_factory=list)

    def create(self, made: Object) -> Object:
        """One object; one without a namespace or a uid of its own as a client writes it."""
        made["metadata"].pop("uid", None)
        (created,) = self.admin.create(made)
        self.paths.append(path_of(created))
        if made["kind"] == "Node":  # its lifecycle controller takes the taint of a new node away
            taints = {"spec": {"taints": None}}
            created = self.admin.patch("Node", self.node, taints)
        return created

    def add_node(self, **more: Any) -> None:  # noqa: ANN401  whatever it may have
        """The machine as a node."""
        options = {"gpus": 1, "provider_id": f"aws:///us-east-1a/{self.machine}", **more}
        self.create(node_object(self.node, **options))


def path_of(made: Object) -> str:
    """The path of one object."""
    about, (group, _, _) = made["metadata"], made["apiVersion"].rpartition("/")
    resource = _RESOURCES.get((group, made["kind"]))
    if resource is None or not group:
        return place(made["kind"], about.get("namespace"), about["name"])
    return f"/apis/{made['apiVersion']}/namespaces/{about['namespace']}/{resource}/{about['name']}"


Make = Callable[[Place], None]


def by(*kinds: str, gpus: int = 1, here: bool = False, spec: Object | None = None, **pod: Any) -> Make:  # noqa: ANN401  whatever it may have
    """A pod whose owners are these, the topmost first, named `work`, `work-0` …; `here`: it fits nowhere else."""

    def make(at: Place) -> None:
        at.add_node()
        owner = owners(at, *kinds, spec=spec)
        if here:
            pod["nodeSelector"] = {HOST: at.node}
        at.create(pod_object(at.team, "work-a", **{"node": at.node, "gpus": gpus, "owner": owner, **pod}))

    return make


def owners(at: Place, *kinds: str, spec: Object | None = None) -> Object | None:
    """The owners of a pod, from above; the last one."""
    owner: Object | None = None
    for number, kind in enumerate(kinds):
        name = "-".join(["work", *(["0"] * number)])
        if kind in _PLAIN:
            made = _PLAIN[kind](at.team, name)
        else:
            its, ours = (dict(spec or {}) if number == 0 else {}), our_kind(BY_LABEL[kind])
            made = object_of(BY_LABEL[kind], at.team, name, definition=ours, **its)
        if owner is not None:
            made["metadata"]["ownerReferences"] = [reference(owner)]
        owner = at.create(made)
    return owner


def volume(**source: Object) -> Object:
    """A pod's volume of that source."""
    return {"volumes": [{"name": "data", **source}]}


def claiming(at: Place, source: Object) -> None:
    """A StatefulSet's pod with a bound claim of a volume of that source."""
    at.add_node()
    affinity = {
        "required": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": HOST, "operator": "In", "values": [at.node]}]}]
        }
    }
    size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    bound = {"claimRef": {"namespace": at.team, "name": "data"}, "persistentVolumeReclaimPolicy": "Delete"}
    near = {"nodeAffinity": affinity} if "local" in source else {}
    at.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"pv-{at.node}"},
            "spec": {**source, **bound, **near, "capacity": size, "accessModes": modes},
            "status": {"phase": "Bound"},
        }
    )
    at.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": at.team},
            "spec": {
                "volumeName": f"pv-{at.node}",
                "resources": {"requests": size},
                "accessModes": modes,
                "storageClassName": "",
            },
            "status": {"phase": "Bound"},
        }
    )
    owner = owners(at, "StatefulSet")
    its = volume(persistentVolumeClaim={"claimName": "data"})
    at.create(pod_object(at.team, "work-a", node=at.node, owner=owner, **its))


def asking(resource: str, offered: str, wanted: str) -> Make:
    """A Deployment's pod with a resource of another name than a whole GPU's."""

    def make(at: Place) -> None:
        made = node_object(at.node, gpus=0, provider_id=f"aws:///us-east-1a/{at.machine}")
        made["status"]["capacity"] = made["status"]["allocatable"] = {
            **made["status"]["allocatable"],
            resource: offered,
        }
        at.create(made)
        pod = pod_object(at.team, "work-a", node=at.node, owner=owners(at, "Deployment", "ReplicaSet"))
        pod["spec"]["containers"][0]["resources"] = {"limits": {resource: wanted}}
        at.create(pod)

    return make


def on_node(**more: Any) -> Make:  # noqa: ANN401  whatever it may have
    """A web server on a node with such marks."""

    def make(at: Place) -> None:
        at.add_node(**more)
        at.create(pod_object(at.team, "work-a", node=at.node, owner=owners(at, "Deployment", "ReplicaSet")))

    return make


def alone(name: str = "work-a", *, namespace: str = "", gpus: int = 0, static: bool = False, **pod: Any) -> Make:  # noqa: ANN401  whatever it may have
    """A pod that nothing owns but, where it is static, its node."""

    def make(at: Place) -> None:
        at.add_node()
        made = pod_object(namespace or at.team, name.format(node=at.node), node=at.node, gpus=gpus, **pod)
        if static:
            made["metadata"]["annotations"] = dict(_MIRROR)
            node = at.admin.get("Node", at.node)
            made["metadata"]["ownerReferences"] = [{**reference(node), "blockOwnerDeletion": False}]
        at.create(made)

    return make


def whole(kind: str, name: str, part: str) -> Make:
    """A part without GPUs here, and one with a GPU on the busy node beside."""

    def make(at: Place) -> None:
        at.add_node()
        owner = owners(at, kind)
        at.create(pod_object(at.team, name, node=at.node, owner=owner))
        at.create(pod_object(at.team, part, node=at.beside, gpus=1, owner=owner))

    return make


def spark(at: Place) -> None:
    """A driver that owns its executor."""
    at.add_node()
    driver = at.create(pod_object(at.team, "spark-driver", node=at.node))
    at.create(pod_object(at.team, "spark-exec-1", node=at.beside, gpus=1, owner=driver))


def with_budget(at: Place) -> None:
    """A Deployment whose budget allows no eviction."""
    by("Deployment", "ReplicaSet", gpus=0, labels={"app": "work"})(at)
    at.create(budget_object(at.team, "work", app="work", allowed=0))


def unowned_kind(at: Place) -> None:
    """A pod whose owner is of a kind that the API server does not serve."""
    at.add_node()
    owner = custom_object("example.com", "Simulation", at.team, "work")
    owner["metadata"]["uid"] = "0c1d"
    at.create(pod_object(at.team, "work-a", node=at.node, owner=owner))


def besides(at: Place) -> None:
    """A web server beside a pod with the GPU."""
    by("Deployment", "ReplicaSet")(at)
    made = at.create(deployment_object(at.team, "web"))
    replicas = at.create(replica_set_object(at.team, "web-0", owner=made))
    at.create(pod_object(at.team, "web-a", node=at.node, owner=replicas))


def gang(at: Place) -> None:
    """One of two pods is here by its claim on the node, and both wait."""
    at.add_node(labels={ROW: at.node})
    owner = owners(at, "JobSet", "Job")
    for number in range(2):
        at.create(pod_object(at.team, f"work-{number}", gpus=1, owner=owner, nodeSelector={ROW: at.node}))


def nominated(at: Place) -> None:
    """The scheduler makes room for a pod."""
    at.add_node()
    pod = pod_object(at.team, "work-a", gpus=1, owner=owners(at, "Job"), nodeSelector={HOST: at.node})
    pod["status"]["nominatedNodeName"] = at.node
    at.create(pod)


def queued(at: Place) -> None:
    """A Workload that waits in Kueue's queue for two such nodes."""
    at.add_node(labels={ROW: at.node})
    at.create(queued_object(at.team, "work", count=2, gpus=1, nodeSelector={ROW: at.node}))


def of_a_queue(at: Place) -> None:
    """A Job that Kueue has admitted."""
    at.add_node()
    made = job_object(at.team, "work")
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    job = at.create(made)
    at.create(
        queued_object(at.team, "work", gpus=1, owner=job, conditions={"QuotaReserved": "True", "Admitted": "True"})
    )
    at.create(pod_object(at.team, "work-a", node=at.node, gpus=1, owner=job, nodeSelector={HOST: at.node}))


def claimed(at: Place) -> None:
    """A pod with a GPU by a claim of devices."""
    at.create(node_object(at.node, gpus=0, provider_id=f"aws:///us-east-1a/{at.machine}"))
    at.create(class_object(DRA, f"device.driver == '{DRA}'"))
    at.create(slice_object(at.node, DRA, gpu_devices(1, at.node)))
    claims = [{"name": "devices", "resourceClaimName": "work"}]
    pod = at.create(
        pod_object(at.team, "work-a", node=at.node, owner=owners(at, "Deployment", "ReplicaSet"), resourceClaims=claims)
    )
    users = [pod["metadata"]["uid"]]
    given = allocated(DRA, 0, pool=at.node)
    at.create(claim_object("work", exactly(DRA, 1), given=given, users=users, namespace=at.team))


def replicated(at: Place) -> None:
    """A replica of a volume of Longhorn's is on the disk, and no pod is there."""
    at.add_node()
    at.create(replica_object(at.team, f"pvc-{at.node}", at.node))
