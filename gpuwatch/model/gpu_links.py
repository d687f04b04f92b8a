"""What a GPU's links move and how well: PCIe, NVLink, the link to the CPU of a superchip. A part of a GpuReading."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from gpuwatch.model.gpu_load import LoadReading
from gpuwatch.model.metric import Kind, Metric

# nvml.h: NVML_GPU_FABRIC_STATE_*. A GPU of `not_supported` has no fabric, and no value.
FABRIC_STATES = ("not_supported", "not_started", "in_progress", "completed")
FABRIC_JOINED = FABRIC_STATES.index("completed")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReading(LoadReading):
    """Counters run since the driver was loaded; None is "not known".

    `fabric_faults` are names of what is wrong with the NVLink fabric by its driver; empty is a measured "none".
    """

    pcie_link_generation: Annotated[
        int | None,
        Metric(
            "PCIe generation in use; an idle link may fall back.",
            "CurrPcieLinkGeneration",
            slow=True,
            group="pcie_detail",
            judged=True,
        ),
    ] = None
    pcie_link_generation_max: Annotated[
        int | None,
        Metric(
            "PCIe generation that GPU and slot could use.",
            "MaxPcieLinkGeneration",
            slow=True,
            group="pcie_detail",
            judged=True,
        ),
    ] = None
    pcie_link_width: Annotated[
        int | None,
        Metric(
            "PCIe lanes in use; below the maximum under load is a fault.",
            "CurrPcieLinkWidth",
            slow=True,
            group="pcie_detail",
            judged=True,
        ),
    ] = None
    pcie_link_width_max: Annotated[
        int | None,
        Metric(
            "PCIe lanes that GPU and slot could use.", "MaxPcieLinkWidth", slow=True, group="pcie_detail", judged=True
        ),
    ] = None
    pcie_tx_bytes_total: Annotated[
        int | None,
        Metric(
            "Bytes sent over PCIe; the driver's count may wrap.",
            "field PCIE_COUNT_TX_BYTES (197)",
            kind=Kind.COUNTER,
            group="pcie",
            steady=True,
            judged=True,
        ),
    ] = None
    pcie_rx_bytes_total: Annotated[
        int | None,
        Metric(
            "Bytes received over PCIe; the driver's count may wrap.",
            "field PCIE_COUNT_RX_BYTES (198)",
            kind=Kind.COUNTER,
            group="pcie",
            steady=True,
            judged=True,
        ),
    ] = None
    pcie_tx_bytes_per_second: Annotated[
        float | None,
        Metric(
            "Rate at which bytes are sent over PCIe.",
            "GPM PCIE_TX_PER_SEC (20)",
            group="throughput",
            steady=True,
            judged=True,
        ),
    ] = None
    pcie_rx_bytes_per_second: Annotated[
        float | None,
        Metric(
            "Rate at which bytes are received over PCIe.",
            "GPM PCIE_RX_PER_SEC (21)",
            group="throughput",
            steady=True,
            judged=True,
        ),
    ] = None
    pcie_replays_total: Annotated[
        int | None,
        Metric(
            "PCIe packets sent again.", "field PCIE_REPLAY_COUNTER (94)", kind=Kind.COUNTER, slow=True, group="pcie"
        ),
    ] = None
    pcie_errors_total: Annotated[
        Mapping[str, float] | None,
        Metric(
            "PCIe errors as the driver counts them, such as correctable, non_fatal, fatal.",
            "fields 173-183",
            label="kind",
            kind=Kind.COUNTER,
            slow=True,
            group="pcie_detail",
        ),
    ] = None
    nvlink_tx_bytes_total: Annotated[
        int | None,
        Metric(
            "Bytes sent over all NVLinks, without protocol overhead.",
            "field NVLINK_THROUGHPUT_DATA_TX (138, all links)",
            kind=Kind.COUNTER,
            group="nvlink",
            judged=True,
        ),
    ] = None
    nvlink_rx_bytes_total: Annotated[
        int | None,
        Metric(
            "Bytes received over all NVLinks, without protocol overhead.",
            "field NVLINK_THROUGHPUT_DATA_RX (139, all links)",
            kind=Kind.COUNTER,
            group="nvlink",
            judged=True,
        ),
    ] = None
    nvlink_link_tx_bytes_total: Annotated[
        Mapping[str, float] | None,
        Metric(
            "Bytes sent over each NVLink.",
            "field 138 by link, else 202",
            label="link",
            kind=Kind.COUNTER,
            slow=True,
            group="nvlink_links",
        ),
    ] = None
    nvlink_link_rx_bytes_total: Annotated[
        Mapping[str, float] | None,
        Metric(
            "Bytes received over each NVLink.",
            "field 139 by link, else 204",
            label="link",
            kind=Kind.COUNTER,
            slow=True,
            group="nvlink_links",
        ),
    ] = None
    nvlink_tx_bytes_per_second: Annotated[
        float | None,
        Metric(
            "Rate at which bytes are sent over all NVLinks.",
            "GPM NVLINK_TOTAL_TX_PER_SEC (61)",
            group="throughput",
            steady=True,
            judged=True,
        ),
    ] = None
    nvlink_rx_bytes_per_second: Annotated[
        float | None,
        Metric(
            "Rate at which bytes are received over all NVLinks.",
            "GPM NVLINK_TOTAL_RX_PER_SEC (60)",
            group="throughput",
            steady=True,
            judged=True,
        ),
    ] = None
    nvlink_errors_total: Annotated[
        Mapping[str, float] | None,
        Metric(
            "Errors of all NVLinks together: replay (sent again), recovery (link recovered), crc (wrong checksum).",
            "fields 161, 162, 163 summed over the links, else 45, 52, 38",
            label="kind",
            kind=Kind.COUNTER,
            slow=True,
            group="nvlink",
            judged=True,
        ),
    ] = None
    nvlink_replay_errors_total: Annotated[
        Mapping[str, float] | None,
        Metric(
            "Times that each NVLink sent again.",
            "field 161 by link",
            label="link",
            kind=Kind.COUNTER,
            slow=True,
            group="nvlink_links",
        ),
    ] = None
    nvlink_recovery_errors_total: Annotated[
        Mapping[str, float] | None,
        Metric(
            "Times that each NVLink had to be recovered.",
            "field 162 by link, else 215",
            label="link",
            kind=Kind.COUNTER,
            slow=True,
            group="nvlink_links",
        ),
    ] = None
    nvlink_crc_errors_total: Annotated[
        Mapping[str, float] | None,
        Metric(
            "Checksum errors of each NVLink.",
            "field 163 by link",
            label="link",
            kind=Kind.COUNTER,
            slow=True,
            group="nvlink_links",
        ),
    ] = None
    nvlink_receive_errors_total: Annotated[
        Mapping[str, float] | None,
        Metric(
            "Bad packets received by each NVLink (NVLink 5).",
            "field 208 by link",
            label="link",
            kind=Kind.COUNTER,
            slow=True,
            group="nvlink_links",
        ),
    ] = None
    nvlink_integrity_errors_total: Annotated[
        Mapping[str, float] | None,
        Metric(
            "Local link integrity errors of each NVLink (NVLink 5).",
            "field 211 by link",
            label="link",
            kind=Kind.COUNTER,
            slow=True,
            group="nvlink_links",
        ),
    ] = None
    nvlink_effective_errors_total: Annotated[
        Mapping[str, float] | None,
        Metric(
            "Errors of each NVLink past error correction (NVLink 5).",
            "field 219 by link",
            label="link",
            kind=Kind.COUNTER,
            slow=True,
            group="nvlink_links",
        ),
    ] = None
    fabric_state: Annotated[
        int | None,
        Metric(
            "Joining the NVLink fabric: 1 not started, 2 in progress, 3 completed; absent without one.",
            "GpuFabricInfoV().state",
            slow=True,
            group="modes",
            judged=True,
        ),
    ] = None
    fabric_faults: tuple[str, ...] | None = None
    c2c_tx_bytes_per_second: Annotated[
        float | None,
        Metric(
            "Rate at which bytes are sent between GPU and CPU of a superchip.",
            "GPM C2C_TOTAL_TX_PER_SEC (100)",
            group="throughput",
            steady=True,
        ),
    ] = None
    c2c_rx_bytes_per_second: Annotated[
        float | None,
        Metric(
            "Rate at which bytes are received between GPU and CPU of a superchip.",
            "GPM C2C_TOTAL_RX_PER_SEC (101)",
            group="throughput",
            steady=True,
        ),
    ] = None
