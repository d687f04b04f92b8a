"""The policies in iam/ against the calls that the code makes: none is missing, none is superfluous."""

import ast
import json
from fnmatch import fnmatchcase
from typing import Any

import boto3
import botocore.session
import pytest
from botocore import xform_name

from gpuwatch.clouds import FLEET_TAG, PROTECT_TAG, STOP_AT, WRITABLE_TAGS
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.clouds.aws.iam import NEEDS_NO_PERMISSION, RIDES_ALONG, ROLES, policy, render
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.policy_languages import Question, allowed_by_statements
from tests.support.fakes import moto_groups
from tests.support.fakes.cloud_worlds import FLEET, MINE, TEMPLATE
from tests.support.fakes.moto_faults import REGION
from tests.support.fakes.moto_oddities import OddFaults
from tests.support.paths import ROOT

_SECRETS = "secrets.py"  # asks these services, and all else in clouds/aws the others
SERVICES = {
    True: ("ssm", "secretsmanager"),
    False: ("ec2", "autoscaling", "sts", "cloudwatch", "service-quotas", "iam", "kms", "pricing"),
}
MANAGED_POLICY_CHARACTERS = 6144  # AWS's limit, white space aside
OBSERVING = {"ec2:Describe*", "autoscaling:Describe*", "kms:DescribeKey"}


def allowed(role: str) -> set[str]:
    """Every action that a role's policy allows."""
    return {action for each in ROLES[role] if each.effect == "Allow" for action in each.actions}


def called() -> set[str]:
    """Every operation of AWS that a call or a paginator names, where these services are asked."""
    session = botocore.session.get_session()
    found = set()
    for secrets, services in SERVICES.items():
        names = {
            xform_name(operation): f"{service.replace('-', '')}:{operation}"
            for service in services
            for operation in session.get_service_model(service).operation_names
        }
        for path in (*(ROOT / "gpuwatch/clouds/aws").glob("*.py"), ROOT / "gpuwatch/money/prices/providers/aws.py"):
            if (path.name == _SECRETS) is not secrets:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call):
                    continue
                of_call = [node.func.attr] if isinstance(node.func, ast.Attribute) else []
                named = [*of_call, *(str(arg.value) for arg in node.args if isinstance(arg, ast.Constant))]
                named += [arg.attr for arg in node.args if isinstance(arg, ast.Attribute)]
                found |= {names[each] for each in named if each in names}
    return found


@pytest.fixture(scope="module")
def sent_for_keys() -> set[str]:
    """What AwsCloud sends to say how old keys are."""
    with OddFaults(ManualClock()) as ec2:
        recorded: set[str] = set()

        def record(event_name: str, **_: Any) -> None:  # noqa: ANN401  botocore's event
            service, operation = event_name.split(".")[1:]
            recorded.add(f"{service}:{operation}")

        node_id = ec2.launch(MINE)
        _encrypt(ec2, node_id)
        user = _of_a_user(ec2)
        cloud = AwsCloud(fleet=FLEET, clock=ManualClock(), regions=[REGION], session=user)
        user.events.register("provide-client-params", record)
        cloud.nodes()
        cloud.credentials()
        cloud.disk_keys([node_id])
        return recorded


def _add_odd_groups(ec2: OddFaults) -> None:
    """An empty one, and one that wants a machine of which its cloud has none."""
    ec2.add_group("empty", MINE, size=0)
    moto_groups.out_of_stock(ec2.add_group("short", MINE, size=0))
    ec2.scaling.set_desired_capacity(AutoScalingGroupName="short", DesiredCapacity=1)


def _add_odd_machines(ec2: OddFaults, node_id: str) -> None:
    """One by a spot request, an old image, and a machine with a volume under a key of one's own."""
    ec2.launch_spot({}, "one-time")
    ec2.add_image("old", made="2020-01-01T00:00:00.000Z")
    _encrypt(ec2, node_id)


