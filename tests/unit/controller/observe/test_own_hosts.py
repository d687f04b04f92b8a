"""Hosts of one's own are there by the word of their agents alone: silence is unknown, and one machine counts once."""

from dataclasses import replace

from gpuwatch.controller.observe.own_hosts import with_own_hosts
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import CapacityType, Fleet, GpuVerdict, Node, NodeReport, NodeState
from tests.support.builders.fleet import NOW, a_node, a_verdict, an_activity

SILENT = NodeReport(failure="its agent did not answer within 5s")


def a_host(name: str, *uuids: str) -> Node:
    """A host whose agent shows these GPUs."""
    verdict = a_verdict(State.IDLE)
    gpus = tuple(GpuVerdict(uuid=each, index=n, activity=an_activity()) for n, each in enumerate(uuids))
    node = a_node(name, capacity_type=CapacityType.OWN, gpu_count=None, cannot_stop="no power")
    return replace(node, signal=NodeReport(verdict=replace(verdict, gpus=gpus), received_at=NOW))


def judged(*nodes: Node, gpus: dict[str, int] | None = None) -> tuple[Node, ...]:
    """The hosts as they count."""
    return with_own_hosts(Fleet(observed_at=NOW, nodes=nodes), {} if gpus is None else gpus).nodes


def test_a_host_without_an_answer_is_unknown_with_the_reason_and_keeps_its_gpus() -> None:
    """Off, rebooting and cut off look alike; machines of clouds are left as their cloud shows them."""
    memory: dict[str, int] = {}
    (host,) = judged(a_host("gpu-1", "a", "b"), gpus=memory)
    assert (host.state, host.gpu_count) == (NodeState.RUNNING, 2)
    host, rented = judged(
        replace(host, signal=SILENT, gpu_count=None), replace(a_node("i-1"), signal=SILENT), gpus=memory
    )

    assert (host.state, host.unseen, host.gpu_count) == (NodeState.UNKNOWN, SILENT.failure, 2)
    assert (host.enrolled, rented.state) == (True, NodeState.RUNNING)


def test_one_machine_under_two_names_counts_once_and_is_protected() -> None:
    """By the GPUs that both show; the second name is unknown and in no sum, and others are as they were."""
    first, second, other = judged(a_host("gpu-1", "a"), a_host("gpu-2", "a"), a_host("gpu-3", "c"))

    assert (first.state, first.enrolled, "gpu-2" in (first.protected or "")) == (NodeState.RUNNING, True, True)
    assert (second.state, second.enrolled, "gpu-1" in (second.unseen or "")) == (NodeState.UNKNOWN, False, True)
    assert (other.state, other.protected) == (NodeState.RUNNING, None)


def test_a_host_that_its_power_control_shows_off_is_stopped_and_keeps_its_gpus() -> None:
    """Its agent cannot answer; one that is said to run is unknown without an answer, whatever a BMC says."""
    memory = {"gpu-1": 2}
    for state in (NodeState.STOPPED, NodeState.STOPPING, NodeState.PENDING):
        (host,) = judged(replace(a_host("gpu-1"), state=state, signal=SILENT, gpu_count=None), gpus=memory)
        assert (host.state, host.gpu_count, host.unseen) == (state, 2, None)
    (host,) = judged(replace(a_host("gpu-1"), bmc_on="10.0.1.3", signal=SILENT))
    assert host.state is NodeState.UNKNOWN
    assert host.unseen == f"its BMC 10.0.1.3 shows it on, and no agent answers: {SILENT.failure}"
