"""Hosts of one's own as a cloud: they are listed, and nothing can be done to them.

Nobody but its agent says whether a host runs. So each is listed as running. Without an answer of the agent the
controller takes the state for unknown (`controller/observe/own_hosts.py`).
"""

import threading
from collections.abc import Mapping, Sequence
from typing import NoReturn

from gpuwatch.clouds import FLEET_TAG, CloudError, Leftover, NotFoundError, ProtectedError, refuse_foreign_tags
from gpuwatch.clouds.hosts.settings import HostsSettings
from gpuwatch.clouds.hosts.sources import DEFAULT_TYPE, Named, sources_of
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.silence import Outlook, Past, Recall, as_last_seen
from gpuwatch.clouds.tags import claims
from gpuwatch.model.fleet import CapacityType, Node, NodeGroup, NodeState
from gpuwatch.model.sight import Silence
from gpuwatch.model.stops import StopAnswer
from gpuwatch.runtime.clock import Clock

NO_POWER, NO_LAUNCH = "NoPowerControl", "NotOffered"  # our own codes
PLACE = "on-premises"  # its region
CANNOT_STOP = "gpuwatch has no power control over it"


class HostsCloud:
    """Any thread may ask; a source is read at each list."""

    def __init__(
        self, *, fleet: str, clock: Clock, regions: tuple[str, ...], endpoint_url: str | None, named: HostsSettings
    ) -> None:
        """Nothing is read yet."""
        del regions, endpoint_url
        self._fleet, self._clock = fleet, clock
        self._sources = sources_of(named, clock)
        self._past: Recall = Past
        self._turn = threading.Lock()

    # Reading.

    def nodes(self) -> Sequence[Node]:
        """All hosts that are named, in the order of their ids; those of a source that never could be read as recalled.

        Raises:
            CloudError: no source can be read, and nothing is known of what they said before.

        """
        with self._turn:
            for source in self._sources:
                source.read()
            before = {node.id: node for node in self._past().nodes if node.owned}
            found = {name: self._node(each, before.get(name)) for name, each in self._named_hosts().items()}
            unread = [source for source in self._sources if source.hosts is None]
            if unread:
                why = "; ".join(f"{each.where} cannot be used: {each.trouble}" for each in unread)
                recalled = [node for name, node in before.items() if name not in found]
                if not found and not recalled:
                    raise CloudError(why, code="Unreadable")
                found |= {node.id: as_last_seen(node, why) for node in recalled}
        return [found[name] for name in sorted(found)]

    def node(self, node_id: str) -> Node | None:
        """One host; None: no source names it, and each could be read."""
        return next((each for each in self.nodes() if each.id == node_id), None)

    def find(self, key: str, arguments: Mapping[str, str] | None = None) -> Node | None:
        """Find nothing: no host is ever launched."""
        del key, arguments
        return None

    def groups(self) -> Sequence[NodeGroup]:
        """Hosts are in no groups."""
        return ()

    def group(self, group_id: str) -> NodeGroup:
        """Refuse it: hosts are in no groups."""
        raise NotFoundError(f"hosts have no groups, so {group_id} does not exist", code=NO_LAUNCH)

    def leftovers(self) -> Sequence[Leftover]:
        """Nothing is billed besides hosts."""
        return ()

    # Sources that cannot be read.

    def recall(self, past: Recall) -> None:
        """Ask this for the hosts of a source that could never be read."""
        self._past = past

    def outlook(self) -> Outlook:
        """Which sources could be read, and which cannot now."""
        silent = [
            Silence(where=each.where, reason=each.trouble, known=each.hosts is not None or bool(self._past().places))
            for each in self._sources
            if each.trouble is not None
        ]
        read = frozenset(each.where for each in self._sources if each.hosts is not None)
        return Outlook(places=read, silent=tuple(silent))

    # Acting: nothing can be done.

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """Refuse the stop: nothing can switch the host off."""
        del key, permit
        self._refuse(node_id, "stop")

    def start(self, node_id: str, key: str) -> None:
        """Refuse the start: nothing can switch the host on."""
        del key
        self._refuse(node_id, "start")

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Refuse the end: a host leaves when no source names it."""
        del key, permit, group
        self._refuse(node_id, "terminate")

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """Refuse the launch: hosts are bought, not launched."""
        del arguments, key
        raise CloudError("hosts of your own cannot be launched", code=NO_LAUNCH)

    def grow(self, group_id: str, size: int, key: str) -> None:
        """Refuse the growth: hosts are in no groups."""
        del size, key
        self.group(group_id)

    def shrink(self, group_id: str, size: int, key: str) -> None:
        """Refuse the reduction: hosts are in no groups."""
        del size, key
        self.group(group_id)

    def protect(self, node_id: str, group_id: str, key: str, *, on: bool) -> None:
        """Refuse the protection: hosts are in no groups."""
        del node_id, key, on
        self.group(group_id)

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Refuse it: what is said of a host is in its source."""
        del key
        refuse_foreign_tags(tags)
        raise CloudError(f"{node_id} is a host of your own, and gpuwatch writes no tags on it", code=NO_LAUNCH)

    def _refuse(self, node_id: str, verb: str) -> NoReturn:
        if self.node(node_id) is None:
            raise NotFoundError(f"no host is named {node_id}", code="NoSuchHost")
        raise ProtectedError(f"gpuwatch cannot {verb} {node_id}: {CANNOT_STOP}", code=NO_POWER)

    def _named_hosts(self) -> dict[str, Named]:
        """Each host once; what an earlier source says of it holds."""
        found: dict[str, Named] = {}
        for source in self._sources:
            for name, each in (source.hosts or {}).items():
                found[name] = found[name].with_facts_of(each) if name in found else each
        return found

    def _node(self, named: Named, before: Node | None) -> Node:
        tags = {**named.tags, FLEET_TAG: self._fleet}
        return Node(
            id=named.id,
            name=named.name,
            state=NodeState.RUNNING,
            instance_type=named.type or DEFAULT_TYPE,
            gpu_count=None if before is None else before.gpu_count,
            region=PLACE,
            zone="",
            capacity_type=CapacityType.OWN,
            address=named.address or named.id,
            cannot_stop=CANNOT_STOP,
            cannot_terminate=CANNOT_STOP,
            tags=tags,
            **claims(tags, fleet=self._fleet, now=self._clock.now()),
        )
