"""PURE: why a Kubernetes node is not removed, not drained and gets no notice. Policy and guard ask the same questions.

Each answer is a sentence; None: nothing of that kind stands against it. A pod that is ending already is nobody's
obstacle: what it does not finish until then is not our doing, and the removal waits until it is gone.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from gpuwatch.model.activity import State
from gpuwatch.model.decision import LedgerView, Observation
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Fleet, Node, NodeGroup, NodeState
from gpuwatch.model.health import Health
from gpuwatch.model.kubernetes import ClusterView, KubernetesNode, Pod, PodPhase, of_a_cluster
from gpuwatch.policies.kubernetes import siblings
from gpuwatch.policies.kubernetes.pod_use import holds_gpus, pods_by_agent
from gpuwatch.policies.kubernetes.settings import KubernetesRules

# A machine needs so long to become a node: what was started later may be one that nobody has seen yet.
_JOINS = timedelta(minutes=10)
_NAMED = 3  # pods in a sentence


def is_joined(node: Node, rules: KubernetesRules) -> bool:
    """Whether what owns the machine by its marks is the cluster that it is a node of, in a pool that gpuwatch owns."""
    ours = node.kubernetes is not None and rules.node_owner == "gpuwatch"
    return ours and of_a_cluster(node.managed_by)


def consents(node: Node | None, group: NodeGroup, rules: KubernetesRules) -> bool:
    """Whether the group's owner lets gpuwatch change its members; of a cluster's group, its nodes in such a pool."""
    return group.enrolled or (group.serves_cluster and node is not None and is_joined(node, rules))


def unknown(node: Node, fleet: Fleet, rules: KubernetesRules) -> str | None:
    """Why nobody knows which pods a machine has. A stopped machine runs no pods, and needs no node object."""
    view, known = fleet.cluster, node.kubernetes
    is_node, cluster = known is not None, view if view is None or known is None else view.part(known.cluster)
    if node.state is NodeState.STOPPED:
        return None
    if not is_node and (named := pods_by_agent(node)):
        listed = "no cluster is in the settings" if cluster is None else f"the {cluster.title} has no such node"
        listed = listed.replace("the Kubernetes cluster ", "the cluster ")
        return f"Its agent sees pods on its GPUs ({_some(list(named.values()))}), and {listed}."
    if cluster is None:
        told = is_node or rules.node_owner != "nobody"
        return "Its pool has Kubernetes nodes, and no cluster is in the settings." if told else None
    for part in cluster.each:
        if part.trouble is not None and (is_node or _may_be_one(node, part, fleet, rules)):
            return f"Its pods are not known: the {part.title} cannot be relied on: {part.trouble}"
    if not is_node and rules.node_owner != "nobody":
        return f"It is not among the nodes of the {cluster.title}."
    return None


def _may_be_one(node: Node, part: ClusterView, fleet: Fleet, rules: KubernetesRules) -> bool:
    """Whether a machine may be a node of a cluster that was not seen since, or never."""
    view = fleet.cluster
    if view is not None and view.parts and part.pools and node.pool not in part.pools:
        return False
    if rules.node_owner != "nobody" or view is None or not view.shows_nodes(part) or node.launched_at is None:
        return True
    return node.launched_at + _JOINS > fleet.observed_at - timedelta(seconds=part.silent_seconds)


def owner(node: Node, rules: KubernetesRules) -> str | None:
    """Why the node is somebody else's to remove."""
    known = node.kubernetes
    if known is None:
        return None
    if rules.node_owner == "nobody":
        return (
            f"It is a node of the Kubernetes cluster {known.cluster}, and its pool does not say who removes its nodes."
        )
    if rules.node_owner != "gpuwatch":
        return (
            f"It is a node of the Kubernetes cluster {known.cluster}, and {rules.node_owner} removes its pool's nodes."
        )
    if known.owner not in {None, "gpuwatch"}:
        return f"Its marks say that {known.owner} removes it, and its pool says gpuwatch."
    return None


def marks(node: Node) -> str | None:
    """Why marks on the node object keep it."""
    known = node.kubernetes
    return None if known is None or known.keep is None else f"Its node object keeps it: {known.keep}."


