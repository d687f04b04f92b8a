"""EC2 over HTTP: moto with what `MotoFaults` adds, behind the server that all clouds' fakes share.

boto3 sends real requests to loopback here, so that its connections, time-outs and retries take part.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import boto3
import botocore.endpoint
import pytest
from botocore.awsrequest import AWSPreparedRequest
from botocore.config import Config
from moto.ec2.models import ec2_backends

from gpuwatch.clouds import Cloud
from gpuwatch.clouds.aws import client as aws_client
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.fault_worlds import FLEET
from tests.support.clouds.faults import Asked
from tests.support.clouds.server import CloudServer, Refused, Request, Response, serving
from tests.support.fakes.moto_faults import MotoFaults
from tests.support.fakes.moto_wire import error_of

REGIONS = ("us-east-1", "us-west-2")
TEMPLATE = "gpu-node"
_SIGNED_SECONDS = 300.0  # a signature is as old as that at most
_READ = re.compile(r"(Describe|Get|List|Assume)\w*")
_SCOPE = re.compile(r"Credential=[^/]+/\d+/(?P<region>[^/]+)/(?P<service>[^/]+)/")
_REFUSALS = {
    Refused.THROTTLED: (503, "RequestLimitExceeded"),  # EC2's own; 429 is not among its answers
    Refused.INTERNAL: (500, "InternalError"),
    Refused.EXPIRED: (400, "RequestExpired"),
}
_STATES = {
    "pending": NodeState.PENDING,
    "running": NodeState.RUNNING,
    "stopping": NodeState.STOPPING,
    "stopped": NodeState.STOPPED,
    "shutting-down": NodeState.TERMINATING,
    "terminated": NodeState.TERMINATED,
}


class FakeEc2:
    """AWS's query protocol in front of moto."""

    def __init__(self, ec2: MotoFaults) -> None:
        """With what is in moto now."""
        self._ec2 = ec2

    def asked(self, request: Request) -> Asked:
        """The action, and the region that the signature names."""
        action = request.form["Action"]
        return Asked(operation=action, region=_scope(request)[0], change=not _READ.fullmatch(action))

    def answer(self, request: Request) -> Response:
        """As EC2 or Auto Scaling, in the region that the signature is for."""
        signed = datetime.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if abs(request.at - signed) > timedelta(seconds=_SIGNED_SECONDS):
            return self.refusal(request, Refused.EXPIRED)
        service = _scope(request)[1]
        answer = self._ec2._send(f"before-send.{service}.{request.form['Action']}", _prepared(request))
        return Response(status=answer.status_code, body=answer.content, headers={"Content-Type": "text/xml"})

    def refusal(self, request: Request, kind: Refused) -> Response:
        """With AWS's codes."""
        status, code = _REFUSALS[kind]
        body = error_of(_prepared(request), code, kind.value)
        return Response(status=status, body=body, headers={"Content-Type": "text/xml"})

    def continues(self, request: Request) -> bool:
        """By its token."""
        return "NextToken" in request.form

    def without_token(self, response: Response) -> Response:
        """No element nextToken."""
        text = re.sub(rb"<nextToken>.*?</nextToken>", b"", response.content)
        return Response(status=response.status, body=text, headers=response.headers)

    def __deepcopy__(self, memo: object) -> "PastEc2":
        """What is listed now."""
        del memo
        return PastEc2(self, self._ec2)


class PastEc2(FakeEc2):
    """EC2 as it was: its machines, in the states of that moment."""

    def __init__(self, present: FakeEc2, ec2: MotoFaults) -> None:
        """Keep it."""
        super().__init__(ec2)
        self._present = present
        self._listed = self._all()
        self._states = {each.id: (each._state.name, each._state.code) for each in self._each()}

    def answer(self, request: Request) -> Response:
        """The past is put in place of the present while the request is answered."""
        listed, states = self._all(), {each.id: (each._state.name, each._state.code) for each in self._each()}
        self._put(self._listed, self._states)
        try:
            return super().answer(request)
        finally:
            self._put(listed, states)

    def _backends(self) -> Iterator[Any]:
        yield from (backend for each in list(ec2_backends.values()) for backend in list(each.values()))

    def _all(self) -> list[tuple[Any, dict[str, Any]]]:
        return [(backend, dict(backend.reservations)) for backend in self._backends()]

    def _each(self) -> Iterator[Any]:
        yield from (instance for backend in self._backends() for instance in backend.all_instances())

    def _put(self, listed: list[tuple[Any, dict[str, Any]]], states: Mapping[str, tuple[str, int]]) -> None:
        for backend, reservations in listed:
            backend.reservations.clear()
            backend.reservations.update(reservations)
        for each in self._each():
            each._state.name, each._state.code = states.get(each.id, (each._state.name, each._state.code))


