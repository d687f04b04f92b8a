"""Which GPU has which reading, in which unit the driver gives it, and how it says that there is none.

From nvml.h and NVIDIA's pages, and for Hopper from recordings of an H200. Where they say nothing, and of what is not
listed here, it is "?".
"""

from collections.abc import Iterator

from gpuwatch.agent.exporter.catalogue import gpu_metric
from gpuwatch.model.gpu import metrics

GENERATIONS = ("T4", "A100", "L40S", "H100", "B200", "GB200", "GB300")
YES, NO, UNSAID = "y", "n", "?"

# By the end of a name, the first that fits; what is not here is `count`.
_UNITS = (
    ("fan_speed_ratio", "%"),
    ("_ratio", "%"),
    ("_celsius", "°C"),
    ("_watts", "mW"),
    ("_joules_total", "mJ"),
    ("_hertz", "MHz"),
    ("_seconds_total", "ns"),
    ("_bytes_per_second", "MiB/s"),
    ("nvlink_tx_bytes_total", "KiB"),
    ("nvlink_rx_bytes_total", "KiB"),
    ("nvlink_link_tx_bytes_total", "KiB, NVLink 5: bytes"),
    ("nvlink_link_rx_bytes_total", "KiB, NVLink 5: bytes"),
    ("_bytes_total", "bytes"),
    ("_bytes", "bytes"),
    ("generation", "generation"),
    ("generation_max", "generation"),
    ("width", "lanes"),
    ("width_max", "lanes"),
    ("_pending", "flag"),
    ("remapped_rows_failure", "flag"),
    ("_exceeded", "flag"),
    ("ecc_mode", "flag"),
    ("persistence_mode", "flag"),
    ("mig_mode", "flag"),
    ("", "count"),
)
FACTORS = {"%": 0.01, "mW": 1e-3, "mJ": 1e-3, "MHz": 1e6, "ns": 1e-9, "KiB": 1024, "MiB/s": 1024 * 1024}

_ALL, _HOPPER = "yyyyyyy", "nnnyyyy"
_HAVE = (
    ("utilization_ memory_bandwidth_ encoder_ decoder_ jpeg_ ofa_", _ALL),
    ("graphics_activity sm_activity sm_occupancy tensor_ dram_ fp64_ fp32_ fp16_", _HOPPER),
    ("pcie_tx_bytes_per_second pcie_rx_bytes_per_second", _HOPPER),
    ("nvlink_tx_bytes_per_second nvlink_rx_bytes_per_second c2c_ fabric_state", _HOPPER),
    ("memory_temperature mig_mode", "nynyyyy"),
    ("temperature_margin temperature_limit_margin", "nnyyyyy"),
    ("power_module", "nnnnnyy"),
    ("power_memory_watts", "???y???"),
    ("power_memory_instant", "???n???"),
    ("fan_", "nnnnnnn"),
    ("pcie_tx_bytes_total pcie_rx_bytes_total pcie_errors recovery_action", "???y???"),
    ("nvlink_tx_bytes_total nvlink_rx_bytes_total", "nyny???"),
    ("nvlink_link_ nvlink_errors", "nynyyyy"),
    ("nvlink_replay_errors nvlink_crc_errors", "n?ny???"),
    ("nvlink_recovery_errors", "n?nyyyy"),
    ("nvlink_receive nvlink_integrity nvlink_effective", "nnnnyyy"),
    ("sram_ remapped_", "nyyyyyy"),
    ("retired_", "ynnnnnn"),
    ("memory_total memory_used memory_free memory_reserved bar1_ temperature_celsius energy_ clock_event_", _ALL),
    ("power_watts power_instant power_limit_watts power_limit_default power_limit_min power_limit_max", _ALL),
    ("sm_clock memory_clock graphics_clock video_clock performance_state pcie_link pcie_replays", _ALL),
    ("ecc_ persistence_mode compute_mode", _ALL),
)
_WORDS = {YES: "yes", NO: "", UNSAID: "?"}
_SILENCES = (
    ("graphics_activity sm_ tensor_ dram_ fp64_ fp32_ fp16_ c2c_", "`isSupportedDevice` is 0"),
    ("pcie_tx_bytes_per pcie_rx_bytes_per nvlink_tx_bytes_per nvlink_rx_bytes_per", "`isSupportedDevice` is 0"),
    ("fabric_state", "state 0, or no such function"),
    ("performance_state", "32"),
    ("sram_", "NOT_SUPPORTED, NO_PERMISSION, or no such function"),
)


def unit(field: str) -> str:
    """The driver's unit of a reading."""
    return next(unit for end, unit in _UNITS if field.endswith(end))


def support(field: str) -> dict[str, str]:
    """Whether each generation has a reading: YES, NO or UNSAID."""
    return dict(zip(GENERATIONS, _of(field, _HAVE, UNSAID * len(GENERATIONS)), strict=True))


def rows() -> Iterator[str]:
    """The lines of the table."""
    yield f"| name | call | the driver's unit | {' | '.join(GENERATIONS)} | without it, the driver says |"
    yield f"| --- | --- | --- |{' --- |' * len(GENERATIONS)} --- |"
    for field, metric in metrics():
        cells = " | ".join(_WORDS[word] for word in support(field).values())
        silence = _of(field, _SILENCES, "NOT_SUPPORTED")
        yield f"| `{gpu_metric(field)}` | {metric.source} | {unit(field)} | {cells} | {silence} |"


def _of(field: str, table: tuple[tuple[str, str], ...], default: str) -> str:
    return next((what for begins, what in table if field.startswith(tuple(begins.split()))), default)
