"""PURE: the other machines that a server of this machine's own works for, by the connections that they make to it.

By its name a server is the machine's own, be it a control plane, a puppet server or a log shipper. Who needs it shows
by who asks it. Rules, all of them, by port; a machine counts once, however often it asks:

1. A connection counts while it moves more than keep-alives in a minute, its first one aside, or if it moves 16 kB in
   its first. Where three machines or more have lasting ones, they count also without a byte, an exporter's aside.
2. Readers of pages do not count: one or two machines (of an exporter or a kubelet: any number) that get at least five
   times as many bytes as they send, 20 kB/s at most. Unless ten minutes have three times as many as any ten in the six
   hours before: that is use.
3. What is short and small does not count: health checks, probes, scanners. Unless machines bring more than they take,
   again and again, or three of a private network do: agents that report to a server.
4. Where this machine asks the same port elsewhere, it is one of a mesh of equals (BGP, gossip): what moves less than a
   kilobyte a second there does not count. A machine that brings more than it takes, and that this one does not ask, is
   no equal: this one is a relay, which passes on what others bring (a gateway of logs or traces).

What counted is remembered for an hour, so that machines which come each half hour are several.

`Uneven` is of people's servers: what asks for little, and often, is a probe or an application. A probe is even.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from math import sqrt

from gpuwatch.agent.evidence.sock_diag import Sock

LASTING_SECONDS = 60.0  # scanners and probes come and go; a client that stays is one
SEVERAL = 3
REMEMBERED_SECONDS = 3600.0
CARRIED_BYTES_PER_SECOND = 2000 / 60  # a line that is typed; keep-alives each 15 s are less
READ_BYTES_PER_SECOND = 20e3  # several readers of a page of 100 kB every 15 s; a download is more
_EQUALS_BYTES_PER_SECOND = 1000.0
_LARGE_BYTES = 16e3  # a handshake of TLS and a small page are less
_ANSWER_TIMES = 5
_READERS = 2  # a Prometheus is often a pair
_WINDOW_SECONDS, _WINDOWS, _FEWEST_WINDOWS = 600.0, 36, 5
_STANDS_OUT_BYTES, _STANDS_OUT_TIMES = 1000, 3
_BROUGHT_BYTES, _BROUGHT_TIMES = 200, 2  # an agent reports; a request for a page is less, and its answer more
SCANNED_PORTS = 4
SSH = "ssh"  # the protocol of what is reached through this machine: who asks sits elsewhere, and is no scanner
_AWAY_SECONDS, _TURNS, _TURNS_SECONDS = 900.0, 3, 600.0
_HALF_HOUR_SECONDS, _HALF_HOURS, _FEWEST_HALF_HOURS = 1800.0, 24, 12
_UNEVEN, _UNEVEN_TIMES = 1.5, 0.5  # visits, and times the root of their number
_MOST = 4096  # connections and machines: a server that has more is in use anyhow


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Another machine asks a port of this one."""

    peer: bytes
    port: int
    protocol: str = "tcp"

    @property
    def words(self) -> str:
        """What is asked, as `activity.asked` has it: "tcp 445"."""
        return f"{self.protocol} {self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What counts at one moment: connections, and the port that most machines have used in the last hour."""

    used: frozenset[int] = frozenset()  # cookies
    reporting: frozenset[Ask] = frozenset()  # who brings something by a connection that is there now
    young: frozenset[Ask] = frozenset()  # who has one since less than a minute
    port: int | None = None
    machines: int = 0


@dataclass(slots=True, kw_only=True)
class _Contact:
    """One connection from look to look; bytes are of its whole life, and `rate` of its last whole minute."""

    ask: Ask
    since: float
    began: int
    moved: int
    received: int
    minute: tuple[float, int]
    rate: float = 0.0
    is_noted: bool = False

    @property
    def is_answered(self) -> bool:
        """Whether it is read from: it gets much more than it sends."""
        sent = self.moved - self.received
        return sent > 0 and sent >= _ANSWER_TIMES * self.received

    @property
    def brings(self) -> bool:
        """Whether it reports: it sends much more than it gets."""
        return self.received >= max(_BROUGHT_BYTES, _BROUGHT_TIMES * (self.moved - self.received))

    def lasts(self, at: float) -> bool:
        """Whether it has been there for a minute."""
        return at - self.since >= LASTING_SECONDS

    def take(self, moved: int, received: int, at: float) -> None:
        """What it has moved by now."""
        self.moved, self.received = moved, received
        begin, before = self.minute
        if at - begin >= LASTING_SECONDS:
            if begin > self.since:  # the first minute has the handshake
                self.rate = (moved - before) / (at - begin)
            self.minute = at, moved

    def is_in_use(self, at: float, least: float) -> bool:
        """Whether it moves so much a second; a short one, whether it has moved much."""
        return self.rate >= least or (not self.lasts(at) and self.moved - self.began >= _LARGE_BYTES)


