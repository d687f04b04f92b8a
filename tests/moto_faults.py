"""EC2 played by moto in process, with what moto leaves out: faults, lag, refusals by state, launch times.

    with MotoFaults(clock) as ec2:
        node_id = ec2.launch({"gpuwatch:fleet": "lab"})
        cloud = AwsCloud(fleet="lab", clock=clock, regions=[REGION], session=ec2.session)
        ec2.throttle("StopInstances")

Each fault strikes the next call of its operation (an EC2 action such as "StopInstances"), once, or `times` in a row.
Nothing leaves the process: every request of `session` is answered by moto, or the test fails.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn, Self
from urllib.parse import parse_qs

import boto3
import botocore.session
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ConnectionClosedError
from botocore.loaders import create_loader
from moto import mock_aws
from moto.core.botocore_stubber import MockRawResponse
from moto.core.models import DEFAULT_ACCOUNT_ID, botocore_stubber
from moto.ec2.models import ec2_backends

from gpuwatch.clock import Clock

REGION = "us-east-1"
_LOADER = create_loader()  # one for all sessions: parsing EC2's model takes longer than most tests

# What EC2 refuses by state and moto accepts: action -> the states it cannot act from.
_WRONG_STATES = {
    "StopInstances": {"pending", "shutting-down", "terminated"},
    "StartInstances": {"stopping", "shutting-down", "terminated"},
}
# The state that EC2 shows for a while after an action: action -> its name and code.
_PASSING_STATES = {
    "RunInstances": ("pending", 0),
    "StartInstances": ("pending", 0),
    "StopInstances": ("stopping", 64),
    "TerminateInstances": ("shutting-down", 32),
}
_LAUNCHING = {"RunInstances", "StartInstances"}


class Crash(BaseException):
    """The process dies here; nothing in the product catches it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request that was sent, and whether EC2 carried it out."""

    action: str
    node_ids: tuple[str, ...]
    done: bool


@dataclass(frozen=True, slots=True)
class _Fault:
    """What the caller gets, instead of the effect or after it; None lets a call pass."""

    answer: Callable[[AWSPreparedRequest], AWSResponse] | None
    after_effect: bool = False


class MotoFaults:
    """A boto3 session whose EC2 is moto, mended and made to fail. `calls` is every request sent, in order."""

    def __init__(self, clock: Clock, *, lag_describes: int = 0) -> None:
        """`lag_describes`: how often a machine is still shown in its passing state after an action."""
        self.lag_describes = lag_describes
        self.calls: list[Call] = []
        self._clock = clock
        self._plans: defaultdict[str, deque[_Fault]] = defaultdict(deque)
        self._lagging: dict[str, tuple[int, tuple[str, int]]] = {}  # id -> describes left, the state to come
        self._launched: set[str] = set()
        self._moto = mock_aws()
        self._environment = pytest.MonkeyPatch()

    def __enter__(self) -> Self:
        """Begin with an empty account and fake credentials."""
        for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_EC2"):
            self._environment.delenv(name, raising=False)
        self._environment.setenv("AWS_CONFIG_FILE", "/dev/null")
        self._environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        self._environment.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
        self._moto.start()
        core = botocore.session.Session()
        core.register_component("data_loader", _LOADER)
        self.session = boto3.Session(botocore_session=core)
        # botocore would call both handlers and so carry out what this one refuses: ours stands before moto's alone.
        events: Any = self.session.events
        events.unregister("before-send", botocore_stubber)
        events.register("before-send", self._send)
        self.client = self.session.client("ec2", region_name=REGION)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Forget the account."""
        self._moto.stop()
        self._environment.undo()

    # What people do in the account.

    def launch(self, tags: Mapping[str, str], *, instance_type: str = "g5.xlarge", **more: Any) -> str:  # noqa: ANN401  RunInstances takes anything
        """A machine of its own, as somebody launches it; gives its id."""
        named = [{"Key": key, "Value": value} for key, value in tags.items()]
        specification: Any = [{"ResourceType": "instance", "Tags": named}] if named else []
        name: Any = instance_type
        region = more.pop("region", REGION)
        client = self.client if region == REGION else self.session.client("ec2", region_name=region)
        answer = client.run_instances(
            ImageId="ami-00000000", MinCount=1, MaxCount=1, InstanceType=name, TagSpecifications=specification, **more
        )
        return answer["Instances"][0]["InstanceId"]

    def set_tags(self, node_id: str, tags: Mapping[str, str]) -> None:
        """Tag a machine, as people do."""
        self.client.create_tags(Resources=[node_id], Tags=[{"Key": key, "Value": tags[key]} for key in tags])

    def state(self, node_id: str) -> str:
        """The state that the account holds, past every fault and lag of an answer."""
        return str(self._instance(node_id).state)

    # Faults.

    def refuse(self, action: str, code: str, *, status: int = 400, times: int = 1, message: str = "injected") -> None:
        """EC2 answers with this error and does nothing."""
        self._plan(action, lambda request: _answer(request, status, _error(code, message)), times=times)

    def throttle(self, action: str, *, times: int = 1) -> None:
        """Too many calls."""
        self.refuse(action, "RequestLimitExceeded", status=503, times=times)

    def protect(self, action: str) -> None:
        """The operation is not permitted on that machine."""
        self.refuse(action, "OperationNotPermitted")

    def exhaust(self, action: str) -> None:
        """No capacity; EC2 says so with HTTP 500."""
        self.refuse(action, "InsufficientInstanceCapacity", status=500)

    def garble(self, action: str, *, page: str = "<html>gateway", times: int = 1) -> None:
        """Something that is no EC2 answers."""
        self._plan(action, lambda request: _answer(request, 200, page), times=times)

    def lose_request(self, action: str, *, times: int = 1) -> None:
        """The connection breaks before EC2 hears of it."""
        self._plan(action, _disconnect, times=times)

    def lose_response(self, action: str, *, times: int = 1) -> None:
        """EC2 does it and the connection breaks before the caller hears of it."""
        self._plan(action, _disconnect, times=times, after_effect=True)

    def crash_before(self, action: str) -> None:
        """The caller dies before EC2 hears of it."""
        self._plan(action, _crash)

    def crash_after(self, action: str) -> None:
        """EC2 does it and the caller dies."""
        self._plan(action, _crash, after_effect=True)

    def let_pass(self, action: str, *, times: int = 1) -> None:
        """Spare that many calls, so that the next fault strikes a later one."""
        self._plans[action].extend([_Fault(None)] * times)

    def done(self, action: str) -> list[Call]:
        """The calls of an action that EC2 carried out."""
        return [call for call in self.calls if call.action == action and call.done]

    # How it works.

    def _plan(
        self,
        action: str,
        answer: Callable[[AWSPreparedRequest], AWSResponse],
        *,
        times: int = 1,
        after_effect: bool = False,
    ) -> None:
        self._plans[action].extend([_Fault(answer, after_effect)] * times)

    def _send(self, event_name: str, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        """Answer one request in moto's place."""
        action = event_name.rpartition(".")[2]
        node_ids = _node_ids(request)
        fault = self._plans[action].popleft() if self._plans[action] else _Fault(None)
        if fault.answer is not None and not fault.after_effect:
            self.calls.append(Call(action=action, node_ids=node_ids, done=False))
            return fault.answer(request)
        answer = self._carry_out(event_name, action, node_ids, request)
        self.calls.append(Call(action=action, node_ids=node_ids, done=answer.status_code < 300))
        return answer if fault.answer is None else fault.answer(request)

    def _carry_out(
        self, event_name: str, action: str, node_ids: tuple[str, ...], request: AWSPreparedRequest
    ) -> AWSResponse:
        """Moto's answer, with what EC2 would add."""
        if action == "DescribeInstances" and b"NextToken" not in _body(request):
            self._let_time_pass(node_ids)
        for node_id in node_ids:
            if action == "CreateTags" and self._state_or_none(node_id) is None:
                return _answer(request, 400, _error("InvalidInstanceID.NotFound", f"{node_id} does not exist"))
            if self._state_or_none(node_id) in _WRONG_STATES.get(action, ()):
                body = _error("IncorrectInstanceState", f"{node_id} is not in a state for it")
                return _answer(request, 400, body)
        before = {node_id: self._state_or_none(node_id) for node_id in node_ids}
        answer = botocore_stubber(event_name, request)
        if answer is None:
            pytest.fail(f"{action} would have left the process: {request.url}")
        if answer.status_code < 300:
            if action == "RunInstances":
                node_ids = self._new_ids()
            for node_id in node_ids:
                self._mend(action, node_id, before.get(node_id))
        return answer

    def _mend(self, action: str, node_id: str, before: str | None) -> None:
        """Set what moto leaves out, where the action changed the machine's state."""
        if action not in _PASSING_STATES or self.state(node_id) == before:
            return
        instance = self._instance(node_id)
        if action in _LAUNCHING:
            instance.launch_time = self._clock.now().replace(tzinfo=None)
        if self.lag_describes:
            self._lagging[node_id] = (self.lag_describes, (instance._state.name, instance._state.code))
            instance._state.name, instance._state.code = _PASSING_STATES[action]

    def _let_time_pass(self, node_ids: tuple[str, ...]) -> None:
        """A describe shows a passing state `lag_describes` times, and then the state to come."""
        for node_id, (left, final) in list(self._lagging.items()):
            if node_ids and node_id not in node_ids:
                continue
            if left == 0:
                state = self._instance(node_id)._state
                state.name, state.code = final
                del self._lagging[node_id]
            else:
                self._lagging[node_id] = (left - 1, final)

    def _instances(self) -> dict[str, Any]:
        backends = ec2_backends[DEFAULT_ACCOUNT_ID]
        return {instance.id: instance for backend in list(backends.values()) for instance in backend.all_instances()}

    def _instance(self, node_id: str) -> Any:  # noqa: ANN401  moto ships no types
        return self._instances()[node_id]

    def _state_or_none(self, node_id: str) -> str | None:
        instance = self._instances().get(node_id)
        return None if instance is None else str(instance.state)

    def _new_ids(self) -> tuple[str, ...]:
        new = self._instances().keys() - self._launched
        self._launched |= new
        return tuple(new)


def _body(request: AWSPreparedRequest) -> bytes:
    body: Any = request.body or b""
    return body if isinstance(body, bytes) else str(body).encode()


def _node_ids(request: AWSPreparedRequest) -> tuple[str, ...]:
    """The instances that a request names."""
    fields = parse_qs(_body(request).decode())
    return tuple(value[0] for key, value in sorted(fields.items()) if key.startswith(("InstanceId.", "ResourceId.")))


def _answer(request: AWSPreparedRequest, status: int, body: str) -> AWSResponse:
    raw: Any = MockRawResponse(body)
    return AWSResponse(str(request.url), status, HTTPHeaders(), raw)


def _error(code: str, message: str) -> str:
    return (
        f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
        "<RequestID>0</RequestID></Response>"
    )


def _disconnect(request: AWSPreparedRequest) -> NoReturn:
    raise ConnectionClosedError(endpoint_url=request.url)


def _crash(request: AWSPreparedRequest) -> NoReturn:
    raise Crash(request.url)
