"""A fleet's day on one page each: golden texts of what was seen, decided, refused and done."""

import os
from dataclasses import replace

from gpuwatch.clouds import CloudUnavailableError, ThrottledError
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport, NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.scaling import Metric, ScalingRules
from tests.support import paths
from tests.support.builders.fleet import Desk, a_node
from tests.support.builders.past_steps import a_group
from tests.support.stories import Story

GOLDEN = paths.GOLDEN / "stories"
FREE = Limits(max_stops_per_hour_ratio=1.0)


def check(name: str, story: Story) -> None:
    """Compare with the golden file; GPUWATCH_UPDATE_GOLDEN=1 writes it anew, and the diff is the review."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("GPUWATCH_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(story.text + "\n", encoding="utf-8")

    assert story.text + "\n" == path.read_text(encoding="utf-8")


def a_story(rules: PoolRules, *busy: str, limits: Limits = FREE) -> Story:
    """Busy machines at noon."""
    story = Story(desk=Desk(rules=rules, limits=limits))
    for node_id in busy:
        story.desk.fleet.put(a_node(node_id, State.BUSY, 0.0))
    return story


def test_a_training_pools_day() -> None:
    """Jobs end, notices go out, somebody keeps a machine, one is stopped, the last one stays for the minimum."""
    story = a_story(
        PoolRules(min_nodes=1, idle=IdleRules(timeout=1800.0, grace_period=1200.0)), "train-1", "train-2", "train-3"
    )
    story.until(0.5)
    story.say("the job on train-1 and train-2 ends", lambda: story.turn(State.IDLE, "train-1", "train-2"))
    story.until(1.25)
    story.say("ann sees the notice and runs `gpuwatch snooze` on train-2", lambda: story.turn(State.BUSY, "train-2"))
    story.until(4.0)
    story.say("her snooze ends", lambda: story.turn(State.IDLE, "train-2"))
    story.until(5.0)
    story.say("the last job ends as well", lambda: story.turn(State.IDLE, "train-3"))
    story.until(8.0)

    assert story.desk.fleet.stops() == ["train-1", "train-2"]
    check("training", story)


def test_a_serving_pool_follows_its_queue() -> None:
    """A morning's queue starts, grows and launches; at night only idle machines go, down to the minimum."""
    queue = Metric(signal="promql", expression="sum(jobs_waiting)", target=10.0, per_node=True)
    rules = PoolRules(
        min_nodes=1,
        max_nodes=5,
        idle=IdleRules(timeout=1200.0, grace_period=300.0, action="terminate"),
        scaling=ScalingRules(metrics={"queue": queue}),
        launch=LaunchRules(template="lt-serve", instance_type="g6.xlarge"),
        start="any",
    )
    story = a_story(rules, "serve-1")
    fleet = story.desk.fleet
    fleet.put(replace(a_node("serve-2"), state=NodeState.STOPPED, signal=NodeReport(failure="it is stopped")))
    fleet.groups_["g-1"] = a_group(name="serving", desired=0, max_size=1, node_ids=())
    for until, length in ((0.5, 8.0), (1.0, 19.0), (1.5, 38.0), (2.5, 70.0), (3.0, None), (4.0, 44.0), (4.5, 3.0)):
        story.say("nobody knows the queue" if length is None else f"{length:g} jobs wait")
        fleet.numbers["default", "queue"] = length
        story.until(until)
    members = [node.id for node in fleet.nodes_.values() if node.state is NodeState.RUNNING]
    story.say("the machines are done", lambda: story.turn(State.IDLE, *[each for each in members if each != "serve-1"]))
    story.until(8.0)

    assert fleet.nodes_["serve-1"].state is NodeState.RUNNING
    assert fleet.stopped_while == [State.IDLE] * len(fleet.stopped_while)
    check("serving", story)


def test_a_broken_sensor_freezes_its_pool_until_somebody_looks() -> None:
    """Everything turns idle at once: nothing is touched, until a person says that one of it was true."""
    names = [f"gpu-{n}" for n in range(1, 7)]
    story = a_story(PoolRules(idle=IdleRules(timeout=1800.0, grace_period=600.0)), *names)
    story.until(0.5)
    story.say("a driver upgrade makes every GPU read zero", lambda: story.turn(State.IDLE, *names))
    story.until(1.5)
    story.say("bob mends it; gpu-6 alone was really idle", lambda: story.turn(State.BUSY, *names[:5]))
    story.until(1.75)
    story.say("the sensor breaks again", lambda: story.turn(State.IDLE, *names[:5]))
    story.until(2.5)
    ledger, clock = story.desk.ledger, story.desk.clock
    story.say("it is true: `gpuwatch acknowledge`", lambda: ledger.acknowledge(None, "bob", "", clock.now()))
    story.until(4.5)

    check("broken-sensor", story)


def test_a_cloud_that_throttles_and_loses_answers() -> None:
    """Refused calls are tried again under the same intent, and an answer that was lost is never asked for twice."""
    story = a_story(PoolRules(idle=IdleRules(timeout=1800.0, grace_period=600.0)), "gpu-1", "gpu-2", "gpu-3")
    fleet = story.desk.fleet
    fleet.lag = lambda: 400.0
    story.say("all jobs end", lambda: story.turn(State.IDLE, "gpu-1", "gpu-2"))
    story.until(0.6)

    def throttle() -> None:
        fleet.fault = lambda call, _: ThrottledError("Rate exceeded") if call == "stop" else None

    def lose() -> None:
        fleet.fault = lambda _call, _node: None
        fleet.lose = lambda call, _: CloudUnavailableError("the connection was reset") if call == "stop" else None

    def hide() -> None:
        fleet.lose = lambda _call, _node: None
        fleet.fault = lambda call, _: CloudUnavailableError("503") if call == "nodes" else None

    def heal() -> None:
        fleet.fault = lambda _call, _node: None

    story.say("the cloud throttles every stop", throttle)
    story.until(1.0)
    story.say("the cloud answers no stop, and carries it out", lose)
    story.until(1.3)
    story.say("the cloud lists nothing", hide)
    story.until(1.6)
    story.say("the cloud is well again", heal)
    story.until(2.5)

    keys = [key for call, _, key in fleet.calls if call == "stop"]
    assert len(keys) == len(set(keys)) == len(fleet.stops()) == 2, "a stop was asked for twice"
    check("faulty-cloud", story)


def test_from_idle_to_stopped_to_terminated() -> None:
    """A stopped machine ends after its week with a notice of its own; one that its owner wants back does not."""
    rules = PoolRules(
        idle=IdleRules(timeout=1800.0, grace_period=3600.0, terminate_after=7 * 86400.0, terminate_grace_period=3600.0)
    )
    story = a_story(rules, "gpu-1", "gpu-2")
    story.every_seconds = 1800.0
    story.say("both are left alone", lambda: story.turn(State.IDLE, "gpu-1", "gpu-2"))
    story.until(72.0)
    story.say("carla starts gpu-2 again, and stops it in the evening")
    story.desk.fleet.start("gpu-2", "carla")
    story.turn(State.BUSY, "gpu-2")
    story.until(78.0)
    node = story.desk.fleet.nodes_["gpu-2"]
    story.desk.fleet.put(replace(node, state=NodeState.STOPPED, signal=NodeReport(failure="it is stopped")))
    story.until(10 * 24.0)

    assert story.desk.fleet.nodes_["gpu-1"].state is NodeState.TERMINATED
    assert story.desk.fleet.nodes_["gpu-2"].state is NodeState.STOPPED
    check("terminate_after", story)
