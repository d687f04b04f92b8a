"""The page of /v1/host, from what the agent knows anyway: nothing is read for it, and no command line is in it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from gpuwatch.agent.attribution.attribution import View
from gpuwatch.agent.evidence.snoozes import Snooze
from gpuwatch.agent.host_text import DOWN_REMEDIES, down_why, gpu_why, node_why
from gpuwatch.agent.processes.process import Kind, ProcessView
from gpuwatch.agent.published import Snapshot
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.gpu import GpuDown, GpuInfo, GpuProcess, GpuReading
from gpuwatch.model.gpu_identity import DownCause, order
from gpuwatch.model.host_page import (
    HOST_SCHEMA,
    HostGpu,
    HostInstance,
    HostPage,
    HostProcess,
    HostSnooze,
    HostTrouble,
    ProcessOnGpu,
)
from gpuwatch.model.mig import MigInstance
from gpuwatch.model.verdict import GpuVerdict
from gpuwatch.runtime.clock import Clock

_MOST_PROCESSES = 512
_MOST_SNOOZES = 64
_TABLE_VALID_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of the processes on the GPUs: their owners, the process table, which are the machine's own.

    A table in doubt is left out: where the agent has a PID namespace of its own, the driver's pids are others there.
    """

    users: View | None = None
    table: ProcessView | None = None
    own: frozenset[int] = frozenset()

    @classmethod
    def at_moment(
        cls, users: View | None, table: ProcessView | None, own: frozenset[int], now_monotonic: float
    ) -> "Known":
        """What of these may be used at that moment."""
        old = table is not None and now_monotonic - table.monotonic_seconds > _TABLE_VALID_SECONDS
        if table is None or table.doubt is not None or old:
            return cls(users=users)
        return cls(users=users, table=table, own=own)


def page_now(
    core: AgentCore,
    clock: Clock,
    *,
    hostname: str,
    known: Callable[[frozenset[GpuProcess]], Known],
    snoozes: Iterable[Snooze],
) -> HostPage:
    """The host as it is now. `known` is given the processes on the GPUs; it must not wait."""
    snapshot = core.snapshot(clock.monotonic())
    holders = frozenset(process for reading in snapshot.readings for process in reading.processes or ())
    return page_of(snapshot, hostname=hostname, known=known(holders), snoozes=snoozes)


def page_of(snapshot: Snapshot, *, hostname: str, known: Known = Known(), snoozes: Iterable[Snooze] = ()) -> HostPage:
    """One snapshot as a page."""
    everyone = _processes(snapshot.readings, known)
    verdicts = {gpu.uuid: gpu for gpu in snapshot.verdict.gpus}
    trouble = _trouble(snapshot)
    remedy = "" if trouble is None else trouble.remedy
    entries: tuple[GpuReading | GpuDown, ...] = (*snapshot.readings, *snapshot.downs)
    gpus = [
        _gpu(entry, verdict, everyone, remedy)
        for entry in entries
        if (verdict := verdicts.get(entry.info.uuid)) is not None  # every GPU of a published cycle has one
    ]
    infos = [entry.info for entry in entries]
    return HostPage(
        schema=HOST_SCHEMA,
        hostname=hostname,
        why=node_why(snapshot.verdict, everyone),
        verdict=snapshot.verdict,
        driver_version=_first(info.driver_version for info in infos),
        cuda_version=_first(info.cuda_version for info in infos),
        gpus=tuple(sorted(gpus, key=lambda gpu: order(gpu.uuid, gpu.index))),
        processes=everyone[:_MOST_PROCESSES],
        processes_left_out=max(0, len(everyone) - _MOST_PROCESSES),
        snoozes=tuple(
            HostSnooze(user=each.user, reason=each.reason, expires_at=each.expires_at)
            for each in list(snoozes)[:_MOST_SNOOZES]
        ),
        trouble=trouble,
    )


def _first(words: Iterable[str | None]) -> str | None:
    return next((word for word in words if word is not None), None)


def _trouble(snapshot: Snapshot) -> HostTrouble | None:
    """What ails the probe or the driver as a whole."""
    trouble = snapshot.trouble
    return None if trouble is None else HostTrouble(cause=trouble.cause, detail=trouble.detail, remedy=trouble.remedy)


