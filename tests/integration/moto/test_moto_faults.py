"""The fault layer over moto does what it says, and why it is there: where moto is not EC2."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from gpuwatch.clouds import FLEET_TAG
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.fakes.moto_faults import REGION, Crash, MotoFaults

MINE = {FLEET_TAG: "lab"}


@pytest.fixture
def ec2() -> Iterator[MotoFaults]:
    """An empty account."""
    with MotoFaults(ManualClock()) as faults:
        yield faults


def a_cloud(ec2: MotoFaults, **more: Any) -> AwsCloud:  # noqa: ANN401  any option of AwsCloud
    """The real adapter on that account."""
    return AwsCloud(**{"fleet": "lab", "clock": ManualClock(), "regions": [REGION], "session": ec2.session, **more})


def test_a_crash_passes_through_the_adapter(ec2: MotoFaults) -> None:
    """A crash before the effect leaves the machine running, one after it leaves it stopped; neither is handled."""
    before, after = ec2.launch(MINE), ec2.launch(MINE)
    cloud = a_cloud(ec2)
    ec2.crash_before("StopInstances")
    ec2.crash_after("StopInstances")

    with pytest.raises(Crash):
        cloud.stop(before, "key", permit=a_permit())
    with pytest.raises(Crash):
        cloud.stop(after, "key", permit=a_permit())

    assert (ec2.state(before), ec2.state(after)) == ("running", "stopped")
    assert [call.node_ids for call in ec2.done("StopInstances")] == [(after,)]


def test_a_lagging_stop_is_shown_as_stopping_that_often() -> None:
    """lag_describes=2 shows stopping twice, then stopped."""
    with MotoFaults(ManualClock(), lag_describes=2) as ec2:
        node_id = ec2.launch(MINE)
        cloud = a_cloud(ec2)
        shown = [cloud.node(node_id).state.value for _ in range(3)]
        cloud.stop(node_id, "key", permit=a_permit())
        shown += [cloud.node(node_id).state.value for _ in range(3)]

    assert shown == ["pending", "pending", "running", "stopping", "stopping", "stopped"]


def test_where_moto_lies() -> None:
    """Plain moto does what EC2 refuses; each line here is why the fault layer, or a caution, exists."""
    image: Any = {"ImageId": "ami-00000000", "InstanceType": "g5.xlarge", "MinCount": 1, "MaxCount": 1}
    with mock_aws():
        client = boto3.client("ec2", region_name=REGION)

        def launch(**more: Any) -> str:  # noqa: ANN401  RunInstances takes anything
            return client.run_instances(**image, **more)["Instances"][0]["InstanceId"]

        def described(node_id: str) -> Any:  # noqa: ANN401  a raw answer
            return client.describe_instances(InstanceIds=[node_id])["Reservations"][0]["Instances"][0]

        node_id = launch(DisableApiTermination=True)
        launched_at = described(node_id)["LaunchTime"]

        assert launch(ClientToken="same") != launch(ClientToken="same"), "EC2: one launch for one token"

        client.stop_instances(InstanceIds=[node_id])
        assert described(node_id)["State"]["Name"] == "stopped", "EC2: stopping at first"

        client.start_instances(InstanceIds=[node_id])
        assert described(node_id)["State"]["Name"] == "running", "EC2: pending at first"
        assert described(node_id)["LaunchTime"] == launched_at, "EC2: renewed by every start"

        client.terminate_instances(InstanceIds=[node_id])
        assert described(node_id)["State"]["Name"] == "terminated", "EC2: refused, as it was protected at launch"

        client.start_instances(InstanceIds=[node_id])
        assert described(node_id)["State"]["Name"] == "running", "EC2: IncorrectInstanceState, gone is gone"

        client.create_tags(Resources=["i-0123456789abcdef0"], Tags=[{"Key": "a", "Value": "b"}])  # EC2: NotFound


def test_where_moto_lies_about_groups() -> None:
    """Plain moto keeps no minimum, no maximum, no passing state and no suspended process of a group."""
    with mock_aws():
        client = boto3.client("ec2", region_name=REGION)
        scaling: Any = boto3.client("autoscaling", region_name=REGION)
        data: Any = {"ImageId": "ami-00000000", "InstanceType": "g5.xlarge"}
        client.create_launch_template(LaunchTemplateName="gpu", LaunchTemplateData=data)
        scaling.create_auto_scaling_group(
            AutoScalingGroupName="train",
            LaunchTemplate={"LaunchTemplateName": "gpu", "Version": "$Default"},
            MinSize=2,
            MaxSize=2,
            DesiredCapacity=2,
            AvailabilityZones=[f"{REGION}a"],
        )

        def group() -> Any:  # noqa: ANN401  a raw answer
            return scaling.describe_auto_scaling_groups()["AutoScalingGroups"][0]

        scaling.suspend_processes(AutoScalingGroupName="train", ScalingProcesses=["Terminate"])
        gone = group()["Instances"][0]["InstanceId"]
        scaling.terminate_instance_in_auto_scaling_group(InstanceId=gone, ShouldDecrementDesiredCapacity=True)
        assert group()["DesiredCapacity"] == 1, "EC2: refused, below MinSize and with Terminate suspended"
        assert gone not in {each["InstanceId"] for each in group()["Instances"]}, "EC2: Terminating at first"

        scaling.set_desired_capacity(AutoScalingGroupName="train", DesiredCapacity=5)
        assert group()["DesiredCapacity"] == 5, "EC2: refused, above MaxSize"


def test_where_moto_lies_about_launches_and_ends() -> None:
    """Plain moto finds nothing by its token, dies of an unknown template, and ends a batch in the order of the list."""
    image: Any = {"ImageId": "ami-00000000", "InstanceType": "g5.xlarge", "MinCount": 1, "MaxCount": 1}
    with mock_aws():
        client = boto3.client("ec2", region_name=REGION)
        launched = [
            client.run_instances(**image, Placement={"AvailabilityZone": f"{REGION}{zone}"})["Instances"][0][
                "InstanceId"
            ]
            for zone in "abb"
        ]
        client.modify_instance_attribute(InstanceId=launched[1], DisableApiTermination={"Value": True})
        with pytest.raises(client.exceptions.ClientError, match="OperationNotPermitted"):
            client.terminate_instances(InstanceIds=[launched[1], launched[0], launched[2]])
        rows = client.describe_instances(InstanceIds=launched)["Reservations"]
        states = [each["Instances"][0]["State"]["Name"] for each in rows]
        assert states == ["running"] * 3, "EC2: the machine in the other zone ends"

        client.run_instances(**image, ClientToken="token")
        with pytest.raises(NotImplementedError):  # EC2: one machine
            client.describe_instances(Filters=[{"Name": "client-token", "Values": ["token"]}])
        with pytest.raises(IndexError):  # EC2: InvalidLaunchTemplateId.NotFound
            client.run_instances(MinCount=1, MaxCount=1, LaunchTemplate={"LaunchTemplateId": "lt-0123456789abcdef0"})


# What the layer mends


def test_a_protected_machine_saves_its_own_zone_alone(ec2: MotoFaults) -> None:
    """Of one call the machines in other zones end, although the call fails."""
    zones = {zone: {"AvailabilityZone": f"{REGION}{zone}"} for zone in "ab"}
    protected, neighbour = (ec2.launch(MINE, Placement=zones["a"]) for _ in range(2))
    elsewhere = ec2.launch(MINE, Placement=zones["b"])
    ec2.client.modify_instance_attribute(InstanceId=protected, DisableApiTermination={"Value": True})

    with pytest.raises(ec2.client.exceptions.ClientError, match="OperationNotPermitted"):
        ec2.client.terminate_instances(InstanceIds=[protected, neighbour, elsewhere])

    states = [ec2.state(node_id) for node_id in (protected, neighbour, elsewhere)]
    assert states == ["running", "running", "terminated"]


def test_a_token_launches_once_and_is_found(ec2: MotoFaults) -> None:
    """One machine for one token, an error for another request with it, and the filter finds it."""
    first = ec2.launch(MINE, ClientToken="token")

    assert ec2.launch(MINE, ClientToken="token") == first
    with pytest.raises(ec2.client.exceptions.ClientError, match="IdempotentParameterMismatch"):
        ec2.launch(MINE, ClientToken="token", instance_type="g6.xlarge")
    found = ec2.client.describe_instances(Filters=[{"Name": "client-token", "Values": ["token"]}])["Reservations"]
    assert [each["Instances"][0]["InstanceId"] for each in found] == [first]


def test_a_group_refuses_what_aws_refuses(ec2: MotoFaults) -> None:
    """Below the minimum, above the maximum, and with Terminate suspended."""
    ec2.add_group("train", MINE, size=2, MinSize=2, MaxSize=3)
    refused = ec2.scaling.exceptions.ClientError
    member = ec2.client.describe_instances()["Reservations"][0]["Instances"][0]["InstanceId"]

    with pytest.raises(refused, match="min size"):
        ec2.scaling.terminate_instance_in_auto_scaling_group(InstanceId=member, ShouldDecrementDesiredCapacity=True)
    with pytest.raises(refused, match="bounds"):
        ec2.scaling.set_desired_capacity(AutoScalingGroupName="train", DesiredCapacity=4)
    ec2.scaling.suspend_processes(AutoScalingGroupName="train", ScalingProcesses=["Terminate"])
    with pytest.raises(refused, match="suspended"):
        ec2.scaling.terminate_instance_in_auto_scaling_group(InstanceId=member, ShouldDecrementDesiredCapacity=False)


def test_a_member_is_shown_as_terminating_and_takes_two_places_if_asked_twice() -> None:
    """The layer assumes the worst of AWS, so that the adapter cannot rely on better."""
    with MotoFaults(ManualClock(), lag_describes=2) as ec2:
        ec2.add_group("train", MINE, size=3)
        member = ec2.client.describe_instances()["Reservations"][0]["Instances"][0]["InstanceId"]
        end: Any = {"InstanceId": member, "ShouldDecrementDesiredCapacity": True}
        ec2.scaling.terminate_instance_in_auto_scaling_group(**end)
        ec2.scaling.terminate_instance_in_auto_scaling_group(**end)
        group = ec2.scaling.describe_auto_scaling_groups()["AutoScalingGroups"][0]

    states = {each["InstanceId"]: each["LifecycleState"] for each in group["Instances"]}
    assert states[member] == "Terminating"
    assert group["DesiredCapacity"] == 1
