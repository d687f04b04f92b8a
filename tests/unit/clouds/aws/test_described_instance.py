"""What botocore parses of an instance is what gpuwatch reads of it: the parsing is most of a round's CPU on AWS."""

import ast

import boto3

from gpuwatch.clouds.aws.client import ClientPool, DescribedInstance
from gpuwatch.runtime.clock import ManualClock
from tests.support.paths import ROOT

PLACE = ClientPool.for_reading(boto3.Session("a", "b"), "us-east-1", None, ManualClock())
OF_REQUESTS = {"ClientToken", "SubnetId"}  # of launches, which are named as what is read of an instance is


def members_of(service_model: object) -> set[str]:
    """The members of an instance in an answer of DescribeInstances, by a client's model."""
    answer = service_model.operation_model("DescribeInstances").output_shape  # type: ignore[attr-defined]
    return set(answer.members["Reservations"].member.members["Instances"].member.members)


def test_of_an_instance_is_parsed_what_is_read() -> None:
    """No more, for it takes time; and no less, for what is missing would be taken for what is not there."""
    assert members_of(PLACE.ec2.meta.service_model) == set(DescribedInstance.__annotations__)


def test_no_module_reads_of_an_instance_what_is_not_parsed() -> None:
    """Each name of a member of an instance that stands in the code of AWS is one that is parsed."""
    known = members_of(boto3.client("ec2", region_name="us-east-1").meta.service_model)
    read = {
        constant.value
        for module in (ROOT / "gpuwatch/clouds/aws").glob("*.py")
        for constant in ast.walk(ast.parse(module.read_text()))
        if isinstance(constant, ast.Constant) and constant.value in known
    }

    assert read - OF_REQUESTS <= set(DescribedInstance.__annotations__)
    assert len(read) > len(OF_REQUESTS)
