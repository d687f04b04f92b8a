"""agent/evidence/rdma.py: traffic that passes the network cards' counters by."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.evidence.rdma import Rdma
from gpuwatch.agent.evidence.settings import RdmaSettings
from gpuwatch.model.activity import Evidence, State
from tests.support.fakes.host import FolderHost

EFA = "rdmap16s27/ports/1/hw_counters"
IB = "mlx5_0/ports/1/counters"


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host without RDMA."""
    return FolderHost(tmp_path)


def rdma(host: FolderHost) -> Rdma:
    """The signal at its defaults: 100 kB/s."""
    return Rdma(RdmaSettings(), host.roots)


def count(host: FolderHost, folder: str, **counters: object) -> None:
    """Write counters of a port as the kernel does."""
    for name, value in counters.items():
        host.write(f"sys/class/infiniband/{folder}/{name}", f"{value}\n")


def after(host: FolderHost, signal: Rdma, folder: str, **counters: object) -> Evidence:
    """What it says ten seconds later."""
    host.pass_time(10)
    count(host, folder, **counters)
    return host.tells(signal)


def test_a_host_without_rdma_says_nothing(host: FolderHost) -> None:
    """Neither without the class, nor with drivers loaded and no device."""
    nothing = host.told(rdma(host))
    (host.root / "sys/class/infiniband").mkdir(parents=True)

    assert (nothing, host.told(rdma(host))) == ((), ())


@pytest.mark.parametrize(
    ("folder", "start", "moved", "says"),
    [
        (EFA, {"rx_bytes": 5, "tx_bytes": 5}, {"rx_bytes": 2_000_005, "tx_bytes": 5}, State.BUSY),
        (EFA, {"rx_bytes": 5, "tx_bytes": 5}, {"rx_bytes": 500_005, "tx_bytes": 400_005}, State.IDLE),
        (EFA, {"rx_bytes": 5, "rdma_read_bytes": 0}, {"rx_bytes": 5, "rdma_read_bytes": 2_000_000}, State.BUSY),
        (EFA, {"tx_bytes": 5, "rdma_write_recv_bytes": 0}, {"rdma_write_recv_bytes": 2_000_000}, State.BUSY),
        (EFA, {"rx_bytes": 5, "rx_pkts": 0, "lifespan": 12}, {"rx_pkts": 9_000_000}, State.IDLE),
        (IB, {"port_rcv_data": 0, "port_xmit_data": 0}, {"port_rcv_data": 300_000}, State.BUSY),
        (IB, {"port_rcv_data": 0, "port_xmit_data": 0}, {"port_rcv_data": 200_000}, State.IDLE),
        (IB, {"port_rcv_data": 0, "port_xmit_data": 0}, {"port_rcv_packets": 9_000_000}, State.IDLE),
    ],
    ids=["efa", "efa little", "efa reads", "efa is written to", "efa packets", "ib words", "ib little", "ib packets"],
)
def test_what_a_port_moves_in_ten_seconds(
    host: FolderHost, folder: str, start: dict[str, int], moved: dict[str, int], says: State
) -> None:
    """More than 100 kB/s is busy; InfiniBand counts words of four bytes, drivers bytes; packets do not count."""
    count(host, folder, **start)
    signal = rdma(host)
    first = host.tells(signal)
    found = after(host, signal, folder, **moved)

    assert (first.says, found.says) == (State.UNKNOWN, says)
    assert (found.setting is not None) == (says is State.BUSY)


def test_ports_count_together_and_are_named(host: FolderHost) -> None:
    """Two ports of 60 kB/s each are busy."""
    second = "mlx5_1/ports/2/counters"
    for port in (IB, second):
        count(host, port, port_rcv_data=0, port_xmit_data=0)
    signal = rdma(host)
    host.tells(signal)
    count(host, second, port_xmit_data=150_000)
    found = after(host, signal, IB, port_rcv_data=150_000)

    assert (found.says, found.note) == (State.BUSY, "mlx5_0 port 1, mlx5_1 port 2")
    assert found.observed == pytest.approx(120_000)


def test_a_counter_that_is_full_is_no_silence(host: FolderHost) -> None:
    """Those of 32 bits stay at their end; another port's traffic is seen nevertheless."""
    count(host, IB, port_rcv_data=0xFFFFFFFF, port_xmit_data=7)
    count(host, EFA, rx_bytes=0, tx_bytes=0)
    signal = rdma(host)
    host.tells(signal)
    silent = after(host, signal, EFA, rx_bytes=10)
    busy = after(host, signal, EFA, rx_bytes=9_000_000)

    assert (silent.says, busy.says) == (State.UNKNOWN, State.BUSY)
    assert silent.note == "mlx5_0 port 1: port_rcv_data counts no further; reset it (perfquery -R)"


def test_a_port_whose_driver_counts_no_bytes_is_unknown_unless_that_hides_nothing(host: FolderHost) -> None:
    """A port that is down moves nothing; software RDMA's bytes are those of the Ethernet card."""
    port = "sys/class/infiniband/rxe0/ports/1"
    host.write(f"{port}/hw_counters/sent_pkts", "5\n")
    host.write(f"{port}/link_layer", "InfiniBand\n")
    host.write(f"{port}/state", "4: ACTIVE\n")
    active = host.told(rdma(host))
    host.write(f"{port}/state", "1: DOWN\n")
    down = host.told(rdma(host))
    host.write(f"{port}/state", "4: ACTIVE\n")
    host.write(f"{port}/link_layer", "Ethernet\n")

    assert [each.says for each in active] == [State.UNKNOWN]
    assert (down, host.told(rdma(host))) == ((), ())


def test_a_counter_that_there_is_none_of_leaves_the_others(host: FolderHost) -> None:
    """Older kernels write words in its place."""
    count(host, IB, port_rcv_data="N/A (no PMA)", port_xmit_data=0)
    signal = rdma(host)
    host.tells(signal)

    assert after(host, signal, IB, port_xmit_data=1_000_000).says is State.BUSY


def test_a_reset_is_unknown_for_one_look(host: FolderHost) -> None:
    """Counting from zero again, and nothing to compare with."""
    count(host, EFA, rx_bytes=500, tx_bytes=500)
    signal = rdma(host)
    host.tells(signal)
    reset = after(host, signal, EFA, rx_bytes=0, tx_bytes=0)

    assert (reset.says, after(host, signal, EFA).says) == (State.UNKNOWN, State.IDLE)


@given(st.binary(max_size=200))
def test_garbage_is_never_idle(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """A counter that is no number, or does not grow as counters do."""
    host = FolderHost(tmp_path_factory.mktemp("host"))
    count(host, EFA, rx_bytes=1 << 40)
    signal = rdma(host)
    host.tells(signal)
    host.pass_time(10)
    host.write(f"sys/class/infiniband/{EFA}/rx_bytes", data)

    assert host.tells(signal).says is not State.IDLE or data.strip().isdigit()


def test_this_machine(tmp_path: Path) -> None:
    """Whatever ports this machine has, they are understood or said to be unknown."""
    host = FolderHost(tmp_path)
    signal = Rdma(RdmaSettings(), Roots())
    for _ in range(2):
        found = host.told(signal)
        host.pass_time(10)

        assert all("it failed" not in (each.note or "") for each in found)
