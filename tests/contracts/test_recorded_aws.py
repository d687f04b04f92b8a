"""Each answer of EC2 and Auto Scaling that somebody recorded, given to `AwsCloud` in the place of the server."""

import re
from collections.abc import Callable
from pathlib import Path as Folder
from typing import Any

import pytest

from gpuwatch.clouds import (
    AuthFailedError,
    CloudError,
    CloudUnavailableError,
    LeftoverKind,
    NotFoundError,
    ProtectedError,
    ThrottledError,
)
from gpuwatch.clouds.provider import ALL
from gpuwatch.model.fleet import NodeState
from tests.support.builders.fleet import a_permit
from tests.support.clouds.aws.recorded import REGION, Answer, Aws, aws
from tests.support.clouds.recorded import Path, Unread, left_out, needs_recordings, play_recording, played
from tests.support.fakes.cloud_worlds import FLEET

STATES = {
    "pending": NodeState.PENDING,
    "running": NodeState.RUNNING,
    "stopping": NodeState.STOPPING,
    "stopped": NodeState.STOPPED,
    "shutting-down": NodeState.TERMINATING,
}
# Tags that only a service leaves.
_SERVICES = (
    *("aws:autoscaling:groupName", "aws:cloudformation:stack-name", "aws:eks:", "eks:", "elasticbeanstalk:"),
    *("aws:elasticmapreduce:", "aws:ec2spot:fleet-request-id", "aws:ec2:fleet-id", "kubernetes.io/cluster/"),
)
NODE, GROUP = "i-0a", f"arn:aws:autoscaling:{REGION}:1:autoScalingGroup:u:autoScalingGroupName/train"


def of_call(*calls: str) -> Callable[[Answer], bool]:
    """Good answers to these calls."""
    return lambda it: it.kind in calls and not it.refused


def machines_of(answer: Answer) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each machine with its reservation."""
    found = answer.body.get("Reservations", [])
    return [(machine, reservation) for reservation in found for machine in reservation.get("Instances", ())]


def a_machine(node_id: str = NODE, state: str = "running") -> dict[str, Any]:
    """DescribeInstances of one machine of the fleet, in a group."""
    machine = {
        "InstanceId": node_id,
        "InstanceType": "g5.xlarge",
        "State": {"Name": state, "Code": 16},
        "LaunchTime": "2026-01-01T00:00:00Z",
        "Placement": {"AvailabilityZone": f"{REGION}a"},
        "Tags": [
            {"Key": "gpuwatch:fleet", "Value": FLEET},
            {"Key": "aws:autoscaling:groupName", "Value": "train"},
        ],
    }
    return {"Reservations": [{"OwnerId": "1", "Instances": [machine]}]}


def a_group() -> dict[str, Any]:
    """DescribeAutoScalingGroups of its group."""
    member = {"InstanceId": NODE, "LifecycleState": "InService", "ProtectedFromScaleIn": False}
    group = {
        "AutoScalingGroupARN": GROUP,
        "AutoScalingGroupName": "train",
        "MinSize": 0,
        "MaxSize": 3,
        "DesiredCapacity": 1,
        "AvailabilityZones": [f"{REGION}a"],
        "Instances": [{**member, "AvailabilityZone": f"{REGION}a", "HealthStatus": "Healthy"}],
        "Tags": [{"Key": "gpuwatch:fleet", "Value": FLEET}],
    }
    return {"AutoScalingGroups": [group]}


# What plays an answer.


def play_machines(answer: Answer) -> None:
    """Every machine that has not ended is a node, in its state and with its owner; a list with a hole is no list."""
    found = machines_of(answer)
    with aws(Aws(answers={answer.kind: answer})) as cloud:
        if any("OwnerId" not in reservation for _, reservation in found):
            with pytest.raises(CloudUnavailableError, match="no usable answer"):
                cloud.nodes()
            return
        nodes = {node.id: node for node in cloud.nodes()}
    alive = {each["InstanceId"]: each for each, _ in found if each.get("State", {}).get("Name") != "terminated"}
    assert set(nodes) == {key for key, each in alive.items() if each.get("InstanceType")}
    for key, each in alive.items():
        if key not in nodes:
            continue
        node, word = nodes[key], each.get("State", {}).get("Name", "")
        whole = each.get("LaunchTime") and each.get("Placement", {}).get("AvailabilityZone")
        assert node.state is (STATES[word] if whole else NodeState.UNKNOWN)
        tags = {tag["Key"]: tag.get("Value", "") for tag in each.get("Tags", ())}
        if any(tag.startswith(_SERVICES) for tag in tags):
            assert node.managed_by is not None
        assert node.tags == tags
        assert not node.enrolled


def play_groups(answer: Answer) -> None:
    """Each group whose machines' type is known is there, and each is found by its id, with its sizes."""
    recorded = answer.body["AutoScalingGroups"]
    regions = {each["AutoScalingGroupARN"].split(":")[3] for each in recorded}
    with aws(Aws(answers={answer.kind: answer}), *sorted(regions)) as cloud:
        groups = {each.id: each for each in cloud.groups()}
        again = {each["AutoScalingGroupARN"]: cloud.group(each["AutoScalingGroupARN"]) for each in recorded}
    typed = {
        each["AutoScalingGroupARN"]
        for each in recorded
        if any(m.get("InstanceType") for m in each.get("Instances", ()))
    }
    assert typed <= set(groups) <= set(again)
    for each in recorded:
        group = again[each["AutoScalingGroupARN"]]
        assert group.name == each["AutoScalingGroupName"]
        assert set(group.node_ids) == {member["InstanceId"] for member in each.get("Instances", ())}
        assert not group.enrolled


