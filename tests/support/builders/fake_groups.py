"""The groups of a `FakeFleet`: they fill themselves up as far as there is stock, and say so where there is none."""

from dataclasses import replace

from gpuwatch.clouds import NotFoundError
from gpuwatch.clouds.permit import check_in_force
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import GroupRefusal, Node, NodeGroup, NodeState
from gpuwatch.runtime.clock import ManualClock


class FakeGroups:
    """What a cloud does with its groups; the machines are the fleet's."""

    clock: ManualClock
    nodes_: dict[str, Node]
    groups_: dict[str, NodeGroup]
    room_: dict[str, int]  # for how many members of a group there is stock; not named: for all
    mute_groups: bool  # groups do not say that there is no stock
    made_: int  # members that groups made by themselves
    calls: list[tuple[str, str, str]]
    stopped_while: list[State]

    def put(self, node: Node) -> None:
        """Add or replace a machine."""
        raise NotImplementedError

    def _member(self, group: NodeGroup, node_id: str) -> NodeGroup:
        raise NotImplementedError

    def _ask(self, call: str, node_id: str) -> None:
        raise NotImplementedError

    def _answer(self, call: str, node_id: str) -> None:
        raise NotImplementedError

    def groups(self) -> tuple[NodeGroup, ...]:
        """All groups."""
        self._ask("groups", "")
        self.fill()
        return tuple(map(self._told, self.groups_.values()))

    def group(self, group_id: str) -> NodeGroup:
        """One group."""
        self._ask("group", group_id)
        if group_id not in self.groups_:
            raise NotFoundError(f"there is no group {group_id}")
        return self._told(self.groups_[group_id])

    def grow(self, group_id: str, size: int, key: str) -> None:
        """Raise the desired size; the new members are there at once."""
        self._ask("grow", group_id)
        check_in_force()
        self.calls.append(("grow", group_id, key))
        group = self.groups_[group_id]
        more = max(0, size - group.desired)
        group = replace(group, desired=max(size, group.desired))
        for number in range(min(more, self.room_.get(group_id, 999) - len(group.node_ids))):
            group = self._member(group, f"{group_id}-{key}-{number}")
        self.groups_[group_id] = group
        self._answer("grow", group_id)

    def shrink(self, group_id: str, size: int, key: str) -> None:
        """Lower the desired size; where the group has more by now, it ends one that is not protected."""
        self._ask("shrink", group_id)
        check_in_force()
        self.calls.append(("shrink", group_id, key))
        group = self.groups_[group_id]
        for node_id in [each for each in group.node_ids if not self.nodes_[each].scale_in_protected]:
            if len(group.node_ids) > size:
                self.stopped_while.append(self.nodes_[node_id].activity.state)
                self.put(replace(self.nodes_[node_id], state=NodeState.TERMINATED))
                group = replace(group, node_ids=tuple(each for each in group.node_ids if each != node_id))
        self.groups_[group_id] = replace(group, desired=min(size, group.desired))
        self._answer("shrink", group_id)

    def fill(self) -> None:
        """Groups with stock again take what they lack, without a word."""
        for group_id, stock in self.room_.items():
            while len(self.groups_[group_id].node_ids) < min(self.groups_[group_id].desired, stock):
                self.made_ += 1
                self.groups_[group_id] = self._member(self.groups_[group_id], f"{group_id}-{self.made_}")

    def _told(self, group: NodeGroup) -> NodeGroup:
        """A group; one without stock says so, unless groups are mute."""
        there = len(group.node_ids)
        if self.mute_groups or there >= group.desired or there < self.room_.get(group.id, group.desired):
            return group
        return replace(group, refused=GroupRefusal(at=self.clock.now(), why="there is none now"))
