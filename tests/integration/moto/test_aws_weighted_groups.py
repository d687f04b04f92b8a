"""Auto Scaling groups whose sizes are sums of weights: their numbers are no numbers of machines."""

from typing import Any

import pytest

from gpuwatch.clouds import CloudError
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.cloud_worlds import FLEET, MINE
from tests.support.fakes.moto_faults import REGION, MotoFaults


def test_a_weighted_group_is_never_short_and_its_size_is_left_alone() -> None:
    """Eight units are two machines of four: six are not missing, and nothing is taken back or added for them."""
    clock = ManualClock()
    with MotoFaults(clock) as ec2:
        group_id = ec2.add_group("train", MINE, size=0)
        specification = {"LaunchTemplateName": "of-train", "Version": "$Default"}
        overrides = [{"InstanceType": "g5.xlarge", "WeightedCapacity": "4"}]
        mixed: Any = {"LaunchTemplate": {"LaunchTemplateSpecification": specification, "Overrides": overrides}}
        ec2.scaling.update_auto_scaling_group(AutoScalingGroupName="train", MixedInstancesPolicy=mixed)
        ec2.scaling.set_desired_capacity(AutoScalingGroupName="train", DesiredCapacity=8)
        cloud = AwsCloud(fleet=FLEET, clock=clock, regions=[REGION], session=ec2.session)

        group = cloud.group(group_id)
        assert group.desired == len(group.node_ids)
        for change in (cloud.shrink, cloud.grow):
            with pytest.raises(CloudError, match="counts in weights"):
                change(group_id, 3, "key")
        described = ec2.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=["train"])
        assert described["AutoScalingGroups"][0]["DesiredCapacity"] == 8
