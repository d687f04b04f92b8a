"""What else of Alibaba Cloud the fake knows: disks, addresses, regions, quotas, prices, who we are."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from tests.support.clouds.alibaba.errors import Refusal
from tests.support.clouds.alibaba.pages import page_of, values
from tests.support.clouds.alibaba.state import ACCOUNT, TYPES, State


def disks(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DescribeDisks."""
    del now
    if query.get("DryRun") == "true":
        raise Refusal(400, "DryRunOperation", "Request validation has been passed with DryRun flag set.")
    found: list[dict[str, Any]] = [
        {
            "DiskId": each.id,
            "DiskName": "",
            "RegionId": each.region,
            "Category": each.category,
            "PerformanceLevel": each.level,
            "Size": each.size_gib,
            "Status": "In_use" if each.machine else "Available",
            "InstanceId": each.machine or "",
            "ZoneId": f"{each.region}-b",
            "ImageId": "" if each.machine is None else "ubuntu_22_04_x64_20G",
            "CreationTime": "2026-01-01T00:00:00Z",
            "OperationLocks": {"OperationLock": []},
            "Encrypted": each.encrypted,
        }
        for each in state.disks.values()
        if each.region == query["RegionId"]
    ]
    page, told = page_of(found, query, largest=500)
    return {"Disks": {"Disk": page}, **told}


