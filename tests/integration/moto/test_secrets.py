"""Secrets by reference: systemd's credentials, SSM's parameters, Secrets Manager, and no word of them anywhere."""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from gpuwatch.agent.settings import AgentSettings
from gpuwatch.cli.doctor import certificates
from gpuwatch.clouds.aws.settings import AwsSecrets, AwsSettings
from gpuwatch.clouds.settings import CloudSettings
from gpuwatch.config.settings import Settings
from gpuwatch.controller.observe.credentials import credentials_of
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.web.settings import ControllerSettings
from gpuwatch.ledger import LedgerError
from gpuwatch.ledger.postgresql import conninfo
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.model.setting import Contradiction
from gpuwatch.money.prices.fetch import FetchError
from gpuwatch.money.prices.http import key_pair_of
from gpuwatch.notify.transports.base import DeliveryError
from gpuwatch.notify.transports.base import secret as delivered
from gpuwatch.runtime import secrets
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.runtime.secrets import SecretCache, contradictions, read_secret, version_of
from tests.support.builders.doctor_findings import codes, the

SECRET = "correct horse"  # noqa: S105  of this test
REGION = "eu-central-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """An account of AWS with a key of its own, played by moto."""

    key: str
    ssm: Any

    def put(self, value: str) -> None:
        """A parameter as a SecureString under that key, anew where it is there."""
        self.ssm.put_parameter(
            Name="/gpuwatch/password", Value=value, Type="SecureString", KeyId=self.key, Overwrite=True
        )


@pytest.fixture(scope="module")
def account() -> Iterator[Stores]:
    """With two secrets: one whole, one of JSON."""
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_REGION"):
            patch.delenv(name, raising=False)
        kms, ssm, manager = (boto3.client(name, REGION) for name in ("kms", "ssm", "secretsmanager"))
        manager.create_secret(Name="gpuwatch/slack", SecretString=SECRET)
        manager.create_secret(Name="gpuwatch/db", SecretString=json.dumps({"password": SECRET, "port": 5432}))
        yield Stores(key=kms.create_key()["KeyMetadata"]["KeyId"], ssm=ssm)


@pytest.fixture
def stores(account: Stores) -> Iterator[Stores]:
    """Asked as the settings of a controller in that region say, which knows nothing of them yet."""
    before = secrets._Process.stores, secrets._Process.vault
    secrets.use(AwsSecrets(region=REGION))
    yield account
    secrets._Process.stores, secrets._Process.vault = before


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder as systemd makes it."""
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    return tmp_path


def why(named: str) -> str:
    """For what reason it cannot be read."""
    with pytest.raises(OSError, match=r".+") as raised:
        read_secret(named)
    return str(raised.value.strerror)


# Where they lead.


def test_a_file_is_a_file(tmp_path: Path) -> None:
    """As it always was."""
    (tmp_path / "password").write_text(SECRET)

    assert read_secret(str(tmp_path / "password")) == SECRET.encode()
    assert version_of(str(tmp_path / "password")) is None


def test_a_credential_is_what_systemd_hands_over(credentials: Path) -> None:
    """By its name in the unit."""
    (credentials / "agents").write_text(SECRET)

    assert read_secret("credential:agents") == SECRET.encode()
    assert "write LoadCredential=other:FILE" in why("credential:other")


