"""A cluster within a round's body: each node object once, none that its base has, no pod that nothing rests on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from gpuwatch.model.fleet import Node
from gpuwatch.model.kubernetes import ClusterView, KubernetesNode

_LEAST_SHARED = 0.75  # of the node objects: with fewer, a body of its own costs little more


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The node objects of a whole body, as they are kept, by machine; `hour` is its time's, `2026-01-01T00`."""

    nodes: Mapping[str, KubernetesNode]
    hour: str
    round_id: int = 0

    @classmethod
    def of_machines(cls, nodes: Sequence[Node], hour: str) -> Self:
        """Of the machines of a round."""
        found = {node.id: _slim(node.kubernetes) for node in nodes if node.kubernetes is not None}
        return cls(nodes=found, hour=hour)

    def with_round_id(self, round_id: int) -> Self:
        """The same, of that round."""
        return replace(self, round_id=round_id)

    def shared_machines(self, new: "Base") -> frozenset[str] | None:
        """The machines with the same node objects as then; None: so few that a body does not rest on this."""
        same = frozenset(name for name, known in new.nodes.items() if self.nodes.get(name) == known)
        return same if new.nodes and len(same) >= _LEAST_SHARED * len(new.nodes) else None


def stored_node(node: Node) -> Node:
    """A machine as it is kept: a DaemonSet's pods that hold no GPU are two thirds of all, and nothing looks at them."""
    known = node.kubernetes
    return node if known is None else replace(node, kubernetes=_slim(known))


def stored_view(view: ClusterView | None, nodes: Sequence[Node]) -> ClusterView | None:
    """The view without the node objects that stand with their machines."""
    if view is None:
        return None
    joined = {node.kubernetes.uid for node in nodes if node.kubernetes is not None}
    return replace(view, nodes=tuple(_slim(each) for each in view.nodes if each.uid not in joined))


def whole_view(view: ClusterView | None, nodes: Sequence[Node]) -> ClusterView | None:
    """The view with the node objects of these machines."""
    if view is None:
        return None
    joined = [node.kubernetes for node in nodes if node.kubernetes is not None]
    return replace(view, nodes=tuple(sorted([*view.nodes, *joined], key=lambda node: node.name)))


def _slim(node: KubernetesNode) -> KubernetesNode:
    kept = tuple(pod for pod in node.pods if pod.gpus > 0 or not pod.daemon)
    return node if len(kept) == len(node.pods) else replace(node, pods=kept)
