"""What EC2 and botocore raise, as typed errors; nothing secret is repeated."""

from collections.abc import Iterator
from contextlib import contextmanager

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

from gpuwatch.clouds import errors
from gpuwatch.runtime.clock import SystemClock

# EC2's error codes, the first match wins; the API reference's "Error codes for the Amazon EC2 API".
_CODES: errors.Table = (
    ("*Throttl*", errors.ThrottledError),
    ("RequestLimitExceeded", errors.ThrottledError),
    ("TooManyRequests*", errors.ThrottledError),
    ("SlowDown", errors.ThrottledError),
    # Another change is under way there, of the group or of the machine (pending, stopping).
    ("ResourceContention", errors.BusyError),
    ("ScalingActivityInProgress", errors.BusyError),
    ("ServiceLinkedRoleFailure", errors.BusyError),  # the role of Auto Scaling "is not yet ready for use"
    ("IncorrectInstanceState", errors.BusyError),
    ("IncorrectState", errors.BusyError),
    ("OperationNotPermitted", errors.ProtectedError),
    ("UnsupportedOperation", errors.ProtectedError),  # a one-time spot instance, an instance-store root
    ("Insufficient*Capacity*", errors.InsufficientCapacityError),
    ("UnfulfillableCapacity", errors.InsufficientCapacityError),
    ("InsufficientFreeAddressesInSubnet", errors.InsufficientCapacityError),
    ("ReservationCapacityExceeded", errors.InsufficientCapacityError),
    ("Unsupported", errors.InsufficientCapacityError),  # the zone does not have the type
    ("SpotMaxPriceTooLow", errors.InsufficientCapacityError),  # spot costs more than the template bids
    ("MaxSpotInstanceCountExceeded", errors.QuotaExceededError),
    ("MaxSpotFleetRequestCountExceeded", errors.QuotaExceededError),
    ("*LimitExceeded", errors.QuotaExceededError),  # VcpuLimitExceeded, InstanceLimitExceeded, …
    ("*LimitExceededException", errors.QuotaExceededError),  # KMS's grants of a key among them
    ("InvalidInstanceID*", errors.NotFoundError),
    ("InvalidInstanceId*", errors.NotFoundError),  # some calls spell it so
    ("InvalidID", errors.NotFoundError),  # CreateTags
    ("UnauthorizedOperation", errors.AuthFailedError),
    ("AuthFailure", errors.AuthFailedError),
    ("AuthFailure.*", errors.AuthFailedError),  # of the first spot launch: no right to make EC2's role for spot
    ("KMSAccessDeniedException", errors.AuthFailedError),
    ("AccessDenied*", errors.AuthFailedError),
    ("ExpiredToken*", errors.AuthFailedError),
    ("RequestExpired", errors.AuthFailedError),  # of a signature, or of temporary credentials: the answer's Date tells
    ("RequestTimeTooSkewed", errors.ClockSkewError),
    ("RequestInTheFuture", errors.ClockSkewError),
    ("InvalidClientTokenId", errors.AuthFailedError),
    ("SignatureDoesNotMatch", errors.AuthFailedError),
    ("UnrecognizedClient*", errors.AuthFailedError),
    ("MissingAuthenticationToken", errors.AuthFailedError),
    ("OptInRequired", errors.AuthFailedError),
    ("Blocked", errors.AuthFailedError),
    ("PendingVerification", errors.AuthFailedError),
    ("IdempotentParameterMismatch", errors.CloudUnavailableError),  # something was asked with that key: it may be there
    # Silence by exact words alone, and by HTTP's server errors: InvalidAMIID.Unavailable is a refusal.
    ("InternalError", errors.CloudUnavailableError),
    ("InternalFailure", errors.CloudUnavailableError),
    ("InternalServerError", errors.CloudUnavailableError),
    ("InternalServiceError", errors.CloudUnavailableError),
    ("ServerInternal", errors.CloudUnavailableError),
    ("Unavailable", errors.CloudUnavailableError),
    ("ServiceUnavailable", errors.CloudUnavailableError),
    ("ServiceUnavailableException", errors.CloudUnavailableError),
    ("RequestTimeout", errors.CloudUnavailableError),
    ("RequestTimeoutException", errors.CloudUnavailableError),
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


def is_throttling(code: str) -> bool:
    """Whether an answer's code says that we ask too often."""
    return errors.kind_of(code, _CODES) is errors.ThrottledError


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
        lacks = f"; {error.kwargs['cred_var']} is missing" if isinstance(error, PartialCredentialsError) else ""
        raise errors.NoCredentialsError(
            f"{asked}: no usable AWS credentials ({name}{lacks}); set AWS_PROFILE to a profile that there is, set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role. `aws sts get-caller-identity` "
            "tries them",
            code=name,
        ) from None
    except (ConnectionError, HTTPClientError, ResponseParserError, KeyError) as error:
        raise errors.no_answer(asked, error) from None
    except BotoCoreError as error:
        raise errors.CloudError(f"{asked}: {_first_line(str(error))}", code=type(error).__name__) from None


def _refusal(asked: str, error: ClientError) -> errors.CloudError:
    """The typed form of AWS's answer; a server error of no known code leaves open what happened."""
    code = error.response.get("Error", {}).get("Code", "")
    message = _first_line(error.response.get("Error", {}).get("Message", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if message.startswith("<"):
        message = f"the answer is a page of HTML, not one of AWS; check endpoint and proxy: HTTP {status}"
    unlisted = errors.CloudUnavailableError if status >= 500 else errors.CloudError  # noqa: PLR2004  HTTP's server errors
    kind = errors.kind_of(code, _CODES, unlisted)
    if message.startswith(_OLD_SIGNATURE):
        kind = errors.ClockSkewError
    date = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
    # botocore signs with the machine's own time, whatever clock we were given.
    return errors.explain_error(errors.typed_error(kind, asked, message, code), date, SystemClock().now())


def _first_line(message: str) -> str:
    """The part for people: below it, or behind "Encoded", EC2 repeats the signed request, session token included."""
    return message.partition("\n")[0].partition("Encoded authorization failure message")[0].strip()