@pytest.fixture(scope="module")
def sent() -> dict[str, set[str]]:
    """What AwsCloud sends for each role's work, as botocore names it."""
    found: dict[str, set[str]] = {role: set() for role in ROLES}
    with OddFaults(ManualClock()) as ec2:
        recorded: set[str] = set()

        def record(event_name: str, **_: Any) -> None:  # noqa: ANN401  botocore's event
            service, operation = event_name.split(".")[1:]
            recorded.add(f"{service.replace('-', '')}:{operation}")

        ec2.add_template(TEMPLATE)
        group_id = ec2.add_group("train", MINE, size=2)
        _add_odd_groups(ec2)
        node_id, stopped, _ = ec2.launch(MINE), ec2.launch(MINE), ec2.launch_in_block({})
        _add_odd_machines(ec2, node_id)
        events: Any = ec2.session.events
        events.register("provide-client-params", record)
        cloud = AwsCloud(fleet=FLEET, clock=ManualClock(), regions=[REGION], session=ec2.session)

        member, kept = (node.id for node in cloud.nodes() if node.group)
        cloud.groups()
        cloud.group(group_id)
        cloud.node(member)
        cloud.find("nothing")
        cloud.leftovers()
        cloud.elsewhere()
        found["observe"] |= recorded
        recorded.clear()

        cloud.use_of([node for each in cloud.survey() for node in each.nodes], 3600.0)
        found["scan"] |= recorded
        recorded.clear()

        ec2.garble("ListServiceQuotas", page='{"Quotas": []}')
        cloud.quotas()
        found["quotas"] |= recorded
        recorded.clear()

        cloud.tag(node_id, {STOP_AT: "then", DECISION_TAG: "key"}, "key")
        cloud.stop(stopped, "key", permit=a_permit())
        cloud.leftovers()
        cloud.start(stopped, "key")
        cloud.terminate(member, "key", group=group_id, permit=a_permit())
        cloud.terminate(node_id, "key", permit=a_permit())
        found["reclaim"] |= recorded
        recorded.clear()

        cloud.launch({"template": TEMPLATE}, "key")
        cloud.grow(group_id, 3, "key")
        found["scale"] |= recorded
        recorded.clear()

        cloud.protect(kept, group_id, "key", on=True)
        found["shield"] |= recorded
        recorded.clear()

        other = {"other": AccountSettings(role_arn="arn:aws:iam::111111111111:role/gpuwatch-controller")}
        AwsCloud(fleet=FLEET, clock=ManualClock(), regions=[REGION], accounts=other, session=ec2.session).nodes()
        found["assume"] |= recorded
    return found


def _encrypt(ec2: OddFaults, node_id: str) -> None:
    """A volume with a key of KMS, attached to a machine."""
    kms: Any = ec2.session.client("kms", region_name=REGION)
    key = kms.create_key()["KeyMetadata"]["Arn"]
    options: Any = {"Size": 10, "AvailabilityZone": f"{REGION}a", "Encrypted": True, "KmsKeyId": key}
    volume = ec2.client.create_volume(**options)["VolumeId"]
    ec2.client.attach_volume(VolumeId=volume, InstanceId=node_id, Device="/dev/sdf")


def _of_a_user(ec2: OddFaults) -> boto3.Session:
    """The session of a user of IAM with a key."""
    iam: Any = ec2.session.client("iam", region_name=REGION)
    iam.create_user(UserName="gpuwatch")
    key = iam.create_access_key(UserName="gpuwatch")["AccessKey"]
    return boto3.Session(aws_access_key_id=key["AccessKeyId"], aws_secret_access_key=key["SecretAccessKey"])


@pytest.mark.parametrize("role", sorted(ROLES))
def test_the_file_is_the_table(role: str) -> None:
    """iam/ROLE.json is what the table says with the defaults."""
    assert (ROOT / "iam" / f"{role}.json").read_text() == render(policy(role))


def test_no_policy_allows_more_than_the_code_calls() -> None:
    """Every allowed action is a call in the source, and every call is allowed to some role."""
    everything = set().union(*(allowed(role) for role in ROLES))

    assert everything - RIDES_ALONG == called() - NEEDS_NO_PERMISSION


@pytest.mark.parametrize(
    ("role", "below"),
    [
        ("observe", None),
        ("reclaim", "observe"),
        ("scale", "reclaim"),
        ("shield", None),
        ("scan", None),
        ("quotas", None),
    ],
)
def test_each_role_can_do_its_work_and_no_more(sent: dict[str, set[str]], role: str, below: str | None) -> None:
    """What is sent while a role works is what its policy allows beyond the role below it."""
    base = allowed(below) if below else set()

    looking = allowed("observe") if role in {"shield", "quotas"} else set()  # they go beside another

    assert sent[role] - NEEDS_NO_PERMISSION <= allowed(role) | looking | allowed("disks")
    assert allowed(role) - base - RIDES_ALONG <= sent[role]


def test_other_accounts_are_entered_by_their_role_alone(sent: dict[str, set[str]]) -> None:
    """The controller's own identity assumes roles, and all else is sent as one of them."""
    assert sent["assume"] == {"sts:AssumeRole"} == allowed("assume")


