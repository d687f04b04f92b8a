"""What Tencent Cloud must allow for what the code does, and no more: policies of CAM (Cloud Access Management).

`gpuwatch export iam` writes them; the files in iam/tencent/ are these with the defaults.
`tests/integration/clouds/tencent/test_tencent_iam.py` holds the table to the calls that the code makes. CAM writes a
tag in a condition as KEY&VALUE. A launch's template is no resource of CAM, so what a launch names must have the fleet's
tag itself. Source: https://www.tencentcloud.com/document/product/213/10314
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuwatch.clouds import FLEET_TAG, PROTECT_TAG, WRITABLE_TAGS

_MACHINES = "qcs::cvm:{region}::instance/*"
_GROUPS = "qcs::as:{region}::auto-scaling-group/*"
_OWN = {"for_any_value:string_equal": {"qcs:resource_tag": [f"{FLEET_TAG}&{{fleet}}"]}}
_MADE_OWN = {"for_any_value:string_equal": {"qcs:request_tag": [f"{FLEET_TAG}&{{fleet}}"]}}
_PROTECTED = {"for_any_value:string_like": {"qcs:resource_tag": [f"{PROTECT_TAG}&*"]}}
_NOTICES = {"for_all_value:string_like": {"qcs:request_tag": [f"{key}&*" for key in sorted(WRITABLE_TAGS)]}}
# What a launch makes, or is made in; and what decides which software runs and who gets in.
_MADE = (
    _MACHINES,
    "qcs::cvm:{region}::systemdisk/*",
    "qcs::cvm:{region}::datadisk/*",
    "qcs::vpc:{region}::vpc/*",
    "qcs::vpc:{region}::subnet/*",
)
_NAMED = tuple(f"qcs::cvm:{{region}}::{part}/*" for part in ("image", "keypair", "sg"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement of a policy; {fleet} and {region} are filled in."""

    actions: tuple[str, ...]
    resources: tuple[str, ...] = ("*",)
    condition: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    effect: str = "allow"


_OBSERVE = (
    Statement(
        actions=(
            "as:DescribeAutoScalingActivities",
            "as:DescribeAutoScalingGroups",
            "as:DescribeAutoScalingInstances",
            "as:DescribeLaunchConfigurations",
            "cbs:DescribeDisks",
            "cbs:DescribeSnapshots",
            "cvm:DescribeAccountQuota",
            "cvm:DescribeImages",
            "cvm:DescribeInstanceTypeConfigs",
            "cvm:DescribeInstances",
            "cvm:DescribeLaunchTemplateVersions",
            "cvm:DescribeLaunchTemplates",
            "cvm:DescribeRegions",
            "cvm:DescribeZoneInstanceConfigInfos",  # for prices alone
            "sts:GetCallerIdentity",
            "tke:DescribeExistedInstances",  # which machines are in a cluster
            "vpc:DescribeAddresses",
        ),
    ),
)
_SCAN = (
    Statement(
        actions=(
            "cvm:DescribeInstanceTypeConfigs",
            "cvm:DescribeInstances",
            "cvm:DescribeRegions",
            "monitor:GetMonitorData",
            "sts:GetCallerIdentity",
        ),
    ),
)
_RECLAIM = (
    *_OBSERVE,
    Statement(
        actions=("cvm:StartInstances", "cvm:StopInstances", "cvm:TerminateInstances"),
        resources=(_MACHINES,),
        condition=_OWN,
    ),
    Statement(actions=("as:RemoveInstances",), resources=(_GROUPS,), condition=_OWN),
    # Never a tag that enrols, protects or postpones.
    Statement(actions=("tag:TagResources",), resources=(_MACHINES,), condition={**_OWN, **_NOTICES}),
    Statement(
        effect="deny",
        actions=("cvm:StartInstances", "cvm:StopInstances", "cvm:TerminateInstances"),
        resources=("qcs::cvm:::instance/*",),
        condition=_PROTECTED,
    ),
    Statement(
        effect="deny",
        actions=("as:ModifyDesiredCapacity", "as:RemoveInstances"),
        resources=("qcs::as:::auto-scaling-group/*",),
        condition=_PROTECTED,
    ),
)
# The same call sets a member's protection from a scale-in and takes it off.
_SHIELD = (
    Statement(actions=("as:SetInstancesProtection",), resources=(_GROUPS,), condition=_OWN),
    Statement(
        effect="deny",
        actions=("as:SetInstancesProtection",),
        resources=("qcs::as:::auto-scaling-group/*",),
        condition=_PROTECTED,
    ),
)
_SCALE = (
    *_RECLAIM,
    Statement(actions=("as:ModifyDesiredCapacity",), resources=(_GROUPS,), condition=_OWN),
    Statement(actions=("cvm:RunInstances",), resources=_MADE, condition=_MADE_OWN),
    Statement(actions=("cvm:RunInstances",), resources=_NAMED, condition=_OWN),
    Statement(actions=("vpc:DescribeSubnets",)),  # of a pool that names subnets
)
# In addition to one of the others: `gpuwatch doctor` then says how old the controller's own keys are.
_AGES = (Statement(actions=("cam:ListAccessKeys",)),)
_ASSUME = (Statement(actions=("sts:AssumeRole",), resources=("qcs::cam::uin/*:roleName/gpuwatch-controller",)),)

ROLES: Mapping[str, tuple[Statement, ...]] = {
    "observe": _OBSERVE,
    "scan": _SCAN,
    "reclaim": _RECLAIM,
    "scale": _SCALE,
    "shield": _SHIELD,
    "assume": _ASSUME,
    "keys": _AGES,
}


def policy(role: str, *, fleet: str = "default", regions: Sequence[str] = ()) -> dict[str, object]:
    """The policy document of a role for one fleet; it may change things in these regions alone, where any are given."""
    return {"version": "2.0", "statement": [_statement(each, fleet, regions or ("",)) for each in ROLES[role]]}


def render(document: Mapping[str, object]) -> str:
    """As the files in iam/tencent/ are written."""
    return json.dumps(document, indent=2) + "\n"


def write_policies(*, fleet: str, regions: Sequence[str]) -> dict[str, str]:
    """All policies as files, by their names."""
    return {f"{role}.json": render(policy(role, fleet=fleet, regions=regions)) for role in ROLES}


def _statement(each: Statement, fleet: str, regions: Sequence[str]) -> dict[str, object]:
    """One statement; a resource without a region is that of every region."""
    resources = dict.fromkeys(resource.format(region=region) for resource in each.resources for region in regions)
    found: dict[str, object] = {
        "effect": each.effect,
        "action": list(each.actions),
        "resource": list(resources),
    }
    condition = {
        test: {key: [value.format(fleet=fleet) for value in values] for key, values in wanted.items()}
        for test, wanted in each.condition.items()
    }
    return {**found, "condition": condition} if condition else found
