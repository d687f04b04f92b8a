"""EC2 in our words: what `clouds/aws/cloud.py` adds to the contract of `test_clouds.py`."""

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import boto3
import pytest

from gpuwatch.clouds import (
    FLEET_TAG,
    AuthFailedError,
    CloudError,
    CloudUnavailableError,
    NotFoundError,
    ProtectedError,
    ThrottledError,
)
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.clouds.aws.owners import managed_by
from gpuwatch.model.fleet import CapacityType, NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.fakes.moto_faults import REGION, MotoFaults

MINE = {FLEET_TAG: "lab"}
SECRET = "FwoGZXIvYXdzEXAMPLETOKEN"  # noqa: S105  an example; it must never come out again


@pytest.fixture
def ec2() -> Iterator[MotoFaults]:
    """An empty account."""
    with MotoFaults(ManualClock()) as faults:
        yield faults


def a_cloud(ec2: MotoFaults, **more: Any) -> AwsCloud:  # noqa: ANN401  any option of AwsCloud
    """The real adapter on that account."""
    return AwsCloud(**{"fleet": "lab", "clock": ManualClock(), "regions": [REGION], "session": ec2.session, **more})


# How often is asked


def test_a_mutation_is_sent_once(ec2: MotoFaults) -> None:
    """A throttled stop is not repeated by botocore: the ledger decides about that."""
    node_id = ec2.launch(MINE)
    ec2.throttle("StopInstances", times=3)

    with pytest.raises(ThrottledError):
        a_cloud(ec2).stop(node_id, "key", permit=a_permit())

    assert [call.action for call in ec2.calls].count("StopInstances") == 1
    assert ec2.state(node_id) == "running"


def test_a_lost_mutation_is_sent_once(ec2: MotoFaults) -> None:
    """Nor is a stop repeated whose connection broke."""
    node_id = ec2.launch(MINE)
    ec2.lose_request("StopInstances", times=3)

    with pytest.raises(CloudUnavailableError, match="closed the connection"):
        a_cloud(ec2).stop(node_id, "key", permit=a_permit())

    assert [call.action for call in ec2.calls].count("StopInstances") == 1


def test_a_read_is_tried_three_times(ec2: MotoFaults) -> None:
    """One throttled describe is repeated; three in a row come out."""
    node_id = ec2.launch(MINE)
    ec2.throttle("DescribeInstances")
    assert a_cloud(ec2).node(node_id).id == node_id
    ec2.calls.clear()
    ec2.throttle("DescribeInstances", times=3)

    with pytest.raises(ThrottledError):
        a_cloud(ec2).node(node_id)

    assert [call.action for call in ec2.calls] == ["DescribeInstances"] * 3


@pytest.mark.parametrize("page", ["<html>gateway", "<html><body>gateway</body></html>"])
def test_a_garbled_answer_is_no_answer(ec2: MotoFaults, page: str) -> None:
    """A gateway's page, well-formed or not, is neither an accepted stop nor an empty list."""
    node_id = ec2.launch(MINE)
    for action in ("StopInstances", "DescribeInstances"):
        ec2.garble(action, page=page, times=3)

    with pytest.raises(CloudUnavailableError):
        a_cloud(ec2).stop(node_id, "key", permit=a_permit())
    with pytest.raises(CloudUnavailableError):
        a_cloud(ec2).nodes()


