"""Sick nodes on Debian's own slurmctld: drained with our reason, resumed, and never somebody else's."""

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.clouds import CloudUnavailableError, NotFoundError
from gpuwatch.clouds.permit import Permit
from gpuwatch.controller.round import step
from gpuwatch.model.decision import Verb
from gpuwatch.model.health import Health
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import NOW
from tests.support.builders.slurm import KEY, SlurmDesk, a_slurm_desk
from tests.support.real.agents import eventually
from tests.support.real.slurm import RealSlurm, slurm_running


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSlurm]:
    """One for all tests of this file. A node without a slurmd does not answer after its resume: each has its own."""
    with slurm_running(tmp_path_factory.mktemp("slurm")) as made:
        yield made


def a_permit() -> Permit:
    """One that holds."""
    return Permit.asked_now(ManualClock(wall=NOW), 60.0, lambda: True)


def a_desk(slurm: RealSlurm) -> SlurmDesk:
    """A controller whose machines are the nodes of the real cluster."""
    desk = a_slurm_desk()
    desk.slurm = slurm.cluster  # type: ignore[assignment]
    return desk


def test_a_sick_node_is_drained_and_resumed_by_whole_rounds(slurm: RealSlurm) -> None:
    """What `scontrol show node` says is what settles both."""
    desk = a_desk(slurm)
    for _ in range(3):
        desk.round()
    assert "DRAIN" in slurm.state("gpu-1")
    (key,) = [entry.intent.key for entry in desk.ledger.history("i-1", limit=9)]
    assert f"Reason=gpuwatch: Its GPU 0 is failing: The GPU has fallen off the bus. {key} [" in slurm.run(
        "show", "node", "gpu-1"
    )
    desk.turn(1, Health.HEALTHY)
    for _ in range(3):
        desk.round()
    assert "DRAIN" not in slurm.state("gpu-1")
    assert desk.done() == [(Verb.SLURM_DRAIN, "settled"), (Verb.SLURM_RESUME, "settled")]
    assert slurm.state("gpu-2").startswith("IDLE")


@pytest.mark.parametrize(
    ("options", "gigabytes"),
    [
        (("--mem-per-cpu=4G", "-c", "8"), 32.0),
        (("--mem-per-cpu=4G", "-n", "2"), 4.0),
        (("--mem=4G", "-c", "8"), 4.0),
        (("--mem-per-gpu=3G", "--gres=gpu:2"), 6.0),
        (("--mem-per-gpu=3G", "--gpus=4"), 12.0),
        (("--mem-per-gpu=3G", "--gpus=4", "-N", "2"), 3.0),
        (("--mem-per-gpu=3G", "--gpus-per-task=2", "-n", "4", "-N", "4"), 6.0),
    ],
    ids=["a processor", "two tasks", "a node", "two GPUs", "a whole job", "of two nodes", "a task's GPUs"],
)
def test_the_memory_that_a_waiting_job_needs_of_a_node_is_read(
    slurm: RealSlurm, options: tuple[str, ...], gigabytes: float
) -> None:
    """Of a job that is held, as slurmctld keeps it."""
    said = slurm.command("sbatch", "--hold", "--partition=all", *options, stdin="#!/bin/sh\nexec sleep 1\n")
    number = said.split()[-1]
    (job,) = (each for each in slurm.cluster.queue().jobs if each.job == number)
    slurm.command("scancel", number)
    assert job.megabytes == gigabytes * 1024


@pytest.mark.parametrize(
    ("options", "cpus"),
    [(("-c", "8"), (8, 8)), (("-n", "2", "-c", "8"), (8, 16)), (("-n", "16"), (1, 16)), (("-O", "-n", "16"), (1, 1))],
    ids=["of a task", "of two tasks", "of 16 tasks", "overcommitted"],
)
def test_the_cpus_that_a_waiting_job_needs_are_read(
    slurm: RealSlurm, options: tuple[str, ...], cpus: tuple[int, int]
) -> None:
    """The least on one node, and of the whole job; nodes have them as slurm.conf says."""
    said = slurm.command("sbatch", "--hold", "--partition=all", *options, stdin="#!/bin/sh\nexec sleep 1\n")
    number = said.split()[-1]
    (job,) = (each for each in slurm.cluster.queue().jobs if each.job == number)
    slurm.command("scancel", number)
    assert (job.cpus, job.all_cpus) == cpus
    assert {each.name: each.cpus for each in slurm.cluster.nodes()}["gpu-5"] == 2


def test_a_persons_drain_is_left_alone(slurm: RealSlurm) -> None:
    """Whether its GPU is failing or well."""
    slurm.run("update", "NodeName=gpu-1", "State=DRAIN", "Reason=ann replaces its fan")
    desk = a_desk(slurm)
    for health in (Health.FAILING, Health.HEALTHY):
        desk.turn(1, health)
        desk.round()
        desk.round()
    assert "Reason=ann replaces its fan [" in slurm.run("show", "node", "gpu-1")
    assert desk.done() == []
    with pytest.raises(NotFoundError, match="ann replaces its fan"):
        slurm.cluster.drain("gpu-1", "sick", KEY, permit=a_permit())
    slurm.run("update", "NodeName=gpu-1", "State=RESUME")


