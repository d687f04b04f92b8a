"""What Tencent Cloud has for people to look at: what is left of machines, use, other regions; it is never acted on."""

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from gpuwatch.clouds import AuthFailedError, CloudError, Leftover, LeftoverKind
from gpuwatch.clouds.disks import of_machines
from gpuwatch.clouds.old_images import is_old
from gpuwatch.clouds.permissions import OtherRegion
from gpuwatch.clouds.survey import CloudUse, Surveyed
from gpuwatch.clouds.tencent.errors import asking
from gpuwatch.clouds.tencent.instances import Translator, listed
from gpuwatch.clouds.tencent.places import Place, Places, enabled
from gpuwatch.model.fleet import NodeState

_DISKS, _SNAPSHOTS = "DescribeDisks", "DescribeSnapshots"
_PROVIDER = "tencent"
_BEIJING = timezone(timedelta(hours=8))  # CBS writes times without a zone, as its console shows them
_GIB = 1024**3
_MIB = 1024**2
_TIME = "%Y-%m-%d %H:%M:%S"
_FREE = ("UNBIND",)  # AddressStatus of an address that nothing uses
_ELASTIC = ("EIP", "AnycastEIP", "HighQualityEIP", "AntiDDoSEIP")  # a WanIP goes with its machine


def unused(place: Place, stopped: frozenset[str]) -> list[Leftover]:
    """Of one place: what nothing is attached to, and what belongs to the stopped machines of these ids.

    Raises:
        CloudError: a part of it could not be had.

    """
    disks = place.reading.listed("cbs", _DISKS, "DiskSet", "DiskId")
    return [*_disks(place, disks, stopped), *_snapshots(place, disks), *_addresses(place, stopped)]


def disks_in_use(place: Place, running: frozenset[str]) -> list[Leftover]:
    """Disks of these machines, which are not stopped; raises likewise."""
    disks = place.reading.listed("cbs", _DISKS, "DiskSet", "DiskId") if running else []
    return of_machines(_disks(place, disks, running))


def _disks(place: Place, found: Sequence[Mapping[str, Any]], of: frozenset[str]) -> Iterator[Leftover]:
    """Those of these machines, and those of none. Source: DescribeDisks of CBS to its last page."""
    account = place.account
    with asking(place.reading.asked(_DISKS)):
        for disk in found:
            node_id = disk.get("InstanceId") or None
            unattached = disk["DiskState"] == "UNATTACHED"
            if not unattached and node_id not in of:
                continue
            more = disk.get("ThroughputPerformance") or None
            yield Leftover(
                id=disk["DiskId"],
                kind=LeftoverKind.UNATTACHED_VOLUME if unattached else LeftoverKind.STOPPED_VOLUME,
                region=place.region,
                account=account,
                provider=_PROVIDER,
                type=disk["DiskType"],
                size_bytes=disk["DiskSize"] * _GIB,
                throughput_bytes_per_second=None if more is None else more * _MIB,
                node_id=None if unattached else node_id,
                name=disk.get("DiskName") or "",
            )


def _snapshots(place: Place, disks: Sequence[Mapping[str, Any]]) -> Iterator[Leftover]:
    """Own ones of disks that are gone, without an image; of a copy from another region nobody knows the disk.

    Source: DescribeSnapshots of CBS to its last page.
    """
    account = place.account
    found = place.reading.listed("cbs", _SNAPSHOTS, "SnapshotSet", "SnapshotId")
    with asking(place.reading.asked(_SNAPSHOTS)):
        there = {disk["DiskId"] for disk in disks}
        for each in found:
            foreign = each.get("SnapshotType") == "SHARED_SNAPSHOT" or each["CopyFromRemote"]
            if foreign or each["DiskId"] in there or each.get("Images"):
                continue
            yield Leftover(
                id=each["SnapshotId"],
                kind=LeftoverKind.SNAPSHOT,
                region=place.region,
                account=account,
                provider=_PROVIDER,
                size_bytes=each["DiskSize"] * _GIB,
                name=each.get("SnapshotName") or "",
                made=datetime.strptime(each["CreateTime"], _TIME).replace(tzinfo=_BEIJING).astimezone(UTC),
            )


