"""What the pretended Azure does for each operation: a plain function of the state and the call."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.clouds.azure import sizes
from tests.support.clouds.azure.state import MINUTE, Operation, Set, State, Vm
from tests.support.clouds.server import Request, Response

GOING = ("gone", "Deleting")
_METRICS = ("Percentage CPU", "Network In Total", "Network Out Total")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call: the request, and the parts of its path."""

    request: Request
    parts: Mapping[str, str]
    sub: str

    @property
    def key(self) -> str:
        """The path of the resource, without what is asked of it."""
        path = self.request.path.lower()
        for verb in ("/deallocate", "/start", "/poweroff", "/delete", "/virtualmachines", "/networkinterfaces"):
            if path.endswith(verb):
                return path.removesuffix(verb)
        return path


def _error(status: int, code: str, message: str) -> Response:
    return Response(status=status, body={"error": {"code": code, "message": message}})


def _not_found(call: Call) -> Response:
    return _error(404, "ResourceNotFound", f"The Resource '{call.request.path}' was not found.")


def _accepted(state: State, call: Call, name: str) -> Response:
    """202 with the way to the operation, which is over in a minute."""
    state.operations[name] = Operation(over_at=call.request.at + MINUTE)
    root = (
        f"https://{call.request.host}/subscriptions/{call.sub}/providers/Microsoft.Compute/locations/eastus/operations"
    )
    where = f"{root}/{name}?api-version=2024-07-01"
    return Response(
        status=202, body=None, headers={"Azure-AsyncOperation": where, "Location": where, "Retry-After": "10"}
    )


def _in(table: Mapping[str, Any], call: Call) -> list[Any]:
    prefix = f"/subscriptions/{call.sub}/".lower()
    return [table[key] for key in sorted(table) if key.startswith(prefix)]


# Machines.


def vms(state: State, call: Call) -> Response:
    """With `statusOnly` the states and no tags, in capitals; else the other way round."""
    found = [vm for vm in _in(state.vms, call) if vm.member is None]
    if call.request.query.get("statusOnly") != "true":
        return Response(body=[vm.described(view=False) for vm in found])
    shown = []
    for vm in found:
        whole = vm.described(view=True)
        properties = {key: whole["properties"][key] for key in ("vmId", "instanceView", "provisioningState")}
        path = whole["id"].split("/")
        path[4] = path[4].upper()
        slim = {key: whole[key] for key in ("name", "type", "location")}
        shown.append({**slim, "id": "/".join(path), "properties": properties})
    return Response(body=shown)


def vm(state: State, call: Call) -> Response:
    """One machine."""
    found = state.vms.get(call.key)
    if found is None:
        return _not_found(call)
    return Response(body=found.described(view=call.request.query.get("$expand") == "instanceView"))


def put_vm(state: State, call: Call) -> Response:
    """A new machine; with If-None-Match only a new one."""
    if call.key in state.vms:
        if call.request.headers.get("if-none-match") == "*":
            return _error(412, "PreconditionFailed", "The resource exists already.")
        return Response(body=state.vms[call.key].described(view=False))
    body = call.request.json
    if sizes.of(body["properties"]["hardwareProfile"]["vmSize"]) is None:
        return _error(400, "InvalidParameter", "The value of parameter vmSize is invalid.")
    made = Vm(
        path=call.request.path,
        vm_id=state.new_id(),
        location=body["location"],
        properties=body["properties"],
        tags=body.get("tags", {}),
        zones=body.get("zones", []),
        created_at=call.request.at,
        changed_at=call.request.at,
        arrives_at=call.request.at + MINUTE,
    )
    state.vms[call.key] = made
    accepted = _accepted(state, call, f"op-{made.vm_id}")
    return Response(status=201, body=made.described(view=False), headers=accepted.headers)


def deallocate(state: State, call: Call) -> Response:
    """The end of its bill."""
    found = state.vms.get(call.key)
    if found is None:
        return _not_found(call)
    disk = (found.properties.get("storageProfile") or {}).get("osDisk") or {}
    if disk.get("diffDiskSettings"):
        return _error(409, "OperationNotAllowed", "Operation 'deallocate' is not allowed: its OS disk is ephemeral.")
    if found.power != "deallocated":
        found.begins("deallocating", "Updating", ("deallocated", "Succeeded"), call.request.at)
    return _accepted(state, call, f"op-{found.vm_id}-{found.etag}")


def power_off(state: State, call: Call) -> Response:
    """Off, and billed."""
    found = state.vms.get(call.key)
    if found is None:
        return _not_found(call)
    found.begins("stopping", "Updating", ("stopped", "Succeeded"), call.request.at)
    return _accepted(state, call, f"op-{found.vm_id}-{found.etag}")


def start(state: State, call: Call) -> Response:
    """On again."""
    found = state.vms.get(call.key)
    if found is None:
        return _not_found(call)
    if found.power != "running":
        found.begins("starting", "Updating", ("running", "Succeeded"), call.request.at)
    return _accepted(state, call, f"op-{found.vm_id}-{found.etag}")


