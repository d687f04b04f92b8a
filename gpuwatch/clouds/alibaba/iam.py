"""What RAM must allow for what the code does, and no more: policies for three roles, and what may be added to them.

`gpuwatch export iam` writes them. The files in iam/alibaba/ are these with the defaults;
`tests/integration/clouds/alibaba/test_alibaba_ram.py` holds the table to the calls that the code makes. RAM has no
operator for "the key exists": `StringLike "*"` says it. No condition of a launch knows its template, so what a launch
names must have the fleet's tag itself. Its tags are part of the launch: it needs no TagResources.
Sources: https://www.alibabacloud.com/help/en/ecs/developer-reference/api-ecs-2014-05-26-ram, and for tags at a launch
https://www.alibabacloud.com/help/en/elastic-compute-service/latest/create-a-resource-with-a-specific-tag.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuwatch.clouds import FLEET_TAG, OWNER_TAG, POOL_TAG, PROTECT_TAG, SNOOZE_TAG

# What has no permission of its own.
NEEDS_NO_PERMISSION = frozenset({"sts:GetCallerIdentity"})
# Of RunInstances, where the template names a role for the machine; asked for by the SDK, for another account.
RIDES_ALONG = frozenset({"ram:PassRole", "sts:AssumeRole", "cms:QueryMetricList"})

_MACHINES = "acs:ecs:{region}:*:instance/*"
_GROUPS = "acs:ess:{region}:*:scalinggroup/*"
_OWN = {"StringEquals": {f"acs:ResourceTag/{FLEET_TAG}": "{fleet}"}}
_PROTECTED = {"StringLike": {f"acs:ResourceTag/{PROTECT_TAG}": "*"}}
_NEW = {"StringEquals": {f"acs:RequestTag/{FLEET_TAG}": "{fleet}"}}
# What decides which software runs, what it can read and who gets in; and what a launch makes, or is made in. A security
# group belongs to one network, and with it the VSwitch.
_NAMED = ("image", "keypair", "launchtemplate", "securitygroup", "snapshot")
_MADE = (_MACHINES, "acs:ecs:{region}:*:disk/*", "acs:ecs:{region}:*:volume/*", "acs:vpc:{region}:*:vswitch/*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement of a policy; {fleet} and {region} are filled in."""

    actions: tuple[str, ...]
    resources: tuple[str, ...] = ("*",)
    condition: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    effect: str = "Allow"


_ACTS = ("ecs:DeleteInstance", "ecs:StartInstance", "ecs:StopInstance")
_OBSERVE = (
    Statement(
        actions=(
            "ecs:DescribeAccountAttributes",
            "ecs:DescribeDisks",
            "ecs:DescribeImages",
            "ecs:DescribeInstanceAttribute",
            "ecs:DescribeInstanceTypes",
            "ecs:DescribeInstances",
            "ecs:DescribeLaunchTemplateVersions",
            "ecs:DescribeLaunchTemplates",
            "ecs:DescribeRegions",
            "ecs:DescribeSnapshots",
            "ess:DescribeScalingActivities",
            "ess:DescribeScalingConfigurations",
            "ess:DescribeScalingGroups",
            "ess:DescribeScalingInstances",
            "vpc:DescribeEipAddresses",
        ),
    ),
)
_RECLAIM = (
    *_OBSERVE,
    Statement(actions=_ACTS, resources=(_MACHINES,), condition=_OWN),
    Statement(actions=("ecs:TagResources",), resources=(_MACHINES,), condition=_OWN),
    Statement(actions=("ess:RemoveInstances",), resources=(_GROUPS,), condition=_OWN),
    Statement(effect="Deny", actions=_ACTS, resources=(_MACHINES,), condition=_PROTECTED),
    Statement(
        effect="Deny",
        actions=("ess:RemoveInstances", "ess:ScaleWithAdjustment"),
        resources=(_GROUPS,),
        condition=_PROTECTED,
    ),
    # Never a tag that enrols, lifts a protection, hands a machine on, or postpones, on whatever machine and whatever
    # other policy allows it. The fleet's own tag is set by a launch.
    *(
        Statement(
            effect="Deny",
            actions=("ecs:TagResources",),
            resources=(_MACHINES,),
            condition={"StringLike": {f"acs:RequestTag/{key}": "*"}},
        )
        for key in (OWNER_TAG, PROTECT_TAG, SNOOZE_TAG, FLEET_TAG, POOL_TAG)
    ),
)
_SHIELD = (
    Statement(actions=("ess:SetInstancesProtection",), resources=(_GROUPS,), condition=_OWN),
    Statement(effect="Deny", actions=("ess:SetInstancesProtection",), resources=(_GROUPS,), condition=_PROTECTED),
)
_SCALE = (
    *_RECLAIM,
    Statement(actions=("ess:ScaleWithAdjustment",), resources=(_GROUPS,), condition=_OWN),
    Statement(actions=("ecs:RunInstances",), resources=_MADE, condition=_NEW),
    Statement(
        actions=("ecs:RunInstances",),
        resources=tuple(f"acs:ecs:{{region}}:*:{part}/*" for part in _NAMED),
        condition=_OWN,
    ),
    Statement(actions=("ram:PassRole",), resources=("acs:ram::*:role/gpuwatch-node",)),
)
_ASSUME = (Statement(actions=("sts:AssumeRole",), resources=("acs:ram::*:role/gpuwatch-controller",)),)
# For people. RAM knew the monitor's calls by another name before: both are allowed.
_SCAN = (
    Statement(
        actions=(
            "cms:DescribeMetricList",
            "cms:QueryMetricList",
            "ecs:DescribeInstances",
            "ecs:DescribeRegions",
        ),
    ),
)
# In addition to one of the others: `gpuwatch doctor` then says how old the controller's own keys are.
_AGES = (Statement(actions=("ram:ListAccessKeys",), resources=("acs:ram::*:user/*",)),)
_PRICES = (Statement(actions=("ecs:DescribePrice", "ecs:DescribeSpotPriceHistory")),)

ROLES: Mapping[str, tuple[Statement, ...]] = {
    "observe": _OBSERVE,
    "reclaim": _RECLAIM,
    "scale": _SCALE,
    "shield": _SHIELD,
    "assume": _ASSUME,
    "prices": _PRICES,
    "scan": _SCAN,
    "keys": _AGES,
}


def policy(role: str, *, fleet: str = "default", regions: Sequence[str] = ()) -> dict[str, object]:
    """The policy document of a role for one fleet; changes in these regions alone where any are given."""
    return {"Version": "1", "Statement": [_statement(each, fleet, regions) for each in ROLES[role]]}


def render(document: Mapping[str, object]) -> str:
    """As the files in iam/alibaba/ are written."""
    return json.dumps(document, indent=2) + "\n"


def write_policies(*, fleet: str, regions: Sequence[str]) -> dict[str, str]:
    """All policies as files, by their names."""
    return {f"{role}.json": render(policy(role, fleet=fleet, regions=regions)) for role in ROLES}


def _statement(each: Statement, fleet: str, regions: Sequence[str]) -> dict[str, object]:
    """One statement; what is denied is denied everywhere."""
    places = list(regions) if regions and each.effect == "Allow" else ["*"]
    resources = [
        resource.format(region=place)
        for resource in each.resources
        for place in (places if "{region}" in resource else ["*"])
    ]
    found: dict[str, object] = {"Effect": each.effect, "Action": list(each.actions), "Resource": resources}
    filled = {
        test: {key: value.format(fleet=fleet) for key, value in values.items()}
        for test, values in each.condition.items()
    }
    return {**found, "Condition": filled} if filled else found
