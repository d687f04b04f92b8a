"""How each field of a reading is learnt: the ways in order, the first that the GPU supports and that has a value."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml as nvml

from gpuwatch.agent.devices.nvml.calls import (
    Absence,
    Call,
    Device,
    Each,
    Field,
    FieldKey,
    Table,
    Total,
    Visit,
    Way,
    number,
)
from gpuwatch.agent.devices.nvml.gpm import Gpm
from gpuwatch.agent.devices.nvml.mig import Mig
from gpuwatch.agent.devices.nvml.processes import Partial, Processes
from gpuwatch.agent.devices.nvml.structures import ROWS as STRUCTURES
from gpuwatch.model.gpu import CLOCK_EVENTS, GpuReading, metrics
from gpuwatch.model.metric import COSTLY_SECONDS, SLOW_SECONDS, STEADY_SECONDS, GroupName, fields_read
from gpuwatch.model.mig import MigInstance

_ALL_LINKS = 0xFFFFFFFF
_LINKS = nvml.NVML_NVLINK_MAX_LINKS
_PSTATE_UNKNOWN = nvml.NVML_PSTATE_UNKNOWN
_RATES = "nvmlDeviceGetUtilizationRates"
_CORE = (nvml.NVML_TEMPERATURE_GPU,)

_Ways = tuple[Way, ...]
_CONSTRAINTS = "nvmlDeviceGetPowerManagementLimitConstraints"
_MEASURED = dict(metrics())
_EVERY: dict[str, int | None] = {
    **{name: metric.every_seconds for name, metric in _MEASURED.items()},
    "clock_events": STEADY_SECONDS,
    "fabric_faults": SLOW_SECONDS,
}
_HOLDERS = {"processes", "processes_partial"}
_PCIE_COUNTERS = ("pcie_tx_bytes_total", "pcie_rx_bytes_total")
_LINK_COUNT = Table({"count": (Field(nvml.NVML_FI_DEV_NVLINK_LINK_COUNT, int),)})
_LINK_FIELDS = {138, 139, 161, 162, 163, 202, 204, 208, 211, 215, 219}
_PERCENT = 100
_OVERSHOOT_PERCENT = 120


# From the driver's units to base units; None is what cannot be true.


@dataclass(frozen=True, slots=True)
class Samples(Way):
    """The driver's utilization samples since the last cycle, folded into one ratio."""

    fold: Callable[[Sequence[float]], float]

    def value_for(self, visit: Visit) -> Any:  # noqa: ANN401  the row knows the type
        """The fold; NOTHING in the first cycle: its backlog is older than anything that was asked for."""
        percents = visit.once("samples", lambda: _fresh_percents(visit))
        return percents if isinstance(percents, Absence) else self.fold(percents) / _PERCENT


def _ratio(percent: float | None) -> float | None:
    return percent / 100 if percent is not None and 0 <= percent <= 100 else None  # noqa: PLR2004  percent


def _mean(percents: Sequence[float]) -> float:
    return math.fsum(percents) / len(percents)


def _activity(percent: float) -> float | None:
    # A quotient of two counters may overshoot a little; by more it is garbage.
    return min(percent / 100, 1.0) if 0 <= percent <= _OVERSHOOT_PERCENT else None


def _milli(value: float) -> float:
    return value / 1e3


def _nano(value: float) -> float:
    return value / 1e9


def _kibi(value: float) -> int:
    return int(value * 1024)


def _mebi(value: float) -> float | None:
    return None if value < 0 else value * 1024 * 1024


def _mega(value: float) -> float:
    return value * 1e6


def _first(values: list[Any]) -> Any:  # noqa: ANN401  pynvml is untyped
    return values[0]


def _sensed_celsius(celsius: int) -> Any:  # noqa: ANN401  an Absence, too
    """Degrees; drivers of a GPU without the sensor may answer 0."""
    return float(celsius) if celsius else Absence.NOTHING