def delete(state: State, call: Call) -> Response:
    """It goes; a locked one stays. A member's place goes too."""
    found = state.vms.get(call.key)
    if found is None:
        return Response(status=204, body=None)
    for path in sorted(state.locks):
        if call.key.startswith(path.partition("/providers/microsoft.authorization/")[0]):
            return _error(409, "ScopeLocked", f"The scope '{call.request.path}' cannot perform delete operation.")
    if found.then != GOING:
        found.begins(found.power, "Deleting", GOING, call.request.at)
        home = _home(state, found)
        if home is not None:
            home.described["sku"]["capacity"] -= 1
    return _accepted(state, call, f"op-{found.vm_id}-{found.etag}")


def tag(state: State, call: Call) -> Response:
    """Merge: the others stay."""
    body = call.request.json
    if body["operation"] != "Merge":
        raise AssertionError(f"nobody asks for {body['operation']}")
    scope = call.parts["scope"].lower()
    if scope not in state.vms:
        return _not_found(call)
    if not (state.drops_tags_of_members and "/virtualmachinescalesets/" in scope):
        state.vms[scope].tags |= body["properties"]["tags"]
    return Response(
        body={"id": f"{scope}/providers/Microsoft.Resources/tags/default", "properties": body["properties"]}
    )


# Scale sets.


def _home(state: State, member: Vm) -> Set | None:
    path = (member.properties.get("virtualMachineScaleSet") or {}).get("id")
    if member.member is not None:
        path = member.path.rpartition("/virtualMachines/")[0]
    return None if path is None else state.sets.get(path.lower())


def sets(state: State, call: Call) -> Response:
    """All of a subscription."""
    return Response(body=[each.described for each in _in(state.sets, call)])


def one_set(state: State, call: Call) -> Response:
    """One."""
    found = state.sets.get(call.key)
    return _not_found(call) if found is None else Response(body=found.described)


def members(state: State, call: Call) -> Response:
    """Of a Uniform one."""
    if call.key not in state.sets:
        return _not_found(call)
    found = [state.vms[key] for key in sorted(state.vms) if key.startswith(f"{call.key}/virtualmachines/")]
    return Response(body=[vm.described(view=call.request.query.get("$expand") == "instanceView") for vm in found])


def resize(state: State, call: Call) -> Response:
    """A new capacity: members are made, in a minute."""
    found = state.sets.get(call.key)
    if found is None:
        return _not_found(call)
    if call.request.headers.get("if-match", found.described["etag"]) != found.described["etag"]:
        return _error(412, "PreconditionFailed", "The scale set has been changed since.")
    size = call.request.json["sku"]["capacity"]
    for _ in range(size - found.described["sku"]["capacity"]):
        add_member(state, found, call)
    found.described["sku"]["capacity"] = size
    return Response(body=found.described, headers=_accepted(state, call, f"op-{found.made}").headers)


def add_member(state: State, group: Set, call: Call) -> Vm:
    """One more, by the profile."""
    number, group.made = str(group.made), group.made + 1
    now = call.request.at
    path = f"{group.path}/virtualMachines/{number}"
    vm_id = state.new_id()
    storage = {"osDisk": {"createOption": "FromImage", "managedDisk": {"storageAccountType": "Premium_LRS"}}}
    properties: dict[str, Any] = {"hardwareProfile": {}, "storageProfile": storage, "latestModelApplied": True}
    if not group.uniform:
        root = group.path.rpartition("/virtualMachineScaleSets/")[0]
        path = f"{root}/virtualMachines/{group.described['name']}_{number}"
        properties = {
            "virtualMachineScaleSet": {"id": group.path},
            "hardwareProfile": {"vmSize": group.described["sku"]["name"]},
            "storageProfile": storage,
        }
    made = Vm(
        path=path,
        vm_id=vm_id,
        location=group.described["location"],
        properties=properties,
        tags=dict(group.described["tags"]),
        zones=list(group.described["zones"]),
        created_at=now,
        changed_at=now,
        arrives_at=now + MINUTE,
        member=number if group.uniform else None,
        sku={key: group.described["sku"][key] for key in ("name", "tier")} if group.uniform else None,
    )
    state.vms[path.lower()] = made
    group.stock -= 1
    if group.stock < 0:  # it is accepted, and left there without having been anywhere
        made.provisioning, made.arrives_at = "Failed", None
        made.failure = ("AllocationFailed", "Allocation failed. We do not have sufficient capacity.")
    return made


def delete_members(state: State, call: Call) -> Response:
    """They go with their places."""
    group = state.sets.get(call.key)
    if group is None:
        return _not_found(call)
    for number in call.request.json["instanceIds"]:
        root = f"{call.key}/virtualmachines/"
        if not group.uniform:
            root = f"{call.key.rpartition('/virtualmachinescalesets/')[0]}/virtualmachines/"
        found = state.vms.get(f"{root}{number.lower()}")
        if found is None:
            return _error(400, "InvalidParameter", f"The provided instanceId {number} is not an active one.")
        if found.then != GOING:
            found.begins(found.power, "Deleting", GOING, call.request.at)
            group.described["sku"]["capacity"] -= 1
    return _accepted(state, call, f"op-{group.made}-delete")


