"""model/slurm_queue.py: which idle nodes the waiting jobs of Slurm need, by squeue's lines."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.controller.slurm.scontrol import parse_nodes
from gpuwatch.model.slurm import SlurmNode
from gpuwatch.model.slurm_listing import QueuedJob, node_in_slurm, parse_queue, total_gpus
from gpuwatch.model.slurm_queue import could_use, held_nodes

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
NODE = node_in_slurm("gpu-07", ["idle|gpu|a10g,ib|gpu:a10g:4(S:0-1)", "idle|debug|a10g,ib|gpu:a10g:4(S:0-1)"])


def a_line(**told: object) -> str:
    """A line of squeue, of a job that waits for its turn."""
    said = {
        "state": "PD",
        "user": "ann",
        "submitted": "2026-01-05T07:00:00",
        "reservation": "(null)",
        "memory": "0",
        "depends": "(null)",
        "places": "",
        "job": "812",
        "partition": "gpu",
        "reason": "Priority",
        "start": "N/A",
        "count": "1",
        "planned": "(null)",
        "wanted": "",
        "excluded": "",
        "gpus": "N/A",
        "features": "(null)",
    }
    assert told.keys() <= said.keys()
    return "|".join(str(each) for each in (said | told).values())


def waits(reason: str = "Priority", *, node: SlurmNode = NODE, **told: object) -> bool:
    """Whether such a job holds the node, where no other is idle."""
    return bool(held_nodes(parse_queue(a_line(reason=reason, **told)), [node], NOW))


def nodes(*numbers: int) -> list[SlurmNode]:
    """Idle nodes with eight GPUs each."""
    return [node_in_slurm(f"gpu-{number}", ["idle|gpu|h100|gpu:h100:8"]) for number in numbers]


def held(*lines: str, among: Iterable[SlurmNode] = ()) -> list[str]:
    """The names of the nodes that these lines hold of ten."""
    found = held_nodes(parse_queue("\n".join(lines)), list(among) or nodes(*range(1, 11)), NOW)
    return sorted(found, key=lambda name: int(name.partition("-")[2]))


def first(count: int) -> list[str]:
    """The first so many of ten."""
    return [f"gpu-{number}" for number in range(1, count + 1)]


@pytest.mark.parametrize(
    "reason",
    ["JobArrayTaskLimit", "Dependency", "Reservation", "Priority", "Licenses", "AssocGrpGRES", "None", "new one"],
)
def test_what_waits_for_something_that_may_happen_keeps_the_node(reason: str) -> None:
    """A throttled array between two tasks, a job after another one; also a reason that nobody here knows."""
    assert waits(reason)


@pytest.mark.parametrize(
    "reason",
    [
        *("JobHeldUser", "JobHeldAdmin", "BadConstraints", "DependencyNeverSatisfied", "PartitionDown", "InvalidQOS"),
        *("PartitionTimeLimit", "PartitionNodeLimit", "PartitionConfig", "InvalidAccount", "DeadLine"),
        *("launch_failed_requeued_held", "job_requeued_in_held_state", "JobHoldMaxRequeue"),
        *("AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit", "QOSMaxNodePerJobLimit"),
        *("QOSMinCpuNotSatisfied", "QOSMinGRES", "AssocMaxGRESPerJob", "QOSMaxGRESPerNode", "AssocGrpCPUMinutesLimit"),
    ],
)
def test_what_waits_for_a_person_or_for_ever_does_not(reason: str) -> None:
    """A job that is held since May, one that its limits never let start, and a budget that is spent."""
    assert not waits(reason)
    assert held(a_line(reason=reason, count=10)) == []


@pytest.mark.parametrize("state", ["RH", "SE", "RV"])
def test_a_job_that_was_requeued_and_held_is_kept_for_nobody(state: str) -> None:
    """So is the copy of a federation's job that another cluster runs."""
    assert not waits("Priority", state=state)


def test_a_job_of_several_nodes_that_waits_for_resources_may_need_this_one() -> None:
    """One that wants a single node was looked at by Slurm, which did not start it here; if it had the time."""
    assert waits("Resources", count=4)
    assert not waits("Resources", count=1)
    assert not waits("ReqNodeNotAvail,_UnavailableNodes:gpu-3", count=1)
    assert waits("Resources", submitted="2026-01-05T07:50:00")
    assert waits("Resources", planned="gpu-07"), "Slurm plans it here"


def test_another_partition_is_elsewhere() -> None:
    """A job may name several; of a node without known partitions each job may be its own."""
    assert not waits(partition="cpu")
    assert waits(partition="cpu,debug")
    assert waits(partition="cpu", node=SlurmNode(name="gpu-07"))