def _events(mask: int) -> tuple[str, ...]:
    return tuple(name for bit, name in CLOCK_EVENTS.items() if mask & bit)


# Ways that several rows share.


def _memory(member: str) -> _Ways:
    version_2 = (nvml.nvmlMemory_v2,)  # version 1 counts what the driver reserves as used
    return (Call("nvmlDeviceGetMemoryInfo", lambda memory: getattr(memory, member), version_2),)


def _bar1(member: str) -> _Ways:
    return (Call("nvmlDeviceGetBAR1MemoryInfo", lambda memory: getattr(memory, member)),)


def _engine(name: str) -> _Ways:
    return (Call(f"nvmlDeviceGet{name}Utilization", lambda answer: _ratio(answer[0])),)


def _clock(kind: int) -> _Ways:
    return (Call("nvmlDeviceGetClockInfo", _mega, (kind,)),)


def _clock_max(kind: int) -> _Ways:
    return (Call("nvmlDeviceGetMaxClockInfo", _mega, (kind,)),)


def _count(field: int) -> _Ways:
    return (Field(field, int),)


def _watts(field: int, scope: int) -> _Ways:
    return (Field(field, _milli, scope),)


def _limit(field: int, name: str, choose: Any) -> _Ways:  # noqa: ANN401  pynvml is untyped
    return (Field(field, _milli), Call(name, lambda answer: _milli(choose(answer))))


def _links(*ways: tuple[int, Any]) -> _Ways:
    """Each NVLink's value of the first of these fields that it has."""
    return (Each({str(link): tuple(Field(id_, convert, link) for id_, convert in ways) for link in range(_LINKS)}),)


def _over_links(*ids: int, whole: int) -> _Ways:
    """The sum over all NVLinks of the first of these fields that each has, else the driver's own sum."""
    parts = tuple(tuple(Field(id_, int, link) for id_ in ids) for link in range(_LINKS))
    return (Total(parts), Field(whole, int))


MIG: dict[str, _Ways] = {
    "memory_total_bytes": _memory("total"),
    "memory_used_bytes": _memory("used"),
    "memory_free_bytes": _memory("free"),
    "graphics_activity_ratio": (Gpm(nvml.NVML_GPM_METRIC_GRAPHICS_UTIL, _activity),),
    "sm_activity_ratio": (Gpm(nvml.NVML_GPM_METRIC_SM_UTIL, _activity),),
    "sm_occupancy_ratio": (Gpm(nvml.NVML_GPM_METRIC_SM_OCCUPANCY, _activity),),
    "tensor_activity_ratio": (Gpm(nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, _activity),),
    "dram_activity_ratio": (Gpm(nvml.NVML_GPM_METRIC_DRAM_BW_UTIL, _activity),),
}

