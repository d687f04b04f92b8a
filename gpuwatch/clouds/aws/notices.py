"""What EC2 and its spot requests make of a machine's end: what a request allows, and what is announced."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from gpuwatch.clouds import AuthFailedError, CloudError
from gpuwatch.clouds.aws.client import DescribedInstance
from gpuwatch.clouds.aws.places import Region
from gpuwatch.model.cloud_notice import CloudNotice, NoticeKind
from gpuwatch.runtime.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_ec2.literals import EventCodeType

# What a spot instance's request makes of a stop and of an end.

_IDS_A_CALL = 100  # a filter takes up to 200 values
_ENDED_REQUEST = frozenset({"cancelled", "closed", "failed"})  # such a request launches nothing any more


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


def requests_of(place: Region, instances: Iterable[DescribedInstance]) -> Requests:
    """The requests of the spot instances among these, by id. Source: DescribeSpotInstanceRequests to its last page.

    No answer is a doubt about these machines alone: the permission is younger than many a policy.
    """
    ids = sorted({instance["SpotInstanceRequestId"] for instance in instances if instance.get("SpotInstanceRequestId")})
    found: dict[str, SpotRequest] = {}
    try:
        for begin in range(0, len(ids), _IDS_A_CALL):
            found |= _describe_batch(place, ids[begin : begin + _IDS_A_CALL])
    except CloudError as error:
        return {each: SpotRequest(doubt=str(error)) for each in ids}
    return {each: found.get(each, SpotRequest(doubt="EC2 does not describe it")) for each in ids}


def _describe_batch(place: Region, ids: list[str]) -> dict[str, SpotRequest]:
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


def cannot_stop(instance: DescribedInstance, requests: Requests) -> str | None:
    """Why EC2 refuses to stop a machine."""
    if instance.get("RootDeviceType") == "instance-store":
        return "its root disk is an instance store"
    for name, request in _request(instance, requests):
        if request.type == "one-time":
            return f"its spot request {name} is one-time"
        if request.state in _ENDED_REQUEST:
            return f"its spot request {name} is {request.state}"
    return None


def cannot_terminate(instance: DescribedInstance, requests: Requests) -> str | None:
    """Why an end would not be the end: what launches the machine again, or might."""
    for name, request in _request(instance, requests):
        if request.doubt is not None:
            return f"its spot request {name} may launch it again: {request.doubt}"
        if request.type != "one-time" and request.state not in _ENDED_REQUEST:
            return f"its {request.type} spot request {name} would launch it again"
    return None


def _request(instance: DescribedInstance, requests: Requests) -> Iterator[tuple[str, SpotRequest]]:
    """The machine's own request, where it has one."""
    name = instance.get("SpotInstanceRequestId")
    if name:
        yield name, requests.get(name, SpotRequest(doubt="it was not asked for"))


log = logging.getLogger(__name__)

# Of InstanceStatusEvent.Code those after which the machine does not go on; reboots and maintenance leave it.
_ENDING: "Sequence[EventCodeType]" = ("instance-retirement", "instance-stop")
_OVER = ("[Completed]", "[Canceled]")  # at the begin of an event's description
# Status.Code of a spot request within the two minutes of an interruption notice ("Spot request status codes").
_MARKED = {"marked-for-termination": "terminate", "marked-for-stop": "stop"}
_SPOT_NOTICE = timedelta(minutes=2)
# "Capacity Blocks for ML": instances are terminated from 30 minutes before the end on.
_BLOCK, _BLOCK_ENDS_BEFORE = "capacity-block", timedelta(minutes=30)
_ASK_AGAIN_SECONDS = 600.0  # after a call that is not allowed: the permission is younger than many a policy

Found = dict[str, list[CloudNotice]]


