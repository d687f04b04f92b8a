"""What is done to machines and scale sets on Azure, launches too: one target a call, while its permit holds.

A path may lead to another machine by now: a new one of the same name. So the machine is looked at right
before, and nothing is sent unless it has the id that was decided about; the permit is checked after that.
"""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpuwatch.clouds import (
    FLEET_TAG,
    POOL_TAG,
    START_IS_DONE,
    TERMINATE_IS_DONE,
    BusyError,
    CloudError,
    CloudUnavailableError,
    NotFoundError,
    ProtectedError,
)
from gpuwatch.clouds.azure.client import Answer
from gpuwatch.clouds.azure.errors import NOT_FOUND, code_and_message, typed_error
from gpuwatch.clouds.azure.groups import ScaleSet, members_of, one_group
from gpuwatch.clouds.azure.instances import Machine, one
from gpuwatch.clouds.azure.places import Subscription, Subscriptions, machine, name_for, name_of
from gpuwatch.clouds.azure.settings import TemplateSettings
from gpuwatch.clouds.groups import raise_again, refuse_end_below, refuse_if_chosen, refuse_size
from gpuwatch.clouds.permissions import server_time
from gpuwatch.clouds.permit import Permit, permit_in_force
from gpuwatch.clouds.tags import claims, tags_in_any_case
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.model.fleet import DEFAULT_POOL, NodeState
from gpuwatch.model.stops import StopAnswer
from gpuwatch.runtime.clock import Clock

# What becomes of a change after Azure has accepted it.
#
# Azure accepts a start and a new machine before it has found a place for them. Most of what fails, fails within
# seconds: so the operation is followed for that long.

_FOLLOW_SECONDS, _LOOK_SECONDS = 20.0, 5.0
_OVER = frozenset({"Succeeded", "Canceled"})


def follow(place: Subscription, accepted: Answer, what: str, clock: Clock) -> None:
    """Look after a change for some seconds. Source: the operation that Azure-AsyncOperation names.

    Raises:
        CloudError: it has failed, with Azure's reason.

    """
    path = urlsplit(accepted.headers.get("azure-asyncoperation", "")).path
    waited = 0.0
    while path and waited < _FOLLOW_SECONDS:
        clock.sleep(_LOOK_SECONDS)
        waited += _LOOK_SECONDS
        try:
            status = place.get(path, urgent=True).body
        except CloudError:
            return  # the change is accepted: the next list shows what became of it
        if status.get("status") == "Failed":
            code, message = code_and_message(status.get("error") or {})
            raise typed_error(what, code or "OperationFailed", message)
        if status.get("status") in _OVER:
            return


_SLACK = timedelta(minutes=1)  # between the clocks of Azure's front door and of its racks
WRONG_STATE = "IncorrectMachineState"  # our own word: Azure itself would let the two operations fight


def now_at(place: Subscription, path: str, node_id: str, *, urgent: bool) -> Machine:
    """The machine as it is; `urgent`: right before a change.

    Raises:
        NotFoundError: the path leads to no machine, or to another one.
        CloudError: no answer.

    """
    machine = one(place, path, urgent=urgent)
    if machine.id != node_id:
        raise NotFoundError(f"{path} is another machine now, not {node_id}", code=NOT_FOUND)
    return machine


def stop(place: Subscription, machine: Machine, permit: Permit) -> StopAnswer:
    """End the bill of a machine. Source: Deallocate, never PowerOff: that one keeps the bill running.

    Azure accepts it of a machine that is off, too: whether it ran is known by the look right before. Its view shows the
    time of the last change, which is not before this one.
    """
    if machine.state in TERMINATE_IS_DONE:
        return StopAnswer(ran=False)
    if machine.state is NodeState.PENDING:
        raise BusyError(f"{machine.name} is starting: it is not stopped now", code=WRONG_STATE)
    date = server_time(place.change("POST", f"{machine.path}/deallocate", permit).headers.get("date", ""))
    earliest = None if date is None else date - _SLACK
    return StopAnswer(ran=machine.state is NodeState.RUNNING, earliest=earliest)


def start(place: Subscription, machine: Machine, clock: Clock) -> None:
    """Source: Start; followed for some seconds, in which a lack of machines shows."""
    if machine.state in START_IS_DONE:
        return
    if machine.state in TERMINATE_IS_DONE:
        raise CloudError(f"{machine.name} ends: it is not started", code=WRONG_STATE)
    if machine.state is NodeState.STOPPING:
        raise BusyError(f"{machine.name} is on its way down: it is not started now", code=WRONG_STATE)
    accepted = place.change("POST", f"{machine.path}/start", permit_in_force())
    follow(place, accepted, f"start of {machine.name}", clock)


def terminate(place: Subscription, machine: Machine, permit: Permit) -> None:
    """Source: Delete, without force. Disks and interfaces go with it only where they were made so (deleteOption)."""
    if machine.state not in TERMINATE_IS_DONE:
        place.change("DELETE", machine.path, permit)


