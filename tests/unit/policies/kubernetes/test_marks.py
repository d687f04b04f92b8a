"""Marks by which another autoscaler leaves a node alone: who gets one, and when our own goes."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Done, Observation, Reason, Status, Step, Verb
from gpuwatch.model.fleet import NodeReport
from gpuwatch.model.kubernetes import ClusterView, KubernetesNode
from gpuwatch.model.placing import Taint
from gpuwatch.policies.kubernetes.nodes import node_steps
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from gpuwatch.policies.kubernetes.steps import FOR, UNDOES
from tests.support.builders.clusters import OURS, a_kubernetes_node
from tests.support.builders.fleet import NOW, a_node, a_verdict, an_observation

THEIRS = KubernetesRules(node_owner="karpenter", mark_busy=True)
PLAIN = a_kubernetes_node(owner="karpenter")
MARKED = replace(PLAIN, keep="its annotation karpenter.sh/do-not-disrupt keeps it", marked_by="gpuwatch-1")


def seen(known: KubernetesNode, state: State, held: float, **other: object) -> Observation:
    """One machine, and the node that it is."""
    ledger = other.pop("ledger", {})
    signal = (
        NodeReport(failure="silence")
        if state is State.UNKNOWN
        else NodeReport(verdict=a_verdict(state=state, held=held))
    )
    node = a_node(kubernetes=known, signal=signal, **other)  # type: ignore[arg-type]
    observation = an_observation(node, **ledger)  # type: ignore[arg-type]
    return replace(observation, fleet=replace(observation.fleet, cluster=ClusterView(name="prod", nodes=(known,))))


def told(
    known: KubernetesNode = PLAIN,
    state: State = State.BUSY,
    rules: KubernetesRules = THEIRS,
    held: float = 7200.0,
    **other: object,
) -> Step:
    """The step of a node that is otherwise held."""
    step = Step(node_id="i-1", verb=Verb.HOLD, reason=Reason(code="x", sentence="It is held."), change="Use.")
    return node_steps([step], seen(known, state, held, **other), replace(OURS, kubernetes=rules))[0]


def done(verb: Verb, minutes_ago: float, **other: object) -> Done:
    """What the ledger holds of that."""
    at = NOW - timedelta(minutes=minutes_ago)
    base = Done(key="gpuwatch-1", verb=verb, node_id="i-1", pool="default", status=Status.SETTLED, at=at)
    return replace(base, **other)  # type: ignore[arg-type]


@pytest.mark.parametrize("owner", ["karpenter", "cluster-autoscaler"])
@pytest.mark.parametrize("state", [State.BUSY, State.OCCUPIED, State.PARKED, State.STALLED])
def test_a_node_in_use_is_marked_for_the_one_that_removes_it(owner: str, state: State) -> None:
    """Whatever the use is: it is somebody's."""
    step = told(state=state, rules=replace(THEIRS, node_owner=owner))  # type: ignore[arg-type]
    assert (step.verb, step.arguments[FOR]) == (Verb.MARK, owner)


@pytest.mark.parametrize("kept", [{"protected": "a tag"}, {"snoozed": "tonight by ann"}])
def test_a_node_that_somebody_keeps_is_marked_whatever_it_does(kept: dict[str, object]) -> None:
    """Idle or silent."""
    for state in (State.IDLE, State.UNKNOWN):
        assert told(state=state, **kept).verb is Verb.MARK  # type: ignore[arg-type]


@pytest.mark.parametrize("state", [State.IDLE, State.UNKNOWN])
def test_what_is_not_proven_in_use_is_not_marked(state: State) -> None:
    """A silent node is left to its owner's own judgement."""
    assert told(state=state).verb is Verb.HOLD


@pytest.mark.parametrize(
    "rules",
    [
        replace(THEIRS, mark_busy=False),
        replace(THEIRS, node_owner="gpuwatch"),
        replace(THEIRS, node_owner="nobody"),
    ],
)
def test_only_pools_of_another_autoscaler_that_ask_for_marks_have_them(rules: KubernetesRules) -> None:
    """And a mark of ours goes where the pool asks no longer, also from a node in use."""
    assert told(rules=rules).verb is Verb.HOLD
    assert told(MARKED, rules=rules).verb is Verb.UNMARK


@pytest.mark.parametrize("key", ["karpenter.sh/disrupted", "karpenter.sh/disruption", "ToBeDeletedByClusterAutoscaler"])
def test_a_node_that_the_other_is_already_removing_is_not_marked(key: str) -> None:
    """It would not stay for that; a mere candidate would."""
    leaving, candidate = (
        replace(PLAIN, taints=(Taint(key=each, effect="NoSchedule"),))
        for each in (key, "DeletionCandidateOfClusterAutoscaler")
    )
    assert told(leaving).verb is Verb.HOLD
    assert told(candidate).verb is Verb.MARK


def test_a_mark_of_ours_stays_until_the_node_is_proven_idle_for_long() -> None:
    """Doubt keeps it; a pause between two jobs does, too."""
    for state in (State.BUSY, State.PARKED, State.UNKNOWN):
        assert told(MARKED, state).verb is Verb.HOLD
    assert told(MARKED, State.IDLE, held=30.0).verb is Verb.HOLD
    step = told(MARKED, State.IDLE)
    assert (step.verb, step.arguments[UNDOES]) == (Verb.UNMARK, "gpuwatch-1")
    assert told(MARKED, State.IDLE, protected="a tag").verb is Verb.HOLD


def test_others_marks_are_neither_doubled_nor_taken_away() -> None:
    """A person's, and another controller's."""
    persons = replace(PLAIN, keep="a person keeps it")
    for state in (State.BUSY, State.IDLE):
        assert told(persons, state).verb is Verb.HOLD
        assert told(MARKED, state, ledger={"foreign": ("gpuwatch-1",)}).verb is Verb.HOLD


def test_who_takes_our_mark_away_has_their_way() -> None:
    """What is left of it goes, and no new one comes for `drain_rest`."""
    gone = replace(MARKED, keep=None)
    assert told(gone).verb is Verb.UNMARK
    assert told(gone, held=1.0).reason.sentence.startswith("Somebody has taken its mark away.")
    for recent in (
        (done(Verb.MARK, 30),),
        (done(Verb.MARK, 30, status=Status.FAILED),),
        (done(Verb.MARK, 50), done(Verb.UNMARK, 30, why="Somebody has taken its mark away.")),
    ):
        assert told(ledger={"recent": recent}).verb is Verb.HOLD
    for recent in ((done(Verb.MARK, 61),), (done(Verb.MARK, 50), done(Verb.UNMARK, 30, why="It has been idle."))):
        assert told(ledger={"recent": recent}).verb is Verb.MARK


def test_a_node_that_is_no_longer_enrolled_loses_our_mark() -> None:
    """And gets none."""
    assert told(enrolled=False).verb is Verb.HOLD
    assert told(MARKED, enrolled=False).verb is Verb.UNMARK
