"""Every series the agent exports. The exporter emits nothing that is not listed here; METRICS.md is this list."""

from collections.abc import Iterator
from dataclasses import replace

from gpuwatch.agent.exporter import rdma
from gpuwatch.agent.exporter.processes import POD_FAMILIES
from gpuwatch.agent.metadata import metrics as instance
from gpuwatch.model.gpu import CLOCK_EVENTS, Kind, Metric, metrics
from gpuwatch.model.metric import GroupName
from gpuwatch.model.mig import mig_metrics
from gpuwatch.runtime.metrics.family import CERTIFICATE, CERTIFICATE_HELP, HISTOGRAM, INFO, LOGINS_HELP, Family
from gpuwatch.runtime.metrics.process import process_families
from gpuwatch.runtime.program import BUILD

GPU = ("uuid", "gpu")
MIG = (*GPU, "gpu_instance")


def gpu_metric(field: str) -> str:
    """The metric name of a field of GpuReading."""
    return f"gpuwatch_gpu_{field}"


def mig_metric(field: str) -> str:
    """The metric name of a field of MigInstance."""
    return f"gpuwatch_mig_{field}"


def _measured_family(name: str, metric: Metric, key: tuple[str, ...]) -> Family:
    """A field of a reading; its source is a function nvmlDeviceGet... unless given in full."""
    labels = (*key, metric.label) if metric.label else key
    every = metric.every_seconds
    source = metric.source if every is None else f"{metric.source}; every {every} s"
    return Family(name=name, kind=metric.kind.value, labels=labels, help=metric.help, source=source, group=metric.group)


def _families() -> Iterator[Family]:
    """The tables of this module, GPU readings first."""
    yield from (_measured_family(gpu_metric(field), metric, GPU) for field, metric in metrics())
    yield from (_measured_family(mig_metric(field), metric, MIG) for field, metric in mig_metrics())
    for name, kind, labels, text, source in (
        *_GPU_ROWS,
        *_NODE_ROWS,
        *instance.FAMILIES,
        *rdma.FAMILIES,
        *POD_FAMILIES,
        *_AGENT_ROWS,
    ):
        yield Family(name=name, kind=kind, labels=labels, help=text, source=source, group=_GROUP_OF.get(name, "core"))
    for family in process_families("the agent", ", without its probe"):
        yield replace(family, group="host")


_Row = tuple[str, str, tuple[str, ...], str, str]

# Where a row is not of `core`.
_ROWS_OF: dict[GroupName, tuple[str, ...]] = {
    "clock_events": ("gpuwatch_gpu_hardware_slowdown",),
    "clocks": ("gpuwatch_gpu_clock_event_active",),
    "processes": (
        "gpuwatch_gpu_processes",
        "gpuwatch_process_memory_bytes",
        "gpuwatch_process_memory_other_bytes",
        "gpuwatch_process_info",
        "gpuwatch_gpu_pod_info",
        "gpuwatch_gpu_dead_process_memory_bytes",
        *(name for name, *_ in POD_FAMILIES),
    ),
    "mig": ("gpuwatch_mig_info",),
    "health": (
        "gpuwatch_gpu_xid_errors_total",
        "gpuwatch_gpu_xid_last_seen_timestamp_seconds",
        "gpuwatch_gpu_health",
        "gpuwatch_gpu_health_cause_info",
    ),
    "rdma": tuple(name for name, *_ in rdma.FAMILIES),
    "modes": ("gpuwatch_gpu_health_since_timestamp_seconds",),
    "host": (
        "gpuwatch_node_evidence",
        "gpuwatch_node_last_busy_timestamp_seconds",
        "gpuwatch_snooze_expiry_timestamp_seconds",
        "gpuwatch_node_local_disks_used",
        "gpuwatch_agent_blind_info",
        "gpuwatch_host_stranger_cpu_cores",
        "gpuwatch_agent_login_failures_total",
        *(name for name, *_ in instance.FAMILIES if name != "gpuwatch_instance_info"),
        CERTIFICATE,
        "gpuwatch_agent_scrape_duration_seconds",
    ),
}
_GROUP_OF = {name: group for group, names in _ROWS_OF.items() for name in names}

