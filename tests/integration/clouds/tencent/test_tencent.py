"""What is Tencent Cloud's own: stopped is not unbilled, what a machine's answer says, launches, groups, lists."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from gpuwatch.clouds import (
    ClockSkewError,
    CloudUnavailableError,
    NotFoundError,
    ProtectedError,
)
from gpuwatch.clouds.tencent import client
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.model.fleet import CapacityType, NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.tencent.world import REGION, TencentWorld, a_world
from tests.support.fakes.cloud_worlds import MINE


@pytest.fixture
def world() -> Iterator[TencentWorld]:
    """An empty account."""
    with a_world(ManualClock()) as world:
        yield world


# Stopped must mean not billed


def test_a_stop_asks_for_the_end_of_charging_and_never_for_the_power_switch(world: TencentWorld) -> None:
    """The default would go on charging; the answer after the stop says that it does not."""
    node_id = world.launch(MINE)
    assert world.shown(node_id).still_billed is None

    world.cloud.stop(node_id, "key", permit=a_permit())
    world.settle(node_id)

    assert world.sent("StopInstances") == [
        {"InstanceIds": [node_id], "StopType": "SOFT", "StoppedMode": "STOP_CHARGING"}
    ]
    assert (world.shown(node_id).state, world.shown(node_id).still_billed) == (NodeState.STOPPED, None)


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("KEEP_CHARGING", "it was stopped without STOP_CHARGING, and goes on charging (KEEP_CHARGING)"),
        ("NOT_APPLICABLE", "Tencent Cloud does not say that it has stopped charging (StopChargingMode NOT_APPLICABLE)"),
        (None, "Tencent Cloud does not say that it has stopped charging (StopChargingMode None)"),
    ],
)
def test_a_stopped_machine_that_goes_on_charging_is_told(world: TencentWorld, mode: str | None, why: str) -> None:
    """Somebody stopped it by the console, or the cloud does not say."""
    node_id = world.launch(MINE, state="STOPPED")
    world.machine(node_id).overrides["StopChargingMode"] = mode

    assert world.shown(node_id).still_billed == why


@pytest.mark.parametrize(
    ("more", "kind", "why"),
    [
        ({"charge": "PREPAID"}, CapacityType.PREPAID, "paid by the month or the year"),
        ({"charge": "SPOTPAID"}, CapacityType.SPOT, "spot instance"),
        ({"charge": "CDHPAID"}, CapacityType.DEDICATED_HOST, "dedicated host"),
        ({"charge": "UNDERWRITE"}, CapacityType.RESERVED, "'UNDERWRITE'"),
        ({"disk_types": ("CLOUD_PREMIUM", "LOCAL_NVME")}, CapacityType.ON_DEMAND, "local disk (LOCAL_NVME)"),
    ],
)
def test_what_would_go_on_charging_is_known_before_a_stop(
    world: TencentWorld, more: dict[str, Any], kind: CapacityType, why: str
) -> None:
    """The guard refuses the stop by that reason; the cloud would refuse it as well."""
    node_id = world.launch(MINE, **more)

    node = world.shown(node_id)

    assert node.capacity_type is kind
    assert node.still_billed is not None
    assert why in node.still_billed
    with pytest.raises(ProtectedError) as caught:
        world.cloud.stop(node_id, "key", permit=a_permit())
    assert caught.value.code == "UnsupportedOperation.StoppedModeStopCharging"
    assert world.machine(node_id).state == "RUNNING"


# What a machine's answer says


def test_an_operation_that_is_under_way_counts_although_the_state_lags(world: TencentWorld) -> None:
    """LatestOperationState OPERATING: the state before it is over."""
    stopping, starting, other = (world.launch(MINE, state=state) for state in ("RUNNING", "STOPPED", "RUNNING"))
    for node_id, operation in ((stopping, "StopInstances"), (starting, "StartInstances"), (other, "ResizeDisk")):
        world.machine(node_id).overrides |= {"LatestOperation": operation, "LatestOperationState": "OPERATING"}

    assert world.shown(stopping).state is NodeState.STOPPING
    assert world.shown(starting).state is NodeState.PENDING
    assert world.shown(other).state is NodeState.RUNNING


def test_a_stop_that_has_failed_shows_a_machine_that_runs(world: TencentWorld) -> None:
    """Accepted is not done: LatestOperationState FAILED."""
    node_id = world.launch(MINE)
    world.machine(node_id).overrides |= {"LatestOperation": "StopInstances", "LatestOperationState": "FAILED"}

    assert world.shown(node_id).state is NodeState.RUNNING


@pytest.mark.parametrize("state", ["REBOOTING", "RESCUE_MODE", "SERVICE_LIVE_MIGRATE", "A_NEW_WORD"])
def test_a_state_that_is_in_doubt_is_unknown(world: TencentWorld, state: str) -> None:
    """Such a machine counts, and is left alone."""
    assert world.shown(world.launch(MINE, state=state)).state is NodeState.UNKNOWN


def test_a_launch_of_ours_that_failed_was_never_a_machine(world: TencentWorld) -> None:
    """Its name is that of the decision, as its tag says: it is in no list of nodes."""
    node_id = world.launch({**MINE, DECISION_TAG: "key"}, state="LAUNCH_FAILED", name="key")

    node = world.cloud.node(node_id)

    assert node is not None
    assert node.state is NodeState.TERMINATED
    assert world.cloud.nodes() == ()


@pytest.mark.parametrize("tags", [{}, {DECISION_TAG: "of a notice"}])
def test_the_same_word_about_a_machine_of_others_is_a_doubt(world: TencentWorld, tags: dict[str, str]) -> None:
    """A machine with years of data is not reported gone by one word."""
    node_id = world.launch({**MINE, **tags}, state="LAUNCH_FAILED", name="old")

    assert world.shown(node_id).state is NodeState.UNKNOWN


def test_the_recycle_bin_is_the_way_out(world: TencentWorld) -> None:
    """What is shut down there is still shown."""
    assert world.shown(world.launch(MINE, state="SHUTDOWN")).state is NodeState.TERMINATING


@pytest.mark.parametrize("state", ["RUNNING", "STOPPED"])
def test_what_the_cloud_has_isolated_is_on_its_way_out(world: TencentWorld, state: str) -> None:
    """It can neither be started nor be ended twice."""
    node_id = world.launch(MINE, state=state)
    world.machine(node_id).overrides["RestrictState"] = "PROTECTIVELY_ISOLATED"

    assert world.shown(node_id).state is NodeState.TERMINATING


@pytest.mark.parametrize(
    "hole",
    [
        {"CreatedTime": None},
        {"CreatedTime": "2026-01-01 08:00:00"},  # no zone: nobody knows whether it is UTC or UTC+8
        {"InstanceChargeType": None},
        {"Tags": None},
        {"Placement": {"Zone": ""}},
    ],
)
def test_a_description_with_holes_is_a_doubt(world: TencentWorld, hole: dict[str, Any]) -> None:
    """A machine whose tags, price or age are not told is left alone."""
    node_id = world.launch(MINE)
    before = world.cloud.nodes()
    world.machine(node_id).overrides |= hole

    if "Tags" in hole:  # nor is it known whose it is
        assert world.cloud.node(node_id).state is NodeState.UNKNOWN  # type: ignore[union-attr]
    else:
        assert (len(before), world.shown(node_id).state) == (1, NodeState.UNKNOWN)


def test_a_part_of_a_gpu_counts_as_one_and_a_cpu_machine_as_none(world: TencentWorld) -> None:
    """GPUCount is a fraction for a vGPU; the types of machines without GPUInfo are looked up once."""
    part = world.fake.state.add_machine(REGION, "GN7vw.LARGE16", tags=MINE).id
    eight = world.fake.state.add_machine(REGION, "GN10Xp.20XLARGE320", tags=MINE).id
    for _ in range(3):
        world.launch(MINE, gpus=False)

    assert {node.id: node.gpu_count for node in world.cloud.nodes()} == {part: 1, eight: 8}
    world.cloud.nodes()
    assert len(world.sent("DescribeInstanceTypeConfigs")) == 1


def test_a_type_that_is_not_described_is_left_alone_and_asked_for_again(world: TencentWorld) -> None:
    """Enrolled, it is a node with unknown GPUs; a stranger's is left out."""
    mine = world.fake.state.add_machine(REGION, "GX1.NEW", tags=MINE).id
    world.fake.state.add_machine(REGION, "GX1.NEW")

    assert [(node.id, node.gpu_count) for node in world.cloud.nodes()] == [(mine, None)]
    world.cloud.nodes()
    assert len(world.sent("DescribeInstanceTypeConfigs")) == 1
    world.clock.advance(61)
    world.cloud.nodes()
    assert len(world.sent("DescribeInstanceTypeConfigs")) == 2


