"""What this process has seen of machines, since Alibaba Cloud shows a released machine no more at once.

That an id is not there proves nothing by itself: it may be too new, or of another account. So a machine is gone where
we have seen it and the cloud says by two of its calls that it is not there.
"""

import threading
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum, auto

from gpuwatch.clouds import START_IS_DONE
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.runtime.clock import Clock

_FORGET_SECONDS = 86400.0  # after the last look at a machine
_ENDING_SECONDS = 900.0  # an end that was asked for is shown as one; if it has not come by then, it has failed
_ON_THE_WAY = ("Stopping", "Stopped")


class End(Enum):
    """How sure it is that an end of a machine is under way that we have asked for."""

    ACCEPTED = auto()
    LIKELY = auto()  # there was no answer, and when it was asked nothing else could show as a stop
    POSSIBLE = auto()  # there was no answer, and the machine had been stopped, or was about to be


class Seen:
    """As long as its process."""

    def __init__(self, clock: Clock) -> None:
        """Nothing was seen yet."""
        self._clock = clock
        self._nodes: dict[str, tuple[Node, float]] = {}
        self._ending: dict[str, tuple[float, End]] = {}  # until when it counts
        self._stopping: dict[str, float] = {}  # machines whose stop was asked for, and until when that explains one
        self._launched: dict[str, tuple[str, float]] = {}  # what a key launched, and when
        self._lock = threading.Lock()

    def note(self, node: Node) -> Node:
        """Keep how a machine looks now."""
        now = self._clock.monotonic()
        with self._lock:
            self._nodes[node.id] = (node, now)
        return node

    def forget(self) -> None:
        """Drop what nobody has looked at for a day."""
        before = self._clock.monotonic() - _FORGET_SECONDS
        with self._lock:
            self._nodes = {name: each for name, each in self._nodes.items() if each[1] >= before}
            self._launched = {key: each for key, each in self._launched.items() if each[1] >= before}
            self._ending = {name: each for name, each in self._ending.items() if each[0] >= before}
            self._stopping = {name: until for name, until in self._stopping.items() if until >= before}

    def has(self, node_id: str) -> bool:
        """Whether it was looked at lately."""
        return node_id in self._nodes

    def last_of_gone(self, node_id: str) -> Node | None:
        """How it looked last, as one that is gone; None: nobody here has seen it."""
        found = self._nodes.get(node_id)
        return None if found is None else replace(found[0], state=NodeState.TERMINATED)

    def note_launch(self, key: str, node_id: str) -> None:
        """Keep what a key has launched."""
        with self._lock:
            self._launched[key] = node_id, self._clock.monotonic()

    def of_key(self, key: str) -> str | None:
        """What a key has launched."""
        found = self._launched.get(key)
        return None if found is None else found[0]

    def stops(self, node_id: str) -> None:
        """Keep that its stop was asked for: a stop that ECS shows from now on may be that one, and no end."""
        until = self._clock.monotonic() + _ENDING_SECONDS
        with self._lock:
            self._stopping[node_id] = until
            if self.end(node_id) is End.LIKELY:
                self._ending[node_id] = (until, End.POSSIBLE)

    def ends(self, node_id: str, *, accepted: bool) -> None:
        """Keep that its end was asked for; without an answer it may not have been accepted."""
        now = self._clock.monotonic()
        with self._lock:
            last = self._nodes.get(node_id)
            ran = last is not None and last[0].state in START_IS_DONE and now >= self._stopping.get(node_id, now)
            end = End.LIKELY if ran else self.end(node_id) or End.POSSIBLE
            self._ending[node_id] = (now + _ENDING_SECONDS, End.ACCEPTED if accepted else end)

    def end(self, node_id: str) -> End | None:
        """What is known of an end that we have lately asked for; None: we have not."""
        until, end = self._ending.get(node_id, (0.0, None))
        return end if self._clock.monotonic() < until else None

    def ending(self, described: Mapping[str, object]) -> End | None:
        """The end that may be behind what ECS shows of a machine: it shows an end as a stop."""
        return self.end(str(described.get("InstanceId"))) if described.get("Status") in _ON_THE_WAY else None
