"""agent/evidence/rdma_ports.py: ports as the drivers of mlx5, EFA and RoCE show them."""

from pathlib import Path

import pytest

from gpuwatch.agent.evidence.rdma import Rdma
from gpuwatch.agent.evidence.rdma_ports import RdmaPort
from gpuwatch.agent.evidence.settings import RdmaSettings
from gpuwatch.agent.exporter import rdma as rows_of
from tests.support.fakes.host import FolderHost

PORTS = "sys/class/infiniband"


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host without RDMA."""
    return FolderHost(tmp_path)


def made(host: FolderHost, device: str, **files: object) -> None:
    """A port; two underscores are a slash."""
    for name, value in files.items():
        host.write(f"{PORTS}/{device}/ports/1/{name.replace('__', '/')}", f"{value}\n")


def ports(host: FolderHost) -> tuple[RdmaPort, ...]:
    """What a look sees."""
    signal = Rdma(RdmaSettings(), host.roots)
    host.told(signal)
    return signal.ports


INFINIBAND: dict[str, object] = {
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "rate": "400 Gb/sec (4X NDR)",
    "link_layer": "InfiniBand",
    "counters__port_rcv_data": 25,
    "counters__port_xmit_data": 10,
    "counters__link_downed": 3,
    "counters__symbol_error": 7,
    "counters__port_rcv_errors": 0,
    "hw_counters__out_of_sequence": 2,
}


def test_an_infiniband_port(host: FolderHost) -> None:
    """Words of four bytes become bytes, 400 Gb/s become 50 GB/s; what mlx5 does not offer is absent."""
    made(host, "mlx5_0", **INFINIBAND)

    assert ports(host) == (
        RdmaPort(
            device="mlx5_0",
            port="1",
            link_layer="InfiniBand",
            active=True,
            bytes_per_second=50e9,
            received_bytes=100,
            sent_bytes=40,
            downs=3,
            errors={"symbol_error": 7, "port_rcv_errors": 0, "out_of_sequence": 2},
        ),
    )


def test_an_efa_port(host: FolderHost) -> None:
    """Amazon's adapter counts bytes and drops in `hw_counters`, and has no link_downed."""
    files = {"state": "4: ACTIVE", "rate": "100 Gb/sec (4X EDR)", "link_layer": "Unspecified"}
    counters = {"hw_counters__rx_bytes": 8, "hw_counters__tx_bytes": 9, "hw_counters__rx_drops": 1}
    made(host, "rdmap16s27", **files, **counters)
    (port,) = ports(host)

    assert (port.received_bytes, port.sent_bytes, port.downs) == (8, 9, None)
    assert port.errors == {"rx_drops": 1}


@pytest.mark.parametrize("state", ["1: DOWN", "2: INIT", "3: ARMED"])
def test_a_port_that_carries_nothing(host: FolderHost, state: str) -> None:
    """Every state but ACTIVE; a cable without a subnet manager is INIT."""
    made(host, "mlx5_0", **INFINIBAND | {"state": state})

    assert [port.active for port in ports(host)] == [False]


@pytest.mark.parametrize("junk", ["", "N/A (no PMA)", "-1", "1e3", "9" * 30])
def test_what_is_no_number_is_absent(host: FolderHost, junk: str) -> None:
    """A counter that a driver does not offer is not zero."""
    made(host, "mlx5_0", **INFINIBAND | {"counters__symbol_error": junk, "counters__link_downed": junk, "rate": junk})
    (port,) = ports(host)

    assert (port.downs, port.bytes_per_second) == (None, None)
    assert "symbol_error" not in port.errors


def test_a_device_that_goes_is_gone(host: FolderHost) -> None:
    """Ports are those of the last look, as the driver may be unloaded."""
    made(host, "mlx5_0", **INFINIBAND)
    signal = Rdma(RdmaSettings(), host.roots)
    host.told(signal)
    (host.root / PORTS).rename(host.root / "gone")
    host.told(signal)

    assert signal.ports == ()


def test_samples_leave_out_what_is_not_known() -> None:
    """One row for each number, none for a None."""
    port = RdmaPort(device="d", port="1", link_layer="Ethernet", active=False, errors={"rx_drops": 4})

    assert list(rows_of.rows([port])) == [
        ("gpuwatch_rdma_port_info", ("d", "1", "Ethernet"), 1),
        ("gpuwatch_rdma_port_active", ("d", "1"), False),
        ("gpuwatch_rdma_port_errors_total", ("d", "1", "rx_drops"), 4),
    ]
