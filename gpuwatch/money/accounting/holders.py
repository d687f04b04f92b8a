"""PURE: who pays for the GPUs of a Kubernetes node: what was billed of it, divided among the workloads of its pods.

Rules, all of them:

1. A pod holds the part of its node's GPU time that the GPUs it requests are of the node's; what nobody requests is
   UNALLOCATED. The node has as many GPUs as its machine, as its device plugin offers, or as its pods request, whichever
   is most: parts of shared GPUs count as parts.
2. What was done with it is apart from who requested it: each use is divided so that a pod has that of the GPUs which
   are its own for certain (`gpus_of_pods`). What is left to divide is divided in proportion.
3. Pods are those that the round saw at the end of the time, and none pays for time before it was made.
4. Where nobody looked, where the view of the cluster is not to be relied on, where a pod of the node says what can be
   on no bill, and for the last moments of a machine that is gone, the holder is NOT_SEEN.
5. For each node and use the parts add up to what was billed, to the millisecond.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuwatch.model.bounds import bounded_amount, bounded_time, is_storable
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import Node
from gpuwatch.model.kubernetes import KubernetesNode, Pod
from gpuwatch.model.usage import GPU, JOULES, NOT_SEEN, UNALLOCATED, USES, Holder, HourKey, Terms, milliseconds
from gpuwatch.money.accounting.slices import apportion
from gpuwatch.money.accounting.totals import Row
from gpuwatch.money.accounting.useful_time import SILENT, UNKNOWN, Mark
from gpuwatch.policies.kubernetes.gpus_of_pods import pods_by_gpu

_WEIGHT = 1_000_000  # of a whole GPU; a part of one is rounded to this


@dataclass(frozen=True, slots=True)
class HeldKey:
    """Of a row: who held the GPUs, in the hour or day that begins then; `terms` is the number of the machine's."""

    begin: int
    holder: Holder
    terms: int
    span: int


Held = dict[HeldKey, list[int]]


def held_rows(
    rows: Mapping[HourKey, Sequence[int]],
    observation: Observation,
    marks: Mapping[str, Mark],
    before: Mapping[str, str],
) -> tuple[Held, dict[str, str]]:
    """What a round's rows are by holder, and the clusters of machines to be remembered for the next round.

    `marks` are those after the round; `before` is the cluster of each machine that was a node in the round before.
    """
    if not before and not any(node.kubernetes for node in observation.fleet.nodes):
        return {}, {}
    by_node: dict[str, list[tuple[HourKey, Sequence[int]]]] = {}
    for key, amounts in rows.items():
        by_node.setdefault(key.node_id, []).append((key, amounts))
    view = observation.fleet.cluster

    def is_reliable(cluster: str | None) -> bool:
        part = None if view is None else view.part(cluster or "")
        return part is not None and part.trouble is None

    found: Held = {}
    clusters: dict[str, str] = {}
    seen = {node.id: node for node in observation.fleet.nodes}
    for node_id in by_node.keys() | before.keys():
        node = seen.get(node_id)
        if node is None or (node.kubernetes is None and node_id in before and not is_reliable(before[node_id])):
            cluster, shares = before.get(node_id), None
        elif node.kubernetes is None:
            continue
        else:
            cluster = node.kubernetes.cluster
            shares = _shares(node, node.kubernetes, marks) if is_reliable(cluster) else None
        if cluster is not None:
            _add(found, cluster, by_node.get(node_id, ()), shares, observation)
    for node in observation.fleet.nodes:
        if node.kubernetes is not None:
            clusters[node.id] = node.kubernetes.cluster
        elif node.id in before and not is_reliable(before[node.id]):
            clusters[node.id] = before[node.id]
    return found, clusters


@dataclass(frozen=True, slots=True)
class _Shares:
    """The pods that hold GPUs of a node of so many, and what the GPUs of each do: uses, with their weights."""

    gpus: float
    pods: tuple[Pod, ...]
    uses: Mapping[str, Mapping[int, int]]  # by the pod's text; "" are the GPUs that no pod has


