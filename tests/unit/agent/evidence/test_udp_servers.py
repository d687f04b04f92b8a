"""agent/evidence/udp_servers.py: what the kernel counts of UDP tells of use where something waits for others."""

import socket
from contextlib import closing
from ipaddress import ip_address
from pathlib import Path
from random import Random

import pytest

from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.evidence import sock_diag, udp_servers
from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.evidence.sock_diag import Sock, UdpEnds, read_udp_sockets
from gpuwatch.agent.evidence.socket_owners import Holders
from gpuwatch.agent.evidence.udp_servers import UdpServers, UdpUse
from gpuwatch.agent.processes.kinds import PACKAGED
from gpuwatch.agent.processes.pool import COMMON
from gpuwatch.agent.processes.process import Kind, Process

LOOK, MINUTE, HOUR = 10.0, 60.0, 3600.0
needs_sock_diag = pytest.mark.skipif(
    sock_diag._from_kernel(socket.IPPROTO_UDP) is None, reason="this kernel does not offer sock_diag for UDP"
)


def sock(local: str, remote: str = "0.0.0.0:0", cookie: int = 1, card: int = 0) -> Sock:
    """A socket of UDP."""
    (here, port), (there, other) = local.rsplit(":", 1), remote.rsplit(":", 1)
    return Sock(
        cookie=cookie,
        inode=cookie + 500,
        uid=0,
        local=(ip_address(here).packed, int(port)),
        remote=(ip_address(there).packed, int(other)),
        card=card,
    )


def held_by(name: str, kind: Kind = Kind.PEOPLE, rule: str = "administrator unit") -> Holders:
    """A program that holds a socket."""
    process = Process(
        pid=42, uid=0, name=name, parent=1, group=42, session=42, tty=0, started_ticks=1, executable=None, kind=kind,
        rule=rule, placement=Placement(), state="S",
    )  # fmt: skip
    return Holders(kind=kind, processes=(process,), seen=True)


class UdpHost:
    """A host whose sockets and counts are given."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        """Nothing waits there."""
        self._net = folder / "net"
        self._net.mkdir()
        self.at = 3 * 86400.0
        self.got = self.sent = self.looped = self.heard = 1000
        self.rows: list[tuple[bool, Sock]] = []
        self.ended: list[Sock] | None = []
        self.holders: dict[int, Holders] = {}
        self.servers = UdpServers(Roots(proc=folder))
        patch.setattr(udp_servers, "read_udp_sockets", lambda _: self.rows)
        patch.setattr(UdpEnds, "take", lambda _: self.ended)

    def waits(self, local: str, its: Holders, card: int = 0) -> Sock:
        """Something waits on a socket."""
        made = sock(local, cookie=len(self.holders) + 1, card=card)
        self.rows.append((False, made))
        self.holders[made.cookie] = its
        return made

    def look(self, got: int = 0, sent: int = 0, looped: int = 0, heard: int = 0, seconds: float = LOOK) -> UdpUse:
        """One look, with so many more datagrams since the one before; those over loopback are in both sums."""
        self.at += seconds
        self.got, self.sent = self.got + got + looped, self.sent + sent + looped
        self.looped, self.heard = self.looped + looped, self.heard + heard
        udp = f"Udp: InDatagrams NoPorts OutDatagrams\nUdp: {self.got} 3 {self.sent}\n"
        (self._net / "snmp").write_text(f"Ip: Forwarding DefaultTTL\nIp: 1 64\n{udp}")
        (self._net / "netstat").write_text(f"IpExt: InMcastPkts InBcastPkts\nIpExt: {self.heard} 0\n")
        (self._net / "dev").write_text(f"Inter-|\n face |\n    lo: 900 {self.looped} 0\n  ens5: 5 7 0\n")
        self.servers.find_waiting(self.at)
        return self.servers.judge(self.holders, self.at)

    def rest(self, seconds: float, **each: int) -> list[str]:
        """Looks for so long, with so much at each; the words of those at which it was in use."""
        return [use for _ in range(int(seconds / LOOK)) if (use := self.look(**each).used) is not None]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UdpHost:
    """A host on which nothing waits."""
    return UdpHost(tmp_path, monkeypatch)


@pytest.fixture
def game(host: UdpHost) -> UdpHost:
    """A host on which a program of somebody's waits, and nobody has come for twenty minutes."""
    host.waits("0.0.0.0:19132", held_by("bedrock"))
    assert host.rest(20 * MINUTE) == []
    return host


def test_who_comes_after_a_quarter_of_an_hour_makes_the_node_busy_for_a_minute(game: UdpHost) -> None:
    """Three datagrams do; one or two may be a lease's or a clock's."""
    assert game.look(got=2, sent=2).used is None
    assert game.rest(20 * MINUTE) == []
    use = game.look(got=3, sent=3)
    assert use.used == "another machine has come to udp 19132 here"
    assert len(game.rest(5 * MINUTE)) == 5
    assert game.look(got=3, sent=3).used is None


