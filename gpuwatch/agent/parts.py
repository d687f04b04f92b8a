"""The parts that read a host and judge it, put together: for the running agent, and for `gpuwatch top` without one."""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.agent.attribution.attribution import Attribution
from gpuwatch.agent.evidence.registry import HostSignals
from gpuwatch.agent.health.watch import HealthWatch
from gpuwatch.agent.probe.supervisor import ProbeSupervisor
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.agent.state import AgentCore
from gpuwatch.runtime.clock import Clock

if TYPE_CHECKING:
    from gpuwatch.model.gpu import GpuProcess
    from gpuwatch.model.host_page import HostPage


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What reads and judges one host; nothing has begun. `page` is the host as it is known at that moment."""

    core: AgentCore
    host: HostSignals
    users: Attribution
    supervisor: ProbeSupervisor
    page: Callable[[], "HostPage"]


def days_file(settings: AgentSettings) -> Path | None:
    """The file of what programs do day by day: in the unit's state directory, else in the folder of the GPUs' health.

    None: this agent keeps nothing, or reports of another host.
    """
    state = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if not settings.reads_this_host or (not state and settings.health_file == "none"):
        return None
    return (Path(state) if state else Path(settings.health_file).parent) / "days.json"


def host_name() -> str:
    """The host's name for people; in a pod, that of its node."""
    return os.environ.get("NODE_NAME") or socket.gethostname()


def assemble_parts(
    settings: AgentSettings, clock: Clock, *, node_id: str, health: HealthWatch, keeps_days: bool = False
) -> Parts:
    """The parts for these settings; `keeps_days` is whether what programs do day by day is kept in a file."""
    real = settings.reads_this_host  # other sources report processes of another host
    host = HostSignals(
        settings.evidence,
        clock,
        own_processes=real,
        workloads=settings.workloads,
        services=settings.services,
        gpu_pods=lambda: users.watched_pods(),  # noqa: PLW0108  made below
    )
    if keeps_days and (file := days_file(settings)) is not None:
        host.keep_days(file)
    core = AgentCore(
        node_id=node_id,
        clock=clock,
        rules=settings.activity,
        interval_seconds=settings.interval,
        stale_after_seconds=settings.stale_after_seconds,
        host=host.evidence,
        health=health,
        service_pids=host.service_pids,
        owner=host.owner,
        blind=host.blind.sentences,
        login_free=host.login_free,
        local_disks=host.local_disks,
        cpu_utilization=host.cpu_utilization,
        pods=lambda: (users.pods(), users.others()),
        pod_looks=host.pods,
    )
    users = Attribution(settings.attribution, clock, lambda: core.snapshot(clock.monotonic()))

    def page() -> "HostPage":
        from gpuwatch.agent.host_page import Known, page_now  # noqa: PLC0415  loaded once somebody looks

        def known(holders: "frozenset[GpuProcess]") -> Known:
            return Known.at_moment(users.view(), host.processes(), host.service_pids(holders), clock.monotonic())

        return page_now(core, clock, hostname=host_name(), known=known, snoozes=host.snoozes())

    return Parts(
        core=core,
        host=host,
        users=users,
        supervisor=ProbeSupervisor(core, settings, clock),
        page=page,
    )
