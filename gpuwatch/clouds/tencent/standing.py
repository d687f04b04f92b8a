"""What Tencent Cloud says of our own standing: permissions, the clock, keys, quotas. Nothing is carried out.

Reads are tried by reading. Of the changes RunInstances alone has a DryRun; stop, start, end and tags cannot be tried.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuwatch.clouds import CloudError
from gpuwatch.clouds.keys import AccessKey, Credentials, of_lasting_key
from gpuwatch.clouds.permissions import (
    Identity,
    Needs,
    Permission,
    Quota,
    server_time,
    try_permission,
    untried_permission,
)
from gpuwatch.clouds.tencent.errors import asking
from gpuwatch.clouds.tencent.launches import request_of, template_of
from gpuwatch.clouds.tencent.places import Region
from gpuwatch.clouds.tencent.survey import at_beijing

_READS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "DescribeInstances": ("cvm", {"Limit": 1}),
    "DescribeInstanceTypeConfigs": ("cvm", {"Filters": [{"Name": "instance-type", "Values": ["S5.SMALL1"]}]}),
    "DescribeLaunchTemplates": ("cvm", {"Limit": 1}),
    "DescribeAccountQuota": ("cvm", {}),
    "DescribeAutoScalingGroups": ("as", {"Limit": 1}),
    "DescribeAutoScalingInstances": ("as", {"Limit": 1}),
    "DescribeLaunchConfigurations": ("as", {"Limit": 1}),
    "DescribeAutoScalingActivities": ("as", {"Limit": 1}),
    "DescribeExistedInstances": ("tke", {"Limit": 1}),
    "DescribeDisks": ("cbs", {"Limit": 1}),
    "DescribeSnapshots": ("cbs", {"Limit": 1}),
    "DescribeAddresses": ("vpc", {"Limit": 1}),
}
_ACTS = ("StopInstances", "StartInstances", "TagResources")
_OF_GROUPS = ("RemoveInstances", "SetInstancesProtection")
_NO_TRY = "Tencent Cloud has no way to try them"
_KEY = "gpuwatch-doctor"  # RunInstances' ClientToken of a launch that never is
_QUOTAS = {"PostPaidQuotaSet": "machines", "SpotPaidQuotaSet": "vCPUs"}


def may_read(place: Region) -> Iterator[Permission]:
    """What every role needs."""
    for call, (service, parameters) in _READS.items():
        yield _try_call(place, call, service, parameters)


def may_act(place: Region, needs: Needs) -> Permission:
    """What the role `reclaim` needs."""
    calls = [*_ACTS, *(("TerminateInstances",) if needs.terminate else ()), *(_OF_GROUPS if needs.groups else ())]
    return untried_permission(calls, place.name, _NO_TRY)


def may_launch(place: Region, arguments: Mapping[str, str], *, fleet: str) -> Permission:
    """What the role `scale` needs, tried with a pool's own template. Source: RunInstances with DryRun."""
    try:
        template = template_of(place.reading, arguments)
        request = request_of(place, template, arguments, _KEY, fleet=fleet)
    except CloudError as error:
        return untried_permission(("RunInstances",), place.name, str(error))
    return _try_call(place, "RunInstances", "cvm", {**request, "DryRun": True})


def identity(place: Region) -> Identity:
    """Source: GetCallerIdentity, and the Date of its answer."""
    answer = place.reading.ask("sts", "GetCallerIdentity")
    with asking(place.reading.name_call("GetCallerIdentity")):
        name = str(answer["Arn"])
    return Identity(name=name, at=server_time(place.reading.server_time("sts")))


def quotas(place: Region) -> Sequence[Quota]:
    """What of its limits the account has used in each zone. Source: DescribeAccountQuota.

    PostPaidQuotaSet counts machines that are paid by the hour, SpotPaidQuotaSet the vCPUs of spot machines.
    """
    call = "DescribeAccountQuota"
    answer = place.reading.ask("cvm", call)
    with asking(place.reading.name_call(call)):
        sets = answer["AccountQuotaOverview"]["AccountQuota"]
        return [
            Quota(
                name=f"{name} of {each['Zone']}",
                region=place.region,
                limit=float(each["TotalQuota"]),
                used=float(each["UsedQuota"]),
                unit=unit,
            )
            for name, unit in _QUOTAS.items()
            for each in sorted(sets.get(name) or (), key=lambda each: str(each["Zone"]))
        ]


def _try_call(place: Region, call: str, service: str, parameters: Mapping[str, Any]) -> Permission:
    return try_permission(call, place.name, lambda: place.reading.ask(service, call, **parameters))


_LIST = "ListAccessKeys"


def credentials(place: Region) -> Credentials:
    """Of the place's account. Sources: GetCallerIdentity; ListAccessKeys of CAM, without a name about who asks.

    Raises:
        CloudError: there are no credentials, or no answer names their user.

    """
    with asking("credentials"):
        own, _, token = place.signer.get_credential_info()
    name = identity(place).name
    if token:
        return Credentials(name=name, lasting=False)

    def keys() -> Iterator[AccessKey]:
        answer = place.reading.ask("cam", _LIST)
        with asking(place.reading.name_call(_LIST)):
            for each in answer["AccessKeys"] or ():
                made = at_beijing(each["CreateTime"])  # CAM writes them as its console shows them
                if each["Status"] == "Active":
                    yield AccessKey(id=each["AccessKeyId"], made=made, ours=each["AccessKeyId"] == own)

    return of_lasting_key(name, f"cam:{_LIST}", keys)
