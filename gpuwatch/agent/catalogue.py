"""Every series the agent exports. The exporter emits nothing that is not listed here; METRICS.md is this list."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuwatch.model.gpu import CLOCK_EVENTS, Kind, metrics

GPU = ("uuid", "gpu")
INFO = "info"
_UNITS = frozenset({"seconds", "bytes", "ratio", "watts", "joules", "celsius", "hertz"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric: full name as a query writes it, its type, its labels in order, and where its value comes from."""

    name: str
    kind: str
    labels: tuple[str, ...] = ()
    help: str
    source: str

    @property
    def unit(self) -> str:
        """The base unit that the name ends in; empty where it counts things."""
        last = self.name.removesuffix("_total").rsplit("_", 1)[-1]
        return last if last in _UNITS else ""


def gpu_metric(field: str) -> str:
    """The metric name of a field of GpuReading."""
    return f"gpuwatch_gpu_{field}"


def _families() -> Iterator[Family]:
    """The tables of this module, GPU readings first."""
    for field, metric in metrics():
        yield Family(name=gpu_metric(field), kind=metric.kind.value, labels=GPU, help=metric.help, source=metric.source)
    for name, kind, labels, text, source in (*_GPU_ROWS, *_NODE_ROWS, *_AGENT_ROWS):
        yield Family(name=name, kind=kind, labels=labels, help=text, source=source)


_Row = tuple[str, str, tuple[str, ...], str, str]

_GPU_ROWS: tuple[_Row, ...] = (
    (
        "gpuwatch_gpu_info",
        INFO,
        (*GPU, "name", "pci_bus_id", "driver_version", "cuda_version", "vbios_version"),
        "Who the GPU is: join on uuid; a label that is not known is left out.",
        "nvmlDeviceGetUUID, Index, Name, PciInfo, VbiosVersion; nvmlSystemGetDriverVersion, CudaDriverVersion",
    ),
    (
        "gpuwatch_gpu_up",
        Kind.GAUGE,
        GPU,
        "1 if the last cycle read the GPU, 0 if it was expected and could not be read.",
        "the probe",
    ),
    (
        "gpuwatch_gpu_down_info",
        INFO,
        (*GPU, "cause"),
        "Why a GPU is down: lost, hang, driver, error or missing; absent while it is up.",
        "the probe",
    ),
    (
        "gpuwatch_gpu_clock_event_active",
        Kind.GAUGE,
        (*GPU, "event"),
        f"1 while the driver gives this reason for the current clocks: {', '.join(CLOCK_EVENTS.values())}.",
        "nvmlDeviceGetCurrentClocksEventReasons",
    ),
    (
        "gpuwatch_gpu_processes",
        Kind.GAUGE,
        GPU,
        "Processes that hold the GPU.",
        "nvmlDeviceGetComputeRunningProcesses_v3, GraphicsRunningProcesses_v3, MPSComputeRunningProcesses_v3",
    ),
    (
        "gpuwatch_process_memory_bytes",
        Kind.GAUGE,
        (*GPU, "pid"),
        "Device memory of the largest processes, as many per GPU as top_processes allows.",
        "the process lists",
    ),
    (
        "gpuwatch_process_memory_remainder_bytes",
        Kind.GAUGE,
        GPU,
        "Device memory of all processes that have no series of their own.",
        "the process lists",
    ),
    (
        "gpuwatch_gpu_active_seconds_total",
        Kind.COUNTER,
        GPU,
        "Time in use since the agent started: its rate() is the mean utilization over any window.",
        "utilization_ratio, summed by the agent over its cycles; gaps add nothing",
    ),
    (
        "gpuwatch_gpu_activity",
        Kind.GAUGE,
        (*GPU, "state"),
        "1 for what the GPU is doing (busy, parked, stalled, idle or unknown), 0 for the other states.",
        "the agent's verdict",
    ),
    (
        "gpuwatch_gpu_idle_seconds",
        Kind.GAUGE,
        GPU,
        "How long the GPU has been idle without a break; 0 if it is not idle, absent while that is unknown.",
        "the agent's verdict",
    ),
)

