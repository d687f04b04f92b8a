"""Node objects in a Kubernetes cluster: the last look at one, its cordon, its drain, and their outcome."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from gpuwatch.clouds import CloudError, NotFoundError
from gpuwatch.clouds.permit import Permit
from gpuwatch.controller.answers import note_silence
from gpuwatch.controller.circuits import API_SERVER, Server
from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.observe.places import with_former_reasons
from gpuwatch.controller.target import Found, NodeTarget, not_served
from gpuwatch.kubernetes import Cluster
from gpuwatch.kubernetes.several import SeveralClusters, name_of_node
from gpuwatch.model.decision import Intent, Observation, OpenIntent, Status, Step, Verb
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.kubernetes import Drain, KubernetesNode
from gpuwatch.model.readable import how_many
from gpuwatch.policies.kubernetes.evacuation import FIRST
from gpuwatch.policies.kubernetes.steps import CLUSTER, FOR, NODE, PODS, TAINT, UID, UNDOES

NO_CLUSTER = "no Kubernetes cluster is in the settings"


def api_server(parts: ControllerContext, cluster: str) -> Server:
    """Return the API server of the cluster of that name; of a single one it has no name."""
    return Server(kind=f"the API server of {cluster}") if isinstance(parts.cluster, SeveralClusters) else API_SERVER


_NAMED = 3  # pods in an outcome


class ClusterNodeTarget(NodeTarget):
    """A machine's node object: the API server is asked for all of it; its answers are of now, never late."""

    def _server(self, step: Step) -> Server:
        return api_server(self._parts, step.arguments.get(CLUSTER, ""))

    def ask(self, intent: Intent, _observation: Observation, permit: Permit) -> tuple[Status, str]:
        """Make the call that the intent's verb stands for."""
        cluster = self._parts.cluster
        if cluster is None:
            raise NotFoundError(NO_CLUSTER)
        name = _name_of(cluster, intent)
        if name is None:
            raise NotFoundError(_no_such_cluster(intent))
        if intent.verb is Verb.EVACUATE and FIRST in intent.arguments:
            cluster.cordon(name, intent.key, permit=permit)
        if intent.verb in {Verb.DRAIN, Verb.EVACUATE, Verb.EVICT}:
            drain = cluster.drain(name, tuple(intent.arguments[PODS].split()), intent.key, permit=permit)
            return Status.SETTLED, drain_words(drain)
        try:
            match intent.verb:
                case Verb.UNCORDON:
                    cluster.uncordon(name, intent.arguments[UNDOES])
                case Verb.MARK:
                    cluster.mark(name, intent.arguments[FOR], intent.key, permit=permit)
                case Verb.UNMARK:
                    cluster.unmark(name, intent.arguments[UNDOES])
                case _:
                    cluster.cordon(name, intent.key, permit=permit, taint=TAINT in intent.arguments)
        except NotFoundError as error:
            # It will not come back under that uid.
            ended = Status.SETTLED if intent.verb in {Verb.UNCORDON, Verb.UNMARK} else Status.CANCELLED
            return ended, f"there is nothing to {intent.verb.value}: {error}"
        return Status.ACCEPTED, f"the API server accepted the {intent.verb.value}"

    def outcome_of(self, entry: OpenIntent) -> Found:
        """Find out what the API server shows of an open cordon, drain, eviction or mark."""
        if self._parts.cluster is None:
            return not_served(entry, NO_CLUSTER)
        if not entry.counts:
            return None
        name = _name_of(self._parts.cluster, entry.intent)
        if name is None:
            return not_served(entry, _no_such_cluster(entry.intent))
        known = self._parts.cluster.node(name)
        # Another may have its name.
        known = known if known is not None and known.uid == entry.intent.arguments[UID] else None
        shown = _SHOWN[entry.intent.verb](entry.intent, known)
        if shown is not None:
            return Status.SETTLED, shown
        if known is None:
            return Status.CANCELLED, "the cluster has no such node any more"
        return Status.INTERRUPTED, "the API server does not show it"


