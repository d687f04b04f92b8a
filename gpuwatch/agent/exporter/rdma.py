"""The samples of RDMA ports."""

from collections.abc import Iterable, Iterator

from gpuwatch.agent.evidence.rdma_ports import RdmaPort
from gpuwatch.model.gpu import Kind
from gpuwatch.runtime.metrics.exposition import Sample

_PORT = ("device", "port")
_FOLDER = "/sys/class/infiniband"

# As agent.catalogue lists them.
FAMILIES: tuple[tuple[str, str, tuple[str, ...], str, str], ...] = (
    (
        "gpuwatch_rdma_port_info",
        "info",
        (*_PORT, "link_layer"),
        "A port for RDMA: InfiniBand, RoCE (link_layer Ethernet) or EFA (link_layer Unspecified).",
        _FOLDER,
    ),
    (
        "gpuwatch_rdma_port_active",
        Kind.GAUGE,
        _PORT,
        "1 if the link carries traffic, 0 in every other state (down, initializing, armed).",
        f"{_FOLDER}, state",
    ),
    (
        "gpuwatch_rdma_port_speed_bytes",
        Kind.GAUGE,
        _PORT,
        "Speed of the link in bytes per second; a link that negotiated less than its neighbours has a bad cable.",
        f"{_FOLDER}, rate",
    ),
    (
        "gpuwatch_rdma_port_received_bytes_total",
        Kind.COUNTER,
        _PORT,
        "Bytes received since the driver was loaded.",
        f"{_FOLDER}, port_rcv_data in words of 4 bytes, or rx_bytes of the driver",
    ),
    (
        "gpuwatch_rdma_port_sent_bytes_total",
        Kind.COUNTER,
        _PORT,
        "Bytes sent since the driver was loaded.",
        f"{_FOLDER}, port_xmit_data in words of 4 bytes, or tx_bytes of the driver",
    ),
    (
        "gpuwatch_rdma_port_link_downs_total",
        Kind.COUNTER,
        _PORT,
        "How often the link went down since the driver was loaded.",
        f"{_FOLDER}, link_downed",
    ),
    (
        "gpuwatch_rdma_port_errors_total",
        Kind.COUNTER,
        (*_PORT, "error"),
        "Errors by the kernel's name of their counter; counters that a driver does not offer are absent.",
        f"{_FOLDER}, counters and hw_counters",
    ),
)


def rows(ports: Iterable[RdmaPort]) -> Iterator[Sample]:
    """Every sample of every port."""
    for port in ports:
        key = (port.device, port.port)
        yield "gpuwatch_rdma_port_info", (*key, port.link_layer), 1
        values = {
            "gpuwatch_rdma_port_active": port.active,
            "gpuwatch_rdma_port_speed_bytes": port.bytes_per_second,
            "gpuwatch_rdma_port_received_bytes_total": port.received_bytes,
            "gpuwatch_rdma_port_sent_bytes_total": port.sent_bytes,
            "gpuwatch_rdma_port_link_downs_total": port.downs,
        }
        for name, value in values.items():
            if value is not None:
                yield name, key, value
        for error, count in port.errors.items():
            yield "gpuwatch_rdma_port_errors_total", (*key, error), count
