"""What Tencent Cloud and its SDK raise, as typed errors; nothing secret is repeated."""

from collections.abc import Iterator
from contextlib import contextmanager

from requests import RequestException
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from gpuwatch.clouds import errors

# Codes of CVM, Auto Scaling, CBS, VPC, STS and the tag service, the first match wins. Sources: the page "Error Codes"
# of each API and the common ones (cloud.tencent.com/document/api/213/30435), and the SDK's own words (Client…).
_CODES: errors.Table = (
    ("RequestLimitExceeded*", errors.ThrottledError),
    # Another change is under way there, of the group or of the machine.
    ("MutexOperation.TaskRunning", errors.BusyError),
    ("OperationDenied.InstanceOperationInProgress", errors.BusyError),
    ("ResourceUnavailable.InstanceInOperation", errors.BusyError),
    ("ResourceUnavailable.AutoScalingGroupIn*Activity", errors.BusyError),
    ("ResourceInUse.ActivityInProgress", errors.BusyError),
    ("FailedOperation.ResourceTagProcessing", errors.BusyError),
    ("UnsupportedOperation.InstanceState*", errors.BusyError),
    ("InvalidInstanceState", errors.BusyError),
    ("UnsupportedOperation.InstancesProtected", errors.ProtectedError),  # DisableApiTermination
    ("UnsupportedOperation.InvalidInstanceNotSupportedProtectedInstance", errors.ProtectedError),
    ("UnsupportedOperation.StoppedModeStopCharging", errors.ProtectedError),  # a stop would not end its bill
    ("UnsupportedOperation.InstanceChargeType", errors.ProtectedError),
    ("UnsupportedOperation.SpecialInstanceType", errors.ProtectedError),
    ("UnsupportedOperation.RedHatInstanceTerminateUnsupported", errors.ProtectedError),
    ("InvalidInstanceNotSupportedPrepaidInstance", errors.ProtectedError),
    ("InvalidInstance.NotSupported", errors.ProtectedError),
    ("ResourceInsufficient.*Quota", errors.QuotaExceededError),
    ("ResourceInsufficient.AutoScalingGroup*Size", errors.CloudError),  # the group's own bounds
    ("ResourceInsufficient.InServiceInstance*Size", errors.CloudError),
    ("ResourceInsufficient*", errors.InsufficientCapacityError),
    ("*SoldOut*", errors.InsufficientCapacityError),
    ("ResourceUnavailable.InstanceType", errors.InsufficientCapacityError),
    ("ResourceUnavailable.ZoneUnavailable", errors.InsufficientCapacityError),
    ("ResourceNotFound.InvalidZoneInstanceType", errors.InsufficientCapacityError),  # the zone does not have the type
    ("InvalidParameterValue.InsufficientOffering", errors.InsufficientCapacityError),
    (
        "InvalidParameterValue.InsufficientPrice",
        errors.InsufficientCapacityError,
    ),  # above the bid
    ("InvalidParameterValue.ZoneNotSupported", errors.InsufficientCapacityError),
    ("UnsupportedOperation.NoInstanceTypeSupportSpot", errors.InsufficientCapacityError),
    ("FailedOperation.NoAvailableIpAddressCountInSubnet", errors.InsufficientCapacityError),
    ("LimitExceeded*", errors.QuotaExceededError),
    ("*QuotaLimitExceeded", errors.QuotaExceededError),
    ("OverQuota", errors.QuotaExceededError),
    ("InvalidAccount.InsufficientBalance", errors.QuotaExceededError),  # no other zone helps, either
    ("InvalidInstanceId.*", errors.NotFoundError),
    ("InvalidParameterValue.InstanceIdMalformed", errors.NotFoundError),
    ("InvalidParameterValue.InvalidInstanceId", errors.NotFoundError),
    ("InvalidParameterValue.InvalidAutoScalingGroupId", errors.NotFoundError),
    ("ResourceNotFound.InvalidInstanceIdNotFound", errors.NotFoundError),
    ("ResourceNotFound.InstancesNotFound", errors.NotFoundError),
    ("ResourceNotFound.AutoScalingGroup*NotFound", errors.NotFoundError),
    ("AuthFailure.SignatureExpire", errors.ClockSkewError),  # a signature holds for five minutes
    ("AuthFailure*", errors.AuthFailedError),
    ("UnauthorizedOperation*", errors.AuthFailedError),
    ("InvalidPermission", errors.AuthFailedError),
    ("InvalidCredential", errors.AuthFailedError),
    ("NoCredentials", errors.AuthFailedError),  # our own
    ("AccountQualificationRestrictions", errors.AuthFailedError),
    ("InternalError", errors.CloudUnavailableError),
    ("InternalError.*", errors.CloudUnavailableError),
    ("InternalServerError", errors.CloudUnavailableError),
    ("CallCvmError", errors.CloudUnavailableError),  # Auto Scaling had no answer from CVM
    ("ClientNetworkError", errors.CloudUnavailableError),
    ("ServerNetworkError", errors.CloudUnavailableError),
)
_ENDED = frozenset({"AuthFailure.TokenFailure", "AuthFailure.SecretIdNotFound", "AuthFailure.InvalidSecretId"})
_OF_THE_SDK = ("ClientNetworkError", "ServerNetworkError")  # their texts may quote the request

THROTTLED, NO_ANSWER, NO_CREDENTIALS = "RequestLimitExceeded", "ServerNetworkError", "NoCredentials"


@contextmanager
def asking(asked: str) -> Iterator[None]:
    """Turn whatever comes of a call into a typed error; the original is cut off, because its text may hold secrets.

    An answer that lacks its parts, such as a gateway's page, is no answer: never an empty list or a yes. `asked` is the
    call with its place, for people.
    """
    with errors.reading(asked, RequestException):
        try:
            yield
        except TencentCloudSDKException as error:
            raise _refusal(asked, str(error.code), str(error.message)) from None


def _refusal(asked: str, code: str, message: str) -> errors.CloudError:
    """The typed form of Tencent Cloud's answer."""
    if code in _OF_THE_SDK:
        return errors.CloudUnavailableError(f"{asked}: no usable answer ({code})", code=code)
    return errors.typed_error(errors.kind_of(code, _CODES), asked, message, code)


def no_machine(code: str) -> bool:
    """Whether a code means that there is no stock, or no quota."""
    return errors.means_no_machine(code, _CODES)


def token_ended(code: str) -> bool:
    """Whether a key with its token is not taken any more; a key that the cloud no longer has may have been one."""
    return code in _ENDED


def about_its_state(code: str) -> bool:
    """Whether a refusal is about the state that the machine is in."""
    return code.startswith("UnsupportedOperation.InstanceState") or code == "InvalidInstanceState"
