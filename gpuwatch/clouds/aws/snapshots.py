"""Own snapshots of volumes that are gone, named by no own image or template; they are reported, never removed.

A snapshot of a volume that is there is somebody's backup. A copy of a snapshot has an id in place of its
volume's that means nothing (CopySnapshot): it is left out. What a snapshot costs is not known: it
holds changed blocks alone.
"""

from collections.abc import Callable, Iterator
from typing import Any

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.clouds.aws import images
from gpuwatch.clouds.aws.places import Region

_GIB = 1024**3
_PAGE_SIZE = 500
_OF_A_COPY = "vol-ffffffff"
_DONE = "completed"


def listed(place: Region) -> list[Leftover]:
    """Of one place. Sources: DescribeSnapshots, DescribeVolumes, DescribeImages, templates, each to its last page.

    Raises:
        CloudError: a part of it could not be had.

    """
    left = [each for each in _own(place) if each["State"] == _DONE and each["VolumeId"] != _OF_A_COPY]
    for users, key in _USERS:
        used = set(users(place)) if left else set()  # templates are many, and are asked last
        left = [each for each in left if each[key] not in used]
    account = place.account
    return [
        Leftover(
            id=each["SnapshotId"],
            kind=LeftoverKind.SNAPSHOT,
            region=place.region,
            account=account,
            size_bytes=each["VolumeSize"] * _GIB,
            name=next((tag["Value"] for tag in each.get("Tags", ()) if tag["Key"] == "Name"), ""),
            made=each["StartTime"],
        )
        for each in left
    ]


def _own(place: Region) -> Iterator[Any]:
    with place.asking("DescribeSnapshots"):
        pages = place.reading.ec2.get_paginator("describe_snapshots")
        for page in pages.paginate(OwnerIds=["self"], PaginationConfig={"PageSize": _PAGE_SIZE}):
            yield from page["Snapshots"]


def _volumes(place: Region) -> Iterator[str]:
    with place.asking("DescribeVolumes"):
        for page in place.reading.ec2.get_paginator("describe_volumes").paginate(
            PaginationConfig={"PageSize": _PAGE_SIZE}
        ):
            yield from (volume["VolumeId"] for volume in page["Volumes"])


def _of_images(place: Region) -> Iterator[str]:
    """Of every own image, in whatever state, also of those for everybody."""
    with place.asking("DescribeImages"):
        pages = place.reading.ec2.get_paginator("describe_images")
        for page in pages.paginate(Owners=["self"], PaginationConfig={"PageSize": _PAGE_SIZE}):
            for image in page["Images"]:
                yield from images.snapshots_in(image.get("BlockDeviceMappings", ()))


# What keeps a snapshot, by which of its members.
_USERS: tuple[tuple[Callable[[Region], Iterator[str]], str], ...] = (
    (_volumes, "VolumeId"),
    (_of_images, "SnapshotId"),
    (images.snapshots_of_templates, "SnapshotId"),
)
