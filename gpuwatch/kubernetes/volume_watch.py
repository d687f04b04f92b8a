"""Persistent volumes, claims and replicas of Longhorn, followed; the whole depends on them as little as on budgets."""

from collections.abc import Collection

import msgspec

from gpuwatch.kubernetes.calls import CLAIMS, VOLUMES
from gpuwatch.kubernetes.claims import ClaimFacts, Disks, VolumeFacts, claim_facts, volume_facts
from gpuwatch.kubernetes.client import PLAIN, Api
from gpuwatch.kubernetes.facts import NodeFacts
from gpuwatch.kubernetes.replicas import ReplicaWatch
from gpuwatch.kubernetes.unreadable import doubtful_claim, doubtful_volume, read_or_protect
from gpuwatch.kubernetes.volume_objects import ClaimObject, PersistentVolumeObject
from gpuwatch.kubernetes.watch import Watch
from gpuwatch.runtime.clock import Clock

_VOLUME = msgspec.json.Decoder(PersistentVolumeObject)
_CLAIM = msgspec.json.Decoder(ClaimObject)


class VolumeWatch:
    """Both kinds. Threads follow them from `start` until `close`."""

    def __init__(self, api: Api, clock: Clock, silence_seconds: float) -> None:
        """Nothing is asked yet."""
        accept, self._silence = (PLAIN, PLAIN), silence_seconds
        self._volumes: Watch[VolumeFacts] = Watch(
            api, clock, VOLUMES, _read_volume, accept=accept, silence_seconds=silence_seconds
        )
        self._claims: Watch[ClaimFacts] = Watch(
            api, clock, CLAIMS, _read_claim, accept=accept, silence_seconds=silence_seconds
        )
        self.both = (self._volumes, self._claims)
        self.replicas = ReplicaWatch(api, clock, silence_seconds)

    def start(self) -> None:
        """Begin to follow both."""
        for watch in self.both:
            watch.start()

    def disks(self, nodes: Collection[NodeFacts]) -> Disks:
        """What they show; a kind of which nothing is heard is a doubt about what is on the nodes' disks."""
        doubt = self.replicas.doubt
        for watch in self.both:
            if not watch.listed or watch.silent_seconds > self._silence:
                what = watch.path.rpartition("/")[2]
                doubt = f"the API server shows no {what} ({watch.failure or 'they were not listed yet'})"
        return Disks(
            volumes={each.name: each for each in self._volumes.kept.all()},
            claims={(each.namespace, each.name): each for each in self._claims.kept.all()},
            nodes=nodes,
            replicas=self.replicas.on_nodes(),
            doubt=doubt,
        )


def _read_volume(item: bytes) -> VolumeFacts | None:
    return read_or_protect(item, lambda item: volume_facts(_VOLUME.decode(item)), doubtful_volume)


def _read_claim(item: bytes) -> ClaimFacts | None:
    return read_or_protect(item, lambda item: claim_facts(_CLAIM.decode(item)), doubtful_claim)