def play_volumes(answer: Answer) -> None:
    """Those that nothing is attached to are left over."""

    def shown(form: Any) -> dict[str, Any]:  # noqa: ANN401  a form
        free = form.get("Filter.1.Value.1") == "available"
        return {"Volumes": [each for each in answer.body["Volumes"] if not free or each["State"] == "available"]}

    with aws(Aws(data={"DescribeVolumes": shown})) as cloud:
        found = {each.id for each in cloud.leftovers() if each.kind is LeftoverKind.UNATTACHED_VOLUME}
    assert found == {each["VolumeId"] for each in answer.body["Volumes"] if each["State"] == "available"}


def play_addresses(answer: Answer) -> None:
    """Those that are associated with nothing are left over."""
    with aws(Aws(answers={answer.kind: answer})) as cloud:
        found = {each.id for each in cloud.leftovers() if each.kind is LeftoverKind.UNUSED_ADDRESS}
    free = [each for each in answer.body["Addresses"] if not each.get("AssociationId") and not each.get("InstanceId")]
    assert found == {each.get("AllocationId") or each["PublicIp"] for each in free}


def play_lists(answer: Answer) -> None:
    """Snapshots and images are read without a mistake; what is told is among them. A list with a hole is no list."""
    things = [*answer.body.get("Snapshots", []), *answer.body.get("Images", [])]
    with aws(Aws(answers={answer.kind: answer})) as cloud:
        if any("State" not in each for each in things):
            with pytest.raises(CloudUnavailableError, match=r"no usable answer|cannot be read"):
                cloud.leftovers()
            return
        found = {each.id for each in cloud.leftovers()}
    names = {each.get("SnapshotId") or each.get("ImageId") for each in answer.body.get("Snapshots", [])}
    assert found <= names | {each["ImageId"] for each in answer.body.get("Images", [])}


def play_protection(answer: Answer) -> None:
    """A machine that EC2 would not end is not ended through its group."""
    asked = next((name for name in ("DisableApiTermination", "DisableApiStop") if name in answer.body), None)

    def attribute(form: Any) -> dict[str, Any]:  # noqa: ANN401  a form
        name = form["Attribute"][0].upper() + form["Attribute"][1:]
        return {"InstanceId": NODE, name: answer.body[name] if name == asked else {"Value": False}}

    server = Aws(data={"DescribeInstanceAttribute": attribute, "DescribeInstances": lambda _: a_machine()})
    server.data["DescribeAutoScalingGroups"] = lambda _: a_group()
    server.data["TerminateInstanceInAutoScalingGroup"] = lambda _: {"Activity": {"ActivityId": "a"}}
    protected = asked is not None and answer.body[asked]["Value"]
    with aws(server) as cloud:
        if protected:
            with pytest.raises(ProtectedError):
                cloud.terminate(NODE, "key", group=GROUP, permit=a_permit())
        else:
            cloud.terminate(NODE, "key", group=GROUP, permit=a_permit())
    assert ("TerminateInstanceInAutoScalingGroup" in server.asked) is not protected


