"""What Alibaba Cloud has for people to look at: what is left of machines, use, other regions; it is never acted on."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from gpuwatch.clouds import CloudUnavailableError, Leftover, LeftoverKind
from gpuwatch.clouds.alibaba import instances
from gpuwatch.clouds.alibaba.instances import Instance, Translator
from gpuwatch.clouds.alibaba.pages import List, by_number, by_token, member_at
from gpuwatch.clouds.alibaba.places import Region
from gpuwatch.clouds.disks import of_machines, old_image
from gpuwatch.clouds.errors import reading
from gpuwatch.clouds.survey import GIB, MIB, CloudUse, batches, machine_in_series, use_of_values
from gpuwatch.clouds.times import is_old, time_made
from gpuwatch.model.fleet import Node
from gpuwatch.runtime.json_document import read_json

DISKS = List(call="ecs:DescribeDisks", path=("Disks", "Disk"), identity="DiskId", dry=True)
_SNAPSHOTS = List(call="ecs:DescribeSnapshots", path=("Snapshots", "Snapshot"), identity="SnapshotId", dry=True)
_ADDRESSES = List(call="vpc:DescribeEipAddresses", path=("EipAddresses", "EipAddress"), identity="AllocationId")
_PROVIDER = "alibaba"
_PAGE_SIZE = 100
_OF_THE_MACHINE = ("local_", "ephemeral")  # categories of disks that are a part of the machine


def list_unused(place: Region, stopped: frozenset[str]) -> list[Leftover]:
    """Of one place: what nothing is attached to, and what belongs to the stopped machines of these ids.

    Raises:
        CloudError: a part of it could not be had.

    """
    account = place.account
    disks = by_token(place.reading, DISKS, {"RegionId": place.region}, size=_PAGE_SIZE)
    snapshots = by_token(place.reading, _SNAPSHOTS, {"RegionId": place.region}, size=_PAGE_SIZE)
    addresses = by_number(place.reading, _ADDRESSES, {"RegionId": place.region}, size=_PAGE_SIZE)
    with reading(place.reading.name_call(DISKS.call)):
        found = list(_disks(disks, stopped, place.region, account))
        names = {disk["DiskId"] for disk in disks}
    with reading(place.reading.name_call(_SNAPSHOTS.call)):
        found += _snapshots(snapshots, names, place.region, account)
    with reading(place.reading.name_call(_ADDRESSES.call)):
        return [*found, *_addresses(addresses, stopped, place.region, account)]


def disks_in_use(place: Region, running: frozenset[str]) -> list[Leftover]:
    """Disks of these machines, which are not stopped; raises CloudError."""
    disks = by_token(place.reading, DISKS, {"RegionId": place.region}, size=_PAGE_SIZE) if running else []
    with reading(place.reading.name_call(DISKS.call)):
        return of_machines(_disks(disks, running, place.region, place.account))


def _disks(disks: list[dict[str, Any]], stopped: frozenset[str], region: str, account: str) -> Iterator[Leftover]:
    """Return disks that no machine uses. Source: ECS DescribeDisks."""
    for disk in disks:
        node_id = disk.get("InstanceId") or None
        left = disk["Status"] == "Available"
        if disk["Category"].startswith(_OF_THE_MACHINE) or not (left or node_id in stopped):
            continue
        throughput = disk.get("Throughput")
        yield Leftover(
            id=disk["DiskId"],
            kind=LeftoverKind.UNATTACHED_VOLUME if left else LeftoverKind.STOPPED_VOLUME,
            region=region,
            account=account,
            provider=_PROVIDER,
            type=" ".join(filter(None, [disk["Category"], disk.get("PerformanceLevel")])),
            size_bytes=int(disk["Size"]) * GIB,
            iops=disk.get("ProvisionedIops") or disk.get("IOPS"),
            throughput_bytes_per_second=None if not throughput else int(throughput) * MIB,
            node_id=None if left else node_id,
            name=disk.get("DiskName") or "",
        )


def _snapshots(snapshots: list[dict[str, Any]], disks: set[str], region: str, account: str) -> Iterator[Leftover]:
    """Those of disks that are gone. Source: DescribeSnapshots. An image's own snapshot belongs to the image."""
    for snapshot in snapshots:
        if snapshot.get("SourceDiskId") in disks or snapshot.get("Usage") not in ("none", "", None):
            continue
        yield Leftover(
            id=snapshot["SnapshotId"],
            kind=LeftoverKind.SNAPSHOT,
            region=region,
            account=account,
            provider=_PROVIDER,
            size_bytes=int(snapshot["SourceDiskSize"]) * GIB,
            name=snapshot.get("SnapshotName") or "",
            made=time_made(snapshot.get("CreationTime")),
        )


