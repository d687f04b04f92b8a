"""PURE: how fast the links of a GPU move data, also where only their counters are known (before Hopper)."""

from dataclasses import dataclass

from gpuwatch.model.gpu import GpuReading


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCounters:
    """The counters of one look, and when it was, on the monotonic clock."""

    seconds: float
    pcie: tuple[int | None, int | None]
    nvlink: tuple[int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRates:
    """Bytes per second of the busier direction; None where that is not known."""

    pcie: float | None = None
    nvlink: float | None = None


def counters_of(reading: GpuReading, seconds: float) -> LinkCounters:
    """The counters of this look."""
    return LinkCounters(
        seconds=seconds,
        pcie=(reading.pcie_tx_bytes_total, reading.pcie_rx_bytes_total),
        nvlink=(reading.nvlink_tx_bytes_total, reading.nvlink_rx_bytes_total),
    )


def rates_of(reading: GpuReading, before: LinkCounters | None, now: LinkCounters) -> LinkRates:
    """What the driver measured, else what the counters grew by since the look before. One that fell has wrapped."""
    span = 0.0 if before is None else now.seconds - before.seconds

    def rate(
        measured: tuple[float | None, ...], then: tuple[int | None, ...], last: tuple[int | None, ...]
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
        ),
        nvlink=rate(
            (reading.nvlink_tx_bytes_per_second, reading.nvlink_rx_bytes_per_second),
            (None, None) if before is None else before.nvlink,
            now.nvlink,
        ),
    )
