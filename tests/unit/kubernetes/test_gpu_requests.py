"""How many devices a pod was given, and whether each GPU of a node is one pod's alone: what elimination rests on."""

import json
from typing import Any

import msgspec
import pytest

from gpuwatch.kubernetes.facts import PodFacts, node_facts, pod_facts
from gpuwatch.kubernetes.objects import NodeObject, PodObject
from gpuwatch.kubernetes.settings import GPU_RESOURCES
from tests.support.builders.kubernetes import node_object, pod_object

GPU = "nvidia.com/gpu"


def facts_of(**spec: Any) -> PodFacts:  # noqa: ANN401  whatever a pod's spec may have
    """Of a pod with this specification."""
    pod = pod_object("team", "p")
    pod["spec"] |= spec
    found = pod_facts(msgspec.json.decode(json.dumps(pod), type=PodObject), GPU_RESOURCES)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("limits", "devices"),
    [
        ({GPU: "4"}, 4),
        ({}, 0),
        ({"nvidia.com/mig-1g.10gb": "2", "nvidia.com/mig-3g.40gb": "1"}, 3),
        ({"nvidia.com/gpu.shared": "1"}, 1),
        ({"aliyun.com/gpu-mem": "8"}, None),
        ({GPU: "1", "aliyun.com/gpu-mem": "8"}, None),
        ({GPU: "1", "nvidia.com/gpumem": "8000", "nvidia.com/gpucores": "30"}, 1),
        ({"nvidia.com/gpumem": "8000"}, None),
        ({"nvidia.com/GA102GL_A10": "1"}, None),
        ({GPU: "500m"}, None),
    ],
)
def test_a_pod_was_given_so_many_devices(limits: dict[str, str], devices: int | None) -> None:
    """Each of one GPU; a vendor's amount of memory or cores says nothing about how many GPUs it is of."""
    assert facts_of(containers=[{"name": "c", "resources": {"limits": limits}}]).devices == devices


def test_devices_are_counted_as_the_scheduler_counts() -> None:
    """Containers and sidecars together, or an init container with more."""
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"limits": {GPU: "1"}}}
    begins = {"name": "b", "resources": {"limits": {GPU: "2"}}}
    work = {"name": "w", "resources": {"limits": {GPU: "2"}}}

    assert facts_of(containers=[work], initContainers=[sidecar, begins]).devices == 3


@pytest.mark.parametrize(
    ("spec", "any_gpu"),
    [
        ({"containers": [{"name": "c"}]}, False),
        ({"containers": [{"name": "c", "securityContext": {"privileged": False}}]}, False),
        ({"containers": [{"name": "c", "securityContext": {"privileged": True}}]}, True),
        (
            {"containers": [{"name": "c"}], "initContainers": [{"name": "i", "securityContext": {"privileged": True}}]},
            True,
        ),
        (
            {
                "containers": [{"name": "c"}],
                "ephemeralContainers": [{"name": "debug", "securityContext": {"privileged": True}}],
            },
            True,
        ),
        ({"containers": [{"name": "c", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}]}, True),
        ({"containers": [{"name": "c", "env": [{"name": "HOME", "value": "/"}]}]}, False),
    ],
)
def test_a_pod_may_use_gpus_that_it_was_not_given(spec: dict[str, Any], any_gpu: bool) -> None:
    """Then a process of it on a GPU does not show that it was given that one."""
    assert facts_of(**spec).uses_any_gpu is any_gpu


@pytest.mark.parametrize(
    ("capacity", "labels", "whole"),
    [
        ({GPU: "8"}, {}, 8),
        ({GPU: "8"}, {"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.sharing-strategy": "none"}, 8),
        ({"amd.com/gpu": "8"}, {}, 8),
        ({}, {}, None),
        ({GPU: "0"}, {}, None),
        ({GPU: "4"}, {"nvidia.com/gpu.replicas": "4"}, None),
        ({GPU: "4"}, {"nvidia.com/gpu.sharing-strategy": "mps"}, None),
        ({GPU: "4"}, {"nvidia.com/gpu.product": "NVIDIA-L40S-SHARED"}, None),
        ({GPU: "7"}, {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"}, None),
        ({GPU: "8"}, {"cloud.google.com/gke-gpu-sharing-strategy": "time-sharing"}, None),
        ({GPU: "7"}, {"cloud.google.com/gke-gpu-partition-size": "1g.10gb"}, None),
        ({"nvidia.com/gpu.shared": "4", GPU: "0"}, {}, None),
        ({GPU: "2", "nvidia.com/mig-1g.10gb": "7"}, {}, None),
        ({GPU: "8", "aliyun.com/gpu-mem": "640"}, {}, None),
        ({"nvidia.com/mig-7g.80gb": "8"}, {}, None),
    ],
)
def test_a_node_gives_each_gpu_to_one_pod_alone(
    capacity: dict[str, str], labels: dict[str, str], whole: int | None
) -> None:
    """By its capacity, of which GPUs that are ill are still a part, and what its labels say of sharing."""
    node = node_object("n", gpus=0, labels=labels)
    node["status"]["capacity"] = {"cpu": "96", **capacity}
    node["status"]["allocatable"] = {"cpu": "96"}
    facts = node_facts(msgspec.json.decode(json.dumps(node), type=NodeObject), GPU_RESOURCES)

    assert facts.whole_gpus == whole


def test_a_static_pod_is_the_one_of_its_control_group() -> None:
    """Its kubelet and its processes have the hash of its file as uid, the API server another one."""
    pod = pod_object(
        "team", "triton-gpu-3", annotations={"kubernetes.io/config.hash": "3be1", "kubernetes.io/config.mirror": "3be1"}
    )
    other = pod_object("team", "p", annotations={"kubernetes.io/config.hash": "3be1"})
    read = [pod_facts(msgspec.json.decode(json.dumps(each), type=PodObject), GPU_RESOURCES) for each in (pod, other)]

    assert [None if each is None else each.static_uid for each in read] == ["3be1", None]
