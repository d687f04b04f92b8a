"""What is done to machines and groups on Google Cloud, one target a call, and the outcome.

A call names its machine by project, zone and name, and a name may belong to another machine later. So each change reads
the machine first and goes on only where the number is still the same: a machine needs seconds to be deleted, and a
permit is checked after that read. Each change is sent once; what Compute Engine accepted may still fail, and a start is
followed for some seconds for that.
"""

import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gpuwatch.clouds import (
    FLEET_TAG,
    START_IS_DONE,
    STOP_IS_DONE,
    BusyError,
    CloudError,
    CloudUnavailableError,
    NotFoundError,
    ProtectedError,
)
from gpuwatch.clouds.gcp.client import Client, Json
from gpuwatch.clouds.gcp.errors import NOT_FOUND, NOT_READY, STALE, failure
from gpuwatch.clouds.gcp.groups import Group, MachineTypes, members, one_group, region_of
from gpuwatch.clouds.gcp.iam import (
    DELETE,
    DELETE_MEMBERS,
    GET_INSTANCE,
    GET_OPERATION,
    LIST_OPERATIONS,
    LIST_ZONE_OPERATIONS,
    RESIZE,
    RESUME,
    SET_LABELS,
    START,
    STOP,
    Call,
)
from gpuwatch.clouds.gcp.instances import Instance
from gpuwatch.clouds.gcp.owners import labels_of, tags_of
from gpuwatch.clouds.groups import TOO_MANY_MEMBERS, refuse_end_below, refuse_size
from gpuwatch.clouds.permit import Permit, permit_in_force
from gpuwatch.clouds.tags import claims
from gpuwatch.clouds.times import read_time
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.stops import StopAnswer
from gpuwatch.runtime.clock import Clock

# Compute Engine's operations: what it accepted and what became of that, and the one proof that a machine is gone.

log = logging.getLogger(__name__)

_DELETED, _INSERTED = "delete", "insert"  # `operationType`
_ENDS = frozenset({_DELETED, "compute.instances.preempted"})
_DONE = "DONE"
# No stock is told some seconds after an operation is accepted, so a start and a launch are followed for as long.
_LOOKS_AFTER_SECONDS = (0.5, 1.0, 1.5, 2.0, 2.0)


def follow(client: Client, clock: Clock, zone: str, operation: Json) -> None:
    """Look for some seconds whether an accepted operation fails; one that goes on is left to itself.

    Raises:
        CloudError: it failed, for example because the zone has no such machine left.

    """
    for seconds in _LOOKS_AFTER_SECONDS:
        if operation["status"] == _DONE:
            break
        clock.sleep(seconds)
        try:
            operation = client.read(GET_OPERATION, zone=zone, operation=operation["name"])
        except CloudError as error:
            log.info("%s; it was accepted, and what becomes of it is seen in the machine", error)
            return
    failed = failure(f"{operation.get('operationType')} in {zone} of {client}", operation)
    if failed is not None:
        raise failed


def being_deleted(client: Client, zone: str) -> set[str]:
    """The ids of the zone's machines that are on their way out: a status alone does not tell it from a stop.

    Source: zoneOperations.list.

    Raises:
        CloudError: no answer.

    """
    query = {"filter": f'(operationType = "{_DELETED}") AND (status != "{_DONE}")'}
    found = client.items(LIST_ZONE_OPERATIONS, query=query, zone=zone)
    return {each["targetId"] for each in found if _of_an_instance(each) and "targetId" in each}


def ended_machine(client: Client, node_id: str, zone: str | None = None) -> Node | None:
    """A machine that is not there any more, by the operation that ended it; None: no operation shows its end.

    That Compute Engine does not show it is no proof by itself: a list, and an answer after a launch, may be late.
    Sources: zoneOperations.list where its zone is known, else globalOperations.aggregatedList.

    Raises:
        CloudError: no whole answer.

    """
    matching = f"targetId = {node_id}"
    if zone is None:
        return _gone_machine(client, _operations(client, matching))
    return _gone_machine(client, client.items(LIST_ZONE_OPERATIONS, query={"filter": matching}, zone=zone))


def launch_that_ended(client: Client, name: str) -> Node | None:
    """The same of a machine that we launched under that name; raises CloudError."""
    found = _operations(client, f'targetLink eq ".*/instances/{name}"')
    return _gone_machine(client, found)


def _operations(client: Client, matching: str) -> list[Json]:
    """All operations on such a target, newest last."""
    scopes = client.scopes(LIST_OPERATIONS, query={"filter": matching})
    for content in scopes.values():
        if isinstance(content, CloudError):
            raise CloudUnavailableError(str(content), code=content.code)
    found = [each for content in scopes.values() if not isinstance(content, CloudError) for each in content]
    return sorted((each for each in found if _of_an_instance(each)), key=lambda each: str(each.get("insertTime")))


