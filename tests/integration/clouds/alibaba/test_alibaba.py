"""Alibaba Cloud's ECS as it really is: what is asked word for word, odd machines, places, what is left of machines."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from alibabacloud_credentials.utils import auth_util

from gpuwatch.clouds import (
    AuthFailedError,
    CloudError,
    LeftoverKind,
    NotFoundError,
    ProtectedError,
)
from gpuwatch.clouds.alibaba.settings import AlibabaSettings
from gpuwatch.clouds.settings import CloudSettings, connect
from gpuwatch.model.fleet import CapacityType, Node, NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.alibaba.fake import KEY_ID, SECRET
from tests.support.clouds.alibaba.state import ACCOUNT, Address, Snapshot
from tests.support.clouds.alibaba.world import GPU_TYPE, OTHER_REGION, REGION, AlibabaWorld, a_world
from tests.support.clouds.faults import Fault, when
from tests.support.fakes.cloud_worlds import FLEET, MINE, TEMPLATE


@pytest.fixture
def world() -> Iterator[AlibabaWorld]:
    """An empty account."""
    with a_world(ManualClock()) as world:
        yield world


def sent(world: AlibabaWorld, action: str) -> dict[str, str]:
    """The parameters of the newest such call."""
    return dict([entry.request.query for entry in world.server.log if entry.asked.operation == action][-1])


def only(world: AlibabaWorld) -> Node:
    """The one machine of the list, which a single question tells likewise."""
    (node,) = world.cloud.nodes()
    assert world.cloud.node(node.id) == node
    return node


# What is asked


def test_a_stop_asks_for_the_end_of_the_bill_and_never_cuts_the_power(world: AlibabaWorld) -> None:
    """Without StoppedMode the account's own default decides, which may go on charging."""
    node_id = world.launch(MINE)

    world.cloud.stop(node_id, "key", permit=a_permit())

    assert sent(world, "StopInstance") == {
        "InstanceId": node_id,
        "StoppedMode": "StopCharging",
        "ForceStop": "false",
    }


@pytest.mark.parametrize("stopped", [False, True])
def test_an_end_goes_through_the_machines_own_shutdown(world: AlibabaWorld, *, stopped: bool) -> None:
    """ForceStop is true where nobody says otherwise: that would be as cutting the power."""
    node_id = world.launch(MINE)
    if stopped:
        world.cloud.stop(node_id, "key", permit=a_permit())
        world.settle(node_id)

    world.cloud.terminate(node_id, "key", permit=a_permit())

    assert sent(world, "DeleteInstance") == {"InstanceId": node_id, "Force": "true", "ForceStop": "false"}
    assert world.cloud.node(node_id).state is NodeState.TERMINATING  # type: ignore[union-attr]


def test_a_launch_is_one_machine_by_template_token_and_name(world: AlibabaWorld) -> None:
    """The name finds it again: ECS cannot be asked by ClientToken."""
    world.cloud.launch({"template": TEMPLATE, "pool": "train", "subnet": "vsw-1", "region": REGION}, "gpuwatch-l-7")

    assert sent(world, "RunInstances") == {
        "RegionId": REGION,
        "Amount": "1",
        "ClientToken": "gpuwatch-l-7",
        "LaunchTemplateName": TEMPLATE,
        "InstanceName": "gpuwatch-gpuwatch-l-7",
        "VSwitchId": "vsw-1",
        "Tag.1.Key": "gpuwatch:decision-id",
        "Tag.1.Value": "gpuwatch-l-7",
        "Tag.2.Key": "gpuwatch:fleet",
        "Tag.2.Value": FLEET,
        "Tag.3.Key": "gpuwatch:pool",
        "Tag.3.Value": "train",
    }


