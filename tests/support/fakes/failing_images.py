"""A cloud whose images fail: what comes of them stops itself, ends, is taken without a word, or never answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node, NodeGroup, NodeReport, NodeState
from tests.support.builders.fleet import FakeFleet
from tests.support.fakes.spot_market import SpotMarket


@dataclass(slots=True)
class FailingImages(FakeFleet):
    """What it launches goes `minutes` after that, into the state `then`; None: it stays. It shows `state` until then.

    Of a machine that is `mute` the agent never answers.
    """

    minutes: float | None = None
    then: NodeState = NodeState.STOPPED
    state: State = State.IDLE
    mute: bool = False
    members_alone: bool = False  # what is launched from a template lasts
    sound_group: str = ""  # whose members last
    launched: int = 0

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """One machine, as FakeFleet makes it; what it does, the image decides."""
        self.launched += f"i-{key}" not in self.nodes_
        node_id = FakeFleet.launch(self, arguments, key)
        self.show(node_id, self.state)
        if self.mute:
            self.put(replace(self.nodes_[node_id], signal=NodeReport(failure="its agent did not answer")))
        return node_id

    def _member(self, group: NodeGroup, node_id: str) -> NodeGroup:
        """The group with one member more, from the same image."""
        self.launched += 1
        group = FakeFleet._member(self, group, node_id)
        self.show(node_id, self.state)
        if self.mute:
            self.put(replace(self.nodes_[node_id], signal=NodeReport(failure="its agent did not answer")))
        return group

    def groups(self) -> tuple[NodeGroup, ...]:
        """The groups; what has ended is no member any more, and the group fills its place by the next look."""
        self._ask("groups", "")
        self.fill()
        self.go()
        for group in list(self.groups_.values()):
            there = [each for each in group.node_ids if self.nodes_[each].state is not NodeState.TERMINATED]
            self.groups_[group.id] = replace(group, node_ids=tuple(there))
        return tuple(map(self._told, self.groups_.values()))

    def nodes(self) -> tuple[Node, ...]:
        """The list, in which what is due has gone."""
        self.go()
        return FakeFleet.nodes(self)

    def go(self) -> None:
        """What is due goes by itself."""
        for node in list(self.nodes_.values()):
            if (self.members_alone and node.group is None) or node.group == self.sound_group:
                continue
            due = self.minutes is not None and node.launched_at is not None
            if due and node.state is NodeState.RUNNING and self._age(node) >= timedelta(minutes=self.minutes or 0.0):
                self.put(replace(node, state=self.then))

    def _age(self, node: Node) -> timedelta:
        assert node.launched_at is not None
        return self.clock.now() - node.launched_at


@dataclass(slots=True)
class TakingMarket(SpotMarket):
    """A market that takes every spot machine so many minutes after it gave it, without a word."""

    minutes: float = 6.0
    up: dict[str, int] = field(default_factory=dict)  # machines at each list, by how they are paid for

    def nodes(self) -> tuple[Node, ...]:
        """The list, in which what is due has gone."""
        for node_id in self.alive():
            node = self.nodes_[node_id]
            assert node.launched_at is not None
            if "spot" in self.offer_of[node_id] and self.clock.now() - node.launched_at >= timedelta(
                minutes=self.minutes
            ):
                self.put(replace(node, state=NodeState.TERMINATED))
        return SpotMarket.nodes(self)
