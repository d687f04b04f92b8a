"""Labels, launches, groups and what is left over on Google Cloud, where they differ from other clouds."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gpuwatch.clouds import (
    STOP_AT,
    CloudError,
    LeftoverKind,
)
from gpuwatch.clouds.gcp.cloud import GcpCloud
from gpuwatch.clouds.permissions import Quota
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.gcp.machines import fingerprint
from tests.support.clouds.gcp.world import PROJECT, REGION, ZONE, GcpWorld, a_world, add_autoscaler, add_group
from tests.support.clouds.gcp.world import run_machine as run
from tests.support.fakes.cloud_worlds import FLEET, MINE, seen

ARGUMENTS = {"template": "gpu-node", "pool": "train"}


@pytest.fixture
def world() -> Iterator[GcpWorld]:
    """An empty project."""
    with a_world(ManualClock()) as world:
        yield world


# Labels


def test_labels_are_written_against_the_fingerprint_that_was_read(world: GcpWorld) -> None:
    """Somebody is faster: their label stays, ours comes to it."""
    node_id = world.launch(MINE)

    def somebody() -> None:
        labels = {**world.told(node_id)["labels"], "team": "vision"}
        world.told(node_id).update(labels=labels, labelFingerprint=fingerprint(labels))

    world.fake.before["compute.instances.setLabels"] = somebody
    world.cloud.tag(node_id, {STOP_AT: "2026-01-05T12:00:00Z"}, "key")

    labels = {"gpuwatch-fleet": FLEET, "team": "vision", "gpuwatch-stop-at": "1767614400"}
    assert world.told(node_id)["labels"] == labels
    assert world.calls("instances.setLabels") == 2


def test_labels_that_are_there_are_not_written_again(world: GcpWorld) -> None:
    """No call that changes nothing."""
    node_id = world.launch(MINE)
    for _ in range(2):
        world.cloud.tag(node_id, {DECISION_TAG: "7"}, "key")

    assert world.calls("instances.setLabels") == 1


# Launches


def test_a_launch_keeps_the_templates_labels_and_adds_ours(world: GcpWorld) -> None:
    """A body's labels take the place of the template's, so both are sent."""
    world.project.templates["global/instanceTemplates/gpu-node"]["properties"]["labels"] = {"team": "vision"}

    node_id = world.cloud.launch(ARGUMENTS, "gpuwatch-7f-12-ab")

    assert world.told(node_id)["labels"] == {
        "team": "vision",
        "gpuwatch-fleet": FLEET,
        "gpuwatch-pool": "train",
        "gpuwatch-decision-id": "gpuwatch-7f-12-ab",
    }


@pytest.mark.parametrize(
    ("subnet", "zone"),
    [(None, "us-central1-a"), ("us-central1-b", "us-central1-b"), ("us-central1-b/gpu-net", "us-central1-b")],
)
def test_a_launch_goes_to_the_zone_that_the_pool_names(world: GcpWorld, subnet: str | None, zone: str) -> None:
    """An entry of `subnets` is a zone, or a zone and a subnet; without one the first zone that has the type."""
    arguments = ARGUMENTS if subnet is None else {**ARGUMENTS, "subnet": subnet}

    assert seen(world, world.cloud.launch(arguments, "key")).zone == zone


@pytest.mark.parametrize("subnet", [None, "us-central1-b", "us-central1-b/gpu-net", "gpu-net"])
def test_a_launch_goes_to_the_zone_of_its_offer(world: GcpWorld, subnet: str | None) -> None:
    """Where the offer names a subnet, that one is in it."""
    arguments = {**ARGUMENTS, "zone": "us-central1-b"} | ({} if subnet is None else {"subnet": subnet})

    assert seen(world, world.cloud.launch(arguments, "key")).zone == "us-central1-b"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"subnet": "us-central1-a/gpu-net"}, "TwoZones"),
        ({"zone": "europe-west4-a", "region": "us-central1"}, "TwoRegions"),
    ],
)
def test_an_offer_in_two_places_launches_nothing(world: GcpWorld, more: dict[str, str], code: str) -> None:
    """Neither is guessed: a node elsewhere would not be known as the offer's, and may be out of the pool's regions."""
    with pytest.raises(CloudError) as caught:
        world.cloud.launch({**ARGUMENTS, "zone": "us-central1-b", **more}, "key")

    assert caught.value.code == code
    assert not world.project.machines


def test_a_launch_is_found_in_every_zone_after_a_restart(world: GcpWorld) -> None:
    """The key was used in one zone: it launches nothing in another."""
    node_id = world.cloud.launch({**ARGUMENTS, "subnet": "us-central1-b"}, "key")
    fresh = world.anew()

    assert fresh.launch({**ARGUMENTS, "subnet": "us-central1-b"}, "key") == node_id
    with pytest.raises(CloudError) as caught:
        fresh.launch({**ARGUMENTS, "subnet": "us-central1-a"}, "key")
    assert caught.value.code == "IdempotentParameterMismatch"
    assert len(world.project.machines) == 1


def test_a_version_of_a_template_is_refused(world: GcpWorld) -> None:
    """Google's templates have none; the wrong one would be launched."""
    with pytest.raises(CloudError, match="has no version '3'"):
        world.cloud.launch({**ARGUMENTS, "version": "3"}, "key")


