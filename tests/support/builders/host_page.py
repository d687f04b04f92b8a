"""Hosts as `gpuwatch top` shows them: made readings, through the agent's own core and page."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.attribution.attribution import View
from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.attribution.pods import Workload
from gpuwatch.agent.attribution.process import Owner
from gpuwatch.agent.evidence.snoozes import Snooze
from gpuwatch.agent.host_page import Known, page_of
from gpuwatch.agent.processes.process import Kind, Process, ProcessView
from gpuwatch.agent.published import Snapshot
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.activity import Evidence, LocalDisks
from gpuwatch.model.gpu import DownCause, GpuDown, GpuProcess, GpuReading, ProcessKind
from gpuwatch.model.host_page import HostPage
from gpuwatch.model.mig import MigDevice, MigInstance
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.gpu import GIB, START, a_busy_reading, a_cycle, a_down, a_reading

GRAPHICS = ProcessKind.GRAPHICS


@dataclass(frozen=True, slots=True, kw_only=True)
class Someone:
    """A process on a GPU, and whose it is."""

    pid: int
    program: str | None = "python3"
    user: str | None = "alice"
    kind: Kind | None = Kind.PEOPLE
    cores: float = 1.0
    place: Placement = field(default_factory=Placement)
    pod: Workload | None = None
    dead: bool = False


def known(people: Iterable[Someone]) -> Known:
    """What the agent knows of these processes."""
    everyone = list(people)
    table = {
        each.pid: Process(
            pid=each.pid,
            started_ticks=1,
            parent=1,
            group=1,
            session=1,
            tty=0,
            state="R",
            name=each.program,
            executable=None,
            uid=1000,
            kind=each.kind,
        )
        for each in everyone
        if each.program is not None and each.kind is not None
    }
    return Known(
        users=View(
            monotonic_seconds=0.0,
            owners={each.pid: Owner(user=each.user, placement=each.place) for each in everyone},
            workloads={each.pid: each.pod for each in everyone if each.pod is not None},
            dead=frozenset(each.pid for each in everyone if each.dead),
        ),
        table=ProcessView(
            monotonic_seconds=0.0, processes=table, cores={each.pid: each.cores for each in everyone if each.cores}
        ),
        own=frozenset(each.pid for each in everyone if each.kind is Kind.SERVICE),
    )


def named(entry: GpuReading, name: str = "NVIDIA H100 80GB HBM3") -> GpuReading:
    """The reading of a GPU of that model."""
    info = replace(entry.info, name=name, cuda_version="13.0")
    return replace(entry, info=info)


def a_snapshot(
    *entries: GpuReading | GpuDown,
    seconds: int = 3,
    own: frozenset[int] = frozenset(),
    host: tuple[Evidence, ...] = (),
    disks: LocalDisks | None = None,
    blind: tuple[str, ...] = (),
) -> Snapshot:
    """What an agent knows after so many seconds of the same."""
    clock = ManualClock(elapsed_seconds=1000.0)
    core = AgentCore(
        node_id="trainer-7",
        clock=clock,
        rules=ActivityRules(),
        interval_seconds=1.0,
        stale_after_seconds=10.0,
        host=lambda _: host,
        service_pids=lambda holders: own.intersection(each.pid for each in holders),
        blind=lambda: blind,
        local_disks=lambda _: disks,
    )
    for second in range(seconds + 1):
        core.ingest_messages(a_cycle(second, clock.monotonic(), *entries))
        clock.advance(1.0)
    return core.snapshot(clock.monotonic())


def a_page(
    *entries: GpuReading | GpuDown,
    people: Iterable[Someone] = (),
    snoozes: Iterable[Snooze] = (),
    **of_host: Any,  # noqa: ANN401  as a_snapshot takes them
) -> HostPage:
    """That as the page of host `trainer-7`."""
    everyone = known(people)
    snapshot = a_snapshot(*entries, own=everyone.own, **of_host)
    return page_of(snapshot, hostname="trainer-7", known=everyone, snoozes=snoozes)


def holds(
    *pids: int, gib: Mapping[int, float] | None = None, kind: ProcessKind = ProcessKind.COMPUTE
) -> list[GpuProcess]:
    """Processes with 10 GiB each, or with what is named."""
    sizes = gib or {}
    return [GpuProcess(pid=pid, kind=kind, memory_bytes=round(sizes.get(pid, 10.0) * GIB)) for pid in pids]


PEOPLE = (
    Someone(pid=4711, program="torchrun", cores=31.5, place=Placement(systemd_unit="session-3.scope")),
    Someone(pid=4801, user="bob", program="jupyter-lab", cores=0.0, place=Placement(systemd_unit="jupyter.service")),
    Someone(pid=5001, user="1001", program="vllm", pod=Workload(namespace="serving", pod="llama-0", container="srv")),
    Someone(pid=5002, user="carol", place=Placement(slurm_job="81234")),
    Someone(pid=5003, user="carol", place=Placement(slurm_job="81234")),
    Someone(pid=5004, user="dave", program="a-program-with-a-name", place=Placement(container_id="0123456789ab")),
    *(Someone(pid=6000 + number, user="erin", program="eval", cores=0.4) for number in range(3)),
    Someone(pid=7001, user="root", program="dcgmi", kind=Kind.SERVICE, cores=0.1),
    Someone(pid=7002, user="root", program="Xorg", kind=Kind.SERVICE, cores=0.1),
    Someone(pid=7003, user=None, program=None, kind=None, dead=True),
)


def a_full_host() -> HostPage:
    """Eight GPUs with twelve processes: work over four GPUs, memory that is only held, a lost GPU, an ailing one."""
    busy = {"sm_activity_ratio": 0.87, "temperature_celsius": 64.0, "utilization_ratio": 0.97, "power_watts": 612.0}
    rest = {"sm_activity_ratio": 0.0, "temperature_celsius": 31.0}
    work = [
        named(a_busy_reading(gpu, **busy, memory_used_bytes=62 * GIB, processes=tuple(holds(4711, gib={4711: 61.2}))))
        for gpu in range(4)
    ]
    held = a_reading(4, **rest, memory_used_bytes=40 * GIB, processes=tuple(holds(4801, 6000, 6001, 6002)))
    serving = a_busy_reading(5, **busy, memory_used_bytes=30 * GIB, processes=tuple(holds(5001, 5002, 5003, 5004)))
    ailing = a_reading(7, **rest, remapped_rows_pending=1, processes=(*holds(7001), *holds(7002, kind=GRAPHICS)))
    others = [named(each) for each in (held, serving, ailing)]
    lost = a_down(6, DownCause.LOST, "GPU is lost")
    lost = replace(lost, info=replace(lost.info, name="NVIDIA H100 80GB HBM3"))
    dead = replace(others[1], processes=(*(others[1].processes or ()), *holds(7003, gib={7003: 2.5})))
    return a_page(
        *work,
        others[0],
        dead,
        lost,
        others[2],
        people=PEOPLE,
        snoozes=[a_snooze()],
        disks=LocalDisks.USED,
        seconds=130,
    )


def a_snooze() -> Snooze:
    """Alice wants the machine until eight in the morning."""
    return Snooze(user="alice", reason="evaluation", expires_at=START + timedelta(hours=8), left_seconds=8 * 3600.0)


def a_split_gpu(gpu: int, instances: int = 7) -> GpuReading:
    """A GPU that MIG splits; the first instance works."""
    parts = tuple(
        MigInstance(
            id=number + 1,
            devices=(MigDevice(uuid=f"MIG-{gpu}-{number}", compute_instance=0, profile="1g.10gb"),),
            process_count=int(number == 0),
            memory_total_bytes=10 * GIB,
            memory_used_bytes=(9 if number == 0 else 0) * GIB,
            sm_activity_ratio=0.8 if number == 0 else 0.0,
        )
        for number in range(instances)
    )
    process = GpuProcess(pid=4711, kind=ProcessKind.COMPUTE, memory_bytes=9 * GIB, gpu_instance=1, compute_instance=0)
    return named(
        a_reading(gpu, utilization_ratio=None, mig_mode=1, mig_instances=parts, processes=(process,), power_watts=200.0)
    )
