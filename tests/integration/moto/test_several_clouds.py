"""Two clouds of the settings, both EC2: each machine is stopped by its own; one under two names by neither."""

from collections.abc import Iterator

import boto3
import pytest

from gpuwatch.clouds import CloudError, NotFoundError
from gpuwatch.clouds.named import connect
from gpuwatch.clouds.settings import CloudSettings
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.fakes.cloud_worlds import MINE, NOWHERE
from tests.support.fakes.moto_faults import REGION, MotoFaults

EUROPE = "eu-west-1"
US, EU = CloudSettings(regions=(REGION,)), CloudSettings(regions=(EUROPE,))


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[MotoFaults]:
    """An empty account, which `connect` reaches."""
    with MotoFaults(ManualClock()) as faults:
        monkeypatch.setattr(boto3, "Session", lambda **_: faults.session)
        yield faults


def test_each_cloud_lists_and_stops_its_own(ec2: MotoFaults) -> None:
    """With its name on each machine; an id of neither is not found."""
    here, there = ec2.launch(MINE), ec2.launch(MINE, region=EUROPE)
    cloud = connect({"us": US, "eu": EU}, fleet="lab", clock=ManualClock())

    with pytest.raises(NotFoundError):
        cloud.stop(NOWHERE, "key", permit=a_permit())
    cloud.stop(there, "key", permit=a_permit())

    found = {node.id: (node.cloud, node.region, node.state) for node in cloud.nodes()}
    assert found == {here: ("us", REGION, NodeState.RUNNING), there: ("eu", EUROPE, NodeState.STOPPED)}
    assert [call.node_ids for call in ec2.calls if call.action == "StopInstances"] == [(there,)]


def test_one_account_under_two_names_is_acted_on_by_neither(ec2: MotoFaults) -> None:
    """A slip in the settings: every machine would be counted, noticed and stopped twice."""
    node_id = ec2.launch(MINE)
    cloud = connect({"a": US, "b": US}, fleet="lab", clock=ManualClock())

    (node,) = cloud.nodes()
    with pytest.raises(CloudError, match="the clouds a and b both show"):
        cloud.stop(node_id, "key", permit=a_permit())

    assert (node.state, ec2.state(node_id)) == (NodeState.UNKNOWN, "running")
    assert [call for call in ec2.calls if call.action == "StopInstances"] == []


def test_a_cloud_without_a_region_is_named_with_its_key(ec2: MotoFaults, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its settings are written under its name."""
    monkeypatch.setattr(type(ec2.session), "region_name", None)

    with pytest.raises(CloudError, match=r"^cloud eu: no region is known; set clouds\.eu\.regions"):
        connect({"us": US, "eu": CloudSettings()}, fleet="lab", clock=ManualClock())
