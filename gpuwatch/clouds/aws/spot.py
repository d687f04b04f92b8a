"""What a spot instance's request makes of a stop and of an end."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from gpuwatch.clouds import CloudError
from gpuwatch.clouds.aws.places import Region

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

_IDS_A_CALL = 100  # a filter takes up to 200 values
_OVER = frozenset({"cancelled", "closed", "failed"})  # such a request launches nothing any more


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRequest:
    """One spot request: its `type` (one-time, persistent) and state in EC2's words, or why they are not known.

    `status` is the code of its last change, `status_at` when that was.
    """

    type: str | None = None
    state: str | None = None
    doubt: str | None = None
    status: str | None = None
    status_at: datetime | None = None


Requests = Mapping[str, SpotRequest]


def requests_of(place: Region, instances: "Iterable[InstanceTypeDef]") -> Requests:
    """The requests of the spot instances among these, by id. Source: DescribeSpotInstanceRequests to its last page.

    No answer is a doubt about these machines alone: the permission is younger than many a policy.
    """
    ids = sorted({instance["SpotInstanceRequestId"] for instance in instances if instance.get("SpotInstanceRequestId")})
    found: dict[str, SpotRequest] = {}
    try:
        for begin in range(0, len(ids), _IDS_A_CALL):
            found |= _described(place, ids[begin : begin + _IDS_A_CALL])
    except CloudError as error:
        return {each: SpotRequest(doubt=str(error)) for each in ids}
    return {each: found.get(each, SpotRequest(doubt="EC2 does not describe it")) for each in ids}


def _described(place: Region, ids: list[str]) -> dict[str, SpotRequest]:
    """One batch, by filter, because one unknown id fails a whole call."""
    pages = place.reading.ec2.get_paginator("describe_spot_instance_requests")
    with place.asking("DescribeSpotInstanceRequests"):
        return {
            request["SpotInstanceRequestId"]: SpotRequest(
                type=request["Type"],
                state=request["State"],
                status=request.get("Status", {}).get("Code"),
                status_at=request.get("Status", {}).get("UpdateTime"),
            )
            for page in pages.paginate(Filters=[{"Name": "spot-instance-request-id", "Values": ids}])
            for request in page["SpotInstanceRequests"]
        }


def cannot_stop(instance: "InstanceTypeDef", requests: Requests) -> str | None:
    """Why EC2 refuses to stop a machine."""
    if instance.get("RootDeviceType") == "instance-store":
        return "its root disk is an instance store"
    for name, request in _request(instance, requests):
        if request.type == "one-time":
            return f"its spot request {name} is one-time"
        if request.state in _OVER:
            return f"its spot request {name} is {request.state}"
    return None


def cannot_terminate(instance: "InstanceTypeDef", requests: Requests) -> str | None:
    """Why an end would not be the end: what launches the machine again, or might."""
    for name, request in _request(instance, requests):
        if request.doubt is not None:
            return f"its spot request {name} may launch it again: {request.doubt}"
        if request.type != "one-time" and request.state not in _OVER:
            return f"its {request.type} spot request {name} would launch it again"
    return None


def _request(instance: "InstanceTypeDef", requests: Requests) -> Iterator[tuple[str, SpotRequest]]:
    """The machine's own request, where it has one."""
    name = instance.get("SpotInstanceRequestId")
    if name:
        yield name, requests.get(name, SpotRequest(doubt="it was not asked for"))
