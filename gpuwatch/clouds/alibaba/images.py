"""Own images that no machine, group or template names; they are reported, never removed."""

from collections.abc import Iterator
from datetime import datetime

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.clouds.alibaba.errors import reading
from gpuwatch.clouds.alibaba.pages import List, by_number
from gpuwatch.clouds.alibaba.places import Region
from gpuwatch.clouds.old_images import is_old

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
_GIB = 1024**3
_PAGE_SIZE, _SMALL_PAGE = 100, 50
_UNUSED = "none"  # Usage: no machine was made from it that is still there


def listed(place: Region, now: datetime) -> list[Leftover]:
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
