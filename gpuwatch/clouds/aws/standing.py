"""What AWS says of our own standing: permissions by DryRun, the clock, keys, limits. Nothing is carried out.

With DryRun, EC2 answers a call that it would carry out with the error DryRunOperation, and one that is not allowed with
UnauthorizedOperation. Auto Scaling has no DryRun: its changes are not tried at all.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import boto3

from gpuwatch.clouds import AuthFailedError, CloudError
from gpuwatch.clouds.aws import instances as aws_machines
from gpuwatch.clouds.aws.actions import launch_request
from gpuwatch.clouds.aws.instances import Instance
from gpuwatch.clouds.aws.places import Region
from gpuwatch.clouds.keys import AccessKey, Credentials, of_lasting_key
from gpuwatch.clouds.permissions import (
    NO_MACHINE,
    Identity,
    Permission,
    Quota,
    server_time,
    try_permission,
    untried_permission,
)
from gpuwatch.model.decision import DECISION_TAG

# What a call that is allowed may answer all the same; an account that never used EBS's own key does not have it.
_WOULD_DO = frozenset({"DryRunOperation", "NotFoundException"})
_ANY_KEY = "alias/aws/ebs"
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


def may_read(place: Region) -> Iterator[Permission]:
    """What every role needs."""
    for call, ask in _READS.items():
        yield _try_call(place, call, partial(ask, place.reading.ec2))
    auto_scaling = place.reading.autoscaling
    for call, ask_groups in (
        ("DescribeAutoScalingGroups", auto_scaling.describe_auto_scaling_groups),
        ("DescribeScalingActivities", auto_scaling.describe_scaling_activities),
    ):
        yield _try_call(place, call, partial(ask_groups, MaxRecords=1), service="Auto Scaling")
    yield _try_call(place, "DescribeKey", lambda: place.reading.kms.describe_key(KeyId=_ANY_KEY), service="KMS")


def may_act(place: Region, node_id: str | None, *, terminate: bool) -> Iterator[Permission]:
    """What the role `reclaim` needs, tried on one of the fleet's own machines; without one nothing can be tried."""
    calls = {**_ACTS, **(_ENDS if terminate else {})}
    if node_id is None:
        yield untried_permission(calls, place.name, NO_MACHINE)
        return
    for call, ask in calls.items():
        yield _try_call(place, call, partial(ask, place.acting.ec2, node_id))


def may_change(place: Region, node_id: str) -> Iterator[Permission]:
    """What would stop, end or tag a machine that is not the fleet's."""
    where = f"{place.name}, machine {node_id}"
    for call in ("StopInstances", "TerminateInstances", "CreateTags"):
        yield replace(_try_call(place, call, partial({**_ACTS, **_ENDS}[call], place.acting.ec2, node_id)), where=where)


def may_change_groups(place: Region) -> Iterator[Permission]:
    """What the roles `reclaim` and `shield` need for members of groups."""
    calls = ("TerminateInstanceInAutoScalingGroup", "SetInstanceProtection")
    yield untried_permission(calls, place.name, "Auto Scaling has no DryRun")


def may_launch(place: Region, arguments: Mapping[str, str], *, fleet: str) -> Permission:
    """What the role `scale` needs, tried with a pool's own template."""
    request = launch_request(arguments, _TOKEN, fleet=fleet)
    return _try_call(place, "RunInstances", lambda: place.acting.ec2.run_instances(**request, DryRun=True))


def identity(place: Region) -> Identity:
    """Source: GetCallerIdentity, which needs no permission, and the Date of its answer."""
    with place.asking("GetCallerIdentity", service="STS"):
        answer = place.reading.sts.get_caller_identity()
        name, date = answer["Arn"], answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
    return Identity(name=name, at=server_time(date))


def _try_call(place: Region, call: str, ask: Callable[[], object], *, service: str = "EC2") -> Permission:
    """Try one call; its DryRun says whether it would be carried out."""

    def named() -> None:
        with place.asking(call, service=service):
            ask()

    return try_permission(call, place.name, named, allows=lambda error: error.code in _WOULD_DO)


_ASSUMING = "assume-role"  # how botocore calls the credentials of a profile with a role_arn
_SOURCE = "source_profile"


def credentials(place: Region) -> Credentials:
    """Of the session that enters the place. Sources: GetCallerIdentity, ListAccessKeys, GetAccessKeyLastUsed.

    Raises:
        CloudError: there are no credentials, or no answer names their user.

    """
    with place.asking("credentials"):
        found: Any = place.session.get_credentials()
        key = None if found is None else found.get_frozen_credentials()
    if key is None:
        raise AuthFailedError("no usable AWS credentials; see `aws sts get-caller-identity`", code="NoCredentials")
    if found.method == _ASSUMING:
        source = _source_of(place.session)
        if source is not None and source != place.session.profile_name:
            with place.asking("credentials"):
                return credentials(place.with_session(boto3.Session(profile_name=source)))
    with place.asking("GetCallerIdentity", service="STS"):
        name = str(place.reading.sts.get_caller_identity()["Arn"])
    if found.method == _ASSUMING and _source_of(place.session) is not None:
        return Credentials(name=name, lasting=None, unknown="the profile assumes a role with a key of its own")
    return Credentials(name=name, lasting=False) if key.token else _lasting(place, name, key.access_key)


