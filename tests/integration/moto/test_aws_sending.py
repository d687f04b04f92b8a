"""The last moment before a change leaves for AWS: whatever takes long before it, an old permit sends nothing."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import botocore.endpoint
import pytest
from botocore.config import Config

from gpuwatch.clouds import CloudUnavailableError, PermitExpiredError
from gpuwatch.clouds.aws import client as aws_client
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.clouds.permit import in_force
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.fleet import a_permit
from tests.support.fakes.cloud_worlds import MINE
from tests.support.fakes.moto_faults import REGION, MotoFaults
from tests.support.fakes.slow_aws import Sink, cloud_at
from tests.support.paths import ROOT
from tests.support.real.agents import eventually
from tests.support.real.certificates import Authority

BOUND = 5.0
SLOW = 18.0
ROLE = AccountSettings(role_arn="arn:aws:iam::111111111111:role/gpuwatch", regions=(REGION,))


@pytest.fixture
def clock() -> ManualClock:
    """A clock that moves when something is slow."""
    return ManualClock()


@pytest.fixture
def ec2(clock: ManualClock) -> Iterator[MotoFaults]:
    """An empty account."""
    with MotoFaults(clock) as faults:
        yield faults


def a_cloud(ec2: MotoFaults, clock: ManualClock, **more: Any) -> AwsCloud:  # noqa: ANN401  any option of AwsCloud
    """The real adapter on that account."""
    return AwsCloud(fleet="lab", clock=clock, regions=[REGION], session=ec2.session, **more)


def sent(ec2: MotoFaults, action: str) -> int:
    """How many such requests left."""
    return sum(call.action == action for call in ec2.calls)


def slow_at(ec2: MotoFaults, clock: ManualClock, action: str) -> None:
    """AWS takes its time over each such call from now on."""
    ec2.on_call = lambda called: clock.advance(SLOW) if called == action else None


def test_credentials_that_are_fetched_slowly_on_the_way_stop_nothing(ec2: MotoFaults, clock: ManualClock) -> None:
    """The role's credentials run out between confirmation and call; STS takes 18 s; the next attempt is fast."""
    node_id = ec2.launch(MINE, account="111111111111")
    cloud = a_cloud(ec2, clock, accounts={"prod": ROLE})
    cloud.nodes()
    client: Any = cloud._places.all[0].acting.ec2
    credentials = client._request_signer._credentials
    credentials.get_frozen_credentials()
    credentials._expiry_time = datetime(2020, 1, 1, tzinfo=UTC)
    ec2.calls.clear()
    slow_at(ec2, clock, "AssumeRole")

    with pytest.raises(PermitExpiredError, match="was 18s old"):
        cloud.stop(node_id, "key", permit=a_permit(clock))

    assert (sent(ec2, "AssumeRole"), sent(ec2, "StopInstances")) == (1, 0)
    cloud.stop(node_id, "key", permit=a_permit(clock))
    assert (sent(ec2, "AssumeRole"), sent(ec2, "StopInstances")) == (1, 1)


def test_a_call_that_waited_for_its_turn_is_not_sent_late(ec2: MotoFaults, clock: ManualClock) -> None:
    """Our own pace makes calls wait before they are signed."""
    node_id = ec2.launch(MINE)
    cloud = a_cloud(ec2, clock)
    for _ in range(60):
        cloud._places.all[0].acting.pace.wait()
    for _ in range(20):
        cloud._places.all[0].acting.pace.slow_down()

    with pytest.raises(PermitExpiredError):
        cloud.stop(node_id, "key", permit=a_permit(clock))

    assert sent(ec2, "StopInstances") == 0


