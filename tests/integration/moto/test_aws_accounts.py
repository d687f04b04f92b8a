"""EC2 in several accounts and regions: roles that are assumed, whole lists or none, and our own limits."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpuwatch.clouds import AuthFailedError, CloudUnavailableError, NotFoundError, ThrottledError
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.clouds.aws.settings import AwsSettings
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.clouds.settings import CloudSettings, contradictions
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.fakes.cloud_worlds import ACCOUNT, MINE, TEMPLATE
from tests.support.fakes.moto_faults import REGION, MotoFaults

OTHER = "111111111111"
ROLE = f"arn:aws:iam::{OTHER}:role/gpuwatch-controller"
ACCOUNTS = {"own": AccountSettings(), "prod": AccountSettings(role_arn=ROLE, regions=("eu-west-1",))}


@pytest.fixture
def ec2() -> Iterator[MotoFaults]:
    """An empty account."""
    with MotoFaults(ManualClock()) as faults:
        yield faults


def a_cloud(ec2: MotoFaults, **more: Any) -> AwsCloud:  # noqa: ANN401  any option of AwsCloud
    """The real adapter, on two accounts."""
    options = {"fleet": "lab", "clock": ManualClock(), "regions": [REGION], "accounts": ACCOUNTS, **more}
    return AwsCloud(session=ec2.session, **options)


def test_accounts_are_listed_together_and_acted_on_apart(ec2: MotoFaults) -> None:
    """Each machine knows its account and region, and what is done to it is done there."""
    here = ec2.launch(MINE)
    there = ec2.launch(MINE, region="eu-west-1", account=OTHER)
    cloud = a_cloud(ec2)

    cloud.stop(there, "key", permit=a_permit())

    document = {node.id: (node.account, node.region, node.state) for node in cloud.nodes()}
    assert document == {here: (ACCOUNT, REGION, NodeState.RUNNING), there: (OTHER, "eu-west-1", NodeState.STOPPED)}


def test_a_role_is_assumed_under_our_name_with_its_external_id(ec2: MotoFaults) -> None:
    """CloudTrail shows who it was, and a trust policy may ask for the external id."""
    asked: list[Any] = []
    events: Any = ec2.session.events
    events.register("provide-client-params.sts.AssumeRole", lambda params, **_: asked.append(dict(params)))
    account = AccountSettings(role_arn=ROLE, external_id="lab-7", regions=(REGION,))

    a_cloud(ec2, accounts={"prod": account}).nodes()

    assert asked == [{"RoleArn": ROLE, "RoleSessionName": "gpuwatch", "ExternalId": "lab-7"}]


def test_a_role_is_assumed_once_for_all_its_regions(ec2: MotoFaults) -> None:
    """Credentials are kept until they run out."""
    account = AccountSettings(role_arn=ROLE, regions=(REGION, "eu-west-1"))
    cloud = a_cloud(ec2, accounts={"prod": account})

    cloud.nodes()
    cloud.nodes()

    assert [call.action for call in ec2.calls].count("AssumeRole") == 1


def test_a_role_that_cannot_be_assumed_fails_the_whole_list(ec2: MotoFaults) -> None:
    """One account without an answer is no empty account: the error names it and its region, and there is no list."""
    ec2.launch(MINE)
    ec2.refuse("AssumeRole", "AccessDenied", status=403)

    with pytest.raises(AuthFailedError, match="in eu-west-1 of account prod"):
        a_cloud(ec2).nodes()


def test_a_region_without_an_answer_fails_the_whole_list(ec2: MotoFaults) -> None:
    """With a zone in trouble EC2 refuses a list; what other regions told is thrown away."""
    ec2.launch(MINE)
    ec2.impair_zone(times=3)

    with pytest.raises(CloudUnavailableError, match=r"Unavailable"):
        a_cloud(ec2, accounts={}).nodes()


def test_a_launch_goes_to_the_account_and_region_it_names(ec2: MotoFaults) -> None:
    """By number and name; the first of the settings where the pool names none; nowhere else."""
    ec2.add_template(TEMPLATE)
    ec2.add_template(TEMPLATE, region="eu-west-1", account=OTHER)
    cloud = a_cloud(ec2)

    first = cloud.launch({"template": TEMPLATE}, "key-1")
    other = cloud.launch({"template": TEMPLATE, "region": "eu-west-1", "account": OTHER}, "key-2")

    assert {node.id: node.account for node in cloud.nodes()} == {first: ACCOUNT, other: OTHER}
    found = cloud.find("key-2")
    assert found is not None
    assert found.account == OTHER
    with pytest.raises(NotFoundError, match=f"eu-west-1 of account {ACCOUNT} is not among"):
        cloud.launch({"template": TEMPLATE, "region": "eu-west-1", "account": ACCOUNT}, "key-3")


def test_groups_of_one_name_in_two_regions_never_mix(ec2: MotoFaults) -> None:
    """A group is its ARN: what is asked of one is not done to its namesake."""
    here = ec2.add_group("train", MINE, size=1)
    there = ec2.add_group("train", MINE, size=1, region="eu-west-1")
    cloud = a_cloud(ec2, accounts={}, regions=[REGION, "eu-west-1"])

    cloud.grow(there, 2, "key")

    assert {group.id: group.desired for group in cloud.groups()} == {here: 1, there: 2}
    assert {node.group for node in cloud.nodes()} == {here, there}


def test_a_group_made_anew_under_its_name_is_another(ec2: MotoFaults) -> None:
    """A decision about a group that was deleted since touches no successor."""
    group_id = ec2.add_group("train", MINE, size=1)
    ec2.scaling.delete_auto_scaling_group(AutoScalingGroupName="train", ForceDelete=True)
    again = {"AutoScalingGroupName": "train", "MinSize": 0, "MaxSize": 9, "DesiredCapacity": 1}
    template = {"LaunchTemplateName": "of-train", "Version": "$Default"}
    ec2.scaling.create_auto_scaling_group(**again, LaunchTemplate=template, AvailabilityZones=[f"{REGION}a"])
    cloud = a_cloud(ec2, accounts={})

    with pytest.raises(NotFoundError, match="there is no Auto Scaling group"):
        cloud.grow(group_id, 2, "key")


# Our own limits


def test_no_number_of_reads_makes_a_stop_wait(ec2: MotoFaults) -> None:
    """Reads and mutations have buckets of their own: a stop goes out at once while reads queue."""
    clock = ManualClock()
    node_id = ec2.launch(MINE)
    cloud = a_cloud(ec2, accounts={}, clock=clock)
    for _ in range(100):
        cloud.node(node_id)
    waited = clock.monotonic()

    cloud.stop(node_id, "key", permit=a_permit())

    assert waited >= 4, "a hundred reads at once should have had to wait"
    assert clock.monotonic() == waited


def test_a_throttled_place_is_asked_less_often(ec2: MotoFaults) -> None:
    """After EC2's "too many calls" the next call to the same place waits; another region is asked at once."""
    clock = ManualClock()
    here, there = ec2.launch(MINE), ec2.launch(MINE, region="eu-west-1")
    cloud = a_cloud(ec2, accounts={}, clock=clock, regions=[REGION, "eu-west-1"])
    cloud.nodes()
    ec2.throttle("StopInstances")
    with pytest.raises(ThrottledError):
        cloud.stop(here, "key", permit=a_permit())
    before = clock.monotonic()

    cloud.stop(there, "key", permit=a_permit())
    assert clock.monotonic() == before
    cloud.stop(here, "key", permit=a_permit())

    assert clock.monotonic() > before


# The settings


@pytest.mark.parametrize(
    ("accounts", "wrong"),
    [
        ({"own": AccountSettings(), "prod": AccountSettings(role_arn=ROLE)}, []),
        ({"prod": AccountSettings(role_arn="gpuwatch")}, ["'gpuwatch' is no role's ARN"]),
        (
            {"prod": AccountSettings(role_arn=ROLE), "again": AccountSettings(role_arn=ROLE)},
            ["cloud.aws.accounts.again is the same account as cloud.aws.accounts.prod"],
        ),
        (
            {"one": AccountSettings(), "two": AccountSettings()},
            ["cloud.aws.accounts.two is the same account as cloud.aws.accounts.one"],
        ),
    ],
)
def test_an_account_is_named_once_and_rightly(accounts: dict[str, AccountSettings], wrong: list[str]) -> None:
    """An account that is there twice would count each of its machines twice."""
    found = list(contradictions(CloudSettings(aws=AwsSettings(accounts=accounts))))

    assert [each.wrong for each in found] == wrong