def test_no_region_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a region every list would be empty, and look like an empty fleet: that is told instead."""
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(CloudError, match=r"set cloud\.regions"):
        AwsCloud(fleet="lab", clock=ManualClock(), session=boto3.Session())


def test_without_regions_the_default_of_the_sdk_is_listed(ec2: MotoFaults, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator whose profile names a region need not repeat it."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    node_id = ec2.launch({})

    assert [node.id for node in a_cloud(ec2, regions=(), session=boto3.Session()).nodes()] == [node_id]


# The list


def test_the_list_goes_to_the_last_page(ec2: MotoFaults) -> None:
    """Twelve machines in pages of five are three requests and twelve nodes."""
    ids = sorted(ec2.launch(MINE) for _ in range(12))
    ec2.calls.clear()

    nodes = a_cloud(ec2, page_size=5).nodes()

    assert [node.id for node in nodes] == ids
    assert [call.action for call in ec2.calls].count("DescribeInstances") == 3


def test_a_failing_page_fails_the_list(ec2: MotoFaults) -> None:
    """An error on the second page is an error, never the first page alone."""
    for _ in range(7):
        ec2.launch(MINE)
    ec2.let_pass("DescribeInstances")
    ec2.refuse("DescribeInstances", "UnauthorizedOperation", status=403)

    with pytest.raises(AuthFailedError):
        a_cloud(ec2, page_size=5).nodes()


def test_a_failing_type_lookup_fails_the_list(ec2: MotoFaults) -> None:
    """Without the facts of its types the list is not whole; nothing wrong is remembered."""
    node_id = ec2.launch(MINE)
    ec2.refuse("DescribeInstanceTypes", "UnauthorizedOperation", status=403)
    cloud = a_cloud(ec2)

    with pytest.raises(AuthFailedError):
        cloud.nodes()

    assert [node.id for node in cloud.nodes()] == [node_id]


def test_machine_types_are_looked_up_once(ec2: MotoFaults) -> None:
    """All new types take one request, known types none."""
    sizes = {"g5.xlarge": 1, "g5.12xlarge": 4, "p5.48xlarge": 8}
    for name in sizes:
        ec2.launch(MINE, instance_type=name)
    cloud = a_cloud(ec2)

    assert {node.instance_type: node.gpu_count for node in cloud.nodes()} == sizes
    cloud.nodes()
    assert [call.action for call in ec2.calls].count("DescribeInstanceTypes") == 1


def test_a_slice_of_a_gpu_counts_as_one(ec2: MotoFaults) -> None:
    """EC2 tells zero whole GPUs for g6f; the machine is still a GPU machine."""
    ec2.launch(MINE, instance_type="g6f.large")

    assert [node.gpu_count for node in a_cloud(ec2).nodes()] == [1]


def test_a_type_that_ec2_does_not_describe_costs_only_its_own_machines(
    ec2: MotoFaults, caplog: pytest.LogCaptureFixture
) -> None:
    """A retired type is left out with one warning that names it; the others are listed."""
    known = ec2.launch(MINE)
    ec2.launch({}, instance_type="p3.2xlarge")
    cloud = a_cloud(ec2)

    with caplog.at_level(logging.WARNING, logger="gpuwatch.clouds.aws.instances"):
        assert [node.id for node in cloud.nodes()] == [known]
        cloud.nodes()

    (record,) = caplog.records
    assert record.getMessage().startswith("EC2 does not describe the machine type p3.2xlarge: its machines are left")


def test_regions_are_listed_together_and_acted_on_apart(ec2: MotoFaults) -> None:
    """A controller that has just started finds a machine's region by its id."""
    here, there = ec2.launch(MINE), ec2.launch(MINE, region="eu-west-1")
    regions = [REGION, "eu-west-1"]

    a_cloud(ec2, regions=regions).stop(there, "key", permit=a_permit())

    states = {node.id: (node.region, node.state) for node in a_cloud(ec2, regions=regions).nodes()}
    assert states == {here: (REGION, NodeState.RUNNING), there: ("eu-west-1", NodeState.STOPPED)}


def test_a_region_once_seen_is_not_searched_for(ec2: MotoFaults) -> None:
    """After a list a stop is one request, to the machine's own region."""
    there = ec2.launch(MINE, region="eu-west-1")
    cloud = a_cloud(ec2, regions=[REGION, "eu-west-1"])
    cloud.nodes()
    ec2.calls.clear()

    cloud.stop(there, "key", permit=a_permit())

    assert [call.action for call in ec2.calls] == ["StopInstances"]


def test_an_id_of_no_region_is_not_found(ec2: MotoFaults) -> None:
    """NotFoundError comes when every region has answered, and names them."""
    with pytest.raises(NotFoundError, match="in us-east-1, eu-west-1"):
        a_cloud(ec2, regions=[REGION, "eu-west-1"]).node("i-0123456789abcdef0")


# EC2's words


def test_a_machine_is_told_whole(ec2: MotoFaults) -> None:
    """Address, local disks and the launch time in UTC come from DescribeInstances and the type."""
    node_id = ec2.launch({**MINE, "Name": "gpu-1"})

    node = a_cloud(ec2).node(node_id)

    assert node.address == ec2._instance(node_id).private_ip
    assert node.instance_store, "g5 brings local disks, whose data a stop loses"
    assert node.launched_at == datetime(2026, 1, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("lifecycle", "reservation", "bought"),
    [
        (None, None, CapacityType.ON_DEMAND),
        ("spot", None, CapacityType.SPOT),
        ("capacity-block", "cr-1", CapacityType.CAPACITY_BLOCK),
        ("scheduled", None, CapacityType.RESERVED),
        ("interruptible-capacity-reservation", "cr-1", CapacityType.RESERVED),
        (None, "cr-1", CapacityType.RESERVED),
    ],
)
def test_how_a_machine_was_bought(
    ec2: MotoFaults, lifecycle: str | None, reservation: str | None, bought: CapacityType
) -> None:
    """Lifecycle and capacity reservation say how; prepaid machines are told apart from on demand."""
    node_id = ec2.launch(MINE)
    ec2._instance(node_id).lifecycle = lifecycle
    ec2._instance(node_id).capacity_reservation_id = reservation

    assert a_cloud(ec2).node(node_id).capacity_type is bought