def test_outside_of_systemd_a_credential_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in a shell has none."""
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)

    assert "$CREDENTIALS_DIRECTORY is not set" in why("credential:agents")
    assert "run it by a unit with LoadCredential=agents:FILE" in why("credential:agents")


def test_a_parameter_is_decrypted(stores: Stores) -> None:
    """A SecureString under a key of KMS."""
    stores.put(SECRET)

    assert stores.ssm.get_parameter(Name="/gpuwatch/password")["Parameter"]["Value"] != SECRET
    assert read_secret("ssm:/gpuwatch/password") == SECRET.encode()


@pytest.mark.parametrize("name", ["secretsmanager:gpuwatch/slack", "secretsmanager:gpuwatch/db#password"])
def test_a_secret_is_read_whole_or_by_a_key_of_its_json(stores: Stores, name: str) -> None:
    """As the console makes them."""
    del stores

    assert read_secret(name) == SECRET.encode()


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("ssm:/gpuwatch/nothing", "AWS answered ParameterNotFound"),
        ("secretsmanager:gpuwatch/nothing", "AWS answered ResourceNotFoundException"),
        ("secretsmanager:gpuwatch/db#port", "it is no JSON object with a text under 'port'"),
        ("secretsmanager:gpuwatch/db#user", "it is no JSON object with a text under 'user'"),
        ("secretsmanager:gpuwatch/slack#user", "it is no JSON object with a text under 'user'"),
    ],
)
def test_what_leads_nowhere_says_so_and_repeats_no_secret(stores: Stores, named: str, words: str) -> None:
    """AWS's words, or ours; the decoder's error, which has the text it failed on, is not chained."""
    del stores
    with pytest.raises(OSError, match=r".+") as raised:
        read_secret(named)

    assert words in str(raised.value.strerror)
    assert SECRET not in repr(raised.value)
    assert raised.value.__cause__ is None


def test_without_a_region_the_setting_is_named(stores: Stores) -> None:
    """The SDK would only say that it has none."""
    del stores
    secrets.use(AwsSecrets())

    assert why("ssm:/gpuwatch/password") == "no region is known; set cloud.regions or AWS_DEFAULT_REGION"


def test_an_account_that_cannot_be_reached_is_told(stores: Stores) -> None:
    """A profile that does not exist is one such reason."""
    del stores
    secrets.use(AwsSecrets(region=REGION, profile="nobody"))

    assert why("ssm:/gpuwatch/password").startswith("AWS was not reached: ")


def test_the_settings_of_the_cloud_say_whose_stores_are_asked() -> None:
    """Its profile, its first region, its endpoint."""
    cloud = CloudSettings(
        aws=AwsSettings(profile="ops"), regions=(REGION, "us-east-1"), endpoint_url="http://127.0.0.1:5000"
    )

    assert cloud.secret_stores == AwsSecrets(profile="ops", region=REGION, endpoint_url="http://127.0.0.1:5000")


# How often they are asked, and what a silence does.


class Store:
    """Tells what it is told to, and counts."""

    def __init__(self) -> None:
        """It has one secret."""
        self.value: bytes | None = SECRET.encode()
        self.asked = 0

    def fetch(self, store: str, name: str) -> bytes:
        """It, or a refusal."""
        del store, name
        self.asked += 1
        if self.value is None:
            raise OSError(5, "AWS answered AccessDeniedException: no")
        return self.value


def test_a_reference_is_asked_again_every_five_minutes_at_most() -> None:
    """However often it is needed."""
    clock, store = ManualClock(), Store()
    vault = SecretCache(clock, store.fetch)
    for _ in range(10):
        vault.read("ssm:/x")
        clock.advance(59.0)
    store.value = b"new"
    clock.advance(300.0)

    assert store.asked == 2
    assert vault.read("ssm:/x") == b"new"


def test_while_a_store_is_silent_its_last_value_stays_in_use_for_a_day(caplog: pytest.LogCaptureFixture) -> None:
    """One warning says so, without the value; then it is an error."""
    clock, store = ManualClock(), Store()
    vault = SecretCache(clock, store.fetch)
    vault.read("ssm:/x")
    store.value = None
    with caplog.at_level(logging.WARNING):
        for _ in range(280):
            clock.advance(300.0)
            assert vault.read("ssm:/x") == SECRET.encode()
    clock.advance(86400.0)

    assert [record.getMessage() for record in caplog.records] == [
        "ssm:/x cannot be read, its last value stays in use: AWS answered AccessDeniedException: no"
    ]
    with pytest.raises(OSError, match="AccessDeniedException"):
        vault.read("ssm:/x")
    assert SECRET not in repr(vault._kept)


def test_a_reference_that_never_led_anywhere_is_tried_again_after_a_minute() -> None:
    """Rights take effect within minutes, and a round a second must not be a question a second."""
    clock, store = ManualClock(), Store()
    vault = SecretCache(clock, store.fetch)
    store.value = None
    for _ in range(3):
        with pytest.raises(OSError, match="AccessDeniedException"):
            vault.read("ssm:/x")
        clock.advance(1.0)
    store.value = b"at last"
    clock.advance(60.0)

    assert store.asked == 1
    assert vault.read("ssm:/x") == b"at last"


# Who reads them.


def test_every_reader_of_the_controller_takes_references(credentials: Path) -> None:
    """Agents' password, the ledger's URL, webhooks, keys for prices."""
    (credentials / "word").write_text(f"{SECRET}\n")
    (credentials / "url").write_text("postgresql://gpuwatch@db.example.com/gpuwatch")
    (credentials / "pair").write_text("ID:KEY")
    settings = ObserveSettings(username="controller", password_file="credential:word")  # noqa: S106  a reference

    assert credentials_of(settings).value.header("https://agent") == {
        "Authorization": "Basic Y29udHJvbGxlcjpjb3JyZWN0IGhvcnNl"
    }
    assert conninfo(LedgerSettings(url_file="credential:url"))["host"] == "db.example.com"
    assert delivered("credential:word") == SECRET
    assert key_pair_of(Path("credential:pair"), "prices.live.tencent_key_file") == ("ID", "KEY")


def test_every_reader_says_which_setting_leads_nowhere(stores: Stores) -> None:
    """In the words of its own room."""
    del stores
    named, words = "ssm:/gpuwatch/nothing", "ssm:/gpuwatch/nothing cannot be read: AWS answered ParameterNotFound"
    with pytest.raises(OSError, match=f"^signals.password_file: {words}"):
        credentials_of(ObserveSettings(username="controller", password_file=named))
    with pytest.raises(LedgerError, match=f"ledger.url_file {words}"):
        conninfo(LedgerSettings(url_file=named))
    with pytest.raises(DeliveryError, match=words):
        delivered(named)

    with pytest.raises(FetchError, match=f"prices.live.gcp_key_file: {words}"):
        key_pair_of(Path(named), "prices.live.gcp_key_file")


def test_a_changed_secret_is_in_force_without_a_restart(stores: Stores) -> None:
    """The agents' password changes in the store, and the next question after that has it."""
    clock = ManualClock()
    secrets._Process.vault = SecretCache(clock, secrets._Process.stores.fetch)
    stores.put("old")
    settings = ObserveSettings(username="u", password_file="ssm:/gpuwatch/password")  # noqa: S106  a reference
    reread = credentials_of(settings)
    stores.put("new")
    unasked = reread.value.header("https://agent")
    clock.advance(301.0)

    assert unasked == {"Authorization": "Basic dTpvbGQ="}
    assert reread.value.header("https://agent") == {"Authorization": "Basic dTpuZXc="}


