"""Servers that other machines ask by UDP, where no firewall shows who does (`datagrams`).

UDP has no connections, and the kernel counts datagrams only for all sockets together. But it shows each socket, and to
anybody who has asked for that each one that is closed. Rules, all of them:

1. A server is who waits on a socket for a minute that is bound to no other end, and not to loopback. A program of
   people is one on any port, a package's on a port of fixed number. The machine's own is one only where nobody else
   waits but who serves. No port counts that each host has for itself: leases, time, neighbours, keys, meshes.
2. A package's, or the machine's own, occupies the node while it waits, as by TCP.
3. Where there is a server, what was got and is nobody's else is its: all datagrams, less those over loopback, those for
   all, and those by which a resolver or a clock may have answered a socket that is or was there. While a socket is
   connected to any other server, or the host has a tunnel, a mesh or SNMP, nothing is said. Packets of TCP over
   loopback count like datagrams there: they may hide a server, never make one.
4. It is in use at five datagrams a second in a minute, and as somebody comes after a quarter of an hour. So it is if
   ten minutes have three times as many as any in the six hours before, or half hours are less even than a clock's. So
   it is if much more comes in an hour than goes: what is sent to it is kept by nobody else.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.agent.evidence.askers import LASTING_SECONDS, Ask, Page, is_uneven
from gpuwatch.agent.evidence.base import Roots, UnseenError
from gpuwatch.agent.evidence.files import read_small
from gpuwatch.agent.evidence.sock_diag import Sock, UdpEnds, read_udp_sockets
from gpuwatch.agent.evidence.socket_owners import Holders
from gpuwatch.agent.processes.kinds import PACKAGED
from gpuwatch.agent.processes.process import Kind

_EVERY_SECONDS = 5.0  # half of how often the signal looks
_FIRST_FREE_PORT = 32768  # the kernel gives those from here on to anybody
# Leases, time, neighbours, names of the house, printers, keys of IPsec, and clients that others may answer there.
_OF_EACH_HOST = frozenset(
    {
        *(68, 111, 123, 137, 138, 319, 320, 323, 500, 546, 631, 1194, 1701, 1900, 3702, 4500, 5353, 5355),
    }
)
# Who has them gets datagrams that are no client's: SNMP, tunnels, checks of neighbours, and meshes of equals.
_CHATTING = frozenset(
    {161, 3784, 3785, 4784, 4789, 5405, 6081, 7946, 8301, 8302, 8472, 8649, 9993, 41641},
)
_FOR_ALL = frozenset({67, 68, 137, 138, 1900, 3702, 5353, 5355})  # what is sent there by broadcast or multicast
_SERVED = frozenset({53, 67, 69, 162, 443, 514, 547, 1812, 1813})
_NTP = 123
_ANSWERS = {53: 4, _NTP: 4}  # that a socket which asks such a port may get between two looks
_QUIET_SECONDS, _FEWEST, _MANY_PER_SECOND = 900.0, 3, 5.0
_TYPICAL_BYTES = 50
_HALF_HOUR_SECONDS, _HALF_HOURS = 1800.0, 24
_TOLD_LEAST, _TOLD_TIMES, _TOLD_SECONDS = 6, 5, 1200.0
_MOST_SERVERS = 64
_AGAIN_SECONDS = 600.0  # to look for a holder means to look into all processes


@dataclass(frozen=True, slots=True, kw_only=True)
class UdpUse:
    """What servers by UDP say: who waits for others (a package's or the machine's own), and the words of their use.

    `came`: the ports, as `Ask.words` has them, if somebody came after an hour without.
    """

    waits: Sock | None = None
    used: str | None = None
    server: Sock | None = None
    came: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Counts:
    """Since the boot: datagrams in and out, packets over loopback, packets for all."""

    got: int
    sent: int
    looped: int
    heard: int


class UdpServers:
    """Follows what servers get by UDP; times are of the monotonic clock."""

    def __init__(self, roots: Roots) -> None:
        """Nobody has looked yet."""
        self._roots = roots
        self._looked: float | None = None
        self._since: dict[int, float] = {}  # of sockets without another end, by cookie
        self._others: tuple[tuple[bool, Sock], ...] = ()  # connected or young
        self.waiting: tuple[Sock, ...] = ()
        self._nobodys: dict[int, float] = {}  # no program has it: the kernel's tunnel; when that was seen, by cookie
        self._is_new = False
        self._use = UdpUse()
        self._forget()

    def _forget(self) -> None:
        """There is no server: nobody counts."""
        self._ends: UdpEnds | None = None
        self._counts: _Counts | None = None
        self._minute: deque[tuple[float, int]] = deque()
        self._page: Page | None = None
        self._quiet_since: float | None = None
        self._came_at: tuple[float, bool] | None = None
        self._hours: deque[tuple[float, int, int]] = deque()  # by minute: datagrams that came, and that went
        self._half: tuple[float, int, bool] | None = None
        self._halves: deque[int] = deque(maxlen=_HALF_HOURS)
        self._is_uneven = False

    def find_waiting(self, at: float) -> tuple[Sock, ...]:
        """The sockets on which something waits for others since a minute; looks each five seconds at most."""
        if self._looked is not None and 0 <= at - self._looked < _EVERY_SECONDS:
            return self.waiting
        begins, self._looked, self._is_new = self._looked is None, at, True
        try:
            rows = read_udp_sockets(self._roots) or []
        except UnseenError:
            rows = []
        free = [each for connected, each in rows if not connected and each.inode and not each.is_local]
        # What is there at the first look may have been there for long.
        first = at - LASTING_SECONDS if begins else at
        self._since = {each.cookie: self._since.get(each.cookie, first) for each in free}
        waiting = [each for each in free if at - self._since[each.cookie] >= LASTING_SECONDS]
        self._nobodys = {
            key: seen for key, seen in self._nobodys.items() if key in self._since and at - seen < _AGAIN_SECONDS
        }
        ones = (each for each in waiting if each.cookie not in self._nobodys)
        self.waiting = tuple(sorted(ones, key=lambda each: each.local[1])[:_MOST_SERVERS])
        known = {each.cookie for each in waiting}
        self._others = tuple(
            (connected, each)
            for connected, each in rows
            if each.cookie not in known and (each.leaves if connected else not each.is_local)
        )
        return self.waiting

    def judge(self, holders: Mapping[int, Holders], at: float) -> UdpUse:
        """What they say now, by those who hold the sockets that wait."""
        if not self._is_new:
            return self._use
        self._is_new = False
        held = [(each, holders[each.cookie]) for each in self.waiting if each.cookie in holders]
        self._nobodys |= {each.cookie: at for each, its in held if not its.processes}
        servers = [(each, its) for each, its in held if _serves(each, its)]
        if not servers:
            self._forget()
            self._use = UdpUse()
            return self._use
        found = self._take(held)
        words = self._words(found, at)
        waits = next((each for each, its in servers if its.kind is not Kind.PEOPLE), None)
        ports = frozenset(Ask(peer=b"", port=each.local[1], protocol="udp").words for each, _ in servers)
        came = self._came_at is not None and self._came_at == (at, True)
        server = servers[0][0]
        used = None if words is None else words.format(", ".join(sorted(ports)[:_FEWEST]))
        self._use = UdpUse(waits=waits, used=used, server=server, came=ports if came else frozenset())
        return self._use

    def _take(self, held: Sequence[tuple[Sock, Holders]]) -> tuple[int, int] | None:
        """How many datagrams came and went since the look before that are nobody's else; None: it is not known."""
        self._ends = UdpEnds() if self._ends is None else self._ends
        ended, before, self._counts = self._ends.take(), self._counts, _read_counts(self._roots)
        now = self._counts
        if ended is None or before is None or now is None or self._nobodys or any(_chats(*each) for each in held):
            return None
        got, sent = now.got - before.got, now.sent - before.sent
        looped, heard = now.looped - before.looped, now.heard - before.heard
        if min(got, sent, looped, heard) < 0:
            return None
        # Unbound, and those that are connected; a closed one shows by its other end whether it was.
        asking = [*self._others, *((bool(each.remote[1]), each) for each in ended if each.leaves or not each.remote[1])]
        answers = [_answers(each, connected=connected) for connected, each in asking]
        if None in answers:
            return None
        explained = sum(each or 0 for each in answers) + min(looped, sent)
        hears = sum(each.local[1] in _FOR_ALL for each, _ in held)
        return max(0, got - explained - hears * heard), max(0, sent - explained)

    def _words(self, found: tuple[int, int] | None, at: float) -> str | None:
        """The words for what makes it use; None: nothing does."""
        came, went = found or (0, 0)
        while self._minute and at - self._minute[0][0] >= LASTING_SECONDS:
            self._minute.popleft()
        self._minute.append((at, came))
        minute = sum(each for _, each in self._minute)
        self._page = Page(begin=at) if self._page is None else self._page
        stands_out = self._page.stands_out(_TYPICAL_BYTES * came, at)
        self._note_arrival(minute, at)
        self._note_hours(came, went, at)
        uneven = self._note_half_hour(came, at, blind=found is None)
        if minute > _MANY_PER_SECOND * LASTING_SECONDS:
            return f"{{}} here gets {minute} datagrams a minute"
        if stands_out:
            return "{} here gets more datagrams than before"
        if self._came_at is not None and at - self._came_at[0] < LASTING_SECONDS:
            return "another machine has come to {} here"
        if uneven:
            return "machines come again and again to {} here"
        if self._is_told():
            return "machines send to {} here what gets no answer"
        return None

    def _is_told(self) -> bool:
        """Whether datagrams came again and again in this hour, and hardly any went."""
        minutes = [at for at, came, _ in self._hours if came]
        came, went = (sum(each[way] for each in self._hours) for way in (1, 2))
        again = len(minutes) >= _FEWEST and minutes[-1] - minutes[0] >= _TOLD_SECONDS
        return again and came >= max(_TOLD_LEAST, _TOLD_TIMES * went)

    def _note_arrival(self, minute: int, at: float) -> None:
        """Somebody comes: after a quarter of an hour in which no minute had a few datagrams."""
        since = self._quiet_since
        self._quiet_since = at if since is None else since
        if minute >= _FEWEST:
            if since is not None and at - since >= _QUIET_SECONDS:
                self._came_at = at, at - since >= 4 * _QUIET_SECONDS
            self._quiet_since = at

    def _note_hours(self, came: int, went: int, at: float) -> None:
        hours = self._hours
        if hours and at - hours[-1][0] < LASTING_SECONDS:
            begin, before_in, before_out = hours.pop()
            hours.append((begin, before_in + came, before_out + went))
        else:
            hours.append((at, came, went))
        while at - hours[0][0] >= 2 * _HALF_HOUR_SECONDS:
            hours.popleft()

    def _note_half_hour(self, came: int, at: float, *, blind: bool) -> bool:
        """Whether the half hours are less even than a clock's; one that was not seen whole does not count."""
        begin, sum_, was_blind = self._half or (at, 0, False)
        if at - begin >= _HALF_HOUR_SECONDS:
            if not was_blind:
                self._halves.append(sum_)
                self._is_uneven = is_uneven(self._halves)
            begin, sum_, was_blind = at, 0, False
        self._half = begin, sum_ + came, was_blind or blind
        return self._is_uneven


