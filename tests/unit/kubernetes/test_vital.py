"""Nodes that nobody may empty: a control plane by whatever says so, and gpuwatch's own controller."""

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gpuwatch.kubernetes.credentials import own_pod
from gpuwatch.kubernetes.endpoints import ApiAddresses, read_slice, slice_facts
from gpuwatch.kubernetes.facts import NodeFacts, PodFacts, node_facts, pod_facts
from gpuwatch.kubernetes.objects import NodeObject, OwnerReference, PodObject
from gpuwatch.kubernetes.picture import Picture
from gpuwatch.model.decision import Verb
from gpuwatch.model.kubernetes import KubernetesNode
from tests.support.builders.clusters import ENDING, a_cluster_desk, a_kubernetes_node
from tests.support.builders.kubernetes import node_object, pod_object

_NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
_MIRROR = {"kubernetes.io/config.mirror": "0a1b"}
_OURS = {"app.kubernetes.io/name": "gpuwatch", "app.kubernetes.io/component": "controller"}


def a_node(labels: dict[str, str] | None = None, taints: tuple[dict[str, str], ...] = ()) -> NodeFacts:
    """A node with these labels and taints."""
    made = node_object("n", labels=labels, taints=taints)
    return node_facts(msgspec.json.decode(json.dumps(made), type=NodeObject), ())


def a_pod(namespace: str, name: str, *, daemon: bool = False, **other: Any) -> PodFacts:  # noqa: ANN401  of the API
    """A running pod on it; `daemon`: of a DaemonSet."""
    made = pod_object(namespace, name, node="n", **other)
    made["metadata"]["uid"] = f"uid-{name}"
    if daemon:
        owner = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="d", uid="d", controller=True)
        made["metadata"]["ownerReferences"] = [msgspec.to_builtins(owner)]
    found = pod_facts(msgspec.json.decode(json.dumps(made), type=PodObject), ())
    assert found is not None
    return found


def drawn(
    node: NodeFacts, *pods: PodFacts, own: tuple[str, ...] = (), api: ApiAddresses | None = None
) -> KubernetesNode:
    """The node as the controller knows it; `own` is the uid of its own pod, `api` where the API is served."""
    picture = Picture(
        now=_NOW,
        owners=lambda *_: None,
        namespaces={},
        system_namespaces=(),
        cluster="k",
        own_uids=own,
        api=api or ApiAddresses(),
    )
    return picture.node(node, [picture.pod(each) for each in pods], ())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("node-role.kubernetes.io/control-plane", ""),
        ("node-role.kubernetes.io/master", ""),
        ("node-role.kubernetes.io/etcd", "true"),
        ("node-role.kubernetes.io/controlplane", "true"),
        ("node-role.kubernetes.io/api-server", ""),
        ("kubernetes.io/role", "master"),
        ("node.kubernetes.io/microk8s-controlplane", "microk8s-controlplane"),
    ],
)
def test_a_role_of_the_control_plane_keeps_its_node(key: str, value: str) -> None:
    """As kubeadm, k3s, RKE2, RKE 1, kops, OpenShift and MicroK8s write it."""
    assert key in str(drawn(a_node({key: value})).vital)


@pytest.mark.parametrize("key", ["node-role.kubernetes.io/worker", "node-role.kubernetes.io/gpu", "example.com/etcd"])
def test_another_role_keeps_nothing(key: str) -> None:
    """Workers have roles, too."""
    assert drawn(a_node({key: "true", "kubernetes.io/role": "node"})).vital is None


def test_the_taint_alone_says_it_as_well() -> None:
    """People take the label away to let load balancers see the node."""
    taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}

    assert "taint" in str(drawn(a_node(taints=(taint,))).vital)


