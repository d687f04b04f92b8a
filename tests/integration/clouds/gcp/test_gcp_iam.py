"""The roles in iam/gcp/ against the calls that the code makes: no permission is missing, none is superfluous."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.clouds import STOP_AT, AuthFailedError
from gpuwatch.clouds.gcp.cloud import GcpCloud
from gpuwatch.clouds.gcp.iam import CALLS, CONDITION_OF, ROLES, condition, denial, documents, render, role
from gpuwatch.clouds.gcp.launches import name_of
from gpuwatch.clouds.permissions import Needs
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.gcp.description import named
from tests.support.clouds.gcp.tokens import a_key, token_service
from tests.support.clouds.gcp.world import PROJECT, REGION, GcpWorld, a_world
from tests.support.clouds.policy_languages import GoogleResource, allowed_by_google, condition_holds
from tests.support.each import for_each
from tests.support.fakes.cloud_worlds import FLEET, MINE
from tests.support.paths import ROOT


def permissions(*names: str) -> set[str]:
    """What roles' files allow together."""
    held = [role(name)["includedPermissions"] for name in names]
    assert all(isinstance(each, list) for each in held)
    return {permission for each in held if isinstance(each, list) for permission in each}


def observe(world: GcpWorld) -> None:
    """Every look."""
    cloud = world.cloud
    assert isinstance(cloud, GcpCloud)
    world.project.images.append(
        {
            "id": "1",
            "name": "old",
            "status": "READY",
            "selfLink": world.project.link("global/images/old"),
            "creationTimestamp": "2020-01-01T00:00:00.000-08:00",
        }
    )
    cloud.groups()
    world.terminate(world.launch(MINE))
    for node in cloud.nodes():
        cloud.node(node.id)
    for group in cloud.groups():
        cloud.group(group.id)
    cloud.find("nothing")
    cloud.leftovers()
    cloud.elsewhere()
    cloud.quotas()
    cloud.identity()
    list(cloud.unfit([{"template": "gpu-node"}]))
    list(cloud.may(Needs(act=True, groups=True, launches=({"template": "gpu-node"},))))


def scan(world: GcpWorld) -> None:
    """What the monitor says."""
    cloud = world.cloud
    assert isinstance(cloud, GcpCloud)
    world.launch(MINE)
    cloud.use_of(cloud.nodes(), 86400.0)


def keys(world: GcpWorld) -> None:
    """How old its own key is."""
    with TemporaryDirectory() as folder, token_service(world) as tokens:
        file = a_key(Path(folder), tokens)
        GcpCloud(
            fleet=FLEET,
            clock=world.clock,
            regions=[REGION],
            projects=[PROJECT],
            credentials_file=file,
            endpoint_url=world.server.url,
        ).credentials()


def reclaim(world: GcpWorld) -> None:
    """A stop, a start, a notice."""
    node_id = world.launch(MINE)
    world.cloud.tag(node_id, {STOP_AT: ""}, "key")
    world.cloud.stop(node_id, "key", permit=a_permit())
    world.settle(node_id)
    world.cloud.start(node_id, "key")
    world.settle(node_id)
    world.told(node_id)["status"] = "SUSPENDED"
    world.cloud.start(node_id, "key")


def terminate(world: GcpWorld) -> None:
    """The end of a machine."""
    world.cloud.terminate(world.launch(MINE), "key", permit=a_permit())


def scale(world: GcpWorld) -> None:
    """The end of a group's member, and a larger group."""
    group = next(group for group in world.cloud.groups() if group.node_ids)
    world.settle("")
    world.cloud.terminate(group.node_ids[0], "key", permit=a_permit(), group=group.id)
    group = next(iter(world.cloud.groups()))
    world.cloud.grow(group.id, group.desired + 1, "key")


def launch(world: GcpWorld) -> None:
    """A new machine."""
    world.cloud.launch({"template": "gpu-node"}, "key")


# The roles that are given together, with what they are given for.
WORK: dict[tuple[str, ...], tuple[Callable[[GcpWorld], None], ...]] = {
    ("observe",): (observe,),
    ("scan",): (observe, scan),
    ("keys",): (observe, keys),
    ("reclaim",): (observe, reclaim),
    ("terminate",): (observe, reclaim, terminate),
    ("reclaim", "scale"): (observe, reclaim, scale),
    ("reclaim", "launch"): (observe, reclaim, launch),
}
together = pytest.mark.parametrize("names", WORK, ids="+".join)


