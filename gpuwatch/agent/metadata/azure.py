"""Azure's metadata service and its scheduled events (pages "Azure Instance Metadata Service", "Scheduled Events").

The least notice is 30 s for Preempt, 10 min for Redeploy, 15 min for Freeze and Reboot, 5 to 15 min for Terminate as
its owner set it. The first request switches the events on and may take two minutes. They list what happens to a whole
availability or scale set: only those that name this machine are its own.
"""

from dataclasses import dataclass, replace

from gpuwatch.agent.metadata.base import (
    FactQuestion,
    Facts,
    MetadataService,
    Notice,
    NoticeQuestion,
    decode_json,
    moment,
    word,
)
from gpuwatch.model.cloud_notice import NoticeKind

_TIME = "%a, %d %b %Y %H:%M:%S GMT%z"
_KINDS = {"Preempt": NoticeKind.SPOT_INTERRUPTION, "Terminate": NoticeKind.TERMINATION}
_OVER = frozenset({"Completed", "Canceled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compute:
    vmId: str  # noqa: N815  the cloud's own spelling
    vmSize: str  # noqa: N815  as above
    location: str
    name: str
    zone: str = ""
    priority: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    EventId: str
    EventType: str
    EventStatus: str = "Scheduled"
    Resources: tuple[str, ...] = ()
    NotBefore: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Events:
    Events: tuple[_Event, ...]


def compute(body: bytes, known: Facts) -> Facts:
    """instance/compute; a machine outside of the availability zones has an empty zone."""
    document = decode_json(body, _Compute)
    return replace(
        known,
        instance_id=word(document.vmId),
        instance_type=word(document.vmSize),
        region=word(document.location),
        zone=word(document.zone) if document.zone else None,
        lifecycle="spot" if document.priority in {"Spot", "Low"} else "on-demand",
        name=word(document.name),
    )


def scheduled_events(body: bytes, known: Facts) -> tuple[Notice, ...]:
    """This machine's events; an event that has started has no time; it is now."""
    events = [event for event in decode_json(body, _Events).Events if event.EventStatus not in _OVER]
    if events and known.name is None:
        raise ValueError("there are events, but the name of this machine is missing")
    return tuple(
        Notice(
            kind=_KINDS.get(event.EventType, NoticeKind.MAINTENANCE),
            action=word(event.EventType),
            deadline=moment(f"{event.NotBefore}+0000", _TIME) if event.NotBefore else None,
            lead_seconds=None if event.NotBefore else 0.0,
            about=event.EventId,
        )
        for event in events
        if str(known.name).casefold() in map(str.casefold, event.Resources)  # Azure keeps no case of names
    )


AZURE = MetadataService(
    provider="azure",
    endpoint="http://169.254.169.254",
    headers={"Metadata": "true"},
    facts=(FactQuestion(path="/metadata/instance/compute?api-version=2021-02-01", parse=compute),),
    notices=(NoticeQuestion(path="/metadata/scheduledevents?api-version=2020-07-01", parse=scheduled_events),),
    remedies={
        "timeout": "the first request of a machine switches scheduled events on and may take two minutes; if it lasts,"
        " ask Azure's support",
    },
)