_NODE_ROWS: tuple[_Row, ...] = (
    (
        "gpuwatch_node_info",
        INFO,
        ("node_id",),
        "Which machine this is, as its cloud or its administrator names it.",
        "the configuration, the EC2 instance id of the board, or the host name",
    ),
    (
        "gpuwatch_node_activity",
        Kind.GAUGE,
        ("state",),
        "1 for what the machine is doing (busy, parked, stalled, idle or unknown), 0 for the other states.",
        "the agent's verdict",
    ),
    (
        "gpuwatch_node_idle_seconds",
        Kind.GAUGE,
        (),
        "How long the machine has been idle without a break; 0 if it is not idle, absent while that is unknown.",
        "the agent's verdict",
    ),
)

_AGENT_ROWS: tuple[_Row, ...] = (
    ("gpuwatch_agent_info", INFO, ("version",), "Which agent this is.", "the agent"),
    (
        "gpuwatch_agent_cycle_duration_seconds",
        Kind.GAUGE,
        (),
        "What the last complete reading cycle took.",
        "the probe",
    ),
    (
        "gpuwatch_agent_last_cycle_timestamp_seconds",
        Kind.GAUGE,
        (),
        "Unix time at which the last complete reading cycle ended.",
        "the agent",
    ),
    (
        "gpuwatch_agent_last_cycle_age_seconds",
        Kind.GAUGE,
        (),
        "Time since the last complete reading cycle, by the monotonic clock.",
        "the agent",
    ),
    ("gpuwatch_agent_cycles_total", Kind.COUNTER, (), "Complete reading cycles.", "the agent"),
    (
        "gpuwatch_probe_up",
        Kind.GAUGE,
        (),
        "1 if the probe reads GPUs, 0 if it cannot: no driver, a hang, a crash, or nothing heard for too long.",
        "the supervisor",
    ),
    (
        "gpuwatch_probe_down_info",
        INFO,
        ("cause",),
        "Why the probe reads nothing, such as library_not_found, hang or exit; /healthz has the words. Absent if up.",
        "the supervisor",
    ),
    (
        "gpuwatch_probe_restarts_total",
        Kind.COUNTER,
        ("cause",),
        "Probes replaced: hang, exit, garbage, or renew (on purpose: a new driver library, a hung GPU tried again).",
        "the supervisor",
    ),
    ("process_cpu_seconds_total", Kind.COUNTER, (), "CPU time of the agent, without its probe.", "/proc"),
    ("process_resident_memory_bytes", Kind.GAUGE, (), "Resident memory of the agent, without its probe.", "/proc"),
    ("process_start_time_seconds", Kind.GAUGE, (), "Unix time at which the agent started.", "/proc"),
    ("process_open_fds", Kind.GAUGE, (), "Open file descriptors of the agent.", "/proc"),
)

FAMILIES: dict[str, Family] = {family.name: family for family in _families()}


def render_metrics_md() -> str:
    """docs/METRICS.md."""
    lines = [
        "# Metrics of the agent",
        "",
        "Generated by `python -m gpuwatch.agent.catalogue > docs/METRICS.md`; do not edit.",
        "",
        "Served at `/metrics` in the Prometheus and OpenMetrics text formats. Units are base units, told by the name;",
        "a ratio is 0 to 1. A value that could not be read has no series: it is never 0, NaN or an old one. `uuid` is",
        "the GPU's key; `gpu` is its index, which may change at a reboot.",
        "",
        "| name | type | labels | unit | what | from |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for family in FAMILIES.values():
        labels = " ".join(f"`{label}`" for label in family.labels)
        cells = (f"`{family.name}`", family.kind, labels, family.unit, family.help, family.source)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(render_metrics_md())
