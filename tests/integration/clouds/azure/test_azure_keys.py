"""How old the secret of the application is by which Azure knows us, and when it ends."""

import base64
import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from gpuwatch.clouds.azure import standing
from gpuwatch.clouds.azure.client import Renewing
from gpuwatch.clouds.keys import Credentials, HasCredentials
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.azure.world import AzureWorld, StaticCredential, an_azure
from tests.support.clouds.faults import Fault, when

APP = "55555555-5555-4555-8555-555555555555"
SECRET, CERTIFICATE = {"appid": APP, "appidacr": "1"}, {"appid": APP, "appidacr": "2"}
DAY = timedelta(days=1)


@pytest.fixture
def world() -> Iterator[AzureWorld]:
    """An application with a secret, one that has ended, and a certificate."""
    with an_azure(ManualClock()) as world:
        now = world.clock.now()
        world.fake.state.applications[APP] = {
            "passwordCredentials": [
                told("secret", now - 200 * DAY, now + 165 * DAY),
                told("ended", now - 400 * DAY, now - DAY),
            ],
            "keyCredentials": [told("certificate", now - 10 * DAY, now + 80 * DAY)],
        }
        yield world


def told(name: str, begin: datetime, end: datetime) -> dict[str, Any]:
    """A secret or certificate, as Graph shows it."""
    times = {"startDateTime": f"{begin:%Y-%m-%dT%H:%M:%S}.1234567Z", "endDateTime": f"{end:%Y-%m-%dT%H:%M:%S}Z"}
    return {"keyId": name, "displayName": f"the {name}", **times}


def known_of(world: AzureWorld, claims: Mapping[str, object]) -> Credentials:
    """By whom we are known with a token of these claims."""
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    world.fake.token = f"head.{payload}.signature"
    cloud = world.connect(credential=StaticCredential(world.fake.token))
    assert isinstance(cloud, HasCredentials)
    return cloud.credentials()


def only_days(known: Credentials, now: datetime) -> list[tuple[str, int, int, bool | None]]:
    """Each key with its age and what is left of it, in days."""
    return [
        (key.id, round((now - key.made) / DAY), round((key.ends - now) / DAY), key.ours)
        for key in known.keys
        if key.made and key.ends
    ]


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        (SECRET, [("secret", 200, 165, None), ("certificate", 10, 80, False)]),
        (CERTIFICATE, [("certificate", 10, 80, None), ("secret", 200, 165, False)]),
        ({"azp": APP, "azpacr": "1"}, [("secret", 200, 165, None), ("certificate", 10, 80, False)]),
    ],
    ids=["by a secret", "by a certificate or a federated token", "as tokens of version 2 say it"],
)
def test_what_the_application_has_is_told(
    world: AzureWorld, claims: Mapping[str, object], expected: list[tuple[str, int, int, bool | None]]
) -> None:
    """The token says how we proved who we are, and not by which of several; what has ended opens nothing."""
    known = known_of(world, claims)

    assert (known.name, known.lasting, known.unknown) == (APP, True, "")
    assert only_days(known, world.clock.now()) == expected


def test_an_application_without_a_secret_has_a_federated_token(world: AzureWorld) -> None:
    """Workload identity: there is nothing that could be old."""
    world.fake.state.applications[APP] = {"passwordCredentials": [], "keyCredentials": []}

    assert known_of(world, CERTIFICATE) == Credentials(name=APP, lasting=False)


def test_a_secret_that_is_not_listed_is_not_fine(world: AzureWorld) -> None:
    """It may be the service principal's: the doctor says that no key was listed."""
    world.fake.state.applications[APP] = {"passwordCredentials": [], "keyCredentials": []}

    assert known_of(world, SECRET) == Credentials(name=APP, lasting=True)


def test_a_managed_identity_needs_no_key(world: AzureWorld) -> None:
    """Graph is not asked."""
    known = known_of(world, {**CERTIFICATE, "xms_mirid": "/subscriptions/s/…/identities/gpuwatch"})

    assert known.lasting is False
    assert world.server.count("Applications_Get") == 0


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"upn": "anna@lab", "appid": APP, "appidacr": "0"}, "it is a person's login"),
        ({"oid": "x"}, "the token does not say how"),
        ({}, "the token does not say how"),
    ],
)
def test_what_the_token_does_not_tell_is_not_known(world: AzureWorld, claims: Mapping[str, object], why: str) -> None:
    """Never fine."""
    known = known_of(world, claims)

    assert known.lasting is None
    assert known.unknown.startswith(why)


def test_a_right_that_is_missing_is_named(world: AzureWorld) -> None:
    """By Graph's name of it."""
    world.fake.state.may_read_applications = False

    known = known_of(world, SECRET)

    assert (known.lasting, known.unknown) == (None, "Application.Read.All of Microsoft Graph is not allowed")


def test_no_answer_is_not_known(world: AzureWorld) -> None:
    """A gateway's page, another directory's application, an answer without its parts."""
    world.fake.state.applications[APP] = {"passwordCredentials": []}
    assert known_of(world, SECRET).unknown == "Microsoft Graph: no usable answer (KeyError)"

    del world.fake.state.applications[APP]
    assert "Request_ResourceNotFound" in known_of(world, SECRET).unknown

    world.server.plan.strike(Fault.GATEWAY, when(operation="Applications_Get"), times=None)
    assert "no usable answer" in known_of(world, SECRET).unknown


@pytest.mark.parametrize("national", ["public", "china", "government"])
def test_each_national_cloud_has_a_graph_of_its_own(world: AzureWorld, national: str) -> None:
    """With tokens for it alone."""
    asked: list[str] = []

    class Asked(StaticCredential):
        """Notes for what a token is asked."""

        def get_token(self, *scopes: str, **options: Any) -> Any:  # noqa: ANN401  azure-core's own
            asked.extend(scopes)
            return super().get_token(*scopes, **options)

    way = standing.graph(
        Renewing(Asked(world.fake.token), national, "of the manager", world.clock),
        national,
        world.server.url,
        clock=world.clock,
        options={"connection_verify": str(world.folder / "ca.pem")},
    )
    standing.credentials(way, SECRET, world.clock.now())

    hosts = {"public": "graph.microsoft.com", "government": "graph.microsoft.us"}
    assert asked == [f"https://{hosts.get(national, 'microsoftgraph.chinacloudapi.cn')}/.default"]
