"""A machine with volumes under a key of one's own is not stopped where it might not start again."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from moto.ec2.models.instances import StateReason

from gpuwatch.clouds import POOL_TAG
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.fakes import moto_notices
from tests.support.fakes.cloud_worlds import FLEET, MINE
from tests.support.fakes.moto_faults import REGION, MotoFaults

HOUR = 3600.0
FELL_BACK = ("Client.InternalError", "Client.InternalError: Client error on launch")


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the test moves."""
    return ManualClock()


@pytest.fixture
def ec2(clock: ManualClock) -> Iterator[MotoFaults]:
    """An empty account."""
    with MotoFaults(clock) as faults:
        yield faults


@pytest.fixture
def cloud(ec2: MotoFaults, clock: ManualClock) -> AwsCloud:
    """The real adapter on it."""
    return AwsCloud(fleet=FLEET, clock=clock, regions=[REGION], session=ec2.session)


def a_key(ec2: MotoFaults) -> str:
    """A customer's key; gives its ARN."""
    kms: Any = ec2.session.client("kms", region_name=REGION)
    arn: str = kms.create_key()["KeyMetadata"]["Arn"]
    return arn


def with_volume(ec2: MotoFaults, key: str, tags: dict[str, str] = MINE) -> str:
    """A machine that runs, with a volume under that key."""
    node_id = ec2.launch(tags)
    options: Any = {"Size": 10, "AvailabilityZone": f"{REGION}a", "Encrypted": True, "KmsKeyId": key}
    volume = ec2.client.create_volume(**options)["VolumeId"]
    ec2.client.attach_volume(VolumeId=volume, InstanceId=node_id, Device="/dev/sdf")
    return node_id


def decide(ec2: MotoFaults, decision: str, *, times: int = 9) -> None:
    """What IAM's simulation says of a grant."""
    ec2.garble("SimulatePrincipalPolicy", page=moto_notices.decided(decision), times=times)


def fall_back(ec2: MotoFaults, node_id: str) -> None:
    """A start was accepted, and the machine is stopped again."""
    code, message = FELL_BACK
    instance = ec2._instance(node_id)
    instance.stop()
    instance.state_reason, instance._reason = StateReason(message, code), ""


def seen(cloud: AwsCloud, node_id: str) -> Node:
    """It in the list of all."""
    return next(each for each in cloud.nodes() if each.id == node_id)


def test_a_key_that_we_have_no_right_to_holds_the_stop(ec2: MotoFaults, cloud: AwsCloud) -> None:
    """EC2 would accept the start, and the machine would fall back: it is known before the first stop."""
    key = a_key(ec2)
    node_id = with_volume(ec2, key)
    decide(ec2, "implicitDeny")

    listed, asked = seen(cloud, node_id).may_not_start, cloud.node(node_id).may_not_start

    assert listed == asked
    assert listed is not None
    assert key in listed
    assert "kms:CreateGrant: implicitDeny" in listed
    assert "iam/disks.json" in listed


def test_a_key_that_we_may_use_holds_nothing(ec2: MotoFaults, cloud: AwsCloud) -> None:
    """IAM's own simulation says it; nothing is tried."""
    node_id = with_volume(ec2, a_key(ec2))
    decide(ec2, "allowed")

    assert seen(cloud, node_id).may_not_start is None
    assert not ec2.done("CreateGrant")


def test_an_unknown_right_to_a_key_of_one_s_own_holds_the_stop_and_says_how_it_becomes_known(
    ec2: MotoFaults, cloud: AwsCloud, clock: ManualClock
) -> None:
    """People see it in `blocked`, and the same file gives the right and the right to ask for it."""
    node_id = with_volume(ec2, a_key(ec2))
    ec2.refuse("SimulatePrincipalPolicy", "AccessDenied", status=403)

    doubt = seen(cloud, node_id).may_not_start
    assert doubt is not None
    assert "iam:SimulatePrincipalPolicy is not allowed" in doubt
    assert "iam/disks.json" in doubt

    clock.advance(HOUR + 1)
    decide(ec2, "allowed")
    assert seen(cloud, node_id).may_not_start is None


def test_the_clouds_own_key_holds_nothing(ec2: MotoFaults, cloud: AwsCloud) -> None:
    """The key aws/ebs needs no grant of ours; nobody simulates anything."""
    node_id = with_volume(ec2, a_key(ec2))
    told = {"KeyMetadata": {"KeyId": "k", "KeyManager": "AWS", "KeyState": "Enabled"}}
    ec2.garble("DescribeKey", page=json.dumps(told))

    assert seen(cloud, node_id).may_not_start is None
    assert "SimulatePrincipalPolicy" not in {each.action for each in ec2.calls}


def test_a_key_of_which_nobody_knows_whose_it_is_holds_nothing(ec2: MotoFaults, cloud: AwsCloud) -> None:
    """Most encrypted volumes are under the cloud's own key; the doctor says that the right is missing."""
    node_id = with_volume(ec2, a_key(ec2))
    ec2.refuse("DescribeKey", "AccessDeniedException", times=9)

    assert seen(cloud, node_id).may_not_start is None


@pytest.mark.parametrize("state", ["Disabled", "PendingDeletion"])
def test_a_key_that_is_switched_off_holds_the_stop(ec2: MotoFaults, cloud: AwsCloud, state: str) -> None:
    """The machine runs on with what EC2 holds of the key, and would not start again for anybody."""
    key = a_key(ec2)
    node_id = with_volume(ec2, key)
    kms: Any = ec2.session.client("kms", region_name=REGION)
    name = key.rpartition("/")[2]
    kms.disable_key(KeyId=name) if state == "Disabled" else kms.schedule_key_deletion(KeyId=name)
    decide(ec2, "allowed")

    assert seen(cloud, node_id).may_not_start == f"the key {key} of its volumes is {state}"


