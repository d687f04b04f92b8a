"""`gpuwatch scan` on EC2: every enabled region, agents or not; what was refused is named, and nothing is changed."""

import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuwatch.cli.main import commands
from gpuwatch.clouds import FLEET_TAG, POOL_TAG, CloudError
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.runtime.clock import SystemClock
from tests.support.fakes.moto_faults import REGION, MotoFaults

FAR = "ap-south-1"
MINE = {FLEET_TAG: "lab", POOL_TAG: "train"}
READS = ("Describe", "GetMetricData", "GetCallerIdentity")


@pytest.fixture
def ec2() -> Iterator[MotoFaults]:
    """An empty account at this time."""
    with MotoFaults(SystemClock()) as faults:
        yield faults


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Settings that name one region."""
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(f"fleet: lab\ncloud: {{regions: [{REGION}]}}\n")
    return path


def scan(file: Path, *more: str) -> Result:
    """The command's answer."""
    return CliRunner().invoke(commands, ["scan", "--config", str(file), *more], catch_exceptions=False)


def document(file: Path, *more: str) -> Any:  # noqa: ANN401  JSON
    """The same as JSON."""
    return json.loads(scan(file, "--json", *more).stdout)


def measured(ec2: MotoFaults, region: str, node_id: str, values: Mapping[str, float]) -> None:
    """CloudWatch has these values of a machine for three hours."""
    client: Any = ec2.session.client("cloudwatch", region_name=region)
    now = SystemClock().now()
    of_it = [{"Name": "InstanceId", "Value": node_id}]
    client.put_metric_data(
        Namespace="AWS/EC2",
        MetricData=[
            {"MetricName": name, "Dimensions": of_it, "Timestamp": now - timedelta(hours=hour), "Value": values[name]}
            for hour in (2, 3, 4)
            for name in values
        ],
    )
    ec2.calls.clear()


def test_the_forgotten_machine_is_found_in_a_region_that_nobody_configured(ec2: MotoFaults, file: Path) -> None:
    """With its age, its owner's tag and CloudWatch's numbers; what is ours is known."""
    mine = ec2.launch(MINE)
    forgotten = ec2.launch({"Owner": "anna"}, instance_type="p4d.24xlarge", region=FAR)
    ec2.launch({}, instance_type="m5.large", region=FAR)
    measured(ec2, FAR, forgotten, {"CPUUtilization": 2.0, "NetworkIn": 3_600_000.0, "NetworkOut": 7200.0})

    found = document(file)

    assert [row["id"] for row in found["machines"]] == [forgotten, mine]
    first, second = found["machines"]
    assert (first["region"], first["known"], first["watched"], first["owner"]) == (FAR, False, False, "anna")
    assert first["use"]["cpu_mean_ratio"] == pytest.approx(0.02)
    assert first["use"]["received_bytes_per_second"] == pytest.approx(1000.0)
    assert first["use"]["sent_bytes_per_second"] == pytest.approx(2.0)
    assert 0 <= first["age_seconds"] < 3600
    assert (second["known"], second["pool"], second["use"]) == (True, "train", None)
    assert second["usd_per_hour"] is not None
    assert found["complete"] is True
    assert len(found["places"]) > 10


def test_nothing_is_changed(ec2: MotoFaults, file: Path) -> None:
    """Every call only reads."""
    ec2.launch({}, region=FAR)
    ec2.calls.clear()

    assert scan(file).exit_code == 0
    assert [call.action for call in ec2.calls if not call.action.startswith(READS)] == []


def test_a_region_that_refuses_is_named_and_the_others_are_listed(ec2: MotoFaults, file: Path) -> None:
    """The exit status says that the scan is not whole."""
    forgotten = ec2.launch({}, region=FAR)
    ec2.refuse("DescribeInstances", "UnauthorizedOperation", status=403)

    done = scan(file)

    assert done.exit_code == 1
    assert forgotten in done.stdout
    assert "we may not look there (UnauthorizedOperation)" in done.stdout


def test_a_region_without_an_answer_is_named(ec2: MotoFaults, file: Path) -> None:
    """Its machines are not known; that is no empty region."""
    ec2.launch(MINE)
    ec2.garble("DescribeInstances", times=1000)

    found = document(file)

    assert found["complete"] is False
    assert {place["trouble"] is None for place in found["places"]} == {False}
    assert found["machines"] == []