@pytest.mark.parametrize("fault", ["throttle", "lose_request", "lose_response"])
def test_the_sdk_s_own_retry_never_outlives_the_permit(
    ec2: MotoFaults, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Were the SDK to try again, its second attempt would be refused; what became of the first is then not known."""
    trying = Config(retries={"mode": "standard", "total_max_attempts": 3})
    monkeypatch.setattr(aws_client, "_ACTING", trying)
    monkeypatch.setattr(botocore.endpoint.time, "sleep", lambda _: clock.advance(6.0))  # type: ignore[attr-defined]
    node_id = ec2.launch(MINE)
    getattr(ec2, fault)("StopInstances")

    with pytest.raises(CloudUnavailableError, match="an earlier attempt is not known, and it was not sent again"):
        a_cloud(ec2, clock).stop(node_id, "key", permit=a_permit(clock))

    assert sent(ec2, "StopInstances") == 1


def test_mutations_are_tried_once_by_the_sdk() -> None:
    """The ledger decides about trying again."""
    assert aws_client._ACTING.retries["total_max_attempts"] == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("slow", ["DescribeInstances", "DescribeAutoScalingGroups", "DescribeInstanceAttribute"])
def test_what_is_looked_at_before_a_member_is_ended_counts(ec2: MotoFaults, clock: ManualClock, slow: str) -> None:
    """Three reads come first; the permit must still hold after them."""
    group_id = ec2.add_group("train", MINE, size=2)
    cloud = a_cloud(ec2, clock)
    node_id = cloud.nodes()[0].id
    slow_at(ec2, clock, slow)

    with pytest.raises(PermitExpiredError):
        cloud.terminate(node_id, "key", group=group_id, permit=a_permit(clock))

    assert sent(ec2, "TerminateInstanceInAutoScalingGroup") == 0
    ec2.on_call = lambda _: None
    cloud.terminate(node_id, "key", group=group_id, permit=a_permit(clock))
    assert sent(ec2, "TerminateInstanceInAutoScalingGroup") == 1


CHANGES: dict[str, Callable[[AwsCloud, str, str], object]] = {
    "StartInstances": lambda cloud, node_id, _: cloud.start(node_id, "key"),
    "CreateTags": lambda cloud, node_id, _: cloud.tag(node_id, {"gpuwatch:stop-at": ""}, "key"),
    "RunInstances": lambda cloud, *_: cloud.launch({"template": "gpu"}, "key"),
    "SetDesiredCapacity": lambda cloud, _, group_id: cloud.grow(group_id, 3, "key"),
    "SetInstanceProtection": lambda cloud, node_id, group_id: cloud.protect(node_id, group_id, "key", on=False),
}


@pytest.mark.parametrize("action", CHANGES)
def test_every_change_is_held_to_the_permit_in_force(ec2: MotoFaults, clock: ManualClock, action: str) -> None:
    """A former leader's starts, launches and tags leave as little as its stops."""
    ec2.add_template("gpu")
    group_id = ec2.add_group("train", MINE, size=2)
    cloud = a_cloud(ec2, clock)
    node_id = cloud.nodes()[0].id
    ec2.calls.clear()

    with in_force(a_permit(clock, leads=lambda: False)), pytest.raises(PermitExpiredError, match="does not lead"):
        CHANGES[action](cloud, node_id, group_id)
    assert sent(ec2, action) == 0
    with in_force(a_permit(clock)):
        CHANGES[action](cloud, node_id, group_id)
    assert sent(ec2, action) == 1


# On a real connection.


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that nobody checks, and no proxy."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.mark.usefixtures("keys")
def test_a_young_permit_is_sent_over_a_real_connection_and_one_that_is_kept(clock: ManualClock) -> None:
    """The connections that check are botocore's own otherwise: one of them serves two calls."""
    with Sink() as sink:
        cloud = cloud_at(sink.url, clock)
        cloud.stop("i-1", "key", permit=a_permit(clock))
        cloud.stop("i-2", "key", permit=a_permit(clock))

    assert len(sink.requests) == 2
    assert sink.connections == 1
    assert b"Action=StopInstances" in sink.requests[0]


@pytest.mark.usefixtures("keys")
def test_a_connection_that_opens_slowly_carries_no_old_permit(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is resolved, and the connection made, after the request was signed: no byte follows."""
    resolve = socket.getaddrinfo

    def slowly(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  as it is
        clock.advance(SLOW)
        return resolve(*args, **kwargs)

    with Sink() as sink:
        cloud = cloud_at(sink.url, clock)
        monkeypatch.setattr(socket, "getaddrinfo", slowly)
        with pytest.raises(PermitExpiredError, match="was 18s old"):
            cloud.stop("i-1", "key", permit=a_permit(clock))
        monkeypatch.undo()
        eventually(lambda: sink.connections)  # accepted by a thread of its own

    assert (sink.connections, sink.pieces) == (1, [])


@pytest.mark.usefixtures("keys")
def test_a_handshake_that_takes_long_carries_no_old_permit(
    clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS, to be sure that nothing was sent: not even encrypted."""
    authority = Authority(tmp_path)
    issued = authority.issue("ec2", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.ca))
    slow = [True, False]

    with Sink(tls=context, greets=lambda: clock.advance(SLOW) if slow.pop(0) else None) as sink:
        cloud = cloud_at(sink.url, clock)
        with pytest.raises(PermitExpiredError, match="was 18s old"):
            cloud.stop("i-1", "key", permit=a_permit(clock))
        assert sink.pieces == []
        cloud.stop("i-1", "key", permit=a_permit(clock))

    assert len(sink.requests) == 1


@pytest.mark.usefixtures("keys")
def test_a_request_of_which_a_part_has_left_is_not_finished_and_nobody_knows(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suspended between headers and body: the endpoint never gets a whole request; we claim no more than we know."""
    send = socket.socket.sendall

    def suspended_after(sock: socket.socket, data: bytes, *flags: int) -> None:
        send(sock, data, *flags)
        if data.startswith(b"POST"):
            clock.suspend(90.0)

    with Sink() as sink:
        cloud = cloud_at(sink.url, clock)
        monkeypatch.setattr(socket.socket, "sendall", suspended_after)
        with pytest.raises(CloudUnavailableError, match="not known"):
            cloud.stop("i-1", "key", permit=a_permit(clock))
        monkeypatch.undo()

    assert sink.requests == []


# A process of its own, whose permit is young; what it says goes to its standard output.
STOPPER = """
import sys
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.clouds.permit import Permit
url, = sys.argv[1:]
cloud = AwsCloud(fleet="lab", clock=SystemClock(), regions=["us-east-1"], endpoint_url=url)
cloud._places.all[0].acting.ec2
permit = Permit.asked_now(SystemClock(), 1.0, lambda: True)
try:
    cloud.stop("i-1", "key", permit=permit)
    print("sent")
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("suspended", [True, False])
def test_a_process_that_is_suspended_before_it_sends_does_not_send_when_it_goes_on(
    suspended: bool, tmp_path: Path
) -> None:
    """SIGSTOP while it connects, SIGCONT once its permit is too old: the real clocks, the real sockets."""
    authority = Authority(tmp_path)
    issued = authority.issue("ec2", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    asked, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        asked.set()
        goes_on.wait(20)

    environment = {**os.environ, "AWS_CA_BUNDLE": str(authority.ca), "PYTHONPATH": str(ROOT)}
    with Sink(tls=context, greets=hold) as sink:
        process = subprocess.Popen(
            [sys.executable, "-c", STOPPER, sink.url], env=environment, stdout=subprocess.PIPE, text=True
        )
        try:
            assert asked.wait(60), "it never connected"
            if suspended:
                process.send_signal(signal.SIGSTOP)
                begun = SystemClock().monotonic()
                eventually(lambda: SystemClock().monotonic() - begun > 1.1)
            goes_on.set()
            if suspended:
                process.send_signal(signal.SIGCONT)
            text, _ = process.communicate(timeout=30)
        finally:
            process.kill()
            process.wait(10)

    assert text.split()[0] == ("PermitExpiredError" if suspended else "sent"), text
    assert len(sink.requests) == (0 if suspended else 1)
