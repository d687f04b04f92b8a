"""What squeue and scontrol of Slurm 22.05 printed of a real queue, with an array, a chain and a reservation."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.controller.slurm import Queue
from gpuwatch.controller.slurm.join import wanted_nodes
from gpuwatch.controller.slurm.scontrol import Scontrol
from gpuwatch.controller.slurm.settings import SlurmSettings
from gpuwatch.model.slurm import SlurmNode

QUEUE = """PD|root|2026-11-29T16:03:23|(null)|0|(null)||4|all|Resources|N/A|1|(null)|gpu-5||gres:gpu:4|(null)
PD|root|2026-11-29T16:03:23|(null)|0|(null)||6|all|BeginTime|2026-11-29T18:03:23|1|(null)|||N/A|(null)
PD|root|2026-11-29T16:03:23|(null)|0|(null)||7_[1-9%2]|all|ReqNodeNotAvail, UnavailableNodes:gpu-5|N/A|1|(null)|gpu-5||N/A|(null)
PD|root|2026-11-29T16:03:23|(null)|0|afterany:1(unfulfilled)?afterok:2(failed)||9|all|Dependency|N/A|1|(null)|||N/A|(null)
PD|root|2026-11-29T16:03:23|(null)|0|singleton(unfulfilled)||10|all|Dependency|N/A|1|(null)|||N/A|(null)
PD|root|2026-11-29T16:03:23|(null)|1M|(null)||12|all|Priority|N/A|1|(null)||gpu-[1-3]|N/A|(null)
PD|root|2026-11-29T16:03:23|(null)|0|(null)||14+0|all|None|N/A|1|(null)|gpu-5||N/A|(null)
PD|root|2026-11-29T16:03:23|(null)|0|(null)||15|all|PartitionNodeLimit|N/A|6|(null)|||N/A|(null)
PD|root|2026-11-29T16:03:23|course|0|(null)||18|all|Reservation|N/A|2|(null)|||N/A|(null)
PD|root|2026-11-29T16:03:23|(null)|0|(null)||5|all|JobHeldUser|N/A|1|(null)|||N/A|(null)
R|root|2026-11-29T16:03:23|(null)|0|(null)|gpu-[3-4]|1|all|None|2026-11-29T16:03:25|2|(null)|||N/A|(null)
"""  # noqa: E501  as squeue prints it


def a_line(
    job: str,
    gpus: str = "N/A",
    tres: str = "cpu=1,node=1,billing=1",
    tasks: int = 1,
    cpus: int = 1,
    whole: str = "N/A",
    each: str = "N/A",
) -> str:
    """A job in the columns of squeue's long form."""
    return f"{job:<120}{whole:<120}{gpus:<120}{tres:<120}{each:<120}{tasks:<12}{cpus:<12}\n"


TOTALS = a_line("4") + a_line("14+0", "gres:gpu:1", tasks=2)
RESERVED = (
    "ReservationName=course StartTime=2026-11-30T12:03:23 EndTime=2026-11-30T13:03:23 Duration=01:00:00 "
    "Nodes=gpu-[1-2] NodeCnt=2 CoreCnt=2 Features=(null) PartitionName=(null) "
    "Flags=SPEC_NODES TRES=cpu=2 Users=root State=INACTIVE\n"
)
NOW = datetime(2026, 11, 29, 16, 4, tzinfo=UTC)


def a_queue(
    folder: Path, *, listed: str = QUEUE, reserved: str = RESERVED, script: str = "", totals: str = TOTALS
) -> Queue:
    """What is read of programs that print that."""
    for name, text in (("listed", listed), ("totals", totals), ("reserved", reserved)):
        (folder / name).write_text(text)
    squeue = f'case "$*" in *--Format=*) cat {folder}/totals;; *) {script or f"cat {folder}/listed"};; esac'
    for name, does in (("squeue", squeue), ("scontrol", f"cat {folder}/reserved")):
        (folder / name).write_text(f'#!/bin/sh\necho "$TZ $*" >> {folder}/asked\n{does}\n')
        (folder / name).chmod(0o755)
    return Scontrol(SlurmSettings(scontrol=str(folder / "scontrol"), pools=("default",))).queue()


def test_the_queue_is_read_with_the_gpus_of_whole_jobs_and_the_reservations(tmp_path: Path) -> None:
    """Of this cluster alone, of all its partitions, and in UTC, whatever the controller's own zone is."""
    queue = a_queue(tmp_path)
    assert [job.job for job in queue.jobs] == ["4", "6", "7_[1-9%2]", "9", "10", "12", "14+0", "15", "18", "5", "1"]
    assert {job.job: job.gpus for job in queue.jobs if job.gpus} == {"14+0": 2}
    assert queue.jobs[2].tasks == 9
    assert queue.jobs[2].limit == 2
    assert queue.reservations["course"].nodes == "gpu-[1-2]"
    asked = (tmp_path / "asked").read_text().splitlines()
    assert all(line.startswith("UTC ") for line in asked)
    assert all("--local --all " in line for line in asked[:2])


