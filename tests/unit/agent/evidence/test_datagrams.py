"""agent/evidence/datagrams.py on made lists of flows, as net/netfilter/nf_conntrack_standalone.c writes them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.evidence.datagrams import Datagrams, flows

HERE = "10.0.1.5"
LOCAL = f"Local:\n  |-- {HERE}\n     /32 host LOCAL\n  |-- 127.0.0.1\n     /32 host LOCAL\n"


def flow(source: str, sport: int, target: str, dport: int, *, answered: bool = True, counts: bool = False) -> str:
    """One line."""
    kind = "ipv6     10" if ":" in source else "ipv4     2"
    packets = "zone-orig=4 packets=2 bytes=130 " if counts else ""
    first = f"src={source} dst={target} sport={sport} dport={dport} {packets}{'' if answered else '[UNREPLIED] '}"
    second = f"src={target} dst={source} sport={dport} dport={sport} {packets}{'[ASSURED] ' if answered else ''}"
    return f"{kind} udp      17 29 {first}{second}mark=0 zone=0 use=2\n"


@pytest.fixture
def host(tmp_path: Path) -> Roots:
    """A host with an address of each family."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net/fib_trie").write_text(LOCAL)
    (tmp_path / "net/if_inet6").write_text("fd000000000000000000000000000005 02 40 00 80     ens5\n")
    return Roots(proc=tmp_path, sys=tmp_path / "sys")


def looked(host: Roots, *lines: str) -> tuple[int | None, int]:
    """The port that most machines ask, and how many do."""
    (host.proc / "net/nf_conntrack").write_text("".join(lines))
    found = Datagrams(host).find_asked(0.0)
    return found.port, found.machines


def clients(count: int, port: int = 53, **more: bool) -> list[str]:
    """So many machines that ask a port."""
    return [flow(f"10.0.6.{each}", 40_000 + each, HERE, port, **more) for each in range(1, count + 1)]


@pytest.mark.parametrize("counts", [False, True])
def test_machines_that_were_answered_count(host: Roots, counts: bool) -> None:
    """Also where the firewall accounts for packets; what was not answered is a scan or a tunnel's one way."""
    unanswered = [flow("10.0.9.1", each, HERE, 4000 + each, answered=False, counts=counts) for each in range(1, 9)]
    assert looked(host, *clients(4, counts=counts), *unanswered) == (53, 4)


def telling(host: Roots, *lines: str, bound: int = 514) -> tuple[int | None, int]:
    """The same where something here has that port."""
    row = (
        f"  462: 00000000:{bound:04X} 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 20411 2\n"
    )
    (host.proc / "net/udp").write_text(f"  sl  local_address rem_address   st tx_queue rx_queue\n{row}")
    return looked(host, *lines)


def test_logs_and_figures_get_no_answer_and_are_use(host: Roots) -> None:
    """To a port that something here has, from machines of a network of one's own."""
    switches = clients(3, 514, answered=False)
    assert telling(host, *switches) == (514, 3)
    assert telling(host, *switches[:1]) == (514, 1)
    assert telling(host, *switches, bound=162) == (None, 0)
    assert telling(host, *clients(3, 41641, answered=False), bound=41641) == (None, 0)
    strangers = [flow(f"52.16.8.{each}", 4000, HERE, 514, answered=False) for each in range(1, 9)]
    assert telling(host, *strangers) == (None, 0)


def test_one_machine_that_answers_what_this_one_asks_its_network_tells_nothing(host: Roots) -> None:
    """The answers to a broadcast of NetBIOS or mDNS, and to one of DHCP, which no firewall follows."""
    for port, asked in ((137, "10.0.1.255"), (5353, "224.0.0.251")):
        answer = flow("10.0.1.9", port, HERE, port, answered=False)
        assert telling(host, answer, bound=port) == (port, 1)
        assert telling(host, answer, flow(HERE, port, asked, port, answered=False), bound=port) == (None, 0)
    assert telling(host, flow("10.0.1.1", 67, HERE, 68, answered=False), bound=68) == (None, 0)


# What sysfs shows of cards: ifindex, iflink, uevent, and what else is there.
VETH, CARD, VXLAN = ("7", "2", "", ()), ("2", "2", "", ("device",)), ("5", "5", "DEVTYPE=vxlan\n", ())
TAP, SWITCH = ("6", "6", "", ("tun_flags",)), ("8", "8", "", ())


def place(card: Path, index: str, link: str, event: str, more: tuple[str, ...]) -> None:
    """One card, as the kernel shows it."""
    card.mkdir(parents=True)
    for name, text in (("ifindex", index), ("iflink", link), ("uevent", event)):
        (card / name).write_text(text)
    for each in more:
        (card / each).mkdir()


