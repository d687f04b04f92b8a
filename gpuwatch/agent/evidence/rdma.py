"""Traffic of RDMA ports, which passes the network cards' counters by: InfiniBand, EFA, RoCE, iWARP.

Each port of /sys/class/infiniband counts in `counters` (InfiniBand's own, in words of four bytes), in `hw_counters`
(the driver's), or in both. Both signals count RoCE over a card that /proc/net/dev lists.
"""

import errno
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gpuwatch.agent.evidence.base import Moment, Roots, UnseenError, make_finding, several
from gpuwatch.agent.evidence.files import list_paths, read_small
from gpuwatch.agent.evidence.rate import Rate
from gpuwatch.agent.evidence.rdma_ports import WORD_BYTES, RdmaPort, read_ports
from gpuwatch.agent.evidence.settings import RdmaSettings
from gpuwatch.model.activity import Evidence, State

_STANDARD = {"port_rcv_data": WORD_BYTES, "port_xmit_data": WORD_BYTES}
# The drivers' names: EFA, MANA and bnxt_re; EFA by operation, which its totals may hold as well; erdma; irdma.
_OF_DRIVERS = dict.fromkeys(
    (
        *("rx_bytes", "tx_bytes"),
        *("send_bytes", "recv_bytes", "rdma_read_bytes", "rdma_read_resp_bytes"),
        *("rdma_write_bytes", "rdma_write_recv_bytes"),
        *("rx_bytes_cnt", "tx_bytes_cnt", "hw_rx_bytes_cnt", "hw_tx_bytes_cnt"),
        *("ip4InOctets", "ip4OutOctets", "ip6InOctets", "ip6OutOctets"),
    ),
    1,
)
_FOLDERS = (("counters", _STANDARD), ("hw_counters", _OF_DRIVERS))
_NUMBER = re.compile(r"\d{1,20}\s*", re.ASCII)
_FULL = frozenset({2**32 - 1, 2**64 - 1})  # counters of InfiniBand stay at their largest value, and count no more
_NOT_OFFERED = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENODATA, errno.ENOENT})  # virtual functions, no PMA
_DOWN = "1:"  # of `state`: "1: DOWN"
_SETTING = "agent.evidence.rdma.busy_bytes_per_second"


class Rdma:
    """Busy while all RDMA ports together receive and send more than the limit."""

    name = "rdma"
    source = "/sys/class/infiniband, counters of the ports"

    def __init__(self, settings: RdmaSettings, roots: Roots) -> None:
        self._rate = Rate(settings.busy_bytes_per_second)
        self._folder = roots.sys / "class/infiniband"
        self.ports: tuple[RdmaPort, ...] = ()

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding over all ports; none where there is no RDMA device."""
        self.ports = ()
        try:
            self.ports = read_ports(_ports(self._folder))
            moved, doubts = self._moved_bytes()
        except (OSError, UnseenError):
            self._rate.forget()
            raise
        if not moved and not doubts:
            return ()
        found = self._rate.judge(self, moved, now)
        if found.says is State.BUSY:
            return (replace(found, setting=_SETTING),)
        if doubts:
            return (make_finding(self, State.UNKNOWN, several(doubts)),)
        return (found,)

    def _moved_bytes(self) -> tuple[dict[str, int], list[str]]:
        """Bytes in and out by port, since the driver was loaded; and why some are not known."""
        moved: dict[str, int] = {}
        doubts: list[str] = []
        for port in _ports(self._folder):
            name = f"{port.parts[-3]} port {port.name}"
            counted = dict(_counters(port))
            full = sorted(each for each, value in counted.items() if value in _FULL)
            if full:
                doubts.append(f"{name}: {several(full)} counts no further; reset it (perfquery -R)")
            elif counted:
                known = _STANDARD | _OF_DRIVERS
                moved[name] = sum(value * known[each] for each, value in counted.items())
            elif not _counts_elsewhere(port):
                doubts.append(f"{name}: its driver counts no bytes that gpuwatch knows")
        return moved, doubts


def _ports(folder: Path) -> Iterator[Path]:
    """The folder of every port of every device."""
    for device in _there(folder):
        yield from _there(device / "ports")


def _there(folder: Path) -> list[Path]:
    try:
        return list_paths(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _counters(port: Path) -> Iterator[tuple[str, int]]:
    """The byte counters that a port has, by name, in their own units."""
    for folder, known in _FOLDERS:
        for name in known:
            try:
                text = read_small(port / folder / name).text
            except OSError as error:
                if error.errno in _NOT_OFFERED:
                    continue
                raise
            if text.startswith("N/A"):  # as kernels before 4.16 say that there is none
                continue
            if not _NUMBER.fullmatch(text):
                raise UnseenError(f"{port / folder / name} is not a number")
            yield name, int(text)


def _counts_elsewhere(port: Path) -> bool:
    """Whether a port without counters cannot hide work: it is down, or its bytes are those of an Ethernet card."""
    return _word(port / "state").startswith(_DOWN) or _word(port / "link_layer") == "Ethernet"


def _word(path: Path) -> str:
    try:
        return read_small(path).text.strip()
    except OSError:
        return ""
