"""The faults of a GPU: one row each, with its code, its sentence, its remedy and its source."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuwatch.agent.health.counters import Figures
from gpuwatch.agent.health.settings import HealthRules
from gpuwatch.model.gpu import DownCause, GpuReading
from gpuwatch.model.gpu_links import FABRIC_JOINED
from gpuwatch.model.health import XIDS, Finding, Health, Remedy, Severity

_RECOVERY_SECONDS = 300.0  # what the fabric does by itself may take minutes, after a boot too
_RECOVERIES_PER_HOUR = 100.0  # once for each of 18 links, as when a switch starts again, is no fault
_REPEATS_PER_HOUR = 360_000.0  # 100 a second: DCGM's limit for checksum errors
_HUNG_AFTER_SECONDS = 10.0  # a GPU left unread by a hang is read by the next probe long before
_HIGHEST_CLOCKS = 2  # P0 to P2: at work
_HEALTHS = {Severity.CRITICAL: Health.FAILING, Severity.WARNING: Health.DEGRADED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A cause that shows in a reading of the GPU."""

    finding: Finding
    holds: Callable[[GpuReading, Figures, HealthRules], bool]
    shows: Callable[[GpuReading], bool]  # whether the reading can show it, or that it is not there
    after: Callable[[HealthRules], float] = lambda _: 0.0


def _level(
    code: str,
    sentence: str,
    remedy: Remedy,
    source: str,
    holds: Callable[[GpuReading, Figures, HealthRules], bool],
    shows: Callable[[GpuReading], bool] | None = None,
) -> Level:
    """A row; without `shows` its source is the name of a field, which shows it."""
    health = Health.FAILING if remedy is Remedy.REPLACE_HARDWARE else Health.DEGRADED
    finding = Finding(code=code, health=health, sentence=sentence, remedy=remedy, source=source)
    return Level(finding=finding, holds=holds, shows=shows or _knows_all(source))


def _knows_all(*names: str) -> Callable[[GpuReading], bool]:
    """Whether all of these fields have a value."""
    return lambda reading: all(getattr(reading, name) is not None for name in names)


def _shows_clocks(reading: GpuReading) -> bool:
    return reading.clock_events is not None or reading.clock_event_seconds_total is not None


def _loaded_link(reading: GpuReading, rules: HealthRules) -> bool:
    """Whether the PCIe link must show what it can do. On bus 0 nobody sees a slot: the GPU was passed to a guest."""
    guest = ":00:" in (reading.info.pci_bus_id or "")
    return not guest and reading.utilization_ratio is not None and reading.utilization_ratio >= rules.load_ratio


def _narrow(reading: GpuReading, _: Figures, rules: HealthRules) -> bool:
    width, full = reading.pcie_link_width, reading.pcie_link_width_max
    return width is not None and full is not None and width < full and _loaded_link(reading, rules)


def _slow(reading: GpuReading, _: Figures, rules: HealthRules) -> bool:
    """One generation lower may be meant (a riser, the firmware), and at low clocks a link saves power."""
    now, full, state = reading.pcie_link_generation, reading.pcie_link_generation_max, reading.performance_state
    if now is None or full is None or state is None:
        return False
    return now <= full - 2 and state <= _HIGHEST_CLOCKS and _loaded_link(reading, rules)


def _fabric(fault: str, sentence: str, remedy: Remedy, after_seconds: float = 0.0) -> Level:
    """What the driver finds wrong with the NVLink fabric: one GPU's own work goes on, so it is degraded."""
    level = _level(
        f"fabric_{fault}",
        sentence,
        remedy,
        "fabric_faults (nvmlDeviceGetGpuFabricInfoV)",
        lambda reading, *_: fault in (reading.fabric_faults or ()),
        _knows_all("fabric_faults"),
    )
    return replace(level, after=lambda _: after_seconds)


