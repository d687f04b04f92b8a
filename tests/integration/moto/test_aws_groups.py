"""Auto Scaling groups in our words: whose they are, what protects their members, and what is asked before an end."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from gpuwatch.clouds import FLEET_TAG, PROTECT_TAG, CloudError, CloudUnavailableError, ProtectedError, ThrottledError
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.clouds.aws.owners import managed_by
from gpuwatch.clouds.errors import BusyError
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.fakes.cloud_worlds import MINE, TEMPLATE
from tests.support.fakes.moto_faults import REGION, Crash, MotoFaults

GROUP = {**MINE, "aws:autoscaling:groupName": "train"}
STACK = {"aws:cloudformation:stack-name": "lab", "aws:cloudformation:logical-id": "Train"}


@pytest.fixture
def ec2() -> Iterator[MotoFaults]:
    """An empty account."""
    with MotoFaults(ManualClock()) as faults:
        yield faults


def a_cloud(ec2: MotoFaults) -> AwsCloud:
    """The real adapter on that account."""
    return AwsCloud(fleet="lab", clock=ManualClock(), regions=[REGION], session=ec2.session)


def desired(ec2: MotoFaults) -> int:
    """The size that the only group wants."""
    return int(ec2.scaling.describe_auto_scaling_groups()["AutoScalingGroups"][0]["DesiredCapacity"])


# Whose a member is


@pytest.mark.parametrize(
    ("tags", "group", "owner"),
    [
        (GROUP, MINE, None),
        ({**GROUP, "aws:ec2:fleet-id": "fleet-1"}, MINE, None),
        ({**GROUP, **STACK}, {**MINE, **STACK}, None),
        ({**GROUP, **STACK}, MINE, "CloudFormation stack lab"),
        ({**GROUP, **STACK}, {**MINE, **STACK, "aws:cloudformation:stack-name": "other"}, "CloudFormation stack lab"),
        (GROUP, {**MINE, "eks:cluster-name": "prod"}, "EKS cluster prod"),
        ({**GROUP, "aws:eks:cluster-name": "prod"}, MINE, "EKS cluster prod"),
        (GROUP, {**MINE, "k8s.io/cluster-autoscaler/enabled": "true"}, "cluster autoscaler true"),
        ({**GROUP, "karpenter.sh/nodepool": "gpu"}, MINE, "Karpenter node pool gpu"),
        ({**GROUP, "parallelcluster:cluster-name": "hpc"}, MINE, "ParallelCluster hpc"),
        (GROUP, {**MINE, "AmazonECSManaged": ""}, "ECS"),
    ],
)
def test_consent_lifts_the_groups_own_claim_and_no_other(
    tags: Mapping[str, str], group: Mapping[str, str], owner: str | None
) -> None:
    """A group's tag is its owner's word on the group; what drives the group, or made the machine itself, remains."""
    assert managed_by(tags, group=group) == owner


@pytest.mark.parametrize(
    ("tag", "owner"),
    [
        ("AWSBatchServiceTag", "AWS Batch batch"),
        ("karpenter.sh/nodepool", "Karpenter node pool batch"),
        ("k8s.io/cluster-autoscaler/enabled", "cluster autoscaler batch"),
    ],
)
def test_a_group_that_another_system_drives_is_never_enrolled(ec2: MotoFaults, tag: str, owner: str) -> None:
    """It stays that system's, whatever tag somebody put on it; nothing is done to it."""
    group_id = ec2.add_group("nodes", {**MINE, tag: "batch"}, size=2)
    cloud = a_cloud(ec2)
    node, group = cloud.nodes()[0], cloud.group(group_id)

    assert (group.enrolled, group.serves_cluster) == (False, False)
    assert node.managed_by == owner
    with pytest.raises(CloudError, match=f"belongs to {owner}"):
        cloud.terminate(node.id, "key", group=group_id, permit=a_permit())
    assert desired(ec2) == 2


