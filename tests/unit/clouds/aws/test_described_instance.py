"""What botocore parses of an instance is what gpuwatch reads of it: the parsing is most of a round's CPU on AWS."""

import ast
from datetime import datetime

import boto3
from botocore.utils import parse_timestamp
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds.aws.client import ClientPool, DescribedInstance, parse_time
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


def time_of(parse: object, text: object) -> datetime | None:
    """The time that a parser reads; None: it reads none."""
    try:
        found: datetime = parse(text)  # type: ignore[operator]  # one of two parsers
    except (ValueError, OverflowError, RuntimeError):
        return None
    return found


NUMBERS = st.integers(0, 99).map(lambda number: f"{number:02}")
AS_AWS = st.builds(
    "{0}{1}-{2}-{3}T{4}:{5}:{6}{7}Z".format,
    *[NUMBERS] * 7,
    st.one_of(st.just(""), st.integers(0, 10**9).map(lambda number: f".{number}")),
)
ANY_TIME = st.one_of(AS_AWS, st.datetimes().map(str), st.integers().map(str), st.text(max_size=8), st.floats(0, 2e9))


@given(ANY_TIME)
def test_a_time_is_the_one_that_botocore_reads(text: object) -> None:
    """In whatever form; what botocore cannot read is not read."""
    assert time_of(parse_time, text) == time_of(parse_timestamp, text)


def test_every_answer_of_ec2_is_read_so() -> None:
    """Of a list of machines the times alone take a fifth of the parsing in botocore's own way."""
    answers = PLACE.ec2._endpoint._response_parser_factory  # type: ignore[attr-defined]  # botocore shows it to nobody
    assert answers.create_parser("ec2")._timestamp_parser is parse_time
