"""Each answer of Tencent Cloud that somebody recorded, given to `TencentCloud` in the place of the server."""

import re
from collections.abc import Callable
from pathlib import Path as Folder
from typing import Any

import pytest

from gpuwatch.clouds import CloudError, CloudUnavailableError, LeftoverKind
from gpuwatch.model.fleet import CapacityType, NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.recorded import Path, Unread, left_out, needs_recordings, play_recording, played, recorded
from tests.support.clouds.tencent.cvm import described
from tests.support.clouds.tencent.recorded import Answer, Tencent, tencent
from tests.support.clouds.tencent.state import State

# The page on InstanceState; all others are in doubt.
STATES = {
    "PENDING": NodeState.PENDING,
    "RUNNING": NodeState.RUNNING,
    "STARTING": NodeState.PENDING,
    "STOPPING": NodeState.STOPPING,
    "STOPPED": NodeState.STOPPED,
    "SHUTDOWN": NodeState.TERMINATING,
    "TERMINATING": NodeState.TERMINATING,
}
UNDER_WAY = {"StopInstances": NodeState.STOPPING, "StartInstances": NodeState.PENDING}
UNDER_WAY["TerminateInstances"] = NodeState.TERMINATING
_TKE = re.compile(r"tke_(cls-\w+?)_")
NODE = "ins-0a"


def of_action(*actions: str, product: str = "") -> Callable[[Answer], bool]:
    """Good answers to these actions."""
    return lambda it: it.kind in actions and not it.refused and (not product or it.product in {product, ""})


def a_machine(node_id: str = NODE) -> dict[str, Any]:
    """One that runs."""
    return {
        "InstanceId": node_id,
        "InstanceType": "GN10X.2XLARGE40",
        "InstanceState": "RUNNING",
        "InstanceChargeType": "POSTPAID_BY_HOUR",
        "CreatedTime": "2026-01-01T00:00:00Z",
        "Placement": {"Zone": "ap-singapore-4"},
        "Tags": [],
    }


def state_of(machine: dict[str, Any]) -> NodeState:
    """Its state, by the words of the recording."""
    state = STATES.get(machine.get("InstanceState", ""), NodeState.UNKNOWN)
    if machine.get("LatestOperationState") == "OPERATING" and state in {NodeState.RUNNING, NodeState.STOPPED}:
        return UNDER_WAY.get(machine.get("LatestOperation", ""), state)
    return state


def play_machines(answer: Answer) -> None:
    """Every machine of the answer is a node, in its state and with its owner; none is gone."""
    with tencent(Tencent.of(answer)) as cloud:
        nodes = {node.id: node for node in cloud.nodes()}
        again = {key: cloud.node(key) for key in nodes}
        cloud.leftovers()
    recorded = {each["InstanceId"]: each for each in answer.items}
    assert set(nodes) == set(recorded)
    for key, each in recorded.items():
        node = nodes[key]
        assert node.state is state_of(each)
        assert again[key] is not None
        named = _TKE.match(each.get("InstanceName") or "")
        if named is not None:
            assert node.managed_by == f"TKE cluster {named[1]}"
        assert node.tags == {tag["Key"]: tag["Value"] or "" for tag in each.get("Tags") or ()}
        assert (node.capacity_type is CapacityType.PREPAID) is (each["InstanceChargeType"] == "PREPAID")
        if each["InstanceState"] == "STOPPED" and each["InstanceChargeType"] == "POSTPAID_BY_HOUR":
            assert (node.still_billed is None) is (each.get("StopChargingMode") == "STOP_CHARGING")


def play_left(kind: LeftoverKind, key: str, free: Callable[[dict[str, Any]], bool]) -> Callable[[Answer], None]:
    """Plays a list of what may be left over: exactly what nothing uses is told."""

    def play(answer: Answer) -> None:
        with tencent(Tencent.of(answer)) as cloud:
            found = {each.id for each in cloud.leftovers() if each.kind is kind}
            cloud.disks()
        assert found == {each[key] for each in answer.items if free(each)}

    return play


def play_lists(answer: Answer) -> None:
    """Snapshots and images are read without a mistake; what is told is among them."""
    with tencent(Tencent.of(answer)) as cloud:
        found = {each.id for each in cloud.leftovers()}
    assert found <= {each.get("SnapshotId") or each.get("ImageId") for each in answer.items}


def play_metrics(answer: Answer) -> None:
    """The monitor's numbers are the use of the machine that they name; those that name no machine are no answer."""
    series = [{each["Name"]: each["Value"] for each in point["Dimensions"]} for point in answer.body["DataPoints"]]
    named = [dimensions.get("InstanceId") for dimensions in series]
    node_id = next((each for each in named if each and each.startswith("ins-")), NODE)
    server = Tencent.of(answer, DescribeInstances=[a_machine(node_id)])
    with tencent(server) as cloud:
        nodes = list(cloud.nodes())
        if not all(named):
            with pytest.raises(CloudUnavailableError, match="names no machine"):
                cloud.use_of(nodes, 3600.0)
            return
        assert set(cloud.use_of(nodes, 3600.0)) <= set(named)


