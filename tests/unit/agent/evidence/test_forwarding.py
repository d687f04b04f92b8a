"""agent/evidence/host_load.py: a gateway works for others, though no process and no connection shows it."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.evidence.host_load import Network, forwarded_packets
from gpuwatch.agent.evidence.settings import NetworkSettings
from gpuwatch.agent.processes.process import Kind
from gpuwatch.model.activity import Evidence, State
from tests.support.fakes.connected_host import ConnectedHost


class Gateway:
    """A host with a card, whose kernel forwards so many packets."""

    def __init__(self, root: Path) -> None:
        self.host = ConnectedHost(root)
        (root / "sys/class/net/ens5/device").mkdir(parents=True)
        self.host.write("proc/net/dev", "a\nb\n ens5: 0 0 0 0 0 0 0 0 0 0\n")
        self.network = Network(NetworkSettings(), self.host.roots)

    def bridge(self, **passed: tuple[int, int]) -> None:
        """A bridge, whose ports have received and sent so many frames; those named veth lead to containers."""
        for name, (received, sent) in {"br0/bridge/id": (0, 0), **passed}.items():
            port = f"sys/class/net/br0/lower_{name}" if "/" not in name else f"sys/class/net/{name}"
            for file, value in (("rx_packets", received), ("tx_packets", sent)):
                self.host.write(f"{port}/statistics/{file}", f"{value}\n")
            for file, text in (("ifindex", "7"), ("iflink", "2" if name.startswith("veth") else "7"), ("uevent", "")):
                self.host.write(f"{port}/{file}", f"{text}\n")

    def after(self, packets: int, of_ipv6: int = 0) -> Evidence:
        """What it says a minute later."""
        self.host.write("proc/net/snmp", f"Ip: Forwarding ForwDatagrams InDiscards\nIp: 1 {packets} 0\nIcmp: x\n")
        self.host.write("proc/net/snmp6", f"Ip6InReceives 7\nIp6OutForwDatagrams \t{of_ipv6}\n")
        self.host.pass_time(60)
        (found,) = self.network.find_evidence(replace(self.host.moment(), processes=self.host.view()))
        return found


@pytest.mark.parametrize(
    ("packets", "of_ipv6", "says"),
    [
        (4, 0, State.IDLE),
        (6, 0, State.OCCUPIED),
        (240, 0, State.OCCUPIED),
        (1200, 0, State.BUSY),
        (0, 1200, State.BUSY),
    ],
)
def test_a_gateway_keeps_its_machine(tmp_path: Path, packets: int, of_ipv6: int, says: State) -> None:
    """Busy above five packets a second, mean of a minute, and occupied above six a minute: people are silent there."""
    gateway = Gateway(tmp_path)
    gateway.after(9)
    found = gateway.after(9 + packets, of_ipv6)

    assert found.says is says
    assert says is State.IDLE or "forwards packets between other machines" in (found.note or "")


def test_a_gateway_of_days_is_known_at_any_hour(tmp_path: Path) -> None:
    """The kernel counts since the boot: who comes twice a day is expected, also by an agent that has just begun."""
    gateway = Gateway(tmp_path)
    a_day = int(gateway.host.moment().monotonic_seconds + 86_400)
    gateway.after(a_day)
    gateway.host.pass_time(20 * 3600)
    found = gateway.after(a_day)
    gateway.host.pass_time(30 * 86_400)
    later = gateway.after(a_day)

    assert (found.says, later.says) == (State.OCCUPIED, State.IDLE)
    assert "forwards packets between other machines" in (found.note or "")


def test_a_silent_gateway_occupies_its_machine_for_four_hours(tmp_path: Path) -> None:
    """Nobody sends anything at night; who comes back within hours finds it."""
    gateway = Gateway(tmp_path)
    gateway.after(9)
    gateway.after(600)
    gateway.host.pass_time(4 * 3600 - 180)
    late = gateway.after(600)

    assert (late.says, late.note) == (State.OCCUPIED, "forwards packets between other machines, or did lately")
    gateway.host.pass_time(120)
    assert gateway.after(600).says is State.IDLE


@pytest.mark.parametrize(
    ("ports", "says"),
    [
        ({"tap0": (900, 700), "vxlan7": (700, 900)}, State.BUSY),
        ({"tap0": (12, 30), "ens5": (90_000, 80_000)}, State.OCCUPIED),
        ({"tap0": (0, 9_000), "ens5": (90_000, 80_000)}, State.IDLE),
        ({"veth1": (900, 900), "ens5": (90_000, 80_000)}, State.IDLE),
        ({"ens5": (90_000, 80_000)}, State.IDLE),
    ],
    ids=["two sites", "a little", "to all", "container", "alone"],
)
def test_frames_that_a_bridge_passes_on_are_forwarded(
    tmp_path: Path, ports: dict[str, tuple[int, int]], says: State
) -> None:
    """A VPN of Ethernet joins networks, and no packet shows it; what is meant for all machines only goes one way."""
    gateway = Gateway(tmp_path)
    gateway.bridge(**dict.fromkeys(ports, (0, 0)))
    gateway.after(0)
    gateway.bridge(**ports)

    assert gateway.after(0).says is says


def test_what_containers_send_is_forwarded_too(tmp_path: Path) -> None:
    """So nothing follows from it where one runs, whosever it is; their own traffic counts elsewhere."""
    gateway = Gateway(tmp_path)
    gateway.host.runs(42, Kind.SERVICE, name="coredns")
    gateway.host.running[42] = replace(gateway.host.running[42], placement=Placement(pod_uid="0a"))
    gateway.after(0)

    assert gateway.after(100_000).says is State.IDLE


@pytest.mark.parametrize("text", ["", "Ip: x\n", "Ip: ForwDatagrams\nIp: -1\n", "Ip: ForwDatagrams\nIp:\n", "\0"])
def test_what_the_kernel_does_not_say_is_not_known(tmp_path: Path, text: str) -> None:
    """Not zero."""
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/snmp").write_text(text)

    assert forwarded_packets(Roots(proc=tmp_path / "proc")) is None


def test_this_machine() -> None:
    """Linux says it."""
    assert forwarded_packets(Roots()) is not None
