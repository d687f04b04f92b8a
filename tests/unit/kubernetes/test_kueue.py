"""What waits in Kueue's queues: Workloads as pods that wait, and those that wait for nothing."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.kubernetes.kueue import QueuedFacts, QueuedObject, queued_facts, waiting_pods
from gpuwatch.kubernetes.settings import GPU_RESOURCES
from gpuwatch.model.kubernetes import Pod
from tests.support.builders.kubernetes import queued_object

MADE, MOMENT = datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 23, 12, tzinfo=UTC)


def facts_of(read: dict[str, Any], uid: str = "uid-1") -> QueuedFacts:
    """Of a Workload in the form of the API."""
    read["metadata"] |= {"uid": uid, "creationTimestamp": "2026-11-20T00:00:00Z"}
    return queued_facts(msgspec.json.decode(json.dumps(read), type=QueuedObject), GPU_RESOURCES)


def pods_of(read: dict[str, Any], there: set[str] | None = None) -> list[Pod]:
    """The pods that wait for it."""
    return list(waiting_pods([facts_of(read)], there or set()))


@pytest.mark.parametrize(
    ("conditions", "since"),
    [
        ({}, MADE),
        ({"QuotaReserved": "Pending"}, MADE),
        ({"QuotaReserved": "True"}, MOMENT),
        ({"QuotaReserved": "True", "Admitted": "True"}, MOMENT),
        ({"Evicted": "Preempted", "QuotaReserved": "Pending"}, MADE),
    ],
)
def test_a_workload_that_waits_is_as_many_pods_as_it_will_have(conditions: dict[str, str], since: datetime) -> None:
    """They belong together, and fit nodes as they will."""
    pods = pods_of(queued_object("team", "job-train", count=4, conditions=conditions, nodeSelector={"gpu": "h100"}))

    assert [(pod.gpus, pod.created_at) for pod in pods] == [(8.0, since)] * 4
    assert len({pod.group for pod in pods}) == 1
    assert len({pod.uid for pod in pods}) == 4
    assert all(pod.placement is not None and pod.placement.selector == {"gpu": "h100"} for pod in pods)
    assert {str(pod.workload) for pod in pods} == {"Workload team/job-train"}
    assert {pod.unschedulable for pod in pods} == {None}, "no pool grows for it: its quota says whether it may run"


@pytest.mark.parametrize(
    "read",
    [
        queued_object("team", "done", conditions={"Finished": "JobFinished"}),
        queued_object("team", "off", active=False),
        queued_object("team", "held", conditions={"Evicted": "ClusterQueueStopped", "QuotaReserved": "Pending"}),
        queued_object(
            "team", "shut", conditions={"QuotaReserved": "Inadmissible"}, message="ClusterQueue q is inactive"
        ),
        queued_object(
            "team", "lost", conditions={"QuotaReserved": "Inadmissible"}, message="LocalQueue q doesn't exist"
        ),
        queued_object("team", "cpu", gpus=0),
        queued_object("team", "none", count=0),
    ],
    ids=lambda read: str(read["metadata"]["name"]),
)
def test_what_will_not_run_waits_for_nothing(read: dict[str, Any]) -> None:
    """One dead Workload would keep every GPU of a company."""
    assert pods_of(read) == []


def test_pods_that_exist_speak_for_themselves() -> None:
    """No GPU is waited for twice."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "uid": "uid-job"}}
    read = queued_object("team", "job-train", owner=job)
    assert len(pods_of(read)) == 1
    assert pods_of(read, {"uid-job"}) == []


def test_one_pod_alone_is_no_gang() -> None:
    """It waits as any other pod by itself."""
    (pod,) = pods_of(queued_object("team", "one"))
    assert pod.group is None


@given(st.lists(st.integers(0, 10_000), max_size=8))
def test_a_queue_of_any_length_costs_a_bounded_number_of_pods(counts: list[int]) -> None:
    """The oldest come first."""
    queue = [
        facts_of(queued_object("team", f"w-{number}", count=count), f"uid-{number}")
        for number, count in enumerate(counts)
    ]
    found = list(waiting_pods(queue, set()))
    assert len(found) == min(1_024, sum(min(count, 256) for count in counts))
    assert timedelta(0) <= MOMENT - MADE


def test_a_workload_that_was_admitted_in_part_waits_for_that_part() -> None:
    """Its other pods will not come."""
    read = queued_object("team", "job-train", count=4, conditions={"QuotaReserved": "True", "Admitted": "True"})
    read["status"]["admission"] = {"clusterQueue": "all", "podSetAssignments": [{"name": "main", "count": 2}]}
    assert len(pods_of(read)) == 2

    read["status"]["admission"] = {"clusterQueue": "all", "podSetAssignments": [{"name": "main"}]}
    assert len(pods_of(read)) == 4


@pytest.mark.parametrize("status", [{"clusterName": "west"}, {"nominatedClusterNames": ["west", "east"]}])
def test_what_another_cluster_runs_keeps_no_node_here(status: dict[str, Any]) -> None:
    """MultiKueue has given it away; its pods never come."""
    read = queued_object("team", "job-train", conditions={"QuotaReserved": "True", "Admitted": "True"})
    assert pods_of(read)
    read["status"] |= status
    assert not pods_of(read)
