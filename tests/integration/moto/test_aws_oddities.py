"""What EC2 shows only now and then: unknown types and states, holes in its answers, spot requests, hosts, silence."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuwatch.clouds import FLEET_TAG, NO_GPU, POOL_TAG, CloudError, CloudUnavailableError
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.clouds.aws.instances import _type_of
from gpuwatch.clouds.aws.notices import SpotRequest, cannot_stop, cannot_terminate
from gpuwatch.model.fleet import CapacityType, Node, NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.moto_faults import REGION
from tests.support.fakes.moto_oddities import OddFaults

MINE = {FLEET_TAG: "lab"}
OTHER = "eu-west-1"


@pytest.fixture
def ec2() -> Iterator[OddFaults]:
    """An empty account."""
    with OddFaults(ManualClock()) as faults:
        yield faults


def a_cloud(ec2: OddFaults, clock: ManualClock, *regions: str) -> AwsCloud:
    """The real adapter on that account."""
    return AwsCloud(fleet="lab", clock=clock, regions=regions or [REGION], session=ec2.session)


def shown(cloud: AwsCloud) -> dict[str, Node]:
    """The list by id."""
    return {node.id: node for node in cloud.nodes()}


# Types


def test_a_type_that_was_missing_once_is_asked_for_again(ec2: OddFaults, caplog: pytest.LogCaptureFixture) -> None:
    """One empty answer of DescribeInstanceTypes hides nothing: the machine counts, and is whole a minute later."""
    clock, node_id = ManualClock(), ec2.launch(MINE)
    cloud = a_cloud(ec2, clock)
    ec2.garble("DescribeInstanceTypes", page=EMPTY_TYPES)

    with caplog.at_level(logging.WARNING, logger="gpuwatch.clouds.aws.instances"):
        first = shown(cloud)[node_id]
        second = shown(cloud)[node_id]
        clock.advance(61)
        third = shown(cloud)[node_id]

    assert (first.gpu_count, first.enrolled, first.state) == (None, True, NodeState.RUNNING)
    assert second.gpu_count is None
    assert third.gpu_count == 1
    said = [record.getMessage() for record in caplog.records]
    assert [sentence.partition(":")[0] for sentence in said] == [
        "EC2 does not describe the machine type g5.xlarge",
        "EC2 describes the machine type g5.xlarge now",
    ]


def test_a_type_that_stays_missing_is_asked_for_ever_more_rarely(ec2: OddFaults) -> None:
    """After one minute, two, four, up to an hour: a retired type costs no call a round."""
    clock = ManualClock()
    ec2.launch(MINE, instance_type="p3.2xlarge")
    cloud = a_cloud(ec2, clock)
    for seconds in [60] * 64 + [600] * 42:  # eight hours, minute by minute while it is asked within an hour
        assert len(cloud.nodes()) == 1
        clock.advance(seconds)

    assert 10 <= [call.action for call in ec2.calls].count("DescribeInstanceTypes") <= 14


def test_a_failing_second_look_at_a_missing_type_costs_nothing_else(ec2: OddFaults) -> None:
    """The list is whole without it, as it was before."""
    clock = ManualClock()
    ec2.launch(MINE, instance_type="p3.2xlarge")
    cloud = a_cloud(ec2, clock)
    assert len(cloud.nodes()) == 1
    clock.advance(61)
    ec2.refuse("DescribeInstanceTypes", "UnauthorizedOperation", status=403)

    assert len(cloud.nodes()) == 1


# Launches


@pytest.mark.parametrize("kind", ["m5.large", "trn1.2xlarge", "inf2.xlarge"])
def test_a_template_without_nvidia_gpus_launches_nothing(ec2: OddFaults, kind: str) -> None:
    """RunInstances is not asked for a machine that could never be a node, nor where a pool names the type."""
    ec2.add_template("gpu-node")
    ec2.add_template("cpu-node", instance_type=kind)
    cloud = a_cloud(ec2, ManualClock())

    for arguments in ({"template": "cpu-node"}, {"template": "gpu-node", "instance_type": kind}):
        with pytest.raises(CloudError, match=kind) as caught:
            cloud.launch(arguments, "key")
        assert caught.value.code == NO_GPU
    assert not ec2.done("RunInstances")
    assert len(list(cloud.unfit([{"template": "cpu-node"}, {"template": "gpu-node"}]))) == 1


@pytest.mark.parametrize(
    ("gpus", "count", "nvidia"),
    [([{"Manufacturer": "AMD", "Count": 2}], 2, False), ([{"Manufacturer": "Nvidia"}], 1, True), ([{}], 1, True)],
)
def test_whose_gpus_a_type_has(gpus: list[dict[str, object]], count: int, nvidia: bool) -> None:
    """AMD's are GPUs and none that the agent reads; an answer that names no maker is no ground to refuse a launch."""
    facts: Any = {"GpuInfo": {"Gpus": gpus}}
    found = _type_of(facts)

    assert (found.gpu_count, found.nvidia) == (count, nvidia)