ROWS: dict[str, _Ways] = {
    "utilization_ratio": (Samples(_mean), Call(_RATES, lambda rates: _ratio(rates.gpu))),
    "utilization_max_ratio": (Samples(max), Call(_RATES, lambda rates: _ratio(rates.gpu))),
    "memory_bandwidth_utilization_ratio": (Call(_RATES, lambda rates: _ratio(rates.memory)),),
    "encoder_utilization_ratio": _engine("Encoder"),
    "decoder_utilization_ratio": _engine("Decoder"),
    "jpeg_utilization_ratio": _engine("Jpg"),
    "ofa_utilization_ratio": _engine("Ofa"),
    "graphics_activity_ratio": (Gpm(nvml.NVML_GPM_METRIC_GRAPHICS_UTIL, _activity),),
    "sm_activity_ratio": (Gpm(nvml.NVML_GPM_METRIC_SM_UTIL, _activity),),
    "sm_occupancy_ratio": (Gpm(nvml.NVML_GPM_METRIC_SM_OCCUPANCY, _activity),),
    "tensor_activity_ratio": (Gpm(nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, _activity),),
    "dram_activity_ratio": (Gpm(nvml.NVML_GPM_METRIC_DRAM_BW_UTIL, _activity),),
    "fp64_activity_ratio": (Gpm(nvml.NVML_GPM_METRIC_FP64_UTIL, _activity),),
    "fp32_activity_ratio": (Gpm(nvml.NVML_GPM_METRIC_FP32_UTIL, _activity),),
    "fp16_activity_ratio": (Gpm(nvml.NVML_GPM_METRIC_FP16_UTIL, _activity),),
    "memory_total_bytes": _memory("total"),
    "memory_used_bytes": _memory("used"),
    "memory_free_bytes": _memory("free"),
    "memory_reserved_bytes": _memory("reserved"),
    "bar1_total_bytes": _bar1("bar1Total"),
    "bar1_used_bytes": _bar1("bar1Used"),
    "temperature_celsius": (
        Call("nvmlDeviceGetTemperatureV", float, _CORE),
        Call("nvmlDeviceGetTemperature", float, _CORE),
    ),
    "memory_temperature_celsius": (Field(nvml.NVML_FI_DEV_MEMORY_TEMP, _sensed_celsius),),
    "temperature_margin_celsius": (Call("nvmlDeviceGetMarginTemperature", float),),
    "temperature_limit_margin_celsius": (
        Each(
            {
                "shutdown": (Field(nvml.NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT, float),),
                "slowdown": (Field(nvml.NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT, float),),
                "memory_max": (Field(nvml.NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT, float),),
                "gpu_max": (Field(nvml.NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT, float),),
            }
        ),
    ),
    "power_watts": (
        Field(nvml.NVML_FI_DEV_POWER_AVERAGE, _milli, nvml.NVML_POWER_SCOPE_GPU),
        Call("nvmlDeviceGetPowerUsage", _milli),
    ),
    "power_instant_watts": _watts(nvml.NVML_FI_DEV_POWER_INSTANT, nvml.NVML_POWER_SCOPE_GPU),
    "power_module_watts": _watts(nvml.NVML_FI_DEV_POWER_AVERAGE, nvml.NVML_POWER_SCOPE_MODULE),
    "power_module_instant_watts": _watts(nvml.NVML_FI_DEV_POWER_INSTANT, nvml.NVML_POWER_SCOPE_MODULE),
    "power_memory_watts": _watts(nvml.NVML_FI_DEV_POWER_AVERAGE, nvml.NVML_POWER_SCOPE_MEMORY),
    "power_memory_instant_watts": _watts(nvml.NVML_FI_DEV_POWER_INSTANT, nvml.NVML_POWER_SCOPE_MEMORY),
    "power_limit_watts": (Call("nvmlDeviceGetEnforcedPowerLimit", _milli),),
    "power_limit_default_watts": _limit(
        nvml.NVML_FI_DEV_POWER_DEFAULT_LIMIT, "nvmlDeviceGetPowerManagementDefaultLimit", int
    ),
    "power_limit_min_watts": _limit(nvml.NVML_FI_DEV_POWER_MIN_LIMIT, _CONSTRAINTS, min),
    "power_limit_max_watts": _limit(nvml.NVML_FI_DEV_POWER_MAX_LIMIT, _CONSTRAINTS, max),
    "energy_joules_total": (Field(nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, _milli),),
    "sm_clock_hertz": _clock(nvml.NVML_CLOCK_SM),
    "memory_clock_hertz": _clock(nvml.NVML_CLOCK_MEM),
    "graphics_clock_hertz": _clock(nvml.NVML_CLOCK_GRAPHICS),
    "video_clock_hertz": _clock(nvml.NVML_CLOCK_VIDEO),
    "sm_clock_max_hertz": _clock_max(nvml.NVML_CLOCK_SM),
    "memory_clock_max_hertz": _clock_max(nvml.NVML_CLOCK_MEM),
    "graphics_clock_max_hertz": _clock_max(nvml.NVML_CLOCK_GRAPHICS),
    "video_clock_max_hertz": _clock_max(nvml.NVML_CLOCK_VIDEO),
    "clock_event_seconds_total": (
        Each(
            {
                "sw_power_cap": (Field(nvml.NVML_FI_DEV_PERF_POLICY_POWER, _nano),),
                "sync_boost": (Field(nvml.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST, _nano),),
                "sw_thermal_slowdown": (Field(269, _nano),),  # NVML_FI_DEV_CLOCKS_EVENT_REASON_*, of newer bindings
                "hw_thermal_slowdown": (Field(270, _nano),),
                "hw_power_brake_slowdown": (Field(271, _nano),),
            }
        ),
    ),
    "performance_state": (
        Call("nvmlDeviceGetPerformanceState", lambda state: Absence.NOTHING if state == _PSTATE_UNKNOWN else state),
    ),
    "fan_speed_ratio": (Call("nvmlDeviceGetFanSpeed", lambda percent: percent / 100),),  # it may exceed 100
    "pcie_link_generation": (Call("nvmlDeviceGetCurrPcieLinkGeneration", int),),
    "pcie_link_generation_max": (Call("nvmlDeviceGetMaxPcieLinkGeneration", int),),
    "pcie_link_width": (Call("nvmlDeviceGetCurrPcieLinkWidth", int),),
    "pcie_link_width_max": (Call("nvmlDeviceGetMaxPcieLinkWidth", int),),
    "pcie_tx_bytes_total": _count(197),
    "pcie_rx_bytes_total": _count(198),
    "pcie_tx_bytes_per_second": (Gpm(nvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, _mebi),),
    "pcie_rx_bytes_per_second": (Gpm(nvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, _mebi),),
    "pcie_replays_total": _count(nvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER),
    "pcie_errors_total": (
        Each(
            {
                "correctable": _count(173),
                "naks_received": _count(174),
                "receiver": _count(175),
                "bad_tlp": _count(176),
                "naks_sent": _count(177),
                "bad_dllp": _count(178),
                "non_fatal": _count(179),
                "fatal": _count(180),
                "unsupported_request": _count(181),
                "lcrc": _count(182),
                "lane": _count(183),
            }
        ),
    ),
    "nvlink_tx_bytes_total": (Field(nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _kibi, _ALL_LINKS),),
    "nvlink_rx_bytes_total": (Field(nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _kibi, _ALL_LINKS),),
    "nvlink_link_tx_bytes_total": _links((138, _kibi), (202, int)),
    "nvlink_link_rx_bytes_total": _links((139, _kibi), (204, int)),
    "nvlink_tx_bytes_per_second": (Gpm(nvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, _mebi),),
    "nvlink_rx_bytes_per_second": (Gpm(nvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, _mebi),),
    "nvlink_errors_total": (
        Each(
            {
                "replay": _over_links(161, whole=45),
                "recovery": _over_links(162, 215, whole=52),
                "crc": _over_links(163, whole=38),
            }
        ),
    ),
    "nvlink_replay_errors_total": _links((161, int)),
    "nvlink_recovery_errors_total": _links((162, int), (215, int)),
    "nvlink_crc_errors_total": _links((163, int)),
    "nvlink_receive_errors_total": _links((208, int)),
    "nvlink_integrity_errors_total": _links((211, int)),
    "nvlink_effective_errors_total": _links((219, int)),
    "c2c_tx_bytes_per_second": (Gpm(100, _mebi),),
    "c2c_rx_bytes_per_second": (Gpm(101, _mebi),),
    "ecc_corrected_volatile_errors_total": _count(nvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL),
    "ecc_corrected_aggregate_errors_total": _count(nvml.NVML_FI_DEV_ECC_SBE_AGG_TOTAL),
    "ecc_uncorrected_volatile_errors_total": _count(nvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL),
    "ecc_uncorrected_aggregate_errors_total": _count(nvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL),
    "retired_pages_total": (
        Each({"single_bit": _count(nvml.NVML_FI_DEV_RETIRED_SBE), "double_bit": _count(nvml.NVML_FI_DEV_RETIRED_DBE)}),
    ),
    "retired_pages_pending": _count(nvml.NVML_FI_DEV_RETIRED_PENDING),
    "remapped_rows_total": (
        Each(
            {
                "correctable": _count(nvml.NVML_FI_DEV_REMAPPED_COR),
                "uncorrectable": _count(nvml.NVML_FI_DEV_REMAPPED_UNC),
            }
        ),
    ),
    "remapped_rows_pending": _count(nvml.NVML_FI_DEV_REMAPPED_PENDING),
    "remapped_rows_failure": _count(nvml.NVML_FI_DEV_REMAPPED_FAILURE),
    "recovery_action": _count(230),
    "ecc_mode": _count(nvml.NVML_FI_DEV_ECC_CURRENT),
    "persistence_mode": (Call("nvmlDeviceGetPersistenceMode", int),),
    "mig_mode": (Call("nvmlDeviceGetMigMode", _first),),
    "compute_mode": (Call("nvmlDeviceGetComputeMode", int),),
    "clock_events": (
        Call("nvmlDeviceGetCurrentClocksEventReasons", _events),
        Call("nvmlDeviceGetCurrentClocksThrottleReasons", _events),  # its name before R535
    ),
    **STRUCTURES,
    "processes": (Processes(),),
    "processes_partial": (Partial(),),
}


