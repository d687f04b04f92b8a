"""Which devices the kubelet has given to which containers: its pod-resources API, v1.PodResourcesLister/List.

Source: k8s.io/kubelet/pkg/apis/podresources/v1/api.proto. Devices of plugins are read, and devices claimed through DRA
from NVIDIA's driver; cpus, memory and topology are passed over.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.agent.attribution.grpc import CallError, call
from gpuwatch.runtime.clock import Clock

CLAIMED = "gpu.nvidia.com/"  # the name of NVIDIA's DRA driver, put before the names that it gives to devices

METHOD = "/v1.PodResourcesLister/List"
TIMEOUT_SECONDS = 2.0
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")  # RFC 1123, as Kubernetes checks names of all three kinds
# A device in the driver's CDI specification: of a claim by the claim's uid, in older versions of the whole node.
_CDI_DEVICE = re.compile(r"k8s\.gpu\.nvidia\.com/(?:device=|claim=[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-)(.+)")
_LONGEST_DEVICE = 128
_LONGEST_VARINT = 10
_BYTES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One device that one container may use. `device` is what its device plugin calls it; a claimed one is marked."""

    namespace: str
    pod: str
    container: str
    device: str


def list_allocations(path: Path, clock: Clock) -> tuple[Allocation, ...]:
    """All devices of all pods on this node.

    Raises:
        NoServerError: there is no kubelet.
        CallError: the kubelet cannot be asked, or says what is no such list.

    """
    try:
        return parse_list(call(path, METHOD, TIMEOUT_SECONDS, clock))
    except ValueError as error:
        raise CallError(f"the answer is not a list of pod resources: {error}") from error


def parse_list(message: bytes) -> tuple[Allocation, ...]:
    """The allocations in a ListPodResourcesResponse, in its order.

    Raises:
        ValueError: it is no such message.

    """
    return tuple(_allocations(message))


def _allocations(message: bytes) -> Iterator[Allocation]:
    for pod in _nested_messages(message, 1):
        pod_name, namespace = _text(pod, 1), _text(pod, 2)
        for container in _nested_messages(pod, 3):
            container_name = _text(container, 1)
            for device in _devices(container):
                yield Allocation(
                    namespace=_name(namespace),
                    pod=_name(pod_name),
                    container=_name(container_name),
                    device=device,
                )


def _devices(container: bytes) -> Iterator[str]:
    """The devices of a container: those of device plugins, then those of claims."""
    for devices in _nested_messages(container, 2):
        for device in _nested_messages(devices, 2):
            yield device[:_LONGEST_DEVICE].decode()
    for claim in _nested_messages(container, 5):
        for resource in _nested_messages(claim, 4):
            for name in _claimed_devices(resource):
                yield f"{CLAIMED}{name}"[:_LONGEST_DEVICE]


def _claimed_devices(resource: bytes) -> Iterator[str]:
    """NVIDIA's device of a ClaimResource; before Kubernetes 1.31 only its CDI devices are given."""
    driver, device = _text(resource, 2), _text(resource, 4)
    if driver:
        yield from [device] if f"{driver}/" == CLAIMED and device else []
        return
    for cdi_device in _nested_messages(resource, 1):
        if found := _CDI_DEVICE.fullmatch(_text(cdi_device, 1)):
            yield found[1]


def is_name(text: str) -> bool:
    """Whether Kubernetes would allow it as the name of a namespace, pod or container."""
    return _NAME.fullmatch(text) is not None


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError("it has a name that Kubernetes does not allow")
    return text


def _nested_messages(message: bytes, number: int) -> Iterator[bytes]:
    return (value for found, value in _fields(message) if found == number)


def _text(message: bytes, number: int) -> str:
    """A text field; the last one counts, and one not sent is empty."""
    return b"".join(list(_nested_messages(message, number))[-1:]).decode()


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and contents of the length-delimited fields (protobuf.dev/programming-guides/encoding); others skipped."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        match tag & 7:
            case 0:
                _, at = _varint(message, at)
                continue
            case 1:
                size = 8
            case 2:
                size, at = _varint(message, at)
            case 5:
                size = 4
            case other:
                raise ValueError(f"a field of type {other}")
        if at + size > len(message):
            raise ValueError("it ends within a field")
        if tag & 7 == _BYTES:
            yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends."""
    value = 0
    for place, byte in enumerate(message[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:  # noqa: PLR2004  the last byte of a number has no high bit
            return value, at + place + 1
    raise ValueError("it ends within a number")
