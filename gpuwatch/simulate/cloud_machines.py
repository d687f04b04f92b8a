"""The machines of the simulated cloud: what they, people and time do. Changes fall due at exact times."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count

from gpuwatch.clouds import PROTECT_TAG, SNOOZE_TAG, CloudError, CloudUnavailableError, Leftover, NotFoundError
from gpuwatch.clouds.tags import claims
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from gpuwatch.runtime.clock import Clock

INCORRECT_STATE = "IncorrectInstanceState"

_TIMED_TAGS = frozenset({PROTECT_TAG, SNOOZE_TAG})  # what they claim changes with time alone

# (name of the call, id or "") -> what goes wrong. LostResponseError is raised after the effect, others instead of it.
Faults = Callable[[str, str], Exception | None]


class LostResponseError(CloudUnavailableError):
    """The call happened and its answer was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A machine entered a state, in seconds of the clock's monotonic time."""

    at_seconds: float
    state: NodeState


class Machines:
    """Machines that exist because `add` said so. Tags decide enrolment, pool, owner and protection, as on EC2."""

    def __init__(
        self,
        *,
        fleet: str,
        clock: Clock,
        pending_seconds: float = 60.0,
        stopping_seconds: float = 60.0,
        faults: Faults | None = None,
    ) -> None:
        """Begin without a machine."""
        self.faults = faults
        self._fleet = fleet
        self._clock = clock
        self._pending_seconds = pending_seconds
        self._stopping_seconds = stopping_seconds
        self._nodes: dict[str, Node] = {}
        self._history: dict[str, list[Change]] = {}
        self._timed: set[str] = set()
        self._due: list[tuple[float, str, int, NodeState]] = []  # the int: how long the history was, a later one wins
        self._listed: tuple[Node, ...] | None = None
        self._places: dict[str, int] = {}  # of machines by their ids, in the order of these
        self._rows: list[Node] = []  # the machines there
        self._hidden: set[str] = set()  # of them those that are not listed
        self._templates: dict[str, Node] = {}
        self._launches: dict[str, tuple[str, Mapping[str, str]]] = {}  # by key: the machine, and the arguments
        self._groups: dict[str, tuple[NodeGroup, Node]] = {}
        self.group_room: dict[str, int] = {}  # for how many members of a group there is stock; not named: for all
        self._leftovers: list[Leftover] = []
        self._numbers = count(1)

    def add(self, node: Node) -> None:
        """Put a machine there in its present state; what its tags say replaces the fields that come from tags."""
        launched_at = node.launched_at or self._clock.now()
        self._nodes[node.id] = replace(node, launched_at=launched_at)
        self._history[node.id] = [Change(at_seconds=self._clock.monotonic(), state=node.state)]
        self.set_tags(node.id, {})

    def add_template(self, name: str, machine: Node) -> None:
        """What a launch from that template is like; its id, state and tags are the launch's."""
        self._templates[name] = machine

    def add_group(self, group: NodeGroup, machine: Node) -> None:
        """Put a group there; its members are all like `machine`, and it fills itself up to its desired size."""
        owner = None if group.enrolled else f"Auto Scaling group {group.name}"
        self._groups[group.id] = (group, replace(machine, group=group.id, managed_by=owner))
        self._fill(group.id)

    def add_leftover(self, leftover: Leftover) -> None:
        """Something that nobody uses and everybody pays."""
        self._leftovers.append(leftover)

    def set_tags(self, node_id: str, tags: Mapping[str, str]) -> None:
        """Set any tags, as people and their tools do."""
        node = self._known_node(node_id)
        merged = {**node.tags, **tags}
        self._put(replace(node, tags=merged, **claims(merged, fleet=self._fleet, now=self._clock.now())))
        if _TIMED_TAGS & merged.keys():
            self._timed.add(node_id)

    def take_away(self, node_id: str) -> None:
        """End a machine, as somebody else may."""
        self._settle()
        self._end(self._known_node(node_id).id)
        self._fill(self._nodes[node_id].group)

    def history(self, node_id: str) -> Sequence[Change]:
        """Every state the machine was in, oldest first, up to now."""
        self._settle()
        return self._history[node_id]

    @contextmanager
    def _call(self, name: str, node_id: str = "") -> Iterator[None]:
        """One call: its fault, if it has one, before or after the effect."""
        fault = None if self.faults is None else self.faults(name, node_id)
        if fault is not None and not isinstance(fault, LostResponseError):
            raise fault
        self._settle()
        yield
        if fault is not None:
            raise fault

    def _known_node(self, node_id: str) -> Node:
        if node_id not in self._nodes:
            raise NotFoundError(f"the simulated cloud knows no machine {node_id}", code="InvalidInstanceID.NotFound")
        return self._nodes[node_id]

    def _may(self, node_id: str, wanted: NodeState, *, done: frozenset[NodeState], verb: str) -> bool:
        """Whether the machine is in the state to act from; False where there is nothing left to do."""
        state = self._known_node(node_id).state
        if state is not wanted and state not in done:
            raise CloudError(f"{node_id} is {state} and cannot be {verb} now", code=INCORRECT_STATE)
        return state is wanted

    def _begin(self, machine: Node, tags: Mapping[str, str]) -> str:
        """A new machine that is pending now and runs `pending_seconds` later; gives its id."""
        node_id = f"i-f{next(self._numbers):016x}"
        merged = {**machine.tags, **tags}
        name = merged.get("Name", node_id)
        begun = replace(machine, id=node_id, name=name, tags=merged, state=NodeState.PENDING, launched_at=None)
        self.add(begun)
        self._later(node_id, NodeState.RUNNING, self._pending_seconds)
        return node_id

    def _fill(self, group_id: str | None) -> None:
        """A group launches what it lacks, also in the place of a member that somebody else stopped or ended."""
        if group_id is None:
            return
        group, machine = self._groups[group_id]
        if "Launch" not in group.suspended:
            there = len(self._serving(group_id))
            for _ in range(min(group.desired, self.group_room.get(group_id, group.desired)) - there):
                self._begin(machine, {})

    def _serving(self, group_id: str) -> list[str]:
        """The members of a group that run, or will."""
        alive = (NodeState.PENDING, NodeState.RUNNING)
        return sorted(node.id for node in self._nodes.values() if node.group == group_id and node.state in alive)

    def _end(self, node_id: str) -> None:
        """Terminating now, and terminated `stopping_seconds` later."""
        self._enter(node_id, NodeState.TERMINATING, self._clock.monotonic())
        self._later(node_id, NodeState.TERMINATED, self._stopping_seconds)

    def _settle(self) -> None:
        """Let every change happen that is due, at its own time."""
        now = self._clock.monotonic()
        while self._due and self._due[0][0] <= now:
            at_seconds, node_id, length, state = heappop(self._due)
            if len(self._history[node_id]) == length:
                self._enter(node_id, state, at_seconds)

    def _enter(self, node_id: str, state: NodeState, at_seconds: float) -> None:
        self._history[node_id].append(Change(at_seconds=at_seconds, state=state))
        self._put(replace(self._nodes[node_id], state=state))

    def _later(self, node_id: str, state: NodeState, delay_seconds: float) -> None:
        due = self._clock.monotonic() + delay_seconds
        heappush(self._due, (due, node_id, len(self._history[node_id]), state))

    def _reread(self, node_id: str) -> None:
        """Read the tags again: their claims may have run out."""
        node = self._nodes[node_id]
        claimed = claims(node.tags, fleet=self._fleet, now=self._clock.now())
        if (claimed["protected"], claimed["snoozed"]) != (node.protected, node.snoozed):
            self._put(replace(node, **claimed))

    def _put(self, node: Node) -> None:
        self._nodes[node.id] = node
        self._listed = None
        if (place := self._places.get(node.id)) is not None:
            self._rows[place] = node
            (self._hidden.discard if is_listed(node) else self._hidden.add)(node.id)


def is_listed(node: Node) -> bool:
    """Whether a list shows it."""
    return node.state is not NodeState.TERMINATED and node.known_gpus > 0
