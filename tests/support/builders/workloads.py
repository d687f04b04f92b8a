"""Workloads that hold GPUs: a test says what each pod does, the rest is a notebook whose people let it go."""

from dataclasses import replace
from datetime import datetime, timedelta

from gpuwatch.guard import Rulebook
from gpuwatch.model.activity import Activity, State
from gpuwatch.model.decision import LedgerView, Observation
from gpuwatch.model.fleet import Fleet, GpuVerdict, Node, NodeReport
from gpuwatch.model.kubernetes import ClusterView, Pod, PodPhase, Workload
from gpuwatch.model.promise import Notice
from gpuwatch.policies import PoolRules
from gpuwatch.policies.kubernetes.idle_pods_settings import IdlePodRules
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from tests.support.builders.clusters import a_kubernetes_node
from tests.support.builders.fleet import NOW, a_node, a_verdict
from tests.support.builders.promise import a_promise

HOUR = 3600.0
ACTING = IdlePodRules(action="as-annotated")
BY_POOL = {"default": ACTING, "other": ACTING}
RULEBOOK = Rulebook(
    pools={name: PoolRules(kubernetes=KubernetesRules(pods=rules)) for name, rules in BY_POOL.items()}, enforce=True
)
ALICE = "kube:prod/team-a/Notebook/alice"


def a_notebook(**other: object) -> Workload:
    """Alice's, which she lets be stopped."""
    base = Workload(namespace="team-a", kind="Notebook", name="alice", uid="uid-alice", owner="alice")
    return replace(base, **{"idle_action": "stop", **other})  # type: ignore[arg-type]  # fields of Workload


def its_pod(name: str = "alice-0", workload: Workload | None = None, **other: object) -> Pod:
    """A running pod with one GPU, two days old."""
    base = Pod(
        namespace="team-a",
        name=name,
        uid=f"uid-{name}",
        phase=PodPhase.RUNNING,
        workload=workload or a_notebook(),
        gpus=1.0,
        created_at=NOW - timedelta(days=2),
    )
    return replace(base, **other)  # type: ignore[arg-type]  # fields of Pod


def a_host(
    number: int, *pods: tuple[Pod, State], held: float = 30 * HOUR, now: datetime = NOW, **other: object
) -> Node:
    """A machine whose agent says this of the GPU of each pod. It is busy if one of them is, and idle without pods."""
    states = {state for _, state in pods} or {State.IDLE}
    whole = next(each for each in (State.UNKNOWN, State.BUSY, *State) if each in states)
    gpus = tuple(
        GpuVerdict(
            uuid=f"GPU-{number}-{index}",
            index=index,
            activity=Activity(
                state=state, since=now - timedelta(seconds=held), held_seconds=0.0 if state is State.BUSY else held
            ),
            pods=(str(pod),),
        )
        for index, (pod, state) in enumerate(pods)
    )
    verdict = replace(a_verdict(f"i-{number}", whole, held), gpus=gpus, at=now)
    bound = tuple(replace(pod, node=f"node-{number}") for pod, _ in pods)
    known = a_kubernetes_node(f"node-{number}")
    node = a_node(f"i-{number}", kubernetes=replace(known, pods=(*known.pods, *bound)), gpu_count=len(pods) or 1)
    return replace(node, **{"signal": NodeReport(verdict=verdict), **other})  # type: ignore[arg-type]


def seen(
    *nodes: Node,
    now: datetime = NOW,
    trouble: str | None = None,
    pending: tuple[Pod, ...] = (),
    **ledger: object,
) -> Observation:
    """A fleet of these machines, all of them nodes of the cluster prod."""
    view = ClusterView(
        name="prod",
        trouble=trouble,
        pending=pending,
        nodes=tuple(node.kubernetes for node in nodes if node.kubernetes is not None),
    )
    fleet = Fleet(observed_at=now, nodes=nodes, cluster=view)
    return Observation(now=now, fleet=fleet, ledger=LedgerView(**ledger))  # type: ignore[arg-type]


def its_notice(*, age: float = HOUR, now: datetime = NOW, **promise: object) -> Notice:
    """The notice of Alice's notebook: it promised its stop after an hour of grace."""
    said = {"grace": HOUR, "idle_seconds": 30 * HOUR - age, **promise}
    return Notice(
        node_id=ALICE, key="gpuwatch-test-1", at=now - timedelta(seconds=age), promise=a_promise(age, now, said)
    )
