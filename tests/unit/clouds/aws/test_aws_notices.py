"""What EC2's lists say of the end of machines; requests and answers are held to EC2's own model."""

from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from gpuwatch.clouds.aws.errors import asking
from gpuwatch.clouds.aws.notices import Notices, SpotRequest
from gpuwatch.model.cloud_notice import CloudNotice
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import NOW

HOUR = timedelta(hours=1)
BLOCK = {"InstanceId": "i-1", "InstanceLifecycle": "capacity-block", "CapacityReservationId": "cr-1"}
PLAIN = {"InstanceId": "i-1"}
NO_BLOCKS: dict[str, Any] = {"CapacityReservations": []}


class Ec2:
    """EC2's answers in their order, and its notices of one machine."""

    def __init__(self, stub: Stubber) -> None:
        """With a clock of its own."""
        self.stub, self.clock = stub, ManualClock(wall=NOW)
        self.notices = Notices(self.clock)
        self.place: Any = SimpleNamespace(
            name="lab", reading=SimpleNamespace(ec2=stub.client), asking=lambda call: asking(call, service="EC2")
        )

    def says(self, *events: dict[str, Any]) -> None:
        """These events of the machine."""
        asked = {
            "Filters": [{"Name": "event.code", "Values": ["instance-retirement", "instance-stop"]}],
        }
        answer = {"InstanceStatuses": [{"InstanceId": "i-1", "Events": list(events)}]}
        self.stub.add_response("describe_instance_status", answer, asked)

    def of(self, instance: Any, **requests: SpotRequest) -> tuple[CloudNotice, ...] | None:  # noqa: ANN401  as described
        """The machine's notices."""
        return self.notices.notices_of(self.place, [instance], requests)["i-1"]


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ec2]:
    """Nothing may be asked beyond what is planned."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of a test")
    client: Any = boto3.client("ec2", region_name="us-east-1")
    with Stubber(client) as stub:
        yield Ec2(stub)
        stub.assert_no_pending_responses()


def words(found: tuple[CloudNotice, ...] | None) -> list[tuple[str, str, timedelta]]:
    """Kind, action, and how far ahead."""
    assert found is not None
    return [(each.kind, each.action, each.at - NOW) for each in found]


def test_scheduled_events_that_end_a_machine_are_notices(ec2: Ec2) -> None:
    """Those that are over are none, and neither is one without a time."""
    ec2.says(
        {"Code": "instance-retirement", "NotBefore": NOW + HOUR, "Description": "The instance is on degraded hardware"},
        {"Code": "instance-stop", "NotBefore": NOW, "Description": "[Completed] The instance was stopped"},
        {"Code": "instance-stop", "Description": "Some day"},
    )

    assert words(ec2.of(PLAIN)) == [("maintenance", "instance-retirement", HOUR)]


def test_the_end_of_a_capacity_block_is_a_notice(ec2: Ec2) -> None:
    """EC2 terminates its machines from half an hour before it on; only machines of blocks cost the call."""
    ec2.says()
    blocks = [{"CapacityReservationId": "cr-1", "EndDate": NOW + HOUR}, {"CapacityReservationId": "cr-2"}]
    asked = {"Filters": [{"Name": "end-date-type", "Values": ["limited"]}]}
    ec2.stub.add_response("describe_capacity_reservations", {"CapacityReservations": blocks}, asked)

    assert words(ec2.of(BLOCK)) == [("termination", "capacity-block-end", HOUR / 2)]


@pytest.mark.parametrize(
    ("status", "action"),
    [("marked-for-termination", "terminate"), ("marked-for-stop", "stop"), ("fulfilled", None), (None, None)],
)
def test_a_spot_request_says_that_its_machine_is_taken(ec2: Ec2, status: str | None, action: str | None) -> None:
    """Two minutes after that status."""
    ec2.says()
    request = SpotRequest(type="one-time", state="active", status=status, status_at=NOW)

    found = words(ec2.of({**PLAIN, "SpotInstanceRequestId": "sir-1"}, **{"sir-1": request}))

    assert found == ([("spot_interruption", action, timedelta(minutes=2))] if action else [])


def test_without_the_permission_nobody_knows(ec2: Ec2, caplog: pytest.LogCaptureFixture) -> None:
    """It is said once, asked for again after ten minutes, and the rest is as known as before."""
    for _ in range(2):
        ec2.stub.add_client_error("describe_instance_status", "UnauthorizedOperation", http_status_code=403)
    marked = SpotRequest(status="marked-for-stop", status_at=NOW)

    assert ec2.of(PLAIN) is None
    assert len(words(ec2.of({**PLAIN, "SpotInstanceRequestId": "s"}, s=marked))) == 1
    ec2.clock.advance(601)
    assert ec2.of(PLAIN) is None
    ec2.clock.advance(601)
    ec2.says()
    assert ec2.of(PLAIN) == ()
    assert len([each for each in caplog.records if "known by agents alone" in each.getMessage()]) == 1


def test_an_outage_is_a_doubt_of_this_round_alone(ec2: Ec2) -> None:
    """Of the block's end as of the events."""
    ec2.says()
    ec2.stub.add_client_error("describe_capacity_reservations", "InternalError", http_status_code=500)
    assert ec2.of(BLOCK) is None

    ec2.says()
    ec2.stub.add_response("describe_capacity_reservations", NO_BLOCKS)
    assert ec2.of(BLOCK) == ()
