"""What is left of machines on Alibaba Cloud and goes on being billed: disks, addresses, snapshots; only reported."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.clouds.alibaba.errors import reading
from gpuwatch.clouds.alibaba.pages import List, at, by_number, by_token
from gpuwatch.clouds.alibaba.places import Region
from gpuwatch.clouds.disks import made_at, of_machines

DISKS = List(call="ecs:DescribeDisks", path=("Disks", "Disk"), identity="DiskId")
_SNAPSHOTS = List(call="ecs:DescribeSnapshots", path=("Snapshots", "Snapshot"), identity="SnapshotId")
_ADDRESSES = List(call="vpc:DescribeEipAddresses", path=("EipAddresses", "EipAddress"), identity="AllocationId")
_PROVIDER = "alibaba"
_GIB = 1024**3
_MIB = 1024**2
_PAGE_SIZE = 100
_OF_THE_MACHINE = ("local_", "ephemeral")  # categories of disks that are a part of the machine


def listed(place: Region, stopped: frozenset[str]) -> list[Leftover]:
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


def in_use(place: Region, running: frozenset[str]) -> list[Leftover]:
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