def _serves(each: Sock, its: Holders) -> bool:
    """Whether a socket that waits is a server's (rule 1)."""
    port, names = each.local[1], {process.name for process in its.processes}
    if port == _NTP and "chronyd" in names:  # it has this port only to serve
        return True
    if not its.processes or port in _OF_EACH_HOST | _CHATTING:
        return False
    if its.kind is Kind.PEOPLE:
        return True
    if its.kind is not Kind.SERVICE or port >= _FIRST_FREE_PORT or each.card:
        return False
    if any(process.rule == PACKAGED for process in its.processes):
        return True
    return port in _SERVED and not any(each.local[0]) and not its.is_packaged


def _chats(each: Sock, its: Holders) -> bool:
    """Whether what others bring to this socket is no client's, and so hides how much a server gets."""
    port, names = each.local[1], {process.name for process in its.processes}
    return port in _CHATTING or (port == _NTP and "chronyd" not in names and its.kind is not Kind.PEOPLE)


def _answers(each: Sock, *, connected: bool) -> int | None:
    """How many datagrams a socket that is no server's may have got between two looks; None: nobody knows."""
    if not connected:
        return 1
    port = each.remote[1]
    return 0 if port >= _FIRST_FREE_PORT else _ANSWERS.get(port)  # 0: it answers one client


