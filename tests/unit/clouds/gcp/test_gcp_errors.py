"""What Compute Engine answers, as typed errors."""

import pytest

from gpuwatch.clouds import (
    AuthFailedError,
    BusyError,
    CloudError,
    CloudUnavailableError,
    InsufficientCapacityError,
    NotFoundError,
    ProtectedError,
    QuotaExceededError,
    ThrottledError,
)
from gpuwatch.clouds.gcp.errors import failure, refusal

# Reason or code, HTTP status, message, the typed error: answers seen in public issue trackers and in Google's docs.
ANSWERS: list[tuple[str, int, str, type[CloudError]]] = [
    ("notFound", 404, "The resource 'projects/p/zones/z/instances/a' was not found", NotFoundError),
    ("forbidden", 403, "Required 'compute.instances.stop' permission for 'a'", AuthFailedError),
    ("accessNotConfigured", 403, "Compute Engine API has not been used in project 1 before", AuthFailedError),
    ("authError", 401, "Invalid Credentials", AuthFailedError),
    ("rateLimitExceeded", 403, "Rate Limit Exceeded", ThrottledError),
    ("userRateLimitExceeded", 403, "User Rate Limit Exceeded", ThrottledError),
    ("RESOURCE_OPERATION_RATE_EXCEEDED", 429, "Operation rate exceeded for resource", ThrottledError),
    ("quotaExceeded", 403, "Quota 'NVIDIA_A100_GPUS' exceeded.  Limit: 8.0 in region us-central1.", QuotaExceededError),
    (
        "quotaExceeded",
        403,
        "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute' of service 'compute.googleapis.com'",
        ThrottledError,
    ),
    ("QUOTA_EXCEEDED", 403, "Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally.", QuotaExceededError),
    ("ZONE_RESOURCE_POOL_EXHAUSTED", 503, "does not have enough resources available", InsufficientCapacityError),
    ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", 503, "(resource type:compute)", InsufficientCapacityError),
    ("concurrentOperationsQuotaExceeded", 403, "Too many operations at once", ThrottledError),
    ("insufficientCapacity", 400, "There is no capacity", InsufficientCapacityError),
    ("UNSUPPORTED_OPERATION", 400, "a2-highgpu-1g is not available in zone z", InsufficientCapacityError),
    ("STOCKOUT", 503, "the zone is out of stock", InsufficientCapacityError),
    (
        "invalidResourceUsage",
        400,
        "Invalid resource usage: 'Resource cannot be deleted if it's protected against deletion.'.",
        ProtectedError,
    ),
    ("invalidResourceUsage", 400, "Invalid resource usage: 'Subnetwork is in use'.", CloudError),
    ("badRequest", 400, "VM has a Local SSD attached but an undefined value for `discard-local-ssd`.", CloudError),
    ("resourceNotReady", 400, "The resource 'a' is not ready", BusyError),
    ("conditionNotMet", 412, "Labels fingerprint either invalid or resource labels have changed", BusyError),
    ("backendError", 503, "Backend Error", CloudUnavailableError),
    ("INTERNAL_ERROR", 500, "Internal error. Please try again or contact Google Support.", CloudUnavailableError),
    ("something new", 500, "nobody has heard of it", CloudUnavailableError),
    ("something new", 400, "nobody has heard of it", CloudError),
]


@pytest.mark.parametrize(("code", "status", "message", "kind"), ANSWERS)
def test_an_answer_is_typed_and_keeps_googles_word(
    code: str, status: int, message: str, kind: type[CloudError]
) -> None:
    """At once, and where an operation fails after it was accepted: then an unknown word is a refusal and no doubt."""
    at_once = refusal("stop", status, {"error": {"code": status, "errors": [{"reason": code, "message": message}]}})
    later = failure("stop", {"httpErrorStatusCode": status, "error": {"errors": [{"code": code, "message": message}]}})

    assert later is not None
    assert type(at_once) is kind
    assert type(later) is (CloudError if code == "something new" else kind)
    assert (at_once.code, later.code) == (code, code)
    assert message in str(at_once)


@pytest.mark.parametrize("answer", [None, [], {}, {"error": "text"}, {"error": {}}])
def test_an_error_without_googles_words_goes_by_its_status(answer: object) -> None:
    """A gateway's page leaves everything open; 404 and 403 do not."""
    kinds = [type(refusal("stop", status, answer)) for status in (400, 401, 403, 404, 429, 502)]

    assert kinds == [
        CloudError,
        AuthFailedError,
        AuthFailedError,
        NotFoundError,
        ThrottledError,
        CloudUnavailableError,
    ]


def test_an_operation_without_an_error_has_not_failed() -> None:
    """Whether it is done or goes on."""
    assert failure("stop", {"status": "RUNNING"}) is None
    assert failure("stop", {"status": "DONE", "error": {"errors": []}}) is None
