"""What is done to machines and groups on Tencent Cloud: one target a call.

Each is sent once, on the line for acts, and only while its permit holds. What Tencent Cloud does not refuse by itself
is asked for right before, and the permit is checked after that.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gpuwatch.clouds import (
    START_IS_DONE,
    STOP_IS_DONE,
    TERMINATE_IS_DONE,
    CloudError,
    NotFoundError,
    ProtectedError,
)
from gpuwatch.clouds.groups import lower, refuse_end_below, refuse_size
from gpuwatch.clouds.permit import Permit, permit_in_force
from gpuwatch.clouds.tags import claims
from gpuwatch.clouds.tencent.errors import about_its_state
from gpuwatch.clouds.tencent.groups import Group, one_group
from gpuwatch.clouds.tencent.instances import describe_instance
from gpuwatch.clouds.tencent.places import Region
from gpuwatch.clouds.tencent.seen import History
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.stops import StopAnswer

_IN_SERVICE = "IN_SERVICE"
_GOING = ("TERMINATING", "IN_TERMINATING_HOOK", "TERMINATION_FAILED")


def stop(place: Region, node_id: str, permit: Permit, history: History) -> StopAnswer:
    """Shut down by the operating system, never by the power switch, and stop charging. Source: StopInstances.

    StoppedMode is KEEP_CHARGING where nothing is asked for. A machine that cannot stop charging refuses the call, and
    so does one that does not run. The machine shows the id of this request as that of its latest operation.
    """
    with _unless_already(STOP_IS_DONE, place, node_id, history):
        answer = place.acting.change(
            permit, "cvm", "StopInstances", InstanceIds=[node_id], StopType="SOFT", StoppedMode="STOP_CHARGING"
        )
        return StopAnswer(ran=True, request=str(answer["RequestId"]))
    return StopAnswer(ran=False)


def start(place: Region, node_id: str, history: History) -> None:
    """Start a machine. Source: CVM StartInstances."""
    with _unless_already(START_IS_DONE, place, node_id, history):
        place.acting.change(permit_in_force(), "cvm", "StartInstances", InstanceIds=[node_id])
        history.note_start(node_id)


def terminate(place: Region, node_id: str, permit: Permit, history: History) -> None:
    """Source: TerminateInstances; the first such call only moves a prepaid machine to the recycle bin."""
    with _unless_already(TERMINATE_IS_DONE, place, node_id, history):
        place.acting.change(permit, "cvm", "TerminateInstances", InstanceIds=[node_id])


def tag(place: Region, node_id: str, tags: Mapping[str, str]) -> None:
    """Source: TagResources of the tag service, which names a machine by its account and region.

    Raises:
        CloudError: they were not set, which a part of a good answer says.

    """
    answer = place.acting.change(
        permit_in_force(),
        "tag",
        "TagResources",
        ResourceList=[f"qcs::cvm:{place.region}:uin/{place.account}:instance/{node_id}"],
        Tags=[{"TagKey": name, "TagValue": tags[name]} for name in sorted(tags)],
    )
    for failed in answer.get("FailedResources") or ():
        code = str(failed.get("Code", ""))
        raise CloudError(f"the tags of {node_id} were not set: {failed.get('Message', '')} ({code})", code=code)


def terminate_member(
    place: Region, node_id: str, group_id: str, permit: Permit, history: History, *, fleet: str
) -> None:
    """End a member with its place. Source: RemoveInstances of Auto Scaling, which lowers the desired size with it.

    It ends what the group made, and also what is protected there against a scale-in; a machine that somebody attached
    is only detached. Machine and group are looked at first.
    """
    group = one_group(place.acting, group_id)
    member = group.members.get(node_id)
    if member is not None and member.state in _GOING:
        return
    try:
        instance = describe_instance(place.acting, node_id)
    except NotFoundError:
        if history.ended_machine(node_id) is None:
            raise
        return
    if instance.state in TERMINATE_IS_DONE:
        return
    if member is None:
        raise CloudError(f"{node_id} is not a member of {group.name} any more: it is left alone", code="NotAMember")
    if member.state != _IN_SERVICE:
        raise CloudError(f"{node_id} is {member.state} in {group.name}: it is left alone", code="NotInService")
    _refuse_group(group, fleet=fleet, process="Terminate")
    refuse_end_below(group.name, group.desired, group.min_size)
    if not member.made:
        raise CloudError(
            f"{node_id} was attached to {group.name} by hand: the group would only detach it",
            code="AttachedByHand",
        )
    protected = claims(instance.tags, fleet=fleet, now=history.now())["protected"]
    if protected or instance.described.get("DisableApiTermination"):
        raise ProtectedError(f"{node_id}: {protected or 'it is protected against termination'}")
    place.acting.change(permit, "as", "RemoveInstances", AutoScalingGroupId=group_id, InstanceIds=[node_id])


def grow(place: Region, group_id: str, size: int, *, key: str, fleet: str) -> None:
    """Raise the desired size, where it is smaller at this moment. Source: ModifyDesiredCapacity."""
    del key  # there is no token: asking twice changes nothing more
    group = one_group(place.acting, group_id)
    if group.desired >= size:
        return
    refuse_size(group.name, size, most=group.max_size)
    _refuse_group(group, fleet=fleet, process="Launch", grows=True)
    _set_size(place, group_id, size)


def shrink(place: Region, group_id: str, size: int, *, key: str, fleet: str) -> None:
    """Take the desired size back, where no member can go for it. Source: ModifyDesiredCapacity."""
    del key  # there is no token: asking twice changes nothing more
    group = one_group(place.acting, group_id)
    if group.desired <= size:
        return
    refuse_size(group.name, size, least=group.min_size)
    _refuse_group(group, fleet=fleet, process="Terminate", grows=True)
    lower(
        group,
        group.desired,
        size,
        lambda: one_group(place.acting, group_id),
        lambda new: _set_size(place, group_id, new),
    )


def _set_size(place: Region, group_id: str, size: int) -> None:
    place.acting.change(
        permit_in_force(), "as", "ModifyDesiredCapacity", AutoScalingGroupId=group_id, DesiredCapacity=size
    )


def protect(place: Region, node_id: str, group_id: str, *, on: bool, fleet: str) -> None:
    """Set a member's scale-in protection. Source: Auto Scaling SetInstancesProtection."""
    _refuse_group(one_group(place.acting, group_id), fleet=fleet)
    place.acting.change(
        permit_in_force(),
        "as",
        "SetInstancesProtection",
        AutoScalingGroupId=group_id,
        InstanceIds=[node_id],
        ProtectedFromScaleIn=on,
    )


def _refuse_group(group: Group, *, fleet: str, process: str | None = None, grows: bool = False) -> None:
    """Touch no group without its owner's consent, and ask for nothing of one that is switched off."""
    group.refuse_unless_ours("Auto Scaling group", fleet, grows=grows)
    if process in group.suspended:
        raise CloudError(f"the Auto Scaling group {group.name} is switched off (DISABLED)", code="ProcessSuspended")


@contextmanager
def _unless_already(done: frozenset[NodeState], place: Region, node_id: str, history: History) -> Iterator[None]:
    """Take a refusal for success where the machine is where it should go, or on its way, or gone."""
    try:
        yield
    except NotFoundError:
        if NodeState.TERMINATED not in done or history.ended_machine(node_id) is None:
            raise
    except CloudError as error:
        if not about_its_state(error.code) or _state(place, node_id, history) not in done:
            raise


def _state(place: Region, node_id: str, history: History) -> NodeState:
    """The state of this moment; a machine that is ending is remembered."""
    try:
        state = describe_instance(place.acting, node_id).state
    except NotFoundError:
        return NodeState.UNKNOWN if history.ended_machine(node_id) is None else NodeState.TERMINATED
    if state in TERMINATE_IS_DONE:
        history.ends(node_id)
    return state