class AwsFaultWorld:
    """`AwsCloud` in two regions."""

    regions = REGIONS
    calls: ClassVar[Mapping[str, str]] = {
        "stop": "StopInstances",
        "start": "StartInstances",
        "terminate": "TerminateInstances",
        "tag": "CreateTags",
        "launch": "RunInstances",
        "nodes": "DescribeInstances",
        "grow": "SetDesiredCapacity",
        "protect": "SetInstanceProtection",
        "end_member": "TerminateInstanceInAutoScalingGroup",
    }
    arguments: ClassVar[Mapping[str, str]] = {
        "template": TEMPLATE,
        "version": "$Default",
        "pool": "train",
        "region": REGIONS[0],
    }
    page = 5  # the least that EC2 takes
    totals = False
    cannot: ClassVar[Mapping[str, str]] = {}

    def __init__(self, clock: ManualClock, ec2: MotoFaults, server: CloudServer, session: boto3.Session) -> None:
        """An empty account."""
        self.clock, self.server, self._ec2 = clock, server, ec2
        ec2.add_template(TEMPLATE)
        self._session = session
        self.cloud = self.anew()

    def anew(self) -> Cloud:
        """A process that has just begun."""
        return AwsCloud(
            fleet=FLEET,
            clock=self.clock,
            regions=REGIONS,
            session=self._session,
            endpoint_url=self.server.url,
            page_size=self.page,
        )

    def launch(self, tags: Mapping[str, str], *, region: str) -> str:
        """A machine that runs."""
        return self._ec2.launch(tags, region=region)

    def add_group(self, name: str, tags: Mapping[str, str], *, size: int) -> str:
        """Its members run, since this moment of our clock; moto has its own."""
        before = set(self.ids())
        group_id = self._ec2.add_group(name, tags, size=size)
        for node_id in set(self.ids()) - before:
            self._ec2._instance(node_id).launch_time = self.clock.now().replace(tzinfo=None)
        return group_id

    def state(self, node_id: str) -> NodeState | None:
        """Moto's own."""
        name = self._ec2._state_or_none(node_id)
        return None if name is None else _STATES[name]

    def tags(self, node_id: str) -> Mapping[str, str]:
        """Moto's own."""
        return {tag["key"]: tag["value"] for tag in self._ec2._instance(node_id).get_tags()}

    def ids(self) -> Collection[str]:
        """Moto's own."""
        return frozenset(self._ec2._instances())

    def settle(self, node_id: str) -> None:
        """Moto's machines arrive at once."""
        del node_id
        self.clock.advance(60)


def _scope(request: Request) -> tuple[str, str]:
    """Region and service of the signature."""
    found = _SCOPE.search(request.headers.get("authorization", ""))
    assert found is not None, "AWS takes no request without a signature"
    return found["region"], found["service"]


def _prepared(request: Request) -> AWSPreparedRequest:
    """As botocore would send it to AWS itself."""
    region, service = _scope(request)
    url = f"https://{service}.{region}.amazonaws.com/"
    headers: Any = dict(request.headers)
    return AWSPreparedRequest(request.method, url, headers, request.body, False)  # noqa: FBT003  stream_output


@contextmanager
def fault_world(folder: Path) -> Iterator[AwsFaultWorld]:
    """An empty account over HTTP; boto3's pauses take no time."""
    del folder
    clock = ManualClock()
    with MotoFaults(clock) as ec2, serving(FakeEc2(ec2)) as server, pytest.MonkeyPatch.context() as patch:
        naps: Any = SimpleNamespace(sleep=lambda _: None)
        patch.setattr(botocore.endpoint, "time", naps)
        for name in ("_READING", "_ACTING"):
            config: Any = getattr(aws_client, name)
            patch.setattr(aws_client, name, config.merge(Config(max_pool_connections=1)))
        yield AwsFaultWorld(clock, ec2, server, ec2.sending_session())
