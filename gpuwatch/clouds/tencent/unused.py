"""What is left of machines on Tencent Cloud and goes on being billed: disks, snapshots, addresses; only reported."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.clouds.disks import of_machines
from gpuwatch.clouds.tencent.errors import asking
from gpuwatch.clouds.tencent.places import Place

_DISKS, _SNAPSHOTS = "DescribeDisks", "DescribeSnapshots"
_PROVIDER = "tencent"
_BEIJING = timezone(timedelta(hours=8))  # CBS writes times without a zone, as its console shows them
_GIB = 1024**3
_MIB = 1024**2
_TIME = "%Y-%m-%d %H:%M:%S"
_FREE = ("UNBIND",)  # AddressStatus of an address that nothing uses
_ELASTIC = ("EIP", "AnycastEIP", "HighQualityEIP", "AntiDDoSEIP")  # a WanIP goes with its machine


def listed(place: Place, stopped: frozenset[str]) -> list[Leftover]:
    """Of one place: what nothing is attached to, and what belongs to the stopped machines of these ids.

    Raises:
        CloudError: a part of it could not be had.

    """
    disks = place.reading.listed("cbs", _DISKS, "DiskSet", "DiskId")
    return [*_disks(place, disks, stopped), *_snapshots(place, disks), *_addresses(place, stopped)]


def in_use(place: Place, running: frozenset[str]) -> list[Leftover]:
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