def _source_of(session: boto3.Session) -> str | None:
    """The profile with the key that assumes the role of the session's profile."""
    core: Any = session._session  # noqa: SLF001  boto3 shows the profiles' names alone
    profiles = core.full_config.get("profiles", {})
    source: str | None = profiles.get(session.profile_name, {}).get(_SOURCE)
    return source


def _lasting(place: Region, name: str, own: str) -> Credentials:
    """The active keys of the user that asks; ListAccessKeys without a name is about that user."""

    def keys() -> Iterator[AccessKey]:
        with place.asking("ListAccessKeys", service="IAM"):
            pages = place.reading.iam.get_paginator("list_access_keys").paginate()
            for each in [each for page in pages for each in page["AccessKeyMetadata"]]:
                key_id = each["AccessKeyId"]
                if each["Status"] == "Active":
                    yield AccessKey(
                        id=key_id, made=each["CreateDate"], ours=key_id == own, used=_last_use(place, key_id)
                    )

    return of_lasting_key(name, "iam:ListAccessKeys", keys)


def _last_use(place: Region, key_id: str) -> str:
    """When a key was used last, in words; "" where nobody says it."""
    with suppress(CloudError), place.asking("GetAccessKeyLastUsed", service="IAM"):
        last = place.reading.iam.get_access_key_last_used(AccessKeyId=key_id)["AccessKeyLastUsed"]
        at = last.get("LastUsedDate")
        return "never used" if at is None else f"last used {at:%Y-%m-%d} for {last.get('ServiceName', '?')}"
    return "last use not known"


_UNIT = "vCPUs"
# The names that Service Quotas gives these limits: "Running On-Demand G and VT instances", "All P5 Spot Instance
# Requests". https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
_NAMES = {
    "": re.compile(r"Running On-Demand (?P<families>.+) instances"),
    "spot": re.compile(r"All (?P<families>.+) Spot Instance Requests"),
}
_FAMILY = re.compile(r"\b[A-Z]+\d*\b")
_WITH_GPUS = re.compile(r"[PG]\d*")
_TYPE = re.compile(r"(?P<letters>[a-z]+)(?P<generation>\d*)")
_SAME = {"gr": "g"}  # Gr machines count as G
_COUNTED: Any = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]

Vcpus = Callable[[Region, str], int | None]


def quotas(place: Region, vcpus: Vcpus, *, page_size: int) -> list[Quota]:
    """Every limit of this region on machines with GPUs; `vcpus` says how many a machine type has.

    Sources: ListServiceQuotas and DescribeInstances, each to its last page.

    Raises:
        CloudError: no answer, or it is not allowed.

    """
    limits = list(_limits(place))
    running = aws_machines.list_instances(place, _COUNTED, page_size=page_size) if limits else []
    return [
        Quota(
            name=name,
            region=place.name,
            limit=limit,
            used=_vcpus_in_use(running, kind, families, lambda type_: vcpus(place, type_)),
            unit=_UNIT,
        )
        for name, kind, families, limit in sorted(limits)
    ]


def _limits(place: Region) -> Iterator[tuple[str, str, tuple[str, ...], float]]:
    """The limits: name, lifecycle of the machines that they are for, families, vCPUs."""
    with place.asking("ListServiceQuotas", service="Service Quotas"):
        for page in place.reading.quotas.get_paginator("list_service_quotas").paginate(ServiceCode="ec2"):
            for each in page["Quotas"]:
                for kind, name in _NAMES.items():
                    found = name.fullmatch(each["QuotaName"])
                    families = tuple(_FAMILY.findall(found["families"])) if found else ()
                    if any(_WITH_GPUS.fullmatch(family) for family in families):
                        yield each["QuotaName"], kind, families, float(each["Value"])


def _vcpus_in_use(
    running: Iterable[Instance], kind: str, families: tuple[str, ...], vcpus: Callable[[str], int | None]
) -> float | None:
    """The vCPUs of the machines that count; None: of one of their types EC2 does not say how many it has."""
    counted = [each for each in running if each.described.get("InstanceLifecycle", "") == kind]
    sizes = [vcpus(each.type) for each in counted if _counts(each.type, families)]
    known = [size for size in sizes if size is not None]
    return float(sum(known)) if len(known) == len(sizes) else None


def _counts(type_: str, families: tuple[str, ...]) -> bool:
    """Whether a machine type is of one of these families: P is all of its generations, P5 one."""
    found = _TYPE.match(type_)
    if found is None:
        return False
    letters = _SAME.get(found["letters"], found["letters"]).upper()
    return letters in families or letters + found["generation"] in families
