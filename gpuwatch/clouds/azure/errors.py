"""What Azure Resource Manager and azure-core say went wrong, as typed errors; nothing secret is repeated.

The codes are of the pages "Common REST API error codes" and "Troubleshoot allocation failures" of Azure's
documentation, and of the error examples in azure-rest-api-specs.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from azure.core.exceptions import AzureError, ClientAuthenticationError

from gpuwatch.clouds import errors
from gpuwatch.runtime.json_document import read_json

NOT_FOUND = "ResourceNotFound"

# Azure's error codes; the first match wins.
_CODES: errors.Table = (
    ("TooManyRequests", errors.ThrottledError),
    ("*Throttled*", errors.ThrottledError),
    ("*Throttling*", errors.ThrottledError),
    ("RequestRateTooLarge", errors.ThrottledError),
    ("AnotherOperationInProgress", errors.BusyError),
    ("Conflict", errors.BusyError),
    ("ConflictingUserInput", errors.BusyError),
    ("OperationPreempted", errors.BusyError),
    ("OperationPreemptedByAnotherOperation", errors.BusyError),
    ("RetryableError", errors.BusyError),
    ("ScopeLocked", errors.ProtectedError),
    ("*AllocationFailed*", errors.InsufficientCapacityError),  # also ZonalAllocationFailed
    ("Overconstrained*AllocationRequest", errors.InsufficientCapacityError),
    ("SkuNotAvailable", errors.InsufficientCapacityError),
    ("NotAvailableForSubscription", errors.InsufficientCapacityError),
    ("SpotPriceGreaterThanProvidedMaxPrice", errors.InsufficientCapacityError),  # above the bid
    ("*QuotaExceeded*", errors.QuotaExceededError),
    ("*NotFound", errors.NotFoundError),
    ("AuthorizationFailed", errors.AuthFailedError),
    ("LinkedAuthorizationFailed", errors.AuthFailedError),
    ("AuthenticationFailed*", errors.AuthFailedError),
    ("ExpiredAuthenticationToken", errors.AuthFailedError),
    ("InvalidAuthenticationToken*", errors.AuthFailedError),
    ("ReadOnlyDisabledSubscription", errors.AuthFailedError),
    ("MissingSubscriptionRegistration", errors.AuthFailedError),
    ("InternalServerError", errors.CloudUnavailableError),
    ("InternalError", errors.CloudUnavailableError),
    ("InternalOperationError", errors.CloudUnavailableError),
    ("InternalExecutionError", errors.CloudUnavailableError),
    ("InternalDiskManagementError", errors.CloudUnavailableError),
    ("ServiceUnavailable", errors.CloudUnavailableError),
    ("ServerUnavailable", errors.CloudUnavailableError),
    ("RequestTimeout", errors.CloudUnavailableError),
    ("GatewayTimeout", errors.CloudUnavailableError),
    ("ServerTimeout", errors.CloudUnavailableError),
    ("NetworkingInternalOperationError", errors.CloudUnavailableError),
)
# Without this subscription we know nothing: that is a matter of our access, and no machine is gone by it.
_NO_ACCESS = "SubscriptionNotFound"
# One code for many refusals: which one it is, its sentence says.
_NOT_ALLOWED = "OperationNotAllowed"
_BUSY = re.compile(r"is being |in progress|another operation|retry later", re.IGNORECASE)
_STATUSES: Mapping[int, type[errors.CloudError]] = {
    401: errors.AuthFailedError,
    403: errors.AuthFailedError,
    429: errors.ThrottledError,
}
_SERVER_ERROR = 500
# "Client assertion is not within its valid time range": of a certificate's signature, by this machine's clock.
_NOT_OF_NOW = "AADSTS700024"


@contextmanager
def asking(asked: str) -> Iterator[None]:
    """Turn what azure-core raises into a typed error; its text is cut off, because it may hold secrets.

    azure-core calls a connection that breaks after the request has left an error of the request: so nothing that it
    says of a connection shows whether a change has happened.
    """
    try:
        yield
    except ClientAuthenticationError as error:
        name = type(error).__name__
        if _NOT_OF_NOW in str(error):
            raise errors.ClockSkewError(
                f"{asked}: Entra ID takes no certificate of this time; {errors.ADVICE}", code=name
            ) from None
        raise errors.AuthFailedError(
            f"{asked}: no usable credentials of Azure ({name}); set AZURE_TENANT_ID, AZURE_CLIENT_ID and "
            "AZURE_CLIENT_SECRET, give this machine a managed identity, or run `az login`. `az account show` tries "
            "them",
            code=name,
        ) from None
    except AzureError as error:
        name = type(error).__name__
        raise errors.CloudUnavailableError(f"{asked}: no usable answer ({name})", code=name) from None


def refusal(asked: str, status: int, body: str) -> errors.CloudError:
    """The typed form of an answer that is no success. Without Azure's own code it is a gateway's, and says nothing."""
    code, message = _code_and_message(body)
    if not code:
        kind = _STATUSES.get(status, errors.CloudUnavailableError)
        return kind(f"{asked}: no usable answer (status {status})", code=f"HTTP {status}")
    return typed_error(asked, code, message, status=status)


def typed_error(asked: str, code: str, message: str, *, status: int = 0) -> errors.CloudError:
    """The typed form of Azure's own words."""
    return errors.typed_error(_kind(code, message, status), asked, message, code)


def _kind(code: str, message: str, status: int) -> type[errors.CloudError]:
    if code == _NO_ACCESS:
        return errors.AuthFailedError
    if code == _NOT_ALLOWED and "quota" in message.lower():
        return errors.QuotaExceededError
    if code == _NOT_ALLOWED and _BUSY.search(message):
        return errors.BusyError
    unlisted = errors.CloudUnavailableError if status >= _SERVER_ERROR else _STATUSES.get(status, errors.CloudError)
    return errors.kind_of(code, _CODES, unlisted)


def _code_and_message(body: str) -> tuple[str, str]:
    """Code and message of an answer; of several that are nested the innermost, which says why."""
    try:
        document = read_json(body)
    except ValueError:
        return "", ""
    error = document.get("error") if isinstance(document, dict) else None
    return code_and_message(error) if isinstance(error, dict) else ("", "")


def code_and_message(error: Mapping[str, Any]) -> tuple[str, str]:
    """Code and message of an error's object."""
    inner = next((each for each in error.get("details") or () if isinstance(each, dict) and each.get("code")), None)
    if inner is not None and _kind(str(inner["code"]), str(inner.get("message", "")), 0) is not errors.CloudError:
        return code_and_message(inner)
    return str(error.get("code") or ""), str(error.get("message") or "")
