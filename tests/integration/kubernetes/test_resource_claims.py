"""Dynamic Resource Allocation on a real API server, with the chart's role: GPUs of claims and of slices."""

from collections.abc import Iterator

import pytest

from gpuwatch.kubernetes.cluster import ApiCluster
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.model.placing import Room
from gpuwatch.policies.kubernetes.elsewhere import why_stranded
from gpuwatch.policies.kubernetes.pending_pods import fits
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.kubernetes import node_object, pod_object
from tests.support.builders.resource_claims import (
    allocated,
    claim_object,
    class_object,
    exactly,
    gpu_devices,
    slice_object,
)
from tests.support.real.agents import eventually
from tests.support.real.kubernetes import Account, ControlPlane
from tests.support.real.kubernetes_api import Object
from tests.support.real.kubernetes_chart import chart_account, cluster_rules

pytestmark = pytest.mark.component("kube-apiserver")
NVIDIA = "gpu.nvidia.com"
NIC = [{"driver": "dra.net", "pool": "gpu-1", "device": "eth2"}]


def without_uid(made: Object) -> Object:
    """As a client writes it: the API server gives uids."""
    return {**made, "metadata": {key: value for key, value in made["metadata"].items() if key != "uid"}}


def claiming(namespace: str, name: str, claim: str, node: str | None = "gpu-1") -> Object:
    """A pod with that claim, which it names itself."""
    claims = [{"name": "devices", "resourceClaimName": claim}]
    return pod_object(namespace, name, node=node, resourceClaims=claims)


@pytest.fixture
def team(plane: ControlPlane) -> Iterator[str]:
    """A node of eight claimable GPUs and a NIC; pods with all of them, with the NIC, and one that waits for two."""
    team = plane.namespace()
    nic = [{"name": "eth2", "attributes": {"dra.net/rdma": {"bool": True}}}]
    plane.admin.create(
        node_object("gpu-1", gpus=0),
        without_uid(class_object(NVIDIA, f"device.driver == '{NVIDIA}'", extended="nvidia.com/gpu")),
        without_uid(class_object("rdma", "device.driver == 'dra.net'")),
    )
    made = (slice_object("gpu-1", NVIDIA, gpu_devices(8)), slice_object("gpu-1", "dra.net", nic))
    slices = [each["metadata"]["name"] for each in plane.admin.create(*map(without_uid, made))]
    given = {"train": allocated(NVIDIA, *range(6)), "nic": NIC, "waits": None}
    wants = {"train": exactly(NVIDIA, 6), "nic": exactly("rdma", 1), "waits": exactly(NVIDIA, 2)}
    for name, devices in given.items():
        node = None if devices is None else "gpu-1"
        (pod,) = plane.admin.create(claiming(team, name, name, node))
        users = [pod["metadata"]["uid"]]
        plane.admin.create(without_uid(claim_object(name, wants[name], given=devices, users=users, namespace=team)))
    plane.admin.create(pod_object(team, "asks", gpus=2))
    yield team
    for kind, names in {"ResourceSlice": slices, "DeviceClass": [NVIDIA, "rdma"]}.items():
        for name in names:
            plane.admin.delete(kind, name)


def connected(plane: ControlPlane, account: Account) -> ApiCluster:
    """The controller's client, with that account's token."""
    settings = KubernetesSettings(kubeconfig=str(plane.kubeconfig(account.token)), max_silence=10.0)
    cluster = settings.connect(SystemClock())
    assert isinstance(cluster, ApiCluster)
    return cluster


def gpus_of(cluster: ApiCluster) -> dict[str, float]:
    """How many GPUs each pod has or wants."""
    view = cluster.view()
    return {pod.name: pod.gpus for pod in (*(pod for node in view.nodes for pod in node.pods), *view.pending)}


