"""Facts of one object of the API server's, by kind; one that cannot be read is kept as protected."""

from collections.abc import Sequence

import msgspec

from gpuwatch.kubernetes.disruptions import BudgetFacts, budget_facts
from gpuwatch.kubernetes.facts import NodeFacts, OwnerFacts, PodFacts, node_facts, owner_facts, pod_facts
from gpuwatch.kubernetes.objects import BudgetObject, Described, NodeObject, PodObject
from gpuwatch.kubernetes.unreadable import (
    protected_node,
    protected_owner,
    protected_pod,
    read_or_protect,
    refusing_budget,
)

_NODE = msgspec.json.Decoder(NodeObject)
_POD = msgspec.json.Decoder(PodObject)
_BUDGET = msgspec.json.Decoder(BudgetObject)
_DESCRIBED = msgspec.json.Decoder(Described)


def read_node(resources: Sequence[str], item: bytes) -> NodeFacts | None:
    """A node; `resources` are those that are GPUs."""
    return read_or_protect(item, lambda item: node_facts(_NODE.decode(item), resources), protected_node)


def read_pod(resources: Sequence[str], item: bytes) -> PodFacts | None:
    """A pod; None: it has ended."""
    return read_or_protect(item, lambda item: pod_facts(_POD.decode(item), resources), protected_pod)


def read_namespace(item: bytes) -> OwnerFacts | None:
    """A namespace, with the annotations of its people."""
    return read_or_protect(item, lambda item: owner_facts(_DESCRIBED.decode(item), of_namespace=True), protected_owner)


def read_budget(item: bytes) -> BudgetFacts | None:
    """A PodDisruptionBudget, with what it allows."""
    return read_or_protect(item, lambda item: budget_facts(_BUDGET.decode(item)), refusing_budget)
