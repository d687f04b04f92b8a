"""A GPU's counters over time: increases, rates and shares, updated at each reading."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from gpuwatch.agent.health.settings import BLIND_SECONDS, HealthRules
from gpuwatch.model.gpu import GpuReading

_HOUR_SECONDS = 3600.0
_THERMAL_EVENTS = ("hw_thermal_slowdown", "sw_thermal_slowdown")
_POWER_BRAKE_EVENTS = ("hw_power_brake_slowdown",)
_HARDWARE_EVENT = "hw_slowdown"  # either of the hardware's two above, or neither is named
_REPEATS = ("replay", "crc")
_HARDWARE_REASONS = frozenset(("hw_thermal_slowdown", "hw_power_brake_slowdown"))

_Count = TypeVar("_Count", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The counters as last known, and figures from them. Shares and rates fade over their window."""

    read_seconds: float | None = None
    energy_joules: float | None = None
    uncorrected: int | None = None
    new_uncorrected: int = 0
    corrected: int | None = None
    corrected_per_hour: float = 0.0
    clocks_read_seconds: float | None = None  # when the clock events and their counters were read
    clock_seconds: Mapping[str, float] | None = None
    clock_events: tuple[str, ...] = ()
    thermal_ratio: float = 0.0
    power_brake_ratio: float = 0.0
    hardware_ratio: float = 0.0
    link_recoveries: float | None = None  # the most since the counters last began
    recoveries_per_hour: float = 0.0
    link_repeats: float | None = None
    repeats_per_hour: float = 0.0

    def has_restarted(self, reading: GpuReading) -> bool:
        """Whether the GPU was reset or its driver reloaded since: the energy counter began again.

        A counter of 0 says nothing: some drivers answer that for a moment.
        """
        before, now = self.energy_joules, reading.energy_joules_total
        return before is not None and now is not None and 0 < now < before / 2

    def after_reading(self, reading: GpuReading, now: float, rules: HealthRules) -> "Figures":
        """The figures with one more reading. A counter that starts again adds nothing; an unknown one stays.

        What errors grew by is added, whenever they were read; a share of time is of the time between two reads.
        """
        gap = _gap(self.read_seconds, now)
        corrected = reading.ecc_corrected_volatile_errors_total
        uncorrected = reading.ecc_uncorrected_volatile_errors_total
        energy = reading.energy_joules_total
        fading = _HOUR_SECONDS / (_HOUR_SECONDS + gap)
        links = self if not self.has_restarted(reading) else replace(self, link_recoveries=None, link_repeats=None)
        errors = reading.nvlink_errors_total or {}
        recoveries, repeats = errors.get("recovery"), _sum_known(errors, _REPEATS)
        return replace(
            self._after_clocks(reading, now, rules),
            read_seconds=now,
            energy_joules=self.energy_joules if energy is None or energy == 0 else energy,
            uncorrected=self.uncorrected if uncorrected is None else uncorrected,
            new_uncorrected=_increase(self.uncorrected, uncorrected),
            corrected=self.corrected if corrected is None else corrected,
            corrected_per_hour=self.corrected_per_hour * fading + _increase(self.corrected, corrected),
            link_recoveries=_most(links.link_recoveries, recoveries),
            recoveries_per_hour=self.recoveries_per_hour * fading + _increase(links.link_recoveries, recoveries),
            link_repeats=_most(links.link_repeats, repeats),
            repeats_per_hour=self.repeats_per_hour * fading + _increase(links.link_repeats, repeats),
        )

    def _after_clocks(self, reading: GpuReading, now: float, rules: HealthRules) -> "Figures":
        """The figures with what this reading says of clocks; the cycles between two reads of that say nothing."""
        unknown = reading.clock_events is None and reading.clock_event_seconds_total is None
        if unknown or not reading.clock_events_read:
            return self
        gap = _gap(self.clocks_read_seconds, now)
        weight = gap / (rules.throttle_window + gap)
        thermal = self._share(reading, _THERMAL_EVENTS, gap)
        power_brake = self._share(reading, _POWER_BRAKE_EVENTS, gap)
        unnamed = not _HARDWARE_REASONS.intersection(reading.clock_events or ())
        hardware = self._share(reading, (_HARDWARE_EVENT,), gap) if unnamed else 0.0
        return replace(
            self,
            clocks_read_seconds=now,
            clock_seconds=reading.clock_event_seconds_total,
            clock_events=reading.clock_events or (),
            thermal_ratio=self.thermal_ratio + (thermal - self.thermal_ratio) * weight,
            power_brake_ratio=self.power_brake_ratio + (power_brake - self.power_brake_ratio) * weight,
            hardware_ratio=self.hardware_ratio + (hardware - self.hardware_ratio) * weight,
        )

    def _share(self, reading: GpuReading, events: tuple[str, ...], gap: float) -> float:
        """The share of the time since they were last read in which any of these held the clocks down.

        The driver's counters say it, unless they stand still while the event is there at both reads.
        """
        before, after = self.clock_seconds or {}, reading.clock_event_seconds_total or {}
        counted = max(
            (after[event] - before[event] for event in events if event in before and event in after), default=None
        )
        now = any(event in (reading.clock_events or ()) for event in events)
        still = counted == 0 and now and any(event in self.clock_events for event in events)
        if counted is not None and gap > 0 and not still:
            return min(1.0, max(0.0, counted) / gap)
        return float(now)


def _gap(before: float | None, now: float) -> float:
    """The seconds since then; 0 if that is not known, or too long ago."""
    gap = 0.0 if before is None else max(0.0, now - before)
    return gap if gap <= BLIND_SECONDS else 0.0


def _most(before: float | None, after: float | None) -> float | None:
    """The sum over links falls while one of them gives no value, and its return is no error."""
    return after if before is None else before if after is None else max(before, after)


def _sum_known(counts: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    known = [counts[name] for name in names if name in counts]
    return sum(known) if known else None


def _increase(before: _Count | None, after: _Count | None) -> _Count | int:
    return 0 if before is None or after is None else max(0, after - before)
