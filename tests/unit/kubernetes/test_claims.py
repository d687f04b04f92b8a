"""Which claims are on a disk of their machine, and whose data is on a machine's disk while no pod uses it."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from gpuwatch.kubernetes.claims import ClaimFacts, Disks, VolumeFacts, claim_facts, volume_facts
from gpuwatch.kubernetes.facts import NodeFacts, OwnerFacts, PodFacts, node_facts, pod_facts
from gpuwatch.kubernetes.objects import NodeObject, PodObject
from gpuwatch.kubernetes.picture import Picture
from gpuwatch.kubernetes.unreadable import doubtful_claim, doubtful_volume
from gpuwatch.kubernetes.volume_objects import ClaimObject, PersistentVolumeObject
from gpuwatch.model.kubernetes import LOSES_LOCAL_DATA, KubernetesNode
from tests.support.builders.kubernetes import node_object, pod_object

_HOST, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def a_node(name: str, *, zone: str = "a", hostname: str | None = None, **labels: str) -> NodeFacts:
    """A node in a zone."""
    made = node_object(name, labels={_ZONE: zone, _HOST: hostname or name, **labels})
    return node_facts(msgspec.json.decode(json.dumps(made), type=NodeObject), ())


def a_volume(
    name: str = "pv",
    *,
    phase: str = "Bound",
    reclaim: str = "Delete",
    on: dict[str, list[str]] | None = None,
    **source: object,
) -> VolumeFacts:
    """One of the claim team/data; `on` is its node affinity, by labels."""
    expressions = [{"key": key, "operator": "In", "values": values} for key, values in (on or {}).items()]
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}} if on else {}
    claim = {} if phase == "Available" else {"claimRef": {"namespace": "team", "name": "data"}}
    made = {
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "spec": {**(source or {"csi": {"driver": "d"}}), **affinity, **claim, "persistentVolumeReclaimPolicy": reclaim},
        "status": {"phase": phase},
    }
    return volume_facts(msgspec.json.decode(json.dumps(made), type=PersistentVolumeObject))


def a_claim(volume: str = "pv", *, phase: str = "Bound", **annotations: str) -> ClaimFacts:
    """The claim team/data."""
    made = {
        "metadata": {"name": "data", "namespace": "team", "uid": "c", "annotations": annotations},
        "spec": {"volumeName": volume, "accessModes": ["ReadWriteOnce"]},
        "status": {"phase": phase},
    }
    return claim_facts(msgspec.json.decode(json.dumps(made), type=ClaimObject))


def a_pod(node: str = "gpu-3") -> PodFacts:
    """A pod with that claim."""
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    made = pod_object("team", "db-0", node=node, volumes=volumes)
    found = pod_facts(msgspec.json.decode(json.dumps(made), type=PodObject), ())
    assert found is not None
    return found


_NODES = (a_node("gpu-3"), a_node("cpu-1"), a_node("cpu-2", zone="b"))


def disks(*volumes: VolumeFacts, claim: ClaimFacts | None = None, **other: object) -> Disks:
    """What is known of these."""
    claims = {} if claim is None else {("team", "data"): claim}
    base = Disks(volumes={each.name: each for each in volumes}, claims=claims, nodes=_NODES)
    return replace(base, **other)  # type: ignore[arg-type]


def drawn(known: Disks, *pods: PodFacts, namespace: dict[str, str] | None = None, ready: bool = True) -> KubernetesNode:
    """The node gpu-3 with these pods."""
    picture = Picture(
        now=datetime(2026, 11, 23, tzinfo=UTC),
        owners=lambda *_: None,
        namespaces={"team": OwnerFacts("", "team", "t", 1, None, namespace or {})},
        system_namespaces=(),
        cluster="k",
        disks=known,
    )
    return picture.node(replace(known.nodes[0], ready=ready), [picture.pod(each) for each in pods], ())  # type: ignore[index]  # a tuple


_LOCAL = [
    pytest.param(a_volume(hostPath={"path": "/var/lib/rancher/k3s/storage/x"}, on={_HOST: ["gpu-3"]}), id="local-path"),
    pytest.param(a_volume(local={"path": "/mnt/disks/0"}, on={_HOST: ["gpu-3"]}), id="local"),
    pytest.param(a_volume(hostPath={"path": "/data"}), id="hostPath, bound to no node"),
    pytest.param(a_volume(on={"topology.topolvm.io/node": ["gpu-3"]}), id="TopoLVM, whose label is gone"),
    pytest.param(a_volume(on={_ZONE: ["a"], _HOST: ["gpu-3"]}), id="zone and host"),
]


@pytest.mark.parametrize("volume", _LOCAL)
def test_a_claim_on_one_machines_disk_is_local_data(volume: VolumeFacts) -> None:
    """By whatever driver and label."""
    node = drawn(disks(volume, claim=a_claim()), a_pod())

    assert node.pods[0].claim_data == "d (the claim data is on its machine's disk)"
    assert node.pods[0].loses is not None


@pytest.mark.parametrize(
    "volume",
    [
        pytest.param(a_volume(on={_ZONE: ["a"]}), id="zone"),
        pytest.param(a_volume(on={"topology.ebs.csi.aws.com/zone": ["b"]}), id="a zone that no node says"),
        pytest.param(
            a_volume(on={_ZONE: ["b"], "failure-domain.beta.kubernetes.io/zone": ["b"]}), id="one node's zone"
        ),
        pytest.param(a_volume(on={_HOST: ["gpu-3", "cpu-1"]}), id="two hosts"),
        pytest.param(a_volume(), id="everywhere"),
        pytest.param(a_volume(nfs={"server": "s"}), id="a file server"),
    ],
)
def test_a_claim_on_the_network_is_none(volume: VolumeFacts) -> None:
    """It follows its pod, also where one node alone is in its zone now."""
    node = drawn(disks(volume, claim=a_claim()), a_pod())

    assert (node.pods[0].claim_data, node.disk_data) == (None, None)


def test_affinity_is_about_labels_and_not_about_names() -> None:
    """EKS with resource names: the host name is another one than the node's."""
    nodes = (a_node("i-0a1b.us-west-2.compute.internal", hostname="ip-10-0-3-7"), *_NODES[1:])
    known = disks(a_volume(local={"path": "/x"}, on={_HOST: ["ip-10-0-3-7"]}), claim=a_claim(), nodes=nodes)

    assert "pv" in str(drawn(known).disk_data)
    assert drawn(known, a_pod(nodes[0].name)).pods[0].claim_data is not None


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (disks(), "does not exist"),
        (disks(doubt="403"), "cannot be read: 403"),
        (disks(claim=a_claim(phase="Lost")), "is Lost"),
        (disks(claim=a_claim(volume="", phase="Pending")), "is Pending"),
        (disks(claim=a_claim()), "is the volume pv, which does not exist"),
        (disks(claim=a_claim(), doubt="403"), "is the volume pv, which cannot be read: 403"),
    ],
)
def test_a_claim_that_is_not_known_is_kept_as_data(known: Disks, why: str) -> None:
    """Each with its own reason."""
    assert drawn(known, a_pod()).pods[0].claim_data == f"d (the claim data {why})"


