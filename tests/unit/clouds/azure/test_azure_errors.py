"""Azure's words as typed errors."""

import json

import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError, ServiceResponseError
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds import (
    AuthFailedError,
    BusyError,
    ClockSkewError,
    CloudError,
    CloudUnavailableError,
    InsufficientCapacityError,
    NotFoundError,
    ProtectedError,
    QuotaExceededError,
    ThrottledError,
)
from gpuwatch.clouds.azure.errors import asking, refusal

CASES = {
    "AllocationFailed": (409, InsufficientCapacityError),
    "ZonalAllocationFailed": (409, InsufficientCapacityError),
    "OverconstrainedZonalAllocationRequest": (409, InsufficientCapacityError),
    "SkuNotAvailable": (409, InsufficientCapacityError),
    "NotAvailableForSubscription": (409, InsufficientCapacityError),
    "AnotherOperationInProgress": (409, BusyError),
    "Conflict": (409, BusyError),
    "OperationPreempted": (409, BusyError),
    "QuotaExceeded": (409, QuotaExceededError),
    "OperationNotAllowed": (409, CloudError),
    "ScopeLocked": (409, ProtectedError),
    "AuthorizationFailed": (403, AuthFailedError),
    "InvalidAuthenticationTokenTenant": (401, AuthFailedError),
    "SubscriptionNotFound": (404, AuthFailedError),
    "ResourceNotFound": (404, NotFoundError),
    "ResourceGroupNotFound": (404, NotFoundError),
    "TooManyRequests": (429, ThrottledError),
    "SubscriptionRequestsThrottled": (429, ThrottledError),
    "InternalServerError": (500, CloudUnavailableError),
    "ServerTimeout": (503, CloudUnavailableError),
    "SomethingNew": (502, CloudUnavailableError),
    "SomethingElse": (400, CloudError),
}


@pytest.mark.parametrize("code", CASES)
def test_each_code_is_its_own_error(code: str) -> None:
    """With Azure's word, its sentence, and what was asked."""
    status, kind = CASES[code]
    error = refusal("GET x", status, json.dumps({"error": {"code": code, "message": "Because.\nmore"}}))

    assert (type(error), error.code, str(error)) == (kind, code, f"GET x: Because. ({code})")


def test_a_quota_hides_behind_a_general_code() -> None:
    """OperationNotAllowed says many things: its sentence says which."""
    said = {"error": {"code": "OperationNotAllowed", "message": "exceeding approved standardNC Cores Quota"}}

    assert isinstance(refusal("PUT x", 409, json.dumps(said)), QuotaExceededError)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("exceeding approved Total Regional Cores quota", QuotaExceededError),
        ("exceeding approved LowPriorityCores quota", QuotaExceededError),
        ("Operation 'start' is not allowed since the VM 'a' is being deallocated.", BusyError),
        ("Operation 'deallocate' is not allowed: its OS disk is ephemeral.", CloudError),
    ],
)
def test_what_is_not_allowed_at_this_moment_is_tried_again(message: str, kind: type[CloudError]) -> None:
    """The same code stands for a quota, for a machine that another operation is working on, and for a lasting no."""
    said = {"error": {"code": "OperationNotAllowed", "message": message}}

    assert type(refusal("POST x", 409, json.dumps(said))) is kind


def test_the_innermost_reason_counts() -> None:
    """A failed deployment has its reason in its details; details that say nothing new do not count."""
    inner = {"code": "AllocationFailed", "message": "No room."}
    outer = {"code": "DeploymentFailed", "message": "See details.", "details": [inner]}
    assert refusal("PUT x", 409, json.dumps({"error": outer})).code == "AllocationFailed"

    outer = {"code": "Conflict", "message": "Busy.", "details": [{"code": "Other", "message": ""}]}
    assert refusal("PUT x", 409, json.dumps({"error": outer})).code == "Conflict"


@given(st.sampled_from([400, 404, 409, 500, 502]), st.text())
def test_whatever_a_gateway_says_proves_nothing(status: int, body: str) -> None:
    """Without Azure's own form nobody knows what happened, and nothing is gone."""
    assert type(refusal("GET x", status, f"<{body}")) is CloudUnavailableError


@pytest.mark.parametrize("raised", [ServiceRequestError("reset"), ServiceResponseError("cut")])
def test_a_broken_connection_tells_nothing_of_the_change(raised: Exception) -> None:
    """azure-core calls a connection that is reset after the effect an error of the request."""
    with pytest.raises(CloudUnavailableError), asking("POST x"):
        raise raised


def test_credentials_fail_without_their_secrets() -> None:
    """The text of azure-identity is cut off."""
    with pytest.raises(AuthFailedError) as caught, asking("GET x"):
        raise ClientAuthenticationError("secret hunter2")

    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_certificate_of_another_time_is_about_our_clock() -> None:
    """Entra ID says so by a number; its text is not repeated."""
    said = "AADSTS700024: Client assertion is not within its valid time range. a-secret"

    with pytest.raises(ClockSkewError, match="set this machine's clock") as caught, asking("GET x"):
        raise ClientAuthenticationError(said)

    assert "a-secret" not in str(caught.value)
