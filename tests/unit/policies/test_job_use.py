"""policies/job_use.py: which GPUs of a Slurm job have no use; what is not certain is not called unused."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import Evidence, State, WorkOwner
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import GpuVerdict, Node, NodeReport
from gpuwatch.model.slurm import SlurmJob, SlurmNode
from gpuwatch.policies.job_use import JobUse, unused_jobs, uses
from tests.support.builders.fleet import NOW, a_node, a_verdict, an_activity, an_observation
from tests.support.builders.money import a_price

HOUR = 3600.0
ANN = SlurmJob(id="7", user="ann", gpus=2, indexes=(0, 1), started_at=NOW - timedelta(hours=3))


def a_gpu(index: int | None, state: State = State.IDLE, hours: float = 2.0, job: str | None = None) -> GpuVerdict:
    """One GPU; with `job` there is a process of that job on it."""
    activity = an_activity(state, hours * HOUR)
    if job is not None:
        owner = WorkOwner(user="ann", unit=f"Slurm job {job}")
        seen = Evidence(
            name="gpu.processes", says=state, observed=1.0, limit=1.0, unit="processes", source="NVML", owner=owner
        )
        activity = replace(activity, evidence=(seen,))
    return GpuVerdict(uuid=f"GPU-{index}", index=index, activity=activity)


def a_machine(*gpus: GpuVerdict, jobs: tuple[SlurmJob, ...] = (ANN,), state: State = State.BUSY) -> Node:
    """A node of Slurm with these GPUs and jobs."""
    verdict = replace(a_verdict(state=state), gpus=gpus)
    known = SlurmNode(name="gpu-1", states=("MIXED",), jobs=jobs, gpus=len(gpus))
    return a_node("i-1", signal=NodeReport(verdict=verdict), slurm=known, gpu_count=len(gpus), instance_type="t")


def seen(*nodes: Node) -> Observation:
    """At 8 dollars an hour each."""
    return replace(an_observation(*nodes), prices={"t": a_price("8")})


def the(*gpus: GpuVerdict, jobs: tuple[SlurmJob, ...] = (ANN,), state: State = State.BUSY) -> JobUse:
    """The first job's use."""
    return next(iter(uses(seen(a_machine(*gpus, jobs=jobs, state=state)))))


def test_a_job_that_uses_one_of_its_two_gpus_holds_one_in_vain() -> None:
    """It costs its part of the machine; GPUs of nobody, and of others, are not its own."""
    use = the(a_gpu(0, State.BUSY), a_gpu(1, State.PARKED), a_gpu(2), a_gpu(3))
    assert use.states == {State.BUSY: 1, State.PARKED: 1}
    assert (use.unused, use.held_seconds, use.usd_per_hour) == (1, 2 * HOUR, Decimal(2))


@pytest.mark.parametrize(
    ("gpu", "job", "count"),
    [
        (a_gpu(0, hours=0.9), ANN, 0),
        (a_gpu(0), replace(ANN, started_at=NOW - timedelta(minutes=59)), 0),
        (a_gpu(0), replace(ANN, started_at=None), 0),
        (a_gpu(0, State.STALLED, hours=1.0), ANN, 1),
        (a_gpu(0, State.UNKNOWN), ANN, 0),
        (a_gpu(0, State.OCCUPIED), ANN, 0),
    ],
)
def test_an_hour_must_have_passed_for_the_gpu_and_for_the_job(gpu: GpuVerdict, job: SlurmJob, count: int) -> None:
    """What was idle before the job began is not its fault."""
    assert the(gpu, a_gpu(1, State.BUSY), jobs=(job,)).unused == count


def test_how_long_is_that_of_the_youngest_rest_and_never_longer_than_the_job() -> None:
    """All of the unused GPUs have rested for so long."""
    assert the(a_gpu(0, hours=1.5), a_gpu(1, hours=9.0)).held_seconds == 1.5 * HOUR
    assert the(a_gpu(0, hours=9.0), a_gpu(1, hours=9.0)).held_seconds == 3 * HOUR


