"""The doctor and AWS: permissions by DryRun that change nothing, the clock, volumes, enrolment, prices."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpuwatch.cli.doctor import cloud
from gpuwatch.cli.doctor.context import ControllerCase
from gpuwatch.cli.doctor.report import Severity
from gpuwatch.clouds import CloudError
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.clouds.settings import CloudSettings
from gpuwatch.policies import PoolRules
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.runtime.clock import ManualClock, SystemClock
from gpuwatch.simulate.cloud import SimulatedCloud
from tests.support.builders.doctor_findings import a_controller, codes, the
from tests.support.fakes.cloud_worlds import FLEET, MINE, TEMPLATE
from tests.support.fakes.moto_faults import REGION, MotoFaults

ACTS = ("StopInstances", "StartInstances", "CreateTags", "TerminateInstances", "DescribeInstanceAttribute")
ENFORCE = {
    "mode": "enforce",
    "pools": {
        "default": PoolRules(idle=IdleRules(action="terminate"), launch=LaunchRules(template=TEMPLATE, region=REGION))
    },
}


@pytest.fixture
def ec2() -> Iterator[MotoFaults]:
    """An account with a template."""
    with MotoFaults(ManualClock()) as made:
        made.add_template(TEMPLATE)
        yield made


def a_case(ec2: MotoFaults, **settings: Any) -> ControllerCase:  # noqa: ANN401  settings are anything
    """A controller of that account."""
    clock = SystemClock()
    aws = AwsCloud(fleet=FLEET, clock=clock, regions=[REGION], session=ec2.session)
    return a_controller(aws, clock, {"cloud": CloudSettings(regions=(REGION,)), **settings})


def test_every_call_that_enforcing_needs_is_tried_and_none_is_carried_out(ec2: MotoFaults) -> None:
    """Reads, acts, the end of machines and a launch: all allowed, and the account is as it was."""
    node_id = ec2.launch(MINE)
    before = ec2.client.describe_instances()["Reservations"]
    case = a_case(ec2, **ENFORCE)
    _ = case.nodes
    ec2.calls.clear()
    findings = list(cloud.permissions(case))

    assert codes(findings) == []
    sent = {call.action for call in ec2.calls}
    assert {*ACTS, "RunInstances", "DescribeVolumes", "DescribeAutoScalingGroups"} <= sent
    assert [call for action in (*ACTS, "RunInstances") for call in ec2.done(action)] == []
    assert ec2.client.describe_instances()["Reservations"] == before
    assert ec2.state(node_id) == "running"
    (text,) = (each.seen for each in findings if each.severity is Severity.FINE)
    assert all(action in text for action in (*ACTS, "RunInstances"))


@pytest.mark.parametrize("action", ["StopInstances", "CreateTags", "RunInstances", "DescribeVolumes"])
def test_a_call_that_is_denied_is_named(ec2: MotoFaults, action: str) -> None:
    """UnauthorizedOperation in answer to the DryRun; the others are tried all the same."""
    ec2.launch(MINE)
    case = a_case(ec2, **ENFORCE)
    _ = case.nodes
    ec2.refuse(action, "UnauthorizedOperation", status=403)
    findings = list(cloud.permissions(case))

    assert codes(findings) == ["permission.denied"]
    denied = the(findings, "permission.denied")
    assert denied.looked_at == f"permission {action} in {REGION}"
    assert denied.seen == "UnauthorizedOperation"


def test_an_answer_that_says_nothing_of_the_permission_is_no_yes(ec2: MotoFaults) -> None:
    """A gateway's page, a throttle: not known."""
    ec2.launch(MINE)
    case = a_case(ec2, **ENFORCE)
    _ = case.nodes
    ec2.garble("StopInstances")
    ec2.throttle("StartInstances")

    found = [each for each in cloud.permissions(case) if each.code == "permission.untried"]
    assert [each.looked_at.split()[1] for each in found] == ["StopInstances", "StartInstances"]


def test_what_auto_scaling_allows_is_told_as_not_tried(ec2: MotoFaults) -> None:
    """It has no DryRun, and nothing is changed to find out."""
    ec2.add_group("train", MINE, size=1)
    case = a_case(ec2, mode="enforce")
    found = [each for each in cloud.permissions(case) if each.severity is not Severity.FINE]

    assert [each.seen for each in found] == ["Auto Scaling has no DryRun"]
    assert [
        call.action for call in ec2.calls if "AutoScalingGroup" in call.action and "Describe" not in call.action
    ] == ["CreateAutoScalingGroup"]


def test_a_launch_at_a_place_that_is_not_ours_is_told(ec2: MotoFaults) -> None:
    """A region that is missing among cloud.regions; what was tried before is told all the same."""
    ec2.launch(MINE)
    pools = {"far": PoolRules(launch=LaunchRules(template=TEMPLATE, region="eu-west-1"))}
    findings = list(cloud.permissions(a_case(ec2, mode="enforce", pools=pools)))

    assert codes(findings) == ["cloud.unusable"]
    assert "eu-west-1" in the(findings, "cloud.unusable").seen
    assert "StopInstances" in the(findings, "permissions").seen


def test_an_observer_needs_no_acts(ec2: MotoFaults) -> None:
    """In mode observe nothing that would change anything is even tried."""
    ec2.launch(MINE)
    case = a_case(ec2)
    _ = case.nodes
    ec2.calls.clear()

    assert codes(cloud.permissions(case)) == []
    assert {call.action for call in ec2.calls} & {*ACTS, "RunInstances"} == set()


