"""PURE: energy from what the GPUs' own counters measured. What was not measured is told, never made up.

The host's share, the building's (PUE) and the power stations' (CO2e) are factors that somebody states; without them
these are not computed.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from gpuwatch.model.setting import STRICT, Setting
from gpuwatch.model.usage import HOUR_MS
from gpuwatch.money.accounting.totals import Total

_JOULES_PER_KWH = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergySettings:
    """What is stated about energy that no GPU measures. No default: what nobody has stated is not computed."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    host_watts: Annotated[
        Annotated[float, Ge(0)] | None,
        Setting(
            "What a machine draws beside its GPUs while it runs, in watts: processors, memory, fans, power supplies."
        ),
    ] = None
    pue: Annotated[
        Annotated[float, Ge(1)] | None,
        Setting("Power usage effectiveness of the building: its energy / that of the machines in it."),
    ] = None
    co2e_grams_per_kwh: Annotated[
        Annotated[float, Ge(0)] | None, Setting("Carbon intensity of the electricity, in grams of CO2e per kWh.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Each factor apart; None where it is not stated. `measured_ratio` is of the billed GPU time; None without any."""

    gpu_kwh: float
    measured_ratio: float | None
    unmeasured_gpu_hours: float
    host_kwh: float | None
    facility_kwh: float | None  # of GPUs, and hosts where stated, by the PUE
    co2e_kg: float | None  # of the facility's where there is a PUE, else of GPUs' and hosts'


def energy(total: Total, factors: EnergySettings) -> Energy:
    """The energy of a total."""
    gpu = total.joules / _JOULES_PER_KWH
    host = None if factors.host_watts is None else factors.host_watts / 1000 * total.node_ms / HOUR_MS
    machines = gpu + (host or 0.0)
    facility = None if factors.pue is None else machines * factors.pue
    used = machines if facility is None else facility
    grams = factors.co2e_grams_per_kwh
    return Energy(
        gpu_kwh=gpu,
        measured_ratio=total.measured_gpu_ms / total.gpu_ms if total.gpu_ms else None,
        unmeasured_gpu_hours=(total.gpu_ms - total.measured_gpu_ms) / HOUR_MS,
        host_kwh=host,
        facility_kwh=facility,
        co2e_kg=None if grams is None else used * grams / 1000,
    )
