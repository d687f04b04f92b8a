"""Recorded answers of Alibaba Cloud by their calls, and the adapter on what was recorded."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree as ET

from gpuwatch.clouds.alibaba.client import of_pair
from gpuwatch.clouds.alibaba.cloud import AlibabaCloud
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.recorded import Recorded, answering
from tests.support.clouds.replay import Replay


@dataclass(frozen=True, kw_only=True)
class Answer(Recorded):
    """One answer, by its call."""

    @cached_property
    def body(self) -> Any:  # noqa: ANN401  JSON, or a tree
        """JSON as it is, and XML as an element; None: neither."""
        told = str(self.line.get("text", self.line.get("body", "")))
        try:
            return json.loads(told) if told.lstrip().startswith("{") else ET.fromstring(told)  # noqa: S314  recorded
        except (ValueError, ET.ParseError):
            return None

    @property
    def kind(self) -> str:
        """The call."""
        if isinstance(self.body, ET.Element):
            return str(self.body.tag).removesuffix("Response")
        return str(self.line.get("call", "")).rpartition(":")[2]

    def items(self, *path: str) -> list[dict[str, Any]]:
        """What is listed there, each with its members as the JSON has them."""
        if isinstance(self.body, ET.Element):
            return [_members(each) for each in self.body.findall("/".join(path))]
        found = self.body
        for step in path:
            found = found.get(step) or {}
        return list(found)

    def rewritten(self) -> str:
        """The body again, as it is now."""
        return json.dumps(self.body)


def _members(element: ET.Element) -> Any:  # noqa: ANN401  JSON
    if not len(element):
        return (element.text or "").strip()
    return {each.tag: _members(each) for each in element}


@contextmanager
def replayed(replay: Replay) -> Iterator[AlibabaCloud]:
    """The adapter for the regions of a recording."""
    regions = {each for url in replay.urls for each in parse_qs(urlsplit(url).query).get("RegionId", ())}
    with answering(replay):
        yield AlibabaCloud(
            fleet=replay.fleet,
            clock=ManualClock(replay.at),
            regions=sorted(regions),
            provider=of_pair("LTAIexample", "notarealsecret"),
        )


_LISTED = {"DescribeInstances": ("Instances", "Instance"), "DescribeDisks": ("Disks", "Disk")}
_LISTED |= {"DescribeSnapshots": ("Snapshots", "Snapshot"), "DescribeImages": ("Images", "Image")}
_LISTED |= {"DescribeRegions": ("Regions", "Region")}


def things_of(answer: Answer) -> Iterator[tuple[str, object]]:
    """What an answer has, by calls. XML has no types."""
    if isinstance(answer.body, dict) and "Message" in answer.body:
        yield "error", answer.body
    elif answer.kind in _LISTED:
        for each in answer.items(*_LISTED[answer.kind]):
            yield answer.kind, each