@pytest.mark.parametrize("call", ["DescribeLaunchTemplateVersions", "DescribeInstanceTypes"])
def test_a_launch_does_not_depend_on_that_look(ec2: OddFaults, call: str) -> None:
    """Where nobody can tell the type, the launch goes on, and is watched until its machine is a node."""
    ec2.add_template("gpu-node")
    ec2.refuse(call, "UnauthorizedOperation", status=403)

    node_id = a_cloud(ec2, ManualClock()).launch({"template": "gpu-node"}, "key")

    assert ec2.state(node_id) in {"pending", "running"}


# States and holes


def test_a_state_never_heard_of_is_a_doubt_about_one_machine(ec2: OddFaults) -> None:
    """It stays in the list, in the state unknown; the others are as they are."""
    odd, other = ec2.launch(MINE), ec2.launch(MINE)
    ec2._instance(odd)._state.name = "napping"
    cloud = a_cloud(ec2, ManualClock())

    states = {node_id: node.state for node_id, node in shown(cloud).items()}
    assert states == {odd: NodeState.UNKNOWN, other: NodeState.RUNNING}
    assert cloud.node(odd).state is NodeState.UNKNOWN


@pytest.mark.parametrize("hole", ["launch_time", "instance_type", "_placement", "_state"])
def test_a_description_with_a_hole_is_a_doubt_about_one_machine(
    ec2: OddFaults, monkeypatch: pytest.MonkeyPatch, hole: str
) -> None:
    """One malformed instance in an answer hides no other."""
    odd, other = ec2.launch(MINE), ec2.launch(MINE)
    monkeypatch.setattr(ec2._instance(odd), hole, None)
    cloud = a_cloud(ec2, ManualClock())

    states = {node_id: node.state for node_id, node in shown(cloud).items()}
    assert states == {odd: NodeState.UNKNOWN, other: NodeState.RUNNING}


def test_a_machine_that_a_list_leaves_out_stays(ec2: OddFaults) -> None:
    """It is asked for by its id; where EC2 says nothing of it, it counts for a quarter of an hour."""
    clock, kept, gone = ManualClock(), ec2.launch(MINE), ec2.launch(MINE)
    cloud = a_cloud(ec2, clock)
    assert len(shown(cloud)) == 2
    ec2.hide(kept, times=1)
    assert shown(cloud)[kept].state is NodeState.RUNNING
    ec2.hide(kept, times=99)
    assert shown(cloud)[kept].state is NodeState.UNKNOWN
    clock.advance(899)
    assert shown(cloud)[kept].state is NodeState.UNKNOWN
    clock.advance(2)
    assert list(shown(cloud)) == [gone]
    ec2.hide(kept, times=0)
    assert len(shown(cloud)) == 2