def test_regions_that_cannot_be_listed_are_one_trouble(ec2: MotoFaults, file: Path) -> None:
    """The configured region is looked at all the same."""
    mine = ec2.launch(MINE)
    ec2.refuse("DescribeRegions", "UnauthorizedOperation", status=403)

    found = document(file)

    assert [row["id"] for row in found["machines"]] == [mine]
    assert [(place["where"], place["refused"]) for place in found["places"]] == [
        (REGION, None),
        ("other regions", "UnauthorizedOperation"),
    ]
    assert found["complete"] is False


def test_a_monitor_that_may_not_be_asked_costs_nothing_else(ec2: MotoFaults, file: Path) -> None:
    """The machine is listed without use, the reason is told, and the scan is whole."""
    ec2.launch({}, region=FAR)
    ec2.refuse("GetMetricData", "AccessDenied", status=403, times=10)

    done = scan(file)

    assert done.exit_code == 0
    assert f"The cloud's monitor says nothing of {FAR}: CloudWatch GetMetricData in {FAR}" in done.stdout


def test_one_region_may_be_asked_for(ec2: MotoFaults, file: Path) -> None:
    """The others are not shown."""
    ec2.launch(MINE)
    forgotten = ec2.launch({}, region=FAR)

    found = document(file, "--region", FAR)

    assert [row["id"] for row in found["machines"]] == [forgotten]
    assert [place["where"] for place in found["places"]] == [FAR]


def test_a_misspelt_region_is_refused(ec2: MotoFaults, file: Path) -> None:
    """An empty answer would look like an empty region."""
    del ec2

    done = scan(file, "--region", "us-esat-1")

    assert done.exit_code == 2
    assert "--region: no cloud of the settings has 'us-esat-1' enabled. The nearest is 'us-east-1'." in done.output


def test_several_accounts_are_searched_each_in_its_regions(ec2: MotoFaults) -> None:
    """CloudWatch is asked in the machine's own account."""
    other = "111111111111"
    role = AccountSettings(role_arn=f"arn:aws:iam::{other}:role/gpuwatch-controller")
    mine, theirs = ec2.launch(MINE), ec2.launch({}, region=FAR, account=other)
    cloud = AwsCloud(
        fleet="lab",
        clock=SystemClock(),
        regions=[REGION],
        accounts={"own": AccountSettings(), "other": role},
        session=ec2.session,
    )

    found = {node.id: place.where for place in cloud.survey() for node in place.nodes}

    assert found == {mine: f"{REGION} of account own", theirs: f"{FAR} of account other"}
    nodes = [node for place in cloud.survey() for node in place.nodes]
    assert cloud.use_of(nodes, 3600.0) == {}
    assert {node.id: node.account for node in nodes}[theirs] == other


def test_one_cloud_of_several_that_cannot_be_set_up_hides_no_other(ec2: MotoFaults, file: Path) -> None:
    """It is named, and what it has is not known; machines carry the name of their cloud."""
    mine = ec2.launch(MINE)
    file.write_text(
        "fleet: lab\n"
        "clouds:\n"
        f"  good: {{provider: aws, regions: [{REGION}]}}\n"
        f"  lost: {{provider: aws, regions: [{REGION}], aws: {{profile: nobody}}}}\n"
    )

    done = scan(file, "--json", "--region", REGION)
    found = json.loads(done.stdout)

    assert done.exit_code == 1
    assert [(row["id"], row["cloud"], row["usd_per_hour"] is None) for row in found["machines"]] == [
        (mine, "good", False)
    ]
    assert [(place["cloud"], place["where"], place["trouble"] is None) for place in found["places"]] == [
        ("good", REGION, True),
        ("lost", "cloud lost", False),
    ]


def test_without_credentials_nothing_can_be_said(ec2: MotoFaults, file: Path) -> None:
    """One cloud that cannot be set up is an error in the settings: exit status 2."""
    del ec2
    file.write_text(f"fleet: lab\ncloud: {{regions: [{REGION}], aws: {{profile: nobody}}}}\n")

    assert scan(file).exit_code == 2


def test_a_refusal_by_the_monitor_names_call_and_place(ec2: MotoFaults) -> None:
    """As all errors of AWS do."""
    cloud = AwsCloud(fleet="lab", clock=SystemClock(), regions=[REGION], session=ec2.session)
    ec2.launch({})
    (node,) = cloud.nodes()
    ec2.refuse("GetMetricData", "AccessDenied", status=403)

    with pytest.raises(CloudError, match=f"CloudWatch GetMetricData in {REGION}"):
        cloud.use_of([node], 3600.0)
