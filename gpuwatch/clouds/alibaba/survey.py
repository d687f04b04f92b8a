"""What Alibaba Cloud has for people to look at: what is left of machines, use, other regions; it is never acted on."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from gpuwatch.clouds import AuthFailedError, CloudError, CloudUnavailableError, Leftover, LeftoverKind
from gpuwatch.clouds.alibaba import instances
from gpuwatch.clouds.alibaba.errors import reading
from gpuwatch.clouds.alibaba.instances import Instance, Translator
from gpuwatch.clouds.alibaba.pages import List, at, by_number, by_token
from gpuwatch.clouds.alibaba.places import Region, Regions
from gpuwatch.clouds.disks import made_at, of_machines
from gpuwatch.clouds.old_images import is_old
from gpuwatch.clouds.permissions import OtherRegion
from gpuwatch.clouds.places import everywhere
from gpuwatch.clouds.survey import CloudUse, Surveyed, of_other
from gpuwatch.model.fleet import Node

DISKS = List(call="ecs:DescribeDisks", path=("Disks", "Disk"), identity="DiskId")
_SNAPSHOTS = List(call="ecs:DescribeSnapshots", path=("Snapshots", "Snapshot"), identity="SnapshotId")
_ADDRESSES = List(call="vpc:DescribeEipAddresses", path=("EipAddresses", "EipAddress"), identity="AllocationId")
_PROVIDER = "alibaba"
_GIB = 1024**3
_MIB = 1024**2
_PAGE_SIZE = 100
_OF_THE_MACHINE = ("local_", "ephemeral")  # categories of disks that are a part of the machine


def unused(place: Region, stopped: frozenset[str]) -> list[Leftover]:
    """Of one place: what nothing is attached to, and what belongs to the stopped machines of these ids.

    Raises:
        CloudError: a part of it could not be had.

    """
    account = place.account
    disks = by_token(place.reading, DISKS, {"RegionId": place.region}, size=_PAGE_SIZE)
    snapshots = by_token(place.reading, _SNAPSHOTS, {"RegionId": place.region}, size=_PAGE_SIZE)
    addresses = by_number(place.reading, _ADDRESSES, {"RegionId": place.region}, size=_PAGE_SIZE)
    with reading(place.reading.asked(DISKS.call)):
        found = list(_disks(disks, stopped, place.region, account))
        names = {disk["DiskId"] for disk in disks}
    with reading(place.reading.asked(_SNAPSHOTS.call)):
        found += _snapshots(snapshots, names, place.region, account)
    with reading(place.reading.asked(_ADDRESSES.call)):
        return [*found, *_addresses(addresses, stopped, place.region, account)]


def disks_in_use(place: Region, running: frozenset[str]) -> list[Leftover]:
    """Disks of these machines, which are not stopped; raises likewise."""
    disks = by_token(place.reading, DISKS, {"RegionId": place.region}, size=_PAGE_SIZE) if running else []
    with reading(place.reading.asked(DISKS.call)):
        return of_machines(_disks(disks, running, place.region, place.account))


def _disks(disks: list[dict[str, Any]], stopped: frozenset[str], region: str, account: str) -> Iterator[Leftover]:
    """Source: DescribeDisks."""
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
            size_bytes=int(disk["Size"]) * _GIB,
            iops=disk.get("ProvisionedIops") or disk.get("IOPS"),
            throughput_bytes_per_second=None if not throughput else int(throughput) * _MIB,
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
            size_bytes=int(snapshot["SourceDiskSize"]) * _GIB,
            name=snapshot.get("SnapshotName") or "",
            made=made_at(snapshot.get("CreationTime")),
        )


def _addresses(
    addresses: list[dict[str, Any]], stopped: frozenset[str], region: str, account: str
) -> Iterator[Leftover]:
    """Source: DescribeEipAddresses."""
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


def unencrypted(place: Region, node_ids: frozenset[str]) -> list[str]:
    """Disks of these machines that are not encrypted, each with its machine, for people. Source: DescribeDisks."""
    disks = by_token(place.reading, DISKS, {"RegionId": place.region}, size=_PAGE_SIZE) if node_ids else []
    return [f"{disk['DiskId']} of {disk['InstanceId']}" for disk in disks if _open(disk, node_ids)]


def _open(disk: Mapping[str, Any], node_ids: frozenset[str]) -> bool:
    return at(disk, "InstanceId") in node_ids and not disk.get("Encrypted")


_IMAGES = List(call="ecs:DescribeImages", path=("Images", "Image"), identity="ImageId")
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
    with reading(place.reading.asked(_IMAGES.call)):
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
        used = set(_named(place))
        return [
            Leftover(
                id=image["ImageId"],
                kind=LeftoverKind.IMAGE,
                region=place.region,
                account=place.account,
                provider="alibaba",
                size_bytes=int(image["Size"]) * _GIB,
                name=image.get("ImageName") or "",
            )
            for image in old
            if image["ImageId"] not in used and image.get("ImageFamily", "") not in used - {""}
        ]


def _named(place: Region) -> Iterator[str]:
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
    for first in range(0, len(node_ids), _NODES_A_CALL):
        batch = node_ids[first : first + _NODES_A_CALL]
        cpu, gpu = (_points(place, metric, batch, begin, end) for metric in (_CPU, _GPU))
        for node_id in batch:
            use = CloudUse(
                cpu_mean_ratio=_mean(cpu.get(node_id, ())),
                cpu_max_ratio=_highest(cpu.get(node_id, ())),
                gpu_mean_ratio=_mean(gpu.get(node_id, ())),
            )
            if use != CloudUse():
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
    said = place.reading.asked(_CALL)
    for _ in range(_MOST_PAGES):
        answer = place.reading.ask(_CALL, {**asked, **more})
        with reading(said):
            if str(answer["Code"]) != "200":
                raise CloudUnavailableError(f"{said}: {answer.get('Message')}", code=str(answer["Code"]))
            for point in json.loads(answer["Datapoints"]):
                found.setdefault(point["instanceId"], []).append(point)
        token = answer.get("NextToken") or ""
        if not token:
            return found
        if token in tokens:
            break
        tokens.add(token)
        more = {"NextToken": token}
    raise CloudUnavailableError(f"{said}: the list has no end", code="TornList")


def _mean(points: Iterable[Mapping[str, Any]]) -> float | None:
    """A machine with several GPUs may have a point for each of them and hour."""
    values = [float(point["Average"]) for point in points if point.get("Average") is not None]
    return sum(values) / len(values) / 100 if values else None


def _highest(points: Iterable[Mapping[str, Any]]) -> float | None:
    values = [float(point["Maximum"]) for point in points if point.get("Maximum") is not None]
    return max(values) / 100 if values else None


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def elsewhere(places: Regions, translator: Translator, now: datetime) -> list[OtherRegion]:
    """Every enabled region of each account that is not configured, with the GPU machines in it.

    Sources: DescribeRegions, DescribeInstances.

    Raises:
        CloudError: the regions of an account cannot be listed.

    """

    def look(place: Region) -> OtherRegion:
        return _look(place, translator, now)

    return everywhere([place for home in places.homes for place in _others(places, home)], look)


def every_place(places: Regions, translator: Translator, now: datetime) -> list[Surveyed]:
    """Every region of each account, those of the settings first; what cannot be listed is an entry."""

    def look(place: Region, *, watched: bool) -> Surveyed:
        return replace(of_other(_look(place, translator, now)), watched=watched)

    found = everywhere(places.all, lambda place: look(place, watched=True))
    try:
        others = [place for home in places.homes for place in _others(places, home)]
    except CloudError as error:
        return [*found, Surveyed(where="other regions", region="", watched=False, trouble=str(error))]
    return [*found, *everywhere(others, lambda place: look(place, watched=False))]


def place_of(places: Regions, region: str, account: str | None) -> Region | None:
    """The place of a region and an account's number, whether the settings name it or not."""
    for home in places.homes:
        if len(places.homes) == 1 or account in (None, home.account):
            same = (each for each in places.all if each.region == region and each.owner is home.owner)
            return next(same, None) or home.beside(region)
    return None