def test_the_newest_version_of_a_template_is_asked_for_by_its_number(world: AlibabaWorld) -> None:
    """RunInstances takes no $Latest."""
    world.fake.state.templates[f"lt-{REGION}-{TEMPLATE}"].types.append("ecs.gn7i-c16g1.4xlarge")

    made = world.cloud.launch({"template": TEMPLATE, "version": "$Latest"}, "key")

    assert sent(world, "RunInstances")["LaunchTemplateVersion"] == "2"
    assert world.machine(made).type == "ecs.gn7i-c16g1.4xlarge"


@pytest.mark.parametrize("key", ["", "k" * 65, "schlüssel"])
def test_a_key_that_is_no_token_launches_nothing(world: AlibabaWorld, key: str) -> None:
    """It is refused before anything is asked."""
    with pytest.raises(ValueError, match="64 ASCII characters"):
        world.cloud.launch({"template": TEMPLATE}, key)

    assert world.server.log == []


def test_a_key_with_other_characters_is_found_again(world: AlibabaWorld) -> None:
    """The name is then a digest of it."""
    made = world.cloud.launch({"template": TEMPLATE}, "a key/with spaces")

    found = world.another().find("a key/with spaces")
    assert found is not None
    assert found.id == made


# Odd machines


@pytest.mark.parametrize(
    ("made", "kind", "billed"),
    [
        ({"charge": "PrePaid"}, CapacityType.PREPAID, "prepaid until 2027-01-31"),
        ({"spot": "SpotAsPriceGo"}, CapacityType.SPOT, None),
        ({"host": "dh-1"}, CapacityType.DEDICATED_HOST, "dedicated host dh-1"),
        ({"reservation": "crp-1"}, CapacityType.RESERVED, "reservation crp-1"),
        ({"network": "classic"}, CapacityType.ON_DEMAND, "classic"),
    ],
)
def test_how_a_machine_was_bought_is_told(
    world: AlibabaWorld, made: dict[str, str], kind: CapacityType, billed: str | None
) -> None:
    """And why a stop would not end its bill."""
    machine = world.machine(world.launch(MINE))
    for name, value in made.items():
        setattr(machine, name, value)

    node = only(world)

    assert node.capacity_type is kind
    assert (node.still_billed is None) if billed is None else billed in (node.still_billed or "")


def test_a_machine_with_local_disks_says_so_and_stays_on_the_bill(world: AlibabaWorld) -> None:
    """ECS refuses nothing: it stops such a machine and goes on billing it. The list tells before and after."""
    node_id = world.launch(MINE, kind="ecs.gn5-c4g1.xlarge")
    before = only(world)
    world.cloud.stop(node_id, "key", permit=a_permit())
    world.settle(node_id)
    after = only(world)

    assert before.instance_store
    assert "local disks" in (before.still_billed or "")
    assert after.state is NodeState.STOPPED
    assert after.still_billed == "it is stopped in the mode Not-applicable, not StopCharging"


def test_a_machine_that_somebody_stopped_in_the_other_mode_is_told(world: AlibabaWorld) -> None:
    """KeepCharging, as in an account whose default nobody has changed."""
    machine = world.machine(world.launch(MINE))
    machine.status, machine.stopped_mode = "Stopped", "KeepCharging"

    assert only(world).still_billed == "it is stopped in the mode KeepCharging, not StopCharging"


def test_a_slice_of_a_gpu_counts_as_one(world: AlibabaWorld) -> None:
    """Alibaba writes GPUAmount 0 and the share in GPUSpec."""
    world.launch(MINE, kind="ecs.gn7i-vws-m2.xlarge")

    assert only(world).gpu_count == 1


def test_deletion_protection_and_prepayment_are_no_end(world: AlibabaWorld) -> None:
    """Told in the list; and the cloud's own refusal is typed."""
    node_id = world.launch(MINE)
    world.machine(node_id).protected = True

    assert only(world).cannot_terminate == "its deletion protection is on"
    with pytest.raises(ProtectedError):
        world.cloud.terminate(node_id, "key", permit=a_permit())
    world.machine(node_id).charge = "PrePaid"
    assert only(world).cannot_terminate == "it is prepaid, and such a machine can only be refunded"
    assert world.state(node_id) is NodeState.RUNNING


