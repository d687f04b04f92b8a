"""The way from a machine's id to its path, and which machines are known to be gone.

Azure shows no machine after its end: its path answers "not found", as it may for a moment after a launch, after a move
to another resource group, and at a server that lags behind. So a machine that is nowhere counts as gone only if it was
seen to go, if we have asked for its end and Azure has accepted that, or if it had been there for a quarter of an hour.
"""

import threading
from collections.abc import Iterable
from dataclasses import replace

from gpuwatch.clouds.azure.instances import Machine
from gpuwatch.clouds.azure.places import same
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.runtime.clock import Clock

_SETTLED_SECONDS = 900.0


class Paths:
    """As long as its process; nothing of it is needed: what is not known is looked for in all lists."""

    def __init__(self, clock: Clock) -> None:
        """Nothing was seen yet."""
        self._clock = clock
        self._lock = threading.Lock()
        self._paths: dict[str, str] = {}
        self._names: dict[str, str] = {}  # the id by the machine's name
        self._first_seen: dict[str, float] = {}
        self._last: dict[str, Node] = {}
        self._ending: set[str] = set()
        self._were_on: set[str] = set()  # that have shown a power state

    def learn(self, node_id: str, path: str) -> None:
        """Note the path of a machine that no list has shown yet."""
        with self._lock:
            self._paths[node_id] = path
            self._names[path.rpartition("/")[2]] = node_id

    def saw(self, machines: Iterable[Machine]) -> list[Machine]:
        """Azure has shown these; gives them back with what is remembered."""
        now, found = self._clock.monotonic(), list(machines)
        with self._lock:
            for machine in found:
                if not machine.id:
                    continue
                if machine.power:
                    self._were_on.add(machine.id)
                self._paths[machine.id] = machine.path
                self._names[machine.name] = machine.id
                self._first_seen.setdefault(machine.id, now)
                if machine.state is NodeState.TERMINATING:
                    self._ending.add(machine.id)
            return [replace(each, was_on=True) if each.id in self._were_on else each for each in found]

    def note_shown(self, nodes: Iterable[Node]) -> None:
        """What the cloud has said about these machines."""
        with self._lock:
            self._last |= {node.id: node for node in nodes}

    def has_shown(self, node_id: str) -> bool:
        """Whether the cloud has described it before."""
        with self._lock:
            return node_id in self._last

    def ends(self, node_id: str) -> None:
        """Azure has accepted its end."""
        with self._lock:
            self._ending.add(node_id)

    def paths_of(self, node_ids: Iterable[str]) -> dict[str, str]:
        """The paths of those that have one."""
        with self._lock:
            return {node_id: self._paths[node_id] for node_id in node_ids if node_id in self._paths}

    def backwards(self, node_ids: Iterable[str]) -> dict[str, str]:
        """The ids by the paths that are known, as `same` writes these."""
        return {same(path): node_id for node_id, path in self.paths_of(node_ids).items()}

    def last_of_gone(self, node_id: str) -> Node | None:
        """A machine that is nowhere, as it was last, where that proves its end; None: it proves nothing."""
        with self._lock:
            last, first = self._last.get(node_id), self._first_seen.get(node_id)
            if last is None or first is None:
                return None
            settled = self._clock.monotonic() - first >= _SETTLED_SECONDS
            return replace(last, state=NodeState.TERMINATED) if settled or node_id in self._ending else None

    def gone_by_name(self, name: str) -> Node | None:
        """The same for the machine that had this name last."""
        node_id = self._names.get(name)
        return None if node_id is None else self.last_of_gone(node_id)
