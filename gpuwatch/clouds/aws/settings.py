"""The section `cloud.aws`, and what can be had of AWS. boto3 is loaded only by the calls that need it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar

from annotated_types import MinLen

from gpuwatch.clouds.provider import ALL, SettingsOfAccounts
from gpuwatch.model.setting import STRICT, Setting
from gpuwatch.runtime.installed import install_command
from gpuwatch.runtime.secrets import unread

_Text = Annotated[str, MinLen(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSettings(SettingsOfAccounts):
    """What only AWS needs."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    section: ClassVar[str] = "aws"
    adapter: ClassVar[str] = "gpuwatch.clouds.aws.cloud:AwsCloud"
    role: ClassVar[tuple[str, str]] = ("no role's ARN", "an ARN such as arn:aws:iam::123456789012:role/gpuwatch")

    profile: Annotated[_Text | None, Setting("The SDK's named profile; without it, the SDK's default credentials.")] = (
        None
    )

    def _options(self) -> Mapping[str, Any]:
        return {"accounts": self.accounts, "profile": self.profile}

    @staticmethod
    def account_of(arn: str) -> str:
        """The account's number in an ARN; "" if the text is not an ARN."""
        parts = arn.split(":", 5)
        return parts[4] if len(parts) > 5 and parts[0] == "arn" and parts[4].isdigit() else ""  # noqa: PLR2004  an ARN has six parts

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
            raise unread(f"{store}:{name}", f"a part is missing ({error}); {install_command('aws')}") from None
        return fetch(store, name, profile=self.profile, region=self.region, endpoint_url=self.endpoint_url)


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
