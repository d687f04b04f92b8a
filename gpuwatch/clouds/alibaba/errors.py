"""What Alibaba Cloud answers instead of a yes, as typed errors; nothing secret is repeated."""

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase

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

INCORRECT_STATE = "IncorrectInstanceStatus"
NO_INSTANCE = "InvalidInstanceId.NotFound"

# Error codes, the first match wins; the pages "Common error codes" and those of each call on help.aliyun.com.
_CODES: tuple[tuple[str, type[CloudError]], ...] = (
    ("Throttling*", ThrottledError),
    ("*.Throttled", ThrottledError),
    ("ScalingActivityInProgress*", ThrottledError),  # the group is still busy with another change
    ("*DeletionProtection*", ProtectedError),
    ("InstanceLocked*", ProtectedError),
    ("*NoStock*", InsufficientCapacityError),
    ("*.OutOfStock", InsufficientCapacityError),
    ("ResourceNotAvailable*", InsufficientCapacityError),
    ("Zone.NotOnSale", InsufficientCapacityError),
    ("InvalidSpotPriceLimit.LowerThanPublicPrice", InsufficientCapacityError),  # spot costs more than the template bids
    ("Zone.NotOpen", InsufficientCapacityError),
    ("InvalidResourceType.NotSupported", InsufficientCapacityError),  # the zone does not have the type now
    ("*QuotaExceed*", QuotaExceededError),
    ("*QuotaFull*", QuotaExceededError),
    ("*LimitExceed*", QuotaExceededError),
    ("InvalidAccessKeyId*", AuthFailedError),  # .NotFound among them
    ("*.NotFound", NotFoundError),
    ("InvalidInstanceId", NotFoundError),
    ("Forbidden*", AuthFailedError),
    ("NoPermission*", AuthFailedError),
    ("ImplicitDeny*", AuthFailedError),
    ("Unauthorized*", AuthFailedError),
    ("InvalidSecurityToken*", AuthFailedError),
    ("MissingSecurityToken", AuthFailedError),
    ("SecurityToken*", AuthFailedError),
    ("Signature*", AuthFailedError),
    ("IncompleteSignature", AuthFailedError),
    ("InvalidSignature*", AuthFailedError),
    ("InvalidTimeStamp*", ClockSkewError),
    ("IllegalTimestamp", ClockSkewError),
    ("Internal*", CloudUnavailableError),
    ("ServiceUnavailable*", CloudUnavailableError),
    ("UnknownError", CloudUnavailableError),
    ("*Timeout*", CloudUnavailableError),
)
# The texts of these repeat what was signed, with its headers: the session token is one of them.
_TELLING = ("Signature*", "IncompleteSignature", "InvalidSignature*")
_TOO_MANY, _SERVER_ERROR = 429, 500


def refusal(asked: str, status: int, code: str, message: str) -> CloudError:
    """The typed form of an error answer; a server error of no known code leaves open what happened."""
    unlisted = CloudUnavailableError if status >= _SERVER_ERROR else CloudError
    if status == _TOO_MANY:
        unlisted = ThrottledError
    kind = next((kind for pattern, kind in _CODES if fnmatchcase(code, pattern)), unlisted)
    if any(fnmatchcase(code, pattern) for pattern in _TELLING):
        message = "the signature was not accepted"
    text = message.partition("\n")[0].strip()
    if kind is ClockSkewError:
        text = f"{text}; {ADVICE}"
    return kind(f"{asked}: {text} ({code})", code=code)


def no_machine(code: str) -> bool:
    """Whether a code means that there is no stock, or no quota."""
    kind = next((kind for pattern, kind in _CODES if fnmatchcase(code, pattern)), CloudError)
    return kind in {InsufficientCapacityError, QuotaExceededError}


@contextmanager
def reading(asked: str) -> Iterator[None]:
    """Take an answer that lacks its parts, such as a gateway's page, for no answer: never an empty list or a yes."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        name = type(error).__name__
        raise CloudUnavailableError(f"{asked}: no usable answer ({name})", code=name) from None
