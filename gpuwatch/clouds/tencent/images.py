"""Own images that no machine, group or template names; they are reported, never removed."""

from collections.abc import Iterator
from datetime import datetime

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.clouds.old_images import is_old
from gpuwatch.clouds.tencent.errors import asking
from gpuwatch.clouds.tencent.places import Place

_GIB = 1024**3
_OWN = [{"Name": "image-type", "Values": ["PRIVATE_IMAGE"]}]


def listed(place: Place, now: datetime) -> list[Leftover]:
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
