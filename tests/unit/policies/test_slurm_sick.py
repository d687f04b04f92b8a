"""policies/slurm_sick.py: whatever Slurm and the agent show, drains and their ends have their grounds."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.decision import Observation, Reason, Step, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.health import Health
from gpuwatch.model.slurm import SlurmNode, reason_of
from gpuwatch.policies import slurm_sick
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.slurm_sick import CAUSE, NODE, UNDOES
from tests.support.builders.fleet import an_observation
from tests.support.builders.slurm import KEY, a_slurm_machine

OURS, THEIRS, FOREIGN = reason_of("sick", KEY), "fan", reason_of("sick", KEY.replace("7", "8"))
DRAINED = SlurmNode(name="gpu-1", states=("MIXED", "DRAIN"), reason=OURS)


def seen(known: SlurmNode | None, health: Health | None, **machine: object) -> Observation:
    """A fleet of one machine and its node."""
    made = an_observation(a_slurm_machine(1, health, slurm=known, **machine))
    return replace(made, ledger=replace(made.ledger, foreign=(KEY.replace("7", "8"),)))


def told(known: SlurmNode | None, health: Health | None, verb: Verb = Verb.HOLD, **machine: object) -> Step:
    """The step that comes of it, in a pool that drains."""
    step = Step(node_id="i-1", verb=verb, reason=Reason(code="busy", sentence="It is busy."), change="Use.")
    action = machine.pop("action", "drain")
    rules = HealthRules(action=action)  # type: ignore[arg-type]  # one of its words
    return slurm_sick.slurm_step(step, seen(known, health, **machine), rules)


STATES = st.tuples(
    st.sampled_from(["IDLE", "MIXED", "ALLOCATED", "DOWN", "UNKNOWN", "FUTURE"]),
    st.lists(st.sampled_from(["DRAIN", "FAIL", "MAINT", "CLOUD", "POWERED_DOWN", "NOT_RESPONDING"]), unique=True),
).map(lambda each: (each[0], *each[1]))
NODES = st.builds(
    SlurmNode,
    name=st.just("gpu-1"),
    states=STATES,
    reason=st.sampled_from([None, OURS, THEIRS, FOREIGN]),
    doubt=st.sampled_from([None, None, "Nobody knows."]),
)


@given(
    known=st.none() | NODES,
    health=st.none() | st.sampled_from(Health),
    verb=st.sampled_from([Verb.HOLD, Verb.NOTICE, Verb.STOP, Verb.QUARANTINE]),
    state=st.sampled_from([NodeState.RUNNING, NodeState.STOPPED, NodeState.UNKNOWN]),
    gpus=st.sampled_from([1, 8, None]),
    action=st.sampled_from(["tell", "cordon", "drain", "replace"]),
)
def test_nothing_is_drained_or_resumed_without_its_grounds(
    known: SlurmNode | None, health: Health | None, verb: Verb, state: NodeState, gpus: int | None, action: str
) -> None:
    """Drained: sick, wanted, and given jobs. Resumed: our own, and every GPU known and not failing. Else: as it was."""
    step = told(known, health, verb, state=state, gpu_count=gpus, action=action)
    if step.verb is Verb.SLURM_DRAIN:
        assert known is not None
        assert (known.doubt, health, state) == (None, Health.FAILING, NodeState.RUNNING)
        assert known.sound
        assert not known.drained
        assert action != "tell"
        assert step.arguments[NODE] == "gpu-1"
    elif step.verb is Verb.SLURM_RESUME:
        assert known is not None
        assert (known.doubt, known.drained_by, state, gpus) == (None, KEY, NodeState.RUNNING, 1)
        assert known.resumable
        assert known.answers
        assert health in {Health.HEALTHY, Health.DEGRADED}
        assert step.arguments[UNDOES] == KEY
    else:
        assert step.verb is verb


def test_a_sick_node_is_drained_with_its_cause() -> None:
    """The sentence says what becomes of its jobs."""
    step = told(SlurmNode(name="gpu-1", states=("ALLOCATED",)), Health.FAILING)
    assert step.verb is Verb.SLURM_DRAIN
    assert step.arguments[CAUSE].startswith("Its GPU 0 is failing")
    assert "those on it run to their end" in step.reason.sentence


@pytest.mark.parametrize(
    ("known", "health", "words"),
    [
        (DRAINED, Health.FAILING, "drained in Slurm by gpuwatch"),
        (DRAINED, Health.UNKNOWN, "Nobody knows whether its GPU 0 is well. It is drained in Slurm by gpuwatch."),
        (
            replace(DRAINED, states=("DOWN", "DRAIN", "NOT_RESPONDING")),
            Health.HEALTHY,
            "Slurm shows it DOWN+DRAIN+NOT_RESPONDING, so its drain stays.",
        ),
        (replace(DRAINED, reason=THEIRS), Health.FAILING, "with the reason 'fan', so it is left alone."),
        (SlurmNode(doubt="Slurm gives no answer."), Health.FAILING, "Slurm gives no answer."),
    ],
)
def test_a_node_that_is_left_as_it_is_says_why(known: SlurmNode, health: Health, words: str) -> None:
    """With the reason of the other policies before it."""
    sentence = told(known, health).reason.sentence
    assert sentence.startswith("It is busy. ")
    assert words in sentence


def test_a_node_that_is_well_says_nothing_of_slurm() -> None:
    """Nor does a machine of other pools."""
    assert told(SlurmNode(name="gpu-1", states=("IDLE",)), Health.HEALTHY).reason.sentence == "It is busy."
    assert told(None, Health.FAILING).reason.sentence == "It is busy."
