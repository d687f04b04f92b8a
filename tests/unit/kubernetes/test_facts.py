"""What is kept of pods and nodes: GPUs counted as the scheduler counts them, and nothing else than is needed."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.kubernetes.facts import GANG, PodFacts, job_facts, node_facts, owner_facts, pod_facts, time_of
from gpuwatch.kubernetes.objects import Described, JobObject, NodeObject, PodObject
from gpuwatch.kubernetes.settings import GPU_RESOURCES
from gpuwatch.model.bounds import MOST_AMOUNT
from gpuwatch.model.kubernetes import IDLE_ACTION, INTERRUPTIBLE, OWNER, PROTECT, SNOOZE_UNTIL
from gpuwatch.model.placing import Requirement, Taint, Toleration
from tests.support.builders.kubernetes import job_object, node_object, pod_object

GPU = "nvidia.com/gpu"


def facts_of(pod: dict[str, Any]) -> PodFacts:
    """Of a pod in the form of the API."""
    found = pod_facts(msgspec.json.decode(json.dumps(pod), type=PodObject), GPU_RESOURCES)
    assert found is not None
    return found


def container(gpus: int, **other: object) -> dict[str, Any]:
    """One that asks for so many GPUs."""
    return {"name": "c", "resources": {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}, **other}


_COUNTS = st.lists(st.integers(0, 8), max_size=3)


@given(_COUNTS, _COUNTS, _COUNTS)
def test_a_pod_holds_what_the_scheduler_gives_it(work: list[int], sidecars: list[int], begins: list[int]) -> None:
    """All containers and sidecars together, or one init container that asks for more."""
    pod = pod_object(
        "team",
        "p",
        initContainers=[
            *(container(each, restartPolicy="Always") for each in sidecars),
            *(container(each) for each in begins),
        ],
    )
    pod["spec"]["containers"] = [container(each) for each in work]

    assert facts_of(pod).gpus == max(sum(work) + sum(sidecars), max(begins, default=0))


@pytest.mark.parametrize(
    ("resource", "amount", "gpus"),
    [
        (GPU, "2", 2.0),
        ("nvidia.com/gpu.shared", "1", 1.0),
        ("nvidia.com/mig-3g.20gb", "2", 6 / 7),
        ("nvidia.com/mig-1g.10gb.me", "1", 1 / 7),
        ("nvidia.com/mig-1g.6gb.me", "4", 1.0),
        ("nvidia.com/mig-4g.24gb", "1", 1.0),
        ("nvidia.com/mig-4g.40gb", "1", 4 / 7),
        ("nvidia.com/mig-1g.24gb", "1", 1 / 7),
        ("nvidia.com/mig-1g.24gb.gfx", "1", 1 / 4),
        ("nvidia.com/mig-2g.48gb", "2", 1.0),
        ("amd.com/gpu", "2", 2.0),
        ("rdma/hca", "1", 0.0),
        ("cpu", "64", 0.0),
        (GPU, "1e1", 10.0),
        (GPU, "8000m", 8.0),
        (GPU, "1e400", MOST_AMOUNT),
        (GPU, "what?", 1.0),
    ],
)
def test_what_counts_as_a_gpu(resource: str, amount: str, gpus: float) -> None:
    """A part by its slices; an amount that cannot be read holds something."""
    pod = pod_object("team", "p")
    pod["spec"]["containers"] = [{"name": "c", "resources": {"limits": {resource: amount}}}]

    assert facts_of(pod).gpus == pytest.approx(gpus)


@pytest.mark.parametrize(
    "resource",
    [
        *("nvidia.com/gpumem", "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage", "tencent.com/vcuda-core"),
        *(
            "tke.cloud.tencent.com/qgpu-memory",
            "gpu.intel.com/i915",
            "nvidia.com/GA102GL_A10",
            "volcano.sh/vgpu-number",
        ),
    ],
)
def test_parts_of_a_gpu_under_another_name_are_held(resource: str) -> None:
    """Its people's consent is asked for, however a cluster shares its GPUs; nobody knows how many GPUs that is."""
    pod = pod_object("team", "p")
    pod["spec"]["containers"] = [{"name": "c", "resources": {"limits": {resource: "3000"}}}]
    assert facts_of(pod).gpus == 1.0

    pod["spec"]["containers"][0]["resources"]["limits"] |= {GPU: "2"}
    assert facts_of(pod).gpus == 2.0

    pod["spec"]["containers"] = [{"name": "c", "resources": {"limits": {resource: "0"}}}]
    assert facts_of(pod).gpus == 0.0