def _shares(node: Node, known: KubernetesNode, marks: Mapping[str, Mark]) -> _Shares | None:
    """The node's shares; None: what a pod of it says can be on no bill."""
    if not all(map(_is_billable, known.pods)):
        return None
    pods = tuple(pod for pod in known.pods if pod.gpus > 0)
    uses: dict[str, dict[int, int]] = {}
    mark, verdict = marks.get(node.id), node.verdict
    named = {} if mark is None else pods_by_gpu(node)
    if mark is not None and verdict is not None and any(named.values()):
        for place, gpu in zip(mark.gpus, verdict.gpus, strict=False):
            names = named.get(gpu.uuid)
            for name in () if names is None else names or ("",):
                parts = uses.setdefault(name, {})
                parts[place] = parts.get(place, 0) + _WEIGHT // max(1, len(names or ()))
    return _Shares(gpus=known.shared_gpus(node.known_gpus), pods=pods, uses=uses)


def _is_billable(pod: Pod) -> bool:
    """Whether its holder can be written down, and its GPUs and age be counted: one pod must not hide all others."""
    above = pod.workload
    texts: Sequence[object] = (pod.namespace, above.kind, above.name, "" if above.owner is None else above.owner)
    gpus: object = pod.gpus
    made: object = pod.created_at
    return (
        all(isinstance(each, str) and is_storable(each) for each in texts)
        and (isinstance(gpus, float | int) and bounded_amount(gpus) is not None)
        and (made is None or (isinstance(made, datetime) and bounded_time(made) is not None))
    )


def _add(
    found: Held,
    cluster: str,
    rows: Sequence[tuple[HourKey, Sequence[int]]],
    shares: _Shares | None,
    observation: Observation,
) -> None:
    """One node's rows by holder."""
    length = sum(sum(amounts[:GPU]) for _, amounts in rows)
    claims = [] if shares is None else _claims(cluster, shares, length, milliseconds(observation.now))
    weights, wants = [each.weight for each in claims], [each.wants for each in claims]
    nobody = Holder(cluster, NOT_SEEN)
    for key, amounts in rows:
        columns, unseen = list(amounts[GPU:JOULES]), [0] * len(USES)
        if not claims:
            columns, unseen = unseen, columns
        unseen[SILENT], columns[SILENT] = unseen[SILENT] + columns[SILENT], 0
        if any(unseen):
            _put_amounts(found, HeldKey(key.begin, nobody, key.terms, key.span), unseen)
        if any(columns):
            for each, parts in zip(claims, divide_amounts(columns, weights, wants), strict=True):
                if any(parts):
                    _put_amounts(found, HeldKey(key.begin, each.holder, key.terms, key.span), parts)


@dataclass(frozen=True, slots=True)
class _Claim:
    """A holder's weight on a node, and what its GPUs do: uses, with their weights."""

    holder: Holder
    weight: int
    wants: Mapping[int, int]


def _claims(cluster: str, shares: _Shares, length: int, now: int) -> list[_Claim]:
    """Rules 1 to 3."""
    weights: dict[Holder, int] = {}
    wants: dict[Holder, dict[int, int]] = {}
    for pod in shares.pods:
        holder = _holder(cluster, pod)
        weights[holder] = weights.get(holder, 0) + _weight(pod, length, now)
        _merge(wants, holder, shares.uses.get(str(pod), {}))
    left = round(shares.gpus * _WEIGHT) - sum(weights.values())
    if left > 0:
        weights[Holder(cluster, UNALLOCATED)] = left
        _merge(wants, Holder(cluster, UNALLOCATED), shares.uses.get("", {}))
    return [_Claim(holder, weight, wants[holder]) for holder, weight in weights.items() if weight > 0]


