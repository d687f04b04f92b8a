"""What Compute Engine answers when it refuses, as typed errors; nothing secret is repeated.

The words are those of public issue threads, as far as they were found there; the others were never seen from Google.
"""

import re
from collections.abc import Mapping
from typing import Any

from gpuwatch.clouds import errors

NOT_FOUND, CONFLICT, STALE = "notFound", "alreadyExists", "conditionNotMet"
NOT_READY = "resourceNotReady"
_SERVER_ERROR = 500
EXPIRED = 401  # HTTP: the token is not taken any more

# The `reason` of an answer, or the `code` of an operation's error; the first match wins.
_CODES: errors.Table = (
    ("*ateLimitExceeded", errors.ThrottledError),
    ("*RATE_EXCEEDED", errors.ThrottledError),  # RESOURCE_OPERATION_RATE_EXCEEDED, OPERATION_RATE_EXCEEDED
    ("RATE_LIMIT_EXCEEDED", errors.ThrottledError),
    ("dailyLimitExceeded*", errors.ThrottledError),
    ("concurrentOperationsQuotaExceeded", errors.ThrottledError),  # a 403 that concerns no right
    (NOT_READY, errors.BusyError),
    ("RESOURCE_NOT_READY", errors.BusyError),
    ("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", errors.BusyError),
    (STALE, errors.BusyError),
    ("ZONE_RESOURCE_POOL_EXHAUSTED*", errors.InsufficientCapacityError),
    ("*STOCKOUT*", errors.InsufficientCapacityError),
    ("insufficientCapacity", errors.InsufficientCapacityError),
    ("UNSUPPORTED_OPERATION", errors.InsufficientCapacityError),  # this type, in this zone
    ("resourcePoolExhausted", errors.InsufficientCapacityError),
    ("RESERVATION_CAPACITY_EXCEEDED", errors.InsufficientCapacityError),
    ("IP_SPACE_EXHAUSTED*", errors.InsufficientCapacityError),
    ("VM_MIN_COUNT_NOT_REACHED", errors.InsufficientCapacityError),
    ("QUOTA_EXCEEDED", errors.QuotaExceededError),
    ("quotaExceeded", errors.QuotaExceededError),
    ("*imitExceeded", errors.QuotaExceededError),
    ("LIMIT_EXCEEDED", errors.QuotaExceededError),
    (NOT_FOUND, errors.NotFoundError),
    ("RESOURCE_NOT_FOUND", errors.NotFoundError),
    ("forbidden", errors.AuthFailedError),
    ("required", errors.AuthFailedError),
    ("authError", errors.AuthFailedError),
    ("loginRequired", errors.AuthFailedError),
    ("insufficientPermissions", errors.AuthFailedError),
    ("accessNotConfigured", errors.AuthFailedError),
    ("PERMISSIONS_ERROR", errors.AuthFailedError),
    ("SERVICE_DISABLED", errors.AuthFailedError),
    ("backendError", errors.CloudUnavailableError),
    ("internalError", errors.CloudUnavailableError),
    ("INTERNAL_ERROR", errors.CloudUnavailableError),
)
# By status where the reason says nothing.
_STATUSES: Mapping[int, type[errors.CloudError]] = {
    EXPIRED: errors.AuthFailedError,
    403: errors.AuthFailedError,
    404: errors.NotFoundError,
    408: errors.CloudUnavailableError,
    429: errors.ThrottledError,
}
# One word for two quotas: of calls, which is a matter of waiting, and of machines. Its sentence says which.
_OF_QUOTA = frozenset({"quotaExceeded", "RESOURCE_EXHAUSTED"})
_OF_CALLS = re.compile(r"per minute|per \d+ seconds|per day per user|queries|rate_limit_exceeded", re.IGNORECASE)
# `invalidResourceUsage` is the reason of many refusals; this one is told apart by its sentence alone.
_PROTECTED = re.compile(r"protected against deletion", re.IGNORECASE)


def refusal(asked: str, status: int, answer: object) -> errors.CloudError:
    """The typed form of an answer that is no success; a server error without a known reason leaves all open."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return kind_of_status(status)(f"{asked}: HTTP status {status} without Google's error", code=str(status))
    first = next((each for each in error.get("errors") or () if isinstance(each, dict)), {})
    code = str(first.get("reason") or error.get("status") or status)
    return _typed_error(asked, code, str(first.get("message") or error.get("message") or ""), status)


def failure(asked: str, operation: Mapping[str, Any]) -> errors.CloudError | None:
    """Why an operation failed after it was accepted; None: it has not. What has failed is not in doubt."""
    first = next(iter((operation.get("error") or {}).get("errors") or ()), None)
    if first is None:
        return None
    status = operation.get("httpErrorStatusCode", 0)
    known = 0 if status >= _SERVER_ERROR else status
    return _typed_error(asked, str(first.get("code", "")), str(first.get("message", "")), known)


def kind_of_status(status: int) -> type[errors.CloudError]:
    """What a status says where nothing else is known."""
    return _STATUSES.get(status, errors.CloudUnavailableError if status >= _SERVER_ERROR else errors.CloudError)


def _typed_error(asked: str, code: str, message: str, status: int) -> errors.CloudError:
    kind = errors.kind_of(code, _CODES, kind_of_status(status))
    if _PROTECTED.search(message):
        kind = errors.ProtectedError
    elif code in _OF_QUOTA and _OF_CALLS.search(message):
        kind = errors.ThrottledError
    return errors.typed_error(kind, asked, message, code)
