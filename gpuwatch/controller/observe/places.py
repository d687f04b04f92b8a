"""Whether the pods of nodes that may be emptied are sure to run elsewhere, asked once a round for all of them.

A pod can only move within its own cluster, so each is asked about its own nodes. Where nobody knows what room a cluster
has, its nodes stay: what is not known fits nowhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpuwatch.model.activity import State
from gpuwatch.model.decision import LedgerView
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.model.kubernetes import KubernetesNode, Pod, own_name
from gpuwatch.model.placing import Room
from gpuwatch.model.readable import how_many
from gpuwatch.policies import PoolRules
from gpuwatch.policies.kubernetes import obstacles
from gpuwatch.policies.kubernetes.elsewhere import why_stranded

_NO_ROOM = "where else it fits is not known: its cluster does not show what room it has"
_LATE = "it came a moment ago, and where else it fits is not known"
# Pods that are looked at in a round, times the nodes that each may go to: some three seconds of a processor.
_MOST_LOOKS = 3_000_000


def with_places(fleet: Fleet, rooms: Mapping[str, Room], ledger: LedgerView, rules: Mapping[str, PoolRules]) -> Fleet:
    """The fleet, with why pods of such nodes are not sure of another place; `rooms` are by the names of clusters."""
    by_cluster: dict[str, list[Node]] = {}
    for node in fleet.nodes:
        if node.kubernetes is not None:
            by_cluster.setdefault(node.kubernetes.cluster, []).append(node)
    found: dict[str, Node] = {}
    for cluster, machines in by_cluster.items():
        room, looks = rooms.get(cluster), _MOST_LOOKS // len(by_cluster)
        found |= _judged_machines(machines, room, looks, ledger, rules)
    if fleet.cluster is None or not found:
        return fleet
    nodes = tuple(found.get(node.id, node) for node in fleet.nodes)
    told = {known.name: known for node in nodes for known in _node_objects(node)}
    view = replace(fleet.cluster, nodes=tuple(told.get(each.name, each) for each in fleet.cluster.nodes))
    return replace(fleet, nodes=nodes, cluster=view)


def _judged_machines(
    machines: Sequence[Node], room: Room | None, looks: int, ledger: LedgerView, rules: Mapping[str, PoolRules]
) -> dict[str, Node]:
    """The machines of one cluster that may be emptied, by their ids, with what is said of their pods."""
    going = sorted((node for node in machines if _is_going(node, ledger)), key=lambda node: _order(node, ledger))
    names = {node.id for node in going}
    idle = [node for node in machines if node.id not in names and _may_go(node, rules)]
    idle.sort(key=lambda node: (-node.activity.held_seconds, node.id))
    if room is None:
        unknown = dict.fromkeys((uid for node in (*going, *idle) for uid in _leaving(node)[1]), _NO_ROOM)
        return {node.id: _with_reasons(node, unknown) for node in (*going, *idle)}
    going, asked, later = _within_reach(going, idle, max(1, looks // max(1, len(room.places))))
    closed = [
        own_name(known) for node in machines if node.state is not NodeState.RUNNING for known in _node_objects(node)
    ]
    why = why_stranded(room, [_leaving(node) for node in going], [_leaving(node) for node in asked], closed)
    before = how_many(len(going) + len(asked), "node")
    put_off = f"where else it fits is not known yet: its node comes after {before}, and a round has no time for more"
    why = {**why, **{uid: put_off for node in later for uid in _leaving(node)[1]}}
    return {node.id: _with_reasons(node, why) for node in (*going, *asked, *later)}


def with_former_reasons(now: KubernetesNode, before: KubernetesNode) -> KubernetesNode:
    """A node as it is now, with what was said of its pods before; of one that came since, that nobody knows."""
    if not before.placed:
        return now
    said = {pod.uid: pod.stranded for pod in before.pods}
    pods = tuple(replace(pod, stranded=said.get(pod.uid, _LATE)) if _moves(pod) else pod for pod in now.pods)
    return replace(now, pods=pods, placed=True)


def _within_reach(
    going: Sequence[Node], idle: Sequence[Node], most_pods: int
) -> tuple[list[Node], list[Node], list[Node]]:
    """The nodes that are judged now: those with a notice, then the others in their order; and those of a later round.

    A node without pods that move costs nothing, and waits for nobody.
    """
    first, second, later = list[Node](), list[Node](), list[Node]()
    pods = 0
    for chosen, nodes in ((first, going), (second, idle)):
        for node in nodes:
            moving = len(_leaving(node)[1])
            if moving and pods and pods + moving > most_pods:
                later.append(node)
                continue
            pods += moving
            chosen.append(node)
    return first, second, later


def _is_going(node: Node, ledger: LedgerView) -> bool:
    return node.cloud_notice is not None or ledger.notice(node.id) is not None


def _order(node: Node, ledger: LedgerView) -> tuple[bool, str, str]:
    """What its cloud takes comes first, then the older notice."""
    notice = ledger.notice(node.id)
    return node.cloud_notice is None, "" if notice is None else notice.at.isoformat(), node.id


def _may_go(node: Node, rules: Mapping[str, PoolRules]) -> bool:
    """Whether somebody might empty it: not while it works, unless it is sick."""
    its = rules.get(node.pool)
    if its is None or its.kubernetes.node_owner != "gpuwatch" or node.state is not NodeState.RUNNING:
        return False
    return node.activity.state is not State.BUSY or obstacles.sick(node) is not None


def _node_objects(node: Node) -> Iterator[KubernetesNode]:
    if node.kubernetes is not None:
        yield node.kubernetes


def _leaving(node: Node) -> tuple[str, frozenset[str]]:
    """The node, and the pods that would have to move."""
    known = node.kubernetes
    assert known is not None  # noqa: S101  those without are left out before
    return own_name(known), frozenset(pod.uid for pod in known.pods if _moves(pod))


def _moves(pod: Pod) -> bool:
    """Whether a pod needs a place once its node is emptied: what nothing makes again needs none."""
    return pod.drained and pod.ends_at is None and not pod.bare


def _with_reasons(node: Node, why: Mapping[str, str]) -> Node:
    known = node.kubernetes
    assert known is not None  # noqa: S101  those without are left out before
    pods = tuple(replace(pod, stranded=why[pod.uid]) if pod.uid in why else pod for pod in known.pods)
    return replace(node, kubernetes=replace(known, pods=pods, placed=True))