def _gpu(entry: GpuReading | GpuDown, verdict: GpuVerdict, everyone: Iterable[HostProcess], remedy: str) -> HostGpu:
    """One GPU; `remedy` is that of the driver as a whole."""
    info, activity = entry.info, verdict.activity
    holders = [process for process in everyone if any(use.uuid == info.uuid for use in process.gpus)]
    down = _down(entry, remedy) if isinstance(entry, GpuDown) else None
    gpu = HostGpu(
        uuid=info.uuid,
        index=info.index,
        name=info.name,
        pci_bus_id=info.pci_bus_id,
        state=activity.state,
        held_seconds=activity.held_seconds,
        why=gpu_why(verdict, holders) if down is None else down_why(down, verdict.health),
        health=None if verdict.health is None else verdict.health.state,
        down=down,
    )
    return _with_measurements(gpu, entry) if isinstance(entry, GpuReading) else gpu


def _with_measurements(gpu: HostGpu, reading: GpuReading) -> HostGpu:
    """With the measurements of a GPU that was read."""
    return replace(
        gpu,
        utilization_ratio=reading.utilization_ratio,
        utilization_max_ratio=reading.utilization_max_ratio,
        sm_activity_ratio=reading.sm_activity_ratio,
        memory_used_bytes=reading.memory_used_bytes,
        memory_total_bytes=reading.memory_total_bytes,
        power_watts=reading.power_watts,
        power_limit_watts=reading.power_limit_watts,
        temperature_celsius=reading.temperature_celsius,
        clock_events=reading.clock_events,
        processes_listed=reading.processes is not None,
        instances=tuple(map(_instance, reading.mig_instances or ())),
    )


def _instance(instance: MigInstance) -> HostInstance:
    return HostInstance(
        id=instance.id,
        profile=_first(device.profile for device in instance.devices),
        sm_activity_ratio=instance.sm_activity_ratio,
        memory_used_bytes=instance.memory_used_bytes,
        memory_total_bytes=instance.memory_total_bytes,
        process_count=instance.process_count,
    )


def _down(down: GpuDown, remedy_of_all: str) -> HostTrouble:
    """Why a GPU gives no reading; what ails the driver as a whole has a remedy of its own."""
    remedy = DOWN_REMEDIES.get(down.cause, "")
    if down.cause in {DownCause.DRIVER, DownCause.RELEASED}:
        remedy = remedy_of_all or remedy
    return HostTrouble(cause=down.cause.value, detail=down.detail, remedy=remedy)


def _processes(readings: Iterable[GpuReading], known: Known) -> tuple[HostProcess, ...]:
    """Every process on the GPUs, those with the most memory first."""
    uses: dict[int, list[ProcessOnGpu]] = {}
    for reading in readings:
        for process in reading.processes or ():
            uses.setdefault(process.pid, []).append(_use(reading.info, process))
    found = (_process(pid, tuple(held), known) for pid, held in uses.items())
    return tuple(sorted(found, key=lambda each: (-(each.memory_bytes or 0), each.pid)))


def _use(info: GpuInfo, process: GpuProcess) -> ProcessOnGpu:
    return ProcessOnGpu(
        uuid=info.uuid,
        index=info.index,
        kind=process.kind,
        memory_bytes=process.memory_bytes,
        gpu_instance=process.gpu_instance,
        compute_instance=process.compute_instance,
    )


def _process(pid: int, held: tuple[ProcessOnGpu, ...], known: Known) -> HostProcess:
    """One process with what is known about it; whether the driver's pids are this host's was judged before."""
    users, table = known.users, known.table
    owner, workload = (None, None) if users is None else (users.owners.get(pid), users.workloads.get(pid))
    place = None if owner is None else owner.placement
    entry = None if table is None else table.processes.get(pid)
    kind = Kind.SERVICE if pid in known.own else None if entry is None else entry.kind
    return HostProcess(
        pid=pid,
        gpus=held,
        user=None if owner is None else owner.user,
        program=entry.name if entry is not None else None if owner is None else owner.name,
        kind=None if kind is None else kind.value,
        cpu_cores=None if table is None or entry is None or not table.cores else table.cores.get(pid, 0.0),
        container=(workload.container if workload else None) or (place.container_id if place else None),
        namespace=workload.namespace if workload else None,
        pod=workload.pod if workload else None,
        pod_uid=place.pod_uid if place else None,
        slurm_job=place.slurm_job if place else None,
        unit=place.systemd_unit if place else None,
        dead=users is not None and users.dead is not None and pid in users.dead,
    )
