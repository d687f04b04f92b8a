"""What of a pod's own volumes is data that goes with its machine, and what holds nothing."""

import json
from typing import Any

import msgspec
import pytest

from gpuwatch.kubernetes.facts import PodFacts, pod_facts
from gpuwatch.kubernetes.objects import OwnerReference, PodObject
from gpuwatch.kubernetes.volumes import SAFE_LOCAL_VOLUMES
from tests.support.builders.kubernetes import pod_object


def facts_of(pod: dict[str, Any]) -> PodFacts:
    """Of a pod in the form of the API."""
    found = pod_facts(msgspec.json.decode(json.dumps(pod), type=PodObject), ())
    assert found is not None
    return found


def lost(**source: object) -> str | None:
    """What is lost of a volume `data` with that source."""
    return facts_of(pod_object("team", "p", volumes=[{"name": "data", **source}])).local_data


@pytest.mark.parametrize(
    "path",
    [
        *("/mnt/nvme", "/data", "/", "/home/ann", "/var/lib/rook/mon-b/data", "/opt/models", "/srv/x", "/var/log"),
        *("/dev/nvme1n1", "/dev/sdb", "/dev/mapper/vg-lv", "/dev/../data", "/sysdata", "/runs", "/device", "data"),
    ],
)
def test_a_path_of_the_host_is_data(path: str) -> None:
    """What is on a disk of the machine, in whatever place, is on no other one; disks themselves hold data, too."""
    assert lost(hostPath={"path": path}) == f"data (hostPath {path})"


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/dev",
            "/dev/",
            "//dev//infiniband",
            "/dev/fuse",
            "/sys",
            "/sys/fs/cgroup",
            "/proc",
            "/run/nvidia",
            "/var/run",
        ),
        *("/var/run/docker.sock", "/etc/localtime", "/usr/share/zoneinfo", "/lib/modules", "/etc/ssl/certs/ca.crt"),
        "/etc/os-release",
    ],
)
def test_what_comes_with_each_machine_is_no_data(path: str) -> None:
    """The kernel's file systems, what is made at each boot, what the image has."""
    assert lost(hostPath={"path": path, "type": ""}) is None


def test_a_disk_under_any_name_is_data() -> None:
    """The pod itself says that it is one."""
    assert lost(hostPath={"path": "/dev/cache", "type": "BlockDevice"}) is not None


@pytest.mark.parametrize(
    ("source", "held"),
    [
        ({"csi": {"driver": "hostpath.csi.k8s.io", "volumeAttributes": {"size": "10Gi"}}}, True),
        ({"csi": {"driver": "secrets-store.csi.k8s.io", "readOnly": True}}, False),
        ({"csi": {"driver": "gcsfuse.csi.storage.gke.io"}}, False),
        ({"csi": {"driver": "example.com/any", "readOnly": True}}, False),
        ({"quobyte": {"volume": "v"}}, True),
        ({}, True),
        ({"nfs": {"server": "s", "path": "/"}}, False),
        ({"projected": {"sources": []}}, False),
        ({"secret": {"secretName": "s"}}, False),
        ({"downwardAPI": {"items": []}}, False),
        ({"image": {"reference": "r"}}, False),
        ({"awsElasticBlockStore": {"volumeID": "v"}}, False),
    ],
)
def test_a_volume_of_an_unknown_kind_is_data(source: dict[str, object], *, held: bool) -> None:
    """What is known to be elsewhere, or made of the API server's objects, is none."""
    assert (lost(**source) is not None) == held


def test_each_volume_is_named_and_what_cluster_autoscalers_mark_lists_is_not() -> None:
    """Its list is of names, and no yes to all of them."""
    volumes: list[dict[str, Any]] = [{"name": name, "emptyDir": {}} for name in ("scratch", "outputs", "istio-data")]
    pod = pod_object("team", "p", volumes=[*volumes, {"name": "dshm", "emptyDir": {"medium": "Memory"}}])
    assert facts_of(pod).local_data == "scratch, outputs, istio-data"

    pod["metadata"]["annotations"] = {SAFE_LOCAL_VOLUMES: "scratch, dshm"}
    assert facts_of(pod).local_data == "outputs, istio-data"


_READS = {"name": "r", "volumeMounts": [{"name": "data", "mountPath": "/d", "readOnly": True}]}
_WRITES = {"name": "w", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}


@pytest.mark.parametrize(
    ("path", "spec", "held"),
    [
        ("/data", {"containers": [_WRITES]}, True),
        ("/data", {"containers": [_READS]}, False),
        ("/", {"containers": [_READS]}, False),
        ("/data", {"containers": [_READS, _WRITES]}, True),
        ("/data", {"containers": [_READS], "initContainers": [_WRITES]}, True),
        ("/var/lib/kubelet/plugins", {"containers": [_WRITES]}, False),
        ("/var/log", {"containers": [_WRITES]}, False),
        ("/run/nvidia", {"containers": [_WRITES]}, False),
        ("/var/lib/minio", {"containers": [_WRITES]}, True),
    ],
)
def test_what_a_daemon_set_writes_to_its_hosts_may_be_data(path: str, spec: dict[str, Any], *, held: bool) -> None:
    """MinIO in a DaemonSet is a store; an exporter that reads, a plugin and a shipper of logs are none."""
    pod = pod_object("storage", "p", volumes=[{"name": "data", "hostPath": {"path": path}}])
    pod["spec"] |= spec
    owner = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="d", uid="d", controller=True)
    pod["metadata"]["ownerReferences"] = [msgspec.to_builtins(owner)]

    assert facts_of(pod).daemon_data == (f"data (hostPath {path})" if held else None)


# Pods of storage that replicates itself between nodes, with the volumes of each project's own manifests.
_STORAGE = {
    "Longhorn's manager": ("DaemonSet", ("/boot", "/dev", "/proc", "/etc", "/var/lib/longhorn")),
    "Longhorn's instance manager": ("InstanceManager", ("/", "/var/lib/longhorn/unix-domain-socket")),
    "Rook's OSD": ("ReplicaSet", ("/var/lib/rook/rook-ceph", "/dev", "/run/udev")),
    "Rook's monitor": ("ReplicaSet", ("/var/lib/rook/mon-b/data",)),
    "OpenEBS Mayastor's io-engine": ("DaemonSet", ("/dev", "/run/udev", "/var/local/openebs/io-engine")),
    "OpenEBS's node disk manager": ("DaemonSet", ("/run/udev", "/proc", "/var/openebs/ndm", "/var/openebs/sparse")),
    "Portworx": ("DaemonSet", ("/dev", "/opt/pwx", "/etc/pwx")),
    "GlusterFS": ("DaemonSet", ("/var/lib/glusterd", "/var/lib/heketi", "/dev")),
    "MinIO": ("DaemonSet", ("/mnt/disk1",)),
}


@pytest.mark.parametrize("name", _STORAGE)
def test_pods_that_replicate_volumes_keep_their_nodes(name: str) -> None:
    """By a path of the host that they write to, also where no drain moves them."""
    kind, paths = _STORAGE[name]
    volumes = [{"name": f"v{number}", "hostPath": {"path": path}} for number, path in enumerate(paths)]
    mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in volumes]
    containers = [{"name": "c", "volumeMounts": mounts}]
    pod = pod_object("storage", "p", volumes=volumes, containers=containers)
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    facts = facts_of(pod)

    assert (facts.daemon_data if kind == "DaemonSet" else facts.local_data) is not None
