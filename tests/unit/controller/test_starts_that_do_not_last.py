"""A machine that falls back to stopped after its start is tried thrice, rests for longer each time, and is told."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.controller.context import Memory
from gpuwatch.controller.round import Round
from gpuwatch.guard import Limits
from gpuwatch.model.decision import Done, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.stops import LastStop
from gpuwatch.policies import PoolRules
from gpuwatch.policies.lasting import STARTS
from gpuwatch.policies.launches import LaunchRules
from gpuwatch.policies.machines import there
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.starts import Startable
from tests.support.builders.fleet import RULES, a_node
from tests.support.builders.light_desk import LightDesk
from tests.support.fakes.failing_starts import WHY, FailingStarts
from tests.support.nightly import by_night

COUNT = 4


def a_desk(rules: PoolRules = RULES, **image: object) -> tuple[LightDesk, FailingStarts]:
    """Machines that gpuwatch has stopped in the evening, and a schedule that wants all of them from now on."""
    desk = LightDesk(limits=Limits(), rules=rules, interval=60.0)
    cloud = desk.fleet = FailingStarts(clock=desk.clock, **image)  # type: ignore[arg-type]
    for number in range(COUNT):
        cloud.put(a_node(f"i-{number}"))
    while any(node.state is not NodeState.STOPPED for node in cloud.nodes_.values()):
        desk.round()
    desk.pools = {"default": replace(rules, schedule={"always": Window(min_nodes=COUNT)})}
    return desk, cloud


def minutes(desk: LightDesk, count: int) -> Round:
    """So many rounds; the last one."""
    for _ in range(count - 1):
        desk.round()
    return desk.round()


def said(done: Round) -> str:
    """What the round's decisions say of the pool."""
    return " ".join(clamp for each in done.decisions for clamp in each.clamps)


@pytest.mark.parametrize(
    ("start", "pending"),
    [("own", 400.0), ("any", 40.0), *by_night(("own", 40.0), ("own", 90.0), ("any", 90.0), ("any", 400.0))],
)
def test_a_machine_that_falls_back_is_tried_thrice_and_then_seldom(start: Startable, pending: float) -> None:
    """A key that EC2 may not use: as long as the office is open, each machine is tried five times, and it is said."""
    desk, cloud = a_desk(replace(RULES, start=start), pending=pending)
    done = minutes(desk, 6 * 60)

    assert all(3 <= count <= 5 for count in Counter(cloud.starts).values())
    assert "starts of i-0 did not last; it fell back to stopped after " in said(done)
    assert f"({WHY})" in said(done)
    assert "4 stopped nodes are not started for a time" in said(done)


@pytest.mark.parametrize("told", [True, *by_night((False,))])
def test_a_machine_that_stops_soon_after_each_start_is_tried_seldom_too(*, told: bool) -> None:
    """Whatever the cloud says of it: an image that shuts down when nobody is there."""
    desk, cloud = a_desk(replace(RULES, start="any"), falls_back=False, runs=360.0, told=told)
    minutes(desk, 12 * 60)
    assert max(Counter(cloud.starts).values()) <= 6


def test_those_that_can_start_do() -> None:
    """Another key: nobody waits for those that fall back."""
    desk, cloud = a_desk(sound={"i-1", "i-3"})
    minutes(desk, 5)
    assert {node.id for node in cloud.nodes_.values() if node.state is NodeState.RUNNING} == {"i-1", "i-3"}


def test_what_has_fallen_back_is_no_capacity() -> None:
    """A pool that can launch has all of its nodes minutes later, and none too many for a day."""
    desk, cloud = a_desk(replace(RULES, launch=LaunchRules(template="lt-1")), pending=90.0)
    minutes(desk, 10)
    assert there(desk.round().observation, "default") == COUNT
    minutes(desk, 6 * 60)
    assert sum(node.state is NodeState.RUNNING for node in cloud.nodes_.values()) == COUNT


def test_a_new_process_goes_on_with_the_rest() -> None:
    """The ledger is all that it knows."""
    desk, cloud = a_desk(pending=90.0)
    for _ in range(6 * 6):
        minutes(desk, 10)
        desk.memory = Memory()
    assert max(Counter(cloud.starts).values()) <= 5


def test_each_machine_starts_after_its_rest_once_the_key_is_mended() -> None:
    """Or at once, where somebody resumes the pool by its name."""
    for resumes in (False, True):
        desk, cloud = a_desk()
        minutes(desk, 60)
        cloud.sound = set(cloud.nodes_)
        if resumes:
            desk.light.resume("default", "somebody", desk.clock.now())
        minutes(desk, 5 if resumes else 70)
        assert {node.state for node in cloud.nodes_.values()} == {NodeState.RUNNING}


def test_a_machine_that_its_owner_started_and_stopped_since_stays_as_it_is() -> None:
    """Its last stop is the owner's, whatever failed before."""
    desk, cloud = a_desk()
    minutes(desk, 60)
    now = desk.clock.now()
    for node in list(cloud.nodes_.values()):
        stop = LastStop(at=now.replace(microsecond=0))
        cloud.put(replace(node, launched_at=now, failed_start=None, last_stop=stop))
    before = len(cloud.starts)
    minutes(desk, 4 * 60)
    assert len(cloud.starts) == before


def told(desk: LightDesk) -> list[Done]:
    """What people get a message about."""
    past = desk.light.view(desk.clock.now(), recent=timedelta(days=3)).recent
    return [done for done in past if done.verb is Verb.LEFT_ALONE]


def test_its_owner_hears_once_that_a_machine_is_not_started_for_a_time() -> None:
    """However long it goes on, and in a new process too; after a resume, once more."""
    desk, cloud = a_desk(sound={"i-1", "i-2", "i-3"})
    cloud.put(replace(cloud.nodes_["i-0"], owner="ada"))
    for _ in range(12):
        minutes(desk, 60)
        desk.memory = Memory()
    (first,) = told(desk)

    assert (first.node_id, first.owner, first.code) == ("i-0", "ada", STARTS)
    assert first.why.startswith("It is not started for a time. The last 3 starts of i-0 did not last; it fell back")
    desk.light.resume("default", "somebody", desk.clock.now())
    minutes(desk, 60)
    assert len(told(desk)) == 2