LEVELS: tuple[Level, ...] = (
    _level(
        "row_remap_failure",
        "A bad memory row could not be replaced: no spare is left.",
        Remedy.REPLACE_HARDWARE,
        "remapped_rows_failure",
        lambda reading, *_: reading.remapped_rows_failure == 1,
    ),
    _level(
        "sram_ecc_threshold",
        "On-chip memory (SRAM) had more uncorrectable errors than NVIDIA's field diagnosis allows.",
        Remedy.REPLACE_HARDWARE,
        "sram_threshold_exceeded",
        lambda reading, *_: reading.sram_threshold_exceeded == 1,
    ),
    _level(
        "row_remap_pending",
        "A bad memory row waits for a reset to be replaced.",
        Remedy.RESET,
        "remapped_rows_pending",
        lambda reading, *_: reading.remapped_rows_pending == 1,
    ),
    _level(
        "page_retirement_pending",
        "A bad memory page waits for a reset to be retired.",
        Remedy.RESET,
        "retired_pages_pending",
        lambda reading, *_: reading.retired_pages_pending == 1,
    ),
    _level(
        "ecc_uncorrected",
        "Memory errors came up that could not be corrected.",
        Remedy.RESET,
        "ecc_uncorrected_volatile_errors_total",
        lambda _, figures, __: figures.new_uncorrected > 0,
    ),
    _level(
        "ecc_corrected_rate",
        "Memory errors are being corrected at a high rate.",
        Remedy.DRAIN,
        "ecc_corrected_volatile_errors_total",
        lambda _, figures, rules: figures.corrected_per_hour > rules.corrected_per_hour,
    ),
    _level(
        "thermal_throttling",
        "Its clocks are lowered for heat too much of the time: look at cooling.",
        Remedy.DRAIN,
        "clock_event_seconds_total, else clock_events",
        lambda _, figures, rules: figures.thermal_ratio > rules.thermal_ratio,
        _shows_clocks,
    ),
    _level(
        "power_brake",
        "Its clocks are lowered by the power supply's brake too much of the time: look at the supply.",
        Remedy.DRAIN,
        "clock_event_seconds_total, else clock_events",
        lambda _, figures, rules: figures.power_brake_ratio > rules.power_brake_ratio,
        _shows_clocks,
    ),
    _level(
        "hardware_slowdown",
        "The hardware lowers its clocks too much of the time and names no reason: look at cooling and supply.",
        Remedy.DRAIN,
        "clock_events",
        lambda _, figures, rules: figures.hardware_ratio > rules.thermal_ratio,
    ),
    replace(
        _level(
            "pcie_narrow",
            "Its PCIe link has fewer lanes under load than GPU and slot could use: have the board reseated.",
            Remedy.DRAIN,
            "pcie_link_width, pcie_link_width_max",
            _narrow,
            _knows_all("pcie_link_width", "pcie_link_width_max", "utilization_ratio"),
        ),
        after=lambda rules: rules.narrow_after,
    ),
    replace(
        _level(
            "pcie_slow",
            "Its PCIe link has a quarter of its speed or less under load: have slot, riser and firmware looked at.",
            Remedy.DRAIN,
            "pcie_link_generation, pcie_link_generation_max, performance_state",
            _slow,
            _knows_all("pcie_link_generation", "pcie_link_generation_max", "performance_state", "utilization_ratio"),
        ),
        after=lambda rules: rules.narrow_after,
    ),
    _level(
        "nvlink_errors",
        "Its NVLinks recover or send again far too often: have cables, switch and seating looked at.",
        Remedy.DRAIN,
        "nvlink_errors_total",
        lambda _, figures, __: (
            figures.recoveries_per_hour > _RECOVERIES_PER_HOUR or figures.repeats_per_hour > _REPEATS_PER_HOUR
        ),
    ),
    replace(
        _level(
            "fabric_not_joined",
            "It has not joined its NVLink fabric: start nvidia-fabricmanager or see to the switches.",
            Remedy.DRAIN,
            "fabric_state (nvmlDeviceGetGpuFabricInfoV)",
            lambda reading, *_: reading.fabric_state is not None and reading.fabric_state < FABRIC_JOINED,
            _knows_all("fabric_state"),
        ),
        after=lambda _: _RECOVERY_SECONDS,
    ),
    replace(
        _fabric("join_failed", "It could not join its NVLink fabric: see to the fabric manager's log.", Remedy.RESET),
        shows=lambda reading: reading.fabric_faults is not None or reading.fabric_state == FABRIC_JOINED,
    ),
    _fabric("degraded_bandwidth", "Its NVLink fabric lacks bandwidth: some of its links are down.", Remedy.DRAIN),
    _fabric("route_unhealthy", "A route of its NVLink fabric does not work.", Remedy.RESET),
    _fabric(
        "incorrect_configuration", "Its NVLink fabric is configured wrongly: `nvidia-smi -q` says how.", Remedy.DRAIN
    ),
    _fabric(
        "route_recovery",
        "A route of its NVLink fabric has been recovering for minutes.",
        Remedy.DRAIN,
        _RECOVERY_SECONDS,
    ),
    _fabric(
        "access_timeout",
        "Its NVLink fabric has been recovering from a time-out for minutes.",
        Remedy.RESET,
        _RECOVERY_SECONDS,
    ),
)


