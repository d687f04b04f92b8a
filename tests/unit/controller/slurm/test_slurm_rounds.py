"""Sick nodes of a Slurm cluster over whole rounds: drained once, resumed once well, and never somebody else's."""

from dataclasses import replace

import pytest

from gpuwatch.clouds import AuthFailedError, CloudUnavailableError
from gpuwatch.controller.round import step
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.health import Health
from gpuwatch.policies.health_settings import HealthRules
from tests.support.builders.fleet import RULES
from tests.support.builders.slurm import DRAINING, KEY, SlurmDesk, a_slurm_desk, a_slurm_machine
from tests.support.crash_points import Mortal, PowerCut

DRAINED, RESUMED = (Verb.SLURM_DRAIN, "settled"), (Verb.SLURM_RESUME, "settled")


def rounds(desk: SlurmDesk, count: int = 4) -> None:
    """So many."""
    for _ in range(count):
        desk.round()


def test_a_sick_node_is_drained_once_with_the_cause_and_resumed_once_it_is_well() -> None:
    """Its reason in Slurm bears the cause and the key of the intent; nothing happens to the machine or to others."""
    desk = a_slurm_desk()
    rounds(desk)

    known = desk.slurm.known["gpu-1"]
    assert (known.state, desk.done()) == ("MIXED+DRAIN", [DRAINED])
    assert known.reason == (f"gpuwatch: Its GPU 0 is failing: The GPU has fallen off the bus. {desk.slurm.calls[0][2]}")
    assert desk.fleet.calls == []

    desk.turn(1, Health.HEALTHY)
    rounds(desk)
    assert (desk.slurm.known["gpu-1"].state, desk.done()) == ("MIXED", [DRAINED, RESUMED])
    assert [call for call, *_ in desk.slurm.calls] == ["drain", "resume"]


def test_observe_mode_tells_and_does_nothing() -> None:
    """The plan names the drain; the guard refuses it alone for the mode."""
    desk = a_slurm_desk(enforce=False)
    (review,) = [each for each in desk.round().reviews if each.step.verb is Verb.SLURM_DRAIN]

    assert [each.rule for each in review.refusals] == ["observe_only"]
    assert "GPU 0 is failing" in review.step.reason.sentence
    assert desk.slurm.calls == []


def test_a_pool_that_only_tells_drains_nothing() -> None:
    """`health.action: tell` is the default."""
    desk = a_slurm_desk(rules=RULES)
    rounds(desk)
    assert desk.slurm.calls == []


def test_without_slurm_in_the_settings_nothing_changes() -> None:
    """Nor are machines of other pools nodes of it."""
    desk = a_slurm_desk(has_slurm=False)
    rounds(desk)
    assert desk.done() == []
    elsewhere = a_slurm_desk()
    elsewhere.slurm.pools = ("batch",)
    rounds(elsewhere)
    assert elsewhere.done() == []


@pytest.mark.parametrize(
    "states", [("IDLE", "DRAIN"), ("DOWN",), ("DOWN", "DRAIN"), ("MIXED", "FAIL"), ("IDLE", "MAINT")]
)
def test_what_somebody_else_has_taken_out_is_left_alone(states: tuple[str, ...]) -> None:
    """Neither while its GPU is failing nor once it is well."""
    desk = a_slurm_desk()
    desk.slurm.put("gpu-1", *states, reason="ann replaces its fan")
    before = desk.slurm.known["gpu-1"]
    rounds(desk)
    desk.turn(1, Health.HEALTHY)
    rounds(desk)
    assert (desk.slurm.known["gpu-1"], desk.slurm.calls) == (before, [])


def test_a_drain_that_somebody_made_theirs_is_not_undone() -> None:
    """A person who writes another reason takes it over."""
    desk = a_slurm_desk()
    rounds(desk)
    desk.slurm.known["gpu-1"] = replace(desk.slurm.known["gpu-1"], reason="waiting for a spare part")
    desk.turn(1, Health.HEALTHY)
    rounds(desk)
    assert [call for call, *_ in desk.slurm.calls] == ["drain"]


def test_a_key_that_this_ledger_lacks_pauses_everything_and_is_never_undone() -> None:
    """Another controller drained it, or the ledger is not the one that was written."""
    desk = a_slurm_desk()
    desk.slurm.put("gpu-2", "IDLE", "DRAIN", reason=f"gpuwatch: GPU 0 is failing {KEY}")
    rounds(desk)
    assert desk.slurm.calls == []
    assert desk.ledger.view(desk.clock.now()).pauses != ()


@pytest.mark.parametrize("health", [None, Health.UNKNOWN, Health.FAILING])
def test_only_a_node_whose_gpus_are_all_known_to_be_well_is_resumed(health: Health | None) -> None:
    """Silence about a GPU does not heal it."""
    desk = a_slurm_desk()
    rounds(desk)
    desk.turn(1, health)
    rounds(desk)
    assert desk.slurm.known["gpu-1"].drained
    desk.fleet.put(a_slurm_machine(1, gpu_count=8))
    desk.rest(0.0)
    rounds(desk)
    assert desk.slurm.known["gpu-1"].drained, "seven GPUs are not seen"


def test_a_degraded_gpu_keeps_no_node_from_jobs() -> None:
    """It works."""
    desk = a_slurm_desk()
    rounds(desk)
    desk.turn(1, Health.DEGRADED)
    rounds(desk)
    assert not desk.slurm.known["gpu-1"].drained


