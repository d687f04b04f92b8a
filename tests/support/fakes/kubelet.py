"""The kubelet's place: a real gRPC server for its pod-resources API, and the messages that it answers with."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

UIDS = [f"{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "abcd"]

# (namespace, pod) -> container -> devices: those of plugins as text, those claimed as `a_claimed_device` makes them
Pods = Mapping[tuple[str, str], Mapping[str, Sequence[str | bytes]]]


def field(number: int, value: bytes | str) -> bytes:
    """A length-delimited field of a protobuf message."""
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    return (
        bytes([value | 0x80 if value > 0x7F else value])
        if value <= 0x7F
        else bytes([value & 0x7F | 0x80]) + varint(value >> 7)
    )


def a_list(pods: Pods) -> bytes:
    """A ListPodResourcesResponse, with fields in it that the agent does not know."""
    message = b""
    for (namespace, pod), containers in pods.items():
        body = field(1, pod) + field(2, namespace)
        for container, devices in containers.items():
            plugins = (field(2, device) for device in devices if isinstance(device, str))
            held = field(1, "nvidia.com/gpu") + b"".join(plugins)
            topology = field(3, field(1, varint(1 << 3) + varint(1)))
            cpus = varint(3 << 3) + varint(300)
            claimed = (field(4, device) for device in devices if isinstance(device, bytes))
            claim = field(5, field(2, "claim") + field(3, namespace) + b"".join(claimed))
            body += field(3, field(1, container) + field(2, held + topology) + cpus + claim)
        message += field(1, body)
    return message


def a_claimed_device(device: str, driver: str = "gpu.nvidia.com", cdi: Sequence[str] = ()) -> bytes:
    """A ClaimResource as Kubernetes 1.31 and newer send it; with no device and driver as those before."""
    names = b"".join(field(1, field(1, name)) for name in cdi)
    rows = ((2, driver), (3, "node-1"), (4, device)) if device else ()
    return names + b"".join(field(number, text) for number, text in rows)


ONE: Pods = {("team-a", "train-0"): {"main": ["GPU-0"]}}


class Kubelet:
    """A gRPC server at a socket; what it answers may change at any time."""

    def __init__(self, path: Path, pods: Pods) -> None:
        """It knows these pods."""
        self.path = path
        self.answer: Callable[[grpc.ServicerContext], bytes] = lambda _: a_list(pods)
        self.asked: list[bytes] = []
        handler = grpc.unary_unary_rpc_method_handler(self._list)
        self._server = grpc.server(ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler}),)
        )
        self._server.add_insecure_port(f"unix:{path}")
        self._server.start()

    def _list(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.asked.append(request)
        return self.answer(context)

    def knows(self, pods: Pods) -> None:
        """From now on."""
        self.answer = lambda _: a_list(pods)

    def stop(self) -> None:
        """It is gone, and its socket with it."""
        self._server.stop(None).wait()
        self.path.unlink(missing_ok=True)


@contextmanager
def a_kubelet(folder: Path) -> Iterator[Kubelet]:
    """One that has given GPU-0 to one pod, where tests.support.fakes.gpu_users.Host looks for it."""
    running = Kubelet(folder / "none.sock", ONE)
    try:
        yield running
    finally:
        running.stop()


def refused(context: grpc.ServicerContext) -> bytes:
    """An answer that is none, as of a kubelet that is asked too often."""
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
    raise AssertionError