def test_a_machine_that_is_protected_in_the_cloud_is_told(world: TencentWorld) -> None:
    """DisableApiTermination is in the list: nobody needs to try."""
    node_id = world.launch(MINE, protected=True)

    assert "DisableApiTermination" in (world.shown(node_id).cannot_terminate or "")


@pytest.mark.parametrize(
    ("tags", "owner"),
    [
        ({"tke-clusterId": "cls-1"}, "TKE cluster cls-1"),
        ({"tencentcloud:emr:cluster": "emr-1"}, "EMR emr-1"),
        ({"tencentcloud:something": "new"}, "a service of Tencent Cloud new"),
        ({"kubernetes.io/cluster/prod": "owned"}, "Kubernetes cluster prod"),
        ({"qcs:tag:createdBy": "Root:1"}, None),
    ],
)
def test_what_another_system_owns_is_theirs(world: TencentWorld, tags: dict[str, str], owner: str | None) -> None:
    """By the tags that such systems leave; who pays is no owner."""
    assert world.shown(world.launch({**MINE, **tags})).managed_by == owner


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("tke_cls-4bqctahq_worker", "TKE cluster cls-4bqctahq"),  # recorded, with Tags []
        ("tke_cls-13rigq6t_worker", "TKE cluster cls-13rigq6t"),  # of the SDK's documentation, with Tags null
        ("tke-np-abc", "TKE"),
        ("tokens", None),
    ],
)
@pytest.mark.parametrize("tags", [[], None])
def test_what_tke_made_is_theirs_by_its_name(
    world: TencentWorld, name: str, owner: str | None, tags: list[dict[str, str]] | None
) -> None:
    """TKE leaves no tag on a machine."""
    node_id = world.launch(MINE, name=name)
    if tags is not None:
        world.machine(node_id).overrides["Tags"] = tags

    assert world.shown(node_id).managed_by == owner


