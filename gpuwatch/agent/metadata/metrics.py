"""The instance on the agent's pages: its metrics and its part of /healthz."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime

from gpuwatch.agent.metadata.watcher import InstanceStatus
from gpuwatch.model.gpu import Kind

_INFO = "info"
_FACTS = ("instance_id", "instance_type", "region", "zone", "lifecycle")
_NOTICE = ("kind", "action")
_SOURCE = "the cloud's metadata service"

# As agent.catalogue lists them.
FAMILIES: tuple[tuple[str, str, tuple[str, ...], str, str], ...] = (
    (
        "gpuwatch_instance_info",
        _INFO,
        ("provider", *_FACTS),
        "What the machine is to its cloud; lifecycle: spot, on-demand, capacity_block or another. Absent elsewhere.",
        _SOURCE,
    ),
    (
        "gpuwatch_instance_notice_info",
        _INFO,
        _NOTICE,
        "1 while the cloud gives notice: spot_interruption, rebalance, maintenance, termination. Absent without one.",
        _SOURCE,
    ),
    (
        "gpuwatch_instance_notice_deadline_timestamp_seconds",
        Kind.GAUGE,
        _NOTICE,
        "Unix time at which the announced action begins; absent if the cloud gives none (rebalance).",
        f"{_SOURCE}; where it names no time, first sight plus the cloud's lead time (docs/cloud-metadata.md)",
    ),
    (
        "gpuwatch_instance_metadata_up",
        Kind.GAUGE,
        (),
        "1 if the metadata service answered, 0 if not: then a notice may stand unknown. Absent where no cloud is.",
        "the agent",
    ),
    (
        "gpuwatch_instance_metadata_down_info",
        _INFO,
        ("cause",),
        "Why it does not answer: hop_limit, disabled, unreachable, timeout and the like; /healthz has the words.",
        "the agent",
    ),
    (
        "gpuwatch_instance_hook_exit_status",
        Kind.GAUGE,
        ("kind",),
        "How on_interruption last ended: 0, its status, 127 if it could not start, below 0 the signal that ended it.",
        "the agent",
    ),
)


def rows(status: InstanceStatus | None) -> Iterator[tuple[str, tuple[str | None, ...], float]]:
    """Every sample; of several notices of one kind and action the soonest counts."""
    if status is None or status.up is None:
        return
    facts = tuple(getattr(status.facts, name) for name in _FACTS)
    yield "gpuwatch_instance_info", (status.provider, *facts), 1
    soonest: dict[tuple[str, str], datetime | None] = {}
    for notice in status.notices:
        key = (notice.kind.value, notice.action)
        known = [at for at in (soonest.get(key), notice.deadline) if at is not None]
        soonest[key] = min(known, default=None)
    for key, deadline in soonest.items():
        yield "gpuwatch_instance_notice_info", key, 1
        if deadline is not None:
            yield "gpuwatch_instance_notice_deadline_timestamp_seconds", key, deadline.timestamp()
    yield "gpuwatch_instance_metadata_up", (), status.up
    if status.trouble is not None:
        yield "gpuwatch_instance_metadata_down_info", (status.trouble.cause,), 1
    for kind, ended in status.hook_statuses.items():
        yield "gpuwatch_instance_hook_exit_status", (kind,), ended


def health(status: InstanceStatus | None) -> dict[str, object]:
    """The same for people; nothing on a machine that is no cloud's."""
    if status is None:
        return {}
    trouble = status.trouble
    state = "starting" if status.up is None else "up" if status.up else "down"
    metadata = {"state": state} if trouble is None else {"state": state, **asdict(trouble)}
    notices = [{"kind": each.kind, "action": each.action, "deadline": each.deadline} for each in status.notices]
    return {"instance": {"provider": status.provider, "metadata": metadata, "notices": notices}}
