"""Hosts of one's own that are off, over whole rounds: jobs of Slurm have those started that they lack, and no more."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from gpuwatch.controller.slurm import Queue
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Step, Verb
from gpuwatch.model.fleet import CapacityType, NodeReport, NodeState
from gpuwatch.model.sight import Sight
from gpuwatch.model.slurm_listing import QueuedJob
from gpuwatch.policies import PoolRules
from gpuwatch.policies.scaling import ScalingRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import RULES
from tests.support.builders.slurm import SlurmDesk, a_report, a_slurm_desk, a_slurm_machine

JOB = QueuedJob(job="901", reason="Resources", user="ann", partitions=("all",), gres="gpu:1")
OWN: dict[str, Any] = {"capacity_type": CapacityType.OWN, "launched_at": None, "sight": Sight()}
OFF = ("DOWN", "DRAIN", "NOT_RESPONDING")


def a_lab(machines: int = 2, rules: PoolRules = RULES, **other: object) -> SlurmDesk:
    """So many idle hosts of one's own, each a node of Slurm, which gpuwatch has switched off."""
    desk = a_slurm_desk(0, rules=rules, **other)
    for number in range(1, machines + 1):
        desk.fleet.put(a_slurm_machine(number, signal=a_report(state=State.IDLE), **OWN))
        desk.fleet.show(f"i-{number}", State.IDLE, 7200.0)
        desk.slurm.put(f"gpu-{number}", "IDLE")
    for _ in range(60):
        if not running(desk):
            break
        desk.round()
        show_off(desk)
    assert not running(desk)
    return desk


def running(desk: SlurmDesk) -> list[str]:
    """The machines that are not off."""
    return sorted(node.id for node in desk.fleet.nodes_.values() if node.state is not NodeState.STOPPED)


def show_off(desk: SlurmDesk) -> None:
    """Slurm has missed the hosts that are off, and their agents are silent."""
    for node in list(desk.fleet.nodes_.values()):
        known = desk.slurm.known[node.name]
        if node.state is NodeState.STOPPED and known.drained:
            desk.slurm.known[node.name] = replace(known, states=OFF)


def queue(desk: SlurmDesk, *jobs: QueuedJob) -> None:
    """These wait from now on, since just now."""
    lately = (desk.clock.now() - timedelta(minutes=1)).replace(tzinfo=None)
    desk.slurm.waits = Queue(jobs=tuple(each if each.submitted else replace(each, submitted=lately) for each in jobs))


def boot(desk: SlurmDesk, number: int, state: State = State.IDLE) -> None:
    """A host has come up: its agent answers, and so does its slurmd."""
    desk.fleet.put(replace(a_slurm_machine(number, signal=a_report(state=state), **OWN)))
    desk.fleet.show(f"i-{number}", state, 0.0)
    known = desk.slurm.known[f"gpu-{number}"]
    states = ("DOWN", "DRAIN") if known.drained else ("IDLE",)
    desk.slurm.known[known.name] = replace(known, states=states, slurmd_since=desk.clock.now())


def starts(desk: SlurmDesk) -> list[str]:
    """The machines that were started, in order."""
    return [node_id for call, node_id, *_ in desk.fleet.calls if call == "start"]


def step_of(desk: SlurmDesk, node_id: str = "i-1") -> Step:
    """What a round decides about a machine."""
    return next(step for step in desk.plan().decisions[0].steps if step.node_id == node_id)


def test_a_job_has_one_host_started_and_the_reason_names_it() -> None:
    """Once; it gets jobs as soon as its slurmd answers, and the other host stays off."""
    desk = a_lab()
    queue(desk, JOB)
    step = step_of(desk)
    assert (step.verb, step.reason.sentence) == (
        Verb.START,
        "The job 901 of ann waits in Slurm (Resources), and could run on it. It is started for that.",
    )
    for _ in range(3):
        desk.round()
    assert starts(desk) == ["i-1"]
    boot(desk, 1)
    for _ in range(3):
        desk.round()
    assert desk.slurm.known["gpu-1"].state == "IDLE"
    assert starts(desk) == ["i-1"], "an idle host is there for the job"


def test_a_job_is_not_told_of_other_hosts_once_one_is_on_its_way_for_it() -> None:
    """They were told to start for it, too, if it lacked nothing but nodes."""
    desk = a_lab()
    queue(desk, JOB)
    for _ in range(2):
        desk.round()
    assert starts(desk) == ["i-1"]
    assert "901" not in step_of(desk, "i-2").reason.sentence
    queue(desk, JOB, replace(JOB, job="902", reason="Licenses"))
    assert "The job 902" in step_of(desk, "i-2").reason.sentence