def test_gpus_in_another_order_are_known_by_the_jobs_own_work() -> None:
    """Work of job 7 on GPU 3, which Slurm has given to nobody: then no number can be trusted."""
    other = replace(ANN, id="8", indexes=(2,), gpus=1)
    machine = a_machine(a_gpu(0), a_gpu(1), a_gpu(2), a_gpu(3, State.BUSY, job="7"), jobs=(ANN, other))
    assert [dict(each.states) for each in uses(seen(machine))] == [{State.UNKNOWN: 2}, {State.UNKNOWN: 1}]
    assert the(a_gpu(0, State.BUSY, job="7"), a_gpu(1), a_gpu(2, State.BUSY, job="99")).unused == 1


@pytest.mark.parametrize(
    "gpus",
    [(a_gpu(0), a_gpu(None)), (a_gpu(0), a_gpu(1), a_gpu(1)), (a_gpu(0), a_gpu(2))],
    ids=["without a number", "numbered twice", "not reported"],
)
def test_a_gpu_that_is_not_found_is_unknown(gpus: tuple[GpuVerdict, ...]) -> None:
    """The other one still counts."""
    use = the(*gpus)
    assert (use.states, use.unused) == ({State.IDLE: 1, State.UNKNOWN: 1}, 1)


@pytest.mark.parametrize("gpus", [1, 3, 14, None])
def test_gpus_that_slurm_counts_otherwise_have_other_numbers(gpus: int | None) -> None:
    """Instances of MIG count there, and what gres.conf leaves out does not."""
    machine = a_machine(a_gpu(0), a_gpu(1))
    assert machine.slurm is not None
    counted = replace(machine, slurm=replace(machine.slurm, gpus=gpus))
    assert [dict(each.states) for each in uses(seen(counted))] == [{State.UNKNOWN: 2}]


def test_a_gpu_of_several_jobs_is_unknown() -> None:
    """Nobody knows which of both uses it."""
    other = replace(ANN, id="8", indexes=(1,), gpus=1)
    assert the(a_gpu(0), a_gpu(1), jobs=(ANN, other)).states == {State.IDLE: 1, State.UNKNOWN: 1}


def test_without_numbers_only_what_all_gpus_do_is_known() -> None:
    """The ones that have done it for the shortest time are taken."""
    job = replace(ANN, indexes=None)
    assert the(a_gpu(0), a_gpu(1, hours=0.5), a_gpu(2, hours=1.5), jobs=(job,)).unused == 1
    assert the(a_gpu(0), a_gpu(1, State.BUSY), jobs=(job,)).states == {State.UNKNOWN: 2}


@given(
    st.lists(st.sampled_from(State), min_size=1, max_size=4),
    st.sampled_from([State.BUSY, State.IDLE, State.UNKNOWN]),
    st.sampled_from([None, (0,), (0, 1), (3,)]),
)
def test_every_gpu_of_a_job_is_counted_once_and_no_unknown_one_is_unused(
    states: list[State], whole: State, indexes: tuple[int, ...] | None
) -> None:
    """Whatever is seen."""
    job = replace(ANN, indexes=indexes, gpus=1 if indexes is None else len(indexes))
    use = the(*(a_gpu(number, each) for number, each in enumerate(states)), jobs=(job,), state=whole)
    assert sum(use.states.values()) == job.gpus
    assert use.unused <= sum(use.states.get(each, 0) for each in (State.IDLE, State.PARKED, State.STALLED))
    assert whole is not State.UNKNOWN or use.unused == 0


def test_the_most_expensive_come_first_and_silent_machines_never() -> None:
    """A node in doubt has no jobs that anybody knows."""
    cheap = a_machine(a_gpu(0), a_gpu(1, State.BUSY), a_gpu(2), a_gpu(3))
    dear = replace(a_machine(a_gpu(0), a_gpu(1)), id="i-2")
    doubted = replace(dear, id="i-3", slurm=SlurmNode(doubt="Twice.", jobs=(ANN,)))
    silent = replace(dear, id="i-4", signal=NodeReport(failure="no answer"))
    assert [each.node.id for each in unused_jobs(seen(cheap, dear, doubted, silent))] == ["i-2", "i-1"]
