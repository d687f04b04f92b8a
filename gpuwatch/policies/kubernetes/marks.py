"""PURE: marks by which another autoscaler leaves a node alone that works, or that somebody keeps.

Rules, all of them:

1. Only in a pool of cluster-autoscaler or Karpenter with `kubernetes.mark_busy`. gpuwatch removes none of its nodes.
2. A node is marked while its agent proves that it is in use, or while it is protected or snoozed. What people, or the
   other autoscaler, have marked is theirs: it is neither marked again nor unmarked.
3. A mark of our own goes once the node is proven idle for as long as its pool wants, and nobody keeps it. While nobody
   knows, it stays. Where the pool marks no longer, or the node is no longer enrolled, it goes at once.
4. If somebody takes our mark away, that is a word: the node is not marked again for `drain_rest`.
5. A node that the other autoscaler is already removing, as its taint says, gets no mark: it would come too late.
"""

from dataclasses import replace
from datetime import timedelta

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation, Step, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.kubernetes import KubernetesNode
from gpuwatch.policies import idle
from gpuwatch.policies.kubernetes.steps import FOR, UNDOES, Rules, make_step, node_arguments

_AUTOSCALERS = frozenset({"cluster-autoscaler", "karpenter"})
_MARKS = frozenset({Verb.MARK, Verb.UNMARK})
_REMOVING = ("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupt")  # how their taints begin, of each version


def marks(rules: Rules) -> bool:
    """Whether the pool's busy nodes are marked."""
    return rules.kubernetes.mark_busy and rules.kubernetes.node_owner in _AUTOSCALERS


def with_mark(step: Step, observation: Observation, rules: Rules) -> Step:
    """The mark, or its end, of a node that is otherwise left as it is."""
    node = observation.fleet.find(step.node_id)
    known = None if node is None else node.kubernetes
    if node is None or known is None or step.verb is not Verb.HOLD:
        return step
    if known.marked_by is not None:
        why = None if known.marked_by in observation.ledger.foreign else why_unmark(node, observation, rules)
        return step if why is None else _unmark(step, known, why)
    why = in_use(node)
    if why is None or not marks(rules) or not node.enrolled or known.keep is not None:
        return step
    if any(taint.key.startswith(_REMOVING) for taint in known.taints):
        return step
    if node.state is not NodeState.RUNNING or _lately(observation, node.id, rules):
        return step
    sentence = f"{why} {rules.kubernetes.node_owner} is to leave it alone."
    said = make_step(step, Verb.MARK, "mark", sentence, "Once it is idle.")
    return replace(said, arguments=node_arguments(known) | {FOR: rules.kubernetes.node_owner})


def in_use(node: Node) -> str | None:
    """Rule 2: why a node must not go, as a sentence."""
    if node.protected is not None:
        return f"It is protected: {node.protected}."
    if node.snoozed is not None:
        return f"It is snoozed until {node.snoozed}."
    state = node.activity.state
    return None if state in {State.IDLE, State.UNKNOWN} else f"It is {state.value}."


def why_unmark(node: Node, observation: Observation, rules: Rules) -> str | None:
    """Rule 3: why our own mark goes, as a sentence; None: it stays."""
    known = node.kubernetes
    if not marks(rules):
        return "Its pool marks no nodes."
    if not node.enrolled:
        return "It is no longer enrolled."
    if known is not None and known.keep is None:
        return "Somebody has taken its mark away."
    if in_use(node) is not None or node.state is not NodeState.RUNNING or node.activity.state is not State.IDLE:
        return None
    _, wait = idle.choose_action(node, observation, rules.idle)
    if wait is None or node.activity.held_seconds < wait:
        return None
    return f"It has been idle for {format_duration(node.activity.held_seconds)}."


def _unmark(step: Step, known: KubernetesNode, why: str) -> Step:
    """Return the step that takes our mark off (rule 3)."""
    said = make_step(step, Verb.UNMARK, "unmark", f"{why} gpuwatch's mark of it is taken away.", "Use.")
    return replace(said, arguments=node_arguments(known) | {UNDOES: known.marked_by or ""})


def _lately(observation: Observation, node_id: str, rules: Rules) -> bool:
    """Rule 4: whether a mark was tried lately and does not stand, for whatever reason."""
    since = observation.now - timedelta(seconds=rules.kubernetes.drain_rest)
    found = [
        done
        for done in observation.ledger.recent
        if done.verb in _MARKS and done.node_id == node_id and done.at > since
    ]
    newest = max(found, key=lambda done: done.at, default=None)
    return newest is not None and (newest.verb is Verb.MARK or "Somebody" in newest.why)
