"""What the pretended clouds answer in one life of a fleet in which there is everything: `answers_of`."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from gpuwatch.cli.doctor.record import look_once
from gpuwatch.clouds import CloudError, ProtectedError
from gpuwatch.clouds.recording import Exchange, recording
from tests.support.builders.fleet import a_permit
from tests.support.clouds.recorded import Recorded
from tests.support.components import loaded
from tests.support.fakes.cloud_worlds import FLEET, MINE, a_world

LONG_AGO = "2020-01-01T00:00:00Z"


def _furnish_azure(world: Any) -> None:  # noqa: ANN401  an AzureWorld, whose SDK may be missing
    state, at = world.state, world.vm(next(iter(world.cloud.nodes())).id).path
    root = at.partition("/providers/")[0] + "/providers"
    address, lock = (
        f"{root}/Microsoft.Network/publicIPAddresses/ip",
        f"{at}/providers/Microsoft.Authorization/locks/keep",
    )
    snapshot, source = f"{root}/Microsoft.Compute/snapshots/s", f"{root}/Microsoft.Compute/disks/gone"
    told = {"name": "x", "location": world.words.region, "tags": {}}
    arrived = {"provisioningState": "Succeeded", "timeCreated": LONG_AGO}
    state.addresses[address.lower()] = {
        **told,
        "id": address,
        "type": "Microsoft.Network/publicIPAddresses",
        "sku": {"name": "Standard"},
        "zones": ["1"],
        "properties": {"provisioningState": "Succeeded", "ipConfiguration": {"id": f"{root}/ip"}},
    }
    state.snapshots[snapshot.lower()] = {
        **told,
        "id": snapshot,
        "type": "Microsoft.Compute/snapshots",
        "sku": {"name": "Standard_LRS", "tier": "Standard"},
        "properties": {
            **arrived,
            "creationData": {"createOption": "Copy", "sourceResourceId": source, "sourceUri": "https://x.example"},
            "diskSizeGB": 8,
            "diskSizeBytes": 8 * 1024**3,
            "diskState": "Unattached",
        },
    }
    kind = "Microsoft.Authorization/locks"
    state.locks[lock.lower()] = {"id": lock, "name": "keep", "type": kind, "properties": {"level": "CanNotDelete"}}
    hour = {"timeStamp": "2026-01-05T00:00:00Z", "average": 5.0, "total": 9.0}
    state.hours[at.lower()] = {name: [hour] for name in ("Percentage CPU", "Network In Total", "Network Out Total")}
    world.add({}, priority="Spot")
    world.launch({}, gpus=False)


def _furnish_gcp(world: Any) -> None:  # noqa: ANN401  a GcpWorld
    project, region = world.project, world.words.region
    told = {"creationTimestamp": LONG_AGO, "labels": {}, "labelFingerprint": "42WmSpB8rSM="}
    address, disk = f"regions/{region}/addresses/ip", project.link(f"zones/{world.words.zone}/disks/gone")
    project.addresses[address] = {
        **told,
        "kind": "compute#address",
        "id": project.new_id(),
        "name": "ip",
        "region": project.link(f"regions/{region}"),
        "selfLink": project.link(address),
        "status": "IN_USE",
        "addressType": "EXTERNAL",
        "users": [disk],
    }
    for number in range(3):
        name = f"image-{number}"
        project.images.append(
            {
                **told,
                "kind": "compute#image",
                "id": project.new_id(),
                "name": name,
                "selfLink": project.link(f"global/images/{name}"),
                "sourceDisk": disk,
                "status": "READY",
                "archiveSizeBytes": "1000000",
                "storageLocations": ["us"],
                "deprecated": {"state": "DEPRECATED", "deprecated": LONG_AGO},
                "family": "gpu",
            }
        )
        project.snapshots.append(
            {
                **told,
                "kind": "compute#snapshot",
                "id": project.new_id(),
                "name": f"snapshot-{number}",
                "selfLink": project.link(f"global/snapshots/snapshot-{number}"),
                "sourceDisk": disk,
                "status": "READY",
                "storageBytes": "1000000",
                "storageLocations": ["us"],
            }
        )
    world.cloud = world.anew(page_size=2)
    machine = next(iter(project.machines.values()))
    machine.told["reservationAffinity"] = {"consumeReservationType": "NO_RESERVATION"}
    project.failing["start"] = ("ZONE_RESOURCE_POOL_EXHAUSTED", "The zone does not have enough resources available.")
    world.add_group("driven", MINE, size=1, MinSize=0, MaxSize=3)
    world.launch({}, gpus=False)


def _furnish_tencent(world: Any) -> None:  # noqa: ANN401  a TencentWorld
    state, region = world.fake.state, world.words.region
    state.snapshots["snap-1"], state.images["img-1"] = (region, {"SnapshotName": "s"}), (region, LONG_AGO)
    world.add_address()
    next(iter(state.machines.values())).disk_types = ["CLOUD_PREMIUM", "CLOUD_SSD"]


def _furnish_alibaba(world: Any) -> None:  # noqa: ANN401  an AlibabaWorld
    found = loaded("tests.support.clouds.alibaba.state")
    state, region = world.fake.state, world.words.region
    state.snapshots["s-1"] = found.Snapshot(id="s-1", region=region, disk="d-gone")
    state.images["m-1"] = found.Image(id="m-1", region=region, made=LONG_AGO)
    state.addresses["eip-1"] = found.Address(id="eip-1", region=region)


def _furnish_aws(world: Any) -> None:  # noqa: ANN401  an AwsWorld
    ec2 = world.ec2.client
    (node, *_) = world.cloud.nodes()
    volume = world.add_volume()
    ec2.create_tags(Resources=[volume], Tags=[{"Key": "team", "Value": "vision"}])
    ec2.create_snapshot(VolumeId=volume, TagSpecifications=[{"ResourceType": "snapshot", "Tags": _TAGS}])
    ec2.create_image(InstanceId=node.id, Name="image")
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=[{"ResourceType": "elastic-ip", "Tags": _TAGS}])
    ec2.associate_address(AllocationId=address["AllocationId"], InstanceId=node.id)
    world.add_group("suspended", MINE, size=0, suspended=["Launch"])
    key = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    zone, snapshot = world.words.zone, ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"][0]["SnapshotId"]
    ec2.create_volume(AvailabilityZone=zone, SnapshotId=snapshot, Size=8, Encrypted=True, KmsKeyId=key)
    template = {"LaunchTemplateSpecification": {"LaunchTemplateName": world.words.template, "Version": "1"}}
    world.ec2.scaling.create_auto_scaling_group(
        AutoScalingGroupName="mixed",
        MinSize=0,
        MaxSize=2,
        AvailabilityZones=[zone],
        MixedInstancesPolicy={"LaunchTemplate": {**template, "Overrides": [{"InstanceType": "g5.2xlarge"}]}},
    )


_TAGS = [{"Key": "team", "Value": "vision"}]
_FURNISH: Mapping[str, Callable[[Any], None]] = {
    "alibaba": _furnish_alibaba,
    "aws": _furnish_aws,
    "azure": _furnish_azure,
    "gcp": _furnish_gcp,
    "tencent": _furnish_tencent,
}


def answers_of(cloud: str) -> list[Recorded]:
    """All that the pretended cloud answers while machines are seen, tagged, stopped, started and terminated."""
    heard: list[Exchange] = []
    with a_world(cloud) as world, recording(heard.append):
        node_id, other = world.launch({**MINE, "Name": "own"}), world.launch({})
        group = world.add_group("train", MINE, size=2)
        world.add_volume()
        _FURNISH[cloud](world)
        world.clock.advance(120)
        steps: tuple[Callable[[], object], ...] = (
            lambda: world.cloud.tag(node_id, {"gpuwatch:decision-id": "d"}, "tag"),
            lambda: world.refuse("stop", ProtectedError),
            lambda: world.cloud.stop(node_id, "refused", permit=a_permit()),
            lambda: world.cloud.stop(node_id, "stop", permit=a_permit()),
            lambda: look_once(world.cloud),
            lambda: world.settle(node_id),
            lambda: look_once(world.cloud),
            lambda: world.cloud.start(node_id, "start"),
            lambda: world.settle(node_id),
            lambda: world.cloud.terminate(other, "end", permit=a_permit()),
            lambda: world.settle(node_id),
            lambda: look_once(world.cloud),
            lambda: world.cloud.node(other),
            lambda: world.cloud.terminate(
                min(world.cloud.group(group).node_ids), "end", group=group, permit=a_permit()
            ),
        )
        for step in steps:
            with suppress(CloudError):
                step()
    wrap = loaded(f"tests.support.clouds.{cloud}.recorded").Answer
    return [wrap(number=number, line=_line(each)) for number, each in enumerate(heard)]


def _line(each: Exchange) -> dict[str, object]:
    told = {"call": each.call, "method": each.method, "uri": each.url, "status": each.status, "body": each.body}
    return {"source": f"the fake of {FLEET}", **told}