def _read_counts(roots: Roots) -> _Counts | None:
    """None where the kernel does not say."""
    try:
        fourth, sixth = _pairs(roots.proc / "net/snmp"), _single(roots.proc / "net/snmp6")
        told = _pairs(roots.proc / "net/netstat")
        cards = read_small(roots.proc / "net/dev").text.splitlines()
        looped = next(int(line.split()[1]) for line in (each.partition(":")[2] for each in cards if _is_loopback(each)))
        return _Counts(
            got=fourth["Udp:InDatagrams"] + sixth.get("Udp6InDatagrams", 0),
            sent=fourth["Udp:OutDatagrams"] + sixth.get("Udp6OutDatagrams", 0),
            looped=looped,
            heard=told.get("IpExt:InMcastPkts", 0) + told.get("IpExt:InBcastPkts", 0) + sixth.get("Ip6InMcastPkts", 0),
        )
    except (OSError, UnseenError, KeyError, ValueError, IndexError, StopIteration):
        return None


def _is_loopback(line: str) -> bool:
    return line.strip().startswith("lo:")


def _pairs(path: Path) -> dict[str, int]:
    """Two lines each, names and values, as "Udp:InDatagrams" (proc_pid_net(5))."""
    lines = [line.split() for line in read_small(path).text.splitlines()]
    wanted = [line for line in lines if line and line[0] in {"Udp:", "IpExt:"}]
    return {
        f"{names[0]}{name}": int(value)
        for names, values in zip(wanted[::2], wanted[1::2], strict=True)
        for name, value in zip(names[1:], values[1:], strict=False)
    }


def _single(path: Path) -> dict[str, int]:
    """One name and value a line; without IPv6 there is no such file."""
    try:
        rows: Iterable[list[str]] = (line.split() for line in read_small(path).text.splitlines())
        return {
            row[0]: int(row[1]) for row in rows if row[0] in {"Udp6InDatagrams", "Udp6OutDatagrams", "Ip6InMcastPkts"}
        }
    except FileNotFoundError:
        return {}
