"""What is done to machines and groups on AWS: one target a call, since one bad id fails a whole call on EC2.

Each is sent once, on the line for acts, and only while its permit holds (`aws_sending`). What AWS does not refuse by
itself (a member's place below the group's minimum is refused, its protection against termination is not) is asked for
right before, and the permit is checked after that.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from gpuwatch.clouds import (
    FLEET_TAG,
    POOL_TAG,
    START_IS_DONE,
    STOP_IS_DONE,
    TERMINATE_IS_DONE,
    CloudError,
    ProtectedError,
)
from gpuwatch.clouds.aws.groups import SERVICE, Group, one_group
from gpuwatch.clouds.aws.instances import describe_instance, state_of
from gpuwatch.clouds.aws.places import Region
from gpuwatch.clouds.groups import lower, refuse_end_below, refuse_size
from gpuwatch.clouds.permissions import server_time
from gpuwatch.clouds.permit import Permit, permit_in_force
from gpuwatch.clouds.tags import claims
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.model.fleet import DEFAULT_POOL, NodeState
from gpuwatch.model.stops import StopAnswer

_INCORRECT_STATE = "IncorrectInstanceState"
_TOKEN_LENGTH = 64  # of RunInstances' ClientToken, in ASCII
_IN_SERVICE = "InService"
_RUNNING = "running"
# By how much the time of a stop may lie outside of its call: both are told in whole seconds, and EC2 has many clocks. A
# later stop needs a start before it, which shows in the launch time.
_BEFORE_DATE, _AFTER_DATE = timedelta(seconds=2), timedelta(minutes=1)


def stop(place: Region, node_id: str, permit: Permit) -> StopAnswer:
    """Stop a machine. Source: EC2 StopInstances.

    EC2 accepts it of a machine that is stopping or stopped, too: `PreviousState` says whether the machine ran until
    then. The time of the stop is that of the call, by EC2's clock, which its answer's Date shows.
    """
    with _unless_already(STOP_IS_DONE, place, node_id), place.changing("StopInstances", permit):
        began = place.clock.uptime()
        answer = place.acting.ec2.stop_instances(InstanceIds=[node_id])
        before = {each.get("InstanceId"): each.get("PreviousState", {}) for each in answer["StoppingInstances"]}
        took = timedelta(seconds=place.clock.uptime() - began) + _BEFORE_DATE
        ran = before.get(node_id, {}).get("Name") == _RUNNING
        date = server_time(answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date", ""))
        if date is None:
            return StopAnswer(ran=ran)
        return StopAnswer(ran=ran, earliest=date - took, latest=date + _AFTER_DATE)
    return StopAnswer(ran=False)


def start(place: Region, node_id: str) -> None:
    """Start a machine. Source: EC2 StartInstances."""
    with _unless_already(START_IS_DONE, place, node_id), place.changing("StartInstances", permit_in_force()):
        _ = place.acting.ec2.start_instances(InstanceIds=[node_id])["StartingInstances"]


def tag(place: Region, node_id: str, tags: Mapping[str, str]) -> None:
    """Set tags of a machine. Source: EC2 CreateTags."""
    with place.changing("CreateTags", permit_in_force()):
        create_tags: Any = place.acting.ec2.create_tags  # its stub says None; it is the answer's metadata
        _from_aws(create_tags(Resources=[node_id], Tags=[{"Key": name, "Value": tags[name]} for name in sorted(tags)]))


def terminate(place: Region, node_id: str, permit: Permit) -> None:
    """Source: TerminateInstances, which changes nothing where the machine is terminating or gone."""
    with place.changing("TerminateInstances", permit):
        _ = place.acting.ec2.terminate_instances(InstanceIds=[node_id])["TerminatingInstances"]


def terminate_member(place: Region, node_id: str, group_id: str, permit: Permit, *, fleet: str, now: datetime) -> None:
    """End a member with its place. Source: TerminateInstanceInAutoScalingGroup with ShouldDecrementDesiredCapacity.

    Asked again it would take a second place, so machine and group are looked at first. The group would also end a
    machine that is protected against termination, or by its owner's tag, which no policy of IAM can see here.
    """
    instance = describe_instance(place, place.acting, node_id)
    group = one_group(place, place.acting, group_id)
    member = group.members.get(node_id)
    if state_of(instance) in TERMINATE_IS_DONE or (member and member.ending):
        return
    if member is None:
        raise CloudError(f"{node_id} is no member of {group.name} any more: it is left alone", code="NotAMember")
    if member.state != _IN_SERVICE:
        raise CloudError(f"{node_id} is {member.state} in {group.name}: it is left alone", code=_INCORRECT_STATE)
    _refuse_group(group, fleet=fleet, process="Terminate")
    left, units = group.desired - member.weight, "units" if group.weighted else "machines"
    refuse_end_below(group.name, group.desired, group.min_size, left=left, units=units)
    protected = claims(instance.tags, fleet=fleet, now=now)["protected"]
    why = protected or next(_protections(place, node_id), None)
    if why is not None:
        raise ProtectedError(f"{node_id}: {why}")
    with place.changing("TerminateInstanceInAutoScalingGroup", permit, service=SERVICE):
        answer = place.acting.autoscaling.terminate_instance_in_auto_scaling_group(
            InstanceId=node_id, ShouldDecrementDesiredCapacity=True
        )
        _ = answer["Activity"]


def launch(place: Region, arguments: Mapping[str, str], key: str, *, fleet: str) -> str:
    """One machine from a template; gives its id. Source: RunInstances; the key is its ClientToken."""
    request = launch_request(arguments, key, fleet=fleet)
    with place.changing("RunInstances", permit_in_force()):
        return place.acting.ec2.run_instances(**request)["Instances"][0]["InstanceId"]


def type_of_launch(place: Region, arguments: Mapping[str, str]) -> str | None:
    """The machine type that a launch asks for; None where the template leaves it open.

    Source: DescribeLaunchTemplateVersions.
    """
    if arguments.get("instance_type"):
        return arguments["instance_type"]
    template, version = arguments["template"], arguments.get("version") or "$Default"
    with place.asking("DescribeLaunchTemplateVersions"):
        ask: Any = place.reading.ec2.describe_launch_template_versions
        versions = ask(**{_template_key(template): template}, Versions=[version])["LaunchTemplateVersions"]
        name: str | None = versions[0]["LaunchTemplateData"].get("InstanceType") if versions else None
        return name


def _template_key(template: str) -> str:
    return "LaunchTemplateId" if template.startswith("lt-") else "LaunchTemplateName"


def launch_request(arguments: Mapping[str, str], key: str, *, fleet: str) -> dict[str, Any]:
    """What RunInstances is asked for one machine.

    Raises:
        ValueError: the key is no ClientToken.

    """
    if not key.isascii() or len(key) > _TOKEN_LENGTH:
        raise ValueError(
            f"the key {key!r} is not up to {_TOKEN_LENGTH} ASCII characters, which EC2 asks of a ClientToken"
        )
    template = arguments["template"]
    tags = {FLEET_TAG: fleet, POOL_TAG: arguments.get("pool") or DEFAULT_POOL, DECISION_TAG: key}
    request: dict[str, Any] = {
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": key,
        "LaunchTemplate": {
            _template_key(template): template,
            "Version": arguments.get("version") or "$Default",
        },
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": [{"Key": name, "Value": tags[name]} for name in sorted(tags)]}
        ],
    }
    if arguments.get("subnet"):
        request["SubnetId"] = arguments["subnet"]
    if arguments.get("instance_type"):
        request["InstanceType"] = arguments["instance_type"]
    return request


def grow(place: Region, group_id: str, size: int, *, key: str, fleet: str) -> None:
    """Raise the desired size, where it is smaller at this moment. Source: SetDesiredCapacity without its cooldown."""
    del key  # there is no token: asking twice changes nothing more
    group = one_group(place, place.acting, group_id)
    if group.desired >= size and not group.weighted:
        return
    _refuse_group(group, fleet=fleet, process="Launch", grows=True)
    refuse_size(group.name, size, most=group.max_size)
    _set_size(place, group, size)


def _set_size(place: Region, group: Group, size: int) -> None:
    with place.changing("SetDesiredCapacity", permit_in_force(), service=SERVICE):
        answer = place.acting.autoscaling.set_desired_capacity(
            AutoScalingGroupName=group.name, DesiredCapacity=size, HonorCooldown=False
        )
        _from_aws(answer)


def shrink(place: Region, group_id: str, size: int, *, key: str, fleet: str) -> None:
    """Take the desired size back, where no member can go for it. Source: SetDesiredCapacity without its cooldown.

    A group ends members of its own choice where it has more than it wants. One may come at this very moment, so all
    others must be protected from a scale-in, and the group is looked at once more afterwards.
    """
    del key  # there is no token: asking twice changes nothing more
    group = one_group(place, place.acting, group_id)
    if group.desired <= size:
        return
    _refuse_group(group, fleet=fleet, grows=True)
    refuse_size(group.name, size, least=group.min_size)
    lower(
        group,
        group.desired,
        size,
        lambda: one_group(place, place.acting, group_id),
        lambda new: _set_size(place, group, new),
    )


def protect(place: Region, node_id: str, group_id: str, *, on: bool, fleet: str) -> None:
    """Set a member's scale-in protection. Source: Auto Scaling SetInstanceProtection."""
    group = one_group(place, place.acting, group_id)
    _refuse_group(group, fleet=fleet)
    with place.changing("SetInstanceProtection", permit_in_force(), service=SERVICE):
        answer = place.acting.autoscaling.set_instance_protection(
            InstanceIds=[node_id], AutoScalingGroupName=group.name, ProtectedFromScaleIn=on
        )
        _from_aws(answer)


