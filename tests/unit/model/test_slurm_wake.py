"""model/slurm_wake.py: which nodes that are off are started for Slurm's queue, case by case."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.slurm import SlurmNode
from gpuwatch.model.slurm_listing import QueuedJob, Reservation, node_in_slurm
from gpuwatch.model.slurm_queue import could_use
from gpuwatch.model.slurm_wake import woken_nodes

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
LATELY = NOW.replace(tzinfo=None) - timedelta(minutes=5)
JOB = QueuedJob(job="901", reason="Resources", user="ann", partitions=("gpu",), gres="gpu:1", submitted=LATELY)


def nodes(*numbers: int, partition: str = "gpu", gres: str = "gpu:h100:8") -> list[SlurmNode]:
    """Nodes with eight GPUs each."""
    return [node_in_slurm(f"gpu-{number}", [f"down|{partition}|h100,ib|{gres}"]) for number in numbers]


def woken(
    *jobs: QueuedJob,
    idle: Iterable[SlurmNode] = (),
    coming: Iterable[SlurmNode] = (),
    asleep: Iterable[SlurmNode] = nodes(2, 3, 4),
    reservations: Iterable[Reservation] = (),
) -> str:
    """The numbers of the nodes that are started, each with its job's."""
    known = {each.name: each for each in reservations}
    found = woken_nodes(jobs, idle=idle, coming=coming, asleep=asleep, now=NOW, reservations=known)
    return " ".join(f"{name.removeprefix('gpu-')}:{job.number}" for name, job in sorted(found.items()))


def reserved(numbers: str, *, name: str = "course", begins: float = -1.0) -> Reservation:
    """Nodes that are somebody's from so many hours from now on."""
    start = NOW.replace(tzinfo=None) + timedelta(hours=begins)
    return Reservation(name=name, start=start, end=start + timedelta(hours=4), nodes=f"gpu-[{numbers}]")


def with_cpus(cpus: int) -> list[SlurmNode]:
    """Three nodes with so many CPUs each."""
    return [replace(each, cpus=cpus) for each in nodes(2, 3, 4)]


WHOLE = replace(JOB, gres="gpu:8")
ARRAY = replace(WHOLE, job="7_[1-9]", tasks=9)
GANG = replace(JOB, count=3)
CPUS = replace(JOB, gres="")


