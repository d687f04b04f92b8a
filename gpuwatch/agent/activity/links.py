"""PURE: how fast the links of a GPU move data, also where only their counters are known (before Hopper)."""

from dataclasses import dataclass

from gpuwatch.model.gpu import GpuReading
from gpuwatch.model.metric import STEADY_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCounters:
    """The counters of one look, and when they were read, on the monotonic clock."""

    seconds: float
    pcie_seconds: float
    pcie: tuple[int | None, int | None]
    nvlink: tuple[int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRates:
    """Bytes per second of the busier direction; None where that is not known."""

    pcie: float | None = None
    nvlink: float | None = None


def counters_of(reading: GpuReading, before: LinkCounters | None, seconds: float) -> LinkCounters:
    """The counters of this look. Where the rate over PCIe is measured, these may have been read STEADY_SECONDS ago."""
    pcie = (reading.pcie_tx_bytes_total, reading.pcie_rx_bytes_total)
    measured = reading.pcie_tx_bytes_per_second is not None or reading.pcie_rx_bytes_per_second is not None
    pcie_seconds = seconds
    if measured and before is not None and before.pcie == pcie:
        pcie_seconds = max(before.pcie_seconds, seconds - STEADY_SECONDS)
    return LinkCounters(
        seconds=seconds,
        pcie_seconds=pcie_seconds,
        pcie=pcie,
        nvlink=(reading.nvlink_tx_bytes_total, reading.nvlink_rx_bytes_total),
    )


def rates_of(reading: GpuReading, before: LinkCounters | None, now: LinkCounters) -> LinkRates:
    """What the driver measured, else what the counters grew by since they were read. One that fell has wrapped."""

    def rate(
        measured: tuple[float | None, ...], then: tuple[int | None, ...], last: tuple[int | None, ...], span: float
    ) -> float | None:
        found = [each for each in measured if each is not None]
        if not found and span > 0:
            pairs = zip(then, last, strict=True)
            found = [(b - a) / span for a, b in pairs if a is not None and b is not None and b >= a]
        return max(found, default=None)

    return LinkRates(
        pcie=rate(
            (reading.pcie_tx_bytes_per_second, reading.pcie_rx_bytes_per_second),
            (None, None) if before is None else before.pcie,
            now.pcie,
            0.0 if before is None else now.pcie_seconds - before.pcie_seconds,
        ),
        nvlink=rate(
            (reading.nvlink_tx_bytes_per_second, reading.nvlink_rx_bytes_per_second),
            (None, None) if before is None else before.nvlink,
            now.nvlink,
            0.0 if before is None else now.seconds - before.seconds,
        ),
    )