@pytest.mark.parametrize("tags", [{}, {**MINE, "gpuwatch:protect": "true"}])
def test_nothing_is_tried_on_machines_that_are_not_ours(ec2: MotoFaults, tags: dict[str, str]) -> None:
    """Not on one that is not enrolled, nor on a protected one, which is denied by design."""
    ec2.launch(tags)
    case = a_case(ec2, mode="enforce")
    _ = case.nodes
    ec2.calls.clear()

    assert codes(cloud.permissions(case)) == ["permission.untried"]
    assert {call.action for call in ec2.calls} & set(ACTS) == set()


def test_a_right_on_a_machine_that_is_not_ours_is_a_warning(ec2: MotoFaults) -> None:
    """Tried by DryRun on one that is not enrolled, also by an observer; nothing is carried out."""
    node_id = ec2.launch({})
    before = ec2.client.describe_instances()["Reservations"]
    (found,) = cloud.reach(a_case(ec2))

    assert (found.code, found.severity) == ("permission.beyond", Severity.WARNING)
    assert found.seen == f"StopInstances, TerminateInstances, CreateTags allowed in {REGION}, machine {node_id}"
    assert ec2.client.describe_instances()["Reservations"] == before


def test_no_right_on_machines_that_are_not_ours_is_as_it_should_be(ec2: MotoFaults) -> None:
    """What EC2 refuses, and what gives no answer; without such a machine there is nothing to try."""
    case = a_case(ec2)
    assert list(cloud.reach(case)) == []

    ec2.launch({})
    for action in ("StopInstances", "TerminateInstances"):
        ec2.refuse(action, "UnauthorizedOperation", status=403)
    ec2.throttle("CreateTags")
    (found,) = cloud.reach(a_case(ec2))

    assert found.severity is Severity.FINE
    assert "not allowed in" in found.seen


def test_a_fleet_that_cannot_be_listed_is_a_problem_once(ec2: MotoFaults) -> None:
    """Whatever rests on it was not looked at, which is told as such and never as fine."""
    ec2.refuse("DescribeInstances", "UnauthorizedOperation", status=403, times=9)
    case = a_case(ec2)

    assert codes(cloud.fleet(case)) == ["cloud.unusable"]
    for check in (cloud.permissions, cloud.volumes, cloud.prices):
        assert codes(check(case)) == ["cloud.skipped"]


@pytest.mark.parametrize("error", [CloudError("no region is known"), ImportError("no boto3")])
def test_a_cloud_that_cannot_be_set_up_is_told(error: Exception) -> None:
    """No region, no extra."""
    case = a_controller(error)

    assert str(error) in the(cloud.fleet(case), "cloud.unusable").seen
    assert codes(cloud.clock(case)) == ["cloud.skipped"]


def test_nothing_enrolled_is_told_where_the_controller_may_act(ec2: MotoFaults) -> None:
    """In mode observe it is how everybody begins."""
    ec2.launch({})

    assert codes(cloud.fleet(a_case(ec2))) == []
    assert codes(cloud.fleet(a_case(ec2, mode="enforce"))) == ["enrolment.none"]


def test_a_fleet_of_another_name_is_told_with_the_names_that_there_are(ec2: MotoFaults) -> None:
    """A slip in the setting `fleet` looks like a fleet in which nobody is enrolled, in either mode."""
    for fleet in ("ml", "ml", "research"):
        ec2.launch({"gpuwatch:fleet": fleet})
    for mode in ("observe", "enforce"):
        found = list(cloud.fleet(a_case(ec2, mode=mode)))
        assert codes(found) == ["fleet.other"]
        assert the(found, "fleet.other").seen.endswith("By their tags: 2 machines of 'ml', 1 machine of 'research'")


@pytest.mark.parametrize(("seconds", "expected"), [(0, []), (60, ["clock.cloud"]), (-60, ["clock.cloud"])])
def test_the_clock_is_compared_with_the_clouds(
    ec2: MotoFaults, monkeypatch: pytest.MonkeyPatch, seconds: int, expected: list[str]
) -> None:
    """More than five seconds to either side is a problem."""
    case = a_case(ec2)
    now = case.clock.now()
    monkeypatch.setattr(SystemClock, "now", lambda _: now + timedelta(seconds=seconds))
    findings = list(cloud.clock(case))

    assert codes(findings) == expected
    assert "arn:aws:" in findings[0].seen


def test_unencrypted_volumes_of_gpu_machines_are_named(ec2: MotoFaults) -> None:
    """Each with its machine; volumes of others are not ours to judge."""
    node_id, other = ec2.launch({}), ec2.launch({}, instance_type="m5.large")
    findings = list(cloud.volumes(a_case(ec2)))

    assert codes(findings) == ["volumes.unencrypted"]
    assert node_id in findings[0].seen
    assert other not in findings[0].seen


def test_machines_without_a_price_are_named(ec2: MotoFaults) -> None:
    """A type that no table knows."""
    ec2.launch({}, instance_type="g5.xlarge")
    case = a_case(ec2)

    assert codes(cloud.prices(case)) == []

    unheard_of = replace(case.nodes[0], instance_type="g99.xlarge")
    case.cloud.nodes = lambda: (unheard_of,)  # type: ignore[method-assign]  # as a cloud newer than the table
    findings = list(cloud.prices(a_controller(case.cloud, settings={"cloud": CloudSettings(regions=(REGION,))})))

    assert codes(findings) == ["prices.unknown"]
    assert "g99.xlarge" in findings[0].seen


def test_a_cloud_that_cannot_be_asked_for_permissions_is_examined_without() -> None:
    """Another cloud has no DryRun; nothing breaks."""
    case = a_controller(SimulatedCloud(fleet=FLEET, clock=ManualClock()))

    assert codes([*cloud.fleet(case), *cloud.permissions(case), *cloud.clock(case), *cloud.volumes(case)]) == []