def test_a_group_of_a_cluster_is_left_to_the_guard_where_its_owner_consents(ec2: MotoFaults) -> None:
    """An EKS node group with our tag is not enrolled and does not grow; without the tag it is nobody's but EKS's."""
    ours = ec2.add_group("nodes", {**MINE, "eks:cluster-name": "prod"}, size=1)
    cloud = a_cloud(ec2)
    node, group = cloud.nodes()[0], cloud.group(ours)

    assert (group.enrolled, group.serves_cluster) == (False, True)
    assert node.managed_by == "EKS cluster prod"
    theirs = ec2.add_group("others", {"eks:cluster-name": "prod"}, size=1)
    member = next(each for each in cloud.nodes() if each.group == theirs)
    with pytest.raises(CloudError, match="belongs to EKS cluster prod"):
        cloud.terminate(member.id, "key", group=theirs, permit=a_permit())


@pytest.mark.parametrize("state", ["Standby", "EnteringStandby", "Detaching"])
def test_a_member_that_somebody_took_out_of_service_is_theirs(ec2: MotoFaults, state: str) -> None:
    """Standby is how people keep a machine for themselves: it is told, and refused."""
    group_id = ec2.add_group("train", MINE, size=2)
    cloud = a_cloud(ec2)
    node_id = cloud.nodes()[0].id
    ec2.set_lifecycle(node_id, state)

    assert cloud.node(node_id).managed_by == f"Auto Scaling group train ({state})"
    with pytest.raises(CloudError, match=f"is {state} in train"):
        cloud.terminate(node_id, "key", group=group_id, permit=a_permit())
    assert ec2.state(node_id) == "running"


def test_a_machine_that_its_group_does_not_list_is_the_groups(ec2: MotoFaults) -> None:
    """One of a warm pool carries the group's tag and is not among its members: hands off."""
    ec2.add_group("train", MINE, size=1)
    warm = ec2.launch(GROUP)

    assert a_cloud(ec2).node(warm).managed_by == "Auto Scaling group train"
    assert a_cloud(ec2).node(warm).group is None


def test_a_machine_that_aws_itself_operates_is_its_own(ec2: MotoFaults) -> None:
    """EKS Auto Mode's machines may carry no tag of a cluster; EC2 says who operates them."""
    cloud = a_cloud(ec2)
    node_id = ec2.launch(MINE)
    place, instance = cloud._find_machine(node_id)
    instance.described["Operator"] = {"Managed": True, "Principal": "eks.amazonaws.com"}

    assert cloud._node_of(place, instance).managed_by == "eks.amazonaws.com"


def test_groups_without_gpus_are_left_out(ec2: MotoFaults) -> None:
    """The web servers' group is nobody's business here, nor is an empty one of strangers."""
    ec2.add_group("web", {}, size=1, instance_type="m5.large")
    ec2.add_group("empty", {}, size=0)
    theirs = ec2.add_group("theirs", {}, size=1)

    assert [group.id for group in a_cloud(ec2).groups()] == [theirs]


def test_a_mixed_group_has_no_one_type(ec2: MotoFaults) -> None:
    """A price of one type would be a guess."""
    overrides = [{"InstanceType": "g5.xlarge"}, {"InstanceType": "g6.xlarge"}]
    ec2.add_group("train", MINE, size=0)
    template = {"LaunchTemplateSpecification": {"LaunchTemplateName": "of-train"}, "Overrides": overrides}
    mixed = {"LaunchTemplate": template}
    ec2.scaling.update_auto_scaling_group(AutoScalingGroupName="train", MixedInstancesPolicy=mixed)

    assert [group.instance_type for group in a_cloud(ec2).groups()] == [None]


def test_a_protected_group_says_so(ec2: MotoFaults) -> None:
    """The tag gpuwatch:protect means the same on a group."""
    ec2.add_group("train", {**MINE, PROTECT_TAG: "true"}, size=1)

    assert [group.protected for group in a_cloud(ec2).groups()] == ["tag gpuwatch:protect protects it"]


