"""How old the key of the service account is by which Google knows us."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.auth import compute_engine, impersonated_credentials
from google.oauth2 import credentials as user_credentials
from google.oauth2 import service_account

from gpuwatch.clouds.gcp.cloud import GcpCloud
from gpuwatch.clouds.keys import AccessKey, Credentials, HasCredentials
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.gcp.tokens import ACCOUNT, a_key, token_service
from tests.support.clouds.gcp.world import PROJECT, REGION, GcpWorld, a_world
from tests.support.fakes.cloud_worlds import FLEET

LIST = "iam.projects.serviceAccounts.keys.list"
MADE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def world() -> Iterator[GcpWorld]:
    """A project whose service account has the keys 1 and 2, and one that is switched off."""
    with a_world(ManualClock()) as world:
        name = f"projects/{PROJECT}/serviceAccounts/{ACCOUNT}/keys"
        ends = ("9999-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "9999-12-31T23:59:59Z")
        world.fake.service_account_keys = [
            {
                "name": f"{name}/{number}",
                "validAfterTime": "2026-01-02T03:04:05Z",
                "validBeforeTime": end,
                "keyType": "USER_MANAGED",
                **({"disabled": True} if number == 3 else {}),
            }
            for number, end in enumerate(ends, 1)
        ]
        yield world


@pytest.fixture
def file(world: GcpWorld, tmp_path: Path) -> Iterator[Path]:
    """The key 1 of the service account."""
    with token_service(world) as tokens:
        yield a_key(tmp_path, tokens)


OF_A_MACHINE: Any = compute_engine.Credentials  # google-auth has no types
OF_A_PERSON: Any = user_credentials.Credentials


def known_of(world: GcpWorld, **options: Any) -> Credentials:  # noqa: ANN401  any option of GcpCloud
    """By whom we are known."""
    given: dict[str, Any] = {"fleet": FLEET, "clock": world.clock, "regions": [REGION], "projects": [PROJECT]}
    cloud = GcpCloud(**given, endpoint_url=world.server.url, **options)
    assert isinstance(cloud, HasCredentials)
    return cloud.credentials()


def test_the_keys_of_the_service_account_are_told(world: GcpWorld, file: Path) -> None:
    """With the one that is ours; what is switched off opens nothing, and the year 9999 is no end."""
    known = known_of(world, credentials_file=file)

    assert (known.name, known.lasting, known.unknown) == (ACCOUNT, True, "")
    assert known.keys == (
        AccessKey(id="1", made=MADE, ours=True),
        AccessKey(id="2", made=MADE, ends=datetime(2026, 12, 1, tzinfo=UTC), ours=False),
    )


def test_a_key_that_impersonates_another_account_is_told(world: GcpWorld, file: Path) -> None:
    """The other account's tokens end within the hour; the key does not."""
    source: Any = service_account.Credentials
    make: Any = impersonated_credentials.Credentials
    found = make(
        source_credentials=source.from_service_account_file(str(file)),
        target_principal="other@gpu-lab.iam.gserviceaccount.com",
        target_scopes=["https://www.googleapis.com/auth/cloud-platform"],
    )
    found.token, found.expiry = "token-given", None
    world.fake.tokens = {"token-given"}

    assert [key.id for key in known_of(world, credentials=found).keys] == ["1", "2"]


def test_a_right_that_is_missing_is_named(world: GcpWorld, file: Path) -> None:
    """By Google's name of it; the API of IAM is a service of its own that a project switches on."""
    world.fake.permissions = set()

    known = known_of(world, credentials_file=file)

    assert (known.lasting, known.keys) == (True, ())
    assert known.unknown == "iam.serviceAccountKeys.list is not allowed, or the IAM API is switched off"


def test_no_answer_is_not_known(world: GcpWorld, file: Path) -> None:
    """A gateway's page."""
    world.server.plan.strike(Fault.GATEWAY, when(operation=LIST), times=None)

    known = known_of(world, credentials_file=file)

    assert (known.lasting, known.keys) == (True, ())
    assert LIST in known.unknown


def test_an_answer_that_cannot_be_read_is_not_known(world: GcpWorld, file: Path) -> None:
    """A key without its time."""
    del world.fake.service_account_keys[0]["validAfterTime"]

    assert known_of(world, credentials_file=file).unknown == f"{LIST}: no usable answer (KeyError)"


def test_the_service_account_of_the_machine_needs_no_key(world: GcpWorld) -> None:
    """Nothing is asked about it."""
    known = known_of(world, credentials=OF_A_MACHINE())

    assert known.lasting is False
    assert LIST not in world.fake.asked_for


@pytest.mark.parametrize(
    ("given", "why"),
    [(OF_A_PERSON("token"), "a person's login"), (object(), "of another kind (object)")],
    ids=["a person", "another"],
)
def test_what_google_does_not_tell_is_not_known(world: GcpWorld, given: Any, why: str) -> None:  # noqa: ANN401  anything
    """A login from a desk does not end by itself."""
    known = known_of(world, credentials=given)

    assert known.lasting is None
    assert why in known.unknown
