"""Hosts of one's own as a cloud: they are listed, and those of pools with power control are switched off and on.

Without power control nobody but its agent says whether a host runs. So such a host is listed as running. Without an
answer of the agent the controller takes the state for unknown (`controller/observe/own_hosts.py`).
"""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from gpuwatch.clouds import (
    FLEET_TAG,
    WRITABLE_TAGS,
    CloudError,
    Leftover,
    NotFoundError,
    ProtectedError,
    refuse_foreign_tags,
)
from gpuwatch.clouds.hosts.power import NO_POWER, OWN_TAGS, AskAgent, Powers
from gpuwatch.clouds.hosts.settings import HostsSettings
from gpuwatch.clouds.hosts.sources import DEFAULT_TYPE, Named, sources_of
from gpuwatch.clouds.permit import Permit, check_in_force
from gpuwatch.clouds.silence import Outlook, Past, Recall, as_last_seen
from gpuwatch.clouds.tags import claims
from gpuwatch.clouds.without_groups import WithoutGroups
from gpuwatch.model.fleet import CapacityType, Node, NodeState
from gpuwatch.model.sight import Silence
from gpuwatch.model.stops import StopAnswer
from gpuwatch.runtime.clock import Clock

NO_LAUNCH = "NotOffered"  # our own code
PLACE = "on-premises"  # its region
CANNOT_STOP = "gpuwatch has no power control over it"
_AT_ONCE = 32  # hosts whose BMCs are asked at the same time


@dataclass(frozen=True, slots=True)
class _Host:
    """A host as it is named now, and as it was seen before this process began."""

    named: Named
    before: Node | None
    alone: bool  # whether its name without the domain is no other host's


class HostsCloud(WithoutGroups):
    """Any thread may ask; a source is read at each list."""

    whose = "hosts"

    def __init__(
        self, *, fleet: str, clock: Clock, regions: tuple[str, ...], endpoint_url: str | None, named: HostsSettings
    ) -> None:
        """Nothing is read yet.

        Raises:
            CloudError: the certificates of BMCs cannot be read.

        """
        del regions, endpoint_url
        self._fleet, self._clock = fleet, clock
        self._sources = sources_of(named, clock)
        self._past: Recall = Past
        self._turn = threading.Lock()
        self._powers = Powers(named, clock)
        self._tags: dict[str, dict[str, str]] = {}  # written by gpuwatch: a host itself has no place for them

    def by_agents(self, ask: AskAgent) -> None:
        """Ask agents in this way about their hosts' power."""
        self._powers.ask_agent = ask

    # Reading.

    def nodes(self) -> Sequence[Node]:
        """All hosts that are named, in the order of their ids; those of a source that never could be read as recalled.

        Raises:
            CloudError: no source can be read, and nothing is known of what they said before.

        """
        hosts, recalled = self._hosts()
        found = {name: self._node(host) for name, host in hosts.items()} | recalled
        powered = [hosts[name] for name, node in found.items() if name in hosts and self._powers.has_control(node.pool)]
        if powered:
            with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(powered))) as pool:
                found |= {node.id: node for node in pool.map(self._show_host, powered)}
        return [found[name] for name in sorted(found)]

    def node(self, node_id: str) -> Node | None:
        """One host; None: no source names it, and each could be read."""
        hosts, recalled = self._hosts()
        return self._show_host(hosts[node_id]) if node_id in hosts else recalled.get(node_id)

    def _hosts(self) -> tuple[dict[str, _Host], dict[str, Node]]:
        """The hosts that sources name, and those that were of a source which never could be read."""
        with self._turn:
            for source in self._sources:
                source.read()
            past = self._past()
            before = {node.id: node for node in past.nodes if node.owned}
            for name in past.accepted & before.keys():  # it may be down by now, and nobody else would know
                before[name] = replace(before[name], state=NodeState.STOPPING, unseen=None)
            named = self._named_hosts()
            times = Counter(each.name for each in named.values())
            hosts = {name: _Host(each, before.get(name), times[each.name] == 1) for name, each in named.items()}
            self._powers.forget_all_but(hosts)
            unread = [source for source in self._sources if source.hosts is None]
        if not unread:
            return hosts, {}
        why = "; ".join(f"{each.where} cannot be used: {each.trouble}" for each in unread)
        recalled = {name: as_last_seen(node, why) for name, node in before.items() if name not in hosts}
        if not hosts and not recalled:
            raise CloudError(why, code="Unreadable")
        return hosts, recalled

    def _show_host(self, host: _Host) -> Node:
        node = self._node(host)
        return self._powers.show_host(node, host.named, host.before) if self._powers.has_control(node.pool) else node

    def find(self, key: str, arguments: Mapping[str, str] | None = None) -> Node | None:
        """Find nothing: no host is ever launched."""
        del key, arguments
        return None

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

    # Acting: with power control alone.

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """Ask for a clean shutdown."""
        del key
        host, node = self._with_power(node_id, "stop")
        return self._powers.stop(node, host.named, host.before, permit)

    def start(self, node_id: str, key: str) -> None:
        """Order a host on that is off."""
        del key
        host, node = self._with_power(node_id, "start")
        self._powers.start(node, host.named, host.before)

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Refuse the end: a host leaves when no source names it."""
        del key, permit, group
        self._with_power(node_id, "terminate")
        raise ProtectedError(f"gpuwatch cannot terminate {node_id}: it is a host of your own", code=NO_POWER)

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """Refuse the launch: hosts are bought, not launched."""
        del arguments, key
        raise CloudError("hosts of your own cannot be launched", code=NO_LAUNCH)

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Keep these tags, as part of the rounds in the ledger: hosts have no place for any."""
        del key
        refuse_foreign_tags(tags)
        host = self._with_power(node_id, "announce a stop of")[0]
        check_in_force()
        self._tags[node_id] = {**self._written_tags(host), **tags}

    def _written_tags(self, host: _Host) -> dict[str, str]:
        """The tags that gpuwatch has written."""
        if host.named.id not in self._tags and host.before is not None:
            return {key: text for key, text in host.before.tags.items() if key in WRITABLE_TAGS}
        return self._tags.get(host.named.id, {})

    def _with_power(self, node_id: str, verb: str) -> tuple[_Host, Node]:
        host = self._hosts()[0].get(node_id)
        if host is None:
            raise NotFoundError(f"no host is named {node_id}", code="NoSuchHost")
        node = self._node(host)
        if not self._powers.has_control(node.pool):
            raise ProtectedError(f"gpuwatch cannot {verb} {node_id}: {CANNOT_STOP}", code=NO_POWER)
        return host, node

    def _named_hosts(self) -> dict[str, Named]:
        """Each host once; what an earlier source says of it holds."""
        found: dict[str, Named] = {}
        for source in self._sources:
            for name, each in (source.hosts or {}).items():
                found[name] = found[name].with_facts_of(each) if name in found else each
        return found

    def _node(self, host: _Host) -> Node:
        named, before = host.named, host.before
        told = {name: text for name, text in named.tags.items() if name not in OWN_TAGS}  # of a file, and no proof
        tags = {**told, **self._written_tags(host), FLEET_TAG: self._fleet}
        claimed = claims(tags, fleet=self._fleet, now=self._clock.now())
        by_full_name = not host.alone and self._powers.has_control(claimed["pool"])
        return Node(
            id=named.id,
            name=named.id if by_full_name else named.name,  # an answer of `gpu-1` may be of either
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
            **claimed,
        )
