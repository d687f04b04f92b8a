"""What AWS has for people to look at: what is left of machines, use, and other regions; it is never acted on."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gpuwatch.clouds import AuthFailedError, CloudError, Leftover, LeftoverKind
from gpuwatch.clouds.aws import instances as aws_machines
from gpuwatch.clouds.aws.instances import Translator
from gpuwatch.clouds.aws.places import Region, Regions
from gpuwatch.clouds.old_images import is_old
from gpuwatch.clouds.permissions import OtherRegion
from gpuwatch.clouds.survey import CloudUse, Surveyed
from gpuwatch.model.fleet import Node

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, TagTypeDef

_GIB = 1024**3  # EC2's "GB" of a volume
_MIB = 1024**2
_VALUES_A_FILTER = 200
_PAGE_SIZE = 500


def disks_in_use(place: Region, node_ids: Sequence[str]) -> Iterator[Leftover]:
    """Volumes of these machines, which are not stopped."""
    for attached in attached_to(node_ids):
        yield from _volumes(place, attached, LeftoverKind.RUNNING_VOLUME)


def attached_to(node_ids: Sequence[str]) -> Iterator["FilterTypeDef"]:
    """Filters of the volumes of these machines, each with as many as EC2 takes."""
    for begin in range(0, len(node_ids), _VALUES_A_FILTER):
        yield {"Name": "attachment.instance-id", "Values": list(node_ids[begin : begin + _VALUES_A_FILTER])}


def unused(place: Region, stopped: Sequence[str]) -> list[Leftover]:
    """Of one place: what nothing is attached to, and what belongs to the stopped machines of these ids.

    Raises:
        CloudError: a part of it could not be had.

    """
    return [
        *_volumes(place, {"Name": "status", "Values": ["available"]}, LeftoverKind.UNATTACHED_VOLUME),
        *(each for those in attached_to(stopped) for each in _volumes(place, those, LeftoverKind.STOPPED_VOLUME)),
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


_IMAGES_A_PAGE = 200
_INDIRECT = "resolve:ssm:"  # a template's image by the name of a parameter


def old_images(place: Region, now: datetime) -> list[Leftover]:
    """Of one place: private images that were neither made nor launched within a month, and that nothing there names.

    Machines of whatever type and state, every version of each launch template, and launch configurations are looked at.
    Where a template takes its image from a parameter, nobody can tell which image that is: then none is reported.

    Sources: DescribeImages, DescribeInstances, DescribeLaunchTemplates, DescribeLaunchTemplateVersions,
    DescribeLaunchConfigurations, each to its last page.

    Raises:
        CloudError: a part of it could not be had.

    """
    old = [image for image in _own(place) if _old(image, now)]
    if not old:
        return []  # templates need not be looked at
    used = {str(each.described.get("ImageId")) for each in aws_machines.listed(place, [], page_size=_IMAGES_A_PAGE)}
    used |= {data.get("ImageId", "") for data in _templates(place)}
    used |= {each["ImageId"] for each in _configurations(place)}
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
            for page in pages.paginate(Owners=["self"], PaginationConfig={"PageSize": _IMAGES_A_PAGE})
            for image in page["Images"]
        ]
        return [image for image in found if image["State"] == "available" and not image.get("Public")]


def _old(image: Any, now: datetime) -> bool:  # noqa: ANN401  a part of an answer
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


def _templates(place: Region) -> Iterator[Any]:
    ec2 = place.reading.ec2
    with place.asking("DescribeLaunchTemplates"):
        pages = ec2.get_paginator("describe_launch_templates").paginate(PaginationConfig={"PageSize": _IMAGES_A_PAGE})
        ids = [template["LaunchTemplateId"] for page in pages for template in page["LaunchTemplates"]]
    for template_id in ids:
        with place.asking("DescribeLaunchTemplateVersions"):
            for page in ec2.get_paginator("describe_launch_template_versions").paginate(LaunchTemplateId=template_id):
                for version in page["LaunchTemplateVersions"]:
                    yield version["LaunchTemplateData"]


def _configurations(place: Region) -> Iterator[Any]:
    with place.asking("DescribeLaunchConfigurations", service="Auto Scaling"):
        for page in place.reading.autoscaling.get_paginator("describe_launch_configurations").paginate():
            yield from page["LaunchConfigurations"]


def _size(image: Any) -> int | None:  # noqa: ANN401  a part of an answer
    """Of the volumes that it makes; its snapshots hold that much at most."""
    sizes = [each["Ebs"].get("VolumeSize", 0) for each in image.get("BlockDeviceMappings", ()) if "Ebs" in each]
    return sum(sizes) * _GIB or None


_OF_A_COPY = "vol-ffffffff"
_DONE = "completed"


def lone_snapshots(place: Region) -> list[Leftover]:
    """Of one place. Sources: DescribeSnapshots, DescribeVolumes, DescribeImages, templates, each to its last page.

    Raises:
        CloudError: a part of it could not be had.

    """
    left = [each for each in _own_snapshots(place) if each["State"] == _DONE and each["VolumeId"] != _OF_A_COPY]
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


def _own_snapshots(place: Region) -> Iterator[Any]:
    with place.asking("DescribeSnapshots"):
        pages = place.reading.ec2.get_paginator("describe_snapshots")
        for page in pages.paginate(OwnerIds=["self"], PaginationConfig={"PageSize": _PAGE_SIZE}):
            yield from page["Snapshots"]


def _volume_ids(place: Region) -> Iterator[str]:
    with place.asking("DescribeVolumes"):
        for page in place.reading.ec2.get_paginator("describe_volumes").paginate(
            PaginationConfig={"PageSize": _PAGE_SIZE}
        ):
            yield from (volume["VolumeId"] for volume in page["Volumes"])


def _snapshots_of_images(place: Region) -> Iterator[str]:
    """Of every own image, in whatever state, also of those for everybody."""
    with place.asking("DescribeImages"):
        pages = place.reading.ec2.get_paginator("describe_images")
        for page in pages.paginate(Owners=["self"], PaginationConfig={"PageSize": _PAGE_SIZE}):
            for image in page["Images"]:
                yield from snapshots_in(image.get("BlockDeviceMappings", ()))


# What keeps a snapshot, by which of its members.
_USERS: tuple[tuple[Callable[[Region], Iterator[str]], str], ...] = (
    (_volume_ids, "VolumeId"),
    (_snapshots_of_images, "SnapshotId"),
    (snapshots_of_templates, "SnapshotId"),
)

MONITOR = "CloudWatch"
_PERIOD_SECONDS = 3600  # hours: CloudWatch keeps them for 455 days, minutes for 15
_QUERIES_A_CALL = 500
# What is asked of each machine: the metric and its statistic within an hour.
_ASKED = (("CPUUtilization", "Average"), ("CPUUtilization", "Maximum"), ("NetworkIn", "Sum"), ("NetworkOut", "Sum"))
_NODES_A_CALL = _QUERIES_A_CALL // len(_ASKED)


def use_in(place: Region, node_ids: Sequence[str], begin: datetime, end: datetime) -> dict[str, CloudUse]:
    """Use between two times of the machines that CloudWatch knows. Source: GetMetricData to its last page.

    Raises:
        CloudError: no answer, or it is not allowed.

    """
    found: dict[str, CloudUse] = {}
    for first in range(0, len(node_ids), _NODES_A_CALL):
        batch = node_ids[first : first + _NODES_A_CALL]
        values = _values(place, batch, begin, end)
        for number, node_id in enumerate(batch):
            own = [values.get(f"q{number}x{kind}", []) for kind in range(len(_ASKED))]
            if any(own):
                found[node_id] = _use(*own)
    return found


def _values(place: Region, batch: Sequence[str], begin: datetime, end: datetime) -> Mapping[str, list[float]]:
    """The hours' values by the ids of the queries; one query's may be on several pages."""
    queries = [
        {
            "Id": f"q{number}x{kind}",
            "MetricStat": {
                "Metric": {
                    "Namespace": "AWS/EC2",
                    "MetricName": metric,
                    "Dimensions": [{"Name": "InstanceId", "Value": node_id}],
                },
                "Period": _PERIOD_SECONDS,
                "Stat": statistic,
            },
        }
        for number, node_id in enumerate(batch)
        for kind, (metric, statistic) in enumerate(_ASKED)
    ]
    found: dict[str, list[float]] = {}
    with place.asking("GetMetricData", service=MONITOR):
        pages: Any = place.reading.cloudwatch.get_paginator("get_metric_data")
        for page in pages.paginate(MetricDataQueries=queries, StartTime=begin, EndTime=end):
            for result in page["MetricDataResults"]:
                found.setdefault(result["Id"], []).extend(result["Values"])
    return found


def _use(means: list[float], highest: list[float], received: list[float], sent: list[float]) -> CloudUse:
    """CloudWatch's per cent as ratios, its sums as rates."""
    return CloudUse(
        cpu_mean_ratio=sum(means) / len(means) / 100 if means else None,
        cpu_max_ratio=max(highest) / 100 if highest else None,
        received_bytes_per_second=_rate(received),
        sent_bytes_per_second=_rate(sent),
    )


