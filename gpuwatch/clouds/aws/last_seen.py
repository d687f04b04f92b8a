"""What each account and region showed last, for a round in which it shows less, or nothing.

A machine that a list leaves out may still run, and one of a place that gives no answer probably does: both stay in the
fleet as last seen, in an unknown state. So they count as capacity, keep their notices, and are left alone.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from gpuwatch.clouds import CloudError
from gpuwatch.clouds.aws.regions import Region
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from gpuwatch.runtime.clock import Clock

log = logging.getLogger(__name__)

_FORGET_SECONDS = 900.0  # for which a machine that EC2 shows neither as there nor as terminated counts as there


class Views:
    """As long as its process: a controller that has just begun sees a whole fleet once before it sees a part of one."""

    def __init__(self, clock: Clock) -> None:
        """Nothing was seen yet."""
        self._clock = clock
        self._nodes: dict[Region, dict[str, Node]] = {}
        self._groups: dict[Region, list[NodeGroup]] = {}
        self._missing_since: dict[str, float] = {}
        self._silent: set[Region] = set()

    def left_out(self, place: Region, listed: Collection[str]) -> list[str]:
        """The machines that were there before and are not among these."""
        return sorted(self._nodes.get(place, {}).keys() - set(listed))

    def keep(self, place: Region, nodes: Iterable[Node], answered: Collection[str]) -> list[Node]:
        """What the place shows now, and the machines that its answer left out; `answered` are the ids in it."""
        now, found = self._clock.monotonic(), {node.id: node for node in nodes}
        answered = set(answered)
        for node_id, node in self._nodes.get(place, {}).items():
            if node_id in answered:
                continue
            since = self._missing_since.setdefault(node_id, now)
            if now - since <= _FORGET_SECONDS:
                found[node_id] = replace(node, state=NodeState.UNKNOWN)
            else:
                log.warning("EC2 in %s no longer lists %s: it counts as gone", place.name, node_id)
        for node_id in self._missing_since.keys() & (answered | (self._nodes.get(place, {}).keys() - found.keys())):
            del self._missing_since[node_id]
        self._nodes[place] = found
        self._answers(place)
        return list(found.values())

    def last_nodes(self, place: Region, error: CloudError) -> list[Node]:
        """What a place without an answer showed last.

        Raises:
            CloudError: it has shown nothing yet.

        """
        if place not in self._nodes:
            raise error
        if place not in self._silent:
            self._silent.add(place)
            log.warning("%s; its machines count as they were and are left alone", error)
        return [replace(node, state=NodeState.UNKNOWN) for node in self._nodes[place].values()]

    def keep_groups(self, place: Region, groups: Sequence[NodeGroup]) -> list[NodeGroup]:
        """The groups that a place shows now."""
        self._groups[place] = list(groups)
        return self._groups[place]

    def last_groups(self, place: Region, error: CloudError) -> list[NodeGroup]:
        """The groups that a place without an answer showed last, protected from every change; raises likewise."""
        if place not in self._groups:
            raise error
        return [replace(group, protected=f"its region gave no answer ({error})") for group in self._groups[place]]

    def _answers(self, place: Region) -> None:
        """Say once that a place answers again."""
        if place in self._silent:
            self._silent.discard(place)
            log.warning("EC2 in %s answers again", place.name)
