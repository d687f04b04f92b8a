"""Why Auto Scaling groups get no more machines: what AS says of its tries, and what it may say instead."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from gpuwatch.model.fleet import GroupRefusal
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.tencent.state import Activity
from tests.support.clouds.tencent.world import TencentWorld, a_world
from tests.support.fakes.cloud_worlds import MINE

CALL = "DescribeAutoScalingActivities"


@pytest.fixture
def world() -> Iterator[TencentWorld]:
    """An empty account."""
    with a_world(ManualClock()) as world:
        yield world


def short(world: TencentWorld, *, code: str = "ResourceInsufficient") -> str:
    """A group with two members that wants four, for which its cloud has none, with that code of CVM; its id."""
    group_id = world.add_group("trainers", MINE, size=2, MaxSize=6)
    world.no_stock(group_id)
    world.fake.state.groups[group_id].error = code
    world.clock.advance(60.0)
    world.cloud.grow(group_id, 4, "key-1")
    return group_id


def newest(world: TencentWorld, group_id: str) -> Activity:
    """The group's newest activity."""
    return world.fake.state.groups[group_id].activities[-1]


def later(world: TencentWorld, group_id: str, status: str, **changes: object) -> None:
    """Another activity, a minute after the newest."""
    own = Activity(
        id="asa-0000late", status=status, began=newest(world, group_id).began + timedelta(minutes=1), changes=changes
    )
    world.fake.state.groups[group_id].activities.append(own)


def refused(world: TencentWorld, group_id: str) -> GroupRefusal | None:
    """What the group says, listed and alone alike."""
    (listed,) = world.cloud.groups()
    assert world.cloud.group(group_id) == listed
    assert (listed.desired, len(listed.node_ids)) == (4, 2)
    return listed.refused


def detail(code: str, message: str) -> dict[str, Any]:
    """One entry of DetailedStatusMessageSet."""
    return {"Code": code, "Message": message, "Zone": "ap-guangzhou-3"}


def test_the_refusal_is_in_the_clouds_words_and_from_after_the_growth(world: TencentWorld) -> None:
    """The code of CVM, which the message names, comes first."""
    group_id = short(world)
    asked = world.clock.now()

    found = refused(world, group_id)

    assert found is not None
    assert found.why.startswith("ResourceInsufficient: Failed to launch instance. Instance type: `GN10X")
    assert asked <= found.at <= world.clock.now()


def test_only_the_last_hour_of_the_groups_own_launches_is_asked_for(world: TencentWorld) -> None:
    """A record goes back two years."""
    group_id = short(world)
    world.cloud.groups()

    (asked,) = world.sent(CALL)
    since = world.clock.now() - timedelta(hours=1)
    assert asked["StartTime"] == since.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert {each["Name"]: each["Values"] for each in asked["Filters"]} == {
        "auto-scaling-group-id": [group_id],
        "activity-type": ["SCALE_OUT"],
    }


@pytest.mark.parametrize(
    ("code", "counts"),
    [
        ("ResourceInsufficient", True),
        ("ResourceInsufficient.SpecifiedInstanceType", True),
        ("ResourcesSoldOut.SpecifiedInstanceType", True),
        ("LimitExceeded.CvmInstanceQuota", True),
        ("InvalidImageId.NotFound", False),
        ("ResourceInsufficient.AutoScalingGroupAboveMaxSize", False),
        ("UnauthorizedOperation.PermissionDenied", False),
        ("SomethingNew", False),
    ],
)
def test_only_no_stock_and_no_quota_count(world: TencentWorld, code: str, *, counts: bool) -> None:
    """A launch configuration that does not work is no lack of machines."""
    assert (refused(world, short(world, code=code)) is not None) is counts


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({"DetailedStatusMessageSet": [detail("ResourcesSoldOut", "")]}, True),
        ({"DetailedStatusMessageSet": [detail("InvalidInstanceType", "x"), detail("InstanceTypeSoldOut", "x")]}, True),
        ({"DetailedStatusMessageSet": [], "StatusMessage": "LatestOperationCode: `LimitExceeded.CpuQuota`."}, True),
        ({"DetailedStatusMessageSet": [detail("InvalidInstanceType", "ResourceInsufficient")]}, False),
        ({"DetailedStatusMessageSet": [], "StatusMessage": "Insufficient balance"}, False),
        ({"DetailedStatusMessageSet": [], "StatusMessage": ""}, False),
    ],
    ids=["in its code", "in one of them", "in the message alone", "a word in a text", "no code", "nothing"],
)
def test_where_the_code_stands(world: TencentWorld, changes: dict[str, object], *, counts: bool) -> None:
    """In the code of a detail, or named as a code in its message or in the activity's."""
    group_id = short(world, code="SomethingNew")
    newest(world, group_id).changes = {"StatusMessage": "", **changes}

    assert (refused(world, group_id) is not None) is counts


