"""What is done to machines and scale sets on Azure: one target a call, sent once, and only while its permit holds.

A path may lead to another machine by now: a new one of the same name. So the machine is looked at right
before, and nothing is sent unless it has the id that was decided about; the permit is checked after that.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from gpuwatch.clouds import FLEET_TAG, START_IS_DONE, TERMINATE_IS_DONE, CloudError, NotFoundError, ProtectedError
from gpuwatch.clouds.azure.errors import NOT_FOUND
from gpuwatch.clouds.azure.groups import ScaleSet, known
from gpuwatch.clouds.azure.instances import Machine, one
from gpuwatch.clouds.azure.operations import follow
from gpuwatch.clouds.azure.places import Subscription
from gpuwatch.clouds.azure.resource_ids import name_of
from gpuwatch.clouds.group_size import raise_again, refuse_if_chosen
from gpuwatch.clouds.permit import Permit, permit_in_force
from gpuwatch.clouds.tags import claims
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import Clock

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


def stop(place: Subscription, machine: Machine, permit: Permit) -> None:
    """End the bill of a machine. Source: Deallocate, never PowerOff: that one keeps the bill running."""
    if machine.state in TERMINATE_IS_DONE:
        return
    if machine.state is NodeState.PENDING:
        raise CloudError(f"{machine.name} is starting: it is not stopped now", code=WRONG_STATE)
    place.change("POST", f"{machine.path}/deallocate", permit)


def start(place: Subscription, machine: Machine, clock: Clock) -> None:
    """Source: Start; followed for some seconds, in which a lack of machines shows."""
    if machine.state in START_IS_DONE:
        return
    if machine.state in TERMINATE_IS_DONE or machine.state is NodeState.STOPPING:
        raise CloudError(f"{machine.name} is on its way down: it is not started now", code=WRONG_STATE)
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
    size = members if group.desired is None else group.desired
    if group.bounds is not None and size - 1 < group.bounds.least:
        raise CloudError(
            f"{group.name} would fall below its minimum: it wants {size} machines, at least {group.bounds.least}",
            code="MinSize",
        )
    protected = claims(machine.tags, fleet=fleet, now=now)["protected"]
    if protected:
        raise ProtectedError(f"{machine.name}: {protected}")
    place.change("POST", f"{group.path}/delete", permit, body={"instanceIds": [_number(machine)]})


def _number(machine: Machine) -> str:
    """A member's number, or its name, by which its scale set knows it."""
    number = machine.described.get("instanceId") if machine.uniform else machine.name
    return str(number or name_of(machine.path))


def grow(place: Subscription, group: ScaleSet, size: int, *, fleet: str) -> None:
    """Raise the desired size, where it is smaller at this moment. Source: VirtualMachineScaleSets Update of its sku.

    The answer's etag makes Azure refuse where somebody has changed the scale set since it was read.
    """
    refuse_group(group, fleet=fleet, grows=True)
    if group.desired is None:
        raise CloudError(f"{group.name} keeps no number of machines, so it cannot grow", code="NoCapacity")
    if group.desired >= size:
        return
    if group.bounds is not None and size > group.bounds.most:
        raise CloudError(f"{group.name} may have {group.bounds.most} machines at most, not {size}", code="MaxSize")
    _set_capacity(place, group, size)


def shrink(
    place: Subscription, group: ScaleSet, size: int, look: Callable[[], Sequence[Machine]], *, fleet: str
) -> None:
    """Take the capacity back: the members that Azure had no place for, by their names, or else a smaller number.

    Sources: VirtualMachineScaleSets DeleteInstances; Update of its sku, where every member is protected from a
    scale-in. Flexible scale sets have no such protection.
    """
    refuse_group(group, fleet=fleet, grows=True)
    if group.desired is None or group.desired <= size:
        return
    if group.bounds is not None and size < group.bounds.least:
        raise CloudError(f"{group.name} must have {group.bounds.least} machines at least, not {size}", code="MinSize")
    members = look()
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
            lambda: len(_living(look())),
            lambda raised: _set_capacity(place, known(place, group.path), raised),
        )
        return
    body = {"instanceIds": [_number(each) for each in lost[:takes]]}
    place.change("POST", f"{group.path}/delete", permit_in_force(), body=body)


def _living(members: Sequence[Machine]) -> list[Machine]:
    return [each for each in members if not each.never_made and each.state not in TERMINATE_IS_DONE]


def _set_capacity(place: Subscription, group: ScaleSet, size: int) -> None:
    sku = {**group.described["sku"], "capacity": size}
    place.change("PATCH", group.path, permit_in_force(), body={"sku": sku}, headers=_unchanged(group.described))


def protect(place: Subscription, machine: Machine, group: ScaleSet, *, on: bool, fleet: str) -> None:
    """Source: VirtualMachineScaleSetVMs Update of its protectionPolicy; Flexible scale sets have no such policy."""
    refuse_group(group, fleet=fleet)
    if not machine.uniform:
        raise CloudError(
            f"{group.name} is Flexible: Azure protects no member of it from a scale-in; a resource lock does",
            code="NoProtection",
        )
    policy = {**(machine.properties.get("protectionPolicy") or {}), "protectFromScaleIn": on}
    body = {"location": machine.region, "tags": machine.tags, "properties": {"protectionPolicy": policy}}
    place.change("PUT", machine.path, permit_in_force(), body=body, headers=_unchanged(machine.described))


def tag(place: Subscription, machine: Machine, tags: Mapping[str, str]) -> None:
    """Add to a machine's tags; the others stay. Source: Tags UpdateAtScope, which needs no right over the machine."""
    body = {"operation": "Merge", "properties": {"tags": dict(tags)}}
    path = f"{machine.path}/providers/Microsoft.Resources/tags/default"
    place.change("PATCH", path, permit_in_force(), version="tags", body=body)


def refuse_group(group: ScaleSet, *, fleet: str, grows: bool = False) -> None:
    """Touch no scale set without its owner's consent."""
    if not (group.enrolled(fleet) if grows else group.consents(fleet)):  # a cluster grows its groups itself
        whose = f"belongs to {group.owner}" if group.owner else f"has no tag {FLEET_TAG}={fleet}"
        raise CloudError(f"the scale set {group.name} {whose}: it is left alone", code="NotEnrolled")


def _unchanged(described: Mapping[str, Any]) -> dict[str, str]:
    """What makes Azure refuse a change where somebody else has changed the same resource since it was read."""
    etag = described.get("etag")
    return {"If-Match": str(etag)} if etag else {}
