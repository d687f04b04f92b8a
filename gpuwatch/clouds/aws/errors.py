"""What EC2 and botocore raise, as typed errors; nothing secret is repeated."""

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004  a connection that never was; HTTPClientError is one that broke
    CredentialRetrievalError,
    HTTPClientError,
    MetadataRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
from botocore.parsers import ResponseParserError

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
from gpuwatch.clouds.clock_skew import ADVICE, explained
from gpuwatch.runtime.clock import SystemClock

# EC2's error codes, the first match wins; the API reference's "Error codes for the Amazon EC2 API".
_CODES: tuple[tuple[str, type[CloudError]], ...] = (
    ("*Throttl*", ThrottledError),
    ("ResourceContention", ThrottledError),  # Auto Scaling is still busy with another change of the group
    ("ScalingActivityInProgress", ThrottledError),
    ("RequestLimitExceeded", ThrottledError),
    ("TooManyRequests*", ThrottledError),
    ("SlowDown", ThrottledError),
    ("OperationNotPermitted", ProtectedError),
    ("UnsupportedOperation", ProtectedError),  # a one-time spot instance, an instance-store root
    ("Insufficient*Capacity*", InsufficientCapacityError),
    ("InsufficientFreeAddressesInSubnet", InsufficientCapacityError),
    ("ReservationCapacityExceeded", InsufficientCapacityError),
    ("Unsupported", InsufficientCapacityError),  # the zone does not have the type
    ("SpotMaxPriceTooLow", InsufficientCapacityError),  # spot costs more than the template bids
    ("MaxSpotInstanceCountExceeded", QuotaExceededError),
    ("*LimitExceeded", QuotaExceededError),  # VcpuLimitExceeded, InstanceLimitExceeded, …
    ("InvalidInstanceID*", NotFoundError),
    ("InvalidID", NotFoundError),  # CreateTags
    ("UnauthorizedOperation", AuthFailedError),
    ("AuthFailure", AuthFailedError),
    ("AccessDenied*", AuthFailedError),
    ("ExpiredToken*", AuthFailedError),
    ("RequestExpired", AuthFailedError),  # of a signature, or of temporary credentials: the answer's Date tells
    ("RequestTimeTooSkewed", ClockSkewError),
    ("RequestInTheFuture", ClockSkewError),
    ("InvalidClientTokenId", AuthFailedError),
    ("SignatureDoesNotMatch", AuthFailedError),
    ("UnrecognizedClient*", AuthFailedError),
    ("MissingAuthenticationToken", AuthFailedError),
    ("OptInRequired", AuthFailedError),
    ("Blocked", AuthFailedError),
    ("PendingVerification", AuthFailedError),
    ("Internal*", CloudUnavailableError),
    ("*Unavailable", CloudUnavailableError),
    ("RequestTimeout*", CloudUnavailableError),
)

# How every service but EC2 begins the sentence of SignatureDoesNotMatch where the clock is wrong.
_OLD_SIGNATURE = ("Signature expired", "Signature not yet current")

# botocore's own errors that are about credentials. Their texts may quote a credential helper's output: never repeated.
_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    MetadataRetrievalError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)


def throttled(code: str) -> bool:
    """Whether an answer's code says that we ask too often."""
    return _kind(code, CloudError) is ThrottledError


@contextmanager
def asking(call: str, *, service: str = "EC2", where: str = "") -> Iterator[None]:
    """Turn whatever botocore raises into a typed error; the original is cut off, because its text may hold secrets.

    An answer that lacks its parts (KeyError), such as a gateway's page, is no answer: never an empty list or a yes.
    `where` is the region, and the account where there are several.
    """
    asked = f"{service} {call} in {where}" if where else f"{service} {call}"
    try:
        yield
    except ClientError as error:
        raise _refusal(asked, error) from None
    except _CREDENTIALS as error:
        name = type(error).__name__
        raise AuthFailedError(
            f"{asked}: no usable AWS credentials ({name}); see `aws sts get-caller-identity`", code=name
        ) from None
    except (ConnectionError, HTTPClientError, ResponseParserError, KeyError) as error:
        name = type(error).__name__
        raise CloudUnavailableError(f"{asked}: no usable answer ({name})", code=name) from None
    except BotoCoreError as error:
        raise CloudError(f"{asked}: {_first_line(str(error))}", code=type(error).__name__) from None


def _refusal(asked: str, error: ClientError) -> CloudError:
    """The typed form of AWS's answer; a server error of no known code leaves open what happened."""
    code = error.response.get("Error", {}).get("Code", "")
    message = _first_line(error.response.get("Error", {}).get("Message", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    unlisted = CloudUnavailableError if status >= 500 else CloudError  # noqa: PLR2004  HTTP's server errors
    kind = ClockSkewError if message.startswith(_OLD_SIGNATURE) else _kind(code, unlisted)
    if kind is ClockSkewError:
        message = f"{message}; {ADVICE}"
    date = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
    # botocore signs with the machine's own time, whatever clock we were given.
    return explained(kind(f"{asked}: {message} ({code})", code=code), date, SystemClock().now())


def _kind(code: str, unlisted: type[CloudError]) -> type[CloudError]:
    """The table's type of a code."""
    return next((kind for pattern, kind in _CODES if fnmatchcase(code, pattern)), unlisted)


def _first_line(message: str) -> str:
    """The part for people: below it, or behind "Encoded", EC2 repeats the signed request, session token included."""
    return message.partition("\n")[0].partition("Encoded authorization failure message")[0].strip()