def vital(node: Node) -> str | None:
    """Why nobody may empty the node, with or without consent: the cluster, or gpuwatch itself, depends on it."""
    known = node.kubernetes
    return None if known is None or known.vital is None else f"The cluster {known.cluster} needs it: {known.vital}."


def ours(known: KubernetesNode, ledger: LedgerView) -> bool:
    """Whether it carries a cordon that this ledger has on record."""
    return known.cordoned_by is not None and known.cordoned_by not in ledger.foreign


def has_leftover_taint(known: KubernetesNode, ledger: LedgerView) -> bool:
    """Whether our own taint is left on a node onto which somebody else has let pods."""
    return not known.unschedulable and known.tainted_by is not None and known.tainted_by not in ledger.foreign


def foreign_cordon(node: Node, ledger: LedgerView) -> str | None:
    """Why its cordon is somebody else's. It is theirs to undo, and the node is theirs until then."""
    known = node.kubernetes
    if known is None or ours(known, ledger):
        return None
    if known.cordoned_by is not None:
        return (
            f"Its cordon bears the decision {known.cordoned_by}, which this ledger lacks: another controller made it."
        )
    return "Somebody else has cordoned it." if known.unschedulable else None


def disk_data(node: Node) -> str | None:
    """Why its disks hold data that no pod of it is asked about, as a sentence; also of a machine that is stopped."""
    known = node.kubernetes
    return None if known is None or known.disk_data is None else f"It may hold data: {known.disk_data}."


def unseen(node: Node) -> str | None:
    """Which pods its agent sees on GPUs that are in use, or full, and the API server shows no more, as a sentence.

    A pod that was deleted by force is gone there, and its processes go on. On an idle node none is left.
    """
    known, verdict = node.kubernetes, node.verdict
    if known is None or verdict is None or node.state is NodeState.STOPPED:
        return None
    if {node.activity.state, *(gpu.activity.state for gpu in verdict.gpus)} == {State.IDLE}:
        return None
    there = {pod.uid for pod in known.pods} | {str(pod) for pod in known.pods}
    named = [name for key, name in pods_by_agent(node).items() if key not in there]
    return f"Its agent sees pods on its GPUs that the API server does not show: {_some(named)}." if named else None


def pods(
    node: Node, seen: Observation, rules: KubernetesRules, wait_seconds: float | None, *, busy_too: bool = False
) -> str | None:
    """Why its pods must not be moved, or lost: GPU pods without proof or consent, and what a drain would destroy.

    `wait_seconds` is how long the pool's nodes are to be idle; None: not known, or they are not to be at all. A stopped
    machine runs no pod. `seen` has their siblings on other machines. With `busy_too` nobody needs to prove them idle;
    then their consent is INTERRUPTIBLE alone.
    """
    known = node.kubernetes
    if known is None or node.state is NodeState.STOPPED:
        return None
    if known.nominated:
        return f"The scheduler makes room on it for {_some(list(known.nominated))}."
    found: dict[str, list[str]] = {}
    for pod in known.pods:
        for why in (
            *_against(pod, node, rules, wait_seconds, seen.now, busy_too=busy_too),
            *_judged_whole(pod, seen, wait_seconds, busy_too=busy_too),
        ):
            found.setdefault(why, []).append(str(pod))
    for why, names in found.items():
        more = "" if len(names) <= _NAMED else f" and {len(names) - _NAMED} more"
        several = len(names) > 1
        return f"The pod{'s' if several else ''} {', '.join(sorted(names)[:_NAMED])}{more} {why.split('|')[several]}."
    return None


