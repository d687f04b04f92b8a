"""Answers of Alibaba Cloud in the old form, XML, that somebody recorded: the same members as the JSON of today.

No recorded JSON is public. The parts of these that gpuwatch reads are read by the same functions: states, how a machine
is paid, its times, its disks.
"""

import pytest

from gpuwatch.clouds.alibaba.instances import Instance, capacity_type, gpus_of, still_billed
from gpuwatch.clouds.alibaba.owners import managed_by
from gpuwatch.model.fleet import CapacityType, NodeState
from tests.support.clouds.alibaba.recorded import Answer
from tests.support.clouds.recorded import Path, Unread, left_out, needs_recordings, played

STATES = {
    "Pending": NodeState.PENDING,
    "Starting": NodeState.PENDING,
    "Running": NodeState.RUNNING,
    "Stopping": NodeState.STOPPING,
    "Stopped": NodeState.STOPPED,
}


def play_machines(answer: Answer) -> None:
    """Each is in its state, and a stop that would not end its bill is known."""
    for each in answer.items("Instances", "Instance"):
        # Of machines as old as these the type is told by another member, or not at all.
        described = {key: value for key, value in each.items() if not isinstance(value, str) or value}
        described["Tags"] = {"Tag": []}
        instance = Instance(described=described)
        assert instance.launched_at is not None
        assert instance.state is (STATES[each["Status"]] if instance.whole else NodeState.UNKNOWN)
        prepaid = each.get("InstanceChargeType") == "PrePaid"
        assert (capacity_type(described) is CapacityType.PREPAID) is prepaid
        if each.get("InstanceNetworkType") == "classic" or prepaid:
            assert still_billed(described) is not None
        assert managed_by({}, name=str(each.get("InstanceName", ""))) is None


def play_types(answer: Answer) -> None:
    """Types without a GPU have none."""
    for each in answer.items("InstanceTypes", "InstanceType"):
        amount, nvidia = gpus_of({"GPUAmount": each.get("GPUAmount") or 0, "GPUSpec": each.get("GPUSpec", "")})
        assert (amount, nvidia) == (0, True)


PATHS: tuple[Path[Answer], ...] = (
    Path(name="machines", fits=lambda it: it.kind == "DescribeInstances", play=play_machines),
    Path(name="types", fits=lambda it: it.kind == "DescribeInstanceTypes", play=play_types),
)
UNREAD: tuple[Unread[Answer], ...] = (
    Unread(
        name="what gpuwatch does not ask, or asks in JSON alone",
        fits=lambda it: it.kind not in {"DescribeInstances", "DescribeInstanceTypes"},
    ),
)


@pytest.mark.parametrize(("path", "answer"), played("alibaba", PATHS, Answer))
def test_a_recorded_answer_is_read_for_what_it_is(path: Path[Answer], answer: Answer) -> None:
    """Its members mean what they mean in JSON."""
    path.play(answer)


@needs_recordings
def test_every_recorded_answer_is_read_or_known_as_unread() -> None:
    """An answer of a kind that nobody thought of is not passed over."""
    assert left_out("alibaba", PATHS, UNREAD, Answer) == []
