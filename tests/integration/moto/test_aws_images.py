"""Images (AMIs) left behind on EC2: told only where nothing names them and they are old."""

from collections.abc import Iterator

import pytest

from gpuwatch.clouds import LeftoverKind
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.cloud_worlds import ACCOUNT, MINE
from tests.support.fakes.moto_faults import REGION, MotoFaults

OLD = "2020-01-01T00:00:00.000Z"


@pytest.fixture
def ec2() -> Iterator[MotoFaults]:
    """An empty account."""
    with MotoFaults(ManualClock()) as faults:
        yield faults


def told(ec2: MotoFaults) -> list[str]:
    """The images among what is left."""
    cloud = AwsCloud(fleet="lab", clock=ManualClock(), regions=[REGION], session=ec2.session)
    return [each.id for each in cloud.leftovers() if each.kind is LeftoverKind.IMAGE]


def use(ec2: MotoFaults, image: str, *, version: str | None = None) -> None:
    """A launch template names it, in its first version or in a later one."""
    if version is None:
        ec2.client.create_launch_template(LaunchTemplateName="used", LaunchTemplateData={"ImageId": image})
        return
    ec2.client.create_launch_template(LaunchTemplateName="used", LaunchTemplateData={"InstanceType": "g5.xlarge"})
    ec2.client.create_launch_template_version(LaunchTemplateName="used", LaunchTemplateData={"ImageId": image})


def test_an_old_image_that_nothing_names_is_told(ec2: MotoFaults) -> None:
    """With its account; those of other accounts are many, and are not asked for."""
    image = ec2.add_image("old", made=OLD)
    ec2.launch(MINE)
    cloud = AwsCloud(fleet="lab", clock=ManualClock(), regions=[REGION], session=ec2.session)

    (found,) = [each for each in cloud.leftovers() if each.kind is LeftoverKind.IMAGE]

    assert (found.id, found.name, found.region, found.account, found.provider) == (image, "old", REGION, ACCOUNT, "aws")


def test_an_image_of_this_month_is_left_alone(ec2: MotoFaults) -> None:
    """Tomorrow's template may name it; templates are not even asked for."""
    ec2.add_image("young", made=f"{ManualClock().now():%Y-%m-%dT%H:%M:%S.000Z}")

    assert told(ec2) == []
    assert ec2.done("DescribeLaunchTemplates") == []


@pytest.mark.parametrize("version", [None, "2"])
def test_an_image_that_a_version_of_a_template_names_is_left_alone(ec2: MotoFaults, version: str | None) -> None:
    """Groups may pin any version."""
    use(ec2, ec2.add_image("old", made=OLD), version=version)

    assert told(ec2) == []


def test_a_template_with_a_parameter_in_place_of_an_image_may_mean_any(ec2: MotoFaults) -> None:
    """Then no image is told."""
    ec2.add_image("old", made=OLD)
    use(ec2, "resolve:ssm:/golden/image")

    assert told(ec2) == []


def test_an_image_of_a_machine_that_is_stopped_or_has_no_gpu_is_left_alone(ec2: MotoFaults) -> None:
    """Machines of whatever type and state count."""
    image = ec2.add_image("old", made=OLD)
    assert told(ec2) == [image]

    made = ec2.client.run_instances(ImageId=image, InstanceType="t3.micro", MinCount=1, MaxCount=1)
    node_id = made["Instances"][0]["InstanceId"]
    ec2.client.stop_instances(InstanceIds=[node_id])

    assert told(ec2) == []
