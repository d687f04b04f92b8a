"""Google's metadata server.

Pages "Spot VMs", "Handling GPU host maintenance events", "Monitor and plan for a host maintenance event".
A preempted VM has 30 s from the notice; a VM with GPUs an hour before its host's maintenance stops it, one that is
migrated 60 s. None of the two names a time, so the deadline counts from when the notice was first seen. Machine types
with planned maintenance also name their window.
"""

from collections.abc import Callable
from dataclasses import replace

from gpuwatch.agent.metadata.base import (
    FactQuestion,
    Facts,
    MetadataService,
    Notice,
    NoticeQuestion,
    decode_json,
    fact,
    moment,
    text_of,
)
from gpuwatch.model.cloud_notice import NoticeKind

_BASE = "/computeMetadata/v1/instance"
_ISO = "%Y-%m-%dT%H:%M:%S%z"
_PREEMPTION_SECONDS = 30.0
_MAINTENANCE_SECONDS = {"TERMINATE_ON_HOST_MAINTENANCE": 3600.0, "MIGRATE_ON_HOST_MAINTENANCE": 60.0}
_SWITCH = {"TRUE": True, "FALSE": False}
_NO_WINDOW = b"no notifications have been received yet"


def last_of(name: str) -> Callable[[bytes, Facts], Facts]:
    """A parser of `projects/1/machineTypes/a3-highgpu-8g` and the like."""

    def parse(body: bytes, known: Facts) -> Facts:
        return replace(known, **{name: text_of(body.rpartition(b"/")[2])})

    return parse


def zone(body: bytes, known: Facts) -> Facts:
    """`projects/1/zones/us-central1-a`, from which the region follows."""
    found = text_of(body.rpartition(b"/")[2])
    region, dash, _ = found.rpartition("-")
    if not dash:
        raise ValueError(f"{found!r} is not a zone")
    return replace(known, zone=found, region=region)


def preemptible(body: bytes, known: Facts) -> Facts:
    """scheduling/preemptible, TRUE for spot machines as well."""
    return replace(known, lifecycle="spot" if _switch(body) else "on-demand")


def preemption_notices(body: bytes, _: Facts) -> tuple[Notice, ...]:
    """instance/preempted: TRUE from the notice on."""
    notice = Notice(kind=NoticeKind.SPOT_INTERRUPTION, action="preempt", lead_seconds=_PREEMPTION_SECONDS)
    return (notice,) if _switch(body) else ()


def maintenance_event(body: bytes, _: Facts) -> tuple[Notice, ...]:
    """NONE, or what will be done."""
    event = text_of(body)
    if event == "NONE":
        return ()
    if event not in _MAINTENANCE_SECONDS:
        raise ValueError(f"expected NONE, {' or '.join(_MAINTENANCE_SECONDS)}")
    return (Notice(kind=NoticeKind.MAINTENANCE, action=event.lower(), lead_seconds=_MAINTENANCE_SECONDS[event]),)


def upcoming_maintenance(body: bytes, _: Facts) -> tuple[Notice, ...]:
    """The planned window; Google writes its keys in two ways, and an empty one means that nothing is planned."""
    if body.strip() in {b"NONE", b'"NONE"'}:
        return ()
    window = {key.replace("_", "").lower(): value for key, value in decode_json(body, dict[str, object]).items()}
    if not window or window.get("maintenancestatus") == "COMPLETE":
        return ()
    start = window.get("windowstarttime")
    if not isinstance(start, str):
        raise ValueError("it names no windowStartTime")  # noqa: TRY004  a parser's one complaint
    return (Notice(kind=NoticeKind.MAINTENANCE, action="upcoming_maintenance", deadline=moment(start, _ISO)),)


def _switch(body: bytes) -> bool:
    said = text_of(body)
    if said not in _SWITCH:
        raise ValueError("expected TRUE or FALSE")
    return _SWITCH[said]


GCP = MetadataService(
    provider="gcp",
    endpoint="http://169.254.169.254",
    headers={"Metadata-Flavor": "Google"},
    facts=(
        FactQuestion(path=f"{_BASE}/id", parse=fact("instance_id")),
        FactQuestion(path=f"{_BASE}/machine-type", parse=last_of("instance_type")),
        FactQuestion(path=f"{_BASE}/zone", parse=zone),
        FactQuestion(path=f"{_BASE}/scheduling/preemptible", parse=preemptible),
    ),
    notices=(
        NoticeQuestion(path=f"{_BASE}/preempted", parse=preemption_notices, not_for=frozenset({"on-demand"})),
        NoticeQuestion(path=f"{_BASE}/maintenance-event", parse=maintenance_event),
        NoticeQuestion(path=f"{_BASE}/upcoming-maintenance?alt=json", parse=upcoming_maintenance, nothing=_NO_WINDOW),
    ),
)