def test_a_failing_page_of_groups_fails_the_list(ec2: MotoFaults) -> None:
    """Without its groups a member would look like a machine of its own: there is no list then."""
    ec2.add_group("train", MINE, size=1)
    ec2.throttle("DescribeAutoScalingGroups", times=3)

    with pytest.raises(ThrottledError, match="Auto Scaling DescribeAutoScalingGroups in us-east-1"):
        a_cloud(ec2).nodes()


# An end with its place


def test_protection_against_termination_holds_in_a_group_too(ec2: MotoFaults) -> None:
    """Auto Scaling itself would end a machine with DisableApiTermination: it is asked for before."""
    group_id = ec2.add_group("train", MINE, size=2)
    cloud = a_cloud(ec2)
    node_id = cloud.nodes()[0].id
    ec2.client.modify_instance_attribute(InstanceId=node_id, DisableApiTermination={"Value": True})

    with pytest.raises(ProtectedError, match="protected against termination"):
        cloud.terminate(node_id, "key", group=group_id, permit=a_permit())

    assert (ec2.state(node_id), desired(ec2)) == ("running", 2)


def test_protection_against_a_stop_holds_an_end_in_a_group_too(ec2: MotoFaults) -> None:
    """EC2 itself would refuse to terminate it ("Modify its 'disableApiStop'"), and its group does not ask EC2."""
    group_id = ec2.add_group("train", MINE, size=2)
    cloud = a_cloud(ec2)
    node_id = cloud.nodes()[0].id
    ec2.client.modify_instance_attribute(InstanceId=node_id, DisableApiStop={"Value": True})

    with pytest.raises(ProtectedError, match="protected against a stop"):
        cloud.terminate(node_id, "key", group=group_id, permit=a_permit())

    assert (ec2.state(node_id), desired(ec2)) == ("running", 2)


@pytest.mark.parametrize("lag", [0, 3])
@pytest.mark.parametrize("trouble", ["lost", "crash"])
def test_a_second_try_takes_no_second_place(lag: int, trouble: str) -> None:
    """After a lost answer or a crash the first try may have happened: group and machine are looked at before."""
    with MotoFaults(ManualClock(), lag_describes=lag) as ec2:
        group_id = ec2.add_group("train", MINE, size=3)
        cloud = a_cloud(ec2)
        node_id = cloud.nodes()[0].id
        end = "TerminateInstanceInAutoScalingGroup"
        (ec2.lose_response if trouble == "lost" else ec2.crash_after)(end)

        with pytest.raises((CloudUnavailableError, Crash)):
            cloud.terminate(node_id, "key", group=group_id, permit=a_permit())
        for _ in range(3):
            cloud.terminate(node_id, "key", group=group_id, permit=a_permit())

        assert len(ec2.done(end)) == 1
        assert desired(ec2) == 2


def test_a_machine_that_is_ending_anyway_keeps_no_place_from_the_group(ec2: MotoFaults) -> None:
    """Where EC2 says shutting-down and the group has not noticed, nothing is sent: it could be our own first try."""
    group_id = ec2.add_group("train", MINE, size=2)
    cloud = a_cloud(ec2)
    node_id = cloud.nodes()[0].id
    ec2._instance(node_id)._state.name = "shutting-down"

    cloud.terminate(node_id, "key", group=group_id, permit=a_permit())

    assert ec2.done("TerminateInstanceInAutoScalingGroup") == []


def test_nothing_is_asked_twice_of_a_group_by_botocore(ec2: MotoFaults) -> None:
    """Each act on a group is sent once; that it is busy with another change comes out as such."""
    group_id = ec2.add_group("train", MINE, size=2)
    cloud = a_cloud(ec2)
    ec2.refuse("SetDesiredCapacity", "ResourceContention", status=500, times=3)

    with pytest.raises(BusyError):
        cloud.grow(group_id, 3, "key")

    assert [call.action for call in ec2.calls].count("SetDesiredCapacity") == 1


