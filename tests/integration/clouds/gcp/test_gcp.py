"""Compute Engine's own traps, over HTTP on the fake that is held to Google's description of the API."""

from collections.abc import Iterator

import pytest

from gpuwatch.clouds import (
    STOP_AT,
    CloudError,
    InsufficientCapacityError,
    NotFoundError,
    PermitExpiredError,
    ProtectedError,
    QuotaExceededError,
)
from gpuwatch.clouds.gcp.cloud import GcpCloud
from gpuwatch.model.fleet import CapacityType, NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.gcp.world import PROJECT, REGION, ZONE, GcpWorld, a_world, add_group
from tests.support.clouds.gcp.world import run_machine as run
from tests.support.fakes.cloud_worlds import FLEET, MINE, seen

ARGUMENTS = {"template": "gpu-node", "pool": "train"}
_TRAIN = f"zones/{ZONE}/instanceGroupManagers/train"


@pytest.fixture
def world() -> Iterator[GcpWorld]:
    """An empty project."""
    with a_world(ManualClock()) as world:
        yield world


# Machines


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("PROVISIONING", NodeState.PENDING),
        ("STAGING", NodeState.PENDING),
        ("RUNNING", NodeState.RUNNING),
        ("PENDING_STOP", NodeState.STOPPING),
        ("STOPPING", NodeState.STOPPING),
        ("SUSPENDING", NodeState.STOPPING),
        ("TERMINATED", NodeState.STOPPED),
        ("SUSPENDED", NodeState.STOPPED),
        ("REPAIRING", NodeState.UNKNOWN),
    ],
)
def test_googles_words_for_states_are_not_ours(world: GcpWorld, status: str, state: NodeState) -> None:
    """TERMINATED is a machine that is stopped and can be started; what nobody can name is left alone."""
    node_id = world.launch(MINE)
    world.told(node_id)["status"] = status

    assert seen(world, node_id).state is state
    assert [node.state for node in world.cloud.nodes()] == [state]


def test_what_shuts_down_gracefully_is_billed_until_that_is_over(world: GcpWorld) -> None:
    """Google's graceful shutdown may take an hour: no saving before its end."""
    node_id = world.launch(MINE)
    world.told(node_id)["status"] = "PENDING_STOP"

    assert "gracefully" in (seen(world, node_id).still_billed or "")
    world.told(node_id)["status"] = "STOPPING"
    assert seen(world, node_id).still_billed is None


def test_a_suspended_machine_goes_on_costing(world: GcpWorld) -> None:
    """Its memory is billed; a start of it is a resume, which is another call."""
    node_id = world.launch(MINE)
    assert seen(world, node_id).still_billed is None
    world.told(node_id)["status"] = "SUSPENDED"

    assert "memory" in (seen(world, node_id).still_billed or "")
    world.cloud.start(node_id, "key")
    assert (world.calls("instances.resume"), world.calls("instances.start")) == (1, 0)


@pytest.mark.parametrize(
    ("parts", "capacity"),
    [
        ({"scheduling": {"provisioningModel": "SPOT"}}, CapacityType.SPOT),
        ({"scheduling": {"preemptible": True}}, CapacityType.SPOT),
        ({"scheduling": {"nodeAffinities": [{"key": "node-group"}]}}, CapacityType.DEDICATED_HOST),
        ({"scheduling": {"provisioningModel": "RESERVATION_BOUND"}}, CapacityType.RESERVED),
        ({"reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION"}}, CapacityType.RESERVED),
        ({"reservationAffinity": {"consumeReservationType": "ANY_RESERVATION"}}, CapacityType.ON_DEMAND),
        ({"resourceStatus": {"reservationConsumptionInfo": {"consumedReservation": "r"}}}, CapacityType.RESERVED),
        ({}, CapacityType.ON_DEMAND),
    ],
)
def test_how_a_machine_was_bought(world: GcpWorld, parts: dict[str, object], capacity: CapacityType) -> None:
    """What is paid whether it runs or not is not saved by a stop."""
    node_id = world.launch(MINE)
    world.told(node_id).update(parts)

    node = seen(world, node_id)

    assert node.capacity_type is capacity
    assert (node.still_billed is not None) is (capacity in {CapacityType.RESERVED, CapacityType.DEDICATED_HOST})