def put_member(state: State, call: Call) -> Response:
    """Its protection."""
    found = state.vms.get(call.key)
    if found is None:
        return _not_found(call)
    if call.request.headers.get("if-match") != f'"{found.etag}"':
        return _error(412, "PreconditionFailed", "The machine has been changed since.")
    found.properties["protectionPolicy"] = call.request.json["properties"]["protectionPolicy"]
    found.tags = call.request.json["tags"]
    found.etag += 1
    return Response(body=found.described(view=False))


def member_interfaces(state: State, call: Call) -> Response:
    """Those of a Uniform scale set."""
    root = f"{call.key}/"
    return Response(body=[state.interfaces[key] for key in sorted(state.interfaces) if key.startswith(root)])


def autoscale(state: State, call: Call) -> Response:
    """All settings of a subscription."""
    return Response(body=_in(state.autoscale, call))


# The rest.


def skus(state: State, call: Call) -> Response:
    """Of the region in the filter; disks among them."""
    del state
    region = call.request.query["$filter"].removeprefix("location eq ").strip("'")
    return Response(body=[*sizes.skus(region), sizes.disk_sku(region)])


def usages(state: State, call: Call) -> Response:
    """vCPUs, by what is there."""
    del call
    used = sum(vm.power in {"running", "starting"} and vm.member is None for vm in state.vms.values())
    return Response(body=sizes.usages(used))


def operation(state: State, call: Call) -> Response:
    """A long-running one."""
    found = state.operations.get(call.parts["operation"])
    if found is None:
        return _not_found(call)
    over = call.request.at >= found.over_at or found.error is not None
    body: dict[str, Any] = {"name": call.parts["operation"], "status": "Succeeded" if over else "InProgress"}
    if found.error is not None:
        body |= {"status": "Failed", "error": dict(found.error)}
    return Response(body=body)


def disks(state: State, call: Call) -> Response:
    """All of a subscription."""
    return Response(body=_in(state.disks, call))


def snapshots(state: State, call: Call) -> Response:
    """All of a subscription."""
    return Response(body=_in(state.snapshots, call))


def images(state: State, call: Call) -> Response:
    """All of a subscription."""
    return Response(body=_in(state.images, call))


def resources(state: State, call: Call) -> Response:
    """Images of a subscription, with the time at which each was made."""
    query = call.request.query
    assert (query["$filter"], query["$expand"]) == ("resourceType eq 'Microsoft.Compute/images'", "createdTime")
    found = [{"id": each["id"], "type": "Microsoft.Compute/images"} for each in _in(state.images, call)]
    return Response(body=[{**each, "createdTime": state.made[each["id"].lower()]} for each in found])


def addresses(state: State, call: Call) -> Response:
    """All of a subscription."""
    return Response(body=_in(state.addresses, call))


def interfaces(state: State, call: Call) -> Response:
    """All of a subscription but those of members of Uniform scale sets."""
    return Response(body=[each for each in _in(state.interfaces, call) if "virtualMachineScaleSets" not in each["id"]])


def locks(state: State, call: Call) -> Response:
    """All of a subscription."""
    return Response(body=_in(state.locks, call))


def permissions(state: State, call: Call) -> Response:
    """What the tests say that our roles allow."""
    del call
    return Response(body=[{"actions": list(state.allowed), "notActions": []}])


def subscriptions(state: State, call: Call) -> Response:
    """Those that we may see."""
    del call
    return Response(
        body=[
            {"id": f"/subscriptions/{number}", "subscriptionId": number, "displayName": name, "state": "Enabled"}
            for number, name in state.subscriptions.items()
        ]
    )


def subscription(state: State, call: Call) -> Response:
    """One."""
    name = state.subscriptions.get(call.sub.lower())
    if name is None:
        return _error(404, "SubscriptionNotFound", f"The subscription '{call.sub}' could not be found.")
    return Response(body={"id": f"/subscriptions/{call.sub}", "subscriptionId": call.sub, "displayName": name})


def metrics(state: State, call: Call) -> Response:
    """Hours of a machine, as far as the tests have given any."""
    hours = state.hours.get(call.parts["scope"].lower(), {})
    where = f"{call.parts['scope']}/providers/Microsoft.Insights/metrics"
    found = [
        {"id": f"{where}/{name}", "name": {"value": name}, "timeseries": [{"data": hours.get(name, [])}]}
        for name in _METRICS
    ]
    assert call.request.query["metricnames"].split(",") == list(_METRICS)
    return Response(body={"value": found, "timespan": call.request.query["timespan"], "interval": "PT1H"})
