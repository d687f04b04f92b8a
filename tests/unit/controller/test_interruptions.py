"""A cloud that takes nodes back: each is replaced once, at the notice, and the ledger has what became of it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.controller.context import Memory
from gpuwatch.controller.round import decide
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.cloud_notice import (
    CHECKPOINT,
    DEADLINE,
    GPUS,
    LOST_GPU_SECONDS,
    SEEN,
    SINCE,
    CloudNotice,
    arguments_of,
)
from gpuwatch.model.decision import LAUNCHED_AT, Status, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.sight import Sight
from tests.support.builders.desk import REASON
from tests.support.builders.market import POOL, Market, a_market


def a_settled_market(**other: object) -> Market:
    """Two nodes, one of each zone, a quarter of an hour old."""
    desk = a_market(replace(POOL, **other), limits=Limits(max_additions_per_hour=60))  # type: ignore[arg-type]
    for _ in range(15):
        desk.round()
    desk.asked()
    return desk


def verbs(desk: Market, node_id: str) -> list[str]:
    """What the ledger has of a node, oldest first."""
    return [entry.intent.verb.value for entry in reversed(desk.ledger.history(node_id))]


def test_a_node_is_replaced_at_its_notice_and_once() -> None:
    """In the round that sees the notice, from the other zone; nothing more comes when the node is gone."""
    desk = a_settled_market()
    (lost,) = desk.fleet.alive("spot-a")
    desk.fleet.announce(lost)
    first = desk.round()

    assert desk.asked() == ["spot-b"]
    assert "Its cloud is about to take 1 more of them." in first.acts[0].review.step.reason.sentence
    for _ in range(40):
        desk.fleet.carry_out()
        desk.round()
    assert desk.asked() == []
    assert len(desk.fleet.alive()) == 2
    assert verbs(desk, lost) == ["interruption", "lost"]


@pytest.mark.parametrize("restarts", [False, True], ids=["goes on", "restarts"])
@pytest.mark.parametrize("back", [-7200.0, 7200.0])
def test_a_node_is_replaced_once_although_the_clock_is_set(back: float, restarts: bool) -> None:
    """The clock is set by two hours once the replacement is asked for; the cloud takes the node ten minutes later."""
    desk = a_settled_market(max_nodes=9)
    (lost,) = desk.fleet.alive("spot-a")
    desk.fleet.announce(lost)
    desk.round()
    assert desk.asked() == ["spot-b"]
    desk.clock.jump(back)
    if restarts:
        desk.memory = Memory()
    for _ in range(10):
        desk.round()

    assert desk.asked() == [], "no loss is replaced twice"
    assert len(desk.fleet.alive()) == 3


def test_without_spot_the_replacement_comes_on_demand_at_the_notice() -> None:
    """Not at the loss."""
    desk = a_settled_market()
    (lost,) = desk.fleet.alive("spot-a")
    desk.fleet.room = {"spot-a": 0, "spot-b": 1}
    desk.fleet.announce(lost)
    desk.round()

    assert desk.asked()[-1] == "sure"
    assert len(desk.fleet.alive("sure")) == 1


def test_max_nodes_leaves_room_for_what_is_about_to_go() -> None:
    """As many as have a notice; or as many as the pool says."""
    desk = a_settled_market(max_nodes=2)
    desk.fleet.announce(desk.fleet.alive("spot-a")[0])
    desk.round()
    assert len(desk.fleet.alive()) == 3

    desk = a_settled_market(max_nodes=2, surge_nodes=0)
    desk.fleet.announce(desk.fleet.alive("spot-a")[0])
    done = desk.round()
    assert len(desk.fleet.alive()) == 2
    refusals = [answer for review in done.reviews for answer in review.refusals]
    assert [answer.rule for answer in refusals] == ["max_nodes"]
    assert "1 that its cloud is about to take" in refusals[0].sentence
    for _ in range(3):
        desk.fleet.carry_out()
        desk.round()
    assert len(desk.fleet.alive()) == 2


NEVER_SAY = pytest.mark.parametrize("announced", [(), None], ids=["lists without a notice", "lists that never say"])


@NEVER_SAY
@pytest.mark.parametrize("way", ["taken back", "survived"])
def test_a_node_that_is_not_taken_counts_again(way: str, announced: tuple[CloudNotice, ...] | None) -> None:
    """The replacement stays until it is idle; nothing comes for the notice, and nothing for the next one either."""
    desk = a_settled_market(max_nodes=2)
    (kept,) = desk.fleet.alive("spot-a")
    desk.fleet.put(replace(desk.fleet.nodes_[kept], announced=announced))
    desk.fleet.announce(kept)
    desk.round()
    desk.asked()
    for minute in range(30):
        if way == "taken back" and minute == 1:
            desk.fleet.notices.clear()
        done = desk.round()
        if way == "taken back" and minute == 1:
            assert done.observation.fleet.find(kept).cloud_notice is None  # type: ignore[union-attr]
    assert verbs(desk, kept) == ["interruption", "spared"]
    assert (len(desk.fleet.alive()), desk.asked()) == (3, [])
    desk.fleet.announce(kept)
    desk.round()
    assert (len(desk.fleet.alive()), desk.asked()) == (3, [])


def test_a_deadline_that_moves_is_one_notice() -> None:
    """Each new deadline is on record; there is one replacement, and one loss."""
    desk = a_settled_market()
    (lost,) = desk.fleet.alive("spot-a")
    for _ in range(5):
        desk.fleet.announce(lost, minutes=3)
        desk.round()
    assert desk.asked() == ["spot-b"]
    for _ in range(5):
        desk.fleet.carry_out()
        done = desk.round()
    assert verbs(desk, lost) == ["interruption"] * 5 + ["lost"]
    assert done.observation.offers["default"].offers["spot-a"].losses == 1


@NEVER_SAY
def test_what_an_agent_said_before_its_silence_holds(announced: tuple[CloudNotice, ...] | None) -> None:
    """The record holds until ten minutes after the deadline, also over a restart; then the node counts."""
    desk = a_settled_market()
    (node,) = desk.fleet.alive("spot-a")
    desk.fleet.put(replace(desk.fleet.nodes_[node], announced=announced))
    desk.fleet.announce(node)
    desk.round()
    desk.fleet.mute.add(node)
    desk.memory = type(desk.memory)()
    done = desk.round()
    assert done.observation.fleet.find(node).cloud_notice is not None  # type: ignore[union-attr]
    for _ in range(14):
        done = desk.round()
    assert done.observation.fleet.find(node).cloud_notice is None  # type: ignore[union-attr]
    assert desk.asked() == ["spot-b"]


def test_a_notice_of_the_clouds_lists_is_one_where_no_agent_answers() -> None:
    """Replaced once; while the list gives no answer it stands, and a list without it takes it back."""
    desk = a_settled_market()
    (node,) = desk.fleet.alive("spot-a")
    desk.fleet.mute.add(node)
    now = desk.clock.now()
    notice = CloudNotice(kind="termination", action="block", deadline=now + timedelta(minutes=30), seen_at=now)
    seen = []
    for announced in ((notice,), None, (notice,), ()):
        desk.fleet.put(replace(desk.fleet.nodes_[node], announced=announced))
        seen.append(desk.round().observation.fleet.find(node))
    desk.fleet.mute.clear()
    seen.append(desk.round().observation.fleet.find(node))

    assert [each is not None and each.cloud_notice is not None for each in seen] == [True, True, True, True, False]
    assert desk.asked() == ["spot-b"]
    assert verbs(desk, node) == ["interruption", "spared"]


def test_a_machine_that_was_started_again_has_a_life_of_its_own() -> None:
    """Its record is about the earlier one."""
    desk = a_settled_market()
    (node,) = desk.fleet.alive("spot-a")
    desk.fleet.announce(node)
    desk.round()
    desk.fleet.notices.clear()
    desk.fleet.put(replace(desk.fleet.nodes_[node], launched_at=desk.clock.now()))
    desk.fleet.mute.add(node)
    done = desk.round()
    assert done.observation.fleet.find(node).cloud_notice is None  # type: ignore[union-attr]


def test_a_launch_time_that_a_new_process_has_forgotten_is_no_new_life() -> None:
    """Azure and Tencent Cloud do not say when a machine was started: it is recorded, and replaced, once."""
    desk = a_settled_market()
    (node,) = desk.fleet.alive("spot-a")
    desk.fleet.put(replace(desk.fleet.nodes_[node], sight=Sight()))
    desk.fleet.announce(node)
    desk.round()
    before = desk.fleet.nodes_[node]
    assert before.launched_at is not None
    desk.fleet.put(replace(before, launched_at=before.launched_at - timedelta(days=3)))
    done = [desk.round() for _ in range(3)][-1]

    assert done.observation.fleet.find(node).cloud_notice is not None  # type: ignore[union-attr]
    assert verbs(desk, node) == ["interruption"]
    assert desk.asked() == ["spot-b"]


@pytest.mark.parametrize(
    ("state", "saved", "lost"), [(State.BUSY, 10.0, "720"), (State.BUSY, None, None), (State.IDLE, None, "0")]
)
def test_the_ledger_says_how_much_work_was_lost(state: State, saved: float | None, lost: str | None) -> None:
    """From the last checkpoint to the deadline, for each GPU; nothing of an idle node; not known without a word."""
    desk = a_settled_market()
    (node,) = desk.fleet.alive("spot-a")
    notice = desk.fleet.announce(node)
    desk.fleet.show(node, state, 60.0)
    if saved is not None:
        at = desk.clock.now() - timedelta(minutes=saved)
        desk.fleet.notices[node] = replace(notice, checkpoint_at=at)
    for _ in range(4):
        desk.round()
        desk.fleet.carry_out()
    record = desk.ledger.history(node)[0].intent

    assert record.verb is Verb.LOST
    assert record.arguments.get(LOST_GPU_SECONDS) == lost
    assert ("not known" in record.reason.sentence) is (lost is None)


def test_a_stopped_node_is_lost_and_one_that_gpuwatch_removed_is_not() -> None:
    """A cloud may stop what it takes; a removal of our own is no loss."""
    desk = a_settled_market()
    one, other = desk.fleet.alive()
    desk.fleet.announce(one)
    desk.fleet.announce(other)
    desk.round()
    desk.fleet.put(replace(desk.fleet.nodes_[one], state=NodeState.STOPPED))
    intent = desk.ledger.intend(Verb.TERMINATE, other, "default", desk.clock.now(), REASON, 1)
    desk.ledger.settle(intent, Status.SETTLED, "gone", desk.clock.now())
    desk.fleet.put(replace(desk.fleet.nodes_[other], state=NodeState.TERMINATED))
    desk.round()

    assert verbs(desk, one)[-1] == "lost"
    assert verbs(desk, other)[-1] == "spared"


def test_a_missing_node_is_lost_only_after_its_deadline() -> None:
    """A list that lacks it before is late."""
    desk = a_settled_market()
    (node,) = desk.fleet.alive("spot-a")
    desk.fleet.announce(node, minutes=5)
    desk.round()
    desk.fleet.listed = lambda each: each.id != node
    desk.round()
    assert verbs(desk, node) == ["interruption"]
    for _ in range(5):
        desk.round()
    assert verbs(desk, node) == ["interruption", "lost"]


def test_a_storm_in_one_offer_moves_launches_away() -> None:
    """Three notices within the hour, and it rests; what else it has is not touched."""
    desk = a_settled_market(schedule={"always": replace(POOL.schedule["always"], min_nodes=8)})
    for node in desk.fleet.alive("spot-a")[:3]:
        desk.fleet.announce(node)
    done = desk.round()

    assert done.observation.offers["default"].offers["spot-a"].losses == 3
    assert desk.asked() == ["spot-b"] * 3


def test_maintenance_that_ends_nothing_changes_nothing() -> None:
    """Nor does advice."""
    desk = a_settled_market()
    (node,) = desk.fleet.alive("spot-a")
    notice = desk.fleet.announce(node, kind="maintenance")
    desk.fleet.notices[node] = replace(notice, action="system-reboot")
    desk.round()
    desk.fleet.announce(node, kind="rebalance")
    done = desk.round()

    assert desk.asked() == []
    assert done.records == ()


def test_a_recorded_round_is_judged_again_with_its_notices() -> None:
    """They are stored with the nodes."""
    desk = a_settled_market()
    desk.fleet.announce(desk.fleet.alive("spot-a")[0])
    done = desk.round()
    past = desk.ledger.round_at(desk.clock.now())

    assert past.observation.fleet == done.observation.fleet
    assert past.rulebook is not None
    assert decide(past.observation, past.rulebook)[1] == done.decisions


def test_observing_alone_writes_down_what_clouds_do() -> None:
    """And nothing else; a plan writes nothing."""
    desk = a_settled_market()
    (node,) = desk.fleet.alive("spot-a")
    desk.enforce = False
    desk.fleet.announce(node)
    assert desk.plan().records == ()
    assert verbs(desk, node) == []
    done = desk.round()
    assert [each.verb for each in done.records] == [Verb.INTERRUPTION]
    assert desk.asked() == []


def test_people_hear_of_a_notice_once() -> None:
    """Its deadline may move, and its end is no message."""
    desk = a_settled_market()
    (node,) = desk.fleet.alive("spot-a")
    for _ in range(3):
        desk.fleet.announce(node, minutes=2)
        desk.round()
    desk.rest(300.0)
    desk.fleet.carry_out()
    desk.round()
    events = desk.ledger.messages.events(desk.clock.now() - timedelta(hours=1))

    assert [each.verb for each in events] == [Verb.INTERRUPTION]
    assert "Keep and protect hold for gpuwatch's own removals" in events[0].reason.sentence


DAMAGED = ("yesterday", "2026-03-02T05:00:00", "0001-01-01T00:00:00+14:00")


@pytest.mark.parametrize("name", [SINCE, LAUNCHED_AT, GPUS, CHECKPOINT, DEADLINE, SEEN])
@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_damaged_record_of_a_notice_ends_and_blinds_no_round(
    name: str, damaged: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One node's record cannot be read: the other node is replaced at its notice, and the record ends with its node."""
    desk = a_settled_market()
    (sick,), (lost,) = desk.fleet.alive("spot-a"), desk.fleet.alive("spot-b")
    desk.fleet.announce(sick)
    now = desk.clock.now()
    said = CloudNotice(kind="spot_interruption", action="terminate", deadline=now, seen_at=now, checkpoint_at=now)
    arguments = {**arguments_of(said), GPUS: "8", SINCE: now.isoformat(), name: damaged}
    intent = desk.ledger.intend(Verb.INTERRUPTION, sick, "default", now, REASON, 1, arguments=arguments)
    desk.ledger.settle(intent, Status.SETTLED, "it is written down", now)
    desk.fleet.announce(lost)
    desk.round()

    assert len(desk.asked()) == 2
    for _ in range(15):
        desk.fleet.carry_out()
        desk.round()
    assert len(desk.fleet.alive()) == 2
    assert [verbs(desk, node_id)[-1] for node_id in (sick, lost)] == ["lost", "lost"]
    assert "cannot be" not in caplog.text