def test_gpus_are_counted_from_the_instance_or_from_its_type(world: GcpWorld) -> None:
    """Attached to an N1, or part of an A2; a TPU is not a GPU, and a machine without any is left out."""
    attached = run(world.project, ZONE, MINE, kind="n1-standard-8").told
    attached["guestAccelerators"] = [
        {"acceleratorType": world.project.link(f"zones/{ZONE}/acceleratorTypes/nvidia-tesla-t4"), "acceleratorCount": 4}
    ]
    brought = run(world.project, ZONE, MINE, kind="a2-ultragpu-1g").told
    run(world.project, ZONE, MINE, kind="ct5lp-hightpu-1t")
    run(world.project, ZONE, MINE, kind="n1-standard-8")

    counts = {node.id: (node.gpu_count, node.kind) for node in world.cloud.nodes()}

    assert counts == {
        attached["id"]: (4, "n1-standard-8+4xnvidia-tesla-t4"),
        brought["id"]: (1, "a2-ultragpu-1g"),
    }


def test_a_type_is_asked_for_once(world: GcpWorld) -> None:
    """Whatever the number of machines and rounds."""
    for _ in range(5):
        world.launch(MINE)
    for _ in range(3):
        world.cloud.nodes()

    assert world.calls("machineTypes.get") == 1


@pytest.mark.parametrize(
    ("labels", "key", "owner"),
    [
        ({"goog-k8s-cluster-name": "prod"}, "", "GKE cluster prod"),
        ({"goog-dataproc-cluster-name": "etl"}, "", "Dataproc cluster etl"),
        ({"slurm_cluster_name": "hpc"}, "", "Slurm cluster hpc"),
        ({"ray-cluster-name": "tune"}, "", "Ray cluster tune"),
        ({}, "kube-env", "GKE cluster"),
        ({"team": "vision"}, "", None),
    ],
)
def test_what_another_system_made_is_its_own(world: GcpWorld, labels: dict[str, str], key: str, owner: str) -> None:
    """By the labels and the metadata that it leaves; the metadata's values may be secrets, and are not told."""
    node_id = world.launch(MINE)
    world.told(node_id).update(labels={**labels, "gpuwatch-fleet": FLEET})
    if key:
        world.told(node_id)["metadata"] = {"items": [{"key": key, "value": "secret"}]}

    node = seen(world, node_id)

    assert node.managed_by == owner
    assert "secret" not in repr(node)


@pytest.mark.parametrize("consents", [True, False])
def test_a_member_whose_metadata_somebody_replaced_is_still_its_groups(world: GcpWorld, consents: bool) -> None:
    """Its group would make it again, so a stop of the machine alone is none; the group's own list is the proof."""
    add_group(world.project, "train", MINE if consents else {}, size=2)
    alone = run(world.project, ZONE, MINE)
    world.cloud.nodes()
    world.clock.advance(120)
    cleaned, other = (world.project.machines[each] for each in world.project.groups[_TRAIN].members)
    for each in (cleaned, other):
        each.told["labels"] = dict(alone.told["labels"])
    cleaned.told["metadata"] = {"kind": "compute#metadata", "items": [{"key": "created-by", "value": "bob"}]}
    world.cloud = world.anew()

    def owners() -> dict[str, tuple[bool, str | None]]:
        return {node.id: (node.group is None, node.managed_by) for node in world.cloud.nodes()}

    whose = (False, None) if consents else (False, "managed instance group train")
    assert owners() == {alone.told["id"]: (True, None), cleaned.told["id"]: whose, other.told["id"]: whose}
    asked = world.calls("instanceGroupManagers.listManagedInstances")
    assert seen(world, cleaned.told["id"]).managed_by == whose[1]

    world.fake.refuse("compute.instanceGroupManagers.aggregatedList", 403, "forbidden", "Required permission")
    assert owners()[cleaned.told["id"]] == whose
    assert asked > 0

    world.fake.unreachable_kinds["instanceGroupManagers"] = {ZONE}  # it is left alone, as all of that group
    assert owners()[cleaned.told["id"]] == (True, "managed instance group train")


