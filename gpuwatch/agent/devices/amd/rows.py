"""How each field of a reading is learnt from AMD SMI: the ways in order, the first that has a value.

What the library marks as "N/A", or by a number with all bits set, has no value. What is in no row, AMD does not tell.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuwatch.agent.devices.amd.library import GONE, NOT_SUPPORTED, code, words
from gpuwatch.agent.devices.plausible import ALL_ONES, bounds, plausible
from gpuwatch.model.gpu import GpuReading, metrics
from gpuwatch.model.metric import COSTLY_SECONDS, SLOW_SECONDS, STEADY_SECONDS, GroupName, fields_read

_NO_VALUE = {*ALL_ONES, 0xFFFF}
_MIB = 1024 * 1024
_MOST_WATTS = 20_000  # of one GPU: a higher limit is in microwatts, as ROCm 6.4 and later give it
_GENERATIONS = {2500: 1, 5000: 2, 8000: 3, 16000: 4, 32000: 5, 64000: 6}  # of PCIe by its megatransfers per second
_UMC = 1  # amdsmi.h, AMDSMI_GPU_BLOCK_UMC: the memory controllers' bit of what detects errors


class DriverGoneError(Exception):
    """The driver does not answer any more, whichever GPU is asked for."""


@dataclass(slots=True)
class Visit:
    """One GPU in one cycle: each function is called at most once, however many fields it serves."""

    library: Any
    handle: Any
    busy_file: Path | None = None  # the kernel's own figure
    failure: str = ""
    answered: bool = False  # whether any function gave an answer
    implausible: set[str] = field(default_factory=set)
    _answers: dict[tuple[object, ...], Any] = field(default_factory=dict)

    def ask(self, name: str, *args: str) -> Any:  # noqa: ANN401  amdsmi is untyped
        """The answer of a function about this GPU, None without one. Arguments name members of its enumerations."""
        key = (name, *args)
        if key not in self._answers:
            self._answers[key] = self._call(name, args)
        return self._answers[key]

    def _call(self, name: str, args: tuple[str, ...]) -> Any:  # noqa: ANN401  as above
        try:
            found = getattr(self.library, name)(self.handle, *map(self._member, args))
        except AttributeError:  # an older binding
            return None
        except Exception as error:
            number = code(error)
            if number in GONE:
                raise DriverGoneError(words(error)) from error
            if number not in NOT_SUPPORTED:
                self.failure = self.failure or f"{name}: {words(error)}"
            return None
        self.answered = True
        return found

    def _member(self, path: str) -> Any:  # noqa: ANN401  as above
        kind, _, member = path.partition(".")
        return getattr(getattr(self.library, kind), member)

    def read(self, table: "Mapping[str, tuple[Way, ...]]") -> dict[str, Any]:
        """The value of each row, without what cannot be true."""
        values: dict[str, Any] = {}
        for name, ways in table.items():
            value = next((found for found in (way(self) for way in ways) if found is not None), None)
            values[name] = plausible(value, bounds(name))
            if values[name] is not value:
                self.implausible.add(name)
        return values


Way = Callable[[Visit], Any]


def number(value: object) -> float | int | None:
    """A figure of the library; None for "N/A", for all bits set, and for what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if value in _NO_VALUE else value


def _figure(function: str, *keys: str, args: tuple[str, ...] = (), convert: Callable[[Any], Any] = float) -> Way:
    """The first of these keys of an answer that holds a figure; without keys the answer itself. None stays None."""

    def of(visit: Visit) -> Any:  # noqa: ANN401  the row knows the type
        answer = visit.ask(function, *args)
        found = [answer] if not keys else [answer.get(key) for key in keys] if isinstance(answer, dict) else []
        value = next((each for each in map(number, found) if each is not None), None)
        return None if value is None else convert(value)

    return of


def _percent(value: float) -> float:
    return value / 100


def _above_zero(value: float) -> float | None:
    return float(value) if value > 0 else None  # no GPU that answers draws nothing: it is not measured


def _limit(value: float) -> float | None:
    return _above_zero(value if value <= _MOST_WATTS else value / 1e6)


