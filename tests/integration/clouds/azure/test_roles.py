"""The custom roles in iam/azure/ against the calls that the code makes: none is missing, none is superfluous."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.clouds import STOP_AT
from gpuwatch.clouds.azure.cloud import AzureCloud
from gpuwatch.clouds.azure.iam import FOLLOW, RIDES_ALONG, ROLES, render, role
from gpuwatch.clouds.permissions import Needs
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.azure.actions import actions_of
from tests.support.clouds.azure.world import COMPUTE, AzureWorld, an_azure
from tests.support.clouds.policy_languages import allowed_by_azure
from tests.support.fakes.cloud_worlds import MINE
from tests.support.paths import ROOT

LAUNCH = {"template": "gpu-node", "pool": "train", "region": "eastus"}


@pytest.fixture
def world() -> Iterator[AzureWorld]:
    """An empty subscription."""
    with an_azure(ManualClock()) as world:
        yield world


def observes(world: AzureWorld, cloud: AzureCloud) -> None:
    """All that a controller asks that only looks, and its doctor."""
    node_id = cloud.nodes()[0].id
    world.state.images[f"{COMPUTE}/images/old".lower()] = {
        "id": f"{COMPUTE}/images/old",
        "name": "old",
        "location": "eastus",
    }
    world.state.made[f"{COMPUTE}/images/old".lower()] = "2020-01-01T00:00:00Z"
    cloud.node(node_id)
    cloud.group(cloud.groups()[0].id)
    cloud.leftovers()
    cloud.quotas()
    cloud.elsewhere()
    cloud.identity()
    list(cloud.may(Needs(act=True, terminate=True, groups=True, node_ids=(node_id,), launches=(LAUNCH,))))


def reclaims(world: AzureWorld, cloud: AzureCloud) -> None:
    """Each change of a machine and of a member that can be undone."""
    observes(world, cloud)
    alone = next(node.id for node in cloud.nodes() if node.group is None)
    (first, *_) = (node for node in cloud.nodes() if node.group is not None)
    for node_id in (alone, first.id):
        cloud.stop(node_id, "key", permit=a_permit())
        world.settle(node_id)
        cloud.start(node_id, "key")
        world.settle(node_id)
        cloud.tag(node_id, {STOP_AT: "then"}, "key")


def terminates(world: AzureWorld, cloud: AzureCloud) -> None:
    """And the ends, of a member with its place too."""
    reclaims(world, cloud)
    alone = next(node.id for node in cloud.nodes() if node.group is None)
    first, second = (node for node in cloud.nodes() if node.group is not None)
    for node_id in (alone, first.id):
        cloud.terminate(node_id, "key", permit=a_permit())
    cloud.terminate(second.id, "key", permit=a_permit(), group=second.group)


def changes_alone(work: Callable[[AzureCloud], object]) -> Callable[[AzureWorld, AzureCloud], None]:
    """The changes of a role that is given in addition: what it reads, the role that looks allows."""

    def does(world: AzureWorld, cloud: AzureCloud) -> None:
        cloud.nodes()
        done = len(world.server.log)
        work(cloud)
        del world.server.log[:done]
        world.server.log[:] = world.server.changes()

    return does


def shield(cloud: AzureCloud) -> None:
    """Keep one member from a scale-in."""
    (member, *_) = (node for node in cloud.nodes() if node.group is not None)
    cloud.protect(member.id, member.group or "", "key", on=True)


def scans(world: AzureWorld, cloud: AzureCloud) -> None:
    """Everywhere, with what the monitor says."""
    del world
    cloud.use_of([node for place in cloud.survey() for node in place.nodes], 3600.0)


DOES: dict[str, Callable[[AzureWorld, AzureCloud], None]] = {
    "observe": observes,
    "reclaim": reclaims,
    "terminate": terminates,
    "scale": changes_alone(lambda cloud: cloud.grow(cloud.groups()[0].id, 5, "key")),
    "launch": changes_alone(lambda cloud: cloud.launch(LAUNCH, "key")),
    "shield": changes_alone(shield),
    "scan": scans,
}


@pytest.mark.parametrize("name", ROLES)
def test_a_role_allows_what_the_code_asks_and_no_more(world: AzureWorld, name: str) -> None:
    """Every request of a controller with this role, and no action beside those; Azure's own on the way excepted."""
    world.launch(MINE)
    world.add_scale_set("train", MINE, size=2)

    DOES[name](world, world.connect(regions=("eastus",)))

    asked = {action.lower() for entry in world.server.log for action in actions_of(entry.request)}
    allowed = {action.lower() for action in ROLES[name]}
    # The role that looks follows what another started: it is the one that is given at the subscription.
    unasked = {action.lower() for action in (*RIDES_ALONG, *(FOLLOW if name == "observe" else ()))}
    assert asked <= allowed
    assert allowed - asked <= unasked


