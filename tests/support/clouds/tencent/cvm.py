"""CVM's actions on the fake's state. A refusal has the code that the real cloud documents for it."""

from collections.abc import Mapping
from typing import Any

from tests.support.clouds.tencent.state import TYPES, Machine, Refusal, State, written

_ALLOWED_VALUES = {"DescribeInstances": 5, "DescribeInstanceTypeConfigs": 1, "DescribeLaunchTemplates": 5}
_FILTERS = 10
_IDS = 100
_LIMIT = 100
REGIONS = ("ap-beijing", "ap-guangzhou", "ap-shanghai", "na-siliconvalley")

Parameters = Mapping[str, Any]


def page(found: list[Any], asked: Parameters, items: str) -> dict[str, Any]:
    """A part of a list by Offset and Limit."""
    offset, limit = int(asked.get("Offset", 0)), int(asked.get("Limit", 20))
    if not 0 < limit <= _LIMIT:
        raise Refusal("InvalidParameterValueLimit", "Limit is out of range")
    return {"TotalCount": len(found), items: found[offset : offset + limit]}


def filters(asked: Parameters, action: str, *, values: int = 100) -> dict[str, list[str]]:
    """The filters of a request by their names, within their limits."""
    given = asked.get("Filters", [])
    most = _ALLOWED_VALUES.get(action, values)
    if len(given) > _FILTERS or any(len(each["Values"]) > most for each in given):
        raise Refusal("InvalidFilterValue.LimitExceeded", "too many values")
    return {each["Name"]: each["Values"] for each in given}


