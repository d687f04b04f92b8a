"""What Alibaba Cloud says of our own standing: permissions by DryRun, the clock, keys, quotas. Nothing is carried out.

With DryRun, ECS answers a call that it would carry out with the error DryRunOperation. TagResources and the calls of
ESS have no DryRun: they are not tried at all.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial

from gpuwatch.clouds import AuthFailedError, CloudError, NotFoundError
from gpuwatch.clouds.alibaba.actions import launch_request
from gpuwatch.clouds.alibaba.billing import STOP_CHARGING
from gpuwatch.clouds.alibaba.errors import reading
from gpuwatch.clouds.alibaba.places import Region
from gpuwatch.clouds.keys import AccessKey, Credentials
from gpuwatch.clouds.permissions import Identity, Permission, Quota

_WOULD_DO = ("DryRunOperation", "DRYRUN.SUCCESS")
_TOKEN = "gpuwatch-doctor"  # noqa: S105  RunInstances' ClientToken of a may_launch that never is

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
        yield _tried(place, call, partial(place.reading.ask, call, {**region, **asked}))


def may_act(place: Region, node_id: str | None, *, terminate: bool) -> Iterator[Permission]:
    """What the role `reclaim` needs, tried on one of the fleet's own machines; without one nothing can be tried."""
    calls = {**_ACTS, **(_ENDS if terminate else {})}
    if node_id is None:
        reason = "the fleet has no enrolled, unprotected machine there to try it on"
        yield Permission(call=", ".join(map(_action, calls)), where=place.name, allowed=None, reason=reason)
        return
    for call, asked in calls.items():
        request = {"InstanceId": node_id, **asked, "DryRun": True}
        yield _tried(place, call, partial(place.acting.change, call, request, None))
    yield Permission(call="TagResources", where=place.name, allowed=None, reason=_UNTRIED)


def may_change_groups(place: Region) -> Iterator[Permission]:
    """What the roles `reclaim` and `shield` need for members of groups."""
    calls = "RemoveInstances, SetInstancesProtection"
    yield Permission(call=calls, where=place.name, allowed=None, reason=_UNTRIED)


def may_launch(place: Region, arguments: Mapping[str, str], version: str | None, *, fleet: str) -> Permission:
    """What the role `scale` needs, tried with a pool's own template."""
    call = "ecs:RunInstances"
    request = {**launch_request(place, arguments, _TOKEN, version, fleet=fleet), "DryRun": True}
    return _tried(place, call, partial(place.acting.change, call, request, None))


def identity(place: Region) -> Identity:
    """Source: GetCallerIdentity, which needs no permission, and the Date of its answer."""
    call = "sts:GetCallerIdentity"
    answer, at = place.reading.ask_at(call, {})
    with reading(place.reading.asked(call)):
        return Identity(name=answer["Arn"], at=at)


def quotas(place: Region) -> Iterator[Quota]:
    """The vCPUs that the account may have there, pay-as-you-go and spot. Source: DescribeAccountAttributes."""
    names = [*_QUOTAS, *_QUOTAS.values()]
    answer = place.reading.ask(_ATTRIBUTES, {"RegionId": place.region, "AttributeName": names})
    with reading(place.reading.asked(_ATTRIBUTES)):
        told = {
            each["AttributeName"]: [float(one["Value"]) for one in each["AttributeValues"]["ValueItem"]]
            for each in answer["AccountAttributeItems"]["AccountAttributeItem"]
        }
    for name, used in _QUOTAS.items():
        if told.get(name):
            spent = max(told[used]) if told.get(used) else None
            yield Quota(name=name, region=place.region, limit=max(told[name]), used=spent, unit="vCPUs")


def _tried(place: Region, call: str, ask: Callable[[], object]) -> Permission:
    """What the answer says of the permission; any other error says nothing of it."""
    try:
        ask()
    except AuthFailedError as error:
        return Permission(call=_action(call), where=place.name, allowed=False, reason=error.code)
    except NotFoundError as error:
        # A read looks for what is not there; RAM has been asked before that.
        allowed = True if call in _READS else None
        return Permission(call=_action(call), where=place.name, allowed=allowed, reason=str(error))
    except CloudError as error:
        allowed = True if error.code in _WOULD_DO else None
        return Permission(call=_action(call), where=place.name, allowed=allowed, reason=str(error))
    return Permission(call=_action(call), where=place.name, allowed=True)


def _action(call: str) -> str:
    return call.partition(":")[2]


_LIST = "ram:ListAccessKeys"
_TIME = "%Y-%m-%dT%H:%M:%SZ"


def credentials(place: Region) -> Credentials:
    """Of the place's account. Sources: GetCallerIdentity; ListAccessKeys, which without a name is about who asks.

    Raises:
        CloudError: there are no credentials, or no answer names their user.

    """
    own, _, token = place.owner.key()
    name = identity(place).name
    if token is not None:
        return Credentials(name=name, lasting=False)
    try:
        answer = place.reading.ask(_LIST, {})
        with reading(place.reading.asked(_LIST)):
            keys = tuple(
                AccessKey(
                    id=each["AccessKeyId"],
                    made=datetime.strptime(each["CreateDate"], _TIME).replace(tzinfo=UTC),
                    ours=each["AccessKeyId"] == own,
                )
                for each in answer["AccessKeys"]["AccessKey"]
                if each["Status"] == "Active"
            )
    except CloudError as error:
        missing = f"{_LIST} is not allowed" if isinstance(error, AuthFailedError) else str(error)
        return Credentials(name=name, lasting=True, unknown=missing)
    return Credentials(name=name, lasting=True, keys=keys)
