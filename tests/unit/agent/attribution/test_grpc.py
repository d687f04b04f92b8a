"""agent/attribution: the one gRPC call, asked of a real gRPC server in the kubelet's place and of what is none."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.agent.attribution.grpc import CallError, NoServerError, call
from gpuwatch.agent.attribution.pod_resources import Allocation, list_allocations
from gpuwatch.runtime.clock import SystemClock
from tests.support.fakes.kubelet import Kubelet, a_kubelet, a_list, refused

CLOCK = SystemClock()


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    """One that has given GPU-0 to one pod."""
    with a_kubelet(tmp_path) as running:
        yield running


@contextlib.contextmanager
def answering(path: Path, *chunks: bytes, then_wait: bool = False) -> Iterator[None]:
    """A server that is no gRPC server: it says this, whatever it is asked."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen()
    done = threading.Event()

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, contextlib.suppress(OSError):
            for chunk in chunks:
                connection.sendall(chunk)
            if then_wait:
                done.wait(30)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        listening.close()


def test_a_grpc_server_is_asked_with_an_empty_message(kubelet: Kubelet) -> None:
    """It understands the request and its answer is understood."""
    found = list_allocations(kubelet.path, CLOCK)

    assert found == (Allocation(namespace="team-a", pod="train-0", container="main", device="GPU-0"),)
    assert kubelet.asked == [b""]


def test_an_empty_node_is_no_error(kubelet: Kubelet) -> None:
    """A list without pods is an empty message."""
    kubelet.knows({})

    assert list_allocations(kubelet.path, CLOCK) == ()


def test_a_long_list_comes_whole(kubelet: Kubelet) -> None:
    """Longer than a frame, and than the window that HTTP/2 begins with."""
    many = {("ns", f"pod-{number}"): {"main": [f"GPU-{number}-{'x' * 90}"]} for number in range(5000)}
    kubelet.knows(many)

    assert len(a_list(many)) > 10 * 65535
    assert [entry.pod for entry in list_allocations(kubelet.path, CLOCK)] == [f"pod-{n}" for n in range(5000)]


def test_a_refusal_is_an_error(kubelet: Kubelet) -> None:
    """As the kubelet's rate limit does."""
    kubelet.answer = refused

    with pytest.raises(CallError, match="refuses the call or does not know it"):
        list_allocations(kubelet.path, CLOCK)


def test_a_method_that_is_not_known_is_an_error(kubelet: Kubelet) -> None:
    """As with a kubelet older than the API."""
    with pytest.raises(CallError, match="refuses the call or does not know it"):
        call(kubelet.path, "/v2.PodResourcesLister/List", 5.0, CLOCK)


def test_a_message_that_is_no_list_is_an_error(kubelet: Kubelet) -> None:
    """And the words say so."""
    kubelet.answer = lambda _: b"\x0a\xff"

    with pytest.raises(CallError, match="not a list of pod resources: it ends within"):
        list_allocations(kubelet.path, CLOCK)


def test_without_a_kubelet_there_is_no_server(tmp_path: Path) -> None:
    """Which is no trouble: most hosts have none."""
    with pytest.raises(NoServerError):
        list_allocations(tmp_path / "kubelet.sock", CLOCK)


def test_a_socket_that_nobody_serves_is_an_error(tmp_path: Path) -> None:
    """A kubelet that died leaves its socket behind."""
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "kubelet.sock"))

    with pytest.raises(CallError, match="Connection refused"):
        list_allocations(tmp_path / "kubelet.sock", CLOCK)


def a_frame(kind: int, flags: int, payload: bytes = b"", stream: int = 1) -> bytes:
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3) + struct.pack(">BBI", kind, flags, stream) + payload


GARBAGE: dict[str, tuple[tuple[bytes, ...], bool, str]] = {
    "silence": ((), True, "no answer within 0.2 s"),
    "a frame that never ends": ((a_frame(0, 0, b"x" * 100)[:-1],), True, "no answer within 0.2 s"),
    "an end": ((), False, "ended before the answer|Broken pipe|reset by peer"),
    "another protocol": ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), True, "does not speak HTTP/2"),
    "a broken call": ((a_frame(3, 0, b"\0\0\0\2"),), True, "broke off the call"),
    "half a message": ((a_frame(0, 1, b"\0\0\0\0\5abc"),), True, "not one whole message"),
    "two messages": ((a_frame(0, 1, b"\0\0\0\0\0" * 2),), True, "not one whole message"),
    "a compressed message": ((a_frame(0, 1, b"\1\0\0\0\0"),), True, "not one whole message"),
    "a flood": (tuple(a_frame(0, 0, b"x" * 16384) for _ in range(1100)), True, "larger than 16777216 bytes"),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_what_is_no_answer_is_an_error(tmp_path: Path, what: str) -> None:
    """Within the timeout, whatever speaks there."""
    chunks, then_wait, words = GARBAGE[what]
    timeout = 0.2 if "0.2 s" in words else 20.0
    with answering(tmp_path / "s", *chunks, then_wait=then_wait), pytest.raises(CallError, match=words):
        call(tmp_path / "s", "/a/B", timeout, CLOCK)


def test_frames_of_others_padding_and_pieces_do_no_harm(tmp_path: Path) -> None:
    """A message may come in pieces with padding, between frames that are not its own."""
    pieces = (
        a_frame(4, 0, stream=0),
        a_frame(6, 0, b"12345678", stream=0),
        a_frame(0, 0, b"of another stream", stream=3),
        a_frame(0, 8, b"\x02" + b"\0\0\0\0" + b"\0\0"),
        a_frame(0, 0, b"\3ab"),
        a_frame(0, 0, b"c"),
        a_frame(99, 0, b"unknown"),
        a_frame(1, 5, b"\x88"),
    )
    with answering(tmp_path / "s", *pieces, then_wait=True):
        assert call(tmp_path / "s", "/a/B", 5.0, CLOCK) == b"abc"
