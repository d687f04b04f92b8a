"""The policies in iam/alibaba/ against the calls that the code makes: none is missing, none is superfluous."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.clouds import FLEET_TAG, OWNER_TAG, POOL_TAG, PROTECT_TAG, SNOOZE_TAG, STOP_AT, WRITABLE_TAGS
from gpuwatch.clouds.alibaba.iam import NEEDS_NO_PERMISSION, RIDES_ALONG, ROLES, policy, render
from gpuwatch.clouds.permissions import Needs
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.money.prices.providers.alibaba import AlibabaPrices
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.alibaba.fake import KEY_ID, SECRET
from tests.support.clouds.alibaba.state import Image
from tests.support.clouds.alibaba.world import GPU_TYPE, REGION, a_world
from tests.support.fakes.cloud_worlds import MINE, TEMPLATE
from tests.support.paths import ROOT

POLICY_CHARACTERS = 6144  # RAM's limit of a custom policy
SOURCES = [*(ROOT / "gpuwatch/clouds/alibaba").glob("*.py"), ROOT / "gpuwatch/money/prices/providers/alibaba.py"]
ACTION = re.compile(r"(cms|ecs|ess|ram|vpc|sts):[A-Z][A-Za-z]+")


def allowed(role: str) -> set[str]:
    """Every action that a role's policy allows."""
    return {action for each in ROLES[role] if each.effect == "Allow" for action in each.actions}


def called() -> set[str]:
    """Every call that the code names."""
    return {
        node.value
        for path in SOURCES
        if path.name != "iam.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and ACTION.fullmatch(node.value)
    }


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What the provider sends for each role's work, as the fake saw it."""
    found: dict[str, set[str]] = {}
    with a_world(ManualClock()) as world:
        cloud, calls = world.another(), world.fake.calls
        group_id = world.add_group("train", MINE, size=3)
        world.add_group("empty", MINE, size=0)
        node_id, stopped, gone = (world.launch(MINE) for _ in range(3))

        world.fake.state.images["m-1"] = Image(id="m-1", region=REGION, made="2020-01-01T00:00:00Z")

        def noted(role: str) -> None:
            found[role] = set(calls)
            calls.clear()

        member, kept, _ = (node.id for node in cloud.nodes() if node.group)
        del world.fake.state.machines[gone]
        cloud.nodes()
        cloud.groups()
        cloud.find("nothing")
        cloud.leftovers()
        cloud.elsewhere()
        cloud.quotas()
        cloud.identity()
        list(cloud.unfit([{"template": TEMPLATE}]))
        list(cloud.may(Needs()))
        noted("observe")
        cloud.tag(node_id, {STOP_AT: "then", DECISION_TAG: "key"}, "key")
        cloud.stop(stopped, "key", permit=a_permit())
        world.settle(stopped)
        cloud.start(stopped, "key")
        cloud.terminate(member, "key", group=group_id, permit=a_permit())
        cloud.terminate(node_id, "key", permit=a_permit())
        noted("reclaim")
        cloud.launch({"template": TEMPLATE}, "key")
        cloud.grow(group_id, 4, "key")
        noted("scale")
        cloud.protect(kept, group_id, "key", on=True)
        noted("shield")
        cloud.use_of([node for place in cloud.survey() for node in place.nodes], 86400.0)
        noted("scan")
        file = tmp_path_factory.mktemp("keys") / "key"
        file.write_text(f"{KEY_ID}:{SECRET}", encoding="utf-8")
        list(AlibabaPrices(clock=world.clock, key_file=file, endpoint_url=world.server.url).fetch([(REGION, GPU_TYPE)]))
        noted("prices")
        cloud.credentials()
        noted("keys")
    return found


@pytest.mark.parametrize("role", sorted(ROLES))
def test_the_file_is_the_table(role: str) -> None:
    """iam/alibaba/ROLE.json is what the table says, and `python -m gpuwatch.clouds.alibaba.iam ROLE` prints it."""
    assert (ROOT / "iam/alibaba" / f"{role}.json").read_text(encoding="utf-8") == render(policy(role))


def test_every_file_has_its_role() -> None:
    """No file is left of a role that is gone."""
    assert {path.stem for path in Path(ROOT / "iam/alibaba").iterdir()} == set(ROLES)


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
        ("shield", "observe"),
        ("prices", None),
        ("keys", None),
        ("scan", None),
    ],
)
def test_each_role_can_do_its_work_and_no_more(sent: dict[str, set[str]], role: str, below: str | None) -> None:
    """What is sent while a role works is what its policy allows beyond the role below it."""
    base = allowed(below) if below else set()

    assert sent[role] - NEEDS_NO_PERMISSION <= allowed(role) | base
    assert allowed(role) - base - RIDES_ALONG <= sent[role]


@pytest.mark.parametrize("role", sorted(ROLES))
def test_a_policy_fits_into_ram(role: str) -> None:
    """Its length, its version, and a condition at each change."""
    document: Any = policy(role, fleet="a-fleet-with-a-long-name", regions=[f"cn-region-{i}" for i in range(3)])

    assert len(json.dumps(document)) <= POLICY_CHARACTERS
    assert document["Version"] == "1"


def test_each_change_is_held_to_the_fleets_own_resources() -> None:
    """What exists is held by its own tags, and a launch by the tag that it sets: the one never stands for the other."""
    of_resource, of_request = f"acs:ResourceTag/{FLEET_TAG}", f"acs:RequestTag/{FLEET_TAG}"
    for each in ROLES["scale"]:
        changes = [action for action in each.actions if ":Describe" not in action]
        if each.effect == "Allow" and changes and not set(changes) & RIDES_ALONG:
            keys = {key for test in each.condition.values() for key in test}
            made = changes == ["ecs:RunInstances"] and any("instance/" in part for part in each.resources)
            assert keys == {of_request if made else of_resource}, each


def test_what_people_protect_is_denied() -> None:
    """Stop, start and end of machines, and every change of groups."""
    denied = {
        action
        for role in ("scale", "shield")
        for each in ROLES[role]
        if each.effect == "Deny" and any(PROTECT_TAG in key for test in each.condition.values() for key in test)
        for action in each.actions
    }

    acts = {action for action in allowed("scale") | allowed("shield") if ":Describe" not in action}
    assert acts - denied == {"ecs:RunInstances", "ram:PassRole"}


@pytest.mark.parametrize("role", ["reclaim", "scale"])
def test_no_tag_that_enrols_protects_or_postpones_can_be_written_on_any_machine(role: str) -> None:
    """Of gpuwatch's tags only the three that it writes pass, whatever another policy allows."""
    denials = [each for each in ROLES[role] if each.effect == "Deny" and each.actions == ("ecs:TagResources",)]
    denied = {key.partition("/")[2] for each in denials for key in each.condition["StringLike"]}

    assert denied == {OWNER_TAG, PROTECT_TAG, SNOOZE_TAG, FLEET_TAG, POOL_TAG}
    assert not denied & WRITABLE_TAGS
    assert all(set(each.condition) == {"StringLike"} for each in denials)


def test_a_policy_can_be_for_some_regions() -> None:
    """Changes are allowed there alone; what is denied is denied everywhere."""
    document: Any = policy("reclaim", regions=["cn-beijing"])

    changes = [each for each in document["Statement"] if each["Resource"] != ["*"]]
    assert changes
    for each in changes:
        wanted = ":cn-beijing:" if each["Effect"] == "Allow" else ":*:"
        assert all(wanted in resource for resource in each["Resource"]), each