def play_change(answer: Answer) -> None:
    """The cloud's yes is a yes."""
    server = Tencent.of(answer, DescribeInstances=[a_machine()])
    with tencent(server) as cloud:
        if answer.kind == "TagResources":
            cloud.tag(NODE, {"gpuwatch:decision-id": "d"}, "key")
        elif answer.kind == "StartInstances":
            cloud.start(NODE, "key")
        elif answer.kind == "StopInstances":
            cloud.stop(NODE, "key", permit=a_permit())
        else:
            cloud.terminate(NODE, "key", permit=a_permit())
    assert answer.kind in server.asked


def play_refusal(answer: Answer) -> None:
    """A typed error with Tencent Cloud's own code, of the list of machines and of a change."""
    told = answer.body["Error"]["Code"]
    one = {"DescribeInstances": [a_machine()]}
    refused = []
    with tencent(Tencent(answers={"DescribeInstances": answer.body})) as cloud, pytest.raises(CloudError) as listing:
        cloud.nodes()
    refused.append(listing.value)
    server = Tencent(things=one, answers={"TerminateInstances": answer.body})
    with tencent(server) as cloud, pytest.raises(CloudError) as ending:
        cloud.terminate(NODE, "key", permit=a_permit())
    refused.append(ending.value)
    for error in refused:
        assert error.code == told
        assert isinstance(error, CloudUnavailableError) == told.startswith("InternalError")


PATHS: tuple[Path[Answer], ...] = (
    Path(name="machines", fits=of_action("DescribeInstances", product="cvm"), play=play_machines),
    Path(
        name="disks",
        fits=of_action("DescribeDisks"),
        play=play_left(LeftoverKind.UNATTACHED_VOLUME, "DiskId", lambda each: each["DiskState"] == "UNATTACHED"),
    ),
    Path(
        name="addresses",
        fits=of_action("DescribeAddresses"),
        play=play_left(LeftoverKind.UNUSED_ADDRESS, "AddressId", lambda each: each["AddressStatus"] == "UNBIND"),
    ),
    Path(name="lists", fits=of_action("DescribeSnapshots", "DescribeImages"), play=play_lists),
    Path(name="metrics", fits=of_action("GetMonitorData"), play=play_metrics),
    Path(
        name="changes",
        fits=of_action("StartInstances", "StopInstances", "TerminateInstances", "TagResources"),
        play=play_change,
    ),
    Path(name="refusals", fits=lambda it: it.refused, play=play_refusal),
)
_OTHERS = frozenset({"DescribeTagRetentionRules", "GetResources", "ModifyResourceTags", "UnTagResources"})
_OWN = frozenset({"cvm", "cbs", "vpc", "as", "tke", "monitor", "tag", "sts", "cam", ""})
UNREAD: tuple[Unread[Answer], ...] = (
    Unread(
        name="what gpuwatch never asks",
        fits=lambda it: not it.refused and (it.kind in _OTHERS or it.product not in _OWN),
    ),
)


@pytest.mark.parametrize(("path", "answer"), played("tencent", PATHS, Answer))
def test_a_recorded_answer_is_read_for_what_it_is(path: Path[Answer], answer: Answer) -> None:
    """No machine is lost, none is gone that is listed, and a refusal has a type."""
    path.play(answer)


@needs_recordings
def test_every_recorded_answer_is_read_or_known_as_unread() -> None:
    """An answer of a kind that nobody thought of is not passed over."""
    assert left_out("tencent", PATHS, UNREAD, Answer) == []


# Members of a machine that gpuwatch does not read, and that the fake leaves out.
_NOT_READ = frozenset(
    {
        *("CamRoleName", "DedicatedClusterId", "DefaultLoginPort", "DefaultLoginUser", "DisasterRecoverGroupId"),
        *("HpcClusterId", "IPv6Addresses", "InternetAccessible", "LicenseType", "LoginSettings", "OperatorUin"),
        *("PlatformProjectId", "RdmaIpAddresses", "SecurityGroupIds", "VirtualPrivateCloud", "Metadata"),
        *("CpuTopology", "LatestOperationErrorMsg"),
    }
)


@needs_recordings
def test_the_fake_shows_what_a_real_machine_shows() -> None:
    """What the fake leaves out is known not to be read: our fake repeats no belief of ours about the members."""
    fake = State(ManualClock()).add_machine("ap-singapore", "GN10X.2XLARGE40")
    answers = [answer for answer in recorded("tencent", Answer) if PATHS[0].fits(answer)]
    real = {name for answer in answers for each in answer.items for name in each}

    assert real - set(described(fake)) <= _NOT_READ


@pytest.mark.parametrize(
    "code",
    ["RequestLimitExceeded", "ResourcesSoldOut.SpecifiedInstanceType", "LimitExceeded", "AuthFailure", "InternalError"],
)
def test_what_plays_a_refusal_holds_it_to_its_code(code: str) -> None:
    """Few refusals were recorded, and these have the same form."""
    body = {"Response": {"RequestId": "r", "Error": {"Code": code, "Message": "No."}}}
    play_refusal(Answer(number=0, line={"action": "DescribeInstances", "body": body}))


def test_what_the_doctor_records_is_played_like_it(tmp_path: Folder) -> None:
    """The answers of a recording, in which names are replaced, are read as what they say."""
    played = {name for name, _ in play_recording("tencent", tmp_path / "new", PATHS, Answer)}
    assert {"disks"} <= played
