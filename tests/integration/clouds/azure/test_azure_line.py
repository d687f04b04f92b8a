"""What comes over the wire is believed only where it is whole; what goes out goes out once, and under its permit."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError

from gpuwatch.clouds import (
    AuthFailedError,
    ClockSkewError,
    CloudUnavailableError,
    PermitExpiredError,
    ThrottledError,
)
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.azure.fake import PAGE, FakeAzure
from tests.support.clouds.azure.world import AzureWorld, StaticCredential, an_azure
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.recorded import answering
from tests.support.clouds.server import Request, Response
from tests.support.fakes.cloud_worlds import MINE


@pytest.fixture
def world() -> Iterator[AzureWorld]:
    """A subscription with three machines: their list has two pages."""
    with an_azure(ManualClock()) as world:
        for _ in range(3):
            world.launch(MINE)
        yield world


def spoil(world: AzureWorld, monkeypatch: pytest.MonkeyPatch, change: Any) -> None:  # noqa: ANN401  a function of a page
    """Every page of a list is another one."""
    real = FakeAzure.answer

    def answer(fake: FakeAzure, request: Request) -> Response:
        found = real(fake, request)
        listed = isinstance(found.body, dict) and "value" in found.body
        return replace(found, body=change(json.loads(json.dumps(found.body)))) if listed else found

    monkeypatch.setattr(FakeAzure, "answer", answer)
    world.cloud = world.connect()


@pytest.mark.parametrize("body", [{}, {"value": None}, {"value": "none"}, {"value": [1]}, []], ids=str)
def test_an_answer_without_a_list_is_no_empty_list(
    world: AzureWorld, monkeypatch: pytest.MonkeyPatch, body: object
) -> None:
    """The SDK would take some of these for "nothing is there"."""
    spoil(world, monkeypatch, lambda _: body)

    with pytest.raises(CloudUnavailableError) as caught:
        world.cloud.nodes()

    assert caught.value.code == "NoList"


def test_a_list_at_azures_own_address_is_read_to_its_last_page(world: AzureWorld) -> None:
    """Its links name the port of https, which the address does not."""
    launched = {world.launch(MINE) for _ in range(2 * PAGE + 1)}

    with answering(world.fake.answer):
        cloud = world.connect(endpoint_url=None, options={})
        assert launched < {node.id for node in cloud.nodes()}


@pytest.mark.parametrize("write", [str.upper, str.lower, lambda link: "/" + link.split("/", 3)[3]])
def test_a_link_is_followed_however_it_names_our_server(
    world: AzureWorld, monkeypatch: pytest.MonkeyPatch, write: Callable[[str], str]
) -> None:
    """In capitals, or not at all."""
    launched = {world.launch(MINE) for _ in range(PAGE)}

    def written(page: dict[str, Any]) -> dict[str, Any]:
        link = page.get("nextLink")
        if link is None:
            return page
        server, rest = "/".join(link.split("/", 3)[:3]), link.split("/", 3)[3]
        return {**page, "nextLink": write(link) if write(link).startswith("/") else f"{write(server)}/{rest}"}

    spoil(world, monkeypatch, written)

    assert launched < {node.id for node in world.cloud.nodes()}


def test_a_page_with_nothing_on_it_is_not_the_last_one(world: AzureWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Azure gives such pages where what it looked through was somebody else's."""
    launched = {world.launch(MINE) for _ in range(PAGE)}
    real = FakeAzure.answer

    def answer(fake: FakeAzure, request: Request) -> Response:
        found = real(fake, request)
        first = "empty" not in request.query and "$skiptoken" not in request.query
        if not first or not isinstance(found.body, dict) or "value" not in found.body:
            return found
        return replace(found, body={"value": [], "nextLink": f"{world.server.url}{request.target}&empty=1"})

    monkeypatch.setattr(FakeAzure, "answer", answer)
    world.cloud = world.connect()

    assert launched < {node.id for node in world.cloud.nodes()}


@pytest.mark.parametrize(
    "link",
    [
        "https://elsewhere.example/next",
        "http://acs-eastus.trafficmanager.net/subscriptions/x",
        "//elsewhere.example/next",
        "https://[elsewhere.example/next",
        "file:///etc/passwd",
        7,
    ],
)
def test_a_next_page_at_another_server_is_never_asked_for(
    world: AzureWorld, monkeypatch: pytest.MonkeyPatch, link: object
) -> None:
    """It would be given our token."""
    spoil(world, monkeypatch, lambda page: {**page, "nextLink": link})

    with pytest.raises(CloudUnavailableError) as caught:
        world.cloud.nodes()

    assert caught.value.code == "ForeignPage"


