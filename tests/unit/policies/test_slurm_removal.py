"""policies/slurm_removal.py: whatever Slurm, cloud and ledger show, each drain and its end have their grounds."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import State
from gpuwatch.model.decision import REMOVALS, Done, Reason, Status, Step, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.slurm import LEAVES, SlurmNode, reason_of
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.kubernetes.steps import ANNOUNCES
from gpuwatch.policies.slurm_removal import DRAIN_SECONDS, removal_step
from gpuwatch.policies.slurm_sick import NODE, UNDOES
from tests.support.builders.fleet import NOW, an_observation
from tests.support.builders.slurm import KEY, a_report, a_slurm_machine

FOREIGN = KEY.replace("7", "8")
REASONS = [None, "fan", reason_of(LEAVES, KEY), reason_of(LEAVES, FOREIGN), reason_of("Its GPU 0 is failing.", KEY)]
STATES = st.tuples(
    st.sampled_from(["IDLE", "MIXED", "ALLOCATED", "DOWN", "UNKNOWN"]),
    st.lists(
        st.sampled_from(["DRAIN", "NOT_RESPONDING", "COMPLETING", "PLANNED", "CLOUD", "POWERED_DOWN", "MAINT"]),
        unique=True,
        max_size=3,
    ),
).map(lambda each: (each[0], *each[1]))
NODES = st.builds(
    SlurmNode,
    name=st.just("gpu-1"),
    states=STATES,
    reason=st.sampled_from(REASONS),
    doubt=st.sampled_from([None, None, None, "Nobody knows."]),
    wanted_by=st.sampled_from([None, None, "The job 7 of ann waits."]),
    slurmd_since=st.sampled_from([None, NOW, NOW - timedelta(days=9)]),
)
VERBS = st.sampled_from([Verb.HOLD, Verb.NOTICE, Verb.WITHDRAW, Verb.STOP, Verb.TERMINATE, Verb.UNPROTECT])


def told(known: SlurmNode, verb: Verb, state: NodeState, drained_ago: float | None) -> Step:
    """The step that comes of it; our drain was settled so many seconds ago, or is not on record."""
    machine = a_slurm_machine(1, signal=a_report(state=State.IDLE), slurm=known, state=state, launched_at=NOW)
    made = an_observation(machine)
    drain = Done(
        key=KEY,
        verb=Verb.CORDON,
        node_id="i-1",
        pool="default",
        status=Status.SETTLED,
        at=NOW - timedelta(seconds=drained_ago or 0.0),
        arguments={NODE: "gpu-1"},
    )
    recent = () if drained_ago is None else (drain,)
    made = replace(made, ledger=replace(made.ledger, foreign=(FOREIGN,), recent=recent))
    step = Step(node_id="i-1", verb=verb, reason=Reason(code="idle", sentence="It is idle."), change="Use.")
    return removal_step(step, made, HealthRules())


@given(
    known=NODES,
    verb=VERBS,
    state=st.sampled_from([NodeState.RUNNING, NodeState.STOPPED, NodeState.STOPPING, NodeState.PENDING]),
    drained_ago=st.sampled_from([None, 60.0, DRAIN_SECONDS + 60.0]),
)
def test_every_step_has_its_grounds(known: SlurmNode, verb: Verb, state: NodeState, drained_ago: float | None) -> None:
    """A node is drained to be removed, removed once drained, and given back only with our own key, where it runs."""
    step = told(known, verb, state, drained_ago)
    if step.verb is Verb.CORDON:
        assert (state, known.drained, known.wanted_by) == (NodeState.RUNNING, False, None)
        assert verb in REMOVALS | {Verb.UNPROTECT}
    elif step.verb is Verb.UNCORDON:
        assert (state, known.drained_by, known.leaves) == (NodeState.RUNNING, KEY, True)
        assert known.answers
        assert known.resumable
        assert step.arguments[UNDOES] == KEY
    elif step.verb in REMOVALS | {Verb.UNPROTECT}:
        assert step.verb is verb, "nothing is sharpened"
        assert known.doubt is not None or known.drained or state is not NodeState.RUNNING
    if state is NodeState.RUNNING and known.doubt is None and known.wanted_by is not None:
        assert step.verb not in ANNOUNCES, "a job waits for it"
    if state is not NodeState.RUNNING:
        assert step.verb is verb, "its drain stays while it is off"


@given(known=NODES, verb=VERBS, drained_ago=st.sampled_from([None, 60.0]))
def test_a_job_that_waits_never_makes_a_removal_likelier(
    known: SlurmNode, verb: Verb, drained_ago: float | None
) -> None:
    """P8."""
    free = told(replace(known, wanted_by=None), verb, NodeState.RUNNING, drained_ago)
    kept = told(replace(known, wanted_by="The job 7 of ann waits."), verb, NodeState.RUNNING, drained_ago)
    assert kept.verb not in ANNOUNCES or kept.verb is free.verb


@pytest.mark.parametrize(
    ("states", "since", "words"),
    [
        (("IDLE", "DRAIN", "NOT_RESPONDING"), None, "its slurmd does not answer yet."),
        (("DOWN", "DRAIN", "NOT_RESPONDING"), None, "its slurmd does not answer yet."),
        (("IDLE", "DRAIN"), NOW - timedelta(days=9), "its slurmd has not answered since its start."),
        (("IDLE", "DRAIN", "MAINT"), NOW, "Slurm shows it IDLE+DRAIN+MAINT."),
    ],
)
def test_a_drain_that_stays_says_why(states: tuple[str, ...], since: object, words: str) -> None:
    """After the reason of the other policies."""
    known = SlurmNode(name="gpu-1", states=states, reason=reason_of(LEAVES, KEY), slurmd_since=since)  # type: ignore[arg-type]
    step = told(known, Verb.HOLD, NodeState.RUNNING, None)
    assert step.verb is Verb.HOLD
    assert step.reason.sentence == f"It is idle. gpuwatch's drain of it in Slurm stays for now: {words}"
