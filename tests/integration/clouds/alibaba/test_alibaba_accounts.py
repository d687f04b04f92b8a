"""Several accounts: each is entered by its role, and one that does not let us in hides no other."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpuwatch.clouds import AuthFailedError, CloudError
from gpuwatch.clouds.alibaba import client as credentials
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.alibaba.fake import KEY_ID, SECRET
from tests.support.clouds.alibaba.state import ACCOUNT
from tests.support.clouds.alibaba.world import OTHER_REGION, REGION, AlibabaWorld, a_world
from tests.support.fakes.cloud_worlds import MINE

ROLE = "acs:ram::1111111111111111:role/gpuwatch-controller"


@pytest.fixture
def world() -> Iterator[AlibabaWorld]:
    """An empty account."""
    with a_world(ManualClock()) as world:
        yield world


class Roles:
    """The SDK's assuming of roles: what it was asked for, and whether it succeeds."""

    def __init__(self) -> None:
        """Everybody lets us in."""
        self.asked: list[tuple[Any, ...]] = []
        self.closed = False

    def of_role(self, *asked: Any) -> Any:  # noqa: ANN401  as the SDK's
        """A role's credentials; here they are those of the fake's only account."""
        self.asked.append(asked)
        return self

    def get_credentials(self) -> Any:  # noqa: ANN401  as the SDK's
        """When they are needed."""
        if self.closed:
            raise RuntimeError("NoPermission: s3cret")
        return credentials.of_pair(KEY_ID, SECRET).get_credentials()


@pytest.fixture
def roles(monkeypatch: pytest.MonkeyPatch) -> Roles:
    """In place of the SDK's own."""
    found = Roles()
    monkeypatch.setattr(credentials, "of_role", found.of_role)
    return found


def accounts() -> dict[str, AccountSettings]:
    """The credentials' own account in one region, another one in the other."""
    other = AccountSettings(role_arn=ROLE, external_id="research-7", regions=(OTHER_REGION,))
    return {"own": AccountSettings(), "prod": other}


def test_each_account_is_entered_by_its_role_and_named(world: AlibabaWorld, roles: Roles) -> None:
    """Its number is the role's; that of the credentials' own account is asked for once."""
    here, there = world.launch(MINE), world.launch(MINE, region=OTHER_REGION)
    cloud = world.another([REGION], accounts=accounts())

    found = {node.id: (node.region, node.account) for node in cloud.nodes()}
    cloud.nodes()

    assert found == {here: (REGION, ACCOUNT), there: (OTHER_REGION, "1111111111111111")}
    assert [asked[1:] for asked in roles.asked] == [(ROLE, "research-7")]
    assert world.server.count("GetCallerIdentity") == 1


def test_an_account_that_closes_its_door_is_unknown_and_the_others_go_on(world: AlibabaWorld, roles: Roles) -> None:
    """Nothing of it is taken for gone, and its error repeats nothing of the SDK's text."""
    here, there = world.launch(MINE), world.launch(MINE, region=OTHER_REGION)
    cloud = world.another([REGION], accounts=accounts())
    cloud.nodes()
    roles.closed = True

    assert {node.id: node.state for node in cloud.nodes()} == {here: NodeState.RUNNING, there: NodeState.UNKNOWN}
    with pytest.raises(AuthFailedError, match="of account prod") as caught:
        cloud.node(there)
    assert "s3cret" not in str(caught.value)


def test_an_account_that_never_let_us_in_makes_no_part_of_a_list(world: AlibabaWorld, roles: Roles) -> None:
    """Nobody knows what is there."""
    world.launch(MINE)
    roles.closed = True

    with pytest.raises(CloudError):
        world.another([REGION], accounts=accounts()).nodes()


def test_a_launch_goes_where_its_arguments_say(world: AlibabaWorld, roles: Roles) -> None:
    """By region and account; a place that the settings do not have is told."""
    cloud = world.another([REGION], accounts=accounts())
    made = cloud.launch({"template": "gpu-node", "region": OTHER_REGION, "account": "1111111111111111"}, "key")

    assert world.machine(made).region == OTHER_REGION
    with pytest.raises(CloudError, match=r"is not among cloud\.regions and cloud\.alibaba\.accounts"):
        cloud.launch({"template": "gpu-node", "region": "us-east-1"}, "key-2")
    assert len(roles.asked) == 1


def test_the_sdk_takes_the_role_as_we_give_it() -> None:
    """Nothing is sent before its credentials are needed."""
    provider = credentials.of_role(credentials.of_pair(KEY_ID, SECRET), ROLE, "research-7")

    assert (provider._role_arn, provider._external_id, provider._role_session_name) == (ROLE, "research-7", "gpuwatch")