def use_of(places: Regions, nodes: Sequence[Node], seconds: float, end: datetime) -> dict[str, CloudUse]:
    """What CloudMonitor says of machines over the last seconds, in the region and the account of each."""
    found = dict[str, CloudUse]()
    for region, account in sorted({(node.region, node.account or "") for node in nodes}):
        place = place_of(places, region, account or None)
        ids = [node.id for node in nodes if (node.region, node.account or "") == (region, account)]
        if place is not None:
            found |= use_in(place, ids, end - timedelta(seconds=seconds), end)
    return found


def _others(places: Regions, home: Region) -> Iterator[Region]:
    """The account's regions that nobody configured."""
    configured = {place.region for place in places.all if place.owner is home.owner}
    return (home.beside(region) for region in home.enabled() if region not in configured)


def _look(place: Region, translator: Translator, now: datetime) -> OtherRegion:
    """One region. A refused answer shows no machine, and does not prove that no machine runs there."""
    try:
        found = [Instance(described=each) for each in instances.listed(place, {})]
        nodes = tuple(sorted(translator.nodes(place, found, {}, now), key=lambda node: node.id))
    except AuthFailedError as error:
        return OtherRegion(where=place.name, region=place.region, refused=error.code)
    except CloudError as error:
        return OtherRegion(where=place.name, region=place.region, trouble=str(error))
    words = tuple(f"{node.id} ({node.instance_type})" for node in nodes)
    return OtherRegion(where=place.name, region=place.region, machines=words, nodes=nodes)