def play_templates(answer: Answer) -> None:
    """A template's type is read, or is open."""
    with aws(Aws(answers={answer.kind: answer})) as cloud:
        assert list(cloud.unfit([{"template": "lt-1"}])) == []


def play_regions(answer: Answer) -> None:
    """Every region that the account may use is looked at."""
    server = Aws(answers={answer.kind: answer})
    with aws(server, ALL) as cloud:
        cloud.nodes()
    usable = [each for each in answer.body["Regions"] if each.get("OptInStatus") != "not-opted-in"]
    assert server.asked.count("DescribeInstances") == len(usable)


_CHANGES = {"StopInstances": "StoppingInstances", "StartInstances": "StartingInstances"}
_CHANGES["TerminateInstances"] = "TerminatingInstances"


def play_change(answer: Answer) -> None:
    """EC2's yes is a yes, and whether the machine ran until then is read of it; an answer without its part is none."""
    changed = answer.body.get(_CHANGES[answer.kind])
    node_id = changed[0]["InstanceId"] if changed else NODE
    server = Aws(answers={answer.kind: answer}, data={"DescribeInstances": lambda _: a_machine(node_id)})
    with aws(server) as cloud:
        if changed is None:
            with pytest.raises(CloudUnavailableError):
                change(cloud, answer.kind, node_id)
            return
        told = change(cloud, answer.kind, node_id)
    if answer.kind == "StopInstances":
        assert told.ran is (changed[0].get("PreviousState", {}).get("Name") == "running")


def change(cloud: Any, call: str, node_id: str) -> Any:  # noqa: ANN401  an adapter and its answer
    """Ask for it."""
    if call == "StopInstances":
        return cloud.stop(node_id, "key", permit=a_permit())
    if call == "TerminateInstances":
        return cloud.terminate(node_id, "key", permit=a_permit())
    return cloud.start(node_id, "key")


def play_launch(answer: Answer) -> None:
    """The machine's id is read."""
    with aws(Aws(answers={answer.kind: answer})) as cloud:
        assert cloud.launch({"template": "lt-1", "region": REGION}, "key").startswith("i-")


# The calls that an error is given to, where its own call was not recorded.
_ASKS: dict[str, Callable[[Any], object]] = {
    "DescribeAddresses": lambda cloud: cloud.leftovers(),
    "DescribeSnapshots": lambda cloud: cloud.leftovers(),
    "DescribeImages": lambda cloud: cloud.leftovers(),
    "DescribeVolumes": lambda cloud: cloud.leftovers(),
    "DescribeInstances": lambda cloud: cloud.nodes(),
    "DescribeAutoScalingGroups": lambda cloud: cloud.groups(),
    "RunInstances": lambda cloud: cloud.launch({"template": "lt-1", "region": REGION}, "key"),
    **{call: lambda cloud, call=call: change(cloud, call, NODE) for call in _CHANGES},  # type: ignore[misc]
}
KINDS = {
    "OperationNotPermitted": ProtectedError,
    "RequestLimitExceeded": ThrottledError,
    "UnauthorizedOperation": AuthFailedError,
    "InvalidInstanceID.NotFound": NotFoundError,
}


_IN_DOUBT = frozenset({"IdempotentParameterMismatch"})  # a key that has launched something: it may be there