def test_a_machine_that_is_terminated_is_gone_at_once(ec2: OddFaults) -> None:
    """EC2 says so itself: nothing is kept of it."""
    cloud, node_id = a_cloud(ec2, ManualClock()), ec2.launch(MINE)
    assert list(shown(cloud)) == [node_id]
    ec2.client.terminate_instances(InstanceIds=[node_id])

    assert shown(cloud) == {}


# Silence of one region


def test_a_silent_region_hides_neither_itself_nor_the_others(ec2: OddFaults) -> None:
    """Its machines count as they were and are left alone, its groups are protected; later all is as before."""
    here, there = ec2.launch(MINE), ec2.launch(MINE, region=OTHER)
    ec2.add_group("train", MINE, size=0, region=OTHER)
    cloud = a_cloud(ec2, ManualClock(), REGION, OTHER)
    before, groups = shown(cloud), cloud.groups()
    ec2.silence(OTHER)

    nodes, (group,) = shown(cloud), cloud.groups()
    assert {node_id: node.state for node_id, node in nodes.items()} == {
        here: NodeState.RUNNING,
        there: NodeState.UNKNOWN,
    }
    assert (nodes[there].pool, nodes[there].enrolled, nodes[there].region) == ("default", True, OTHER)
    assert group.protected is not None
    assert OTHER in group.protected
    ec2.silence(None)
    assert (shown(cloud), cloud.groups()) == (before, groups)


def test_a_region_that_was_never_seen_blinds_the_round(ec2: OddFaults) -> None:
    """A controller that has just begun does not know what it does not see."""
    ec2.launch(MINE)
    cloud = a_cloud(ec2, ManualClock(), REGION, OTHER)
    ec2.silence(OTHER)

    with pytest.raises(CloudUnavailableError, match=OTHER):
        cloud.nodes()
    with pytest.raises(CloudUnavailableError, match=OTHER):
        cloud.groups()


def test_silence_everywhere_blinds_the_round(ec2: OddFaults) -> None:
    """Nobody decides on memories alone."""
    ec2.launch(MINE)
    cloud = a_cloud(ec2, ManualClock(), REGION, OTHER)
    cloud.nodes()
    ec2.silence("")

    with pytest.raises(CloudUnavailableError):
        cloud.nodes()


def test_a_launch_is_found_beside_a_silent_region(ec2: OddFaults) -> None:
    """What another region shows is enough; that nobody shows it is not, while one is silent."""
    ec2.add_template("gpu-node")
    cloud = a_cloud(ec2, ManualClock(), REGION, OTHER)
    node_id = cloud.launch({"template": "gpu-node", "pool": "train"}, "key")
    ec2.silence(OTHER)

    found = cloud.find("key")
    assert found is not None
    assert (found.id, found.tags[POOL_TAG]) == (node_id, "train")
    with pytest.raises(CloudUnavailableError, match=OTHER):
        cloud.find("another")
    assert cloud.find("another", {"region": REGION}) is None, "it went there, if anywhere"
    with pytest.raises(CloudUnavailableError, match=OTHER):
        cloud.find("another", {"region": OTHER})


# How it was bought


def test_a_dedicated_host_is_paid_anyway(ec2: OddFaults) -> None:
    """Tenancy host is prepaid; a dedicated instance is paid by itself."""
    cloud = a_cloud(ec2, ManualClock())
    place, instance = cloud._find_machine(ec2.launch(MINE))
    rows = []
    for tenancy in ("default", "dedicated", "host"):
        placement: Any = {**instance.described["Placement"], "Tenancy": tenancy}
        instance.described["Placement"] = placement
        rows.append(cloud._node_of(place, instance).capacity_type)

    assert rows == [CapacityType.ON_DEMAND, CapacityType.ON_DEMAND, CapacityType.DEDICATED_HOST]


A_SPOT: Any = {"SpotInstanceRequestId": "sir-1"}


