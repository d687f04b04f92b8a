"""How old the AccessKey pair is by which Alibaba Cloud knows us."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from alibabacloud_credentials.provider import StaticSTSCredentialsProvider

from gpuwatch.clouds import CloudError
from gpuwatch.clouds.keys import AccessKey, HasCredentials
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.alibaba.fake import KEY_ID, SECRET
from tests.support.clouds.alibaba.state import ACCOUNT
from tests.support.clouds.alibaba.world import AlibabaWorld, a_world
from tests.support.clouds.faults import Fault, when

USER = f"acs:ram::{ACCOUNT}:user/gpuwatch"
MADE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def world() -> Iterator[AlibabaWorld]:
    """An account whose user has two active keys, and one that is switched off."""
    with a_world(ManualClock()) as world:
        world.fake.state.access_keys = {
            KEY_ID: ("Active", "2026-01-02T03:04:05Z"),
            "LTAI5tOther": ("Active", "2026-01-02T03:04:05Z"),
            "LTAI5tOff": ("Inactive", "2020-01-02T03:04:05Z"),
        }
        yield world


@pytest.mark.parametrize("accounts", [{}, {"other": AccountSettings(role_arn="acs:ram::1234:role/gpuwatch")}])
def test_the_keys_of_the_user_are_told_with_their_time(world: AlibabaWorld, accounts: dict[str, Any]) -> None:
    """Also where they only assume the roles of other accounts; what is switched off opens nothing."""
    cloud = world.another(accounts=accounts)
    assert isinstance(cloud, HasCredentials)

    known = cloud.credentials()

    assert (known.name, known.lasting, known.unknown) == (USER, True, "")
    assert known.keys == (
        AccessKey(id=KEY_ID, made=MADE, ours=True),
        AccessKey(id="LTAI5tOther", made=MADE, ours=False),
    )


def test_a_right_that_is_missing_is_named(world: AlibabaWorld) -> None:
    """By RAM's name of it."""
    world.fake.denied.add("ram:ListAccessKeys")

    known = world.another().credentials()

    assert (known.lasting, known.keys, known.unknown) == (True, (), "ram:ListAccessKeys is not allowed")


def test_no_answer_is_not_known(world: AlibabaWorld) -> None:
    """A gateway's page; without an answer to who we are, nothing is said."""
    world.server.plan.strike(Fault.GATEWAY, when(operation="ListAccessKeys"), times=None)
    assert "no usable answer" in world.another().credentials().unknown

    world.server.plan.strike(Fault.GATEWAY, when(operation="GetCallerIdentity"), times=None)
    with pytest.raises(CloudError, match="GetCallerIdentity"):
        world.another().credentials()


def test_credentials_with_a_token_end_by_themselves(world: AlibabaWorld) -> None:
    """RAM is not asked for keys."""
    given = {"access_key_id": KEY_ID, "access_key_secret": SECRET, "security_token": "token"}
    provider = StaticSTSCredentialsProvider(**given)

    known = world.another(provider=provider).credentials()

    assert known.lasting is False
    assert world.server.count("ListAccessKeys") == 0
