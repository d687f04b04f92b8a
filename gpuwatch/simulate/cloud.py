"""A cloud in memory, on whatever clock it is handed: same protocol, same refusals, no network.

Machines need `pending_seconds` to start and `stopping_seconds` to stop. Changes fall due at exact times, whenever
somebody looks next, so `history` is the truth for billing. Nothing is random: faults come from the `faults` hook.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuwatch.clouds import (
    FLEET_TAG,
    NO_GPU,
    POOL_TAG,
    START_IS_DONE,
    STOP_IS_DONE,
    TERMINATE_IS_DONE,
    CloudError,
    CloudUnavailableError,
    Leftover,
    LeftoverKind,
    NotFoundError,
    ProtectedError,
    refuse_foreign_tags,
)
from gpuwatch.clouds.disks import by_id
from gpuwatch.clouds.groups import refuse_end_below, refuse_if_chosen, refuse_size
from gpuwatch.clouds.permit import Permit, check_in_force
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.model.fleet import DEFAULT_POOL, GroupRefusal, Node, NodeGroup, NodeState
from gpuwatch.model.stops import LastStop, StopAnswer
from gpuwatch.simulate.cloud_machines import INCORRECT_STATE, Change, Faults, LostResponseError, Machines, is_listed

__all__ = ["INCORRECT_STATE", "Change", "Faults", "LostResponseError", "SimulatedCloud"]

_DISK_BYTES = 100 * 1024**3
_WITHOUT_DISKS = frozenset({NodeState.STOPPED, NodeState.TERMINATED})  # in use


class SimulatedCloud(Machines):
    """The protocol, over machines in memory."""

    def nodes(self) -> Sequence[Node]:
        """All GPU machines that are not terminated; the same tuple again while nothing changes."""
        with self._call("nodes"):
            for node_id in self._timed:
                self._reread(node_id)
            if self._listed is None:
                if len(self._places) < len(self._nodes):  # none is ever taken out
                    self._places = {node_id: place for place, node_id in enumerate(sorted(self._nodes))}
                    self._rows = [self._nodes[node_id] for node_id in self._places]
                    self._hidden = {node.id for node in self._rows if not is_listed(node)}
                shown, hidden = self._rows, self._hidden
                self._listed = tuple([node for node in shown if node.id not in hidden] if hidden else shown)
            return self._listed

    def node(self, node_id: str) -> Node:
        """One machine as it is now."""
        with self._call("node", node_id):
            self._known_node(node_id)
            self._reread(node_id)
            return self._nodes[node_id]

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """Running becomes stopping, and stopped `stopping_seconds` later."""
        del key  # a second stop changes nothing
        with self._call("stop", node_id):
            permit.check()
            ran = self._may(node_id, NodeState.RUNNING, done=STOP_IS_DONE, verb="stopped")
            at = self._clock.now().replace(microsecond=0)
            if ran:
                self._put(replace(self._nodes[node_id], last_stop=LastStop(at=at)))
                self._enter(node_id, NodeState.STOPPING, self._clock.monotonic())
                self._later(node_id, NodeState.STOPPED, self._stopping_seconds)
                self._fill(self._nodes[node_id].group)
            return StopAnswer(ran=ran, earliest=at, latest=at)

    def start(self, node_id: str, key: str) -> None:
        """Stopped becomes pending with a new launch time, and running `pending_seconds` later."""
        del key  # a second start changes nothing
        with self._call("start", node_id):
            check_in_force()
            if self._may(node_id, NodeState.STOPPED, done=START_IS_DONE, verb="started"):
                self._put(replace(self._nodes[node_id], launched_at=self._clock.now(), last_stop=None))
                self._enter(node_id, NodeState.PENDING, self._clock.monotonic())
                self._later(node_id, NodeState.RUNNING, self._pending_seconds)

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Any state becomes terminating, and terminated `stopping_seconds` later."""
        del key  # a second one changes nothing
        with self._call("terminate", node_id):
            permit.check()
            node = self._known_node(node_id)
            if node.state in TERMINATE_IS_DONE:
                return
            if group is not None:
                self._take_place(node, group)
            self._end(node_id)
            self._fill(node.group)

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """A new machine like its template; the same key is the same machine."""
        with self._call("launch", key):
            check_in_force()
            if key not in self._launches:
                if arguments["template"] not in self._templates:
                    raise CloudError(
                        f"there is no launch template {arguments['template']}", code="InvalidLaunchTemplateId.NotFound"
                    )
                if self._templates[arguments["template"]].gpu_count == 0:
                    raise CloudError(f"{arguments['template']} launches machines without a GPU", code=NO_GPU)
                tags = {FLEET_TAG: self._fleet, POOL_TAG: arguments.get("pool") or DEFAULT_POOL, DECISION_TAG: key}
                self._launches[key] = (self._begin(self._templates[arguments["template"]], tags), dict(arguments))
            node_id, before = self._launches[key]
            if before != arguments:
                raise CloudUnavailableError(
                    f"the key {key} launched something else", code="IdempotentParameterMismatch"
                )
            return node_id

    def find(self, key: str, arguments: Mapping[str, str] | None = None) -> Node | None:
        """The machine launched with that key."""
        del arguments
        with self._call("find", key):
            return self._nodes[self._launches[key][0]] if key in self._launches else None

    def groups(self) -> Sequence[NodeGroup]:
        """Return all groups of the cloud."""
        with self._call("groups"):
            return tuple(self._group_of(group_id) for group_id in sorted(self._groups))

    def group(self, group_id: str) -> NodeGroup:
        """One group as it is now."""
        with self._call("group", group_id):
            return self._group_of(group_id)

    def grow(self, group_id: str, size: int, key: str) -> None:
        """A larger group launches what it lacks."""
        del key  # growing to the same size again changes nothing
        with self._call("grow", group_id):
            check_in_force()
            group = self._group_of(group_id)
            if group.desired >= size:
                return
            refuse_size(group.name, size, most=group.max_size)
            self._refuse(group, "Launch")
            self._resize(group_id, size)
            self._fill(group_id)

    def shrink(self, group_id: str, size: int, key: str) -> None:
        """What it lacks is taken back, if nobody can be chosen for it."""
        del key  # taking back to the same size again changes nothing
        with self._call("shrink", group_id):
            check_in_force()
            group = self._group_of(group_id)
            if group.desired <= size:
                return
            self._refuse(group)
            bare = [each for each in group.node_ids if not self._nodes[each].scale_in_protected]
            refuse_if_chosen(group.name, bare, len(group.node_ids), size)
            if size < group.min_size:
                raise CloudError(f"{group.name} must have {group.min_size} machines at least", code="MinSize")
            self._resize(group_id, size)

    def protect(self, node_id: str, group_id: str, key: str, *, on: bool) -> None:
        """Noted on the member."""
        del key  # saying it again changes nothing
        with self._call("protect", node_id):
            check_in_force()
            self._refuse(self._group_of(group_id))
            node = self._member(node_id, group_id)
            if node.scale_in_protected is not on:
                self._put(replace(node, scale_in_protected=on))

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Set tags of the allow-list."""
        del key  # setting them again changes nothing
        refuse_foreign_tags(tags)
        with self._call("tag", node_id):
            check_in_force()
            self.set_tags(node_id, tags)

    def leftovers(self) -> Sequence[Leftover]:
        """What was left, and one volume of each stopped machine."""
        with self._call("leftovers"):
            volumes = (
                _disk_of(node, LeftoverKind.STOPPED_VOLUME)
                for node in self._nodes.values()
                if node.state is NodeState.STOPPED and node.known_gpus > 0
            )
            return tuple(sorted([*self._leftovers, *volumes], key=lambda each: each.id))

    def disks(self) -> Sequence[Leftover]:
        """One volume of each machine that is not stopped."""
        with self._call("disks"):
            return by_id(
                _disk_of(node, LeftoverKind.RUNNING_VOLUME)
                for node in self._nodes.values()
                if node.state not in _WITHOUT_DISKS and node.known_gpus > 0
            )

    def _group_of(self, group_id: str) -> NodeGroup:
        """A group with its members."""
        if group_id not in self._groups:
            raise NotFoundError(f"the simulated cloud knows no group {group_id}", code="GroupNotFound")
        group, there = self._groups[group_id][0], tuple(self._serving(group_id))
        refused = None
        if len(there) < group.desired and group_id in self.group_room:
            refused = GroupRefusal(
                at=self._clock.now(), why="there is no such machine now (InsufficientInstanceCapacity)"
            )
        return replace(group, node_ids=there, refused=refused)

    def _refuse(self, group: NodeGroup, process: str | None = None) -> None:
        """Refuse a suspended process as `clouds/aws/actions.py` does."""
        if not group.enrolled:
            raise CloudError(f"the group {group.name} is not ours: it is left alone", code="NotEnrolled")
        if process in group.suspended:
            raise CloudError(f"the process {process} of {group.name} is suspended", code="ProcessSuspended")

    def _member(self, node_id: str, group_id: str) -> Node:
        """One that serves there."""
        if node_id not in self._serving(group_id):
            raise CloudError(f"{node_id} is no member of {group_id} any more: it is left alone", code="NotAMember")
        return self._nodes[node_id]

    def _take_place(self, node: Node, group_id: str) -> None:
        """The member's place goes before the member does, so that it is not replaced."""
        group = self._group_of(group_id)
        self._member(node.id, group_id)
        self._refuse(group, "Terminate")
        refuse_end_below(group.name, group.desired, group.min_size)
        self._reread(node.id)
        if self._nodes[node.id].protected:
            raise ProtectedError(f"{node.id}: {self._nodes[node.id].protected}")
        self._resize(group_id, group.desired - 1)

    def _resize(self, group_id: str, desired: int) -> None:
        group, machine = self._groups[group_id]
        self._groups[group_id] = (replace(group, desired=desired), machine)


def _disk_of(node: Node, kind: LeftoverKind) -> Leftover:
    return Leftover(
        id=f"vol-{node.id}",
        kind=kind,
        region=node.region,
        account=node.account,
        type="gp3",
        size_bytes=_DISK_BYTES,
        node_id=node.id,
    )