def test_groups_with_a_named_machine_at_each_place_are_not_asked_for_members(world: GcpWorld) -> None:
    """A project may have hundreds of groups of a cluster, and each question is a call."""
    add_group(world.project, "theirs", {}, size=2)
    world.launch(MINE)
    world.cloud.nodes()
    world.clock.advance(120)
    before = world.calls("instanceGroupManagers.listManagedInstances")
    world.cloud.nodes()
    assert world.calls("instanceGroupManagers.listManagedInstances") == before


def test_a_machine_of_another_region_is_not_looked_at_and_all_means_all(world: GcpWorld) -> None:
    """The configured regions alone; `elsewhere` tells of the rest, and [all] has no rest."""
    mine, far = world.launch(MINE), run(world.project, "us-east1-b", {}).told["id"]
    assert [node.id for node in world.cloud.nodes()] == [mine]
    assert isinstance(world.cloud, GcpCloud)

    others = {each.where: each.machines for each in world.cloud.elsewhere()}

    assert others == {
        f"europe-west4 of project {PROJECT}": (),
        f"us-east1 of project {PROJECT}": (f"{far} (g2-standard-4)",),
    }
    every = world.anew("all")
    assert [node.id for node in every.nodes()] == sorted([mine, far])
    assert list(every.elsewhere()) == []


def test_a_fleet_that_no_label_can_name_is_refused_at_once(world: GcpWorld) -> None:
    """It would be empty for ever, and nobody would know why."""
    with pytest.raises(CloudError, match=r"needs .* characters as a label"):
        GcpCloud(fleet="L" * 40, clock=world.clock, regions=[REGION])
    with pytest.raises(CloudError, match="no region is known"):
        GcpCloud(fleet=FLEET, clock=world.clock, regions=[])


# One name, two machines


def test_a_name_that_came_again_is_another_machine(world: GcpWorld) -> None:
    """Numbers are machines, names are not: nothing is done to the new one in the old one's place."""
    old = run(world.project, ZONE, {**MINE, "Name": "gpu-1"}).told["id"]
    world.cloud.nodes()
    world.project.delete(world.project.machines[old])
    world.settle(old)
    new = run(world.project, ZONE, {**MINE, "Name": "gpu-1"}).told["id"]

    world.cloud.stop(old, "key", permit=a_permit())
    world.cloud.terminate(old, "key", permit=a_permit())
    with pytest.raises(CloudError):
        world.cloud.start(old, "key")
    with pytest.raises(NotFoundError):
        world.cloud.tag(old, {STOP_AT: ""}, "key")

    assert (seen(world, old).state, seen(world, new).state) == (NodeState.TERMINATED, NodeState.RUNNING)
    assert [entry.asked.operation for entry in world.server.changes()] == []


def test_gone_is_what_an_operation_proves_also_after_a_restart(world: GcpWorld) -> None:
    """A controller that never saw the machine finds its deletion; without it the id is unknown, not gone."""
    node_id = world.launch(MINE)
    world.terminate(node_id)
    world.settle(node_id)

    gone = seen(world, node_id)
    assert (gone.state, gone.zone, gone.account) == (NodeState.TERMINATED, ZONE, PROJECT)
    world.cloud.stop(node_id, "key", permit=a_permit())

    world.project.operations.clear()
    with pytest.raises(NotFoundError, match=node_id):
        world.cloud.node(node_id)


