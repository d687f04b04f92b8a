"""Why scaling groups get no more machines: what ESS says of its tries, and what it may say instead."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from gpuwatch.model.fleet import GroupRefusal
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.alibaba.state import CHANGE_SECONDS, Activity
from tests.support.clouds.alibaba.world import AlibabaWorld, a_world
from tests.support.clouds.faults import Fault, when
from tests.support.fakes.cloud_worlds import MINE

CALL = "DescribeScalingActivities"


@pytest.fixture
def world() -> Iterator[AlibabaWorld]:
    """An empty account."""
    with a_world(ManualClock()) as world:
        yield world


def short(world: AlibabaWorld, *, code: str = "OperationDenied.NoStock") -> str:
    """A group with two members that wants four, for which its cloud has none, with that code; its id."""
    group_id = world.add_group("trainers", MINE, size=2, MaxSize=6)
    world.no_stock(group_id)
    world.fake.state.groups[group_id].error = (code, "The reason.")
    world.cloud.grow(group_id, 4, "key-1")
    return group_id


def newest(world: AlibabaWorld, group_id: str) -> Activity:
    """The group's newest activity."""
    return world.fake.state.groups[group_id].activities[-1]


def refused(world: AlibabaWorld, group_id: str) -> GroupRefusal | None:
    """What the group says, listed and alone alike."""
    (listed,) = world.cloud.groups()
    assert world.cloud.group(group_id) == listed
    assert (listed.desired, len(listed.node_ids)) == (4, 2)
    return listed.refused


def test_the_refusal_is_in_the_clouds_words_and_not_from_before_the_growth(world: AlibabaWorld) -> None:
    """ESS writes no seconds: a try that fails in the growth's own minute counts as one after it."""
    world.clock.advance(17.0)
    group_id = short(world)
    asked = world.clock.now()
    world.clock.advance(5.0)

    found = refused(world, group_id)

    assert found is not None
    assert found.why == "OperationDenied.NoStock: The reason"
    assert asked <= found.at <= world.clock.now()


@pytest.mark.parametrize(
    ("code", "counts"),
    [
        ("OperationDenied.NoStock", True),
        ("QuotaExceed.ElasticQuota", True),
        ("Zone.NotOnSale", True),
        ("InvalidImageId.NotFound", False),
        ("InvalidSecurityGroupId.NotFound", False),
        ("Forbidden.RAM", False),
        ("SomethingNew", False),
    ],
)
def test_only_no_stock_and_no_quota_count(world: AlibabaWorld, code: str, *, counts: bool) -> None:
    """A template that does not work is no lack of machines."""
    assert (refused(world, short(world, code=code)) is not None) is counts


def test_a_part_of_what_was_asked_for_is_refused(world: AlibabaWorld) -> None:
    """One of two came: the activity has a warning, and its list of errors the reason."""
    group_id = world.add_group("trainers", MINE, size=1, MaxSize=6)
    world.fake.state.groups[group_id].stock = 2
    world.cloud.grow(group_id, 4, "key-1")
    assert newest(world, group_id).status == "Warning"

    assert refused(world, group_id) is not None


@pytest.mark.parametrize(
    "after",
    [
        {"status": "Successful", "made": ["i-bp1new"]},
        {"status": "Failed", "error": ("InvalidImageId.NotFound", "no image")},
    ],
    ids=["one came", "another cause"],
)
def test_an_older_refusal_is_none(world: AlibabaWorld, after: dict[str, object]) -> None:
    """The newest try decides."""
    group_id = short(world)
    later = newest(world, group_id).began + timedelta(minutes=1)
    world.clock.advance(CHANGE_SECONDS / 2)
    own = Activity(id="asa-bp1later", began=later, **after)  # type: ignore[arg-type]
    world.fake.state.groups[group_id].activities.append(own)

    assert refused(world, group_id) is None


@pytest.mark.parametrize("status", ["InProgress", "Rejected", "Successful"])
def test_what_tried_nothing_or_goes_on_says_nothing(world: AlibabaWorld, status: str) -> None:
    """A request during the cooldown, a scale-in, a try that is under way: the refusal stays."""
    group_id = short(world)
    own = Activity(id="asa-bp1later", status=status, began=world.clock.now())
    world.fake.state.groups[group_id].activities.append(own)

    assert refused(world, group_id) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"ScalingGroupId": "asg-bp1other"},
        {"EndTime": "2099-01-01T00:00Z"},
        {"EndTime": "2026-01-01T00:00"},
        {"StartTime": "soon"},
        {"ErrorCode": "SomethingNew", "ErrorMessages": []},
    ],
    ids=["of another group", "from the future", "without a zone", "no time", "no known code"],
)
def test_a_record_that_cannot_be_believed_says_nothing(world: AlibabaWorld, changes: dict[str, object]) -> None:
    """The group is waited for, and the round goes on."""
    group_id = short(world)
    newest(world, group_id).changes = changes

    assert refused(world, group_id) is None


def test_without_the_right_to_ask_the_group_is_shown_all_the_same(
    world: AlibabaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning names the call and the place."""
    group_id = short(world)
    world.fake.denied.add(f"ess:{CALL}")

    for _ in range(3):
        assert refused(world, group_id) is None

    (said,) = [each for each in caplog.messages if CALL in each]
    assert "cn-shanghai" in said


@pytest.mark.parametrize("fault", [Fault.RESET_BEFORE, Fault.GATEWAY, Fault.GARBLED, Fault.CUT])
def test_no_answer_is_no_refusal(world: AlibabaWorld, fault: Fault) -> None:
    """A silent ESS takes no group out of sight."""
    group_id = short(world)
    world.server.plan.strike(fault, when(operation=CALL), times=None)

    assert refused(world, group_id) is None


def test_a_group_that_has_all_its_members_costs_no_call(world: AlibabaWorld) -> None:
    """Nor does one of somebody else."""
    world.add_group("trainers", MINE, size=2)
    world.add_group("others", {}, size=1)
    world.cloud.groups()

    assert f"ess:{CALL}" not in world.fake.calls