class Cvm:
    """One region at a time: `region` is that of the request."""

    def __init__(self, state: State) -> None:
        self.state = state

    def describe_instances(self, region: str, asked: Parameters) -> dict[str, Any]:
        """DescribeInstances."""
        found = sorted(
            (each for each in self.state.machines.values() if each.region == region),
            key=lambda each: each.id,
            reverse=True,
        )
        ids = asked.get("InstanceIds")
        if ids is not None:
            if len(ids) > _IDS:
                raise Refusal("InvalidParameterValueLimit")
            if "Filters" in asked:
                raise Refusal("InvalidParameterCombination")
            found = [each for each in found if each.id in ids]
        for name, values in filters(asked, "DescribeInstances").items():
            if name == "instance-id":
                found = [each for each in found if each.id in values]
            elif name == "instance-name":
                found = [each for each in found if any(value in each.name for value in values)]
            else:
                raise Refusal("InvalidFilter", name)
        return page([described(each) for each in found], asked, "InstanceSet")

    def describe_instance_type_configs(self, region: str, asked: Parameters) -> dict[str, Any]:
        """DescribeInstanceTypeConfigs."""
        wanted = filters(asked, "DescribeInstanceTypeConfigs").get("instance-type")
        return {
            "InstanceTypeConfigSet": [
                {
                    "Zone": f"{region}-{zone}",
                    "InstanceType": name,
                    "InstanceFamily": name.partition(".")[0],
                    "GPU": int(gpus),
                    "CPU": cpus,
                    "Memory": memory,
                    "FPGA": 0,
                    "GpuCount": gpus,
                    "GpuType": maker,
                }
                for name, (cpus, memory, gpus, maker) in TYPES.items()
                for zone in (3, 4)
                if wanted is None or name in wanted
            ]
        }

    def stop_instances(self, region: str, asked: Parameters) -> dict[str, Any]:
        """StopInstances."""
        for machine in self._those(region, asked):
            self._in_state(machine, {"RUNNING"})
            mode = asked.get("StoppedMode", "KEEP_CHARGING")
            able = machine.charge == "POSTPAID_BY_HOUR" and not any(
                disk.startswith("LOCAL_") for disk in machine.disk_types
            )
            if mode == "STOP_CHARGING" and not able:
                raise Refusal("UnsupportedOperation.StoppedModeStopCharging", "it does not stop charging")
            machine.stopped_mode = mode
            self.state.become(machine, "STOPPING", "StopInstances")
        return {}

    def start_instances(self, region: str, asked: Parameters) -> dict[str, Any]:
        """StartInstances."""
        for machine in self._those(region, asked):
            self._in_state(machine, {"STOPPED"})
            machine.stopped_mode = "NOT_APPLICABLE"
            self.state.become(machine, "STARTING", "StartInstances")
        return {}

    def terminate_instances(self, region: str, asked: Parameters) -> dict[str, Any]:
        """TerminateInstances."""
        for machine in self._those(region, asked):
            self._in_state(machine, {"RUNNING", "STOPPED", "PENDING", "STARTING", "STOPPING"})
            if machine.protected:
                raise Refusal("UnsupportedOperation.InstancesProtected", "it is protected")
            after = "SHUTDOWN" if machine.charge == "PREPAID" else "TERMINATING"
            self.state.become(machine, after, "TerminateInstances")
        return {}

    def run_instances(self, region: str, asked: Parameters) -> dict[str, Any]:
        """RunInstances."""
        named = asked["LaunchTemplate"]
        template = self.state.templates.get(named["LaunchTemplateId"])
        if template is None or template.region != region:
            raise Refusal("InvalidParameterValue.LaunchTemplateIdNotExisted", "there is no such template")
        data = {**template.versions[named["LaunchTemplateVersion"] - 1], **asked}
        again = next((each for each in self.state.machines.values() if each.token == asked["ClientToken"]), None)
        if again is not None:
            return {"InstanceIdSet": [again.id]}
        if asked.get("DryRun"):
            return {"InstanceIdSet": []}
        made = self.state.add_machine(
            region,
            data["InstanceType"],
            state="PENDING",
            name=data["InstanceName"],
            token=asked["ClientToken"],
            charge=data.get("InstanceChargeType", "POSTPAID_BY_HOUR"),
            zone=data["Placement"]["Zone"],
            tags={tag["Key"]: tag["Value"] for each in data.get("TagSpecification", ()) for tag in each["Tags"]},
        )
        return {"InstanceIdSet": [made.id]}

    def describe_launch_templates(self, region: str, asked: Parameters) -> dict[str, Any]:
        """DescribeLaunchTemplates."""
        found = [each for each in self.state.templates.values() if each.region == region]
        if "LaunchTemplateIds" in asked:
            found = [each for each in found if each.id in asked["LaunchTemplateIds"]]
        names = filters(asked, "DescribeLaunchTemplates").get("LaunchTemplateName")
        if names is not None:
            found = [each for each in found if any(name in each.name for name in names)]
        shown = [
            {
                "LatestVersionNumber": len(each.versions),
                "LaunchTemplateId": each.id,
                "LaunchTemplateName": each.name,
                "DefaultVersionNumber": 1,
                "LaunchTemplateVersionCount": len(each.versions),
                "CreatedBy": "100000000001",
                "CreationTime": "2026-01-01T00:00:00Z",
            }
            for each in found
        ]
        return page(shown, asked, "LaunchTemplateSet")

    def describe_images(self, region: str, asked: Parameters) -> dict[str, Any]:
        """DescribeImages: those of the account."""
        assert filters(asked, "DescribeImages") == {"image-type": ["PRIVATE_IMAGE"]}, "others' images are many"
        shown = [
            {
                "ImageId": name,
                "OsName": "Ubuntu Server 22.04 LTS 64bit",
                "ImageType": "PRIVATE_IMAGE",
                "CreatedTime": made,
                "ImageName": name,
                "ImageDescription": "",
                "ImageSize": 50,
                "ImageState": "NORMAL",
                "SnapshotSet": [{"SnapshotId": f"snap-of-{name}", "DiskUsage": "SYSTEM_DISK", "DiskSize": 50}],
                "Tags": [],
                "ImageCreator": "100000000001",
            }
            for name, (where, made) in self.state.images.items()
            if where == region
        ]
        return page(shown, asked, "ImageSet")

    def describe_launch_template_versions(self, region: str, asked: Parameters) -> dict[str, Any]:
        """DescribeLaunchTemplateVersions."""
        template = self.state.templates.get(asked["LaunchTemplateId"])
        if template is None or template.region != region:
            raise Refusal("InvalidParameterValue.LaunchTemplateIdNotExisted", "there is no such template")
        numbers = [1] if asked.get("DefaultVersion") else asked.get("LaunchTemplateVersions")
        if numbers is not None and max(numbers) > len(template.versions):
            raise Refusal("InvalidParameterValue.LaunchTemplateIdVerNotExisted", "there is no such version")
        shown = [
            {
                "LaunchTemplateVersion": number,
                "LaunchTemplateVersionData": data,
                "CreationTime": "2026-01-01T00:00:00Z",
                "LaunchTemplateId": template.id,
                "IsDefaultVersion": number == 1,
                "LaunchTemplateVersionDescription": "",
                "CreatedBy": "100000000001",
            }
            for number, data in enumerate(template.versions, 1)
            if numbers is None or number in numbers
        ]
        return page(shown, asked, "LaunchTemplateVersionSet")

    def describe_account_quota(self, region: str, asked: Parameters) -> dict[str, Any]:
        """DescribeAccountQuota."""
        del asked
        zone = f"{region}-3"
        used = [each for each in self.state.machines.values() if each.region == region]
        hourly, spot = ([each for each in used if each.charge == charge] for charge in ("POSTPAID_BY_HOUR", "SPOTPAID"))
        vcpus = sum(TYPES[each.type][0] for each in spot)
        overview = {
            "Region": region,
            "AccountQuota": {
                "PostPaidQuotaSet": [_quota(len(hourly), 288, zone)],
                "PrePaidQuotaSet": [{**_quota(0, 255, zone), "OnceQuota": 300}],
                "SpotPaidQuotaSet": [_quota(vcpus, 244, zone)],
                "ImageQuotaSet": [{"UsedQuota": 0, "TotalQuota": 10}],
                "DisasterRecoverGroupQuotaSet": [],
            },
        }
        return {"AppId": 251007416, "AccountQuotaOverview": overview}

    def describe_regions(self, region: str, asked: Parameters) -> dict[str, Any]:
        """DescribeRegions."""
        del region, asked
        shown = [{"Region": each, "RegionName": f"({each})", "RegionState": "AVAILABLE"} for each in REGIONS] + [
            {"Region": "ap-closed", "RegionName": "(closed)", "RegionState": "UNAVAILABLE"}
        ]
        return {"TotalCount": len(shown), "RegionSet": shown}

    def _those(self, region: str, asked: Parameters) -> list[Machine]:
        found = []
        for node_id in asked["InstanceIds"]:
            machine = self.state.machines.get(node_id)
            if machine is None or machine.region != region:
                raise Refusal("InvalidInstanceId.NotFound", f"there is no {node_id}")
            found.append(machine)
        return found

    @staticmethod
    def _in_state(machine: Machine, allowed: set[str]) -> None:
        if machine.state not in allowed:
            word = machine.state.capitalize()
            raise Refusal(f"UnsupportedOperation.InstanceState{word}", f"it is {machine.state}")


