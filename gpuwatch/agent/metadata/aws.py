"""EC2's instance metadata service, version 2 (AWS EC2 User Guide, "Instance metadata categories").

Spot: two minutes (page "Spot Instance interruption notices"), none for hibernation. A rebalance recommendation names
when it was made and no deadline. Scheduled events come days or weeks ahead (page "Scheduled events"). No category shows
when a Capacity Block ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuwatch.agent.metadata.base import (
    FactQuestion,
    Facts,
    MetadataService,
    Notice,
    NoticeQuestion,
    TokenScheme,
    decode_json,
    moment,
    text_of,
    word,
)
from gpuwatch.model.cloud_notice import NoticeKind

_ISO = "%Y-%m-%dT%H:%M:%S%z"
_EVENT_TIME = "%d %b %Y %H:%M:%S GMT%z"
_OVER = frozenset({"completed", "canceled"})
_LIFECYCLES = {"capacity-block": "capacity_block"}  # as model.fleet.CapacityType has it
_NEVER_INTERRUPTED = frozenset({"on-demand", "scheduled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Identity:
    instanceId: str  # noqa: N815  the cloud's own spelling
    instanceType: str  # noqa: N815  as above
    region: str
    availabilityZone: str  # noqa: N815  as above


@dataclass(frozen=True, slots=True, kw_only=True)
class _InstanceAction:
    action: str
    time: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rebalance:
    noticeTime: str  # noqa: N815  as above


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    Code: str
    NotBefore: str
    EventId: str = ""
    State: str = "active"


def identity(body: bytes, known: Facts) -> Facts:
    """The instance identity document."""
    document = decode_json(body, _Identity)
    return replace(
        known,
        instance_id=word(document.instanceId),
        instance_type=word(document.instanceType),
        region=word(document.region),
        zone=word(document.availabilityZone),
    )


def life_cycle(body: bytes, known: Facts) -> Facts:
    """instance-life-cycle; an unknown one keeps the cloud's value."""
    said = text_of(body)
    return replace(known, lifecycle=_LIFECYCLES.get(said, said))


def instance_action(body: bytes, _: Facts) -> tuple[Notice, ...]:
    """spot/instance-action: what will be done, and when."""
    document = decode_json(body, _InstanceAction)
    deadline = moment(document.time, _ISO)
    return (Notice(kind=NoticeKind.SPOT_INTERRUPTION, action=word(document.action), deadline=deadline),)


def rebalance(body: bytes, _: Facts) -> tuple[Notice, ...]:
    """events/recommendations/rebalance: when it was recommended."""
    made = moment(decode_json(body, _Rebalance).noticeTime, _ISO)
    return (Notice(kind=NoticeKind.REBALANCE, action="rebalance", about=made.isoformat()),)


def scheduled_events(body: bytes, _: Facts) -> tuple[Notice, ...]:
    """events/maintenance/scheduled: reboots, stops, retirements, network and power work."""
    return tuple(
        Notice(
            kind=NoticeKind.MAINTENANCE,
            action=word(event.Code),
            deadline=moment(f"{event.NotBefore}+0000", _EVENT_TIME),
            about=event.EventId,
        )
        for event in decode_json(body, list[_Event])
        if event.State not in _OVER
    )


_REMEDIES: Mapping[str, str] = {
    "hop_limit": "in a container the answer needs a second hop: set the instance's HttpPutResponseHopLimit to 2 or more"
    " (aws ec2 modify-instance-metadata-options), or run the agent in the host's network",
    "disabled": "set the instance's HttpEndpoint to enabled (aws ec2 modify-instance-metadata-options)",
    "unreachable": "check that HttpEndpoint is enabled and that no firewall or network policy keeps the agent from it",
}

AWS = MetadataService(
    provider="aws",
    endpoint="http://169.254.169.254",
    token=TokenScheme(
        path="/latest/api/token",
        ttl_header="X-aws-ec2-metadata-token-ttl-seconds",
        header="X-aws-ec2-metadata-token",
    ),
    facts=(
        FactQuestion(path="/latest/dynamic/instance-identity/document", parse=identity),
        FactQuestion(path="/latest/meta-data/instance-life-cycle", parse=life_cycle),
    ),
    notices=(
        NoticeQuestion(
            path="/latest/meta-data/spot/instance-action", parse=instance_action, not_for=_NEVER_INTERRUPTED
        ),
        NoticeQuestion(
            path="/latest/meta-data/events/recommendations/rebalance", parse=rebalance, not_for=_NEVER_INTERRUPTED
        ),
        NoticeQuestion(path="/latest/meta-data/events/maintenance/scheduled", parse=scheduled_events),
    ),
    remedies=_REMEDIES,
)