# Groups


@pytest.mark.parametrize(("mode", "enrolled"), [("ON", False), ("ONLY_UP", False), ("OFF", True)])
def test_a_group_that_an_autoscaler_drives_is_the_autoscalers(world: GcpWorld, mode: str, enrolled: bool) -> None:
    """It would undo what gpuwatch does; switched off, its bounds are the group's."""
    group = add_group(world.project, "train", MINE, size=1)
    add_autoscaler(world.project, group, 1, 4, mode=mode)
    world.settle("")

    (shown,), (node,) = world.cloud.groups(), world.cloud.nodes()

    assert (shown.enrolled, shown.min_size, shown.max_size) == (enrolled, 1, 4)
    assert node.managed_by == (None if enrolled else "autoscaler train")
    if not enrolled:
        with pytest.raises(CloudError, match="belongs to autoscaler train"):
            world.cloud.grow(shown.id, 2, "key")


def test_a_templates_label_is_no_consent_of_a_group(world: GcpWorld) -> None:
    """Several groups may share a template: its label enrols machines, and the group stays its owner's."""
    world.project.templates["global/instanceTemplates/gpu-node"]["properties"]["labels"] = {"gpuwatch-fleet": FLEET}
    add_group(world.project, "theirs", {}, size=1)
    world.settle("")

    (node,), (group,) = world.cloud.nodes(), world.cloud.groups()

    assert (node.enrolled, node.managed_by, group.enrolled) == (True, "managed instance group theirs", False)


def test_a_machine_that_its_group_abandoned_is_nobody_elses(world: GcpWorld) -> None:
    """Its metadata still names the group, and the group does not count it among its own."""
    group = add_group(world.project, "train", MINE, size=1)
    world.settle("")
    (member,) = group.members
    group.told["targetSize"] = 0
    group.members.clear()

    node = seen(world, member)

    assert (node.group, node.managed_by) == (None, None)


def test_a_member_of_a_regional_group_goes_with_its_place(world: GcpWorld) -> None:
    """The group's path names a region, and the calls are those for regions."""
    group = add_group(world.project, "train", MINE, size=2)
    path = f"regions/{REGION}/instanceGroupManagers/train"
    del group.told["zone"]
    zones = [{"zone": world.project.link(f"zones/{ZONE}")}]
    group.told.update(region=world.project.link(f"regions/{REGION}"), distributionPolicy={"zones": zones})
    group.told["selfLink"] = world.project.link(path)
    world.project.groups = {path: group}
    world.settle("")
    world.settle("")
    (shown,), (gone, _) = world.cloud.groups(), world.cloud.nodes()
    assert (shown.id, shown.region, shown.zones) == (f"projects/{PROJECT}/{path}", REGION, (ZONE,))

    world.cloud.terminate(gone.id, "key", permit=a_permit(), group=shown.id)
    world.cloud.grow(shown.id, 3, "key")

    assert world.calls("regionInstanceGroupManagers.deleteInstances") == 1
    assert world.calls("regionInstanceGroupManagers.resize") == 1
    assert world.cloud.group(shown.id).desired == 3