def test_the_role_for_keys_can_do_its_work_and_no_more(sent_for_keys: set[str]) -> None:
    """Beside another role, which lists volumes."""
    assert sent_for_keys - NEEDS_NO_PERMISSION - allowed("observe") - allowed("disks") == allowed("keys")


def test_keys_are_read_of_the_asking_user_alone() -> None:
    """IAM fills in the name; a role has none. Regions do not narrow it, because IAM is in none of ours."""
    document: Any = policy("keys", regions=["eu-west-1"], partition="aws-cn")
    ages, rotation = document["Statement"]

    assert ages["Resource"] == [
        "arn:aws-cn:iam::*:user/${aws:username}",
        "arn:aws-cn:iam::*:user/*/${aws:username}",
    ]
    assert "Condition" not in ages
    assert rotation["Condition"] == {"StringEquals": {"aws:RequestedRegion": ["eu-west-1"]}}


def test_secrets_are_read_and_decrypted_for_that_alone() -> None:
    """What is named gpuwatch/..., and no key for anything but the two stores."""
    decrypting = [each for each in ROLES["secrets"] if each.actions == ("kms:Decrypt",)]
    reading = [each for each in ROLES["secrets"] if each.actions != ("kms:Decrypt",)]

    assert all(resource.endswith("gpuwatch/*") for each in reading for resource in each.resources)
    assert {each.condition["StringLike"]["kms:ViaService"] for each in decrypting} == {"ssm.*", "secretsmanager.*"}


def test_volumes_are_decrypted_for_machines_alone() -> None:
    """The grant that a start needs is one for EC2 itself; it is narrowed to regions as all else."""
    document: Any = policy("disks", regions=["eu-west-1"])
    grants, asks = document["Statement"]

    assert grants["Condition"] == {
        "Bool": {"kms:GrantIsForAWSResource": "true"},
        "StringLike": {"kms:ViaService": "ec2.*"},
        "StringEquals": {"aws:RequestedRegion": ["eu-west-1"]},
    }
    assert grants["Action"] == ["kms:CreateGrant"]
    assert asks["Action"] == ["iam:GetRole", "iam:SimulatePrincipalPolicy"]
    assert all(each.endswith(("/gpuwatch-controller", "${aws:username}")) for each in asks["Resource"])


def test_an_observer_changes_nothing() -> None:
    """The role that only looks has nothing but Describe."""
    assert all(any(fnmatchcase(action, pattern) for pattern in OBSERVING) for action in allowed("observe"))


@pytest.mark.parametrize("role", sorted(ROLES))
def test_no_role_can_lift_a_protection(role: str) -> None:
    """No policy lets anybody modify a machine, take tags away, or grant with a wildcard."""
    actions = {action for each in ROLES[role] for action in each.actions}

    assert not [action for action in actions if "*" in action or "Modify" in action or "DeleteTags" in action]


@pytest.mark.parametrize("role", ["reclaim", "scale"])
def test_what_is_protected_is_denied_outright(role: str) -> None:
    """A machine or a group with the tag gpuwatch:protect is out of reach, whatever another policy allows."""
    denied = {action: each for each in ROLES[role] if each.effect == "Deny" for action in each.actions}

    for action in ("ec2:StopInstances", "ec2:TerminateInstances"):
        assert denied[action].condition == {"Null": {f"aws:ResourceTag/{PROTECT_TAG}": "false"}}
    for action in ("autoscaling:TerminateInstanceInAutoScalingGroup", "autoscaling:SetDesiredCapacity"):
        assert denied[action].condition == {"Null": {f"autoscaling:ResourceTag/{PROTECT_TAG}": "false"}}


@pytest.mark.parametrize("role", ["reclaim", "scale", "shield"])
def test_every_change_is_held_to_the_fleets_tag(role: str) -> None:
    """What exists is held by its own tags; the parts of a launch have a test of their own."""
    document: Any = json.loads(render(policy(role, fleet="lab")))

    for each in document["Statement"]:
        if each["Effect"] == "Allow" and any(":Describe" not in action for action in each["Action"]):
            equal = each["Condition"].get("StringEquals", {})
            of_launches = each["Action"] == ["ec2:RunInstances"] or equal.get("ec2:CreateAction") == "RunInstances"
            service = "autoscaling" if each["Action"][0].startswith("autoscaling:") else "aws"
            own = equal.get(f"{service}:ResourceTag/{FLEET_TAG}") == "lab"
            assert own or of_launches or each["Action"] == ["iam:PassRole"], each["Sid"]