@pytest.mark.parametrize("part", ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"])
@pytest.mark.parametrize("namespace", ["kube-system", "openshift-etcd", "team"])
@pytest.mark.parametrize("annotations", [_MIRROR, {"kubernetes.io/config.source": "file"}])
def test_a_static_pod_of_the_control_plane_keeps_its_node(
    part: str, namespace: str, annotations: dict[str, str]
) -> None:
    """Whatever its namespace: the kubelet of that node alone makes it."""
    node = drawn(a_node(), a_pod(namespace, f"{part}-gpu-1", annotations=annotations))

    assert node.vital == f"the pod {namespace}/{part}-gpu-1 is part of the control plane"
    assert node.to_drain == ()
    assert [pod.static for pod in node.pods] == [True]


@pytest.mark.parametrize(
    "pod",
    [
        a_pod("kube-system", "kube-proxy-gpu-1", annotations=_MIRROR),
        a_pod("kube-system", "nginx-proxy-gpu-1", annotations=_MIRROR),
        a_pod("team", "etcd-0"),
        a_pod("team", "etcd-0", labels={"app": "etcd"}),
        a_pod("kube-system", "kube-schedulers-friend", annotations=_MIRROR),
    ],
    ids=lambda pod: pod.name,
)
def test_what_only_sounds_like_it_keeps_nothing(pod: PodFacts) -> None:
    """Each node has a proxy, and a database of people's own is asked about by its volumes."""
    assert drawn(a_node(), pod).vital is None


def a_slice(*addresses: object) -> bytes:
    """The EndpointSlice of the API, with one server that is not ready."""
    endpoint = {"addresses": list(addresses), "conditions": {"ready": False}}
    meta = {"name": "kubernetes", "namespace": "default", "uid": "u", "resourceVersion": "7"}
    return json.dumps({"metadata": meta, "addressType": "IPv4", "endpoints": [endpoint], "ports": None}).encode()


@pytest.mark.parametrize(
    ("served", "address", "keeps"),
    [
        ("10.1.0.13", "10.1.0.13", True),
        ("2001:db8::1", "2001:0DB8:0:0::0001", True),
        ("API-1.example.com", "api-1.example.com", True),
        ("10.1.0.130", "10.1.0.13", False),
        ("203.0.113.7", "10.1.0.13", False),
    ],
)
def test_the_node_at_whose_address_the_api_is_served_is_kept(served: str, address: str, *, keeps: bool) -> None:
    """MicroK8s and k0s: no label, no taint and no pod says it."""
    found = slice_facts(a_slice(served))
    node = drawn(replace(a_node(), addresses=("n", address)), api=ApiAddresses(known=found.addresses))

    assert (node.vital is not None) == keeps
    assert not keeps or f"its address {address} serves the cluster's API" in str(node.vital)


def test_where_nobody_knows_where_the_api_is_served_each_node_may_do_it() -> None:
    """As with the role of an older chart; a sure reason comes first."""
    api = ApiAddresses(doubt="the API server shows no endpointslices (403)")
    role = "node-role.kubernetes.io/etcd"

    assert drawn(a_node(), api=api).vital == (
        "it may serve the cluster's API, for the API server shows no endpointslices (403)"
    )
    assert role in str(drawn(a_node({role: "true"}), api=api).vital)


def test_a_slice_that_cannot_be_read_is_a_doubt() -> None:
    """It is there, and nobody knows whose addresses it has."""
    found = read_slice(a_slice({"ip": "10.1.0.13"}))

    assert found is not None
    assert (found.addresses, found.doubt is not None) == (frozenset(), True)


def test_a_control_plane_in_a_daemon_set_is_told_by_its_label() -> None:
    """A drain would leave it, and the end of the machine would not."""
    pod = a_pod("kube-system", "apiserver-x7", daemon=True, labels={"k8s-app": "kube-apiserver"})

    assert "control plane" in str(drawn(a_node(), pod).vital)


def test_the_node_of_gpuwatchs_own_controller_is_kept() -> None:
    """By the uid in its token whatever its labels are, and by the labels of the chart where another one asks."""
    mine, other = a_pod("ops", "watcher-1"), a_pod("ops", "gpuwatch-controller-2", labels=_OURS)

    assert drawn(a_node(), mine, own=("uid-watcher-1",)).vital == "gpuwatch's own controller runs there (ops/watcher-1)"
    assert "own controller" in str(drawn(a_node(), other).vital)
    agent = a_pod("ops", "agent-1", daemon=True, labels={**_OURS, "app.kubernetes.io/component": "agent"})
    assert drawn(a_node(), mine, agent).vital is None


def a_token(claims: object) -> str:
    """As an API server signs it for a pod, without the signature."""
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.sig"


@pytest.mark.parametrize(
    ("token", "uid"),
    [
        (a_token({"kubernetes.io": {"namespace": "ops", "pod": {"name": "p", "uid": "0a1b"}}}), "0a1b"),
        (a_token({"kubernetes.io": {"namespace": "ops"}}), None),
        (a_token({"kubernetes.io": {"pod": {"uid": 7}}}), None),
        (a_token(["kubernetes.io"]), None),
        ("a.b.c", None),
        ("opaque", None),
        ("e30.%%%.sig", None),
        (None, None),
    ],
)
def test_a_token_says_whose_pod_it_is(token: str | None, uid: str | None) -> None:
    """A bound one; all others say nothing, and are no trouble."""
    assert own_pod(token) == uid


def test_a_control_plane_that_is_idle_gets_no_notice_and_explain_says_why() -> None:
    """Although it is idle for hours and all of its pods would stay to the end."""
    desk = a_cluster_desk(ENDING)
    desk.cluster.put(a_kubernetes_node("node-1", vital="the pod kube-system/etcd-1 is part of the control plane"))
    for _ in range(3):
        desk.round(1800.0)

    assert desk.calls() == []
    assert not [each for each in desk.ledger.history("i-1") if each.intent.verb is Verb.NOTICE]


def test_a_node_that_turns_out_to_be_one_is_given_back() -> None:
    """Its notice is withdrawn, or its cordon undone, in the next round."""
    desk = a_cluster_desk(ENDING)
    while not desk.calls("cordon"):
        desk.round(300.0)
    role = "its label node-role.kubernetes.io/etcd says that it serves the control plane"
    desk.cluster.put(replace(desk.cluster.nodes["node-1"], vital=role))
    desk.round(30.0)

    assert desk.calls("uncordon") == [("uncordon", "node-1")]


def test_a_static_pod_is_a_workload_by_itself() -> None:
    """Under its own name: its node owns it by name, and all others there."""
    owner = OwnerReference(api_version="v1", kind="Node", name="gpu-1", uid="uid-gpu-1", controller=True)
    marks = {**_MIRROR, "kubernetes.io/config.hash": "3be1"}
    owned = replace(a_pod("team", "triton-gpu-1", annotations=marks), owner=owner)
    (pod,) = drawn(a_node(), owned).pods

    assert (pod.workload.kind, pod.workload.name, pod.workload.uid) == ("Pod", "triton-gpu-1", "3be1")
    assert (pod.daemon, pod.drained, pod.bare) == (True, False, False)


@pytest.mark.parametrize(
    ("owner", "labels", "stays"),
    [
        ("NodeSet", {}, True),
        ("StatefulSet", {"app.kubernetes.io/name": "slurmd"}, True),
        ("StatefulSet", {"app.kubernetes.io/name": "slurmctld"}, False),
        ("StatefulSet", {}, False),
    ],
)
def test_a_pod_that_is_a_node_of_slurm_stays_whatever_its_people_say(
    owner: str, labels: dict[str, str], *, stays: bool
) -> None:
    """Slinky and SUNK: Slurm sends jobs there until its own operator has drained it in Slurm."""
    reference = OwnerReference(api_version="example.com/v1", kind=owner, name="gpu", uid="uid-gpu", controller=True)
    made = replace(a_pod("slurm", "gpu-0", annotations={"gpuwatch.io/interruptible": "true"}), owner=reference)
    (pod,) = drawn(a_node(), replace(made, labels=labels)).pods

    assert ("node of Slurm" in str(pod.protected)) is stays
