"""The fault layer over moto does what it says, and why it is there: where moto is not EC2."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from gpuwatch.clock import ManualClock
from gpuwatch.clouds import (
    FLEET_TAG,
)
from gpuwatch.clouds.aws import AwsCloud
from tests.moto_faults import REGION, Crash, MotoFaults

MINE = {FLEET_TAG: "lab"}
SECRET = "FwoGZXIvYXdzEXAMPLETOKEN"  # noqa: S105  an example; it must never come out again


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
        cloud.stop(before, "key")
    with pytest.raises(Crash):
        cloud.stop(after, "key")

    assert (ec2.state(before), ec2.state(after)) == ("running", "stopped")
    assert [call.node_ids for call in ec2.done("StopInstances")] == [(after,)]


def test_a_lagging_stop_is_shown_as_stopping_that_often() -> None:
    """lag_describes=2 shows stopping twice, then stopped."""
    with MotoFaults(ManualClock(), lag_describes=2) as ec2:
        node_id = ec2.launch(MINE)
        cloud = a_cloud(ec2)
        shown = [cloud.node(node_id).state.value for _ in range(3)]
        cloud.stop(node_id, "key")
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
