"""A node of a real Slurm from idle to stopped to started: no job is sent to a machine that is off, none stays DOWN."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import CapacityType, NodeState
from gpuwatch.model.sight import Sight
from tests.support.builders.fleet import RULES
from tests.support.builders.slurm import SlurmDesk, a_slurm_desk, a_slurm_machine
from tests.support.real.agents import eventually
from tests.support.real.slurm import RealSlurm, second_node, slurm_running, slurmd_running

# What Slurm does by itself with a node that was silent: nothing (its default), and as fast as it can.
STRICT = "ReturnToService=0\nSlurmdTimeout=2"


def a_desk(slurm: RealSlurm) -> SlurmDesk:
    """The machine i-6 is the node gpu-6, idle for long; all others work."""
    desk = a_slurm_desk(0, rules=RULES)
    for number in (5, 6):
        desk.fleet.put(a_slurm_machine(number))
    desk.fleet.show("i-6", State.IDLE, 7200.0)
    desk.slurm = slurm.cluster  # type: ignore[assignment]
    return desk


def rounds_until(desk: SlurmDesk, reached: Callable[[], bool], seconds: float = 60.0) -> None:
    """Rounds with so much time between them, as many as it takes."""
    for _ in range(30):
        if reached():
            return
        desk.round(seconds)
    raise AssertionError(f"{desk.done(6)}")


def test_a_node_is_drained_stopped_started_and_resumed(tmp_path: Path) -> None:
    """With ReturnToService=0 and jobs without time limits; what is submitted meanwhile runs after the start."""
    with slurm_running(tmp_path, f"{STRICT}\n{second_node()}") as slurm:
        desk = a_desk(slurm)
        with slurmd_running(slurm, "gpu-6"):
            eventually(lambda: slurm.state("gpu-6") == "IDLE", (tmp_path / "slurmd.output").read_text)
            running = slurm.submit()
            both = slurm.command("sbatch", "--nodelist=gpu-5,gpu-6", "--nodes=2", "--exclusive", stdin="#!/bin/sh\n")
            for _ in range(3):
                done = desk.round(420.0)
            (kept,) = [step for step in done.decisions[0].steps if step.node_id == "i-6"]
            assert f"The job {both.split()[-1]} of " in kept.reason.sentence, "Slurm shows its node IDLE all the while"
            assert slurm.state("gpu-6") == "IDLE"
            slurm.command("scancel", both.split()[-1])
            seen: list[str] = []
            desk.fleet.watch_stop = lambda _node, _key: seen.append(slurm.state("gpu-6"))
            rounds_until(desk, lambda: bool(seen), 420.0)
        assert seen == ["IDLE+DRAIN"], "the drain comes first"
        job = slurm.command("sbatch", "--nodelist=gpu-6", stdin="#!/bin/sh\nexec sleep 60\n").split()[-1]
        eventually(lambda: "NOT_RESPONDING" in slurm.state("gpu-6") and "DOWN" in slurm.state("gpu-6"), lambda: job)
        assert "JobState=PENDING" in slurm.run("show", "job", job), "it was not sent to a machine that is off"
        desk.round()

        node = desk.fleet.nodes_["i-6"]
        desk.fleet.put(replace(node, state=NodeState.RUNNING, launched_at=desk.clock.now()))
        desk.fleet.show("i-6", State.UNKNOWN)
        for _ in range(2):
            desk.round()
            assert "DRAIN" in slurm.state("gpu-6"), "nobody runs jobs there yet"
        with slurmd_running(slurm, "gpu-6"):
            eventually(lambda: slurm.state("gpu-6") == "DOWN+DRAIN", lambda: slurm.state("gpu-6"))
            rounds_until(desk, lambda: "DRAIN" not in slurm.state("gpu-6"))
            eventually(lambda: "JobState=RUNNING" in slurm.run("show", "job", job), lambda: slurm.run("show", "job"))
            assert "JobState=RUNNING" in slurm.run("show", "job", running)
        assert [verb for verb, _ in desk.done(6)] == [Verb.NOTICE, Verb.CORDON, Verb.STOP, Verb.UNCORDON]


@pytest.mark.nightly
def test_a_host_of_ones_own_is_started_for_the_job_that_waits_for_it_and_runs_it(tmp_path: Path) -> None:
    """Gpuwatch has switched it off. A held job and one of other nodes leave it off; nothing is started twice."""
    own: dict[str, Any] = {"capacity_type": CapacityType.OWN, "launched_at": None, "sight": Sight()}
    with slurm_running(tmp_path, f"{STRICT}\n{second_node()}") as slurm:
        desk = a_desk(slurm)
        desk.fleet.put(replace(desk.fleet.nodes_["i-6"], **own))
        started: list[str] = []

        def off() -> bool:
            return desk.fleet.nodes_["i-6"].state is NodeState.STOPPED

        def job(*options: str) -> str:
            return slurm.command("sbatch", *options, stdin="#!/bin/sh\nexec sleep 60\n").split()[-1]

        with slurmd_running(slurm, "gpu-6"):
            eventually(lambda: slurm.state("gpu-6") == "IDLE", (tmp_path / "slurmd.output").read_text)
            slurm.submit("--exclusive")
            rounds_until(desk, off, 420.0)
        eventually(lambda: "NOT_RESPONDING" in slurm.state("gpu-6"), lambda: slurm.state("gpu-6"))
        job("--hold", "--nodelist=gpu-6")
        job("--nodelist=gpu-5", "--exclusive")
        wanted = job("--nodelist=gpu-6")
        job("--nodelist=gpu-6")
        reason = "Reason=(ReqNodeNotAvail|Nodes_required|Resources)"
        eventually(lambda: bool(re.search(reason, slurm.run("show", "job", wanted))), lambda: slurm.run("show", "job"))
        for _ in range(3):
            for review in desk.round().reviews:
                started += [review.step.reason.sentence] if review.step.verb is Verb.START and review.allowed else []
        (sentence,) = started
        assert sentence.startswith(f"The job {wanted} of ")
        with slurmd_running(slurm, "gpu-6"):
            eventually(lambda: "NOT_RESPONDING" not in slurm.state("gpu-6"), lambda: slurm.state("gpu-6"))
            rounds_until(desk, lambda: "DRAIN" not in slurm.state("gpu-6"))
            eventually(lambda: "JobState=RUNNING" in slurm.run("show", "job", wanted), lambda: slurm.run("show", "job"))
            desk.round()
        assert [verb for verb, _ in desk.done(6)].count(Verb.START) == 1