def _addresses(place: Place, stopped: frozenset[str]) -> Iterator[Leftover]:
    """Source: DescribeAddresses of VPC to its last page."""
    call, account = "DescribeAddresses", place.account
    found = place.reading.listed("vpc", call, "AddressSet", "AddressId")
    with asking(place.reading.asked(call)):
        for address in found:
            free, node_id = address["AddressStatus"] in _FREE, address.get("InstanceId") or None
            if address["AddressType"] not in _ELASTIC or not (free or node_id in stopped):
                continue
            yield Leftover(
                id=address["AddressId"],
                kind=LeftoverKind.UNUSED_ADDRESS if free else LeftoverKind.STOPPED_ADDRESS,
                region=place.region,
                account=account,
                provider=_PROVIDER,
                node_id=None if free else node_id,
                name=_name(address),
            )


def _name(address: Mapping[str, Any]) -> str:
    """What people call it."""
    return str(address.get("AddressName") or address.get("AddressIp") or "")


_OWN = [{"Name": "image-type", "Values": ["PRIVATE_IMAGE"]}]


def old_images(place: Place, now: datetime) -> list[Leftover]:
    """Of one place: images older than a month that nothing there names, machines of whatever type and state.

    Sources: DescribeImages, DescribeInstances, DescribeLaunchTemplates, DescribeLaunchTemplateVersions,
    DescribeLaunchConfigurations, each to its last page.

    Raises:
        CloudError: a part of it could not be had.

    """
    call, account = "DescribeImages", place.account
    found = place.reading.listed("cvm", call, "ImageSet", "ImageId", Filters=_OWN)
    with asking(place.reading.asked(call)):
        old = [each for each in found if each["ImageState"] == "NORMAL" and is_old(each.get("CreatedTime"), now)]
        if not old:
            return []  # templates need not be looked at
        used = set(_named(place))
        return [
            Leftover(
                id=image["ImageId"],
                kind=LeftoverKind.IMAGE,
                region=place.region,
                account=account,
                provider="tencent",
                size_bytes=image["ImageSize"] * _GIB,
                name=image.get("ImageName") or "",
            )
            for image in old
            if image["ImageId"] not in used
        ]


def _named(place: Place) -> Iterator[str | None]:
    line = place.reading
    for machine in line.listed("cvm", "DescribeInstances", "InstanceSet", "InstanceId"):
        yield machine.get("ImageId")
    for template in line.listed("cvm", "DescribeLaunchTemplates", "LaunchTemplateSet", "LaunchTemplateId"):
        versions = line.listed(
            "cvm",
            "DescribeLaunchTemplateVersions",
            "LaunchTemplateVersionSet",
            "LaunchTemplateVersion",
            LaunchTemplateId=template["LaunchTemplateId"],
        )
        for version in versions:
            yield version["LaunchTemplateVersionData"].get("ImageId")
    for each in line.listed("as", "DescribeLaunchConfigurations", "LaunchConfigurationSet", "LaunchConfigurationId"):
        yield each.get("ImageId")


MONITOR = "Tencent Cloud Observability Platform"
_CALL = "GetMonitorData"
_PERIOD_SECONDS = 3600
_POINTS_A_CALL, _NODES_A_CALL = 7200, 50
_MEAN_AND_HIGHEST = 3  # SpecifyStatistics: 1 is the mean, 2 the highest
# Of namespace QCE/CVM, in per cent. The first is measured on the host, the second by the agent in the machine.
_CPU, _GPU = "BaseCpuUsage", "GpuUtil"

_Values = Mapping[str, Mapping[str, Any]]  # points of each machine, by its id