def snapshots(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DescribeSnapshots."""
    del now
    if query.get("DryRun") == "true":
        raise Refusal(400, "DryRunOperation", "Request validation has been passed with DryRun flag set.")
    found = [
        {
            "SnapshotId": each.id,
            "SnapshotName": "",
            "RegionId": each.region,
            "SourceDiskId": each.disk,
            "SourceDiskSize": "40",
            "Status": "accomplished",
            "Usage": each.usage,
            "CreationTime": "2026-01-02T03:04:05Z",
        }
        for each in state.snapshots.values()
        if each.region == query["RegionId"]
    ]
    page, told = page_of(found, query, largest=100)
    return {"Snapshots": {"Snapshot": page}, **told}


def images(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DescribeImages: those of the account."""
    del now
    assert query["ImageOwnerAlias"] == "self", "others' images are many"
    if query.get("DryRun") == "true":
        raise Refusal(400, "DryRunOperation", "Request validation has been passed with DryRun flag set.")
    found: list[dict[str, Any]] = [
        {
            "ImageId": each.id,
            "ImageName": f"name of {each.id}",
            "ImageOwnerAlias": "self",
            "CreationTime": each.made,
            "Size": 40,
            "Status": "Available",
            "Usage": each.usage,
            "IsPublic": False,
            "Tags": {"Tag": []},
            "IsSelfShared": "True" if each.shared else "",
        }
        for each in state.images.values()
        if each.region == query["RegionId"]
    ]
    page, told = page_of(found, query, largest=100)
    return {"Images": {"Image": page}, **told}


def templates(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DescribeLaunchTemplates."""
    del now
    found = [
        {"LaunchTemplateId": each.id, "LaunchTemplateName": each.name, "LatestVersionNumber": len(each.types)}
        for each in state.templates.values()
        if each.region == query["RegionId"]
    ]
    page, told = page_of(found, query, largest=50)
    return {"LaunchTemplateSets": {"LaunchTemplateSet": page}, **told}


def addresses(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DescribeEipAddresses of VPC."""
    del now
    found = [
        {
            "AllocationId": each.id,
            "IpAddress": "203.0.113.7",
            "Name": "",
            "RegionId": each.region,
            "Status": "InUse" if each.machine else "Available",
            "InstanceId": each.machine or "",
            "InstanceType": "EcsInstance" if each.machine else "",
        }
        for each in state.addresses.values()
        if each.region == query["RegionId"]
    ]
    page, told = page_of(found, query, largest=100)
    return {"EipAddresses": {"EipAddress": page}, **told}


def regions(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DescribeRegions."""
    del query, now
    return {"Regions": {"Region": [{"RegionId": each, "LocalName": each} for each in state.regions]}}


def attributes(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DescribeAccountAttributes."""
    del now
    names = values(query, "AttributeName")
    told = [
        {"AttributeName": name, "AttributeValues": {"ValueItem": [{"Value": state.vcpus[name]}]}}
        for name in names
        if name in state.vcpus
    ]
    return {"AccountAttributeItems": {"AccountAttributeItem": told}}


def identity(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """GetCallerIdentity."""
    del state, query, now
    return {"AccountId": ACCOUNT, "Arn": f"acs:ram::{ACCOUNT}:user/gpuwatch", "IdentityType": "RAMUser", "UserId": "2"}


def access_keys(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """ListAccessKeys of the user that asks."""
    del now
    assert not query, "of no other user"
    told = [
        {"AccessKeyId": name, "Status": status, "CreateDate": made}
        for name, (status, made) in state.access_keys.items()
    ]
    return {"AccessKeys": {"AccessKey": told}}


def price(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DescribePrice: the parts of an hour."""
    del state, now
    if query["InstanceType"] not in TYPES:
        raise Refusal(400, "InvalidInstanceType.ValueNotSupported", "The specified InstanceType is not supported.")
    parts = (("bandwidth", 0.0), ("image", 0.0), ("instanceType", 34.742), ("systemDisk", 0.06))
    told = [{"Resource": name, "OriginalPrice": 50.0, "TradePrice": paid} for name, paid in parts]
    return {"PriceInfo": {"Price": {"Currency": "CNY", "TradePrice": 34.802, "DetailInfos": {"DetailInfo": told}}}}


def spot_prices(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DescribeSpotPriceHistory: two zones, in two pages."""
    del state
    zones = [("b", 9.9, 2), ("c", 11.5, 3)] if query.get("Offset", "0") == "0" else [("b", 10.2, 1)]
    told = [
        {
            "ZoneId": f"{query['RegionId']}-{zone}",
            "InstanceType": query["InstanceType"],
            "SpotPrice": paid,
            "Timestamp": (now - timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        for zone, paid, hours in zones
    ]
    more = {"NextOffset": 2} if query.get("Offset", "0") == "0" else {}
    return {"Currency": "CNY", "SpotPrices": {"SpotPriceType": told}, **more}


def metrics(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DescribeMetricList of CloudMonitor: the last two hours, a point for each of a running machine.

    `state.use` has what was measured: the mean and the highest of each metric, in per cent.
    """
    del now
    begin, end, hour = int(query["StartTime"]), int(query["EndTime"]), int(query["Period"]) * 1000
    if not 0 < end - begin <= timedelta(days=31).total_seconds() * 1000:
        raise Refusal(400, "InvalidParameter", "The interval must be up to 31 days.")
    ids = [each["instanceId"] for each in json.loads(query["Dimensions"])]
    if len(ids) > 50 or not 0 < int(query["Length"]) <= 1440:
        raise Refusal(400, "ParameterInvalid", "Too many resources, or too long a page.")
    points = [
        {
            "timestamp": end - step * hour,
            "userId": ACCOUNT,
            "instanceId": each,
            "Average": state.use[query["MetricName"]][0],
            "Maximum": state.use[query["MetricName"]][1],
        }
        for each in ids
        for step in (2, 1)
        if each in state.machines and state.machines[each].region == query["RegionId"]
    ]
    first, size = int(query.get("NextToken", "0")), min(int(query["Length"]), state.points_a_page)
    more = {"NextToken": str(first + size)} if first + size < len(points) else {}
    page = json.dumps(points[first : first + size])
    return {"Code": "200", "Success": True, "Period": query["Period"], "Datapoints": page, **more}


HANDLERS: dict[str, Callable[[State, Mapping[str, str], datetime], dict[str, Any]]] = {
    "DescribeDisks": disks,
    "DescribeImages": images,
    "DescribeLaunchTemplates": templates,
    "DescribeMetricList": metrics,
    "DescribeEipAddresses": addresses,
    "DescribeSnapshots": snapshots,
    "DescribeRegions": regions,
    "DescribeAccountAttributes": attributes,
    "GetCallerIdentity": identity,
    "ListAccessKeys": access_keys,
    "DescribePrice": price,
    "DescribeSpotPriceHistory": spot_prices,
}
