"""agent/attribution: pods, asked of a real gRPC server in the kubelet's place, matched to processes by their GPUs."""

import contextlib
import logging
import re
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.attribution.pod_resources import Allocation, list_allocations, parse_list
from gpuwatch.agent.attribution.pods import Node, Workload, holders, name_pods
from gpuwatch.agent.attribution.unary import CallError, NoServerError, call
from gpuwatch.clock import SystemClock
from gpuwatch.model.gpu import GpuReading
from gpuwatch.model.mig import MigDevice, MigInstance
from tests.agents import RunningAgent, eventually
from tests.builders import a_down, a_gpu, a_process, a_reading
from tests.nvml import StubDriver
from tests.users import Host

UIDS = [f"{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "abcd"]
CLOCK = SystemClock()

Pods = Mapping[tuple[str, str], Mapping[str, Sequence[str]]]  # (namespace, pod) -> container -> devices


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


def a_list(pods: Pods, resource: str = "nvidia.com/gpu") -> bytes:
    """A ListPodResourcesResponse, with fields in it that the agent does not know."""
    message = b""
    for (namespace, pod), containers in pods.items():
        body = field(1, pod) + field(2, namespace)
        for container, devices in containers.items():
            held = field(1, resource) + b"".join(field(2, device) for device in devices)
            topology = field(3, field(1, varint(1 << 3) + varint(1)))
            cpus = varint(3 << 3) + varint(300)
            claims = field(5, field(1, "claim"))
            body += field(3, field(1, container) + field(2, held + topology) + cpus + claims)
        message += field(1, body)
    return message


ONE = {("team-a", "train-0"): {"main": ["GPU-0"]}}


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


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    """One that has given GPU-0 to one pod."""
    running = Kubelet(tmp_path / "none.sock", ONE)  # where tests.test_attribution.Host looks for it
    yield running
    running.stop()


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


# The call.


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


def _abort(context: grpc.ServicerContext) -> bytes:
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
    raise AssertionError


def test_a_refusal_is_an_error(kubelet: Kubelet) -> None:
    """As the kubelet's rate limit does."""
    kubelet.answer = _abort

    with pytest.raises(CallError, match="refuses the call or does not know it"):
        list_allocations(kubelet.path, CLOCK)


def test_a_method_that_is_not_known_is_an_error(kubelet: Kubelet) -> None:
    """As with a kubelet older than the API."""
    with pytest.raises(CallError, match="refuses the call or does not know it"):
        call(kubelet.path, "/v2.PodResourcesLister/List", 5.0, CLOCK)


def test_a_message_that_is_no_list_is_an_error(kubelet: Kubelet) -> None:
    """And the words say so."""
    kubelet.answer = lambda _: b"\x0a\xff"

    with pytest.raises(CallError, match="no list of pod resources: it ends within"):
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


# The message.


def test_the_last_of_a_repeated_name_counts() -> None:
    """As protobuf demands; and names that were not sent are none that Kubernetes allows."""
    body = field(1, "old") + field(1, "new") + field(2, "ns") + field(3, field(1, "c") + field(2, field(2, "GPU-0")))

    assert [entry.pod for entry in parse_list(field(1, body))] == ["new"]
    with pytest.raises(ValueError, match="a name in it"):
        parse_list(field(1, field(3, field(1, "c") + field(2, field(2, "GPU-0")))))


@given(st.binary())
def test_any_bytes_are_a_list_or_no_list(message: bytes) -> None:
    """No other error, and names only of Kubernetes's alphabet."""
    with contextlib.suppress(ValueError):
        parse_list(message)


@given(st.data())
def test_a_list_cut_short_is_no_longer_list(data: st.DataObject) -> None:
    """What is cut off cannot add or change an allocation."""
    pods = {("ns", f"pod-{number}"): {"main": [f"GPU-{number}"]} for number in range(3)}
    whole = a_list(pods)
    cut = data.draw(st.integers(0, len(whole)))
    with contextlib.suppress(ValueError):
        assert set(parse_list(whole[:cut])) <= set(parse_list(whole))


# Devices.


NODE = Node.of(
    [a_gpu(0), a_gpu(1)],
    [
        a_reading(
            1,
            mig_instances=(
                MigInstance(id=3, devices=(MigDevice(uuid="MIG-aaaa", compute_instance=0, profile="1g.10gb"),)),
            ),
        )
    ],
)

DEVICES = {
    "GPU-0": "GPU-0",
    "GPU-0::3": "GPU-0",
    "MIG-aaaa": "GPU-1",
    "MIG-aaaa::0": "GPU-1",
    "MIG-GPU-1/3/0": "GPU-1",
    "nvidia1": "GPU-1",
    "nvidia1/gi3": "GPU-1",
    "nvidia0/vgpu2": "GPU-0",
    "nvidia0/gi3/vgpu1": "GPU-0",
    "GPU-9": None,
    "MIG-bbbb": None,
    "mlx5_0": None,
    "nvidia7": None,
    "": None,
}


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_is_a_gpu_or_a_part_of_one(device: str) -> None:
    """By uuid, as a share of it, as a MIG device, and as GKE's own plugin counts."""
    assert NODE.gpu(device) == DEVICES[device]


def workload(pod: str, container: str | None = "main") -> Workload:
    """A container of a pod in the namespace ns."""
    return Workload(namespace="ns", pod=pod, container=container)


def allocated(**devices: Sequence[str]) -> dict[str, tuple[Workload, ...]]:
    """What pods with one container hold, by GPU."""
    return holders(
        (
            Allocation(namespace="ns", pod=pod, container="main", device=device)
            for pod, names in devices.items()
            for device in names
        ),
        NODE,
    )


def test_processes_of_a_pod_with_its_own_gpu_are_its() -> None:
    """The uid of the control group and the name of the list meet in the GPU."""
    uses = {7: frozenset({"GPU-0"}), 8: frozenset({"GPU-1"})}
    held = allocated(a=["GPU-0"], b=["GPU-1"])

    assert name_pods(uses, {7: UIDS[0], 8: UIDS[1]}, held) == {7: workload("a"), 8: workload("b")}


def test_sharers_of_one_gpu_are_not_named() -> None:
    """Time slicing: both pods fit both uids, and a guess would charge the wrong one."""
    uses = {7: frozenset({"GPU-0"}), 8: frozenset({"GPU-0"})}
    held = allocated(a=["GPU-0::0"], b=["GPU-0::1"])

    assert held == {"GPU-0": (workload("a"), workload("b"))}
    assert name_pods(uses, {7: UIDS[0], 8: UIDS[1]}, held) == {}


def test_a_second_gpu_can_tell_sharers_apart() -> None:
    """Only one of them was given both."""
    uses = {7: frozenset({"GPU-0"}), 9: frozenset({"GPU-1"}), 8: frozenset({"GPU-0"})}
    held = allocated(a=["GPU-0::0", "GPU-1"], b=["GPU-0::1"])

    assert name_pods(uses, {7: UIDS[0], 9: UIDS[0], 8: UIDS[1]}, held) == {7: workload("a"), 9: workload("a")}


def test_a_pod_that_holds_what_it_was_not_given_names_nobody() -> None:
    """A privileged pod sees all GPUs: of two uids on one pod's GPU, either may be the intruder."""
    uses = {7: frozenset({"GPU-0"}), 8: frozenset({"GPU-0"})}

    assert name_pods(uses, {7: UIDS[0], 8: UIDS[1]}, allocated(a=["GPU-0"])) == {}


def test_a_gpu_that_nobody_was_given_names_nobody() -> None:
    """As with claims of DRA, which the list tells elsewhere."""
    assert name_pods({7: frozenset({"GPU-0"})}, {7: UIDS[0]}, {}) == {}


def test_a_native_sidecar_with_a_gpu_of_its_own_is_told_apart() -> None:
    """Containers of a pod are found by their own GPU; with the same one, the pod is certain and the container not."""
    apart = holders(
        parse_list(a_list({("ns", "a"): {"main": ["GPU-0"], "sidecar": ["GPU-1"]}})),
        NODE,
    )
    same = holders(parse_list(a_list({("ns", "a"): {"main": ["GPU-0"], "sidecar": ["GPU-0"]}})), NODE)
    uses = {7: frozenset({"GPU-0"}), 8: frozenset({"GPU-1"})}

    assert name_pods(uses, dict.fromkeys(uses, UIDS[0]), apart) == {7: workload("a"), 8: workload("a", "sidecar")}
    assert name_pods({7: uses[7]}, {7: UIDS[0]}, same) == {7: workload("a", None)}


GPUS = st.frozensets(st.sampled_from(["GPU-0", "GPU-1"]), min_size=1)


@given(truth=st.lists(GPUS, min_size=1, max_size=4), data=st.data())
def test_who_is_named_is_named_right(truth: list[frozenset[str]], data: st.DataObject) -> None:
    """Whatever pods share which GPUs: if each uses only what it was given, no name is another one's."""
    held = allocated(**{f"pod{number}": sorted(gpus) for number, gpus in enumerate(truth)})
    using = {
        number: data.draw(st.frozensets(st.sampled_from(sorted(gpus)), min_size=1)) for number, gpus in enumerate(truth)
    }
    named = name_pods(using, {number: UIDS[number] for number in using}, held)

    assert {number: found.pod for number, found in named.items()} == {number: f"pod{number}" for number in named}


# The whole way.


def in_pod(uid: str) -> str:
    """The control group of a process of that pod."""
    return f"0::/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{'ab' * 32}.scope\n"


def test_a_process_is_told_with_its_pod(tmp_path: Path, kubelet: Kubelet) -> None:
    """Names from the kubelet, uid and container from the control group."""
    host = Host(tmp_path)
    host.process(7, uid=1000, cgroup=in_pod(UIDS[0]))
    host.holding(7)

    (info,) = host.lines("gpuwatch_process_info")

    assert 'container="main",container_id="abababababab",namespace="team-a",pid="7",pod="train-0",' in info
    assert f'pod_uid="{UIDS[0]}",user="1000"' in info
    assert len(kubelet.asked) == 1


def test_a_process_outside_kubernetes_has_no_pod(tmp_path: Path, kubelet: Kubelet) -> None:
    """Also if it uses a GPU that a pod was given."""
    host = Host(tmp_path)
    host.process(7, uid=0)
    host.holding(7)

    assert host.lines("gpuwatch_process_info") == ['{pid="7",user="root"} 1.0']
    assert kubelet.asked == [b""]


def test_a_gpu_given_and_not_used_is_told(tmp_path: Path, kubelet: Kubelet) -> None:
    """Allocated and idle, or allocated and lost: who pays for it is known without any process."""
    told = ['{container="main",namespace="team-a",pod="train-0"} 1.0']
    host = Host(tmp_path)

    assert host.cycle(a_reading()).lines("gpuwatch_gpu_pod_info") == told
    assert host.cycle(a_down()).lines("gpuwatch_gpu_pod_info") == told
    assert kubelet.asked == [b""]


def test_a_new_pod_is_asked_for_at_once_and_an_old_one_seldom(tmp_path: Path, kubelet: Kubelet) -> None:
    """Half a minute passes between two lists, unless a pod appears that the last one cannot know."""
    host = Host(tmp_path)
    host.process(7, cgroup=in_pod(UIDS[0]))
    for _ in range(20):
        host.holding(7)
    after_20_seconds = len(kubelet.asked)
    host.end(7)
    host.process(8, cgroup=in_pod(UIDS[1]))
    kubelet.knows({("team-b", "serve-1"): {"main": ["GPU-0"]}})
    host.holding(8)
    after_new_pod = len(kubelet.asked)
    for _ in range(31):
        host.holding(8)

    assert (after_20_seconds, after_new_pod, len(kubelet.asked)) == (1, 2, 3)
    assert [found.pod for found in host.told.workloads.values()] == ["serve-1"]


def test_a_list_made_before_a_pod_came_never_names_it(tmp_path: Path, kubelet: Kubelet) -> None:
    """While the kubelet refuses, a GPU's new pod does not get the name of the one before it."""
    host = Host(tmp_path)
    host.process(7, cgroup=in_pod(UIDS[0]))
    host.holding(7)
    host.end(7)
    host.process(8, cgroup=in_pod(UIDS[1]))
    kubelet.answer = _abort
    host.holding(8)

    assert host.told.workloads == {}


def test_a_kubelet_that_restarts_takes_no_names_away_and_one_that_stays_silent_does(
    tmp_path: Path, kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    """Names are kept for a minute and a half; the trouble is logged once."""
    host = Host(tmp_path)
    host.process(7, cgroup=in_pod(UIDS[0]))
    host.holding(7)
    kubelet.answer = _abort
    pods = []
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            host.holding(7)
            pods.append(len(host.told.workloads))

    assert pods[:85] == [1] * 85
    assert pods[-5:] == [0] * 5
    assert len(kubelet.asked) < 6
    (message,) = [record.message for record in caplog.records]
    assert message.startswith(f"the kubelet cannot be asked at {kubelet.path} who has which GPU: the server refuses")


def test_a_mig_device_belongs_to_its_gpu(tmp_path: Path, kubelet: Kubelet) -> None:
    """Processes are listed by the GPU, devices allocated by the instance."""
    kubelet.knows({("ns", "a"): {"main": ["MIG-aaaa"]}})
    host = Host(tmp_path)
    host.process(7, cgroup=in_pod(UIDS[0]))
    instance = MigInstance(id=1, devices=(MigDevice(uuid="MIG-aaaa", compute_instance=0),))
    reading: GpuReading = a_reading(processes=(a_process(7),), mig_instances=(instance,))
    host.cycle(reading)

    assert host.told.workloads == {7: Workload(namespace="ns", pod="a", container="main")}


def test_a_running_agent_says_who_uses_and_who_was_given_its_gpu(
    tmp_path: Path, driver: StubDriver, kubelet: Kubelet
) -> None:
    """The real agent, a real process and a real kubelet's answer; of the process's environment only its job is seen."""
    kubelet.knows({("team-a", "train-0"): {"main": ["nvidia0"]}})
    secret = {"SLURM_JOB_ID": "777", "TOKEN": "hunter2"}
    with subprocess.Popen(["sleep", "300"], env={**driver.environment, **secret}) as user:
        driver.gpu(0).processes({user.pid: 1 << 30})
        proc = tmp_path / "proc"
        (proc / "self/ns").mkdir(parents=True)
        (proc / "self/ns/pid").symlink_to("pid:[4026531836]")
        for pid in (1, user.pid):
            (proc / str(pid)).symlink_to(f"/proc/{pid}")
        knobs = {"attribution__proc": proc, "attribution__pod_resources_socket": kubelet.path}
        with RunningAgent(driver.environment, control_socket="none", **knobs) as agent:
            eventually(lambda: 'slurm_job="777"' in agent.get("/metrics"), lambda: agent.get("/metrics"))
            page, log = agent.get("/metrics"), agent.log
        user.kill()

    assert re.search(r'^gpuwatch_process_info{.*pid="\d+".*slurm_job="777".*user=".*} 1.0$', page, re.MULTILINE)
    assert re.search(r'^gpuwatch_gpu_pod_info{container="main",.*pod="train-0".*} 1.0$', page, re.MULTILINE)
    assert re.search(r"^gpuwatch_gpu_dead_process_memory_bytes{.*} 0.0$", page, re.MULTILINE)
    for hidden in ("hunter2", "TOKEN", "sleep"):
        assert hidden not in page
        assert hidden not in log