_GPU_ROWS: tuple[_Row, ...] = (
    (
        "gpuwatch_gpu_info",
        INFO,
        (*GPU, "name", "pci_bus_id", "driver_version", "cuda_version", "vbios_version", "serial", "vendor"),
        "Who the GPU is: join on uuid; a label that is not known is left out. vendor: nvidia or amd.",
        "nvmlDeviceGetUUID, Index, Name, PciInfo, VbiosVersion, Serial; nvmlSystemGetDriverVersion, CudaDriverVersion",
    ),
    (
        "gpuwatch_mig_info",
        INFO,
        (*MIG, "compute_instance", "mig_uuid", "profile"),
        "A compute instance that MIG has made of a GPU; memory and activity are those of its GPU instance.",
        "nvmlDeviceGetMigDeviceHandleByIndex, GpuInstanceId, ComputeInstanceId, UUID, Name",
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
        "Why a GPU is down: lost, hang, driver, error, reset, missing or released; absent while it is up.",
        "the probe",
    ),
    (
        "gpuwatch_gpu_implausible_values_total",
        Kind.COUNTER,
        (*GPU, "field"),
        "Cycles in which the driver's value of this field could not be true, and was left out; absent without any.",
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
        "gpuwatch_gpu_hardware_slowdown",
        Kind.GAUGE,
        GPU,
        "1 while the hardware lowers the clocks for heat, a power brake or another reason of its own (hw_slowdown).",
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
        "gpuwatch_process_memory_other_bytes",
        Kind.GAUGE,
        GPU,
        "Device memory of all processes that have no series of their own; absent without such processes.",
        "the process lists",
    ),
    (
        "gpuwatch_process_info",
        INFO,
        (
            *(*GPU, "pid", "user", "container_id", "container", "pod", "namespace", "pod_uid"),
            *("slurm_job", "systemd_unit"),
        ),
        "Owners of the largest processes, per GPU as many as top_processes allows: join on uuid and pid.",
        "/proc/PID/status, cgroup, environ (SLURM_JOB_ID only), the kubelet's List, log folders: docs/attribution.md",
    ),
    (
        "gpuwatch_gpu_pod_info",
        INFO,
        (*GPU, "namespace", "pod", "container"),
        "Containers that the kubelet gave the GPU, or a part; without its list, pods with a process on it; 64 at most.",
        "the kubelet's pod-resources List, the driver's process list",
    ),
    (
        "gpuwatch_gpu_dead_process_memory_bytes",
        Kind.GAUGE,
        GPU,
        "Device memory of processes that no longer exist; absent without any, or where processes are not seen.",
        "the process lists, /proc",
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
    (
        "gpuwatch_gpu_xid_errors_total",
        Kind.COUNTER,
        (*GPU, "xid"),
        "Errors that the driver reported, by number, since boot as far back as the kernel log reaches.",
        "nvmlEventSetWait_v2 and the kernel log; an event that both report counts once",
    ),
    (
        "gpuwatch_gpu_xid_last_seen_timestamp_seconds",
        Kind.GAUGE,
        (*GPU, "xid"),
        "Unix time at which that error was last reported; alert on it, because increase() misses the first one.",
        "nvmlEventSetWait_v2 and the kernel log",
    ),
    (
        "gpuwatch_gpu_health",
        Kind.GAUGE,
        (*GPU, "state"),
        "1 for how well the GPU is (healthy, degraded, failing or unknown), 0 for the other states.",
        "the agent's verdict; docs/health.md#what-is-seen",
    ),
    (
        "gpuwatch_gpu_health_cause_info",
        INFO,
        (*GPU, "code", "remedy"),
        "1 for each thing that is wrong with the GPU, and what to do: nothing, drain, reset, reboot, replace_hardware.",
        "the agent's verdict; docs/health.md#what-is-seen",
    ),
    (
        "gpuwatch_gpu_health_since_timestamp_seconds",
        Kind.GAUGE,
        GPU,
        "Unix time since which the GPU's health has been what it is.",
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
        "1 for what the machine is doing (busy, occupied, parked, stalled, idle or unknown), 0 for the other states.",
        "the agent's verdict",
    ),
    (
        "gpuwatch_node_evidence",
        Kind.GAUGE,
        ("signal", "says"),
        "1 for what a signal of the host says (busy, unknown, occupied, idle); no series for what it does not say.",
        "docs/idle-detection.md#signals-of-the-host",
    ),
    (
        "gpuwatch_node_last_busy_timestamp_seconds",
        Kind.GAUGE,
        ("signal",),
        "Unix time at which a signal was busy last, since the agent started, a week at most; GPUs' signals by kind.",
        "the agent's verdict; docs/idle-detection.md",
    ),
    (
        "gpuwatch_snooze_expiry_timestamp_seconds",
        Kind.GAUGE,
        ("user",),
        "Unix time at which a snooze taken with `gpuwatch snooze` ends; absent without one. The 64 longest are shown.",
        "the snoozes that hold",
    ),
    (
        "gpuwatch_node_idle_seconds",
        Kind.GAUGE,
        (),
        "How long the machine has been idle without a break; 0 if it is not idle, absent while that is unknown.",
        "the agent's verdict",
    ),
    (
        "gpuwatch_node_local_disks_used",
        Kind.GAUGE,
        (),
        "1 if a stop would lose data on local disks (instance store), 0 if it would not; absent while that is unknown.",
        "sysfs, udev's database and the host's mounts; docs/policies/idle.md#local-disks",
    ),
    (
        "gpuwatch_host_cpu_utilization_ratio",
        Kind.GAUGE,
        (),
        "Share of the time of all processors that was used in the last minute; absent while that is unknown.",
        "/proc/stat",
    ),
    (
        *("gpuwatch_host_stranger_cpu_cores", Kind.GAUGE, ("mark",)),
        "CPU cores of programs outside of logins, by mark: from a folder open to all, or called like a kernel thread.",
        "/proc, the last minute",
    ),
)

_AGENT_ROWS: tuple[_Row, ...] = (
    ("gpuwatch_agent_build_info", INFO, BUILD, "Which build of the agent runs, on which Python.", "the agent"),
    (
        "gpuwatch_agent_cycle_duration_seconds",
        HISTOGRAM,
        (),
        "What complete reading cycles took; the count of them is that of all complete cycles.",
        "the probe",
    ),
    (
        "gpuwatch_agent_scrape_duration_seconds",
        HISTOGRAM,
        (),
        "Time until a page for a scrape was ready in the agent, rendered for it or taken from the cache.",
        "the agent",
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
    (
        "gpuwatch_probe_up",
        Kind.GAUGE,
        (),
        "1 if the probe reads GPUs, 0 if it cannot: no driver, a hang, a crash, released, nothing heard for too long.",
        "the supervisor",
    ),
    (
        "gpuwatch_probe_down_info",
        INFO,
        ("cause",),
        "Why the probe reads nothing, such as library_not_found, init_hang, hang or released; /healthz has the words.",
        "the supervisor",
    ),
    (
        "gpuwatch_probe_restarts_total",
        Kind.COUNTER,
        ("cause",),
        "Probes replaced: hang, exit, garbage, or renew (on purpose: a new driver library, a hung GPU answers again).",
        "the supervisor",
    ),
    (
        "gpuwatch_probe_abandoned",
        Kind.GAUGE,
        (),
        "Probes that could not be ended, because a driver call never returns; each still holds its GPUs.",
        "the supervisor",
    ),
    (
        "gpuwatch_agent_kernel_log_up",
        Kind.GAUGE,
        (),
        "1 if the kernel log is read, 0 if it cannot be: then XIDs come from NVML alone. Absent if not asked for.",
        "the agent",
    ),
    (
        "gpuwatch_agent_blind_info",
        INFO,
        ("what",),
        "1 for what this agent cannot see on its host: host_pids, processes, cgroups, run, process_io, homes, network.",
        "/proc, /sys, /run and homes, every five minutes; docs/doctor.md has the remedies",
    ),
    (
        "gpuwatch_agent_login_failures_total",
        Kind.COUNTER,
        ("result",),
        LOGINS_HELP,
        "the agent; absent without users",
    ),
    (
        CERTIFICATE,
        Kind.GAUGE,
        ("setting",),
        CERTIFICATE_HELP,
        "the files of agent.tls_certificate and agent.tls_client_ca, read again when they change",
    ),
)

FAMILIES: dict[str, Family] = {family.name: family for family in _families()}
