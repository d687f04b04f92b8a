"""TCP connections of people's programs with other machines, and the traffic of their containers.

A process that waits for its peers, serves somebody, or asks a server elsewhere may use little CPU, disk and network.
Only connections of people's programs count, not the machine's own: logs, monitoring, SSH.

A server without a program of people (the kernel's for files and disks, a package's) shows by its clients:

- Machines that have mounted from the kernel's hang when it stops: busy while one is connected, occupied for four hours
  after. NFS clients (version 3) close a connection that they did not use for five minutes, and open it again (xs_idle
  timeout, net/sunrpc/xprtsock.c).
- A package's occupies the node while other machines may connect: a client may come and go between two looks. So does
  any other one for its first two hours: its first user is on the way (`first_use`).
- Of any other of the machine's own, and of both, it is use when machines work with it (`askers`), and busy while
  several do.
- A machine of a private network that comes to one of all these, or to a program of people, in a container too, makes
  the node busy for a look: it has not asked for a quarter of an hour. To others of the machine's own it must bring more
  than it takes; that occupies the node for four hours, too. One that comes to people's programs more often does, if
  less evenly than a health check (`Uneven`).

What the machine's own programs ask elsewhere says nothing. Only a package's that collects counts: it gets more than it
sends, and others may connect to it.

Use of a server may be too little for the limit. So a minute that stands out from what its connections move by
themselves is busy, too (`hum`). So is what comes through this machine: `tunnels`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from gpuwatch.agent.attribution.process import user_name
from gpuwatch.agent.evidence.askers import (
    CARRIED_BYTES_PER_SECOND,
    LASTING_SECONDS,
    READ_BYTES_PER_SECOND,
    SEVERAL,
    Arrivals,
    Ask,
    Asked,
    Askers,
    Uneven,
)
from gpuwatch.agent.evidence.base import Moment, Roots, UnseenError, make_finding, several
from gpuwatch.agent.evidence.datagrams import Datagrams
from gpuwatch.agent.evidence.first_use import Awaited, FirstUse
from gpuwatch.agent.evidence.net_namespaces import Namespace, asks_inside, namespaces
from gpuwatch.agent.evidence.rate import Hum, Rate
from gpuwatch.agent.evidence.settings import ConnectionSettings
from gpuwatch.agent.evidence.sock_diag import Ended, Grown, Sock, Sockets, read_sockets
from gpuwatch.agent.evidence.socket_owners import KERNEL_SERVERS, Holders, SocketOwners, kernel_server, ports_of
from gpuwatch.agent.evidence.tunnels import Tunnels, asks_of, is_onward, onward
from gpuwatch.agent.evidence.udp_servers import UdpServers, UdpUse
from gpuwatch.agent.processes.kinds import PACKAGED
from gpuwatch.agent.processes.process import Kind, Process, ProcessView, owner_of
from gpuwatch.model.activity import Evidence, State, WorkOwner
from gpuwatch.model.duration import format_duration
from gpuwatch.model.readable import how_many
from gpuwatch.runtime.printable import legible

_SPAN_SECONDS, _SERVED_SECONDS = 60.0, 4 * 3600.0
_SETTING = "agent.evidence.connections.busy_bytes_per_second"
_SWITCH = "agent.evidence.connections.enabled"
_COLLECTED_TIMES = 2
_HOST = "the host's own network"  # beside the names of namespaces


class Connections:
    """Busy while people's programs move more than the limit, mean of a minute; or, unmeasured, while they serve.

    Also while a server's clients do more than usual or mount from here; occupied while a package's may be asked.
    """

    name = "connections"
    source = "sock_diag(7), else /proc/net/tcp; /proc/<pid>/net/dev of people's containers"

    def __init__(
        self,
        settings: ConnectionSettings,
        roots: Roots,
        quiet_ports: Callable[[float], Collection[int]] = lambda _: (),
        quiet_spaces: Callable[[float], Collection[str]] = lambda _: (),
        on_listeners: Callable[[Mapping[tuple[int, int], frozenset[int]]], None] = lambda _: None,
        on_asked: Callable[[Collection[str], datetime], None] = lambda *_: None,
    ) -> None:
        """`quiet_ports` are the ports at which model servers counted no request of their own, at a monotonic time.

        `quiet_spaces` are the networks of their containers. `on_listeners` gets the ports on which other machines may
        ask each process, by pid and start. `on_asked` gets the ports that a machine has just begun to ask.
        """
        self._roots = roots
        self._rate = Rate(settings.busy_bytes_per_second, span_seconds=_SPAN_SECONDS)
        self._owners = SocketOwners(roots)
        self._ended, self._grown = Ended(roots), Grown()
        self._moved = 0  # by people's connections, as far as it was seen
        self._namespaces: Mapping[str, Namespace] = {}
        self._most: WorkOwner | None = None  # who moved most, when something was moved last
        self._served: tuple[float, WorkOwner, int] | None = None  # when clients were seen last, of whom, how many
        self._since: dict[int, float] = {}  # when a client's connection was seen first, by cookie
        self._hum = Hum()
        self.askers = Askers()
        self.datagrams, self._udp = Datagrams(roots), UdpServers(roots)
        self._asked_owner: tuple[int | None, WorkOwner] = (None, WorkOwner())  # of the port that most machines use
        self._carried = Rate(CARRIED_BYTES_PER_SECOND, span_seconds=_SPAN_SECONDS)
        self._carried_moved = 0
        self._quiet_ports = quiet_ports
        self._quiet_spaces = quiet_spaces
        self._on_listeners = on_listeners
        self._arrivals, self._uneven, self._tunnels, self._on_asked = Arrivals(), Uneven(), Tunnels(), on_asked
        self._first_use = FirstUse()
        self._awaited: Awaited | None = None
        self._read: dict[str, int] = {}  # what monitoring moved there, by namespace
        self._looked: float | None = None

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding over all connections and containers."""
        view = now.processes
        try:
            found = self._ended.add_to(read_sockets(self._roots))
            containers = namespaces(self._roots, view.people() if view is not None else ())
        except (OSError, UnseenError):
            self._rate.forget()
            self._grown.forget()
            raise
        open_ones = [each for each in found.listeners if not each.is_local]
        waiting = self._udp.find_waiting(now.monotonic_seconds)
        holders = self._owners.whose((*found.leaving, *found.listeners, *waiting), view, now.monotonic_seconds)
        served = self._udp.judge(holders, now.monotonic_seconds)
        within = self._tunnels.used_ports(found, holders, now.monotonic_seconds)
        self._on_listeners(ports_of(open_ones, holders))
        self._awaited = self._first_use.find_awaited(open_ones, holders, view, now.monotonic_seconds)
        asked = self._look_at_askers(found, holders, now)
        udp = self.datagrams.find_asked(now.monotonic_seconds)
        collecting = {holders[each.cookie].unit for each in open_ones if each.cookie in holders} - {None}
        theirs = [
            each
            for each in found.leaving
            if each.cookie in holders
            and (each.cookie in asked.used or _is_peoples(each, holders, view))
            and (found.is_accepted(each) or _asks_for_people(each, holders[each.cookie], collecting))
        ]
        grown = self._grown.bytes_since_last(found.leaving) if found.bytes_known else {}
        self._note_most(theirs, holders, grown, containers)
        self._note_served(found, theirs, holders, asked, now)
        # Connections to a model server that gets no requests are scrapes and health checks.
        quiet = self._quiet_ports(now.monotonic_seconds) if found.bytes_known else ()
        theirs = [each for each in theirs if not (found.is_accepted(each) and each.local[1] in quiet)]
        clients, asks = (
            {Ask(peer=each.remote[0], port=each.local[1]) for each in group if found.is_accepted(each)}
            for group in (found.leaving, theirs)
        )
        inside = asks_inside(self._roots, containers, self._namespaces)
        asks |= asked.reporting | self.datagrams.asking | inside | asks_of(onward(found, holders))
        came = self._arrivals.take(asks, now.monotonic_seconds, clients - asked.young)
        if self.askers.get_reports(came.used):
            self._served = now.monotonic_seconds, WorkOwner(), 1
        if asked_now := came.ports | within | served.came:
            self._on_asked(asked_now, now.at)
        # Where no ends are known, what is seen of a health check is chance.
        accepted = [each for each in theirs if found.is_accepted(each)] if self._ended.are_known else None
        uneven = self._uneven.take(accepted, now.monotonic_seconds)
        self._moved += sum(grown.get(each.cookie, 0) for each in theirs)
        counted = {_HOST: self._moved} | self._used_by(containers, now.monotonic_seconds)
        self._namespaces = containers
        judged = self._rate.judge(self, counted, now)
        serving = [] if found.bytes_known else [each for each in theirs if found.is_accepted(each)]
        if serving and judged.says is not State.BUSY:
            return (self._serves(serving, holders),)
        if judged.says is State.BUSY:
            return (replace(judged, note=self._busy_note(found, theirs), owner=self._most, setting=_SETTING),)
        used = self._several(asked) or self._several(udp, " by UDP") or self._use(found, theirs, holders, grown, now)
        through = set(filter(is_onward, came.used))
        for ports, words in (
            (came.used - through, "another machine has come to {} here"),
            (uneven, "machines come again and again to {} here"),
            (within, "{} here is asked over loopback for more than before"),
            (through, "somebody reaches another machine through SSH here"),
        ):
            if used is None and ports:
                used = self._busy(words.format(", ".join(sorted(ports))), WorkOwner(), 1)
        if used is None and served.used is not None:
            used = self._busy(served.used, WorkOwner(), 1)
        if judged.says is State.IDLE:
            return (used or self._silent(judged, found, theirs, holders, served, now),)
        return (judged,)

    def _look_at_askers(self, found: Sockets, holders: Mapping[int, Holders], now: Moment) -> Asked:
        """What other machines ask of the machine's own servers; without known bytes nothing is said about it."""
        if not found.bytes_known:
            return Asked()
        own = [each for each in found.leaving if _is_machines_own(holders.get(each.cookie))]
        accepted = [each for each in own if found.is_accepted(each) and not holders[each.cookie].is_door]
        asked = self.askers.look_at(
            accepted,
            elsewhere={Ask(peer=each.remote[0], port=each.remote[1]) for each in own if not found.is_accepted(each)},
            pages={each.local[1] for each in accepted if holders[each.cookie].is_page},
            at=now.monotonic_seconds,
        )
        for each in accepted:
            if each.local[1] == asked.port:
                self._asked_owner = asked.port, _owner(each, holders[each.cookie].processes)
        return asked

    def _several(self, asked: Asked, how: str = "") -> Evidence | None:
        """Busy while several machines work with a server of the machine's own."""
        if asked.machines < SEVERAL:
            return None
        port, owner = self._asked_owner
        note = f"{asked.machines} other machines work with port {asked.port} here{how}"
        return self._busy(note, owner if port == asked.port and not how else WorkOwner(), asked.machines)

    def _used_by(self, containers: Mapping[str, Namespace], at: float) -> dict[str, int]:
        """What each container moved, without the monitoring of a server that gets no requests."""
        seconds = 0.0 if self._looked is None else max(0.0, at - self._looked)
        self._looked = at
        quiet, read = self._quiet_spaces(at), dict[str, int]()
        for name, space in containers.items():
            before = self._namespaces.get(name)
            grown = -1 if before is None else space.moved - before.moved
            read[name] = self._read.get(name, 0) if grown >= 0 else 0
            if name in quiet and 0 <= grown <= READ_BYTES_PER_SECOND * seconds:
                read[name] += grown
        self._read = read
        return {name: space.moved - read[name] for name, space in containers.items()}

    def _use(
        self,
        found: Sockets,
        theirs: Sequence[Sock],
        holders: Mapping[int, Holders],
        grown: Mapping[int, int],
        now: Moment,
    ) -> Evidence | None:
        """Busy evidence below the limit: clients that do more than usual, mounts, what SSH carries on."""
        at = now.monotonic_seconds
        clients = [each for each in theirs if found.is_accepted(each)]
        self._since = {each.cookie: self._since.get(each.cookie, at) for each in clients}
        lasting = [each for each in clients if at - self._since[each.cookie] >= LASTING_SECONDS]
        stands_out = self._hum.stands_out(sum(grown.get(each.cookie, 0) for each in lasting), at)
        passed = onward(found, holders)
        self._carried_moved += sum(grown.get(each.cookie, 0) for each in passed)
        carried = self._carried.judge(self, {_HOST: self._carried_moved}, now)
        mounted = [each for each in clients if kernel_server(each.local[1], now.processes) is not None]
        if mounted:
            owner = _owner(mounted[0], holders[mounted[0].cookie].processes)
            return self._busy(f"serves {how_many(len(mounted), 'client')}, which would hang", owner, len(mounted))
        if stands_out and lasting:
            most = max(lasting, key=lambda each: grown.get(each.cookie, 0))
            note = f"serves {how_many(len(clients), 'client')}, which asked for more than usual"
            return self._busy(note, _owner(most, holders[most.cookie].processes), len(clients))
        if carried.says is State.BUSY and passed:
            owner = _owner(passed[0], holders[passed[0].cookie].processes)
            return self._busy("somebody reaches another machine through SSH here", owner, len(passed))
        return None

    def _busy(self, note: str, owner: WorkOwner, connections: int) -> Evidence:
        unit = "connections"
        return make_finding(
            self, State.BUSY, note, observed=connections, limit=1, unit=unit, owner=owner, setting=_SWITCH
        )

    def _silent(
        self,
        judged: Evidence,
        found: Sockets,
        theirs: Sequence[Sock],
        holders: Mapping[int, Holders],
        served: UdpUse,
        now: Moment,
    ) -> Evidence:
        """Idle, or occupied while a server has, lately had, or may get clients."""
        at = now.monotonic_seconds
        if self._served is not None and at - self._served[0] <= _SERVED_SECONDS:
            since, owner, clients = self._served
            ago = at - since
            when = f", {format_duration(ago)} ago" if ago else ""
            note = f"serves {how_many(clients, 'client')}{when}, silent"
            return replace(judged, says=State.OCCUPIED, note=note, owner=owner)
        tcp = (each for each in found.listeners if each.cookie in holders)
        packaged = (each for each in tcp if any(one.rule == PACKAGED for one in holders[each.cookie].processes))
        waits = next(packaged, served.waits)
        if waits is not None:
            owner = _owner(waits, holders[waits.cookie].processes)
            port = f"{'UDP ' if waits is served.waits else ''}port {waits.local[1]}"
            note = f"{owner.process or 'a server'} waits for other machines on {port}"
            return replace(judged, says=State.OCCUPIED, note=note, owner=owner)
        if self._awaited is not None:
            note, owner = self._awaited.words, _of_process(self._awaited.server)
            return replace(judged, says=State.OCCUPIED, note=note, owner=owner)
        return replace(judged, note=_silent_note(theirs, self._namespaces))

    def _note_served(
        self, found: Sockets, theirs: Sequence[Sock], holders: Mapping[int, Holders], asked: Asked, now: Moment
    ) -> None:
        """Remember the clients of servers; a program of people occupies the node by itself."""
        serving = [
            each
            for each in theirs
            if found.is_accepted(each)
            and (
                each.cookie in asked.used
                or holders[each.cookie].is_packaged
                or kernel_server(each.local[1], now.processes) is not None
            )
        ]
        if serving:
            owner = _owner(serving[0], holders[serving[0].cookie].processes)
            self._served = now.monotonic_seconds, owner, len(serving)
        elif told := self.datagrams.told:
            at = max(told.values())
            if self._served is None or self._served[0] < at:
                self._served = at, WorkOwner(), len(told)

    def _note_most(
        self,
        theirs: Sequence[Sock],
        holders: Mapping[int, Holders],
        grown: Mapping[int, int],
        containers: Mapping[str, Namespace],
    ) -> None:
        """Remember who moved most since the last look, if anybody did."""
        by_owner: dict[WorkOwner, int] = {}
        for each in theirs:
            owner = _owner(each, holders[each.cookie].processes)
            by_owner[owner] = by_owner.get(owner, 0) + grown.get(each.cookie, 0)
        for name, space in containers.items():
            before = self._namespaces.get(name)
            by_owner[_of_process(space.process)] = space.moved - (before.moved if before else space.moved)
        most = max(by_owner, key=lambda owner: by_owner[owner], default=None)
        if most is not None and by_owner[most] > 0:
            self._most = most

    def _busy_note(self, found: Sockets, theirs: Sequence[Sock]) -> str:
        clients = sum(found.is_accepted(each) for each in theirs)
        parts = [f"serves {how_many(clients, 'client')}"] if clients else []
        parts += [f"asks over {how_many(len(theirs) - clients, 'connection')}"] if len(theirs) > clients else []
        parts += (
            [f"{how_many(len(self._namespaces), 'container')} with a network of its own"] if self._namespaces else []
        )
        return several(parts) or "its connections are closed again"

    def _serves(self, serving: Sequence[Sock], holders: Mapping[int, Holders]) -> Evidence:
        """How much they move is not known, and somebody elsewhere has asked for them."""
        owner = _owner(serving[0], holders[serving[0].cookie].processes)
        note = f"serves {how_many(len(serving), 'client')}; how much they move is not known"
        return self._busy(note, owner, len(serving))


