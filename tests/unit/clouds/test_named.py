"""Clouds by their names: secret stores, commands and sentences of each."""

from collections.abc import Mapping
from typing import ClassVar

import pytest

from gpuwatch.clouds import named
from gpuwatch.clouds.aws.settings import AwsSecrets, AwsSettings
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.clouds.settings import CloudSettings
from gpuwatch.runtime.secrets import NoStores

ONE = {"": CloudSettings(regions=("us-east-1",))}
TWO = {"bj": CloudSettings(regions=("cn-north-1",)), "us": CloudSettings(aws=AwsSettings(profile="research"))}


class Vault:
    """A store of another cloud."""

    forms: ClassVar[tuple[str, ...]] = ("kms:NAME", "ssm:/other")

    def fetch(self, store: str, name: str) -> bytes:
        """What was asked for."""
        return f"{store} {name}".encode()


def test_the_stores_of_one_cloud_are_its_own() -> None:
    """Nothing lies between: two that are equal lead to the same place."""
    assert named.secret_stores(ONE) == AwsSecrets(region="us-east-1")
    assert isinstance(named.secret_stores({"": CloudSettings(provider="awz")}), NoStores)


def test_all_regions_are_told_with_what_may_happen_there() -> None:
    """By the key; a list of names says it by itself."""
    (only,) = named.everywhere({"": CloudSettings(regions=("all",))})
    assert only.startswith("cloud.regions is [all]: gpuwatch looks at every region")
    assert "acts in each of them on machines that are enrolled" in only

    accounts = AwsSettings(accounts={"prod": AccountSettings(regions=("all",))})
    told = list(named.everywhere({"bj": TWO["bj"], "us": CloudSettings(aws=accounts)}))
    assert [each.partition(" ")[0] for each in told] == ["clouds.us.regions"]


def test_of_two_clouds_with_the_same_kind_of_store_the_first_is_asked() -> None:
    """In the order of the settings; each form of a reference is told once."""
    found = named.secret_stores(TWO)

    assert found == named.SeveralStores((AwsSecrets(region="cn-north-1"), AwsSecrets(profile="research")))
    assert found.forms == AwsSecrets.forms


def test_each_store_is_asked_by_its_name() -> None:
    """A reference to a store that no cloud has is an error and no guess."""
    stores = named.SeveralStores((Vault(), AwsSecrets()))

    assert stores.fetch("kms", "db") == b"kms db"
    assert stores.fetch("ssm", "/db") == b"ssm /db"
    with pytest.raises(OSError, match="no store is set up"):
        stores.fetch("vault", "db")


@pytest.mark.parametrize(
    ("clouds", "cloud", "provider"),
    [(ONE, "", "aws"), (TWO, "bj", "aws"), (TWO, "", "aws"), (TWO, "eu", None), (ONE, "bj", None)],
)
def test_the_command_that_starts_a_machine_is_that_of_its_cloud(
    clouds: Mapping[str, CloudSettings], cloud: str, provider: str | None
) -> None:
    """Of a cloud that is not known any more there is none."""
    command = named.start_command(clouds)(cloud, "i-1", "cn-north-1")

    assert named.provider_of(clouds, cloud) == provider
    assert command == (provider and "aws ec2 start-instances --instance-ids i-1 --region cn-north-1")


def test_without_a_name_nobody_guesses_among_different_providers() -> None:
    """A machine that is gone has no cloud any more."""
    assert named.provider_of({**TWO, "eu": CloudSettings(provider="azure")}, "") is None


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("set cloud.regions, for example", "set clouds.bj.regions, for example"),
        ("cloud.regions and cloud.aws.accounts", "clouds.bj.regions and clouds.bj.aws.accounts"),
        ("https://cvm.cloud.aws.com and my.cloud.regions", "https://cvm.cloud.aws.com and my.cloud.regions"),
        ("the cloud. regions", "the cloud. regions"),
    ],
)
def test_a_cloud_speaks_of_its_own_keys(said: str, told: str) -> None:
    """Its settings write `cloud.`; under a name these keys are elsewhere."""
    assert named.name_keys(said, "bj") == told
    assert named.name_keys(said, "") == said
