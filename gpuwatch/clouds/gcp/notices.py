"""PURE: what the description of an instance says of its end.

Source: `resourceStatus` of instances.get. `scheduling.terminationTimestamp` is the end of a limited run time
(`maxRunDuration`, `terminationTime`, flex-start); `upcomingMaintenance` is a maintenance window. A machine that Google
moves to another host goes on, so that its window is no end.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from gpuwatch.clouds.gcp.client import Json
from gpuwatch.model.cloud_notice import CloudNotice, NoticeKind

_TERMINATES = "TERMINATE"  # onHostMaintenance of all machines with GPUs
_AHEAD = frozenset({"PENDING", "ONGOING"})


def announced(described: Json, now: datetime) -> tuple[CloudNotice, ...]:
    """Its notices."""
    return tuple(_found(described, now))


def _found(described: Json, now: datetime) -> Iterator[CloudNotice]:
    told, wanted = described.get("resourceStatus") or {}, described.get("scheduling") or {}
    end = _time((told.get("scheduling") or {}).get("terminationTimestamp") or wanted.get("terminationTime"))
    if end is not None:
        action = f"{str(wanted.get('instanceTerminationAction') or 'STOP').lower()}_at_end_of_run_time"
        yield CloudNotice(kind=NoticeKind.TERMINATION.value, action=action, deadline=end, seen_at=now)
    window = told.get("upcomingMaintenance") or {}
    begins = _time(window.get("windowStartTime"))
    if (
        begins is not None
        and window.get("maintenanceStatus") in _AHEAD
        and wanted.get("onHostMaintenance") == _TERMINATES
    ):
        action = "terminate_on_host_maintenance"
        yield CloudNotice(kind=NoticeKind.MAINTENANCE.value, action=action, deadline=begins, seen_at=now)


def _time(text: object) -> datetime | None:
    """RFC 3339; None: it is no such time."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return None if found.tzinfo is None else found.astimezone(UTC)
