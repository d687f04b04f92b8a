"""An agent's page under other exporters' names, for tests, and a GPU of which all is known."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.attribution.attribution import View
from gpuwatch.agent.devices.messages import Event
from gpuwatch.agent.exporter.compat import Compatibility
from gpuwatch.agent.exporter.compat.processes import ProcessFigures
from gpuwatch.agent.exporter.compat.table import Sample
from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.gpu import GpuDown, GpuReading
from gpuwatch.model.mig import MigDevice, MigInstance
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.gpu import GIB, a_cycle, a_process, a_reading

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PLAIN = "text/plain; version=0.0.4"
MIB = 1 << 20

LINKS = {"0": 3.0, "1": 4.0}
FULL = a_reading(
    utilization_ratio=0.07,
    memory_bandwidth_utilization_ratio=0.29,
    encoder_utilization_ratio=0.11,
    decoder_utilization_ratio=0.12,
    jpeg_utilization_ratio=0.13,
    ofa_utilization_ratio=0.14,
    graphics_activity_ratio=0.21,
    sm_activity_ratio=0.22,
    sm_occupancy_ratio=0.23,
    tensor_activity_ratio=0.24,
    dram_activity_ratio=0.25,
    fp64_activity_ratio=0.26,
    fp32_activity_ratio=0.27,
    fp16_activity_ratio=0.28,
    memory_total_bytes=80 * GIB,
    memory_used_bytes=20 * GIB,
    memory_free_bytes=59 * GIB,
    memory_reserved_bytes=GIB,
    temperature_celsius=61.0,
    memory_temperature_celsius=70.0,
    temperature_margin_celsius=26.0,
    power_watts=433.78,
    power_instant_watts=447.35,
    power_limit_watts=650.0,
    power_limit_default_watts=700.0,
    power_limit_min_watts=200.0,
    power_limit_max_watts=710.0,
    energy_joules_total=123456.789,
    sm_clock_hertz=1.98e9,
    memory_clock_hertz=2.619e9,
    graphics_clock_hertz=1.965e9,
    video_clock_hertz=1.545e9,
    sm_clock_max_hertz=1.981e9,
    memory_clock_max_hertz=2.62e9,
    graphics_clock_max_hertz=1.982e9,
    clock_events=("sw_power_cap", "hw_thermal_slowdown"),
    clock_event_seconds_total={
        "sw_power_cap": 1.5,
        "sync_boost": 0.25,
        "sw_thermal_slowdown": 2.5,
        "hw_thermal_slowdown": 3.5,
        "hw_power_brake_slowdown": 4.5,
    },
    performance_state=2,
    fan_speed_ratio=0.57,
    pcie_link_generation=4,
    pcie_link_generation_max=5,
    pcie_link_width=8,
    pcie_link_width_max=16,
    pcie_tx_bytes_per_second=3.0 * MIB,
    pcie_rx_bytes_per_second=4.5 * MIB,
    pcie_replays_total=6,
    nvlink_tx_bytes_per_second=7.0 * MIB,
    nvlink_rx_bytes_per_second=8.0 * MIB,
    nvlink_link_tx_bytes_total={"0": 5e9, "1": 6e9},
    nvlink_link_rx_bytes_total={"0": 7e9, "1": 8e9},
    nvlink_replay_errors_total=LINKS,
    nvlink_recovery_errors_total={"0": 1.0, "1": 0.0},
    ecc_corrected_volatile_errors_total=31,
    ecc_corrected_aggregate_errors_total=32,
    ecc_uncorrected_volatile_errors_total=0,
    ecc_uncorrected_aggregate_errors_total=34,
    retired_pages_total={"single_bit": 41.0, "double_bit": 42.0},
    retired_pages_pending=1,
    remapped_rows_total={"correctable": 51.0, "uncorrectable": 52.0},
    remapped_rows_pending=0,
    remapped_rows_failure=1,
    recovery_action=2,
    ecc_mode=1,
    persistence_mode=1,
    mig_mode=0,
    compute_mode=3,
    processes=(a_process(4711, 12 * GIB), a_process(815, 6 * GIB), a_process(42, GIB), a_process(43, GIB)),
)
INFO = replace(
    FULL.info,
    uuid="GPU-DF6E7A7C-7314-46f8-abc4-b88b36dcf3aa",
    name='NVIDIA "Test" 80GB',
    cuda_version="13.0",
    vbios_version="96.00.A5.00.03",
    serial="1652",
)
FULL = replace(FULL, info=INFO)

SMI_UUID = "df6e7a7c-7314-46f8-abc4-b88b36dcf3aa"
LABELS = {
    "dcgm": {
        "gpu": "0",
        "UUID": INFO.uuid,
        "pci_bus_id": "00000000:01:00.0",
        "device": "nvidia0",
        "modelName": 'NVIDIA "Test" 80GB',
        "Hostname": "node-7",
        "hostname": "node-7",
        "DCGM_FI_DRIVER_VERSION": "580.65.06",
    },
    "nvidia_smi": {"uuid": SMI_UUID},
    "nvitop": {"hostname": "node-7", "index": "0", "devicename": 'NVIDIA "Test" 80GB', "uuid": INFO.uuid},
}

MIG_VALUES = {
    "memory_total_bytes": 10.0 * GIB,
    "memory_used_bytes": 4.0 * GIB,
    "memory_free_bytes": 6.0 * GIB,
    "graphics_activity_ratio": 0.5,
    "sm_activity_ratio": 0.4,
    "sm_occupancy_ratio": 0.3,
    "tensor_activity_ratio": 0.2,
}
INSTANCE = MigInstance(
    id=7,
    devices=(
        MigDevice(uuid="MIG-a", compute_instance=0, profile="1c.2g.20gb"),
        MigDevice(uuid="MIG-b", compute_instance=1, profile="1c.2g.20gb"),
    ),
    memory_total_bytes=10 * GIB,
    memory_used_bytes=4 * GIB,
    memory_free_bytes=6 * GIB,
    graphics_activity_ratio=0.5,
    sm_activity_ratio=0.4,
    sm_occupancy_ratio=0.3,
    tensor_activity_ratio=0.2,
    dram_activity_ratio=0.1,
)


class Page:
    """A node's page in some dialects, on a clock of its own."""

    def __init__(
        self,
        *names: str,
        users: View | None = None,
        host: Callable[[], Iterable[Sample]] = tuple,
        proc: Path = Path("/nowhere"),
        top_processes: int = 2,
    ) -> None:
        """An agent that has just begun."""
        self.clock = ManualClock()
        self.core = AgentCore(
            node_id="i-0123456789abcdef0",
            clock=self.clock,
            rules=ActivityRules(),
            interval_seconds=1.0,
            stale_after_seconds=8.0,
        )
        foreign = Compatibility(
            names,
            hostname="node-7",
            top_processes=top_processes,
            users=lambda: users,
            host=host,
            processes=ProcessFigures(proc),
        ).extend
        self.exporter = Exporter(
            self.core, self.clock, node_id="n", top_processes=top_processes, own_process=False, foreign=foreign
        )
        self.seq = 0

    def cycle(self, *entries: GpuReading | GpuDown, xid: int | None = None) -> "Page":
        """One cycle, in which the driver may tell of an error of the first GPU."""
        self.clock.advance(1.0)
        self.seq += 1
        begin, *rest = a_cycle(self.seq, self.clock.monotonic(), *entries)
        rows = [] if xid is None else [Event(seq=self.seq, uuid=entries[0].info.uuid, xid=xid)]
        self.core.ingest_messages([begin, *rows, *rest])
        return self

    def text(self, accept: str = PLAIN) -> str:
        """As a scraper gets it."""
        return self.exporter.page(accept).body.decode()

    def samples(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each sample of that name."""
        found = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", self.text(), re.MULTILINE)
        return [(_unescaped(labels), float(value)) for labels, value in found]


def _unescaped(text: str) -> dict[str, str]:
    """Labels as a page has them. prometheus-client's parser would rename counters that do not end in _total."""
    pairs: list[tuple[str, str]] = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', text)
    return {name: value.replace('\\"', '"').replace("\\\\", "\\") for name, value in pairs}


def a_proc(proc: Path, uptime: float = 100.0, **stats: str) -> Path:
    """A host's /proc so long after its boot: 1 GiB of memory, and processes p<pid> by their state, ticks and pages.

    `p4711="S 30 10 500 256"` sleeps, has had 30 + 10 ticks of CPU, began at tick 500, and holds 256 pages.
    """
    (proc / "self/ns").mkdir(parents=True, exist_ok=True)
    (proc / "1").mkdir(exist_ok=True)
    namespace = proc / "self/ns/pid"
    if not namespace.is_symlink():
        namespace.symlink_to("pid:[4026531836]")  # that of the host
    (proc / "uptime").write_text(f"{uptime} 1.00\n", encoding="ascii")
    (proc / "meminfo").write_text("MemTotal: 1048576 kB\nMemFree: 1 kB\n", encoding="ascii")
    for name, stat in stats.items():
        pid = name.removeprefix("p")
        state, user, system, start, pages = stat.split()
        values = [state, *["0"] * 10, user, system, *["0"] * 6, start, "0", pages, "0"]
        (proc / pid).mkdir(exist_ok=True)
        (proc / pid / "stat").write_text(f"{pid} (sesame) S 1) {' '.join(values)}\n", encoding="ascii")
        (proc / pid / "cgroup").write_text("0::/system.slice/train.service\n", encoding="ascii")
        (proc / pid / "status").write_text("Uid:\t0\t0\t0\t0\n", encoding="ascii")
        (proc / pid / "cmdline").write_bytes(b"sesame\0--token=hunter2\0")
    return proc
