"""What AWS must allow for what the code does, and no more: policies for three roles, and what may be added to them.

`gpuwatch export iam` prints them. The files in iam/ are these with the defaults.
`tests/integration/moto/test_aws_iam.py` holds the table to the calls that the code makes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuwatch.clouds import FLEET_TAG, PROTECT_TAG, WRITABLE_TAGS

# What has no permission of its own, or belongs to another call.
NEEDS_NO_PERMISSION = frozenset({"sts:GetCallerIdentity"})
# Of RunInstances, where the template names an instance profile; of the stores of secrets; of the start of a machine
# with volumes under a key of one's own, which EC2 accepts without it and which then fails.
RIDES_ALONG = frozenset({"iam:PassRole", "kms:CreateGrant", "kms:Decrypt"})

_NOWHERE = ("iam:", "kms:Decrypt", "pricing:")  # asked of no region of ours, or by a service on its way

_MACHINES = "arn:{partition}:ec2:*:*:instance/*"
_GROUPS = "arn:{partition}:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/*"
_OWN_PARAMETERS = "arn:{partition}:ssm:*:*:parameter/gpuwatch/*"
_KEYS = "arn:{partition}:kms:*:*:key/*"
_OWN_MACHINE = {"StringEquals": {f"aws:ResourceTag/{FLEET_TAG}": "{fleet}"}}
_OWN_GROUP = {"StringEquals": {f"autoscaling:ResourceTag/{FLEET_TAG}": "{fleet}"}}
_FROM_A_TEMPLATE = {"ArnLike": {"ec2:LaunchTemplate": "arn:{partition}:ec2:*:*:launch-template/*"}}
# What decides which software runs and who gets in: a launch may name none but the template's. A subnet may be named
# again (zones run out of machines), and with it what a launch makes in it.
_FROM_THE_TEMPLATE = {**_FROM_A_TEMPLATE, "Bool": {"ec2:IsLaunchTemplateResource": "true"}}
_OF_THE_TEMPLATE = ("image", "key-pair", "security-group", "snapshot")
_OF_THE_PLACE = ("capacity-reservation", "network-interface", "placement-group", "subnet", "volume")


def _launch_resources(*parts: str) -> tuple[str, ...]:
    """What a launch is made of, in whatever account and region."""
    return tuple(f"arn:{{partition}}:ec2:*:*:{part}/*" for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement of a policy; {fleet} and {partition} are filled in."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...] = ("*",)
    condition: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    effect: str = "Allow"


_OBSERVE = (
    Statement(
        sid="Look",  # none of these can be held to a resource
        actions=(
            "autoscaling:DescribeAutoScalingGroups",
            "autoscaling:DescribeLaunchConfigurations",
            "autoscaling:DescribeScalingActivities",  # why a group gets no more machines
            "ec2:DescribeAddresses",
            "ec2:DescribeCapacityReservations",
            "ec2:DescribeImages",
            "ec2:DescribeInstanceStatus",
            "ec2:DescribeInstanceTypes",
            "ec2:DescribeInstances",
            "ec2:DescribeLaunchTemplateVersions",
            "ec2:DescribeLaunchTemplates",
            "ec2:DescribeRegions",  # for the doctor alone
            "ec2:DescribeSnapshots",
            "ec2:DescribeSpotInstanceRequests",
            "ec2:DescribeVolumes",
        ),
    ),
    # Whose key encrypts a volume, and whether it can be used.
    Statement(sid="LookAtKeysOfVolumes", actions=("kms:DescribeKey",), resources=(_KEYS,)),
)
# For people: `gpuwatch scan` asks with their own credentials, in every region.
_SCAN = (
    Statement(
        sid="LookForForgottenMachines",
        actions=(
            "cloudwatch:GetMetricData",
            "ec2:DescribeInstanceTypes",
            "ec2:DescribeInstances",
            "ec2:DescribeRegions",
            "ec2:DescribeSpotInstanceRequests",
        ),
    ),
)
# In addition to one of the others: `gpuwatch status` then says what of the limits is left.
_QUOTAS = (Statement(sid="ReadLimits", actions=("servicequotas:ListServiceQuotas",)),)
# In addition to one of the others: `gpuwatch doctor` then says how old the controller's own access keys are (IAM itself
# fills in the user's name; a role has none), and whether the keys of volumes are rotated.
_OF_OURSELVES = tuple(f"arn:{{partition}}:iam::*:user/{path}${{{{aws:username}}}}" for path in ("", "*/"))
_AGES = (
    Statement(
        sid="ReadAgeOfOwnKeys",
        actions=("iam:GetAccessKeyLastUsed", "iam:ListAccessKeys"),
        resources=_OF_OURSELVES,
    ),
    Statement(sid="ReadRotationOfKeys", actions=("kms:GetKeyRotationStatus",), resources=(_KEYS,)),
)
# In addition to one of the others, for `prices.live.aws`.
_PRICES = (
    Statement(sid="ReadListPrices", actions=("pricing:GetProducts",)),
    Statement(sid="ReadSpotPrices", actions=("ec2:DescribeSpotPriceHistory",)),
)
# In addition to reclaim or scale, for volumes under KMS keys of one's own. Source: "How Amazon EBS uses AWS KMS".
_DISKS = (
    Statement(
        sid="StartMachinesWithEncryptedVolumes",
        actions=("kms:CreateGrant",),
        resources=(_KEYS,),
        condition={"Bool": {"kms:GrantIsForAWSResource": "true"}, "StringLike": {"kms:ViaService": "ec2.*"}},
    ),
    # Whether we have this very right, before a machine is stopped that needs it.
    Statement(
        sid="AskForOwnRights",
        actions=("iam:GetRole", "iam:SimulatePrincipalPolicy"),
        resources=(
            *(f"arn:{{partition}}:iam::*:role/{path}gpuwatch-controller" for path in ("", "*/")),
            *_OF_OURSELVES,
        ),
    ),
)
_RECLAIM = (
    *_OBSERVE,
    Statement(
        sid="StopStartAndEndOwnMachines",
        actions=("ec2:StartInstances", "ec2:StopInstances", "ec2:TerminateInstances"),
        resources=(_MACHINES,),
        condition=_OWN_MACHINE,
    ),
    # The same call shows user data, in which people keep secrets.
    Statement(
        sid="LookAtTheirProtection",
        actions=("ec2:DescribeInstanceAttribute",),
        resources=(_MACHINES,),
        condition=_OWN_MACHINE,
    ),
    Statement(
        sid="EndMembersOfOwnGroups",
        actions=("autoscaling:TerminateInstanceInAutoScalingGroup",),
        resources=(_GROUPS,),
        condition=_OWN_GROUP,
    ),
    Statement(
        sid="NoticesOnOwnMachines",  # never a tag that enrols, protects or postpones
        actions=("ec2:CreateTags",),
        resources=(_MACHINES,),
        condition={**_OWN_MACHINE, "ForAllValues:StringEquals": {"aws:TagKeys": sorted(WRITABLE_TAGS)}},
    ),
    Statement(
        sid="NeverTouchProtectedMachines",
        effect="Deny",
        actions=("ec2:StartInstances", "ec2:StopInstances", "ec2:TerminateInstances"),
        resources=(_MACHINES,),
        condition={"Null": {f"aws:ResourceTag/{PROTECT_TAG}": "false"}},
    ),
    Statement(
        sid="NeverTouchProtectedGroups",
        effect="Deny",
        actions=("autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"),
        resources=(_GROUPS,),
        condition={"Null": {f"autoscaling:ResourceTag/{PROTECT_TAG}": "false"}},
    ),
)
# The same call sets a member's protection from a scale-in and takes it off, and IAM cannot tell the two apart.
_SHIELD = (
    Statement(
        sid="KeepMembersOfOwnGroups",
        actions=("autoscaling:SetInstanceProtection",),
        resources=(_GROUPS,),
        condition=_OWN_GROUP,
    ),
    Statement(
        sid="LeaveProtectedGroupsAlone",
        effect="Deny",
        actions=("autoscaling:SetInstanceProtection",),
        resources=(_GROUPS,),
        condition={"Null": {f"autoscaling:ResourceTag/{PROTECT_TAG}": "false"}},
    ),
)
_SCALE = (
    *_RECLAIM,
    Statement(
        sid="GrowOwnGroups",
        actions=("autoscaling:SetDesiredCapacity",),
        resources=(_GROUPS,),
        condition=_OWN_GROUP,
    ),
    Statement(
        sid="LaunchMachinesThatAreOwnFromTheStart",
        actions=("ec2:RunInstances",),
        resources=(_MACHINES,),
        condition={"StringEquals": {f"aws:RequestTag/{FLEET_TAG}": "{fleet}"}, **_FROM_A_TEMPLATE},
    ),
    Statement(
        sid="LaunchFromOwnTemplates",
        actions=("ec2:RunInstances",),
        resources=_launch_resources("launch-template"),
        condition={**_OWN_MACHINE, **_FROM_A_TEMPLATE},
    ),
    Statement(
        sid="LaunchWhatTheTemplateNames",
        actions=("ec2:RunInstances",),
        resources=_launch_resources(*_OF_THE_TEMPLATE),
        condition=_FROM_THE_TEMPLATE,
    ),
    Statement(
        sid="LaunchInAnyOfItsPlaces",
        actions=("ec2:RunInstances",),
        resources=_launch_resources(*_OF_THE_PLACE),
        condition=_FROM_A_TEMPLATE,
    ),
    Statement(
        sid="TagAtTheLaunchAlone",
        actions=("ec2:CreateTags",),
        resources=("arn:{partition}:ec2:*:*:*/*",),
        condition={"StringEquals": {"ec2:CreateAction": "RunInstances"}},
    ),
    Statement(
        sid="GiveNodesTheirRole",
        actions=("iam:PassRole",),
        resources=("arn:{partition}:iam::*:role/gpuwatch-node",),
        condition={"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
    ),
)
_SECRETS = (
    Statement(sid="ReadOwnParameters", actions=("ssm:GetParameter",), resources=(_OWN_PARAMETERS,)),
    Statement(
        sid="ReadOwnSecrets",
        actions=("secretsmanager:GetSecretValue",),
        resources=("arn:{partition}:secretsmanager:*:*:secret:gpuwatch/*",),
    ),
    # For keys of your own; those that AWS manages need neither, and a key's policy may still refuse.
    Statement(
        sid="DecryptOwnParameters",
        actions=("kms:Decrypt",),
        resources=(_KEYS,),
        condition={"StringLike": {"kms:ViaService": "ssm.*", "kms:EncryptionContext:PARAMETER_ARN": _OWN_PARAMETERS}},
    ),
    Statement(
        sid="DecryptOwnSecrets",
        actions=("kms:Decrypt",),
        resources=(_KEYS,),
        condition={"StringLike": {"kms:ViaService": "secretsmanager.*"}},
    ),
)
_ASSUME = (
    Statement(
        sid="EnterTheOtherAccounts",
        actions=("sts:AssumeRole",),
        resources=("arn:{partition}:iam::*:role/gpuwatch-controller",),
    ),
)

ROLES: Mapping[str, tuple[Statement, ...]] = {
    "observe": _OBSERVE,
    "scan": _SCAN,
    "reclaim": _RECLAIM,
    "scale": _SCALE,
    "shield": _SHIELD,
    "assume": _ASSUME,
    "secrets": _SECRETS,
    "quotas": _QUOTAS,
    "keys": _AGES,
    "prices": _PRICES,
    "disks": _DISKS,
}


def policy(
    role: str, *, fleet: str = "default", regions: Sequence[str] = (), partition: str = "aws"
) -> dict[str, object]:
    """The policy document of a role for one fleet, in these regions alone where any are given."""
    only = {"StringEquals": {"aws:RequestedRegion": list(regions)}} if regions else {}
    return {
        "Version": "2012-10-17",
        "Statement": [_statement(each, only, {"fleet": fleet, "partition": partition}) for each in ROLES[role]],
    }


def render(document: Mapping[str, object]) -> str:
    """As the files in iam/ are written."""
    return json.dumps(document, indent=2) + "\n"


def _statement(each: Statement, only: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, object]:
    """One statement; what is denied is denied everywhere."""
    condition: dict[str, dict[str, object]] = {}
    for test, values in each.condition.items():
        condition[test] = {key: _fill_words(value, words) for key, value in values.items()}
    if each.effect == "Allow" and not any(action.startswith(_NOWHERE) for action in each.actions):
        for test, values in only.items():
            condition[test] = {**condition.get(test, {}), **values}
    found: dict[str, object] = {
        "Sid": each.sid,
        "Effect": each.effect,
        "Action": list(each.actions),
        "Resource": [_fill_words(resource, words) for resource in each.resources],
    }
    return {**found, "Condition": condition} if condition else found


def _fill_words(value: object, words: Mapping[str, str]) -> object:
    """A text with its words filled in."""
    return value.format(**words) if isinstance(value, str) else value
