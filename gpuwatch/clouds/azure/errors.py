"""What Azure Resource Manager and azure-core say went wrong, as typed errors; nothing secret is repeated.

The codes are of the pages "Common REST API error codes" and "Troubleshoot allocation failures" of Azure's
documentation, and of the error examples in azure-rest-api-specs.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

from azure.core.exceptions import AzureError, ClientAuthenticationError

from gpuwatch.clouds.clock_skew import ADVICE
from gpuwatch.clouds.errors import (
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

NOT_FOUND = "ResourceNotFound"

# Azure's error codes; the first match wins.
_CODES: tuple[tuple[str, type[CloudError]], ...] = (
    ("TooManyRequests", ThrottledError),
    ("*Throttled*", ThrottledError),
    ("*Throttling*", ThrottledError),
    ("RequestRateTooLarge", ThrottledError),
    ("ScopeLocked", ProtectedError),
    ("*AllocationFailed*", InsufficientCapacityError),  # also ZonalAllocationFailed
    ("Overconstrained*AllocationRequest", InsufficientCapacityError),
    ("SkuNotAvailable", InsufficientCapacityError),
    ("SpotPriceGreaterThanProvidedMaxPrice", InsufficientCapacityError),  # spot costs more than the template bids
    ("*QuotaExceeded*", QuotaExceededError),
    ("*NotFound", NotFoundError),
    ("AuthorizationFailed", AuthFailedError),
    ("LinkedAuthorizationFailed", AuthFailedError),
    ("AuthenticationFailed*", AuthFailedError),
    ("ExpiredAuthenticationToken", AuthFailedError),
    ("InvalidAuthenticationToken*", AuthFailedError),
    ("ReadOnlyDisabledSubscription", AuthFailedError),
    ("MissingSubscriptionRegistration", AuthFailedError),
    ("Internal*", CloudUnavailableError),
    ("*Unavailable", CloudUnavailableError),
    ("*Timeout", CloudUnavailableError),
    ("NetworkingInternalOperationError", CloudUnavailableError),
)
# Without this subscription we know nothing: that is a matter of our access, and no machine is gone by it.
_NO_ACCESS = "SubscriptionNotFound"
# One code for many refusals: which one it is, its sentence says.
_NOT_ALLOWED = "OperationNotAllowed"
_STATUSES: Mapping[int, type[CloudError]] = {401: AuthFailedError, 403: AuthFailedError, 429: ThrottledError}
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
            raise ClockSkewError(f"{asked}: Entra ID takes no certificate of this time; {ADVICE}", code=name) from None
        raise AuthFailedError(
            f"{asked}: no usable credentials of Azure ({name}); see `az account show`", code=name
        ) from None
    except AzureError as error:
        name = type(error).__name__
        raise CloudUnavailableError(f"{asked}: no usable answer ({name})", code=name) from None


def refusal(asked: str, status: int, body: str) -> CloudError:
    """The typed form of an answer that is no success. Without Azure's own code it is a gateway's, and says nothing."""
    code, message = _said(body)
    if not code:
        kind = _STATUSES.get(status, CloudUnavailableError)
        return kind(f"{asked}: no usable answer (status {status})", code=f"HTTP {status}")
    return typed(asked, code, message, status=status)


def typed(asked: str, code: str, message: str, *, status: int = 0) -> CloudError:
    """The typed form of Azure's own words."""
    kind = _kind(code, message, status)
    return kind(f"{asked}: {_first_line(message)} ({code})", code=code)


def _kind(code: str, message: str, status: int) -> type[CloudError]:
    if code == _NO_ACCESS:
        return AuthFailedError
    if code == _NOT_ALLOWED and "quota" in message.lower():
        return QuotaExceededError
    unlisted = CloudUnavailableError if status >= _SERVER_ERROR else _STATUSES.get(status, CloudError)
    return next((kind for pattern, kind in _CODES if fnmatchcase(code, pattern)), unlisted)


def _said(body: str) -> tuple[str, str]:
    """Code and message of an answer; of several that are nested the innermost, which says why."""
    try:
        document = json.loads(body)
    except ValueError:
        return "", ""
    error = document.get("error") if isinstance(document, dict) else None
    return said(error) if isinstance(error, dict) else ("", "")


def said(error: Mapping[str, Any]) -> tuple[str, str]:
    """Code and message of an error's object."""
    inner = next((each for each in error.get("details") or () if isinstance(each, dict) and each.get("code")), None)
    if inner is not None and _kind(str(inner["code"]), str(inner.get("message", "")), 0) is not CloudError:
        return said(inner)
    return str(error.get("code") or ""), str(error.get("message") or "")


def _first_line(message: str) -> str:
    """The part for people."""
    return message.partition("\n")[0].strip()