@dataclass(slots=True, kw_only=True)
class Page:
    """What was moved by one port: in the last minute, in this window of ten, and in those before."""

    begin: float
    minute: deque[tuple[float, int]] = field(default_factory=deque)
    window: int = 0
    windows: deque[int] = field(default_factory=lambda: deque(maxlen=_WINDOWS))

    def is_used(self, grown: int, at: float) -> bool:
        """Whether it is more than reading of a page, with so many bytes since the look before."""
        self.minute.append((at, grown))
        while at - self.minute[0][0] >= LASTING_SECONDS:
            self.minute.popleft()
        read = sum(each for _, each in self.minute)
        return self.stands_out(grown, at) or read > READ_BYTES_PER_SECOND * LASTING_SECONDS

    def stands_out(self, grown: int, at: float) -> bool:
        """Whether this window has moved more than those before, with so many bytes since the look before."""
        if at - self.begin >= _WINDOW_SECONDS:
            self.windows.append(self.window)
            self.begin, self.window = at, 0
        self.window += grown
        known = len(self.windows) >= _FEWEST_WINDOWS
        most = max(_STANDS_OUT_BYTES, _STANDS_OUT_TIMES * max(self.windows, default=0))
        return known and self.window > most


class Askers:
    """Follows who asks; times are of the monotonic clock."""

    def __init__(self) -> None:
        """Nobody has asked yet."""
        self._is_looking = False
        self._contacts: dict[int, _Contact] = {}
        self._seen: dict[Ask, float] = {}
        self._users: dict[Ask, float] = {}
        self._reports: dict[Ask, list[float]] = {}
        self._pages: dict[int, Page] = {}
        self._elsewhere: dict[Ask, float] = {}  # others that this machine asks

    def look_at(
        self,
        accepted: Iterable[Sock],
        elsewhere: Iterable[Ask],
        pages: Collection[int],
        at: float,
    ) -> Asked:
        """What counts now.

        `accepted` are connections that others made to the machine's own servers, with their bytes; `elsewhere` the
        others that it is connected to, with their ports; `pages` the ports that are there to be read (an exporter's).
        """
        self._elsewhere |= dict.fromkeys(elsewhere, at)
        grown = self._follow(accepted, at)
        for known in (self._seen, self._users, self._elsewhere):
            _forget_old(known, at)
        read = self._read(self._contacts, pages, grown, at)
        rest = {cookie: each for cookie, each in self._contacts.items() if cookie not in read}
        meshes = {each.port for each in self._elsewhere}
        equals = {
            cookie
            for cookie, each in rest.items()
            if each.ask.port in meshes and (each.ask in self._elsewhere or not each.brings)
        }
        lasting = (each.ask for each in rest.values() if each.lasts(at) and each.ask.port not in pages)
        many = _ports_of_several(lasting) - meshes
        used, reports = set[int](), list[_Contact]()
        for cookie, each in rest.items():
            least = _EQUALS_BYTES_PER_SECOND if cookie in equals else CARRIED_BYTES_PER_SECOND
            if each.is_in_use(at, least) or (each.ask.port in many and each.lasts(at)):
                used.add(cookie)
                self._users[each.ask] = at
            elif cookie not in equals and each.brings and not each.is_noted:
                reports.append(each)
        self._note_reports(reports, at)
        port, machines = most_used(self._users)
        reporting = frozenset(each.ask for each in rest.values() if each.is_noted)
        young = frozenset(each.ask for each in rest.values() if not each.lasts(at))
        return Asked(used=frozenset(used), reporting=reporting, young=young, port=port, machines=machines)

    def get_reports(self, ports: Collection[str]) -> bool:
        """Whether a machine has reported to one of these ports in the last hour; their words are those of `Ask`."""
        return any(ask.words in ports for ask in self._reports)

    def _follow(self, accepted: Iterable[Sock], at: float) -> dict[int, int]:
        """Take the connections of now; what each has moved since the look before, by cookie."""
        contacts, grown = dict[int, _Contact](), dict[int, int]()
        for each in accepted:
            if each.moved is None or len(contacts) >= _MOST:
                continue
            received = each.moved if each.received is None else each.received
            known = self._contacts.get(each.cookie)
            if known is None:
                ask = Ask(peer=each.remote[0], port=each.local[1])
                began = 0 if self._is_looking else each.moved
                known = _Contact(
                    ask=ask, since=at, began=began, moved=began, received=received, minute=(at, each.moved)
                )
            grown[each.cookie] = max(0, each.moved - known.moved)
            known.take(each.moved, received, at)
            contacts[each.cookie] = known
            self._seen[known.ask] = at
        self._contacts, self._is_looking = contacts, True
        return grown

    def _read(
        self, theirs: Mapping[int, _Contact], pages: Collection[int], grown: Mapping[int, int], at: float
    ) -> frozenset[int]:
        """Those by which a page is read."""
        readers = dict[int, int]()
        for ask in self._seen:
            readers[ask.port] = readers.get(ask.port, 0) + 1
        by_port = dict[int, list[int]]()
        for cookie, each in theirs.items():
            if each.is_answered and (each.ask.port in pages or readers[each.ask.port] <= _READERS):
                by_port.setdefault(each.ask.port, []).append(cookie)
        self._pages = {port: page for port, page in self._pages.items() if port in readers}
        read = set[int]()
        for port in by_port.keys() | self._pages.keys():
            page = self._pages.setdefault(port, Page(begin=at))
            mine = by_port.get(port, [])
            if not page.is_used(sum(grown[cookie] for cookie in mine), at):
                read.update(mine)
        return frozenset(read)

    def _note_reports(self, reports: Collection[_Contact], at: float) -> None:
        """Those that bring more than they take, short and small; from the third time in ten minutes on it is use."""
        if not reports:
            return
        self._reports = {ask: found for ask, found in self._reports.items() if at - found[-1] < REMEMBERED_SECONDS}
        near: dict[int, set[bytes]] = {}  # by port; made once, for hundreds may report between two looks
        for ask in self._reports:
            _add_near(near, ask)
        for each in reports:
            each.is_noted = True
            turns = [turn for turn in self._reports.get(each.ask, ()) if at - turn < REMEMBERED_SECONDS][-20:]
            turns.append(at)
            if len(self._reports) < _MOST or each.ask in self._reports:
                self._reports[each.ask] = turns
                _add_near(near, each.ask)
            again = len(turns) >= _TURNS and turns[-1] - turns[0] >= _TURNS_SECONDS
            if again or len(near.get(each.ask.port, ())) >= SEVERAL:
                self._users[each.ask] = at


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """The ports by protocol to which a machine has come: `ports` of one that had not asked for an hour.

    `used` of one of a private network that had not for a quarter of an hour: monitoring asks more often.
    """

    ports: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()