def _is_peoples(each: Sock, holders: Mapping[int, Holders], view: ProcessView | None) -> bool:
    """People's; or of a server that serves people elsewhere: a package's that no list names, or one of the kernel's."""
    held = holders[each.cookie]
    return held.kind is Kind.PEOPLE or held.is_packaged or kernel_server(each.local[1], view) is not None


def _is_machines_own(held: Holders | None) -> bool:
    return held is not None and held.kind is Kind.SERVICE


def _asks_for_people(each: Sock, held: Holders, open_units: Collection[str | None]) -> bool:
    """Whether a connection to another machine is somebody's; a package's program asks for itself.

    Unless it collects: it fetches from others what it keeps for others, who may ask it.
    """
    if not held.is_packaged or each.moved is None or each.received is None:
        return True
    sent = each.moved - each.received
    return each.received >= _COLLECTED_TIMES * sent and held.unit in open_units


def _owner(connection: Sock, processes: Sequence[Process]) -> WorkOwner:
    """The one process that holds it; of several that may, only their user."""
    if len(processes) == 1:
        return _of_process(processes[0])
    if (names := KERNEL_SERVERS.get(connection.local[1])) is not None:
        return WorkOwner(process=names[0])
    return WorkOwner(user=legible(user_name(connection.uid), 64))


def _of_process(process: Process) -> WorkOwner:
    return owner_of(process, user_name(process.uid))


def _silent_note(theirs: Sequence[Sock], containers: Mapping[str, Namespace]) -> str:
    parts = [how_many(len(theirs), "connection")] if theirs else []
    parts += [how_many(len(containers), "container")] if containers else []
    return f"{' and '.join(parts)}, silent" if parts else "nobody's program is connected to another machine"
