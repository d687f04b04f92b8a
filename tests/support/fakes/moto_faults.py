"""EC2 and Auto Scaling played by moto in process, with what moto leaves out: faults, lag, refusals by state, tokens.

    with MotoFaults(clock) as ec2:
        node_id = ec2.launch({"gpuwatch:fleet": "lab"})
        cloud = AwsCloud(fleet="lab", clock=clock, regions=[REGION], session=ec2.session)
        ec2.throttle("StopInstances")

Each fault strikes the next call of its operation (an EC2 action such as "StopInstances"), once, or `times` in a row.
Nothing leaves the process: every request of `session` is answered by moto, or the test fails.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import boto3
import botocore.handlers
import botocore.session
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.loaders import create_loader
from moto import mock_aws
from moto.core.models import botocore_stubber
from moto.ec2.models import ec2_backends

from gpuwatch.runtime.clock import Clock
from tests.support.fakes import moto_groups, moto_notices
from tests.support.fakes.moto_wire import (
    END_MEMBER,
    LAUNCHING,
    PASSING_STATES,
    WRONG_STATES,
    Call,
    Crash,
    Fault,
    answer_of,
    crash,
    disconnect,
    error_of,
    fields_of,
    node_ids_of,
)
from tests.support.fakes.quick_botocore import quicken

__all__ = ["REGION", "Call", "Crash", "MotoFaults"]

REGION = "us-east-1"
_LOADER = create_loader()  # one for all sessions: parsing EC2's model takes longer than most tests


class MotoFaults:
    """A boto3 session whose EC2 is moto, mended and made to fail. `calls` is every request sent, in order."""

    def __init__(self, clock: Clock, *, lag_describes: int = 0) -> None:
        """`lag_describes`: how often a machine is still shown in its passing state after an action."""
        self.lag_describes = lag_describes
        self.calls: list[Call] = []
        self.on_call: Callable[[str], object] = lambda _action: None  # while AWS answers a call
        self.events: moto_notices.Events = {}  # what EC2 announces of machines
        self._clock = clock
        self._templates: set[str] = set()
        self._lifecycles: dict[str, str] = {}  # of their machines, which moto launches on demand
        self._plans: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._lagging: dict[str, tuple[int, tuple[str, int]]] = {}  # id -> describes left, the state to come
        self._tokens: dict[str, tuple[dict[str, str], str, tuple[str, ...]]] = {}  # token -> fields, answer, ids
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
        # Every session made from here on, also one in another account, is answered by this layer in moto's place.
        handlers: Any = botocore.handlers.BUILTIN_HANDLERS
        self._environment.setattr(
            botocore.handlers,
            "BUILTIN_HANDLERS",
            [("before-send", self._send) if botocore_stubber in each else each for each in handlers],
        )
        core = botocore.session.Session()
        core.register_component("data_loader", _LOADER)
        quicken(self._environment)
        self.session = boto3.Session(botocore_session=core)
        self.client = self.session.client("ec2", region_name=REGION)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Forget the account."""
        self._moto.stop()
        self._environment.undo()

    @cached_property
    def scaling(self) -> Any:  # noqa: ANN401  people may ask it anything
        """A client of Auto Scaling."""
        return self.session.client("autoscaling", region_name=REGION)

    def sending_session(self) -> boto3.Session:
        """A session whose requests leave the process, for an endpoint of the test's own."""
        core = botocore.session.Session()
        core.register_component("data_loader", _LOADER)
        answered_here: Any = self._send
        core.unregister("before-send", answered_here)
        return boto3.Session(botocore_session=core)

    # What people do in the account.

    def launch(self, tags: Mapping[str, str], *, instance_type: str = "g5.xlarge", **more: Any) -> str:  # noqa: ANN401  RunInstances takes anything
        """A machine of its own, as somebody launches it; gives its id."""
        named = [{"Key": key, "Value": value} for key, value in tags.items()]
        specification: Any = [{"ResourceType": "instance", "Tags": named}] if named else []
        name: Any = instance_type
        client = self._ec2(more.pop("region", REGION), more.pop("account", None))
        answer = client.run_instances(
            ImageId="ami-00000000", MinCount=1, MaxCount=1, InstanceType=name, TagSpecifications=specification, **more
        )
        return str(answer["Instances"][0]["InstanceId"])

    def _ec2(self, region: str, account: str | None) -> Any:  # noqa: ANN401  a client of EC2
        """A client for people, in another region or account."""
        if account is None:
            return self.client if region == REGION else self.session.client("ec2", region_name=region)
        role: Any = {"RoleArn": f"arn:aws:iam::{account}:role/people", "RoleSessionName": "people"}
        result = self.session.client("sts", region_name=region).assume_role(**role)["Credentials"]
        self.calls.clear()
        keys = (result["AccessKeyId"], result["SecretAccessKey"], result["SessionToken"])
        return boto3.Session(*keys, region_name=region).client("ec2")

    def add_template(
        self,
        name: str,
        *,
        region: str = REGION,
        account: str | None = None,
        instance_type: str = "g5.xlarge",
        lifecycle: str | None = None,
    ) -> str:
        """A launch template; gives its id."""
        data: Any = {"ImageId": "ami-00000000", "InstanceType": instance_type}
        data |= {"InstanceMarketOptions": {"MarketType": "spot"}} if lifecycle == "spot" else {}
        answer = self._ec2(region, account).create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
        template = str(answer["LaunchTemplate"]["LaunchTemplateId"])
        self._templates |= {name, template}
        self._lifecycles |= {} if lifecycle is None else {name: lifecycle, template: lifecycle}
        return template

    def add_group(self, name: str, tags: Mapping[str, str], *, size: int, region: str = REGION, **more: Any) -> str:  # noqa: ANN401  CreateAutoScalingGroup takes anything
        """A group of that size from a template of its own name, whose tags go to its members; gives its ARN."""
        client = self.session.client("ec2", region_name=region)
        scaling: Any = self.session.client("autoscaling", region_name=region)
        template = f"of-{name}"
        data: Any = {"ImageId": "ami-00000000", "InstanceType": more.pop("instance_type", "g5.xlarge")}
        client.create_launch_template(LaunchTemplateName=template, LaunchTemplateData=data)
        options = {"MinSize": 0, "MaxSize": 10, "AvailabilityZones": [f"{region}a"], "DesiredCapacity": size, **more}
        scaling.create_auto_scaling_group(
            AutoScalingGroupName=name,
            LaunchTemplate={"LaunchTemplateName": template, "Version": "$Default"},
            Tags=[{"Key": key, "Value": tags[key], "PropagateAtLaunch": True} for key in tags],
            **options,
        )
        described = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        return str(described[0]["AutoScalingGroupARN"])

    def add_image(self, name: str, *, made: str) -> str:
        """Somebody makes an image of a machine that is gone, at that time."""
        node_id = self.launch({})
        image: str = self.client.create_image(InstanceId=node_id, Name=name)["ImageId"]
        self.client.terminate_instances(InstanceIds=[node_id])
        for regions in list(ec2_backends.values()):
            if image in regions[REGION].amis:
                regions[REGION].amis[image].creation_date = datetime.fromisoformat(made)
        return image

    def set_tags(self, node_id: str, tags: Mapping[str, str]) -> None:
        """Tag a machine, as people do."""
        self.client.create_tags(Resources=[node_id], Tags=[{"Key": key, "Value": tags[key]} for key in tags])

    def set_lifecycle(self, node_id: str, state: str) -> None:
        """Somebody takes a member of a group out of service."""
        moto_groups.member(node_id)[1].lifecycle_state = state

    def state(self, node_id: str) -> str:
        """The state that the account holds, past every fault and lag of an answer."""
        return str(self._instance(node_id).state)

    # Faults.

    def refuse(self, action: str, code: str, *, status: int = 400, times: int = 1, message: str = "injected") -> None:
        """EC2 answers with this error and does nothing."""
        self._plan(action, lambda request: answer_of(request, status, error_of(request, code, message)), times=times)

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
        self._plan(action, lambda request: answer_of(request, 200, page), times=times)

    def lose_request(self, action: str, *, times: int = 1) -> None:
        """The connection breaks before EC2 hears of it."""
        self._plan(action, disconnect, times=times)

    def lose_response(self, action: str, *, times: int = 1) -> None:
        """EC2 does it and the connection breaks before the caller hears of it."""
        self._plan(action, disconnect, times=times, after_effect=True)

    def impair_zone(self, *, times: int = 3) -> None:
        """A zone is in trouble: a list of all machines fails as a whole."""
        self.refuse("DescribeInstances", "Unavailable", status=503, times=times)

    def deliver_twice(self, action: str) -> None:
        """The network hands the same request to AWS a second time."""
        self._plans[action].append(Fault(None, twice=True))

    def crash_before(self, action: str) -> None:
        """The caller dies before EC2 hears of it."""
        self._plan(action, crash)

    def crash_after(self, action: str) -> None:
        """EC2 does it and the caller dies."""
        self._plan(action, crash, after_effect=True)

    def let_pass(self, action: str, *, times: int = 1) -> None:
        """Spare that many calls, so that the next fault strikes a later one."""
        self._plans[action].extend([Fault(None)] * times)

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
        self._plans[action].extend([Fault(answer, after_effect)] * times)

    def _send(self, event_name: str, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        """Answer one request in moto's place."""
        action = event_name.rpartition(".")[2]
        self.on_call(action)
        node_ids = node_ids_of(request)
        fault = self._plans[action].popleft() if self._plans[action] else Fault(None)
        if fault.answer is not None and not fault.after_effect:
            self.calls.append(Call(action=action, node_ids=node_ids, done=False))
            return fault.answer(request)
        answer = self._carry_out(event_name, action, node_ids, request)
        if fault.twice:
            answer = self._carry_out(event_name, action, node_ids, request)
        self.calls.append(Call(action=action, node_ids=node_ids, done=answer.status_code < 300))
        return answer if fault.answer is None else fault.answer(request)

    def _carry_out(
        self, event_name: str, action: str, node_ids: tuple[str, ...], request: AWSPreparedRequest
    ) -> AWSResponse:
        """Moto's answer, with what AWS would add."""
        fields = fields_of(request)
        if action == "DescribeInstances" and "NextToken" not in fields:
            self._let_time_pass(node_ids)
        refused = self._refusal(action, node_ids, fields)
        if refused is not None:
            return answer_of(request, 400, error_of(request, *refused))
        announced = moto_notices.page(action, self.events, fields)
        if announced is not None:
            return answer_of(request, 200, announced)
        if action == "RunInstances" and fields["ClientToken"] in self._tokens:
            return answer_of(request, 200, self._tokens[fields["ClientToken"]][1])
        before = {node_id: self._state_or_none(node_id) for node_id in node_ids}
        there = self._instances().keys() if action == "RunInstances" else frozenset()
        answer = self._ask_moto(event_name, action, fields, request)
        if answer.status_code < 300:
            if action == "RunInstances":
                node_ids = tuple(self._instances().keys() - there)
                answer = self._remember(fields, node_ids, request, answer)
                named = (fields.get(f"LaunchTemplate.LaunchTemplate{name}", "") for name in ("Id", "Name"))
                for lifecycle in {self._lifecycles[each] for each in named if each in self._lifecycles}:
                    for node_id in node_ids:
                        self._instance(node_id).lifecycle = lifecycle
            for node_id in node_ids:
                self._mend(action, node_id, before.get(node_id))
        return answer

    def _refusal(self, action: str, node_ids: tuple[str, ...], fields: dict[str, str]) -> moto_groups.Refusal | None:
        """What AWS refuses and moto accepts."""
        if fields.get("DryRun") == "true":  # which moto carries out where it only describes
            return "DryRunOperation", "Request would have succeeded, but DryRun flag is set."
        for node_id in node_ids:
            if action == "CreateTags" and node_id.startswith("i-") and self._state_or_none(node_id) is None:
                return "InvalidInstanceID.NotFound", f"{node_id} does not exist"
            if self._state_or_none(node_id) in WRONG_STATES.get(action, ()):
                return "IncorrectInstanceState", f"{node_id} is not in a state for it"
        if action == "TerminateInstances" and all(map(self._state_or_none, node_ids)):
            return self._protection(node_ids)
        if action == "RunInstances" and self._tokens.get(fields["ClientToken"], (fields,))[0] != fields:
            return "IdempotentParameterMismatch", "The token was used with other parameters"
        template = fields.get("LaunchTemplate.LaunchTemplateId") or fields.get("LaunchTemplate.LaunchTemplateName")
        if action == "RunInstances" and template not in (None, *self._templates):
            return "InvalidLaunchTemplateId.NotFound", f"There is no launch template {template}"
        return moto_groups.refusal(action, fields)

    def _protection(self, node_ids: tuple[str, ...]) -> moto_groups.Refusal | None:
        """A protected machine saves all of the call in its own zone; those in other zones end, and the call fails."""
        instances = [self._instance(node_id) for node_id in node_ids]
        safe = {each.placement.zone for each in instances if each.disable_api_termination is True}
        if not safe:
            return None
        for each in instances:
            if each.placement.zone not in safe:
                each.terminate()
        return "OperationNotPermitted", "An instance may not be terminated: modify its 'disableApiTermination'"

    def _ask_moto(
        self, event_name: str, action: str, fields: dict[str, str], request: AWSPreparedRequest
    ) -> AWSResponse:
        """The effect."""
        if action == END_MEMBER:
            answer = moto_groups.end_member(fields)
            self._instance(fields["InstanceId"]).terminate()
            if not self.lag_describes:
                moto_groups.forget(fields["InstanceId"])
            return answer_of(request, 200, answer)
        if action == "SetDesiredCapacity" and moto_groups.wants(fields):
            return answer_of(request, 200, moto_groups.RESIZED)
        if action == "DescribeScalingActivities":
            return answer_of(request, 200, moto_groups.activities(fields, self._clock.now()))
        if fields.get("Filter.1.Name") == "client-token":  # moto knows no such filter
            ids = self._tokens.get(fields["Filter.1.Value.1"], ({}, "", ("i-none",)))[2]
            fields |= {"Filter.1.Name": "instance-id", "Filter.1.Value.1": ids[0]}
            request.body = urlencode(fields)
        answered = botocore_stubber(event_name, request)
        if answered is None:
            pytest.fail(f"{action} would have left the process: {request.url}")
        return answered

    def _remember(
        self, fields: dict[str, str], node_ids: tuple[str, ...], request: AWSPreparedRequest, answer: AWSResponse
    ) -> AWSResponse:
        """A launch, so that its token launches nothing more."""
        text = answer.content.decode()
        self._tokens[fields["ClientToken"]] = (fields, text, node_ids)
        return answer_of(request, answer.status_code, text)

    def _mend(self, action: str, node_id: str, before: str | None) -> None:
        """Set what moto leaves out, where the action changed the machine's state."""
        if action not in PASSING_STATES or self.state(node_id) == before:
            return
        instance = self._instance(node_id)
        if action in LAUNCHING:
            instance.launch_time = self._clock.now().replace(tzinfo=None)
        if self.lag_describes:
            self._lagging[node_id] = (self.lag_describes, (instance._state.name, instance._state.code))
            instance._state.name, instance._state.code = PASSING_STATES[action]

    def _let_time_pass(self, node_ids: tuple[str, ...]) -> None:
        """A describe shows a passing state `lag_describes` times, and then the state to come."""
        for node_id, (left, final) in list(self._lagging.items()):
            if node_ids and node_id not in node_ids:
                continue
            if left == 0:
                state = self._instance(node_id)._state
                state.name, state.code = final
                del self._lagging[node_id]
                if final[0] == "terminated":
                    moto_groups.forget(node_id)
            else:
                self._lagging[node_id] = (left - 1, final)

    def _instances(self) -> dict[str, Any]:
        backends = [backend for regions in list(ec2_backends.values()) for backend in list(regions.values())]
        return {instance.id: instance for backend in backends for instance in backend.all_instances()}

    def _instance(self, node_id: str) -> Any:  # noqa: ANN401  moto ships no types
        return self._instances()[node_id]

    def _state_or_none(self, node_id: str) -> str | None:
        instance = self._instances().get(node_id)
        return None if instance is None else str(instance.state)