def play_refusal(answer: Answer) -> None:
    """A typed error with AWS's own code: never an empty list, never a success, and never doubt without cause."""
    call = "RunInstances" if answer.kind == "Response" else answer.kind
    server = Aws(answers={call: answer}, data={"DescribeLaunchTemplateVersions": lambda _: {}})
    if call != "DescribeInstances":
        server.data["DescribeInstances"] = lambda _: a_machine()
    if call == "DescribeLaunchTemplateVersions":  # of which only the doctor and launches hear, which go on without it
        del server.data[call]
        with aws(server) as cloud:
            assert list(cloud.unfit([{"template": "lt-1"}])) == []
        return
    with aws(server) as cloud, pytest.raises(CloudError) as caught:
        _ASKS[call](cloud)
    assert caught.value.code == answer.code
    doubtful = answer.status >= 500 or answer.code in _IN_DOUBT
    assert isinstance(caught.value, CloudUnavailableError) == doubtful
    assert isinstance(caught.value, KINDS.get(answer.code, CloudError))


PATHS: tuple[Path[Answer], ...] = (
    Path(name="machines", fits=of_call("DescribeInstances"), play=play_machines),
    Path(name="groups", fits=of_call("DescribeAutoScalingGroups"), play=play_groups),
    Path(name="volumes", fits=of_call("DescribeVolumes"), play=play_volumes),
    Path(name="addresses", fits=of_call("DescribeAddresses"), play=play_addresses),
    Path(name="lists", fits=of_call("DescribeSnapshots", "DescribeImages"), play=play_lists),
    Path(name="protections", fits=of_call("DescribeInstanceAttribute"), play=play_protection),
    Path(name="templates", fits=of_call("DescribeLaunchTemplateVersions"), play=play_templates),
    Path(name="regions", fits=of_call("DescribeRegions"), play=play_regions),
    Path(name="changes", fits=of_call(*_CHANGES), play=play_change),
    Path(name="launches", fits=of_call("RunInstances"), play=play_launch),
    Path(name="refusals", fits=lambda it: it.refused, play=play_refusal),
)
_OTHERS = re.compile(
    r"(Allocate|Associate|Attach|Authorize|Copy|Create|Delete|Deregister|Detach|Disassociate|Import|Modify|Reboot|"
    r"Register|Release|Revoke)\w+|Describe(ImportSnapshotTasks|InternetGateways|KeyPairs|NetworkInterfaces|"
    r"PlacementGroups|ReservedInstances|RouteTables|SecurityGroups|Subnets|Tags|VolumesModifications|Vpcs|"
    r"AvailabilityZones|NatGateways|InstanceStatus|AccountAttributes)|(Get|List)\w+"
)
UNREAD: tuple[Unread[Answer], ...] = (
    Unread(name="what gpuwatch never asks", fits=lambda it: bool(_OTHERS.fullmatch(it.kind)) and not it.refused),
)


@pytest.mark.parametrize(("path", "answer"), played("aws", PATHS, Answer))
def test_a_recorded_answer_is_read_for_what_it_is(path: Path[Answer], answer: Answer) -> None:
    """No machine is lost, none is gone that is listed, and a refusal has a type."""
    path.play(answer)


@needs_recordings
def test_every_recorded_answer_is_read_or_known_as_unread() -> None:
    """An answer of a kind that nobody thought of is not passed over."""
    assert left_out("aws", PATHS, UNREAD, Answer) == []


@pytest.mark.parametrize(
    ("call", "code", "status"),
    [
        ("DescribeImages", "AuthFailure", 401),
        ("RunInstances", "InvalidAMIID.Unavailable", 400),
        ("StopInstances", "InternalError", 500),
        ("DescribeAutoScalingGroups", "ValidationError", 400),
        ("DescribeAutoScalingGroups", "ServiceUnavailable", 503),
        ("DescribeAutoScalingGroups", "AccessDenied", 403),
    ],
)
def test_what_plays_a_refusal_holds_it_to_its_status(call: str, code: str, status: int) -> None:
    """Few refusals were recorded, and these have the same form."""
    told = {"Error": {"Code": code, "Message": "No."}}
    service = "autoscaling" if "AutoScaling" in call else "ec2"
    play_refusal(Answer(number=0, line={"operation": f"{service}.{call}", "status": status, "data": told}))


def test_what_the_doctor_records_is_played_like_it(tmp_path: Folder) -> None:
    """The answers of a recording, in which names are replaced, are read as what they say."""
    played = {name for name, _ in play_recording("aws", tmp_path / "new", PATHS, Answer)}
    assert {"machines", "volumes"} <= played