# A launch


def test_a_gateways_page_is_no_change_of_a_group(ec2: MotoFaults) -> None:
    """SetDesiredCapacity and SetInstanceProtection answer with nothing but their request's id: a page has none."""
    group_id = ec2.add_group("train", MINE, size=1)
    (node,) = a_cloud(ec2).nodes()
    for action in ("SetDesiredCapacity", "SetInstanceProtection"):
        ec2.garble(action, page="<html><body>gateway</body></html>")

    with pytest.raises(CloudUnavailableError):
        a_cloud(ec2).grow(group_id, 2, "key")
    with pytest.raises(CloudUnavailableError):
        a_cloud(ec2).protect(node.id, group_id, "key", on=True)


def test_a_launch_delivered_twice_is_one_machine(ec2: MotoFaults) -> None:
    """The network may repeat a request: its token is the same."""
    ec2.add_template(TEMPLATE)
    ec2.deliver_twice("RunInstances")
    cloud = a_cloud(ec2)

    node_id = cloud.launch({"template": TEMPLATE}, "key-1")

    assert [(node.id, node.state) for node in cloud.nodes()] == [(node_id, NodeState.RUNNING)]


def test_a_template_is_named_or_numbered(ec2: MotoFaults) -> None:
    """lt-… is an id, all else a name; type and subnet override the template's."""
    template = ec2.add_template(TEMPLATE)
    subnet = ec2.client.describe_subnets()["Subnets"][0]["SubnetId"]
    cloud = a_cloud(ec2)

    by_id = cloud.launch({"template": template, "instance_type": "g6.xlarge", "subnet": subnet}, "key-1")

    assert cloud.node(by_id).instance_type == "g6.xlarge"
    assert ec2._instance(by_id).subnet_id == subnet


@pytest.mark.parametrize("key", ["k" * 65, "schlüssel"])
def test_a_key_that_is_no_token_is_refused(ec2: MotoFaults, key: str) -> None:
    """A token that EC2 would cut off or refuse must not be tried: two launches could share what is left."""
    with pytest.raises(ValueError, match="ASCII"):
        a_cloud(ec2).launch({"template": TEMPLATE}, key)

    assert ec2.calls == []


def test_consent_is_of_this_fleet(ec2: MotoFaults) -> None:
    """Another fleet's group is another's."""
    ec2.add_group("train", {FLEET_TAG: "other"}, size=1)

    assert [group.enrolled for group in a_cloud(ec2).groups()] == [False]


def test_what_was_left_is_told_whole(ec2: MotoFaults) -> None:
    """A volume's IOPS, throughput and name, and addresses: unused, of a stopped machine; not one that is in use."""
    options: Any = {"AvailabilityZone": f"{REGION}a", "Size": 8, "VolumeType": "gp3", "Iops": 4000, "Throughput": 250}
    volume = ec2.client.create_volume(**options)["VolumeId"]
    ec2.set_tags(volume, {"Name": "scratch"})
    running, stopped = ec2.launch(MINE), ec2.launch(MINE)
    ids = [ec2.client.allocate_address(Domain="vpc")["AllocationId"] for _ in range(3)]
    ec2.client.associate_address(AllocationId=ids[0], InstanceId=running)
    ec2.client.associate_address(AllocationId=ids[1], InstanceId=stopped)
    ec2.client.stop_instances(InstanceIds=[stopped])

    document = {each.id: each for each in a_cloud(ec2).leftovers()}

    assert (document[volume].iops, document[volume].name) == (4000, "scratch")
    assert document[volume].throughput_bytes_per_second == 250 * 1024**2
    assert ids[0] not in document
    assert (document[ids[1]].kind.value, document[ids[1]].node_id) == ("address_of_a_stopped_machine", stopped)
    assert (document[ids[2]].kind.value, document[ids[2]].node_id) == ("unused_address", None)
