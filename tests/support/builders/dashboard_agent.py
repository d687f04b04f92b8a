"""The agent of a machine with every sensor, and something wrong with each GPU: what the demo fleet does not have."""

import math
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.activity.pods import PodLook
from gpuwatch.agent.attribution.attribution import View
from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.attribution.pods import Workload
from gpuwatch.agent.attribution.process import Owner
from gpuwatch.agent.devices.messages import Event
from gpuwatch.agent.evidence.rdma_ports import RdmaPort
from gpuwatch.agent.evidence.snoozes import Snooze
from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.health.watch import HealthWatch
from gpuwatch.agent.metadata.base import Facts
from gpuwatch.agent.metadata.state_file import Announced
from gpuwatch.agent.metadata.watcher import InstanceStatus
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.activity import Evidence, LocalDisks, State
from gpuwatch.model.cloud_notice import NoticeKind
from gpuwatch.model.gpu import GpuDown, GpuReading, metrics
from gpuwatch.model.mig import MigDevice, MigInstance
from gpuwatch.runtime.clock import Clock
from tests.support.builders.gpu import GIB, a_busy_reading, a_cycle, a_down, a_process, a_reading

_LOST_FROM = 120  # cycles
_PORT = RdmaPort(
    device="mlx5_0",
    port="1",
    link_layer="InfiniBand",
    active=True,
    bytes_per_second=50e9,
    received_bytes=10**12,
    sent_bytes=10**12,
    downs=1,
    errors={"symbol_error": 3},
)


class Patient:
    """GPU 0 works and is unwell, GPU 1 is split by MIG and has an XID now and then, GPU 2 is lost after two hours."""

    def __init__(self, node_id: str, clock: Clock, rules: ActivityRules, interval_seconds: float) -> None:
        """Nothing has been read yet."""
        self._clock = clock
        self._every = interval_seconds
        health = HealthWatch(clock, interval_seconds=interval_seconds)
        health.xids.kernel_log_up = True
        self.core = AgentCore(
            node_id=node_id,
            clock=clock,
            rules=rules,
            interval_seconds=interval_seconds,
            stale_after_seconds=3 * interval_seconds + 5.0,
            host=lambda _: _EVIDENCE,
            health=health,
            local_disks=lambda _: LocalDisks.USED,
            cpu_utilization=lambda _: 0.25,
            pod_looks=lambda _: {"00000000-0000-4000-8000-000000000001": PodLook(name="team-a/train-0")},
        )
        self.exporter = Exporter(
            self.core,
            clock,
            node_id=node_id,
            top_processes=2,
            snoozes=lambda: [_lease(clock.now())],
            users=lambda: _view(clock.monotonic()),
            instance=lambda: _instance(node_id, clock.now()),
            certificates=lambda: [("agent.tls_certificate", clock.now() + timedelta(days=90))],
            logins=lambda: {"wrong": 1},
            blind=lambda: ("homes", "process_io"),
            rdma_ports=lambda: (_PORT,),
            strangers=lambda: {"kernel_name": 7.2, "writable_folder": 0.3},
        )
        self._cycles = 0

    def sample(self) -> None:
        """One cycle."""
        self._cycles += 1
        gpus = [replace(each, at=self._clock.now()) for each in self._gpus(self._cycles)]
        cycle = a_cycle(self._cycles, self._clock.monotonic(), *gpus)
        if self._cycles % 50 == 30:
            cycle.insert(1, Event(seq=self._cycles, uuid="GPU-1", xid=94))
        self.core.ingest_messages(cycle)

    def _gpus(self, cycles: int) -> list[GpuReading | GpuDown]:
        seconds = cycles * self._every
        split = a_reading(
            1, mig_instances=(_mig(cycles),), memory_used_bytes=12 * GIB, energy_joules_total=seconds * 90.0
        )
        if cycles >= _LOST_FROM:
            return [_full(cycles, seconds), split, a_down(2)]
        return [_full(cycles, seconds), split, a_busy_reading(2, energy_joules_total=seconds * 600.0)]


def _wave(cycles: int, low: float, high: float) -> float:
    """Between two values, over and over."""
    return low + (high - low) * (0.5 + 0.5 * math.sin(cycles / 9))


