"""Recorded answers of EC2 and Auto Scaling by their calls, and an AWS that gives one of them.

Most are recorded as botocore had read them: they are written as XML again, by the service's own model.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from html import escape
from http import HTTPStatus
from typing import Any

import boto3
from botocore.parsers import create_parser
from moto.core.serialize import EC2Serializer, QuerySerializer
from moto.core.utils import get_service_model

from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.recorded import Recorded, answering
from tests.support.clouds.replay import Replay
from tests.support.clouds.server import Request, Response
from tests.support.fakes.cloud_worlds import FLEET

REGION = "us-east-1"
_ROOT = re.compile(r"<(?P<name>\w+?)(Response)?[\s>]")
_GROUPS = frozenset({"DescribeAutoScalingGroups", "DescribeScalingActivities", "DescribeLaunchConfigurations"})
_NAMED = {"AutoScalingGroupNames": ("AutoScalingGroups", "AutoScalingGroupName")}


@dataclass(frozen=True, kw_only=True)
class Answer(Recorded):
    """One answer, by its call."""

    @property
    def text(self) -> str:
        """The XML, where it was recorded as it came; "" else."""
        told = self.line.get("text", self.line.get("body", ""))
        return told if isinstance(told, str) else ""

    @property
    def kind(self) -> str:
        """The call, such as DescribeInstances; of an error without its call Response."""
        named = str(self.line.get("operation") or self.line.get("call") or "")
        if named:
            return named.rpartition(".")[2]
        found = _ROOT.search(re.sub(r"<\?.*?\?>", "", self.text))
        return "" if found is None else found["name"]

    @property
    def service(self) -> str:
        """The service as botocore names it."""
        named = str(self.line.get("operation") or self.line.get("call") or "")
        return named.partition(".")[0] if "." in named else "autoscaling" if self.kind in _GROUPS else "ec2"

    @property
    def status(self) -> int:
        """The HTTP status; of a text without one that of its contents."""
        told = self.line.get("status")
        code = told.get("code") if isinstance(told, dict) else told
        return int(code or (400 if "<Errors>" in self.text else 200))

    @property
    def refused(self) -> bool:
        """Whether it is an error."""
        return self.status >= 400

    @property
    def code(self) -> str:
        """The code of an error."""
        found = re.search(r"<Code>([^<]+)</Code>", self.text)
        return found[1] if found else str(self.line.get("data", {}).get("Error", {}).get("Code", ""))

    @cached_property
    def body(self) -> dict[str, Any]:
        """What botocore reads of it."""
        if not self.text:
            return {key: value for key, value in as_told(self.line["data"]).items() if key != "ResponseMetadata"}
        parser = create_parser("ec2" if self.service == "ec2" else "query")
        shape = get_service_model(self.service).operation_model(self.kind).output_shape
        read = parser.parse({"status_code": 200, "headers": {}, "body": self.text.encode()}, shape)
        return {key: value for key, value in read.items() if key != "ResponseMetadata"}

    def response(self) -> Response:
        """It, on the wire."""
        if self.text:
            return xml(self.text, self.status)
        if self.refused:
            message = str(self.line["data"]["Error"].get("Message", ""))
            return refused(self.code, message, self.status, ec2=self.service == "ec2")
        return xml(written(self.service, self.kind, self.body))

    def rewritten(self) -> str:
        """The body again, as it is now."""
        return written(self.service, self.kind, self.body)


def as_told(value: Any) -> Any:  # noqa: ANN401  JSON
    """With the times that the recording writes as objects."""
    if isinstance(value, dict):
        if value.get("__class__") == "datetime":
            parts = {name: int(each) for name, each in value.items() if isinstance(each, int)}
            return datetime(**parts, tzinfo=UTC)
        return {key: as_told(each) for key, each in value.items()}
    return [as_told(each) for each in value] if isinstance(value, list) else value


def written(service: str, call: str, data: Mapping[str, Any]) -> str:
    """An answer as the service writes it."""
    serializer = EC2Serializer if service == "ec2" else QuerySerializer
    body: Any = serializer(get_service_model(service).operation_model(call)).serialize(dict(data))["body"]
    return body if isinstance(body, str) else str(body.decode())


def empty(service: str, call: str) -> str:
    """A list without anything in it."""
    shape = get_service_model(service).operation_model(call).output_shape
    return written(service, call, {name: [] for name, each in shape.members.items() if each.type_name == "list"})


def xml(text: str, status: int = 200) -> Response:
    """A text of AWS, with the id of a request where it has none."""
    return Response(status=status, body=text, headers={"Content-Type": "text/xml", "x-amzn-RequestId": "r-1"})


def refused(code: str, message: str, status: int = 400, *, ec2: bool = True) -> Response:
    """An error as EC2 writes it, or as the other services do: no list, the side that is wrong, and another id."""
    said = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    if ec2:
        return xml(f"<Response><Errors><Error>{said}</Error></Errors><RequestID>r-1</RequestID></Response>", status)
    side = "Sender" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "Receiver"
    error = f"<Error><Type>{side}</Type>{said}</Error><RequestId>r-1</RequestId>"
    return xml(
        f'<ErrorResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/">{error}</ErrorResponse>', status
    )


@dataclass
class Aws:
    """AWS with nothing but what a test puts there; every machine type has a GPU."""

    answers: dict[str, Answer] = field(default_factory=dict)  # by the call: each is given as it is
    data: dict[str, Callable[[Mapping[str, str]], dict[str, Any]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def __call__(self, request: Request) -> Response:
        """Answer a call: in the query protocol, or KMS's that has none here."""
        if "x-amz-target" in request.headers:
            return Response(status=400, body={"__type": "AccessDeniedException", "message": "no"})
        form = request.form
        call = form["Action"]
        self.asked.append(call)
        if call == "GetCallerIdentity":
            return xml(written("sts", call, {"Arn": "arn:aws:iam::1:user/a", "Account": "1", "UserId": "u"}))
        if call == "SimulatePrincipalPolicy":
            return refused("AccessDenied", "no", 403, ec2=False)
        service = "autoscaling" if "autoscaling" in request.host else "ec2"
        if "NextToken" in form:
            return xml(empty(service, call))
        if call in self.data:
            return xml(written(service, call, self.data[call](form)))
        if call == "DescribeInstanceTypes":
            return xml(written(service, call, {"InstanceTypes": [_type(name) for name in values(form)]}))
        answer = self.answers.get(call)
        if answer is None:
            return xml(empty(service, call))
        for asks, (items, name) in _NAMED.items():
            wanted = {value for key, value in form.items() if key.startswith(f"{asks}.member.")}
            if wanted and not answer.refused:
                return xml(written(service, call, {items: [e for e in answer.body[items] if e[name] in wanted]}))
        return answer.response()


