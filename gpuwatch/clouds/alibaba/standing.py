"""What Alibaba Cloud says of our own standing: permissions by DryRun, the clock, keys, quotas. Nothing is carried out.

With DryRun, ECS answers a call that it would carry out with the error DryRunOperation. TagResources and the calls of
ESS have no DryRun: they are not tried at all.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from gpuwatch.clouds import CloudError, NotFoundError
from gpuwatch.clouds.alibaba.actions import launch_request
from gpuwatch.clouds.alibaba.instances import STOP_CHARGING
from gpuwatch.clouds.alibaba.pages import WOULD_DO
from gpuwatch.clouds.alibaba.places import Region
from gpuwatch.clouds.errors import reading
from gpuwatch.clouds.keys import AccessKey, Credentials, of_lasting_key
from gpuwatch.clouds.permissions import NO_MACHINE, Identity, Permission, Quota, try_permission, untried_permission

_TOKEN = "gpuwatch-doctor"  # noqa: S105  RunInstances' ClientToken of a launch that never is

_ATTRIBUTES = "ecs:DescribeAccountAttributes"
# Limit and use of each quota, in Alibaba's words.
_QUOTAS = {
    "max-postpaid-instance-vcpu-count": "used-postpaid-instance-vcpu-count",
    "max-spot-instance-vcpu-count": "used-spot-instance-vcpu-count",
}

_READS: Mapping[str, Mapping[str, object]] = {
    "ecs:DescribeInstances": {"MaxResults": 10, "DryRun": True},
    "ecs:DescribeInstanceTypes": {"MaxResults": 10},
    "ecs:DescribeLaunchTemplateVersions": {"LaunchTemplateName": "gpuwatch-doctor"},
    "ecs:DescribeDisks": {"MaxResults": 10, "DryRun": True},
    "ecs:DescribeSnapshots": {"MaxResults": 10, "DryRun": True},
    "ecs:DescribeAccountAttributes": {"AttributeName": list(_QUOTAS)},
    "vpc:DescribeEipAddresses": {"PageSize": 10},
    "ess:DescribeScalingGroups": {"PageSize": 1},
    "ess:DescribeScalingInstances": {"PageSize": 1},
    "ess:DescribeScalingConfigurations": {"PageSize": 1},
    "ess:DescribeScalingActivities": {"ScalingGroupId": "asg-gpuwatch-doctor", "PageSize": 1},
}
_ACTS: Mapping[str, Mapping[str, object]] = {
    "ecs:StopInstance": {"StoppedMode": STOP_CHARGING, "ForceStop": False},
    "ecs:StartInstance": {},
}
_ENDS: Mapping[str, Mapping[str, object]] = {"ecs:DeleteInstance": {"Force": True, "ForceStop": False}}
_UNTRIED = "it has no DryRun"


def may_read(place: Region) -> Iterator[Permission]:
    """What every role needs."""
    for call, asked in _READS.items():
        # DescribeInstanceTypes takes no region: its host says which one it is.
        region = {} if call == "ecs:DescribeInstanceTypes" else {"RegionId": place.region}
        yield _try_call(place, call, partial(place.reading.ask, call, {**region, **asked}))


def may_act(place: Region, node_id: str | None, *, terminate: bool) -> Iterator[Permission]:
    """What the role `reclaim` needs, tried on one of the fleet's own machines; without one nothing can be tried."""
    calls = {**_ACTS, **(_ENDS if terminate else {})}
    if node_id is None:
        yield untried_permission(map(_action, calls), place.name, NO_MACHINE)
        return
    for call, asked in calls.items():
        request = {"InstanceId": node_id, **asked, "DryRun": True}
        yield _try_call(place, call, partial(place.acting.change, call, request, None))
    yield untried_permission(("TagResources",), place.name, _UNTRIED)


def may_change(place: Region, node_id: str) -> Iterator[Permission]:
    """What would stop or end a machine that is not the fleet's; TagResources has no DryRun."""
    for call in ("ecs:StopInstance", "ecs:DeleteInstance"):
        request = {"InstanceId": node_id, **{**_ACTS, **_ENDS}[call], "DryRun": True}
        tried = _try_call(place, call, partial(place.acting.change, call, request, None))
        yield replace(tried, where=f"{place.name}, machine {node_id}")


def may_change_groups(place: Region) -> Iterator[Permission]:
    """What the roles `reclaim` and `shield` need for members of groups."""
    yield untried_permission(("RemoveInstances", "SetInstancesProtection"), place.name, _UNTRIED)


def may_launch(place: Region, arguments: Mapping[str, str], version: str | None, *, fleet: str) -> Permission:
    """What the role `scale` needs, tried with a pool's own template."""
    call = "ecs:RunInstances"
    request = {**launch_request(place, arguments, _TOKEN, version, fleet=fleet), "DryRun": True}
    return _try_call(place, call, partial(place.acting.change, call, request, None))


def identity(place: Region) -> Identity:
    """Source: GetCallerIdentity, which needs no permission, and the Date of its answer."""
    call = "sts:GetCallerIdentity"
    answer, at = place.reading.ask_at(call, {})
    with reading(place.reading.name_call(call)):
        return Identity(name=answer["Arn"], at=at)


def quotas(place: Region) -> Iterator[Quota]:
    """The vCPUs that the account may have there, pay-as-you-go and spot. Source: DescribeAccountAttributes."""
    names = [*_QUOTAS, *_QUOTAS.values()]
    answer = place.reading.ask(_ATTRIBUTES, {"RegionId": place.region, "AttributeName": names})
    with reading(place.reading.name_call(_ATTRIBUTES)):
        told = {
            each["AttributeName"]: [float(one["Value"]) for one in each["AttributeValues"]["ValueItem"]]
            for each in answer["AccountAttributeItems"]["AccountAttributeItem"]
        }
    for name, used in _QUOTAS.items():
        if told.get(name):
            spent = max(told[used]) if told.get(used) else None
            yield Quota(name=name, region=place.region, limit=max(told[name]), used=spent, unit="vCPUs")


def _try_call(place: Region, call: str, ask: Callable[[], object]) -> Permission:
    """A read looks for what is not there, or with DryRun: RAM has been asked before that."""

    def allows(error: CloudError) -> bool:
        return call in _READS if isinstance(error, NotFoundError) else error.code in WOULD_DO

    return try_permission(_action(call), place.name, ask, allows=allows)


def _action(call: str) -> str:
    return call.partition(":")[2]


_LIST = "ram:ListAccessKeys"
_TIME = "%Y-%m-%dT%H:%M:%SZ"


def credentials(place: Region) -> Credentials:
    """Of the place's account. Sources: GetCallerIdentity; ListAccessKeys, which without a name is about who asks.

    Raises:
        CloudError: there are no credentials, or no answer names their user.

    """
    own, _, token = place.owner.key.proof()
    name = identity(place).name
    if token is not None:
        return Credentials(name=name, lasting=False)

    def keys() -> Iterator[AccessKey]:
        answer = place.reading.ask(_LIST, {})
        with reading(place.reading.name_call(_LIST)):
            for each in answer["AccessKeys"]["AccessKey"]:
                made = datetime.strptime(each["CreateDate"], _TIME).replace(tzinfo=UTC)
                if each["Status"] == "Active":
                    yield AccessKey(id=each["AccessKeyId"], made=made, ours=each["AccessKeyId"] == own)

    return of_lasting_key(name, _LIST, keys)