def has_evidence(reading: GpuReading) -> bool:
    """Whether the reading has any value that can show a cause."""
    return reading.recovery_action is not None or any(level.shows(reading) for level in LEVELS)


def seen_at_once(reading: GpuReading) -> list[Finding]:
    """What a single reading shows, without what must last."""
    rules = HealthRules()
    return [level.finding for level in LEVELS if level.after(rules) == 0 and level.holds(reading, Figures(), rules)]


def _as_finding(action: str, health: Health, sentence: str, remedy: Remedy) -> tuple[str, Finding]:
    source = "recovery_action, or XID 154 in the kernel log"
    return action, Finding(code=f"driver_asks_{action}", health=health, sentence=sentence, remedy=remedy, source=source)


# By the names of RECOVERY_ACTIONS, and `unknown` for numbers of newer drivers; `none` gives no finding.
RECOVERY: dict[str, Finding] = dict(
    (
        _as_finding("reset", Health.FAILING, "The driver asks for a reset of the GPU.", Remedy.RESET),
        _as_finding("reboot", Health.FAILING, "The driver asks for a reboot.", Remedy.REBOOT),
        _as_finding("drain_p2p", Health.DEGRADED, "The driver asks to end peer-to-peer traffic.", Remedy.DRAIN),
        _as_finding(
            "drain_and_reset", Health.DEGRADED, "The driver asks for a reset once the work has ended.", Remedy.DRAIN
        ),
        _as_finding(
            "recover_imex_domain", Health.DEGRADED, "The driver asks to recover its IMEX domain.", Remedy.DRAIN
        ),
        _as_finding("bus_reset", Health.FAILING, "The driver asks for a reset over the bus.", Remedy.RESET),
        _as_finding(
            "system_reboot", Health.FAILING, "The driver asks for a reboot of the whole system.", Remedy.REBOOT
        ),
        _as_finding(
            "unknown",
            Health.DEGRADED,
            "The driver asks for what gpuwatch does not know: `nvidia-smi -q` names it.",
            Remedy.DRAIN,
        ),
    )
)


def _down(code: str, sentence: str, remedy: Remedy) -> Finding:
    return Finding(code=code, health=Health.FAILING, sentence=sentence, remedy=remedy, source="the probe")


# With how long each must last. The other causes of a GPU being down say nothing about the GPU.
DOWN: dict[DownCause, tuple[Finding, float]] = {
    DownCause.LOST: (_down("gpu_lost", "The driver has lost the GPU.", Remedy.REBOOT), 0.0),
    DownCause.MISSING: (_down("gpu_missing", "The driver no longer lists the GPU.", Remedy.REBOOT), 0.0),
    DownCause.RESET: (_down("gpu_needs_reset", "The GPU answers nothing until it is reset.", Remedy.RESET), 0.0),
    DownCause.HANG: (_down("gpu_hung", "Calls to the GPU do not return.", Remedy.RESET), _HUNG_AFTER_SECONDS),
}


def xid_finding(xid: int) -> Finding | None:
    """The finding of an XID, if any."""
    row = XIDS.get(xid)
    if row is None or row.severity not in _HEALTHS:
        return None
    source = "NVIDIA's Xid catalogue"
    return Finding(
        code=f"xid_{xid}", health=_HEALTHS[row.severity], sentence=row.sentence, remedy=row.remedy, source=source
    )
