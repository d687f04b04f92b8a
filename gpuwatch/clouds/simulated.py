"""A cloud in memory, on whatever clock it is handed: same protocol, same refusals, no network.

Machines need `pending_seconds` to start and `stopping_seconds` to stop. Changes fall due at exact times, whenever
somebody looks next, so `history` is the truth for billing. Nothing is random: faults come from the `faults` hook.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from gpuwatch.clock import Clock
from gpuwatch.clouds import (
    PROTECT_TAG,
    SNOOZE_TAG,
    START_IS_DONE,
    STOP_IS_DONE,
    CloudError,
    CloudUnavailableError,
    NotFoundError,
    refuse_foreign_tags,
)
from gpuwatch.clouds.claims import claims
from gpuwatch.model.fleet import Node, NodeState

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


class SimulatedCloud:
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
        """Begin without machines."""
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

    # What the simulation does: machines, people and time.

    def add(self, node: Node) -> None:
        """Put a machine there in its present state; what its tags say replaces the fields that come from tags."""
        launched_at = node.launched_at or self._clock.now()
        self._nodes[node.id] = replace(node, launched_at=launched_at)
        self._history[node.id] = [Change(at_seconds=self._clock.monotonic(), state=node.state)]
        self.set_tags(node.id, {})

    def set_tags(self, node_id: str, tags: Mapping[str, str]) -> None:
        """Set any tags, as people and their tools do."""
        node = self._known(node_id)
        merged = {**node.tags, **tags}
        self._put(replace(node, tags=merged, **claims(merged, fleet=self._fleet, now=self._clock.now())))
        if _TIMED_TAGS & merged.keys():
            self._timed.add(node_id)

    def terminate(self, node_id: str) -> None:
        """Take a machine away, as somebody else may."""
        self._settle()
        self._known(node_id)
        self._enter(node_id, NodeState.TERMINATING, self._clock.monotonic())
        self._later(node_id, NodeState.TERMINATED, self._stopping_seconds)

    def history(self, node_id: str) -> Sequence[Change]:
        """Every state the machine was in, oldest first, up to now."""
        self._settle()
        return self._history[node_id]

    # What a cloud does: the protocol.

    def nodes(self) -> Sequence[Node]:
        """All GPU machines that are not terminated; the same tuple again while nothing changes."""
        with self._call("nodes"):
            for node_id in self._timed:
                self._reread(node_id)
            if self._listed is None:
                alive = (node for node in self._nodes.values() if node.state is not NodeState.TERMINATED)
                self._listed = tuple(sorted((node for node in alive if node.gpu_count > 0), key=lambda node: node.id))
            return self._listed

    def node(self, node_id: str) -> Node:
        """One machine as it is now."""
        with self._call("node", node_id):
            self._known(node_id)
            self._reread(node_id)
            return self._nodes[node_id]

    def stop(self, node_id: str, key: str) -> None:
        """Running becomes stopping, and stopped `stopping_seconds` later."""
        del key  # a second stop changes nothing
        with self._call("stop", node_id):
            if self._may(node_id, NodeState.RUNNING, done=STOP_IS_DONE, verb="stopped"):
                self._enter(node_id, NodeState.STOPPING, self._clock.monotonic())
                self._later(node_id, NodeState.STOPPED, self._stopping_seconds)

    def start(self, node_id: str, key: str) -> None:
        """Stopped becomes pending with a new launch time, and running `pending_seconds` later."""
        del key  # a second start changes nothing
        with self._call("start", node_id):
            if self._may(node_id, NodeState.STOPPED, done=START_IS_DONE, verb="started"):
                self._put(replace(self._nodes[node_id], launched_at=self._clock.now()))
                self._enter(node_id, NodeState.PENDING, self._clock.monotonic())
                self._later(node_id, NodeState.RUNNING, self._pending_seconds)

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Set tags of the allow-list."""
        del key  # setting them again changes nothing
        refuse_foreign_tags(tags)
        with self._call("tag", node_id):
            self.set_tags(node_id, tags)

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

    def _known(self, node_id: str) -> Node:
        if node_id not in self._nodes:
            raise NotFoundError(f"the simulated cloud knows no machine {node_id}", code="InvalidInstanceID.NotFound")
        return self._nodes[node_id]

    def _may(self, node_id: str, wanted: NodeState, *, done: frozenset[NodeState], verb: str) -> bool:
        """Whether the machine is in the state to act from; False where there is nothing left to do."""
        state = self._known(node_id).state
        if state is not wanted and state not in done:
            raise CloudError(f"{node_id} is {state} and cannot be {verb} now", code=INCORRECT_STATE)
        return state is wanted

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
        """Ask the tags again, whose claims may have run out."""
        node = self._nodes[node_id]
        claimed = claims(node.tags, fleet=self._fleet, now=self._clock.now())
        if claimed["protected"] != node.protected:
            self._put(replace(node, **claimed))

    def _put(self, node: Node) -> None:
        self._nodes[node.id] = node
        self._listed = None
