"""Volumes that are attached to nodes, and how many of each CSI driver a node takes, followed.

Where a node cannot attach one more volume, a pod waits as it would without cores. And a machine that ends while a
volume is attached keeps it from the next node of its pod for minutes (`Multi-Attach error`).
https://kubernetes.io/docs/concepts/storage/storage-limits/
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
from msgspec import Struct

from gpuwatch.kubernetes.client import PLAIN, Api
from gpuwatch.kubernetes.facts import version_of
from gpuwatch.kubernetes.objects import ObjectMeta
from gpuwatch.kubernetes.unreadable import least_of, read_or_protect
from gpuwatch.kubernetes.watch import Watch
from gpuwatch.model.bounds import BoundedInt
from gpuwatch.runtime.clock import Clock

CSI_NODES, ATTACHMENTS = "/apis/storage.k8s.io/v1/csinodes", "/apis/storage.k8s.io/v1/volumeattachments"
_NO_LIMIT = 1_000_000


class _Count(Struct):
    count: BoundedInt | None = None


class _Driver(Struct):
    """One that runs on a node; without a count it has no limit."""

    name: str = ""
    allocatable: _Count | None = None


class _CsiNodeSpec(Struct):
    drivers: list[_Driver] | None = None


class _CsiNodeObject(Struct):
    """A node's drivers as the API server shows them (storage.k8s.io/v1 CSINode)."""

    metadata: ObjectMeta
    spec: _CsiNodeSpec | None = None


class _Source(Struct, rename="camel"):
    persistent_volume_name: str = ""


class _AttachmentSpec(Struct, rename="camel"):
    attacher: str = ""
    node_name: str = ""
    source: _Source | None = None


class _AttachmentObject(Struct):
    """A volume at a node, from before it is attached until it is detached (storage.k8s.io/v1 VolumeAttachment)."""

    metadata: ObjectMeta
    spec: _AttachmentSpec | None = None


@dataclass(frozen=True, slots=True)
class CsiNodeFacts:
    """How many volumes one node takes, by driver."""

    name: str
    uid: str
    version: int
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AttachmentFacts:
    """One volume that is attached to one node."""

    name: str
    uid: str
    version: int
    node: str = ""
    volume: str = ""
    driver: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachments:
    """Limits and attachments at one moment; `doubt` is why they are not complete, as a clause."""

    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by node
    on_node: Mapping[str, Sequence[AttachmentFacts]] = field(default_factory=dict)
    doubt: str | None = None

    def left_on(self, node: str, used: Collection[str]) -> tuple[str, ...]:
        """The volumes that are attached to a node, and that none of its pods uses."""
        found = (each.volume for each in self.on_node.get(node, ()) if each.volume and each.volume not in used)
        return tuple(sorted(found))

    def offers(self, node: str, used: Collection[str]) -> dict[str, int]:
        """How many volumes of each driver a node takes, with those that its pods use already."""
        left = Counter(each.driver for each in self.on_node.get(node, ()) if each.volume not in used)
        return {volumes_of(driver): most - left[driver] for driver, most in self.limits.get(node, {}).items()}


def volumes_of(driver: str) -> str:
    """The resource that a pod's volumes of a driver are, for the scheduler's rules."""
    return f"volumes of {driver}"


class AttachmentWatch:
    """Follows both kinds of objects, in threads from `start` until `close`."""

    def __init__(self, api: Api, clock: Clock, silence_seconds: float) -> None:
        """Nothing is asked yet."""
        watch = partial(Watch, api, clock, accept=(PLAIN, PLAIN), silence_seconds=silence_seconds)
        self._silence = silence_seconds
        self._nodes: Watch[CsiNodeFacts] = watch(CSI_NODES, read_csi_node)
        self._attachments: Watch[AttachmentFacts] = watch(ATTACHMENTS, read_attachment)
        self.both = (self._nodes, self._attachments)

    def attachments(self) -> Attachments:
        """What they show now."""
        doubt = None
        for watch in self.both:
            if not watch.listed or watch.silent_seconds > self._silence:
                what = watch.path.rpartition("/")[2]
                doubt = f"the API server shows no {what} ({watch.failure or 'they were not listed yet'})"
        on_node: defaultdict[str, list[AttachmentFacts]] = defaultdict(list)
        for each in self._attachments.kept.all():
            on_node[each.node].append(each)
        return Attachments(
            limits={each.name: each.limits for each in self._nodes.kept.all()}, on_node=on_node, doubt=doubt
        )


_CSI_NODE = msgspec.json.Decoder(_CsiNodeObject)
_ATTACHMENT = msgspec.json.Decoder(_AttachmentObject)


def read_csi_node(item: bytes) -> CsiNodeFacts | None:
    """Return what a node takes; of one that cannot be read, that it takes nothing."""
    return read_or_protect(item, _csi_node, _full_node)


def read_attachment(item: bytes) -> AttachmentFacts | None:
    """Return where a volume is; one that cannot be read has no known place."""
    return read_or_protect(item, _attachment, _lost_attachment)


def _csi_node(item: bytes) -> CsiNodeFacts:
    read = _CSI_NODE.decode(item)
    drivers = (read.spec.drivers if read.spec is not None else None) or ()
    counts = ((each.name, None if each.allocatable is None else each.allocatable.count) for each in drivers)
    limits = {name: _NO_LIMIT if count is None else count for name, count in counts}
    return CsiNodeFacts(read.metadata.name, read.metadata.uid, version_of(read.metadata), limits)


def _full_node(item: bytes, why: str) -> CsiNodeFacts:
    del why
    name, _, uid, version = least_of(item)
    return CsiNodeFacts(name, uid, version, {})


def _attachment(item: bytes) -> AttachmentFacts:
    read = _ATTACHMENT.decode(item)
    meta, spec = read.metadata, read.spec or _AttachmentSpec()
    volume = "" if spec.source is None else spec.source.persistent_volume_name
    return AttachmentFacts(meta.name, meta.uid, version_of(meta), spec.node_name, volume, spec.attacher)


def _lost_attachment(item: bytes, why: str) -> AttachmentFacts:
    del why
    name, _, uid, version = least_of(item)
    return AttachmentFacts(name, uid, version)