def _addresses(
    addresses: list[dict[str, Any]], stopped: frozenset[str], region: str, account: str
) -> Iterator[Leftover]:
    """Return addresses that no machine uses. Source: VPC DescribeEipAddresses."""
    for address in addresses:
        node_id = address.get("InstanceId") or None
        if address["Status"] != "Available" and node_id not in stopped:
            continue
        yield Leftover(
            id=address["AllocationId"],
            kind=LeftoverKind.STOPPED_ADDRESS if node_id in stopped else LeftoverKind.UNUSED_ADDRESS,
            region=region,
            account=account,
            provider=_PROVIDER,
            node_id=node_id,
            name=address.get("Name") or "",
        )


def unencrypted_disks(place: Region, node_ids: frozenset[str]) -> list[str]:
    """Disks of these machines that are not encrypted, each with its machine, for people. Source: DescribeDisks."""
    disks = by_token(place.reading, DISKS, {"RegionId": place.region}, size=_PAGE_SIZE) if node_ids else []
    return [f"{disk['DiskId']} of {disk['InstanceId']}" for disk in disks if _open(disk, node_ids)]


def _open(disk: Mapping[str, Any], node_ids: frozenset[str]) -> bool:
    return member_at(disk, "InstanceId") in node_ids and not disk.get("Encrypted")


_IMAGES = List(call="ecs:DescribeImages", path=("Images", "Image"), identity="ImageId", dry=True)
_TEMPLATES = List(
    call="ecs:DescribeLaunchTemplates", path=("LaunchTemplateSets", "LaunchTemplateSet"), identity="LaunchTemplateId"
)
_VERSIONS = List(
    call="ecs:DescribeLaunchTemplateVersions",
    path=("LaunchTemplateVersionSets", "LaunchTemplateVersionSet"),
    identity="VersionNumber",
)
_CONFIGURATIONS = List(
    call="ess:DescribeScalingConfigurations", path=("ScalingConfigurations",), identity="ScalingConfigurationId"
)
_PAGE_SIZE, _SMALL_PAGE = 100, 50
_UNUSED = "none"  # Usage: no machine was made from it that is still there


def old_images(place: Region, now: datetime) -> list[Leftover]:
    """Of one place: images older than a month that are shared with nobody, and that nothing there names.

    Sources: DescribeImages (which says whether a machine uses one), DescribeLaunchTemplates,
    DescribeLaunchTemplateVersions, DescribeScalingConfigurations, each to its last page.

    Raises:
        CloudError: a part of it could not be had.

    """
    region = {"RegionId": place.region}
    with reading(place.reading.name_call(_IMAGES.call)):
        own = by_number(place.reading, _IMAGES, {**region, "ImageOwnerAlias": "self"}, size=_PAGE_SIZE)
        old = [
            image
            for image in own
            if image["Status"] == "Available"
            and image.get("Usage") == _UNUSED
            and not image.get("IsPublic")
            and str(image.get("IsSelfShared") or "").lower() != "true"
            and is_old(image.get("CreationTime"), now)
        ]
        if not old:
            return []  # templates need not be looked at
        used = set(_named_images(place))
        return [
            old_image(place, image["ImageId"], image.get("ImageName"), int(image["Size"]) * GIB, provider="alibaba")
            for image in old
            if image["ImageId"] not in used and image.get("ImageFamily", "") not in used - {""}
        ]


