"""cli/doctor/slurm.py: whether Slurm answers, whose the power of its nodes is, and which machines are its nodes."""

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.cli.doctor import slurm
from gpuwatch.cli.doctor.report import Finding
from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.controller.slurm.settings import SlurmSettings
from gpuwatch.model.fleet import NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.doctor_findings import a_controller, codes, the
from tests.support.builders.fleet import NOW, FakeFleet, a_node

NODES = """NodeName=gpu-1 CoresPerSocket=1
   NodeAddr=10.0.0.1 NodeHostName=gpu-1
   State=IDLE ThreadsPerCore=1
"""
CONFIG = """ResumeProgram           = (null)
ReturnToService         = 0
SlurmdTimeout           = 300 sec
SuspendProgram          = {power}
SuspendTime = INFINITE
"""
SERVICE = "ReturnToService=0: after a start a node stays DOWN until it is resumed; SlurmdTimeout=300 sec"
UPDATE = "[ $1 = update ] && { echo 'slurm_update error: Invalid node name specified' >&2; exit 1; }"


LINE = "PD|ann|N/A||0|||901|all|Priority|N/A|1||||N/A|(null)"  # in the form of gpuwatch.model.slurm_queue.FORMAT


def looked(folder: Path, *, power: str = "(null)", script: str = UPDATE, **settings: Any) -> list[Finding]:  # noqa: ANN401
    """What the doctor finds with a scontrol that shows this, in a fleet of the machine gpu-1."""
    (folder / "node").write_text(settings.pop("nodes", NODES))
    (folder / "config").write_text(CONFIG.format(power=power))
    (folder / "reservation").write_text("No reservations in the system\n")
    (folder / "squeue").write_text(settings.pop("squeue", "#!/bin/sh\n"))
    (folder / "squeue").chmod(0o755)
    program = folder / "scontrol"
    program.write_text(f'#!/bin/sh\n{script}\nexec cat "{folder}/$2"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    clock = ManualClock(wall=NOW)
    fleet = FakeFleet(clock=clock)
    state = settings.pop("state", NodeState.RUNNING)
    fleet.put(replace(a_node("i-1", name=settings.pop("name", "gpu-1"), pool="train"), state=state))
    pools = {"train": PoolRules(idle=IdleRules(action="stop"))}
    made = SlurmSettings(scontrol=str(program), pools=("train",))
    return list(slurm.cluster(a_controller(fleet, clock, {"slurm": made, "pools": pools, **settings})))


def test_a_cluster_whose_machines_are_all_known_is_fine(tmp_path: Path) -> None:
    """And whose nodes nobody else powers."""
    found = looked(tmp_path, mode="enforce")
    assert codes(found) == []
    assert [each.seen for each in found] == [
        f"{tmp_path}/scontrol shows 1 node",
        "slurm.conf has no program for it: Slurm leaves it to others",
        f"gpuwatch may drain and resume ({SERVICE})",
        "squeue lists 0 jobs",
        "each of 1 machines is one node",
    ]


def test_two_owners_of_the_nodes_power_are_a_warning(tmp_path: Path) -> None:
    """While gpuwatch only observes, it is none."""
    warned = the(looked(tmp_path, power="/opt/suspend", mode="enforce"), "slurm.power")
    assert warned.seen == "Slurm's (SuspendProgram=/opt/suspend), and pools.train would stop or start machines"
    assert codes(looked(tmp_path, power="/opt/suspend")) == []


def test_a_user_who_may_not_drain_is_told_what_follows(tmp_path: Path) -> None:
    """Slurm asks who it is before it looks for the node."""
    denied = UPDATE.replace("Invalid node name specified", "Invalid user id")
    warned = the(looked(tmp_path, script=denied), "slurm.may_not_drain")
    assert "Invalid user id" in warned.seen
    assert "ReturnToService=0: after a start a node stays DOWN" in warned.seen


def test_a_queue_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Nothing is removed then."""
    warned = the(looked(tmp_path, squeue="#!/bin/sh\necho Zero Bytes were transmitted >&2\n"), "slurm.queue")
    assert "Zero Bytes were transmitted" in warned.seen


@pytest.mark.parametrize(("reason", "left"), [("Not responding", True), ("bad DIMM", False)])
def test_nodes_that_their_silence_has_left_down_are_named(tmp_path: Path, reason: str, *, left: bool) -> None:
    """A person's reason is that person's."""
    more = f"DOWN ThreadsPerCore=1\n   Reason={reason} [slurm@2026-11-29T10:00:00]\n"
    found = codes(looked(tmp_path, nodes=NODES.replace("IDLE ThreadsPerCore=1\n", more)))
    assert ("slurm.left_down" in found) is left


def test_a_machine_that_slurm_holds_for_off_and_that_runs_is_named(tmp_path: Path) -> None:
    """SuspendProgram ended well, and did nothing: each of the two leaves it to the other."""
    nodes = NODES.replace("State=IDLE ", "State=IDLE+CLOUD+POWERED_DOWN ")
    warned = the(looked(tmp_path, power="/opt/suspend", nodes=nodes), "slurm.runs_on")
    assert warned.seen == "i-1: gpu-1 (IDLE+CLOUD+POWERED_DOWN)"
    assert "slurm.runs_on" not in codes(looked(tmp_path))


def test_a_job_that_could_run_on_a_machine_that_was_stopped_is_named(tmp_path: Path) -> None:
    """With that machine: nobody starts it for the job."""
    reason = "gpuwatch: idle, and about to be stopped gpuwatch-a1-7-0123abcd"
    nodes = NODES.replace(
        "IDLE ThreadsPerCore=1\n", f"IDLE+DRAIN ThreadsPerCore=1\n   Partitions=all\n   Reason={reason}\n"
    )
    queue = "#!/bin/sh\ncase $* in *NumTasks*) ;; *) echo '" + LINE + "' ;; esac\n"
    found = looked(tmp_path, nodes=nodes, squeue=queue, state=NodeState.STOPPED)

    assert the(found, "slurm.stopped").seen.startswith(
        "i-1: The job 901 of ann waits in Slurm (Priority), and could run"
    )
    assert "slurm.stopped" not in codes(looked(tmp_path, nodes=nodes, squeue=queue))


def test_a_machine_that_is_no_certain_node_is_named(tmp_path: Path) -> None:
    """With the reason."""
    doubted = the(looked(tmp_path, name="web-1"), "slurm.unjoined")
    assert doubted.seen == "i-1: Slurm shows no node under its name or its address."


@pytest.mark.parametrize("script", ["echo 'Unable to contact slurm controller' >&2; exit 1", "echo; exit 0"])
def test_a_slurm_that_gives_no_answer_is_a_problem(tmp_path: Path, script: str) -> None:
    """Nothing more is said of it then."""
    assert codes(looked(tmp_path, script=script)) == ["slurm.unusable"]


def test_without_slurm_nothing_is_looked_at_and_without_a_cloud_no_machine() -> None:
    """The fleet's own check says why it cannot be listed."""
    assert list(slurm.cluster(a_controller(CloudUnavailableError("none")))) == []