def test_claims_and_slices_are_counted(plane: ControlPlane, team: str) -> None:
    """Six GPUs are six, a NIC is none, the node offers eight, and what waits fits there."""
    cluster = connected(plane, chart_account(plane, [team]))
    try:
        eventually(
            lambda: gpus_of(cluster) == {"train": 6.0, "nic": 0.0, "waits": 2.0, "asks": 2.0}, lambda: gpus_of(cluster)
        )
        view = cluster.view()
        asked = cluster.node("gpu-1")
    finally:
        cluster.close()

    (node,) = (node for node in view.nodes if node.name == "gpu-1")
    (train,) = (pod for pod in node.pods if pod.name == "train")
    assert node.gpus == 8.0
    assert train.gpu_uuids == tuple(f"GPU-gpu-1-{number}" for number in range(6))
    assert {pod.name for pod in view.pending if fits(pod, node)} == {"waits", "asks"}
    assert view.notes == ()
    assert asked is not None
    assert {pod.name: pod.gpus for pod in asked.pods} == {"train": 6.0, "nic": 0.0}


def taint_rule(pool: str) -> Object:
    """What an administrator says of all devices of a pool."""
    spec = {"deviceSelector": {"pool": pool}, "taint": {"key": "example.com/broken", "effect": "NoSchedule"}}
    version = "resource.k8s.io/v1beta2"
    return {"apiVersion": version, "kind": "DeviceTaintRule", "metadata": {"name": "broken"}, "spec": spec}


def test_a_pod_with_a_claim_is_sure_of_a_node_with_so_many_free_devices(plane: ControlPlane, team: str) -> None:
    """Six of eight are not enough while others have three, or a rule taints them; the card is on no other node."""
    plane.admin.create(node_object("gpu-2", gpus=0))
    other = without_uid(slice_object("gpu-2", NVIDIA, gpu_devices(8, "gpu-2")))
    (made,) = plane.admin.create(other)
    plane.admin.delete("ResourceClaim", "waits", team)
    plane.admin.delete("Pod", "waits", team)
    plane.admin.delete("Pod", "asks", team)
    cluster = connected(plane, chart_account(plane, [team]))

    def why() -> dict[str, str]:
        (room,) = cluster.rooms().values() or (Room(),)
        pods = {pod.uid: pod.name.partition("/")[2] for pod in room.pods if pod.node == "gpu-1"}
        return {pods[uid]: text for uid, text in why_stranded(room, [], [("gpu-1", frozenset(pods))], ()).items()}

    try:
        cluster.view()
        short = "1 devices of rdma are asked for, and the largest free place has 0"
        eventually(lambda: why() == {"nic": short}, why)
        plane.admin.create(taint_rule("gpu-2"))
        eventually(lambda: "largest free place has 0" in why().get("train", ""), why)
        plane.admin.delete("DeviceTaintRule", "broken")
        eventually(lambda: why() == {"nic": short}, why)
        taken = allocated(NVIDIA, 0, 1, 2, pool="gpu-2")
        plane.admin.create(without_uid(claim_object("kept", exactly(NVIDIA, 3), given=taken, namespace=team)))
        eventually(lambda: "largest free place has 5" in why().get("train", ""), why)
    finally:
        cluster.close()
        plane.admin.delete("ResourceSlice", made["metadata"]["name"])


def test_without_the_right_each_claim_may_be_a_gpu(plane: ControlPlane, team: str) -> None:
    """The role of last year's chart: the pods keep their node, and the reason is told."""
    rules = [each for each in cluster_rules() if each["apiGroups"] != ["resource.k8s.io"]]
    cluster = connected(plane, chart_account(plane, [team], rules=rules))
    try:
        eventually(lambda: cluster.view().notes, cluster.view)
        view, gpus = cluster.view(), gpus_of(cluster)
    finally:
        cluster.close()

    assert gpus == {"train": 1.0, "nic": 1.0, "waits": 1.0, "asks": 2.0}
    assert "Each claim counts as a GPU." in view.notes[0]
    assert "forbidden" in view.notes[0]
    assert view.trouble is None
