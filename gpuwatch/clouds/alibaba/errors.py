"""What Alibaba Cloud answers instead of a yes, as typed errors; nothing secret is repeated."""

from fnmatch import fnmatchcase

from gpuwatch.clouds import errors

INCORRECT_STATE = "IncorrectInstanceStatus"
NO_INSTANCE = "InvalidInstanceId.NotFound"

# Error codes, the first match wins; the pages "Common error codes" and those of each call on help.aliyun.com.
_CODES: errors.Table = (
    ("Throttling*", errors.ThrottledError),
    ("*.Throttled", errors.ThrottledError),
    # Another change is under way there, of the group or of the machine (starting, stopping).
    ("ScalingActivityInProgress*", errors.BusyError),
    (f"{INCORRECT_STATE}*", errors.BusyError),
    ("InstanceNotReady", errors.BusyError),  # with HTTP 500 or 403
    ("Idempotence.Processing", errors.BusyError),
    ("LastOrderProcessing", errors.BusyError),
    ("Operation.Conflict", errors.BusyError),
    ("*DeletionProtection*", errors.ProtectedError),
    ("InstanceLocked*", errors.ProtectedError),
    ("*NoStock*", errors.InsufficientCapacityError),
    ("NoInstanceStock", errors.InsufficientCapacityError),  # of a group's activity
    ("LackResource", errors.InsufficientCapacityError),
    ("*.OutOfStock", errors.InsufficientCapacityError),
    ("ResourceNotAvailable*", errors.InsufficientCapacityError),
    ("Zone.NotOnSale", errors.InsufficientCapacityError),
    ("Zone.NotOpen", errors.InsufficientCapacityError),
    ("InstanceType.Offline", errors.InsufficientCapacityError),
    ("InstanceTypeNotSupported", errors.InsufficientCapacityError),
    # The zone does not have the type now.
    ("InvalidInstanceType.NotSupported", errors.InsufficientCapacityError),
    ("InvalidInstanceType.ZoneNotSupported", errors.InsufficientCapacityError),
    ("InvalidResourceType.NotSupported", errors.InsufficientCapacityError),
    ("*.IpNotEnough", errors.InsufficientCapacityError),  # of the subnet (InvalidVSwitchId)
    # Spot costs more than the bid.
    ("InvalidSpotPriceLimit.LowerThanPublicPrice", errors.InsufficientCapacityError),
    ("*.SpotPriceLowerThanPublicPrice", errors.InsufficientCapacityError),
    # No money: no other zone helps, either.
    ("InsufficientBalance", errors.QuotaExceededError),
    ("*.NotEnoughBalance", errors.QuotaExceededError),
    ("*.Arrearage", errors.QuotaExceededError),
    ("InstanceExpired", errors.QuotaExceededError),
    ("InstanceExpiredOrInArrears", errors.QuotaExceededError),
    ("DiskInArrears", errors.QuotaExceededError),
    ("*QuotaExceed*", errors.QuotaExceededError),
    ("*QuotaFull*", errors.QuotaExceededError),
    ("*LimitExceed*", errors.QuotaExceededError),
    ("InvalidAccessKeyId*", errors.AuthFailedError),  # .NotFound among them
    ("InvalidParameter.KMSKeyId.*Unauthorized", errors.AuthFailedError),  # ECS may not use the key of its disks
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
    ("IdempotentParameterMismatch", errors.CloudUnavailableError),  # something was asked with that key: it may be there
    # Silence by exact words alone, and by HTTP's server errors.
    ("InternalError", errors.CloudUnavailableError),
    ("InternalError.*", errors.CloudUnavailableError),
    ("ServiceUnavailable", errors.CloudUnavailableError),
    ("ServiceUnavailable.*", errors.CloudUnavailableError),
    ("UnknownError", errors.CloudUnavailableError),
    ("RequestTimeout", errors.CloudUnavailableError),
    ("ServiceTimeout", errors.CloudUnavailableError),
)
# The texts of these repeat what was signed, with its headers: the session token is one of them.
_TELLING = ("Signature*", "IncompleteSignature", "InvalidSignature*")
_TOO_MANY, _SERVER_ERROR = 429, 500
# How codes begin of a key with its token that is not taken any more; an access key of a session goes with it.
ENDED = ("InvalidSecurityToken", "SecurityToken", "InvalidAccessKeyId")
_PARAMETER, _TOKEN_AS_PARAMETER = "InvalidParameter", "SecurityToken.Expired"  # some services say it so
_DENIED, _SOLD_OUT = "OperationDenied", "out of usage"


def refusal(asked: str, status: int, code: str, message: str) -> errors.CloudError:
    """The typed form of an error answer; a server error of no known code leaves open what happened."""
    unlisted = errors.CloudUnavailableError if status >= _SERVER_ERROR else errors.CloudError
    if status == _TOO_MANY:
        unlisted = errors.ThrottledError
    kind = errors.kind_of(code, _CODES, unlisted)
    if code == _DENIED and _SOLD_OUT in message.lower():  # the older form of NoStock
        kind = errors.InsufficientCapacityError
    if code == _PARAMETER and _TOKEN_AS_PARAMETER in message:
        kind, code = errors.AuthFailedError, _TOKEN_AS_PARAMETER
    if any(fnmatchcase(code, pattern) for pattern in _TELLING):
        message = "the signature was not accepted"
    return errors.typed_error(kind, asked, message, code)


def token_ended(code: str) -> bool:
    """Whether a key with its token is not taken any more."""
    return code.startswith(ENDED)


def no_machine(code: str) -> bool:
    """Whether a code means that there is no stock, or no quota."""
    return errors.means_no_machine(code, _CODES)