class Arrivals:
    """Which ports a machine begins to ask that has not asked them for a while."""

    def __init__(self) -> None:
        """Nobody has asked yet: who asks at the first look has perhaps asked for days."""
        self._asked: dict[Ask, float] | None = None
        self._looked_at = 0.0
        self._new: dict[Ask, tuple[float, bool]] = {}  # since when, and whether it had not asked for an hour

    def take(self, asks: Collection[Ask], at: float, connected: Collection[Ask] = ()) -> Came:
        """The ports, a minute after a machine came: one that asks many by then is a scanner.

        `connected` are all that are connected, also those that ask for nothing now: who stays does not come.
        """
        known = self._asked
        for ask in () if known is None else asks:
            if known is None or ask not in known:
                self._new[ask] = at, True
            elif known[ask] < self._looked_at and at - known[ask] >= _AWAY_SECONDS:
                self._new.setdefault(ask, (at, False))
        self._looked_at = at
        self._asked = {**({} if known is None else known), **dict.fromkeys((*asks, *connected), at)}
        _forget_old(self._asked, at)
        ports = Counter((ask.peer, ask.protocol == SSH) for ask in self._asked)
        ready = {ask: hour for ask, (since, hour) in self._new.items() if at - since >= LASTING_SECONDS}
        for ask in ready:
            del self._new[ask]
        scanned = {ask for ask in ready if ports[ask.peer, ask.protocol == SSH] >= SCANNED_PORTS}
        return Came(
            ports=frozenset(ask.words for ask, hour in ready.items() if hour and ask not in scanned),
            used=frozenset(
                ask.words
                for ask in ready
                if (ask not in scanned or ask.protocol == SSH) and ip_address(ask.peer).is_private
            ),
        )