def machine_in_cluster(parts: ControllerContext, node: Node, seen: KubernetesNode | None) -> Node | str:
    """Return the machine with its node object as the API server shows it now; or why that is no ground for a removal.

    `seen` is the node object that the decision rests on; a stopped machine has no pods to ask about.
    """
    if seen is None or node.state is NodeState.STOPPED:
        return node if node.kubernetes is seen else replace(node, kubernetes=seen)
    if parts.cluster is None:
        return NO_CLUSTER
    asked = parts.clock.monotonic()
    try:
        known = parts.cluster.node(seen.name)
    except CloudError as error:
        note_silence(parts, api_server(parts, seen.cluster), error, asked)
        return f"the cluster gives no answer about it: {error}"
    if known is None:
        return f"the cluster has no node {seen.name} any more"
    if known.uid != seen.uid:
        return f"the cluster has another node under the name {seen.name}"
    if known.provider_id != seen.provider_id:
        return f"the node {seen.name} names another machine now ({known.provider_id or 'none'})"
    return replace(node, kubernetes=with_former_reasons(known, seen))


def drain_words(drain: Drain) -> str:
    """Say what the API server answered, in one line: a refusal is an answer."""
    words = [f"{how_many(len(drain.evicted), 'pod')} asked to go"]
    names = sorted(drain.refused)
    if names:
        why = "; ".join(f"{name}: {drain.refused[name].rstrip('.')}" for name in names[:_NAMED])
        more = f"; and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        words.append(f"{how_many(len(names), 'pod')} kept ({why}{more})")
    return f"{', '.join(words)}; {how_many(drain.left, 'pod')} still there"


def _name_of(cluster: Cluster, intent: Intent) -> str | None:
    """Return what the intent's node is called under the settings of today; None: no cluster of them has it."""
    told = intent.arguments
    return name_of_node(cluster, told.get(CLUSTER, ""), told[NODE], told[UID])


def _no_such_cluster(intent: Intent) -> str:
    return f"no cluster of the settings has the node {intent.arguments[NODE]}"


def _find_cordon(intent: Intent, known: KubernetesNode | None) -> str | None:
    """Look for our own mark on it."""
    if known is None or not known.unschedulable or known.cordoned_by != intent.key:
        return None
    return "the API server shows it cordoned"


def _see_uncordoned(intent: Intent, known: KubernetesNode | None) -> str | None:
    """See that the cordon that was to be undone is not there."""
    if known is not None and intent.arguments[UNDOES] in {known.cordoned_by, known.tainted_by}:
        return None
    return "the API server shows it without that cordon"


def _count_pods_left(intent: Intent, known: KubernetesNode | None) -> str | None:
    """Count the pods that are left: the next drain asks those again."""
    wanted = intent.arguments[PODS].split()
    there = {pod.uid for pod in (() if known is None else known.to_drain)}
    return f"the API server shows {sum(uid in there for uid in wanted)} of {len(wanted)} pods still there"


def _find_mark(intent: Intent, known: KubernetesNode | None) -> str | None:
    """Look for our own mark on it."""
    return "the API server shows the mark" if known is not None and known.marked_by == intent.key else None


def _see_unmarked(intent: Intent, known: KubernetesNode | None) -> str | None:
    """See that the mark that was to go is not there."""
    stands = known is not None and known.marked_by == intent.arguments[UNDOES]
    return None if stands else "the API server shows it without that mark"


_SHOWN: Mapping[Verb, Callable[[Intent, KubernetesNode | None], str | None]] = {
    Verb.CORDON: _find_cordon,
    Verb.QUARANTINE: _find_cordon,
    Verb.UNCORDON: _see_uncordoned,
    Verb.DRAIN: _count_pods_left,
    Verb.EVACUATE: _count_pods_left,
    Verb.EVICT: _count_pods_left,
    Verb.MARK: _find_mark,
    Verb.UNMARK: _see_unmarked,
}