def test_a_device_claim_counts_as_a_gpu() -> None:
    """By Dynamic Resource Allocation; its driver is not asked, so that it is never too few."""
    assert facts_of(pod_object("team", "p", resourceClaims=[{"name": "gpu"}])).gpus == 1.0


@pytest.mark.parametrize(
    ("volume", "lost"),
    [
        ({"emptyDir": {}}, "scratch"),
        ({"emptyDir": {"medium": ""}}, "scratch"),
        ({"emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}, None),
        ({"emptyDir": {"medium": "HugePages-2Mi"}}, None),
        ({"emptyDir": {"medium": "Unheard"}}, "scratch"),
        ({"ephemeral": {"volumeClaimTemplate": {}}}, "scratch"),
        ({"configMap": {"name": "scratch"}}, None),
    ],
)
def test_what_a_pod_would_lose_is_on_a_disk(volume: dict[str, Any], lost: str | None) -> None:
    """What is in memory, as each trainer's /dev/shm, goes with a pod's processes, whoever ends them."""
    assert facts_of(pod_object("team", "p", volumes=[{"name": "scratch", **volume}])).local_data == lost


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_none(phase: str) -> None:
    """It holds nothing any more."""
    pod = msgspec.json.decode(json.dumps(pod_object("team", "p", node="n", phase=phase)), type=PodObject)

    assert pod_facts(pod, GPU_RESOURCES) is None


def test_where_a_pending_pod_may_go_is_kept() -> None:
    """Its selector, its affinity, its tolerations and the scheduler's sentence; of a running one none of that."""
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    asks: dict[str, Any] = {
        "nodeSelector": {"pool": "a"},
        "affinity": affinity,
        "tolerations": [{"key": GPU, "operator": "Exists"}],
    }
    pod = pod_object("team", "p", gpus=1, **asks)
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]

    found = facts_of(pod)

    assert found.placement is not None
    assert found.placement.selector == {"pool": "a"}
    assert found.placement.alternatives == ((Requirement(key="zone", operator="In", values=("a",)),),)
    assert found.placement.tolerations == (Toleration(key=GPU, operator="Exists"),)
    assert found.unschedulable == "0/3 nodes are available"
    assert facts_of(pod_object("team", "p", node="n", gpus=1, **asks)).placement is None


def test_a_pod_with_gates_was_not_tried() -> None:
    """Its condition has the same status and another reason: no node is missing for it."""
    pod = pod_object("team", "p", gpus=1)
    told = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "Scheduling is blocked."}
    pod["status"]["conditions"] = [told]

    assert facts_of(pod).unschedulable is None


def test_a_node_offers_what_its_device_plugin_says() -> None:
    """None where nothing offers GPUs, which is not zero GPUs."""

    def gpus(**offered: str) -> float | None:
        node = node_object("n", gpus=0, taints=[{"key": GPU, "effect": "NoSchedule"}])
        node["status"]["allocatable"] |= {key.replace("_", "/"): value for key, value in offered.items()}
        found = node_facts(msgspec.json.decode(json.dumps(node), type=NodeObject), GPU_RESOURCES)
        assert found.taints == (Taint(key=GPU, effect="NoSchedule"),)
        return found.gpus

    assert gpus() is None
    assert gpus(**{GPU.replace("/", "_"): "8"}) == 8.0
    assert gpus(**{GPU.replace("/", "_"): "0"}) == 0.0
    assert gpus(**{"nvidia.com_mig-1g.10gb": "7"}) == pytest.approx(1.0)


def test_the_owner_of_a_kubeflow_profile_is_an_owner() -> None:
    """Kubeflow writes it on the namespace; our own annotation comes first."""

    def owner(**annotations: str) -> str | None:
        told = {"metadata": {"name": "n", "uid": "u", "annotations": annotations}}
        described = msgspec.json.decode(json.dumps(told), type=Described)
        return owner_facts(described, of_namespace=True).annotations.get(OWNER)

    assert owner(owner="ann@example.com") == "ann@example.com"
    assert owner(**{"owner": "ann@example.com", OWNER: "bob"}) == "bob"
    assert owner() is None


def _rule(action: str, **on: object) -> dict[str, Any]:
    return {"action": action, **on}


_TAKEN = [{"type": "DisruptionTarget", "status": "True"}]


