"""Snapshots left behind on EC2: told where their volume is gone and nothing names them."""

from collections.abc import Iterator
from typing import Any

import pytest
from moto.ec2.models import ec2_backends

from gpuwatch.clouds import AuthFailedError, Leftover, LeftoverKind
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.cloud_worlds import ACCOUNT
from tests.support.fakes.moto_faults import REGION, MotoFaults

GIB = 1024**3


@pytest.fixture
def ec2() -> Iterator[MotoFaults]:
    """An empty account."""
    with MotoFaults(ManualClock()) as faults:
        yield faults


def left_over(ec2: MotoFaults) -> list[Leftover]:
    """The snapshots among what is left."""
    cloud = AwsCloud(fleet="lab", clock=ManualClock(), regions=[REGION], session=ec2.session)
    return [each for each in cloud.leftovers() if each.kind is LeftoverKind.SNAPSHOT]


def a_snapshot(ec2: MotoFaults, *, gone: bool = True) -> str:
    """Of a volume of 30 GiB, which is deleted, or not."""
    volume = ec2.client.create_volume(AvailabilityZone=f"{REGION}a", Size=30)["VolumeId"]
    snapshot: str = ec2.client.create_snapshot(VolumeId=volume)["SnapshotId"]
    if gone:
        ec2.client.delete_volume(VolumeId=volume)
    return snapshot


def test_a_snapshot_of_a_volume_that_is_gone_is_told_with_its_age(ec2: MotoFaults) -> None:
    """With the size of its volume: the snapshot itself holds less."""
    snapshot = a_snapshot(ec2)
    ec2.set_tags(snapshot, {"Name": "scratch"})

    (found,) = left_over(ec2)

    assert (found.id, found.name, found.size_bytes) == (snapshot, "scratch", 30 * GIB)
    assert (found.region, found.account, found.provider) == (REGION, ACCOUNT, "aws")
    assert found.made is not None
    assert found.made.utcoffset() is not None


def test_a_snapshot_of_a_volume_that_is_there_is_somebodys_backup(ec2: MotoFaults) -> None:
    """Images and templates are not even asked for."""
    a_snapshot(ec2, gone=False)
    ec2.calls.clear()

    assert left_over(ec2) == []
    assert ec2.done("DescribeLaunchTemplates") == []


def test_a_copy_does_not_tell_of_what_it_is_a_copy(ec2: MotoFaults) -> None:
    """EC2 gives every copy the same volume, which does not exist."""
    snapshot = a_snapshot(ec2)
    ec2_backends[ACCOUNT][REGION].snapshots[snapshot].volume.id = "vol-ffffffff"  # moto's copies name a volume

    assert left_over(ec2) == []


def test_a_snapshot_of_an_image_is_the_images_own(ec2: MotoFaults) -> None:
    """It goes with the image."""
    ec2.add_image("kept", made=f"{ManualClock().now():%Y-%m-%dT%H:%M:%S.000Z}")

    assert left_over(ec2) == []


@pytest.mark.parametrize("how", ["template", "configuration"])
def test_a_snapshot_that_a_template_names_is_in_use(ec2: MotoFaults, how: str) -> None:
    """Each new machine gets a volume of it."""
    devices: Any = [{"DeviceName": "/dev/sdf", "Ebs": {"SnapshotId": a_snapshot(ec2)}}]
    if how == "template":
        data: Any = {"BlockDeviceMappings": devices}
        ec2.client.create_launch_template(LaunchTemplateName="used", LaunchTemplateData=data)
    else:
        ec2.scaling.create_launch_configuration(
            LaunchConfigurationName="used", ImageId="ami-1", InstanceType="m5.large", BlockDeviceMappings=devices
        )

    assert left_over(ec2) == []


def test_without_the_right_to_list_snapshots_the_list_is_not_whole(ec2: MotoFaults) -> None:
    """A part of it would look like all of it."""
    ec2.refuse("DescribeSnapshots", "UnauthorizedOperation", status=403)

    with pytest.raises(AuthFailedError, match="DescribeSnapshots"):
        left_over(ec2)


def test_an_answer_that_breaks_off_is_no_empty_list(ec2: MotoFaults) -> None:
    """A gateway's page."""
    a_snapshot(ec2)
    ec2.garble("DescribeSnapshots", times=9)

    with pytest.raises(Exception, match="DescribeSnapshots"):
        left_over(ec2)
