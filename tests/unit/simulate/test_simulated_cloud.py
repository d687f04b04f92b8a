"""What a simulation reads of its cloud, beyond the contract of `test_clouds.py`."""

from gpuwatch.clouds import PROTECT_TAG
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.simulate.cloud import Change
from tests.support.builders.fleet import a_permit
from tests.support.fakes.cloud_worlds import MINE, SimulatedWorld


def test_a_simulated_history_is_exact_however_late_one_looks() -> None:
    """Changes carry the time at which they fell due, not the time at which somebody looked."""
    clock = ManualClock()
    world = SimulatedWorld(clock)
    node_id = world.launch(MINE)
    clock.advance(10)
    world.cloud.stop(node_id, "key", permit=a_permit())
    clock.advance(1000)
    world.cloud.start(node_id, "key")
    clock.advance(1000)

    assert [(change.at_seconds, change.state.value) for change in world.simulated.history(node_id)] == [
        (0, "running"),
        (10, "stopping"),
        (70, "stopped"),
        (1010, "pending"),
        (1070, "running"),
    ]


def test_a_machine_terminated_while_stopping_never_arrives_at_stopped() -> None:
    """A later order replaces what was still to come."""
    world = SimulatedWorld(ManualClock())
    node_id = world.launch(MINE)
    world.cloud.stop(node_id, "key", permit=a_permit())
    world.clock.advance(30)
    world.terminate(node_id)
    world.clock.advance(1000)

    assert [change.state for change in world.simulated.history(node_id)] == [
        NodeState.RUNNING,
        NodeState.STOPPING,
        NodeState.TERMINATING,
        NodeState.TERMINATED,
    ]


def test_a_jump_of_the_wall_clock_ends_no_simulated_stop() -> None:
    """Delays are measured on the clock that never jumps."""
    world = SimulatedWorld(ManualClock())
    node_id = world.launch(MINE)
    world.cloud.stop(node_id, "key", permit=a_permit())

    world.clock.jump(86_400)

    assert world.simulated.node(node_id).state is NodeState.STOPPING
    assert world.simulated.history(node_id)[-1] == Change(at_seconds=0, state=NodeState.STOPPING)


def test_a_quiet_simulated_round_builds_nothing() -> None:
    """While nothing changes, nodes() is the same value again: 75 days of rounds cost next to nothing."""
    world = SimulatedWorld(ManualClock())
    world.launch(MINE)
    node_id = world.launch({**MINE, PROTECT_TAG: "2026-01-05T01:00Z"})
    first = world.cloud.nodes()
    world.clock.advance(60)

    assert world.cloud.nodes() is first

    world.cloud.stop(node_id, "key", permit=a_permit())

    assert world.cloud.nodes() is not first
    assert world.cloud.nodes()[0] is first[0], "a machine that did not change should not be built again"
