"""Own images (AMIs) that no machine and no template names; they are reported, never removed.

What is billed of an image are its snapshots. What they cost is not known: they hold changed blocks alone.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.clouds.aws import instances
from gpuwatch.clouds.aws.places import Region
from gpuwatch.clouds.old_images import is_old

_GIB = 1024**3
_PAGE_SIZE = 200
_INDIRECT = "resolve:ssm:"  # a template's image by the name of a parameter


def listed(place: Region, now: datetime) -> list[Leftover]:
    """Of one place: private images that were neither made nor launched within a month, and that nothing there names.

    Machines of whatever type and state, every version of each launch template, and launch configurations are looked at.
    Where a template takes its image from a parameter, nobody can tell which image that is: then none is reported.

    Sources: DescribeImages, DescribeInstances, DescribeLaunchTemplates, DescribeLaunchTemplateVersions,
    DescribeLaunchConfigurations, each to its last page.

    Raises:
        CloudError: a part of it could not be had.

    """
    old = [image for image in _own(place) if _is_old(image, now)]
    if not old:
        return []  # templates need not be looked at
    used = {str(each.described.get("ImageId")) for each in instances.listed(place, [], page_size=_PAGE_SIZE)}
    used |= set(_of_templates(place)) | set(_of_configurations(place))
    if any(image.startswith(_INDIRECT) for image in used):
        return []
    account = place.account
    return [
        Leftover(
            id=image["ImageId"],
            kind=LeftoverKind.IMAGE,
            region=place.region,
            account=account,
            size_bytes=_size(image),
            name=image.get("Name", ""),
        )
        for image in old
        if image["ImageId"] not in used
    ]


def _own(place: Region) -> list[Any]:
    """Images of this account, those among them that are for everybody left out."""
    pages = place.reading.ec2.get_paginator("describe_images")
    with place.asking("DescribeImages"):
        found: list[Any] = [
            image
            for page in pages.paginate(Owners=["self"], PaginationConfig={"PageSize": _PAGE_SIZE})
            for image in page["Images"]
        ]
        return [image for image in found if image["State"] == "available" and not image.get("Public")]


def _is_old(image: Any, now: datetime) -> bool:  # noqa: ANN401  a part of an answer
    launched = image.get("LastLaunchedTime")
    return is_old(image.get("CreationDate"), now) and (launched is None or is_old(launched, now))


def snapshots_in(mappings: Iterable[Any]) -> Iterator[str]:
    """Snapshots that devices of an image or a template are made from."""
    yield from (each["Ebs"]["SnapshotId"] for each in mappings if each.get("Ebs", {}).get("SnapshotId"))


def snapshots_of_templates(place: Region) -> Iterator[str]:
    """Of every version of each template, and of launch configurations; raises CloudError."""
    for data in _templates(place):
        yield from snapshots_in(data.get("BlockDeviceMappings", ()))
    for each in _configurations(place):
        yield from snapshots_in(each.get("BlockDeviceMappings", ()))


def _of_templates(place: Region) -> Iterator[str]:
    yield from (data.get("ImageId", "") for data in _templates(place))


def _templates(place: Region) -> Iterator[Any]:
    ec2 = place.reading.ec2
    with place.asking("DescribeLaunchTemplates"):
        pages = ec2.get_paginator("describe_launch_templates").paginate(PaginationConfig={"PageSize": _PAGE_SIZE})
        ids = [template["LaunchTemplateId"] for page in pages for template in page["LaunchTemplates"]]
    for template_id in ids:
        with place.asking("DescribeLaunchTemplateVersions"):
            for page in ec2.get_paginator("describe_launch_template_versions").paginate(LaunchTemplateId=template_id):
                for version in page["LaunchTemplateVersions"]:
                    yield version["LaunchTemplateData"]


def _of_configurations(place: Region) -> Iterator[str]:
    yield from (each["ImageId"] for each in _configurations(place))


def _configurations(place: Region) -> Iterator[Any]:
    with place.asking("DescribeLaunchConfigurations", service="Auto Scaling"):
        for page in place.reading.autoscaling.get_paginator("describe_launch_configurations").paginate():
            yield from page["LaunchConfigurations"]


def _size(image: Any) -> int | None:  # noqa: ANN401  a part of an answer
    """Of the volumes that it makes; its snapshots hold that much at most."""
    sizes = [each["Ebs"].get("VolumeSize", 0) for each in image.get("BlockDeviceMappings", ()) if "Ebs" in each]
    return sum(sizes) * _GIB or None