def _full(cycles: int, seconds: float) -> GpuReading:
    """Every metric that there is, moving."""
    any_number: dict[str, Any] = {
        name: {"0": seconds, "1": 0.0} if metric.label else 0 for name, metric in metrics() if metric.source
    }
    ratios = {name: _wave(cycles, 0.2, 0.7) for name in any_number if name.endswith("_ratio")}
    moved = {name: seconds * 2e8 for name in any_number if name.endswith(("tx_bytes_total", "rx_bytes_total"))}
    known = {name: value for name, value in moved.items() if "nvlink_link_" not in name}
    return a_busy_reading(
        0,
        **{
            **any_number,
            **ratios,
            **known,
            "memory_total_bytes": 80 * GIB,
            "memory_used_bytes": int(_wave(cycles, 40, 60)) * GIB,
            "memory_free_bytes": 20 * GIB,
            "temperature_celsius": _wave(cycles, 60, 74),
            "memory_temperature_celsius": _wave(cycles, 70, 86),
            "temperature_margin_celsius": _wave(cycles, 6, 20),
            "power_watts": _wave(cycles, 350, 640),
            "power_instant_watts": _wave(cycles, 350, 640),
            "power_limit_watts": 700.0,
            "energy_joules_total": seconds * 500.0,
            "sm_clock_hertz": _wave(cycles, 1.5e9, 1.98e9),
            "memory_clock_hertz": 2.619e9,
            "graphics_clock_hertz": 1.9e9,
            "video_clock_hertz": 1.5e9,
            "clock_events": ("sw_power_cap", "hw_thermal_slowdown"),
            "clock_event_seconds_total": {"sw_power_cap": seconds * 0.4, "hw_thermal_slowdown": seconds * 0.1},
            "ecc_corrected_volatile_errors_total": cycles // 7,
            "ecc_uncorrected_volatile_errors_total": cycles // 100,
            "pcie_replays_total": cycles // 5,
            "pcie_errors_total": {"correctable": cycles // 9, "fatal": 0},
            "pcie_link_generation": 5,
            "pcie_link_generation_max": 5,
            "pcie_link_width": 8,
            "pcie_link_width_max": 16,
            "remapped_rows_total": {"correctable": 1, "uncorrectable": 2},
            "remapped_rows_pending": 1,
            "retired_pages_total": {"single_bit": 0, "double_bit": 0},
            "recovery_action": 1,
            "implausible": ("temperature_margin_celsius",),
            "processes": (
                a_process(4711, 24 * GIB),
                a_process(815, 8 * GIB),
                a_process(42, 2 * GIB),
                a_process(43, GIB),
            ),
        },
    )


def _mig(cycles: int) -> MigInstance:
    return MigInstance(
        id=1,
        devices=(MigDevice(uuid="MIG-a", compute_instance=0, profile="3g.40gb"),),
        memory_total_bytes=40 * GIB,
        memory_used_bytes=12 * GIB,
        memory_free_bytes=28 * GIB,
        graphics_activity_ratio=_wave(cycles, 0.1, 0.6),
        sm_activity_ratio=_wave(cycles, 0.1, 0.5),
        sm_occupancy_ratio=_wave(cycles, 0.1, 0.3),
        tensor_activity_ratio=_wave(cycles, 0.1, 0.4),
        dram_activity_ratio=_wave(cycles, 0.1, 0.2),
    )


def _says(name: str, says: State) -> Evidence:
    return Evidence(name=name, says=says, observed=0.0, limit=1.0, unit="", source="a test")


_EVIDENCE = (_says("people", State.BUSY), _says("slurm", State.BUSY), _says("disk", State.IDLE))


def _lease(now: datetime) -> Snooze:
    return Snooze(user="ana", reason="a paper", expires_at=now + timedelta(hours=3), left_seconds=3 * 3600.0)


def _view(monotonic: float) -> View:
    """A Slurm job, a pod, and a process that is dead and still holds memory."""
    return View(
        monotonic_seconds=monotonic,
        owners={
            4711: Owner(user="ana", placement=Placement(slurm_job="1207", systemd_unit="slurmstepd.scope")),
            815: Owner(user="ben", placement=Placement(container_id="c0ffee", pod_uid="12-34")),
        },
        workloads={815: Workload(namespace="research", pod="notebook-7", container="main")},
        held={"GPU-0": (Workload(namespace="research", pod="notebook-7", container="main"),)},
        dead=frozenset({42}),
    )


def _instance(node_id: str, now: datetime) -> InstanceStatus:
    """A spot machine about to be interrupted, and one recommendation without a time."""
    return InstanceStatus(
        provider="aws",
        facts=Facts(
            instance_id=node_id, instance_type="p4d.24xlarge", region="us-east-1", zone="us-east-1a", lifecycle="spot"
        ),
        notices=(
            Announced(
                kind=NoticeKind.SPOT_INTERRUPTION,
                action="terminate",
                deadline=now + timedelta(minutes=2),
                key="1",
                seen_at=now,
            ),
            Announced(kind=NoticeKind.REBALANCE, action="none", deadline=None, key="2", seen_at=now),
        ),
        up=True,
        hook_statuses={"spot_interruption": 0},
    )