def _against(
    pod: Pod, node: Node, rules: KubernetesRules, wait_seconds: float | None, now: datetime, *, busy_too: bool
) -> Iterator[str]:
    """What stands against moving one pod; words for one and, after the bar, for several."""
    if pod.ends_at is not None or pod.phase in {PodPhase.SUCCEEDED, PodPhase.FAILED}:
        return
    if (lost := pod.loses) is not None:
        yield f"would lose local data: {lost}|would lose local data: {lost}"
    if pod.daemon and pod.gpus <= 0 and not holds_gpus(pod, node):
        return
    if pod.protected is not None:
        yield f"is protected ({pod.protected})|are protected ({pod.protected})"
    if holds_gpus(pod, node):
        if busy_too and not pod.interruptible:
            yield (
                "holds GPUs, and nobody has said that it may be interrupted|"
                "hold GPUs, and nobody has said that they may be interrupted"
            )
        if not busy_too and not pod.consents:
            yield (
                "holds GPUs, and nobody has said that it may go once it is idle|"
                "hold GPUs, and nobody has said that they may go once they are idle"
            )
        if pod.workload.snoozed_until is not None and pod.workload.snoozed_until > now:
            yield "is snoozed by its people|are snoozed by their people"
        if not busy_too and (doubt := _unproven(pod, node, wait_seconds, now)) is not None:
            yield doubt
    if pod.drained and pod.bare and rules.bare_pods == "keep":
        yield "is made again by nothing|are made again by nothing"
    if pod.drained and pod.stranded is not None:
        yield f"fits on no other node: {pod.stranded}|fit on no other node: {pod.stranded}"


def _judged_whole(pod: Pod, seen: Observation, wait_seconds: float | None, *, busy_too: bool) -> Iterator[str]:
    """What its siblings on other nodes do that keeps it; of a sick node its own people's word is enough."""
    if not pod.drained or pod.ends_at is not None or (busy_too and pod.interruptible):
        return
    if (why := siblings.why_stays(pod, seen.fleet, wait_seconds, seen.now)) is not None:
        yield f"belongs to a workload that goes whole, and {why}|belong to a workload that goes whole, and {why}"


def _unproven(pod: Pod, node: Node, wait_seconds: float | None, now: datetime) -> str | None:
    """Why a pod with GPUs is not proven idle: its node's agent must say so of the node and of each GPU, for long."""
    verdict = node.verdict
    states = {node.activity.state} | {gpu.activity.state for gpu in (() if verdict is None else verdict.gpus)}
    if states != {State.IDLE}:
        return "holds GPUs and is not proven idle|hold GPUs and are not proven idle"
    if pod.phase is not PodPhase.RUNNING:
        return "holds GPUs and is not known to run|hold GPUs and are not known to run"
    age = None if pod.created_at is None else (now - pod.created_at).total_seconds()
    if wait_seconds is None or age is None or age < wait_seconds:
        least = "as long as its node has to be idle" if wait_seconds is None else format_duration(wait_seconds)
        return f"holds GPUs and is not yet {least} old|hold GPUs and are not yet {least} old"
    return None


def sick(node: Node) -> str | None:
    """Which of its GPUs its agent calls failing, as a sentence; None: none, or nobody knows."""
    gpus = () if node.verdict is None else node.verdict.gpus
    for gpu in gpus:
        if gpu.health is not None and gpu.health.state is Health.FAILING:
            why = f": {gpu.health.findings[0].sentence.rstrip('.')}" if gpu.health.findings else ""
            return f"Its GPU {'?' if gpu.index is None else gpu.index} is failing{why}."
    return None


def why_paused(observation: Observation, pool: str) -> str | None:
    """Whether people have paused the pool: a cordon is not kept meanwhile."""
    for pause in observation.ledger.pauses:
        if pause.pool in {None, pool} and (pause.until is None or pause.until > observation.now):
            return "The pool is paused." if pause.pool is not None else "Everything is paused."
    return None


def refusing_budgets(known: KubernetesNode) -> str | None:
    """Which PodDisruptionBudgets would refuse to move pods of it now, as a sentence; None: none, or nobody knows."""
    found: dict[str, list[str]] = {}
    for pod in known.to_drain:
        if pod.refused_by is not None and pod.ends_at is None:
            found.setdefault(pod.refused_by, []).append(str(pod))
    told = "; ".join(f"{_some(names)} ({why})" for why, names in list(found.items())[:_NAMED])
    more = "" if len(found) <= _NAMED else f"; and others for {len(found) - _NAMED} more reasons"
    return f"Kubernetes would now refuse to evict {told}{more}." if found else None


def _some(names: list[str]) -> str:
    more = "" if len(names) <= _NAMED else f" and {len(names) - _NAMED} more"
    return f"{', '.join(sorted(names)[:_NAMED])}{more}"
