"""ECS of the fake: instances, as their pages in Alibaba's reference describe them."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from tests.support.clouds.alibaba.errors import Refusal, missing
from tests.support.clouds.alibaba.pages import page_of, tags, values
from tests.support.clouds.alibaba.state import TYPES, Machine, State

_ON = ("Running",)


def describe_instances(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DescribeInstances."""
    del now
    region = _needed(query, "RegionId")
    if region not in state.regions:
        raise Refusal(404, "InvalidRegionId.NotFound", "The specified RegionId does not exist.")
    found = [machine for machine in state.machines.values() if machine.region == region]
    if "InstanceIds" in query:
        wanted = json.loads(query["InstanceIds"])
        if not 0 < len(wanted) <= 100:
            raise Refusal(400, "InvalidParameter.InstanceIds", "The specified InstanceIds is not valid.")
        found = [machine for machine in found if machine.id in wanted]
    if "InstanceName" in query:
        found = [machine for machine in found if machine.name == query["InstanceName"]]
    _dry(query)
    page, told = page_of(found, query, largest=100)
    return {"Instances": {"Instance": [_described(machine) for machine in page]}, **told}


def describe_instance_attribute(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DescribeInstanceAttribute."""
    del now
    machine = _machine(state, query)
    return {"InstanceId": machine.id, "Status": machine.status, "RegionId": machine.region}


def _described(machine: Machine) -> dict[str, Any]:
    gpus, spec, disks = TYPES[machine.type]
    told = {
        "InstanceId": machine.id,
        "InstanceName": machine.name,
        "HostName": machine.name,
        "RegionId": machine.region,
        "ZoneId": f"{machine.region}-b",
        "Status": machine.status,
        "StoppedMode": machine.stopped_mode,
        "InstanceType": machine.type,
        "ImageId": "ubuntu_22_04_x64_20G",
        "EipAddress": {"IpAddress": "", "AllocationId": "", "InternetChargeType": ""},
        "InstanceTypeFamily": machine.type.rpartition(".")[0],
        "InstanceChargeType": machine.charge,
        "InstanceNetworkType": machine.network,
        "SpotStrategy": machine.spot,
        "GPUAmount": gpus,
        "GPUSpec": spec,
        "CreationTime": _time(machine.made_at),
        "StartTime": _time(machine.started_at),
        "ExpiredTime": "2027-01-31T16:00Z" if machine.charge == "PrePaid" else "2099-12-31T15:59Z",
        "DeletionProtection": machine.protected,
        "OperationLocks": {"LockReason": [{"LockReason": each} for each in machine.locks]},
        "VpcAttributes": {"PrivateIpAddress": {"IpAddress": [f"10.0.0.{int(machine.id[-3:]) % 250 + 1}"]}},
        "DedicatedHostAttribute": {"DedicatedHostId": machine.host, "DedicatedHostName": ""},
        "EcsCapacityReservationAttr": {
            "CapacityReservationId": machine.reservation,
            "CapacityReservationPreference": "",
        },
    }
    if disks:
        told |= {"LocalStorageAmount": disks, "LocalStorageCapacity": 440}
    if machine.tags:  # an instance without tags has no such member
        told["Tags"] = {"Tag": [{"TagKey": key, "TagValue": value} for key, value in machine.tags.items()]}
    return told


def stop(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """StopInstance: it passes through Stopping, and what cannot be economical is stopped all the same."""
    machine = _machine(state, query)
    if any(lock != "Recycling" for lock in machine.locks):
        raise Refusal(403, "InstanceLockedForSecurity", "The instance is locked due to security.")
    _refuse_unless(machine.status in _ON and not machine.locks)
    _dry(query)
    assert query.get("ForceStop", "false") == "false", "nobody here cuts the power"
    machine.status, machine.stop_mode_asked = "Stopping", query.get("StoppedMode", "KeepCharging")
    machine.next = (state.soon(now), "Stopped")
    return {}


def start(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """StartInstance."""
    machine = _machine(state, query)
    _refuse_unless(machine.status == "Stopped" and machine.next is None)
    _dry(query)
    machine.status, machine.stopped_mode = "Starting", "Not-applicable"
    machine.started_at = now.replace(second=0, microsecond=0)
    machine.next = (state.soon(now), "Running")
    return {}


def delete(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DeleteInstance: a running machine only with Force; without ForceStop after its own shutdown."""
    machine = _machine(state, query)
    if machine.protected:
        text = "The operation is not allowed due to deletion protection."
        raise Refusal(403, "InvalidOperation.DeletionProtection", text)
    if machine.charge == "PrePaid":
        raise Refusal(403, "ChargeTypeViolation", "The operation is not permitted due to charge type of the instance.")
    going = machine.next is not None and machine.next[1] is None
    force = query.get("Force") == "true"
    _refuse_unless(not going and (machine.status == "Stopped" or (force and machine.status in _ON)))
    _dry(query)
    assert query.get("ForceStop", "true") == "false", "nobody here cuts the power"
    if machine.status in _ON:
        machine.status = "Stopping"
    machine.next = (state.soon(now), None)
    return {}


def run(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """RunInstances: one machine; a ClientToken is good for one request."""
    region, token = _needed(query, "RegionId"), _needed(query, "ClientToken")
    written = json.dumps(sorted(query.items()))
    assert query.get("Amount") == "1", "one machine a call"
    if token in state.launched and "DryRun" not in query:
        before, node_id = state.launched[token]
        if before != written:
            text = "The request uses the same client token as a previous, but non-identical request."
            raise Refusal(400, "IdempotentParameterMismatch", text)
        return {"InstanceIdSets": {"InstanceIdSet": [node_id]}}
    found = [each for each in _templates(state, query) if each.region == region]
    if not found:
        raise Refusal(404, "InvalidLaunchTemplate.NotFound", "The specified launch template does not exist.")
    _dry(query)
    version = int(query.get("LaunchTemplateVersion", "1"))
    kind = query.get("InstanceType") or found[0].types[version - 1]
    machine = state.add_machine(region, kind, tags(query), now, name=query["InstanceName"])
    machine.spot, machine.reservation = found[0].spot, found[0].reservation
    state.launched[token] = (written, machine.id)
    return {"InstanceIdSets": {"InstanceIdSet": [machine.id]}}


def tag(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """TagResources."""
    del now
    assert query["ResourceType"] == "instance"
    names = values(query, "ResourceId")
    if any(name not in state.machines for name in names):
        raise Refusal(404, "InvalidResourceId.NotFound", "The specified ResourceIds are not found in our records.")
    for name in names:
        state.machines[name].tags |= tags(query)
    return {}


def describe_types(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DescribeInstanceTypes: types that are not there are left out."""
    del state, now
    wanted = values(query, "InstanceTypes") or sorted(TYPES)
    told = [
        {"InstanceTypeId": name, "GPUAmount": TYPES[name][0], "GPUSpec": TYPES[name][1]}
        for name in wanted
        if name in TYPES
    ]
    return {"InstanceTypes": {"InstanceType": told}, "NextToken": ""}


def describe_templates(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DescribeLaunchTemplateVersions."""
    del now
    found = [each for each in _templates(state, query) if each.region == query["RegionId"]]
    if not found:
        raise Refusal(404, "InvalidLaunchTemplate.NotFound", "The specified launch template does not exist.")
    versions = [
        {
            "LaunchTemplateId": each.id,
            "LaunchTemplateName": each.name,
            "VersionNumber": number,
            "DefaultVersion": number == 1,
            "LaunchTemplateData": {"InstanceType": kind, **({"ImageId": each.image} if number == 1 else {})},
        }
        for each in found
        for number, kind in enumerate(each.types, 1)
    ]
    numbers = values(query, "LaunchTemplateVersion")
    if numbers:
        versions = [each for each in versions if str(each["VersionNumber"]) in numbers]
    if query.get("DefaultVersion") == "true":
        versions = [each for each in versions if each["DefaultVersion"]]
    page, told = page_of(versions, query, largest=50)
    return {"LaunchTemplateVersionSets": {"LaunchTemplateVersionSet": page}, **told}


def _templates(state: State, query: Mapping[str, str]) -> list[Any]:
    asked = query.get("LaunchTemplateId") or query.get("LaunchTemplateName")
    return [each for each in state.templates.values() if asked in (each.id, each.name)]


def _machine(state: State, query: Mapping[str, str]) -> Machine:
    name = _needed(query, "InstanceId")
    if name not in state.machines:
        raise Refusal(404, "InvalidInstanceId.NotFound", "The specified InstanceId does not exist.")
    return state.machines[name]


def _refuse_unless(fits: bool) -> None:
    if not fits:
        text = "The current status of the resource does not support this operation."
        raise Refusal(403, "IncorrectInstanceStatus", text)


def _dry(query: Mapping[str, str]) -> None:
    if query.get("DryRun") == "true":
        raise Refusal(400, "DryRunOperation", "Request validation has been passed with DryRun flag set.")


def _needed(query: Mapping[str, str], name: str) -> str:
    if not query.get(name):
        raise missing(name)
    return query[name]


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")


HANDLERS: dict[str, Callable[[State, Mapping[str, str], datetime], dict[str, Any]]] = {
    "DescribeInstances": describe_instances,
    "DescribeInstanceAttribute": describe_instance_attribute,
    "DescribeInstanceTypes": describe_types,
    "DescribeLaunchTemplateVersions": describe_templates,
    "StopInstance": stop,
    "StartInstance": start,
    "DeleteInstance": delete,
    "RunInstances": run,
    "TagResources": tag,
}