# Stops, starts and ends


@pytest.mark.parametrize("listed", [True, False], ids=["among its disks", "by its type alone"])
def test_local_ssds_are_given_up_by_name(world: GcpWorld, *, listed: bool) -> None:
    """Compute Engine refuses a stop that does not say what becomes of them; the guard has asked for consent before."""
    node_id = run(world.project, ZONE, MINE, kind="a2-ultragpu-1g").told["id"]
    plain = world.launch(MINE)
    if not listed:
        machine = world.project.machines[node_id]
        machine.told["disks"] = [disk for disk in machine.told["disks"] if disk["type"] != "SCRATCH"]
        machine.brings_ssds = True
    assert (seen(world, node_id).instance_store, seen(world, plain).instance_store) == (True, False)

    world.cloud.stop(node_id, "key", permit=a_permit())
    world.cloud.stop(plain, "key", permit=a_permit())

    queries = [entry.request.query for entry in world.server.changes()]
    assert queries == [{"discardLocalSsd": "true"}, {}]
    assert seen(world, node_id).state is NodeState.STOPPING


def test_a_start_that_fails_after_it_was_accepted_is_no_stock(world: GcpWorld) -> None:
    """Google accepts, and tells a second later that the zone has none."""
    node_id = world.launch(MINE)
    world.cloud.stop(node_id, "key", permit=a_permit())
    world.settle(node_id)
    world.project.failing["start"] = ("ZONE_RESOURCE_POOL_EXHAUSTED", "does not have enough resources available")

    with pytest.raises(InsufficientCapacityError) as caught:
        world.cloud.start(node_id, "key")

    assert caught.value.code == "ZONE_RESOURCE_POOL_EXHAUSTED"
    assert seen(world, node_id).state is NodeState.STOPPED


@pytest.mark.parametrize(
    ("code", "kind"),
    [("ZONE_RESOURCE_POOL_EXHAUSTED", InsufficientCapacityError), ("QUOTA_EXCEEDED", QuotaExceededError)],
)
def test_a_launch_that_fails_after_it_was_accepted_says_so_and_is_over(
    world: GcpWorld, code: str, kind: type[CloudError]
) -> None:
    """The machine that was there for a second is one that ended; it is not waited for."""
    world.project.failing["insert"] = (code, "no")

    with pytest.raises(kind):
        world.cloud.launch(ARGUMENTS, "key")

    found = world.cloud.find("key")
    assert found is not None
    assert found.state is NodeState.TERMINATED
    assert found.failed_start == f"no ({code})"


def test_deletion_protection_is_seen_and_never_lifted(world: GcpWorld) -> None:
    """The list tells it, and the end is refused, alone or with the machine's place in a group."""
    add_group(world.project, "train", MINE, size=2)
    for _ in range(2):
        world.settle("")
    (kept, other), group = world.cloud.nodes(), world.cloud.groups()[0].id
    world.told(kept.id)["deletionProtection"] = True

    assert seen(world, kept.id).cannot_terminate == "its deletion protection is on"
    for place in (None, group):
        with pytest.raises(ProtectedError):
            world.cloud.terminate(kept.id, "key", permit=a_permit(), group=place)
    assert world.server.changes() == []
    assert seen(world, other.id).cannot_terminate is None


@pytest.mark.parametrize("verb", ["stop", "terminate"])
def test_nothing_leaves_under_a_permit_that_ended_on_the_way(world: GcpWorld, verb: str) -> None:
    """The reads before a change take their time, and the permit is looked at after them."""
    node_id = world.launch(MINE)
    permit = a_permit(world.clock, max_age=5.0)
    world.fake.before["compute.instances.get"] = lambda: world.clock.advance(60)

    with pytest.raises(PermitExpiredError):
        getattr(world.cloud, verb)(node_id, "key", permit=permit)

    assert world.server.changes() == []