def test_a_part_of_what_was_asked_for_is_refused(world: TencentWorld) -> None:
    """One of two came."""
    group_id = world.add_group("trainers", MINE, size=1, MaxSize=6)
    world.fake.state.groups[group_id].stock = 2
    world.cloud.grow(group_id, 4, "key-1")
    assert newest(world, group_id).status == "PARTIALLY_SUCCESSFUL"

    assert refused(world, group_id) is not None


@pytest.mark.parametrize("status", ["SUCCESSFUL", "FAILED"])
def test_an_older_refusal_is_none(world: TencentWorld, status: str) -> None:
    """One came, or the next try failed for another reason: the newest decides, whatever the order of the list."""
    group_id = short(world)
    later(world, group_id, status)
    world.fake.state.groups[group_id].activities.reverse()

    assert refused(world, group_id) is None


@pytest.mark.parametrize(
    ("status", "changes"),
    [("RUNNING", {"EndTime": ""}), ("INIT", {}), ("CANCELLED", {}), ("SUCCESSFUL", {"ActivityType": "SCALE_IN"})],
)
def test_what_tried_nothing_or_goes_on_says_nothing(
    world: TencentWorld, status: str, changes: dict[str, object]
) -> None:
    """The refusal before it stays."""
    group_id = short(world)
    later(world, group_id, status, **changes)

    assert refused(world, group_id) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"AutoScalingGroupId": "asg-other"},
        {"EndTime": "2099-01-01T00:00:00Z"},
        {"EndTime": "2026-01-01T00:00:00"},
        {"StartTime": "soon"},
    ],
    ids=["of another group", "from the future", "without a zone", "no time"],
)
def test_a_record_that_cannot_be_believed_says_nothing(world: TencentWorld, changes: dict[str, object]) -> None:
    """The group is waited for, and the round goes on. A local time that is called UTC is eight hours ahead."""
    group_id = short(world)
    newest(world, group_id).changes = changes

    assert refused(world, group_id) is None


def test_without_the_right_to_ask_the_group_is_shown_all_the_same(
    world: TencentWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning names the call and the place."""
    group_id = short(world)
    world.fake.refusals[CALL] = ["UnauthorizedOperation.PermissionDenied"] * 6

    for _ in range(3):
        assert refused(world, group_id) is None

    (said,) = [each for each in caplog.messages if CALL in each]
    assert "ap-guangzhou" in said


@pytest.mark.parametrize("fault", [Fault.RESET_BEFORE, Fault.GATEWAY, Fault.GARBLED, Fault.CUT])
def test_no_answer_is_no_refusal(world: TencentWorld, fault: Fault) -> None:
    """A silent AS takes no group out of sight."""
    group_id = short(world)
    world.server.plan.strike(fault, when(operation=CALL), times=None)

    assert refused(world, group_id) is None


def test_more_tries_than_a_page_has_are_read_to_the_last(world: TencentWorld) -> None:
    """A group that tries twice a minute, and has one machine at last."""
    group_id = short(world)
    began = newest(world, group_id).began
    world.fake.state.groups[group_id].activities += [
        Activity(id=f"asa-{number:08x}x", status="FAILED", began=began, error="ResourceInsufficient")
        for number in range(120)
    ]
    later(world, group_id, "SUCCESSFUL")

    assert refused(world, group_id) is None
    assert len(world.sent(CALL)) == 4


def test_a_group_that_has_all_its_members_costs_no_call(world: TencentWorld) -> None:
    """Nor does one of somebody else."""
    world.add_group("trainers", MINE, size=2)
    world.add_group("others", {}, size=1)
    world.cloud.groups()

    assert not world.sent(CALL)
