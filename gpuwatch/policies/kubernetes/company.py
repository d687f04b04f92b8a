"""PURE: which pods may be next to which, and on which nodes: labels, taints, affinity, anti-affinity, ports and spread.

Rules: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/ and, of the spread,
https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

from gpuwatch.model.placing import HOSTNAME, Needs, Place, PlacedPod, PodTerm, Selector, Spread, Taint, Toleration

_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})


class Others(Protocol):
    """The pods that are there when a pod comes, and the nodes."""

    @property
    def places(self) -> Iterable[Place]:
        """All nodes, also those that take nobody."""
        ...

    def is_left(self, place: Place) -> bool:
        """Whether no pod comes to a node any more, as its taint says once it is cordoned."""
        ...

    def domain(self, name: str, topology: str) -> str | None:
        """The value of a label of a node."""
        ...

    def staying(
        self, selector: Selector, namespaces: tuple[str, ...] | None, *, put: bool
    ) -> Iterator[tuple[PlacedPod, str]]:
        """The pods of these namespaces, None: of all, that a selector takes, and their nodes; with those put there."""
        ...

    def wary_of(self, pod: PlacedPod, *, put: bool) -> Iterator[tuple[str, set[str | None]]]:
        """The anti-affinity of other pods that is against it: the label, and its values where that holds."""
        ...


class Company:
    """Whether a pod may be on a place with the others that are there."""

    def __init__(self, table: Others, pod: PlacedPod, *, put: bool) -> None:
        """Look at the others once."""
        needs = pod.needs
        self._away = [*table.wary_of(pod, put=put)]
        self._away += [(term.topology, _domains(table, term, pod, put=put)) for term in needs.apart]
        self._near = [(term.topology, _domains(table, term, pod, put=False)) for term in needs.near]
        self._spread = [(each.topology, _full(table, each, pod, put=put)) for each in needs.spread]

    def allows(self, place: Place) -> bool:
        """Whether it may come to one place."""
        if not (self._away or self._near or self._spread):
            return True
        labels = place.labels
        return (
            all(labels.get(key) is None or labels[key] not in there for key, there in self._away)
            and all(key in labels and labels[key] in there for key, there in self._near)
            and all(key in labels and labels[key] not in full for key, full in self._spread)
        )


def _domains(table: Others, term: PodTerm, pod: PlacedPod, *, put: bool) -> set[str | None]:
    """Where the pods of a term are, by the values of its label."""
    if term.selector is None:
        return set()
    namespaces = None if term.namespaces is None else (term.namespaces or (pod.namespace,))
    found = table.staying(term.selector, namespaces, put=put)
    return {table.domain(node, term.topology) for _, node in found} - {None}


def _count_pods(table: Others, spread: Spread, pod: PlacedPod, *, put: bool) -> tuple[dict[str, int], int]:
    """How many pods there are of each value of the label, and the number that the others are measured by.

    Nodes that take nobody are domains as well, as long as the pod does not say that their taints count.
    """
    counts: dict[str, int] = {}
    for place in table.places:
        value = place.labels.get(spread.topology)
        if value is None or value in counts or (spread.by_affinity and not selects(pod.needs, place)):
            continue
        if spread.by_taints and (table.is_left(place) or not tolerates(pod.needs.tolerations, place.taints)):
            continue
        counts[value] = 0
    for _, node in () if spread.selector is None else table.staying(spread.selector, (pod.namespace,), put=put):
        value = table.domain(node, spread.topology)
        if value in counts:
            counts[value] += 1
    return counts, 0 if len(counts) < spread.least_domains else min(counts.values(), default=0)


def _full(table: Others, spread: Spread, pod: PlacedPod, *, put: bool) -> set[str]:
    """The values of the label where one more pod would be too many."""
    counts, least = _count_pods(table, spread, pod, put=put)
    itself = spread.selector is not None and spread.selector.takes(pod.labels)
    return {value for value, count in counts.items() if count + itself - least > spread.most_skew}


def has_turn(
    table: Others, spread: Spread, pod: PlacedPod, places: Iterable[Place], rivals: Iterable[PlacedPod]
) -> bool:
    """Whether a spread leaves a pod a place of these, should all rivals that it counts be placed first.

    The value with the fewest pods is always open: if each value has a place, one of them is.
    """
    counts, least = _count_pods(table, spread, pod, put=False)
    there = {place.labels.get(spread.topology) for place in places}
    if counts.keys() <= there or spread.selector is None:
        return True
    taking = spread.selector.takes
    before = sum(each.uid != pod.uid and each.namespace == pod.namespace and taking(each.labels) for each in rivals)
    return sum(max(0, least + spread.most_skew - counts[value]) for value in there if value in counts) > before


def is_about(term: PodTerm, namespace: str, pod: PlacedPod) -> bool:
    """Whether a term of a pod in a namespace is about another pod."""
    if term.selector is None:
        return False
    if term.namespaces is not None and pod.namespace not in (term.namespaces or (namespace,)):
        return False
    return term.selector.takes(pod.labels)


def conflicts_of(pod: PlacedPod, other: PlacedPod) -> Iterator[str]:
    """By which labels of nodes another pod may keep it away, were it placed first."""
    if set(pod.needs.ports) & set(other.needs.ports):
        yield HOSTNAME
    yield from (term.topology for term in pod.needs.apart if is_about(term, pod.namespace, other))
    yield from (term.topology for term in other.needs.apart if is_about(term, other.namespace, pod))


def tolerates(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Whether taints do not keep a pod away."""
    return all(
        taint.effect not in _KEEPS_AWAY
        or any(
            each.effect in {"", taint.effect}
            and (not each.key or each.key == taint.key)
            and (
                each.operator == "Exists" or (bool(each.key) and each.operator == "Equal" and each.value == taint.value)
            )
            for each in tolerations
        )
        for taint in taints
    )


def selects(needs: Needs, place: Place) -> bool:
    """Whether a node has the labels that a pod asks for."""
    if any(place.labels.get(key) != value for key, value in needs.selector):
        return False
    return not needs.alternatives or any(
        terms and all(each.meets(place.labels) for each in terms) for terms in needs.alternatives
    )