@pytest.mark.parametrize(
    ("spec", "failed", "once"),
    [
        ({}, None, False),
        ({}, 5, False),
        ({}, 6, True),
        ({"backoffLimit": 0}, None, True),
        ({"backoffLimit": 1}, 0, False),
        ({"backoffLimit": 1}, 1, True),
        ({"backoffLimit": 2147483647, "backoffLimitPerIndex": 0}, None, True),
        ({"backoffLimit": 0, "podFailurePolicy": {"rules": [_rule("Ignore", onPodConditions=_TAKEN)]}}, None, False),
        ({"backoffLimit": 9, "podFailurePolicy": {"rules": [_rule("FailJob", onPodConditions=_TAKEN)]}}, None, True),
        ({"backoffLimit": 9, "podFailurePolicy": {"rules": [_rule("Count", onPodConditions=_TAKEN)]}}, None, False),
        ({"backoffLimit": 9, "podFailurePolicy": {"rules": [_rule("FailJob", onExitCodes={"values": [3]})]}}, 0, True),
    ],
)
def test_a_job_without_a_failure_left_makes_no_pod_again(
    spec: dict[str, Any], failed: int | None, *, once: bool
) -> None:
    """An eviction is a failure like others, unless the Job's own policy lets it pass."""
    made = {**job_object("team", "train"), "spec": spec, "status": {"failed": failed}}

    assert job_facts(msgspec.json.decode(json.dumps(made), type=JobObject)).once is once


def test_the_marks_of_who_makes_machines_are_kept() -> None:
    """Cluster API, and OpenShift's own."""
    marks = {"machine.openshift.io/machine": "m/gpu-7"}
    marks |= {f"cluster.x-k8s.io/{key}": "gpu-7" for key in ("machine", "cluster-name")}
    node = msgspec.json.decode(json.dumps(node_object("n", annotations={**marks, "other": "x"})), type=NodeObject)

    assert node_facts(node, GPU_RESOURCES).annotations == marks


def test_only_annotations_that_mean_something_are_kept() -> None:
    """Those of kubectl alone may be larger than everything else."""
    pod = pod_object("team", "p", annotations={"kubectl.kubernetes.io/last-applied": "x" * 9999, PROTECT: "true"})

    assert facts_of(pod).annotations == {PROTECT: "true"}


def test_a_protection_that_was_written_as_a_label_is_one() -> None:
    """`kubectl label` in place of `kubectl annotate`; a consent by label is none, and the annotation comes first."""
    words = {PROTECT: "true", SNOOZE_UNTIL: "tomorrow", INTERRUPTIBLE: "true", IDLE_ACTION: "stop"}

    assert facts_of(pod_object("team", "p", labels=words)).annotations == {PROTECT: "true", SNOOZE_UNTIL: "tomorrow"}
    both = pod_object("team", "p", labels={PROTECT: "true"}, annotations={PROTECT: "false"})
    assert facts_of(both).annotations == {PROTECT: "false"}


def test_a_slip_of_a_key_is_kept() -> None:
    """It may be a protection."""
    pod = pod_object("team", "p", annotations={"gpuwatch.io/protekt": "true", "example.com/gpuwatch": "x"})

    assert facts_of(pod).annotations == {"gpuwatch.io/protekt": "true"}


@pytest.mark.parametrize(
    "text",
    [None, "", "yesterday", "2026-11-23T12:00:00", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"],
)
def test_what_is_no_time_is_none(text: str | None) -> None:
    """One without a zone neither, nor one that no calendar has in UTC: anybody in the cluster may annotate it."""
    assert time_of(text) is None


@pytest.mark.parametrize(
    ("marks", "labels", "spec", "gang"),
    [
        ({"scheduling.k8s.io/group-name": "train"}, {}, {}, "train"),
        ({"pod-group-name": "train"}, {}, {}, "train"),
        ({"yunikorn.apache.org/task-group-name": "workers"}, {"applicationId": "app-7"}, {}, "app-7"),
        ({"yunikorn.apache.org/task-group-name": "w", "yunikorn.apache.org/app-id": "app-8"}, {}, {}, "app-8"),
        ({}, {}, {"schedulingGroup": {"podGroupName": "train-0"}}, "train-0"),
        ({}, {"applicationId": "yunikorn-team-autogen"}, {}, None),
        ({"other": "x"}, {}, {"schedulingGroup": {}}, None),
    ],
)
def test_a_gang_is_known_by_what_its_scheduler_reads(
    marks: dict[str, str], labels: dict[str, str], spec: dict[str, Any], gang: str | None
) -> None:
    """Volcano, KAI, YuniKorn's task groups, and Kubernetes' own; YuniKorn names an application for every pod."""
    made = pod_object("team", "p", annotations=marks, labels=labels)
    made["spec"] |= spec
    facts = pod_facts(msgspec.json.decode(json.dumps(made), type=PodObject), GPU_RESOURCES)

    assert facts is not None
    assert facts.labels.get(GANG) == gang
