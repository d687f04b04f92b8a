"""What is left of machines on Tencent Cloud and goes on being billed: disks and addresses. They are reported alone."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.clouds.tencent.errors import asking
from gpuwatch.clouds.tencent.places import Place

_GIB = 1024**3
_MIB = 1024**2
_FREE = ("UNBIND",)  # AddressStatus of an address that nothing uses
_ELASTIC = ("EIP", "AnycastEIP", "HighQualityEIP", "AntiDDoSEIP")  # a WanIP goes with its machine


def listed(place: Place, stopped: frozenset[str]) -> list[Leftover]:
    """Of one place: what nothing is attached to, and what belongs to the stopped machines of these ids.

    Raises:
        CloudError: a part of it could not be had.

    """
    return [*_disks(place, stopped), *_addresses(place, stopped)]


def _disks(place: Place, stopped: frozenset[str]) -> Iterator[Leftover]:
    """Source: DescribeDisks of CBS to its last page."""
    call, account = "DescribeDisks", place.account
    found = place.reading.listed("cbs", call, "DiskSet", "DiskId")
    with asking(place.reading.asked(call)):
        for disk in found:
            node_id = disk.get("InstanceId") or None
            unattached = disk["DiskState"] == "UNATTACHED"
            if not unattached and node_id not in stopped:
                continue
            more = disk.get("ThroughputPerformance") or None
            yield Leftover(
                id=disk["DiskId"],
                kind=LeftoverKind.UNATTACHED_VOLUME if unattached else LeftoverKind.STOPPED_VOLUME,
                region=place.region,
                account=account,
                type=disk["DiskType"],
                size_bytes=disk["DiskSize"] * _GIB,
                throughput_bytes_per_second=None if more is None else more * _MIB,
                node_id=None if unattached else node_id,
                name=disk.get("DiskName") or "",
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
                node_id=None if free else node_id,
                name=_name(address),
            )


def _name(address: Mapping[str, Any]) -> str:
    """What people call it."""
    return str(address.get("AddressName") or address.get("AddressIp") or "")