CASES = {
    "one job": (partial(woken, JOB), "2:901"),
    "one that Slurm has not looked at": (partial(woken, replace(JOB, reason="None")), ""),
    "its turn comes after another's": (
        partial(woken, replace(WHOLE, job="900"), replace(WHOLE, reason="Priority")),
        "2:900 3:901",
    ),
    "two jobs for one host": (partial(woken, JOB, replace(JOB, job="902")), "2:901"),
    "two jobs of a whole host each": (partial(woken, WHOLE, replace(WHOLE, job="902")), "2:901 3:902"),
    "an array of whole hosts": (partial(woken, ARRAY), "2:7 3:7 4:7"),
    "an array of one GPU each": (partial(woken, replace(ARRAY, gres="gpu:1", tasks=8)), "2:7"),
    "an array with a limit of two, of which one runs": (
        partial(woken, replace(ARRAY, limit=2), replace(WHOLE, job="7_1", state="R", reason="None", places="gpu-1")),
        "2:7",
    ),
    "an array at its limit": (partial(woken, replace(ARRAY, reason="JobArrayTaskLimit")), ""),
    "jobs without GPUs": (
        partial(woken, CPUS, replace(CPUS, job="902"), replace(CPUS, job="903_[1-50]", tasks=50)),
        "2:901",
    ),
    "several nodes": (partial(woken, GANG), "2:901 3:901 4:901"),
    "several nodes, more than there are": (partial(woken, replace(GANG, count=4)), ""),
    "several nodes, of which two are idle": (partial(woken, GANG, idle=nodes(8, 9)), "2:901"),
    "GPUs of a whole job": (partial(woken, replace(CPUS, gpus=16)), "2:901 3:901"),
    "an idle node": (partial(woken, JOB, idle=nodes(9)), ""),
    "an idle node that Slurm has long not used for it": (
        partial(woken, replace(JOB, submitted=LATELY - timedelta(hours=1)), idle=nodes(9)),
        "2:901",
    ),
    "a node on its way": (partial(woken, replace(JOB, submitted=LATELY - timedelta(hours=1)), coming=nodes(9)), ""),
    "an idle node that another job takes": (partial(woken, replace(WHOLE, job="900"), WHOLE, idle=nodes(9)), "2:901"),
    "held by its user": (partial(woken, replace(JOB, reason="JobHeldUser")), ""),
    "held by an operator": (partial(woken, replace(JOB, reason="JobHeldAdmin")), ""),
    "a dependency": (partial(woken, replace(JOB, reason="Dependency", depends=("900",))), ""),
    "a begin time": (partial(woken, replace(JOB, reason="BeginTime", start=NOW.replace(tzinfo=None))), ""),
    "a licence": (partial(woken, replace(JOB, reason="Licenses")), ""),
    "a limit of its account": (partial(woken, replace(JOB, reason="AssocGrpGRES")), ""),
    "a reservation that has not begun": (
        partial(
            woken, replace(JOB, reason="Reservation", reservation="course"), reservations=[reserved("2-4", begins=1.0)]
        ),
        "",
    ),
    "the nodes are in maintenance": (
        partial(woken, replace(JOB, reason="ReqNodeNotAvail, Reserved for maintenance")),
        "",
    ),
    "a partition that is down": (partial(woken, replace(JOB, reason="PartitionDown")), ""),
    "a wrong partition": (partial(woken, replace(JOB, partitions=("cpu",))), ""),
    "a feature that none has": (partial(woken, replace(JOB, features="a100&ib")), ""),
    "a GPU that none has": (partial(woken, replace(JOB, gres="gpu:a100:1")), ""),
    "more memory than any has": (
        partial(woken, replace(JOB, megabytes=9e6), asleep=[replace(each, megabytes=1e6) for each in nodes(2, 3)]),
        "",
    ),
    "more CPUs than any has": (partial(woken, replace(JOB, cpus=64), asleep=with_cpus(32)), ""),
    "CPUs of several tasks, of which one node has enough for half": (
        partial(woken, replace(JOB, all_cpus=64), asleep=with_cpus(32)),
        "2:901 3:901",
    ),
    "more CPUs in all than the nodes have": (partial(woken, replace(JOB, all_cpus=128), asleep=with_cpus(32)), ""),
    "two jobs with the CPUs of a whole host each": (
        partial(woken, replace(JOB, cpus=32), replace(JOB, job="902", cpus=32), asleep=with_cpus(32)),
        "2:901 3:902",
    ),
    "CPUs of several tasks on hosts of two sizes": (
        partial(woken, replace(JOB, all_cpus=96), asleep=[*with_cpus(32)[:1], *with_cpus(64)[1:2]]),
        "2:901 3:901",
    ),
    "two jobs that share a host's CPUs": (
        partial(woken, replace(JOB, cpus=16), replace(JOB, job="902", all_cpus=16), asleep=with_cpus(32)),
        "2:901",
    ),
    "nobody knows the nodes' CPUs": (partial(woken, replace(JOB, cpus=999, all_cpus=999)), "2:901"),
    "another node by name": (partial(woken, replace(JOB, wanted="gpu-1")), ""),
    "this node by name": (partial(woken, replace(JOB, wanted="gpu-3")), "3:901"),
    "without these nodes": (partial(woken, replace(JOB, excluded="gpu-[2-3]")), "4:901"),
    "nodes that are down": (
        partial(
            woken,
            replace(JOB, reason="Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority"),
        ),
        "2:901",
    ),
    "nodes that are unavailable": (
        partial(woken, replace(JOB, reason="ReqNodeNotAvail, UnavailableNodes:gpu-[2-4]")),
        "2:901",
    ),
    "planned by Slurm on a busy node tomorrow": (
        partial(woken, replace(JOB, planned="gpu-1", start=NOW.replace(tzinfo=None) + timedelta(days=2))),
        "2:901",
    ),
    "waits for more than a week": (partial(woken, replace(JOB, submitted=LATELY - timedelta(days=8))), ""),
    "in a reservation in force": (
        partial(woken, replace(JOB, reservation="course"), reservations=[reserved("4-5")]),
        "4:901",
    ),
    "others' reservation in force": (partial(woken, JOB, reservations=[reserved("1-3")]), "4:901"),
    "others' reservation tomorrow": (partial(woken, JOB, reservations=[reserved("1-3", begins=24.0)]), "2:901"),
    "it runs already": (partial(woken, replace(JOB, state="R", reason="None", places="gpu-1")), ""),
    "requeued and held": (partial(woken, replace(JOB, state="RH")), ""),
    "squeue says no nodes": (partial(woken, replace(CPUS, count=0)), "2:901"),
    "parts of GPUs": (
        partial(
            woken,
            *(replace(JOB, job=str(number), gres="gpu:1g.10gb:4") for number in (901, 902)),
            asleep=[replace(each, gpus=0) for each in nodes(2, 3, 4, gres="gpu:1g.10gb:7")],
        ),
        "2:901 3:902",
    ),
    "nobody knows the node's GPUs": (
        partial(woken, JOB, replace(JOB, job="902"), asleep=[SlurmNode(name="gpu-2"), SlurmNode(name="gpu-3")]),
        "2:901 3:902",
    ),
}


