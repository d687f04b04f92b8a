"""A token that AWS does not take any more is renewed, and what was read with it is asked once more."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

from gpuwatch.clouds import AuthFailedError
from gpuwatch.clouds.aws.client import ClientPool
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.fakes.cloud_worlds import MINE
from tests.support.fakes.moto_faults import REGION, MotoFaults

OTHER = "111111111111"
ROLE = f"arn:aws:iam::{OTHER}:role/gpuwatch-controller"
EXPIRED = (
    b"<Response><Errors><Error><Code>ExpiredToken</Code><Message>The security token included in the request is expired"
    b"</Message></Error></Errors><RequestID>1</RequestID></Response>"
)
NONE = (
    b'<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId>'
    b"<reservationSet/></DescribeInstancesResponse>"
)


@pytest.fixture
def ec2() -> Iterator[MotoFaults]:
    """An empty account."""
    with MotoFaults(ManualClock()) as faults:
        yield faults


def a_cloud(ec2: MotoFaults) -> AwsCloud:
    """One account, entered by a role, in two regions."""
    accounts = {"prod": AccountSettings(role_arn=ROLE, regions=(REGION, "eu-west-1"))}
    return AwsCloud(session=ec2.session, fleet="lab", clock=ManualClock(), accounts=accounts)


def test_a_role_whose_token_has_expired_is_assumed_again_in_the_same_list(ec2: MotoFaults) -> None:
    """Somebody ended its sessions, or its hour was shorter than it said; the list is whole all the same."""
    node_id = ec2.launch(MINE, account=OTHER)
    cloud = a_cloud(ec2)
    cloud.nodes()
    ec2.refuse("DescribeInstances", "ExpiredToken")

    assert [node.id for node in cloud.nodes()] == [node_id]
    assert [call.action for call in ec2.calls].count("AssumeRole") == 2


def test_a_token_that_stays_expired_is_said_and_is_not_asked_for_without_end(ec2: MotoFaults) -> None:
    """Renewed once for each call."""
    cloud = a_cloud(ec2)
    cloud.nodes()
    ec2.refuse("DescribeInstances", "ExpiredToken", times=20)
    before = len(ec2.calls)

    with pytest.raises(AuthFailedError, match="ExpiredToken"):
        cloud.nodes()
    assert len(ec2.calls) - before <= 10


def test_a_change_with_an_expired_token_is_sent_once_and_the_next_one_has_a_new_token(ec2: MotoFaults) -> None:
    """The ledger decides about trying again; it need not wait for a restart."""
    node_id = ec2.launch(MINE, account=OTHER)
    cloud = a_cloud(ec2)
    cloud.nodes()
    ec2.refuse("StopInstances", "ExpiredToken")

    with pytest.raises(AuthFailedError):
        cloud.stop(node_id, "key", permit=a_permit())
    assert [call.action for call in ec2.calls].count("StopInstances") == 1

    cloud.stop(node_id, "key", permit=a_permit())
    (node,) = cloud.nodes()
    assert node.state is NodeState.STOPPED
    assert [call.action for call in ec2.calls].count("AssumeRole") == 2


@pytest.mark.parametrize("renewed", [True, False])
def test_credentials_in_a_file_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, renewed: bool
) -> None:
    """Tools that log people in write a new token into it each hour; botocore reads it once in a process."""
    file, sent = tmp_path / "credentials", list[str]()
    file.write_text(profile("one"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    session: Any = boto3.Session(region_name=REGION)

    def answer(request: Any, **_: object) -> Any:  # noqa: ANN401  botocore's own
        token = request.headers["X-Amz-Security-Token"]
        sent.append(token if isinstance(token, str) else token.decode())
        good = sent[-1] == "token-two"
        found: Any = AWSResponse(request.url, 200 if good else 400, HTTPHeaders(), None)
        found._content = NONE if good else EXPIRED
        return found

    session.events.register("before-send.ec2", answer)
    place: Any = ClientPool.for_reading(session, REGION, None, ManualClock())
    client = place.ec2
    if renewed:
        file.write_text(profile("two"))
        assert client.describe_instances()["Reservations"] == []
    else:
        with pytest.raises(client.exceptions.ClientError, match="ExpiredToken"):
            client.describe_instances()

    assert sent == (["token-one", "token-two"] if renewed else ["token-one"])


def profile(name: str) -> str:
    """A file of credentials."""
    return f"[default]\naws_access_key_id = AKIA{name}\naws_secret_access_key = s\naws_session_token = token-{name}\n"