def test_what_may_not_be_read_keeps_every_node() -> None:
    """A volume may be on a disk of it that no pod uses: the role of an older chart does not let us see that."""
    assert drawn(disks(doubt="403")).disk_data == "which volumes are on its disks is not known: 403"


def test_a_bound_volume_without_a_pod_keeps_its_node() -> None:
    """Somebody has scaled the database to zero over the weekend."""
    volume = a_volume(hostPath={"path": "/x"}, on={_HOST: ["gpu-3"]})
    known = disks(volume, claim=a_claim())

    assert drawn(known).disk_data == "the volume pv of the claim team/data is on its disk, and no pod uses it now"
    assert drawn(known, a_pod()).disk_data is None
    assert drawn(known, a_pod(), ready=False).disk_data is not None
    assert drawn(disks(volume, claim=a_claim(**{LOSES_LOCAL_DATA: "true"}))).disk_data is None
    assert drawn(known, namespace={LOSES_LOCAL_DATA: "true"}).disk_data is None


@pytest.mark.parametrize(
    ("volume", "held"),
    [
        (a_volume(phase="Available", local={"path": "/x"}, on={_HOST: ["gpu-3"]}), False),
        (a_volume(phase="Released", reclaim="Retain", local={"path": "/x"}, on={_HOST: ["gpu-3"]}), True),
        (a_volume(phase="Released", reclaim="Delete", local={"path": "/x"}, on={_HOST: ["gpu-3"]}), False),
        (a_volume(phase="Failed", local={"path": "/x"}, on={_HOST: ["gpu-3"]}), True),
        (a_volume(local={"path": "/x"}, on={_HOST: ["cpu-1"]}), False),
    ],
)
def test_what_was_never_bound_holds_nothing_and_what_is_retained_does(volume: VolumeFacts, *, held: bool) -> None:
    """A static provisioner makes a volume of each disk; one that is released and kept is kept on purpose."""
    assert (drawn(disks(volume)).disk_data is not None) == held


