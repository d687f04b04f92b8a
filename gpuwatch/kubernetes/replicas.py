"""Replicas of Longhorn's volumes: data on disks of nodes of which no persistent volume says a word.

Longhorn copies a volume to the disks of some nodes, and its PersistentVolume fits every node. While a replica is on a
node, gpuwatch does not empty that: another copy may be broken, or go in the same round. Longhorn itself moves replicas
away (`spec.evictionRequested` of its own Node). Fields: longhorn.io/v1beta2 Replica (`spec.nodeID`, `spec.volumeName`).
A cluster without Longhorn costs one question in five minutes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import Struct, field

from gpuwatch.clouds.errors import AuthFailedError
from gpuwatch.kubernetes.client import Api
from gpuwatch.kubernetes.facts import version_of
from gpuwatch.kubernetes.objects import ObjectMeta
from gpuwatch.kubernetes.optional_watch import OptionalKind, OptionalWatch
from gpuwatch.kubernetes.unreadable import least_of, read_or_protect
from gpuwatch.model.bounds import BoundedText
from gpuwatch.runtime.clock import Clock

# The newest version first; what is read has the same name in both.
_KIND = OptionalKind(project="Longhorn", group="longhorn.io", resource="replicas", versions=("v1beta2", "v1beta1"))


class _Spec(Struct, rename="camel"):
    node: BoundedText = field(name="nodeID", default="")
    volume_name: BoundedText = ""


class _ReplicaObject(Struct):
    """A replica as the API server shows it."""

    metadata: ObjectMeta
    spec: _Spec | None = None


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """Of one replica, wherever it is; one that has no node yet holds nothing."""

    uid: str
    version: int
    node: str
    volume: str


class ReplicaWatch:
    """Follows them from the first `begin` that finds Longhorn until `close`."""

    def __init__(self, api: Api, clock: Clock, silence_seconds: float) -> None:
        """Nothing is asked yet."""
        self._kept = OptionalWatch(api, clock, _KIND, _read_replica, silence_seconds=silence_seconds)

    def begin(self, wait_seconds: float) -> None:
        """Find out whether the cluster has Longhorn, and wait for the first list; does nothing where it is followed."""
        self._kept.begin(wait_seconds)

    def on_nodes(self) -> Mapping[str, Sequence[str]]:
        """The volumes with a replica on each node; what was shown last also while nothing is heard."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for each in self._kept.all():
            if each.node:
                found[each.node].append(each.volume)
        return {node: sorted(set(volumes)) for node, volumes in found.items()}

    @property
    def doubt(self) -> str | None:
        """Why they are not known, as a clause; without the right to read them Longhorn's own pods keep its nodes."""
        watch = self._kept.watch
        if watch is None or watch.listed or isinstance(watch.failure, AuthFailedError):
            return None
        return f"the API server shows no replicas of Longhorn ({watch.failure or 'they were not listed yet'})"

    def close(self) -> None:
        """Follow nothing any more."""
        self._kept.close()


_REPLICA = msgspec.json.Decoder(_ReplicaObject)


def _read_replica(item: bytes) -> ReplicaFacts | None:
    return read_or_protect(item, _facts, _of_no_node)


def _facts(item: bytes) -> ReplicaFacts:
    read = _REPLICA.decode(item)
    spec = read.spec or _Spec()
    return ReplicaFacts(read.metadata.uid, version_of(read.metadata), spec.node, spec.volume_name)


def _of_no_node(item: bytes, why: str) -> ReplicaFacts:
    """Nobody knows where one is that cannot be read: its node has Longhorn's own pods, which keep it."""
    del why
    _, _, uid, version = least_of(item)
    return ReplicaFacts(uid, version, "", "")
