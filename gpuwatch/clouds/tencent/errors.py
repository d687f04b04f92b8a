"""What Tencent Cloud and its SDK raise, as typed errors; nothing secret is repeated."""

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase

from requests import RequestException
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from gpuwatch.clouds import (
    AuthFailedError,
    ClockSkewError,
    CloudError,
    CloudUnavailableError,
    InsufficientCapacityError,
    NotFoundError,
    ProtectedError,
    QuotaExceededError,
    ThrottledError,
)
from gpuwatch.clouds.clock_skew import ADVICE

# Codes of CVM, Auto Scaling, CBS, VPC, STS and the tag service, the first match wins. Sources: the page "Error Codes"
# of each API and the common ones (cloud.tencent.com/document/api/213/30435), and the SDK's own words (Client…).
_CODES: tuple[tuple[str, type[CloudError]], ...] = (
    ("RequestLimitExceeded*", ThrottledError),
    ("MutexOperation.TaskRunning", ThrottledError),  # another change of the machine is under way: try again later
    ("OperationDenied.InstanceOperationInProgress", ThrottledError),
    ("ResourceUnavailable.InstanceInOperation", ThrottledError),
    ("ResourceUnavailable.AutoScalingGroupIn*Activity", ThrottledError),
    ("ResourceInUse.ActivityInProgress", ThrottledError),
    ("FailedOperation.ResourceTagProcessing", ThrottledError),
    ("UnsupportedOperation.InstancesProtected", ProtectedError),  # DisableApiTermination
    ("UnsupportedOperation.InvalidInstanceNotSupportedProtectedInstance", ProtectedError),
    ("UnsupportedOperation.StoppedModeStopCharging", ProtectedError),  # a stop would not end its bill
    ("UnsupportedOperation.InstanceChargeType", ProtectedError),
    ("UnsupportedOperation.SpecialInstanceType", ProtectedError),
    ("UnsupportedOperation.RedHatInstanceTerminateUnsupported", ProtectedError),
    ("InvalidInstanceNotSupportedPrepaidInstance", ProtectedError),
    ("InvalidInstance.NotSupported", ProtectedError),
    ("ResourceInsufficient.*Quota", QuotaExceededError),
    ("ResourceInsufficient.AutoScalingGroup*Size", CloudError),  # the group's own bounds
    ("ResourceInsufficient.InServiceInstance*Size", CloudError),
    ("ResourceInsufficient*", InsufficientCapacityError),
    ("*SoldOut*", InsufficientCapacityError),
    ("ResourceUnavailable.InstanceType", InsufficientCapacityError),
    ("ResourceUnavailable.ZoneUnavailable", InsufficientCapacityError),
    ("ResourceNotFound.InvalidZoneInstanceType", InsufficientCapacityError),  # the zone does not have the type
    ("InvalidParameterValue.InsufficientOffering", InsufficientCapacityError),
    ("InvalidParameterValue.InsufficientPrice", InsufficientCapacityError),  # spot costs more than the template bids
    ("InvalidParameterValue.ZoneNotSupported", InsufficientCapacityError),
    ("UnsupportedOperation.NoInstanceTypeSupportSpot", InsufficientCapacityError),
    ("FailedOperation.NoAvailableIpAddressCountInSubnet", InsufficientCapacityError),
    ("LimitExceeded*", QuotaExceededError),
    ("*QuotaLimitExceeded", QuotaExceededError),
    ("OverQuota", QuotaExceededError),
    ("InvalidAccount.InsufficientBalance", QuotaExceededError),  # no other zone helps, either
    ("InvalidInstanceId.*", NotFoundError),
    ("InvalidParameterValue.InstanceIdMalformed", NotFoundError),
    ("InvalidParameterValue.InvalidInstanceId", NotFoundError),
    ("InvalidParameterValue.InvalidAutoScalingGroupId", NotFoundError),
    ("ResourceNotFound.InvalidInstanceIdNotFound", NotFoundError),
    ("ResourceNotFound.InstancesNotFound", NotFoundError),
    ("ResourceNotFound.AutoScalingGroup*NotFound", NotFoundError),
    ("AuthFailure.SignatureExpire", ClockSkewError),  # a signature holds for five minutes
    ("AuthFailure*", AuthFailedError),
    ("UnauthorizedOperation*", AuthFailedError),
    ("InvalidPermission", AuthFailedError),
    ("InvalidCredential", AuthFailedError),
    ("NoCredentials", AuthFailedError),  # our own
    ("AccountQualificationRestrictions", AuthFailedError),
    ("InternalError*", CloudUnavailableError),
    ("InternalServerError", CloudUnavailableError),
    ("CallCvmError", CloudUnavailableError),  # Auto Scaling had no answer from CVM
    ("ClientNetworkError", CloudUnavailableError),
    ("ServerNetworkError", CloudUnavailableError),
)
_OF_THE_SDK = ("ClientNetworkError", "ServerNetworkError")  # their texts may quote the request

THROTTLED, NO_ANSWER, NO_CREDENTIALS = "RequestLimitExceeded", "ServerNetworkError", "NoCredentials"


@contextmanager
def asking(asked: str) -> Iterator[None]:
    """Turn whatever comes of a call into a typed error; the original is cut off, because its text may hold secrets.

    An answer that lacks its parts, such as a gateway's page, is no answer: never an empty list or a yes. `asked` is the
    call with its place, for people.
    """
    try:
        yield
    except TencentCloudSDKException as error:
        raise _refusal(asked, str(error.code), str(error.message)) from None
    except (RequestException, KeyError, TypeError, ValueError, AttributeError) as error:
        name = type(error).__name__
        raise CloudUnavailableError(f"{asked}: no usable answer ({name})", code=name) from None


def _refusal(asked: str, code: str, message: str) -> CloudError:
    """The typed form of Tencent Cloud's answer."""
    if code in _OF_THE_SDK:
        return CloudUnavailableError(f"{asked}: no usable answer ({code})", code=code)
    kind = _kind(code)
    text = message.partition("\n")[0].strip()
    if kind is ClockSkewError:
        text = f"{text}; {ADVICE}"
    return kind(f"{asked}: {text} ({code})", code=code)


def no_machine(code: str) -> bool:
    """Whether a code means that there is no stock, or no quota."""
    return _kind(code) in {InsufficientCapacityError, QuotaExceededError}


def _kind(code: str) -> type[CloudError]:
    return next((kind for pattern, kind in _CODES if fnmatchcase(code, pattern)), CloudError)


def about_its_state(code: str) -> bool:
    """Whether a refusal is about the state that the machine is in."""
    return code.startswith("UnsupportedOperation.InstanceState") or code == "InvalidInstanceState"