def _gone_machine(client: Client, operations: Iterable[Json]) -> Node | None:
    """By a deletion or a preemption that is done and did not fail, or by a launch that did: it was never made."""
    for each in operations:
        kind, done = each.get("operationType"), each.get("status") == _DONE and _of_an_instance(each)
        over = kind in _ENDS if failure("", each) is None else kind == _INSERTED
        if done and over and "targetId" in each:
            return _node(client, each)
    return None


def _of_an_instance(operation: Json) -> bool:
    return "/instances/" in operation.get("targetLink", "")


def _node(client: Client, operation: Json) -> Node:
    """What an operation says of a machine that nothing else shows any more; of a launch that failed, why."""
    failed = failure("", operation)
    zone = str(operation.get("zone", "")).rpartition("/")[2]
    return Node(
        id=operation["targetId"],
        name=operation["targetLink"].rpartition("/")[2],
        pool="",
        state=NodeState.TERMINATED,
        instance_type="",
        gpu_count=None,
        region=region_of(zone),
        zone=zone,
        account=client.project,
        failed_start=None if failed is None else str(failed).removeprefix(": "),
    )


NOT_SUPPORTED = "NotSupported"  # our own word
_LABEL_TRIES = 4
_NO_ACTION = "NONE"
_LEAVING = frozenset({"DELETING", "ABANDONING"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where a machine is: what a call needs in addition to its number."""

    client: Client
    zone: str
    name: str


class InProject(Protocol):
    """What has the calls of a project."""

    client: Client


def describe_instance(home: Home, node_id: str) -> Instance:
    """The machine of that number as it is now. Source: instances.get.

    Raises:
        NotFoundError: it is gone for good; another machine of its name is another machine.
        CloudError: no answer.

    """
    answer = home.client.read(GET_INSTANCE, zone=home.zone, instance=home.name)
    if str(answer.get("id")) != node_id:
        raise NotFoundError(f"{node_id} is gone: {home.name} in {home.zone} is {answer.get('id')} now", code=NOT_FOUND)
    return Instance(described=answer, project=home.client.project)


def stop(home: Home, node_id: str, permit: Permit, types: MachineTypes) -> StopAnswer:
    """Source: instances.stop. Whether local SSDs may be lost is the guard's question; here the loss must be named.

    That is of SSDs among the machine's disks, and of those that its type brings.

    Compute Engine accepts a stop of a stopped machine, too, so it is looked at right before. The machine shows when a
    stop was over: not before the operation began.
    """
    instance = describe_instance(home, node_id)
    if instance.state in STOP_IS_DONE and not instance.suspended:
        return StopAnswer(ran=False)
    if instance.state is NodeState.PENDING:
        raise BusyError(f"{node_id} is {instance.described['status']}: it cannot be stopped yet", code=NOT_READY)
    query = {"discardLocalSsd": "true"} if instance.local_ssds or _brings_ssds(home, instance, types) else {}
    operation = _change(home, node_id, STOP, permit, query)
    ran = instance.state is NodeState.RUNNING
    return StopAnswer(ran=ran, earliest=read_time(operation.get("insertTime")))


def _brings_ssds(home: Home, instance: Instance, types: MachineTypes) -> bool:
    """Whether its type has local SSDs of its own, as far as Compute Engine says now."""
    try:
        kind = types.get(home.client, home.zone, instance.type) if instance.type else None
    except CloudError:
        return False
    return kind is not None and kind.local_disks


def start(home: Home, node_id: str, clock: Clock) -> None:
    """Sources: instances.start; instances.resume where somebody suspended it."""
    instance = describe_instance(home, node_id)
    leaving = instance.state is NodeState.STOPPING and node_id in being_deleted(home.client, home.zone)
    if instance.state in START_IS_DONE:
        return
    if leaving or instance.state is not NodeState.STOPPED:
        kind = CloudError if leaving else BusyError
        raise kind(f"{node_id} is {instance.described['status']}: it cannot be started now", code=NOT_READY)
    operation = _change(home, node_id, RESUME if instance.suspended else START, permit_in_force(), {})
    follow(home.client, clock, home.zone, operation)


def terminate(home: Home, node_id: str, permit: Permit) -> None:
    """Source: instances.delete, which changes nothing where the machine is on its way out."""
    instance = describe_instance(home, node_id)
    if instance.deletion_protected:
        raise ProtectedError(f"{node_id}: its deletion protection is on", code="deletionProtection")
    if instance.state is NodeState.STOPPING and node_id in being_deleted(home.client, home.zone):
        return
    _change(home, node_id, DELETE, permit, {})


def tag(home: Home, node_id: str, tags: Mapping[str, str]) -> None:
    """Source: instances.setLabels, which replaces all labels, and only those that were read before.

    Where somebody was faster, Compute Engine refuses with 412, and the labels are read again.
    """
    new = labels_of(tags)
    for number in range(_LABEL_TRIES):
        instance = describe_instance(home, node_id)
        if {**instance.labels, **new} == instance.labels:
            return
        body = {
            "labels": {**instance.labels, **new},
            "labelFingerprint": instance.described.get("labelFingerprint", ""),
        }
        try:
            _change(home, node_id, SET_LABELS, permit_in_force(), {}, body)
        except CloudError as error:
            if error.code != STALE or number == _LABEL_TRIES - 1:
                raise
        else:
            return


def _change(
    home: Home, node_id: str, call: Call, permit: Permit | None, query: Mapping[str, str], body: object = None
) -> Json:
    """Send it, and see whether it went where it should."""
    path = {"zone": home.zone, "instance": home.name}
    operation = home.client.change(call, permit, query=query, body=body, **path)
    if operation.get("targetId") not in {None, node_id}:
        raise CloudUnavailableError(
            f"{call.name}: {node_id} was asked for, and Compute Engine says {operation['targetId']}", code="WrongTarget"
        )
    return operation


# Groups.


def terminate_member(
    home: Home, node_id: str, group_id: str, permit: Permit, *, key: str, fleet: str, now: datetime
) -> None:
    """End a member with its place. Source: instanceGroupManagers.deleteInstances, which lowers the target size.

    Machine and group are looked at first: the group would also end a machine that its owner protects by a label, and
    it knows no minimum where its autoscaler is switched off.
    """
    instance = describe_instance(home, node_id)
    group = one_group(home.client, group_id)
    member = next((each for each in members(home.client, group) if each.id == node_id), None)
    if member is not None and member.action in _LEAVING:
        return
    if instance.state is NodeState.STOPPING and node_id in being_deleted(home.client, home.zone):
        return
    if member is None:
        raise CloudError(f"{node_id} is no member of {group.name} any more: it is left alone", code="NotAMember")
    _refuse_group(group, fleet=fleet)
    if member.action != _NO_ACTION:
        raise CloudError(f"{node_id} is {member.action} in {group.name}: it is left alone", code=NOT_READY)
    refuse_end_below(group.name, group.desired, group.bounds[0])
    protected = claims(tags_of(instance.labels), fleet=fleet, now=now)["protected"]
    if protected or instance.deletion_protected:
        raise ProtectedError(
            f"{node_id}: {protected or 'its deletion protection is on'}",
            code="" if protected else "deletionProtection",
        )
    home.client.change(
        DELETE_MEMBERS,
        permit,
        query={"requestId": request_id(key, group_id, node_id)},
        body={"instances": [f"zones/{home.zone}/instances/{member.name}"], "skipInstancesOnValidationError": False},
        group=group.path,
    )


def grow(place: InProject, group_id: str, size: int, *, key: str, fleet: str) -> None:
    """Raise the target size, where it is smaller at this moment. Source: instanceGroupManagers.resize."""
    del key  # asking twice changes nothing more
    client = place.client
    group = one_group(client, group_id)
    if group.desired >= size:
        return
    refuse_size(group.name, size, most=group.bounds[1])
    _refuse_group(group, fleet=fleet)
    client.change(RESIZE, permit_in_force(), query={"size": str(size)}, group=group.path)


def shrink(place: InProject, group_id: str, size: int, *, key: str, fleet: str) -> None:
    """Take back places that have no machine, by their names. Source: instanceGroupManagers.deleteInstances.

    A smaller target size would let the group choose what goes. A machine that comes at this very moment in such a place
    is deleted before it has begun to work.
    """
    client = place.client
    group = one_group(client, group_id)
    if group.desired <= size:
        return
    refuse_size(group.name, size, least=group.bounds[0])
    _refuse_group(group, fleet=fleet)
    empty = [each for each in members(client, group) if each.empty]
    takes = group.desired - size
    if len(empty) < takes:
        raise CloudError(f"{group.name} has {len(empty)} places without a machine, not {takes}", code=TOO_MANY_MEMBERS)
    client.change(
        DELETE_MEMBERS,
        permit_in_force(),
        query={"requestId": request_id(key, group_id, str(size))},
        body={
            "instances": [f"zones/{each.link.rpartition('/zones/')[2]}" for each in empty[:takes]],
            "skipInstancesOnValidationError": False,
        },
        group=group.path,
    )


def protect(client: Client, group_id: str, *, fleet: str) -> None:
    """Refuse: a managed instance group has no protection of a member; without an autoscaler it never chooses one."""
    _refuse_group(one_group(client, group_id), fleet=fleet)
    raise CloudError(
        "Google Cloud has no protection of a member from its group's scale-in; without an autoscaler a group of "
        "Google's never chooses a member by itself",
        code=NOT_SUPPORTED,
    )


def request_id(*parts: str) -> str:
    """A UUID that is the same for the same parts: Compute Engine does what it names once within an hour."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "gpuwatch:" + "\0".join(parts)))


def _refuse_group(group: Group, *, fleet: str) -> None:
    """Touch no group without its owner's consent, and no group that another system drives."""
    if not group.is_enrolled(fleet):
        whose = f"belongs to {group.owner}" if group.owner else f"does not set the label of {FLEET_TAG}={fleet}"
        raise CloudError(f"the managed instance group {group.name} {whose}: it is left alone", code="NotEnrolled")