class Uneven:
    """Whether a machine of a private network comes again and again, and not as evenly as a health check.

    By how often it came in each half hour of the last twelve hours in which it did. Where a clock asks, three fifths
    of these are alike: they differ by one visit, or by half of the root of their number. By chance half of them are.
    """

    def __init__(self) -> None:
        """Nobody has come yet."""
        self._known: frozenset[int] | None = None  # connections of the look before, by cookie
        self._begin: float | None = None
        self._is_blind = False  # at some look of this half hour
        self._now = Counter[Ask]()
        self._before: dict[Ask, deque[int]] = {}
        self._found = frozenset[str]()

    @property
    def followed(self) -> int:
        """How many machines are followed, each at each port that it asks."""
        return len(self._before)

    def take(self, clients: Iterable[Sock] | None, at: float) -> frozenset[str]:
        """What is asked unevenly, as `Ask.words`, with the connections that others have made up to now.

        None: it is not known which. That half hour says nothing.
        """
        there = {each.cookie: Ask(peer=each.remote[0], port=each.local[1]) for each in clients or ()}
        known, self._known = self._known, None if clients is None else frozenset(there)
        self._is_blind = self._is_blind or clients is None
        self._begin = at if self._begin is None else self._begin
        new = (ask for cookie, ask in there.items() if known is not None and cookie not in known)
        self._now.update(ask for ask in new if ask in self._now or len(self._now) < _MOST)
        if at - self._begin >= _HALF_HOUR_SECONDS:
            self._end_half_hour(Counter() if self._is_blind else self._now)
            passed = (at - self._begin) // _HALF_HOUR_SECONDS
            self._begin, self._now, self._is_blind = self._begin + passed * _HALF_HOUR_SECONDS, Counter(), False
        return self._found

    def _end_half_hour(self, came: Counter[Ask]) -> None:
        for ask in {ask for ask in (*self._before, *came) if ip_address(ask.peer).is_private}:
            self._before.setdefault(ask, deque(maxlen=_HALF_HOURS)).append(came[ask])
        often = ((sum(map(bool, counts)), ask) for ask, counts in self._before.items())
        kept = sorted(((times, ask) for times, ask in often if times), key=lambda each: -each[0])[:_MOST]
        self._before = {ask: self._before[ask] for _, ask in kept}
        found = set[str]()
        for ask, counts in self._before.items():
            if ask.words not in found and is_uneven(counts):
                found.add(ask.words)
        self._found = frozenset(found)


def is_uneven(counts: Iterable[int]) -> bool:
    """Whether half hours are less alike than a clock's."""
    came = [each for each in counts if each]
    middles = {each + more for each in came for more in (0, 1)}
    alike = (sum(abs(each - one) < max(_UNEVEN, _UNEVEN_TIMES * sqrt(one)) for each in came) for one in middles)
    return len(came) >= _FEWEST_HALF_HOURS and all(5 * each < 3 * len(came) for each in alike)


def _add_near(near: dict[int, set[bytes]], ask: Ask) -> None:
    """Add a machine with a private address, by the port that it asks: no scanner of the internet has one."""
    if ip_address(ask.peer).is_private:
        near.setdefault(ask.port, set()).add(ask.peer)


def _ports_of_several(asks: Iterable[Ask]) -> frozenset[int]:
    """The ports that several machines ask."""
    machines = dict[int, set[bytes]]()
    for ask in asks:
        machines.setdefault(ask.port, set()).add(ask.peer)
    return frozenset(port for port, peers in machines.items() if len(peers) >= SEVERAL)


def most_used(users: Iterable[Ask]) -> tuple[int | None, int]:
    """The port that most machines use, and how many do."""
    machines = dict[int, int]()
    for ask in users:
        machines[ask.port] = machines.get(ask.port, 0) + 1
    port = max(sorted(machines), key=lambda each: machines[each], default=None)
    return port, 0 if port is None else machines[port]


def _forget_old(known: dict[Ask, float], at: float) -> None:
    """Drop what was an hour ago, and the oldest where there are too many."""
    for key in [key for key, seen in known.items() if at - seen >= REMEMBERED_SECONDS]:
        del known[key]
    if len(known) > _MOST:
        for key in sorted(known, key=lambda each: known[each])[: len(known) - _MOST]:
            del known[key]
