"""Each of EC2's and botocore's errors in our words, without anybody's secrets."""

import traceback
from typing import Any

import boto3
import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ReadTimeoutError,
    SSOTokenLoadError,
    TokenRetrievalError,
)

from gpuwatch.clouds import (
    FLEET_TAG,
    AuthFailedError,
    BusyError,
    ClockSkewError,
    CloudError,
    CloudUnavailableError,
    InsufficientCapacityError,
    NotFoundError,
    ProtectedError,
    QuotaExceededError,
    ThrottledError,
    errors,
)
from gpuwatch.clouds.aws.client import ClientPool
from gpuwatch.clouds.aws.errors import asking
from gpuwatch.runtime.clock import ManualClock


def test_half_of_the_credentials_are_told_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key without its secret is found when the client is made, before any call: the sentence names the variable."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    client = ClientPool.for_reading(boto3.Session(), "us-east-1", None, ManualClock())
    with pytest.raises(AuthFailedError, match="AWS_SECRET_ACCESS_KEY is missing"):
        client.ec2  # noqa: B018


MINE = {FLEET_TAG: "lab"}
SECRET = "FwoGZXIvYXdzEXAMPLETOKEN"  # noqa: S105  an example; it must never come out again


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("RequestLimitExceeded", 503, ThrottledError),
        ("Throttling", 400, ThrottledError),
        ("ThrottlingException", 400, ThrottledError),
        ("RequestThrottled", 400, ThrottledError),
        ("TooManyRequestsException", 429, ThrottledError),
        ("OperationNotPermitted", 400, ProtectedError),
        ("UnsupportedOperation", 400, ProtectedError),
        ("InsufficientInstanceCapacity", 500, InsufficientCapacityError),
        ("InsufficientCapacity", 500, InsufficientCapacityError),
        ("InsufficientHostCapacity", 500, InsufficientCapacityError),
        ("InsufficientReservedInstanceCapacity", 500, InsufficientCapacityError),
        ("InsufficientCapacityOnHost", 500, InsufficientCapacityError),
        ("UnfulfillableCapacity", 400, InsufficientCapacityError),
        ("InsufficientFreeAddressesInSubnet", 400, InsufficientCapacityError),
        ("SpotMaxPriceTooLow", 400, InsufficientCapacityError),
        ("ServiceLinkedRoleFailure", 500, BusyError),
        ("ResourceContention", 500, BusyError),
        ("ReservationCapacityExceeded", 400, InsufficientCapacityError),
        ("Unsupported", 400, InsufficientCapacityError),
        ("MaxSpotInstanceCountExceeded", 400, QuotaExceededError),
        ("VcpuLimitExceeded", 400, QuotaExceededError),
        ("InstanceLimitExceeded", 400, QuotaExceededError),
        ("MaxSpotFleetRequestCountExceeded", 400, QuotaExceededError),
        ("LimitExceededException", 400, QuotaExceededError),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", 403, AuthFailedError),
        ("KMSAccessDeniedException", 400, AuthFailedError),
        ("UnauthorizedOperation", 403, AuthFailedError),
        ("AuthFailure", 401, AuthFailedError),
        ("ExpiredToken", 400, AuthFailedError),
        ("ExpiredTokenException", 400, AuthFailedError),
        ("RequestExpired", 400, AuthFailedError),
        ("InvalidClientTokenId", 403, AuthFailedError),
        ("SignatureDoesNotMatch", 403, AuthFailedError),
        ("UnrecognizedClientException", 400, AuthFailedError),
        ("AccessDeniedException", 400, AuthFailedError),
        ("InvalidInstanceID.NotFound", 400, NotFoundError),
        ("InvalidInstanceID.Malformed", 400, NotFoundError),
        ("InvalidInstanceId.NotFound", 400, NotFoundError),
        ("InvalidID", 400, NotFoundError),
        ("InternalError", 500, CloudUnavailableError),
        ("InternalFailure", 500, CloudUnavailableError),
        ("ServiceUnavailable", 503, CloudUnavailableError),
        ("Unavailable", 503, CloudUnavailableError),
        ("RequestTimeout", 400, CloudUnavailableError),
        ("KMSInternalException", 500, CloudUnavailableError),
        ("KeyUnavailableException", 500, CloudUnavailableError),
        ("SomethingNew", 500, CloudUnavailableError),
        ("502", 502, CloudUnavailableError),
        ("SomethingNew", 400, CloudError),
        ("IncorrectInstanceState", 400, BusyError),
        ("ScalingActivityInProgress", 400, BusyError),
        ("InvalidAMIID.Unavailable", 400, CloudError),
        ("InvalidKMSKey.InvalidState", 400, CloudError),
        ("KMSInvalidStateException", 400, CloudError),
        ("DisabledException", 400, CloudError),
        ("IdempotentParameterMismatch", 400, CloudUnavailableError),
    ],
)
def test_each_error_code_has_its_type(code: str, status: int, kind: type[CloudError]) -> None:
    """EC2's codes are typed by the table; an unlisted one is a refusal, or with a server's status no answer."""
    answer: Any = {"Error": {"Code": code, "Message": "why"}, "ResponseMetadata": {"HTTPStatusCode": status}}

    with pytest.raises(CloudError) as caught, asking("StopInstances"):
        raise ClientError(answer, "StopInstances")

    assert type(caught.value) is kind
    assert caught.value.code == code
    assert str(caught.value) == f"EC2 StopInstances: why ({code})"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EndpointConnectionError(endpoint_url="http://127.0.0.1:1"), CloudUnavailableError),
        (ReadTimeoutError(endpoint_url="http://127.0.0.1:1"), CloudUnavailableError),
        (ConnectTimeoutError(endpoint_url="http://127.0.0.1:1"), CloudUnavailableError),
        (NoCredentialsError(), errors.NoCredentialsError),
        (PartialCredentialsError(provider="env", cred_var="aws_secret_access_key"), errors.NoCredentialsError),
        (CredentialRetrievalError(provider="custom-process", error_msg=SECRET), errors.NoCredentialsError),
        (TokenRetrievalError(provider="sso", error_msg=SECRET), errors.NoCredentialsError),
        (SSOTokenLoadError(error_msg=SECRET), errors.NoCredentialsError),
        (ParamValidationError(report="bad"), CloudError),
    ],
)
def test_each_failure_below_ec2_has_its_type(error: BotoCoreError, kind: type[CloudError]) -> None:
    """No connection is no answer, no credentials is a failed authentication; no secret is repeated."""
    with pytest.raises(CloudError) as caught, asking("StopInstances"):
        raise error

    assert type(caught.value) is kind
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "message",
    [
        f"The signature does not match.\n\nThe Canonical String was\nx-amz-security-token:{SECRET}",
        f"You are not authorized: ec2:StopInstances. Encoded authorization failure message: {SECRET}",
    ],
)
def test_an_error_keeps_its_sentence_and_loses_its_secrets(message: str) -> None:
    """EC2 quotes the signed request back, session token included: only the part for people comes through."""
    answer: Any = {"Error": {"Code": "AuthFailure", "Message": message}}

    with pytest.raises(AuthFailedError) as caught, asking("StopInstances"):
        raise ClientError(answer, "StopInstances")

    text = "".join(traceback.format_exception(caught.value))
    assert message[:20] in text
    assert SECRET not in text


@pytest.mark.parametrize(
    "told",
    [
        {"Error": {"Code": "SignatureDoesNotMatch", "Message": "Signature expired: 20260105T120000Z is now earlier"}},
        {"Error": {"Code": "RequestTimeTooSkewed", "Message": "The difference is too large"}},
        {"Error": {"Code": "RequestInTheFuture", "Message": "The date is in the future"}},
        {"Error": {"Code": "SignatureDoesNotMatch", "Message": "Signature not yet current: 20260105T120000Z"}},
        {
            "Error": {"Code": "AuthFailure", "Message": "AWS was not able to validate the provided access credentials"},
            "ResponseMetadata": {"HTTPHeaders": {"date": "Mon, 05 Jan 2015 12:00:00 GMT"}},
        },
    ],
)
def test_a_signature_of_another_time_is_about_our_clock(told: dict[str, Any]) -> None:
    """EC2 itself says the same as of a wrong key; the date of its answer says more."""
    with pytest.raises(ClockSkewError, match="set this machine's clock"), asking("StopInstances"):
        raise ClientError(told, "StopInstances")  # type: ignore[arg-type]  # what came is no part of the stubs
