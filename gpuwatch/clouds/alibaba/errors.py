"""What Alibaba Cloud answers instead of a yes, as typed errors; nothing secret is repeated."""

from fnmatch import fnmatchcase

from gpuwatch.clouds import errors

INCORRECT_STATE = "IncorrectInstanceStatus"
NO_INSTANCE = "InvalidInstanceId.NotFound"

# Error codes, the first match wins; the pages "Common error codes" and those of each call on help.aliyun.com.
_CODES: errors.Table = (
    ("Throttling*", errors.ThrottledError),
    ("*.Throttled", errors.ThrottledError),
    ("ScalingActivityInProgress*", errors.ThrottledError),  # the group is still busy with another change
    ("*DeletionProtection*", errors.ProtectedError),
    ("InstanceLocked*", errors.ProtectedError),
    ("*NoStock*", errors.InsufficientCapacityError),
    ("*.OutOfStock", errors.InsufficientCapacityError),
    ("ResourceNotAvailable*", errors.InsufficientCapacityError),
    ("Zone.NotOnSale", errors.InsufficientCapacityError),
    (
        "InvalidSpotPriceLimit.LowerThanPublicPrice",
        errors.InsufficientCapacityError,
    ),  # above the bid
    ("Zone.NotOpen", errors.InsufficientCapacityError),
    ("InvalidResourceType.NotSupported", errors.InsufficientCapacityError),  # the zone does not have the type now
    ("*QuotaExceed*", errors.QuotaExceededError),
    ("*QuotaFull*", errors.QuotaExceededError),
    ("*LimitExceed*", errors.QuotaExceededError),
    ("InvalidAccessKeyId*", errors.AuthFailedError),  # .NotFound among them
    ("*.NotFound", errors.NotFoundError),
    ("InvalidInstanceId", errors.NotFoundError),
    ("Forbidden*", errors.AuthFailedError),
    ("NoPermission*", errors.AuthFailedError),
    ("ImplicitDeny*", errors.AuthFailedError),
    ("Unauthorized*", errors.AuthFailedError),
    ("InvalidSecurityToken*", errors.AuthFailedError),
    ("MissingSecurityToken", errors.AuthFailedError),
    ("SecurityToken*", errors.AuthFailedError),
    ("Signature*", errors.AuthFailedError),
    ("IncompleteSignature", errors.AuthFailedError),
    ("InvalidSignature*", errors.AuthFailedError),
    ("InvalidTimeStamp*", errors.ClockSkewError),
    ("IllegalTimestamp", errors.ClockSkewError),
    ("Internal*", errors.CloudUnavailableError),
    ("ServiceUnavailable*", errors.CloudUnavailableError),
    ("UnknownError", errors.CloudUnavailableError),
    ("RequestTimeout*", errors.CloudUnavailableError),
    ("ServiceTimeout*", errors.CloudUnavailableError),
)
# The texts of these repeat what was signed, with its headers: the session token is one of them.
_TELLING = ("Signature*", "IncompleteSignature", "InvalidSignature*")
_TOO_MANY, _SERVER_ERROR = 429, 500


def refusal(asked: str, status: int, code: str, message: str) -> errors.CloudError:
    """The typed form of an error answer; a server error of no known code leaves open what happened."""
    unlisted = errors.CloudUnavailableError if status >= _SERVER_ERROR else errors.CloudError
    if status == _TOO_MANY:
        unlisted = errors.ThrottledError
    kind = errors.kind_of(code, _CODES, unlisted)
    if any(fnmatchcase(code, pattern) for pattern in _TELLING):
        message = "the signature was not accepted"
    return errors.typed_error(kind, asked, message, code)


def no_machine(code: str) -> bool:
    """Whether a code means that there is no stock, or no quota."""
    return errors.means_no_machine(code, _CODES)