def test_an_hour_without_anybody_is_told_for_the_memory_of_hours(game: UdpHost) -> None:
    """As of TCP: the port is due at that hour when it was so for days."""
    assert game.look(got=3, sent=3).came == frozenset()
    game.rest(61 * MINUTE)
    assert game.look(got=3, sent=3).came == {"udp 19132"}
    assert game.look(got=3, sent=3).came == frozenset()


def test_many_datagrams_are_use_for_as_long_as_they_come(game: UdpHost) -> None:
    """A game, a voice: more than five a second."""
    found = game.rest(HOUR, got=60, sent=60)
    assert len(found) == HOUR / LOOK
    assert found[-1] == "udp 19132 here gets 360 datagrams a minute"
    assert game.rest(10 * MINUTE)[3:] == []


def test_what_asks_evenly_is_a_probe(game: UdpHost) -> None:
    """Each thirty seconds for a day, after it has come; no word of it later."""
    game.look(got=3, sent=3)
    looks = [game.look(got=2, sent=2, seconds=MINUTE).used for _ in range(24 * 60)]
    assert set(looks[20:]) == {None}


def test_who_asks_by_chance_is_use_after_half_a_day(game: UdpHost) -> None:
    """Half hours differ by more than a clock's."""
    chance, found = Random(5), []
    for _ in range(13 * 60):
        some = chance.choice((0, 0, 4))
        found.append(game.look(got=some, sent=some, seconds=MINUTE).used)
    assert "machines come again and again to udp 19132 here" in found


def test_what_is_sent_and_gets_no_answer_is_use(game: UdpHost) -> None:
    """A log of one instrument, a line each minute."""
    found = [game.look(got=int(not number % 6)).used for number in range(240)]
    assert set(found[130:]) == {"machines send to udp 19132 here what gets no answer"}


def test_one_burst_without_an_answer_is_no_log(game: UdpHost) -> None:
    """A scanner's, or one that waited in a queue."""
    game.look(got=40)
    assert game.rest(20 * MINUTE)[7:] == []


def test_loopback_resolvers_clocks_and_multicast_are_nobody(game: UdpHost) -> None:
    """A lookup each ten seconds through the host's resolver, a clock's socket, and neighbours that call out."""
    game.waits("0.0.0.0:5353", held_by("avahi-daemon", Kind.SERVICE, PACKAGED))
    game.rest(2 * MINUTE)
    game.rows.append((True, sock("10.0.1.5:40111", "169.254.169.123:123", cookie=77)))
    lookup = [
        sock("10.0.1.5:40321", "10.0.0.2:53", cookie=78),
        sock("127.0.0.1:40322", "127.0.0.53:53", cookie=79),
        sock("0.0.0.0:40323", cookie=80),
    ]
    game.ended = lookup
    assert game.rest(2 * HOUR, got=11, sent=3, looped=4, heard=2) == []


@pytest.mark.parametrize("other", ["203.0.113.9:443", "203.0.113.9:1194"])
def test_a_conversation_with_a_server_elsewhere_says_nothing(game: UdpHost, other: str) -> None:
    """HTTP/3 and a VPN, from here."""
    game.rows.append((True, sock("10.0.1.5:40111", other, cookie=77)))
    assert game.rest(30 * MINUTE, got=90, sent=20) == []


def test_a_socket_that_answers_one_client_is_a_servers(game: UdpHost) -> None:
    """TFTP answers each from a socket of its own."""
    game.rows.append((True, sock("10.0.1.5:40111", "10.0.6.13:50111", cookie=77)))
    assert game.rest(10 * MINUTE, got=90, sent=90)


def test_without_the_ends_of_sockets_or_with_a_tunnel_nothing_is_said(game: UdpHost) -> None:
    """Whose it was cannot be told: it stays as it was."""
    game.ended = None
    assert game.rest(30 * MINUTE, got=90, sent=20) == []
    game.ended = []
    tunnel = game.waits("0.0.0.0:51820", Holders(kind=Kind.PEOPLE))
    game.rest(5 * MINUTE)
    assert game.rest(30 * MINUTE, got=90, sent=20) == []
    looks = [tunnel in game.servers.find_waiting(game.at + LOOK) for _ in range(60) if game.look() is not None]
    assert sum(looks) == 1  # its holder is looked for each ten minutes: that costs a look into all processes