@pytest.mark.parametrize(
    ("asked", "line", "megabytes"),
    [
        ("4G", a_line("12", tres="cpu=8,mem=32G,node=1,billing=8", cpus=8), 32768.0),
        ("4G", a_line("12", tres="cpu=16,mem=64G,node=1,billing=16", tasks=2, cpus=8), 32768.0),
        ("4G", a_line("12", tres="cpu=2,mem=8G,node=1,billing=2", tasks=2), 4096.0),
        ("4G", a_line("12", tres="cpu=8,mem=4G,node=1,billing=8", cpus=8), 4096.0),
        ("4G", a_line("12", tres="cpu=8,mem=8G,node=2,billing=8", cpus=4), 4096.0),
        ("0", a_line("12", tres="cpu=1,mem=4G,node=1,billing=1"), 0.0),
        ("4G", a_line("12", tres="N/A"), 4096.0),
    ],
    ids=["8 CPUs a task", "two tasks of 8", "two tasks", "a node", "two nodes", "a GPU", "not said"],
)
def test_memory_for_each_processor_is_that_of_a_task(tmp_path: Path, asked: str, line: str, megabytes: float) -> None:
    """As Slurm 22.05 lists `--mem-per-cpu`, `--mem` and `--mem-per-gpu`; a node needs at least that."""
    listed = f"PD|root|2026-11-29T16:03:23|(null)|{asked}|(null)||12|all|Priority|N/A|1|(null)|||N/A|(null)\n"
    (job,) = a_queue(tmp_path, listed=listed, totals=line).jobs
    assert job.megabytes == megabytes


@pytest.mark.parametrize(
    ("line", "cpus"),
    [
        (a_line("12", tres="cpu=16,mem=64G,node=1,billing=16", tasks=2, cpus=8), (8, 16)),
        (a_line("12", tres="N/A"), (1, 0)),
        ("", (0, 0)),
    ],
    ids=["two tasks of 8", "not in all", "not said"],
)
def test_a_job_is_read_with_the_cpus_of_a_node_and_of_all(tmp_path: Path, line: str, cpus: tuple[int, int]) -> None:
    """MinCPUs is the least on one node; 0: squeue does not say it."""
    listed = "PD|root|2026-11-29T16:03:23|(null)|0|(null)||12|all|Priority|N/A|1|(null)|||N/A|(null)\n"
    (job,) = a_queue(tmp_path, listed=listed, totals=line).jobs
    assert (job.cpus, job.all_cpus) == cpus


def test_each_idle_node_is_named_with_the_job_that_may_need_it(tmp_path: Path) -> None:
    """Job 6 begins in two hours; 9 waits for one of two; 12 excludes the first three; the course is tomorrow."""
    nodes = [SlurmNode(name=f"gpu-{number}", states=("IDLE",), partitions=("all",)) for number in (1, 2, 6, 7, 8)]
    found = wanted_nodes(a_queue(tmp_path), nodes, (), NOW)
    assert {name: why.partition(" of ")[0] for name, why in found.items()} == {
        "gpu-1": "The job 6",
        "gpu-2": "The job 9",
        "gpu-6": "The job 10",
        "gpu-7": "The job 12",
    }
    alone = wanted_nodes(a_queue(tmp_path, listed=""), nodes, (), NOW)
    assert set(alone) == {"gpu-1", "gpu-2"}
    assert "reservation course has it from 2026-11-30 12:03" in alone["gpu-1"]


@pytest.mark.parametrize(
    "script",
    [
        "echo 'slurm_load_jobs error: Zero Bytes were transmitted' >&2",
        "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1",
        "echo 'slurm_load_jobs error: Unable to contact'",
    ],
)
def test_an_answer_that_is_no_queue_is_none(tmp_path: Path, script: str) -> None:
    """Also with the status 0: an empty output beside a complaint is no empty queue."""
    with pytest.raises(CloudUnavailableError):
        a_queue(tmp_path, script=script)


def test_an_empty_queue_and_no_reservation(tmp_path: Path) -> None:
    """What a new cluster says."""
    assert a_queue(tmp_path, listed="", reserved="No reservations in the system\n") == Queue()
    with pytest.raises(CloudUnavailableError):
        a_queue(tmp_path, reserved="Something else\n")
