"""How old the key is by which Tencent Cloud knows us."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuwatch.clouds import CloudError
from gpuwatch.clouds.keys import AccessKey, Credentials, HasCredentials
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.clouds.tencent import credentials
from gpuwatch.clouds.tencent.cloud import TencentCloud
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.tencent.fake import SECRET_ID
from tests.support.clouds.tencent.others import ACCOUNT
from tests.support.clouds.tencent.world import REGION, TencentWorld, a_world
from tests.support.fakes.cloud_worlds import FLEET

USER = f"qcs::cam:{ACCOUNT}:uin/100000000002"
ROLE = AccountSettings(role_arn="qcs::cam::uin/100000000009:roleName/gpuwatch")
MADE = datetime(2026, 1, 1, 18, 4, 5, tzinfo=UTC)  # in Beijing it is the next day


@pytest.fixture
def world() -> Iterator[TencentWorld]:
    """An account whose user has two active keys, and one that is switched off."""
    with a_world(ManualClock()) as world:
        world.fake.state.access_keys = {
            SECRET_ID: ("Active", "2026-01-02 02:04:05"),
            "AKIDother": ("Active", "2026-01-02 02:04:05"),
            "AKIDoff": ("Inactive", "2020-01-02 02:04:05"),
        }
        yield world


def known_of(world: TencentWorld, **more: Any) -> Credentials:  # noqa: ANN401  any option of TencentCloud
    """By whom we are known, asked by a new process."""
    options = {"regions": [REGION], "key_file": str(world.folder / "key"), **more}
    cloud = TencentCloud(fleet=FLEET, clock=world.clock, endpoint_url=world.server.url, timeouts=(1.0, 1.0), **options)
    assert isinstance(cloud, HasCredentials)
    return cloud.credentials()


@pytest.mark.parametrize("accounts", [{}, {"other": ROLE}])
def test_the_keys_of_the_user_are_told_with_their_time(world: TencentWorld, accounts: dict[str, Any]) -> None:
    """Also where they only assume the roles of other accounts; what is switched off opens nothing."""
    known = known_of(world, accounts=accounts)

    assert (known.name, known.lasting, known.unknown) == (USER, True, "")
    assert known.keys == (
        AccessKey(id=SECRET_ID, made=MADE, ours=True),
        AccessKey(id="AKIDother", made=MADE, ours=False),
    )


def test_an_answer_without_keys_has_none(world: TencentWorld) -> None:
    """CAM writes null; the doctor takes that for not known."""
    world.fake.state.access_keys = {}

    assert known_of(world) == Credentials(name=USER, lasting=True)


def test_a_right_that_is_missing_is_named(world: TencentWorld) -> None:
    """By CAM's name of it."""
    world.fake.refusals["ListAccessKeys"] = ["UnauthorizedOperation"]

    known = known_of(world)

    assert (known.lasting, known.keys, known.unknown) == (True, (), "cam:ListAccessKeys is not allowed")


def test_no_answer_is_not_known(world: TencentWorld) -> None:
    """A gateway's page; without an answer to who we are, nothing is said."""
    world.server.plan.strike(Fault.GATEWAY, when(operation="ListAccessKeys"), times=None)
    assert "no usable answer" in known_of(world).unknown

    world.server.plan.strike(Fault.GATEWAY, when(operation="GetCallerIdentity"), times=None)
    with pytest.raises(CloudError, match="GetCallerIdentity"):
        known_of(world)


def test_credentials_with_a_token_end_by_themselves(world: TencentWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a machine's role: CAM is not asked for keys."""
    role = world.fake.roles.assume_role(REGION, {"DurationSeconds": 3600})["Credentials"]

    class OfTheMachine:
        """What the metadata service gives."""

        def get_credential_info(self) -> credentials.Key:
            """A key with its token."""
            return role["TmpSecretId"], role["TmpSecretKey"], role["Token"]

    monkeypatch.setattr(credentials, "_chain", OfTheMachine)

    assert known_of(world, key_file=None).lasting is False
    assert "cam:ListAccessKeys" not in world.fake.seen