def test_the_files_are_the_tables() -> None:
    """iam/gcp/ has each role, the conditions to bind them with and the deny policy, as `gpuwatch export iam` does."""
    files = {path.name: path.read_text() for path in (ROOT / "iam/gcp").iterdir()}

    assert files == {name: render(document) for name, document in documents().items()}
    assert set(CONDITION_OF) < set(ROLES)


def test_conditions_are_for_ones_own_fleet_and_project(tmp_path: Path) -> None:
    """The tags are a project's; a fleet's name is written as the label of a machine has it."""
    asked = ["export", "iam", str(tmp_path), "--provider", "gcp", "--fleet", "Lab A", "--scope", "projects/our-project"]
    done = CliRunner().invoke(commands, asked)

    assert done.exit_code == 0, done.output
    assert "bind" in done.output
    own = json.loads((tmp_path / "own.condition.json").read_text())["expression"]
    assert "resource.matchTag('our-project/gpuwatch-fleet', 'x--_4cab_20_41')" in own
    (rule,) = json.loads((tmp_path / "protected.deny.json").read_text())["rules"]
    assert (
        rule["denyRule"]["denialCondition"]["expression"] == "resource.matchTag('our-project/gpuwatch-protect', 'true')"
    )


def bind(world: GcpWorld, *names: str) -> None:
    """Give these roles as docs/clouds/gcp.md says, each with its condition, and the deny policy."""
    conditions = {
        name: condition(each, scope=f"projects/{PROJECT}", fleet=FLEET) for name, each in CONDITION_OF.items()
    }
    bound = [(role(name), str(conditions[name]["expression"]) if name in conditions else None) for name in names]
    denials = [denial(scope=f"projects/{PROJECT}")]
    world.fake.allows = lambda permission, resource: allowed_by_google(bound, denials, permission, resource)


def test_with_conditions_the_fleets_own_machines_can_be_stopped_and_no_others() -> None:
    """Everything is seen; what has the tag or was launched can be changed, unless it has the tag that protects."""
    with a_world(ManualClock()) as world:
        ours, untagged, protected = (world.launch(MINE) for _ in range(3))
        names = {node.id: world.told(node.id)["name"] for node in world.cloud.nodes()}
        own = {f"{PROJECT}/gpuwatch-fleet": FLEET}
        world.fake.tags = {names[ours]: own, names[protected]: {**own, f"{PROJECT}/gpuwatch-protect": "true"}}
        bind(world, "observe", "terminate", "launch")

        observe_all = {node.id for node in world.cloud.nodes()}
        launched = world.cloud.launch({"template": "gpu-node"}, "key")
        world.settle("")
        for node_id in (ours, launched):
            world.cloud.tag(node_id, {STOP_AT: ""}, "key")
            world.cloud.stop(node_id, "key", permit=a_permit())
        for node_id in (untagged, protected):
            with pytest.raises(AuthFailedError, match=r"compute\.instances\.stop"):
                world.cloud.stop(node_id, "key", permit=a_permit())

        assert observe_all == {ours, untagged, protected}
        assert world.told(untagged)["status"] == world.told(protected)["status"] == "RUNNING"


def test_with_conditions_only_groups_of_the_fleets_name_can_be_changed() -> None:
    """A condition knows no group's label: it goes by the name."""
    with a_world(ManualClock()) as world:
        own, foreign = (world.add_group(name, MINE, size=1) for name in (f"gpuwatch-{FLEET}-train", "train"))
        world.cloud.groups()
        bind(world, "observe", "reclaim", "scale")

        world.cloud.grow(own, 2, "key")
        with pytest.raises(AuthFailedError, match=r"compute\.instanceGroupManagers\.update"):
            world.cloud.grow(foreign, 2, "key")


def test_with_conditions_the_doctor_finds_no_right_that_is_missing() -> None:
    """What it asks of the project is not about one machine or group, so no condition stands in its way."""
    with a_world(ManualClock()) as world:
        node_id = world.launch(MINE)
        world.add_group(f"gpuwatch-{FLEET}-train", MINE, size=1)
        (name,) = (world.told(node.id)["name"] for node in world.cloud.nodes() if node.id == node_id)
        world.fake.tags = {name: {f"{PROJECT}/gpuwatch-fleet": FLEET}}
        bind(world, "observe", "terminate", "scale", "launch")
        assert isinstance(world.cloud, GcpCloud)

        needs = Needs(act=True, terminate=True, groups=True, node_ids=(node_id,), launches=({"template": "gpu-node"},))
        assert [each for each in world.cloud.may(needs) if not each.allowed] == []