@dataclass(frozen=True, slots=True)
class Tables:
    """What is read in each cycle, every STEADY_SECONDS, every COSTLY_SECONDS, every SLOW_SECONDS.

    `holders` are read when somebody may have come; `links`, which are also in `steady`, in each cycle where GPM does
    not give their rate.
    """

    fast: Table
    links: Table
    steady: Table
    costly: Table
    slow: Table
    holders: Table

    @classmethod
    def for_groups(cls, groups: Collection[GroupName]) -> "Tables":
        """Those for the exported groups: what none of them shows and nothing is judged by is not asked for."""
        shown, parts = (fields_read(reading, groups) for reading in (GpuReading, MigInstance))
        mig = Mig(Table({name: ways for name, ways in MIG.items() if name in parts}))
        rows = {name: ways for name, ways in ROWS.items() if name in shown or name not in _MEASURED}

        def every(seconds: int | None) -> dict[str, _Ways]:
            return {name: rows[name] for name in rows if name not in _HOLDERS and _EVERY[name] == seconds}

        return cls(
            fast=Table({"mig_instances": (mig,), **every(None)}),  # MIG first: others depend on it
            links=Table({name: rows[name] for name in _PCIE_COUNTERS}),
            steady=Table(every(STEADY_SECONDS)),
            costly=Table(every(COSTLY_SECONDS)),
            slow=Table(every(SLOW_SECONDS)),
            holders=Table({name: rows[name] for name in rows if name in _HOLDERS}),
        )


def absent_links(tables: Tables, device: Device, now: float) -> set[FieldKey]:
    """The fields of NVLinks that the GPU does not have, by its own count; none where it does not tell."""
    asked = {key for key in tables.slow.fields if key[0] in _LINK_FIELDS and key[1] < _LINKS}
    count = Visit(device, _LINK_COUNT, now).read()["count"] if asked else None
    return set() if count is None else {key for key in asked if key[1] >= count}


def _fresh_percents(visit: Visit) -> list[float] | Absence:
    device, seen = visit.device, visit.device.samples_seen
    answer = visit.answer("samples", "nvmlDeviceGetSamples", lambda: device.samples.ask(device.handle, seen or 0))
    if answer is Absence.NOTHING:
        device.samples_seen = seen or 0
    if isinstance(answer, Absence):
        return answer
    value_type, samples = answer
    fresh = [(at, union) for at, union in samples if at > (seen or 0)]
    device.samples_seen = max((at for at, _ in fresh), default=seen or 0)
    percents = [number(value_type, union) for _, union in fresh]
    valid = [percent for percent in percents if percent is not None and 0 <= percent <= _PERCENT]
    return valid if valid and seen is not None else Absence.NOTHING
