"""Cases of the guard's rules on Kubernetes nodes: each a removal, or a step before one, with one thing spoiled."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from gpuwatch.guard import Case, Limits
from gpuwatch.model.activity import State
from gpuwatch.model.cloud_notice import CloudNotice
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import NodeReport, NodeState, PodVerdict
from gpuwatch.model.health import GpuHealth, Health
from gpuwatch.model.kubernetes import ClusterView, KubernetesNode, Pod
from gpuwatch.model.orders import Pause
from gpuwatch.model.verbs import THEN
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from gpuwatch.policies.kubernetes.steps import PODS
from tests.support.builders.clusters import CLUSTER, OURS, a_cordon, a_gpu_pod, a_kubernetes_node, a_pod
from tests.support.builders.fleet import NOW, RULES, a_verdict
from tests.support.builders.guard_cases import asleep, with_group, with_idle, with_ledger, with_node
from tests.support.builders.past_steps import a_done

_CORDONED = a_cordon(a_kubernetes_node())


def on_cluster(case: Case, known: KubernetesNode | None = _CORDONED, *, trouble: str | None = None) -> Case:
    """The case of a node that gpuwatch has cordoned and drained, as the cluster tells it."""
    case = with_node(case, kubernetes=known, managed_by="EKS cluster prod")
    view = ClusterView(name="prod", trouble=trouble, nodes=(_CORDONED,))
    observation = replace(case.observation, fleet=replace(case.observation.fleet, cluster=view))
    rules = replace(case.pool_rules, kubernetes=CLUSTER)
    return replace(case, observation=observation, pool_rules=rules)


def with_owner(case: Case, owner: str) -> Case:
    """The case in a pool whose nodes that one removes."""
    rules = KubernetesRules(node_owner=owner)  # type: ignore[arg-type]  # one of its words
    return replace(case, pool_rules=replace(case.pool_rules, kubernetes=rules))


def cordoning(case: Case, verb: Verb = Verb.CORDON, *pods: Pod) -> Case:
    """The case as the cordon, or the drain, that prepares its stop."""
    known = a_kubernetes_node() if verb is Verb.CORDON else _CORDONED
    case = on_cluster(case, replace(known, pods=pods))
    return replace(case, step=replace(case.step, verb=verb, arguments={THEN: "stop"}))


def uncordoning(case: Case) -> Case:
    """The case as the end of gpuwatch's own cordon."""
    return replace(on_cluster(case), step=replace(case.step, verb=Verb.UNCORDON))


def ending(case: Case) -> Case:
    """The case as the cordon of a group's member that is to be terminated."""
    case = on_cluster(with_group(case), a_kubernetes_node())
    return replace(case, step=replace(case.step, verb=Verb.CORDON, arguments={THEN: "terminate"}))


def paused(case: Case) -> Case:
    """The case in a pause."""
    return with_ledger(case, pauses=(Pause(pool=None, at=NOW, who="ann", reason="demo"),))


def _foreign(case: Case) -> Case:
    """The case whose cordon this ledger lacks."""
    return with_ledger(case, foreign=("k",))


def _vital(case: Case) -> Case:
    """The case of a node with a member of etcd."""
    known = case.machine.kubernetes
    assert known is not None
    return with_node(case, kubernetes=replace(known, vital="the pod kube-system/etcd-1 is part of the control plane"))


def _silent(case: Case) -> Case:
    case = cordoning(case)
    view = ClusterView(name="prod", trouble="It is silent.", nodes=(_CORDONED,))
    return replace(case, observation=replace(case.observation, fleet=replace(case.observation.fleet, cluster=view)))


def _without_cluster(case: Case) -> Case:
    case = on_cluster(case)
    return replace(case, observation=replace(case.observation, fleet=replace(case.observation.fleet, cluster=None)))


def _persons(case: Case) -> Case:
    return with_node(uncordoning(case), kubernetes=a_kubernetes_node(unschedulable=True))


def _seen_by_agent(case: Case, known: KubernetesNode | None, state: State = State.IDLE) -> Case:
    """The case whose agent sees a pod on its GPUs, which that node object has or not."""
    verdict = a_verdict(state=state, held=7200.0)
    pod = a_pod(system=True)
    told = PodVerdict(uid=pod.uid, name=str(pod), activity=verdict.activity)
    return with_node(on_cluster(case, known), signal=NodeReport(verdict=replace(verdict, pods=(told,))))


def _nobodys(case: Case) -> Case:
    """The case of a machine in a pool that names no owner of nodes, without a mark of any cluster."""
    return with_node(with_owner(_seen_by_agent(case, None), "nobody"), managed_by=None)


