"""The section `cloud.aws`, and what can be had of AWS. boto3 is loaded only by the calls that need it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pkgutil import resolve_name
from typing import Annotated, ClassVar

from annotated_types import MinLen

from gpuwatch.clouds import Cloud
from gpuwatch.clouds.provider import ALL, ProviderSettings
from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.secrets import unread

_Text = Annotated[str, MinLen(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSettings:
    """One account of the cloud by a name for messages, and how it is entered."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    role_arn: Annotated[_Text | None, Setting("The role to assume. None: the credentials' own account.")] = None
    external_id: Annotated[_Text | None, Setting("What the role's trust policy asks for as sts:ExternalId.")] = None
    regions: Annotated[tuple[_Text, ...], Setting("Its regions; none given: those of cloud.regions.")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSettings(ProviderSettings):
    """What only AWS needs."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    accounts: Annotated[
        dict[str, AccountSettings],
        Setting("Accounts to look at, by a name; none: the one that the credentials belong to."),
    ] = field(default_factory=dict)
    profile: Annotated[_Text | None, Setting("The SDK's named profile; without it, the SDK's default credentials.")] = (
        None
    )

    def connect(self, *, fleet: str, clock: Clock, regions: tuple[str, ...], endpoint_url: str | None) -> Cloud:
        """EC2 and its Auto Scaling groups."""
        cloud: Cloud = resolve_name("gpuwatch.clouds.aws.cloud:AwsCloud")(
            fleet=fleet,
            clock=clock,
            regions=regions,
            accounts=self.accounts,
            profile=self.profile,
            endpoint_url=endpoint_url,
        )
        return cloud

    def contradictions(self) -> Iterator[Contradiction]:
        """Each account once, by a role that can exist."""
        named: dict[str | None, str] = {}  # by the account's number
        for name, account in self.accounts.items():
            path = ("cloud", "aws", "accounts", name, "role_arn")
            number = None if account.role_arn is None else account_of(account.role_arn)
            if number == "":
                yield Contradiction(
                    keys=(path,),
                    wrong=f"{account.role_arn!r} is no role's ARN",
                    right="an ARN such as arn:aws:iam::123456789012:role/gpuwatch",
                )
            elif number in named:
                yield Contradiction(
                    keys=(path,),
                    wrong=f"cloud.aws.accounts.{name} is the same account as cloud.aws.accounts.{named[number]}",
                    right="one entry for each account, with all its regions",
                )
            named.setdefault(number, name)

    def regions_named(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """The regions of each account."""
        for name, account in self.accounts.items():
            yield from ((("cloud", "aws", "accounts", name, "regions"), region) for region in account.regions)

    def region_names(self) -> frozenset[str] | None:
        """As the installed botocore lists them; AWS is not asked."""
        try:
            return _ec2_regions()
        except ImportError:
            return None

    def secret_stores(self, *, regions: tuple[str, ...], endpoint_url: str | None) -> "AwsSecrets":
        """Those of the first region, with the credentials' own account."""
        return AwsSecrets(
            profile=self.profile,
            region=next((each for each in regions if each != ALL), None),
            endpoint_url=endpoint_url,
        )

    @staticmethod
    def policies(*, fleet: str, regions: Sequence[str], partition: str, scopes: Sequence[str]) -> Mapping[str, str]:
        """As IAM reads them."""
        del scopes
        from gpuwatch.clouds.aws.iam import ROLES, policy, render  # noqa: PLC0415  needed by one command only

        written = {role: policy(role, fleet=fleet, regions=regions, partition=partition) for role in ROLES}
        return {f"{role}.json": render(each) for role, each in written.items()}

    @staticmethod
    def start_command(node_id: str, region: str | None) -> str:
        """By AWS's command line."""
        return f"aws ec2 start-instances --instance-ids {node_id}" + ("" if region is None else f" --region {region}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSecrets:
    """Parameter Store and Secrets Manager of one account and region; None is the SDK's own default."""

    forms: ClassVar[tuple[str, ...]] = ("ssm:/path/name", "secretsmanager:NAME", "secretsmanager:NAME#KEY")

    profile: str | None = None
    region: str | None = None
    endpoint_url: str | None = None

    def fetch(self, store: str, name: str) -> bytes:
        """The secret; raises OSError."""
        try:
            from gpuwatch.clouds.aws.secrets import fetch  # noqa: PLC0415  loads boto3
        except ImportError as error:
            raise unread(f"{store}:{name}", f"a part is missing ({error}); pip install 'gpuwatch[aws]'") from None
        return fetch(store, name, profile=self.profile, region=self.region, endpoint_url=self.endpoint_url)


def account_of(arn: str) -> str:
    """The account's number in an ARN; "" if the text is not an ARN."""
    parts = arn.split(":", 5)
    return parts[4] if len(parts) > 5 and parts[0] == "arn" and parts[4].isdigit() else ""  # noqa: PLR2004  an ARN has six parts


@cache
def _ec2_regions() -> frozenset[str]:
    """The regions that have EC2, in every partition: the commercial one, China, GovCloud and the isolated ones."""
    from botocore.loaders import create_loader  # noqa: PLC0415  an extra

    partitions = create_loader().load_data("endpoints")["partitions"]
    return frozenset(
        region
        for partition in partitions
        for region in partition["regions"]
        if region in partition["services"].get("ec2", {}).get("endpoints", ())
    )