def test_what_is_launched_has_a_name_that_its_condition_allows() -> None:
    """The role that launches may make machines of these names alone."""
    expression = str(condition("new")["expression"])

    made = f"projects/p/zones/z/instances/{name_of('a key')}"
    assert condition_holds(expression, GoogleResource(type="compute.googleapis.com/Instance", name=made))
    foreign = GoogleResource(type="compute.googleapis.com/Instance", name="projects/p/zones/z/instances/trainer")
    assert not condition_holds(expression, foreign)


@for_each(CALLS, lambda call: call.name)
def test_every_call_is_one_of_googles(call: object) -> None:
    """The table's methods and paths are those of Google's own description."""
    (each,) = [known for known in CALLS if known is call]
    for name in filter(None, (each.name, each.also)):
        described = named(name)
        assert (described.verb, "response" in described.described) == (each.method, True)
    filled = each.path.format_map(
        dict.fromkeys(("project", "zone", "instance", "type", "operation", "account"), "x1")
        | {"group": "zones/x1/instanceGroupManagers/x1", "template": "global/instanceTemplates/x1"}
    )
    assert named(each.name).path.fullmatch(filled.lstrip("/"))


@together
def test_a_role_suffices_for_its_work(names: tuple[str, ...]) -> None:
    """With the roles' permissions alone nothing is refused, and the doctor says so."""
    with a_world(ManualClock()) as world:
        for group, size in (("train", 2), ("empty", 0)):
            world.add_group(group, MINE, size=size)
        world.settle("")
        world.fake.permissions = permissions(*names)

        for work in WORK[names]:
            work(world)

        assert not [entry for entry in world.server.log if entry.status == 403]


@together
def test_a_role_allows_no_more_than_its_work_calls(names: tuple[str, ...]) -> None:
    """Each permission belongs to a call that the work makes, and every method that is asked for is in the table."""
    with a_world(ManualClock()) as world:
        world.add_group("train", MINE, size=2)
        world.settle("")
        for work in WORK[names]:
            work(world)
        asked = set(world.fake.asked_for)

    table = {name: call for call in CALLS for name in (call.name, call.also) if name}
    assert asked <= table.keys()
    assert permissions(*names) == {permission for each in asked for permission in table[each].permissions}


def test_without_a_permission_the_doctor_names_the_call() -> None:
    """Reads are tried, changes asked for on one of the fleet's own machines, or in the project."""
    with a_world(ManualClock()) as world:
        node_id = world.launch(MINE)
        world.cloud.nodes()
        world.fake.permissions = permissions("observe") - {"compute.disks.list"}
        assert isinstance(world.cloud, GcpCloud)

        needs = Needs(act=True, terminate=True, node_ids=(node_id,), launches=({"template": "gpu-node"},))
        found = {each.call: each for each in world.cloud.may(needs)}

        assert not found["compute.disks.aggregatedList"].allowed
        assert found["compute.instances.aggregatedList"].allowed
        assert (found["compute.instances.stop"].allowed, found["compute.instances.stop"].reason) == (
            False,
            "missing: compute.instances.stop",
        )
        assert found["compute.instances.delete"].allowed is False
        assert found["compute.instances.insert"].allowed is False
        with pytest.raises(AuthFailedError, match=r"compute\.instances\.stop"):
            world.cloud.stop(node_id, "key", permit=a_permit())
        assert world.server.changes()[0].status == 403


def test_a_right_on_a_machine_that_is_not_ours_is_found_by_asking_for_it() -> None:
    """As where a role is bound without its condition: with `launch` it would be root there."""
    with a_world(ManualClock()) as world:
        node_id = world.launch({})
        world.cloud.nodes()
        world.fake.permissions = permissions("observe", "launch")
        assert isinstance(world.cloud, GcpCloud)

        found = {each.call: each.allowed for each in world.cloud.may_beyond((node_id,))}

        assert {call for call, allowed in found.items() if allowed} == {
            "compute.instances.setLabels",
            "compute.instances.setMetadata",
            "compute.instances.setServiceAccount",
        }
        assert found["compute.instances.stop"] is False
        assert world.server.changes() == []


def test_a_doctor_that_gets_no_answer_says_neither_yes_nor_no() -> None:
    """The Resource Manager's API may be switched off in a project."""
    with a_world(ManualClock()) as world:
        world.fake.refuse("cloudresourcemanager.projects.testIamPermissions", 403, "accessNotConfigured", "disabled")
        assert isinstance(world.cloud, GcpCloud)

        (launch,) = [each for each in world.cloud.may(Needs(launches=({},))) if each.call.endswith("insert")]

        assert launch.allowed is None
        assert "accessNotConfigured" in launch.reason
