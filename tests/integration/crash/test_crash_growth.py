"""The controller dies at every step of growing and shrinking: nothing is launched, grown or terminated twice."""

from collections import Counter
from dataclasses import replace

import pytest

from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.model.fleet import NodeGroup, NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.scaling import Metric, ScalingRules
from tests.support.builders.fleet import Desk, a_node
from tests.support.crash_points import Story, every_cut
from tests.support.nightly import by_night

QUEUE = ScalingRules(
    metrics={"queue": Metric(signal="promql", expression="queue", target=10.0, per_node=True)},
    cooldown_out=0.0,
    cooldown_in=0.0,
    stabilisation=0.0,
)
RULES = PoolRules(
    warm_up=0.0,
    idle=IdleRules(timeout=300.0, grace_period=120.0, action="terminate"),
    scaling=QUEUE,
    launch=LaunchRules(template="lt-1"),
    start="any",
)
LIMITS = Limits(
    max_stops_per_round=9,
    max_stops_per_hour=99,
    max_stops_per_hour_ratio=1.0,
    max_additions_per_round=9,
    max_additions_per_hour=99,
    mass_idleness_nodes=99,
    failure_cooldown=120.0,
)


def a_desk() -> Desk:
    """A busy machine, a stopped one, a group with room for one more, and a queue for five nodes."""
    desk = Desk(rules=RULES, limits=LIMITS)
    fleet = desk.fleet
    fleet.put(a_node("i-busy", State.BUSY))
    fleet.put(replace(a_node("i-asleep", State.BUSY, 0.0), state=NodeState.STOPPED))
    fleet.put(a_node("i-member", State.BUSY, 0.0, group="g-1"))
    fleet.groups_["g-1"] = NodeGroup(
        id="g-1", name="trainers", pool="default", min_size=0, max_size=2, desired=1, region="us-east-1", enrolled=True,
        node_ids=("i-member",),
    )  # fmt: skip
    fleet.numbers["default", "queue"] = 50.0
    return desk


def befalls(desk: Desk, number: int) -> None:
    """After growth to five nodes the queue is empty, and all machines but the busy one turn idle."""
    if number == 10:
        desk.fleet.numbers["default", "queue"] = 0.0
        for node in list(desk.fleet.nodes_.values()):
            if node.id != "i-busy" and node.state is NodeState.RUNNING:
                desk.fleet.show(node.id, State.IDLE, 0.0)


@pytest.mark.parametrize(("downtime", "pace"), [(61.0, 37), *by_night((0.0, 29), (3600.0, 43))])
def test_a_power_cut_anywhere_adds_and_removes_each_node_once(downtime: float, pace: int) -> None:
    """Before and after every call: one start, one more member, one launch, and all that turned idle gone (P4, P6)."""
    for where, desk in every_cut(Story(desk=a_desk(), rounds=38, more=25, befalls=befalls), downtime, pace=pace):
        fleet = desk.fleet
        launched = [node for node in fleet.nodes_.values() if DECISION_TAG in node.tags]
        made = Counter(node.tags[DECISION_TAG] for node in launched if node.id.startswith("i-gpuwatch"))
        running = {node.id for node in fleet.nodes_.values() if node.state is NodeState.RUNNING}

        assert all(count == 1 for count in made.values()), f"{where}: {made}"
        assert len(made) == 1, f"{where}: {len(made)} machines were launched"
        assert len(fleet.nodes_) == 5, f"{where}: {sorted(fleet.nodes_)}"
        assert "i-busy" in running, f"{where}: the busy machine is gone"
        assert running == {"i-busy"}, f"{where}: {sorted(running)} still run"
        assert fleet.stopped_while == [State.IDLE] * 4, f"{where}: removed while {fleet.stopped_while}"
        assert fleet.groups_["g-1"].desired == 0, f"{where}: the group wants {fleet.groups_['g-1'].desired}"
        assert desk.ledger.view(desk.clock.now()).open_intents == (), f"{where}: an intent was left open"
