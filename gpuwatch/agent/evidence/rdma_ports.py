"""The RDMA ports of a host as sysfs shows them: link, rate, bytes and errors.

Sources: Documentation/ABI/stable/sysfs-class-infiniband for `counters`; the drivers of mlx5 and EFA for `hw_counters`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuwatch.agent.evidence.base import UnseenError
from gpuwatch.agent.evidence.files import read_small

WORD_BYTES = 4  # of PortRcvData and PortXmitData (InfiniBand Architecture, volume 1, 16.1.3.5)
RECEIVED = {"counters": {"port_rcv_data": WORD_BYTES}, "hw_counters": {"rx_bytes": 1}}
SENT = {"counters": {"port_xmit_data": WORD_BYTES}, "hw_counters": {"tx_bytes": 1}}
_ERRORS = {
    "counters": (
        "symbol_error",
        "link_error_recovery",
        "local_link_integrity_errors",
        "excessive_buffer_overrun_errors",
        "port_rcv_errors",
        "port_rcv_remote_physical_errors",
        "port_rcv_constraint_errors",
        "port_xmit_constraint_errors",
        "port_xmit_discards",
        "VL15_dropped",
    ),
    "hw_counters": (
        "out_of_sequence",
        "packet_seq_err",
        "local_ack_timeout_err",
        "rnr_nak_retry_err",
        "req_cqe_error",
        "resp_cqe_error",
        "rx_drops",
        "retrans_timeout_events",
        "unresponsive_remote_events",
        "impaired_remote_conn_events",
    ),
}
_NUMBER = re.compile(r"\d{1,20}\s*", re.ASCII)
_RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec", re.ASCII)
_ACTIVE = "4:"  # of `state`: "4: ACTIVE"
_MOST_PORTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaPort:
    """One port; what its driver does not offer is None, or absent from `errors`.

    `active` is whether the link carries traffic, `bytes_per_second` its rate, `downs` how often it went down.
    """

    device: str
    port: str
    link_layer: str
    active: bool | None = None
    bytes_per_second: float | None = None
    received_bytes: int | None = None
    sent_bytes: int | None = None
    downs: int | None = None
    errors: Mapping[str, int] = field(default_factory=dict)


def read_ports(ports: Iterator[Path]) -> tuple[RdmaPort, ...]:
    """What the folders of these ports show now; what cannot be read is left out."""
    return tuple(_port(path) for path, _ in zip(ports, range(_MOST_PORTS), strict=False))


def _port(path: Path) -> RdmaPort:
    state, rate = _text(path / "state"), _RATE.match(_text(path / "rate") or "")
    errors = {name: _count(path / folder / name) for folder, names in _ERRORS.items() for name in names}
    return RdmaPort(
        device=path.parts[-3],
        port=path.name,
        link_layer=_text(path / "link_layer") or "",
        active=None if state is None else state.startswith(_ACTIVE),
        bytes_per_second=None if rate is None else float(rate[1]) * 1e9 / 8,
        received_bytes=_bytes(path, RECEIVED),
        sent_bytes=_bytes(path, SENT),
        downs=_count(path / "counters/link_downed"),
        errors={name: count for name, count in errors.items() if count is not None},
    )


def _bytes(path: Path, names: Mapping[str, Mapping[str, int]]) -> int | None:
    """The first counter that the port has, in bytes."""
    for folder, known in names.items():
        for name, unit in known.items():
            count = _count(path / folder / name)
            if count is not None:
                return count * unit
    return None


def _count(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def _text(path: Path) -> str | None:
    try:
        return read_small(path).text.strip()
    except (OSError, UnseenError):
        return None