def test_pages_that_lead_in_a_circle_end(world: AzureWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that comes again is an error, not a list for ever."""
    again = f"{world.server.url}/subscriptions?api-version=2022-12-01"
    spoil(world, monkeypatch, lambda page: {"value": page["value"][:0], "nextLink": again})

    with pytest.raises(CloudUnavailableError) as caught:
        world.cloud.nodes()

    assert caught.value.code == "RepeatedPage"


def test_a_throttled_read_waits_as_long_as_azure_says(world: AzureWorld) -> None:
    """Retry-After is kept by the clock, and the list is whole."""
    before = world.clock.monotonic()
    world.server.plan.strike(Fault.THROTTLED_FOR, when(operation="VirtualMachines_ListAll"))

    assert len(world.cloud.nodes()) == 3

    assert world.clock.monotonic() - before >= 1.0


def test_a_read_that_should_wait_for_long_is_an_error_at_once(world: AzureWorld) -> None:
    """A round does not stand still for minutes."""
    world.fake.refused["VirtualMachines_ListAll"] = (429, "TooManyRequests", "later")
    real = FakeAzure.answer

    def answer(request: Request) -> Response:
        found = real(world.fake, request)
        return replace(found, headers={**found.headers, "Retry-After": "600"}) if found.status == 429 else found

    world.fake.answer = answer  # type: ignore[method-assign]
    before = world.clock.monotonic()

    with pytest.raises(ThrottledError):
        world.cloud.nodes()

    assert world.clock.monotonic() - before < 10


def test_a_gateways_404_proves_nothing(world: AzureWorld) -> None:
    """Only Azure's own code says that a machine is not there."""
    node_id = world.cloud.nodes()[0].id

    def answer(request: Request) -> Response:
        del request
        return Response(status=404, body="<html>not here</html>")

    world.fake.answer = answer  # type: ignore[method-assign]

    with pytest.raises(CloudUnavailableError):
        world.cloud.node(node_id)


# Credentials


class Tired(StaticCredential):
    """Its tokens come slowly, or not at all."""

    def __init__(self, clock: ManualClock, seconds: float) -> None:
        """So many seconds each."""
        super().__init__()
        self.clock, self.seconds = clock, seconds
        self.fails = False

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:  # noqa: ANN401  azure-core's protocol
        """A token that is used up at once."""
        if self.fails:
            raise ClientAuthenticationError("AADSTS7000222: the secret hunter2 has expired")
        self.clock.advance(self.seconds)
        return replace_expiry(super().get_token(*scopes, **options))


def replace_expiry(token: AccessToken) -> AccessToken:
    """It has expired."""
    return AccessToken(token.token, 1)


def test_a_permit_that_ends_while_a_token_is_fetched_sends_nothing(world: AzureWorld) -> None:
    """The permit is asked as the very last thing."""
    credential = Tired(world.clock, 0.0)
    cloud = world.connect(credential=credential)
    node_id = cloud.nodes()[0].id
    credential.seconds = 10.0

    with pytest.raises(PermitExpiredError):
        cloud.stop(node_id, "key", permit=a_permit(world.clock, max_age=5.0))

    assert world.server.changes() == []


def test_no_token_is_an_error_that_repeats_no_secret(world: AzureWorld) -> None:
    """What azure-identity says may hold secrets."""
    credential = Tired(world.clock, 0.0)
    cloud = world.connect(credential=credential)
    node_id = cloud.nodes()[0].id
    credential.fails = True

    for ask in (cloud.nodes, lambda: cloud.stop(node_id, "key", permit=a_permit(world.clock))):
        with pytest.raises(AuthFailedError) as caught:
            ask()
        assert "hunter2" not in str(caught.value)
    assert world.server.changes() == []


def test_a_token_refused_while_the_clocks_differ_is_about_our_clock(world: AzureWorld) -> None:
    """A token that has ended by the cloud's clock is renewed by ours: the date of the answer shows why."""
    world.cloud = world.connect(credential=StaticCredential("another"))
    world.server.plan.strike(Fault.SKEW, when(), times=None)

    with pytest.raises(ClockSkewError, match="60 min behind the cloud's"):
        world.cloud.nodes()


def test_a_wrong_token_is_refused(world: AzureWorld) -> None:
    """As Azure refuses it."""
    with pytest.raises(AuthFailedError) as caught:
        world.connect(credential=StaticCredential("another")).nodes()

    assert caught.value.code == "InvalidAuthenticationToken"


def test_a_certificate_that_nobody_knows_is_not_believed(world: AzureWorld) -> None:
    """Nothing is sent, no token either."""
    with pytest.raises(CloudUnavailableError):
        world.connect(options={"connection_timeout": 1, "read_timeout": 1}).nodes()

    assert world.server.log == []