def test_a_lock_is_told_and_refuses_a_stop(world: AlibabaWorld) -> None:
    """For security, or because the account owes money."""
    node_id = world.launch(MINE)
    world.machine(node_id).locks = ["security"]

    assert only(world).cannot_stop == "Alibaba Cloud has locked it (security)"
    with pytest.raises(ProtectedError):
        world.cloud.stop(node_id, "key", permit=a_permit())


def test_a_spot_machine_that_is_taken_back_is_on_its_way_out(world: AlibabaWorld) -> None:
    """Its lock says so, minutes before it goes."""
    node_id = world.launch(MINE)
    world.terminate(node_id)

    node = only(world)

    assert (node.state, node.cannot_stop) == (NodeState.TERMINATING, None)


@pytest.mark.parametrize("status", ["Hibernating", ""])
def test_a_state_that_nobody_knows_is_a_doubt(world: AlibabaWorld, status: str) -> None:
    """Such a machine is left alone."""
    world.machine(world.launch(MINE)).status = status

    assert only(world).state is NodeState.UNKNOWN


def test_a_machine_without_gpus_is_left_out(world: AlibabaWorld) -> None:
    """Also one of the fleet."""
    world.launch(MINE, gpus=False)

    assert list(world.cloud.nodes()) == []


# What is gone


def test_a_machine_that_was_seen_is_gone_when_two_calls_deny_it(world: AlibabaWorld) -> None:
    """A released instance is shown no more at once; the list alone proves nothing."""
    node_id = world.launch(MINE)
    world.cloud.nodes()
    del world.fake.state.machines[node_id]

    node = world.cloud.node(node_id)
    assert node is not None
    assert node.state is NodeState.TERMINATED
    assert list(world.cloud.nodes()) == []
    assert world.server.count("DescribeInstanceAttribute") >= 1


def test_a_machine_that_the_list_leaves_out_is_not_gone(world: AlibabaWorld) -> None:
    """While another call still knows it, it counts and is left alone."""
    node_id = world.launch(MINE)
    world.cloud.nodes()
    world.server.plan.strike(Fault.STALE, when(operation="DescribeInstances"), times=None)
    world.machine(node_id).region = "elsewhere"  # neither list has it

    assert {node.id: node.state for node in world.cloud.nodes()} == {node_id: NodeState.UNKNOWN}
    with pytest.raises(NotFoundError):
        world.cloud.node(node_id)


def test_after_a_restart_an_id_that_is_nowhere_proves_nothing(world: AlibabaWorld) -> None:
    """It may be too new, or of another account."""
    node_id = world.launch(MINE)
    world.cloud.nodes()
    del world.fake.state.machines[node_id]

    with pytest.raises(NotFoundError):
        world.another().node(node_id)


# Places


def test_machines_of_every_region_are_listed_and_acted_on_where_they_are(world: AlibabaWorld) -> None:
    """`regions: [all]` asks the account for its regions, once."""
    here, there = world.launch(MINE), world.launch(MINE, region=OTHER_REGION)
    cloud = world.another(["all"])

    assert {node.id: node.region for node in cloud.nodes()} == {here: REGION, there: OTHER_REGION}
    cloud.stop(there, "key", permit=a_permit())
    cloud.nodes()

    assert world.state(there) is NodeState.STOPPING
    assert world.server.count("DescribeRegions") == 1


def test_gpu_machines_in_other_regions_are_counted(world: AlibabaWorld) -> None:
    """And a region where we may not look is told as such."""
    there = world.launch({}, region=OTHER_REGION)

    (found,) = world.another().elsewhere()
    assert (found.where, found.machines) == (OTHER_REGION, (f"{there} ({GPU_TYPE})",))
    assert [(node.id, node.region, node.gpu_count) for node in found.nodes] == [(there, OTHER_REGION, 1)]

    world.fake.denied.add("ecs:DescribeInstances")
    (refused,) = world.another().elsewhere()
    assert (refused.machines, refused.refused) == ((), "Forbidden.RAM")


