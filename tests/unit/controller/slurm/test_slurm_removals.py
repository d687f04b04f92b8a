"""Idle machines of a Slurm cluster over whole rounds: gone only while Slurm shows them idle, and leaves their power."""

import pytest

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.slurm import SlurmNode
from tests.support.builders.fleet import RULES
from tests.support.builders.slurm import SlurmDesk, a_report, a_slurm_desk, a_slurm_machine

IDLE_SECONDS = 7200.0


def an_idle_desk() -> SlurmDesk:
    """Four machines, the first of them idle for long."""
    desk = a_slurm_desk(rules=RULES)
    desk.fleet.put(a_slurm_machine(1, signal=a_report(state=State.IDLE)))
    desk.fleet.show("i-1", State.IDLE, IDLE_SECONDS)
    desk.slurm.put("gpu-1", "IDLE")
    return desk


def rounds(desk: SlurmDesk, count: int = 30) -> list[set[str]]:
    """So many; the rules that refused something in each."""
    refused = []
    for number in range(1, count + 1):
        done = desk.round()
        refused.append({each.rule for review in done.reviews for each in review.refusals})
        if desk.fleet.nodes_["i-1"].state is not NodeState.RUNNING:
            break
        desk.fleet.show("i-1", State.IDLE, IDLE_SECONDS + 60.0 * number)
    return refused


def stopped(desk: SlurmDesk) -> bool:
    """Whether the cloud was asked for it."""
    return any(call[0] == "stop" for call in desk.fleet.calls)


def test_a_machine_that_slurm_shows_idle_goes_as_any_other() -> None:
    """After notice and grace, and the drain: no job can be sent to the machine from then on."""
    desk = an_idle_desk()
    seen = []
    desk.fleet.watch_stop = lambda _node, _key: seen.append(desk.slurm.known["gpu-1"])
    rounds(desk)
    assert stopped(desk)
    assert [verb for verb, _ in desk.done()] == [Verb.NOTICE, Verb.CORDON, Verb.STOP]
    assert [(known.state, known.leaves) for known in seen] == [("IDLE+DRAIN", True)]
    assert (seen[0].reason or "").startswith("gpuwatch: idle, and about to be stopped gpuwatch-")


def test_nothing_is_stopped_where_slurm_powers_its_nodes() -> None:
    """The plan still says what is idle, and the rule whose the power is."""
    desk = an_idle_desk()
    desk.slurm.program = "SuspendProgram=/opt/suspend"
    assert all(each == {"slurm_power"} for each in rounds(desk, 5))
    assert not stopped(desk)
    assert desk.done() == []


@pytest.mark.parametrize("states", [("MIXED",), ("IDLE", "PLANNED"), ("IDLE", "DRAIN"), ("DOWN",)])
def test_a_node_that_is_not_slurms_to_give_stays(states: tuple[str, ...]) -> None:
    """Its agent may say idle: Slurm knows of a job, or a person has taken the node out."""
    desk = an_idle_desk()
    desk.slurm.put("gpu-1", *states)
    assert all("slurm_node" in each for each in rounds(desk, 5))
    assert not stopped(desk)


def test_a_slurm_that_is_silent_keeps_its_machines() -> None:
    """And gives them free once it answers."""
    desk = an_idle_desk()
    desk.slurm.fault = lambda _: CloudUnavailableError("no answer")
    assert all({"slurm_power", "slurm_node"} <= each for each in rounds(desk, 5))
    assert not stopped(desk)
    desk.slurm.fault = lambda _: None
    rounds(desk)
    assert stopped(desk)


@pytest.mark.parametrize("meanwhile", ["a job", "gone", "silent"])
def test_slurm_is_asked_again_right_before_a_stop(meanwhile: str) -> None:
    """A job that came, a node that is gone, or silence is a veto."""
    desk = an_idle_desk()

    def asked(call: str) -> CloudUnavailableError | None:
        if call == "node" and meanwhile == "silent":
            return CloudUnavailableError("no answer")
        if call == "node" and meanwhile == "gone":
            desk.slurm.known.pop("gpu-1", None)
        elif call == "node":
            desk.slurm.put("gpu-1", "ALLOCATED")
        return None

    desk.slurm.fault = asked
    rounds(desk)
    assert not stopped(desk)
    assert (Verb.CORDON, "cancelled") in desk.done()
    assert desk.slurm.calls == []


@pytest.mark.parametrize(
    ("known", "sound"),
    [
        (SlurmNode(name="gpu-1", states=("IDLE",)), True),
        (SlurmNode(name="gpu-1", states=("MIXED", "DRAIN")), False),
        (SlurmNode(name="gpu-1", states=("DOWN",)), False),
        (SlurmNode(doubt="Slurm gives no answer."), True),
    ],
)
def test_a_node_that_gets_no_jobs_satisfies_no_floor(known: SlurmNode, *, sound: bool) -> None:
    """As a cordoned one of Kubernetes; of a node in doubt nobody knows better than its agent."""
    assert a_slurm_machine(1, slurm=known).sound is sound