@pytest.mark.parametrize(("asked", "found"), CASES.values(), ids=list(CASES))
def test_a_job_wakes_the_hosts_that_it_lacks_and_no_more(asked: Callable[[], str], found: str) -> None:
    """Each case as Slurm's users make it; hosts 2, 3 and 4 are off, with eight GPUs each."""
    assert asked() == found


def _calls(asked: Callable[[], str]) -> int:
    """How many functions it calls."""
    count = 0

    def note(*_: object) -> None:
        nonlocal count
        count += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        asked()
    finally:
        sys.setprofile(before)
    return count


def test_a_long_queue_and_a_large_fleet_cost_what_either_costs() -> None:
    """Twice the hosts and tasks of an array make twice the work; a hundred jobs that are alike make little more."""
    tasks = [
        _calls(partial(woken, replace(ARRAY, gres="gpu:1", tasks=number * 8), asleep=nodes(*range(number))))
        for number in (100, 200)
    ]
    assert tasks[1] < 3 * tasks[0]
    course = [reserved("500-600"), reserved("700-800", name="other")]
    jobs = [replace(GANG, job=str(number), count=201) for number in range(100)]
    calls = _calls(partial(woken, *jobs, asleep=nodes(*range(200)), reservations=course))
    assert calls < 10 * 100 * 200, "jobs that are alike are compared with each host once for all"


JOBS = st.builds(
    QueuedJob,
    job=st.sampled_from(["7", "8_[1-4%2]", "9+1", "10_3"]),
    state=st.sampled_from(["PD", "PD", "R"]),
    reason=st.sampled_from(["Priority", "Resources", "Dependency", "JobHeldUser", "ReqNodeNotAvail"]),
    partitions=st.sampled_from([("gpu",), ("cpu",)]),
    count=st.integers(1, 3),
    tasks=st.integers(1, 5),
    gres=st.sampled_from(["", "gpu:1", "gpu:h100:8"]),
    gpus=st.sampled_from([0, 16]),
    submitted=st.just(LATELY),
)


@given(st.lists(JOBS, max_size=4), st.sets(st.integers(1, 9)), st.sets(st.integers(11, 19)))
def test_what_is_woken_could_be_used_and_the_same_jobs_wake_nothing_more_once_it_comes(
    jobs: list[QueuedJob], off: set[int], there: set[int]
) -> None:
    """Asking again while the hosts boot adds nothing."""
    asleep, idle = nodes(*off), nodes(*there)
    found = woken_nodes(jobs, idle=idle, coming=(), asleep=asleep, now=NOW, reservations={})
    by_name = {node.name: node for node in asleep}
    assert all(could_use(job, by_name[name]) and job.state == "PD" for name, job in found.items())
    coming = [by_name[name] for name in found]
    left = [node for node in asleep if node.name not in found]
    assert not woken_nodes(jobs, idle=idle, coming=coming, asleep=left, now=NOW, reservations={})