def _named_images(place: Region) -> Iterator[str]:
    """Images, and families of images, of every version of each template and of the groups' configurations."""
    region = {"RegionId": place.region}
    for template in by_number(place.reading, _TEMPLATES, region, size=_SMALL_PAGE):
        asked = {**region, "LaunchTemplateId": template["LaunchTemplateId"]}
        for version in by_number(place.reading, _VERSIONS, asked, size=_SMALL_PAGE):
            yield version["LaunchTemplateData"].get("ImageId") or ""
            yield version["LaunchTemplateData"].get("ImageFamily") or ""
    for each in by_number(place.reading, _CONFIGURATIONS, region, size=_SMALL_PAGE):
        yield each.get("ImageId") or ""
        yield each.get("ImageFamily") or ""


MONITOR = "CloudMonitor"
_CALL = "cms:DescribeMetricList"
_PERIOD_SECONDS = 3600  # an hour: kept for 91 days
_LONGEST = timedelta(days=31)  # of one question
_NODES_A_CALL, _POINTS_A_PAGE, _MOST_PAGES = 50, 1440, 1000
# Of the namespace acs_ecs_dashboard, in per cent. The first is measured on the host, the second by CloudMonitor's agent
# in the machine, over all its GPUs.
_CPU, _GPU = "CPUUtilization", "instance_gpu_gpu_usedutilization"

_Points = Mapping[str, Sequence[Mapping[str, Any]]]  # of each machine, by its id


def use_in(place: Region, node_ids: Sequence[str], begin: datetime, end: datetime) -> dict[str, CloudUse]:
    """Use between two times of the machines that the monitor knows. Source: DescribeMetricList to its last page.

    Raises:
        CloudError: no answer, or it is not allowed.

    """
    begin, found = max(begin, end - _LONGEST), {}
    for batch in batches(node_ids, _NODES_A_CALL):
        cpu, gpu = (_points(place, metric, batch, begin, end) for metric in (_CPU, _GPU))
        for node_id in batch:
            of_cpu, of_gpus = cpu.get(node_id, ()), gpu.get(node_id, ())
            with reading(place.reading.name_call(_CALL)):
                use = use_of_values(
                    means=_values(of_cpu, "Average"),
                    highest=_values(of_cpu, "Maximum"),
                    gpus=_values(of_gpus, "Average"),
                )
            if use is not None:
                found[node_id] = use
    return found


def _points(place: Region, metric: str, batch: Sequence[str], begin: datetime, end: datetime) -> _Points:
    """The hours of a metric, by machine."""
    asked = {
        "RegionId": place.region,
        "Namespace": "acs_ecs_dashboard",
        "MetricName": metric,
        "Period": str(_PERIOD_SECONDS),
        "StartTime": str(_milliseconds(begin)),
        "EndTime": str(_milliseconds(end)),
        "Length": str(_POINTS_A_PAGE),
        "Dimensions": json.dumps([{"instanceId": node_id} for node_id in batch]),
    }
    found: dict[str, list[Mapping[str, Any]]] = {}
    more: dict[str, str] = {}
    tokens: set[str] = set()
    said = place.reading.name_call(_CALL)
    for _ in range(_MOST_PAGES):
        answer = place.reading.ask(_CALL, {**asked, **more})
        with reading(said):
            if str(answer["Code"]) != "200":
                raise CloudUnavailableError(f"{said}: {answer.get('Message')}", code=str(answer["Code"]))
            for point in read_json(answer["Datapoints"]):
                found.setdefault(machine_in_series(point.get("instanceId"), said), []).append(point)
        token = answer.get("NextToken") or ""
        if not token:
            return found
        if token in tokens:
            break
        tokens.add(token)
        more = {"NextToken": token}
    raise CloudUnavailableError(f"{said}: the list has no end", code="TornList")


def _values(points: Iterable[Mapping[str, Any]], word: str) -> list[float]:
    """A machine with several GPUs may have a point for each of them and hour."""
    return [float(point[word]) for point in points if point.get(word) is not None]


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def machines_of(translator: Translator, now: datetime) -> Callable[[Region], Iterable[Node]]:
    """How to list the GPU machines of a region. Source: DescribeInstances."""

    def machines(place: Region) -> Iterable[Node]:
        found = [Instance(described=each) for each in instances.list_instances(place, {})]
        return translator.nodes(place, found, {}, now)

    return machines