def _for_termination(case: Case) -> Case:
    case = replace(cordoning(case), pool_rules=replace(with_idle(action="terminate"), kubernetes=CLUSTER))
    return replace(case, step=replace(case.step, arguments={THEN: "terminate"}))


def _stopping_member(case: Case) -> Case:
    case = ending(case)
    return replace(
        case,
        step=replace(case.step, arguments={THEN: "stop"}),
        pool_rules=replace(RULES, kubernetes=CLUSTER),
    )


def _at_minimum(case: Case) -> Case:
    case = cordoning(case)
    return replace(case, pool_rules=replace(case.pool_rules, min_nodes=3))


def _asleep(case: Case) -> Case:
    case = asleep(case)
    rules = replace(case.pool_rules, kubernetes=CLUSTER)
    case = with_node(case, kubernetes=a_kubernetes_node(ready=False, pods=(a_pod(),)), state=NodeState.STOPPED)
    view = ClusterView(name="prod", nodes=(_CORDONED,))
    observation = replace(case.observation, fleet=replace(case.observation.fleet, cluster=view))
    return replace(case, observation=observation, pool_rules=rules)


def _evicting(case: Case) -> Case:
    rules = replace(CLUSTER, bare_pods="evict")
    return replace(case, pool_rules=replace(case.pool_rules, kubernetes=rules))


def sickly(case: Case, ratio: float = 0.3) -> Case:
    """The case as the cordon of a working node with a failing GPU."""
    verdict = a_verdict(state=State.BUSY)
    gpus = tuple(replace(gpu, health=GpuHealth(state=Health.FAILING, since=NOW)) for gpu in verdict.gpus)
    case = with_node(on_cluster(case, a_kubernetes_node()), signal=NodeReport(verdict=replace(verdict, gpus=gpus)))
    rules = replace(case.pool_rules, health=HealthRules(action="cordon", max_cordoned_ratio=ratio))
    return replace(case, step=replace(case.step, verb=Verb.QUARANTINE), pool_rules=rules)


def evacuating(case: Case, minutes: float | None = 2.0) -> Case:
    """The case as the evacuation of a working node whose cloud takes it so many minutes ahead; None: it does not."""
    at = NOW + timedelta(minutes=minutes or 0.0)
    notice = CloudNotice(kind="spot_interruption", action="terminate", deadline=at, seen_at=NOW)
    case = with_node(
        on_cluster(case, a_kubernetes_node(pods=(a_gpu_pod(interruptible=False),))),
        cloud_notice=None if minutes is None else notice,
        signal=NodeReport(verdict=a_verdict(state=State.BUSY)),
    )
    return replace(case, step=replace(case.step, verb=Verb.EVACUATE))


def evicting(case: Case, *pods: Pod, busy: bool = False, consent: bool = True, **health: object) -> Case:
    """The case as the eviction of pods from a sick node under gpuwatch's cordon: idle for long, or working."""
    state = State.BUSY if busy else State.IDLE
    verdict = a_verdict(state=state, held=7200.0)
    gpus = tuple(replace(gpu, health=GpuHealth(state=Health.FAILING, since=NOW)) for gpu in verdict.gpus)
    asked = pods or (a_gpu_pod(interruptible=consent),)
    known = replace(_CORDONED, pods=asked, cordoned_at=NOW - timedelta(hours=1))
    case = with_node(on_cluster(case, known), signal=NodeReport(verdict=replace(verdict, gpus=gpus)))
    rules = replace(case.pool_rules, health=HealthRules(**{"action": "drain", **health}))  # type: ignore[arg-type]
    arguments = {PODS: " ".join(pod.uid for pod in asked)}
    return replace(case, step=replace(case.step, verb=Verb.EVICT, arguments=arguments), pool_rules=rules)


def marking(case: Case, state: State = State.BUSY, verb: Verb = Verb.MARK, **known: object) -> Case:
    """The case as Karpenter's mark on a node of its pool, or its end."""
    node = replace(a_kubernetes_node(owner="karpenter"), **known)  # type: ignore[arg-type]
    signal = NodeReport(verdict=a_verdict(state=state, held=7200.0))
    case = with_node(on_cluster(case, node), signal=signal)
    rules = KubernetesRules(node_owner="karpenter", mark_busy=True)
    return replace(case, step=replace(case.step, verb=verb), pool_rules=replace(case.pool_rules, kubernetes=rules))