@pytest.mark.parametrize(
    ("local", "its", "waits"),
    [
        ("0.0.0.0:69", held_by("in.tftpd", Kind.SERVICE, PACKAGED), True),
        ("10.0.1.5:53", held_by("named", Kind.SERVICE, PACKAGED), True),
        ("0.0.0.0:514", held_by("rsyslogd", Kind.SERVICE, "unit of the machine's own"), True),
        ("0.0.0.0:123", held_by("chronyd", Kind.SERVICE, "unit of the machine's own"), True),
        ("0.0.0.0:123", held_by("ntpd", Kind.SERVICE, PACKAGED), False),
        ("0.0.0.0:161", held_by("snmpd", Kind.SERVICE, "unit of the machine's own"), False),
        ("0.0.0.0:5353", held_by("avahi-daemon", Kind.SERVICE, PACKAGED), False),
        ("0.0.0.0:42111", held_by("avahi-daemon", Kind.SERVICE, PACKAGED), False),
        ("10.0.1.5:68", held_by("NetworkManager", Kind.SERVICE, PACKAGED), False),
        ("0.0.0.0:41641", held_by("tailscaled", Kind.SERVICE, "program of the machine's own"), False),
        ("192.168.122.1:53", held_by("dnsmasq", Kind.SERVICE, "unit of the machine's own"), False),
        ("127.0.0.53:53", held_by("systemd-resolve", Kind.SERVICE, PACKAGED), False),
        ("0.0.0.0:69", held_by("in.tftpd", Kind.SERVICE, f"{COMMON}11 of 12 machines"), False),
        ("0.0.0.0:19132", held_by("bedrock"), False),
    ],
)
def test_a_server_that_nobody_started_by_hand_occupies_the_node(
    host: UdpHost, local: str, its: Holders, waits: bool
) -> None:
    """What each host has for itself does not; a program of people does so by itself, as a process."""
    made = host.waits(local, its)
    host.look()
    assert host.look(seconds=MINUTE).waits == (made if waits else None)


def test_a_server_of_one_card_alone_serves_this_hosts_guests(host: UdpHost) -> None:
    """As the DHCP of libvirt."""
    host.waits("0.0.0.0:67", held_by("dnsmasq", Kind.SERVICE, "unit of the machine's own"), card=5)
    host.look()
    assert host.look(seconds=MINUTE).waits is None


def test_where_nothing_waits_nothing_is_counted(host: UdpHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most hosts: one question to the kernel at each look."""
    host.waits("10.0.1.5:68", held_by("NetworkManager", Kind.SERVICE, PACKAGED))
    monkeypatch.setattr(udp_servers, "_read_counts", lambda _: pytest.fail("it was read"))
    assert host.rest(HOUR, got=900) == []


def test_a_socket_counts_after_a_minute(host: UdpHost) -> None:
    """A program that asks by a socket without another end is no server."""
    host.look()
    host.waits("0.0.0.0:69", held_by("in.tftpd", Kind.SERVICE, PACKAGED))
    assert host.look().waits is None
    assert host.look(seconds=MINUTE).waits is not None


@pytest.mark.parametrize("missing", ["snmp", "dev"])
def test_counts_that_cannot_be_read_say_nothing(game: UdpHost, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor a file of another form."""
    write = Path.write_text
    monkeypatch.setattr(Path, "write_text", lambda path, text: write(path, "" if path.name == missing else text))
    assert game.rest(30 * MINUTE, got=90) == []


@needs_sock_diag
def test_the_kernel_shows_sockets_and_those_that_were_closed() -> None:
    """With their ends; one without another end shows none."""
    ends = UdpEnds()
    assert ends.take() is None
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        rows = {each.local[1]: connected for connected, each in read_udp_sockets(Roots()) or []}
        assert rows[port] is False
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as client:
            client.connect(("127.0.0.1", port))
            here = client.getsockname()[1]
            rows = {each.local[1]: connected for connected, each in read_udp_sockets(Roots()) or []}
            assert rows[here] is True
        told = {each.local[1]: each.remote[1] for each in ends.take() or []}
        assert told[here] == port


@pytest.mark.parametrize("port", [319, 500, 4500, 3784, 5405, 8649])
def test_a_package_s_program_that_talks_with_its_equals_serves_nobody(host: UdpHost, port: int) -> None:
    """Time by PTP, keys of IPsec, checks of neighbours: whole fleets have them, and would never be idle."""
    host.waits(f"0.0.0.0:{port}", held_by("ptp4l", Kind.SERVICE, PACKAGED))
    assert host.rest(20 * MINUTE, got=160, heard=160) == []
    assert host.look().waits is None


def test_what_is_bound_to_a_card_serves_nobody(host: UdpHost) -> None:
    """It hears what that card hears."""
    host.waits("0.0.0.0:2000", held_by("lldpd", Kind.SERVICE, PACKAGED), card=2)
    host.rest(5 * MINUTE)
    assert host.look().waits is None


@pytest.mark.parametrize(("port", "name"), [(161, "snmpd"), (41641, "tailscaled"), (123, "ntpd"), (8472, "flanneld")])
def test_datagrams_of_the_machine_s_own_are_not_taken_for_a_server_s(game: UdpHost, port: int, name: str) -> None:
    """Nothing tells whose they are: nothing is said."""
    game.waits(f"0.0.0.0:{port}", held_by(name, Kind.SERVICE))
    game.rest(5 * MINUTE)
    assert game.rest(HOUR, got=60, sent=60) == []