@pytest.mark.parametrize(
    ("names", "within"),
    [
        ("gpu-07", True),
        ("gpu-[01-04,07]", True),
        ("gpu-[1-6],gpu-07", True),
        ("gpu-[01-06]", False),
        ("gpu-[08-20]", False),
        ("cpu-[01-20]", False),
        ("gpu-070", False),
        ("gpu-[001-020]", False),
        ("gpu-[01-20].x", False),
    ],
)
def test_lists_of_nodes(names: str, *, within: bool) -> None:
    """As Slurm writes them: for whom it is planned, who is asked for, who is excluded."""
    assert waits(planned=names) is within
    assert waits(wanted=names) is within
    assert waits(excluded=names) is not within
    assert waits(state="S", places=names) is within, "a suspended job is there"


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ("h100", False),
        ("ib", True),
        ("h100|a10g", True),
        ("h100|v100", False),
        ("a10g&ib", True),
        ("a10g&roce", False),
        ("h100&(ib|roce)", True),
        ("[rack1*1&rack2*1]", True),
    ],
)
def test_features(expression: str, *, fits: bool) -> None:
    """What has brackets is not worked out, and counts."""
    assert waits(features=expression) is fits


@pytest.mark.parametrize(
    ("gres", "fits"),
    [
        ("gres/gpu:2", True),
        ("gres:gpu:2", True),
        ("gpu:2", True),
        ("gres/gpu:A10G:1", True),
        ("gres/gpu:a10g=4", True),
        ("gres/gpu:h100:8", False),
        ("gres:gpu:v100:1", False),
        ("gpu:5", False),
        ("gres/gpu:h100:1,gres/gpu:a10g:1", False),
        ("gres/shard:4", True),
        ("gres/mps:50", True),
    ],
)
def test_gpus_as_each_version_writes_them(gres: str, *, fits: bool) -> None:
    """20.11 without a prefix, later ones with it; all kinds have to be there, and shards are on some GPU."""
    assert waits(gpus=gres) is fits


def test_memory_that_no_node_has() -> None:
    """2 TB on nodes with one."""
    node = SlurmNode(name="gpu-07", megabytes=1_031_000.0)
    assert not waits(memory="2T", node=node)
    assert waits(memory="900G", node=node)
    assert waits(memory="?", node=node)


@pytest.mark.parametrize(("cpus", "there", "fits"), [(64, 32, False), (32, 32, True), (64, None, True), (0, 32, True)])
def test_cpus_that_no_node_has(cpus: int, there: int | None, *, fits: bool) -> None:
    """Where both are known: a job of 64 neither holds nor wakes a node of 32."""
    job = QueuedJob(job="901", reason="Priority", partitions=("gpu",), cpus=cpus)
    assert could_use(job, SlurmNode(name="gpu-07", partitions=("gpu",), cpus=there)) is fits