def test_an_annotation_on_the_claim_gives_its_data_up() -> None:
    """Where nobody may write to the pod's workload."""
    volume = a_volume(local={"path": "/x"}, on={_HOST: ["gpu-3"]})

    assert drawn(disks(volume, claim=a_claim(**{LOSES_LOCAL_DATA: "true"})), a_pod()).pods[0].claim_data is None


def test_a_volume_or_claim_that_cannot_be_read_is_a_doubt() -> None:
    """It is of a machine's disk, or not known to be bound."""
    least = json.dumps(
        {"metadata": {"name": "data", "namespace": "team", "uid": "u"}, "spec": {"claimRef": 7, "volumeName": 7}}
    ).encode()

    assert Disks().is_of_one_node(doubtful_volume(least, "why"))
    assert doubtful_claim(least, "why").phase != "Bound"


def test_a_rack_of_two_nodes_is_not_one_machine() -> None:
    """Until one of them is gone."""
    nodes = (a_node("gpu-3", rack="r1"), a_node("cpu-1", rack="r1"), a_node("cpu-2", rack="r2"))
    first, second = a_volume(on={"rack": ["r1"]}), a_volume(on={"rack": ["r2"]})

    assert not disks(nodes=nodes).is_of_one_node(first)
    assert disks(nodes=nodes).is_of_one_node(second)


def test_a_replica_of_longhorn_keeps_its_node() -> None:
    """Its volume fits every node, is used elsewhere or not at all, and may have other replicas."""
    volume = a_volume("pvc-1", csi={"driver": "driver.longhorn.io", "volumeHandle": "pvc-1"})
    known = disks(volume, claim=a_claim("pvc-1"), replicas={"gpu-3": ["pvc-1"]})
    why = "a replica of Longhorn's volume pvc-1 (the claim team/data) is on its disk"

    assert drawn(known).disk_data == drawn(known, a_pod()).disk_data == why
    assert drawn(replace(known, replicas={"cpu-1": ["pvc-1"]})).disk_data is None
    assert "gone" in str(drawn(disks(replicas={"gpu-3": ["gone"]})).disk_data)
    assert drawn(known, namespace={LOSES_LOCAL_DATA: "true"}).disk_data is None
    given_up = a_claim("pvc-1", **{LOSES_LOCAL_DATA: "true"})
    assert drawn(disks(volume, claim=given_up, replicas={"gpu-3": ["pvc-1"]})).disk_data is None