def test_a_restart_after_the_drain_knows_it_as_its_own(slurm: RealSlurm) -> None:
    """The power is cut right after the update: the ledger has the intent, and Slurm its key."""

    class Cut(BaseException):
        """The process is gone."""

    class Dies:
        """Passes calls on, and dies after the drain."""

        pools = ("default",)

        def __getattr__(self, name: str) -> object:
            return getattr(slurm.cluster, name)

        def drain(self, *arguments: str, permit: Permit) -> None:
            slurm.cluster.drain(*arguments, permit=permit)
            raise Cut

    desk = a_desk(slurm)
    desk.turn(1, Health.HEALTHY)
    desk.turn(3, Health.FAILING)
    desk.slurm = Dies()  # type: ignore[assignment]
    with pytest.raises(Cut):
        step(desk.parts)
    assert "DRAIN" in slurm.state("gpu-3")
    desk.slurm = slurm.cluster  # type: ignore[assignment]
    desk.turn(3, Health.HEALTHY)
    for _ in range(3):
        desk.round()
    assert desk.done(3) == [(Verb.SLURM_DRAIN, "settled"), (Verb.SLURM_RESUME, "settled")]
    assert "DRAIN" not in slurm.state("gpu-3")


def test_any_cause_arrives_as_it_was_sent(slurm: RealSlurm) -> None:
    """Characters that scontrol or a shell would take for something else."""
    cause = "GPU 0: $(id) `x` ; State=DOWN, 100 % & more = less | \\ 'quoted' \"twice\" [a@b] é\nNodeName=gpu-2"
    slurm.cluster.drain("gpu-4", cause, KEY, permit=a_permit())
    known = slurm.cluster.node("gpu-4")
    assert known is not None
    assert (known.drained_by, known.doubt) == (KEY, None)
    assert slurm.state("gpu-2").startswith("IDLE")
    assert "DRAIN" not in slurm.state("gpu-2")
    slurm.cluster.resume("gpu-4", KEY, permit=a_permit())
    assert slurm.cluster.node("gpu-9") is None


def test_a_job_on_a_drained_node_runs_to_its_end(slurm: RealSlurm) -> None:
    """The drain keeps new jobs away, and ends none."""
    job = slurm.submit("--job-name=train")
    slurm.cluster.drain("gpu-5", "Its GPU 0 is failing.", KEY, permit=a_permit())
    known = slurm.cluster.node("gpu-5")
    assert known is not None
    assert (known.state, known.drained_by) == ("MIXED+DRAIN", KEY)
    assert "JobState=RUNNING" in slurm.run("show", "job", job)
    slurm.command("scancel", job)
    slurm.cluster.resume("gpu-5", KEY, permit=a_permit())
    eventually(lambda: slurm.state("gpu-5") == "IDLE", lambda: slurm.run("show", "node", "gpu-5"))


def test_the_gpus_of_running_jobs_are_known_by_number(slurm: RealSlurm) -> None:
    """Also where a user gives the job a name that looks like another job's fields."""
    assert slurm.cluster.jobs() == {}
    assert [(node.name, node.gpus) for node in slurm.cluster.nodes()][-2:] == [("gpu-4", 0), ("gpu-5", 4)]
    first = slurm.submit("--gres=gpu:2", "--job-name=x\n   UserId=nobody(1)\n\nJobId=99 JobName=y")
    second = slurm.submit("--gres=gpu:1")
    waiting = slurm.command("sbatch", "--nodelist=gpu-5", "--gres=gpu:4", stdin="#!/bin/sh\nexec sleep 60\n").split()[
        -1
    ]
    (held,) = (slurm.cluster.jobs() or {}).values()
    user = pwd.getpwuid(os.getuid()).pw_name
    assert [(job.id, job.user, job.gpus, job.indexes) for job in held] == [
        (first, user, 2, (0, 1)),
        (second, user, 1, (2,)),
    ]
    assert all(job.started_at is not None for job in held)
    slurm.command("scancel", first, second, waiting)
    eventually(lambda: slurm.state("gpu-5") == "IDLE", lambda: slurm.command("squeue"))


def test_who_powers_the_nodes_is_read_from_slurms_own_settings(slurm: RealSlurm, tmp_path: Path) -> None:
    """Not its file: what slurmctld goes by."""
    assert slurm.cluster.power() is None
    assert slurm.cluster.returns() == ("0", "300 sec")
    assert slurm.cluster.may_drain() is None
    script = "/bin/true"
    with slurm_running(tmp_path, f"SuspendProgram={script}\nResumeProgram={script}\nSuspendTime=3600") as powering:
        assert powering.cluster.power() == f"SuspendProgram={script}"


def test_a_slurmctld_that_is_gone_is_no_answer(tmp_path: Path) -> None:
    """Nobody knows then: within the settings' time."""
    with slurm_running(tmp_path) as made:
        cluster = made.cluster
    settings = type(cluster.settings)(
        scontrol=cluster.settings.scontrol, conf=cluster.settings.conf, pools=("default",), timeout=1.0
    )
    with pytest.raises(CloudUnavailableError):
        type(cluster)(settings).nodes()
