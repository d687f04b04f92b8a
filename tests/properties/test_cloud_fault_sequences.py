"""Whatever goes wrong on the wire, and in whatever order: no action goes out twice, and nothing is taken for gone.

Generated sequences of our changes and lists, each with a fault or without, on every provider of `FAULT_WORLDS`.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.clouds import (
    START_IS_DONE,
    STOP_AT,
    STOP_IS_DONE,
    TERMINATE_IS_DONE,
    CloudError,
    CloudUnavailableError,
)
from gpuwatch.model.fleet import NodeState
from tests.support.builders.fleet import a_permit
from tests.support.clouds.fault_worlds import FAULT_WORLDS, MINE, FaultWorld, a_fault_world
from tests.support.clouds.faults import AFTER_EFFECT, OF_PAGES, SILENT, Fault, when
from tests.support.nightly import examples

GONE = frozenset({NodeState.TERMINATED, None})
DONE = {"stop": STOP_IS_DONE | GONE, "start": START_IS_DONE, "terminate": TERMINATE_IS_DONE | GONE}
CHANGES: dict[str, Callable[[FaultWorld, str, str], object]] = {
    "stop": lambda world, node_id, key: world.cloud.stop(node_id, key, permit=a_permit(world.clock)),
    "start": lambda world, node_id, key: world.cloud.start(node_id, key),
    "terminate": lambda world, node_id, key: world.cloud.terminate(node_id, key, permit=a_permit(world.clock)),
    "tag": lambda world, node_id, key: world.cloud.tag(node_id, {STOP_AT: "2026-01-05T12:00:00+00:00"}, key),
    "launch": lambda world, _, key: world.cloud.launch(world.arguments, key),
}
ON_CHANGES = [
    fault for fault in Fault if fault not in {*SILENT, *OF_PAGES, Fault.STALE}
]  # silence is a broken connection
ON_LISTS = [fault for fault in Fault if fault not in {*SILENT, Fault.STALE}]


@dataclass(frozen=True, slots=True)
class Change:
    """We ask for a change of one machine; its request meets the fault, however often it is sent."""

    verb: str
    machine: int
    key: int
    fault: Fault | None


@dataclass(frozen=True, slots=True)
class List:
    """We list everything; one region meets the fault so many times, after so many good answers."""

    region: int
    fault: Fault | None
    times: int | None
    skip: int


STEPS = st.lists(
    st.one_of(
        st.builds(
            Change,
            st.sampled_from(sorted(CHANGES)),
            st.integers(0, 3),
            st.integers(0, 2),
            st.sampled_from([None, *ON_CHANGES]),
        ),
        st.builds(
            List,
            st.integers(0, 1),
            st.sampled_from([None, *ON_LISTS]),
            st.sampled_from([1, 2, None]),
            st.integers(0, 1),
        ),
    ),
    min_size=3,
    max_size=10,
)


@dataclass
class Life:
    """One cloud through a sequence: what is expected of it is said after each step."""

    world: FaultWorld
    made: dict[int, str] = field(default_factory=dict)  # by the key of the launch
    keys: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Two machines in each region, which the first list shows."""
        self.machines = sorted(self.world.launch(MINE, region=region) for region in self.world.regions for _ in "ab")
        assert {node.id for node in self.world.cloud.nodes()} == set(self.machines)
        self.seen = set(self.machines)

    def change(self, step: Change) -> None:
        """Sent once at most; refused, it has no effect; accepted, it has; else nobody can say."""
        world, node_id, call = self.world, self.machines[step.machine], self.world.calls[step.verb]
        before, sent = self.of(node_id), world.server.count(call)
        if step.verb == "launch":
            self.keys.add(step.key)
        if step.fault is not None:
            world.server.plan.strike(step.fault, when(operation=call), times=None)
        error: CloudError | None = None
        try:
            result = CHANGES[step.verb](world, node_id, f"key-{step.key}")
        except CloudError as raised:
            error = raised
        world.server.plan.clear()

        assert world.server.count(call) <= sent + 1, "an action went out twice"
        if error is None:
            if step.verb == "launch":
                assert self.made.setdefault(step.key, str(result)) == result, "one key made two machines"
            elif step.verb != "tag":
                assert world.state(node_id) in DONE[step.verb]
        elif not isinstance(error, CloudUnavailableError) and step.verb != "launch":
            assert self.of(node_id) == before, "what was refused had an effect"
        elif step.fault is not None and step.fault not in AFTER_EFFECT and step.verb != "launch":
            assert self.of(node_id) == before
        assert len(world.ids()) <= len(self.machines) + len(self.keys), "one key made two machines"

    def list(self, step: List) -> None:
        """Whole, or in doubt, or an error; what exists and was seen once is in it, and no state is wrong."""
        world = self.world
        if step.fault is not None:
            fits = when(change=False, region=world.regions[step.region])
            world.server.plan.strike(step.fault, fits, times=step.times, skip=step.skip)
        before = {node_id: world.state(node_id) for node_id in world.ids()}
        listed = None
        with suppress(CloudError):
            listed = {node.id: node.state for node in world.cloud.nodes()}
        world.server.plan.clear()
        if listed is None:
            assert step.fault is not None, "a list failed without a fault"
            return
        there = {node_id for node_id in world.ids() if world.state(node_id) not in GONE}
        assert there & self.seen <= listed.keys(), "a machine was taken for gone"
        for node_id, state in listed.items():
            assert state in {NodeState.UNKNOWN, before.get(node_id), world.state(node_id)}
        if step.fault is None:
            assert there <= listed.keys(), "a list without a fault was not whole"
        self.seen |= listed.keys()

    def of(self, node_id: str) -> tuple[object, object]:
        """What the cloud holds of a machine."""
        state = self.world.state(node_id)
        return state, None if state in GONE else dict(self.world.tags(node_id))


@pytest.mark.parametrize("name", FAULT_WORLDS)
def test_no_sequence_of_faults_sends_twice_or_takes_a_machine_for_gone(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each step is judged by what the cloud itself holds."""

    @settings(max_examples=examples(12))
    @given(STEPS)
    def play(steps: list[Change | List]) -> None:
        folder: Path = tmp_path_factory.mktemp(name)
        with a_fault_world(name, folder) as world:
            life = Life(world)
            for step in steps:
                if isinstance(step, Change):
                    life.change(step)
                else:
                    life.list(step)

    play()
