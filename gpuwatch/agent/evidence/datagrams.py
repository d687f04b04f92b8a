"""Other machines that ask a UDP port of this one, by the flows that the kernel's firewall follows (nf_conntrack).

UDP has no connections: DNS, DHCP, NTP and many VPN servers show in no table of sockets. Where the firewall follows
flows (containers, a cluster, any stateful rule), the kernel lists them to root, and so to the agent's reader.

A machine counts that has asked and got an answer. Equals that ask each other from the same port (gossip, a mesh VPN) do
not: a server is asked by three times as many machines as it asks from there. Where the list may not be read, nothing
is said, as before.

Logs, figures and traps (syslog, collectd, sFlow, SNMP) get no answer. A machine of a private network that sends them to
a port counts if something here has it. Not one that gets the same from here (an overlay, a cluster), no sender that
tries many ports (a scanner), and no container of this host. Nor ports above 32767, which are of no
server. Of fewer than three machines the port must be one from which this machine asks nobody: theirs may be answers (to
a broadcast).
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache
from ipaddress import ip_address
from pathlib import Path

from gpuwatch.agent.closed_paths import FILE
from gpuwatch.agent.evidence.askers import REMEMBERED_SECONDS, SCANNED_PORTS, SEVERAL, Ask, Asked, most_used
from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.evidence.files import open_by_reader

_EVERY_SECONDS = 30.0  # a flow that was answered is kept for two minutes, another one for half a minute
_MOST_BYTES = 1 << 22  # 25,000 flows; a machine with more passes packets on, which `network` sees
_MOST_ASKS = 4096
_EQUALS = 3
_LAST_FIXED_PORT = 32767
_DHCP_CLIENT_PORT = 68  # it asks by raw packets, which the firewall does not follow, and is answered
# net/netfilter/nf_conntrack_standalone.c; zones and packets where they are counted, no time where a card has the flow.
_FLOW = re.compile(
    rb"^ipv[46] +\d+ udp +17 (?:\d+ )?src=(\S+) dst=(\S+) sport=(\d{1,5}) dport=(\d{1,5}) "
    rb"(?:[a-z-]+=\d+ )*(\[UNREPLIED\] )?",
    re.MULTILINE,
)
_BOUND = re.compile(rb"^ *\d+: [0-9A-F]+:([0-9A-F]{4}) 0+:0000 ", re.MULTILINE)  # net/udp, net/udp6
_NEIGHBOUR = re.compile(rb"^([0-9.]{7,15}) .* ([^\s/]{1,15})$", re.MULTILINE)  # net/arp
# net/ipv6_route: a network that a card reaches without a gateway; fe80::/64 is on each card.
_ON_LINK = re.compile(rb"^(?!fe80)([0-9a-f]{32}) ([0-9a-f]{2}) 0{32} 00 0{32} .* ([^\s/]{1,15})$", re.MULTILINE)
_SHORTEST_PREFIX, _ADDRESS_BITS = 48, 128
_LOCAL = re.compile(rb"\|-- ([0-9.]{7,15})\n\s+/32 host LOCAL")  # net/ipv4/fib_trie.c


class Datagrams:
    """Follows who asks by UDP; looks each half minute."""

    def __init__(self, roots: Roots) -> None:
        """Nobody has asked yet."""
        self._roots = roots
        self._looked: float | None = None
        self._asks: dict[Ask, float] = {}
        self.counted: frozenset[Ask] = frozenset()  # who has asked in the last hour, equals aside
        self.asking: frozenset[Ask] = frozenset()  # of these, who was seen at the last look
        self.told: Mapping[Ask, float] = {}  # of these, who sends what gets no answer, and when
        self._asked: dict[Ask, float] = {}  # machines that were asked from a port of this one
        self._unanswered: dict[Ask, float] = {}  # who got no answer
        self._sent: dict[Ask, float] = {}  # machines that this one sends something to, and their port

    def find_asked(self, at: float) -> Asked:
        """The port that most other machines have asked in the last hour."""
        if self._looked is None or not 0 <= at - self._looked < _EVERY_SECONDS:
            self._looked = at
            table = _contents(self._roots, "nf_conntrack")
            if table:
                own, is_own = own_addresses(self._roots), _own_containers(self._roots)
                for source, target, (from_port, to_port), answered in flows(table):
                    if source in own and target not in own:
                        peer = ip_address(target).packed
                        _remember_ask(self._asked, Ask(peer=peer, port=from_port, protocol="udp"), at)
                        _remember_ask(self._sent, Ask(peer=peer, port=to_port, protocol="udp"), at)
                    elif target in own and source not in own:
                        ask = Ask(peer=ip_address(source).packed, port=to_port, protocol="udp")
                        if answered:
                            _remember_ask(self._asks, ask, at)
                        elif to_port <= _LAST_FIXED_PORT and ip_address(source).is_private and not is_own(source):
                            _remember_ask(self._unanswered, ask, at)
        theirs = [ask for ask, seen in self._asks.items() if at - seen < REMEMBERED_SECONDS]
        asked, counted = _by_port(self._asked, at), _by_port(self._asks, at)
        answered_ones = {ask for ask in theirs if counted[ask.port] >= _EQUALS * asked.get(ask.port, 0)}
        self.told = self._tell_us(at, asked.keys() | {_DHCP_CLIENT_PORT})
        self.counted = frozenset(answered_ones | self.told.keys())
        latest = (self._asks, self._unanswered)
        self.asking = frozenset(ask for ask in self.counted if self._looked in [known.get(ask) for known in latest])
        port, machines = most_used(self.counted)
        return Asked(port=port, machines=machines)

    def _tell_us(self, at: float, asking: Collection[int]) -> dict[Ask, float]:
        """Who sends a port what gets no answer; `asking` are ports from which this machine asks others."""
        senders = {
            ask: seen
            for ask, seen in self._unanswered.items()
            if at - seen < REMEMBERED_SECONDS and ask not in self._sent
        }
        ports = Counter(ask.peer for ask in senders)
        senders = {ask: seen for ask, seen in senders.items() if ports[ask.peer] < SCANNED_PORTS}
        machines = Counter(ask.port for ask in senders)
        taken = {port for port, count in machines.items() if count >= SEVERAL or port not in asking}
        taken &= _bound_ports(self._roots) if taken else set()
        return {ask: seen for ask, seen in senders.items() if ask.port in taken}


def _bound_ports(roots: Roots) -> set[int]:
    """The UDP ports at which something here takes what anybody sends."""
    return {int(each, 16) for name in ("udp", "udp6") for each in _BOUND.findall(_contents(roots, name))}


def _own_containers(roots: Roots) -> Callable[[str], bool]:
    """Whether an address is that of a container of this host.

    It is a neighbour by a card with nothing else behind. No file lists neighbours of IPv6: there it is the card's
    network.
    """
    theirs = cache(lambda card: _has_containers_alone(roots.sys / "class/net" / card.decode("ascii", "replace")))
    fourth = {each[1].decode() for each in _NEIGHBOUR.finditer(_contents(roots, "arp")) if theirs(each[2])}
    sixth = set[tuple[int, int]]()
    for each in _ON_LINK.finditer(_contents(roots, "ipv6_route")):
        length = int(each[2], 16)
        if _SHORTEST_PREFIX <= length <= _ADDRESS_BITS and theirs(each[3]):
            sixth.add((length, int(each[1], 16) >> (_ADDRESS_BITS - length)))
    lengths = {length for length, _ in sixth}

    def is_own(source: str) -> bool:
        if ":" not in source:
            return source in fourth
        address = ip_address(source)
        return any((length, int(address) >> (_ADDRESS_BITS - length)) in sixth for length in lengths)

    return is_own


def _has_containers_alone(card: Path) -> bool:
    """A veth, or a bridge of veths.

    Any other card without hardware may lead to other machines: an overlay, a tap of a VPN, a bridge of Open vSwitch. A
    tap of a virtual machine looks as one of a VPN does; the machine occupies the node by itself.
    """
    return all(map(is_veth, card.glob("lower_*"))) if (card / "bridge").is_dir() else is_veth(card)


def is_veth(card: Path) -> bool:
    """Whether its other end is another card, mostly of another network namespace, and no hardware lies below."""
    with suppress(OSError):
        index, other = ((card / name).read_text().strip() for name in ("ifindex", "iflink"))
        below = (card / "device").exists() or any(card.glob("lower_*")) or "DEVTYPE=" in (card / "uevent").read_text()
        return other not in {"0", index} and not below
    return False


def flows(table: bytes) -> Iterator[tuple[str, str, tuple[int, int], bool]]:
    """The machine that began each flow, the other one, both ports, whether it was answered; without loopback's."""
    for found in _FLOW.finditer(table):
        source, target = found[1].decode("ascii", "replace"), found[2].decode("ascii", "replace")
        with suppress(ValueError):
            if not ip_address(source).is_loopback:
                yield str(ip_address(source)), str(ip_address(target)), (int(found[3]), int(found[4])), not found[5]