@pytest.mark.parametrize("state", ["ALLOCATED", "MIXED"])
def test_a_host_with_a_job_that_has_not_used_its_gpus_yet_is_no_room_for_the_next(state: str) -> None:
    """It loads its data. The next job waited for as long, and no host was started for it."""
    desk = a_lab()
    queue(desk, JOB)
    desk.round()
    boot(desk, 1)
    for _ in range(3):
        desk.round()
    desk.slurm.known["gpu-1"] = replace(desk.slurm.known["gpu-1"], states=(state,))
    queue(desk, replace(JOB, state="R", reason="None", places="gpu-1"), replace(JOB, job="902"))
    for _ in range(2):
        desk.round()
    assert starts(desk) == ["i-1", "i-2"]


def test_slurms_longest_reason_is_told_whole() -> None:
    """It ended in `reserved for job`."""
    desk = a_lab()
    reason = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
    queue(desk, replace(JOB, reason=reason))
    assert f"({reason})" in step_of(desk).reason.sentence


def test_two_jobs_of_a_whole_host_each_have_two_started() -> None:
    """Slurm gives a reason of its own to the first alone: the second waits for its turn."""
    desk = a_lab(3)
    queue(desk, JOB, replace(JOB, job="902", reason="Priority"))
    for _ in range(4):
        desk.round()
    assert starts(desk) == ["i-1", "i-2"]


def _person_switched_off(desk: SlurmDesk) -> None:
    for number in (1, 2):
        boot(desk, number)
    desk.round()
    for number in (1, 2):
        desk.fleet.put(a_slurm_machine(number, None, state=NodeState.STOPPED, **OWN))


def _person_drained(desk: SlurmDesk) -> None:
    for name, known in list(desk.slurm.known.items()):
        desk.slurm.known[name] = replace(known, reason="ann changes its disks")


def _is_in_maintenance(desk: SlurmDesk) -> None:
    for name, known in list(desk.slurm.known.items()):
        desk.slurm.known[name] = replace(known, states=("DOWN", "DRAIN", "MAINT"))


def _is_protected(desk: SlurmDesk) -> None:
    for node in list(desk.fleet.nodes_.values()):
        desk.fleet.put(replace(node, protected="a tag"))


def _slurm_powers(desk: SlurmDesk) -> None:
    desk.slurm.program = "SuspendProgram=/usr/sbin/off"


def _is_paused(desk: SlurmDesk) -> None:
    desk.ledger.pause(None, "ann", "demo", desk.clock.now())


def _is_of_a_cloud(desk: SlurmDesk) -> None:
    for node in list(desk.fleet.nodes_.values()):
        desk.fleet.put(replace(node, capacity_type=CapacityType.ON_DEMAND))


def _is_cancelled(desk: SlurmDesk) -> None:
    desk.slurm.waits = Queue()


@pytest.mark.parametrize(
    "event",
    [
        _person_switched_off,
        _person_drained,
        _is_in_maintenance,
        _is_protected,
        _slurm_powers,
        _is_paused,
        _is_of_a_cloud,
        _is_cancelled,
    ],
    ids=lambda each: each.__name__,
)
def test_no_host_is_started_that_is_somebody_elses_or_would_get_no_job(event: Callable[[SlurmDesk], None]) -> None:
    """Whoever switched it off, drained it, keeps it or powers it has the word."""
    desk = a_lab()
    queue(desk, JOB)
    event(desk)
    for _ in range(4):
        desk.round()
    assert starts(desk) == []


def test_a_dry_run_says_the_start_and_does_not_make_it() -> None:
    """The plan names it; the guard refuses it for the mode alone."""
    desk = a_lab()
    desk.enforce = False
    queue(desk, JOB)
    (review,) = [each for each in desk.round().reviews if each.step.verb is Verb.START]
    assert [each.rule for each in review.refusals] == ["observe_only"]
    assert "The job 901 of ann" in review.step.reason.sentence
    assert starts(desk) == []


@pytest.mark.parametrize(
    "rules",
    [
        replace(RULES, max_nodes=1),
        replace(RULES, schedule={"night": Window(max_nodes=1)}),
        replace(RULES, scaling=ScalingRules(), schedule={"day": Window(min_nodes=0, max_nodes=1)}),
    ],
)
def test_the_ceiling_of_the_pool_holds(rules: PoolRules) -> None:
    """By the pool's setting, or by the clock."""
    desk = a_lab(3, rules)
    queue(desk, JOB, replace(JOB, job="902"))
    for _ in range(4):
        desk.round()
    assert starts(desk) == ["i-1"]


def test_a_schedule_that_wants_one_host_has_the_one_started_that_a_job_needs() -> None:
    """Not one more besides."""
    desk = a_lab(3)
    desk.rules = replace(RULES, schedule={"office": Window(min_nodes=1)})
    queue(desk, replace(JOB, wanted="gpu-2"))
    for _ in range(3):
        desk.round()
    assert starts(desk) == ["i-2"]


