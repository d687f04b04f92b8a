"""agent/evidence/slurm_queue.py: which pending jobs could start on a node, by squeue's lines."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.evidence.slurm_queue import SlurmNode, jobs_for, node_in_slurm

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
NODE = node_in_slurm("gpu-07", ["idle|gpu|a10g,ib|gpu:a10g:4(S:0-1)", "idle|debug|a10g,ib|gpu:a10g:4(S:0-1)"])


def waits(
    reason: str = "Priority",
    *,
    node: SlurmNode = NODE,
    partition: str = "gpu",
    count: int = 1,
    start: str = "N/A",
    **wants: str,
) -> bool:
    """Whether such a job could start on the node."""
    given_ = {"planned": "(null)", "wanted": "", "excluded": "", "gpus": "N/A", "features": "(null)"} | wants
    parts = ("planned", "wanted", "excluded", "gpus", "features")
    line = "|".join(["812_[5-9%1]", partition, reason, start, str(count), *(given_[part] for part in parts)])
    found = list(jobs_for(node, line, NOW))
    assert all(each.job == "812_[5-9%1]" and each.reason == reason for each in found)
    return bool(found)


@pytest.mark.parametrize(
    "reason",
    ["JobArrayTaskLimit", "Dependency", "Reservation", "Priority", "Licenses", "AssocGrpGRES", "new one"],
)
def test_what_waits_for_something_that_may_happen_keeps_the_node(reason: str) -> None:
    """A throttled array between two tasks, a job after another one; also a reason that nobody here knows."""
    assert waits(reason)


@pytest.mark.parametrize("reason", ["JobHeldUser", "JobHeldAdmin", "BadConstraints", "DependencyNeverSatisfied"])
def test_what_waits_for_a_person_or_for_ever_does_not(reason: str) -> None:
    """A job that is held since May."""
    assert not waits(reason)


def test_a_job_of_several_nodes_that_waits_for_resources_may_need_this_one() -> None:
    """One that wants a single node was looked at by Slurm, which did not start it here."""
    assert waits("Resources", count=4)
    assert not waits("Resources", count=1)


def test_another_partition_is_elsewhere() -> None:
    """A job may name several; of a node without known partitions each job may be its own."""
    assert not waits(partition="cpu")
    assert waits(partition="cpu,debug")
    assert waits(partition="cpu", node=SlurmNode(name="gpu-07"))


@pytest.mark.parametrize(
    ("names", "has"),
    [
        ("gpu-07", True),
        ("gpu-[01-04,7]", True),
        ("gpu-[1-6],gpu-07", True),
        ("gpu-[01-06]", False),
        ("gpu-[08-20]", False),
        ("cpu-[01-20]", False),
        ("gpu-070", False),
        ("gpu-[01-20].x", False),
    ],
)
def test_lists_of_nodes(names: str, *, has: bool) -> None:
    """As Slurm writes them: for whom it is planned, who is asked for, who is excluded."""
    assert waits(planned=names) is has
    assert waits(wanted=names) is has
    assert waits(excluded=names) is not has


def test_other_features_and_other_gpus_are_elsewhere() -> None:
    """Any GPU is this one's, too; an expression is not worked out, and counts."""
    assert not waits(features="h100")
    assert waits(features="ib")
    assert waits(features="h100|a10g")
    assert not waits(gpus="gres/gpu:h100:8")
    assert waits(gpus="gres/gpu:A10G:1")
    assert waits(gpus="gres/gpu:2")


@given(st.integers(-48, 96))
def test_a_time_counts_within_a_day(hours: int) -> None:
    """As that of a crontab; a time that is over counts."""
    start = (NOW + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S")
    assert waits("BeginTime", start=start) is (hours <= 26)


@pytest.mark.parametrize("line", ["slurm_load_jobs error: Unable to contact", "812", "|||||||||", "812|gpu|Priority"])
def test_another_answer_is_an_error(line: str) -> None:
    """Never an empty queue."""
    with pytest.raises(ValueError, match="pending jobs"):
        list(jobs_for(NODE, line, NOW))