def test_without_a_region_nothing_is_set_up(world: AlibabaWorld) -> None:
    """Every list would be empty, and look like an empty fleet."""
    with pytest.raises(CloudError, match=r"no region is known; set cloud\.regions"):
        world.another([])


def test_the_settings_lead_to_the_cloud_with_the_sdks_own_credentials(
    world: AlibabaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the environment, which the official chain reads as it is loaded; never from the settings."""
    monkeypatch.setattr(auth_util, "environment_access_key_id", KEY_ID)
    monkeypatch.setattr(auth_util, "environment_access_key_secret", SECRET)
    node_id = world.launch(MINE)
    settings = CloudSettings(
        provider="alibaba", regions=(REGION,), endpoint_url=world.server.url, alibaba=AlibabaSettings()
    )

    nodes = connect(settings, fleet=FLEET, clock=world.clock).nodes()

    assert [(node.id, node.account) for node in nodes] == [(node_id, ACCOUNT)]


class NoCredentials:
    """A chain in which nothing is found."""

    def get_credentials(self) -> Any:  # noqa: ANN401  as the SDK's
        """Its error tells what it tried."""
        raise RuntimeError("s3cret")


def test_missing_credentials_are_told_without_the_sdks_text(world: AlibabaWorld) -> None:
    """Which may quote a file or a helper."""
    with pytest.raises(AuthFailedError, match="no usable Alibaba Cloud credentials") as caught:
        world.another(provider=NoCredentials()).nodes()

    assert "s3cret" not in str(caught.value)
    assert "set ALIBABA_CLOUD_ACCESS_KEY_ID and" in str(caught.value)
    assert world.server.log == []


# Lists


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_a_list_is_whole_over_pages_of_any_filling(world: AlibabaWorld, count: int) -> None:
    """Pages of two here; a full last page is counted, since the total of such answers means nothing."""
    ids = sorted(world.launch(MINE) for _ in range(count))

    assert [node.id for node in world.cloud.nodes()] == ids


# What is left


def test_snapshots_of_disks_that_are_gone_are_told(world: AlibabaWorld) -> None:
    """Those of living disks are backups, and an image needs its own."""
    world.launch(MINE)
    state = world.fake.state
    living = next(iter(state.disks))
    for name, disk, usage in (("s-1", "d-gone", "none"), ("s-2", living, "none"), ("s-3", "d-gone", "image")):
        state.snapshots[name] = Snapshot(id=name, region=REGION, disk=disk, usage=usage)

    (found,) = world.cloud.leftovers()

    assert (found.id, found.kind, found.size_bytes, found.provider) == (
        "s-1",
        LeftoverKind.SNAPSHOT,
        40 * 1024**3,
        "alibaba",
    )
    assert found.made == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_disks_and_addresses_of_nobody_and_of_stopped_machines_are_told(world: AlibabaWorld) -> None:
    """Local disks are a part of their machine, and are no leftover."""
    stopped, running = world.launch(MINE), world.launch(MINE)
    world.cloud.stop(stopped, "key", permit=a_permit())
    world.settle(stopped)
    state = world.fake.state
    for name, machine in (("eip-1", stopped), ("eip-2", running), ("eip-3", None)):
        state.addresses[name] = Address(id=name, region=REGION, machine=machine)
    local = next(disk for disk in state.disks.values() if disk.machine == stopped)
    local.category = "local_ssd_pro"
    loose = world.add_volume()

    found = {each.id: (each.kind, each.node_id) for each in world.cloud.leftovers()}

    assert found == {
        loose: (LeftoverKind.UNATTACHED_VOLUME, None),
        "eip-1": (LeftoverKind.STOPPED_ADDRESS, stopped),
        "eip-3": (LeftoverKind.UNUSED_ADDRESS, None),
    }
