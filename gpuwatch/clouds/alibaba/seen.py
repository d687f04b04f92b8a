"""What this process has seen of machines, since Alibaba Cloud shows a released machine no more at once.

That an id is not there proves nothing by itself: it may be too new, or of another account. So a machine is gone where
we have seen it and the cloud says by two of its calls that it is not there.
"""

import threading
from collections.abc import Mapping
from dataclasses import replace

from gpuwatch.clouds.alibaba.places import Region
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.runtime.clock import Clock

_FORGET_SECONDS = 86400.0  # after the last look at a machine
_ENDING_SECONDS = 900.0  # an end that was asked for is shown as one; if it has not come by then, it has failed
_ON_THE_WAY = ("Stopping", "Stopped")


class Seen:
    """As long as its process."""

    def __init__(self, clock: Clock) -> None:
        """Nothing was seen yet."""
        self._clock = clock
        self._nodes: dict[str, tuple[Region, Node, float]] = {}
        self._ending: dict[str, tuple[float, bool]] = {}
        self._launched: dict[str, tuple[str, float]] = {}  # what a key launched, and when
        self._lock = threading.Lock()

    def note(self, place: Region, node: Node) -> Node:
        """Keep how a machine looks now."""
        now = self._clock.monotonic()
        with self._lock:
            self._nodes[node.id] = (place, node, now)
        return node

    def forget(self) -> None:
        """Drop what nobody has looked at for a day."""
        before = self._clock.monotonic() - _FORGET_SECONDS
        with self._lock:
            self._nodes = {name: each for name, each in self._nodes.items() if each[2] >= before}
            self._launched = {key: each for key, each in self._launched.items() if each[1] >= before}

    def home(self, node_id: str) -> Region | None:
        """Where it was seen."""
        found = self._nodes.get(node_id)
        return None if found is None else found[0]

    def gone(self, node_id: str) -> Node | None:
        """How it looked last, as one that is gone; None: nobody here has seen it."""
        found = self._nodes.get(node_id)
        return None if found is None else replace(found[1], state=NodeState.TERMINATED)

    def launched(self, key: str, node_id: str) -> None:
        """Keep what a key has launched."""
        with self._lock:
            self._launched[key] = node_id, self._clock.monotonic()

    def of_key(self, key: str) -> str | None:
        """What a key has launched."""
        found = self._launched.get(key)
        return None if found is None else found[0]

    def ends(self, node_id: str, *, accepted: bool) -> None:
        """Keep that its end was asked for; without an answer it may not have been accepted."""
        with self._lock:
            self._ending[node_id] = (self._clock.monotonic() + _ENDING_SECONDS, accepted)

    def ending(self, described: Mapping[str, object]) -> bool:
        """Whether what ECS shows of a machine is the end that we asked for: it shows a stop."""
        until, _ = self._ending.get(str(described.get("InstanceId")), (0.0, False))
        return described.get("Status") in _ON_THE_WAY and self._clock.monotonic() < until

    def accepted(self, node_id: str) -> bool:
        """Whether ECS has lately accepted its end from us, whatever a late answer shows."""
        until, accepted = self._ending.get(node_id, (0.0, False))
        return accepted and self._clock.monotonic() < until
