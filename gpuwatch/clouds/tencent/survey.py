"""What Tencent Cloud has for people to look at: what is left of machines, use, other regions; it is never acted on."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.clouds.disks import of_machines, old_image
from gpuwatch.clouds.survey import GIB, MIB, CloudUse, batches, machine_in_series, use_of_values
from gpuwatch.clouds.tencent.errors import asking
from gpuwatch.clouds.tencent.instances import Translator, list_instances
from gpuwatch.clouds.tencent.places import Region
from gpuwatch.clouds.times import is_old
from gpuwatch.model.fleet import Node, NodeState

_DISKS, _SNAPSHOTS = "DescribeDisks", "DescribeSnapshots"
_PROVIDER = "tencent"
_BEIJING = timezone(timedelta(hours=8))
_TIME = "%Y-%m-%d %H:%M:%S"
_FREE = ("UNBIND",)  # AddressStatus of an address that nothing uses
_ELASTIC = ("EIP", "AnycastEIP", "HighQualityEIP", "AntiDDoSEIP")  # a WanIP goes with its machine


def list_unused(place: Region, stopped: frozenset[str]) -> list[Leftover]:
    """Of one place: what nothing is attached to, and what belongs to the stopped machines of these ids.

    Raises:
        CloudError: a part of it could not be had.

    """
    disks = place.reading.list_all("cbs", _DISKS, "DiskSet", "DiskId")
    return [*_disks(place, disks, stopped), *_snapshots(place, disks), *_addresses(place, stopped)]


def disks_in_use(place: Region, running: frozenset[str]) -> list[Leftover]:
    """Disks of these machines, which are not stopped; raises CloudError."""
    disks = place.reading.list_all("cbs", _DISKS, "DiskSet", "DiskId") if running else []
    return of_machines(_disks(place, disks, running))


def _disks(place: Region, found: Sequence[Mapping[str, Any]], of: frozenset[str]) -> Iterator[Leftover]:
    """Those of these machines, and those of none. Source: DescribeDisks of CBS to its last page."""
    account = place.account
    with asking(place.reading.name_call(_DISKS)):
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
                size_bytes=disk["DiskSize"] * GIB,
                throughput_bytes_per_second=None if more is None else more * MIB,
                node_id=None if unattached else node_id,
                name=disk.get("DiskName") or "",
            )


def unencrypted_disks(place: Region, node_ids: frozenset[str]) -> Iterator[str]:
    """Source: DescribeDisks of CBS to its last page."""
    found = place.reading.list_all("cbs", _DISKS, "DiskSet", "DiskId")
    with asking(place.reading.name_call(_DISKS)):
        for disk in found:
            if disk.get("InstanceId") in node_ids and not disk["Encrypt"]:
                yield f"{disk['DiskId']} of {disk['InstanceId']}"


def _snapshots(place: Region, disks: Sequence[Mapping[str, Any]]) -> Iterator[Leftover]:
    """Own ones of disks that are gone, without an image; of a copy from another region nobody knows the disk.

    Source: DescribeSnapshots of CBS to its last page.
    """
    account = place.account
    found = place.reading.list_all("cbs", _SNAPSHOTS, "SnapshotSet", "SnapshotId")
    with asking(place.reading.name_call(_SNAPSHOTS)):
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
                size_bytes=each["DiskSize"] * GIB,
                name=each.get("SnapshotName") or "",
                made=at_beijing(each["CreateTime"]),
            )


def at_beijing(text: str) -> datetime:
    """The time of an answer that names no zone: it is written as the console shows it."""
    return datetime.strptime(text, _TIME).replace(tzinfo=_BEIJING).astimezone(UTC)


def _addresses(place: Region, stopped: frozenset[str]) -> Iterator[Leftover]:
    """Source: DescribeAddresses of VPC to its last page."""
    call, account = "DescribeAddresses", place.account
    found = place.reading.list_all("vpc", call, "AddressSet", "AddressId")
    with asking(place.reading.name_call(call)):
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


def old_images(place: Region, now: datetime) -> list[Leftover]:
    """Of one place: images older than a month that nothing there names, machines of whatever type and state.

    Sources: DescribeImages, DescribeInstances, DescribeLaunchTemplates, DescribeLaunchTemplateVersions,
    DescribeLaunchConfigurations, each to its last page.

    Raises:
        CloudError: a part of it could not be had.

    """
    call = "DescribeImages"
    found = place.reading.list_all("cvm", call, "ImageSet", "ImageId", Filters=_OWN)
    with asking(place.reading.name_call(call)):
        old = [each for each in found if each["ImageState"] == "NORMAL" and is_old(each.get("CreatedTime"), now)]
        if not old:
            return []  # templates need not be looked at
        used = set(_named_images(place))
        return [
            old_image(place, image["ImageId"], image.get("ImageName"), image["ImageSize"] * GIB, provider="tencent")
            for image in old
            if image["ImageId"] not in used
        ]


def _named_images(place: Region) -> Iterator[str | None]:
    line = place.reading
    for machine in line.list_all("cvm", "DescribeInstances", "InstanceSet", "InstanceId"):
        yield machine.get("ImageId")
    for template in line.list_all("cvm", "DescribeLaunchTemplates", "LaunchTemplateSet", "LaunchTemplateId"):
        versions = line.list_all(
            "cvm",
            "DescribeLaunchTemplateVersions",
            "LaunchTemplateVersionSet",
            "LaunchTemplateVersion",
            LaunchTemplateId=template["LaunchTemplateId"],
        )
        for version in versions:
            yield version["LaunchTemplateVersionData"].get("ImageId")
    for each in line.list_all("as", "DescribeLaunchConfigurations", "LaunchConfigurationSet", "LaunchConfigurationId"):
        yield each.get("ImageId")


MONITOR = "Tencent Cloud Observability Platform"
_CALL = "GetMonitorData"
_PERIOD_SECONDS = 3600
_POINTS_A_CALL, _NODES_A_CALL = 1440, 10  # what one question may ask for, by the page of GetMonitorData
_MEAN_AND_HIGHEST = 3  # SpecifyStatistics: 1 is the mean, 2 the highest
# Of namespace QCE/CVM, in per cent. The first is measured on the host, the second by the agent in the machine.
_CPU, _GPU = "BaseCpuUsage", "GpuUtil"

_AVERAGE, _HIGHEST = "AvgValues", "MaxValues"

_Values = Mapping[str, Mapping[str, Sequence[float]]]  # of each machine, by its id and the statistic


def use_in(place: Region, node_ids: Sequence[str], begin: datetime, end: datetime) -> dict[str, CloudUse]:
    """Use between two times of the machines that the monitor knows. Source: GetMonitorData.

    Raises:
        CloudError: no answer, or it is not allowed.

    """
    hours = max(1, math.ceil((end - begin).total_seconds() / _PERIOD_SECONDS))
    size = max(1, min(_NODES_A_CALL, _POINTS_A_CALL // hours))
    found: dict[str, CloudUse] = {}
    for batch in batches(node_ids, size):
        cpu, gpu = (_values(place, metric, batch, begin, end) for metric in (_CPU, _GPU))
        for node_id in batch:
            of_cpu, of_gpus = cpu.get(node_id, {}), gpu.get(node_id, {})
            use = use_of_values(
                means=of_cpu.get(_AVERAGE, ()), highest=of_cpu.get(_HIGHEST, ()), gpus=of_gpus.get(_AVERAGE, ())
            )
            if use is not None:
                found[node_id] = use
    return found


def _values(place: Region, metric: str, batch: Sequence[str], begin: datetime, end: datetime) -> _Values:
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
    said = place.reading.name_call(_CALL)
    found: dict[str, dict[str, list[float]]] = {}
    with asking(said):
        for series in answer["DataPoints"]:
            names = {each["Name"]: each["Value"] for each in series["Dimensions"]}
            own = found.setdefault(machine_in_series(names.get("InstanceId"), said), {_AVERAGE: [], _HIGHEST: []})
            for word, values in own.items():  # a machine may have several series: one for each GPU
                values += [float(value) for value in series.get(word) or () if value is not None]
    return found


def machines_of(translator: Translator) -> Callable[[Region], Iterator[Node]]:
    """How to list the GPU machines of a region. Sources: DescribeInstances, DescribeInstanceTypeConfigs."""

    def machines(place: Region) -> Iterator[Node]:
        instances = [each for each in list_instances(place.reading) if each.state is not NodeState.TERMINATED]
        return translator.nodes(place, instances, {}, {})

    return machines