class Notices:
    """By place: what is about to end there. No answer is a doubt, and no reason to leave a machine out."""

    def __init__(self, clock: Clock) -> None:
        """Nothing has been asked."""
        self._clock = clock
        self._denied: dict[tuple[str, str], float] = {}  # place and call: when to ask again, of the monotonic clock

    def notices_of(
        self, place: Region, instances: Sequence[DescribedInstance], requests: Requests
    ) -> dict[str, tuple[CloudNotice, ...] | None]:
        """The notices of each of these instances by its id; None: nobody knows whether it has any."""
        now = self._clock.now()
        events = self._ask_ec2(place, "DescribeInstanceStatus", lambda: _events(place, now)) if instances else {}
        blocks = [each for each in instances if each.get("InstanceLifecycle") == _BLOCK]
        ends = (
            self._ask_ec2(place, "DescribeCapacityReservations", lambda: _block_ends(place, blocks, now))
            if blocks
            else {}
        )
        in_blocks = {each["InstanceId"] for each in blocks}
        found: dict[str, tuple[CloudNotice, ...] | None] = {}
        for instance in instances:
            name = instance["InstanceId"]
            known = [*_of_spot(instance, requests, now), *(events or {}).get(name, ()), *(ends or {}).get(name, ())]
            doubt = events is None or (ends is None and name in in_blocks)
            found[name] = None if doubt and not known else tuple(known)
        return found

    def _ask_ec2(self, place: Region, call: str, ask: Callable[[], Found]) -> Found | None:
        """The answer; None: EC2 gave none. What is not allowed is said once, and asked for again after a while."""
        key = (place.name, call)
        if self._denied.get(key, 0.0) > self._clock.monotonic():
            return None
        try:
            found = ask()
        except CloudError as error:
            if isinstance(error, AuthFailedError):
                if key not in self._denied:
                    log.warning("What EC2 will end in %s is known by agents alone: %s", place.name, error)
                self._denied[key] = self._clock.monotonic() + _ASK_AGAIN_SECONDS
            return None
        self._denied.pop(key, None)
        return found


def _events(place: Region, now: datetime) -> Found:
    """Scheduled events that end a machine. Source: DescribeInstanceStatus by event.code, to its last page."""
    found: Found = {}
    pages = place.reading.ec2.get_paginator("describe_instance_status")
    with place.asking("DescribeInstanceStatus"):
        for page in pages.paginate(Filters=[{"Name": "event.code", "Values": list(_ENDING)}]):
            for status in page["InstanceStatuses"]:
                for event in status.get("Events", ()):
                    code, begins = event.get("Code", ""), event.get("NotBefore")
                    if code in _ENDING and begins is not None and not event.get("Description", "").startswith(_OVER):
                        notice = _notice(NoticeKind.MAINTENANCE, code, begins, now)
                        found.setdefault(status["InstanceId"], []).append(notice)
    return found


def _block_ends(place: Region, instances: Iterable[DescribedInstance], now: datetime) -> Found:
    """When the blocks of these instances end. Source: DescribeCapacityReservations by end-date-type."""
    ends: dict[str, datetime] = {}
    pages = place.reading.ec2.get_paginator("describe_capacity_reservations")
    with place.asking("DescribeCapacityReservations"):
        for page in pages.paginate(Filters=[{"Name": "end-date-type", "Values": ["limited"]}]):
            for each in page["CapacityReservations"]:
                if each.get("EndDate") is not None:
                    ends[each["CapacityReservationId"]] = each["EndDate"]
    found: Found = {}
    for instance in instances:
        end = ends.get(instance.get("CapacityReservationId", ""))
        if end is not None:
            notice = _notice(NoticeKind.TERMINATION, "capacity-block-end", end - _BLOCK_ENDS_BEFORE, now)
            found[instance["InstanceId"]] = [notice]
    return found


def _of_spot(instance: DescribedInstance, requests: Requests, now: datetime) -> Iterator[CloudNotice]:
    """The interruption of a spot instance, by its request; one that hibernates has no two minutes."""
    request = requests.get(instance.get("SpotInstanceRequestId", ""))
    if request is not None and request.status in _MARKED and request.status_at is not None:
        action, ends = _MARKED[request.status], request.status_at + _SPOT_NOTICE
        yield _notice(NoticeKind.SPOT_INTERRUPTION, action, ends, now)


def _notice(kind: NoticeKind, action: str, deadline: datetime, now: datetime) -> CloudNotice:
    return CloudNotice(kind=kind.value, action=action, deadline=deadline.astimezone(UTC), seen_at=now)