@given(st.integers(-48, 96))
def test_a_time_counts_within_a_day(hours: int) -> None:
    """As that of a crontab; a time that is over counts."""
    start = (NOW + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S")
    assert waits("BeginTime", start=start) is (hours <= 26)


def test_what_has_waited_for_more_than_a_week_holds_nothing() -> None:
    """A licence that nobody has bought."""
    assert waits("Licenses", submitted="2025-12-30T08:00:00")
    assert not waits("Licenses", submitted="2025-12-29T07:00:00")


# A queue, and how many of ten idle nodes it holds.
QUEUES = {
    "one node": ([a_line()], 1),
    "two nodes of ten": ([a_line(count=2, reason="Resources")], 2),
    "an array without a limit": ([a_line(job="812_[5-7]")], 3),
    "every third task": ([a_line(job="812_[1-9:3]")], 3),
    "an array that runs one at a time, between two tasks": (
        [a_line(job="812_[7-40%1]", reason="JobArrayTaskLimit")],
        1,
    ),
    "an array whose limit is used up": (
        [a_line(job="812_[17-400%2]", reason="JobArrayTaskLimit")]
        + [a_line(job=f"812_{task}", state="R", places="gpu-99") for task in (1, 2)],
        0,
    ),
    "a list of tasks that was cut": ([a_line(job="812_[1,3,5,7,9,...]")], 10),
    "three jobs of one person under one limit": (
        [a_line(job=str(number), reason="QOSMaxGRESPerUser") for number in (1, 2, 3)],
        1,
    ),
    "two people under their limits": (
        [a_line(job=name, user=user, reason="AssocMaxJobsLimit") for name, user in (("1", "ann"), ("2", "bob"))],
        2,
    ),
    "a chain whose first link runs": (
        [a_line(job="905", state="R", places="gpu-99")]
        + [
            a_line(job=str(number), reason="Dependency", depends=f"afterok:{number - 1}(unfulfilled)", count=2)
            for number in (906, 907, 908)
        ],
        2,
    ),
    "one job of a name at a time": (
        [a_line(job=str(number), reason="Dependency", depends="singleton(unfulfilled)") for number in (1, 2, 3)],
        1,
    ),
    "one of two others is enough": (
        [a_line(job="906"), a_line(job="907", reason="Dependency", depends="afterany:906?afterok:905", count=2)],
        3,
    ),
    "both parts of a heterogeneous job": (
        [
            a_line(job="950+0", partition="cpu", count=40, reason="Resources"),
            a_line(job="950+1", count=2, reason="None"),
        ],
        2,
    ),
    "a part of a heterogeneous job that waits for the other": ([a_line(job="951+1", reason="Resources")], 1),
    "requeued after a crash, in two minutes": (
        [a_line(job="960", reason="BeginTime", start="2026-01-05T08:02:00", count=2)],
        2,
    ),
    "a crontab of Sunday": ([a_line(job="777", reason="BeginTime", start="2026-01-10T03:00:00")], 0),
    "names of which one is not idle": ([a_line(wanted="gpu-[3,11]", count=2, reason="Resources")], 1),
    "one named node, and any other": ([a_line(wanted="gpu-9", count=2)], 2),
    "a job of another partition": ([a_line(partition="cpu", count=10)], 0),
    "nothing waits": ([], 0),
}


@pytest.mark.parametrize(("lines", "count"), QUEUES.values(), ids=QUEUES)
def test_a_job_holds_as_many_nodes_as_it_needs(lines: list[str], count: int) -> None:
    """The same ones each time, whatever order they are listed in."""
    found = held(*lines)
    assert len(found) == count
    assert found == held(*lines, among=reversed(nodes(*range(1, 11))))


def test_the_nodes_that_are_asked_for_come_first_and_then_the_first_by_name() -> None:
    """Those that are about to be stopped come last: another idle one serves as well."""
    assert held(a_line(wanted="gpu-9", count=2)) == ["gpu-1", "gpu-9"]
    leaving = SlurmNode(
        name="gpu-1",
        states=("IDLE", "DRAIN"),
        reason="gpuwatch: idle, and about to be stopped gpuwatch-0a1b2c-7-89abcdef",
    )
    assert held(a_line(), among=[leaving, *nodes(2)]) == ["gpu-2"]
    assert held(a_line(count=2), among=[leaving, *nodes(2)]) == ["gpu-1", "gpu-2"]


def test_jobs_of_a_reservation_hold_its_nodes_alone() -> None:
    """Where its nodes are known."""
    queue = parse_queue(a_line(reason="Reservation", reservation="course", count=2))
    assert set(held_nodes(queue, nodes(1, 2, 8, 9), NOW, {"course": "gpu-[8-9]"})) == {"gpu-8", "gpu-9"}
    assert set(held_nodes(queue, nodes(1, 2, 8, 9), NOW)) == {"gpu-1", "gpu-2"}


@pytest.mark.parametrize(
    ("per_job", "per_task", "tasks", "gpus"),
    [
        ("gres/gpu:16", "N/A", "1", 16),
        ("gres:gpu:h100:16", "N/A", "1", 16),
        ("gpu:16", "(null)", "1", 16),
        ("gres/gpu:8", "N/A", "1", 8),
        ("gres/gpu:2080ti:16", "N/A", "1", 16),
        ("N/A", "gres/gpu:1", "12", 12),
        ("N/A", "N/A", "12", 0),
        ("gres/shard:4", "N/A", "1", 0),
    ],
)
def test_gpus_of_the_whole_job(per_job: str, per_task: str, tasks: str, gpus: int) -> None:
    """Sixteen are two nodes with eight each."""
    assert total_gpus(per_job, per_task, tasks) == gpus
    job = QueuedJob(job="1", reason="Resources", partitions=("gpu",), gpus=gpus)
    assert len(held_nodes([job], nodes(*range(1, 11)), NOW)) == (2 if gpus > 8 else 0)


@pytest.mark.parametrize("line", ["slurm_load_jobs error: Unable to contact", "812", "|" * 16, "812|gpu|Priority"])
def test_another_answer_is_an_error(line: str) -> None:
    """Never an empty queue."""
    with pytest.raises(ValueError, match="list of jobs"):
        parse_queue(line)


LINES = st.fixed_dictionaries(
    {
        "job": st.sampled_from(["7", "8_[1-4%2]", "9+1", "10_3"]),
        "state": st.sampled_from(["PD", "R", "S", "RH"]),
        "reason": st.sampled_from(["Priority", "Resources", "Dependency", "AssocGrpGRES", "JobHeldUser"]),
        "count": st.integers(1, 4),
        "user": st.sampled_from(["ann", "bob"]),
        "wanted": st.sampled_from(["", "gpu-[2-3]", "gpu-11"]),
        "features": st.sampled_from(["(null)", "h100", "a10g"]),
        "depends": st.sampled_from(["(null)", "afterok:7(unfulfilled)"]),
    }
)


@given(st.lists(LINES, max_size=4), st.lists(st.integers(1, 11), unique=True, max_size=11))
def test_what_is_held_is_idle_could_be_used_and_is_not_more_than_is_asked_for(
    queue: list[dict[str, object]], idle: list[int]
) -> None:
    """And an idle node more takes none away from what is held: the pool only has more to give."""
    jobs, free = parse_queue("\n".join(a_line(**each) for each in queue)), nodes(*idle)
    found = held_nodes(jobs, free, NOW)
    assert set(found) <= {node.name for node in free}
    for job in jobs:
        mine = [node for node in free if found.get(node.name) == job]
        assert all(could_use(job, node) for node in mine)
        assert len(mine) <= job.count * job.tasks * [each.job for each in jobs].count(job.job)
    assert len(held_nodes(jobs, [*free, *nodes(12)], NOW)) >= len(found)


@pytest.mark.parametrize(
    ("gres", "fits"),
    [
        ("gres:gpu:h100:4", True),
        ("gres:gpu:h100:5", False),
        ("gres:gpu:a100:2,gres:gpu:h100:4", True),
        ("gres:gpu:a100:3", False),
        ("gres:gpu:v100:1", False),
        ("gres:gpu:6", True),
        ("gres:gpu:7", False),
        ("gres/gpu:H100=4", True),
    ],
)
def test_each_kind_of_gpu_has_to_be_there_in_its_number(gres: str, *, fits: bool) -> None:
    """Four of one kind and two of another are not six of either."""
    node = node_in_slurm("gpu-1", ["idle|all|(null)|gpu:h100:4,gpu:a100:2"])
    assert could_use(QueuedJob(job="1", reason="Priority", partitions=("all",), gres=gres), node) is fits


@pytest.mark.parametrize(
    ("there", "asked", "fits"),
    [
        ("gpu:2080ti:8(S:0-1)", "gres/gpu:2080ti:8", True),
        ("gpu:3090:4", "gres:gpu:3090:4", True),
        ("gpu:3090:4", "gres/gpu:4", True),
        ("gpu:3090:4", "gres/gpu:3090:5", False),
        ("gpu:3090:4", "gres/gpu:4090:1", False),
        ("gpu:1g.10gb:7", "gres/gpu:7", True),
        ("gpu:a100:no_consume:2", "gres/gpu:a100:2", True),
        ("gpu:a100:no_consume:2", "gres/gpu:3", False),
        ("gpu:no_consume:2(S:0-1)", "gres/gpu:2", True),
        ("gpu:1g.10gb:7", "gres/gpu:1g.10gb:7", True),
        ("gpu:1g.10gb:7", "gres/gpu:3g.40gb:1", False),
        ("gpu:a100:2,gpu:1g.10gb:7", "gres:gpu:9", True),
        ("gpu:a100:2,gpu:1g.10gb:7", "gres:gpu:10", False),
    ],
)
def test_kinds_that_begin_with_digits(there: str, asked: str, *, fits: bool) -> None:
    """Cards such as 2080ti and 3090, and parts of a GPU, which Slurm counts as GPUs; from scontrol as from sinfo."""
    job = QueuedJob(job="1", reason="Priority", partitions=("all",), gres=asked)
    (node,) = parse_nodes(f"NodeName=n Arch=x86_64\n   Gres={there}\n   State=IDLE\n   Partitions=all \n")
    assert could_use(job, node) is fits
    assert could_use(job, node_in_slurm("n", [f"idle|all|(null)|{there}"])) is fits


@pytest.mark.parametrize(("kinds", "fits"), [({"h100"}, True), ({"v100", "a100"}, True), ({"v100"}, False)])
def test_a_job_that_asks_for_a_kind_as_a_whole_needs_nodes_that_have_some(kinds: set[str], *, fits: bool) -> None:
    """`--gpus=v100:8` has no use for others; of a node whose kinds nobody names it is not known."""
    job = QueuedJob(job="1", reason="Priority", partitions=("all",), gpus=8, kinds=frozenset(kinds))
    assert could_use(job, node_in_slurm("gpu-1", ["idle|all|(null)|gpu:h100:4,gpu:a100:2"])) is fits
    assert could_use(job, node_in_slurm("gpu-1", ["idle|all|(null)|gpu:8"]))
