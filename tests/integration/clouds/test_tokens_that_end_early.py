"""A token that Azure, Alibaba Cloud or Tencent Cloud does not take any more in the middle of a round is renewed once.

AWS's are in `test_aws_expired_tokens.py`, Google's in `test_gcp_credentials.py`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from alibabacloud_credentials.provider.refreshable import Credentials, RefreshCachedSupplier, RefreshResult

from gpuwatch.clouds import AuthFailedError
from gpuwatch.clouds.alibaba.client import source
from gpuwatch.clouds.azure import client as azure_client
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.clouds.tencent.cloud import TencentCloud
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.alibaba import world as alibaba
from tests.support.clouds.alibaba.errors import Refusal
from tests.support.clouds.alibaba.fake import KEY_ID, SECRET
from tests.support.clouds.azure import world as azure
from tests.support.clouds.azure.world import StaticCredential
from tests.support.clouds.faults import Fault, When, when
from tests.support.clouds.tencent import world as tencent
from tests.support.fakes.cloud_worlds import FLEET, MINE


@dataclass(frozen=True, kw_only=True)
class Case:
    """A cloud with one machine, the end of its token, and how often a token was made."""

    world: Any
    cloud: Any
    node_id: str
    end: Callable[[], None]
    made: Callable[[], int]
    listing: When
    stopping: When


@contextmanager
def of_azure(monkeypatch: pytest.MonkeyPatch, code: str) -> Iterator[Case]:
    """azure-identity keeps a token until it ends by its own word; another chain fetches another one."""
    del code  # Azure's is always that of HTTP
    with azure.an_azure(ManualClock()) as world:
        made: list[StaticCredential] = []

        def chain(_: str) -> StaticCredential:
            made.append(StaticCredential(f"token{len(made) + 1}"))
            return made[-1]

        def end() -> None:
            world.fake.token = f"token{len(made) + 1}"

        monkeypatch.setattr(azure_client, "default_credential", chain)
        world.fake.token = "token1"  # noqa: S105  of the pretended cloud
        yield Case(
            world=world,
            cloud=world.connect(credential=None),
            node_id=world.launch(MINE),
            end=end,
            made=lambda: len(made),
            listing=when(operation="VirtualMachines_ListAll"),
            stopping=when(change=True),
        )


_IN_2100 = 4_102_444_800


class Role:
    """A role that is assumed with a session, as far as STS takes that one."""

    def __init__(self) -> None:
        """STS does not take the first."""
        self._credentials_provider = Sessions()

    def get_credentials(self) -> Any:  # noqa: ANN401  the SDK has no types
        """As the SDK words what STS answered."""
        found = self._credentials_provider.get_credentials()
        if found.get_security_token() == "token1":
            raise RuntimeError('http_code: 403, result: {"Code":"InvalidSecurityToken.Expired"}')
        return found


class Sessions:
    """Credentials of the SDK's kind: it keeps each key as long as it was said to last."""

    def __init__(self) -> None:
        """Nothing is asked yet."""
        self.made = 0
        self._credentials_cache = RefreshCachedSupplier(self._make, self._make)

    def _make(self) -> Any:  # noqa: ANN401  the SDK has no types
        self.made += 1
        key = Credentials(access_key_id=KEY_ID, access_key_secret=SECRET, security_token=f"token{self.made}")
        return RefreshResult(value=key, stale_time=_IN_2100, prefetch_time=_IN_2100)

    def get_credentials(self) -> Any:  # noqa: ANN401  likewise
        """From the memory, or new ones."""
        return self._credentials_cache._sync_call()