def _holder(cluster: str, pod: Pod) -> Holder:
    workload = pod.workload
    return Holder(cluster, pod.namespace, workload.kind, workload.name, workload.owner)


def _weight(pod: Pod, length: int, now: int) -> int:
    """Its GPUs, for the part of the time since it was made."""
    whole = round(pod.gpus * _WEIGHT)
    if pod.created_at is None or length <= 0:
        return whole
    age = max(0, now - milliseconds(pod.created_at))
    return whole if age >= length else whole * age // length


def _merge(wants: dict[Holder, dict[int, int]], holder: Holder, uses: Mapping[int, int]) -> None:
    parts = wants.setdefault(holder, {})
    for use, weight in uses.items():
        parts[use] = parts.get(use, 0) + weight


def _put_amounts(found: Held, key: HeldKey, amounts: Sequence[int]) -> None:
    before = found.get(key)
    found[key] = list(amounts) if before is None else [mine + its for mine, its in zip(before, amounts, strict=True)]


def divide_amounts(
    columns: Sequence[int], weights: Sequence[int], wants: Sequence[Mapping[int, int]]
) -> list[list[int]]:
    """Amounts by use divided by weight: each use, and each one's part of the whole, adds up exactly.

    Of its part each gets the uses that it wants (use: weight) as far as they go round, and of the others in proportion
    to what is left. Some weight is above 0.
    """
    needs = apportion(sum(columns), dict(enumerate(weights)))
    used = [place for place, amount in enumerate(columns) if amount]
    found = [[0] * len(columns) for _ in weights]
    if len(weights) == 1:
        return [list(columns)]
    if len(used) == 1:
        for number, need in needs.items():
            found[number][used[0]] = need
        return found
    left = list(columns)
    for number, place, amount in _wanted_parts(columns, needs, wants):
        found[number][place] += amount
        left[place] -= amount
    for number, parts in enumerate(found):
        missing = needs[number] - sum(parts)
        for place, amount in apportion(missing, {place: left[place] for place in used if left[place]}).items():
            parts[place] += amount
            left[place] -= amount
    return found


def rows_by_holder(terms: Terms, amounts: Sequence[int], parts: Mapping[Holder, Sequence[int]]) -> Iterator[Row]:
    """Rows that add up to one under these terms: a part for each holder, and what is of no cluster.

    `parts` are GPU-milliseconds by use. The machines' own time and energy are divided as the time of their GPUs is.
    """
    rest = [whole - sum(column) for whole, *column in zip(amounts[GPU:JOULES], *parts.values(), strict=True)]
    by: dict[Holder | None, Sequence[int]] = dict(parts.items())
    if any(rest) or not parts:
        by[None] = rest
    weights = {number: sum(each) for number, each in enumerate(by.values())}
    if not any(weights.values()):
        yield Row(terms=terms, amounts=amounts)
        return
    groups = [apportion(amount, weights) for amount in (sum(amounts[:GPU]), *amounts[JOULES:])]
    for number, (holder, gpus) in enumerate(by.items()):
        machine, *energy = (each[number] for each in groups)
        uses = apportion(machine, dict(enumerate(gpus)))
        made = [uses.get(place, 0) for place in range(GPU)]
        yield Row(terms=terms, amounts=[*made, *gpus, *energy], holder=holder)


def _wanted_parts(
    columns: Sequence[int], needs: Mapping[int, int], wants: Sequence[Mapping[int, int]]
) -> Iterator[tuple[int, int, int]]:
    """The parts of each use that are wanted: as much as is wanted, or as there is."""
    asked: dict[int, dict[int, int]] = {}
    for number, need in needs.items():
        for place, amount in apportion(need, wants[number]).items():
            if place != UNKNOWN:  # nobody wants what is not known
                asked.setdefault(place, {})[number] = amount
    for place, parts in asked.items():
        granted = parts if sum(parts.values()) <= columns[place] else apportion(columns[place], parts)
        yield from ((number, place, amount) for number, amount in granted.items() if amount)
