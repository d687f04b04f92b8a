"""Auto Scaling groups whose sizes are sums of weights: their numbers are no numbers of machines."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds import CloudError
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.clouds.aws.groups import Group, Member
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.fakes import moto_groups
from tests.support.fakes.cloud_worlds import FLEET, MINE
from tests.support.fakes.moto_faults import REGION, MotoFaults


@pytest.fixture
def ec2() -> Iterator[MotoFaults]:
    """An empty account."""
    with MotoFaults(ManualClock()) as ec2:
        yield ec2


def weighted(ec2: MotoFaults, *, machines: int, units: int, least: int = 0) -> tuple[AwsCloud, str]:
    """A group of machines of four units each that wants so many units, and who looks at it."""
    group_id = ec2.add_group("train", MINE, size=machines)
    specification = {"LaunchTemplateName": "of-train", "Version": "$Default"}
    overrides = [{"InstanceType": "g5.xlarge", "WeightedCapacity": "4"}]
    mixed: Any = {"LaunchTemplate": {"LaunchTemplateSpecification": specification, "Overrides": overrides}}
    ec2.scaling.update_auto_scaling_group(AutoScalingGroupName="train", MixedInstancesPolicy=mixed, MaxSize=99)
    (group,) = moto_groups.all_groups()
    group.desired_capacity, group.min_size = units, least  # moto itself would launch a machine for each
    return AwsCloud(fleet=FLEET, clock=ManualClock(), regions=[REGION], session=ec2.session), group_id


def desired_of(ec2: MotoFaults) -> int:
    """What the group wants, in units."""
    described = ec2.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=["train"])
    return int(described["AutoScalingGroups"][0]["DesiredCapacity"])


def test_a_weighted_group_is_never_short_and_its_size_is_left_alone(ec2: MotoFaults) -> None:
    """Eight units are two machines of four: six are not missing, and nothing is taken back or added for them."""
    cloud, group_id = weighted(ec2, machines=2, units=8)

    group = cloud.group(group_id)
    assert group.desired == len(group.node_ids) == 2
    assert group.refused is None
    for change in (cloud.shrink, cloud.grow):
        with pytest.raises(CloudError, match="counts in weights"):
            change(group_id, 3, "key")
    assert desired_of(ec2) == 8


def test_nobody_is_offered_room_in_a_weighted_group(ec2: MotoFaults) -> None:
    """It could not be asked for a machine: what is missing is asked for elsewhere."""
    cloud, group_id = weighted(ec2, machines=2, units=8)

    assert cloud.group(group_id).max_size == 2


@pytest.mark.parametrize(
    ("machines", "units", "least", "stay"),
    [(3, 12, 0, 0), (3, 12, 4, 1), (3, 12, 5, 2), (3, 12, 12, 3), (3, 10, 4, 2)],
)
def test_the_minimum_is_told_in_machines(ec2: MotoFaults, machines: int, units: int, least: int, stay: int) -> None:
    """As many as must stay for the units; what the group has beyond its wish counts for nothing."""
    cloud, group_id = weighted(ec2, machines=machines, units=units, least=least)

    assert cloud.group(group_id).min_size == stay


def test_a_member_whose_weight_would_undercut_the_minimum_stays(ec2: MotoFaults) -> None:
    """Four units go with it, and not one."""
    cloud, group_id = weighted(ec2, machines=2, units=8, least=5)
    (node_id, _) = cloud.group(group_id).node_ids

    with pytest.raises(CloudError) as caught:
        cloud.terminate(node_id, "key", group=group_id, permit=a_permit())

    assert caught.value.code == "MinSize"
    assert "wants 8 units, at least 5" in str(caught.value)
    assert len(cloud.group(group_id).node_ids) == 2


@given(st.lists(st.integers(1, 999), max_size=6), st.integers(0, 2000), st.data())
def test_whoever_goes_the_minimum_in_units_holds(weights: Sequence[int], least: int, data: st.DataObject) -> None:
    """As many machines as the minimum lets go take no more units than the group can spare, whichever they are."""
    members = {
        f"i-{number}": Member(state="InService", protected=False, instance_type="", weight=weight)
        for number, weight in enumerate(weights)
    }
    group = Group(
        id="g-1",
        name="train",
        min_size=least,
        max_size=9999,
        desired=sum(weights),
        zones=(),
        suspended=frozenset(),
        tags={},
        members=members,
        types=frozenset(),
        template=None,
        weighted=True,
    )
    goes = data.draw(st.permutations(weights))[: len(weights) - group.least]

    assert 0 <= group.least <= len(weights)
    assert not goes or sum(weights) - sum(goes) >= least
