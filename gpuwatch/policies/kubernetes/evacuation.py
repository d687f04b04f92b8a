"""PURE: a Kubernetes node that its cloud is about to take: no new pods, and those that it has are asked to go.

Rules, all of them:

1. It happens from the notice to its deadline, whatever the node does: its cloud ends it anyway. What is not gone then
   stays to the end.
2. Evictions respect PodDisruptionBudgets and each pod's time to end. A protected pod is not asked, nor one that nothing
   makes again (unless the pool evicts those): the notice may yet be taken back. Pods of DaemonSets stay.
3. It needs a pool that gpuwatch removes the nodes of. A node that somebody else has cordoned, or that its own marks
   keep, is left alone.
4. A node that is not taken is uncordoned like every node that is not to be removed any more.
"""

from dataclasses import replace

from gpuwatch.model.decision import Observation, Reason, Step, Verb
from gpuwatch.model.duration import format_time
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.kubernetes import KubernetesNode, Pod
from gpuwatch.policies.kubernetes import obstacles
from gpuwatch.policies.kubernetes.settings import KubernetesRules

# The arguments of the step: which node object, by its uid that it is still the same one, the uids of the pods that are
# asked to go, and whether it is cordoned first.
NODE, UID, CLUSTER, PODS, FIRST = "node", "uid", "cluster", "pods", "cordon_first"
_CHANGE = "Its cloud takes the notice back."


def to_move(known: KubernetesNode, rules: KubernetesRules) -> tuple[Pod, ...]:
    """The pods that are asked to go, in the order of their names."""
    bare = rules.bare_pods == "evict"
    free = (pod for pod in known.to_drain if pod.protected is None and (bare or not pod.bare))
    asked = (pod for pod in free if pod.ends_at is None)
    return tuple(sorted(asked, key=lambda pod: (str(pod), pod.uid)))


def obstacle(node: Node, observation: Observation, rules: KubernetesRules) -> str | None:
    """Why a node is not evacuated, as a sentence; None: its notice stands, and nothing is against it."""
    notice = node.cloud_notice
    if notice is None:
        return "Its cloud says nothing of taking it."
    if observation.now > notice.at:
        return f"Its deadline was {format_time(notice.at)}."
    for doubt in (
        obstacles.unknown(node, observation.fleet, rules),
        obstacles.owner(node, rules),
        obstacles.foreign_cordon(node, observation.ledger),
        obstacles.marks(node),
    ):
        if doubt is not None:
            return doubt
    return None


def evacuation_step(step: Step, observation: Observation, rules: KubernetesRules) -> Step | None:
    """The step in the place of a node's own; None: its notice, if it has one, changes nothing."""
    node = observation.fleet.find(step.node_id)
    known = None if node is None else node.kubernetes
    if node is None or known is None or node.cloud_notice is None or node.state is not NodeState.RUNNING:
        return None
    ours = known.unschedulable and obstacles.ours(known, observation.ledger)
    pods = to_move(known, rules)
    if obstacle(node, observation, rules) is None and (pods or not ours) and step.verb is not Verb.WITHDRAW:
        said = f"Its cloud takes it at {format_time(node.cloud_notice.at)}"
        sentence = f"{said}: it gets no new pods, and {len(pods)} of its pods are asked to go."
        arguments = {NODE: known.name, UID: known.uid, CLUSTER: known.cluster, PODS: " ".join(pod.uid for pod in pods)}
        return Step(
            node_id=node.id,
            verb=Verb.EVACUATE,
            reason=Reason(code="cloud_notice", sentence=sentence),
            change=_CHANGE,
            arguments=arguments | ({} if ours else {FIRST: "yes"}),
        )
    if not ours:
        return None
    reason = replace(
        step.reason, code="cloud_notice", sentence="It is cordoned, because its cloud is about to take it."
    )
    return Step(node_id=node.id, verb=Verb.HOLD, reason=reason, change=_CHANGE)