def _quota(used: int, total: int, zone: str) -> dict[str, Any]:
    return {"UsedQuota": used, "RemainingQuota": total - used, "TotalQuota": total, "Zone": zone}


def described(machine: Machine) -> dict[str, Any]:
    """A machine as DescribeInstances shows it."""
    cpus, memory, gpus, maker = TYPES.get(machine.type, (4, 8, 0.0, ""))
    passing = machine.state in {"STOPPING", "STARTING", "PENDING", "TERMINATING"}
    off = machine.state == "STOPPED"
    shown: dict[str, Any] = {
        "Placement": {"Zone": machine.zone, "ProjectId": 0},
        "InstanceId": machine.id,
        "InstanceType": machine.type,
        "CPU": cpus,
        "Memory": memory,
        "RestrictState": "NORMAL",
        "InstanceName": machine.name,
        "InstanceChargeType": machine.charge,
        "SystemDisk": {"DiskType": machine.disk_types[0], "DiskId": f"disk-{machine.id[4:]}", "DiskSize": 50},
        "DataDisks": [{"DiskType": kind, "DiskId": "", "DiskSize": 100} for kind in machine.disk_types[1:]],
        "PrivateIpAddresses": ["10.0.0.5"],
        "PublicIpAddresses": None,
        "ImageId": "img-8toqc6s3",
        "RenewFlag": None if machine.charge != "PREPAID" else "NOTIFY_AND_MANUAL_RENEW",
        "CreatedTime": written(machine.made_at),
        "ExpiredTime": None,
        "OsName": "Ubuntu Server 22.04 LTS 64bit",
        "InstanceState": machine.state,
        "Tags": [{"Key": key, "Value": value} for key, value in machine.tags.items()],
        "StopChargingMode": machine.stopped_mode if off else "NOT_APPLICABLE",
        "Uuid": f"uuid-{machine.id}",
        "LatestOperation": machine.operation,
        "LatestOperationRequestId": machine.request,
        "LatestOperationState": "OPERATING" if passing else "SUCCESS",
        "IsolatedSource": "NOTISOLATED",
        "DisableApiTermination": machine.protected,
    }
    if gpus:
        shown["GPUInfo"] = {"GPUCount": gpus, "GPUId": [], "GPUType": maker}
    shown |= machine.overrides
    return {key: value for key, value in shown.items() if key not in machine.overrides or value is not None}
