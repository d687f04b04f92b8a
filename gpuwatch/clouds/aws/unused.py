"""What is left of machines on AWS and goes on being billed: volumes and addresses. They are reported, never removed."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.clouds.aws.places import Region

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, TagTypeDef

_GIB = 1024**3  # EC2's "GB" of a volume
_MIB = 1024**2
_VALUES_A_FILTER = 200
_PAGE_SIZE = 500


def in_use(place: Region, node_ids: Sequence[str]) -> Iterator[Leftover]:
    """Volumes of these machines, which are not stopped."""
    for begin in range(0, len(node_ids), _VALUES_A_FILTER):
        values = list(node_ids[begin : begin + _VALUES_A_FILTER])
        attached: FilterTypeDef = {"Name": "attachment.instance-id", "Values": values}
        yield from _volumes(place, attached, LeftoverKind.RUNNING_VOLUME)


def listed(place: Region, stopped: Sequence[str]) -> list[Leftover]:
    """Of one place: what nothing is attached to, and what belongs to the stopped machines of these ids.

    Raises:
        CloudError: a part of it could not be had.

    """
    return [
        *_volumes(place, {"Name": "status", "Values": ["available"]}, LeftoverKind.UNATTACHED_VOLUME),
        *(
            volume
            for begin in range(0, len(stopped), _VALUES_A_FILTER)
            for volume in _volumes(
                place,
                {"Name": "attachment.instance-id", "Values": stopped[begin : begin + _VALUES_A_FILTER]},
                LeftoverKind.STOPPED_VOLUME,
            )
        ),
        *_addresses(place, frozenset(stopped)),
    ]


def _volumes(place: Region, matching: "FilterTypeDef", kind: LeftoverKind) -> Iterator[Leftover]:
    """Source: DescribeVolumes to its last page."""
    pages = place.reading.ec2.get_paginator("describe_volumes")
    account = place.account
    with place.asking("DescribeVolumes"):
        for page in pages.paginate(Filters=[matching], PaginationConfig={"PageSize": _PAGE_SIZE}):
            for volume in page["Volumes"]:
                throughput = volume.get("Throughput")
                yield Leftover(
                    id=volume["VolumeId"],
                    kind=kind,
                    region=place.region,
                    account=account,
                    type=volume["VolumeType"],
                    size_bytes=volume["Size"] * _GIB,
                    iops=volume.get("Iops"),
                    throughput_bytes_per_second=None if throughput is None else throughput * _MIB,
                    node_id=next((each["InstanceId"] for each in volume.get("Attachments", ())), None),
                    name=_name(volume.get("Tags", ())),
                )


def _addresses(place: Region, stopped: frozenset[str]) -> Iterator[Leftover]:
    """Source: DescribeAddresses, which has no pages."""
    account = place.account
    with place.asking("DescribeAddresses"):
        for address in place.reading.ec2.describe_addresses()["Addresses"]:
            node_id = address.get("InstanceId") or None
            if address.get("AssociationId") and node_id not in stopped:
                continue
            yield Leftover(
                id=address.get("AllocationId") or address["PublicIp"],
                kind=LeftoverKind.STOPPED_ADDRESS if node_id else LeftoverKind.UNUSED_ADDRESS,
                region=place.region,
                account=account,
                node_id=node_id,
                name=_name(address.get("Tags", ())),
            )


def _name(tags: "Iterable[TagTypeDef]") -> str:
    """What people call it."""
    return next((tag["Value"] for tag in tags if tag["Key"] == "Name"), "")