@contextmanager
def of_alibaba(monkeypatch: pytest.MonkeyPatch, code: str) -> Iterator[Case]:
    """A role's session: its key is not found any more, or its token has expired, in several words."""
    del monkeypatch
    with alibaba.a_world(ManualClock()) as world:
        sessions = Sessions()
        message = f'The specified parameter "{code}" is not valid.' if code == "SecurityToken.Expired" else "It ended."
        word = "InvalidParameter" if code == "SecurityToken.Expired" else code
        status = {"InvalidAccessKeyId.NotFound": 404, "InvalidSecurityToken.Expired": 403}.get(code, 400)
        yield Case(
            world=world,
            cloud=world.another(provider=sessions),
            node_id=world.launch(MINE),
            end=lambda: world.fake.ended.update({f"token{sessions.made}": Refusal(status, word, message)}),
            made=lambda: sessions.made,
            listing=when(operation="DescribeInstances"),
            stopping=when(operation="StopInstance"),
        )


@contextmanager
def of_tencent(monkeypatch: pytest.MonkeyPatch, code: str) -> Iterator[Case]:
    """A role of another account."""
    del monkeypatch, code
    with tencent.a_world(ManualClock()) as world:
        role = AccountSettings(role_arn="qcs::cam::uin/100000000009:roleName/gpuwatch", external_id="research-7")
        options: dict[str, Any] = {"endpoint_url": world.server.url, "key_file": str(world.folder / "key")}
        roles = world.fake.roles
        yield Case(
            world=world,
            cloud=TencentCloud(
                fleet=FLEET,
                clock=world.clock,
                regions=[tencent.REGION],
                accounts={"prod": role},
                timeouts=(1.0, 1.0),
                **options,
            ),
            node_id=world.launch(MINE),
            end=roles.end,
            made=lambda: len(roles.assumed),
            listing=when(operation="DescribeInstances"),
            stopping=when(operation="StopInstances"),
        )


CASES = [
    (of_azure, ""),
    (of_alibaba, "InvalidSecurityToken.Expired"),
    (of_alibaba, "InvalidAccessKeyId.NotFound"),
    (of_alibaba, "SecurityToken.Expired"),  # as a parameter's name: gh:kubevela/terraform-controller#52
    (of_tencent, ""),
]


@pytest.fixture(params=CASES, ids=lambda each: f"{each[0].__name__}-{each[1]}")
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    """One machine runs, and was seen."""
    make, code = request.param
    with make(monkeypatch, code) as found:
        assert [node.id for node in found.cloud.nodes()] == [found.node_id]
        assert found.made() == 1
        yield found


def test_a_token_that_ends_in_a_round_is_renewed_and_the_list_is_whole(case: Case) -> None:
    """Once, for all calls of the round; nothing is unknown, and nothing is gone."""
    case.end()

    assert {node.id: node.state for node in case.cloud.nodes()} == {case.node_id: NodeState.RUNNING}
    assert case.cloud.node(case.node_id).state is NodeState.RUNNING
    assert case.made() == 2


def test_a_token_that_is_never_taken_is_an_error_and_no_loop(case: Case) -> None:
    """One renewal and one more request for each call; the machine is as last seen, or the place is refused."""
    case.world.server.plan.strike(Fault.EXPIRED, case.listing, times=None)
    before, made = len(case.world.server.log), case.made()

    with pytest.raises(AuthFailedError):
        case.cloud.nodes()

    assert case.made() - made <= 2
    assert len(case.world.server.log) - before <= 8


def test_a_change_with_an_ended_token_is_sent_once_and_the_next_one_has_a_new_token(case: Case) -> None:
    """The ledger decides about trying again."""
    case.world.server.plan.strike(Fault.EXPIRED, case.stopping)
    before = len(case.world.server.changes())

    with pytest.raises(AuthFailedError):
        case.cloud.stop(case.node_id, "key", permit=a_permit())
    assert len(case.world.server.changes()) - before == 1
    assert case.made() == 2

    if hasattr(case.world.fake, "token"):
        case.world.fake.token = "token2"  # noqa: S105  Azure's fake takes one token alone
    case.cloud.stop(case.node_id, "key", permit=a_permit())
    assert case.made() == 2


def test_a_session_of_alibaba_cloud_that_ended_before_it_assumed_a_role_is_renewed() -> None:
    """The SDK keeps it, too."""
    key = source(Role(), "account prod", ManualClock())
    assert key.proof() == (KEY_ID, SECRET, "token2")
