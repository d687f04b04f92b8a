"""The policies in iam/tencent/ against the calls that the code makes: none is missing, none is superfluous."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.clouds import PROTECT_TAG, STOP_AT, WRITABLE_TAGS
from gpuwatch.clouds.permissions import Needs
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.clouds.tencent.cloud import TencentCloud
from gpuwatch.clouds.tencent.iam import ROLES, policy, render
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.tencent.description import FOLDERS, description
from tests.support.clouds.tencent.fake import SECRET_ID, SECRET_KEY
from tests.support.clouds.tencent.world import GPU_TYPE, REGION, a_world
from tests.support.fakes.cloud_worlds import FLEET, MINE, TEMPLATE
from tests.support.paths import ROOT

MAY_BE_LONG = 6144  # characters of a policy, by CAM's limits
PRICES = "cvm:DescribeZoneInstanceConfigInfos"  # asked by money/prices/providers/tencent.py


def allowed(role: str) -> set[str]:
    """Every action that a role's policy allows."""
    return {action for each in ROLES[role] if each.effect == "allow" for action in each.actions}


def written() -> set[str]:
    """Every action of these APIs that a text in the code names."""
    named = {
        node.value
        for path in [
            *(ROOT / "gpuwatch/clouds/tencent").glob("*.py"),
            ROOT / "gpuwatch/money/prices/providers/tencent.py",
        ]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    found = {(service, action) for service in FOLDERS for action in description(service).actions if action in named}
    elsewhere = {action for service, action in found if service != "tke"}  # TKE repeats names of others
    return {f"{service}:{action}" for service, action in found if service != "tke" or action not in elsewhere}


@pytest.fixture(scope="module")
def sent() -> dict[str, set[str]]:
    """What TencentCloud sends for each role's work."""
    found: dict[str, set[str]] = {}
    with a_world(ManualClock()) as world:
        world.fake.state.add_machine("ap-beijing", GPU_TYPE)
        cloud, seen = world.cloud, world.fake.seen
        assert isinstance(cloud, TencentCloud)
        group_id = world.add_group("train", MINE, size=2)
        node_id, stopped = world.launch(MINE), world.launch(MINE, gpus=False)
        world.add_address()
        world.fake.state.snapshots["snap-1"] = (REGION, {})
        world.fake.state.images["img-1"] = (REGION, "2020-01-01T00:00:00Z")

        def done(role: str) -> None:
            found[role] = set(seen)
            seen.clear()

        member, kept = (node.id for node in cloud.nodes() if node.group)
        cloud.groups()
        cloud.node(member)
        cloud.find("nothing")
        cloud.leftovers()
        cloud.elsewhere()
        cloud.quotas()
        cloud.identity()
        list(cloud.may(Needs(act=True, terminate=True, groups=True)))
        list(cloud.unfit([{"template": TEMPLATE}]))
        done("observe")

        cloud.use_of([node for place in cloud.survey() for node in place.nodes], 86400.0)
        done("scan")

        cloud.tag(node_id, {STOP_AT: "then"}, "key")
        cloud.stop(stopped, "key", permit=a_permit())
        world.settle(stopped)
        cloud.start(stopped, "key")
        cloud.terminate(member, "key", group=group_id, permit=a_permit())
        cloud.terminate(node_id, "key", permit=a_permit())
        done("reclaim")

        cloud.launch({"template": TEMPLATE, "subnet": "subnet-zone4"}, "key")
        cloud.grow(group_id, 3, "key")
        done("scale")

        cloud.protect(kept, group_id, "key", on=True)
        done("shield")

        cloud.credentials()
        done("keys")
    return found


@pytest.mark.parametrize("role", sorted(ROLES))
def test_the_file_is_the_table(role: str) -> None:
    """iam/tencent/ROLE.json is what the table says, and `gpuwatch export iam` writes it."""
    assert (ROOT / "iam/tencent" / f"{role}.json").read_text() == render(policy(role))


def test_no_policy_allows_more_than_the_code_names() -> None:
    """Every allowed action is named in the code, and every one that is named is allowed to some role."""
    assert set().union(*(allowed(role) for role in ROLES)) == written()


@pytest.mark.parametrize(
    ("role", "below"),
    [("observe", None), ("scan", None), ("reclaim", "observe"), ("scale", "reclaim"), ("keys", None)],
)
def test_each_role_can_do_its_work_and_no_more(sent: dict[str, set[str]], role: str, below: str | None) -> None:
    """What is sent while a role works is what its policy allows beyond the role below it."""
    base = allowed(below) if below else {PRICES}
    base |= {"sts:GetCallerIdentity"} if role == "scan" else set()  # asked once in a process
    looking = allowed("observe") if role == "keys" else set()  # it goes beside another

    assert sent[role] <= allowed(role) | looking
    assert allowed(role) - base <= sent[role]


def test_protection_from_a_scale_in_is_a_policy_of_its_own(sent: dict[str, set[str]]) -> None:
    """The call that sets it takes it off as well."""
    assert sent["shield"] <= allowed("shield") | allowed("observe")
    assert allowed("shield") <= sent["shield"]
    assert not allowed("shield") & (allowed("scale") | allowed("reclaim"))


def test_other_accounts_are_entered_by_their_role_alone() -> None:
    """The controller's own key assumes the role, and all else is signed as it."""
    clock = ManualClock()
    with a_world(clock) as world:
        other = {"other": AccountSettings(role_arn="qcs::cam::uin/100000000009:roleName/gpuwatch-controller")}
        key_file = world.folder / "key"
        key_file.write_text(f"{SECRET_ID}:{SECRET_KEY}")
        cloud = TencentCloud(
            fleet=FLEET,
            clock=clock,
            regions=[REGION],
            accounts=other,
            key_file=str(key_file),
            endpoint_url=world.server.url,
        )
        cloud.nodes()

        assert world.fake.signed_by == {SECRET_ID: {"sts:AssumeRole"}, "AKIDrole1": {"cvm:DescribeInstances"}}
        assert allowed("assume") == {"sts:AssumeRole"}


@pytest.mark.parametrize("role", ["reclaim", "scale", "shield"])
def test_every_change_is_held_to_the_fleets_tag(role: str) -> None:
    """What exists is held by its own tags, and what a launch makes by the tag that it sets."""
    document: Any = json.loads(render(policy(role, fleet="lab")))

    for each in document["statement"]:
        if each["effect"] == "allow" and any(
            ":Describe" not in action and "Get" not in action for action in each["action"]
        ):
            made = each["action"] == ["cvm:RunInstances"] and "qcs::cvm:::instance/*" in each["resource"]
            key = "qcs:request_tag" if made else "qcs:resource_tag"
            assert each["condition"]["for_any_value:string_equal"] == {key: ["gpuwatch:fleet&lab"]}, each["action"]


@pytest.mark.parametrize("role", ["reclaim", "scale"])
def test_what_is_protected_is_denied_outright(role: str) -> None:
    """A machine or a group with the tag gpuwatch:protect is out of reach, whatever its value is."""
    denied = {action: each.condition for each in ROLES[role] if each.effect == "deny" for action in each.actions}
    protected = {"for_any_value:string_like": {"qcs:resource_tag": [f"{PROTECT_TAG}&*"]}}

    for action in ("cvm:StopInstances", "cvm:TerminateInstances", "as:RemoveInstances", "as:ModifyDesiredCapacity"):
        assert denied[action] == protected


def test_only_our_own_tags_can_be_written() -> None:
    """TagResources is allowed for the keys of the allow-list alone, on the fleet's machines."""
    (statement,) = (each for each in ROLES["reclaim"] if "tag:TagResources" in each.actions)

    keys = statement.condition["for_all_value:string_like"]["qcs:request_tag"]
    assert keys == [f"{key}&*" for key in sorted(WRITABLE_TAGS)]


@pytest.mark.parametrize("role", sorted(ROLES))
def test_no_role_has_a_wildcard_or_lifts_a_protection(role: str) -> None:
    """No action is a pattern, modifies a machine, or takes tags away; a long name of a fleet still fits."""
    actions = {action for each in ROLES[role] for action in each.actions} - {"as:ModifyDesiredCapacity"}

    assert not [action for action in actions if "*" in action or "Modify" in action or "Delete" in action]
    assert len("".join(render(policy(role, fleet="f" * 64)).split())) <= MAY_BE_LONG


def test_regions_narrow_every_change(tmp_path: Path) -> None:
    """--region holds what is changed to these regions; what is denied stays denied everywhere."""
    asked = ["--provider", "tencent", "--fleet", "lab", "--region", "ap-beijing"]
    done = CliRunner().invoke(commands, ["export", "iam", str(tmp_path), *asked])

    assert done.exit_code == 0, done.output
    text = (tmp_path / "reclaim.json").read_text()
    assert text == render(policy("reclaim", fleet="lab", regions=["ap-beijing"]))
    (stops, denied) = (each for each in json.loads(text)["statement"] if "cvm:StopInstances" in each["action"])
    assert stops["resource"] == ["qcs::cvm:ap-beijing::instance/*"]
    assert denied["resource"] == ["qcs::cvm:::instance/*"]