def test_a_machine_that_is_aimed_at_a_reservation_is_reserved(ec2: MotoFaults) -> None:
    """Before it runs there, too: what it would free is paid for anyway. An open preference alone says nothing."""
    cloud = a_cloud(ec2)
    place, instance = cloud._find_machine(ec2.launch(MINE))
    target: Any = {"CapacityReservationTarget": {"CapacityReservationId": "cr-1"}}
    instance.described["CapacityReservationSpecification"] = {"CapacityReservationPreference": "open"}
    before = cloud._node_of(place, instance).capacity_type
    instance.described["CapacityReservationSpecification"] = target

    assert (before, cloud._node_of(place, instance).capacity_type) == (CapacityType.ON_DEMAND, CapacityType.RESERVED)


@pytest.mark.parametrize(
    ("tags", "owner"),
    [
        ({}, None),
        ({"Name": "gpu-1", "team": "vision"}, None),
        ({"aws:autoscaling:groupName": "train"}, "Auto Scaling group train"),
        ({"aws:eks:cluster-name": "prod"}, "EKS cluster prod"),
        ({"eks:cluster-name": "prod", "eks:nodegroup-name": "gpu"}, "EKS cluster prod"),
        ({"kubernetes.io/cluster/prod": "owned"}, "Kubernetes cluster prod"),
        ({"karpenter.sh/nodepool": "gpu"}, "Karpenter node pool gpu"),
        ({"AWSBatchServiceTag": "batch"}, "AWS Batch batch"),
        ({"aws:elasticmapreduce:job-flow-id": "j-1"}, "EMR j-1"),
        ({"sagemaker:cluster-name": "hyper"}, "SageMaker hyper"),
        ({"parallelcluster:cluster-name": "hpc"}, "ParallelCluster hpc"),
        ({"aws:pcs:cluster-id": "pcs_1"}, "Parallel Computing Service pcs_1"),
        ({"ray-cluster-name": "tune"}, "Ray cluster tune"),
        ({"AmazonECSManaged": ""}, "ECS"),
        ({"aws:ec2spot:fleet-request-id": "sfr-1"}, "spot fleet sfr-1"),
        ({"aws:ec2:fleet-id": "fleet-1"}, "EC2 fleet fleet-1"),
        ({"aws:cloudformation:stack-name": "lab"}, "CloudFormation stack lab"),
        ({"aws:autoscaling:groupName": "eks-x", "aws:eks:cluster-name": "prod"}, "EKS cluster prod"),
    ],
)
def test_ownership_tags_name_the_other_system(tags: Mapping[str, str], owner: str | None) -> None:
    """A machine that another system manages says which; the nearest to the workload wins."""
    assert managed_by(tags) == owner


def test_a_machine_of_an_auto_scaling_group_is_told_as_such(ec2: MotoFaults) -> None:
    """The ownership tags of a real description are read."""
    node_id = ec2.launch({**MINE, "aws:autoscaling:groupName": "train"})

    assert a_cloud(ec2).node(node_id).managed_by == "Auto Scaling group train"


def test_a_machine_that_ec2_protects_refuses_a_stop(ec2: MotoFaults) -> None:
    """DisableApiStop makes a stop a ProtectedError, and the machine runs on."""
    node_id = ec2.launch(MINE)
    ec2.client.modify_instance_attribute(InstanceId=node_id, DisableApiStop={"Value": True})

    with pytest.raises(ProtectedError):
        a_cloud(ec2).stop(node_id, "key", permit=a_permit())

    assert ec2.state(node_id) == "running"


# Credentials and endpoint


def test_missing_credentials_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credentials each call is AuthFailedError, with what to run."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    cloud = AwsCloud(fleet="lab", clock=ManualClock(), regions=[REGION])

    with pytest.raises(AuthFailedError, match="aws sts get-caller-identity"):
        cloud.stop("i-1", "key", permit=a_permit())


def test_a_missing_profile_says_so(ec2: MotoFaults) -> None:
    """A profile that is not configured is AuthFailedError when the cloud is made."""
    with pytest.raises(AuthFailedError, match="ProfileNotFound"):
        a_cloud(ec2, session=None, profile="nobody")


def test_another_endpoint_is_asked_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """endpoint_url takes every call, also plain HTTP on loopback."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    asked: list[str] = []

    class Ec2(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<StopInstancesResponse><instancesSet/></StopInstancesResponse>")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Ec2) as server:
        thread = threading.Thread(target=server.handle_request, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        AwsCloud(fleet="lab", clock=ManualClock(), regions=[REGION], endpoint_url=url).stop(
            "i-1", "key", permit=a_permit()
        )
        thread.join(10)

    assert len(asked) == 1
    assert "Action=StopInstances" in asked[0]
    assert "InstanceId.1=i-1" in asked[0]
