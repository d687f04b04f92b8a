"""The drain of a Slurm node before its machine is ended, over whole rounds: undone where the machine stays or runs."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.clouds import AuthFailedError, CloudError, CloudUnavailableError
from gpuwatch.controller.round import step
from gpuwatch.model.activity import State
from gpuwatch.model.decision import REMOVALS, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.health import Health
from gpuwatch.policies import PoolRules
from gpuwatch.policies.slurm_removal import DRAIN_SECONDS
from tests.support.builders.fleet import RULES
from tests.support.builders.slurm import DRAINING, KEY, SlurmDesk, a_report, a_slurm_desk, a_slurm_machine
from tests.support.crash_points import Mortal, PowerCut

IDLE_SECONDS = 7200.0
SILENT = ("DOWN", "DRAIN", "NOT_RESPONDING")  # what slurmctld makes of our drain once it misses the machine


def an_idle_desk(rules: PoolRules = RULES) -> SlurmDesk:
    """Four machines, the first of them idle for long."""
    desk = a_slurm_desk(rules=rules)
    desk.fleet.put(a_slurm_machine(1, signal=a_report(state=State.IDLE)))
    desk.fleet.show("i-1", State.IDLE, IDLE_SECONDS)
    desk.slurm.put("gpu-1", "IDLE")
    return desk


def drained(desk: SlurmDesk) -> bool:
    """Whether Slurm gives the first node no jobs."""
    return desk.slurm.known["gpu-1"].drained


def until(desk: SlurmDesk, reached: Callable[[], bool], most: int = 40) -> None:
    """Rounds until then."""
    for _ in range(most):
        if reached():
            return
        desk.round()
    raise AssertionError(f"not reached in {most} rounds: {desk.done()}")


def ended(desk: SlurmDesk) -> bool:
    """Whether the first machine does not run."""
    return desk.fleet.nodes_["i-1"].state is not NodeState.RUNNING


def a_drained_desk() -> SlurmDesk:
    """The first node is drained, and its machine runs."""
    desk = an_idle_desk()
    until(desk, lambda: drained(desk))
    assert not ended(desk)
    return desk


def a_stopped_desk() -> SlurmDesk:
    """The first machine is stopped, and Slurm misses it."""
    desk = a_drained_desk()
    until(desk, lambda: ended(desk))
    desk.round()
    show(desk, *SILENT)
    desk.round()
    return desk


def show(desk: SlurmDesk, *states: str, **other: object) -> None:
    """Slurm shows the first node so; the reason stays."""
    desk.slurm.known["gpu-1"] = replace(desk.slurm.known["gpu-1"], states=states, **other)  # type: ignore[arg-type]


def start(desk: SlurmDesk) -> None:
    """A person starts the first machine; its agent is not there yet."""
    node = desk.fleet.nodes_["i-1"]
    now = desk.clock.now()
    desk.fleet.put(
        replace(a_slurm_machine(1, None), state=NodeState.RUNNING, launched_at=now, last_stop=node.last_stop)
    )
    desk.fleet.show("i-1", State.UNKNOWN)


def test_the_drain_stays_while_the_machine_is_off() -> None:
    """However long, and whatever Slurm makes of its silence."""
    desk = a_stopped_desk()
    for _ in range(5):
        desk.round(3600.0)
    assert drained(desk)
    assert [call for call, *_ in desk.slurm.calls] == ["drain"]


@pytest.mark.parametrize("down", [True, False])
def test_a_started_machine_gets_jobs_once_its_slurmd_answers(*, down: bool) -> None:
    """ReturnToService=0 leaves it DOWN: the resume ends that, too. Before it answers, no job is sent to it."""
    desk = a_stopped_desk()
    start(desk)
    for _ in range(3):
        desk.round()
    assert drained(desk)
    show(desk, "DOWN" if down else "IDLE", "DRAIN")
    desk.round()
    desk.round()
    assert desk.slurm.known["gpu-1"].state == "IDLE"
    assert desk.done()[-1] == (Verb.UNCORDON, "settled")


def test_a_quick_start_waits_for_the_slurmd_of_that_start() -> None:
    """Slurm has not missed the machine, and shows it idle, although nothing runs there yet."""
    desk = a_drained_desk()
    until(desk, lambda: ended(desk))
    show(desk, "IDLE", "DRAIN", slurmd_since=desk.clock.now() - timedelta(days=9))
    desk.round()
    start(desk)
    desk.round()
    desk.round()
    assert drained(desk)
    show(desk, "IDLE", "DRAIN", slurmd_since=desk.clock.now())
    desk.round()
    assert not drained(desk)


def test_a_slurmd_whose_clock_is_wrong_waits_no_longer_than_a_quarter_of_an_hour() -> None:
    """Its start lies before that of its machine for ever."""
    desk = a_stopped_desk()
    start(desk)
    show(desk, "IDLE", "DRAIN", slurmd_since=desk.clock.now() - timedelta(days=9))
    for _ in range(17):
        desk.round()
    assert not drained(desk)


def _works(desk: SlurmDesk) -> None:
    desk.fleet.show("i-1", State.BUSY)


def _is_unknown(desk: SlurmDesk) -> None:
    desk.fleet.show("i-1", State.UNKNOWN)


def _is_kept(desk: SlurmDesk) -> None:
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], protected="a tag"))


def _leaves_the_fleet(desk: SlurmDesk) -> None:
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], enrolled=False))


def _is_paused(desk: SlurmDesk) -> None:
    desk.ledger.pause(None, "ann", "demo", desk.clock.now())


def _has_a_job(desk: SlurmDesk) -> None:
    show(desk, "MIXED", "DRAIN")


def _completes(desk: SlurmDesk) -> None:
    show(desk, "IDLE", "COMPLETING", "DRAIN")


@pytest.mark.parametrize(
    "event", [_works, _is_unknown, _is_kept, _leaves_the_fleet, _is_paused, _has_a_job], ids=lambda each: each.__name__
)
def test_a_drain_is_undone_once_its_machine_stays(event: Callable[[SlurmDesk], None]) -> None:
    """Whatever keeps it: within two rounds, or once the time for the removal is over."""
    desk = a_drained_desk()
    event(desk)
    for _ in range(2 if event is not _is_kept else int(DRAIN_SECONDS / 60) + 3):
        desk.round()
    assert not drained(desk)
    assert not ended(desk)
    assert desk.done()[-1][0] in {Verb.UNCORDON, Verb.WITHDRAW}
    for _ in range(5):
        desk.round()
    assert [call for call, *_ in desk.slurm.calls] == ["drain", "resume"], "it is drained no second time"


def test_a_job_that_ends_is_waited_for_before_the_drain_is_undone() -> None:
    """An epilog runs: Slurm takes the resume, and goes on with it."""
    desk = a_drained_desk()
    _completes(desk)
    desk.round()
    assert not ended(desk)


@pytest.mark.parametrize("error", [AuthFailedError("no"), CloudUnavailableError("no answer")])
def test_a_stop_that_the_cloud_refuses_gives_the_node_back(error: CloudError) -> None:
    """After the time that a removal has, if no stop is under way by then."""
    desk = an_idle_desk()
    desk.fleet.fault = lambda call, _node: error if call == "stop" else None
    until(desk, lambda: drained(desk))
    until(desk, lambda: not drained(desk), 60)
    assert not ended(desk)


def test_a_stop_on_its_way_is_never_taken_for_one_that_did_not_come() -> None:
    """The cloud shows the machine running for a while: a resume then would send a job to a machine that goes down."""
    desk = a_drained_desk()
    desk.fleet.lag = lambda: 300.0
    until(desk, lambda: (Verb.STOP, "accepted") in desk.done() or (Verb.STOP, "open") in desk.done())
    for _ in range(4):
        desk.fleet.put(replace(desk.fleet.nodes_["i-1"], state=NodeState.RUNNING))
        desk.fleet.show("i-1", State.BUSY)
        desk.round()
        assert drained(desk)


def test_a_persons_drain_is_never_undone_nor_our_own_once_it_is_theirs() -> None:
    """Somebody writes another reason while the machine is drained, or off."""
    for desk in (a_drained_desk(), a_stopped_desk()):
        desk.slurm.known["gpu-1"] = replace(desk.slurm.known["gpu-1"], reason="ann looks at its disks")
        if ended(desk):
            start(desk)
        show(desk, "IDLE", "DRAIN")
        for _ in range(4):
            desk.round()
        assert drained(desk)
        assert [call for call, *_ in desk.slurm.calls] == ["drain"]
        assert desk.fleet.nodes_["i-1"].state is NodeState.RUNNING


def test_a_person_who_resumes_it_before_its_end_is_heard() -> None:
    """The machine stays, and rests for a day."""
    desk = a_drained_desk()
    desk.slurm.undrain("gpu-1")
    for _ in range(30):
        desk.round(600.0)
        assert not ended(desk)
        assert not drained(desk)
    assert desk.done()[-1] == (Verb.WITHDRAW, "settled")


def test_a_drain_with_a_key_that_the_ledger_lacks_is_left_alone() -> None:
    """Another controller is about to stop it."""
    desk = an_idle_desk()
    desk.slurm.put("gpu-1", "IDLE", "DRAIN", reason=f"gpuwatch: idle, and about to be stopped {KEY}")
    for _ in range(5):
        desk.round()
    assert (desk.slurm.calls, ended(desk)) == ([], False)


def test_a_user_who_may_not_drain_stops_nothing() -> None:
    """Without the right of an operator every node stays in work."""
    desk = an_idle_desk()
    desk.slurm.fault = lambda call: AuthFailedError("Invalid user id") if call == "drain" else None
    for _ in range(20):
        desk.round()
    assert not ended(desk)
    assert (Verb.CORDON, "failed") in desk.done()
    assert {call for call, *_ in desk.fleet.calls} == {"tag"}


def test_a_sick_node_is_not_given_back_before_it_is_well() -> None:
    """Its GPU fails after the drain: the reason stays, and the node gets jobs once the GPU is well."""
    desk = an_idle_desk(rules=DRAINING)
    until(desk, lambda: drained(desk))
    desk.fleet.put(a_slurm_machine(1, Health.FAILING))
    desk.rest(0.0)
    desk.round()
    assert drained(desk)
    desk.turn(1, Health.HEALTHY)
    desk.round()
    assert not drained(desk)


def test_a_node_drained_for_its_health_and_stopped_as_idle_is_resumed_after_its_start() -> None:
    """Its agent must say that it is well; DOWN goes with the drain."""
    desk = an_idle_desk(rules=DRAINING)
    desk.fleet.put(a_slurm_machine(1, Health.FAILING))
    until(desk, lambda: drained(desk))
    desk.fleet.put(replace(a_slurm_machine(1, Health.FAILING), state=NodeState.STOPPED))
    show(desk, *SILENT)
    desk.round()
    desk.fleet.put(a_slurm_machine(1, Health.HEALTHY))
    desk.rest(0.0)
    desk.round()
    assert drained(desk)
    show(desk, "DOWN", "DRAIN")
    desk.rest(0.0)
    desk.round()
    assert desk.slurm.known["gpu-1"].state == "IDLE"


CUTS = [
    f"{when} {call}" for call in ("record_round", "intend", "settle", "drain", "stop") for when in ("before", "after")
]


@pytest.mark.pairwise
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(("where", "nth"), [(each, 1) for each in CUTS] + [(each, 2) for each in CUTS[2:6]])
def test_a_power_cut_anywhere_ends_with_a_stopped_or_a_working_node(where: str, nth: int, *, kept: bool) -> None:
    """Never a machine that runs and gets no jobs, never one that is off and may get some.

    With `kept` the machine works again once the controller is back.
    """
    desk = an_idle_desk()
    until(desk, lambda: desk.ledger.view(desk.clock.now()).notices != ())
    passed = [0]

    def die(here: str) -> None:
        passed[0] += here == where
        if here == where and passed[0] == nth:
            raise PowerCut(here)

    for _ in range(30):
        parts = desk.parts
        mortal = replace(
            parts,
            ledger=Mortal(parts.ledger, die),  # type: ignore[arg-type]
            slurm=Mortal(desk.slurm, die),  # type: ignore[arg-type]
            cloud=Mortal(desk.fleet, die),  # type: ignore[arg-type]
        )
        try:
            step(mortal)
        except PowerCut:
            break
        desk.rest(60.0)
    desk.memory = type(desk.memory)()
    desk.rest(60.0)
    if kept and not ended(desk):
        desk.fleet.show("i-1", State.BUSY)
    for _ in range(10):
        desk.round(120.0)
        assert drained(desk) or not ended(desk), "a job could be sent to it"
    assert drained(desk) is ended(desk)
    assert [each for each in desk.ledger.view(desk.clock.now()).open_intents if each.intent.verb in REMOVALS] == []
    keys = {entry.intent.key for entry in desk.ledger.history("i-1", limit=90)}
    assert {key for _, _, key in desk.slurm.calls} <= keys, "each change has its record"