def _mega(value: float) -> float:
    return value * 1e6


def _mebi(value: float) -> int:
    return int(value * _MIB)


def _flat(value: object) -> Iterator[float]:
    """Every figure in lists within lists."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from _flat(each)
    elif (found := number(value)) is not None:
        yield found


def _highest(*keys: str) -> Way:
    """The highest share of the parts, by the first of these keys of the metrics table that has any."""

    def of(visit: Visit) -> float | None:
        answer = visit.ask("amdsmi_get_gpu_metrics_info")
        for key in keys if isinstance(answer, dict) else ():
            shares = list(_flat(answer.get(key)))
            if shares:
                return max(shares) / 100
        return None

    return of


def _utilization_max(visit: Visit) -> float | None:
    """The busiest compute die, where the mean over all of them would hide it; and not less than the kernel says.

    The kernel's figure is the mean over a chip, so it alone is no proof that a partition rests.
    """
    told = [way(visit) for way in (_ACTIVITY, _highest("xcp_stats.gfx_busy_inst"))]
    shares = [share for share in told if share is not None]
    return max([*shares, _kernel_share(visit)]) if shares else None


def _kernel_share(visit: Visit) -> float:
    """What the kernel adds: 0 where it has no figure."""
    try:
        percent = 0 if visit.busy_file is None else int(visit.busy_file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0.0
    return percent / 100 if 0 <= percent <= 100 else 0.0  # noqa: PLR2004  percent


def _joules(visit: Visit) -> float | None:
    answer = visit.ask("amdsmi_get_energy_count")
    if not isinstance(answer, dict):
        return None
    counted = number(answer.get("energy_accumulator", answer.get("power")))  # `power` before ROCm 6.2
    step = number(answer.get("counter_resolution"))  # microjoules
    return counted * step / 1e6 if counted and step else None


def _temperature(sensor: str, metric: str = "CURRENT") -> Way:
    return _figure(
        "amdsmi_get_temp_metric", args=(f"AmdSmiTemperatureType.{sensor}", f"AmdSmiTemperatureMetric.{metric}")
    )


def _margin(visit: Visit) -> float | None:
    """How far the hottest place of the chip is below the temperature at which it is slowed down."""
    now, limit = _temperature("HOTSPOT")(visit), _temperature("HOTSPOT", "CRITICAL")(visit)
    return limit - now if now is not None and limit else None


def _clock(kind: str, *keys: str) -> tuple[Way, ...]:
    return (_figure("amdsmi_get_clock_info", *keys, args=(f"AmdSmiClkType.{kind}",), convert=_mega),)


def _ecc(visit: Visit) -> int | None:
    """Whether the memory controllers detect errors."""
    enabled = visit.ask("amdsmi_get_gpu_ecc_enabled")
    return enabled & _UMC if isinstance(enabled, int) else None


def _errors(key: str) -> tuple[Way, ...]:
    """A count of errors; none where nothing detects any, although the library then counts 0."""
    count = _figure("amdsmi_get_gpu_total_ecc_count", key, convert=int)
    return (lambda visit: count(visit) if visit.ask("amdsmi_get_gpu_ecc_enabled") else None,)


def _pcie(part: str, key: str, convert: Callable[[Any], Any] = int) -> tuple[Way, ...]:
    def of(visit: Visit) -> Any:  # noqa: ANN401  the row knows the type
        answer = visit.ask("amdsmi_get_pcie_info")
        value = number((answer.get(part) or {}).get(key)) if isinstance(answer, dict) else None
        return None if value is None else convert(value)

    return (of,)


_ACTIVITY = _figure("amdsmi_get_gpu_activity", "gfx_activity", convert=_percent)
_VRAM = ("AmdSmiMemoryType.VRAM",)
_POWER = "amdsmi_get_power_info"

ROWS: dict[str, tuple[Way, ...]] = {
    "utilization_ratio": (_ACTIVITY,),
    "utilization_max_ratio": (_utilization_max,),
    "memory_bandwidth_utilization_ratio": (_figure("amdsmi_get_gpu_activity", "umc_activity", convert=_percent),),
    "decoder_utilization_ratio": (
        _figure("amdsmi_get_gpu_activity", "mm_activity", convert=_percent),
        _highest("vcn_activity", "xcp_stats.vcn_busy"),
    ),
    "jpeg_utilization_ratio": (_highest("jpeg_activity", "xcp_stats.jpeg_busy"),),
    "memory_total_bytes": (
        _figure("amdsmi_get_gpu_vram_usage", "vram_total", convert=_mebi),
        _figure("amdsmi_get_gpu_memory_total", args=_VRAM, convert=int),
    ),
    "memory_used_bytes": (
        _figure("amdsmi_get_gpu_vram_usage", "vram_used", convert=_mebi),
        _figure("amdsmi_get_gpu_memory_usage", args=_VRAM, convert=int),
    ),
    "temperature_celsius": (_temperature("EDGE"), _temperature("HOTSPOT")),
    "memory_temperature_celsius": (_temperature("VRAM"),),
    "temperature_margin_celsius": (_margin,),
    "power_watts": (
        _figure(_POWER, "average_socket_power", convert=_above_zero),
        _figure(_POWER, "current_socket_power", convert=_above_zero),
        _figure(_POWER, "socket_power", convert=_above_zero),
    ),
    "power_instant_watts": (_figure(_POWER, "current_socket_power", convert=_above_zero),),
    "power_limit_watts": (
        _figure("amdsmi_get_power_cap_info", "power_cap", convert=_limit),
        _figure(_POWER, "power_limit", convert=_limit),
    ),
    "power_limit_default_watts": (_figure("amdsmi_get_power_cap_info", "default_power_cap", convert=_limit),),
    "power_limit_min_watts": (_figure("amdsmi_get_power_cap_info", "min_power_cap", convert=_limit),),
    "power_limit_max_watts": (_figure("amdsmi_get_power_cap_info", "max_power_cap", convert=_limit),),
    "energy_joules_total": (_joules,),
    "sm_clock_hertz": _clock("GFX", "clk", "cur_clk"),  # `cur_clk` before ROCm 6.2
    "memory_clock_hertz": _clock("MEM", "clk", "cur_clk"),
    "video_clock_hertz": _clock("VCLK0", "clk", "cur_clk"),
    "sm_clock_max_hertz": _clock("GFX", "max_clk"),
    "memory_clock_max_hertz": _clock("MEM", "max_clk"),
    "video_clock_max_hertz": _clock("VCLK0", "max_clk"),
    "pcie_link_generation": _pcie("pcie_metric", "pcie_speed", _GENERATIONS.get),
    "pcie_link_generation_max": _pcie("pcie_static", "pcie_interface_version"),
    "pcie_link_width": _pcie("pcie_metric", "pcie_width"),
    "pcie_link_width_max": _pcie("pcie_static", "max_pcie_width"),
    "pcie_replays_total": _pcie("pcie_metric", "pcie_replay_count"),
    "ecc_corrected_volatile_errors_total": _errors("correctable_count"),
    "ecc_uncorrected_volatile_errors_total": _errors("uncorrectable_count"),
    "ecc_mode": (_ecc,),
}


@dataclass(frozen=True, slots=True)
class Tables:
    """What is read in each cycle, every STEADY_SECONDS, and every SLOW_SECONDS."""

    fast: Mapping[str, tuple[Way, ...]]
    steady: Mapping[str, tuple[Way, ...]]
    slow: Mapping[str, tuple[Way, ...]]

    @classmethod
    def for_groups(cls, groups: Collection[GroupName]) -> "Tables":
        """Those for the exported groups: what none of them shows and nothing is judged by is not asked for."""
        shown, every = fields_read(GpuReading, groups), {name: metric.every_seconds for name, metric in metrics()}

        def paced(*seconds: int | None) -> dict[str, tuple[Way, ...]]:
            return {name: ways for name, ways in ROWS.items() if name in shown and every[name] in seconds}

        steady = paced(STEADY_SECONDS, COSTLY_SECONDS)  # what is costly is so by NVML
        return cls(fast=paced(None), steady=steady, slow=paced(SLOW_SECONDS))
