"""Changes of groups under every fault of the wire: none goes out twice, and no second place is taken.

Each cloud of `FAULT_WORLDS` whose world has groups is played, by its real SDK over HTTP.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuwatch.clouds import (
    TERMINATE_IS_DONE,
    AuthFailedError,
    ClockSkewError,
    CloudError,
    CloudUnavailableError,
    ThrottledError,
)
from gpuwatch.model.fleet import Node
from tests.support.builders.fleet import a_permit
from tests.support.clouds.fault_worlds import (
    FAULT_WORLDS,
    MINE,
    FaultWorld,
    WithGroups,
    a_fault_world,
    reason_against,
)
from tests.support.clouds.faults import AFTER_EFFECT, UNKNOWN_OUTCOME, Fault, when

SIZE = 2
REFUSALS = {
    Fault.THROTTLED: ThrottledError,
    Fault.THROTTLED_FOR: ThrottledError,
    Fault.EXPIRED: AuthFailedError,
    Fault.SKEW: ClockSkewError,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """A cloud with one group of two, and a member of it."""

    world: FaultWorld
    group_id: str
    member: str

    @property
    def desired(self) -> int:
        """How many machines the group wants, as the cloud says it."""
        return self.world.cloud.group(self.group_id).desired

    @property
    def node(self) -> Node:
        """The member as it is listed now."""
        return next(node for node in self.world.cloud.nodes() if node.id == self.member)

    def happened(self, verb: str) -> bool:
        """What the cloud itself says of it."""
        match verb:
            case "grow":
                return self.desired == SIZE + 1
            case "protect":
                return self.node.scale_in_protected
        return self.world.state(self.member) in {*TERMINATE_IS_DONE, None}


CHANGES: dict[str, Callable[[Grouped], None]] = {
    "grow": lambda at: at.world.cloud.grow(at.group_id, SIZE + 1, "key"),
    "protect": lambda at: at.world.cloud.protect(at.member, at.group_id, "key", on=True),
    "end_member": lambda at: at.world.cloud.terminate(
        at.member, "key", permit=a_permit(at.world.clock), group=at.group_id
    ),
}


@pytest.fixture(params=FAULT_WORLDS)
def grouped(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Grouped]:
    """Each provider with groups in turn."""
    given = request.node.callspec.params
    if reason := reason_against(given):
        pytest.skip(f"{request.param}: {reason}")
    with a_fault_world(request.param, tmp_path) as world:
        assert isinstance(world, WithGroups)
        group_id = world.add_group("train", MINE, size=SIZE)
        members = [node.id for node in world.cloud.nodes() if node.group == group_id]
        assert len(members) == SIZE
        yield Grouped(world=world, group_id=group_id, member=members[0])


@pytest.mark.pairwise
@pytest.mark.parametrize("fault", UNKNOWN_OUTCOME)
@pytest.mark.parametrize("verb", CHANGES)
def test_a_change_of_a_group_without_a_usable_answer_goes_out_once(grouped: Grouped, verb: str, fault: Fault) -> None:
    """Asked again by us it is the same change: the group loses one place at most, and gains one."""
    world, call = grouped.world, grouped.world.calls[verb]
    world.server.plan.strike(fault, when(operation=call), times=None)
    sent = world.server.count(call)

    with pytest.raises(CloudUnavailableError):
        CHANGES[verb](grouped)

    assert world.server.count(call) == sent + 1
    world.server.plan.clear()
    assert grouped.happened(verb) is (fault in AFTER_EFFECT)
    CHANGES[verb](grouped)
    assert grouped.happened(verb)
    assert grouped.desired == SIZE + {"grow": 1, "protect": 0, "end_member": -1}[verb]


@pytest.mark.pairwise
@pytest.mark.parametrize("fault", REFUSALS)
@pytest.mark.parametrize("verb", CHANGES)
def test_a_refused_change_of_a_group_has_no_effect(grouped: Grouped, verb: str, fault: Fault) -> None:
    """It is typed, and sent once."""
    world, call = grouped.world, grouped.world.calls[verb]
    world.server.plan.strike(fault, when(operation=call), times=None)
    sent = world.server.count(call)

    with pytest.raises(CloudError) as caught:
        CHANGES[verb](grouped)

    assert type(caught.value) is REFUSALS[fault]
    assert world.server.count(call) == sent + 1
    world.server.plan.clear()
    assert not grouped.happened(verb)
    assert grouped.desired == SIZE


@pytest.mark.parametrize("fault", [Fault.RESET_BEFORE, Fault.GARBLED, Fault.CUT, Fault.EXPIRED, Fault.THROTTLED])
@pytest.mark.parametrize("verb", ["grow"])
def test_groups_of_a_region_without_an_answer_stay_and_are_protected(grouped: Grouped, verb: str, fault: Fault) -> None:
    """As they were seen last; when the region answers again, they are as they are."""
    del verb
    world = grouped.world
    (before,) = world.cloud.groups()
    world.server.plan.strike(fault, when(change=False, region=world.regions[0]), times=None)

    (silent,) = world.cloud.groups()

    assert (silent.id, silent.desired, silent.protected is None) == (before.id, SIZE, False)
    world.server.plan.clear()
    assert list(world.cloud.groups()) == [before]


@pytest.mark.parametrize("fault", [*UNKNOWN_OUTCOME, *REFUSALS])
@pytest.mark.parametrize("verb", ["end_member"])
def test_a_member_is_not_ended_on_a_look_that_failed(grouped: Grouped, verb: str, fault: Fault) -> None:
    """Where neither machine nor group can be seen right before, nothing is sent."""
    world, call = grouped.world, grouped.world.calls[verb]
    world.server.plan.strike(fault, when(change=False), times=None)

    with pytest.raises(CloudError):
        CHANGES[verb](grouped)

    assert world.server.count(call) == 0
    world.server.plan.clear()
    assert grouped.desired == SIZE
