"""PURE: what the steps of Kubernetes nodes have in common: their arguments, and what the ledger holds of a node."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from gpuwatch.model.decision import REMOVAL_STEPS, Done, Observation, Reason, Status, Step, Verb
from gpuwatch.model.duration import format_time
from gpuwatch.model.fleet import Node
from gpuwatch.model.kubernetes import KubernetesNode, Pod
from gpuwatch.model.verbs import THEN
from gpuwatch.policies import idle
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.kubernetes import obstacles
from gpuwatch.policies.kubernetes.settings import KubernetesRules

# The arguments of the steps: which node object, and by its uid that it is still the same one; the key of the cordon, or
# of the mark, that is undone; the uids of the pods that are asked to go; whether a cordon comes with a taint; whose
# autoscaler a mark is for; whether somebody else has let pods onto the node before its cordon was undone.
NODE, UID, CLUSTER, UNDOES, PODS = "node", "uid", "cluster", "cordon", "pods"
TAINT, FOR, FREED = "taint", "for", "freed"
ANNOUNCES = REMOVAL_STEPS | {Verb.NOTICE}
CORDONS = frozenset({Verb.CORDON, Verb.UNCORDON, Verb.QUARANTINE})


class Rules(Protocol):
    """What of a pool's rules matters here."""

    @property
    def kubernetes(self) -> KubernetesRules:
        """Who owns its nodes, and how they are drained."""
        ...

    @property
    def idle(self) -> IdleRules:
        """How long they are to be idle."""
        ...

    @property
    def health(self) -> HealthRules:
        """What happens to sick ones."""
        ...


def node_arguments(known: KubernetesNode) -> dict[str, str]:
    """Which node object it is."""
    return {NODE: known.name, UID: known.uid, CLUSTER: known.cluster}


def last(observation: Observation, node_id: str, verbs: Collection[Verb] = CORDONS) -> Done | None:
    """The node's newest settled step of these, as far as the ledger looks back: its cordon or the end of one."""
    found = [
        done
        for done in observation.ledger.recent
        if done.verb in verbs and done.status is Status.SETTLED and done.node_id == node_id
    ]
    return max(found, key=lambda done: done.at, default=None)


def make_step(step: Step, verb: Verb, code: str, sentence: str, change: str) -> Step:
    """Another step for the same node."""
    reason = Reason(code=code, sentence=sentence, evidence=step.reason.evidence)
    return Step(node_id=step.node_id, verb=verb, reason=reason, change=change)


def rest_step(step: Step, observation: Observation, undone_at: datetime, why: str, seconds: float) -> Step | None:
    """After a cordon or a drain was undone, its notice is withdrawn, and its node rests; None: the step may come."""
    until, notice = undone_at + timedelta(seconds=seconds), observation.ledger.notice(step.node_id)
    if notice is not None and notice.at <= undone_at:
        return make_step(step, Verb.WITHDRAW, "drain_over", why, "A new notice follows if it still has no use.")
    if step.verb is Verb.HOLD or until <= observation.now:
        return None
    sentence = f"{why} It rests until {format_time(until)}."
    return make_step(step, Verb.HOLD, "drain_rest", sentence, "Then a new notice follows if it still has no use.")


def list_pods(pods: Collection[Pod]) -> str:
    """`the pod a/b is`, `the pods a/b, a/c, a/d and 2 more are`."""
    names = sorted(map(str, pods))
    if len(names) == 1:
        return f"the pod {names[0]} is"
    more = "" if len(names) <= 3 else f" and {len(names) - 3} more"  # noqa: PLR2004  as many as a line holds
    return f"the pods {', '.join(names[:3])}{more} are"


def obstacle(
    node: Node, observation: Observation, rules: KubernetesRules, idle_rules: IdleRules
) -> tuple[str, str, str] | None:
    """Why nobody may drain it, as code, sentence and remedy."""
    if (doubt := obstacles.unknown(node, observation.fleet, rules)) is not None:
        return "kubernetes_unknown", doubt, "An answer of the cluster's API server."
    if (whose := obstacles.owner(node, rules)) is not None:
        return "node_owner", whose, "pools.<name>.kubernetes.node_owner."
    if (theirs := obstacles.foreign_cordon(node, observation.ledger)) is not None:
        return "foreign_cordon", theirs, "That person, or that controller, uncordons it."
    if (kept := obstacles.marks(node)) is not None:
        return "kept_node", kept, "Without that mark."
    if (needed := obstacles.vital(node)) is not None:
        return "vital_node", needed, "Once it serves the cluster no more."
    if (data := obstacles.disk_data(node)) is not None:
        return (
            "disk_data",
            data,
            "Once its claim is gone, or says gpuwatch.io/delete-local-data (docs/kubernetes.md#annotations).",
        )
    if (lost := obstacles.unseen(node)) is not None:
        return "pods", lost, "Once their processes are gone."
    _, wait = idle.choose_action(node, observation, idle_rules)
    if (stays := obstacles.pods(node, observation, rules, wait)) is not None:
        return "pods", stays, "Once they are gone, or their people consent (docs/kubernetes.md#annotations)."
    return None


def drain(step: Step, known: KubernetesNode) -> Step:
    """The pods that are to move; without any, the removal.

    Those that a budget keeps now are asked alone: while they stay, the others would be moved for nothing.
    """
    asked = tuple(sorted((pod for pod in known.to_drain if pod.ends_at is None), key=lambda pod: (str(pod), pod.uid)))
    if not known.to_drain:
        return step
    if not asked:
        sentence = f"It is cordoned, and {list_pods(known.to_drain)} ending."
        return make_step(step, Verb.HOLD, "draining", sentence, "Once they are gone, it is removed.")
    asked = tuple(pod for pod in asked if pod.refused_by is not None) or asked
    said = replace(step.reason, code="drain", sentence=f"It is cordoned, and {list_pods(asked)} to move.")
    pods = {PODS: " ".join(pod.uid for pod in asked)}
    return replace(step, verb=Verb.DRAIN, reason=said, arguments=node_arguments(known) | {THEN: step.verb.value} | pods)
