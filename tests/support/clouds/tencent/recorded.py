"""Recorded answers of Tencent Cloud by their actions, and a cloud that gives one of them."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from unittest.mock import patch

from gpuwatch.clouds.tencent.cloud import TencentCloud
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.recorded import NOW, Recorded, answering
from tests.support.clouds.replay import Replay
from tests.support.clouds.server import Request, Response
from tests.support.clouds.tencent.others import ACCOUNT
from tests.support.fakes.cloud_worlds import FLEET

REGION = "ap-singapore"
# The member of an answer that has its list.
LISTS = {
    "DescribeInstances": "InstanceSet",
    "DescribeDisks": "DiskSet",
    "DescribeSnapshots": "SnapshotSet",
    "DescribeImages": "ImageSet",
    "DescribeAddresses": "AddressSet",
    "DescribeAutoScalingGroups": "AutoScalingGroupSet",
    "DescribeAutoScalingInstances": "AutoScalingInstanceSet",
    "DescribeLaunchConfigurations": "LaunchConfigurationSet",
    "DescribeLaunchTemplates": "LaunchTemplateSet",
    "DescribeLaunchTemplateVersions": "LaunchTemplateVersionSet",
    "DescribeExistedInstances": "ExistedInstanceSet",
}


@dataclass(frozen=True, kw_only=True)
class Answer(Recorded):
    """One answer, by its action and its product."""

    @property
    def kind(self) -> str:
        """The action."""
        return str(self.line.get("action") or self.line.get("call") or "")

    @property
    def product(self) -> str:
        """The product that was asked, by its host."""
        return str(self.line.get("uri", "")).partition("://")[2].partition(".")[0]

    @cached_property
    def body(self) -> dict[str, Any]:
        """The member Response; {} where it is none."""
        told = self.line.get("body", self.line.get("text"))
        try:
            read = json.loads(told) if isinstance(told, str) else told
        except ValueError:
            return {}
        found = read.get("Response") if isinstance(read, dict) else None
        return found if isinstance(found, dict) else {}

    @property
    def refused(self) -> bool:
        """Whether it is an error, which comes with the HTTP status 200."""
        return "Error" in self.body

    @property
    def items(self) -> list[dict[str, Any]]:
        """What is listed."""
        return list(self.body.get(LISTS.get(self.kind, "")) or ())

    def rewritten(self) -> str:
        """The body again, as it is now."""
        return json.dumps({"Response": self.body})


@dataclass
class Tencent:
    """Tencent Cloud with nothing but what a test puts there."""

    things: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # by the action that lists them
    answers: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # each is given as it is
    asked: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, answer: Answer, **more: list[dict[str, Any]]) -> "Tencent":
        """With what an answer lists, or with the answer as it is."""
        if answer.kind in LISTS and not answer.refused:
            return cls(things={**more, answer.kind: answer.items})
        return cls(things=dict(more), answers={answer.kind: answer.body})

    def __call__(self, request: Request) -> Response:
        """Answer as it would, in pages."""
        action, asked = request.headers["x-tc-action"], request.json
        self.asked.append(action)
        if action in self.answers:
            return _said({"RequestId": "r-1", **self.answers[action]})
        if action == "GetCallerIdentity":
            return _said({"AccountId": ACCOUNT, "Arn": "a", "UserId": "u", "PrincipalId": "p", "Type": "CAMUser"})
        if action == "DescribeInstanceTypeConfigs":
            name = asked["Filters"][0]["Values"][0]
            return _said({"InstanceTypeConfigSet": [{"InstanceType": name, "GPU": 1, "GpuCount": 1.0}]})
        return self._page(action, asked)

    def _page(self, action: str, asked: Mapping[str, Any]) -> Response:
        found = [each for each in self.things.get(action, ()) if _fits(each, asked)]
        begin, most = int(asked.get("Offset", 0)), int(asked.get("Limit", 20))
        return _said({"TotalCount": len(found), LISTS.get(action, "Set"): found[begin : begin + most]})


def _said(body: Mapping[str, Any]) -> Response:
    return Response(body={"Response": {"RequestId": "r-1", **body}})


def _fits(thing: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """By ids, and by the filters of ids."""
    named = {"instance-id": "InstanceId", "auto-scaling-group-id": "AutoScalingGroupId"}
    wanted = {each["Name"]: each["Values"] for each in asked.get("Filters") or ()}
    by_id = asked.get("InstanceIds")
    return (by_id is None or thing.get("InstanceId") in by_id) and all(
        thing.get(named[name]) in values for name, values in wanted.items() if name in named
    )


@contextmanager
def tencent(server: Callable[[Request], Response]) -> Iterator[TencentCloud]:
    """The adapter, which asks that server at Tencent Cloud's own addresses."""
    with answering(server), patch.dict(os.environ, _KEY):
        yield TencentCloud(fleet=FLEET, clock=ManualClock(NOW), regions=[REGION])


@contextmanager
def replayed(replay: Replay) -> Iterator[TencentCloud]:
    """The adapter for the regions of a recording."""
    with answering(replay), patch.dict(os.environ, _KEY):
        yield TencentCloud(fleet=replay.fleet, clock=ManualClock(replay.at), regions=replay.regions)


_KEY = {"TENCENTCLOUD_SECRET_ID": "AKIDexample", "TENCENTCLOUD_SECRET_KEY": "notarealkey"}


def things_of(answer: Answer) -> Iterator[tuple[str, object]]:
    """What a good answer has, by actions; the page itself is one more."""
    if answer.refused:
        yield "error", answer.body
    if answer.refused or answer.kind not in {*LISTS, "GetMonitorData"}:
        return
    for each in answer.items:
        yield answer.kind, each
    yield f"{answer.kind} page", {key: value for key, value in answer.body.items() if key != LISTS.get(answer.kind)}