def test_only_our_own_tags_can_be_written() -> None:
    """On machines that exist, CreateTags is allowed for the keys of the allow-list alone."""
    (statement,) = (each for each in ROLES["reclaim"] if "ec2:CreateTags" in each.actions)

    assert statement.condition["ForAllValues:StringEquals"] == {"aws:TagKeys": sorted(WRITABLE_TAGS)}


def test_regions_and_fleet_narrow_every_permission() -> None:
    """--region holds what is allowed to these regions; what is denied stays denied everywhere."""
    document: Any = policy("scale", fleet="lab", regions=["us-east-1"], partition="aws-cn")

    for each in document["Statement"]:
        limited = each.get("Condition", {}).get("StringEquals", {}).get("aws:RequestedRegion") == ["us-east-1"]
        assert limited == (each["Effect"] == "Allow" and each["Action"] != ["iam:PassRole"]), each["Sid"]
    assert "arn:aws:" not in render(document)


@pytest.mark.parametrize("role", sorted(ROLES))
def test_a_policy_fits(role: str) -> None:
    """AWS takes a managed policy of up to 6,144 characters; a long name of a fleet still fits."""
    text = "".join(render(policy(role, fleet="f" * 64)).split())

    assert len(text) <= MANAGED_POLICY_CHARACTERS


# The parts of a launch one by one; what all policies together allow is in tests/docs/test_security_page.py.

OWN, FOREIGN = {f"aws:ResourceTag/{FLEET_TAG}": "lab"}, {f"aws:ResourceTag/{FLEET_TAG}": "another"}
FROM = {"ec2:LaunchTemplate": "arn:aws:ec2:us-east-1:1:launch-template/lt-1"}
OF_IT = {**FROM, "ec2:IsLaunchTemplateResource": "true"}
NAMED_ANEW = {**FROM, "ec2:IsLaunchTemplateResource": "false"}
OWN_GROUP = {f"autoscaling:ResourceTag/{FLEET_TAG}": "lab"}


def may(role: str, action: str, resource: str, context: dict[str, str]) -> bool:
    """Whether a role's policy for the fleet `lab` allows it."""
    return allowed_by_statements(
        [policy(role, fleet="lab")], Question(action=action, resource=resource, context=context)
    )


@pytest.mark.parametrize(
    ("part", "context", "allowed"),
    [
        ("instance", {**FROM, f"aws:RequestTag/{FLEET_TAG}": "lab"}, True),
        ("instance", {**FROM, f"aws:RequestTag/{FLEET_TAG}": "another"}, False),
        ("instance", FROM, False),
        ("instance", {f"aws:RequestTag/{FLEET_TAG}": "lab"}, False),
        ("launch-template", {**OF_IT, **OWN}, True),
        ("launch-template", {**OF_IT, **FOREIGN}, False),
        ("launch-template", OF_IT, False),
        *((part, OF_IT, True) for part in ("image", "key-pair", "security-group", "snapshot")),
        *((part, NAMED_ANEW, False) for part in ("image", "key-pair", "security-group", "snapshot")),
        *((part, FROM, False) for part in ("image", "key-pair", "security-group", "snapshot")),
        *((part, NAMED_ANEW, True) for part in ("subnet", "network-interface", "volume")),
        *((part, {}, False) for part in ("subnet", "network-interface", "volume", "elastic-gpu")),
    ],
)
def test_a_launch_is_what_a_template_of_the_fleet_says(part: str, context: dict[str, str], allowed: bool) -> None:
    """No image, key, security group or snapshot of somebody else's choice, and no template that is not the fleet's."""
    assert may("scale", "ec2:RunInstances", f"arn:aws:ec2:us-east-1:1:{part}/x-1", context) is allowed


@pytest.mark.parametrize("role", ["observe", "reclaim", "scale"])
def test_protection_from_a_scale_in_is_nobodys_to_lift_who_was_not_given_it(role: str) -> None:
    """The call that sets it takes it off as well: it is a policy of its own."""
    group = "arn:aws:autoscaling:us-east-1:1:autoScalingGroup:u:autoScalingGroupName/train"
    protected = {**OWN_GROUP, f"autoscaling:ResourceTag/{PROTECT_TAG}": "true"}

    assert not may(role, "autoscaling:SetInstanceProtection", group, OWN_GROUP)
    assert may("shield", "autoscaling:SetInstanceProtection", group, OWN_GROUP)
    assert not may("shield", "autoscaling:SetInstanceProtection", group, protected)
    assert not may("shield", "autoscaling:SetInstanceProtection", group, {})
