"""A GPU whose health is judged, for tests, and all that can be seen to be wrong with one."""

from datetime import timedelta
from typing import Any

from gpuwatch.agent.health.verdict import HealthRules, Look, Record, fold
from gpuwatch.model.gpu import GpuDown, GpuReading
from gpuwatch.model.gpu_links import FABRIC_JOINED
from gpuwatch.model.health import GpuHealth, Health, Remedy, XidEvent, XidSource
from tests.support.builders.gpu import START, a_reading

RULES = HealthRules()

# By code: what is read, and what follows from it.
SEEN: dict[str, tuple[dict[str, Any], Health, Remedy]] = {
    "row_remap_failure": ({"remapped_rows_failure": 1}, Health.FAILING, Remedy.REPLACE_HARDWARE),
    "row_remap_pending": ({"remapped_rows_pending": 1}, Health.DEGRADED, Remedy.RESET),
    "page_retirement_pending": ({"retired_pages_pending": 1}, Health.DEGRADED, Remedy.RESET),
    "thermal_throttling": ({"clock_events": ("sw_thermal_slowdown",)}, Health.DEGRADED, Remedy.DRAIN),
    "power_brake": ({"clock_events": ("hw_power_brake_slowdown",)}, Health.DEGRADED, Remedy.DRAIN),
    "hardware_slowdown": ({"clock_events": ("hw_slowdown",)}, Health.DEGRADED, Remedy.DRAIN),
    "pcie_narrow": (
        {"pcie_link_width": 8, "pcie_link_width_max": 16, "utilization_ratio": 0.8},
        Health.DEGRADED,
        Remedy.DRAIN,
    ),
    "pcie_slow": (
        {"pcie_link_generation": 2, "pcie_link_generation_max": 5, "performance_state": 0, "utilization_ratio": 0.8},
        Health.DEGRADED,
        Remedy.DRAIN,
    ),
    "sram_ecc_threshold": ({"sram_threshold_exceeded": 1}, Health.FAILING, Remedy.REPLACE_HARDWARE),
    "fabric_not_joined": ({"fabric_state": 1}, Health.DEGRADED, Remedy.DRAIN),
    "fabric_join_failed": ({"fabric_faults": ("join_failed",)}, Health.DEGRADED, Remedy.RESET),
    "fabric_degraded_bandwidth": ({"fabric_faults": ("degraded_bandwidth",)}, Health.DEGRADED, Remedy.DRAIN),
    "fabric_route_unhealthy": ({"fabric_faults": ("route_unhealthy",)}, Health.DEGRADED, Remedy.RESET),
    "fabric_incorrect_configuration": ({"fabric_faults": ("incorrect_configuration",)}, Health.DEGRADED, Remedy.DRAIN),
    "fabric_route_recovery": ({"fabric_faults": ("route_recovery",)}, Health.DEGRADED, Remedy.DRAIN),
    "fabric_access_timeout": ({"fabric_faults": ("access_timeout",)}, Health.DEGRADED, Remedy.RESET),
}


def well(code: str) -> dict[str, Any]:
    """What shows that cause, as it reads on a GPU that does not have it."""
    wrong = SEEN[code][0]
    return {name: value if name.endswith(("_max", "_state")) else type(value)() for name, value in wrong.items()} | (
        {"fabric_state": FABRIC_JOINED} if "fabric_state" in wrong else {}
    )


class Patient:
    """GPU 0, looked at once a second unless told otherwise."""

    def __init__(self, rules: HealthRules = RULES) -> None:
        """Nothing is known of it."""
        self.rules = rules
        self.seconds = 1000.0
        self.record = Record()

    def look(
        self,
        entry: GpuReading | GpuDown,
        *xids: int,
        times: int = 1,
        every: float = 1.0,
        reloaded: bool = False,
        **document: Any,  # noqa: ANN401  fields of XidEvent
    ) -> GpuHealth:
        """So many looks that see the same; the XIDs came just before the first."""
        for number in range(times):
            self.seconds += every
            at = START + timedelta(seconds=self.seconds)
            events = tuple(
                XidEvent(
                    uuid="GPU-0", xid=xid, at=at, monotonic_seconds=self.seconds, witness=XidSource.KERNEL, **document
                )
                for xid in xids
            )
            look = Look(
                at=at,
                monotonic_seconds=self.seconds,
                entry=entry,
                xids=events if number == 0 else (),
                reloaded=reloaded and number == 0,
            )
            self.record = fold(self.record, look, self.rules)
        return self.verdict

    def rest(self, minutes: float, **measured: Any) -> GpuHealth:  # noqa: ANN401  fields of GpuReading
        """Readings without anything wrong for so long, one every ten seconds."""
        return self.look(a_reading(**measured), times=round(minutes * 6), every=10.0)

    @property
    def verdict(self) -> GpuHealth:
        """What is thought of it now."""
        return self.record.verdict

    @property
    def codes(self) -> list[str]:
        """What was found, the first to act on first."""
        return [finding.code for finding in self.verdict.findings]