@pytest.mark.parametrize(
    ("request_", "stop", "terminate"),
    [
        (SpotRequest(type="one-time", state="active"), "its spot request sir-1 is one-time", None),
        (SpotRequest(type="one-time", state="closed"), "its spot request sir-1 is one-time", None),
        (SpotRequest(type="persistent", state="active"), None, "persistent spot request sir-1 would launch it again"),
        (SpotRequest(type="persistent", state="disabled"), None, "would launch it again"),
        (SpotRequest(type="persistent", state="cancelled"), "sir-1 is cancelled", None),
        (SpotRequest(type="maintain", state="active"), None, "its maintain spot request sir-1"),
        (SpotRequest(doubt="no answer"), None, "may launch it again: no answer"),
    ],
)
def test_what_a_spot_request_forbids(request_: SpotRequest, stop: str | None, terminate: str | None) -> None:
    """EC2 stops what a persistent request launched, and launches again what of it is terminated."""
    requests = {"sir-1": request_}
    for word, text in ((stop, cannot_stop(A_SPOT, requests)), (terminate, cannot_terminate(A_SPOT, requests))):
        assert (text is None) is (word is None)
        assert word is None or (text is not None and word in text)


def test_what_is_not_spot_may_be_stopped_and_terminated() -> None:
    """Unless its root disk is an instance store, which EC2 cannot stop."""
    stores: Any = {"RootDeviceType": "instance-store"}

    assert (cannot_stop({}, {}), cannot_terminate({}, {})) == (None, None)
    assert cannot_stop(stores, {}) == "its root disk is an instance store"


@pytest.mark.parametrize("kind", ["one-time", "persistent"])
def test_spot_requests_are_asked_for_once_a_list(ec2: OddFaults, kind: Any) -> None:  # noqa: ANN401  a word of EC2
    """One call for all spot machines, none where there is none."""
    ec2.launch(MINE)
    cloud = a_cloud(ec2, ManualClock())
    cloud.nodes()
    assert not ec2.done("DescribeSpotInstanceRequests")
    node_id = ec2.launch_spot(MINE, kind)

    node = shown(cloud)[node_id]

    assert len(ec2.done("DescribeSpotInstanceRequests")) == 1
    assert (node.cannot_stop is not None) is (kind == "one-time")
    assert (node.cannot_terminate is not None) is (kind == "persistent")
    assert node.capacity_type is CapacityType.SPOT


def test_without_the_permission_spot_machines_are_not_terminated(ec2: OddFaults) -> None:
    """Policies of before do not have it: the list is whole, and the doubt is about these machines alone."""
    node_id = ec2.launch_spot(MINE, "one-time")
    ec2.refuse("DescribeSpotInstanceRequests", "UnauthorizedOperation", status=403, times=3)

    text = a_cloud(ec2, ManualClock()).node(node_id).cannot_terminate

    assert text is not None
    assert "UnauthorizedOperation" in text


EMPTY_TYPES = (
    '<DescribeInstanceTypesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId>'
    "<instanceTypeSet/></DescribeInstanceTypesResponse>"
)


def test_the_list_says_what_ec2_will_end(ec2: OddFaults) -> None:
    """A scheduled retirement; one call a region and round, and none more where the permission is missing."""
    node_id, other = ec2.launch(MINE), ec2.launch(MINE)
    ec2.events[node_id] = ("instance-retirement", datetime(2026, 3, 3, 12, tzinfo=UTC))
    cloud = a_cloud(ec2, ManualClock())

    nodes = shown(cloud)

    assert [(each.kind, each.action, each.at) for each in nodes[node_id].announced or ()] == [
        ("maintenance", "instance-retirement", datetime(2026, 3, 3, 12, tzinfo=UTC))
    ]
    assert nodes[other].announced == ()
    assert len(ec2.done("DescribeInstanceStatus")) == 1
    ec2.refuse("DescribeInstanceStatus", "UnauthorizedOperation", status=403)
    assert {each.announced for each in shown(cloud).values()} == {None}