def _well(case: Case) -> Case:
    """The case of a node whose GPUs are well."""
    return with_node(case, signal=NodeReport(verdict=a_verdict(held=7200.0)))


def _not_ours(case: Case) -> Case:
    """The case under a person's cordon."""
    known = case.machine.kubernetes
    return with_node(case, kubernetes=None if known is None else replace(known, cordoned_by=None))


_MARKED = {"marked_by": "k", "keep": "its annotation karpenter.sh/do-not-disrupt keeps it"}

SPOILED_KUBERNETES: list[tuple[str, str, Callable[[Case], Case], str]] = [
    ("silent cluster", "cluster_unknown", lambda c: on_cluster(c, trouble="It is silent."), "It is silent."),
    ("silent, cordoning", "cluster_unknown", _silent, "silent"),
    ("no node", "cluster_unknown", lambda c: on_cluster(c, None), "not among the nodes"),
    ("no cluster", "cluster_unknown", _without_cluster, "no cluster"),
    ("pods on the GPUs of no node", "cluster_unknown", _nobodys, "team-a/web-1"),
    ("a pod that is gone", "pods_stay", lambda c: _seen_by_agent(c, _CORDONED, State.PARKED), "does not show"),
    (
        "a GPU pod without a request",
        "pods_stay",
        lambda c: _seen_by_agent(c, replace(_CORDONED, pods=(a_pod(system=True),))),
        "nobody has said",
    ),
    ("nobody's nodes", "node_owner", lambda c: with_owner(on_cluster(c), "nobody"), "does not say who"),
    ("Karpenter's pool", "node_owner", lambda c: with_owner(on_cluster(c), "karpenter"), "karpenter"),
    ("Karpenter's label", "node_owner", lambda c: on_cluster(c, replace(_CORDONED, owner="karpenter")), "marks"),
    ("kept by a mark", "kept_node", lambda c: on_cluster(c, replace(_CORDONED, keep="do-not-disrupt")), "do-not"),
    (
        "control plane",
        "vital_node",
        lambda c: on_cluster(c, replace(_CORDONED, vital="the pod kube-system/etcd-1 is part of the control plane")),
        "etcd-1",
    ),
    ("control plane, evicting", "vital_node", lambda c: _vital(evicting(c)), "etcd-1"),
    (
        "a person's cordon",
        "foreign_cordon",
        lambda c: on_cluster(c, a_kubernetes_node(unschedulable=True)),
        "Somebody else",
    ),
    ("another ledger's cordon", "foreign_cordon", lambda c: _foreign(on_cluster(c)), "lacks"),
    ("pod without consent", "pods_stay", lambda c: cordoning(c, Verb.CORDON, a_gpu_pod(interruptible=False)), "train"),
    ("drain without consent", "pods_stay", lambda c: cordoning(c, Verb.DRAIN, a_gpu_pod(interruptible=False)), "train"),
    ("protected pod", "pods_stay", lambda c: cordoning(c, Verb.DRAIN, a_pod(protected="a mark")), "a mark"),
    ("bare pod", "pods_stay", lambda c: cordoning(c, Verb.DRAIN, a_pod(bare=True)), "made again"),
    ("local data", "pods_stay", lambda c: cordoning(c, Verb.DRAIN, a_pod(local_data="scratch")), "local data"),
    ("young pod", "pods_stay", lambda c: cordoning(c, Verb.DRAIN, a_gpu_pod(created_at=NOW)), "not yet"),
    ("not cordoned", "not_drained", lambda c: on_cluster(c, a_kubernetes_node()), "not cordoned"),
    ("pods left", "not_drained", lambda c: on_cluster(c, replace(_CORDONED, pods=(a_pod(),))), "team-a/web-1"),
    ("nothing to undo", "not_ours", lambda c: replace(c, step=replace(c.step, verb=Verb.UNCORDON)), "no Kubernetes"),
    ("a person's, undone", "not_ours", _persons, "not gpuwatch's own"),
    ("another ledger's, undone", "not_ours", lambda c: _foreign(uncordoning(c)), "not gpuwatch's own"),
    (
        "cordons per hour",
        "blast_radius",
        lambda c: with_ledger(
            replace(c, limits=Limits(max_stops_per_hour=1)), recent=(replace(a_done(), verb=Verb.CORDON),)
        ),
        "max_stops_per_hour",
    ),
    ("cordon without a notice", "no_notice", lambda c: with_ledger(cordoning(c), notices=()), "no notice"),
    ("cordon for a termination", "no_notice", _for_termination, "promised a stop"),
    ("cordon of a member for a stop", "owned", _stopping_member, "terminate"),
    ("other system's marks", "owned", lambda c: with_node(on_cluster(c), managed_by="AWS Batch x"), "Batch"),
    ("cordon at the minimum", "min_nodes", _at_minimum, "min_nodes"),
    ("too many sick", "quarantine", lambda c: sickly(c, 0.0), "max_cordoned_ratio"),
    ("only told", "quarantine", lambda c: replace(sickly(c), pool_rules=OURS), "health.action"),
    ("no notice of a cloud", "cloud_notice", lambda c: evacuating(c, None), "says nothing"),
    ("after the deadline", "cloud_notice", lambda c: evacuating(c, -1.0), "Its deadline was"),
    ("evacuation of nobody's nodes", "node_owner", lambda c: with_owner(evacuating(c), "nobody"), "does not say who"),
    ("paused evacuation", "paused", lambda c: paused(evacuating(c)), "ann"),
    ("well, evicting", "eviction", lambda c: _well(evicting(c)), "health.action"),
    ("evicting where only a cordon is wanted", "eviction", lambda c: evicting(c, action="cordon"), "health.action"),
    ("evicting without our cordon", "eviction", lambda c: _not_ours(evicting(c)), "The cordon comes first"),
    ("evicting from a node that works", "eviction", lambda c: evicting(c, busy=True), "It is busy"),
    (
        "evicting a busy pod that nobody let go",
        "eviction",
        lambda c: evicting(c, busy=True, consent=False, drain_busy=True),
        "interrupted",
    ),
    ("evicting a protected pod", "eviction", lambda c: evicting(c, a_pod(protected="a mark")), "a mark"),
    ("evicting too soon", "eviction", lambda c: evicting(c, drain_after=7200.0), "in 1h"),
    ("evicting from many", "eviction", lambda c: evicting(c, max_failing_ratio=0.0), "failing GPU"),
    (
        "evicting with a GPU missing",
        "eviction",
        lambda c: with_node(evicting(c), gpu_count=8),
        "GPUs",
    ),
    ("evicting, snoozed", "snoozed", lambda c: with_node(evicting(c), snoozed="tonight by ann"), "ann"),
    ("evicting, paused", "paused", lambda c: paused(evicting(c)), "ann"),
    ("marking where nothing is to be marked", "mark", lambda c: replace(marking(c), pool_rules=OURS), "mark_busy"),
    ("marking an idle node", "mark", lambda c: marking(c, State.IDLE), "not in use"),
    ("marking twice", "mark", lambda c: marking(c, keep="a person keeps it"), "already"),
    ("unmarking somebody's", "mark", lambda c: marking(c, State.IDLE, Verb.UNMARK, keep="a person keeps it"), "own"),
    ("unmarking a busy node", "mark", lambda c: marking(c, State.BUSY, Verb.UNMARK, **_MARKED), "proven idle"),
    ("unmarking in doubt", "mark", lambda c: marking(c, State.UNKNOWN, Verb.UNMARK, **_MARKED), "nobody knows"),
    ("paused cordon", "paused", lambda c: paused(cordoning(c)), "ann"),
]
FAIR_KUBERNETES: list[tuple[str, Callable[[Case], Case]]] = [
    ("remove a drained node", on_cluster),
    ("remove a node that its agent sees a former pod on", lambda c: _seen_by_agent(c, _CORDONED)),
    ("cordon", cordoning),
    ("cordon with idle pods that consent", lambda c: cordoning(c, Verb.CORDON, a_gpu_pod(), a_pod())),
    ("drain", lambda c: cordoning(c, Verb.DRAIN, a_gpu_pod(), a_pod())),
    ("cordon of a member", ending),
    ("cordon a sick node", sickly),
    ("evacuate a working node", evacuating),
    ("evict from a sick node that is idle", evicting),
    ("evict what works where all agree", lambda c: evicting(c, busy=True, drain_busy=True)),
    ("mark a busy node", marking),
    ("mark a snoozed node", lambda c: with_node(marking(c, State.IDLE), snoozed="tonight by ann")),
    ("unmark an idle node", lambda c: marking(c, State.IDLE, Verb.UNMARK, **_MARKED)),
    ("uncordon", uncordoning),
    ("uncordon in a pause", lambda c: paused(uncordoning(c))),
    ("uncordon what is not enrolled", lambda c: with_node(uncordoning(c), enrolled=False)),
    ("terminate what was stopped", _asleep),
    ("evict a bare pod", lambda c: _evicting(cordoning(c, Verb.DRAIN, a_pod(bare=True)))),
]
