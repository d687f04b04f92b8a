"""Alibaba Cloud's metadata service (ECS pages "Instance metadata", "Detect and respond to spot interruptions").

A spot instance is released five minutes after its termination time appears, which is in UTC. The service does not show
how the instance is paid for. Of maintenance/active-system-events the pages say that it exists, and "None" as the
example of what it says; the form of an event and the zone of its times are not documented, so it is not asked.
"""

from dataclasses import replace

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
_FACTS = {"instance_id": "instance-id", "instance_type": "instance-type", "region": "region-id", "zone": "zone-id"}


def identity(body: bytes, known: Facts) -> Facts:
    """The instance identity document."""
    document = decode_json(body, dict[str, object])
    found = {name: document.get(key) for name, key in _FACTS.items()}
    lacking = [_FACTS[name] for name, value in found.items() if not isinstance(value, str)]
    if lacking:
        raise ValueError(f"it lacks {', '.join(lacking)}")
    return replace(known, **{name: word(str(value)) for name, value in found.items()})


def termination_time(body: bytes, _: Facts) -> tuple[Notice, ...]:
    """instance/spot/termination-time, such as 2020-04-07T17:03:00Z."""
    deadline = moment(text_of(body), _ISO)
    return (Notice(kind=NoticeKind.SPOT_INTERRUPTION, action="release", deadline=deadline),)


ALIBABA = MetadataService(
    provider="alibaba",
    endpoint="http://100.100.100.200",
    token=TokenScheme(
        path="/latest/api/token",
        ttl_header="X-aliyun-ecs-metadata-token-ttl-seconds",
        header="X-aliyun-ecs-metadata-token",
        optional=True,
    ),
    facts=(FactQuestion(path="/latest/dynamic/instance-identity/document", parse=identity),),
    notices=(NoticeQuestion(path="/latest/meta-data/instance/spot/termination-time", parse=termination_time),),
    remedies={"disabled": "switch the instance's metadata access on (ECS console, or ModifyInstanceMetadataOptions)"},
)
