"""PURE: the removal of a machine that is a Kubernetes node, one step a round, each decided afresh by what is seen.

Rules, all of them:

1. What the other policies decide stands. Where that is a removal, its first steps come before it: CORDON, then DRAIN as
   long as pods are to move, then the removal itself once none is left.
2. A node that nobody may drain (gpuwatch.policies.kubernetes.obstacles) gets no notice; one that it has is withdrawn.
   While the cluster is not known, a notice waits.
3. A cordon of our own is undone as soon as the node is not to be removed any more: it works, somebody keeps it, a pod
   came that must not move, the pool is paused, or nobody knows the cluster. While only the use of the node is unknown,
   the cordon waits for the end of its time. A cordon of somebody else is never undone.
4. A cordon has `drain_timeout` for the drain, and as long again for the removal. Then it is undone.
5. After a cordon was undone, its notice is withdrawn with the reason, and `drain_rest` passes before the next.
6. What somebody has uncordoned is kept, as after rule 4.
7. What a failing GPU changes of all this is in gpuwatch.policies.kubernetes.sick, and the marks for other autoscalers
   are in gpuwatch.policies.kubernetes.marks.
8. What its cloud is about to take is evacuated first (gpuwatch.policies.kubernetes.evacuation).
9. Once its pods are gone, their volumes have until `drain_timeout` to be detached: a machine that ends with one of them
   keeps it from the pod's next node for minutes.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from gpuwatch.model.decision import REMOVAL_STEPS, Observation, Step, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.kubernetes import KubernetesNode
from gpuwatch.model.proposal import changing
from gpuwatch.model.verbs import THEN
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.kubernetes import obstacles
from gpuwatch.policies.kubernetes.evacuation import evacuation_step
from gpuwatch.policies.kubernetes.marks import with_mark
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from gpuwatch.policies.kubernetes.sick import ill, quarantine_step, stays_ill
from gpuwatch.policies.kubernetes.steps import (
    ANNOUNCES,
    FREED,
    UNDOES,
    Rules,
    drain,
    last,
    list_pods,
    make_step,
    node_arguments,
    obstacle,
    rest_step,
)

_TOWARDS_A_DRAIN = frozenset({Verb.NOTICE, Verb.CORDON, Verb.DRAIN})
_CLOCK_SLACK_SECONDS = 60.0  # a cordon of the future has no end by our clock
_SHOWS = timedelta(minutes=2)  # a view of the cluster may be older than the answer that showed the cordon
_GONE = frozenset({NodeState.STOPPING, NodeState.TERMINATING, NodeState.TERMINATED})


def node_steps(steps: Sequence[Step], observation: Observation, rules: Rules) -> tuple[Step, ...]:
    """The steps; where a node is one of a cluster, what comes before its step, or what undoes what came before."""
    if not observation.fleet.in_kubernetes:
        return _of_machines(steps, observation, rules)
    found = [
        evacuation_step(step, observation, rules.kubernetes)
        or _with_own(_node_step(step, observation, rules), observation, rules)
        for step in steps
    ]
    return tuple([_foretold(step, observation) for step in found])


def _of_machines(steps: Sequence[Step], observation: Observation, rules: Rules) -> tuple[Step, ...]:
    """The steps of machines that are no nodes of a cluster, as far as is known: only a notice or a removal may wait."""
    told = {step.node_id: _node_step(step, observation, rules) for step in changing(steps) if step.verb in ANNOUNCES}
    if all(step is told.get(step.node_id, step) for step in changing(steps)):
        return steps if isinstance(steps, tuple) else tuple(steps)
    return tuple([told.get(step.node_id, step) if step.verb in ANNOUNCES else step for step in steps])


def _foretold(step: Step, observation: Observation) -> Step:
    """The step, with the PodDisruptionBudgets that would refuse its drain now: people read of them before it begins."""
    node = observation.fleet.find(step.node_id) if step.verb in _TOWARDS_A_DRAIN else None
    why = None if node is None or node.kubernetes is None else obstacles.refusing_budgets(node.kubernetes)
    if why is None:
        return step
    return replace(step, reason=replace(step.reason, sentence=f"{step.reason.sentence} {why}"))


def _with_own(step: Step, observation: Observation, rules: Rules) -> Step:
    """What Kubernetes alone has to do with a node that is otherwise left as it is."""
    return with_mark(quarantine_step(step, observation, rules), observation, rules)


def _node_step(step: Step, observation: Observation, pool: Rules) -> Step:
    """Return the step of one node."""
    rules, idle_rules = pool.kubernetes, pool.idle
    node = observation.fleet.find(step.node_id)
    if node is None or step.verb in {Verb.START, Verb.UNCORDON}:
        return step
    known = node.kubernetes
    if known is None:
        doubt = obstacles.unknown(node, observation.fleet, rules) if step.verb in ANNOUNCES else None
        return (
            step
            if doubt is None
            else make_step(step, Verb.HOLD, "kubernetes_unknown", doubt, "That it is one of them.")
        )
    if obstacles.ours(known, observation.ledger):
        if stays_ill(node, known, observation, pool):
            return ill(step, node, known, observation, pool)
        return _step_after_cordon(step, node, known, observation, rules, idle_rules)
    if obstacles.has_leftover_taint(known, observation.ledger):
        return _uncordon(step, known, "Somebody has uncordoned it.", freed=True)
    if step.verb in ANNOUNCES and (why := obstacle(node, observation, rules, idle_rules)) is not None:
        code, sentence, change = why
        stands = code != "kubernetes_unknown" and observation.ledger.notice(node.id) is not None
        return make_step(step, Verb.WITHDRAW if stands else Verb.HOLD, code, sentence, change)
    if (held := _rest_step(step, node, observation, rules)) is not None:
        return held
    if step.verb in REMOVAL_STEPS and node.state is NodeState.RUNNING:
        return _cordon(step, known)
    return step


def _step_after_cordon(
    step: Step,
    node: Node,
    known: KubernetesNode,
    observation: Observation,
    rules: KubernetesRules,
    idle_rules: IdleRules,
) -> Step:
    """What comes after our own cordon."""
    if node.state in _GONE or (node.state is NodeState.STOPPED and known.ready):
        return step  # it is on its way down: once it is there, nobody's pods come before the next round sees that
    if node.state is NodeState.STOPPED:
        return _uncordon(step, known, "It is stopped.")
    if not known.unschedulable:
        return _uncordon(step, known, "Somebody has uncordoned it.")
    age = None if known.cordoned_at is None else (observation.now - known.cordoned_at).total_seconds()
    given = rules.drain_timeout * (1 if known.to_drain else 2)
    if age is None or not -_CLOCK_SLACK_SECONDS <= age <= given:
        what = f"It was drained, and not removed within {format_duration(given)}."
        if known.to_drain:
            what = f"Its drain was not over within {format_duration(given)}: {list_pods(known.to_drain)} still there."
        return _uncordon(step, known, what)
    if (paused := obstacles.why_paused(observation, node.pool)) is not None:
        return _uncordon(step, known, paused)
    if not node.enrolled:
        return _uncordon(step, known, "It is no longer enrolled.")
    if step.verb not in REMOVAL_STEPS:
        return step if _waits(step, node) else _uncordon(step, known, step.reason.sentence)
    if (why := obstacle(node, observation, rules, idle_rules)) is not None:
        return _uncordon(step, known, why[1])
    if known.attached and not known.to_drain and age <= rules.drain_timeout:
        return make_step(step, Verb.HOLD, "draining", _attached_words(known), "Once they are detached, it is removed.")
    return drain(step, known)


def _attached_words(known: KubernetesNode) -> str:
    """Rule 9, as a sentence."""
    first, *others = known.attached
    if others:
        return f"Its pods are gone, and the volume {first} and {len(others)} more are still attached to it."
    return f"Its pods are gone, and the volume {first} is still attached to it."


def _waits(step: Step, node: Node) -> bool:
    """Rule 3: whether nothing is known against the removal, and nothing for it."""
    unknown = node.state is NodeState.UNKNOWN or step.reason.code == "unknown"
    return step.verb is Verb.HOLD and unknown


def _cordon(step: Step, known: KubernetesNode) -> Step:
    """Rule 1: the first step."""
    sentence = f"{step.reason.sentence} First Kubernetes gives it no new pods."
    said = replace(step.reason, code="cordon", sentence=sentence)
    return replace(step, verb=Verb.CORDON, reason=said, arguments=node_arguments(known) | {THEN: step.verb.value})


def _uncordon(step: Step, known: KubernetesNode, why: str, *, freed: bool = False) -> Step:
    """Return the step that undoes our cordon (rule 3)."""
    said = replace(step.reason, code="uncordon", sentence=f"{why} gpuwatch's cordon of it is undone.")
    arguments = node_arguments(known) | {UNDOES: known.cordoned_by or known.tainted_by or ""}
    arguments |= {FREED: "true"} if freed else {}
    return replace(step, verb=Verb.UNCORDON, reason=said, change="Nothing: it is kept.", arguments=arguments)


def _rest_step(step: Step, node: Node, observation: Observation, rules: KubernetesRules) -> Step | None:
    """Rules 5 and 6: the withdrawal, or the hold, of what would come too soon; None: it may come."""
    newest = last(observation, node.id)
    if newest is None or newest.verb is Verb.QUARANTINE or step.verb not in ANNOUNCES | {Verb.HOLD}:
        return None
    if newest.verb is Verb.CORDON and observation.now - newest.at <= _SHOWS:
        waits = step.verb in REMOVAL_STEPS
        return (
            make_step(step, Verb.HOLD, "cordon", "Its cordon does not show yet.", "The next rounds.") if waits else None
        )
    why = "Somebody has uncordoned it." if newest.verb is Verb.CORDON else newest.why
    return rest_step(step, observation, newest.at, why, rules.drain_rest)
