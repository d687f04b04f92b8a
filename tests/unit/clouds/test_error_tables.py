"""What a cloud's code means: a refusal is no silence, whatever word it ends in."""

from importlib import import_module

import pytest

from gpuwatch.clouds.errors import CloudError, CloudUnavailableError, Table, kind_of
from gpuwatch.clouds.gcp.errors import failure

CLOUDS = ("alibaba", "aws", "azure", "gcp", "tencent")


def table_of(cloud: str) -> Table:
    """The table of a cloud's codes."""
    table: Table = import_module(f"gpuwatch.clouds.{cloud}.errors")._CODES
    return table


@pytest.mark.parametrize("cloud", CLOUDS)
def test_no_answer_is_told_by_exact_words(cloud: str) -> None:
    """A refusal that is taken for silence leaves its intent in doubt, and every later step of the round undone."""
    silent = [pattern for pattern, kind in table_of(cloud) if kind is CloudUnavailableError]

    # What follows a whole word and its dot is the cloud's detail of the same word.
    assert [pattern for pattern in silent if "*" in pattern.removesuffix(".*")] == []


@pytest.mark.parametrize(
    ("cloud", "code"),
    [
        ("aws", "InvalidAMIID.Unavailable"),
        ("aws", "InvalidSnapshot.Unavailable"),
        ("aws", "InternalNetworkConflict"),
        ("aws", "InvalidKMSKey.InvalidState"),
        ("azure", "ImageUnavailable"),
        ("alibaba", "InvalidParameter.StopTimeout"),
        ("alibaba", "InternalIpConflict"),
        ("alibaba", "InvalidParameter.KMSKeyId.CMKNotEnabled"),
        ("tencent", "InternalErrorless"),
    ],
)
def test_a_deregistered_image_and_its_kin_are_refusals(cloud: str, code: str) -> None:
    """The next offer of the pool is asked, and all other pools go on."""
    assert kind_of(code, table_of(cloud)) is CloudError


def test_an_operation_that_has_failed_is_not_in_doubt() -> None:
    """Google's status of a finished operation says why it failed, not that nobody knows whether it did."""
    code = {"code": "RESOURCE_POOL_IS_EMPTY_OR_SO", "message": "no"}
    found = failure("instances.insert", {"error": {"errors": [code]}, "httpErrorStatusCode": 503})

    assert found is not None
    assert not isinstance(found, CloudUnavailableError)