def terminate_member(
    place: Subscription, machine: Machine, group: ScaleSet, permit: Permit, *, fleet: str, now: datetime, members: int
) -> None:
    """End a member with its place. Source: VirtualMachineScaleSets DeleteInstances, with this one's number or name."""
    if machine.state in TERMINATE_IS_DONE:
        return
    if machine.group != group.id:
        raise CloudError(f"{machine.name} is no member of {group.name} any more: it is left alone", code="NotAMember")
    refuse_group(group, fleet=fleet)
    if group.bounds is not None:
        refuse_end_below(group.name, members if group.desired is None else group.desired, group.bounds.least)
    protected = claims(machine.tags, fleet=fleet, now=now)["protected"]
    if protected:
        raise ProtectedError(f"{machine.name}: {protected}")
    place.change("POST", f"{group.path}/delete", permit, body={"instanceIds": [_number(machine)]})


def _number(machine: Machine) -> str:
    """A member's number, or its name, by which its scale set knows it."""
    number = machine.described.get("instanceId") if machine.uniform else machine.name
    return str(number or name_of(machine.path))


def grow(place: Subscription, group_id: str, size: int, *, key: str, fleet: str) -> None:
    """Raise the desired size, where it is smaller at this moment. Source: VirtualMachineScaleSets Update of its sku.

    The answer's etag makes Azure refuse where somebody has changed the scale set since it was read.
    """
    del key  # there is no token: asking twice changes nothing more
    group = one_group(place, group_id)
    refuse_group(group, fleet=fleet, grows=True)
    if group.desired is None:
        raise CloudError(f"{group.name} keeps no number of machines, so it cannot grow", code="NoCapacity")
    if group.desired >= size:
        return
    if group.bounds is not None:
        refuse_size(group.name, size, most=group.bounds.most)
    _set_capacity(place, group, size)


def shrink(place: Subscription, group_id: str, size: int, *, key: str, fleet: str) -> None:
    """Take the capacity back: the members that Azure had no place for, by their names, or else a smaller number.

    Sources: VirtualMachineScaleSets DeleteInstances; Update of its sku, where every member is protected from a
    scale-in. Flexible scale sets have no such protection.
    """
    del key  # likewise
    group = one_group(place, group_id)
    refuse_group(group, fleet=fleet, grows=True)
    if group.desired is None or group.desired <= size:
        return
    if group.bounds is not None:
        refuse_size(group.name, size, least=group.bounds.least)
    members = members_of(place, group)
    lost, takes = [each for each in members if each.never_made], group.desired - size
    there = _living(members)
    bare = [] if len(lost) >= takes else [each.name for each in there if not each.spared]
    refuse_if_chosen(group.name, bare, len(there), size)
    if len(lost) < takes:
        _set_capacity(place, group, size)
        raise_again(
            group.name,
            size,
            group.desired,
            lambda: len(_living(members_of(place, group))),
            lambda raised: _set_capacity(place, one_group(place, group.path), raised),
        )
        return
    body = {"instanceIds": [_number(each) for each in lost[:takes]]}
    place.change("POST", f"{group.path}/delete", permit_in_force(), body=body)


def _living(members: Sequence[Machine]) -> list[Machine]:
    return [each for each in members if not each.never_made and each.state not in TERMINATE_IS_DONE]


def _set_capacity(place: Subscription, group: ScaleSet, size: int) -> None:
    sku = {**group.described["sku"], "capacity": size}
    place.change("PATCH", group.path, permit_in_force(), body={"sku": sku}, headers=_unless_changed(group.described))


def protect(place: Subscription, machine: Machine, group_id: str, *, on: bool, fleet: str) -> None:
    """Source: VirtualMachineScaleSetVMs Update of its protectionPolicy; Flexible scale sets have no such policy."""
    group = one_group(place, group_id)
    refuse_group(group, fleet=fleet)
    if not machine.uniform:
        raise CloudError(
            f"{group.name} is Flexible: Azure protects no member of it from a scale-in; a resource lock does",
            code="NoProtection",
        )
    policy = {**(machine.properties.get("protectionPolicy") or {}), "protectFromScaleIn": on}
    body = {"location": machine.region, "tags": machine.tags, "properties": {"protectionPolicy": policy}}
    place.change("PUT", machine.path, permit_in_force(), body=body, headers=_unless_changed(machine.described))


def tag(place: Subscription, machine: Machine, tags: Mapping[str, str]) -> None:
    """Add to a machine's tags; the others stay. Source: Tags UpdateAtScope, which needs no right over the machine.

    Azure was seen to accept tags of a member of a Uniform scale set, and not to keep them: so these are looked at. A
    notice must be on its machine, and people could not keep such a member by a tag, either.
    """
    body = {"operation": "Merge", "properties": {"tags": dict(tags)}}
    path = f"{machine.path}/providers/Microsoft.Resources/tags/default"
    place.change("PATCH", path, permit_in_force(), version="tags", body=body)
    if machine.uniform and not tags_in_any_case(tags).items() <= one(place, machine.path, urgent=True).tags.items():
        raise CloudError(f"Azure took tags of {machine.name} and did not keep them", code="TagsNotKept")


