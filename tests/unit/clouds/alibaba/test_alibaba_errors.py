"""Alibaba Cloud's error codes as typed errors."""

import pytest

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
from gpuwatch.clouds.alibaba.errors import refusal
from gpuwatch.clouds.errors import reading


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("Throttling", 400, ThrottledError),
        ("Throttling.User", 400, ThrottledError),
        ("Throttling.Api", 400, ThrottledError),
        ("ScalingActivityInProgress", 400, BusyError),
        ("AnythingNew", 429, ThrottledError),
        ("InvalidOperation.DeletionProtection", 403, ProtectedError),
        ("InstanceLockedForSecurity", 403, ProtectedError),
        ("OperationDenied.NoStock", 403, InsufficientCapacityError),
        ("Zone.NotOnSale", 403, InsufficientCapacityError),
        ("InvalidResourceType.NotSupported", 403, InsufficientCapacityError),
        ("OperationDenied.SpotPriceLowerThanPublicPrice", 403, InsufficientCapacityError),
        ("InvalidSpotPriceLimit.LowerThanPublicPrice", 403, InsufficientCapacityError),
        ("InstanceType.Offline", 403, InsufficientCapacityError),
        ("InstanceTypeNotSupported", 403, InsufficientCapacityError),
        ("InvalidInstanceType.NotSupported", 403, InsufficientCapacityError),
        ("InvalidVSwitchId.IpNotEnough", 403, InsufficientCapacityError),
        ("NoInstanceStock", 403, InsufficientCapacityError),
        ("Invalid.PrivatePoolOptions.NoStock", 400, InsufficientCapacityError),
        ("InsufficientBalance", 403, QuotaExceededError),
        ("Account.Arrearage", 400, QuotaExceededError),
        ("InvalidAccountStatus.NotEnoughBalance", 403, QuotaExceededError),
        ("InstanceExpired", 403, QuotaExceededError),
        ("DiskInArrears", 403, QuotaExceededError),
        ("InvalidParameter.KMSKeyId.KMSUnauthorized", 403, AuthFailedError),
        ("InvalidParameter.KMSKeyId.CMKUnauthorized", 403, AuthFailedError),
        ("InvalidParameter.KMSKeyId.CMKNotEnabled", 403, CloudError),
        ("InstanceNotReady", 500, BusyError),
        ("InstanceNotReady", 403, BusyError),
        ("QuotaExceed.ElasticQuota", 400, QuotaExceededError),
        ("InstanceQuotaExceed", 403, QuotaExceededError),
        ("InvalidInstanceId.NotFound", 404, NotFoundError),
        ("InvalidScalingGroupId.NotFound", 404, NotFoundError),
        ("InvalidAccessKeyId.NotFound", 404, AuthFailedError),
        ("Forbidden.RAM", 403, AuthFailedError),
        ("NoPermission", 403, AuthFailedError),
        ("InvalidSecurityToken.Expired", 403, AuthFailedError),
        ("SignatureDoesNotMatch", 400, AuthFailedError),
        ("InternalError", 500, CloudUnavailableError),
        ("ServiceUnavailable", 503, CloudUnavailableError),
        ("AnythingNew", 500, CloudUnavailableError),
        ("AnythingNew", 400, CloudError),
        ("IdempotentParameterMismatch", 400, CloudUnavailableError),
        ("IncorrectInstanceStatus", 403, BusyError),
    ],
)
def test_each_code_has_its_type(code: str, status: int, kind: type[CloudError]) -> None:
    """With the cloud's own word; a server error of no known code leaves open what happened."""
    error = refusal("ECS StopInstance in cn-shanghai", status, code, "It says why.")

    assert (type(error), error.code) == (kind, code)
    why = "the signature was not accepted" if "Signature" in code else "It says why."
    assert str(error) == f"ECS StopInstance in cn-shanghai: {why} ({code})"


def test_a_refused_signature_repeats_nothing_that_was_signed() -> None:
    """Alibaba's text has the canonical request with the session token."""
    error = refusal("ECS x", 400, "SignatureDoesNotMatch", "server's CanonicalRequest is [x-acs-security-token:s3cret]")

    assert "s3cret" not in str(error)


@pytest.mark.parametrize("broken", [KeyError("Instances"), TypeError(), ValueError(), AttributeError(), IndexError()])
def test_an_answer_without_its_parts_is_no_answer(broken: Exception) -> None:
    """Never an empty list, and never a yes."""
    with pytest.raises(CloudUnavailableError, match="no usable answer"), reading("ECS x"):
        raise broken


@pytest.mark.parametrize("code", ["InvalidTimeStamp.Expired", "InvalidTimeStamp.Format", "IllegalTimestamp"])
def test_a_request_of_another_time_is_about_our_clock(code: str) -> None:
    """The keys are good: what is to be set is said."""
    error = refusal("ECS StopInstance", 400, code, "Specified time stamp or date value is expired.")

    assert (type(error), error.code) == (ClockSkewError, code)
    assert "set this machine's clock" in str(error)


def test_the_older_word_for_no_stock_is_known_by_its_sentence() -> None:
    """The same code means other things, too."""
    old = refusal("ECS RunInstances", 403, "OperationDenied", "The resource is out of usage")
    other = refusal("ECS RunInstances", 403, "OperationDenied", "The current user does not support this operation")

    assert (type(old), type(other)) == (InsufficientCapacityError, CloudError)