def test_a_sick_node_that_somebody_resumed_is_left_alone_for_a_day() -> None:
    """A person's word; then it is drained again."""
    desk = a_slurm_desk(rules=replace(RULES, health=replace(DRAINING.health, drain_rest=7200.0)))
    rounds(desk)
    desk.slurm.undrain("gpu-1")
    rounds(desk, 10)
    assert len(desk.slurm.calls) == 1
    desk.rest(7200.0)
    rounds(desk)
    assert [call for call, *_ in desk.slurm.calls] == ["drain", "drain"]


def test_only_a_share_of_the_pool_is_drained() -> None:
    """Also where others have drained nodes: a fault of the driver must not empty the cluster."""
    desk = a_slurm_desk()
    for number in (1, 2, 3, 4):
        desk.turn(number, Health.FAILING)
    rounds(desk)
    assert sum(each.drained for each in desk.slurm.known.values()) == 2
    others = a_slurm_desk()
    others.slurm.put("gpu-3", "IDLE", "DRAIN", reason="ann")
    others.slurm.put("gpu-4", "DOWN")
    rounds(others)
    assert others.slurm.calls == []


def test_slurm_that_gives_no_answer_changes_nothing_else() -> None:
    """The round goes on; the sick node's reason says why it is not drained."""
    desk = a_slurm_desk()
    desk.slurm.fault = lambda _: CloudUnavailableError("scontrol show did not end within 10s")
    done = desk.round()
    (found,) = [each for each in done.decisions[0].steps if each.node_id == "i-1"]
    assert found.verb is Verb.HOLD
    assert "Slurm gives no answer: scontrol show did not end within 10s" in found.reason.sentence
    assert done.trouble is None


def test_an_update_whose_answer_is_lost_is_settled_by_what_slurm_shows() -> None:
    """It is not asked for twice."""
    desk = a_slurm_desk()
    desk.slurm.lose = lambda call: CloudUnavailableError("timeout") if call in {"drain", "resume"} else None
    rounds(desk)
    assert desk.done() == [DRAINED]
    desk.turn(1, Health.HEALTHY)
    rounds(desk)
    assert desk.done() == [DRAINED, RESUMED]
    assert [call for call, *_ in desk.slurm.calls] == ["drain", "resume"]


def test_a_user_who_is_no_operator_is_told_so_and_tried_again() -> None:
    """Slurm's refusal is in the ledger; the other machines' steps go on."""
    desk = a_slurm_desk()
    desk.slurm.fault = lambda call: AuthFailedError("Invalid user id") if call == "drain" else None
    rounds(desk, 2)
    assert desk.done() == [(Verb.SLURM_DRAIN, "denied")]
    desk.slurm.fault = lambda _: None
    desk.rest(60.0)
    rounds(desk)
    assert desk.done() == [DRAINED]


def test_a_stopped_machine_is_neither_drained_nor_resumed() -> None:
    """Nobody knows its GPUs."""
    desk = a_slurm_desk()
    rounds(desk)
    desk.fleet.put(a_slurm_machine(1, None, state=NodeState.STOPPED))
    rounds(desk)
    assert desk.slurm.known["gpu-1"].drained


CUTS = [
    f"{when} {call}" for call in ("record_round", "intend", "drain", "settle", "nodes") for when in ("before", "after")
]


@pytest.mark.parametrize("where", CUTS)
@pytest.mark.parametrize("resumes", [False, True])
def test_a_power_cut_anywhere_leaves_one_drain_and_one_end_of_it(where: str, *, resumes: bool) -> None:
    """Cut at the first such call of the drain, or of its end: each change has its intent, each intent its end."""
    desk = a_slurm_desk()
    if resumes:
        rounds(desk)
        desk.turn(1, Health.HEALTHY)
        where = where.replace("drain", "resume")

    def die(here: str) -> None:
        if here == where:
            raise PowerCut(here)

    parts = desk.parts
    mortal = replace(parts, ledger=Mortal(parts.ledger, die), slurm=Mortal(desk.slurm, die))  # type: ignore[arg-type]
    with pytest.raises(PowerCut):
        step(mortal)
    desk.rest(60.0)
    desk.memory = type(desk.memory)()
    rounds(desk, 6)

    drained = not resumes
    assert desk.slurm.known["gpu-1"].drained is drained
    wanted = ["drain", "resume"] if resumes else ["drain"]
    assert [call for call, *_ in desk.slurm.calls] == wanted, "each is asked for once"
    assert desk.ledger.view(desk.clock.now()).open_intents == ()
    keys = {entry.intent.key for entry in desk.ledger.history("i-1", limit=50)}
    assert {key for _, _, key in desk.slurm.calls} <= keys, "each change has its record"


def test_a_gpu_that_recovers_between_the_cut_and_the_restart_is_given_back() -> None:
    """The drain whose answer was never written down is known as ours by its key."""
    desk = a_slurm_desk()

    def die(here: str) -> None:
        if here == "after drain":
            raise PowerCut(here)

    with pytest.raises(PowerCut):
        step(replace(desk.parts, slurm=Mortal(desk.slurm, die)))  # type: ignore[arg-type]
    assert desk.slurm.known["gpu-1"].drained
    desk.turn(1, Health.HEALTHY)
    rounds(desk)
    assert desk.done() == [DRAINED, RESUMED]


def test_a_pause_keeps_things_as_they_are() -> None:
    """Nothing is drained and nothing resumed."""
    desk = a_slurm_desk(rules=replace(DRAINING, health=HealthRules(action="cordon", max_cordoned_ratio=1.0)))
    rounds(desk)
    desk.ledger.pause(None, "ann", "maintenance", desk.clock.now())
    desk.turn(1, Health.HEALTHY)
    desk.turn(2, Health.FAILING)
    rounds(desk)
    assert [call for call, *_ in desk.slurm.calls] == ["drain"]
