"""Each of Tencent Cloud's and its SDK's errors in our words, without anybody's secrets."""

import traceback

import pytest
from requests import ConnectionError as RequestsConnectionError
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from gpuwatch.clouds import (
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
)
from gpuwatch.clouds.tencent.errors import about_its_state, asking

SECRET = "anExampleTokenThatMustNeverComeOut"  # noqa: S105  an example


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("RequestLimitExceeded", ThrottledError),
        ("RequestLimitExceeded.UinLimitExceeded", ThrottledError),
        ("MutexOperation.TaskRunning", BusyError),
        ("OperationDenied.InstanceOperationInProgress", BusyError),
        ("ResourceUnavailable.AutoScalingGroupInActivity", BusyError),
        ("ResourceInUse.ActivityInProgress", BusyError),
        ("UnsupportedOperation.InstancesProtected", ProtectedError),
        ("UnsupportedOperation.StoppedModeStopCharging", ProtectedError),
        ("InvalidInstanceNotSupportedPrepaidInstance", ProtectedError),
        ("ResourcesSoldOut.SpecifiedInstanceType", InsufficientCapacityError),
        ("ResourcesSoldOut.AvailableZone", InsufficientCapacityError),
        ("ResourceInsufficient.SpecifiedInstanceType", InsufficientCapacityError),
        ("ResourceInsufficient.ZoneSoldOutForSpecifiedInstance", InsufficientCapacityError),
        ("ResourceInsufficient.CloudDiskSoldOut", InsufficientCapacityError),
        ("InvalidParameterValue.InsufficientPrice", InsufficientCapacityError),
        ("ResourceInsufficient.DisasterRecoverGroupCvmQuota", QuotaExceededError),
        ("ResourceInsufficient.InServiceInstanceBelowMinSize", CloudError),
        ("ResourceInsufficient.AutoScalingGroupAboveMaxSize", CloudError),
        ("LimitExceeded.SpotQuota", QuotaExceededError),
        ("LimitExceeded.CvmInstanceQuota", QuotaExceededError),
        ("InstancesQuotaLimitExceeded", QuotaExceededError),
        ("InvalidAccount.InsufficientBalance", QuotaExceededError),
        ("InvalidInstanceId.NotFound", NotFoundError),
        ("InvalidInstanceId.Malformed", NotFoundError),
        ("ResourceNotFound.AutoScalingGroupNotFound", NotFoundError),
        ("ResourceNotFound.AutoScalingGroupIdNotFound", NotFoundError),
        ("AuthFailure.SignatureExpire", ClockSkewError),
        ("AuthFailure.TokenFailure", AuthFailedError),
        ("AuthFailure.UnauthorizedOperation", AuthFailedError),
        ("UnauthorizedOperation.PermissionDenied", AuthFailedError),
        ("InternalError", CloudUnavailableError),
        ("InternalError.CallStsError", CloudUnavailableError),
        ("InternalServerError", CloudUnavailableError),
        ("CallCvmError", CloudUnavailableError),
        ("ClientNetworkError", CloudUnavailableError),
        ("ServerNetworkError", CloudUnavailableError),
        ("UnsupportedOperation.InstanceStatePending", BusyError),
        ("InvalidParameterValue.LimitExceeded", CloudError),  # too many values, and no limit of the account
        ("SomethingNew", CloudError),
    ],
)
def test_each_error_code_has_its_type(code: str, kind: type[CloudError]) -> None:
    """By the table; what is not listed is a refusal."""
    with pytest.raises(CloudError) as caught, asking("Tencent Cloud StopInstances in ap-guangzhou"):
        raise TencentCloudSDKException(code, "why")

    assert type(caught.value) is kind
    assert caught.value.code == code
    assert str(caught.value).startswith("Tencent Cloud StopInstances in ap-guangzhou: ")


@pytest.mark.parametrize(
    "error",
    [
        RequestsConnectionError(f"https://example?Token={SECRET}"),
        TencentCloudSDKException("ClientNetworkError", f"Authorization: {SECRET}"),
        TencentCloudSDKException("InternalError", f"try later\nX-TC-Token: {SECRET}"),
        KeyError("Response"),
        ValueError(SECRET),
    ],
)
def test_what_is_no_answer_is_unavailable_and_tells_no_secret(error: Exception) -> None:
    """The original is cut off: it may quote the request."""
    with pytest.raises(CloudUnavailableError) as caught, asking("Tencent Cloud StopInstances in ap-guangzhou"):
        raise error

    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_refusal_by_state_is_known_by_its_code() -> None:
    """It may mean that the machine is where it should go already."""
    assert about_its_state("UnsupportedOperation.InstanceStateStopped")
    assert about_its_state("InvalidInstanceState")
    assert not about_its_state("UnsupportedOperation.InstancesProtected")
