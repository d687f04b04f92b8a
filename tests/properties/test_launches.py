"""A launch is over when its machine is a node of its pool; until then it is capacity, and no reason for another one."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.model.decision import DECISION_TAG, OpenIntent, Status, Verb
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import Desk, FakeFleet, a_permit
from tests.support.builders.past_steps import REASON
from tests.support.nightly import by_night

RULES = PoolRules(
    warm_up=0.0,
    max_nodes=9,
    schedule={"always": Window(min_nodes=1)},
    launch=LaunchRules(template="lt-1"),
)
LIMITS = Limits(max_additions_per_round=99, max_additions_per_hour=999)


class Pools(Desk):
    """A desk whose rules are those of one pool."""

    @property
    def rulebook(self) -> Rulebook:
        """Another pool wants nothing."""
        return Rulebook(pools={"default": self.rules, "dev": PoolRules()}, limits=self.limits, enforce=True)


def a_desk(rules: PoolRules = RULES) -> Desk:
    """An empty pool that is to have one node."""
    return Pools(rules=rules, limits=LIMITS)


def launched(desk: Desk) -> list[Node]:
    """The machines that were launched and are alive, by the cloud's truth."""
    nodes = desk.fleet.nodes_.values()
    return [node for node in nodes if DECISION_TAG in node.tags and node.state is not NodeState.TERMINATED]


def entries(desk: Desk) -> tuple[OpenIntent, ...]:
    """The open intents."""
    return desk.ledger.view(desk.clock.now()).open_intents


def rounds(desk: Desk, count: int) -> None:
    """A round a minute."""
    for _ in range(count):
        desk.round()


def refused(desk: Desk) -> set[str]:
    """The rules that refuse something in the next round."""
    return {answer.rule for review in desk.plan().reviews for answer in review.refusals}


def hidden(fleet: FakeFleet) -> None:
    """The list never shows what was launched: its type has no GPU."""
    fleet.born = lambda node: replace(node, gpu_count=0, instance_type="m5.large")
    fleet.listed = lambda node: node.gpu_count != 0


def elsewhere(fleet: FakeFleet) -> None:
    """The template gives it the tag of another pool."""
    fleet.born = lambda node: replace(node, pool="dev")


def foreign(fleet: FakeFleet) -> None:
    """It lost the fleet's tag."""
    fleet.born = lambda node: replace(node, enrolled=False)


def nowhere(fleet: FakeFleet) -> None:
    """EC2 accepted it and never shows it."""
    fleet.listed = fleet.found = lambda _: False


ODD: list[tuple[Callable[[FakeFleet], None], str]] = [
    (hidden, "its type m5.large has no GPU"),
    (elsewhere, "it is in pool dev"),
    (foreign, "it does not carry the fleet's tag"),
    (nowhere, "the cloud does not show it"),
]


@pytest.mark.parametrize(("odd", "why"), [*ODD[::2], *by_night(*ODD[1::2])])
def test_a_launch_that_brings_no_node_is_not_repeated(odd: Callable[[FakeFleet], None], why: str) -> None:
    """Not for days: the machine counts, the intent says why, and a wish for more meets a rule that says what to do."""
    desk = a_desk()
    odd(desk.fleet)
    rounds(desk, 60)
    for _ in range(40):
        desk.round(seconds=3600.0)

    assert len(launched(desk)) == 1
    (entry,) = entries(desk)
    assert entry.last is not None
    assert entry.last.status is Status.UNSEEN
    assert why in entry.last.detail
    rows = [clamp for decision in desk.plan().decisions for clamp in decision.clamps]
    assert any(why in sentence for sentence in rows)
    desk.rules = replace(RULES, schedule={"always": Window(min_nodes=3)})
    assert refused(desk) == {"launch_unseen"}
    rounds(desk, 5)
    assert len(launched(desk)) == 1


def test_a_machine_that_becomes_a_node_late_ends_the_matter() -> None:
    """Whoever corrects its tags has a node, and launches go on."""
    desk = a_desk()
    elsewhere(desk.fleet)
    rounds(desk, 20)
    (node,) = launched(desk)
    desk.fleet.put(replace(node, pool="default"))
    desk.fleet.born = lambda node: node
    desk.rules = replace(RULES, schedule={"always": Window(min_nodes=2)})
    rounds(desk, 3)

    assert len(launched(desk)) == 2
    assert entries(desk) == ()


def test_a_machine_that_is_terminated_frees_its_place() -> None:
    """Whoever ends it gets one new try, which is as closely watched."""
    desk = a_desk()
    hidden(desk.fleet)
    rounds(desk, 20)
    (node,) = launched(desk)
    desk.fleet.put(replace(node, state=NodeState.TERMINATED))
    rounds(desk, 30)

    assert len(launched(desk)) == 1
    assert len(desk.fleet.nodes_) == 2


