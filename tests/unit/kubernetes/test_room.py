"""Which nodes are places for pods, and what of a pod goes with it."""

import json

import msgspec
import pytest

from gpuwatch.kubernetes.claims import Disks
from gpuwatch.kubernetes.facts import node_facts, pod_facts
from gpuwatch.kubernetes.objects import NodeObject, PodObject
from gpuwatch.kubernetes.room import room_of
from gpuwatch.model.placing import NODE_NAME, Disk, Place
from tests.support.builders.kubernetes import node_object, pod_object


def place(*taints: str, ready: bool = True, deleted: bool = False, **spec: object) -> Place:
    """A node as pods see it."""
    made = node_object("n", ready=ready, taints=[{"key": key, "effect": "NoSchedule"} for key in taints])
    made["spec"] |= spec
    made["metadata"] |= {"deletionTimestamp": "2026-11-23T12:00:00Z"} if deleted else {}
    (found,) = room_of([node_facts(msgspec.json.decode(json.dumps(made), type=NodeObject), ())], [], Disks()).places
    return found


def test_a_node_that_is_up_is_a_place() -> None:
    """With what its kubelet offers, and its name where an affinity asks for it."""
    found = place("nvidia.com/gpu")

    assert (found.closed, found.labels[NODE_NAME]) == (False, "n")
    assert (found.offers["cpu"], found.offers["pods"], found.offers["nvidia.com/gpu"]) == (96_000, 110, 8)


@pytest.mark.parametrize(
    "taint",
    [
        *("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "karpenter.sh/disrupted"),
        *("node.cilium.io/agent-not-ready", "node.kubernetes.io/disk-pressure", "node.kubernetes.io/unschedulable"),
        *("node.cloudprovider.kubernetes.io/uninitialized", "gpuwatch.io/unhealthy", "example.com/startup"),
    ],
)
def test_a_node_that_comes_or_goes_is_none_whatever_a_pod_bears(taint: str) -> None:
    """A pod that tolerates everything would be evicted a second time."""
    assert place(taint).closed


def test_a_node_that_takes_nobody_is_none() -> None:
    """Cordoned by whomever, not ready, or deleted."""
    assert place(unschedulable=True).closed
    assert place(ready=False).closed
    assert place(deleted=True).closed


def test_a_taint_that_repeats_a_condition_counts_no_more_than_that() -> None:
    """It is taken away some seconds after the node is ready."""
    found = place("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

    assert (found.closed, found.taints) == (False, ())


def test_a_pod_takes_its_claims_along_and_one_that_is_not_known_is_a_doubt() -> None:
    """With the name that people gave it."""
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    made = pod_object("team", "db-0", node="n", volumes=volumes)
    facts = pod_facts(msgspec.json.decode(json.dumps(made), type=PodObject), ())
    assert facts is not None
    (pod,) = room_of([], [facts], Disks()).pods

    assert (pod.name, pod.node) == ("team/db-0", "n")
    assert pod.disks == (Disk(name="data", doubt="its claim does not exist"),)
