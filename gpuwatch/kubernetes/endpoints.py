"""Where the cluster's API is served: the addresses behind the Service `default/kubernetes`, followed.

Each API server writes its own address there. Where no label, no taint and no pod says what a node is (MicroK8s, k0s, a
control plane in one process), this alone does. Where a provider serves the API, the addresses are of no node.
https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from gpuwatch.clouds.errors import NotFoundError
from gpuwatch.kubernetes.client import PLAIN, Api
from gpuwatch.kubernetes.facts import version_of
from gpuwatch.kubernetes.objects import ObjectMeta
from gpuwatch.kubernetes.unreadable import least_of, read_or_protect
from gpuwatch.kubernetes.watch import Watch
from gpuwatch.runtime.clock import Clock

SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
_OF_THE_API = {"labelSelector": "kubernetes.io/service-name=kubernetes"}


class _Endpoint(Struct):
    """One server, ready or not: also one that does not answer has the cluster's memory on its disk."""

    addresses: list[str] | None = None


class _SliceObject(Struct):
    """A slice as the API server shows it (discovery.k8s.io/v1 EndpointSlice)."""

    metadata: ObjectMeta
    endpoints: list[_Endpoint] | None = None


@dataclass(frozen=True, slots=True)
class SliceFacts:
    """The addresses in one slice; `doubt` is why they are not known."""

    name: str
    uid: str
    version: int
    addresses: frozenset[str]
    doubt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAddresses:
    """Where the API is served, and why that is not all, as a clause."""

    known: frozenset[str] = frozenset()
    doubt: str | None = None

    def why_vital(self, addresses: Iterable[str]) -> str | None:
        """Why a node with these addresses serves the API, as a clause; None: it does not."""
        for address in addresses:
            if _plain(address) in self.known:
                return f"its address {address} serves the cluster's API (EndpointSlice default/kubernetes)"
        return None if self.doubt is None else f"it may serve the cluster's API, for {self.doubt}"


class ApiAddressWatch:
    """Follows the slices, in a thread from `start` until `close`."""

    def __init__(self, api: Api, clock: Clock, silence_seconds: float) -> None:
        """Nothing is asked yet."""
        self._silence = silence_seconds
        self.slices: Watch[SliceFacts] = Watch(
            api,
            clock,
            SLICES,
            read_slice,
            accept=(PLAIN, PLAIN),
            silence_seconds=silence_seconds,
            selector=_OF_THE_API,
        )

    def addresses(self) -> ApiAddresses:
        """What they show; that an API server from before 1.21 does not serve the kind is no doubt."""
        found, watch = self.slices.kept.all(), self.slices
        doubt = next((f"{each.name} cannot be read: {each.doubt}" for each in found if each.doubt is not None), None)
        silent = not watch.listed or watch.silent_seconds > self._silence
        if silent and not isinstance(watch.failure, NotFoundError):
            doubt = f"the API server shows no endpointslices ({watch.failure or 'they were not listed yet'})"
        return ApiAddresses(known=frozenset(address for each in found for address in each.addresses), doubt=doubt)


def slice_facts(item: bytes) -> SliceFacts:
    """Read the addresses of a slice's JSON."""
    read = _SLICE.decode(item)
    addresses = (address for each in read.endpoints or () for address in each.addresses or ())
    meta = read.metadata
    return SliceFacts(meta.name, meta.uid, version_of(meta), frozenset(map(_plain, addresses)))


_SLICE = msgspec.json.Decoder(_SliceObject)


def read_slice(item: bytes) -> SliceFacts | None:
    """Return the facts of one that can be read, or the doubt of one that cannot."""
    return read_or_protect(item, slice_facts, _doubtful_slice)


def _doubtful_slice(item: bytes, why: str) -> SliceFacts:
    name, _, uid, version = least_of(item)
    return SliceFacts(name, uid, version, frozenset(), why)


def _plain(address: str) -> str:
    """An address in its shortest form; a name in small letters."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address.lower()