def test_roles_at_the_fleets_resource_group_suffice_beside_a_look_at_the_subscription(world: AzureWorld) -> None:
    """Every request of a controller with all of them, at the path that it goes to."""
    world.launch(MINE)
    world.add_scale_set("train", MINE, size=2)
    home = COMPUTE.partition("/providers/")[0]
    given = [role(name, scopes=(home,)) for name in ("observe", "terminate", "scale", "launch", "shield")]
    cloud = world.connect(regions=("eastus",))

    (member, *_) = (node for node in cloud.nodes() if node.group is not None)
    for on in (True, False):
        cloud.protect(member.id, member.group or "", "key", on=on)
    terminates(world, cloud)
    cloud.grow(cloud.groups()[0].id, 5, "key")
    cloud.launch(LAUNCH, "key")

    refused = {
        (action, entry.request.path)
        for entry in world.server.log
        for action in actions_of(entry.request)
        if not allowed_by_azure(given, action, entry.request.path)
    }
    # Azure lists the subscriptions in which somebody has any right.
    assert refused == {("Microsoft.Resources/subscriptions/read", "/subscriptions")}


@pytest.mark.parametrize("name", ROLES)
def test_no_role_powers_off_or_gives_rights(name: str) -> None:
    """A power-off would leave a machine that is off and billed; rights, locks and disks are nobody's of ours."""
    forbidden = ("poweroff", "roleassignments", "locks/write", "locks/delete", "disks/delete", "runcommand", "*")

    assert not [action for action in ROLES[name] for word in forbidden if word in action.lower()]


@pytest.mark.parametrize("name", ROLES)
def test_the_files_are_what_the_table_says(name: str) -> None:
    """iam/azure/ROLE.json, and `gpuwatch export iam` writes it."""
    assert (ROOT / "iam" / "azure" / f"{name}.json").read_text() == render(role(name))


@pytest.mark.parametrize("name", ROLES)
def test_what_changes_machines_is_given_at_a_resource_group(name: str) -> None:
    """Azure has no conditions for machines, so a role at the subscription would hold for all of it."""
    (scope,) = json.loads((ROOT / "iam" / "azure" / f"{name}.json").read_text())["AssignableScopes"]
    changes = [action for action in ROLES[name] if not action.endswith("/read")]

    assert ("/resourceGroups/" in scope) is bool(changes)


def test_roles_are_written_for_ones_own_scopes(tmp_path: Path) -> None:
    """What looks at the subscriptions; what changes at the resource groups, if any are named."""
    scopes = ["/subscriptions/a", "/subscriptions/b/resourceGroups/fleet"]
    asked = [word for scope in scopes for word in ("--scope", scope)]
    done = CliRunner().invoke(commands, ["export", "iam", str(tmp_path), "--provider", "azure", *asked])

    assert done.exit_code == 0, done.output
    assert "They know no tags" in done.output
    written = {name: json.loads((tmp_path / f"{name}.json").read_text())["AssignableScopes"] for name in ROLES}
    everywhere = ["/subscriptions/a", "/subscriptions/b"]
    assert written == {name: everywhere if name in {"observe", "scan"} else [scopes[1]] for name in ROLES}
    assert role("reclaim", scopes=scopes[:1])["AssignableScopes"] == scopes[:1]