def refuse_group(group: ScaleSet, *, fleet: str, grows: bool = False) -> None:
    """Touch no scale set without its owner's consent."""
    group.refuse_unless_ours("scale set", fleet, grows=grows)


def _unless_changed(described: Mapping[str, Any]) -> dict[str, str]:
    """What makes Azure refuse a change where somebody else has changed the same resource since it was read."""
    etag = described.get("etag")
    return {"If-Match": str(etag)} if etag else {}


# Launches: a PUT of one machine. Its name is made of the ledger's key. The same key is the same name.
#
# A template is a file with the body that Resource Manager takes. What a launch adds to it are the tags, and by its
# arguments the size, the region and the subnet.

_LONGEST_TAG = 256  # a tag's value


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One launch: where, under which name, and the body without the fleet's tags."""

    place: Subscription
    path: str
    body: Mapping[str, Any]

    @property
    def size(self) -> str | None:
        """The machine type that it asks for."""
        found = ((self.body.get("properties") or {}).get("hardwareProfile") or {}).get("vmSize")
        return None if found is None else str(found)

    @property
    def region(self) -> str:
        """Where it would be."""
        return str(self.body.get("location") or "")


def make_order(
    places: Subscriptions, templates: Mapping[str, TemplateSettings], arguments: Mapping[str, str], key: str
) -> Order:
    """What a launch with these arguments asks for.

    Raises:
        CloudError: the template is not there or cannot be read.

    """
    name = arguments["template"]
    if name not in templates:
        named = ", ".join(sorted(templates)) or "none"
        raise CloudError(
            f"no template is named {name!r} in cloud.azure.templates; there are: {named}", code="NoTemplate"
        )
    template = templates[name]
    place = places.place_at(arguments.get("account") or template.subscription)
    body = _fill_template(_read_template(name, template.body or ""), arguments)
    return Order(place=place, path=machine(place.id, template.resource_group or "", name_for(key)), body=body)


def launch_machine(order: Order, key: str, pool: str | None, *, fleet: str, clock: Clock) -> Machine:
    """Ask for the machine; where one of that name is there, it is that one. Source: VirtualMachines CreateOrUpdate.

    Raises:
        CloudError: it was not accepted, or failed while it was watched.

    """
    try:
        return _usable(one(order.place, order.path, urgent=True))
    except NotFoundError:
        pass
    tags = {**(order.body.get("tags") or {}), FLEET_TAG: fleet, POOL_TAG: pool or DEFAULT_POOL, DECISION_TAG: key}
    too_long = next((name for name in tags if len(str(tags[name])) > _LONGEST_TAG), None)
    if too_long is not None:
        raise ValueError(f"the tag {too_long} is longer than the {_LONGEST_TAG} characters that Azure takes")
    answer = order.place.change(
        "PUT",
        order.path,
        permit_in_force(),
        body={**order.body, "tags": tags},
        headers={"If-None-Match": "*"},  # whatever has come under this name since is not changed
    )
    described = answer.body if isinstance(answer.body, dict) else {}
    if not (described.get("properties") or {}).get("vmId"):
        raise CloudUnavailableError(f"PUT {order.path}: an answer without the machine's id", code="NoObject")
    follow(order.place, answer, f"PUT {order.path}", clock)
    return Machine(path=str(described.get("id") or order.path), described=described, view=None)


def find_launched(place: Subscription, resource_group: str, key: str) -> Machine | None:
    """The machine that was launched with that key; None: it does not exist now."""
    try:
        return one(place, machine(place.id, resource_group, name_for(key)))
    except NotFoundError:
        return None


def _usable(there: Machine) -> Machine:
    """A machine of an earlier try; raises its own failure where it could not be made."""
    if there.failure is not None and there.left_bare and there.state is not NodeState.TERMINATING:
        code, message = there.failure
        raise typed_error(f"launch of {there.name}", code, message)
    return there


def _read_template(name: str, path: str) -> dict[str, Any]:
    try:
        body = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CloudError(f"the template {name} cannot be read: {path}: {error}", code="NoTemplate") from None
    if not isinstance(body, dict) or not isinstance(body.get("properties"), dict):
        raise CloudError(f"the template {name} in {path} has no properties of a virtual machine", code="NoTemplate")
    return {key: value for key, value in body.items() if key not in {"id", "name", "type", "etag"}}


def _fill_template(template: dict[str, Any], arguments: Mapping[str, str]) -> dict[str, Any]:
    """The template with a launch's own size, region and subnet."""
    body = deepcopy(template)
    properties = body["properties"]
    if arguments.get("region"):
        body["location"] = arguments["region"]
    if arguments.get("instance_type"):
        properties["hardwareProfile"] = {
            **(properties.get("hardwareProfile") or {}),
            "vmSize": arguments["instance_type"],
        }
    if arguments.get("subnet"):
        for interface in (properties.get("networkProfile") or {}).get("networkInterfaceConfigurations") or ():
            for each in (interface.get("properties") or {}).get("ipConfigurations") or ():
                each.setdefault("properties", {})["subnet"] = {"id": arguments["subnet"]}
    return body