def _rate(sums: list[float]) -> float | None:
    return sum(sums) / (len(sums) * _PERIOD_SECONDS) if sums else None


_AT_ONCE = 8


def elsewhere(places: Regions, translator: Translator, *, page_size: int) -> list[OtherRegion]:
    """Every enabled region of each account that is not configured, with the GPU machines in it.

    Sources: DescribeRegions, DescribeInstances, DescribeInstanceTypes.

    Raises:
        CloudError: the regions of an account cannot be listed.

    """
    others = [place for home in places.homes for place in _others(places, home)]
    found = _all(others, translator, page_size, watched=False)
    return [
        OtherRegion(
            where=each.where,
            machines=tuple(f"{node.id} ({node.instance_type})" for node in each.nodes),
            nodes=each.nodes,
            region=each.region,
            refused=each.refused,
            trouble=each.trouble,
        )
        for each in found
    ]


def every_place(places: Regions, translator: Translator, *, page_size: int) -> list[Surveyed]:
    """The same, and the configured regions first; where other regions cannot be listed, that is an entry."""
    found = _all(places.all, translator, page_size, watched=True)
    for home in places.homes:
        where = "other regions" + (f" of account {home.called}" if home.called else "")
        try:
            others = list(_others(places, home))
        except CloudError as error:
            refused = error.code if isinstance(error, AuthFailedError) else None
            trouble = None if refused is not None else str(error)
            found.append(Surveyed(where=where, region="", watched=False, refused=refused, trouble=trouble))
        else:
            found += _all(others, translator, page_size, watched=False)
    return found


