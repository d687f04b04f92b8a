"""What AWS says of our own standing: permissions by DryRun, the clock, volumes. Nothing is carried out.

With DryRun, EC2 answers a call that it would carry out with the error DryRunOperation, and one that is not allowed with
UnauthorizedOperation. Auto Scaling has no DryRun: its changes are not tried at all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

from gpuwatch.clouds import AuthFailedError, CloudError
from gpuwatch.clouds.aws.actions import launch_request
from gpuwatch.clouds.aws.places import Region
from gpuwatch.clouds.permissions import Identity, Permission
from gpuwatch.model.decision import DECISION_TAG

_VALUES_A_FILTER = 200
_WOULD_DO = "DryRunOperation"
_TOKEN = "gpuwatch-doctor"  # noqa: S105  RunInstances' ClientToken of a launch that never is

_READS: Mapping[str, Callable[[Any], object]] = {
    "DescribeInstances": lambda ec2: ec2.describe_instances(MaxResults=5, DryRun=True),
    "DescribeInstanceTypes": lambda ec2: ec2.describe_instance_types(MaxResults=5, DryRun=True),
    "DescribeLaunchTemplateVersions": lambda ec2: ec2.describe_launch_template_versions(
        Versions=["$Latest"], DryRun=True
    ),
    "DescribeInstanceStatus": lambda ec2: ec2.describe_instance_status(MaxResults=5, DryRun=True),
    "DescribeCapacityReservations": lambda ec2: ec2.describe_capacity_reservations(MaxResults=5, DryRun=True),
    "DescribeSpotInstanceRequests": lambda ec2: ec2.describe_spot_instance_requests(MaxResults=5, DryRun=True),
    "DescribeVolumes": lambda ec2: ec2.describe_volumes(DryRun=True),
    "DescribeSnapshots": lambda ec2: ec2.describe_snapshots(OwnerIds=["self"], MaxResults=5, DryRun=True),
    "DescribeAddresses": lambda ec2: ec2.describe_addresses(DryRun=True),
}
_ACTS: Mapping[str, Callable[[Any, str], object]] = {
    "StopInstances": lambda ec2, node: ec2.stop_instances(InstanceIds=[node], DryRun=True),
    "StartInstances": lambda ec2, node: ec2.start_instances(InstanceIds=[node], DryRun=True),
    "CreateTags": lambda ec2, node: ec2.create_tags(
        Resources=[node], Tags=[{"Key": DECISION_TAG, "Value": _TOKEN}], DryRun=True
    ),
}
_ENDS: Mapping[str, Callable[[Any, str], object]] = {
    "TerminateInstances": lambda ec2, node: ec2.terminate_instances(InstanceIds=[node], DryRun=True),
    "DescribeInstanceAttribute": lambda ec2, node: ec2.describe_instance_attribute(
        InstanceId=node, Attribute="disableApiTermination", DryRun=True
    ),
}


def reads(place: Region) -> Iterator[Permission]:
    """What every role needs."""
    for call, ask in _READS.items():
        yield _tried(place, call, partial(ask, place.reading.ec2))
    auto_scaling = place.reading.autoscaling
    for call, ask_groups in (
        ("DescribeAutoScalingGroups", auto_scaling.describe_auto_scaling_groups),
        ("DescribeScalingActivities", auto_scaling.describe_scaling_activities),
    ):
        yield _tried(place, call, partial(ask_groups, MaxRecords=1), service="Auto Scaling")


def acts(place: Region, node_id: str | None, *, terminate: bool) -> Iterator[Permission]:
    """What the role `reclaim` needs, tried on one of the fleet's own machines; without one nothing can be tried."""
    calls = {**_ACTS, **(_ENDS if terminate else {})}
    if node_id is None:
        reason = "the fleet has no enrolled, unprotected machine there to try it on"
        yield Permission(call=", ".join(calls), where=place.name, allowed=None, reason=reason)
        return
    for call, ask in calls.items():
        yield _tried(place, call, partial(ask, place.acting.ec2, node_id))


def of_groups(place: Region) -> Iterator[Permission]:
    """What the roles `reclaim` and `shield` need for members of groups."""
    calls = "TerminateInstanceInAutoScalingGroup, SetInstanceProtection"
    yield Permission(call=calls, where=place.name, allowed=None, reason="Auto Scaling has no DryRun")


def launch(place: Region, arguments: Mapping[str, str], *, fleet: str) -> Permission:
    """What the role `scale` needs, tried with a pool's own template."""
    request = launch_request(arguments, _TOKEN, fleet=fleet)
    return _tried(place, "RunInstances", lambda: place.acting.ec2.run_instances(**request, DryRun=True))


def identity(place: Region) -> Identity:
    """Source: GetCallerIdentity, which needs no permission, and the Date of its answer."""
    with place.asking("GetCallerIdentity", service="STS"):
        answer = place.reading.sts.get_caller_identity()
        name, date = answer["Arn"], answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
    try:
        return Identity(name=name, at=parsedate_to_datetime(date))
    except ValueError:
        return Identity(name=name, at=None)


def unencrypted(place: Region, node_ids: Sequence[str]) -> Iterator[str]:
    """Source: DescribeVolumes to its last page."""
    pages = place.reading.ec2.get_paginator("describe_volumes")
    for begin in range(0, len(node_ids), _VALUES_A_FILTER):
        values = list(node_ids[begin : begin + _VALUES_A_FILTER])
        with place.asking("DescribeVolumes"):
            for page in pages.paginate(Filters=[{"Name": "attachment.instance-id", "Values": values}]):
                for volume in page["Volumes"]:
                    if not volume["Encrypted"]:
                        yield f"{volume['VolumeId']} of {volume['Attachments'][0]['InstanceId']}"


def _tried(place: Region, call: str, ask: Callable[[], object], *, service: str = "EC2") -> Permission:
    """What the answer says of the permission; any other error says nothing of it."""
    try:
        with place.asking(call, service=service):
            ask()
    except AuthFailedError as error:
        return Permission(call=call, where=place.name, allowed=False, reason=error.code)
    except CloudError as error:
        allowed = True if error.code == _WOULD_DO else None
        return Permission(call=call, where=place.name, allowed=allowed, reason=str(error))
    return Permission(call=call, where=place.name, allowed=True)
