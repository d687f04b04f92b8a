"""What Tencent Cloud does not say of a machine: when it was started last, and that it has ended.

DescribeInstances gives the time of its making alone, and shows nothing of a machine after its end. So what was seen is
kept: a machine that was seen stopped, and runs again, was started in between; one that was ending, or was asked to end,
and is no longer listed has ended. The memory is that of one process: what ended while it was not there is not known.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

from gpuwatch.clouds.errors import CloudUnavailableError
from gpuwatch.clouds.sightings import Sightings
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.runtime.clock import Clock

_KEPT = timedelta(hours=1)  # for which an ended machine is told, as on EC2
_DOWN = frozenset({NodeState.STOPPING, NodeState.STOPPED})
_UP = frozenset({NodeState.PENDING, NodeState.RUNNING})


class History:
    """Any thread may ask."""

    def __init__(self, clock: Clock) -> None:
        """Nothing was seen yet."""
        self._clock = clock
        self._turn = threading.Lock()
        self._sightings = Sightings(clock)
        self._last: dict[str, Node] = {}
        self._starts: dict[str, datetime] = {}
        self._ending: dict[str, datetime] = {}  # when that was first known

    def now(self) -> datetime:
        """The time of its clock."""
        return self._clock.now()

    def with_start_time(self, node: Node) -> Node:
        """The machine as the cloud shows it now, with the time of its last start, as far as somebody looked."""
        node = self._sightings.with_sight(node)
        with self._turn:
            before = self._last.get(node.id)
            if before is not None and before.state in _DOWN and node.state in _UP:
                self._starts.setdefault(node.id, self._clock.now())
            elif node.state in _DOWN:
                self._starts.pop(node.id, None)
            if node.state is NodeState.TERMINATING:
                self._ending.setdefault(node.id, self._clock.now())
            started = self._starts.get(node.id)
            if started is not None and (node.launched_at is None or started > node.launched_at):
                node = replace(node, launched_at=started)
            if node.state is not NodeState.UNKNOWN:
                self._last[node.id] = node
            return node

    def note_start(self, node_id: str) -> None:
        """A start was accepted."""
        with self._turn:
            self._starts[node_id] = self._clock.now()

    @contextmanager
    def ending(self, node_id: str) -> Iterator[None]:
        """Ask for an end within: it is remembered where it was accepted, or may have been."""
        try:
            yield
        except CloudUnavailableError:
            self.ends(node_id)
            raise
        self.ends(node_id)

    def ends(self, node_id: str) -> None:
        """A machine is ending, or may be."""
        with self._turn:
            if node_id in self._last:
                self._ending.setdefault(node_id, self._clock.now())

    def last(self, node_id: str) -> Node | None:
        """The machine as it was last shown."""
        with self._turn:
            return self._last.get(node_id)

    def ended_machine(self, node_id: str) -> Node | None:
        """A machine that the cloud does not list: terminated where it was ending, and None where nobody knows."""
        with self._turn:
            node, since = self._last.get(node_id), self._ending.get(node_id)
            if node is None or since is None:
                return None
            return replace(node, state=NodeState.TERMINATED)

    def ended_by_name(self, name: str) -> Node | None:
        """The machine of that name that was ending."""
        with self._turn:
            found = [node.id for node in self._last.values() if node.name == name and node.id in self._ending]
        return self.ended_machine(found[0]) if found else None

    def keep(self, listed: Iterable[str]) -> None:
        """Forget what is neither listed nor ended a short time ago."""
        there, now = set(listed), self._clock.now()
        with self._turn:
            self._ending = {each: at for each, at in self._ending.items() if each in there or now - at <= _KEPT}
            kept = there | self._ending.keys()
            self._last = {each: node for each, node in self._last.items() if each in kept}
            self._starts = {each: at for each, at in self._starts.items() if each in kept}
