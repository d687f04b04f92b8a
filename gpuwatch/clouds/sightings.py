"""How well a process has watched each machine, for clouds that do not say when a machine was started last."""

import threading
from dataclasses import replace

from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.sight import BLIND_SECONDS, Sight
from gpuwatch.runtime.clock import Clock

_FORGOTTEN_SECONDS = 86400.0  # without a look: it would have been out of sight anyway
_MANY = 1000


class Sightings:
    """Any thread may ask. A machine that a process first sees late was out of sight since the process began."""

    def __init__(self, clock: Clock) -> None:
        """Nothing was looked at yet."""
        self._clock = clock
        self._turn = threading.Lock()
        self._began = clock.uptime()
        self._looks: dict[str, tuple[float, Sight]] = {}
        self._most = _MANY

    def with_sight(self, node: Node) -> Node:
        """The machine as its cloud shows it now, with how well it was watched until now."""
        with self._turn:
            now = self._clock.uptime()
            before, sight = self._looks.get(node.id, (self._began, Sight()))
            if node.state is NodeState.UNKNOWN:
                return replace(node, sight=sight)
            if now - before > BLIND_SECONDS:
                longest = max(now - before, sight.blind_seconds)
                sight = Sight(blind_until=self._clock.now(), blind_seconds=longest)
            self._looks[node.id] = now, sight
            if len(self._looks) > self._most:
                self._looks = {each: look for each, look in self._looks.items() if now - look[0] <= _FORGOTTEN_SECONDS}
                self._most = 2 * len(self._looks) + _MANY
            return replace(node, sight=sight)

    def __contains__(self, node_id: object) -> bool:
        """Whether it was looked at lately."""
        return node_id in self._looks

    def __len__(self) -> int:
        """How many were looked at lately."""
        return len(self._looks)