def idle_until_off(desk: SlurmDesk, number: int) -> None:
    """The host is up and has no work until gpuwatch has switched it off again."""
    boot(desk, number)
    for _ in range(120):
        desk.round()
        show_off(desk)
        if f"i-{number}" not in running(desk):
            return
    raise AssertionError(desk.done(number))


def test_a_job_that_does_not_come_has_its_hosts_started_ever_more_rarely() -> None:
    """It waits on for a reason that nobody sees: at most a few starts a day of all hosts together."""
    desk = a_lab(3)
    old = (desk.clock.now() - timedelta(hours=1)).replace(tzinfo=None)
    queue(desk, replace(JOB, submitted=old))
    begun, made = desk.clock.now(), list[float]()
    while desk.clock.now() - begun < timedelta(hours=26):
        desk.round()
        now = starts(desk)
        if len(now) > len(made):
            made.append((desk.clock.now() - begun).total_seconds())
            idle_until_off(desk, int(now[-1].partition("-")[2]))
            told = step_of(desk, now[-1])
            assert told.verb is Verb.HOLD
            assert "so the next start may come at" in told.reason.sentence
        else:
            desk.rest(240.0)
    gaps = [after - before for before, after in pairwise(made)]
    assert 3 <= len(made) <= 6
    assert gaps == sorted(gaps)


def test_another_job_has_the_host_started_at_once_after_a_job_that_came() -> None:
    """The rest is for what did not come; a job that went on, or was cancelled, leaves none."""
    desk = a_lab(1)
    queue(desk, JOB)
    desk.round()
    desk.slurm.waits = Queue()
    idle_until_off(desk, 1)
    queue(desk, replace(JOB, job="902"))
    desk.round()
    assert starts(desk) == ["i-1", "i-1"]


def test_a_host_that_does_not_come_back_is_followed_by_another() -> None:
    """Its agent stays silent: after twenty minutes it is not waited for."""
    desk = a_lab()
    queue(desk, JOB)
    desk.round()
    desk.fleet.put(a_slurm_machine(1, signal=NodeReport(), **OWN))
    for _ in range(15):
        desk.round()
    assert starts(desk) == ["i-1"]
    for _ in range(10):
        desk.round()
    assert starts(desk) == ["i-1", "i-2"]


def test_hosts_that_do_not_come_back_are_followed_ever_more_rarely() -> None:
    """A broken image or network: one job does not switch on a whole room, a host each twenty minutes."""
    desk = a_lab(5)
    queue(desk, JOB)
    begun = desk.clock.now()
    while desk.clock.now() - begun < timedelta(hours=4):
        desk.round()
        for node_id in starts(desk):
            desk.fleet.put(a_slurm_machine(int(node_id.partition("-")[2]), signal=NodeReport(), **OWN))
        desk.rest(120.0)
    assert starts(desk) == ["i-1", "i-2", "i-3"]


def test_a_controller_that_starts_anew_starts_no_second_host() -> None:
    """The ledger knows the start; the host is on its way."""
    desk = a_lab()
    queue(desk, JOB)
    desk.round()
    desk.memory = type(desk.memory)()
    for _ in range(4):
        desk.round()
    assert starts(desk) == ["i-1"]


def test_a_job_that_a_host_cannot_be_started_for_is_named_with_the_reason() -> None:
    """A licence is lacking: the host stays off, and explain says what would have it started."""
    desk = a_lab()
    queue(desk, replace(JOB, reason="Licenses"))
    desk.round()
    assert step_of(desk).reason.sentence.endswith(
        "The job 901 of ann waits in Slurm (Licenses), and could run on it. gpuwatch starts it if the job lacks "
        "nothing but nodes, and could begin with those that are off."
    )
    assert starts(desk) == []


def test_a_host_started_before_slurm_has_missed_it_gets_no_job_until_its_own_slurmd_answers() -> None:
    """A BMC does not say when a host was started: gpuwatch's own start says it."""
    desk = a_lab(1)
    known = desk.slurm.known["gpu-1"]
    before = desk.clock.now() - timedelta(days=9)
    desk.slurm.known["gpu-1"] = replace(known, states=("IDLE", "DRAIN"), slurmd_since=before)
    queue(desk, JOB)
    for _ in range(4):
        desk.round()
    assert (starts(desk), running(desk)) == (["i-1"], ["i-1"])
    assert desk.slurm.known["gpu-1"].drained
    desk.slurm.known["gpu-1"] = replace(desk.slurm.known["gpu-1"], slurmd_since=desk.clock.now())
    desk.round()
    assert not desk.slurm.known["gpu-1"].drained