def test_what_is_in_a_cluster_is_theirs_by_the_clouds_own_word(world: TencentWorld) -> None:
    """Somebody has put a machine of another name into a cluster: neither its name nor a tag says so."""
    inside, outside = world.launch(MINE, cluster="cls-1"), world.launch(MINE)

    assert world.shown(inside).managed_by == "TKE cluster cls-1"
    assert world.shown(outside).managed_by is None


def test_a_cluster_s_member_of_our_own_group_is_still_theirs(world: TencentWorld) -> None:
    """The consent of a group's owner does not overrule TKE."""
    world.add_group("train", MINE, size=1)
    world.cloud.nodes()
    world.clock.advance(60)
    (node,) = world.cloud.nodes()
    world.machine(node.id).cluster = "cls-1"

    assert world.shown(node.id).managed_by == "TKE cluster cls-1"


def test_without_the_right_to_ask_tke_each_machine_may_be_theirs(world: TencentWorld) -> None:
    """A doubt about whose it is leaves it alone, and names the right."""
    node_id = world.launch(MINE)
    world.fake.refusals["DescribeExistedInstances"] = ["UnauthorizedOperation"] * 2

    owner = world.shown(node_id).managed_by

    assert owner is not None
    assert "tke:DescribeExistedInstances is not allowed" in owner