def _from_aws(answer: Mapping[str, Any]) -> None:
    """Hold an answer without contents to the one thing that AWS puts into each: a gateway's page has no request id.

    Raises:
        KeyError: the answer has no such id.

    """
    _ = answer["ResponseMetadata"]["RequestId"]


def _refuse_group(group: Group, *, fleet: str, process: str | None = None, grows: bool = False) -> None:
    """Touch no group without its owner's consent, and ask for nothing that a suspended process would leave undone."""
    group.refuse_unless_ours("Auto Scaling group", fleet, grows=grows)
    if grows and group.weighted:
        raise CloudError(
            f"{group.name} counts in weights, and not in machines: its size is left alone", code="Weighted"
        )
    if process in group.suspended:
        raise CloudError(f"the process {process} of {group.name} is suspended", code="ProcessSuspended")


def _protections(place: Region, node_id: str) -> Iterator[str]:
    """Why EC2 itself would refuse to end a machine, which its group does not ask. Source: DescribeInstanceAttribute.

    Protection against a stop refuses an end, too.
    """
    for attribute, member, what in (
        ("disableApiTermination", "DisableApiTermination", "termination"),
        ("disableApiStop", "DisableApiStop", "a stop, and so against its end"),
    ):
        ask: Any = place.acting.ec2.describe_instance_attribute  # its stub wants the names as literals
        with place.asking("DescribeInstanceAttribute"):
            if bool(ask(InstanceId=node_id, Attribute=attribute)[member]["Value"]):
                yield f"it is protected against {what}"


@contextmanager
def _unless_already(done: frozenset[NodeState], place: Region, node_id: str) -> Iterator[None]:
    """Take EC2's "incorrect state" for success where the machine is where it should go, or on its way."""
    try:
        yield
    except CloudError as error:
        if error.code != _INCORRECT_STATE or state_of(describe_instance(place, place.acting, node_id)) not in done:
            raise