def test_a_credential_that_changes_is_read_again(credentials: Path) -> None:
    """As a file is."""
    (credentials / "word").write_text("old")
    before = version_of("credential:word")
    (credentials / "word").write_text("newer")

    assert before != version_of("credential:word")
    assert version_of("credential:other") == (None,)


# What is told of them before and besides.


def contradictions_in(**sections: Any) -> list[Contradiction]:  # noqa: ANN401  any section
    """What the settings say against it."""
    return list(contradictions(Settings(**sections), AwsSecrets.forms))


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("ssm:", "it has no name"),
        ("secretsmanager:#key", "it has no name"),
        ("secretsmanager:name#", "it has no name"),
        ("credential:../shadow", "a credential's name cannot be a path"),
    ],
)
def test_a_reference_that_can_lead_nowhere_is_refused_with_the_settings(stores: Stores, named: str, words: str) -> None:
    """With the key, the value and what would be right; when read all the same, it says the same."""
    del stores
    (found,) = contradictions_in(ledger=LedgerSettings(url_file=named))

    assert found.keys == (("ledger", "url_file"),)
    assert (named in found.wrong, words in found.wrong, "ssm:/path/name" in found.right) == (True, True, True)
    assert words in why(named)


def test_where_only_a_file_will_do_a_reference_is_refused() -> None:
    """Users' hashes are read by the door, which agents have as well."""
    settings = Settings(
        controller=ControllerSettings(users_file="ssm:/users"), agent=AgentSettings(users_file="ssm:/users")
    )

    assert [each.keys for each in contradictions(settings, AwsSecrets.forms)] == [
        (("controller", "users_file"),),
        (("agent", "users_file"),),
    ]


def test_the_doctor_follows_each_reference(stores: Stores, credentials: Path) -> None:
    """And tells nothing of what it found there."""
    stores.put(SECRET)
    (credentials / "empty").write_text("")
    found = [
        *certificates.secrets({"signals.password_file": "ssm:/gpuwatch/password"}),
        *certificates.secrets({"ledger.url_file": "ssm:/gpuwatch/nothing", "report.x_file": "credential:empty"}),
    ]

    assert codes(found) == ["secret.unread", "secret.unread"]
    assert the(found, "secret").looked_at == "signals.password_file: ssm:/gpuwatch/password"
    assert SECRET not in repr(found)