def test_where_there_is_no_tke_nothing_is_in_a_cluster(world: TencentWorld) -> None:
    """The service is not in every region."""
    node_id = world.launch(MINE)
    world.fake.refusals["DescribeExistedInstances"] = ["UnsupportedRegion"] * 2

    assert world.shown(node_id).managed_by is None


def test_tke_is_asked_about_the_fleet_s_machines_alone(world: TencentWorld) -> None:
    """No other one is touched, whatever it is."""
    own = world.launch(MINE)
    world.launch({})
    world.cloud.nodes()

    assert [asked["InstanceIds"] for asked in world.sent("DescribeExistedInstances")] == [[own]]


def test_no_list_says_what_the_cloud_will_end(world: TencentWorld) -> None:
    """That is not the same as that it will end nothing."""
    assert world.shown(world.launch(MINE)).announced is None


def test_what_ended_while_nobody_looked_is_not_known(world: TencentWorld) -> None:
    """Only a machine that was ending is told as terminated; another one that is not listed may be anything."""
    node_id = world.launch(MINE)
    world.cloud.nodes()
    del world.fake.state.machines[node_id]

    with pytest.raises(NotFoundError):
        world.cloud.node(node_id)
    assert [(node.id, node.state) for node in world.cloud.nodes()] == [(node_id, NodeState.UNKNOWN)]
    world.clock.advance(3600)
    assert world.cloud.nodes() == ()


def test_an_end_is_told_for_an_hour(world: TencentWorld) -> None:
    """Tencent Cloud lists nothing after the end; this process remembers it, as EC2 does by itself."""
    node_id = world.launch(MINE)
    world.cloud.nodes()
    world.lose_response("terminate")
    with pytest.raises(CloudUnavailableError):
        world.cloud.terminate(node_id, "key", permit=a_permit())
    world.settle(node_id)

    assert world.cloud.nodes() == ()
    assert world.cloud.node(node_id).state is NodeState.TERMINATED  # type: ignore[union-attr]
    world.clock.advance(timedelta(hours=2).total_seconds())
    world.cloud.nodes()
    with pytest.raises(NotFoundError):
        world.cloud.node(node_id)


# Lists


def test_a_list_is_had_whole_at_the_apis_own_limit(world: TencentWorld) -> None:
    """A thousand machines are ten pages of a hundred."""
    ids = sorted(world.launch(MINE) for _ in range(1000))

    assert [node.id for node in world.cloud.nodes()] == ids
    assert [each["Offset"] for each in world.sent("DescribeInstances")] == [*range(0, 1000, 100)]


def test_a_machine_that_moves_out_of_sight_between_two_pages_is_not_lost(
    world: TencentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages are counted by Offset: when one goes in between, the list is read again."""
    monkeypatch.setattr(client, "PAGE_SIZE", 5)
    ids = sorted(world.launch(MINE) for _ in range(12))
    pages: list[int] = []
    real = world.fake.answer

    def answered(request: Any) -> Any:  # noqa: ANN401  the server's
        if request.headers["x-tc-action"] == "DescribeInstances":
            pages.append(request.json["Offset"])
            if len(pages) == 2:
                del world.fake.state.machines[ids[-1]]
        return real(request)

    monkeypatch.setattr(world.fake, "answer", answered)

    assert [node.id for node in world.cloud.nodes()] == ids[:-1]
    assert pages == [0, 5, 10, 0, 5, 10]


def test_a_clock_that_is_wrong_is_named(world: TencentWorld) -> None:
    """A signature holds for five minutes."""
    world.server.plan.strike(Fault.SKEW, when(operation="DescribeInstances"))

    with pytest.raises(ClockSkewError, match="set this machine's clock") as caught:
        world.cloud.nodes()

    assert caught.value.code == "AuthFailure.SignatureExpire"
