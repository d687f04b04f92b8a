"""Credentials by azure-identity's own chain, and the real program, over HTTPS against the pretended Azure."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest

from gpuwatch.clouds import AuthFailedError
from gpuwatch.clouds.azure.client import default_credential
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.azure.tokens import CLIENT, SECRET, TENANT
from tests.support.clouds.azure.world import SUB, AzureWorld, an_azure
from tests.support.fakes.cloud_worlds import MINE


@pytest.fixture
def world() -> Iterator[AzureWorld]:
    """A subscription with one machine."""
    with an_azure(ManualClock()) as world:
        world.add({**MINE, "Name": "trainer-1"})
        yield world


def environment(world: AzureWorld, secret: str = SECRET) -> Mapping[str, str]:
    """An application's, as people set it."""
    return {
        "AZURE_AUTHORITY_HOST": world.server.url,
        "AZURE_TENANT_ID": TENANT,
        "AZURE_CLIENT_ID": CLIENT,
        "AZURE_CLIENT_SECRET": secret,
        "AZURE_SUBSCRIPTION_ID": SUB,
        "REQUESTS_CA_BUNDLE": str(world.folder / "ca.pem"),
    }


def test_an_applications_secret_is_enough(world: AzureWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """One token serves for many calls, and a new one is fetched before it ends."""
    for name, value in environment(world).items():
        monkeypatch.setenv(name, value)
    cloud = world.connect(credential=default_credential("public"))

    assert [node.name for node in cloud.nodes()] == ["trainer-1"]
    cloud.nodes()

    assert world.server.count("Token") == 1


def test_a_token_that_ends_soon_is_fetched_again(world: AzureWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a round too."""
    world.state.token_seconds = 1
    for name, value in environment(world).items():
        monkeypatch.setenv(name, value)
    cloud = world.connect(credential=default_credential("public"))

    cloud.nodes()

    assert world.server.count("Token") > 1


def test_a_wrong_secret_is_named_and_not_repeated(world: AzureWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory's answer goes no further than its kind."""
    for name, value in environment(world, "another").items():
        monkeypatch.setenv(name, value)

    with pytest.raises(AuthFailedError) as caught:
        world.connect(credential=default_credential("public")).nodes()

    assert "another" not in str(caught.value)


def test_the_real_program_sees_the_fleet(world: AzureWorld) -> None:
    """`gpuwatch unused` and `gpuwatch scan` as people run them: settings, chain, HTTPS and all."""
    world.add_volume()
    config = world.folder / "gpuwatch.yaml"
    settings = f"{{provider: azure, endpoint_url: '{world.server.url}'}}"
    config.write_text(f"fleet: lab\ncloud: {settings}\nledger: {{path: {world.folder}/gpuwatch.db}}\n")

    for command, words in (("unused", "left"), ("scan", "trainer-1")):
        asked = subprocess.run(
            [sys.executable, "-m", "gpuwatch", command, "--config", str(config)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, **environment(world), "COLUMNS": "200"},
        )
        assert words in asked.stdout, asked.stdout + asked.stderr


def test_the_real_program_says_in_a_line_that_it_may_not_sign_in(world: AzureWorld) -> None:
    """Without the paragraphs of the SDK about each way that it tried."""
    config = world.folder / "gpuwatch.yaml"
    settings = f"{{provider: azure, endpoint_url: '{world.server.url}'}}"
    config.write_text(f"fleet: lab\ncloud: {settings}\nledger: {{path: {world.folder}/gpuwatch.db}}\n")
    asked = subprocess.run(
        [sys.executable, "-m", "gpuwatch", "unused", "--config", str(config)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **environment(world, "another")},
    )

    assert asked.returncode == 2
    assert len(asked.stderr.splitlines()) == 1, asked.stderr
    assert "another" not in asked.stdout + asked.stderr
