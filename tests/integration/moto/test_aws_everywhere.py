"""`regions: [all]` on EC2: every region that is enabled for the account is looked at, and no other is asked."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpuwatch.clouds import AuthFailedError, CloudUnavailableError
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.fakes.cloud_worlds import MINE, TEMPLATE
from tests.support.fakes.moto_faults import REGION, MotoFaults

FAR, CLOSED = "eu-west-1", "me-south-1"  # nobody has opted in to the latter
OTHER = "111111111111"
ROLE = f"arn:aws:iam::{OTHER}:role/gpuwatch-controller"


@pytest.fixture
def ec2() -> Iterator[MotoFaults]:
    """An empty account."""
    with MotoFaults(ManualClock()) as faults:
        yield faults


def a_cloud(ec2: MotoFaults, **more: Any) -> AwsCloud:  # noqa: ANN401  any option of AwsCloud
    """The real adapter, everywhere."""
    return AwsCloud(fleet="lab", clock=ManualClock(), session=ec2.session, **{"regions": ["all"], **more})


def test_every_enabled_region_is_looked_at_and_the_others_are_left_out(ec2: MotoFaults) -> None:
    """DescribeRegions is asked once; a region that is off would refuse every call."""
    here, there = ec2.launch(MINE), ec2.launch(MINE, region=FAR)
    cloud = a_cloud(ec2)

    assert {node.id: node.region for node in cloud.nodes()} == {here: REGION, there: FAR}

    assert [call.action for call in ec2.calls].count("DescribeRegions") == 1
    told = ec2.client.describe_regions()["Regions"]  # moto leaves none out
    enabled = {each["RegionName"] for each in told if each["OptInStatus"] == "opt-in-not-required"}
    assert {place.region for place in cloud._places.all} == enabled
    assert CLOSED not in enabled
    assert list(cloud.elsewhere()) == []


def test_what_is_found_there_is_acted_on_where_it_is(ec2: MotoFaults) -> None:
    """As on the other clouds: an enrolled machine is one of the fleet, in whatever region."""
    there = ec2.launch(MINE, region=FAR)
    cloud = a_cloud(ec2)

    cloud.stop(there, "key", permit=a_permit())

    assert [node.state for node in cloud.nodes()] == [NodeState.STOPPED]


def test_a_launch_goes_to_the_region_that_it_names(ec2: MotoFaults) -> None:
    """The configuration is refused where a pool names none."""
    ec2.add_template(TEMPLATE, region=FAR)
    cloud = a_cloud(ec2)

    made = cloud.launch({"template": TEMPLATE, "region": FAR}, "key")

    assert [(node.id, node.region) for node in cloud.nodes()] == [(made, FAR)]


def test_each_account_has_its_own_regions(ec2: MotoFaults) -> None:
    """One account everywhere, another in one region."""
    far = ec2.launch(MINE, region=FAR)
    near = ec2.launch(MINE, account=OTHER)
    ec2.launch(MINE, region=FAR, account=OTHER)
    accounts = {"own": AccountSettings(), "prod": AccountSettings(role_arn=ROLE, regions=(REGION,))}

    cloud = a_cloud(ec2, accounts=accounts)

    assert sorted(node.id for node in cloud.nodes()) == sorted([far, near])


def test_a_region_that_is_down_is_unknown_and_the_others_go_on(
    ec2: MotoFaults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machines stay as they were seen last; none of them is gone."""
    here, there = ec2.launch(MINE), ec2.launch(MINE, region=FAR)
    cloud = a_cloud(ec2)
    cloud.nodes()
    real = cloud._nodes

    def nodes(place: Any) -> Any:  # noqa: ANN401  a place, and its machines
        if place.region == FAR:
            raise CloudUnavailableError("no answer")
        return real(place)

    monkeypatch.setattr(cloud, "_nodes", nodes)

    states = {node.id: node.state for node in cloud.nodes()}
    assert states == {here: NodeState.RUNNING, there: NodeState.UNKNOWN}


def test_without_a_list_of_regions_there_is_no_fleet(ec2: MotoFaults) -> None:
    """It is asked again in the next round."""
    here = ec2.launch(MINE)
    ec2.refuse("DescribeRegions", "UnauthorizedOperation", status=403)
    cloud = a_cloud(ec2)

    with pytest.raises(AuthFailedError, match="DescribeRegions"):
        cloud.nodes()

    assert [node.id for node in cloud.nodes()] == [here]
