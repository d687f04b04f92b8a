"""What AWS has for people to look at: what is left of machines, use, and other regions; it is never acted on."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gpuwatch.clouds import AuthFailedError, CloudError, Leftover, LeftoverKind
from gpuwatch.clouds.aws import instances as aws_machines
from gpuwatch.clouds.aws.instances import Translator
from gpuwatch.clouds.aws.places import Region
from gpuwatch.clouds.disks import old_image
from gpuwatch.clouds.keys import DiskKey
from gpuwatch.clouds.survey import GIB, MIB, CloudUse, batches, machine_in_series, refuse_partial, use_of_values
from gpuwatch.clouds.times import is_old
from gpuwatch.model.fleet import Node

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, TagTypeDef, VolumeTypeDef

_VALUES_A_FILTER = 200
_PAGE_SIZE = 500


def disks_in_use(place: Region, node_ids: Iterable[str]) -> Iterator[Leftover]:
    """Volumes of these machines, which are not stopped."""
    for volume in _volumes_of(place, node_ids):
        yield _volume(place, volume, LeftoverKind.RUNNING_VOLUME)


def unencrypted_disks(place: Region, node_ids: Iterable[str]) -> Iterator[str]:
    """Volumes of these machines that are not encrypted, each with its machine, for people."""
    with place.asking("DescribeVolumes"):
        for volume in _volumes_of(place, node_ids):
            if not volume["Encrypted"]:
                yield f"{volume['VolumeId']} of {volume['Attachments'][0]['InstanceId']}"


def disk_keys(place: Region, node_ids: Iterable[str]) -> Iterator[DiskKey]:
    """Keys of volumes of these machines. Source: GetKeyRotationStatus."""
    named = {volume["KmsKeyId"] for volume in _volumes_of(place, node_ids) if volume.get("KmsKeyId")}
    for key_id in sorted(named):
        yield _rotation(place, key_id)


def _rotation(place: Region, key_id: str) -> DiskKey:
    """AWS rotates the keys that it manages itself each year, and says so of them, too."""
    try:
        with place.asking("GetKeyRotationStatus", service="KMS"):
            told = place.reading.kms.get_key_rotation_status(KeyId=key_id)
            rotates = bool(told["KeyRotationEnabled"])
    except AuthFailedError:
        return DiskKey(id=key_id, rotates=None, says="kms:GetKeyRotationStatus is not allowed")
    except CloudError as error:
        return DiskKey(id=key_id, rotates=None, says=str(error))
    days, then = told.get("RotationPeriodInDays"), told.get("NextRotationDate")
    often = "" if days is None else f"every {days} days"
    when = "" if then is None else f"next on {then:%Y-%m-%d}"
    return DiskKey(id=key_id, rotates=rotates, says=", ".join(filter(None, [often, when])) if rotates else "")


def list_unused(place: Region, stopped: Collection[str]) -> list[Leftover]:
    """Of one place: what nothing is attached to, and what belongs to the stopped machines of these ids.

    Raises:
        CloudError: a part of it could not be had.

    """
    return [
        *(
            _volume(place, each, LeftoverKind.UNATTACHED_VOLUME)
            for each in _volumes(place, [{"Name": "status", "Values": ["available"]}])
        ),
        *(_volume(place, each, LeftoverKind.STOPPED_VOLUME) for each in _volumes_of(place, stopped)),
        *_addresses(place, frozenset(stopped)),
    ]


def _volumes_of(place: Region, node_ids: Iterable[str]) -> Iterator["VolumeTypeDef"]:
    """Volumes of these machines; no filter takes more."""
    for batch in batches(sorted(node_ids), _VALUES_A_FILTER):
        yield from _volumes(place, [{"Name": "attachment.instance-id", "Values": list(batch)}])


def _volumes(place: Region, matching: "Sequence[FilterTypeDef]" = ()) -> Iterator["VolumeTypeDef"]:
    """Source: DescribeVolumes to its last page."""
    pages = place.reading.ec2.get_paginator("describe_volumes")
    with place.asking("DescribeVolumes"):
        for page in pages.paginate(Filters=matching, PaginationConfig={"PageSize": _PAGE_SIZE}):
            yield from page["Volumes"]


def _volume(place: Region, volume: "VolumeTypeDef", kind: LeftoverKind) -> Leftover:
    """A volume with what its price depends on."""
    with place.asking("DescribeVolumes"):
        throughput = volume.get("Throughput")
        return Leftover(
            id=volume["VolumeId"],
            kind=kind,
            region=place.region,
            account=place.account,
            type=volume.get("VolumeType", ""),
            size_bytes=volume["Size"] * GIB,
            iops=volume.get("Iops"),
            throughput_bytes_per_second=None if throughput is None else throughput * MIB,
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
    with place.asking("DescribeImages"):
        own = [image for image in _own(place) if image["State"] == "available" and not image.get("Public")]
    old = [image for image in own if _old(image, now)]
    if not old:
        return []  # templates need not be looked at
    used = {
        str(each.described.get("ImageId")) for each in aws_machines.list_instances(place, [], page_size=_IMAGES_A_PAGE)
    }
    used |= {data.get("ImageId", "") for data in _templates(place)}
    used |= {each["ImageId"] for each in _configurations(place)}
    if any(image.startswith(_INDIRECT) for image in used):
        return []
    return [
        old_image(place, image["ImageId"], image.get("Name"), _size(image))
        for image in old
        if image["ImageId"] not in used
    ]


def _own(place: Region) -> Iterator[Any]:
    """Every image of this account, in whatever state, also those for everybody."""
    pages = place.reading.ec2.get_paginator("describe_images")
    with place.asking("DescribeImages"):
        for page in pages.paginate(Owners=["self"], PaginationConfig={"PageSize": _IMAGES_A_PAGE}):
            yield from page["Images"]


def _old(image: Any, now: datetime) -> bool:  # noqa: ANN401  a part of an answer
    launched = image.get("LastLaunchedTime")
    return is_old(image.get("CreationDate"), now) and (launched is None or is_old(launched, now))


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
    return sum(sizes) * GIB or None


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
            size_bytes=each["VolumeSize"] * GIB,
            name=_name(each.get("Tags", ())),
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
        yield from (volume["VolumeId"] for volume in _volumes(place))


def _snapshots_of_images(place: Region) -> Iterator[str]:
    for image in _own(place):
        yield from _snapshots_in(image)


def _snapshots_of_templates(place: Region) -> Iterator[str]:
    """Of every version of each template, and of launch configurations."""
    for each in (*_templates(place), *_configurations(place)):
        yield from _snapshots_in(each)


def _snapshots_in(described: Any) -> Iterator[str]:  # noqa: ANN401  a part of an answer
    """Snapshots that devices of an image or a template are made from."""
    devices = (each.get("Ebs") or {} for each in described.get("BlockDeviceMappings", ()))
    yield from (each["SnapshotId"] for each in devices if each.get("SnapshotId"))


# What keeps a snapshot, by which of its members.
_USERS: tuple[tuple[Callable[[Region], Iterator[str]], str], ...] = (
    (_volume_ids, "VolumeId"),
    (_snapshots_of_images, "SnapshotId"),
    (_snapshots_of_templates, "SnapshotId"),
)
MONITOR = "CloudWatch"
_PERIOD_SECONDS = 3600  # hours: CloudWatch keeps them for 455 days, minutes for 15
_QUERIES_A_CALL = 500
# What is asked of each machine: the metric and its statistic within an hour.
_ASKED = (("CPUUtilization", "Average"), ("CPUUtilization", "Maximum"), ("NetworkIn", "Sum"), ("NetworkOut", "Sum"))
_NODES_A_CALL = _QUERIES_A_CALL // len(_ASKED)
_COMPLETE = "Complete"  # StatusCode of a result; the others are PartialData, InternalError and Forbidden


def use_in(place: Region, node_ids: Sequence[str], begin: datetime, end: datetime) -> dict[str, CloudUse]:
    """Use between two times of the machines that CloudWatch knows. Source: GetMetricData to its last page.

    Raises:
        CloudError: no answer, or it is not allowed.

    """
    found: dict[str, CloudUse] = {}
    for batch in batches(node_ids, _NODES_A_CALL):
        values = _values(place, batch, begin, end)
        for number, node_id in enumerate(batch):
            means, highest, received, sent = (values.get(f"q{number}x{kind}", []) for kind in range(len(_ASKED)))
            use = use_of_values(means=means, highest=highest, received=received, sent=sent, seconds=_PERIOD_SECONDS)
            if use is not None:
                found[node_id] = use
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
    found: dict[str, list[float]] = {str(each["Id"]): [] for each in queries}
    lacking: dict[str, object] = {}  # by the query; what a page lacks, a later one may bring
    said = f"{MONITOR} GetMetricData in {place.name}"
    with place.asking("GetMetricData", service=MONITOR):
        pages: Any = place.reading.cloudwatch.get_paginator("get_metric_data")
        for page in pages.paginate(MetricDataQueries=queries, StartTime=begin, EndTime=end):
            refuse_partial(said, page.get("Messages"))
            for result in page["MetricDataResults"]:
                query = machine_in_series(result["Id"] if result["Id"] in found else None, said)
                found[query].extend(result["Values"])
                status = result.get("StatusCode", _COMPLETE)
                lacking[query] = result.get("Messages") or (status if status != _COMPLETE else None)
    for why in lacking.values():
        refuse_partial(said, why)
    return found


def machines_of(translator: Translator, *, page_size: int) -> Callable[[Region], Iterator[Node]]:
    """How to list the GPU machines of a region. Sources: DescribeInstances, DescribeInstanceTypes."""

    def machines(place: Region) -> Iterator[Node]:
        instances = aws_machines.alive(aws_machines.list_instances(place, [], page_size=page_size))
        return translator.nodes(place, instances, {})

    return machines
