"""Actions of CBS (disks), VPC (addresses and subnets), STS (who asks) and the tag service, on the fake's state."""

import re
from typing import Any

from tests.support.clouds.tencent.cvm import Parameters, page
from tests.support.clouds.tencent.state import Refusal, State, written

ACCOUNT = "100000000001"
_MACHINE = re.compile(r"qcs::cvm:(?P<region>[a-z-]+):uin/(?P<account>\d+):instance/(?P<id>ins-\w+)")
_KEY_LENGTH, _VALUE_LENGTH = 127, 255
_IDS = 100
_SIGNS = re.compile(r"[\w +\-=.:/@()\[\],;><]*")


class Others:
    """One region at a time."""

    def __init__(self, state: State) -> None:
        self.state = state

    def describe_disks(self, region: str, asked: Parameters) -> dict[str, Any]:
        """DescribeDisks."""
        shown: list[dict[str, Any]] = [
            {
                "DiskId": disk.id,
                "DiskType": disk.type,
                "DiskState": "UNATTACHED" if disk.machine is None else "ATTACHED",
                "DiskName": "",
                "DiskSize": disk.size,
                "DiskUsage": "DATA_DISK" if disk.machine is None else "SYSTEM_DISK",
                "DiskChargeType": "POSTPAID_BY_HOUR",
                "Encrypt": disk.encrypted,
                "InstanceId": disk.machine or "",
                "InstanceType": "" if disk.machine is None else "CVM",
                "CreateTime": "2026-01-01 00:00:00",
                "ThroughputPerformance": 0,
                "Placement": {"Zone": f"{region}-3", "ProjectId": 0},
                "Tags": [],
            }
            for disk in self.state.disks.values()
            if disk.region == region
        ]
        return page(shown, asked, "DiskSet")

    def describe_snapshots(self, region: str, asked: Parameters) -> dict[str, Any]:
        """DescribeSnapshots: `state.snapshots` are what differs from this one, by id."""
        usual: dict[str, Any] = {
            "Placement": {"Zone": f"{region}-3", "ProjectId": 0},
            "CopyFromRemote": False,
            "SnapshotState": "NORMAL",
            "IsPermanent": True,
            "SnapshotName": "",
            "DeadlineTime": "",
            "Percent": 100,
            "Images": [],
            "ShareReference": 0,
            "SnapshotType": "PRIVATE_SNAPSHOT",
            "DiskSize": 50,
            "DiskId": "disk-gone",
            "CopyingToRegions": [],
            "Encrypt": False,
            "CreateTime": "2026-01-02 02:04:05",
            "ImageCount": 0,
            "DiskUsage": "DATA_DISK",
            "Tags": [],
            "IsLocked": False,
        }
        shown = [
            {**usual, "SnapshotId": name, **more}
            for name, (place, more) in self.state.snapshots.items()
            if place == region
        ]
        return page(shown, asked, "SnapshotSet")

    def describe_addresses(self, region: str, asked: Parameters) -> dict[str, Any]:
        """DescribeAddresses."""
        shown: list[dict[str, Any]] = [
            {
                "AddressId": address.id,
                "AddressName": "",
                "AddressStatus": "UNBIND" if address.machine is None else "BIND",
                "AddressIp": "203.0.113.7",
                "InstanceId": address.machine,
                "AddressType": address.type,
                "CreatedTime": "2026-01-01T00:00:00Z",
                "InstanceType": None if address.machine is None else "CVM",
                "TagSet": [],
            }
            for address in self.state.addresses.values()
            if address.region == region
        ]
        return page(shown, asked, "AddressSet")

    def describe_subnets(self, region: str, asked: Parameters) -> dict[str, Any]:
        """DescribeSubnets."""
        shown: list[dict[str, Any]] = [
            {"VpcId": "vpc-1", "SubnetId": each, "SubnetName": each, "Zone": f"{region}-{each[-1]}"}
            for each in asked.get("SubnetIds", ())
            if each.startswith("subnet-zone")
        ]
        return {"TotalCount": len(shown), "SubnetSet": shown, "NextToken": ""}

    def describe_existed_instances(self, region: str, asked: Parameters) -> dict[str, Any]:
        """DescribeExistedInstances of TKE."""
        ids = asked.get("InstanceIds")
        assert ids is None or len(ids) <= _IDS, "the page of the call says 100"
        shown = [
            {
                "Usable": not each.cluster,
                "UnusableReason": "cvm aleady in other cluster" if each.cluster else "",  # as it is documented
                "AlreadyInCluster": each.cluster,
                "InstanceId": each.id,
                "InstanceName": each.name,
                "PrivateIpAddresses": ["10.0.0.5"],
                "PublicIpAddresses": None,
                "CreatedTime": written(each.made_at),
                "CPU": 8,
                "Memory": 40,
                "OsName": "Ubuntu Server 22.04 LTS 64bit",
                "InstanceType": each.type,
                "AutoscalingGroupId": "",
                "InstanceChargeType": each.charge,
                "IPv6Addresses": None,
            }
            for each in self.state.machines.values()
            if each.region == region and (ids is None or each.id in ids)
        ]
        return page(shown, asked, "ExistedInstanceSet")

    def get_caller_identity(self, region: str, asked: Parameters) -> dict[str, Any]:
        """GetCallerIdentity."""
        del region, asked
        return {
            "Arn": f"qcs::cam:{ACCOUNT}:uin/100000000002",
            "AccountId": ACCOUNT,
            "UserId": "100000000002",
            "PrincipalId": "100000000002",
            "Type": "CAMUser",
        }

    def get_monitor_data(self, region: str, asked: Parameters) -> dict[str, Any]:
        """GetMonitorData: a busy CPU, GPUs at a quarter; of a machine that is not there no values."""
        points = []
        for instance in asked["Instances"]:
            (dimension,) = instance["Dimensions"]
            there = self.state.machines.get(dimension["Value"])
            own = there is not None and there.region == region
            mean = {"BaseCpuUsage": 50.0, "GpuUtil": 25.0}[asked["MetricName"]]
            points.append(
                {
                    "Dimensions": [dimension],
                    "Timestamps": [1767225600.0] if own else [],
                    "Values": [],
                    "AvgValues": [mean] if own else [],
                    "MaxValues": [2 * mean] if own else [],
                }
            )
        return {
            "StartTime": asked["StartTime"],
            "EndTime": asked["EndTime"],
            "Period": asked["Period"],
            "MetricName": asked["MetricName"],
            "DataPoints": points,
            "Msg": "",
        }

    def tag_resources(self, region: str, asked: Parameters) -> dict[str, Any]:
        """TagResources."""
        del region  # the tag service knows all of them
        failed = []
        for tag in asked["Tags"]:
            _check("Key", tag["TagKey"], _KEY_LENGTH)
            _check("Value", tag["TagValue"], _VALUE_LENGTH)
        for name in asked["ResourceList"]:
            found = _MACHINE.fullmatch(name)
            machine = None if found is None else self.state.machines.get(found["id"])
            if found is None or machine is None or (machine.region, ACCOUNT) != (found["region"], found["account"]):
                failed.append({"Resource": name, "Code": "InvalidParameterValue.ResourceIdInvalid", "Message": "why"})
            else:
                machine.tags |= {tag["TagKey"]: tag["TagValue"] for tag in asked["Tags"]}
        return {"FailedResources": failed}


class AccessKeys:
    """Actions of CAM, which is of no region."""

    def __init__(self, state: State) -> None:
        self.state = state

    def list_access_keys(self, region: str, asked: Parameters) -> dict[str, Any]:
        """ListAccessKeys of the user that asks; CAM gives null where there is none."""
        del region
        assert not asked, "of no other user"
        shown = [
            {"AccessKeyId": key_id, "Status": status, "CreateTime": made, "Description": None}
            for key_id, (status, made) in self.state.access_keys.items()
        ]
        return {"AccessKeys": shown or None}


def _check(part: str, text: str, most: int) -> None:
    if len(text) > most:
        raise Refusal(f"InvalidParameterValue.Tag{part}LengthExceeded")
    if not _SIGNS.fullmatch(text):
        raise Refusal(f"InvalidParameterValue.Tag{part}CharacterIllegal")
