"""What is known of a change that found no connection: no byte of it was written, so it has not happened."""

from collections.abc import Callable

import boto3
import pytest
from requests import Session
from requests.exceptions import RequestException

from gpuwatch.clouds import CloudUnavailableError, NotSentError
from gpuwatch.clouds.aws.client import watch
from gpuwatch.clouds.aws.errors import asking
from gpuwatch.clouds.gcp.credentials import Wire
from gpuwatch.clouds.requests_sending import watch_session
from gpuwatch.clouds.sending import sending
from tests.support.builders.fleet import a_permit
from tests.support.fakes.mute_servers import hanging_up, nobody


def _by_requests(url: str) -> None:
    watch_session(Session()).post(url, data=b"", timeout=5.0)


def _by_urllib3(url: str) -> None:
    Wire(url).ask("POST", url, {}, b"{}")


def _by_botocore(url: str) -> None:
    client = boto3.client(
        "ec2",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="a",
        aws_secret_access_key="b",  # noqa: S106  of nobody
    )
    watch(client)
    with asking("StopInstances"):
        client.stop_instances(InstanceIds=["i-1"])


SDKS = [_by_requests, _by_urllib3, _by_botocore]


@pytest.fixture(autouse=True)
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As gpuwatch sends changes: nothing is tried a second time."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


@pytest.mark.parametrize("send", SDKS)
def test_without_a_connection_nothing_was_sent(send: Callable[[str], None]) -> None:
    """By every SDK: requests (Alibaba Cloud, Azure, Tencent Cloud), urllib3 (Google Cloud), botocore (AWS)."""
    with nobody() as port, pytest.raises(NotSentError, match="so nothing was sent"), sending("Stop", a_permit()):
        send(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize("send", SDKS)
def test_a_connection_that_breaks_leaves_all_open(send: Callable[[str], None]) -> None:
    """The request was written, or may have been: nobody knows what became of it."""
    with (
        hanging_up() as port,
        pytest.raises((CloudUnavailableError, RequestException)) as caught,
        sending("Stop", a_permit()),
    ):
        send(f"http://127.0.0.1:{port}")
    assert not isinstance(caught.value, NotSentError)