def test_one_machine_that_fell_back_holds_the_others_of_its_key(ec2: MotoFaults, cloud: AwsCloud) -> None:
    """The key's own policy refuses what IAM allows: EC2's word about one is worth more than a simulation."""
    key = a_key(ec2)
    fallen, other, apart = with_volume(ec2, key), with_volume(ec2, key), with_volume(ec2, a_key(ec2))
    decide(ec2, "allowed")
    cloud.nodes()
    fall_back(ec2, fallen)

    nodes = {each.id: each for each in cloud.nodes()}

    assert nodes[fallen].state is NodeState.STOPPED
    assert str(nodes[fallen].failed_start).startswith(f"{FELL_BACK[1]}; ")
    assert "kms:CreateGrant" in str(nodes[fallen].failed_start)
    held = nodes[other].may_not_start
    assert held is not None
    assert fallen in held
    assert FELL_BACK[1] in held
    assert nodes[apart].may_not_start is None


def test_a_machine_that_fell_back_once_and_runs_again_is_held_where_the_right_is_not_known(
    ec2: MotoFaults, cloud: AwsCloud
) -> None:
    """Its owner has started it: that says nothing of gpuwatch's right, whoever may see whose key it is."""
    node_id = with_volume(ec2, a_key(ec2))
    ec2.refuse("DescribeKey", "AccessDeniedException", times=9)
    assert seen(cloud, node_id).may_not_start is None
    fall_back(ec2, node_id)
    cloud.nodes()
    ec2._instance(node_id).start()

    held = seen(cloud, node_id).may_not_start

    assert held is not None
    assert FELL_BACK[1] in held


def test_a_start_of_ours_that_worked_is_proof(ec2: MotoFaults, cloud: AwsCloud) -> None:
    """After the key was repaired, one start frees the others of the key."""
    key = a_key(ec2)
    fallen, other = with_volume(ec2, key), with_volume(ec2, key)
    decide(ec2, "implicitDeny")
    cloud.nodes()
    fall_back(ec2, fallen)
    assert seen(cloud, other).may_not_start is not None

    cloud.start(fallen, "key")
    cloud.nodes()

    assert seen(cloud, other).may_not_start is None
    assert seen(cloud, fallen).may_not_start is None


def test_nothing_is_asked_about_machines_of_others_or_of_open_volumes(ec2: MotoFaults, cloud: AwsCloud) -> None:
    """What is never stopped needs no right to start."""
    with_volume(ec2, a_key(ec2), {POOL_TAG: "default"})
    ec2.launch(MINE)
    cloud.nodes()

    assert {"DescribeKey", "SimulatePrincipalPolicy"}.isdisjoint({each.action for each in ec2.calls})


def test_keys_are_asked_for_once_an_hour_and_volumes_once(ec2: MotoFaults, cloud: AwsCloud, clock: ManualClock) -> None:
    """A round costs no more than before."""
    with_volume(ec2, a_key(ec2))
    decide(ec2, "allowed")
    cloud.nodes()
    before = len(ec2.calls)
    for _ in range(3):
        clock.advance(60)
        cloud.nodes()
    news = [each.action for each in ec2.calls[before:]]

    assert {"DescribeVolumes", "DescribeKey", "SimulatePrincipalPolicy", "GetCallerIdentity"}.isdisjoint(news)
    clock.advance(HOUR)
    cloud.nodes()
    assert [each.action for each in ec2.calls].count("DescribeKey") == 2


def test_a_service_without_a_door_in_this_network_is_left_alone_for_an_hour(ec2: MotoFaults, cloud: AwsCloud) -> None:
    """Ten keys of a place cost one silence, and hide no machine."""
    ids = {with_volume(ec2, a_key(ec2)) for _ in range(4)}
    ec2.refuse("DescribeKey", "KMSInternalException", status=500, times=99)

    assert {each.id for each in cloud.nodes()} == ids
    cloud.nodes()
    assert [each.action for each in ec2.calls].count("DescribeKey") == 3  # one read, as often as reads are tried


@pytest.mark.parametrize("call", ["DescribeKey", "SimulatePrincipalPolicy", "DescribeVolumes", "GetCallerIdentity"])
def test_a_gateway_s_page_about_keys_hides_no_machine(ec2: MotoFaults, cloud: AwsCloud, call: str) -> None:
    """Whatever comes in place of an answer, it is about volumes alone (P22)."""
    node_id = with_volume(ec2, a_key(ec2))
    ec2.garble(call, times=9)

    assert seen(cloud, node_id).state is NodeState.RUNNING


def test_a_list_of_volumes_that_cannot_be_had_hides_no_machine(ec2: MotoFaults, cloud: AwsCloud) -> None:
    """The doctor tries that right by itself."""
    node_id = with_volume(ec2, a_key(ec2))
    ec2.refuse("DescribeVolumes", "UnauthorizedOperation", status=403, times=9)

    assert seen(cloud, node_id).state is NodeState.RUNNING


def test_a_stop_by_a_call_is_no_failed_start(ec2: MotoFaults, cloud: AwsCloud) -> None:
    """Nor is a shutdown from within."""
    node_id = with_volume(ec2, a_key(ec2))
    decide(ec2, "allowed")
    cloud.stop(node_id, "key", permit=a_permit())

    assert (seen(cloud, node_id).state, seen(cloud, node_id).failed_start) == (NodeState.STOPPED, None)
    ec2._instance(node_id).state_reason = StateReason("why", "Client.InstanceInitiatedShutdown")
    assert seen(cloud, node_id).failed_start is None
