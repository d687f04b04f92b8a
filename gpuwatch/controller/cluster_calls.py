"""What is asked of a cluster's API server: the last look at a node, its cordon, its drain, and what became of them."""

from dataclasses import replace

from gpuwatch.clouds import CloudError, NotFoundError
from gpuwatch.clouds.permit import Permit
from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.launches import Found
from gpuwatch.kubernetes import Cluster
from gpuwatch.model.decision import Intent, OpenIntent, Status, Step, Verb
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.kubernetes import Drain, KubernetesNode
from gpuwatch.policies.kubernetes.evacuation import FIRST
from gpuwatch.policies.kubernetes.steps import FOR, NODE, PODS, TAINT, UID, UNDOES

_NO_CLUSTER = "no Kubernetes cluster is in the settings"
_NAMED = 3  # pods in an outcome


def looked_at(parts: ControllerContext, node: Node, seen: KubernetesNode | None) -> Node | str:
    """The node with its node object as the API server shows it now; or why that is no ground for a removal.

    `seen` is the node object that the decision rests on; a stopped machine has no pods to ask about.
    """
    if seen is None or node.state is NodeState.STOPPED:
        return node if node.kubernetes is seen else replace(node, kubernetes=seen)
    if parts.cluster is None:
        return _NO_CLUSTER
    try:
        known = parts.cluster.node(seen.name)
    except CloudError as error:
        return f"the cluster gives no answer about it: {error}"
    if known is None:
        return f"the cluster has no node {seen.name} any more"
    if known.uid != seen.uid:
        return f"the cluster has another node under the name {seen.name}"
    if known.provider_id != seen.provider_id:
        return f"the node {seen.name} names another machine now ({known.provider_id or 'none'})"
    return replace(node, kubernetes=known)


def stays_now(asked: Step, again: Step) -> str | None:
    """Why an eviction does not leave: a pod that was to go has to stay by now. What has gone meanwhile is no reason."""
    if asked.verb is not Verb.EVICT:
        return None
    wanted, free = (set(each.arguments.get(PODS, "").split()) for each in (asked, again))
    return None if wanted <= free else f"{_pods(len(wanted - free))} that were to go have to stay, or have gone"


def asked(parts: ControllerContext, intent: Intent, permit: Permit) -> tuple[Status, str]:
    """The call that the intent's verb stands for.

    Raises:
        CloudError: as `Cluster` raises it.

    """
    cluster, name = parts.cluster, intent.arguments[NODE]
    if cluster is None:
        raise NotFoundError(_NO_CLUSTER)
    if intent.verb is Verb.EVACUATE and FIRST in intent.arguments:
        cluster.cordon(name, intent.key, permit=permit)
    if intent.verb in {Verb.DRAIN, Verb.EVACUATE, Verb.EVICT}:
        drain = cluster.drain(name, tuple(intent.arguments[PODS].split()), intent.key, permit=permit)
        return Status.SETTLED, drained(drain)
    try:
        if intent.verb is Verb.UNCORDON:
            cluster.uncordon(name, intent.arguments[UNDOES])
        elif intent.verb is Verb.MARK:
            cluster.mark(name, intent.arguments[FOR], intent.key, permit=permit)
        elif intent.verb is Verb.UNMARK:
            cluster.unmark(name, intent.arguments[UNDOES])
        else:
            cluster.cordon(name, intent.key, permit=permit, taint=TAINT in intent.arguments)
    except NotFoundError as error:
        # It will not come back under that uid.
        ended = Status.SETTLED if intent.verb in {Verb.UNCORDON, Verb.UNMARK} else Status.CANCELLED
        return ended, f"there is nothing to {intent.verb.value}: {error}"
    return Status.ACCEPTED, f"the API server accepted the {intent.verb.value}"


def drained(drain: Drain) -> str:
    """What the API server answered, in one line: a refusal is an answer."""
    words = [f"{_pods(len(drain.evicted))} asked to go"]
    names = sorted(drain.refused)
    if names:
        why = "; ".join(f"{name}: {drain.refused[name].rstrip('.')}" for name in names[:_NAMED])
        more = f"; and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        words.append(f"{_pods(len(names))} kept ({why}{more})")
    return f"{', '.join(words)}; {_pods(drain.left)} still there"


def _pods(count: int) -> str:
    """`1 pod`, `2 pods`."""
    return f"{count} pod{'' if count == 1 else 's'}"


def became(parts: ControllerContext, entry: OpenIntent) -> Found:
    """What the API server shows of an open cordon, drain or uncordoning; its answers are of now, never late.

    Raises:
        CloudError: no answer.

    """
    if parts.cluster is None:
        return Status.FAILED if entry.reached else Status.CANCELLED, _NO_CLUSTER
    if entry.resumable and not entry.reached:
        return None
    known = _same(parts.cluster, entry.intent)
    shown = _SHOWN[entry.intent.verb](entry.intent, known)
    if shown is not None:
        return Status.SETTLED, shown
    if known is None:
        return Status.CANCELLED, "the cluster has no such node any more"
    return None if entry.resumable else (Status.INTERRUPTED, "the API server does not show it")


def _same(cluster: Cluster, intent: Intent) -> KubernetesNode | None:
    """The node object that the intent is about; None: it is gone, and another may have its name."""
    known = cluster.node(intent.arguments[NODE])
    return known if known is not None and known.uid == intent.arguments[UID] else None


def _cordoned(intent: Intent, known: KubernetesNode | None) -> str | None:
    """Our own mark on it."""
    if known is None or not known.unschedulable or known.cordoned_by != intent.key:
        return None
    return "the API server shows it cordoned"


def _uncordoned(intent: Intent, known: KubernetesNode | None) -> str | None:
    """The cordon that was to be undone is not there."""
    if known is not None and intent.arguments[UNDOES] in {known.cordoned_by, known.tainted_by}:
        return None
    return "the API server shows it without that cordon"


def _left(intent: Intent, known: KubernetesNode | None) -> str | None:
    """However many are left: the next drain asks those again."""
    wanted = intent.arguments[PODS].split()
    there = {pod.uid for pod in (() if known is None else known.to_drain)}
    return f"the API server shows {sum(uid in there for uid in wanted)} of {len(wanted)} pods still there"


def _marked(intent: Intent, known: KubernetesNode | None) -> str | None:
    """Our own mark on it."""
    return "the API server shows the mark" if known is not None and known.marked_by == intent.key else None


def _unmarked(intent: Intent, known: KubernetesNode | None) -> str | None:
    """The mark that was to go is not there."""
    stands = known is not None and known.marked_by == intent.arguments[UNDOES]
    return None if stands else "the API server shows it without that mark"


_SHOWN = {
    Verb.CORDON: _cordoned,
    Verb.QUARANTINE: _cordoned,
    Verb.UNCORDON: _uncordoned,
    Verb.DRAIN: _left,
    Verb.EVACUATE: _left,
    Verb.EVICT: _left,
    Verb.MARK: _marked,
    Verb.UNMARK: _unmarked,
}
