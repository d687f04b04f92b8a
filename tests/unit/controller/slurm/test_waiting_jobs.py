"""Idle nodes that jobs of Slurm's queue need, over whole rounds: they stay, with the job named; no others do."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.controller.slurm import Queue
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Step, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.slurm_listing import QueuedJob, Reservation
from tests.support.builders.fleet import NOW, RULES
from tests.support.builders.slurm import SlurmDesk, a_report, a_slurm_desk, a_slurm_machine

JOB = QueuedJob(job="901", reason="Priority", user="ann", partitions=("all",))


def a_desk(*jobs: QueuedJob, machines: int = 3) -> SlurmDesk:
    """So many machines that are idle for long, and a queue."""
    desk = a_slurm_desk(0, rules=RULES)
    for number in range(1, machines + 1):
        desk.fleet.put(a_slurm_machine(number, signal=a_report(state=State.IDLE)))
        desk.fleet.show(f"i-{number}", State.IDLE, 7200.0)
        desk.slurm.put(f"gpu-{number}", "IDLE")
    desk.slurm.waits = Queue(jobs=jobs)
    return desk


def left(desk: SlurmDesk, rounds: int = 40) -> set[str]:
    """The machines that run after so many rounds; no job was sent to one that does not."""
    for _ in range(rounds):
        desk.round()
        off = {node.name for node in desk.fleet.nodes_.values() if node.state is not NodeState.RUNNING}
        assert all(desk.slurm.known[name].drained for name in off)
    return {node.id for node in desk.fleet.nodes_.values() if node.state is NodeState.RUNNING}


def step_of(desk: SlurmDesk, node_id: str) -> Step:
    """What a round decides about a machine."""
    return next(step for step in desk.plan().decisions[0].steps if step.node_id == node_id)


def test_a_job_keeps_the_nodes_that_it_needs_and_no_more() -> None:
    """The same ones for as long as it waits, named; the others go."""
    desk = a_desk(replace(JOB, count=2))
    assert left(desk) == {"i-1", "i-2"}
    kept = step_of(desk, "i-1")
    assert kept.verb is Verb.HOLD
    assert kept.reason.sentence == "The job 901 of ann waits in Slurm (Priority), and may need it."
    desk.slurm.waits = Queue()
    assert left(desk) == set()


def test_a_held_job_keeps_nothing() -> None:
    """It was held in May."""
    assert left(a_desk(replace(JOB, reason="JobHeldUser", count=3))) == set()


@pytest.mark.parametrize("when", ["from the first round on", "once it is drained", "for the last question"])
def test_a_queue_that_nobody_knows_keeps_every_node(when: str) -> None:
    """No answer is no empty queue."""
    desk = a_desk()
    calls = [""]

    def fault(call: str) -> CloudUnavailableError | None:
        calls.append(call)
        drained = any(each.drained for each in desk.slurm.known.values())
        silent = {"from the first round on": True, "once it is drained": drained}.get(when, calls[-2] == "node")
        return CloudUnavailableError("no answer") if call == "queue" and silent else None

    desk.slurm.fault = fault
    assert left(desk, 40) == {"i-1", "i-2", "i-3"}


def test_a_job_that_comes_after_the_drain_gets_its_node() -> None:
    """Between the drain and the stop: the drain is undone, and the notice withdrawn."""
    desk = a_desk(machines=1)
    while not desk.slurm.known["gpu-1"].drained:
        desk.round()
    fresh = (desk.clock.now() - timedelta(minutes=1)).replace(tzinfo=None)
    desk.slurm.waits = Queue(jobs=(replace(JOB, reason="ReqNodeNotAvail", submitted=fresh),))
    for _ in range(2):
        desk.round()
    assert not desk.slurm.known["gpu-1"].drained
    assert desk.fleet.nodes_["i-1"].state is NodeState.RUNNING
    assert [verb for verb, _ in desk.done()] == [Verb.NOTICE, Verb.CORDON, Verb.UNCORDON, Verb.WITHDRAW]


def test_a_job_that_comes_between_the_round_and_the_drain_is_heard() -> None:
    """The last question asks for the queue, too."""
    desk = a_desk(machines=1)
    desk.round()
    assert desk.done() == [(Verb.NOTICE, "settled")]

    def fault(call: str) -> None:
        if call == "node":
            desk.slurm.waits = Queue(jobs=(JOB,))

    desk.slurm.fault = fault
    for _ in range(15):
        desk.round()
    assert (Verb.CORDON, "cancelled") in desk.done()
    assert desk.slurm.calls == []


def test_a_node_that_is_off_serves_no_job() -> None:
    """Slurm may still show it idle; the next one stays in its place."""
    desk = a_desk(JOB)
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], state=NodeState.STOPPED))
    desk.slurm.known["gpu-1"] = replace(
        desk.slurm.known["gpu-1"], states=("IDLE", "DRAIN"), reason="gpuwatch: idle, and about to be stopped x-1"
    )
    assert left(desk) == {"i-2"}


def test_a_suspended_job_keeps_its_node() -> None:
    """Its processes are stopped, and Slurm may show the node idle."""
    desk = a_desk(replace(JOB, state="S", places="gpu-2"))
    assert left(desk) == {"i-2"}
    assert step_of(desk, "i-2").reason.sentence == "The job 901 of ann is on it (S)."


@pytest.mark.parametrize(("days", "stays"), [(1, {"i-2"}), (21, set())])
def test_the_nodes_of_a_reservation_stay_before_it_begins(days: int, stays: set[str]) -> None:
    """Thirty students at nine o'clock. Three weeks before, they go."""
    desk = a_desk()
    start = (NOW + timedelta(days=days)).replace(tzinfo=None)
    course = Reservation(name="course", start=start, end=start + timedelta(hours=4), nodes="gpu-2")
    desk.slurm.waits = Queue(reservations={"course": course})
    assert left(desk) == stays


def test_a_job_that_could_run_on_a_machine_that_was_stopped_is_named_there() -> None:
    """Also one that has waited for resources for long: Slurm never saw that machine idle. One with a place is not."""
    desk = a_desk(machines=2)
    assert left(desk) == set()
    long = replace(JOB, reason="Resources", submitted=NOW - timedelta(hours=5))
    desk.slurm.waits = Queue(jobs=(long,))
    desk.round()

    told = step_of(desk, "i-1")
    assert told.verb is Verb.HOLD
    assert told.reason.sentence.endswith(
        "The job 901 of ann waits in Slurm (Resources), and could run on it. gpuwatch has stopped it, and starts no "
        "machine for Slurm's queue."
    )
    assert "901" not in step_of(desk, "i-2").reason.sentence

    desk.fleet.put(a_slurm_machine(3, signal=a_report(state=State.IDLE)))
    desk.slurm.put("gpu-3", "IDLE")
    desk.slurm.waits = Queue(jobs=(JOB,))
    desk.round()
    assert "901" not in step_of(desk, "i-1").reason.sentence
