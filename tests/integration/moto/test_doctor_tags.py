"""The doctor on what people write by hand: tags, and regions that nobody configured."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpuwatch.cli.doctor import cloud, tags
from gpuwatch.cli.doctor.context import ControllerCase
from gpuwatch.clouds import FLEET_TAG, POOL_TAG, PROTECT_TAG, CloudError
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.clouds.survey import Surveyed
from gpuwatch.guard import Limits
from gpuwatch.policies import PoolRules
from gpuwatch.runtime.clock import ManualClock, SystemClock
from gpuwatch.simulate.cloud import SimulatedCloud
from tests.support.builders.doctor_findings import a_controller, codes, the
from tests.support.builders.fleet import a_node
from tests.support.fakes.cloud_worlds import FLEET, MINE
from tests.support.fakes.moto_faults import REGION, MotoFaults

POOLS = {"pools": {"prod": PoolRules()}}


@pytest.fixture
def ec2() -> Iterator[MotoFaults]:
    """An empty account."""
    with MotoFaults(ManualClock()) as made:
        yield made


def a_case(ec2: MotoFaults, **settings: Any) -> ControllerCase:  # noqa: ANN401  settings are anything
    """A controller of that account."""
    clock = SystemClock()
    aws = AwsCloud(fleet=FLEET, clock=clock, regions=[REGION], session=ec2.session)
    return a_controller(aws, clock, {**POOLS, **settings})


def test_tags_that_are_right_are_fine(ec2: MotoFaults) -> None:
    """With a pool of the settings, or without one."""
    ec2.launch({**MINE, POOL_TAG: "prod", PROTECT_TAG: "2100-01-01T00:00Z"})
    ec2.launch(MINE)

    assert codes(tags.tags(a_case(ec2))) == []


def test_a_pool_that_the_settings_do_not_have_is_named_with_the_nearest_and_who_is_in_it(ec2: MotoFaults) -> None:
    """Machines and groups, enrolled or not."""
    node_id = ec2.launch({**MINE, POOL_TAG: "Prod"})
    ec2.add_group("train", {**MINE, POOL_TAG: "training"}, size=0)
    findings = list(tags.tags(a_case(ec2)))

    assert codes(findings) == ["pool.unknown", "pool.unknown"]
    assert findings[0].seen == (
        f"The tag gpuwatch:pool is 'Prod', and the settings have no such pool. The nearest is 'prod'. In it: {node_id}."
    )
    assert "In it: train." in findings[1].seen


def test_keys_and_fleets_that_are_nearly_right_and_protection_that_is_over_are_named(ec2: MotoFaults) -> None:
    """Each with its machine and what would be right."""
    slip = ec2.launch({**MINE, "gpuwatch:Protect": "true"})
    similar = ec2.launch({FLEET_TAG: f" {FLEET.title()}"})
    over = ec2.launch({**MINE, PROTECT_TAG: "2020-01-01T00:00Z"})
    findings = list(tags.tags(a_case(ec2)))

    assert the(findings, "tag.misspelt").seen == f"{slip}: 'gpuwatch:Protect' (right: gpuwatch:protect)"
    assert the(findings, "fleet.similar").seen == f"{similar}: ' {FLEET.title()}'"
    assert the(findings, "tag.expired").seen == over
    assert len(findings) == 3


def test_without_the_fleet_nothing_is_said_of_its_tags(ec2: MotoFaults) -> None:
    """Another finding says why."""
    ec2.refuse("DescribeInstances", "UnauthorizedOperation", status=403, times=9)
    case = a_case(ec2)

    assert codes(tags.tags(case)) == ["cloud.skipped"]
    assert codes(cloud.regions(case)) == ["cloud.skipped"]


def test_groups_that_cannot_be_listed_are_a_finding_of_their_own(ec2: MotoFaults) -> None:
    """The machines' tags are told all the same."""
    ec2.launch({**MINE, POOL_TAG: "Prod"})
    case = a_case(ec2)
    _ = case.nodes
    ec2.refuse("DescribeAutoScalingGroups", "AccessDenied", status=403, times=9)

    assert codes(tags.tags(case)) == ["cloud.unusable", "pool.unknown"]


def test_short_waits_are_a_problem(ec2: MotoFaults) -> None:
    """They are for tests."""
    assert codes(tags.cautions(a_case(ec2))) == []
    assert codes(tags.cautions(a_case(ec2, limits=Limits(allow_short_waits=True)))) == ["settings.for_tests"]


def test_gpu_machines_of_regions_that_nobody_configured_are_named(ec2: MotoFaults) -> None:
    """The forgotten machine is where nobody looks; machines without GPUs are none of our business."""
    ec2.launch(MINE)
    there = ec2.session.client("ec2", region_name="eu-central-1")
    image = there.describe_images(Owners=["amazon"])["Images"] or [{"ImageId": "ami-1"}]
    made = [
        there.run_instances(ImageId=image[0]["ImageId"], InstanceType=kind, MinCount=1, MaxCount=1)["Instances"][0]
        for kind in ("g4dn.xlarge", "m5.large")
    ]
    findings = list(cloud.regions(a_case(ec2)))

    assert codes(findings) == ["regions.unwatched"]
    assert findings[0].looked_at == "the region eu-central-1"
    assert findings[0].seen == f"1 GPU machines: {made[0]['InstanceId']} (g4dn.xlarge)"


def test_without_the_permission_nobody_knows_of_other_regions(ec2: MotoFaults) -> None:
    """A warning, and the rest of the doctor goes on."""
    ec2.refuse("DescribeRegions", "UnauthorizedOperation", status=403, times=9)

    assert codes(cloud.regions(a_case(ec2))) == ["regions.unseen"]


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ((), []),
        ((Surveyed(where="a"), Surveyed(where="b", refused="UnauthorizedOperation")), []),
        ((Surveyed(where="b", refused="UnauthorizedOperation"),), ["regions.unseen"]),
        ((Surveyed(where="a", trouble="no answer"), Surveyed(where="b")), ["regions.unseen"]),
        ((Surveyed(where="a", nodes=(a_node("i-1"),)), Surveyed(where="b", trouble="no")), ["regions.unwatched"] * 1),
    ],
)
def test_regions_that_may_not_be_looked_at_are_told_apart(
    ec2: MotoFaults, monkeypatch: pytest.MonkeyPatch, places: tuple[Surveyed, ...], expected: list[str]
) -> None:
    """Organisations close the regions that they do not use: that is fine. One without an answer is not."""
    monkeypatch.setattr(AwsCloud, "elsewhere", lambda _: places)
    found = codes(cloud.regions(a_case(ec2)))

    assert found[: len(expected)] == expected


def test_a_cloud_that_cannot_be_searched_is_not() -> None:
    """Nothing is told of its other regions."""
    assert codes(cloud.regions(a_controller(SimulatedCloud(fleet=FLEET, clock=ManualClock())))) == []


def test_a_cloud_that_cannot_be_set_up_has_no_tags() -> None:
    """No region, no extra."""
    assert codes(tags.tags(a_controller(CloudError("no region is known")))) == ["cloud.skipped"]