def test_a_resume_of_the_pool_goes_on_without_it() -> None:
    """A person's word on this pool is enough for one more; that on all pools is about pauses."""
    desk = a_desk()
    hidden(desk.fleet)
    rounds(desk, 20)
    desk.ledger.resume(None, "ann", desk.clock.now())
    rounds(desk, 10)
    desk.ledger.pause("default", "ann", "", desk.clock.now(), desk.clock.now() + timedelta(minutes=5))
    rounds(desk, 10)
    assert len(launched(desk)) == 1
    desk.ledger.resume("default", "ann", desk.clock.now())
    rounds(desk, 40)

    assert len(launched(desk)) == 2


def test_other_settings_may_be_launched_at_once() -> None:
    """Whoever corrects the template's version need not wait; the first machine still counts."""
    desk = a_desk(replace(RULES, schedule={"always": Window(min_nodes=2)}))
    hidden(desk.fleet)
    rounds(desk, 20)
    assert len(launched(desk)) == 2
    desk.fleet.born = lambda node: node
    desk.rules = replace(RULES, schedule={"always": Window(min_nodes=3)}, launch=LaunchRules(template="lt-2"))
    rounds(desk, 5)

    assert len(launched(desk)) == 3


def test_machines_that_end_at_once_are_launched_three_times_and_then_seldom() -> None:
    """Capacity or a key that AWS takes back after the launch costs a few tries, not a machine each few minutes."""
    desk = a_desk()
    desk.fleet.born = lambda node: replace(node, state=NodeState.TERMINATED)
    rounds(desk, 55)

    assert len(desk.fleet.nodes_) == 3
    assert "launch_lasts" in refused(desk)
    rounds(desk, 6 * 60)
    assert len(desk.fleet.nodes_) <= 6


@pytest.mark.parametrize(("odd", "_why"), [*ODD[1::2], *by_night(*ODD[::2])])
def test_a_lost_answer_launches_no_second_machine(odd: Callable[[FakeFleet], None], _why: str) -> None:
    """The same key asks again, and what it brought is watched like any other."""
    desk = a_desk()
    odd(desk.fleet)
    lost = [True]
    desk.fleet.lose = lambda call, _: CloudUnavailableError("reset") if call == "launch" and lost.pop() else None
    rounds(desk, 1)
    lost.clear()
    desk.fleet.lose = lambda _call, _node: None
    rounds(desk, 60)

    assert len(launched(desk)) == 1


def test_a_list_that_is_late_after_the_settlement_adds_nothing() -> None:
    """Another of the cloud's mirrors may not know yet what the one before has shown."""
    desk = a_desk()
    rounds(desk, 2)
    assert entries(desk) == ()
    desk.fleet.listed = lambda _: False
    rounds(desk, 8)

    assert len(launched(desk)) == 1


def test_a_machine_that_gpuwatch_removed_again_is_not_taken_for_late() -> None:
    """What is gone by our own hand makes room at once."""
    desk = a_desk()
    rounds(desk, 2)
    (node,) = launched(desk)
    desk.fleet.terminate(node.id, "k", permit=a_permit())
    intent = desk.ledger.intend(Verb.TERMINATE, node.id, "default", desk.clock.now(), REASON, 1)
    desk.ledger.settle(intent, Status.SETTLED, "", desk.clock.now())
    rounds(desk, 2)

    assert len(launched(desk)) == 1
    assert len(desk.fleet.nodes_) == 2


def test_a_lost_launch_that_nobody_wants_any_more_stays_open_while_it_may_appear() -> None:
    """Dropped at once, its machine could turn up beside one that was launched in its place."""
    desk = a_desk()
    desk.fleet.listed = desk.fleet.found = lambda _: False
    desk.fleet.lose = lambda call, _: CloudUnavailableError("reset") if call == "launch" else None
    rounds(desk, 1)
    desk.fleet.lose = lambda _call, _node: None
    desk.rules = replace(RULES, schedule={})
    rounds(desk, 5)
    assert [entry.last is not None and entry.last.status for entry in entries(desk)] == [Status.INTERRUPTED]
    desk.rules = RULES
    rounds(desk, 5)
    assert len(launched(desk)) == 1
    assert desk.clock.now() - entries(desk)[0].intent.at > timedelta(minutes=9)


def test_a_launch_that_brought_no_node_is_told_with_its_pool_alone() -> None:
    """Advice about steps that hang would say that it holds up nobody."""
    desk = a_desk()
    hidden(desk.fleet)
    rounds(desk, 30)
    (decision,) = desk.plan().decisions

    assert [clamp for clamp in decision.clamps if "A launch brought no node" in clamp]
    assert [each.reason.code for each in decision.advice] == []
