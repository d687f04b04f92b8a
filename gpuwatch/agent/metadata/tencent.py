"""Tencent Cloud's metadata service.

CVM pages "Querying Instance Metadata", "Querying the Reclamation Status of a Spot Instance". A spot instance's
termination time is in UTC+8, whatever the machine's own zone.
"""

from dataclasses import replace

from gpuwatch.agent.metadata.base import (
    FactQuestion,
    Facts,
    MetadataService,
    Notice,
    NoticeQuestion,
    fact,
    moment,
    text_of,
)
from gpuwatch.model.cloud_notice import NoticeKind

_BASE = "/latest/meta-data"
_TIME = "%Y-%m-%d %H:%M:%S%z"
_ZONE = "+0800"
_LIFECYCLES = {"SPOTPAID": "spot", "POSTPAID_BY_HOUR": "on-demand", "PREPAID": "prepaid"}


def charge_type(body: bytes, known: Facts) -> Facts:
    """payment/charge-type; an unknown one keeps the cloud's value."""
    said = text_of(body)
    return replace(known, lifecycle=_LIFECYCLES.get(said, said.lower()))


def termination_time(body: bytes, _: Facts) -> tuple[Notice, ...]:
    """spot/termination-time, such as 2018-08-18 12:05:33, which is 04:05:33 in UTC."""
    deadline = moment(text_of(body) + _ZONE, _TIME)
    return (Notice(kind=NoticeKind.SPOT_INTERRUPTION, action="release", deadline=deadline),)


TENCENT = MetadataService(
    provider="tencent",
    endpoint="http://169.254.0.23",  # metadata.tencentyun.com, without asking a name server that may hang
    headers={"Host": "metadata.tencentyun.com"},
    facts=(
        FactQuestion(path=f"{_BASE}/instance-id", parse=fact("instance_id")),
        FactQuestion(path=f"{_BASE}/instance/instance-type", parse=fact("instance_type")),
        FactQuestion(path=f"{_BASE}/placement/region", parse=fact("region")),
        FactQuestion(path=f"{_BASE}/placement/zone", parse=fact("zone")),
        FactQuestion(path=f"{_BASE}/payment/charge-type", parse=charge_type),
    ),
    notices=(
        NoticeQuestion(
            path=f"{_BASE}/spot/termination-time",
            parse=termination_time,
            not_for=frozenset({"on-demand", "prepaid"}),
        ),
    ),
)
