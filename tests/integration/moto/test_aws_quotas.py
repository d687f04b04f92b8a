"""Limits on P and G machines: Service Quotas says how many vCPUs, and the machines that run say what is used.

moto has no quotas of EC2: the answers of Service Quotas are those that its API reference describes.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.clouds import AuthFailedError, CloudUnavailableError
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.clouds.aws.standing import _counts
from gpuwatch.clouds.permissions import Quotas
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.cloud_worlds import MINE
from tests.support.fakes.moto_faults import REGION
from tests.support.fakes.moto_oddities import OddFaults
from tests.support.fakes.moto_wire import answer_of

P, G = "Running On-Demand P instances", "Running On-Demand G and VT instances"
G_SPOT, P5_SPOT = "All G and VT Spot Instance Requests", "All P5 Spot Instance Requests"
OTHERS = {
    "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances": 1152.0,
    "Running On-Demand Inf instances": 64.0,
    "Running Dedicated p4d Hosts": 1.0,
    "EC2-VPC Elastic IPs": 5.0,
}


@pytest.fixture
def ec2() -> Iterator[OddFaults]:
    """An empty account."""
    with OddFaults(ManualClock()) as faults:
        yield faults


def answers(ec2: OddFaults, limits: Mapping[str, float], *, following: str | None = None) -> None:
    """Service Quotas answers the next call with one page."""
    quotas = [{"ServiceCode": "ec2", "QuotaName": name, "Value": limits[name]} for name in limits]
    page = {"Quotas": quotas} | ({} if following is None else {"NextToken": following})
    ec2.garble("ListServiceQuotas", page=json.dumps(page))


def a_cloud(ec2: OddFaults) -> AwsCloud:
    """The real adapter on that account."""
    return AwsCloud(fleet="lab", clock=ManualClock(), regions=[REGION], session=ec2.session)


def test_the_limits_on_gpu_machines_are_listed_to_the_last_page(ec2: OddFaults) -> None:
    """The others are of no interest here."""
    answers(ec2, {P: 384.0, **OTHERS}, following="more")
    answers(ec2, {G: 64.0, G_SPOT: 32.0, P5_SPOT: 192.0})

    found = a_cloud(ec2).quotas()

    assert [(each.name, each.limit, each.used, each.unit, each.region) for each in found] == [
        (G_SPOT, 32.0, 0.0, "vCPUs", REGION),
        (P5_SPOT, 192.0, 0.0, "vCPUs", REGION),
        (G, 64.0, 0.0, "vCPUs", REGION),
        (P, 384.0, 0.0, "vCPUs", REGION),
    ]


def test_machines_that_run_use_their_vcpus(ec2: OddFaults) -> None:
    """On demand and spot apart; a stopped machine uses nothing, and one without GPUs counts elsewhere."""
    ec2.launch(MINE, instance_type="g5.xlarge")
    ec2.launch({}, instance_type="p4d.24xlarge")
    ec2.launch({}, instance_type="m5.large")
    ec2.launch_spot({}, "one-time")
    stopped = ec2.launch({}, instance_type="g5.xlarge")
    ec2.client.stop_instances(InstanceIds=[stopped])
    answers(ec2, {P: 384.0, G: 64.0, G_SPOT: 32.0})

    assert {each.name: each.used for each in a_cloud(ec2).quotas()} == {P: 96.0, G: 4.0, G_SPOT: 4.0}


def test_a_type_that_is_not_described_leaves_the_use_unknown(ec2: OddFaults) -> None:
    """Half a sum would show too much as left."""
    ec2.launch(MINE, instance_type="g5.xlarge")
    answers(ec2, {G: 64.0, P: 384.0})
    ec2.garble(
        "DescribeInstanceTypes",
        page="<DescribeInstanceTypesResponse><instanceTypeSet/></DescribeInstanceTypesResponse>",
    )

    assert {each.name: each.used for each in a_cloud(ec2).quotas()} == {G: None, P: 0.0}


@pytest.mark.parametrize(
    ("type_", "families", "counts"),
    [
        ("p5en.48xlarge", ("P",), True),
        ("p5en.48xlarge", ("P5",), True),
        ("p4d.24xlarge", ("P4", "P3", "P2"), True),
        ("p5.48xlarge", ("P4", "P3", "P2"), False),
        ("g6e.xlarge", ("G", "VT"), True),
        ("gr6.4xlarge", ("G", "VT"), True),
        ("vt1.3xlarge", ("G", "VT"), True),
        ("g6e.xlarge", ("P",), False),
        ("c5.large", ("G", "VT"), False),
    ],
)
def test_a_type_counts_for_its_family(type_: str, families: tuple[str, ...], counts: bool) -> None:
    """P is all generations, P5 one of them."""
    assert _counts(type_, families) is counts


def test_a_refusal_and_silence_are_typed(ec2: OddFaults) -> None:
    """The role may lack the permission."""
    cloud = a_cloud(ec2)
    assert isinstance(cloud, Quotas)
    ec2.garble("ListServiceQuotas", page="{}")
    with pytest.raises(CloudUnavailableError, match="Service Quotas ListServiceQuotas in us-east-1"):
        cloud.quotas()

    denied = json.dumps({"__type": "AccessDeniedException", "message": "no"})
    ec2._plan("ListServiceQuotas", lambda request: answer_of(request, 400, denied))
    with pytest.raises(AuthFailedError):
        cloud.quotas()


def test_status_says_what_is_left(ec2: OddFaults, tmp_path: Path) -> None:
    """Beneath the table; the exit status is 1, as no agent answers here."""
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(f"fleet: lab\ncloud: {{regions: [{REGION}]}}\nledger: {{path: {tmp_path}/ledger.db}}\n")
    ec2.launch({}, instance_type="p4d.24xlarge")
    answers(ec2, {P: 384.0, G_SPOT: 0.0})

    done = CliRunner().invoke(commands, ["status", "--config", str(file)])

    assert done.exit_code == 1, done.output
    assert f"Quota in {REGION}: 288 of 384 vCPUs left ({P})" in done.stdout
    assert G_SPOT not in done.stdout

    answers(ec2, {P: 384.0})
    found = json.loads(CliRunner().invoke(commands, ["status", "--config", str(file), "--json"]).stdout)

    assert found["quotas"] == [
        {"name": P, "cloud": None, "region": REGION, "unit": "vCPUs", "limit": 384.0, "used": 96.0, "left": 288.0}
    ]
    assert found["total"] == len(found["nodes"]) == 1