def values(form: Mapping[str, str]) -> list[str]:
    """The values of a call's first filter."""
    return [value for key, value in form.items() if key.startswith("Filter.1.Value.")]


def _type(name: str) -> dict[str, Any]:
    gpu = {"Name": "L4", "Manufacturer": "NVIDIA", "Count": 1}
    return {"InstanceType": name, "GpuInfo": {"Gpus": [gpu]}, "VCpuInfo": {"DefaultVCpus": 4}}


@contextmanager
def aws(server: Aws, *regions: str) -> Iterator[AwsCloud]:
    """The adapter, which asks that server at AWS's own addresses."""
    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="not real", region_name=REGION)  # noqa: S106
    with answering(server):
        yield AwsCloud(fleet=FLEET, clock=ManualClock(), regions=regions or (REGION,), session=session)


@contextmanager
def replayed(replay: Replay) -> Iterator[AwsCloud]:
    """The adapter for the regions of a recording."""
    regions = {found[1] for url in replay.urls if (found := re.match(r"https://ec2\.([a-z0-9-]+)\.", url))}
    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="not real", region_name=REGION)  # noqa: S106
    with answering(replay):
        clock = ManualClock(wall=replay.at)
        yield AwsCloud(fleet=replay.fleet, clock=clock, regions=sorted(regions), session=session)


_LOOKS = re.compile(
    "Describe(Instances|AutoScalingGroups|Volumes|Addresses|Snapshots|Images|InstanceAttribute|Regions)"
)
_CHANGES = re.compile("(Start|Stop|Terminate)Instances")


def things_of(answer: Answer) -> Iterator[tuple[str, object]]:
    """A good answer, by its call."""
    if not answer.refused and (_LOOKS.fullmatch(answer.kind) or _CHANGES.fullmatch(answer.kind)):
        yield answer.kind, answer.body
