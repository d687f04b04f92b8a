"""A service account's key, by google-auth's own flow: a token is fetched, kept, renewed, and never waited for late."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from gpuwatch.clouds import AuthFailedError, CloudUnavailableError, PermitExpiredError
from gpuwatch.clouds.gcp.cloud import GcpCloud
from gpuwatch.clouds.gcp.settings import GcpSettings
from gpuwatch.clouds.settings import CloudSettings, connect
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.gcp.world import PROJECT, REGION, GcpWorld, a_world
from tests.support.fakes.cloud_worlds import FLEET, MINE

ACCOUNT = f"gpuwatch@{PROJECT}.iam.gserviceaccount.com"


class TokenService(HTTPServer):
    """Google's service of tokens: each signed assertion gives a new token, which the fake of Compute Engine takes."""

    def __init__(self, world: GcpWorld) -> None:
        """No token is given yet."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.world, self.given, self.broken = world, 0, False
        world.fake.tokens = set()


class _Handler(BaseHTTPRequestHandler):
    server: TokenService

    def do_POST(self) -> None:
        """One token for an assertion."""
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
        assert form["assertion"][0].count(".") == 2
        body: dict[str, object] = {"error": "invalid_grant", "error_description": "secret-of-the-token-service"}
        if not self.server.broken:
            self.server.given += 1
            token = f"token-{self.server.given}"
            assert self.server.world.fake.tokens is not None
            self.server.world.fake.tokens = {token}
            body = {"access_token": token, "expires_in": 3600, "token_type": "Bearer"}
        content = json.dumps(body).encode()
        self.send_response(400 if self.server.broken else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def world() -> Iterator[GcpWorld]:
    """An empty project."""
    with a_world(ManualClock()) as world:
        yield world


@pytest.fixture
def tokens(world: GcpWorld) -> Iterator[TokenService]:
    """The service of tokens, on loopback."""
    with TokenService(world) as service:
        thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield service
        service.shutdown()
        thread.join()


@pytest.fixture
def file(tmp_path: Path, tokens: TokenService) -> Path:
    """A service account's key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    told = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": "1",
        "private_key": pem,
        "client_email": ACCOUNT,
        "token_uri": f"http://127.0.0.1:{tokens.server_address[1]}/token",
    }
    path = tmp_path / "key.json"
    path.write_text(json.dumps(told))
    return path


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

    def slow() -> None:
        world.clock.advance(60)

    world.fake.after["compute.instances.get"] = slow
    with pytest.raises(PermitExpiredError):
        cloud.stop(node_id, "key", permit=permit)
    assert world.server.changes() == []
    assert tokens.given == 1