def _remember_ask(known: dict[Ask, float], ask: Ask, at: float) -> None:
    if ask in known or len(known) < _MOST_ASKS:
        known[ask] = at
        return
    for each in [each for each, seen in known.items() if at - seen >= REMEMBERED_SECONDS]:
        del known[each]


def _by_port(asks: Mapping[Ask, float], at: float) -> dict[int, int]:
    """How many machines there are of each port in the last hour."""
    counted = dict[int, int]()
    for ask, seen in asks.items():
        if at - seen < REMEMBERED_SECONDS:
            counted[ask.port] = counted.get(ask.port, 0) + 1
    return counted


def own_addresses(roots: Roots) -> frozenset[str]:
    """The addresses of this machine."""
    fourth = {each.decode() for each in _LOCAL.findall(_contents(roots, "fib_trie"))}
    sixth = set[str]()
    for line in _contents(roots, "if_inet6").split(b"\n"):
        with suppress(ValueError):
            sixth.add(str(ip_address(bytes.fromhex(line[:32].decode("ascii", "replace")))))
    return frozenset(fourth | sixth)


def _contents(roots: Roots, name: str) -> bytes:
    """The beginning of a file of /proc/net; nothing where it may not be read."""
    path = roots.proc / "net" / name
    try:
        try:
            opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError:
            opened = open_by_reader(path, FILE)
        try:
            data = b""
            while len(data) < _MOST_BYTES and (more := os.read(opened, 1 << 16)):
                data += more
            return data
        finally:
            os.close(opened)
    except OSError:
        return b""
