"""Tags as five clouds write them: a protection holds whatever has become of its value."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuwatch.clouds import FLEET_TAG, PROTECT_TAG
from gpuwatch.clouds.alibaba import instances as alibaba
from gpuwatch.clouds.aws import instances as aws
from gpuwatch.clouds.azure import instances as azure
from gpuwatch.clouds.azure.groups import ScaleSet
from gpuwatch.clouds.gcp import instances as gcp
from gpuwatch.clouds.gcp.owners import tags_of
from gpuwatch.clouds.tags import KNOWN, claims, tags_in_any_case
from gpuwatch.clouds.tencent import instances as tencent

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


def _aws(tags: Any) -> Mapping[str, str]:  # noqa: ANN401  any part of an answer
    described: Any = {"InstanceId": "i-1", "Tags": tags}
    return aws.Instance(described=described, id="i-1", type="p5.48xlarge", account="1").tags


def _azure(tags: Any) -> Mapping[str, str]:  # noqa: ANN401
    return azure.Machine(path="/x", described={"tags": tags}, view=None).tags


def _gcp(labels: Any) -> Mapping[str, str]:  # noqa: ANN401
    return tags_of(gcp.Instance(described={"labels": labels}, project="p").labels)


def _alibaba(tags: Any) -> Mapping[str, str]:  # noqa: ANN401
    return alibaba.Instance(described={"InstanceId": "i-1", "Tags": tags}).tags


def _tencent(tags: Any) -> Mapping[str, str]:  # noqa: ANN401
    return tencent.Instance(described={"InstanceId": "ins-1", "Tags": tags}, id="ins-1").tags


@pytest.mark.parametrize(
    ("read", "shapes"),
    [
        (_aws, [None, []]),
        (_azure, [None, {}]),
        (_gcp, [None, {}]),
        (_alibaba, [None, {}, {"Tag": None}, {"Tag": []}]),
        (_tencent, [None, []]),
    ],
)
def test_no_tags_are_no_tags_in_every_shape(read: Callable[[Any], Mapping[str, str]], shapes: list[object]) -> None:
    """None of the forms that the clouds have for it stops a list."""
    assert [dict(read(each)) for each in shapes] == [{} for _ in shapes]


@pytest.mark.parametrize(
    ("read", "tags"),
    [
        (_aws, [{"Key": PROTECT_TAG, "Value": None}]),
        (_aws, [{"Key": PROTECT_TAG}]),
        (_azure, {PROTECT_TAG: None}),
        (_azure, {"GPUWatch:Protect": None}),
        (_gcp, {"gpuwatch-protect": None}),
        (_gcp, {"gpuwatch-protect": ""}),
        (_alibaba, {"Tag": [{"TagKey": PROTECT_TAG, "TagValue": None}]}),
        (_alibaba, {"Tag": [{"TagKey": PROTECT_TAG}]}),
        (_tencent, [{"Key": PROTECT_TAG, "Value": None}]),
        (_tencent, [{"Key": PROTECT_TAG}]),
    ],
)
def test_a_protection_without_its_value_protects(read: Callable[[Any], Mapping[str, str]], tags: object) -> None:
    """Nobody knows until when, so it protects until somebody mends it."""
    assert claims(read(tags), fleet="lab", now=NOW)["protected"] is not None


@pytest.mark.parametrize("key", sorted(KNOWN))
def test_azures_keys_have_no_case(key: str) -> None:
    """Azure keeps the case in which a key was first written: what reads it finds ours in any."""
    assert tags_in_any_case({key.upper(): "a", "Team": "b"}) == {key: "a", "Team": "b"}


def test_a_machine_and_a_scale_set_of_azure_are_enrolled_and_protected_in_any_case() -> None:
    """An expired protection ends in any case, too."""
    tags = {"GpuWatch:Fleet": "lab", "GPUWATCH:PROTECT": "2020-01-01T00:00Z"}
    found = claims(_azure(tags), fleet="lab", now=NOW)
    assert (found["enrolled"], found["protected"]) == (True, None)
    assert ScaleSet(described={"id": "/x", "tags": tags}).is_enrolled("lab")
    assert _azure({"GPUWatch:fleet": "lab"})[FLEET_TAG] == "lab"
