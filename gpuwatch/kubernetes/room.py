"""PURE: nodes and pods in the form in which it is judged where pods fit (gpuwatch.policies.kubernetes.elsewhere)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpuwatch.kubernetes.attachments import Attachments, volumes_of
from gpuwatch.kubernetes.claims import Disks, VolumeFacts
from gpuwatch.kubernetes.device_places import DevicePlaces, device_places
from gpuwatch.kubernetes.devices import Devices
from gpuwatch.kubernetes.facts import NodeFacts, PodFacts
from gpuwatch.model.placing import NODE_NAME, Place, PlacedPod, Room

# Taints of nodes that are not up yet, or are about to go: a pod that bears all taints would not last there.
_PASSING = (
    *("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "karpenter.sh/"),
    *("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "node.cilium.io/", "gpuwatch.io/"),
)
# They say the same as the node's condition, some seconds later.
_AS_CONDITION = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
_PASSING_PARTS = ("not-ready", "startup", "uninitialized", "shutdown", "termination", "interruption")


def room_of(
    nodes: Iterable[NodeFacts],
    pods: Iterable[PodFacts],
    disks: Disks,
    attachments: Attachments | None = None,
    devices: Devices | None = None,
) -> Room:
    """All of a cluster."""
    known, bound, there = attachments or Attachments(), list(pods), list(nodes)
    plugins = {node.name for node in there if node.gpus}
    claimed = device_places(devices or Devices(doubt="nobody has asked"), bound, plugins)
    used: defaultdict[str | None, set[str]] = defaultdict(set)
    offers: defaultdict[str | None, Counter[str]] = defaultdict(Counter)
    for pod in bound:
        used[pod.node] |= {volume.name for volume in _volumes(pod, disks)}
        offers[pod.node].update(claimed.needs.get(pod.uid, {}))  # what it has is not free, and is its node's
    for node in there:
        offers[node.name].update(claimed.free.get(node.name, {}))
        offers[node.name].update(known.offers(node.name, used[node.name]))
    return Room(
        places=tuple(_make_place(node, offers[node.name]) for node in there),
        pods=tuple(_make_pod(pod, disks, known, claimed) for pod in bound),
    )


def _volumes(pod: PodFacts, disks: Disks) -> list[VolumeFacts]:
    """The volumes of its claims, each once."""
    found = (disks.volume(pod.namespace, claim) for _, claim in pod.claims)
    return list({each.name: each for each in found if each is not None}.values())


def _make_place(node: NodeFacts, more: Mapping[str, int]) -> Place:
    taints = tuple(each for each in node.taints if not (node.ready and each.key in _AS_CONDITION))
    passes = any(
        taint.key.startswith(_PASSING) or any(part in taint.key for part in _PASSING_PARTS) for taint in taints
    )
    return Place(
        name=node.name,
        labels={**node.labels, NODE_NAME: node.name},
        taints=taints,
        offers={**node.offers, **more},
        closed=passes or node.unschedulable or node.ends or not node.ready,
    )


def _make_pod(pod: PodFacts, disks: Disks, attachments: Attachments, claimed: DevicePlaces) -> PlacedPod:
    drivers = Counter(volumes_of(each.driver) for each in _volumes(pod, disks) if each.driver)
    more = (*drivers.items(), *claimed.needs.get(pod.uid, {}).items())
    needs = replace(pod.needs, requests=(*pod.needs.requests, *more)) if more else pod.needs
    if needs.doubt is None and pod.uid in claimed.doubts:
        needs = replace(needs, doubt=claimed.doubts[pod.uid])
    if drivers and attachments.doubt is not None and needs.doubt is None:
        needs = replace(needs, doubt=f"how many volumes each node takes is not known: {attachments.doubt}")
    return PlacedPod(
        name=f"{pod.namespace}/{pod.name}",
        namespace=pod.namespace,
        uid=pod.uid,
        node=pod.node,
        labels=pod.labels,
        needs=needs,
        disks=tuple(disks.disk(pod.namespace, claim) for _, claim in pod.claims),
        ends=pod.ends_at is not None,
        nominated=pod.nominated,
    )
