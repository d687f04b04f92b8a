"""What Compute Engine answers when it refuses, as typed errors; nothing secret is repeated.

The words are those of public issue threads, as far as they were found there; the others were never seen from Google.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from gpuwatch.clouds import (
    AuthFailedError,
    CloudError,
    CloudUnavailableError,
    InsufficientCapacityError,
    NotFoundError,
    ProtectedError,
    QuotaExceededError,
    ThrottledError,
)

NOT_FOUND, CONFLICT, STALE = "notFound", "alreadyExists", "conditionNotMet"
NOT_READY = "resourceNotReady"
EXPIRED = 401  # HTTP: the token is not taken any more

# The `reason` of an answer, or the `code` of an operation's error; the first match wins.
_CODES: tuple[tuple[str, type[CloudError]], ...] = (
    ("*ateLimitExceeded", ThrottledError),
    ("*RATE_EXCEEDED", ThrottledError),  # RESOURCE_OPERATION_RATE_EXCEEDED, OPERATION_RATE_EXCEEDED
    ("RATE_LIMIT_EXCEEDED", ThrottledError),
    ("dailyLimitExceeded*", ThrottledError),
    ("ZONE_RESOURCE_POOL_EXHAUSTED*", InsufficientCapacityError),
    ("*STOCKOUT*", InsufficientCapacityError),
    ("resourcePoolExhausted", InsufficientCapacityError),
    ("RESERVATION_CAPACITY_EXCEEDED", InsufficientCapacityError),
    ("IP_SPACE_EXHAUSTED*", InsufficientCapacityError),
    ("VM_MIN_COUNT_NOT_REACHED", InsufficientCapacityError),
    ("QUOTA_EXCEEDED", QuotaExceededError),
    ("quotaExceeded", QuotaExceededError),
    ("*imitExceeded", QuotaExceededError),
    ("LIMIT_EXCEEDED", QuotaExceededError),
    (NOT_FOUND, NotFoundError),
    ("RESOURCE_NOT_FOUND", NotFoundError),
    ("forbidden", AuthFailedError),
    ("required", AuthFailedError),
    ("authError", AuthFailedError),
    ("loginRequired", AuthFailedError),
    ("insufficientPermissions", AuthFailedError),
    ("accessNotConfigured", AuthFailedError),
    ("PERMISSIONS_ERROR", AuthFailedError),
    ("SERVICE_DISABLED", AuthFailedError),
    ("backendError", CloudUnavailableError),
    ("internalError", CloudUnavailableError),
    ("INTERNAL_ERROR", CloudUnavailableError),
)
# By status where the reason says nothing.
_STATUSES: Mapping[int, type[CloudError]] = {
    EXPIRED: AuthFailedError,
    403: AuthFailedError,
    404: NotFoundError,
    408: CloudUnavailableError,
    429: ThrottledError,
}
# `invalidResourceUsage` is the reason of many refusals; this one is told apart by its sentence alone.
_PROTECTED = re.compile(r"protected against deletion", re.IGNORECASE)


def refusal(asked: str, status: int, answer: object) -> CloudError:
    """The typed form of an answer that is no success; a server error without a known reason leaves all open."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return unlisted(status)(f"{asked}: HTTP status {status} without Google's error", code=str(status))
    first = next((each for each in error.get("errors") or () if isinstance(each, dict)), {})
    code = str(first.get("reason") or error.get("status") or status)
    return _typed(asked, code, str(first.get("message") or error.get("message") or ""), status)


def failure(asked: str, operation: Mapping[str, Any]) -> CloudError | None:
    """Why an operation failed after it was accepted; None: it has not."""
    errors = (operation.get("error") or {}).get("errors") or ()
    first = next(iter(errors), None)
    if first is None:
        return None
    status = operation.get("httpErrorStatusCode", 0)
    return _typed(asked, str(first.get("code", "")), str(first.get("message", "")), status)


def unlisted(status: int) -> type[CloudError]:
    """What a status says where nothing else is known."""
    return _STATUSES.get(status, CloudUnavailableError if status >= 500 else CloudError)  # noqa: PLR2004  HTTP's


def _typed(asked: str, code: str, message: str, status: int) -> CloudError:
    kind = next((kind for pattern, kind in _CODES if fnmatchcase(code, pattern)), unlisted(status))
    if _PROTECTED.search(message):
        kind = ProtectedError
    return kind(f"{asked}: {message.partition(chr(10))[0].strip()} ({code})", code=code)