@pytest.mark.parametrize(
    ("card", "ports", "counts"),
    [
        ("bridge", (VETH,), 0),
        ("bridge", (VETH, TAP), 1),
        ("bridge", (VETH, CARD), 1),
        ("bridge", (VETH, VXLAN), 1),
        (VETH, (), 0),
        (CARD, (), 1),
        (VXLAN, (), 1),
        (TAP, (), 1),
        (SWITCH, (), 1),
        (None, (), 1),
    ],
    ids=["containers", "bridged vpn", "network", "overlay", "veth", "card", "vxlan", "vpn", "openvswitch", "unseen"],
)
def test_a_container_of_this_host_is_no_other_machine(
    host: Roots, card: object, ports: tuple[tuple[str, str, str, tuple[str, ...]], ...], counts: int
) -> None:
    """It sends its figures to the agent here, over a card that leads to nobody else; by IPv6, too."""
    folder = host.sys / "class/net/br0"
    if card is not None:
        place(folder, *(("4", "4", "DEVTYPE=bridge\n", ("bridge",)) if card == "bridge" else card))  # type: ignore[misc]
    for number, port in enumerate(ports):
        place(folder / f"lower_port{number}", *port)
    row = "{:16} 0x1         0x2         02:42:ac:11:00:03     *        br0\n"
    (host.proc / "net/arp").write_text(
        f"IP address       HW type     Flags       HW address            Mask     Device\n{row.format('172.17.0.3')}"
    )
    network = "fd000001000000000000000000000000 40"
    (host.proc / "net/ipv6_route").write_text(
        f"{network} {'0' * 32} 00 {'0' * 32} 00000100 00000003 00000000 00000001      br0\n"
        f"{'fe800000'.ljust(32, '0')} 40 {'0' * 32} 00 {'0' * 32} 00000100 00000001 00000000 00000001      br0\n"
    )
    for source, here in (("172.17.0.3", HERE), ("fd00:1::3", "fd00::5")):
        assert telling(host, flow(source, 40_001, here, 8125, answered=False), bound=8125)[1] == counts
    for source in ("fd00:2::3", "fe80::9"):
        assert telling(host, flow(source, 40_001, "fd00::5", 8125, answered=False), bound=8125)[1] == 1


def test_equals_and_scanners_tell_nothing(host: Roots) -> None:
    """The machines of an overlay get the same from here; a scanner tries many ports."""
    overlay = clients(4, 8472, answered=False)
    back = [flow(HERE, 50_000 + each, f"10.0.6.{each}", 8472, answered=False) for each in range(1, 5)]
    assert telling(host, *overlay, *back, bound=8472) == (None, 0)
    assert telling(host, *overlay, *back[:1], bound=8472) == (8472, 3)
    scans = [line for port in (514, 161, 162, 69) for line in clients(3, port, answered=False)]
    assert telling(host, *scans) == (None, 0)


def test_who_told_something_is_remembered_for_an_hour(host: Roots) -> None:
    """A flow without an answer is kept for half a minute; switches have little to say."""
    telling(host)
    table, seen = host.proc / "net/nf_conntrack", Datagrams(host)
    for minute, line in enumerate(clients(3, 514, answered=False)):
        table.write_text(line)
        found = seen.find_asked(minute * 1200.0)
        assert len(seen.asking) == 1
    assert found.machines == 3
    table.write_text("")
    assert seen.find_asked(3630.0).machines == 2
    assert seen.told.keys() == seen.counted
    assert not seen.asking
    assert seen.find_asked(6030.0).machines == 0


def test_who_was_answered_before_may_tell_something_now(host: Roots) -> None:
    """It is seen at this look, whatever the answer was that it got before."""
    seen = Datagrams(host)
    telling(host)
    for at, answered in ((0.0, True), (60.0, False)):
        (host.proc / "net/nf_conntrack").write_text("".join(clients(1, 514, answered=answered)))
        seen.find_asked(at)
        assert len(seen.asking) == 1


def test_an_address_of_ipv6_is_the_same_however_it_is_written(host: Roots) -> None:
    """The kernel writes all its digits here."""
    ours = "fd00:0000:0000:0000:0000:0000:0000:0005"
    lines = [flow(f"fd00:0000:0000:0000:0000:0000:0001:000{each}", 4000, ours, 53) for each in (1, 2, 3)]
    assert looked(host, *lines) == (53, 3)


def test_what_this_machine_asks_and_passes_on_is_not_counted(host: Roots) -> None:
    """Its own names and time; a container's packets, and those of others that go through it; loopback."""
    lines = [flow(HERE, 40_000 + each, f"10.0.0.{each}", 53) for each in range(1, 6)]
    lines += [flow(f"172.17.0.{each}", 40_000, "10.0.0.2", 53) for each in range(2, 6)]
    lines += [flow("127.0.0.1", 40_000 + each, "127.0.0.1", 53) for each in range(5)]
    assert looked(host, *lines) == (None, 0)


def test_equals_that_ask_each_other_from_one_port_are_no_clients(host: Roots) -> None:
    """A mesh VPN; a DNS server asks others, too, but from other ports."""
    equals = [flow(f"10.0.1.{each}", 41641, HERE, 41641) for each in (31, 32, 33)]
    own = [flow(HERE, 41641, f"10.0.1.{each}", 41641) for each in (34, 35)]
    upstream = [flow(HERE, 51_000 + each, "10.0.0.2", 53) for each in range(4)]
    assert looked(host, *equals, *own) == (None, 0)
    assert looked(host, *equals) == (41641, 3)
    assert looked(host, *clients(3), *upstream) == (53, 3)


def test_an_hour_is_remembered(host: Roots) -> None:
    """A flow is kept for two minutes only."""
    table, seen = host.proc / "net/nf_conntrack", Datagrams(host)
    table.write_text("".join(clients(3)))
    seen.find_asked(0.0)
    table.write_text("")
    assert seen.find_asked(3590.0).machines == 3
    assert seen.find_asked(3610.0).machines == 0


def test_without_the_list_nothing_is_said(host: Roots) -> None:
    """No firewall follows flows, or the agent may not see the list."""
    assert Datagrams(host).find_asked(0.0).machines == 0


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    """The list is the kernel's, but addresses in it are anybody's."""
    assert list(flows(b"ipv4     2 udp      17 29 src=" + data)) is not None