def use_in(place: Place, node_ids: Sequence[str], begin: datetime, end: datetime) -> dict[str, CloudUse]:
    """Use between two times of the machines that the monitor knows. Source: GetMonitorData.

    Raises:
        CloudError: no answer, or it is not allowed.

    """
    hours = max(1, math.ceil((end - begin).total_seconds() / _PERIOD_SECONDS))
    size = max(1, min(_NODES_A_CALL, _POINTS_A_CALL // hours))
    found: dict[str, CloudUse] = {}
    for first in range(0, len(node_ids), size):
        batch = node_ids[first : first + size]
        cpu, gpu = (_values(place, metric, batch, begin, end) for metric in (_CPU, _GPU))
        for node_id in batch:
            use = CloudUse(
                cpu_mean_ratio=_mean(cpu, node_id),
                cpu_max_ratio=_highest(cpu, node_id),
                gpu_mean_ratio=_mean(gpu, node_id),
            )
            if use != CloudUse():
                found[node_id] = use
    return found


def _values(place: Place, metric: str, batch: Sequence[str], begin: datetime, end: datetime) -> _Values:
    answer = place.reading.ask(
        "monitor",
        _CALL,
        Namespace="QCE/CVM",
        MetricName=metric,
        Period=_PERIOD_SECONDS,
        Instances=[{"Dimensions": [{"Name": "InstanceId", "Value": node_id}]} for node_id in batch],
        StartTime=begin.isoformat(timespec="seconds"),
        EndTime=end.isoformat(timespec="seconds"),
        SpecifyStatistics=_MEAN_AND_HIGHEST,
    )
    with asking(place.reading.asked(_CALL)):
        return {
            dimension["Value"]: points
            for points in answer["DataPoints"]
            for dimension in points["Dimensions"]
            if dimension["Name"] == "InstanceId"
        }


def _mean(values: _Values, node_id: str) -> float | None:
    means = values.get(node_id, {}).get("AvgValues") or ()
    return sum(means) / len(means) / 100 if means else None


def _highest(values: _Values, node_id: str) -> float | None:
    highest = values.get(node_id, {}).get("MaxValues") or ()
    return max(highest) / 100 if highest else None


_AT_ONCE = 8


def elsewhere(places: Places, translator: Translator) -> list[OtherRegion]:
    """Every region of each account that the settings do not name.

    Sources: DescribeRegions, DescribeInstances, DescribeInstanceTypeConfigs.

    Raises:
        CloudError: the regions of an account cannot be listed.

    """
    return [
        OtherRegion(
            where=each.where,
            region=each.region,
            machines=tuple(f"{node.id} ({node.instance_type})" for node in each.nodes),
            nodes=each.nodes,
            refused=each.refused,
            trouble=each.trouble,
        )
        for each in _all(_others(places), translator, watched=False)
    ]


def every_place(places: Places, translator: Translator) -> list[Surveyed]:
    """The places of the settings, and after them the others."""
    watched = _all(places.all, translator, watched=True)
    try:
        others = _others(places)
    except CloudError as error:
        return [*watched, Surveyed(where="other regions", region="", watched=False, trouble=str(error))]
    return [*watched, *_all(others, translator, watched=False)]


def place_of(places: Places, region: str, account: str | None) -> Place | None:
    """The place of a region in one of our accounts, named by the settings or not; None: no account of ours."""
    for home in places.homes:
        if account in (None, home.account):
            return next(
                (each for each in places.all if each.signer is home.signer and each.region == region), None
            ) or (home.beside(region))
    return None


def _others(places: Places) -> list[Place]:
    return [
        home.beside(region)
        for home in places.homes
        for region in enabled(home)
        if not any(place.signer is home.signer and place.region == region for place in places.all)
    ]


def _all(places: list[Place], translator: Translator, *, watched: bool) -> list[Surveyed]:
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return list(pool.map(lambda place: _looked(place, translator, watched=watched), places))


def _looked(place: Place, translator: Translator, *, watched: bool) -> Surveyed:
    """One region. A refused answer shows no machine, and does not prove that no machine runs there."""
    refused = trouble = None
    nodes = []
    try:
        instances = [each for each in listed(place.reading) if each.state is not NodeState.TERMINATED]
        nodes = list(translator.nodes(place, instances, {}, {}))
    except AuthFailedError as error:
        refused = error.code
    except CloudError as error:
        trouble = str(error)
    return Surveyed(
        where=place.name, region=place.region, watched=watched, nodes=tuple(nodes), refused=refused, trouble=trouble
    )