def place_of(places: Regions, region: str, account: str | None) -> Region | None:
    """The place of a region and an account's number, whether the settings name it or not."""
    for home in places.homes:
        if len(places.homes) == 1 or account in (None, home.account):
            same = (each for each in places.all if each.region == region and each.session is home.session)
            return next(same, None) or home.beside(region)
    return None


def _all(places: list[Region], translator: Translator, page_size: int, *, watched: bool) -> list[Surveyed]:
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return list(pool.map(lambda place: _look(place, translator, page_size, watched=watched), places))


def _others(places: Regions, home: Region) -> Iterator[Region]:
    """The account's enabled regions that nobody configured."""
    configured = {place.region for place in places.all if place.session is home.session}
    return (home.beside(region) for region in home.enabled() if region not in configured)


def _look(place: Region, translator: Translator, page_size: int, *, watched: bool) -> Surveyed:
    """One region. A refused answer shows no machine, and does not prove that no machine runs there."""
    refused, trouble, nodes = None, None, tuple[Node, ...]()
    try:
        instances = aws_machines.alive(aws_machines.listed(place, [], page_size=page_size))
        nodes = tuple(translator.nodes(place, instances, {}))
    except AuthFailedError as error:
        refused = error.code
    except CloudError as error:
        trouble = str(error)
    return Surveyed(
        where=place.name, region=place.region, watched=watched, nodes=nodes, refused=refused, trouble=trouble
    )
