"""A service account's key, by google-auth's own flow: a token is fetched, kept, renewed, and never waited for late."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.clouds import AuthFailedError, ClockSkewError, CloudUnavailableError, PermitExpiredError
from gpuwatch.clouds.gcp.cloud import GcpCloud
from gpuwatch.clouds.gcp.settings import GcpSettings
from gpuwatch.clouds.settings import CloudSettings, connect
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.gcp.tokens import ACCOUNT, TokenService, a_key, token_service
from tests.support.clouds.gcp.world import PROJECT, REGION, GcpWorld, a_world
from tests.support.fakes.cloud_worlds import FLEET, MINE


@pytest.fixture
def world() -> Iterator[GcpWorld]:
    """An empty project."""
    with a_world(ManualClock()) as world:
        yield world


@pytest.fixture
def tokens(world: GcpWorld) -> Iterator[TokenService]:
    """The service of tokens, on loopback."""
    with token_service(world) as service:
        yield service


@pytest.fixture
def file(tmp_path: Path, tokens: TokenService) -> Path:
    """A service account's key."""
    return a_key(tmp_path, tokens)


@pytest.fixture
def cloud(world: GcpWorld, file: Path) -> GcpCloud:
    """As the settings make it; the project is the credentials' own."""
    settings = CloudSettings(
        provider="gcp",
        regions=(REGION,),
        endpoint_url=world.server.url,
        gcp=GcpSettings(credentials_file=str(file)),
    )
    made = connect(settings, fleet=FLEET, clock=world.clock)
    assert isinstance(made, GcpCloud)
    return made


def test_a_token_is_fetched_once_and_names_the_account(world: GcpWorld, cloud: GcpCloud, tokens: TokenService) -> None:
    """Nothing is asked before the first call; the project comes with the credentials."""
    node_id = world.launch(MINE)
    assert tokens.given == 0

    nodes = cloud.nodes()
    cloud.stop(node_id, "key", permit=a_permit())

    assert [(node.id, node.account) for node in nodes] == [(node_id, PROJECT)]
    assert tokens.given == 1
    identity = cloud.identity()
    assert identity.name == ACCOUNT
    assert identity.at == world.clock.now().replace(microsecond=0)


def test_a_token_that_ends_in_the_middle_is_renewed_for_a_read(
    world: GcpWorld, cloud: GcpCloud, tokens: TokenService
) -> None:
    """Google takes it no more: another is fetched, and the list is whole."""
    node_id = world.launch(MINE)
    cloud.nodes()
    world.fake.tokens = set()

    assert [node.id for node in cloud.nodes()] == [node_id]
    assert tokens.given == 2


def test_a_change_that_was_refused_for_its_token_is_not_sent_again_by_itself(
    world: GcpWorld, cloud: GcpCloud, tokens: TokenService
) -> None:
    """It is told; the next round has a new token."""
    node_id = world.launch(MINE)
    cloud.nodes()

    def ends() -> None:
        world.fake.tokens = set()

    world.fake.after["compute.instances.get"] = ends
    with pytest.raises(AuthFailedError):
        cloud.stop(node_id, "key", permit=a_permit())
    assert len(world.server.changes()) == 1

    cloud.stop(node_id, "key", permit=a_permit())
    assert tokens.given == 2


def test_what_the_service_of_tokens_says_is_not_repeated(
    world: GcpWorld, cloud: GcpCloud, tokens: TokenService
) -> None:
    """Its texts may hold secrets."""
    tokens.broken = True

    with pytest.raises(AuthFailedError) as caught:
        cloud.nodes()

    assert "secret-of" not in str(caught.value)
    assert "RefreshError" in str(caught.value)
    assert world.server.log == []


def test_a_request_for_a_token_of_another_time_is_about_our_clock(cloud: GcpCloud, tokens: TokenService) -> None:
    """A service account's key signs it by this machine's clock."""
    tokens.broken = True
    tokens.says = "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe."

    with pytest.raises(ClockSkewError, match="set this machine's clock"):
        cloud.nodes()


def test_a_token_refused_while_the_clocks_differ_is_about_our_clock(
    world: GcpWorld, cloud: GcpCloud, tokens: TokenService
) -> None:
    """The date of the answer shows it."""
    cloud.nodes()
    assert tokens.given == 1
    world.server.plan.strike(Fault.SKEW, when(), times=None)
    world.fake.tokens = {"another"}
    tokens.taken = False

    with pytest.raises(ClockSkewError, match="60 min behind the cloud's"):
        cloud.stop("1", "key", permit=a_permit())


def test_no_token_is_no_answer(world: GcpWorld, cloud: GcpCloud, tokens: TokenService) -> None:
    """The service of tokens is down: nothing was sent to Compute Engine."""
    tokens.server_close()

    with pytest.raises(CloudUnavailableError):
        cloud.nodes()
    assert world.server.log == []


def test_googles_own_variable_names_the_file(
    world: GcpWorld, file: Path, tokens: TokenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the setting the credentials are found as every program of Google finds them."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    node_id = world.launch(MINE)

    cloud = GcpCloud(fleet=FLEET, clock=world.clock, regions=[REGION], endpoint_url=world.server.url)

    assert [node.id for node in cloud.nodes()] == [node_id]
    assert tokens.given == 1


def test_a_missing_file_is_said_without_its_content(world: GcpWorld, tmp_path: Path) -> None:
    """The first call says so, and the command that helps."""
    path = tmp_path / "nothing.json"
    cloud = GcpCloud(
        fleet=FLEET, clock=world.clock, regions=[REGION], credentials_file=path, endpoint_url=world.server.url
    )

    with pytest.raises(AuthFailedError, match="gcloud auth application-default"):
        cloud.nodes()


def test_a_permit_that_ends_while_a_token_is_fetched_sends_nothing(
    world: GcpWorld, cloud: GcpCloud, tokens: TokenService
) -> None:
    """The token comes first, the permit is looked at after it."""
    node_id = world.launch(MINE)
    cloud.nodes()
    permit = a_permit(world.clock, max_age=5.0)

    tokens.takes_seconds = 60.0
    world.fake.after["compute.instances.get"] = cloud._credentials.forget
    with pytest.raises(PermitExpiredError):
        cloud.stop(node_id, "key", permit=permit)
    assert world.server.changes() == []
    assert tokens.given == 2