def test_there_is_no_protection_of_a_member(world: GcpWorld) -> None:
    """That is said, and nothing is made of it."""
    group_id = world.add_group("train", MINE, size=1)

    with pytest.raises(CloudError, match="no protection of a member") as caught:
        world.cloud.protect(world.cloud.nodes()[0].id, group_id, "key", on=True)

    assert caught.value.code == "NotSupported"


# What is left, and what may be had


def test_addresses_that_nothing_uses_are_told(world: GcpWorld) -> None:
    """Reserved ones, and those of stopped machines; internal ones cost nothing."""
    stopped, running = world.launch(MINE), world.launch(MINE)
    world.cloud.stop(stopped, "key", permit=a_permit())
    world.settle(stopped)
    for number, (name, users, kind) in enumerate(
        [
            ("free", [], "EXTERNAL"),
            ("held", [world.told(stopped)["selfLink"]], "EXTERNAL"),
            ("used", [world.told(running)["selfLink"]], "EXTERNAL"),
            ("inside", [], "INTERNAL"),
        ]
    ):
        world.project.addresses[name] = {
            "kind": "compute#address",
            "id": str(77 + number),
            "name": name,
            "region": world.project.link(f"regions/{REGION}"),
            "selfLink": world.project.link(f"regions/{REGION}/addresses/{name}"),
            "addressType": kind,
            "status": "IN_USE" if users else "RESERVED",
            "users": users,
        }

    found = {each.name: each for each in world.cloud.leftovers() if each.type == ""}

    assert {name: each.kind for name, each in found.items()} == {
        "free": LeftoverKind.UNUSED_ADDRESS,
        "held": LeftoverKind.STOPPED_ADDRESS,
    }
    assert found["held"].node_id == stopped


def test_snapshots_of_disks_that_are_gone_are_listed(world: GcpWorld) -> None:
    """A snapshot of a disk that is there is a backup; one of a disk that is gone may be forgotten."""
    world.launch(MINE)
    (disk,) = world.project.disks.values()
    for number, (source, place) in enumerate(
        [(disk["selfLink"], "us"), ("gone", "us"), ("gone", REGION), ("gone", "asia-east1")]
    ):
        link = source if "/" in source else world.project.link(f"zones/{ZONE}/disks/{source}")
        world.project.snapshots.append(
            {
                "kind": "compute#snapshot",
                "id": str(90 + number),
                "name": f"snapshot-{number}",
                "selfLink": world.project.link(f"global/snapshots/snapshot-{number}"),
                "sourceDisk": link,
                "storageBytes": "5368709120",
                "storageLocations": [place],
                "creationTimestamp": "2026-01-01T19:04:05.000-08:00",
            }
        )

    found = [each for each in world.cloud.leftovers() if each.kind is LeftoverKind.SNAPSHOT]

    assert [(each.name, each.region, each.size_bytes) for each in found] == [
        ("snapshot-1", "us", 5 * 1024**3),
        ("snapshot-2", REGION, 5 * 1024**3),
    ]
    assert {each.made for each in found} == {datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)}


def test_quotas_of_gpus_are_told_with_what_is_used(world: GcpWorld) -> None:
    """Of the configured regions and of all together; a limit of none and what is committed are left out."""
    world.launch(MINE)
    assert isinstance(world.cloud, GcpCloud)

    assert world.cloud.quotas() == (
        Quota(name="GPUS_ALL_REGIONS", region="global", limit=16.0, used=1.0, unit="GPUs"),
        Quota(name="NVIDIA_L4_GPUS", region=REGION, limit=8.0, used=1.0, unit="GPUs"),
    )


def test_a_list_of_a_thousand_machines_is_whole(world: GcpWorld) -> None:
    """In pages of the size that Google takes at most."""
    for _ in range(1100):
        run(world.project, ZONE, MINE)

    nodes = world.cloud.nodes()

    assert len({node.id for node in nodes}) == 1100
    assert world.calls("instances.aggregatedList") == 3


def test_a_last_start_is_the_launch_time(world: GcpWorld) -> None:
    """In UTC, whatever zone Google writes it in."""
    node_id = world.launch(MINE)
    world.told(node_id)["lastStartTimestamp"] = "2026-01-04T16:00:00.000-08:00"

    launched = seen(world, node_id).launched_at

    assert launched == world.clock.now()
    assert launched.utcoffset() == timedelta(0)
    assert replace(seen(world, node_id), launched_at=None).launched_at is None
